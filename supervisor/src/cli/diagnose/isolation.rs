//! Checks that each process sees only its own device. It reads each process from outside: the libraries that
//! are mapped into it, and the GPU in its environment.
//!
//! The last check tests the workers' own check: a worker with a preloaded foreign library must refuse to
//! serve.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use gridpool_ipc::maps;
use gridpool_protocol::diagnose::{Check, Group};
use gridpool_protocol::ids::Role;
use gridpool_protocol::status::WorkerStatus;
use procfs::ProcError;
use procfs::process::Process;

use crate::cli::private::{NotReady, PrivatePool};
use crate::shell::{PoolDevice, WorkerCommand};
use gridpool_core::config::PoolConfig;

/// A foreign library's name, for a copy of a harmless library.
const FOREIGN: &str = "libcudart.so.gridpool-diagnose";
/// The name of the check that workers find a foreign library.
const CONTAMINATION: &str = "contamination is found";
/// The beginnings of small libraries' names; every process has one of them.
const HARMLESS: [&str; 3] = ["libgcc_s.so", "libm.so", "libc.so"];
/// The variable with the GPU that a process may see.
const VISIBLE: &str = "CUDA_VISIBLE_DEVICES";

fn pass(name: &str, says: String) -> Check {
    Check::pass(Group::Isolation, name, says)
}

fn fail(name: &str, says: String, next: &str) -> Check {
    Check::fail(Group::Isolation, name, says, next)
}

/// Checks the supervisor of the pool, which is this process.
pub(super) fn supervisor() -> Check {
    const NAME: &str = "supervisor";
    let maps = match maps::own() {
        Ok(maps) => maps,
        Err(error) => return fail(NAME, format!("/proc/self/maps: {error}"), "mount /proc"),
    };
    match maps::cuda_library(&maps) {
        None => pass(NAME, "runs a pool and holds no CUDA library".to_owned()),
        Some(library) => fail(
            NAME,
            format!("it holds {library}: a CUDA fault could end the whole pool"),
            "remove it from LD_PRELOAD and /etc/ld.so.preload",
        ),
    }
}

/// Checks one worker of a pool, which serves `device`.
pub(super) fn worker(row: &WorkerStatus, device: &PoolDevice) -> Check {
    let name = format!("{} worker {}", row.group, row.name);
    let seen = visible_to(row.pid).map_err(io::Error::other);
    judge_worker(&name, row, device, &maps::of(row.pid), &seen).on(device.id)
}

fn judge_worker(
    name: &str,
    row: &WorkerStatus,
    device: &PoolDevice,
    maps: &io::Result<String>,
    seen: &io::Result<Option<String>>,
) -> Check {
    let again = "run this again; if the check fails again, report it as a fault of gridpool";
    let (maps, seen) = match (maps, seen) {
        (Ok(maps), Ok(seen)) => (maps, seen.as_deref()),
        (Err(error), _) | (_, Err(error)) => {
            return fail(name, format!("process {} cannot be read: {error}", row.pid), again);
        }
    };
    if seen != Some(&device.uuid) {
        let seen = seen.map_or_else(|| "not set".to_owned(), |seen| format!("`{seen}`"));
        let says = format!("{VISIBLE} is {seen}, must be `{}`", device.uuid);
        return fail(name, says, again);
    }
    if row.device.uuid != device.uuid {
        let says = format!("it serves `{}`, must serve `{}`", row.device.uuid, device.uuid);
        return fail(name, says, again);
    }
    let holds_models = row.role == Role::Infer.name();
    // ONNX Runtime loads CUDA libraries, so programs and models never share a process.
    if let Some(library) = maps::foreign_library(maps).filter(|_| !holds_models) {
        let says = format!("it holds {library}, which is foreign to its role");
        return fail(name, says, "remove it from LD_PRELOAD and LD_LIBRARY_PATH");
    }
    let is_gpu = !device.uuid.is_empty();
    match (maps::driver_library(maps), is_gpu) {
        (Some(driver), true) => {
            let holds =
                if holds_models { "models" } else { "the driver and no other CUDA library" };
            let says = format!("sees only {}; holds {holds}", device.uuid);
            pass(name, says).fact("driver_library", driver)
        }
        (None, false) if holds_models => pass(name, "sees no GPU; holds models".to_owned()),
        (None, false) => pass(name, "sees no GPU and holds no CUDA library".to_owned()),
        (None, true) => fail(name, "it does not hold the driver's library".to_owned(), again),
        (Some(driver), false) => fail(name, format!("it holds {driver}"), again),
    }
    .fact("pid", row.pid)
}

