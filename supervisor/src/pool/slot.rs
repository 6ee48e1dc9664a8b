//! One seat of a device: a place for one process, whatever process has it now. What all seats of a
//! device have in common is in `device`, which of them serves in `seats`.
//!
//! ```text
//!             due            READY               dispatch
//!  Waiting ─────────► Starting ─┬─────────► Ready ─────────► Busy
//!     ▲                  │      │ somebody    ▲ ▲               │
//!     │                  │      ▼ serves      │ └─── answer ────┤
//!     │                  │   Standby ─────────┘                 │
//!     │                  │      │     who serves is lost         │
//!     │                  ├──────┴─────────────┬─────────────────┤
//!     │                  │ the process ends   │ not READY in time, silent, its beacon lost,
//!     │                  ▼                    ▼ its job late or cancelled: SIGKILL
//!     └──────────── Reclaiming ◄─────────── Killed ─── no end in 5 s ───► Unkillable
//!        backoff    its memory                        (ends later: Reclaiming)
//!                   comes back          drain: any of the first row ─ stop ─► Stopping ─► Stopped
//! ```
//! Where there is nothing to do, processes are stopped as by a drain, and their seats reclaim.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use gridpool_protocol::ids::{AttemptId, DeviceId, WorkerId};
use gridpool_protocol::receipt::{AttemptOutcome, DeviceInfo};

use super::config::PoolConfig;
use super::event::Timestamp;
use super::kill::{KillCause, KillReason};
use super::meters::End;
use super::outstanding::{Answered, Batch, Outstanding};

/// Whose fault a death is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Blame {
    /// The device or its worker: it ended by itself, or hung.
    Device,
    /// Somebody outside sent SIGKILL: no mark against the device, but the next start has its turn.
    Outside,
    /// The pool freed the device of a job that was cancelled or late, or found out who had killed the
    /// worker before: it counts for nothing.
    Pool,
}

/// What a slot is doing, with the data of that state alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SlotState {
    /// Running what it was sent.
    Busy { outstanding: Outstanding },
    /// SIGKILL was sent; it may still answer what it had.
    Killed { give_up_at: Timestamp, outstanding: Option<Outstanding>, cause: KillCause },
    /// Idle, and the one of its device that serves.
    Ready { since: Timestamp },
    /// The process is gone, its device's memory perhaps not yet; the next one is due at `restart_at`.
    Reclaiming { until: Timestamp, restart_at: Timestamp },
    /// READY, beside one that serves.
    Standby,
    /// The process was ordered; it must be READY in time.
    Starting { ready_by: Timestamp },
    /// Ended on request.
    Stopped,
    /// Asked to end: because the pool ends, or for want of anything to do.
    Stopping { kill_at: Timestamp },
    /// Killed in vain: no process starts on the device until this one ends.
    Unkillable { cause: KillCause },
    /// No process; the next is due at `until`.
    Waiting { until: Timestamp },
}

/// A place for one process on a device.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    pub(super) device: DeviceId,
    /// The number of its process among all of the device; 0 before the first.
    pub(super) generation: u32,
    pub(super) state: SlotState,
    pub(super) info: Option<DeviceInfo>,
    /// The models that its process has.
    pub(super) offers: BTreeSet<Arc<str>>,
    /// Its process changes its models: what it dies of meanwhile speaks against nobody's request.
    pub(super) is_changing: bool,
    pub(super) last_heard: Timestamp,
    pub(super) jobs_done: u64,
    /// Items that it gave a result for.
    pub(super) items_done: u64,
    /// Processes that it has had.
    pub(super) starts: u32,
    started: Timestamp,
    /// What `jobs_done` was then.
    done_before: u64,
    /// When it was known that its process will end.
    pub(super) doomed: Option<Timestamp>,
    /// Why the pool has killed its process, if it has.
    pub(super) killed: Option<KillReason>,
    pub(super) end: End,
    /// From the order to start its process to READY.
    pub(super) took_start: Option<Duration>,
    /// From then on to the end of the process before.
    pub(super) took_end: Option<Duration>,
    /// Whether this process has answered a job.
    pub(super) worked: bool,
    /// Whether this process has been READY.
    pub(super) was_ready: bool,
    /// Whether this process was ever the one that serves.
    pub(super) served: bool,
    /// Restarts since work was last done: exponent of the backoff.
    backoff_steps: u32,
}

