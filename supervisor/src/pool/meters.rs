//! What is counted of a pool's work, beside the sums of `status`: how workers and attempts ended, how long
//! things took, what was done on each device. Only counts: nothing is decided by it. Counting allocates
//! nothing.

use std::collections::BTreeMap;

use gridpool_protocol::exit::worker as exit_code;
use gridpool_protocol::fault::FaultCode;
use gridpool_protocol::ids::{DeviceId, Role};
use gridpool_protocol::message::AttemptError;
use gridpool_protocol::metrics::{DeviceMetrics, RestartReason, RoleMetrics, Spread, Work};
use gridpool_protocol::receipt::{AttemptOutcome, RunReport};
use gridpool_protocol::status::QueueStatus;

use super::event::{Assignment, Exit, ExitStatus, Timestamp};
use super::job::Job;
use super::kill::KillReason;
use super::part::Part;
use super::slot::Slot;
use super::{Pool, micros};

/// In seconds.
const MICROSECOND: f64 = 1e-6;

/// Sums of one pool.
#[derive(Clone, Debug)]
pub(super) struct Meters {
    restarts: BTreeMap<RestartReason, u64>,
    ended: BTreeMap<AttemptOutcome, u64>,
    retries: u64,
    spread: Spread,
    faults: Faults,
}

impl Default for Meters {
    fn default() -> Self {
        Self {
            restarts: RestartReason::ALL.map(|reason| (reason, 0)).into(),
            ended: AttemptOutcome::ALL.map(|outcome| (outcome, 0)).into(),
            retries: 0,
            spread: Spread::default(),
            faults: Faults::default(),
        }
    }
}

impl Meters {
    /// The next attempt of a part is about to begin.
    pub(super) fn begin(&mut self, now: Timestamp, job: &Job, part: usize) {
        self.retries += u64::from(job.parts[part].was_begun);
        if job.dispatched.is_none() {
            self.spread.queue.observe_time(now.since(job.accepted));
        }
    }

    /// Attempts go to a worker together.
    pub(super) fn dispatched(&mut self, attempts: &[Assignment]) {
        let items = attempts.iter().map(|sent| f64::from(sent.part.len())).sum();
        let count = u32::try_from(attempts.len()).unwrap_or(u32::MAX);
        self.spread.dispatch_attempts.observe(count.into());
        self.spread.dispatch_items.observe(items);
    }

    /// An attempt of a part gave its result.
    pub(super) fn answered(&mut self, now: Timestamp, part: &Part, report: &RunReport) {
        self.ended(AttemptOutcome::Ok);
        #[expect(clippy::cast_precision_loss, reason = "2^53 microseconds are 285 years")]
        self.spread.service.observe(report.service_us as f64 * MICROSECOND);
        if let Some(at) = part.lost_at {
            self.spread.failover.observe_time(now.since(at));
        }
    }

    /// An attempt has ended so.
    pub(super) fn ended(&mut self, outcome: AttemptOutcome) {
        *self.ended.entry(outcome).or_default() += 1;
    }

    /// A worker met a fault, or is one.
    pub(super) fn fault(&mut self, fault: FaultCode) {
        self.faults.note(fault);
    }

    /// A process was ordered for a slot.
    pub(super) fn spawned(&mut self, slot: &mut Slot) {
        let before = slot.end.reason.take();
        if let Some(reason) = before.filter(|_| slot.starts > 1) {
            *self.restarts.entry(reason).or_default() += 1;
        }
    }

    /// The process of a slot is READY.
    pub(super) fn ready(&mut self, now: Timestamp, slot: &mut Slot) {
        if let Some(took) = slot.took_start {
            self.spread.start.observe_time(took);
        }
        if let Some(at) = slot.end.lost_at.take() {
            self.spread.recovery.observe_time(now.since(at));
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
    /// SIGKILL, which nothing but somebody outside sends that has not said so.
    const KILL: i32 = 9;
    if let Some(killed) = killed.filter(|&why| why != KillReason::BeaconLost) {
        return killed.restart();
    }
    Some(match exit.status {
        ExitStatus::Incompatible => RestartReason::Incompatible,
        ExitStatus::Rejected => RestartReason::Rejected,
        ExitStatus::Code(_) | ExitStatus::Signal(_) if exit.fault.is_some() => RestartReason::Fault,
        ExitStatus::Code(exit_code::WORN) => RestartReason::Worn,
        ExitStatus::Code(_) => RestartReason::Exit,
        ExitStatus::Signal(KILL) => RestartReason::Killed,
        ExitStatus::Signal(_) => RestartReason::Signal,
    })
}

/// Adds what a worker answered to what was done on its device. Whoever took it in has
/// [checked](RunReport::check) it.
pub(super) fn note(work: &mut Work, result: &Result<RunReport, AttemptError>) {
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

    /// All of another sum.
    pub(super) fn add(&mut self, other: &Self) {
        for (&fault, count) in &other.0 {
            *self.0.entry(fault).or_default() += count;
        }
    }

    pub(super) fn into_rows(self) -> Vec<(FaultCode, u64)> {
        self.0.into_iter().collect()
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
    pub(super) fn role_metrics(&self, now: Timestamp, role: Role) -> RoleMetrics {
        let oldest_us = self.waits_since().map(|at| micros(now.since(at)));
        RoleMetrics {
            role,
            counters: self.counters(),
            queue: QueueStatus { oldest_us, ..self.queue() },
            restarts: self
                .meters
                .restarts
                .iter()
                .map(|(&reason, &count)| (reason, count))
                .collect(),
            ended: self.meters.ended.iter().map(|(&outcome, &count)| (outcome, count)).collect(),
            retries: self.meters.retries,
            spread: self.meters.spread.clone(),
        }
    }

    pub(super) fn device_metrics(&self, role: Role, id: DeviceId) -> DeviceMetrics {
        let device = self.device(id);
        DeviceMetrics {
            device: id,
            role,
            generation: device.generation,
            is_out: !device.is_open(),
            quarantines: device.quarantines,
            work: device.work,
        }
    }

    pub(super) fn faults(&self) -> &Faults {
        &self.meters.faults
    }
}
