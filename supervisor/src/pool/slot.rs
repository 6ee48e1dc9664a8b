//! One device's place in the pool, whatever process serves it now.
//!
//! ```text
//!             due            READY           dispatch
//!  Waiting ─────────► Starting ────────► Ready ─────────► Busy
//!     ▲                  │                │ ▲               │
//!     │                  │                │ └─── answer ────┤
//!     │                  ├────────────────┴─────────────────┤
//!     │                  │ the process ends                 │ not READY in time, silent, or its job
//!     │                  ▼                                  ▼ is late or cancelled: SIGKILL
//!     ├───────────── enough? ◄─────────────────────────── Killed ─── no end in 5 s ───► Unkillable
//!     │ no               │ yes: 5 deaths without work in 60 s, 3 failed starts,
//!     │                  ▼ or a set-up that no restart mends
//!     └─ backoff     Quarantined         drain: any of the first row ─ stop ─► Stopping ─► Stopped
//! ```

use std::collections::VecDeque;
use std::time::Duration;

use gridpool_protocol::ids::{AttemptId, DeviceId, WorkerId};
use gridpool_protocol::receipt::DeviceInfo;
use gridpool_protocol::status::WorkerState;

use super::config::PoolConfig;
use super::event::Timestamp;
use super::losses::LossKind;
use super::outstanding::{Answered, Batch, Outstanding};

/// Why a worker was killed: decides what its death counts as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KillCause {
    /// A job it ran has its verdict already, or others wait behind it while a device idles, and the
    /// worker would not come to its end.
    FreeDevice,
    /// It said nothing for too long, or was not READY in time.
    Hang,
    /// The pool ends.
    Leaving,
}

impl KillCause {
    /// What the loss of the worker means for whatever it was running.
    pub(super) fn loss(self) -> LossKind {
        match self {
            Self::FreeDevice | Self::Leaving => LossKind::Freed,
            Self::Hang => LossKind::Hung,
        }
    }
}

/// Whose fault a death is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Blame {
    /// The device or its worker: it ended by itself, or hung.
    Device,
    /// Somebody outside sent SIGKILL: no mark against the device, but the next start has its turn.
    Outside,
    /// The pool freed the device of a job that was cancelled or late: it counts for nothing.
    Pool,
}

/// What a slot is doing, with the data of that state alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SlotState {
    /// Running what it was sent.
    Busy { outstanding: Outstanding },
    /// SIGKILL was sent; it may still answer what it had.
    Killed { give_up_at: Timestamp, outstanding: Option<Outstanding>, cause: KillCause },
    /// Out of service for good.
    Quarantined,
    /// Idle.
    Ready { since: Timestamp },
    /// The process was ordered; it must be READY in time.
    Starting { ready_by: Timestamp },
    /// Ended on request.
    Stopped,
    /// Asked to end.
    Stopping { kill_at: Timestamp },
    /// Killed in vain: the device is out of service until the process ends.
    Unkillable { cause: KillCause },
    /// No process; the next is due at `until`.
    Waiting { until: Timestamp },
}

