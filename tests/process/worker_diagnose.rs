//! `gridpool-worker diagnose`: the checking processes on real pools, on a stub driver, and on deliberately broken
//! machines. Sound parts pass, and each broken part fails under its name.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use gridpool_protocol::diagnose::{Check, Line, Outcome, Plan, Subject};
use gridpool_protocol::ids::DeviceId;
use gridpool_protocol::tensor::options::{ModelOptions, ModelPlan};
use gridpool_stub_cuda::machine::uuid_text;

use crate::binaries;
use crate::infer::{has_runtime, model};
use crate::pool::{Pool, cpu};
use crate::stubbed::{driver_in, gpus};
use crate::wait::within;

/// A checking process and its plan.
struct Checker {
    plan: Plan,
    env: Vec<(String, String)>,
}

fn checker(subject: Subject) -> Checker {
    let plan = Plan { subject, ops: Vec::new(), sizes: Vec::new(), quick: true };
    Checker { plan, env: Vec::new() }
}

fn device(name: &str) -> DeviceId {
    name.parse().expect("it is a device")
}

fn batches(pool: &Pool, name: &str) -> Checker {
    checker(Subject::Batches { socket: pool.socket(), device: device(name) })
}

fn environment(uuid: Option<&str>, onnxruntime: Option<&str>) -> Checker {
    let uuid = uuid.map(str::to_owned);
    checker(Subject::Environment { uuid, onnxruntime: onnxruntime.map(Into::into) })
}

impl Checker {
    fn ops(mut self, ops: &[&str]) -> Self {
        self.plan.ops = ops.iter().map(|&op| op.to_owned()).collect();
        self
    }

    fn sizes(mut self, sizes: &[u32]) -> Self {
        self.plan.sizes = sizes.to_vec();
        self
    }

    fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// On a driver without a GPU in that folder, that obeys a script.
    fn on_stub(self, folder: &Path, script: &str) -> Self {
        let driver = folder.join("driver");
        let driver = if driver.exists() { driver } else { driver_in(folder) };
        let driver = driver.to_str().expect("a readable path");
        self.env("LD_LIBRARY_PATH", driver)
            .env("STUB_CUDA_SCRIPT", script)
            .env("CUDA_VISIBLE_DEVICES", &uuid_text(0))
    }

    /// The checks by their names, in a process that ends well.
    fn checks(self) -> BTreeMap<String, Check> {
        let plan = serde_json::to_string(&self.plan).expect("a plan is JSON");
        let mut command = Command::new(binaries::worker());
        command
            .args(["diagnose", "--plan", &plan, "--supervisor-pid"])
            .arg(std::process::id().to_string())
            .envs(self.env);
        let done = command.output().expect("the worker can be started");
        let complaint = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{complaint}");
        let lines = String::from_utf8(done.stdout).expect("it prints UTF-8");
        let lines = lines.lines().map(|line| serde_json::from_str(line).expect("a line is JSON"));
        let checks = lines.filter_map(|line| match line {
            Line::Check(check) => Some((check.name.clone(), check)),
            Line::Doing(_) => None,
        });
        checks.collect()
    }
}

/// All of them passed, and say nothing to do.
#[track_caller]
fn all_pass(checks: &BTreeMap<String, Check>) {
    for check in checks.values() {
        assert_eq!(check.outcome, Outcome::Pass, "{}: {}", check.name, check.says);
        assert!(check.next.is_empty() && !check.says.is_empty(), "{check:?}");
    }
}

/// It failed or was skipped, with these words, and says what to do.
#[track_caller]
fn is(checks: &BTreeMap<String, Check>, name: &str, outcome: Outcome, words: &str) {
    let check = checks.get(name).unwrap_or_else(|| panic!("no check {name} in {checks:#?}"));
    assert_eq!(check.outcome, outcome, "{check:?}");
    assert!(check.says.contains(words), "{check:?}");
    assert_eq!(check.next.is_empty(), outcome == Outcome::Pass, "{check:?}");
}

#[test]
fn every_op_is_right_at_small_sizes_on_a_cpu() {
    let pool = cpu(1).start();
    let checks = batches(&pool, "cpu0").sizes(&[1, 2, 33]).checks();
    all_pass(&checks);
    assert_eq!(checks.len(), gridpool_protocol::program::OPS.len());
    for check in checks.values() {
        let number = |name: &str| check.facts[name].parse::<u64>().expect("a number");
        assert!(number("items") >= 36 && number("launches") >= 3, "{check:?}");
        assert_eq!(check.device.as_deref(), Some("cpu0"));
    }
}

#[test]
fn every_op_is_right_on_a_gpu_worker_whose_driver_computes_the_reference() {
    let pool = gpus(1, "").start();
    let checks = batches(&pool, "gpu0").sizes(&[1, 33]).checks();
    all_pass(&checks);
    assert_eq!(checks["op rot90"].facts["worker"], "gpu0#1");
}