impl Slot {
    pub(super) fn new(device: DeviceId) -> Self {
        Self {
            device,
            generation: 0,
            state: SlotState::Waiting { until: Timestamp::default() },
            info: None,
            offers: BTreeSet::new(),
            is_changing: false,
            last_heard: Timestamp::default(),
            jobs_done: 0,
            items_done: 0,
            starts: 0,
            started: Timestamp::default(),
            done_before: 0,
            doomed: None,
            killed: None,
            end: End::default(),
            took_start: None,
            took_end: None,
            worked: false,
            was_ready: false,
            served: false,
            backoff_steps: 0,
        }
    }

    /// The name of the process that serves it now, or served it last.
    pub(super) fn worker(&self) -> WorkerId {
        WorkerId { device: self.device, generation: self.generation }
    }

    /// Whether there is a process, or one is ordered.
    pub(super) fn has_process(&self) -> bool {
        match self.state {
            SlotState::Busy { .. }
            | SlotState::Killed { .. }
            | SlotState::Ready { .. }
            | SlotState::Standby
            | SlotState::Starting { .. }
            | SlotState::Stopping { .. }
            | SlotState::Unkillable { .. } => true,
            SlotState::Reclaiming { .. } | SlotState::Stopped | SlotState::Waiting { .. } => false,
        }
    }

    /// Whether it is the one of its device that runs jobs.
    pub(super) fn serves(&self) -> bool {
        match self.state {
            SlotState::Busy { .. } | SlotState::Ready { .. } => true,
            SlotState::Killed { .. }
            | SlotState::Reclaiming { .. }
            | SlotState::Standby
            | SlotState::Starting { .. }
            | SlotState::Stopped
            | SlotState::Stopping { .. }
            | SlotState::Unkillable { .. }
            | SlotState::Waiting { .. } => false,
        }
    }

    /// Since when it could take a job, if it could take one now.
    pub(super) fn idle_since(&self, now: Timestamp, config: &PoolConfig) -> Option<Timestamp> {
        match self.state {
            SlotState::Ready { since } if now.since(self.last_heard) < config.heartbeat_suspect => {
                Some(since)
            }
            SlotState::Busy { .. }
            | SlotState::Killed { .. }
            | SlotState::Ready { .. }
            | SlotState::Reclaiming { .. }
            | SlotState::Standby
            | SlotState::Starting { .. }
            | SlotState::Stopped
            | SlotState::Stopping { .. }
            | SlotState::Unkillable { .. }
            | SlotState::Waiting { .. } => None,
        }
    }

    /// What its outstanding batch costs, if it may be sent a second one beside that: it is heard, has
    /// one batch that is soon over or may be ended, and will not be killed for the sake of its device.
    pub(super) fn feeds_beside(&self, now: Timestamp, config: &PoolConfig) -> Option<u64> {
        match &self.state {
            SlotState::Busy { outstanding: Outstanding { front, second: None, .. } } => {
                let may = now.since(self.last_heard) < config.heartbeat_suspect
                    && front.cost <= config.feed_cost_max
                    && front.may_lead
                    && !front.is_cut_off();
                may.then_some(front.cost)
            }
            SlotState::Busy { .. }
            | SlotState::Killed { .. }
            | SlotState::Ready { .. }
            | SlotState::Reclaiming { .. }
            | SlotState::Standby
            | SlotState::Starting { .. }
            | SlotState::Stopped
            | SlotState::Stopping { .. }
            | SlotState::Unkillable { .. }
            | SlotState::Waiting { .. } => None,
        }
    }

