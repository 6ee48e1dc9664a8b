//! Faults on purpose on a real GPU, each in a process of its own: none outlives it. After each the GPU
//! must serve the next process.
//!
//! Where there is no GPU each test says so and passes; with `GRIDPOOL_REQUIRE_GPU=1` that is a
//! failure. The binary needs nothing but the driver:
//! `cargo test --release --no-run -p gridpool-worker --test gpu_faults`. It is not part of `gpu`, whose
//! tests need device memory while one of these takes all of it.

#![expect(clippy::print_stdout, reason = "what a child says, and a test that was skipped")]

use std::env;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use gridpool_protocol::batch::{Grid, GridBatch};
use gridpool_protocol::chaos::{ChaosFault, DeviceFault};
use gridpool_protocol::program::{Program, Ties};
use gridpool_worker::chaos::Saboteur;
use gridpool_worker::cuda::CudaDevice;
use gridpool_worker::fault::Fault;
use gridpool_worker::link::end_process;
use gridpool_worker::self_test::{run_batch, self_test};

/// Says which fault a child meets; without it a process is no child.
const FAULT: &str = "GRIDPOOL_TEST_FAULT";
/// In place of a fault.
const NONE: &str = "none";

/// How long a child may take for anything.
const PATIENCE: Duration = Duration::from_secs(120);
/// A kernel that has run for so long while its job waits will not end.
const ENDLESS: Duration = Duration::from_secs(3);

/// One child at a time: one of them takes all memory of the device.
static GPU: Mutex<()> = Mutex::new(());

/// What a child says, line by line.
struct Told {
    child: Child,
    lines: mpsc::Receiver<String>,
    _gpu: MutexGuard<'static, ()>,
}

impl Told {
    /// Starts a child.
    fn by(fault: &str) -> Self {
        let gpu = GPU.lock().unwrap_or_else(PoisonError::into_inner);
        let mut command = Command::new(env::current_exe().expect("this test is a file"));
        command.args(["--exact", "a_child_meets_what_it_is_told_to", "--nocapture"]);
        let child = command.env(FAULT, fault).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut child = child.expect("a child can be started");
        let stdout = BufReader::new(child.stdout.take().expect("it was piped"));
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            // The harness says things too, and begins a line that the child goes on with.
            let told = stdout.lines().map_while(Result::ok);
            let told = told.filter_map(|line| line.split_once("child: ").map(|l| l.1.to_owned()));
            told.for_each(|line| drop(sender.send(line)));
        });
        Self { child, lines, _gpu: gpu }
    }

    /// Its next line.
    fn next(&self) -> String {
        self.lines.recv_timeout(PATIENCE).expect("the child says something")
    }

    /// Whether there is a GPU, as the child sees it; what it says first.
    fn has_gpu(&self) -> bool {
        match self.next().as_str() {
            "ready" => true,
            "no GPU" => {
                println!("skipped: no GPU");
                false
            }
            other => unreachable!("a child begins with `{other}`"),
        }
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        // It has mostly ended by itself.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn say(line: &str) {
    println!("child: {line}");
}

/// The body of a child; nothing where no test is its parent.
#[test]
fn a_child_meets_what_it_is_told_to() {
    let Some(fault) = env::var_os(FAULT) else { return };
    let gpu = match CudaDevice::open(0, None) {
        Err(Fault::NoDriver) if env::var_os("GRIDPOOL_REQUIRE_GPU").is_none() => {
            say("no GPU");
            end_process(0);
        }
        opened => opened.expect("the GPU opens"),
    };
    let mut device = Saboteur::new(Box::new(gpu));
    self_test(&mut device).expect("the GPU is right so far");
    say("ready");
    let fault = fault.to_str().expect("a name").parse::<ChaosFault>().ok();
    let program = Program::compile("rot90", Ties::Cpython).expect("the program compiles");
    let grid = Grid::from_rows(&[[1, 2, 3]]).expect("a grid");
    let batch = GridBatch::from_grids([&grid]).expect("one grid fits a job");
    device.arm(fault);
    match run_batch(&mut device, &program, &batch) {
        Ok(_) => say("no fault"),
        Err(fault) if fault.ends_worker() => {
            say(&fault.to_string());
            end_process(0);
        }
        Err(fault) => say(&fault.to_string()),
    }
    self_test(&mut device).expect("the GPU is right still");
    say("right still");
    end_process(0);
}

/// Whether the GPU serves the next process.
#[track_caller]
fn serves() {
    let child = Told::by(NONE);
    assert!(child.has_gpu(), "there was one a moment ago");
    assert_eq!((child.next(), child.next()), ("no fault".to_owned(), "right still".to_owned()));
}

/// The fault that a child meets is one of `names` with their codes, as the driver tells it.
#[track_caller]
fn meets(fault: DeviceFault, names: &[&str]) {
    let child = Told::by(ChaosFault::Device(fault).name());
    if !child.has_gpu() {
        return;
    }
    let told = child.next();
    println!("{fault:?}: {told}");
    assert!(names.iter().any(|name| told.ends_with(name)), "{fault:?}: {told}");
    assert!(child.lines.recv_timeout(PATIENCE).is_err(), "it ends without another word");
    drop(child);
    serves();
}

#[test]
fn a_store_out_of_bounds_is_700_and_the_gpu_serves_the_next_process() {
    meets(DeviceFault::Oob, &["CUDA_ERROR_ILLEGAL_ADDRESS (700)"]);
}

#[test]
fn a_trap_is_719_or_715_and_the_gpu_serves_the_next_process() {
    let names = ["CUDA_ERROR_LAUNCH_FAILED (719)", "CUDA_ERROR_ILLEGAL_INSTRUCTION (715)"];
    meets(DeviceFault::Trap, &names);
}

#[test]
fn a_misaligned_store_is_716_and_the_gpu_serves_the_next_process() {
    meets(DeviceFault::Misaligned, &["CUDA_ERROR_MISALIGNED_ADDRESS (716)"]);
}

#[test]
fn a_failed_assertion_is_710_and_the_gpu_serves_the_next_process() {
    meets(DeviceFault::Assert, &["CUDA_ERROR_ASSERT (710)"]);
}

#[test]
fn a_device_without_memory_fails_one_run_and_serves_the_same_process() {
    let child = Told::by(ChaosFault::Device(DeviceFault::Memory).name());
    if !child.has_gpu() {
        return;
    }
    assert_eq!(child.next(), "cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY (2)");
    assert_eq!(child.next(), "right still");
}

#[test]
fn an_endless_kernel_ends_with_its_process_and_the_gpu_serves_the_next_one() {
    let child = Told::by(ChaosFault::Device(DeviceFault::Endless).name());
    if !child.has_gpu() {
        return;
    }
    let silence = child.lines.recv_timeout(ENDLESS);
    assert_eq!(silence, Err(mpsc::RecvTimeoutError::Timeout), "its job waits for it");
    // Kills it, and waits for its end.
    drop(child);
    serves();
}
