//! The processes of helpers: how they start, their signs of life, and how they end.

use gridpool_core::action::HelperAction;
use gridpool_core::event::{Event, Helper, HelperEvent, Timestamp};

use super::{Delivery, World};

/// Longer than any run: stuck in the kernel until the faults stop.
const FOR_EVER_MS: u64 = 3_600_000;

/// The latest process of a helper.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HelperProcess {
    /// Distinguishes it from earlier ones.
    number: u64,
    lives: bool,
    /// It gives no sign of life.
    mute: bool,
}

impl World {
    pub(super) fn on_helper(&mut self, now: Timestamp, helper: Helper, action: &HelperAction) {
        match action {
            HelperAction::Start => self.starts_helper(now, helper),
            HelperAction::Kill { .. } => {
                let stuck = self.rng.chance(self.swarm.rates.stuck_helpers);
                let longest = if stuck { self.rng.pick(&[100, 400, FOR_EVER_MS]) } else { 10 };
                self.helper_ends(now, helper, longest);
            }
            HelperAction::Stop => {
                if !self.rng.chance(self.swarm.rates.stops_ignored) {
                    self.helper_ends(now, helper, self.swarm.stop_lag);
                }
            }
        }
    }

    fn starts_helper(&mut self, now: Timestamp, helper: Helper) {
        let process = self.helpers.entry(helper).or_default();
        *process = HelperProcess { number: process.number + 1, lives: true, mute: false };
        if self.rng.chance(self.swarm.rates.spawn_fails) {
            let at = self.soon(now, 5);
            process_ends(self, at, helper, HelperEvent::SpawnFailed);
            return;
        }
        let mute = self.rng.chance(self.swarm.rates.start_hangs);
        let process = self.helpers.get_mut(&helper).expect("it has just started");
        process.mute = mute;
        let number = process.number;
        let at = self.soon(now, 60);
        self.send(at, Delivery::HelperBeat(helper, number));
        if self.rng.chance(self.swarm.rates.helper_crashes) {
            self.helper_ends(now, helper, 600);
        }
    }

    fn helper_ends(&mut self, now: Timestamp, helper: Helper, longest: u64) {
        let at = self.soon(now, longest);
        process_ends(self, at, helper, HelperEvent::Exited);
    }

    /// Its next sign of life is due.
    pub(super) fn helper_beats(
        &mut self,
        now: Timestamp,
        helper: Helper,
        number: u64,
    ) -> Option<Event> {
        let process = self.helpers.get(&helper)?;
        if process.number != number || !process.lives || process.mute {
            return None;
        }
        let at = now.after(self.swarm.helper_beat);
        self.send(at, Delivery::HelperBeat(helper, number));
        Some(Event::Helper(helper, HelperEvent::Heard))
    }

    /// The event of its end.
    pub(super) fn helper_is_gone(
        &mut self,
        helper: Helper,
        number: u64,
        event: HelperEvent,
    ) -> Option<Event> {
        let process = self.helpers.get_mut(&helper)?;
        if process.number != number || !std::mem::take(&mut process.lives) {
            return None;
        }
        Some(Event::Helper(helper, event))
    }

    /// Something happens to a helper: it ends, falls silent, breaks the protocol, or is wanted or not.
    pub(super) fn helper_chaos(&mut self, now: Timestamp) -> Option<Event> {
        let helper = self.rng.pick(&Helper::ALL);
        let process = self.helpers.get(&helper).copied().unwrap_or_default();
        let event = match self.rng.below(6) {
            0 => HelperEvent::Wanted,
            1 => HelperEvent::Unwanted,
            2 if process.lives => {
                self.helper_ends(now, helper, 10);
                return None;
            }
            3 if process.lives => {
                self.helpers.entry(helper).or_default().mute = true;
                return None;
            }
            4 if process.lives => HelperEvent::Lost { why: "it has closed its link".to_owned() },
            _ => return None,
        };
        if self.rng.chance(self.swarm.rates.second_thoughts) {
            let at = self.soon(now, 10);
            let is_wanted = self.rng.chance(500);
            let again = if is_wanted { HelperEvent::Wanted } else { HelperEvent::Unwanted };
            self.tell(at, Event::Helper(helper, again));
        }
        Some(Event::Helper(helper, event))
    }
}

/// The process ends at `at`, whatever end was planned.
fn process_ends(world: &mut World, at: Timestamp, helper: Helper, event: HelperEvent) {
    let process = world.helpers.entry(helper).or_default();
    let number = process.number;
    world.send(at, Delivery::HelperGone(helper, number, event));
}