    /// What it has in hand, if others may run beside that: it is heard, and nobody is to find out who of
    /// them is guilty of something.
    pub(super) fn takes_beside(
        &self,
        now: Timestamp,
        config: &PoolConfig,
        window: usize,
    ) -> Option<&Batch> {
        match &self.state {
            SlotState::Busy { outstanding: Outstanding { front, .. } } => {
                let may = now.since(self.last_heard) < config.heartbeat_suspect
                    && front.may_lead
                    && front.sent.len() < window;
                may.then_some(front)
            }
            SlotState::Killed { .. }
            | SlotState::Ready { .. }
            | SlotState::Reclaiming { .. }
            | SlotState::Standby
            | SlotState::Starting { .. }
            | SlotState::Stopped
            | SlotState::Stopping { .. }
            | SlotState::Unkillable { .. }
            | SlotState::Waiting { .. } => None,
        }
    }

    /// A batch was sent to it, which runs beside what it has if it runs several at a time.
    pub(super) fn send(&mut self, batch: Batch, window: usize) {
        match &mut self.state {
            SlotState::Busy { outstanding } if window > 1 => {
                outstanding.front.absorb(batch);
            }
            SlotState::Busy { outstanding } if outstanding.second.is_none() => {
                outstanding.second = Some(batch);
            }
            SlotState::Ready { .. } => {
                self.state = SlotState::Busy { outstanding: Outstanding::new(batch) };
            }
            SlotState::Busy { .. }
            | SlotState::Killed { .. }
            | SlotState::Reclaiming { .. }
            | SlotState::Standby
            | SlotState::Starting { .. }
            | SlotState::Stopped
            | SlotState::Stopping { .. }
            | SlotState::Unkillable { .. }
            | SlotState::Waiting { .. } => unreachable!("{} takes no batch", self.worker()),
        }
    }

    /// What its process had not answered; to be asked when the state is left for good.
    pub(super) fn take_outstanding(&mut self) -> Option<Outstanding> {
        match std::mem::replace(&mut self.state, SlotState::Stopped) {
            SlotState::Busy { outstanding } => Some(outstanding),
            SlotState::Killed { outstanding, .. } => outstanding,
            SlotState::Ready { .. }
            | SlotState::Reclaiming { .. }
            | SlotState::Standby
            | SlotState::Starting { .. }
            | SlotState::Stopped
            | SlotState::Stopping { .. }
            | SlotState::Unkillable { .. }
            | SlotState::Waiting { .. } => None,
        }
    }

    /// The job of an attempt has its verdict, this is its outcome. The worker has `grace` to come to the
    /// attempt's end; if the job is late and nobody else is on the worker, none.
    pub(super) fn cut_off(
        &mut self,
        now: Timestamp,
        attempt: AttemptId,
        grace: Duration,
        outcome: AttemptOutcome,
        window: usize,
    ) {
        // A worker that runs several at a time is not killed as soon as one of them is late.
        let is_late = outcome == AttemptOutcome::Deadline && window == 1;
        match &mut self.state {
            SlotState::Busy { outstanding } => {
                let at_once = is_late && outstanding.is_single();
                let at = if at_once { now } else { now.after(grace) };
                outstanding.cut_off(attempt, at, outcome);
            }
            // It dies anyway, or cannot.
            SlotState::Killed { .. } | SlotState::Unkillable { .. } => {}
            SlotState::Ready { .. }
            | SlotState::Reclaiming { .. }
            | SlotState::Standby
            | SlotState::Starting { .. }
            | SlotState::Stopped
            | SlotState::Stopping { .. }
            | SlotState::Waiting { .. } => unreachable!("{} does not run {attempt}", self.worker()),
        }
    }

    /// The next moment at which time alone changes something here; when a next process may start is
    /// in `seats`.
    pub(super) fn wakes_at(&self, config: &PoolConfig) -> Option<Timestamp> {
        let silent = self.last_heard.after(config.heartbeat_kill);
        match self.state {
            SlotState::Busy { ref outstanding } => {
                Some(outstanding.free_at().map_or(silent, |(at, _)| at.min(silent)))
            }
            SlotState::Killed { give_up_at, .. } => Some(give_up_at),
            SlotState::Ready { .. } | SlotState::Standby => Some(silent),
            SlotState::Reclaiming { until, .. } => Some(until),
            SlotState::Starting { ready_by } => Some(ready_by),
            SlotState::Stopping { kill_at } => Some(kill_at),
            SlotState::Stopped | SlotState::Unkillable { .. } | SlotState::Waiting { .. } => None,
        }
    }

