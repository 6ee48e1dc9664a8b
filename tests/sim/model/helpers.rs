//! Helper processes: when one is started, killed and asked to end. The model computes each time from the
//! events of its processes.

use std::collections::BTreeMap;
use std::time::Duration;

use gridpool_core::action::{HelperAction, HelperEnd};
use gridpool_core::config::HelperLimits;
use gridpool_core::event::{Helper, HelperEvent, Timestamp};
use gridpool_core::{Core, HelperStatus};

use super::notes::Logged;
use super::{Broken, Model, holds};

/// The process of a helper.
#[derive(Clone, Copy, Debug, Default)]
struct Process {
    ordered: Timestamp,
    /// When it was heard last, if it was.
    heard: Option<Timestamp>,
    /// How long the supervisor did not run.
    excused: Duration,
    /// When it was asked to end.
    asked: Option<Timestamp>,
    killed: Option<Timestamp>,
    is_stuck: bool,
}

#[derive(Clone, Debug)]
struct State {
    limits: HelperLimits,
    is_wanted: bool,
    process: Option<Process>,
    /// When the next one starts, if it is wanted.
    next: Timestamp,
    /// Processes in a row that did not live long.
    short_lives: u32,
    starts: u32,
}

#[derive(Debug)]
pub(super) struct Helpers {
    all: BTreeMap<Helper, State>,
    due: Vec<(Helper, HelperAction)>,
}

impl Helpers {
    pub(super) fn new(limits: [HelperLimits; 4]) -> Self {
        let state = |(helper, limits)| {
            let state = State {
                limits,
                is_wanted: false,
                process: None,
                next: Timestamp::default(),
                short_lives: 0,
                starts: 0,
            };
            (helper, state)
        };
        Self { all: Helper::ALL.into_iter().zip(limits).map(state).collect(), due: Vec::new() }
    }

    pub(super) fn excuse(&mut self, gap: Duration) {
        for process in self.all.values_mut().filter_map(|state| state.process.as_mut()) {
            process.excused += gap;
        }
    }

    /// When time alone changes something.
    pub(super) fn wake_at(&self) -> Option<Timestamp> {
        self.all.values().filter_map(State::wakes_at).min()
    }
}

impl State {
    /// When its process must be killed, or the next one started.
    fn wakes_at(&self) -> Option<Timestamp> {
        let Some(process) = &self.process else { return self.is_wanted.then_some(self.next) };
        let limits = &self.limits;
        let (since, limit) = match (process.killed, process.asked, process.heard) {
            (Some(_), ..) if process.is_stuck => return None,
            (Some(killed), ..) => (killed, limits.kill),
            (None, Some(asked), _) => (asked, limits.stop.expect("only such are asked")),
            (None, None, Some(heard)) => (heard, limits.silence),
            (None, None, None) => (process.ordered, limits.start),
        };
        Some(since.after(limit).after(process.excused))
    }
}

impl Model {
    pub(super) fn on_helper_event(&mut self, now: Timestamp, helper: Helper, event: &HelperEvent) {
        let state = self.helpers.all.get_mut(&helper).expect("all are known");
        let live = state.process.as_mut().filter(|process| process.killed.is_none());
        match event {
            HelperEvent::Wanted => {
                self.coverage.hit("helper: wanted");
                if !std::mem::replace(&mut state.is_wanted, true) {
                    state.next = now;
                }
            }
            // The world sends the other one, which differs in its time.
            HelperEvent::Leaves { .. } | HelperEvent::Unwanted => {
                self.coverage.hit("helper: no longer wanted");
                state.is_wanted = false;
                if let Some(process) = live.filter(|process| process.asked.is_none()) {
                    process.excused = Duration::ZERO;
                    if state.limits.stop.is_some() {
                        process.asked = Some(now);
                        self.helpers.due.push((helper, HelperAction::Stop));
                    } else {
                        process.killed = Some(now);
                        let reason = HelperEnd::Unwanted;
                        self.helpers.due.push((helper, HelperAction::Kill { reason }));
                    }
                }
            }
            HelperEvent::Heard => {
                if let Some(process) = live.filter(|process| process.asked.is_none()) {
                    (process.heard, process.excused) = (Some(now), Duration::ZERO);
                }
            }
            HelperEvent::Lost { why } => {
                let Some(process) = live.filter(|process| process.asked.is_none()) else {
                    self.coverage.hit("helper: lost after it was told to end");
                    return;
                };
                self.coverage.hit("helper: lost");
                (process.killed, process.excused) = (Some(now), Duration::ZERO);
                let reason = HelperEnd::Lost(why.clone());
                self.helpers.due.push((helper, HelperAction::Kill { reason }));
            }
            HelperEvent::Exited | HelperEvent::SpawnFailed => {
                self.coverage.hit(match *event == HelperEvent::SpawnFailed {
                    true => "helper: could not be started",
                    false => "helper: has ended",
                });
                let Some(process) = state.process.take() else { return };
                if process.is_stuck {
                    self.coverage.hit("helper: has ended although it was stuck");
                    self.notes.due.push(Logged::HelperGone(helper));
                }
                if !state.is_wanted {
                    return;
                }
                if now.since(process.ordered) >= state.limits.healthy {
                    self.coverage.hit("helper: lived for long");
                    state.short_lives = 0;
                }
                let doubled = 2_u32.saturating_pow(state.short_lives);
                let wait = state.limits.backoff_min.saturating_mul(doubled);
                let wait = wait.min(state.limits.backoff_max);
                if wait > state.limits.backoff_min {
                    self.coverage.hit("helper: waits longer");
                    self.notes.due.push(Logged::HelperWaits(helper, wait));
                }
                state.next = now.after(wait);
                state.short_lives += 1;
            }
        }
    }

