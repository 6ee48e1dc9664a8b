//! Who runs what, where: idle devices first, then a second batch for those that will soon be done; and
//! whoever waits for the same program joins.

use std::sync::Arc;

use gridpool_protocol::ids::DeviceId;
use gridpool_protocol::limits::{JOIN_INLINE_BYTES_MAX, JOIN_MAX};

use super::Pool;
use super::event::{Action, Timestamp};
use super::job::Job;
use super::outstanding::{Batch, Sent};
use super::part::Part;
use super::queue::Place;
use super::seats::is_near_service;
use super::slot::Slot;

impl Pool {
    /// Sends what may be sent. Nobody waits for others to join him: those who join were waiting.
    pub(super) fn dispatch(&mut self, now: Timestamp) {
        while !self.queue.is_empty() {
            let is_idle = |slot: &Slot| slot.idle_since(now, &self.config).is_some();
            let join_cost_max = self.config.join_cost_max;
            let (chosen, cost_max) = match self.slots.iter().any(is_idle) {
                true => match self.take_for_idle(now) {
                    // Who idles may not have the model that is asked for.
                    None if self.window > 1 => (self.take_beside(now), join_cost_max),
                    chosen => (chosen, join_cost_max),
                },
                false if self.window > 1 => (self.take_beside(now), join_cost_max),
                false => (self.take_for_busy(now), join_cost_max.min(self.config.feed_cost_max)),
            };
            let Some((lead, index)) = chosen else { return };
            self.send(now, lead, index, cost_max);
        }
    }

    /// The next part that may go to an idle device, and the device.
    fn take_for_idle(&mut self, now: Timestamp) -> Option<(Place, usize)> {
        let (slots, jobs, config) = (&self.slots, &self.jobs, &self.config);
        let idle = || {
            let idle = slots.iter().enumerate();
            idle.filter_map(|(index, slot)| Some((slot.idle_since(now, config)?, index)))
        };
        let place_of = |place: Place| place_for(&jobs[&place.job], place, slots, idle());
        let place = self.queue.take(|place| place_of(place).is_some())?;
        let index = place_of(place).expect("the part was just placed");
        Some((place, index))
    }

    /// The very next part, if it is small and a worker that runs something small may hold it until
    /// then; and that worker's device. Were any other part taken, a large one might wait for ever: a
    /// device that is always fed is never idle.
    fn take_for_busy(&mut self, now: Timestamp) -> Option<(Place, usize)> {
        let (slots, jobs, config) = (&self.slots, &self.jobs, &self.config);
        let place_of = |place: Place| {
            let job = &jobs[&place.job];
            let part = part_at(job, place);
            // Whatever is sent so early may have to be taken back: that is an attempt. How long it waits
            // at most is in `patience`.
            if part.cost > config.feed_cost_max || !job.request.idempotent {
                return None;
            }
            // A device that is about to serve takes it sooner than a busy one.
            let soon = |slot: &Slot| !avoids(part, slot.device) && is_near_service(slots, slot);
            if slots.iter().any(soon) {
                return None;
            }
            let others = slots.iter().enumerate().filter(|(_, slot)| !avoids(part, slot.device));
            let open = others.filter_map(|(i, slot)| Some((slot.feeds_beside(now, config)?, i)));
            open.min().map(|(_, index)| index)
        };
        let place = self.queue.take_first(|place| place_of(place).is_some())?;
        let index = place_of(place).expect("the part was just placed");
        Some((place, index))
    }

    /// The very next part of those that a worker serves which has something in hand and room for more, if
    /// it may run beside that; and of the workers that could take it, the one that has the least in hand.
    /// Were any other part taken, one that must run alone might wait for ever.
    fn take_beside(&mut self, now: Timestamp) -> Option<(Place, usize)> {
        let (next, index) = self.next_beside(now)?;
        let place = self.queue.take(|place| place == next)?;
        Some((place, index))
    }

    fn next_beside(&self, now: Timestamp) -> Option<(Place, usize)> {
        let has_room = |&index: &usize| {
            self.slots[index].takes_beside(now, &self.config, self.window).is_some()
        };
        // Those that nobody was passed over for whom they serve.
        let mut open: Vec<_> = (0..self.slots.len()).filter(has_room).collect();
        for place in self.queue.in_order() {
            if open.is_empty() {
                break;
            }
            if let Some(index) = self.place_beside(now, place, &open) {
                return Some((place, index));
            }
            open.retain(|&index| !self.slots[index].has_for(&self.jobs[&place.job]));
        }
        None
    }

