//! Which jobs run where: on idle workers first, then beside or behind other attempts. Waiting jobs that may
//! join a dispatch go with it.

use std::sync::Arc;

use gridpool_protocol::ids::{DeviceId, Group};
use gridpool_protocol::limits::{JOIN_INLINE_BYTES_MAX, JOIN_MAX};

use super::Pool;
use super::job::Job;
use super::outstanding::{Dispatch, Sent};
use super::queue::Position;
use super::shard::Shard;
use super::slots::{Slot, Slots};
use crate::action::Action;
use crate::config::{Concurrency, PoolConfig, RoleLimits};
use crate::event::Timestamp;

impl Slot {
    fn idle_since(&self, now: Timestamp, config: &PoolConfig) -> Option<Timestamp> {
        self.process()?.idle_since(now, config)
    }

    fn takes_beside(
        &self,
        now: Timestamp,
        config: &PoolConfig,
        concurrency: Concurrency,
    ) -> Option<&Dispatch> {
        let Concurrency::Concurrent { attempts_max } = concurrency else { return None };
        self.process()?.takes_beside(now, config, attempts_max)
    }
}

impl Pool {
    /// Sends workers of a group all that they may take. There is no batching delay: only jobs that already
    /// wait join a dispatch.
    pub(super) fn dispatch(&mut self, now: Timestamp, group: Group) {
        let limits = self.groups[group].limits;
        while !self.groups[group].queue.is_empty() {
            let is_idle = |slot: &Slot| slot.idle_since(now, &self.config).is_some();
            let some_idle = self.slots.of_group(group).any(|(_, slot)| is_idle(slot));
            let for_idle = if some_idle { self.take_for_idle(now, group) } else { None };
            let (chosen, cost_max) = match limits.concurrency {
                // The idle workers may lack the model.
                Concurrency::Concurrent { attempts_max } => {
                    let chosen = for_idle.or_else(|| self.take_beside(now, group, attempts_max));
                    (chosen, limits.join_cost_max)
                }
                Concurrency::Exclusive { .. } if some_idle => (for_idle, limits.join_cost_max),
                Concurrency::Exclusive { feed_cost_max, .. } => {
                    let chosen = self.take_to_feed(now, group, feed_cost_max);
                    (chosen, limits.join_cost_max.min(feed_cost_max))
                }
            };
            let Some((lead, index)) = chosen else { return };
            self.send(now, lead, index, cost_max);
        }
    }

    /// The next shard that may go to an idle worker, and the worker's slot.
    fn take_for_idle(&mut self, now: Timestamp, group: Group) -> Option<(Position, usize)> {
        let (slots, jobs, config) = (&self.slots, &self.jobs, &self.config);
        let idle = || {
            let own = slots.of_group(group);
            own.filter_map(|(index, slot)| Some((slot.idle_since(now, config)?, index)))
        };
        let slot_for = |position: Position| slot_for(&jobs[position.job], position, slots, idle());
        let position = self.groups[group].queue.take(|position| slot_for(position).is_some())?;
        let index = slot_for(position).expect("the shard was just placed");
        Some((position, index))
    }