    /// Handles timeouts.
    pub(super) fn helpers_are_due(&mut self, now: Timestamp) {
        for (&helper, state) in &mut self.helpers.all {
            if state.wakes_at().is_none_or(|at| at > now) {
                continue;
            }
            let Some(process) = &mut state.process else {
                state.starts += 1;
                state.process = Some(Process { ordered: now, ..Process::default() });
                self.helpers.due.push((helper, HelperAction::Start));
                continue;
            };
            if process.killed.is_some() {
                self.coverage.hit("helper: SIGKILL does not end it");
                process.is_stuck = true;
                self.notes.due.push(Logged::HelperStuck(helper));
                continue;
            }
            let reason = match (process.asked, process.heard) {
                (Some(_), _) => {
                    self.coverage.hit("helper: does not stop");
                    HelperEnd::DoesNotStop
                }
                (None, Some(_)) => {
                    self.coverage.hit("helper: silent");
                    HelperEnd::Silent
                }
                (None, None) => {
                    self.coverage.hit("helper: never heard");
                    HelperEnd::Silent
                }
            };
            (process.killed, process.excused) = (Some(now), Duration::ZERO);
            self.helpers.due.push((helper, HelperAction::Kill { reason }));
        }
    }

    pub(super) fn helper_commanded(
        &mut self,
        helper: Helper,
        action: &HelperAction,
    ) -> Result<(), Broken> {
        let rule = "a_helper_is_started_killed_and_stopped_if_and_only_if_a_rule_requires_it";
        let due = &mut self.helpers.due;
        let at = due.iter().position(|(own, due)| *own == helper && due == action);
        holds(rule, at.is_some(), || format!("{helper}: {action:?}, due {due:?}"))?;
        self.helpers.due.remove(at.expect("the rule holds"));
        Ok(())
    }

    pub(crate) fn every_helper_is_up_once_the_faults_stop(&mut self) -> Result<(), Broken> {
        let rule = "every_helper_is_up_once_the_faults_stop";
        let is_up =
            |state: &State| state.process.is_some_and(|p| p.heard.is_some() && p.killed.is_none());
        let all = &self.helpers.all;
        holds(rule, all.values().all(is_up), || format!("{all:?}"))?;
        self.coverage.hit("phase 2: helpers are up");
        Ok(())
    }

    pub(crate) fn every_helper_is_off_when_it_is_not_wanted(&self) -> Result<(), Broken> {
        let rule = "every_helper_is_off_when_it_is_not_wanted";
        let all = &self.helpers.all;
        holds(rule, all.values().all(|state| state.process.is_none()), || format!("{all:?}"))
    }

    pub(super) fn helpers_are_settled(&self, core: &Core) -> Result<(), Broken> {
        let rule = "a_helper_is_started_killed_and_stopped_if_and_only_if_a_rule_requires_it";
        holds(rule, self.helpers.due.is_empty(), || format!("due {:?}", self.helpers.due))?;
        let rule = "the_status_of_a_helper_is_true";
        for (&helper, state) in &self.helpers.all {
            let told = core.helper(helper);
            let process = state.process.as_ref();
            let is_up = process.is_some_and(|p| p.heard.is_some() && p.killed.is_none());
            let is_off = process.is_none() && !state.is_wanted;
            let is_stopping = process.is_some_and(|p| p.asked.is_some() && p.killed.is_none());
            let restarts = state.starts.saturating_sub(1);
            let want = HelperStatus { is_up, is_off, is_stopping, restarts };
            holds(rule, told == want, || format!("{helper}: told {told:?}, {state:?}"))?;
        }
        Ok(())
    }
}
