//! Finds worker processes whose supervisor is gone.
//!
//! A worker's command line has its supervisor's pid, and Linux kills the worker with the supervisor. A worker
//! with another parent was left behind. Processes in other containers and of other users are ignored.

use std::ffi::OsStr;
use std::time::Duration;

use gridpool_protocol::diagnose::{Check, Group};
use nix::unistd::geteuid;
use procfs::process::Process;

/// The name of a worker process. Linux cuts names after 15 bytes, which these are.
const WORKER: &str = "gridpool-worker";
/// The argument before the supervisor's pid.
const SUPERVISOR: &str = "--supervisor-pid";
/// How long a process that is ending may take to be gone.
const END_TIMEOUT: Duration = Duration::from_secs(1);
/// Most processes to name.
const NAMED_MAX: usize = 8;

/// Checks for workers whose supervisor is gone.
pub(super) fn workers() -> Check {
    let mut left = orphans();
    if !left.is_empty() {
        // The end of a process that is not our child sends no event. The timeout is the expected error.
        let paused = crossbeam_channel::never::<()>().recv_timeout(END_TIMEOUT);
        debug_assert!(paused.is_err(), "the channel never has a message");
        let still = orphans();
        left.retain(|pid| still.contains(pid));
    }
    judge(&left)
}

fn judge(left: &[i32]) -> Check {
    const NAME: &str = "leftovers";
    if left.is_empty() {
        let says = "no worker process is left of an earlier pool";
        return Check::pass(Group::Environment, NAME, says);
    }
    let pids: Vec<_> = left.iter().take(NAMED_MAX).map(i32::to_string).collect();
    let pids = pids.join(" ");
    Check::fail(
        Group::Environment,
        NAME,
        format!("{} workers of earlier pools still hold memory ({pids})", left.len()),
        format!(
            "end them with `kill -9 {pids}`; if one stays, it hangs in the driver: see `dmesg`"
        ),
    )
    .fact("pids", pids)
}

/// The pids of this user's workers whose parent is not their supervisor.
fn orphans() -> Vec<i32> {
    let processes = procfs::process::all_processes().into_iter().flatten().flatten();
    processes.filter(|process| is_orphan(process).unwrap_or(false)).map(|own| own.pid()).collect()
}

/// `None` if the process is gone, or belongs to another user.
fn is_orphan(process: &Process) -> Option<bool> {
    if process.uid().ok()? != geteuid().as_raw() {
        return None;
    }
    let stat = process.stat().ok()?;
    if stat.comm != WORKER {
        return Some(false);
    }
    // In another container, the supervisor's pid means another process here.
    let space = |process: &Process| {
        let spaces = process.namespaces().ok()?;
        Some(spaces.0.get(OsStr::new("pid"))?.identifier)
    };
    if space(process)? != space(&Process::myself().ok()?)? {
        return Some(false);
    }
    Some(supervisor(&process.cmdline().ok()?)? != stat.ppid)
}

/// The supervisor's pid, by the worker's arguments.
fn supervisor(arguments: &[String]) -> Option<i32> {
    let mut arguments = arguments.iter();
    arguments.find(|argument| *argument == SUPERVISOR)?;
    arguments.next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use gridpool_protocol::diagnose::Outcome;

    use super::*;

    #[test]
    fn a_workers_arguments_have_its_supervisor() {
        let by = |line: &str| supervisor(&line.split(' ').map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(by("/bin/gridpool-worker grid --supervisor-pid 42 --uuid x"), Some(42));
        assert_eq!(by("gridpool-worker probe"), None);
        assert_eq!(by("--supervisor-pid"), None);
    }

    #[test]
    fn left_workers_are_named_with_the_command_that_ends_them() {
        assert_eq!(judge(&[]).outcome, Outcome::Pass);
        let check = judge(&[7, 8]);
        assert_eq!(check.outcome, Outcome::Fail);
        assert!(check.says.ends_with("memory (7 8)"), "{check:?}");
        assert!(check.next.starts_with("end them with `kill -9 7 8`"), "{check:?}");
    }

    #[test]
    fn this_process_is_not_a_worker() {
        assert_eq!(is_orphan(&Process::myself().unwrap()), Some(false));
    }
}
