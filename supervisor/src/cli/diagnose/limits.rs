//! The limits under which this process, and every worker after it, must do with what the system gives
//! (`ulimit`). Without these no pool is tried: it would end in ways that name something else.

use std::fs;

use gridpool_protocol::diagnose::Check;
use indicatif::BinaryBytes;
use nix::sys::resource::{Resource, getrlimit, rlim_t};
use nix::unistd::geteuid;

use super::host::{fail, pass};
use crate::shell::{self, Shell};

/// Descriptors for a few clients with some arenas each, beside those that the pool needs itself.
const CLIENT_DESCRIPTORS_MIN: usize = 64;
/// Threads of a supervisor with a few clients, and of the process that looks.
const THREADS_MIN: u64 = 32;
/// Threads of a worker and those that attend to it: its own, some of a driver or of ONNX Runtime.
const THREADS_PER_WORKER: u64 = 24;
/// Bytes of the largest file that a pool makes of itself: shared memory is one.
const FILE_BYTES_MIN: rlim_t = 16 << 20;
/// Addresses that a process of a pool on the CPU needs at least; CUDA has no such number.
const ADDRESSES_MIN: rlim_t = 4 << 30;
/// Whoever has no limit.
const UNLIMITED: rlim_t = rlim_t::MAX;

const OPEN_FILES: &str = "open files";

fn soft(resource: Resource) -> rlim_t {
    getrlimit(resource).map_or(UNLIMITED, |(soft, _)| soft)
}

/// Whether a pool over so many devices has the descriptors that it needs, once it has raised its limit.
pub(super) fn open_files(devices: usize, standbys: u32) -> Check {
    shell::raise_descriptor_limit();
    let needed = Shell::descriptors_needed(devices, standbys) + CLIENT_DESCRIPTORS_MIN;
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
            format!("at most {limit} may be open; a pool of {devices} needs {needed}"),
            "type `ulimit -Hn 4096 && ulimit -n 4096` in the shell that starts the pool (root may \
             have to allow that), or write LimitNOFILE=65536 into its systemd unit",
        ),
    };
    check.fact("limit", limit).fact("needed", needed)
}

/// Whether this user may have the threads of such a pool. Root may have any number.
pub(super) fn processes(devices: usize, standbys: u32) -> Check {
    let limit = if geteuid().is_root() { UNLIMITED } else { soft(Resource::RLIMIT_NPROC) };
    let workers = 2 * devices as u64 * (1 + u64::from(standbys));
    judge_processes(limit, threads_of_user(), THREADS_MIN + THREADS_PER_WORKER * workers)
}

fn judge_processes(limit: rlim_t, used: u64, needed: u64) -> Check {
    const NAME: &str = "threads";
    let check = match limit {
        UNLIMITED => pass(NAME, "any number".to_owned()),
        limit if used.saturating_add(needed) <= limit => {
            pass(NAME, format!("{limit}, of which {used} are there; such a pool may need {needed}"))
        }
        limit => fail(
            NAME,
            format!(
                "this user may have {limit} processes and threads, and has {used}; such a pool may \
                 need {needed} more"
            ),
            "type `ulimit -u 4096` in the shell that starts the pool (root may have to allow that), \
             or write TasksMax= and LimitNPROC= into its systemd unit",
        ),
    };
    check.fact("limit", limit).fact("used", used).fact("needed", needed)
}

/// Threads of all processes of this user, as far as they can be seen.
fn threads_of_user() -> u64 {
    let Ok(entries) = fs::read_dir("/proc") else { return 0 };
    let user = geteuid().as_raw();
    let threads = entries.flatten().filter_map(|entry| {
        let status = fs::read_to_string(entry.path().join("status")).ok()?;
        threads_in(&status, user)
    });
    threads.sum()
}

/// Of a process by its `/proc/PID/status`, if it is this user's.
fn threads_in(status: &str, user: u32) -> Option<u64> {
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    let is_ours = field("Uid:")? == u64::from(user);
    is_ours.then(|| field("Threads:"))?
}

/// Whether shared memory may be large, which is files.
pub(super) fn file_size() -> Check {
    judge_file_size(soft(Resource::RLIMIT_FSIZE))
}

fn judge_file_size(limit: rlim_t) -> Check {
    const NAME: &str = "file size";
    match limit {
        UNLIMITED => pass(NAME, "not limited".to_owned()),
        bytes if bytes >= FILE_BYTES_MIN => {
            pass(NAME, format!("{}; shared memory of more is refused", BinaryBytes(bytes)))
        }
        bytes => fail(
            NAME,
            format!("files, and shared memory is files, may have {bytes} bytes (ulimit -f)"),
            "type `ulimit -f unlimited` in the shell that starts the pool",
        ),
    }
}

/// Whether processes may have the addresses that they reserve.
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
                "limited to {bytes} (ulimit -v); threads and shared memory need {} at least",
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
        fails(
            &judge_open_files(64, 200, 2),
            "at most 64 may be open; a pool of 2 devices needs 200",
        );
        assert_eq!(judge_open_files(200, 200, 1).outcome, Outcome::Pass);
        assert!(judge_open_files(UNLIMITED, 200, 1).says.starts_with("any number; a pool of one"));
    }

    #[test]
    fn a_limited_address_space_is_a_fault_for_gpus_alone() {
        fails(&judge_address_space(1 << 30, true), "1.00 GiB");
        assert_eq!(judge_address_space(8 << 30, false).outcome, Outcome::Pass);
        fails(&judge_address_space(300 << 20, false), "300.00 MiB (ulimit -v); threads");
        fails(&judge_file_size(1_024), "1024 bytes (ulimit -f)");
        assert_eq!(judge_file_size(UNLIMITED).outcome, Outcome::Pass);
    }

    #[test]
    fn threads_that_are_there_count_against_the_limit() {
        fails(&judge_processes(100, 80, 80), "may have 100 processes and threads, and has 80");
        assert_eq!(judge_processes(160, 80, 80).outcome, Outcome::Pass);
        assert_eq!(judge_processes(UNLIMITED, u64::MAX, 1).outcome, Outcome::Pass);
        let status = "Name:\tx\nUid:\t7\t7\t7\t7\nThreads:\t5\n";
        assert_eq!((threads_in(status, 7), threads_in(status, 8)), (Some(5), None));
        assert!(threads_of_user() > 0);
    }
}
