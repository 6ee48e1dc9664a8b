//! The drivers and libraries of this machine, as this process finds them: each that is there and
//! works, each that is there and does not, and each that is not there.
//!
//! What is absent is a skip: a pool of CPU devices needs none of it. It is a failure where something
//! else says that it should be there: the kernel module, or a GPU that was asked for. `driver` looks for
//! libcuda, `nvml` for NVML and at the GPUs, `runtime` for ONNX Runtime.

mod driver;
mod nvml;
#[cfg(feature = "infer")]
mod runtime;

use std::env;
use std::fs;
use std::path::Path;

use gridpool_protocol::clock;
use gridpool_protocol::diagnose::{Check, Group};

use super::{DiagnoseError, Report, us_since};

/// Where the kernel module of the driver shows itself; the last is that of WSL.
const KERNEL_MODULE: [&str; 3] = ["/proc/driver/nvidia/version", "/dev/nvidiactl", "/dev/dxg"];
/// What the processes of NVIDIA's MPS are called, as far as the kernel keeps it.
const MPS_PROCESS: &str = "nvidia-cuda-mps";
/// The variable that has clients look for MPS elsewhere.
const MPS_VARIABLE: &str = "CUDA_MPS_PIPE_DIRECTORY";
/// Where they look for it otherwise, and what is there if it runs.
const MPS_FOLDER: &str = "/tmp/nvidia-mps";
const MPS_CONTROL: &str = "control";
/// What has a machine with a GPU and no driver have one.
const INSTALL_DRIVER: &str = "to use GPUs, install the NVIDIA driver";
/// What has a container see the driver of its host.
const IN_A_CONTAINER: &str = "in a container, start it with the NVIDIA runtime (`--gpus all`) and \
                              NVIDIA_DRIVER_CAPABILITIES=compute,utility; else install the driver's \
                              libraries of the same version";

/// Looks at all of it.
pub(super) fn look(
    uuid: Option<&str>,
    onnxruntime: Option<&Path>,
    report: &mut Report<'_>,
) -> Result<(), DiagnoseError> {
    let has_module = KERNEL_MODULE.iter().any(|path| Path::new(path).exists());
    let is_wanted = has_module || uuid.is_some();
    report.doing("NVML")?;
    let gpus = tell(report, || nvml::look(uuid, is_wanted))?;
    report.doing("libcuda")?;
    tell(report, || (driver::look(uuid, is_wanted), ()))?;
    tell(report, || (vec![mps()], ()))?;
    let named = onnxruntime.map(|path| format!(" at {}", path.display()));
    report.doing(format!("ONNX Runtime{}", named.unwrap_or_default()))?;
    look_at_runtime(onnxruntime, gpus.is_some() || uuid.is_some(), uuid.is_some(), report)
}

/// Reports what a look has found, with how long it took.
fn tell<T>(
    report: &mut Report<'_>,
    look: impl FnOnce() -> (Vec<Check>, T),
) -> Result<T, DiagnoseError> {
    let started = clock::now();
    let (checks, rest) = look();
    let us = us_since(started);
    // Of several that one look has found, the first has the time.
    for (at, check) in checks.into_iter().enumerate() {
        report.check(if at == 0 { check.took(us) } else { check })?;
    }
    Ok(rest)
}

#[cfg(feature = "infer")]
fn look_at_runtime(
    named: Option<&Path>,
    has_gpu: bool,
    sees_gpu: bool,
    report: &mut Report<'_>,
) -> Result<(), DiagnoseError> {
    tell(report, || (runtime::look(named, has_gpu, sees_gpu), ()))
}

#[cfg(not(feature = "infer"))]
fn look_at_runtime(
    _: Option<&Path>,
    _: bool,
    _: bool,
    report: &mut Report<'_>,
) -> Result<(), DiagnoseError> {
    let says = "this gridpool-worker was built without models";
    let next = "build it with the feature `infer` to have models";
    report.check(Check::skip(Group::Environment, "onnxruntime", says, next))
}

/// Whether processes share a context by MPS: then one's fault is everybody's.
fn mps() -> Check {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mps = processes.filter_map(|entry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        let name = fs::read_to_string(entry.path().join("comm")).ok()?;
        name.starts_with(MPS_PROCESS).then_some(pid)
    });
    let variable = env::var(MPS_VARIABLE).ok();
    let folder = variable.as_deref().unwrap_or(MPS_FOLDER);
    let is_reached = Path::new(folder).join(MPS_CONTROL).exists();
    judge_mps(&mps.collect::<Vec<_>>(), variable.as_deref(), is_reached)
}

/// `is_reached`: the folder in which a process of ours looks for a server leads to one.
fn judge_mps(pids: &[u32], variable: Option<&str>, is_reached: bool) -> Check {
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
    let pids: Vec<_> = pids.iter().map(u32::to_string).collect();
    check.fact("processes", pids.join(", ")).fact("variable", variable.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use gridpool_protocol::diagnose::Outcome;

    use super::*;

    #[test]
    fn an_mps_server_is_a_failure_and_a_variable_alone_is_none() {
        assert_eq!(judge_mps(&[], None, false).outcome, Outcome::Pass);
        assert_eq!(judge_mps(&[], Some("/tmp/mps"), true).outcome, Outcome::Pass);
        let elsewhere = judge_mps(&[7], Some("/an/empty/folder"), false);
        assert_eq!(elsewhere.outcome, Outcome::Pass, "as the advice has it");
        let check = judge_mps(&[7, 8], None, true);
        assert_eq!((check.outcome, check.facts["processes"].as_str()), (Outcome::Fail, "7, 8"));
        assert!(check.next.contains("nvidia-cuda-mps-control"), "{}", check.next);
    }
}
