//! One worker process, from its spawn to its end: its stage, its outstanding attempts, and when it was last
//! heard. Knows times and attempts; must not know jobs, or other processes.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use gridpool_protocol::ids::{AttemptId, DeviceId, WorkerId};
use gridpool_protocol::receipt::{AttemptOutcome, DeviceInfo};
use gridpool_protocol::status::WorkerState;

use super::kill::{KillCause, KillReason};
use super::outstanding::{Answered, Dispatch, Outstanding};
use crate::config::{Concurrency, PoolConfig};
use crate::event::Timestamp;

/// The stage of a process, with the data of that stage alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// It was spawned, and must be READY in time.
    Starting { ready_by: Timestamp },
    /// READY, while another process serves.
    Standby,
    /// The active worker, and idle.
    Ready { since: Timestamp },
    /// The active worker, with outstanding attempts.
    Busy(Outstanding),
    /// Asked to end, because the pool ends or its group has no work.
    Stopping { kill_at: Timestamp },
    /// SIGKILL was sent.
    Killed(Killed),
}

/// A process that was killed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Killed {
    pub(super) cause: KillCause,
    pub(super) reason: KillReason,
    pub(super) since: Timestamp,
    /// When it will count as unkillable; `None` once it does.
    give_up_at: Option<Timestamp>,
    /// Attempts that it may still answer.
    outstanding: Option<Outstanding>,
}

/// What a process reported when it was READY.
#[derive(Clone, Debug)]
struct Introduced {
    device: Arc<DeviceInfo>,
    /// From its spawn.
    took: Duration,
}

/// One process.
#[derive(Clone, Debug)]
pub(super) struct Process {
    pub(super) worker: WorkerId,
    /// Every receipt has it.
    pub(super) name: Arc<str>,
    stage: Stage,
    pub(super) heard: Timestamp,
    /// The models that it has, and how often it has reported them.
    pub(super) models: BTreeSet<Arc<str>>,
    pub(super) model_reports: u32,
    /// It is changing its models: its death would be no evidence against a job.
    pub(super) is_changing: bool,
    /// When it must have ended, once it has closed its channel.
    end_by: Option<Timestamp>,
    started: Timestamp,
    introduced: Option<Introduced>,
    /// Whether it was ever the active worker.
    served: bool,
    /// Attempts that it has answered.
    answered: u64,
}

impl Process {
    /// A process that is spawned now.
    pub(super) fn new(now: Timestamp, worker: WorkerId, ready_timeout: Duration) -> Self {
        Self {
            worker,
            name: worker.to_string().into(),
            stage: Stage::Starting { ready_by: now.after(ready_timeout) },
            heard: now,
            models: BTreeSet::new(),
            model_reports: 0,
            is_changing: false,
            end_by: None,
            started: now,
            introduced: None,
            served: false,
            answered: 0,
        }
    }

    pub(super) fn stage(&self) -> &Stage {
        &self.stage
    }

    /// Whether it was ever READY.
    pub(super) fn was_ready(&self) -> bool {
        self.introduced.is_some()
    }

    /// From its spawn to READY.
    pub(super) fn took_start(&self) -> Option<Duration> {
        self.introduced.as_ref().map(|introduced| introduced.took)
    }

    /// Its device as it reported it; without a name if it was never READY.
    pub(super) fn device_info(&self) -> Arc<DeviceInfo> {
        let device = self.introduced.as_ref().map(|introduced| Arc::clone(&introduced.device));
        device.unwrap_or_else(|| {
            let DeviceId { kind, index } = self.worker.device;
            Arc::new(DeviceInfo { kind, index, ..DeviceInfo::default() })
        })
    }

    /// Its device's name and UUID, once it has reported them.
    pub(super) fn device_names(&self) -> Option<(&str, &str)> {
        let device = &self.introduced.as_ref()?.device;
        Some((&device.name, &device.uuid))
    }

    /// How long ago it was spawned.
    pub(super) fn lived(&self, now: Timestamp) -> Duration {
        now.since(self.started)
    }

    pub(super) fn answered_count(&self) -> u64 {
        self.answered
    }

    /// Whether it was ever the active worker.
    pub(super) fn has_served(&self) -> bool {
        self.served
    }

    /// Whether it is the active worker.
    pub(super) fn serves(&self) -> bool {
        matches!(self.stage, Stage::Busy(_) | Stage::Ready { .. })
    }

    /// Whether it is the active worker, and idle.
    pub(super) fn is_ready_and_idle(&self) -> bool {
        matches!(self.stage, Stage::Ready { .. })
    }

    pub(super) fn is_starting(&self) -> bool {
        matches!(self.stage, Stage::Starting { .. })
    }

    pub(super) fn stands_by(&self) -> bool {
        self.stage == Stage::Standby
    }

    /// Whether the pool has killed it, or asked it to end.
    pub(super) fn is_ending(&self) -> bool {
        matches!(self.stage, Stage::Killed(_) | Stage::Stopping { .. })
    }

