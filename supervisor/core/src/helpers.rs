//! Helper processes: the bridge, the gateway, the monitor and the tracer. Each helper has at most one process while it
//! is wanted.
//! The core replaces a process that ends, falls silent or breaks the protocol, with exponential backoff. If
//! SIGKILL does not end a process, the next one starts only when it is gone.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::action::{Action, HelperAction, HelperEnd, Note};
use crate::config::HelperLimits;
use crate::event::{Helper, HelperEvent, Timestamp};

/// What a helper is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It is not wanted, and has no process.
    Off,
    /// It has no process; the next one is due.
    Waiting { until: Timestamp },
    /// Its process is running or starting, and must give signs of life.
    Running { since: Timestamp, silent_at: Timestamp },
    /// It was asked to end.
    Stopping { since: Timestamp, kill_at: Timestamp, is_wanted: bool },
    /// SIGKILL was sent.
    Killed { since: Timestamp, stuck_at: Option<Timestamp>, is_wanted: bool },
}

/// One helper.
#[derive(Clone, Debug)]
struct State {
    limits: HelperLimits,
    stage: Stage,
    /// Its process has given a sign of life.
    is_up: bool,
    /// Processes so far.
    starts: u32,
    /// The wait before the next start.
    backoff: Duration,
}

/// What is shown of a helper.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HelperStatus {
    /// Its process has given a sign of life, and is there.
    pub is_up: bool,
    /// It has no process and will get none.
    pub is_off: bool,
    /// It was asked to end, and still has time for that.
    pub is_stopping: bool,
    /// Processes that took the place of another.
    pub restarts: u32,
}

/// All helpers.
#[derive(Clone, Debug)]
pub(crate) struct Helpers(BTreeMap<Helper, State>);

impl Helpers {
    pub(crate) fn new(limits: impl Fn(Helper) -> HelperLimits) -> Self {
        let state = |helper| {
            let limits: HelperLimits = limits(helper);
            let backoff = limits.backoff_min;
            (helper, State { limits, stage: Stage::Off, is_up: false, starts: 0, backoff })
        };
        Self(Helper::ALL.into_iter().map(state).collect())
    }

    /// Handles an event of a helper.
    pub(crate) fn handle(
        &mut self,
        now: Timestamp,
        helper: Helper,
        event: HelperEvent,
        act: impl FnMut(Action),
    ) {
        let state = self.0.get_mut(&helper).expect("every helper has its state");
        let mut turn = Turn { now, helper, state, act };
        match event {
            HelperEvent::Exited => turn.exited(),
            HelperEvent::Heard => turn.heard(),
            HelperEvent::Lost { why } => turn.lost(HelperEnd::Lost(why)),
            HelperEvent::SpawnFailed => turn.exited(),
            HelperEvent::Leaves { within } => turn.unwanted(Some(within)),
            HelperEvent::Unwanted => turn.unwanted(turn.state.limits.stop),
            HelperEvent::Wanted => turn.wanted(),
        }
    }

    /// Handles timeouts.
    pub(crate) fn advance(&mut self, now: Timestamp, mut act: impl FnMut(Action)) {
        for (&helper, state) in &mut self.0 {
            Turn { now, helper, state, act: &mut act }.advance();
        }
    }

    /// The supervisor was not running for about `gap`: extends the timeouts of helpers.
    pub(crate) fn excuse(&mut self, gap: Duration) {
        for state in self.0.values_mut() {
            match &mut state.stage {
                Stage::Killed { stuck_at: Some(at), .. }
                | Stage::Running { silent_at: at, .. }
                | Stage::Stopping { kill_at: at, .. } => *at = at.after(gap),
                Stage::Killed { stuck_at: None, .. } | Stage::Off | Stage::Waiting { .. } => {}
            }
        }
    }

    /// When time alone changes something.
    pub(crate) fn deadline(&self) -> Option<Timestamp> {
        self.0.values().filter_map(State::wakes_at).min()
    }

    pub(crate) fn status(&self, helper: Helper) -> HelperStatus {
        let state = &self.0[&helper];
        HelperStatus {
            is_up: state.is_up,
            is_off: state.stage == Stage::Off,
            is_stopping: matches!(state.stage, Stage::Stopping { .. }),
            restarts: state.starts.saturating_sub(1),
        }
    }
}

impl State {
    fn wakes_at(&self) -> Option<Timestamp> {
        match self.stage {
            Stage::Killed { stuck_at, .. } => stuck_at,
            Stage::Off => None,
            Stage::Running { silent_at: at, .. }
            | Stage::Stopping { kill_at: at, .. }
            | Stage::Waiting { until: at } => Some(at),
        }
    }

