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

/// How long what the kernel has said may be told to others than operators.
const KEPT: Duration = Duration::from_millis(250);

/// What is told of one process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ProcessFacts {
    pub(super) usage: Usage,
    pub(super) protections: Protections,
}

/// The host memory and CPU time of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Usage {
    pub(super) cpu_us: u64,
    pub(super) resident_bytes: u64,
}

/// What is known of each process, and whether a CUDA library is mapped into this one.
#[derive(Debug, Default)]
pub(super) struct KnownProcesses {
    facts: Known<u32, ProcessFacts>,
    has_cuda: Known<(), bool>,
}

/// What was read lately, and when.
#[derive(Debug)]
struct Known<K, V>(Mutex<BTreeMap<K, (Instant, V)>>);

impl<K, V> Default for Known<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Ord, V: Copy> Known<K, V> {
    /// What is known, or what `read` says now: for an operator always that. One asks, and the others wait for it.
    fn find(&self, of: K, viewer: &Viewer, read: impl FnOnce() -> V) -> V {
        if *viewer == Viewer::All {
            return read();
        }
        let now = clock::now();
        let mut known = self.0.lock();
        known.retain(|_, (since, _)| now.duration_since(*since) < KEPT);
        known.entry(of).or_insert_with(|| (now, read())).1
    }
}

impl Shared {
    /// What is told of a process of the pool; nothing of one that no longer exists.
    pub(super) fn process(&self, pid: u32, viewer: &Viewer) -> ProcessFacts {
        self.known_processes.facts.find(pid, viewer, || ProcessFacts {
            usage: usage_of(pid).unwrap_or_default(),
            protections: self.protections_of(pid),
        })
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
        let known = Known::default();
        let with = |cpu_us| ProcessFacts {
            usage: Usage { cpu_us, resident_bytes: 0 },
            ..ProcessFacts::default()
        };
        let find = |viewer: &Viewer, cpu_us| known.find(7, viewer, || with(cpu_us)).usage.cpu_us;
        let users = [1, 2].map(|uid| Viewer::Own(Principal::Uid(uid)));
        assert_eq!([find(&users[0], 1), find(&users[1], 2)], [1, 1]);
        assert_eq!(find(&Viewer::All, 3), 3);
        known.0.lock().values_mut().for_each(|(since, _)| *since -= KEPT);
        assert_eq!(find(&users[0], 4), 4);
        assert_eq!(known.0.lock().len(), 1);
    }
}
