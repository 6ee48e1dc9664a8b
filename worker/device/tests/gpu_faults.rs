//! Injected faults on a real GPU, each in a process of its own: each one ends its process. After each, the
//! GPU must serve the next process.
//!
//! Without a GPU each test prints that it was skipped and passes; with `GRIDPOOL_REQUIRE_GPU=1` it fails. The
//! binary needs only the driver: `cargo test --release --no-run -p gridpool-device --test gpu_faults`. It is
//! not part of `gpu`, whose tests need device memory while one of these takes all of it.

#![expect(clippy::print_stdout, reason = "what a child says, and a test that was skipped")]

use std::env;
use std::io::{BufRead, BufReader};
use std::process::{self, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use gridpool_device::chaos::FaultInjector;
use gridpool_device::cuda::CudaDevice;
use gridpool_device::fault::{Fault, end_process};
use gridpool_device::self_test::{run_batch, self_test};
use gridpool_protocol::batch::{Grid, GridBatch};
use gridpool_protocol::chaos::{ChaosFault, DeviceFault};
use gridpool_protocol::program::{Program, Ties};

/// Names the fault that a child causes. A process without it is not a child.
const FAULT: &str = "GRIDPOOL_TEST_FAULT";
/// In place of a fault.
const NONE: &str = "none";

/// How long a child may take for anything.
const TIMEOUT: Duration = Duration::from_secs(120);
/// A kernel that has kept its job waiting this long will not end.
const ENDLESS: Duration = Duration::from_secs(3);

/// One child at a time: one of the faults takes all memory of the device.
static GPU: Mutex<()> = Mutex::new(());

/// A child process and the lines that it prints.
struct Child {
    child: process::Child,
    lines: mpsc::Receiver<String>,
    _gpu: MutexGuard<'static, ()>,
}

impl Child {
    /// Starts a child.
    fn by(fault: &str) -> Self {
        let gpu = GPU.lock().unwrap_or_else(PoisonError::into_inner);
        let mut command = Command::new(env::current_exe().expect("this test is a file"));
        command.args(["--exact", "a_child_causes_the_fault_it_is_given", "--nocapture"]);
        let child = command.env(FAULT, fault).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut child = child.expect("a child can be started");
        let stdout = BufReader::new(child.stdout.take().expect("it was piped"));
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            // The harness prints too, and begins a line that the child continues.
            let said = stdout.lines().map_while(Result::ok);
            let said = said.filter_map(|line| line.split_once("child: ").map(|l| l.1.to_owned()));
            said.for_each(|line| drop(sender.send(line)));
        });
        Self { child, lines, _gpu: gpu }
    }

    /// Its next line.
    fn next(&self) -> String {
        self.lines.recv_timeout(TIMEOUT).expect("the child says something")
    }

    /// Whether the child sees a GPU: its first line says so.
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

impl Drop for Child {
    fn drop(&mut self) {
        // The child has usually ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn say(line: &str) {
    println!("child: {line}");
}

/// The body of a child; without a parent it does nothing.
#[test]
fn a_child_causes_the_fault_it_is_given() {
    let Some(fault) = env::var_os(FAULT) else { return };
    let gpu = match CudaDevice::open(0, None) {
        Err(Fault::NoDriver) if env::var_os("GRIDPOOL_REQUIRE_GPU").is_none() => {
            say("no GPU");
            end_process(0);
        }
        opened => opened.expect("the GPU opens"),
    };
    let mut device = FaultInjector::new(Box::new(gpu));
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
    let child = Child::by(NONE);
    assert!(child.has_gpu(), "there was one a moment ago");
    assert_eq!((child.next(), child.next()), ("no fault".to_owned(), "right still".to_owned()));
}

/// Checks that the child meets one of the errors `names`, printed as the driver names it.
#[track_caller]
fn meets(fault: DeviceFault, names: &[&str]) {
    let child = Child::by(ChaosFault::Device(fault).name());
    if !child.has_gpu() {
        return;
    }
    let said = child.next();
    println!("{fault:?}: {said}");
    assert!(names.iter().any(|name| said.ends_with(name)), "{fault:?}: {said}");
    assert!(child.lines.recv_timeout(TIMEOUT).is_err(), "it ends without another word");
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
    let child = Child::by(ChaosFault::Device(DeviceFault::Memory).name());
    if !child.has_gpu() {
        return;
    }
    assert_eq!(child.next(), "cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY (2)");
    assert_eq!(child.next(), "right still");
}

#[test]
fn an_endless_kernel_ends_with_its_process_and_the_gpu_serves_the_next_one() {
    let child = Child::by(ChaosFault::Device(DeviceFault::Endless).name());
    if !child.has_gpu() {
        return;
    }
    let silence = child.lines.recv_timeout(ENDLESS);
    assert_eq!(silence, Err(mpsc::RecvTimeoutError::Timeout), "its job waits for it");
    // Kills it, and waits for its end.
    drop(child);
    serves();
}
