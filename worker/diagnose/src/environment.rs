//! The drivers and libraries of this machine, as this process finds them: working, broken or absent.
//!
//! An absent library is a skip, because a pool of CPU devices needs none. It is a failure if it should be
//! there: if the kernel module is there, or a GPU was asked for. `driver` checks libcuda, `nvml` checks NVML
//! and the GPUs, `runtime` checks ONNX Runtime.

mod driver;
mod nvml;
#[cfg(feature = "infer")]
mod runtime;

use std::env;
use std::path::Path;

use gridpool_ipc::clock;
use gridpool_protocol::diagnose::{Check, Group};
use procfs::process::Process;

use super::{DiagnoseError, Report, us_since};

/// Files that show the driver's kernel module; the last is WSL's.
const KERNEL_MODULE: [&str; 3] = ["/proc/driver/nvidia/version", "/dev/nvidiactl", "/dev/dxg"];
/// The start of the names of NVIDIA's MPS processes, as far as the kernel keeps them.
const MPS_PROCESS: &str = "nvidia-cuda-mps";
/// The variable that names another MPS folder.
const MPS_VARIABLE: &str = "CUDA_MPS_PIPE_DIRECTORY";
/// The default MPS folder, and the file in it if MPS runs.
const MPS_FOLDER: &str = "/tmp/nvidia-mps";
const MPS_CONTROL: &str = "control";
/// The advice for a machine with a GPU and no driver.
const INSTALL_DRIVER: &str = "to use GPUs, install the NVIDIA driver";
/// The advice for a container that does not see its host's driver.
const IN_A_CONTAINER: &str = "in a container, start it with the NVIDIA runtime (`--gpus all`) and \
                              NVIDIA_DRIVER_CAPABILITIES=compute,utility; else install the driver's \
                              libraries of the same version";

/// Runs all checks.
pub(super) fn run(
    uuid: Option<&str>,
    onnxruntime: Option<&Path>,
    report: &mut Report<'_>,
) -> Result<(), DiagnoseError> {
    let has_module = KERNEL_MODULE.iter().any(|path| Path::new(path).exists());
    let is_wanted = has_module || uuid.is_some();
    report.doing("NVML")?;
    let gpus = report_all(report, || nvml::run(uuid, is_wanted))?;
    report.doing("libcuda")?;
    report_all(report, || (driver::run(uuid, is_wanted), ()))?;
    report_all(report, || (vec![mps()], ()))?;
    let named = onnxruntime.map(|path| format!(" at {}", path.display()));
    report.doing(format!("ONNX Runtime{}", named.unwrap_or_default()))?;
    check_runtime(onnxruntime, gpus.is_some() || uuid.is_some(), uuid.is_some(), report)
}

/// Reports the checks of a step, with its duration.
fn report_all<T>(
    report: &mut Report<'_>,
    run: impl FnOnce() -> (Vec<Check>, T),
) -> Result<T, DiagnoseError> {
    let started = clock::now();
    let (checks, rest) = run();
    let us = us_since(started);
    // If a step gives several checks, the first has its time.
    for (at, check) in checks.into_iter().enumerate() {
        report.check(if at == 0 { check.took(us) } else { check })?;
    }
    Ok(rest)
}

#[cfg(feature = "infer")]
fn check_runtime(
    named: Option<&Path>,
    has_gpu: bool,
    sees_gpu: bool,
    report: &mut Report<'_>,
) -> Result<(), DiagnoseError> {
    report_all(report, || (runtime::run(named, has_gpu, sees_gpu), ()))
}

#[cfg(not(feature = "infer"))]
fn check_runtime(
    _: Option<&Path>,
    _: bool,
    _: bool,
    report: &mut Report<'_>,
) -> Result<(), DiagnoseError> {
    let says = "this gridpool-worker was built without models";
    let next = "build it with the feature `infer` to have models";
    report.check(Check::skip(Group::Environment, "onnxruntime", says, next))
}

/// Checks that workers do not share a context through MPS: a fault in one would end all.
fn mps() -> Check {
    let processes = procfs::process::all_processes().into_iter().flatten().flatten();
    let is_mps =
        |process: &Process| process.stat().is_ok_and(|stat| stat.comm.starts_with(MPS_PROCESS));
    let mps = processes.filter(is_mps).map(|process| process.pid());
    let variable = env::var(MPS_VARIABLE).ok();
    let folder = variable.as_deref().unwrap_or(MPS_FOLDER);
    let is_reached = Path::new(folder).join(MPS_CONTROL).exists();
    check_mps(&mps.collect::<Vec<_>>(), variable.as_deref(), is_reached)
}

/// `is_reached`: the MPS folder of this process leads to a server.
fn check_mps(pids: &[i32], variable: Option<&str>, is_reached: bool) -> Check {
    let check = match (pids, variable) {
        ([], None) => Check::pass(Group::Environment, "mps", "no MPS server runs here"),
        ([], Some(folder)) => {
            let says = format!("no MPS server runs here, though {MPS_VARIABLE} names {folder}");
            Check::pass(Group::Environment, "mps", says)
        }
        ([pid, ..], _) if !is_reached => {
            let says =
                format!("an MPS server runs here (process {pid}), but no worker would find it");
            Check::pass(Group::Environment, "mps", says)
        }
        ([pid, ..], _) => {
            let says = format!(
                "an MPS server runs here (process {pid}): workers would share a context through it, and \
                 a fault of one would end all"
            );
            let next = "end it: `echo quit | nvidia-cuda-mps-control`; or start the pool with \
                        CUDA_MPS_PIPE_DIRECTORY naming an empty folder";
            Check::fail(Group::Environment, "mps", says, next)
        }
    };
    let pids: Vec<_> = pids.iter().map(i32::to_string).collect();
    check.fact("processes", pids.join(", ")).fact("variable", variable.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use gridpool_protocol::diagnose::Outcome;

    use super::*;

    #[test]
    fn an_mps_server_is_a_failure_and_a_variable_alone_is_not() {
        assert_eq!(check_mps(&[], None, false).outcome, Outcome::Pass);
        assert_eq!(check_mps(&[], Some("/tmp/mps"), true).outcome, Outcome::Pass);
        let elsewhere = check_mps(&[7], Some("/an/empty/folder"), false);
        assert_eq!(elsewhere.outcome, Outcome::Pass, "as the advice has it");
        let check = check_mps(&[7, 8], None, true);
        assert_eq!((check.outcome, check.facts["processes"].as_str()), (Outcome::Fail, "7, 8"));
        assert!(check.next.contains("nvidia-cuda-mps-control"), "{}", check.next);
    }
}
