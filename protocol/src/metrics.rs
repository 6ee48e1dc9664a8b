//! The data of `/metrics`: sums since the supervisor started. The supervisor counts them; the gateway names and
//! prints them.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::fault::FaultCode;
use crate::ids::{DeviceId, Role};
use crate::named::named;
use crate::receipt::AttemptOutcome;
use crate::status::{Counters, QueueStatus, Status};

/// All of it, at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Metrics {
    /// The pool as `gridpool status` shows it.
    pub status: Status,
    /// Both roles, also one without workers.
    pub roles: Vec<RoleMetrics>,
    /// Every device, for each role.
    pub devices: Vec<DeviceMetrics>,
    /// How often each fault occurred. Every fault [with a row](FaultCode::listed) is there from 0 on; a
    /// number without one counts as its family's [other](FaultCode::others).
    pub faults: Vec<(FaultCode, u64)>,
    /// What there may be to ask for.
    pub news: News,
}

/// The numbers of the latest of what is told apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct News {
    /// The latest death of a worker; 0 before the first.
    pub death: u64,
    /// The latest verdict of the job log; 0 if the pool logs none.
    pub verdict: u64,
}

/// The metrics of one role.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RoleMetrics {
    /// Which.
    pub role: Role,
    /// Sums.
    pub counters: Counters,
    /// The queue.
    pub queue: QueueStatus,
    /// Workers started to replace another, by what ended that one: all reasons.
    pub restarts: Vec<(RestartReason, u64)>,
    /// Attempts that ended, by how: all outcomes.
    pub ended: Vec<(AttemptOutcome, u64)>,
    /// Everything else.
    pub sums: Sums,
}

/// What the pool counts of a role where it happens. To add a metric, add a field.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sums {
    /// Attempts at shards that had been attempted before.
    pub retries: u64,
    /// Times, and sizes of dispatches.
    pub histograms: Histograms,
}

impl Sums {
    /// Adds those of other workers.
    pub fn add(&mut self, other: &Self) {
        let Self { retries, histograms } = other;
        self.retries += retries;
        let own = &mut self.histograms;
        own.failover.add(&histograms.failover);
        own.recovery.add(&histograms.recovery);
        own.start.add(&histograms.start);
        own.queue.add(&histograms.queue);
        own.service.add(&histograms.service);
        own.total.add(&histograms.total);
        own.dispatch_attempts.add(&histograms.dispatch_attempts);
        own.dispatch_items.add(&histograms.dispatch_items);
    }
}

/// Histograms of one role. Times are in seconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Histograms {
    /// From the first sign that a worker was lost to the next answer for a shard that it ran.
    pub failover: Histogram,
    /// From the first sign that a worker was lost to READY of its replacement.
    pub recovery: Histogram,
    /// From the command to start a worker to READY.
    pub start: Histogram,
    /// From a job's acceptance to its first dispatch.
    pub queue: Histogram,
    /// From the arrival of an answered attempt in its worker to the answer.
    pub service: Histogram,
    /// From a job's acceptance to its verdict.
    pub total: Histogram,
    /// Attempts in one dispatch.
    pub dispatch_attempts: Histogram,
    /// Items in one dispatch.
    pub dispatch_items: Histogram,
}

/// Upper ends of the buckets of times, in seconds: a failover takes milliseconds, a recovery up to a
/// minute.
pub const SECONDS: [f64; 19] = [
    0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
    1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
];
/// The same of attempts: up to [`JOIN_MAX`](crate::limits::JOIN_MAX).
pub const ATTEMPTS: [f64; 7] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0];
/// The same of items: up to [`JOB_ITEMS_MAX`](crate::limits::JOB_ITEMS_MAX).
pub const ITEMS: [f64; 12] = [
    1.0,
    4.0,
    16.0,
    64.0,
    256.0,
    1_024.0,
    4_096.0,
    16_384.0,
    65_536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
];

impl Default for Histograms {
    fn default() -> Self {
        let times = || Histogram::new(&SECONDS);
        Self {
            failover: times(),
            recovery: times(),
            start: times(),
            queue: times(),
            service: times(),
            total: times(),
            dispatch_attempts: Histogram::new(&ATTEMPTS),
            dispatch_items: Histogram::new(&ITEMS),
        }
    }
}

/// A histogram: counts of values by bucket.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Histogram {
    /// Upper ends, ascending, each with the number of values up to it and above the one before.
    pub buckets: Vec<(f64, u64)>,
    /// The number of values above all ends.
    pub above: u64,
    /// The sum of all values.
    pub sum: f64,
}

impl Histogram {
    /// An empty histogram with these upper ends. This allocates; counting does not.
    #[must_use]
    pub fn new(ends: &[f64]) -> Self {
        Self { buckets: ends.iter().map(|&end| (end, 0)).collect(), above: 0, sum: 0.0 }
    }

    /// Counts a value.
    pub fn observe(&mut self, value: f64) {
        let at = self.buckets.partition_point(|&(end, _)| end < value);
        match self.buckets.get_mut(at) {
            Some((_, count)) => *count += 1,
            None => self.above += 1,
        }
        self.sum += value;
    }

