//! Checks of the limits (`ulimit`) of this process, which its workers inherit. If one fails, diagnose starts
//! no pool: the pool would fail with a misleading error.

use gridpool_protocol::diagnose::Check;
use gridpool_protocol::tensor::options::ModelPlan;
use indicatif::BinaryBytes;
use nix::sys::resource::{Resource, getrlimit, rlim_t};
use nix::unistd::geteuid;

use super::host::{fail, pass};
use crate::shell::{self, Shell};

/// Threads of a supervisor with a few clients, and of diagnose.
const THREADS_MIN: u64 = 32;
/// Threads for a worker: its own, those of its driver or ONNX Runtime, and the supervisor's for it.
const THREADS_PER_WORKER: u64 = 24;
/// Bytes of the largest file of a pool; shared memory is a file.
pub(crate) const FILE_BYTES_MIN: rlim_t = 16 << 20;
/// Least address space of a process of a pool on the CPU; for CUDA the need is unknown.
const ADDRESSES_MIN: rlim_t = 4 << 30;
/// No limit.
const UNLIMITED: rlim_t = rlim_t::MAX;

const OPEN_FILES: &str = "open files";
/// What to do about a limit of open files that is too low.
pub(crate) const OPEN_FILES_REMEDY: &str = "type `ulimit -Hn 4096 && ulimit -n 4096` in the shell that \
     starts the pool (this may need root), or write LimitNOFILE=65536 into its systemd unit";

/// What to do about a limit of the size of files that is too low.
pub(crate) const FILE_SIZE_REMEDY: &str =
    "type `ulimit -f unlimited` in the shell that starts the pool";

fn soft(resource: Resource) -> rlim_t {
    getrlimit(resource).map_or(UNLIMITED, |(soft, _)| soft)
}

/// Checks that a pool with these models over this many devices has enough descriptors, after it has raised its limit.
pub(super) fn open_files(models: &[ModelPlan], devices: usize, standbys: u32) -> Check {
    shell::raise_descriptor_limit();
    let needed = Shell::descriptors_min(models, devices, standbys);
    match getrlimit(Resource::RLIMIT_NOFILE) {
        Ok((soft, _)) => judge_open_files(soft, needed as u64, devices),
        Err(errno) => fail(OPEN_FILES, errno.to_string(), "raise it with `ulimit -n 4096`"),
    }
}

fn judge_open_files(limit: rlim_t, needed: u64, devices: usize) -> Check {
    let devices = match devices {
        1 => "one device".to_owned(),
        devices => format!("{devices} devices"),
    };
    let check = match limit >= needed {
        true => {
            let limit = if limit == UNLIMITED { "any number".into() } else { limit.to_string() };
            pass(OPEN_FILES, format!("{limit}; a pool of {devices} needs {needed}"))
        }
        false => fail(
            OPEN_FILES,
            format!("the limit is {limit}; a pool of {devices} needs {needed}"),
            OPEN_FILES_REMEDY,
        ),
    };
    check.fact("limit", limit).fact("needed", needed)
}

/// Checks that this user may have the threads of such a pool. Root has no limit.
pub(super) fn processes(devices: usize, standbys: u32) -> Check {
    let limit = if geteuid().is_root() { UNLIMITED } else { soft(Resource::RLIMIT_NPROC) };
    let workers = 2 * devices as u64 * (1 + u64::from(standbys));
    judge_processes(limit, threads_of_user(), THREADS_MIN + THREADS_PER_WORKER * workers)
}

fn judge_processes(limit: rlim_t, used: u64, needed: u64) -> Check {
    const NAME: &str = "threads";
    let check = match limit {
        UNLIMITED => pass(NAME, "any number".to_owned()),
        limit if used.saturating_add(needed) <= limit => pass(
            NAME,
            format!("the limit is {limit}, {used} are in use; such a pool may need {needed}"),
        ),
        limit => fail(
            NAME,
            format!(
                "the limit is {limit} processes and threads, {used} are in use; such a pool may need \
                 {needed} more"
            ),
            "type `ulimit -u 4096` in the shell that starts the pool (this may need root), or write \
             TasksMax= and LimitNPROC= into its systemd unit",
        ),
    };
    check.fact("limit", limit).fact("used", used).fact("needed", needed)
}