    /// The worker that takes a part beside what it has, of these.
    fn place_beside(&self, now: Timestamp, place: Place, workers: &[usize]) -> Option<usize> {
        let (slots, config, job) = (&self.slots, &self.config, &self.jobs[&place.job]);
        if job.is_on_trial() || job.joins(config, self.window).is_none() {
            return None;
        }
        let idles = |slot: &Slot| slot.idle_since(now, config).is_some() && slot.has_for(job);
        if slots.iter().any(idles) {
            return None;
        }
        let part = part_at(job, place);
        let is_near = slots.iter().any(|slot| is_near(job, part, slots, slot));
        let able = workers.iter().filter(|&&index| slots[index].has_for(job));
        let with_room = able.filter_map(|&index| {
            let front = slots[index].takes_beside(now, config, self.window)?;
            let unwanted = avoids(part, slots[index].device);
            let bytes = front.inline_bytes() + job.request.inline_bytes;
            let fits = bytes <= JOIN_INLINE_BYTES_MAX as u64 && !(unwanted && is_near);
            fits.then_some((unwanted, front.sent.len(), index))
        });
        with_room.min().map(|(_, _, index)| index)
    }

    /// Sends a part that was taken from the queue, and whatever joins it as long as all of that costs
    /// at most `cost_max`.
    fn send(&mut self, now: Timestamp, lead: Place, index: usize, cost_max: u64) {
        let worker = self.slots[index].worker();
        let joins = self.jobs[&lead.job].joins(&self.config, self.window);
        let mut batch = Batch::new(now);
        let mut attempts = Vec::new();
        let beside = self.slots[index].takes_beside(now, &self.config, self.window);
        let in_hand = beside.map_or(0, |front| front.sent.len());
        let mut inline_bytes = beside.map_or(0, Batch::inline_bytes);
        let attempts_max = if self.window > 1 { self.window - in_hand } else { JOIN_MAX };
        // Nothing may run beside what joins nobody.
        let may_share = self.window == 1 || joins.is_some();
        let mut next = Some(lead);
        while let Some(place) = next {
            let job = self.jobs.get_mut(&place.job).expect("queued jobs are live");
            let part = place.part as usize;
            self.meters.begin(now, job, part);
            let assignment = job.begin(now, part, worker);
            let (again, on_trial) = (job.request.idempotent && may_share, job.is_on_trial());
            let (own_bytes, label) = (job.request.inline_bytes, Arc::clone(&job.request.label));
            let sent = Sent::new(assignment.attempt, part, label, own_bytes);
            batch.add(sent, job.parts[part].cost, again, on_trial);
            inline_bytes += job.request.inline_bytes;
            attempts.push(assignment);
            let Some(with) = joins.as_ref().filter(|_| attempts.len() < attempts_max) else {
                break;
            };
            let (jobs, slot) = (&self.jobs, &self.slots[index]);
            let fits = |place: Place| {
                let job = &jobs[&place.job];
                let part = part_at(job, place);
                // A worker may have died of it since it waits.
                !job.runs_alone(self.window)
                    && slot.has_for(job)
                    && batch.cost.saturating_add(part.cost) <= cost_max
                    && inline_bytes + job.request.inline_bytes <= JOIN_INLINE_BYTES_MAX as u64
                    && (!avoids(part, worker.device) || with.suspects.is_some())
            };
            next = self.queue.take_joining(with, self.config.join_cost_max, fits);
        }
        self.meters.dispatched(&attempts);
        self.counters.attempts += attempts.len() as u64;
        self.counters.runs += 1;
        self.counters.joined += if attempts.len() > 1 { attempts.len() as u64 } else { 0 };
        self.slots[index].send(batch, self.window);
        self.actions.push_back(Action::Dispatch { worker, attempts });
    }
}

fn part_at(job: &Job, place: Place) -> &Part {
    &job.parts[place.part as usize]
}

fn avoids(part: &Part, device: DeviceId) -> bool {
    part.avoid == Some(device)
}

/// Whether a device is about to serve a part that it is not to avoid, and may have the model for it.
fn is_near(job: &Job, part: &Part, slots: &[Slot], slot: &Slot) -> bool {
    !avoids(part, slot.device) && is_near_service(slots, slot) && slot.may_have_for(job)
}

/// The device for a part among the idle ones: the longest idle, but not the one its last attempt
/// failed on while another is about to be free.
fn place_for(
    job: &Job,
    place: Place,
    slots: &[Slot],
    idle: impl Iterator<Item = (Timestamp, usize)>,
) -> Option<usize> {
    let part = part_at(job, place);
    let unwanted = |index: usize| avoids(part, slots[index].device);
    let able = idle.filter(|&(_, index)| slots[index].has_for(job));
    let (_, index) = able.min_by_key(|&(since, index)| (unwanted(index), since, index))?;
    let is_near = || slots.iter().any(|slot| is_near(job, part, slots, slot));
    (!unwanted(index) || !is_near()).then_some(index)
}
