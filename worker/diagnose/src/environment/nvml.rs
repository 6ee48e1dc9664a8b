//! NVML, and each GPU's state: which processes have a context, whether it is healthy, and whether processes
//! may have contexts at all.

use gridpool_device::nvml::{code_of, recovery_action};
use gridpool_protocol::diagnose::{Check, Group};
use gridpool_protocol::fault::{FaultClass, FaultCode};
use nvml_wrapper::enum_wrappers::device::{ComputeMode, EccCounter, MemoryError};
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};
use procfs::process::Process;

use super::{IN_A_CONTAINER, INSTALL_DRIVER};

const GROUP: Group = Group::Environment;
/// Most processes that a sentence names.
const NAMED_MAX: usize = 3;

/// Checks NVML and its GPUs, or the one that is asked for. Also returns the number of GPUs, if it is known.
pub(super) fn run(uuid: Option<&str>, is_wanted: bool) -> (Vec<Check>, Option<u32>) {
    match Nvml::init() {
        Ok(nvml) => {
            let count = nvml.device_count();
            let mut checks = vec![found(&nvml, &count)];
            let count = count.unwrap_or(0);
            let devices = (0..count).map(|index| (index, nvml.device_by_index(index)));
            for (index, device) in devices {
                checks.extend(of_device(index, device, uuid));
            }
            (checks, (count > 0).then_some(count))
        }
        Err(error) => (vec![missing(&error, is_wanted)], None),
    }
}

fn found(nvml: &Nvml, count: &Result<u32, NvmlError>) -> Check {
    let driver = nvml.sys_driver_version().unwrap_or_else(|error| format!("unknown: {error}"));
    let check = match count {
        Ok(0) => {
            let says = format!("NVML answers for driver {driver} and shows no GPU");
            Check::skip(GROUP, "nvml", says, IN_A_CONTAINER)
        }
        Ok(count) => {
            let gpus = if *count == 1 { "GPU" } else { "GPUs" };
            let says = format!("NVML answers for driver {driver} and shows {count} {gpus}");
            Check::pass(GROUP, "nvml", says)
        }
        Err(error) => {
            let says = format!("NVML does not say which GPUs there are: {error}");
            Check::fail(GROUP, "nvml", says, "run `nvidia-smi`: it names what is wrong")
        }
    };
    check.fact("driver", driver)
}

/// The check if NVML is missing or does not start.
fn missing(error: &NvmlError, is_wanted: bool) -> Check {
    if !matches!(error, NvmlError::LibloadingError(_)) {
        let says = format!("NVML does not start: {error}");
        let next = "run `nvidia-smi`; if it says the same, load the driver's kernel module again, or \
                    reboot";
        return Check::fail(GROUP, "nvml", says, next);
    }
    if is_wanted {
        let says = format!("there is a GPU or its kernel module here, and no NVML: {error}");
        return Check::fail(GROUP, "nvml", says, IN_A_CONTAINER);
    }
    let says = "no libnvidia-ml.so.1 on this machine: there is no NVIDIA driver";
    Check::skip(GROUP, "nvml", says, INSTALL_DRIVER)
}

/// The checks of one GPU, unless another one is asked for.
fn of_device(index: u32, device: Result<Device<'_>, NvmlError>, uuid: Option<&str>) -> Vec<Check> {
    let name = format!("gpu{index}");
    let on = |check: Check| Check { device: Some(name.clone()), ..check };
    let device = match device {
        Ok(device) => device,
        Err(error) => {
            let says = format!("GPU {index} does not answer: {error}");
            let next = "look at `dmesg` for an Xid of it; reset or replace it";
            return vec![on(Check::fail(GROUP, "health", says, next))];
        }
    };
    let own = device.uuid().unwrap_or_default();
    if uuid.is_some_and(|wanted| wanted != own) {
        return Vec::new();
    }
    let facts = |check: Check| {
        let product = device.name().unwrap_or_default();
        on(check).fact("uuid", &own).fact("name", product)
    };
    vec![facts(health(&device)), facts(mode(device.compute_mode())), facts(foreign(&device))]
}

