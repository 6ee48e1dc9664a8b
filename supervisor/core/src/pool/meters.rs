//! What is counted of the work of a role, beside the sums of `status`: how workers and attempts ended, how
//! long things took, what was done on each device. Only counts: nothing is decided by it. Counting
//! allocates nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use gridpool_protocol::exit::worker as exit_code;
use gridpool_protocol::fault::FaultCode;
use gridpool_protocol::ids::Role;
use gridpool_protocol::message::AttemptError;
use gridpool_protocol::metrics::{DeviceMetrics, DeviceWork, RestartReason, RoleMetrics, Sums};
use gridpool_protocol::receipt::{AttemptOutcome, RunReport};
use gridpool_protocol::status::QueueStatus;

use super::job::Job;
use super::kill::KillReason;
use super::shard::Shard;
use super::{Pool, micros};
use crate::action::Assignment;
use crate::event::{Exit, ExitStatus, Timestamp};

/// In seconds.
const MICROSECOND: f64 = 1e-6;

/// Sums of one role.
#[derive(Clone, Debug)]
pub(super) struct Meters {
    restarts: BTreeMap<RestartReason, u64>,
    ended: BTreeMap<AttemptOutcome, u64>,
    pub(super) sums: Sums,
}

impl Default for Meters {
    fn default() -> Self {
        Self {
            restarts: RestartReason::ALL.map(|reason| (reason, 0)).into(),
            ended: AttemptOutcome::ALL.map(|outcome| (outcome, 0)).into(),
            sums: Sums::default(),
        }
    }
}

impl Meters {
    /// The next attempt of a shard is about to begin.
    pub(super) fn begin(&mut self, now: Timestamp, job: &Job, shard: usize) {
        self.sums.retries += u64::from(job.shards[shard].was_begun);
        if job.dispatched.is_none() {
            self.sums.histograms.queue.observe_time(now.since(job.accepted));
        }
    }

    /// Attempts go to a worker together.
    pub(super) fn dispatched(&mut self, attempts: &[Assignment]) {
        let items = attempts.iter().map(|sent| f64::from(sent.shard.len())).sum();
        let count = u32::try_from(attempts.len()).unwrap_or(u32::MAX);
        self.sums.histograms.dispatch_attempts.observe(count.into());
        self.sums.histograms.dispatch_items.observe(items);
    }

    /// An attempt of a shard gave its result.
    pub(super) fn answered(&mut self, now: Timestamp, shard: &Shard, report: &RunReport) {
        self.ended(AttemptOutcome::Ok);
        #[expect(clippy::cast_precision_loss, reason = "2^53 microseconds are 285 years")]
        self.sums.histograms.service.observe(report.service_us as f64 * MICROSECOND);
        if let Some(at) = shard.lost_at {
            self.sums.histograms.failover.observe_time(now.since(at));
        }
    }

    /// An attempt has ended so.
    pub(super) fn ended(&mut self, outcome: AttemptOutcome) {
        *self.ended.entry(outcome).or_default() += 1;
    }

    /// A process was ordered, perhaps in the place of one that has ended so.
    pub(super) fn spawned(&mut self, is_restart: bool, end: &mut End) {
        if let Some(reason) = end.reason.take().filter(|_| is_restart) {
            *self.restarts.entry(reason).or_default() += 1;
        }
    }

    /// A process is READY, in the place of one that has ended so.
    pub(super) fn ready(&mut self, now: Timestamp, took: Option<Duration>, end: &mut End) {
        if let Some(took) = took {
            self.sums.histograms.start.observe_time(took);
        }
        if let Some(at) = end.lost_at.take() {
            self.sums.histograms.recovery.observe_time(now.since(at));
        }
    }
}

/// What is known of the end of a slot's process until the next one is there.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct End {
    reason: Option<RestartReason>,
    /// The first sign of the loss since which none was READY.
    lost_at: Option<Timestamp>,
}

impl End {
    /// It has ended, and there was a first sign of that, or could not be started.
    pub(super) fn by(&mut self, since: Timestamp, reason: RestartReason) {
        self.lost_at.get_or_insert(since);
        self.reason = Some(reason);
    }
}

