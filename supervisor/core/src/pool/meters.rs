//! Counts of a group's work beyond those in `status`: how workers and attempts ended, how long things took,
//! what each device did. No decision depends on them. Counting allocates nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use gridpool_protocol::exit::worker as exit_code;
use gridpool_protocol::fault::FaultCode;
use gridpool_protocol::ids::Role;
use gridpool_protocol::message::AttemptError;
use gridpool_protocol::metrics::{DeviceMetrics, DeviceWork, RestartReason, RoleMetrics, Sums};
use gridpool_protocol::receipt::{AttemptOutcome, RunReport};
use gridpool_protocol::status::{Counters, QueueStatus};

use super::job::Job;
use super::kill::KillReason;
use super::shard::Shard;
use super::{Pool, micros};
use crate::action::Assignment;
use crate::event::{Exit, ExitStatus, Timestamp};

/// One microsecond in seconds.
const MICROSECOND: f64 = 1e-6;

/// Sums of one group.
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

    /// A worker is sent attempts together.
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

    /// A job has its verdict.
    pub(super) fn finished(&mut self, now: Timestamp, job: &Job) {
        let took = now.since(job.accepted);
        (0..job.request.jobs).for_each(|_| self.sums.histograms.total.observe_time(took));
    }

    /// Adds those of another group.
    fn add(&mut self, other: &Self) {
        other
            .restarts
            .iter()
            .for_each(|(&why, count)| *self.restarts.entry(why).or_default() += count);
        other.ended.iter().for_each(|(&how, count)| *self.ended.entry(how).or_default() += count);
        self.sums.add(&other.sums);
    }

    /// An attempt has ended with this outcome.
    pub(super) fn ended(&mut self, outcome: AttemptOutcome) {
        *self.ended.entry(outcome).or_default() += 1;
    }

    /// A process is starting; `end` is how the one before it ended. Returns why it is a restart, if it is one.
    pub(super) fn spawned(&mut self, is_restart: bool, end: &mut End) -> Option<RestartReason> {
        let reason = end.reason.take().filter(|_| is_restart)?;
        *self.restarts.entry(reason).or_default() += 1;
        Some(reason)
    }

    /// A process is READY; `end` is how the one before it ended.
    pub(super) fn ready(&mut self, now: Timestamp, took: Option<Duration>, end: &mut End) {
        if let Some(took) = took {
            self.sums.histograms.start.observe_time(took);
        }
        if let Some(at) = end.lost_at.take() {
            self.sums.histograms.recovery.observe_time(now.since(at));
        }
    }
}

/// How a slot's process ended, kept until the next one is READY.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct End {
    reason: Option<RestartReason>,
    /// The first sign of the first loss since a process was READY.
    lost_at: Option<Timestamp>,
}

impl End {
    /// A process ended, or did not start: at `since` came the first sign of that.
    pub(super) fn by(&mut self, since: Timestamp, reason: RestartReason) {
        self.lost_at.get_or_insert(since);
        self.reason = Some(reason);
    }
}

/// What ended a process; `killed` is why the pool killed it, if it did. `None` if the pool wanted it to
/// end.
pub(super) fn reason(killed: Option<KillReason>, exit: &Exit) -> Option<RestartReason> {
    if let Some(killed) = killed.filter(|&why| why != KillReason::BeaconLost) {
        return killed.restart();
    }
    Some(match exit.status {
        ExitStatus::Incompatible => RestartReason::Incompatible,
        ExitStatus::Rejected => RestartReason::Rejected,
        ExitStatus::Code(_) | ExitStatus::Signal(_) if exit.fault.is_some() => RestartReason::Fault,
        ExitStatus::Code(exit_code::WORN) => RestartReason::Recycled,
        ExitStatus::Code(_) => RestartReason::Exit,
        // If the pool did not send it, another process did.
        ExitStatus::KILLED => RestartReason::Killed,
        ExitStatus::Signal(_) => RestartReason::Signal,
    })
}

/// Adds an answer to the work of its device. The shell has [checked](RunReport::check) it.
pub(super) fn note(work: &mut DeviceWork, result: &Result<RunReport, AttemptError>) {
    work.attempts += 1;
    let Ok(report) = result else { return };
    work.h2d_bytes = work.h2d_bytes.saturating_add(report.h2d_bytes);
    work.d2h_bytes = work.d2h_bytes.saturating_add(report.d2h_bytes);
    let share = share(report);
    if let Some(infer) = &report.infer {
        // A run of a model is not a kernel launch, and its time is not device time alone.
        work.runs += f64::from(infer.runs) * share;
        work.graph_replays += graph_replays(report);
        work.run_s += infer.device_us * MICROSECOND * share;
        return;
    }
    for kernel in &*report.kernels {
        work.launches += f64::from(kernel.launches) * share;
        work.busy_s += kernel.device_us * MICROSECOND * share;
    }
}