    /// Counts a time, in seconds.
    pub fn observe_time(&mut self, time: Duration) {
        self.observe(time.as_secs_f64());
    }

    /// Adds the values of another histogram with the same ends.
    pub fn add(&mut self, other: &Self) {
        for ((_, count), (_, more)) in self.buckets.iter_mut().zip(&other.buckets) {
            *count += more;
        }
        self.above += other.above;
        self.sum += other.sum;
    }

    /// The number of values.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|&(_, count)| count).sum::<u64>() + self.above
    }
}

/// The metrics of the workers of one role on one device, all processes together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceMetrics {
    /// Which device.
    pub device: DeviceId,
    /// Which role.
    pub role: Role,
    /// The number of the latest process; 0 before the first.
    pub generation: u32,
    /// Whether it is quarantined.
    pub is_out: bool,
    /// How often it was quarantined.
    pub quarantines: u64,
    /// The work done there.
    pub work: DeviceWork,
}

/// The work done on a device, from the reports of its workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DeviceWork {
    /// Attempts answered.
    pub attempts: u64,
    /// Items that got a result.
    pub items: u64,
    /// Bytes copied to the device, or read over the bus.
    pub h2d_bytes: u64,
    /// Bytes copied back, or written over the bus.
    pub d2h_bytes: u64,
    /// Kernel launches. One that attempts share counts once.
    pub launches: f64,
    /// Their time on the device, in seconds, counted likewise.
    pub busy_s: f64,
    /// Runs of models. One that requests share counts once.
    pub runs: f64,
    /// Those of them that were replays of CUDA graphs, counted likewise.
    pub graph_replays: f64,
    /// Their time by the worker's clock, in seconds, counted likewise.
    pub run_s: f64,
}

impl DeviceWork {
    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            attempts: self.attempts + other.attempts,
            items: self.items + other.items,
            h2d_bytes: self.h2d_bytes.saturating_add(other.h2d_bytes),
            d2h_bytes: self.d2h_bytes.saturating_add(other.d2h_bytes),
            launches: self.launches + other.launches,
            busy_s: self.busy_s + other.busy_s,
            runs: self.runs + other.runs,
            graph_replays: self.graph_replays + other.graph_replays,
            run_s: self.run_s + other.run_s,
        }
    }
}

named! {
    /// Why a worker was restarted: what ended the process before it. Where the pool ended it, the log has
    /// the same word.
    pub enum RestartReason {
        /// The pool killed it because a job that it ran was cancelled and did not stop.
        Cancelled = "cancelled",
        /// The pool killed it because the driver reported a fault of its device.
        DeviceFault = "device_fault",
        /// The pool killed it because its device was quarantined.
        DeviceOut = "device_out",
        /// It exited and reported no fault.
        Exit = "exit",
        /// It exited and reported a fault.
        Fault = "fault",
        /// It had another version.
        Incompatible = "incompatible",
        /// SIGKILL ended it, and the pool did not send that.
        Killed = "killed",
        /// The pool killed it because the deadline of its job had passed.
        Late = "late",
        /// The pool killed it because it was not READY in time.
        NotReady = "not_ready",
        /// The pool killed it because jobs waited behind the one that it ran while another device was idle.
        OthersWait = "others_wait",
        /// It had grown too much and was recycled.
        Recycled = "recycled",
        /// It broke the protocol.
        Rejected = "rejected",
        /// Another signal ended it.
        Signal = "signal",
        /// The pool killed it because its heartbeats stopped.
        Silent = "silent",
        /// It could not be started.
        SpawnFailed = "spawn_failed",
        /// The pool killed it because it still ran a job that another shard had ended.
        Unwound = "unwound",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_counted_in_the_first_bucket_that_holds_it() {
        let mut histogram = Histogram::new(&[1.0, 2.0, 4.0]);
        for value in [0.5, 1.0, 1.5, 4.0, 4.5, 100.0] {
            histogram.observe(value);
        }
        assert_eq!(histogram.buckets, [(1.0, 2), (2.0, 1), (4.0, 1)]);
        assert_eq!((histogram.above, histogram.count()), (2, 6));
        assert!((histogram.sum - 111.5).abs() < 1e-9);
    }

    #[test]
    fn the_ends_of_buckets_ascend_and_hold_what_the_limits_allow() {
        for ends in [&SECONDS[..], &ATTEMPTS, &ITEMS] {
            assert!(ends.is_sorted_by(|a, b| a < b));
        }
        assert!(ATTEMPTS.contains(&(crate::limits::JOIN_MAX as f64)));
        assert!(ITEMS.contains(&f64::from(crate::limits::JOB_ITEMS_MAX)));
    }

    #[test]
    fn every_reason_of_a_restart_is_listed_under_a_name_of_its_own() {
        let mut names = RestartReason::ALL.map(RestartReason::name);
        assert!(names.is_sorted());
        names.sort_unstable();
        assert!(names.windows(2).all(|two| two[0] != two[1]));
    }
}
