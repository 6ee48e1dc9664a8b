//! How long a batch waits in a worker's channel behind another while an idle device could take it.
//!
//! The batch in front may hang or may honestly be slow: nobody can tell, so its jobs are not convicted.
//! The worker is killed for the sake of whoever waits, every attempt it had counts for nothing, and
//! nobody is sent to wait behind those jobs again. A job costs a worker this way once, therefore; if it
//! hangs, its deadline ends it.

use super::Pool;
use super::event::Timestamp;
use super::kill::{Freed, KillCause};
use super::outstanding::Outstanding;
use super::queue::Suspects;
use super::slot::{Slot, SlotState};

impl Pool {
    /// Kills the workers behind whose front batch somebody has waited too long; whether there were any.
    pub(super) fn free_those_who_wait(&mut self, now: Timestamp) -> bool {
        let mut killed = false;
        for index in 0..self.slots.len() {
            let slot = &self.slots[index];
            if self.patience_ends(slot).is_none_or(|at| at > now) {
                continue;
            }
            let SlotState::Busy { outstanding } = &slot.state else {
                unreachable!("nobody waits at {}", slot.worker())
            };
            for sent in &outstanding.front.sent {
                if let Some(job) = self.jobs.get_mut(&sent.attempt.job) {
                    self.suspects += 1;
                    job.suspects = Some(Suspects(self.suspects));
                }
            }
            self.kill(now, index, KillCause::FreeDevice(Freed::OthersWait));
            killed = true;
        }
        killed
    }

    /// When the second batch of a worker has waited for long enough, if a device that may take any of
    /// it idles and still would by then. The front batch has run for at least as long.
    pub(super) fn patience_ends(&self, slot: &Slot) -> Option<Timestamp> {
        let SlotState::Busy { outstanding: Outstanding { second: Some(second), .. } } = &slot.state
        else {
            return None;
        };
        let ends = second.since.after(self.config.feed_patience);
        let may_take = |other: &Slot| {
            second.sent.iter().any(|sent| {
                // A job that was cut off waits no more.
                let Some(job) = self.jobs.get(&sent.attempt.job) else { return false };
                let Some(part) = job.part_of(sent.attempt) else { return false };
                job.parts[part].avoid != Some(other.device)
            })
        };
        let idles = |other: &Slot| {
            matches!(other.state, SlotState::Ready { .. })
                && ends < other.last_heard.after(self.config.heartbeat_suspect)
        };
        self.slots.iter().any(|other| idles(other) && may_take(other)).then_some(ends)
    }
}