#[test]
fn a_corrupted_kernel_fails_its_op_at_its_size_and_no_other() {
    let pool = cpu(1).env("GRIDPOOL_TEST_CORRUPT", "rot90:33").start();
    let ops = ["rot90", "rot180", "palette", "mapply"];
    let checks = batches(&pool, "cpu0").ops(&ops).sizes(&[1, 32, 33, 64]).checks();
    is(&checks, "op rot90", Outcome::Fail, "`rot90`: item 32 of 33: cell (0, 0) is ");
    assert_eq!(checks["op rot90"].first_failing, Some(33));
    assert!(checks["op rot90"].next.contains("--ops rot90 --sizes 33"));
    is(&checks, "op rot180", Outcome::Pass, "agrees with the reference at 4 sizes");
    // What builds on it says nothing of its own ops, which is no pass.
    for name in ["op palette", "op mapply"] {
        is(&checks, name, Outcome::Skip, "`rot90` is wrong by itself at 33 items");
    }
    assert!(pool.log().contains("GRIDPOOL_TEST_CORRUPT is set"), "{}", pool.log());
}

#[test]
fn a_corrupted_kernel_of_a_gpu_is_found() {
    let pool = gpus(1, "").env("GRIDPOOL_TEST_CORRUPT", "objects:2").start();
    let checks = batches(&pool, "gpu0").ops(&["o_g", "rot90"]).sizes(&[1, 2, 3]).checks();
    is(&checks, "op o_g", Outcome::Fail, "of 2: ");
    assert_eq!(checks["op o_g"].first_failing, Some(2));
    is(&checks, "op rot90", Outcome::Pass, "agrees with the reference at 3 sizes");
}

#[test]
fn a_pool_that_goes_away_fails_one_op_and_the_others_are_not_tried() {
    let pool = cpu(1).start();
    let checker = batches(&pool, "cpu0").ops(&["rot90", "rot180"]).sizes(&[1]);
    drop(pool);
    let checks = within("the process to end", move || checker.checks());
    let outcomes: Vec<_> = checks.values().map(|check| check.outcome).collect();
    assert!(outcomes.contains(&Outcome::Fail) && outcomes.contains(&Outcome::Skip), "{checks:?}");
}

#[test]
fn memory_sizes_and_shapes_are_right_on_a_cpu() {
    let pool = cpu(1).start();
    let subject = Subject::Allocation { socket: pool.socket(), device: device("cpu0"), uuid: None };
    let mut checks = checker(subject).checks();
    // Where memory is short for a moment, large arenas are not tried.
    if checks["arenas"].outcome == Outcome::Skip {
        checks.remove("arenas");
    }
    all_pass(&checks);
    let names: Vec<_> = checks.keys().map(String::as_str).collect();
    for name in ["arenas back", "grid shapes, by the client", "tensor shapes, by the client"] {
        assert!(names.contains(&name), "{names:?}");
    }
}

/// The memory checks on a device of 6 GB; in the checking process the driver obeys a script.
fn allocation_on_stub(script: &str) -> BTreeMap<String, Check> {
    let pool = gpus(1, "").start();
    let (socket, uuid) = (pool.socket(), Some(uuid_text(0)));
    let subject = Subject::Allocation { socket, device: device("gpu0"), uuid };
    let script = format!("memory=6000000000; {script}");
    checker(subject).on_stub(pool.folder(), &script).checks()
}

#[test]
fn memory_of_a_gpu_is_right_past_32_bits() {
    let checks = allocation_on_stub("");
    is(&checks, "device memory", Outcome::Pass, "sizes from 1 to 4926258176 bytes");
    is(&checks, "no device memory", Outcome::Pass, "CUDA_ERROR_INVALID_VALUE");
    is(&checks, "too much device memory", Outcome::Pass, "CUDA_ERROR_OUT_OF_MEMORY");
    is(&checks, "device memory back", Outcome::Pass, "6000000000 bytes are free");
}

#[test]
fn gpu_memory_that_changes_a_byte_or_does_not_exist_is_found_with_the_size() {
    let checks = allocation_on_stub("call=cuMemcpyDtoHAsync nth=2 flip");
    is(&checks, "device memory", Outcome::Fail, "3 bytes of the device's memory: byte 0 of 3");
    assert_eq!(checks["device memory"].first_failing, Some(3));
    let checks = allocation_on_stub("call=cuMemAlloc from=4 code=700");
    is(&checks, "device memory", Outcome::Fail, "4097 bytes of the device's memory: cuMemAlloc");
    let checks = allocation_on_stub("call=cuDevicePrimaryCtxRetain code=2");
    is(&checks, "device memory", Outcome::Fail, "no context on the GPU: cuDevicePrimaryCtxRetain");
}

