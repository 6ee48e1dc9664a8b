//! What models workers have, and operators who take the last one away or bring a first one.

use std::collections::BTreeSet;
use std::sync::Arc;

use gridpool::pool::event::{Event, Timestamp};
use gridpool_protocol::ids::{DeviceId, DeviceKind, WorkerId};

use super::World;

/// Longest time for which a pool rests, milliseconds, unless nobody wakes it.
const REST_MAX_MS: u64 = 400;

impl World {
    /// Draws anew which models a device has from now on. Fewer at times than are asked for, or none.
    pub(super) fn draw_models(&mut self, device: DeviceId) {
        let all = (0..self.swarm.models).map(name).collect::<Vec<_>>();
        let some = all.into_iter().filter(|_| self.rng.chance(650)).collect();
        self.offers.insert(device, some);
    }

    pub(super) fn draw_all_models(&mut self) {
        for index in 0..self.swarm.devices {
            self.draw_models(DeviceId { kind: DeviceKind::Gpu, index });
        }
    }

    /// What a request asks for.
    pub(super) fn some_model(&mut self) -> Option<Arc<str>> {
        if self.swarm.models == 0 {
            return None;
        }
        if self.rng.chance(self.swarm.rates.unknown_models) {
            return Some(name(self.swarm.models));
        }
        Some(name(self.rng.below(self.swarm.models)))
    }

    /// A worker says what it has, at the latest when it is READY if it is in time.
    pub(super) fn offers_at(&mut self, now: Timestamp, ready_at: Timestamp, worker: WorkerId) {
        if self.swarm.models == 0 {
            return;
        }
        let at = match self.rng.chance(self.swarm.rates.late_offers) {
            true => self.soon(ready_at, 50),
            false => self.within(now, ready_at),
        };
        let event = self.offer(worker);
        self.tell(at, event);
    }

    /// What the worker would say now of its models.
    pub(super) fn offer(&self, worker: WorkerId) -> Event {
        let models = self.offers.get(&worker.device).cloned().unwrap_or_default();
        Event::ModelsOffered { worker, models }
    }

    /// A device's models change, and its workers say so.
    pub(super) fn models_change(&mut self, now: Timestamp) {
        let device = self.some_device();
        self.draw_models(device);
        let own: Vec<_> = self.processes.keys().copied().filter(|w| w.device == device).collect();
        for worker in own {
            let at = self.soon(now, 20);
            let event = self.offer(worker);
            self.tell(at, event);
        }
    }

    /// Every device has every model, once nothing goes wrong any more.
    pub(super) fn all_have_all_models(&mut self, at: Timestamp) {
        if self.swarm.models == 0 {
            return;
        }
        let all: BTreeSet<_> = (0..=self.swarm.models).map(name).collect();
        self.offers.values_mut().for_each(|own| own.clone_from(&all));
        for worker in self.processes.keys().copied().collect::<Vec<_>>() {
            let event = self.offer(worker);
            self.tell(at, event);
        }
    }

    /// There is nothing to do any more; somebody finds something soon, or never.
    pub(super) fn rest(&mut self, now: Timestamp) -> Event {
        if self.rng.chance(900) {
            let at = self.soon(now, REST_MAX_MS);
            self.tell(at, Event::WakeRequested);
        }
        Event::RestRequested
    }
}

fn name(number: u64) -> Arc<str> {
    format!("m{number}").into()
}
