//! What happens next, and what the core, the model and the world are told of it.

use gridpool_core::action::Action;
use gridpool_core::event::{ClientEvent, Event, Timestamp};

use super::{Run, TOGETHER};
use crate::model::Broken;

/// Events after which a run counts as endless.
const EVENTS_MAX: u64 = 100_000;

impl Run {
    /// Lets the network and the pool's own clock go on until `end`.
    pub(super) fn until(&mut self, end: Timestamp) -> Result<(), Broken> {
        while self.now < end {
            self.turn(end)?;
        }
        Ok(())
    }

    /// Moves to the next time at which something happens, at most to `end`, and lets one thing happen.
    /// Things at the same time happen in any order.
    pub(super) fn turn(&mut self, end: Timestamp) -> Result<(), Broken> {
        let network = self.world.next_at();
        let timer = self.core.poll_deadline();
        let at = network.into_iter().chain(timer).chain([end]).min().unwrap_or(end);
        self.now = self.now.max(at);
        let by_network = network.is_some_and(|at| at <= self.now);
        let by_timer = timer.is_some_and(|at| at <= self.now);
        if by_network && (!by_timer || self.rng.chance(500)) {
            if let Some(event) = self.world.deliver(self.now) {
                let mut together = vec![event];
                while together[0].is_frequent()
                    && self.rng.chance(TOGETHER)
                    && let Some((at, event)) = self.world.deliver_frequent(timer.unwrap_or(end))
                {
                    self.now = self.now.max(at);
                    together.push(event);
                }
                self.tell_together(together)?;
            }
        } else if by_timer {
            self.tell(Event::TimePassed)?;
        }
        Ok(())
    }

    pub(super) fn tell(&mut self, event: Event) -> Result<(), Broken> {
        self.tell_together(vec![event])
    }

    /// The core handles these events together. None is no event.
    pub(super) fn tell_together(&mut self, mut events: Vec<Event>) -> Result<(), Broken> {
        if events.is_empty() {
            return Ok(());
        }
        self.events += events.len() as u64;
        self.the_core_comes_to_rest()?;
        for event in &mut events {
            if let Event::Client(_, ClientEvent::Submitted(request)) = event {
                let asked = self.core.asks_for_content(request);
                self.model.a_content_hash_is_required_if_a_similar_job_is_denylisted(
                    request,
                    asked.as_ref(),
                )?;
                request.content = asked.and_then(|work| self.world.content_of(request.job, &work));
            }
            self.log.event(self.now, event);
        }
        self.model.expect(self.now, &events);
        self.core.handle_together(self.now, events);
        while let Some(action) = self.core.poll_action() {
            self.log.action(self.now, &action);
            if let Action::Finish { job, receipt, .. } = &action {
                self.verdict = Some((*job, receipt.verdict));
            }
            self.model.check(self.now, &action)?;
            self.world.perform(self.now, &action);
        }
        self.model.settled(self.now, &mut self.core)
    }

    fn the_core_comes_to_rest(&self) -> Result<(), Broken> {
        let detail = format!("{} events", self.events);
        let rule = "the_core_comes_to_rest";
        if self.events < EVENTS_MAX { Ok(()) } else { Err(Broken { rule, detail }) }
    }
}
