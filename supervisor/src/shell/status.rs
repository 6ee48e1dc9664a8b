//! The pool as `status` shows it: what the core says, and beside it what the shell knows of processes
//! and what jobs are.

use std::fs;
use std::sync::atomic::Ordering;

use gridpool_protocol::ids::WorkerId;
use gridpool_protocol::maps;
use gridpool_protocol::metrics::Metrics;
use gridpool_protocol::status::{RUN_TEXT_MAX, RunStatus, Status, SupervisorStatus};
use nix::unistd::{SysconfVar, sysconf};

use super::Shared;
use super::core::{Core, Work};
use super::gateway::Gateway;
use super::monitor::Monitor;
use super::operator;
use crate::pool::event::Timestamp;

impl Shared {
    /// What was counted.
    pub(super) fn metrics(&self) -> Metrics {
        let status = self.status();
        let core = self.lock();
        let (roles, devices, faults) = core.pool.metrics(self.timestamp());
        Metrics { status, roles, devices, faults }
    }

    pub(super) fn status(&self) -> Status {
        let cuda_mapped = cuda_is_mapped();
        let (monitor, devices) = self.monitor.get().map(Monitor::status).unzip();
        let http = self.gateway.get().map(Gateway::status);
        let core = self.lock();
        let now = self.timestamp();
        let mut workers = core.pool.workers();
        for row in &mut workers {
            let Ok(worker) = row.name.parse() else { continue };
            row.run = run_of(&core, worker, now);
            let Some(link) = core.workers.get(&worker) else { continue };
            row.pid = link.pid;
            row.arena_bytes = link.arena_bytes();
            row.memory = link.memory;
        }
        let (arena_bytes, arena_bytes_high) = self.budget.bytes();
        let mut queue = core.pool.queue();
        queue.oldest_us = core.pool.waits_since().map(|at| micros(now, at));
        let mut status = Status {
            supervisor: SupervisorStatus {
                pid: std::process::id(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
                uptime_s: self.started.elapsed().as_secs_f64(),
                socket: self.socket.display().to_string(),
                cuda_mapped,
                draining: core.pool.is_draining(),
                clients: u32::try_from(core.clients.len()).unwrap_or(u32::MAX),
                arena_bytes,
                arena_bytes_high,
                outbox_bytes_high: self.outbox_bytes_high.load(Ordering::Relaxed),
            },
            workers,
            monitor,
            http,
            devices: devices.unwrap_or_default(),
            quarantines: operator::quarantines(&core.pool, now),
            queue,
            counters: core.pool.counters(),
        };
        // Files are not read under the core's lock.
        drop(core);
        for row in status.workers.iter_mut().filter(|row| row.pid != 0) {
            let usage = usage_of(row.pid).unwrap_or_default();
            (row.cpu_us, row.resident_bytes) = (usage.cpu_us, usage.resident_bytes);
        }
        status
    }
}

/// What a worker has in hand, in words.
fn run_of(core: &Core, worker: WorkerId, now: Timestamp) -> Option<RunStatus> {
    let in_hand = core.pool.in_hand(worker)?;
    let what = match core.work_of(in_hand.job) {
        Some(Work::Grid(submission)) => &*submission.call.program,
        Some(Work::Infer(call, _)) => &*call.model,
        None => "",
    };
    Some(RunStatus {
        job: in_hand.job.to_string(),
        what: what.chars().take(RUN_TEXT_MAX).collect(),
        jobs: u32::try_from(in_hand.jobs).unwrap_or(u32::MAX),
        items: in_hand.items,
        for_us: micros(now, in_hand.since),
    })
}

fn micros(now: Timestamp, since: Timestamp) -> u64 {
    u64::try_from(now.since(since).as_micros()).unwrap_or(u64::MAX)
}

/// What a process has taken of the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Usage {
    cpu_us: u64,
    resident_bytes: u64,
}

/// `None` if there is no such process any more.
fn usage_of(pid: u32) -> Option<Usage> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let unit = |what| sysconf(what).ok().flatten().and_then(|value| u64::try_from(value).ok());
    parse_usage(&stat, unit(SysconfVar::CLK_TCK)?, unit(SysconfVar::PAGE_SIZE)?)
}

/// Of the text of `/proc/PID/stat`, in which the process may have put brackets and spaces into its
/// own name.
fn parse_usage(stat: &str, ticks_per_second: u64, page_bytes: u64) -> Option<Usage> {
    let (_, rest) = stat.rsplit_once(')')?;
    // The first of these is the third of proc(5).
    let field = |number: usize| rest.split_whitespace().nth(number - 3)?.parse::<u64>().ok();
    let ticks = field(14)? + field(15)?;
    let cpu_us = ticks * 1_000_000 / ticks_per_second.max(1);
    Some(Usage { cpu_us, resident_bytes: field(24)? * page_bytes })
}

/// Whether a CUDA library is mapped into this process, by looking.
fn cuda_is_mapped() -> bool {
    maps::own().map_or(true, |maps| maps.contains("libcuda"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_process_has_taken_is_read_whatever_it_calls_itself() {
        let stat = "7 (a) (b c) S 1 7 7 0 -1 4194304 10 0 0 0 250 50 0 0 20 0 9 0 100 1000 300 1 1";
        let usage = Usage { cpu_us: 3_000_000, resident_bytes: 300 * 4_096 };
        assert_eq!(parse_usage(stat, 100, 4_096), Some(usage));
        assert_eq!(parse_usage("7 (a) S 1", 100, 4_096), None);
        assert!(usage_of(std::process::id()).unwrap().resident_bytes > 0);
        assert_eq!(usage_of(0), None);
    }
}