#[test]
fn a_driver_is_described_and_each_thing_that_is_broken_in_it_fails_by_its_name() {
    let folder = tempfile::tempdir().expect("a folder for temporary files");
    let uuid = uuid_text(0);
    let on = |script: &str| environment(Some(&uuid), None).on_stub(folder.path(), script).checks();
    let checks = on("version=12040");
    is(&checks, "libcuda", Outcome::Pass, "offers CUDA 12.4");
    is(&checks, "kernels", Outcome::Pass, "PTX 8.0 for sm_60");
    is(&checks, "gpu", Outcome::Pass, "compute capability 9.0");
    is(&checks, "nvml", Outcome::Pass, "shows 1 GPU");
    is(&checks, "processes", Outcome::Pass, "no process has a context on it");
    is(&checks, "health", Outcome::Pass, "no recovery needed");
    let old = on("version=11080");
    is(&old, "kernels", Outcome::Fail, "needs CUDA 12.0 (driver 525); the driver offers 11.8");
    let mismatch = on("call=cuInit code=803");
    is(&mismatch, "gpu", Outcome::Fail, "cuInit: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803)");
    let reset = on("call=nvmlDeviceGetFieldValues value=1");
    is(&reset, "health", Outcome::Fail, "GPU_RESET");
    let gone = on("call=nvmlInit code=18");
    is(&gone, "nvml", Outcome::Fail, "NVML does not start");
    let other = on("uuid=GPU-00000000-0000-0000-0000-000000000001");
    is(&other, "gpu", Outcome::Fail, "libcuda shows GPU-00000000");
}

#[test]
fn a_libcuda_that_does_not_load_or_lacks_calls_is_named_and_nothing_crashes() {
    let folder = tempfile::tempdir().expect("a folder for temporary files");
    let path = folder.path().to_str().expect("a readable path");
    let described = || environment(None, None).env("LD_LIBRARY_PATH", path).checks();
    for name in ["libcuda.so", "libcuda.so.1"] {
        fs::write(folder.path().join(name), "no library").expect("a file can be written");
    }
    let broken = described();
    is(&broken, "libcuda", Outcome::Fail, "libcuda.so is there and cannot be loaded: ");
    is(&broken, "kernels", Outcome::Skip, "there is no libcuda that can be used");
    // Any library with another content.
    let maps = fs::read_to_string("/proc/self/maps").expect("this process is mapped");
    let libc = maps.split_whitespace().find(|word| word.contains("/libc.so")).expect("libc");
    for name in ["libcuda.so", "libcuda.so.1"] {
        let file = folder.path().join(name);
        fs::remove_file(&file).expect("it is there");
        std::os::unix::fs::symlink(libc, file).expect("a link can be made");
    }
    is(&described(), "libcuda", Outcome::Fail, "cannot be used: libcuda has no cu");
}

#[test]
fn an_absent_or_foreign_onnx_runtime_is_named() {
    let missing = environment(None, Some("/nonexistent/libonnxruntime.so")).checks();
    is(&missing, "onnxruntime", Outcome::Fail, "(from --onnxruntime) does not exist");
    let maps = fs::read_to_string("/proc/self/maps").expect("this process is mapped");
    let libc = maps.split_whitespace().find(|word| word.contains("/libc.so")).expect("libc");
    let other = environment(None, Some(libc)).checks();
    is(&other, "onnxruntime", Outcome::Fail, "it has no OrtGetApiBase");
    if has_runtime() {
        let found = environment(None, None).checks();
        is(&found, "onnxruntime", Outcome::Pass, "ONNX Runtime 1.");
        is(&found, "provider cpu", Outcome::Pass, "loads with all that it needs");
    }
}

#[test]
fn models_pass_and_an_unreadable_model_is_named() {
    if !has_runtime() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder for temporary files");
    let torn = folder.path().join("torn.onnx");
    fs::write(&torn, "no model").expect("a file can be written");
    let paths = [("mlp", model("mlp")), ("fixed", model("fixed")), ("torn", torn)];
    let keeps_going = cpu(1).args(&["--keep-going"]);
    let setup = paths.iter().fold(keeps_going, |setup, (name, path)| {
        setup.args(&["--model", &format!("{name}={}", path.display())])
    });
    let pool = setup.start_early();
    crate::wait::eventually("a worker to tell of its models", || {
        let rows = pool.observer().models().map_err(|error| error.to_string())?;
        if rows.len() == paths.len() { Ok(()) } else { Err(format!("{rows:?}")) }
    });
    let options = ModelOptions::default();
    let plan = |(name, path): &(&str, std::path::PathBuf)| ModelPlan {
        name: (*name).to_owned(),
        path: path.clone(),
        options: options.clone(),
    };
    let subject = Subject::Models {
        socket: pool.socket(),
        device: device("cpu0"),
        onnxruntime: None,
        models: paths.iter().map(plan).collect(),
        threads: 1,
    };
    let checks = checker(subject).sizes(&[1, 3, 33, 1_001]).checks();
    is(&checks, "model mlp", Outcome::Pass, "at 4 sizes from 1 to 1001 rows");
    is(&checks, "model fixed", Outcome::Skip, "1001 requests of one row were not tried");
    is(&checks, "model torn", Outcome::Fail, "could not load it");
}