/// One device's place in the pool.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    pub(super) device: DeviceId,
    /// Counts processes; 0 before the first.
    pub(super) generation: u32,
    pub(super) state: SlotState,
    pub(super) info: Option<DeviceInfo>,
    pub(super) last_heard: Timestamp,
    pub(super) jobs_done: u64,
    pub(super) last_fault: String,
    /// Whether this process has answered a job.
    worked: bool,
    /// Whether this process has been READY.
    was_ready: bool,
    /// Whether no process here was ever READY.
    never_ready: bool,
    start_failures: u32,
    /// Deaths without work, within the restart window.
    idle_deaths: VecDeque<Timestamp>,
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
            last_heard: Timestamp::default(),
            jobs_done: 0,
            last_fault: String::new(),
            worked: false,
            was_ready: false,
            never_ready: true,
            start_failures: 0,
            idle_deaths: VecDeque::new(),
            backoff_steps: 0,
        }
    }

    /// The name of the process that serves it now, or served it last.
    pub(super) fn worker(&self) -> WorkerId {
        WorkerId { device: self.device, generation: self.generation }
    }

    /// The device as its worker found it; without a name if none was READY yet.
    pub(super) fn device_info(&self) -> DeviceInfo {
        self.info.clone().unwrap_or_else(|| DeviceInfo {
            kind: self.device.kind,
            index: self.device.index,
            name: String::new(),
            uuid: String::new(),
            driver: String::new(),
        })
    }

    /// Whether there is a process, or one is ordered.
    pub(super) fn has_process(&self) -> bool {
        match self.state {
            SlotState::Busy { .. }
            | SlotState::Killed { .. }
            | SlotState::Ready { .. }
            | SlotState::Starting { .. }
            | SlotState::Stopping { .. }
            | SlotState::Unkillable { .. } => true,
            SlotState::Quarantined | SlotState::Stopped | SlotState::Waiting { .. } => false,
        }
    }

    /// Whether every process refused to start, so that the set-up is wrong and not the device.
    pub(super) fn is_misconfigured(&self) -> bool {
        self.state == SlotState::Quarantined && self.never_ready
    }

    /// Whether it may ever run a job again.
    pub(super) fn may_serve(&self) -> bool {
        match self.state {
            SlotState::Busy { .. }
            | SlotState::Killed { .. }
            | SlotState::Ready { .. }
            | SlotState::Starting { .. }
            | SlotState::Waiting { .. } => true,
            SlotState::Quarantined
            | SlotState::Stopped
            | SlotState::Stopping { .. }
            | SlotState::Unkillable { .. } => false,
        }
    }

    /// Whether it is worth waiting for, to a job that has just failed on another device.
    pub(super) fn is_near_service(&self) -> bool {
        match self.state {
            SlotState::Ready { .. } | SlotState::Starting { .. } => true,
            SlotState::Busy { .. }
            | SlotState::Killed { .. }
            | SlotState::Quarantined
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
            | SlotState::Quarantined
            | SlotState::Ready { .. }
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
            SlotState::Busy { outstanding: Outstanding { front, second: None } } => {
                let may = now.since(self.last_heard) < config.heartbeat_suspect
                    && front.cost <= config.feed_cost_max
                    && front.may_lead
                    && !front.is_cut_off();
                may.then_some(front.cost)
            }
            SlotState::Busy { .. }
            | SlotState::Killed { .. }
            | SlotState::Quarantined
            | SlotState::Ready { .. }
            | SlotState::Starting { .. }
            | SlotState::Stopped
            | SlotState::Stopping { .. }
            | SlotState::Unkillable { .. }
            | SlotState::Waiting { .. } => None,
        }
    }

    /// A batch was sent to it.
    pub(super) fn send(&mut self, batch: Batch) {
        match &mut self.state {
            SlotState::Busy { outstanding } if outstanding.second.is_none() => {
                outstanding.second = Some(batch);
            }
            SlotState::Ready { .. } => {
                self.state = SlotState::Busy { outstanding: Outstanding::new(batch) };
            }
            SlotState::Busy { .. }
            | SlotState::Killed { .. }
            | SlotState::Quarantined
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
            SlotState::Quarantined
            | SlotState::Ready { .. }
            | SlotState::Starting { .. }
            | SlotState::Stopped
            | SlotState::Stopping { .. }
            | SlotState::Unkillable { .. }
            | SlotState::Waiting { .. } => None,
        }
    }

    /// The job of an attempt has its verdict. The worker has `grace` to come to the attempt's end; if
    /// the job is late and nobody else is on the worker, none.
    pub(super) fn cut_off(
        &mut self,
        now: Timestamp,
        attempt: AttemptId,
        grace: Duration,
        is_late: bool,
    ) {
        match &mut self.state {
            SlotState::Busy { outstanding } => {
                let at_once = is_late && outstanding.is_single();
                outstanding.cut_off(attempt, if at_once { now } else { now.after(grace) });
            }
            // It dies anyway.
            SlotState::Killed { .. } => {}
            SlotState::Quarantined
            | SlotState::Ready { .. }
            | SlotState::Starting { .. }
            | SlotState::Stopped
            | SlotState::Stopping { .. }
            | SlotState::Unkillable { .. }
            | SlotState::Waiting { .. } => unreachable!("{} does not run {attempt}", self.worker()),
        }
    }

    /// The next moment at which time alone changes something here.
    pub(super) fn wakes_at(&self, config: &PoolConfig) -> Option<Timestamp> {
        let silent = self.last_heard.after(config.heartbeat_kill);
        match self.state {
            SlotState::Busy { ref outstanding } => {
                Some(outstanding.free_at().map_or(silent, |at| at.min(silent)))
            }
            SlotState::Killed { give_up_at, .. } => Some(give_up_at),
            SlotState::Ready { .. } => Some(silent),
            SlotState::Starting { ready_by } => Some(ready_by),
            SlotState::Stopping { kill_at } => Some(kill_at),
            SlotState::Waiting { until } => Some(until),
            SlotState::Quarantined | SlotState::Stopped | SlotState::Unkillable { .. } => None,
        }
    }

    /// The supervisor was not running for about `gap`: nobody is late because of that.
    pub(super) fn excuse(&mut self, now: Timestamp, gap: Duration) {
        self.last_heard = now;
        match &mut self.state {
            SlotState::Killed { give_up_at: at, .. }
            | SlotState::Starting { ready_by: at }
            | SlotState::Stopping { kill_at: at } => *at = at.after(gap),
            SlotState::Busy { outstanding } => outstanding.excuse(gap),
            SlotState::Quarantined
            | SlotState::Ready { .. }
            | SlotState::Stopped
            | SlotState::Unkillable { .. }
            | SlotState::Waiting { .. } => {}
        }
    }

    /// A new process is ordered.
    pub(super) fn start(&mut self, now: Timestamp, config: &PoolConfig) {
        assert!(!self.has_process(), "{} still has a process", self.worker());
        self.generation += 1;
        self.worked = false;
        self.was_ready = false;
        self.last_heard = now;
        self.state = SlotState::Starting { ready_by: now.after(config.ready_timeout) };
    }

    /// The process is READY.
    pub(super) fn ready(&mut self, now: Timestamp, info: DeviceInfo) {
        self.info = Some(info);
        self.was_ready = true;
        self.never_ready = false;
        self.start_failures = 0;
        self.state = SlotState::Ready { since: now };
    }

    /// The process has answered: it works, so the next restart is free again. `false` if it was not
    /// asked, or not yet.
    pub(super) fn answered(
        &mut self,
        now: Timestamp,
        attempt: AttemptId,
        config: &PoolConfig,
    ) -> bool {
        let answered = match &mut self.state {
            SlotState::Busy { outstanding } => {
                let answered = outstanding.answer(now, attempt, config.cancel_grace);
                if answered == Answered::Last {
                    self.state = SlotState::Ready { since: now };
                }
                answered
            }
            // It answered while it was being killed: the answer counts, the process ends.
            SlotState::Killed { outstanding: all @ Some(_), .. } => {
                let outstanding = all.as_mut().expect("the pattern says so");
                let answered = outstanding.answer(now, attempt, config.cancel_grace);
                if answered == Answered::Last {
                    *all = None;
                }
                answered
            }
            SlotState::Killed { outstanding: None, .. }
            | SlotState::Quarantined
            | SlotState::Ready { .. }
            | SlotState::Starting { .. }
            | SlotState::Stopped
            | SlotState::Stopping { .. }
            | SlotState::Unkillable { .. }
            | SlotState::Waiting { .. } => Answered::Unknown,
        };
        if answered == Answered::Unknown {
            return false;
        }
        self.worked = true;
        self.jobs_done += 1;
        self.backoff_steps = 0;
        self.idle_deaths.clear();
        true
    }

    /// The process has died. `is_final` says whether a new one would end the same way.
    pub(super) fn died(
        &mut self,
        now: Timestamp,
        blame: Blame,
        is_final: bool,
        config: &PoolConfig,
    ) {
        if blame == Blame::Device && !self.was_ready {
            self.start_failures += 1;
        }
        if blame == Blame::Device && !self.worked {
            self.idle_deaths.push_back(now);
        }
        while self.idle_deaths.front().is_some_and(|&at| now.since(at) > config.restart_window) {
            self.idle_deaths.pop_front();
        }
        let idle_deaths = u32::try_from(self.idle_deaths.len()).unwrap_or(u32::MAX);
        if is_final
            || self.start_failures >= config.start_failures_max
            || idle_deaths >= config.restart_limit
        {
            self.state = SlotState::Quarantined;
            return;
        }
        if blame == Blame::Pool {
            self.state = SlotState::Waiting { until: now };
            return;
        }
        let wait = match self.backoff_steps.checked_sub(1) {
            None => Duration::ZERO,
            Some(doublings) => config
                .backoff_min
                .saturating_mul(1_u32.checked_shl(doublings).unwrap_or(u32::MAX))
                .min(config.backoff_max),
        };
        self.backoff_steps += 1;
        self.state = SlotState::Waiting { until: now.after(wait) };
    }

    /// What `status` shows.
    pub(super) fn shown_state(&self) -> WorkerState {
        match self.state {
            SlotState::Busy { .. } => WorkerState::Busy,
            SlotState::Killed { .. } | SlotState::Stopping { .. } => WorkerState::Stopping,
            SlotState::Quarantined => WorkerState::Quarantined,
            SlotState::Ready { .. } => WorkerState::Ready,
            SlotState::Starting { .. } => WorkerState::Starting,
            SlotState::Stopped => WorkerState::Stopped,
            SlotState::Unkillable { .. } => WorkerState::Unkillable,
            SlotState::Waiting { .. } => WorkerState::Backoff,
        }
    }
}