/// The GPU that a process may see.
fn visible_to(pid: u32) -> Result<Option<String>, ProcError> {
    let environment = Process::new(pid.cast_signed())?.environ()?;
    Ok(environment.get(OsStr::new(VISIBLE)).map(|uuid| uuid.to_string_lossy().into_owned()))
}

/// Checks that workers of these roles refuse to serve with a preloaded foreign library.
pub(super) fn contamination(
    command: WorkerCommand,
    device: &PoolDevice,
    roles: &[Role],
    folder: &Path,
    socket: &Path,
) -> Vec<Check> {
    let skip = |why: String| {
        let next = "run this where a library can be copied";
        vec![Check::skip(Group::Isolation, CONTAMINATION, why, next).on(device.id)]
    };
    let foreign = match plant(folder) {
        Ok(Some(foreign)) => foreign,
        Ok(None) => return skip("this process has no library to copy".to_owned()),
        Err(error) => {
            return skip(format!("cannot copy a library into {}: {error}", folder.display()));
        }
    };
    let environment = vec![("LD_PRELOAD".into(), foreign.clone().into_os_string())];
    let command = WorkerCommand { environment, ..command };
    let limits = PoolConfig { standbys: 0, ..PoolConfig::DEFAULT };
    let pool = PrivatePool::start(limits, command, std::slice::from_ref(device), socket);
    let judge = |&role: &Role| match &pool {
        Ok(pool) => judge_contamination(role, pool.wait_ready(&[role]), &foreign),
        Err(error) => fail(
            CONTAMINATION,
            format!("the pool cannot start: {error}"),
            "correct that first, then run this again",
        ),
    };
    roles.iter().map(|role| judge(role).on(device.id)).collect()
}

/// A copy of a harmless library under a foreign one's name.
fn plant(folder: &Path) -> io::Result<Option<PathBuf>> {
    let maps = maps::own()?;
    let is = |path: &&str, name: &&str| maps::file_name(path).starts_with(*name);
    let find = |name: &&str| maps::files(&maps).find(|path| is(path, name));
    let Some(library) = HARMLESS.iter().find_map(find) else { return Ok(None) };
    let copy = folder.join(FOREIGN);
    fs::copy(library, &copy)?;
    Ok(Some(copy))
}

fn judge_contamination(role: Role, ready: Result<(), NotReady>, foreign: &Path) -> Check {
    let (library, role) = (foreign.display().to_string(), role.name());
    let names = |fault: &String| fault.contains(&library);
    let is_named = match &ready {
        Ok(()) | Err(NotReady::Late { .. }) => false,
        Err(NotReady::Misconfigured(faults)) => faults.iter().any(names),
        Err(NotReady::OutOfService { why, .. }) => names(why),
    };
    match ready {
        Err(_) if is_named => pass(
            CONTAMINATION,
            format!("the {role} worker with {FOREIGN} preloaded refused to serve, and named it"),
        ),
        Ok(()) => fail(
            CONTAMINATION,
            format!("the {role} worker with {FOREIGN} preloaded serves: it does not check itself"),
            "check that the worker's binary is linked dynamically and of this build",
        ),
        Err(why) => fail(
            CONTAMINATION,
            format!("the {role} worker with {FOREIGN} preloaded ended for another reason: {why}"),
            "correct that first, then run this again",
        ),
    }
}

#[cfg(test)]
mod tests {
    use gridpool_protocol::diagnose::Outcome;
    use gridpool_protocol::ids::{DeviceId, DeviceKind};

    use super::*;
    use crate::history::tests::worker as a_worker;

    const UUID: &str = "GPU-1";