/// The part of its launches that an attempt counts for. Each attempt that shares a launch reports all of it: its share
/// goes by its items.
fn share(report: &RunReport) -> f64 {
    match (report.items, report.joined_items) {
        (items, all) if items > 0 && items < all => f64::from(items) / f64::from(all),
        _ => 1.0,
    }
}

/// Runs of a model that were replays of CUDA graphs, as an attempt counts for them.
pub(super) fn graph_replays(report: &RunReport) -> f64 {
    let replays = report.infer.as_ref().map_or(0, |infer| infer.graph_replays);
    f64::from(replays) * share(report)
}

/// How often each fault occurred: one row for each fault that a table names, and one for all others of a
/// family. Rows start at 0, so that an alert sees the first fault; no fault adds a row.
#[derive(Clone, Debug)]
pub(super) struct Faults(BTreeMap<FaultCode, u64>);

impl Default for Faults {
    fn default() -> Self {
        let others = FaultCode::others().map(|(other, _)| other);
        let all = FaultCode::listed().filter(|&fault| fault != NOT_A_FAULT).chain(others);
        Self(all.map(|fault| (fault, 0)).collect())
    }
}

/// NVML's recovery action `none`: not a fault.
const NOT_A_FAULT: FaultCode = FaultCode::Recovery(0);

impl Faults {
    /// Counts a fault.
    pub(super) fn note(&mut self, fault: FaultCode) {
        if fault != NOT_A_FAULT {
            *self.0.entry(bounded(fault)).or_default() += 1;
        }
    }

    /// Each fault, and how often it occurred.
    pub(super) fn rows(&self) -> Vec<(FaultCode, u64)> {
        self.0.iter().map(|(&fault, &count)| (fault, count)).collect()
    }
}

/// The row of a fault: its own, or its family's for all others. A driver may report any number.
fn bounded(fault: FaultCode) -> FaultCode {
    if FaultCode::listed().any(|listed| listed == fault) {
        return fault;
    }
    let kind = std::mem::discriminant(&fault);
    let others = FaultCode::others().map(|(other, _)| other);
    others.into_iter().find(|other| std::mem::discriminant(other) == kind).unwrap_or(fault)
}

impl Pool {
    /// The metrics of each group, of each device and group, and of faults.
    pub(crate) fn metrics(
        &self,
        now: Timestamp,
    ) -> (Vec<RoleMetrics>, Vec<DeviceMetrics>, Vec<(FaultCode, u64)>) {
        let mut roles = self.roles();
        for role in &mut roles {
            let since = self.waits_since_of(role.role);
            role.queue.oldest_us = since.map(|at| micros(now.since(at)));
        }
        let rows = self.devices.iter().flat_map(|device| {
            Role::ALL.into_iter().map(|role| {
                let own = device.services().filter(|(group, _)| group.role() == role);
                let (work, quarantines) = (DeviceWork::default(), 0);
                let (device, is_out, generation) = (device.id, false, 0);
                let none = DeviceMetrics { device, role, generation, is_out, quarantines, work };
                own.fold(none, |sum, (_, service)| DeviceMetrics {
                    generation: sum.generation.max(service.generation()),
                    is_out: sum.is_out || !service.is_open(),
                    quarantines: sum.quarantines + service.quarantines(),
                    work: sum.work.plus(service.work),
                    ..sum
                })
            })
        });
        (roles, rows.collect(), self.faults.rows())
    }

    /// The metrics of each role but how long its oldest job has waited.
    pub(crate) fn roles(&self) -> Vec<RoleMetrics> {
        Role::ALL.into_iter().map(|role| self.role_metrics(role)).collect()
    }

    /// The metrics of a role, all its groups together.
    fn role_metrics(&self, role: Role) -> RoleMetrics {
        let (mut counters, mut queue) = (Counters::default(), QueueStatus::default());
        let mut meters = Meters::default();
        for (group, state) in self.groups.iter().filter(|(group, _)| group.role() == role) {
            counters = counters.plus(self.counters_of(group));
            queue = queue.plus(state.queue_status());
            meters.add(&state.meters);
        }
        RoleMetrics {
            role,
            counters,
            queue,
            restarts: meters.restarts.into_iter().collect(),
            ended: meters.ended.into_iter().collect(),
            sums: meters.sums,
        }
    }
}
