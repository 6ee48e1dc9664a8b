//! What `/metrics` is made of: sums since the supervisor started, as it keeps them and as they travel to
//! the gateway, which names and prints them. Data only.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::fault::FaultCode;
use crate::ids::{DeviceId, Role};
use crate::receipt::AttemptOutcome;
use crate::status::{Counters, QueueStatus, Status};

/// All of it, at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Metrics {
    /// The pool as `gridpool status` shows it.
    pub status: Status,
    /// Both roles, whether there are workers of them or not.
    pub roles: Vec<RoleMetrics>,
    /// Every device, for each role.
    pub devices: Vec<DeviceMetrics>,
    /// How often each fault was met or told of: all that [have a row](FaultCode::listed) from 0 on. A
    /// number that no table names counts as its family's [other](FaultCode::others).
    pub faults: Vec<(FaultCode, u64)>,
}

/// What was done for one role.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RoleMetrics {
    /// Which.
    pub role: Role,
    /// Sums.
    pub counters: Counters,
    /// What waits.
    pub queue: QueueStatus,
    /// Processes started after the first of their place, by what had ended the one before: all reasons.
    pub restarts: Vec<(RestartReason, u64)>,
    /// Attempts that ended, by how: all outcomes.
    pub ended: Vec<(AttemptOutcome, u64)>,
    /// Attempts begun of what had been begun before.
    pub retries: u64,
    /// How long things took, and how large launches were.
    pub spread: Spread,
}

/// Histograms of one role. Times are in seconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// For each part of a job whose worker was lost: from the first sign of that to its answer.
    pub failover: Histogram,
    /// For each place of a worker: from the first sign that its process was lost to READY of the next.
    pub recovery: Histogram,
    /// From the order to start a process to READY.
    pub start: Histogram,
    /// Of a job, from acceptance to the first dispatch.
    pub queue: Histogram,
    /// Of an attempt that was answered, from its arrival in the worker to the answer.
    pub service: Histogram,
    /// Attempts that were sent to a worker together.
    pub dispatch_attempts: Histogram,
    /// Items of those.
    pub dispatch_items: Histogram,
}

/// Upper ends of the buckets of times, seconds: the budget of a failover is in the milliseconds, that of
/// a recovery goes to a minute.
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

impl Default for Spread {
    fn default() -> Self {
        let times = || Histogram::new(&SECONDS);
        Self {
            failover: times(),
            recovery: times(),
            start: times(),
            queue: times(),
            service: times(),
            dispatch_attempts: Histogram::new(&ATTEMPTS),
            dispatch_items: Histogram::new(&ITEMS),
        }
    }
}

/// How often a value was in which bucket.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Histogram {
    /// Upper ends, ascending, each with how many values were at most that and above the one before.
    pub buckets: Vec<(f64, u64)>,
    /// How many were above all.
    pub above: u64,
    /// Of all values.
    pub sum: f64,
}

impl Histogram {
    /// An empty one with buckets that end there. Allocates; what is observed later does not.
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

    /// How many values there were.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|&(_, count)| count).sum::<u64>() + self.above
    }
}

/// What the workers of one role have done on one device, whichever processes they were.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceMetrics {
    /// Which device.
    pub device: DeviceId,
    /// Which role.
    pub role: Role,
    /// The number of the latest process; 0 before the first.
    pub generation: u32,
    /// Whether it is out of service.
    pub is_out: bool,
    /// How often it was put out of service.
    pub quarantines: u64,
    /// What was done there.
    pub work: Work,
}

/// What was done on a device, as the reports of its workers say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Work {
    /// Attempts answered.
    pub attempts: u64,
    /// Items that a job got a result of.
    pub items: u64,
    /// Bytes copied to the device, or read over the bus.
    pub h2d_bytes: u64,
    /// Bytes copied back, or written over the bus.
    pub d2h_bytes: u64,
    /// Kernels launched, of which launches that attempts share count once.
    pub launches: f64,
    /// Their time on the device, seconds, counted likewise.
    pub busy_s: f64,
    /// Runs of models, of which those that requests share count once.
    pub runs: f64,
    /// What those took by the worker's clock, seconds, counted likewise.
    pub run_s: f64,
}

/// What had ended a process whose place another one took. Where the pool had, the log names it by the same
/// word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum RestartReason {
    /// The pool ended it because a job that it ran was cancelled, and it did not come to its end.
    Cancelled,
    /// The pool ended it over what the driver had said of its device.
    DeviceFault,
    /// The pool ended it because its device was put out of service.
    DeviceOut,
    /// It ended by itself, with an exit code and without a word.
    Exit,
    /// It ended by itself over a fault that it named.
    Fault,
    /// It was of another version.
    Incompatible,
    /// A SIGKILL from outside.
    Killed,
    /// The pool ended it because the deadline of a job that it ran had passed.
    Late,
    /// The pool ended it because it was not READY in time.
    NotReady,
    /// The pool ended it because others waited behind what it ran while another device was idle.
    OthersWait,
    /// It broke the protocol.
    Rejected,
    /// Another signal.
    Signal,
    /// The pool ended it because it gave no sign of life.
    Silent,
    /// It could not be started.
    SpawnFailed,
    /// The pool ended it because it ran on for a job that another part had ended.
    Unwound,
    /// It had grown too far.
    Worn,
}

impl RestartReason {
    /// All of them.
    pub const ALL: [Self; 16] = [
        Self::Cancelled,
        Self::DeviceFault,
        Self::DeviceOut,
        Self::Exit,
        Self::Fault,
        Self::Incompatible,
        Self::Killed,
        Self::Late,
        Self::NotReady,
        Self::OthersWait,
        Self::Rejected,
        Self::Signal,
        Self::Silent,
        Self::SpawnFailed,
        Self::Unwound,
        Self::Worn,
    ];

    /// As a label has it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Cancelled => "cancelled",
            Self::DeviceFault => "device_fault",
            Self::DeviceOut => "device_out",
            Self::Exit => "exit",
            Self::Fault => "fault",
            Self::Incompatible => "incompatible",
            Self::Killed => "killed",
            Self::Late => "late",
            Self::NotReady => "not_ready",
            Self::OthersWait => "others_wait",
            Self::Rejected => "rejected",
            Self::Signal => "signal",
            Self::Silent => "silent",
            Self::SpawnFailed => "spawn_failed",
            Self::Unwound => "unwound",
            Self::Worn => "worn",
        }
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