    fn device(uuid: &str) -> PoolDevice {
        let kind = if uuid.is_empty() { DeviceKind::Cpu } else { DeviceKind::Gpu };
        PoolDevice { id: DeviceId { kind, index: 0 }, uuid: uuid.to_owned(), memory: None }
    }

    fn judged(uuid: &str, serves: &str, libraries: &[&str], seen: Option<&str>) -> Check {
        let mut row = a_worker("gpu0#1", "grid");
        row.device.uuid = serves.to_owned();
        let line = |path: &&str| format!("7f00-7f01 r-xp 00000000 08:01 42 {path}\n");
        let maps = Ok(libraries.iter().map(line).collect());
        judge_worker("worker", &row, &device(uuid), &maps, &Ok(seen.map(str::to_owned)))
    }

    #[test]
    fn a_worker_sees_only_its_gpu_and_holds_only_the_driver() {
        let driver = "/usr/lib/libcuda.so.1";
        let check = judged(UUID, UUID, &[driver], Some(UUID));
        assert_eq!(check.outcome, Outcome::Pass, "{check:?}");
        assert_eq!(judged("", "", &[], Some("")).outcome, Outcome::Pass);
        let wrong = [
            (judged(UUID, UUID, &[driver], None), "is not set, must be `GPU-1`"),
            (judged(UUID, UUID, &[driver], Some("0")), "is `0`, must be `GPU-1`"),
            (judged(UUID, "GPU-2", &[driver], Some(UUID)), "serves `GPU-2`, must serve `GPU-1`"),
            (judged(UUID, UUID, &[driver, "/x/libcudart.so.12"], Some(UUID)), "/x/libcudart.so.12"),
            (judged(UUID, UUID, &[], Some(UUID)), "does not hold the driver's"),
            (judged("", "", &[driver], Some("")), "it holds /usr/lib/libcuda.so.1"),
        ];
        for (check, words) in wrong {
            assert_eq!(check.outcome, Outcome::Fail, "{check:?}");
            assert!(check.says.contains(words), "{check:?}");
        }
        let mut models = a_worker("gpu0#2", "infer");
        models.device.uuid = UUID.to_owned();
        let maps = Ok("0-1 /x/libonnxruntime.so.1\n0-1 /x/libcuda.so.1\n".to_owned());
        let seen = Ok(Some(UUID.to_owned()));
        let check = judge_worker("worker", &models, &device(UUID), &maps, &seen);
        assert_eq!(check.outcome, Outcome::Pass, "{check:?}");
        let gone = || Err(io::Error::from(io::ErrorKind::NotFound));
        let row = a_worker("gpu0#1", "grid");
        let check = judge_worker("worker", &row, &device(UUID), &gone(), &Ok(None));
        assert_eq!(check.outcome, Outcome::Fail, "{check:?}");
    }

    #[test]
    fn only_a_refusal_that_names_the_library_is_a_pass() {
        let foreign = Path::new("/tmp/libcudart.so.x");
        let judged = |faults: &str| {
            let ended = NotReady::Misconfigured(vec![faults.to_owned()]);
            judge_contamination(Role::Grid, Err(ended), foreign).outcome
        };
        assert_eq!(judged("cpu0#1: /tmp/libcudart.so.x is mapped"), Outcome::Pass);
        assert_eq!(judged("cpu0#1: something else"), Outcome::Fail);
        let of_models = |why: &str| {
            let (device, role) = ("cpu0".to_owned(), "infer".to_owned());
            let ended = NotReady::OutOfService { device, role, why: why.to_owned() };
            judge_contamination(Role::Infer, Err(ended), foreign).outcome
        };
        assert_eq!(of_models("/tmp/libcudart.so.x is mapped"), Outcome::Pass);
        assert_eq!(of_models("no libonnxruntime.so"), Outcome::Fail);
        assert_eq!(judge_contamination(Role::Grid, Ok(()), foreign).outcome, Outcome::Fail);
    }

    #[test]
    fn a_library_of_this_process_can_be_copied() {
        let folder = tempfile::tempdir().unwrap();
        let copy = plant(folder.path()).unwrap().expect("libc at least");
        assert_eq!(maps::foreign_library(&format!("0-1 {}", copy.display())), copy.to_str());
    }
}