    /// The very next shard, if it is small and may wait behind a small dispatch; and the slot of that
    /// worker. Only the very next: otherwise a large shard might wait for ever, for a worker that is always
    /// fed is never idle.
    fn take_to_feed(
        &mut self,
        now: Timestamp,
        group: Group,
        feed_cost_max: u64,
    ) -> Option<(Position, usize)> {
        let (slots, jobs, config) = (&self.slots, &self.jobs, &self.config);
        let is_own = |slot: &Slot| self.devices.at(slot.device).is_own();
        let slot_for = |position: Position| {
            let job = &jobs[position.job];
            let shard = job.shard_at(position);
            // A kill may take a dispatch back before it begins, and then its jobs run again. `feed` limits
            // how long it waits.
            if shard.cost > feed_cost_max || !job.request.idempotent {
                return None;
            }
            // A device that is about to serve will take it sooner.
            let soon = |slot: &Slot| !avoids(shard, slot.device) && slots.is_near_service(slot);
            if slots.of_group(group).any(|(_, slot)| soon(slot)) {
                return None;
            }
            let others = slots.of_group(group).filter(|(_, slot)| !avoids(shard, slot.device));
            let open = others.filter(|(_, slot)| is_own(slot)).filter_map(|(index, slot)| {
                let front = slot.process()?.feeds_behind(now, config, feed_cost_max)?;
                let worth = config.shard_cost_min;
                let waits = front.is_in_the_way(&job.request.principal, shard.cost, worth);
                (!waits).then_some((front.cost, index))
            });
            open.min().map(|(_, index)| index)
        };
        let queue = &mut self.groups[group].queue;
        let position = queue.take_first(|position| slot_for(position).is_some())?;
        let index = slot_for(position).expect("the shard was just placed");
        Some((position, index))
    }

    /// The very next shard that a busy worker with capacity serves, if it may run beside others; and the
    /// worker with the fewest attempts that can take it. Only the very next: otherwise a shard that must
    /// run alone might wait for ever.
    fn take_beside(
        &mut self,
        now: Timestamp,
        group: Group,
        attempts_max: usize,
    ) -> Option<(Position, usize)> {
        let (next, index) = self.next_beside(now, group, attempts_max)?;
        let position = self.groups[group].queue.take(|position| position == next)?;
        Some((position, index))
    }

    fn next_beside(
        &self,
        now: Timestamp,
        group: Group,
        attempts_max: usize,
    ) -> Option<(Position, usize)> {
        let has_capacity = |slot: &Slot| {
            let process = slot.process();
            process.is_some_and(|own| own.takes_beside(now, &self.config, attempts_max).is_some())
                && self.devices.at(slot.device).is_own()
        };
        // A worker stays only until it is skipped for a job that it serves.
        let with_capacity = self.slots.of_group(group).filter(|(_, slot)| has_capacity(slot));
        let mut open: Vec<_> = with_capacity.map(|(index, _)| index).collect();
        for position in self.groups[group].queue.in_order() {
            if open.is_empty() {
                break;
            }
            if let Some(index) = self.slot_beside(now, position, &open) {
                return Some((position, index));
            }
            open.retain(|&index| !self.slots[index].has_for(&self.jobs[position.job]));
        }
        None
    }

    /// The worker of `open` that takes a shard beside its attempts.
    fn slot_beside(&self, now: Timestamp, position: Position, open: &[usize]) -> Option<usize> {
        let (slots, config, job) = (&self.slots, &self.config, &self.jobs[position.job]);
        let (group, limits) = (job.group, &self.groups[job.group].limits);
        if job.is_suspect() || job.joins(limits).is_none() {
            return None;
        }
        let idles = |slot: &Slot| slot.idle_since(now, config).is_some() && slot.has_for(job);
        if slots.of_group(group).any(|(_, slot)| idles(slot)) {
            return None;
        }
        let shard = job.shard_at(position);
        let is_near = slots.of_group(group).any(|(_, slot)| is_near(job, shard, slots, slot));
        let able = open.iter().filter(|&&index| slots[index].has_for(job));
        let with_capacity = able.filter_map(|&index| {
            let front = slots[index].takes_beside(now, config, limits.concurrency)?;
            let unwanted = avoids(shard, slots[index].device);
            let bytes = front.inline_bytes() + job.request.inline_bytes;
            let fits = bytes <= JOIN_INLINE_BYTES_MAX as u64 && !(unwanted && is_near);
            fits.then_some((unwanted, front.sent.len(), index))
        });
        with_capacity.min().map(|(_, _, index)| index)
    }