    /// The supervisor was not running for about `gap`: nobody is late because of that.
    pub(super) fn excuse(&mut self, now: Timestamp, gap: Duration) {
        self.last_heard = now;
        match &mut self.state {
            SlotState::Killed { give_up_at: at, .. }
            | SlotState::Reclaiming { until: at, .. }
            | SlotState::Starting { ready_by: at }
            | SlotState::Stopping { kill_at: at } => *at = at.after(gap),
            SlotState::Busy { outstanding } => outstanding.excuse(gap),
            SlotState::Ready { .. }
            | SlotState::Standby
            | SlotState::Stopped
            | SlotState::Unkillable { .. }
            | SlotState::Waiting { .. } => {}
        }
    }

    /// A new process is ordered, the device's of this number.
    pub(super) fn start(&mut self, now: Timestamp, generation: u32, config: &PoolConfig) {
        assert!(!self.has_process(), "{} still has a process", self.worker());
        self.generation = generation;
        self.offers.clear();
        self.is_changing = false;
        self.starts += 1;
        (self.started, self.done_before) = (now, self.jobs_done);
        self.killed = None;
        self.took_start = None;
        self.worked = false;
        self.was_ready = false;
        self.served = false;
        self.last_heard = now;
        self.state = SlotState::Starting { ready_by: now.after(config.ready_timeout) };
    }

    /// Nobody starts here any more.
    pub(super) fn close(&mut self) {
        if matches!(self.state, SlotState::Reclaiming { .. } | SlotState::Waiting { .. }) {
            self.state = SlotState::Stopped;
        }
    }

    /// How long ago its process was ordered, and how many attempts that has answered.
    pub(super) fn life(&self, now: Timestamp) -> (Duration, u64) {
        (now.since(self.started), self.jobs_done - self.done_before)
    }

    /// The process is READY.
    pub(super) fn ready(&mut self, now: Timestamp, info: DeviceInfo) {
        self.info = Some(info);
        self.was_ready = true;
        self.took_start = Some(now.since(self.started));
        self.state = SlotState::Standby;
    }

    /// From now on it is the one that runs jobs.
    pub(super) fn serve(&mut self, now: Timestamp) {
        self.served = true;
        self.state = SlotState::Ready { since: now };
    }

    /// The process has answered: it works, so the next restart is free again.
    pub(super) fn answered(
        &mut self,
        now: Timestamp,
        attempt: AttemptId,
        config: &PoolConfig,
    ) -> Answered {
        let answered = match &mut self.state {
            SlotState::Busy { outstanding } => {
                let answered = outstanding.answer(now, attempt, config.cancel_grace);
                if answered.is_last() {
                    self.state = SlotState::Ready { since: now };
                }
                answered
            }
            // It answered while it was being killed: the answer counts, the process ends.
            SlotState::Killed { outstanding: all @ Some(_), .. } => {
                let outstanding = all.as_mut().expect("the pattern says so");
                let answered = outstanding.answer(now, attempt, config.cancel_grace);
                if answered.is_last() {
                    *all = None;
                }
                answered
            }
            SlotState::Killed { outstanding: None, .. }
            | SlotState::Ready { .. }
            | SlotState::Reclaiming { .. }
            | SlotState::Standby
            | SlotState::Starting { .. }
            | SlotState::Stopped
            | SlotState::Stopping { .. }
            | SlotState::Unkillable { .. }
            | SlotState::Waiting { .. } => Answered::Unknown,
        };
        if answered != Answered::Unknown {
            self.worked = true;
            self.jobs_done += 1;
            self.backoff_steps = 0;
        }
        answered
    }

    /// How long the next process waits after a death; each time longer until one has worked.
    pub(super) fn back_off(&mut self, blame: Blame, config: &PoolConfig) -> Duration {
        if blame == Blame::Pool {
            return Duration::ZERO;
        }
        let wait = match self.backoff_steps.checked_sub(1) {
            None => Duration::ZERO,
            Some(doublings) => config
                .backoff_min
                .saturating_mul(1_u32.checked_shl(doublings).unwrap_or(u32::MAX))
                .min(config.backoff_max),
        };
        self.backoff_steps += 1;
        wait
    }
}