    /// Whether it was asked to end and has not been killed.
    pub(super) fn is_stopping(&self) -> bool {
        matches!(self.stage, Stage::Stopping { .. })
    }

    pub(super) fn killed(&self) -> Option<&Killed> {
        if let Stage::Killed(killed) = &self.stage { Some(killed) } else { None }
    }

    /// Whether SIGKILL had no effect in time.
    pub(super) fn is_unkillable(&self) -> bool {
        self.killed().is_some_and(|killed| killed.give_up_at.is_none())
    }

    fn is_heard(&self, now: Timestamp, config: &PoolConfig) -> bool {
        now.since(self.heard) < config.heartbeat_suspect
    }

    /// Since when it is idle, if it may be sent a job now.
    pub(super) fn idle_since(&self, now: Timestamp, config: &PoolConfig) -> Option<Timestamp> {
        let Stage::Ready { since } = self.stage else { return None };
        self.is_heard(now, config).then_some(since)
    }

    /// Its dispatch, if a second may wait behind it: the worker is heard, and the dispatch is small, may be ended
    /// early and is not cut off.
    pub(super) fn feeds_behind(
        &self,
        now: Timestamp,
        config: &PoolConfig,
        feed_cost_max: u64,
    ) -> Option<&Dispatch> {
        let Stage::Busy(Outstanding { front, second: None, .. }) = &self.stage else {
            return None;
        };
        let may = self.is_heard(now, config)
            && front.cost <= feed_cost_max
            && front.may_lead
            && !front.is_cut_off();
        may.then_some(front)
    }

    /// Its dispatch, if more attempts may run beside it: the worker is heard, and no job is a suspect.
    pub(super) fn takes_beside(
        &self,
        now: Timestamp,
        config: &PoolConfig,
        attempts_max: usize,
    ) -> Option<&Dispatch> {
        let Stage::Busy(Outstanding { front, .. }) = &self.stage else { return None };
        let may = self.is_heard(now, config) && front.may_lead && front.sent.len() < attempts_max;
        may.then_some(front)
    }

    /// Its outstanding attempts.
    pub(super) fn outstanding(&self) -> Option<&Outstanding> {
        match &self.stage {
            Stage::Busy(outstanding) => Some(outstanding),
            Stage::Killed(killed) => killed.outstanding.as_ref(),
            Stage::Ready { .. }
            | Stage::Standby
            | Stage::Starting { .. }
            | Stage::Stopping { .. } => None,
        }
    }

    /// The same, of one that has ended.
    pub(super) fn into_outstanding(self) -> Option<Outstanding> {
        outstanding_of(self.stage)
    }

    /// It was sent a dispatch. If it is busy, the dispatch runs beside its attempts or waits behind them.
    pub(super) fn send(&mut self, dispatch: Dispatch, concurrency: Concurrency) {
        let worker = self.worker;
        match &mut self.stage {
            Stage::Ready { .. } => {
                self.stage = Stage::Busy(Outstanding::new(dispatch, concurrency.is_concurrent()));
            }
            Stage::Busy(outstanding) => match concurrency {
                Concurrency::Concurrent { .. } => {
                    outstanding.absorb(dispatch.since, dispatch);
                }
                Concurrency::Exclusive { .. } => {
                    let second = outstanding.second.replace(dispatch);
                    assert_eq!(second, None, "{worker} has a second dispatch already");
                }
            },
            Stage::Killed(_) | Stage::Standby | Stage::Starting { .. } | Stage::Stopping { .. } => {
                unreachable!("{worker} takes no dispatch")
            }
        }
    }

    /// The job of an attempt has its verdict. The worker is asked to stop the attempt, and has `grace` for that.
    pub(super) fn cut_off(
        &mut self,
        now: Timestamp,
        attempt: AttemptId,
        grace: Duration,
        outcome: AttemptOutcome,
    ) {
        match &mut self.stage {
            Stage::Busy(outstanding) => outstanding.cut_off(attempt, now.after(grace), outcome),
            // It is dying, or unkillable.
            Stage::Killed(_) => {}
            Stage::Ready { .. }
            | Stage::Standby
            | Stage::Starting { .. }
            | Stage::Stopping { .. } => unreachable!("{} does not run {attempt}", self.worker),
        }
    }

    /// It has finished a part of what it runs.
    pub(super) fn progressed(&mut self, now: Timestamp) {
        if let Stage::Busy(outstanding) = &mut self.stage {
            outstanding.progress(now);
        }
    }

    /// It has answered an attempt. The answer of a process that is being killed counts too.
    pub(super) fn answer(
        &mut self,
        now: Timestamp,
        attempt: AttemptId,
        grace: Duration,
    ) -> Answered {
        let answered = match &mut self.stage {
            Stage::Busy(outstanding) => outstanding.answer(now, attempt, grace),
            Stage::Killed(Killed { outstanding: Some(outstanding), .. }) => {
                outstanding.answer(now, attempt, grace)
            }
            Stage::Killed(_)
            | Stage::Ready { .. }
            | Stage::Standby
            | Stage::Starting { .. }
            | Stage::Stopping { .. } => Answered::Unknown,
        };
        if answered.is_last() {
            if let Stage::Killed(killed) = &mut self.stage {
                killed.outstanding = None;
            } else {
                self.stage = Stage::Ready { since: now };
            }
        }
        self.answered += u64::from(answered != Answered::Unknown);
        answered
    }