    /// Sends a shard that was taken from the queue, and shards that join it, up to a cost of `cost_max` in
    /// all.
    fn send(&mut self, now: Timestamp, lead: Position, index: usize, cost_max: u64) {
        let worker = self.slots.process(index).worker;
        let state = &mut self.groups[worker.group];
        let limits: RoleLimits = state.limits;
        let joins = self.jobs[lead.job].joins(&limits);
        let beside = self.slots[index].takes_beside(now, &self.config, limits.concurrency);
        let mut inline_bytes = beside.map_or(0, Dispatch::inline_bytes);
        let attempts_max = match limits.concurrency {
            Concurrency::Concurrent { attempts_max } => {
                attempts_max - beside.map_or(0, |front| front.sent.len())
            }
            Concurrency::Exclusive { .. } => JOIN_MAX,
        };
        let attempts_max = match &joins {
            Some(with) if state.queue.has_joining(with) => attempts_max.min(1 + state.queue.jobs()),
            Some(_) | None => 1,
        };
        let mut dispatch = Dispatch::new(now, attempts_max);
        let mut attempts = Vec::with_capacity(attempts_max);
        // Nothing may run beside a job that must run alone.
        let may_share = !limits.concurrency.is_concurrent() || joins.is_some();
        let mut next = Some(lead);
        while let Some(position) = next {
            let job = &mut self.jobs[position.job];
            let shard = position.shard as usize;
            state.meters.begin(now, job, shard);
            let assignment = job.begin(now, shard, worker);
            let (again, is_suspect) = (job.request.idempotent && may_share, job.is_suspect());
            let (own_bytes, label) = (job.request.inline_bytes, Arc::clone(&job.request.label));
            let principal = job.request.principal.clone();
            let sent = Sent::new(assignment.attempt, shard, label, principal, own_bytes);
            dispatch.add(sent, job.shards[shard].cost, again, is_suspect);
            inline_bytes += own_bytes;
            attempts.push(assignment);
            let Some(with) = joins.as_ref().filter(|_| attempts.len() < attempts_max) else {
                break;
            };
            let (jobs, slot) = (&self.jobs, &self.slots[index]);
            let fits = |position: Position| {
                let job = &jobs[position.job];
                let shard = job.shard_at(position);
                // A worker may have died of it after it was queued.
                !job.runs_alone(limits.concurrency)
                    && slot.has_for(job)
                    && dispatch.cost.saturating_add(shard.cost) <= cost_max
                    && inline_bytes + job.request.inline_bytes <= JOIN_INLINE_BYTES_MAX as u64
                    && (!avoids(shard, worker.device) || with.suspects.is_some())
            };
            next = state.queue.take_joining(with, limits.join_cost_max, fits);
        }
        state.meters.dispatched(&attempts);
        state.counters.attempts += attempts.len() as u64;
        state.counters.runs += 1;
        state.counters.joined += if attempts.len() > 1 { attempts.len() as u64 } else { 0 };
        self.slots.process_mut(index).send(dispatch, limits.concurrency);
        self.actions.push_back(Action::Dispatch { worker, attempts });
    }
}

fn avoids(shard: &Shard, device: DeviceId) -> bool {
    shard.avoid == Some(device)
}

/// Whether a device will soon be able to take a shard that does not avoid it.
fn is_near(job: &Job, shard: &Shard, slots: &Slots, slot: &Slot) -> bool {
    !avoids(shard, slot.device) && slots.is_near_service(slot) && slot.may_have_for(job)
}

/// The slot for a shard among the idle ones: the longest idle, but not the device that its last attempt
/// failed on if another will soon be free.
fn slot_for(
    job: &Job,
    position: Position,
    slots: &Slots,
    idle: impl Iterator<Item = (Timestamp, usize)>,
) -> Option<usize> {
    let shard = job.shard_at(position);
    let unwanted = |index: usize| avoids(shard, slots[index].device);
    let able = idle.filter(|&(_, index)| slots[index].has_for(job));
    let (_, index) = able.min_by_key(|&(since, index)| (unwanted(index), since, index))?;
    let mut own = slots.of_group(job.group);
    let mut is_near = || own.any(|(_, slot)| is_near(job, shard, slots, slot));
    (!unwanted(index) || !is_near()).then_some(index)
}
