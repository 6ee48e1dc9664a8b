//! Worker processes of pools that are no more.
//!
//! A worker knows its supervisor's number from its command line, and Linux takes it down with that one. One
//! whose parent is another was left behind; nothing else it may be. What runs in a container of its own, or
//! as another user, is not judged.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use gridpool_protocol::diagnose::{Check, Group};
use nix::unistd::geteuid;

/// What a worker process is called; Linux cuts names after 15 bytes, which these are.
const WORKER: &str = "gridpool-worker";
/// The argument after which a worker is told its supervisor.
const SUPERVISOR: &str = "--supervisor-pid";
/// A process that is just ending is given so long to be gone.
const ENDING: Duration = Duration::from_secs(1);
/// Left-over processes that are named.
const NAMED_MAX: usize = 8;

/// Looks for workers whose supervisor is gone.
pub(super) fn workers() -> Check {
    let mut left = orphans();
    if !left.is_empty() {
        // Nothing tells when a process is gone that is not our child. The error says that the time is over.
        let paused = crossbeam_channel::never::<()>().recv_timeout(ENDING);
        debug_assert!(paused.is_err(), "nobody sends");
        let still = orphans();
        left.retain(|pid| still.contains(pid));
    }
    judge(&left)
}

fn judge(left: &[u32]) -> Check {
    const NAME: &str = "leftovers";
    if left.is_empty() {
        let says = "no worker process of a pool that is gone";
        return Check::pass(Group::Environment, NAME, says);
    }
    let pids: Vec<_> = left.iter().take(NAMED_MAX).map(u32::to_string).collect();
    let pids = pids.join(" ");
    Check::fail(
        Group::Environment,
        NAME,
        format!("workers of pools that are gone, which still hold memory: {} ({pids})", left.len()),
        format!("end them with `kill -9 {pids}`; one that stays sits in the driver: see `dmesg`"),
    )
    .fact("pids", pids)
}

/// The numbers of this user's workers whose parent is not who started them.
fn orphans() -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|&pid| is_orphan(pid).unwrap_or(false)).collect()
}

/// `None` if there is no such process any more, or it is another user's.
fn is_orphan(pid: u32) -> Option<bool> {
    let folder = format!("/proc/{pid}");
    if fs::metadata(&folder).ok()?.uid() != geteuid().as_raw() {
        return None;
    }
    if fs::read_to_string(format!("{folder}/comm")).ok()?.trim_end() != WORKER {
        return Some(false);
    }
    // In another container, the number that it was told is another process's here.
    let names = |process: &str| fs::read_link(format!("/proc/{process}/ns/pid")).ok();
    if names(&pid.to_string())? != names("self")? {
        return Some(false);
    }
    let arguments = fs::read(format!("{folder}/cmdline")).ok()?;
    let stat = fs::read_to_string(format!("{folder}/stat")).ok()?;
    Some(supervisor(&arguments)? != parent(&stat)?)
}

/// Who started a worker, by its arguments, which end with a zero each.
fn supervisor(arguments: &[u8]) -> Option<u32> {
    let mut arguments = arguments.split(|&byte| byte == 0);
    arguments.find(|argument| *argument == SUPERVISOR.as_bytes())?;
    std::str::from_utf8(arguments.next()?).ok()?.parse().ok()
}

/// The parent of a process, by its `/proc/PID/stat`; its name may hold brackets.
fn parent(stat: &str) -> Option<u32> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use gridpool_protocol::diagnose::Outcome;

    use super::*;

    #[test]
    fn a_worker_says_who_started_it_and_linux_who_its_parent_is() {
        let arguments = b"/bin/gridpool-worker\0grid\0--supervisor-pid\x0042\0--uuid\0x\0";
        assert_eq!(supervisor(arguments), Some(42));
        assert_eq!(supervisor(b"gridpool-worker\0probe\0"), None);
        assert_eq!(supervisor(b"--supervisor-pid"), None);
        assert_eq!(parent("7 (gridpool) (x) S 41 7 7 0 -1"), Some(41));
        assert_eq!(parent("7"), None);
    }

    #[test]
    fn what_is_left_is_named_with_how_to_end_it() {
        assert_eq!(judge(&[]).outcome, Outcome::Pass);
        let check = judge(&[7, 8]);
        assert_eq!(check.outcome, Outcome::Fail);
        assert!(check.says.ends_with("2 (7 8)"), "{check:?}");
        assert!(check.next.starts_with("end them with `kill -9 7 8`"), "{check:?}");
    }

    #[test]
    fn this_process_is_no_worker() {
        assert_eq!(is_orphan(std::process::id()), Some(false));
        assert_eq!(is_orphan(u32::MAX), None);
    }
}