/// Checks uncorrected memory errors, and the recovery action that the driver asks for.
fn health(device: &Device<'_>) -> Check {
    let ecc = device.is_ecc_enabled().ok().map(|state| state.currently_enabled);
    let errors = device.total_ecc_errors(MemoryError::Uncorrected, EccCounter::Volatile).ok();
    let pending = device.are_pages_pending_retired().ok();
    let recovery = recovery_action(device);
    let recovery = recovery.map_err(|refused| format!("{} gives {}", refused.call, refused.code));
    check_health(ecc, errors, pending, recovery)
}

fn check_health(
    ecc: Option<bool>,
    errors: Option<u64>,
    pending: Option<bool>,
    recovery: Result<Option<u32>, String>,
) -> Check {
    let action = recovery.as_ref().ok().copied().flatten();
    let meaning = action.map(|action| FaultCode::Recovery(action).meaning());
    let ecc_word = ecc.map_or("unknown", |on| if on { "on" } else { "off" });
    let check = match (&recovery, &meaning, errors) {
        (Err(why), _, _) => {
            let next = "look at `nvidia-smi -q` and `dmesg`; reset the GPU if they name a fault";
            Check::fail(GROUP, "health", format!("NVML does not answer for it: {why}"), next)
        }
        (Ok(_), Some(meaning), _) if meaning.class == FaultClass::Device => {
            let says = format!("the driver says that it needs {}", meaning.name);
            Check::fail(GROUP, "health", says, meaning.sentence)
        }
        (Ok(_), _, Some(errors @ 1..)) => {
            let says =
                format!("{errors} uncorrected errors of its memory since the driver was loaded");
            let next =
                "reset it with `nvidia-smi -r` once no process uses it; replace it if they return";
            Check::fail(GROUP, "health", says, next)
        }
        (Ok(_), _, _) if pending == Some(true) => {
            let says = "pages of its memory wait to be retired";
            Check::fail(GROUP, "health", says, "reset it with `nvidia-smi -r`, or reboot")
        }
        (Ok(_), _, _) => {
            let says =
                format!("no uncorrected error of its memory, no recovery needed; ECC {ecc_word}");
            Check::pass(GROUP, "health", says)
        }
    };
    let or_unknown = |known: Option<String>| known.unwrap_or_else(|| "unknown".to_owned());
    check
        .fact("ecc", ecc_word)
        .fact("uncorrected errors", or_unknown(errors.map(|count| count.to_string())))
        .fact("recovery", or_unknown(meaning.map(|meaning| meaning.name.to_string())))
}

/// Checks that processes may have contexts on it.
fn mode(mode: Result<ComputeMode, NvmlError>) -> Check {
    const NAME: &str = "compute mode";
    let back = "set it back with `nvidia-smi -c DEFAULT`";
    match mode {
        Ok(ComputeMode::Default) => {
            Check::pass(GROUP, NAME, "any number of processes may have a context")
        }
        Ok(ComputeMode::Prohibited) => {
            Check::fail(GROUP, NAME, "no process may have a context on it", back)
        }
        Ok(ComputeMode::ExclusiveProcess | ComputeMode::ExclusiveThread) => {
            let says = "one process at a time may have a context on it: programs and models, a standby, or \
                        a second pool, cannot share it";
            Check::fail(GROUP, NAME, says, back)
        }
        Err(error) => {
            let says = format!("unknown: {error}");
            Check::skip(GROUP, NAME, says, "run `nvidia-smi -q -d COMPUTE`")
        }
    }
}

/// A process with a context.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Holder {
    pid: u32,
    name: String,
    bytes: Option<u64>,
}

/// Lists the processes that have a context on it.
fn foreign(device: &Device<'_>) -> Check {
    let listed = match device.running_compute_processes() {
        Ok(listed) => listed,
        Err(error) => {
            let says = format!("unknown (NVML gives {})", code_of(error));
            return Check::skip(GROUP, "processes", says, "run `nvidia-smi`");
        }
    };
    let holder = |process: &nvml_wrapper::struct_wrappers::device::ProcessInfo| Holder {
        pid: process.pid,
        name: name_of(process.pid),
        bytes: match process.used_gpu_memory {
            UsedGpuMemory::Used(bytes) => Some(bytes),
            UsedGpuMemory::Unavailable => None,
        },
    };
    let check = check_holders(&listed.iter().map(holder).collect::<Vec<_>>());
    match device.memory_info() {
        Ok(memory) => check.fact("used bytes", memory.used).fact("total bytes", memory.total),
        Err(_) => check,
    }
}

