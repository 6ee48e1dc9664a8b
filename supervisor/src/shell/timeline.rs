//! Samples the pool each second for its timeline, on a thread of its own: what the kernel says of processes is read
//! without the core's lock. The page and `top` ask for what it has kept; it outlives the gateway, and a successor gets
//! it.

use std::collections::BTreeMap;
use std::sync::PoisonError;
use std::time::{Duration, Instant, SystemTime};

use gridpool_core::event::Helper;
use gridpool_ipc::clock;
use gridpool_ipc::mutex::Mutex;
use gridpool_protocol::ids::DeviceKind;
use gridpool_protocol::status::WorkerStatus;
use gridpool_protocol::timeline::{Mark, Part};

use super::Shared;
use super::processes::usage_of;
use crate::devices::{busy_percent, device_of};
use crate::timeline::Timeline;
use crate::timeline::record::{Recorder, Sample, Seen};

/// How often.
const SAMPLE_EVERY: Duration = Duration::from_secs(1);

/// What was sampled so far. Only a question waits for this lock.
#[derive(Debug, Default)]
pub(super) struct KeptTimeline(Mutex<Recorder>);

impl KeptTimeline {
    /// What comes after a mark.
    pub(super) fn after(&self, mark: Mark) -> Part {
        self.0.lock().timeline().part_after(mark)
    }

    /// All of it, for a successor.
    pub(super) fn parts(&self) -> Vec<Part> {
        self.0.lock().timeline().parts()
    }

    /// Goes on with that of the pool before this one. What this one has sampled meanwhile is the same time.
    pub(super) fn inherit(&self, past: Timeline) {
        *self.0.lock() = Recorder::after(past);
    }
}

/// The CPU time of each process at the last sample, microseconds.
type Cpu = BTreeMap<u32, u64>;

/// The body of the sampling thread. It ends with the pool.
pub(super) fn serve(shared: &Shared) {
    let mut before = (clock::now(), Cpu::new());
    let mut next = clock::now();
    loop {
        before = shared.sample(&before);
        next = (next + SAMPLE_EVERY).max(clock::now());
        let mut core = shared.lock();
        while !core.is_over && !clock::until(next).is_zero() {
            let waited = shared.ended.wait_timeout(core, clock::until(next));
            core = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        if core.is_over {
            return;
        }
    }
}

impl Shared {
    /// Takes one sample; `before` is what the last one has returned.
    fn sample(&self, before: &(Instant, Cpu)) -> (Instant, Cpu) {
        let core = self.lock();
        let pid_of = |worker| core.workers.get(&worker).map_or(0, |link| link.pid);
        let rows = core.pool.workers().into_iter();
        let rows: Vec<_> = rows.map(|(worker, row)| (worker.map_or(0, pid_of), row)).collect();
        let roles = core.pool.roles();
        let (counters, queue) = (core.pool.counters(), core.pool.queue().jobs);
        let monitor = core.pool.helper(Helper::Monitor);
        drop(core);
        let now = clock::now();
        let passed = now.duration_since(before.0);
        let gpus = self.monitor.get().map(|own| own.status(monitor).1).unwrap_or_default();
        let mut cpu = Cpu::new();
        let workers: Vec<_> = rows
            .into_iter()
            .map(|(pid, row)| {
                let is_cpu = row.device.kind == DeviceKind::Cpu && pid != 0;
                let usage = Some(pid).filter(|_| is_cpu).and_then(usage_of);
                let cpu_us = usage.and_then(|usage| {
                    cpu.insert(pid, usage.cpu_us);
                    let grown = usage.cpu_us.checked_sub(*before.1.get(&pid)?)?;
                    let grown = Duration::from_micros(grown).as_secs_f64() * 1e6;
                    (!passed.is_zero()).then(|| grown / passed.as_secs_f64())
                });
                let busy_percent = busy_percent(&row, &gpus, cpu_us);
                let device = device_of(&row.name).to_owned();
                let WorkerStatus { group, state, restarts, .. } = row;
                Seen { device, group, state, restarts, busy_percent }
            })
            .collect();
        let since = clock::time_of_day().duration_since(SystemTime::UNIX_EPOCH);
        let at_ms = since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX));
        let sample = Sample { at_ms, counters: &counters, queue, workers: &workers, roles: &roles };
        self.timeline.0.lock().take(&sample);
        (now, cpu)
    }
}