/// What ended a process; `killed` is why the pool did, if it did. `None` if it was to end for good.
pub(super) fn reason(killed: Option<KillReason>, exit: &Exit) -> Option<RestartReason> {
    /// SIGKILL. The pool notes its own: without such a note, another process sent it.
    const KILL: i32 = 9;
    if let Some(killed) = killed.filter(|&why| why != KillReason::BeaconLost) {
        return killed.restart();
    }
    Some(match exit.status {
        ExitStatus::Incompatible => RestartReason::Incompatible,
        ExitStatus::Rejected => RestartReason::Rejected,
        ExitStatus::Code(_) | ExitStatus::Signal(_) if exit.fault.is_some() => RestartReason::Fault,
        ExitStatus::Code(exit_code::WORN) => RestartReason::Recycled,
        ExitStatus::Code(_) => RestartReason::Exit,
        ExitStatus::Signal(KILL) => RestartReason::Killed,
        ExitStatus::Signal(_) => RestartReason::Signal,
    })
}

/// Adds what a worker answered to what was done on its device. The shell has
/// [checked](RunReport::check) it.
pub(super) fn note(work: &mut DeviceWork, result: &Result<RunReport, AttemptError>) {
    work.attempts += 1;
    let Ok(report) = result else { return };
    work.h2d_bytes = work.h2d_bytes.saturating_add(report.h2d_bytes);
    work.d2h_bytes = work.d2h_bytes.saturating_add(report.d2h_bytes);
    // Each of those that share a launch reports all of it: what it did of that goes by its items.
    let share = match (report.items, report.joined_items) {
        (items, all) if items > 0 && items < all => f64::from(items) / f64::from(all),
        _ => 1.0,
    };
    if let Some(infer) = &report.infer {
        // A run of a model is no launch of a kernel, and its time not the device's alone.
        work.runs += f64::from(infer.runs) * share;
        work.run_s += infer.device_us * MICROSECOND * share;
        return;
    }
    for kernel in &report.kernels {
        work.launches += f64::from(kernel.launches) * share;
        work.busy_s += kernel.device_us * MICROSECOND * share;
    }
}

/// How often which fault was met: every one that a table names and, for each family, all others, from 0
/// on, so that the first is seen as one more. No fault adds a row.
#[derive(Clone, Debug)]
pub(super) struct Faults(BTreeMap<FaultCode, u64>);

impl Default for Faults {
    fn default() -> Self {
        let others = FaultCode::others().map(|(other, _)| other);
        let all = FaultCode::listed().filter(|&fault| fault != GOOD_NEWS).chain(others);
        Self(all.map(|fault| (fault, 0)).collect())
    }
}

/// That no action is needed any more.
const GOOD_NEWS: FaultCode = FaultCode::Recovery(0);

impl Faults {
    /// One more.
    pub(super) fn note(&mut self, fault: FaultCode) {
        if fault != GOOD_NEWS {
            *self.0.entry(bounded(fault)).or_default() += 1;
        }
    }

    /// Each fault, and how often it was met.
    pub(super) fn rows(&self) -> Vec<(FaultCode, u64)> {
        self.0.iter().map(|(&fault, &count)| (fault, count)).collect()
    }
}

/// The fault, or what stands for all of its family that no table names: a driver may say any number.
fn bounded(fault: FaultCode) -> FaultCode {
    if FaultCode::listed().any(|listed| listed == fault) {
        return fault;
    }
    let kind = std::mem::discriminant(&fault);
    let others = FaultCode::others().map(|(other, _)| other);
    others.into_iter().find(|other| std::mem::discriminant(other) == kind).unwrap_or(fault)
}

impl Pool {
    /// What was counted: for each role, for each device and role, and faults.
    pub(crate) fn metrics(
        &self,
        now: Timestamp,
    ) -> (Vec<RoleMetrics>, Vec<DeviceMetrics>, Vec<(FaultCode, u64)>) {
        let roles = self.roles.names().map(|role| self.role_metrics(now, role)).collect();
        let of_device = self.devices.iter().flat_map(|device| {
            device.services().map(|(role, service)| DeviceMetrics {
                device: device.id,
                role,
                generation: service.generation(),
                is_out: !service.is_open(),
                quarantines: service.quarantines(),
                work: service.work,
            })
        });
        (roles, of_device.collect(), self.faults.rows())
    }

    fn role_metrics(&self, now: Timestamp, role: Role) -> RoleMetrics {
        let (state, meters) = (&self.roles[role], &self.roles[role].meters);
        let own = self.jobs.iter().filter(|job| job.role() == role && job.waits());
        let oldest = own.map(|job| job.accepted).min();
        let oldest_us = oldest.map(|at| micros(now.since(at)));
        RoleMetrics {
            role,
            counters: self.counters_of(role),
            queue: QueueStatus { oldest_us, ..state.queue_status() },
            restarts: meters.restarts.iter().map(|(&reason, &count)| (reason, count)).collect(),
            ended: meters.ended.iter().map(|(&outcome, &count)| (outcome, count)).collect(),
            sums: meters.sums.clone(),
        }
    }
}