fn check_holders(holders: &[Holder]) -> Check {
    let size = |bytes: Option<u64>| {
        bytes.map_or_else(|| "size unknown".to_owned(), |bytes| format!("{} MB", bytes >> 20))
    };
    let word = |holder: &Holder| format!("{} {} ({})", holder.pid, holder.name, size(holder.bytes));
    let says = match holders.len() {
        0 => "no process has a context on it".to_owned(),
        count => {
            let named: Vec<_> = holders.iter().take(NAMED_MAX).map(word).collect();
            let more = if count > NAMED_MAX { ", …" } else { "" };
            let have = if count == 1 { "process has" } else { "processes have" };
            format!("{count} {have} a context on it: {}{more}", named.join(", "))
        }
    };
    let check = Check::pass(GROUP, "processes", says).fact("processes", holders.len());
    holders.iter().fold(check, |check, holder| {
        let bytes = holder.bytes.map_or_else(|| "?".to_owned(), |bytes| bytes.to_string());
        check.fact(&format!("pid {}", holder.pid), format!("{} {bytes}", holder.name))
    })
}

/// The kernel's name of a process, if this process can see it.
fn name_of(pid: u32) -> String {
    let stat = Process::new(pid.cast_signed()).and_then(|process| process.stat());
    stat.map_or_else(|_| "of another container".to_owned(), |stat| stat.comm)
}

#[cfg(test)]
mod tests {
    use gridpool_protocol::diagnose::Outcome;

    use super::*;

    #[test]
    fn a_gpu_is_healthy_or_the_check_says_what_it_needs() {
        let healthy = check_health(Some(true), Some(0), Some(false), Ok(Some(0)));
        assert_eq!((healthy.outcome, healthy.facts["ecc"].as_str()), (Outcome::Pass, "on"));
        assert_eq!(check_health(None, None, None, Ok(None)).outcome, Outcome::Pass);
        let reset = check_health(Some(true), Some(0), None, Ok(Some(1)));
        assert!(reset.says.ends_with("needs GPU_RESET"), "{}", reset.says);
        assert!(reset.next.contains("nvidia-smi -r"), "{}", reset.next);
        let errors = check_health(Some(true), Some(3), None, Ok(Some(0)));
        assert!(errors.says.starts_with("3 uncorrected errors"), "{}", errors.says);
        let pending = check_health(Some(true), Some(0), Some(true), Ok(Some(0)));
        let lost = check_health(None, None, None, Err("nvmlX gives 15".to_owned()));
        for check in [reset, errors, pending, lost] {
            assert_eq!(check.outcome, Outcome::Fail, "{}", check.says);
        }
    }

    #[test]
    fn a_mode_that_keeps_processes_out_is_a_failure_with_the_command_to_undo_it() {
        assert_eq!(mode(Ok(ComputeMode::Default)).outcome, Outcome::Pass);
        for kept in [ComputeMode::Prohibited, ComputeMode::ExclusiveProcess] {
            let check = mode(Ok(kept));
            assert_eq!(check.outcome, Outcome::Fail);
            assert!(check.next.contains("nvidia-smi -c DEFAULT"));
        }
        assert_eq!(mode(Err(NvmlError::NotSupported)).outcome, Outcome::Skip);
    }

    #[test]
    fn processes_are_named_with_their_memory() {
        assert_eq!(check_holders(&[]).says, "no process has a context on it");
        let holder = |pid| Holder { pid, name: "python".to_owned(), bytes: Some(512 << 20) };
        let check = check_holders(&[holder(7), holder(8), holder(9), holder(10)]);
        assert!(
            check.says.starts_with("4 processes have a context on it: 7 python (512 MB), 8"),
            "{}",
            check.says
        );
        assert_eq!(check.facts["pid 10"], format!("python {}", 512 << 20));
    }

    #[test]
    fn no_nvml_is_a_skip_unless_a_gpu_is_expected() {
        let mismatch = missing(&NvmlError::LibRmVersionMismatch, false);
        assert_eq!(mismatch.outcome, Outcome::Fail, "it is there and broken");
        assert!(mismatch.says.starts_with("NVML does not start"), "{}", mismatch.says);
    }
}