    /// How long the next start waits after a process that lived for `lived`.
    fn back_off(&mut self, lived: Duration) -> Duration {
        if lived >= self.limits.healthy {
            self.backoff = self.limits.backoff_min;
        }
        let wait = self.backoff;
        self.backoff = wait.saturating_mul(2).min(self.limits.backoff_max);
        wait
    }
}

/// One helper while an event or a timeout is handled.
struct Turn<'a, Act> {
    now: Timestamp,
    helper: Helper,
    state: &'a mut State,
    act: Act,
}

impl<Act: FnMut(Action)> Turn<'_, Act> {
    fn emit(&mut self, action: HelperAction) {
        (self.act)(Action::Helper(self.helper, action));
    }

    fn start(&mut self) {
        let silent_at = self.now.after(self.state.limits.start);
        self.state.stage = Stage::Running { since: self.now, silent_at };
        self.state.starts += 1;
        self.emit(HelperAction::Start);
    }

    fn kill(&mut self, since: Timestamp, reason: HelperEnd, is_wanted: bool) {
        let stuck_at = Some(self.now.after(self.state.limits.kill));
        self.state.stage = Stage::Killed { since, stuck_at, is_wanted };
        self.state.is_up = false;
        self.emit(HelperAction::Kill { reason });
    }

    fn wanted(&mut self) {
        match &mut self.state.stage {
            Stage::Off => self.start(),
            // The next one starts when this one is gone.
            Stage::Killed { is_wanted, .. } | Stage::Stopping { is_wanted, .. } => {
                *is_wanted = true;
            }
            Stage::Running { .. } | Stage::Waiting { .. } => {}
        }
    }

    fn unwanted(&mut self, grace: Option<Duration>) {
        match (&mut self.state.stage, grace) {
            (Stage::Off, _) => {}
            (stage @ Stage::Waiting { .. }, _) => *stage = Stage::Off,
            (Stage::Killed { is_wanted, .. } | Stage::Stopping { is_wanted, .. }, _) => {
                *is_wanted = false;
            }
            (&mut Stage::Running { since, .. }, Some(grace)) => {
                let kill_at = self.now.after(grace);
                self.state.stage = Stage::Stopping { since, kill_at, is_wanted: false };
                self.emit(HelperAction::Stop);
            }
            (&mut Stage::Running { since, .. }, None) => {
                self.kill(since, HelperEnd::Unwanted, false);
            }
        }
    }

    fn heard(&mut self) {
        if let Stage::Running { silent_at, .. } = &mut self.state.stage {
            *silent_at = self.now.after(self.state.limits.silence);
            self.state.is_up = true;
        }
    }

    /// Its process is of no use: kills it.
    fn lost(&mut self, reason: HelperEnd) {
        if let Stage::Running { since, .. } = self.state.stage {
            self.kill(since, reason, true);
        }
    }

    /// Its process is gone, or never was.
    fn exited(&mut self) {
        self.state.is_up = false;
        let (since, is_wanted) = match self.state.stage {
            Stage::Off | Stage::Waiting { .. } => return,
            Stage::Running { since, .. } => (since, true),
            Stage::Stopping { since, is_wanted, .. } => (since, is_wanted),
            Stage::Killed { since, stuck_at, is_wanted } => {
                if stuck_at.is_none() {
                    (self.act)(Action::Note(Note::HelperGone { helper: self.helper }));
                }
                (since, is_wanted)
            }
        };
        self.state.stage = match is_wanted {
            true => {
                let wait = self.state.back_off(self.now.since(since));
                if wait > self.state.limits.backoff_min {
                    (self.act)(Action::Note(Note::HelperWaits { helper: self.helper, wait }));
                }
                Stage::Waiting { until: self.now.after(wait) }
            }
            false => Stage::Off,
        };
    }

    fn advance(&mut self) {
        if self.state.wakes_at().is_none_or(|at| at > self.now) {
            return;
        }
        match &mut self.state.stage {
            Stage::Off => {}
            Stage::Waiting { .. } => self.start(),
            &mut Stage::Running { since, .. } => self.kill(since, HelperEnd::Silent, true),
            &mut Stage::Stopping { since, is_wanted, .. } => {
                self.kill(since, HelperEnd::DoesNotStop, is_wanted);
            }
            Stage::Killed { stuck_at, .. } => {
                *stuck_at = None;
                (self.act)(Action::Note(Note::HelperStuck { helper: self.helper }));
            }
        }
    }
}
