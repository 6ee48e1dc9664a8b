//! GPU workers on a stub driver (`tests/stub-cuda`): the whole path from a client to libcuda and back, with
//! faults by a script. In a script, `DIR` is the folder of its pool.

mod codes;
mod devices;
mod jobs;
mod lone;
mod monitor;
mod policy;
mod replay;

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use gridpool_protocol::receipt::{AttemptOutcome, Receipt};

use crate::pool::{Setup, on};

/// What loaders ask for: cudarc first for the bare name, nvml-wrapper for the versioned one.
const NAMES: [&str; 3] = ["libcuda.so", "libcuda.so.1", "libnvidia-ml.so.1"];

/// The variable that tells the driver what to do.
const SCRIPT: &str = "STUB_CUDA_SCRIPT";

/// Restarts that follow each other at once.
const NO_BACKOFF: &str = "backoff_min_ms = 1\nbackoff_max_ms = 2\n";

/// A pool on `count` GPUs whose driver obeys a script.
pub(crate) fn gpus(count: usize, script: &str) -> Setup {
    let names: Vec<_> = (0..count).map(|gpu| gpu.to_string()).collect();
    let setup = on(names.join(","));
    let script = format!("devices={count}; {}", in_folder(script, setup.folder()));
    let driver = driver_in(setup.folder());
    let setup = setup.env("LD_LIBRARY_PATH", driver.to_str().expect("a readable path"));
    // The script's files.
    let folder = setup.folder().to_str().expect("a readable path").to_owned();
    let setup = setup.env("XDG_CACHE_HOME", &folder);
    setup.env("GRIDPOOL_SANDBOX_WRITE", &folder).env(SCRIPT, &script).limits(NO_BACKOFF)
}

fn in_folder(script: &str, folder: &Path) -> String {
    script.replace("DIR", &folder.display().to_string())
}

/// A folder in which loaders find the driver.
pub(crate) fn driver_in(folder: &Path) -> PathBuf {
    let driver = folder.join("driver");
    fs::create_dir(&driver).expect("a folder can be made");
    for name in NAMES {
        symlink(stub_driver(), driver.join(name)).expect("a link can be made");
    }
    driver
}

/// The driver without a GPU, which cargo builds before this test because the test names its crate.
fn stub_driver() -> PathBuf {
    let test = std::env::current_exe().expect("this test is a file");
    let driver = test.with_file_name("libgridpool_stub_cuda.so");
    assert!(driver.is_file(), "{} is not there", driver.display());
    driver
}

/// Makes a file that a script waits for.
fn make(folder: &Path, name: &str) {
    File::create_new(folder.join(name)).expect("a file can be made");
}

/// Who ran a job and what came of it.
fn attempts(receipt: &Receipt) -> Vec<(&str, AttemptOutcome)> {
    receipt.attempts.iter().map(|attempt| (&*attempt.worker, attempt.outcome)).collect()
}