    /// It is READY, and a standby until it serves.
    pub(super) fn ready(&mut self, now: Timestamp, device: DeviceInfo) {
        let took = now.since(self.started);
        self.introduced = Some(Introduced { device: Arc::new(device), took });
        self.stage = Stage::Standby;
    }

    /// It is the active worker from now on.
    pub(super) fn serve(&mut self, now: Timestamp) {
        self.served = true;
        self.stage = Stage::Ready { since: now };
    }

    /// It has closed its channel.
    pub(super) fn must_end_by(&mut self, at: Timestamp) {
        self.end_by.get_or_insert(at);
    }

    /// Whether it should have ended by itself.
    pub(super) fn lives_on(&self, now: Timestamp) -> bool {
        self.end_by.is_some_and(|at| at <= now)
    }

    /// Whether it is late to be READY; if not, a process that starts is killed because it is silent.
    pub(super) fn is_late(&self, now: Timestamp) -> bool {
        matches!(self.stage, Stage::Starting { ready_by } if ready_by <= now)
    }

    /// It was asked to end.
    pub(super) fn stop(&mut self, kill_at: Timestamp) {
        self.stage = Stage::Stopping { kill_at };
    }

    /// It is sent SIGKILL. The caller handles the attempts that this returns, and [gives
    /// back](Self::may_still_answer) those that it may still answer.
    pub(super) fn kill(
        &mut self,
        now: Timestamp,
        (cause, reason): (KillCause, KillReason),
        kill_timeout: Duration,
    ) -> Option<Outstanding> {
        let (since, give_up_at) = (now, Some(now.after(kill_timeout)));
        let killed = Stage::Killed(Killed { cause, reason, since, give_up_at, outstanding: None });
        outstanding_of(std::mem::replace(&mut self.stage, killed))
    }

    pub(super) fn may_still_answer(&mut self, outstanding: Option<Outstanding>) {
        if let Stage::Killed(killed) = &mut self.stage {
            killed.outstanding = outstanding;
        }
    }

    /// SIGKILL had no effect in time. Returns why it was killed, and its outstanding attempts.
    pub(super) fn give_up(&mut self) -> Option<(Killed, Option<Outstanding>)> {
        let Stage::Killed(killed) = &mut self.stage else { return None };
        killed.give_up_at = None;
        let outstanding = killed.outstanding.take();
        Some((killed.clone(), outstanding))
    }

    /// When time alone changes something here.
    pub(super) fn wakes_at(&self, config: &PoolConfig) -> Option<Timestamp> {
        let silent = self.heard.after(config.heartbeat_kill);
        let at = match &self.stage {
            Stage::Busy(outstanding) => {
                Some(outstanding.free_at().map_or(silent, |(at, _)| at.min(silent)))
            }
            Stage::Killed(killed) => killed.give_up_at,
            Stage::Ready { .. } | Stage::Standby => Some(silent),
            Stage::Starting { ready_by } => {
                Some(self.heard.after(config.heartbeat_start).min(*ready_by))
            }
            Stage::Stopping { kill_at } => Some(*kill_at),
        };
        let end_by = self.end_by.filter(|_| self.killed().is_none());
        at.into_iter().chain(end_by).min()
    }

    /// The supervisor was not running for about `gap`: extends its timeouts.
    pub(super) fn excuse(&mut self, now: Timestamp, gap: Duration) {
        self.heard = now;
        self.end_by = self.end_by.map(|at| at.after(gap));
        match &mut self.stage {
            Stage::Starting { ready_by: at } | Stage::Stopping { kill_at: at } => {
                *at = at.after(gap);
            }
            Stage::Killed(killed) => {
                killed.give_up_at = killed.give_up_at.map(|at| at.after(gap));
            }
            Stage::Busy(outstanding) => outstanding.excuse(gap),
            Stage::Ready { .. } | Stage::Standby => {}
        }
    }

    /// Its stage, as `status` shows it.
    pub(super) fn shown_state(&self) -> WorkerState {
        match &self.stage {
            Stage::Busy(_) => WorkerState::Busy,
            Stage::Killed(_) if self.is_unkillable() => WorkerState::Unkillable,
            Stage::Killed(_) | Stage::Stopping { .. } => WorkerState::Stopping,
            Stage::Ready { .. } => WorkerState::Ready,
            Stage::Standby => WorkerState::Standby,
            Stage::Starting { .. } => WorkerState::Starting,
        }
    }
}

fn outstanding_of(stage: Stage) -> Option<Outstanding> {
    match stage {
        Stage::Busy(outstanding) => Some(outstanding),
        Stage::Killed(killed) => killed.outstanding,
        Stage::Ready { .. } | Stage::Standby | Stage::Starting { .. } | Stage::Stopping { .. } => {
            None
        }
    }
}