/// Threads of all visible processes of this user.
fn threads_of_user() -> u64 {
    let user = geteuid().as_raw();
    let processes = procfs::process::all_processes().into_iter().flatten().flatten();
    let own = processes.filter_map(|process| process.status().ok());
    own.filter(|status| status.ruid == user).map(|status| status.threads).sum()
}

/// The largest file that this process may make.
pub(crate) fn file_bytes_max() -> rlim_t {
    soft(Resource::RLIMIT_FSIZE)
}

/// Checks that files, and so shared memory, may be large.
pub(super) fn file_size() -> Check {
    judge_file_size(file_bytes_max())
}

fn judge_file_size(limit: rlim_t) -> Check {
    const NAME: &str = "file size";
    match limit {
        UNLIMITED => pass(NAME, "not limited".to_owned()),
        bytes if bytes >= FILE_BYTES_MIN => {
            pass(NAME, format!("{}; larger shared memory is refused", BinaryBytes(bytes)))
        }
        bytes => fail(
            NAME,
            format!("files, and so shared memory, are limited to {bytes} bytes (ulimit -f)"),
            FILE_SIZE_REMEDY,
        ),
    }
}

/// Checks that processes may reserve address space.
pub(super) fn address_space(has_gpus: bool) -> Check {
    judge_address_space(soft(Resource::RLIMIT_AS), has_gpus)
}

fn judge_address_space(limit: rlim_t, has_gpus: bool) -> Check {
    const NAME: &str = "address space";
    const NEXT: &str = "type `ulimit -v unlimited` in the shell that starts the pool";
    let bytes = BinaryBytes(limit);
    match limit {
        UNLIMITED => pass(NAME, "not limited".to_owned()),
        _ if has_gpus => {
            let says =
                format!("limited to {bytes} (ulimit -v): CUDA reserves far more than it uses");
            fail(NAME, says, NEXT)
        }
        limit if limit < ADDRESSES_MIN => {
            let says = format!(
                "limited to {bytes} (ulimit -v); threads and shared memory need at least {}",
                BinaryBytes(ADDRESSES_MIN)
            );
            fail(NAME, says, NEXT)
        }
        _ => pass(NAME, format!("limited to {bytes}")),
    }
}

#[cfg(test)]
mod tests {
    use gridpool_protocol::diagnose::Outcome;

    use super::super::host::fails;
    use super::*;

    #[test]
    fn too_few_descriptors_fail_with_both_numbers() {
        fails(&judge_open_files(64, 200, 2), "the limit is 64; a pool of 2 devices needs 200");
        assert_eq!(judge_open_files(200, 200, 1).outcome, Outcome::Pass);
        assert!(judge_open_files(UNLIMITED, 200, 1).says.starts_with("any number; a pool of one"));
    }

    #[test]
    fn a_limited_address_space_fails_only_for_gpus() {
        fails(&judge_address_space(1 << 30, true), "1.00 GiB");
        assert_eq!(judge_address_space(8 << 30, false).outcome, Outcome::Pass);
        fails(&judge_address_space(300 << 20, false), "300.00 MiB (ulimit -v); threads");
        fails(&judge_file_size(1_024), "1024 bytes (ulimit -f)");
        assert_eq!(judge_file_size(UNLIMITED).outcome, Outcome::Pass);
    }

    #[test]
    fn existing_threads_count_against_the_limit() {
        fails(&judge_processes(100, 80, 80), "100 processes and threads, 80 are in use");
        assert_eq!(judge_processes(160, 80, 80).outcome, Outcome::Pass);
        assert_eq!(judge_processes(UNLIMITED, u64::MAX, 1).outcome, Outcome::Pass);
        assert!(threads_of_user() > 0);
    }
}
