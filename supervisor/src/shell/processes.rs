//! What the kernel says of the pool's processes. To ask it takes longer than anything else in a status. So those who
//! are no operators share what it has said lately, however many ask.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use gridpool_ipc::clock;
use gridpool_ipc::maps;
use gridpool_ipc::mutex::Mutex;
use gridpool_ipc::sandbox::landlock_version;
use gridpool_protocol::sandbox::{Protections, SandboxMode};
use procfs::process::Process;

use super::Shared;
use super::status::Viewer;

/// How long what the kernel has said may be told to others than operators: what changes all the time, and what a
/// process does once, at its start.
const USAGE_KEPT: Duration = Duration::from_millis(250);
const START_KEPT: Duration = Duration::from_secs(2);

/// The host memory and CPU time of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Usage {
    pub(super) cpu_us: u64,
    pub(super) resident_bytes: u64,
}

/// What is known of each process, and whether a CUDA library is mapped into this one.
#[derive(Debug)]
pub(super) struct KnownProcesses {
    usage: Known<u32, Usage>,
    protections: Known<u32, Protections>,
    has_cuda: Known<(), bool>,
}

impl Default for KnownProcesses {
    fn default() -> Self {
        Self {
            usage: Known::new(USAGE_KEPT),
            protections: Known::new(START_KEPT),
            has_cuda: Known::new(START_KEPT),
        }
    }
}

/// What was read lately, and when.
#[derive(Debug)]
struct Known<K, V> {
    kept: Duration,
    read: Mutex<BTreeMap<K, (Instant, V)>>,
}

impl<K: Ord, V: Copy> Known<K, V> {
    fn new(kept: Duration) -> Self {
        Self { kept, read: Mutex::default() }
    }

    /// What is known, or what `read` says now: for an operator always that. One asks, and the others wait for it.
    fn find(&self, of: K, viewer: &Viewer, read: impl FnOnce() -> V) -> V {
        if *viewer == Viewer::All {
            return read();
        }
        let now = clock::now();
        let mut known = self.read.lock();
        known.retain(|_, (since, _)| now.duration_since(*since) < self.kept);
        known.entry(of).or_insert_with(|| (now, read())).1
    }
}

impl Shared {
    /// The memory and CPU time of a process of the pool; nothing of one that no longer exists.
    pub(super) fn usage(&self, pid: u32, viewer: &Viewer) -> Usage {
        self.known_processes.usage.find(pid, viewer, || usage_of(pid).unwrap_or_default())
    }

    /// The protections of a process of the pool; none of one that no longer exists.
    pub(super) fn protections(&self, pid: u32, viewer: &Viewer) -> Protections {
        self.known_processes.protections.find(pid, viewer, || self.protections_of(pid))
    }

    /// Whether a CUDA library is mapped into this process.
    pub(super) fn has_cuda(&self, viewer: &Viewer) -> bool {
        self.known_processes.has_cuda.find((), viewer, cuda_is_mapped)
    }

    /// The protections of a process of ours; none if it no longer exists. Only the process itself sees its Landlock,
    /// and it ends if the kernel has Landlock and refuses it.
    fn protections_of(&self, pid: u32) -> Protections {
        let process = i32::try_from(pid).ok().and_then(|pid| Process::new(pid).ok());
        let Some(Ok(status)) = process.map(|process| process.status()) else {
            return Protections::default();
        };
        let no_new_privs = status.nonewprivs == Some(1);
        let restricts_files = no_new_privs && self.confinement.mode == SandboxMode::On;
        Protections {
            no_new_privs,
            seccomp: status.seccomp.is_some_and(|mode| mode != 0),
            landlock: if restricts_files { landlock_version() } else { 0 },
            // Without new privileges it gains none by a program of root.
            no_capabilities: status.capprm == 0 && (no_new_privs || status.capbnd == Some(0)),
        }
    }
}

/// `None` if the process no longer exists.
pub(super) fn usage_of(pid: u32) -> Option<Usage> {
    let stat = Process::new(i32::try_from(pid).ok()?).and_then(|process| process.stat()).ok()?;
    let cpu_us = (stat.utime + stat.stime) * 1_000_000 / procfs::ticks_per_second();
    Some(Usage { cpu_us, resident_bytes: stat.rss * procfs::page_size() })
}

/// Whether a CUDA library is mapped into this process, from its memory maps.
fn cuda_is_mapped() -> bool {
    maps::own().map_or(true, |maps| maps.contains("libcuda"))
}

#[cfg(test)]
mod tests {
    use gridpool_protocol::principal::Principal;

    use super::*;

    #[test]
    fn the_memory_use_of_a_process_is_read() {
        assert!(usage_of(std::process::id()).unwrap().resident_bytes > 0);
        assert_eq!(usage_of(0), None);
    }

    #[test]
    fn users_share_what_was_read_lately_and_an_operator_has_it_read() {
        let known = Known::new(USAGE_KEPT);
        let with = |cpu_us| Usage { cpu_us, resident_bytes: 0 };
        let find = |viewer: &Viewer, cpu_us| known.find(7, viewer, || with(cpu_us)).cpu_us;
        let users = [1, 2].map(|uid| Viewer::Own(Principal::Uid(uid)));
        assert_eq!([find(&users[0], 1), find(&users[1], 2)], [1, 1]);
        assert_eq!(find(&Viewer::All, 3), 3);
        known.read.lock().values_mut().for_each(|(since, _)| *since -= USAGE_KEPT);
        assert_eq!(find(&users[0], 4), 4);
        assert_eq!(known.read.lock().len(), 1);
    }
}
