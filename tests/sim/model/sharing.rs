//! Which jobs may share a dispatch, and which may wait in a worker's channel.

use gridpool_core::action::Assignment;
use gridpool_core::event::Timestamp;
use gridpool_protocol::ids::{AttemptId, Group, JobId, WorkerId};
use gridpool_protocol::limits::{JOIN_INLINE_BYTES_MAX, JOIN_MAX};
use gridpool_protocol::receipt::ItemRange;

use super::jobs::Job;
use super::outstanding::Dispatch;
use super::slots::{Slot, SlotId, State};
use super::{Broken, Model, holds};

impl Model {
    pub(super) fn no_job_joins_on_the_device_where_its_last_attempt_failed(
        &self,
        worker: WorkerId,
        attempt: AttemptId,
        items: ItemRange,
    ) -> Result<(), Broken> {
        let rule = "no_job_joins_on_the_device_where_its_last_attempt_failed";
        let job = &self.jobs[&attempt.job];
        let shard = job.shards.iter().find(|shard| shard.items == items);
        let same = shard.is_some_and(|shard| shard.failed_on == Some(worker.device));
        // Suspects go to the device of the first of them.
        holds(rule, !same || job.suspects != 0, || format!("{attempt} joined on {worker}"))
    }

    pub(super) fn a_joined_dispatch_has_one_program_and_keeps_its_limits(
        &self,
        sent: &[Assignment],
        dispatch: &Dispatch,
    ) -> Result<(), Broken> {
        let rule = "a_joined_dispatch_has_one_program_and_keeps_its_limits";
        if sent.len() == 1 {
            return Ok(());
        }
        let jobs: Vec<_> = sent.iter().map(|sent| &self.jobs[&sent.attempt.job]).collect();
        let (work, suspects) = (&jobs[0].request.work, jobs[0].suspects);
        let group = jobs[0].group;
        let (many, limits) = (self.group(group).is_concurrent(), self.group(group).limits);
        let one_program = many || jobs.iter().all(|job| job.request.work == *work);
        let one_suspects = jobs.iter().all(|job| job.suspects == suspects);
        holds("suspects_join_only_suspects_of_their_own_group", one_suspects, || {
            format!("{jobs:?}")
        })?;
        let inline: u64 = jobs.iter().map(|job| job.request.inline_bytes).sum();
        let ok = one_program
            && sent.len() <= self.dispatch_max(group)
            && dispatch.cost <= limits.join_cost_max
            && inline <= JOIN_INLINE_BYTES_MAX as u64
            && jobs.iter().all(|job| job.may_join(many) && job.group == group);
        let killed_alone = many && jobs.iter().any(|job| job.evidence > 0);
        let rule_alone = "no_job_runs_beside_one_that_killed_a_worker_alone";
        holds(rule_alone, !killed_alone, || format!("{sent:?}: {jobs:?}"))?;
        holds(rule, ok, || format!("{sent:?}: {jobs:?}"))
    }

    /// The model knows only of the dispatch's own client and principal that they are not too far ahead of others.
    pub(super) fn a_job_that_may_join_a_dispatch_of_its_client_does(
        &self,
        at: SlotId,
        sent: &[Assignment],
    ) -> Result<(), Broken> {
        let rule = "a_job_that_may_join_a_dispatch_of_its_client_does";
        let lead = &self.jobs[&sent[0].attempt.job];
        let group = lead.group;
        let (many, limits) = (self.group(group).is_concurrent(), self.group(group).limits);
        let cost = |job: &Job| job.request.cost;
        let front = self.slot(at).outstanding().first();
        let in_hand = match front {
            Some(front) if many => front.attempts.len(),
            Some(_) | None => sent.len(),
        };
        if !lead.may_join(many)
            || cost(lead) > limits.join_cost_max
            || in_hand == self.dispatch_max(group)
        {
            return Ok(());
        }
        let jobs = sent.iter().map(|sent| &self.jobs[&sent.attempt.job]);
        let (total, own_inline) = jobs.fold((0, 0), |(total, bytes), job| {
            (total + cost(job), bytes + job.request.inline_bytes)
        });
        let inline = match front {
            Some(front) if many => front.inline_bytes(),
            Some(_) | None => own_inline,
        };
        let second = self.slot(at).outstanding().len() > 1;
        let short = if second { self.group(group).feed_cost_max() } else { u64::MAX };
        let mut left_out = self.jobs.values().filter(|job| {
            job.group == group
                && job.client == lead.client
                && job.request.principal == lead.request.principal
                && job.waits()
                && job.may_join(many)
                && self.slot(at).has_for(&job.request)
                && (many || job.request.work == lead.request.work)
                && job.suspects == lead.suspects
                && total + cost(job) <= limits.join_cost_max.min(short)
                && inline + job.request.inline_bytes <= JOIN_INLINE_BYTES_MAX as u64
                && (job.suspects != 0
                    || job.shards.iter().all(|shard| shard.failed_on != Some(at.device())))
        });
        let left_out = left_out.next();
        holds(rule, left_out.is_none(), || format!("{sent:?} without {left_out:?}"))
    }

    /// The attempts of one dispatch.
    fn dispatch_max(&self, group: Group) -> usize {
        let group = self.group(group);
        if group.is_concurrent() { group.attempts_max() } else { JOIN_MAX }
    }

    /// Whether others may run beside a worker's outstanding attempts.
    pub(super) fn has_capacity(&self, now: Timestamp, at: SlotId) -> bool {
        let (group, slot) = (self.group(at.group()), self.slot(at));
        let State::Busy { outstanding } = &slot.state else { return false };
        let front = outstanding.front();
        group.is_concurrent()
            && front.may_lead
            && front.attempts.len() < group.attempts_max()
            && !self.is_suspect(now, slot)
            && !self.is_away(at.device())
    }

    pub(super) fn an_attempt_beside_others_is_allowed_and_fits(
        &self,
        now: Timestamp,
        at: SlotId,
        sent: &[Assignment],
        dispatch: &Dispatch,
    ) -> Result<(), Broken> {
        let rule = "an_attempt_beside_others_is_allowed_and_fits";
        let front = self.slot(at).outstanding()[0].clone();
        let jobs = || sent.iter().map(|sent| &self.jobs[&sent.attempt.job]);
        let inline: u64 = jobs().map(|job| job.request.inline_bytes).sum();
        let attempts_max = self.group(at.group()).attempts_max();
        let ok = self.has_capacity(now, at)
            && front.attempts.len() + sent.len() <= attempts_max
            && front.inline_bytes() + inline <= JOIN_INLINE_BYTES_MAX as u64
            && jobs().all(|job| job.may_join(true))
            && !jobs().next().is_some_and(Job::is_suspect);
        holds(rule, ok, || format!("{dispatch:?} beside {front:?}"))?;
        self.no_job_runs_beside_others_while_an_idle_worker_may_take_it(now, sent)?;
        let rule = "an_attempt_beside_others_goes_to_the_worker_with_the_fewest";
        let shards = &self.jobs[&sent[0].attempt.job].shards;
        let shard = shards.iter().find(|shard| shard.items == sent[0].shard);
        let failed_on = shard.and_then(|shard| shard.failed_on);
        let lead = &self.jobs[&sent[0].attempt.job].request;
        let load = |at: SlotId, slot: &Slot| {
            (Some(at.device()) == failed_on, slot.outstanding()[0].attempts.len())
        };
        let least = self
            .slots_of(at.group())
            .filter(|&(at, slot)| self.has_capacity(now, at) && slot.has_for(lead))
            .filter(|(_, slot)| {
                let lead = lead.inline_bytes;
                slot.outstanding()[0].inline_bytes() + lead <= JOIN_INLINE_BYTES_MAX as u64
            })
            .filter(|(other, _)| !self.may_be_held_up(now, *other, sent))
            .map(|(other, slot)| load(other, slot))
            .min();
        let own = load(at, self.slot(at));
        let ok = least.is_none_or(|least| own <= least);
        holds(rule, ok, || format!("{own:?} and not {least:?}"))
    }

    /// But a job that avoids the idle worker, since it failed there, may join others.
    fn no_job_runs_beside_others_while_an_idle_worker_may_take_it(
        &self,
        now: Timestamp,
        sent: &[Assignment],
    ) -> Result<(), Broken> {
        let rule = "no_job_runs_beside_others_while_an_idle_worker_may_take_it";
        for (position, sent) in sent.iter().enumerate() {
            let job = &self.jobs[&sent.attempt.job];
            let kept_back = |at: SlotId| {
                let failed_there =
                    job.shards.iter().any(|shard| shard.failed_on == Some(at.device()));
                position > 0 && failed_there && self.another_is_near(at.device(), job)
            };
            let idles = |(at, slot): &(SlotId, &Slot)| {
                self.is_idle(now, slot) && slot.has_for(&job.request) && !kept_back(*at)
            };
            let idle = self.slots_of(job.group).find(idles);
            holds(rule, idle.is_none(), || format!("{sent:?}: {idle:?}"))?;
        }
        Ok(())
    }

    /// Whether a waiting job may run beside a worker's attempts, wherever it ran before.
    fn may_run_beside(&self, slot: &Slot, job: &Job) -> bool {
        let bytes = slot.outstanding()[0].inline_bytes() + job.request.inline_bytes;
        let limits = self.group(job.group).limits;
        job.may_join(true)
            && !job.is_suspect()
            && job.request.cost <= limits.join_cost_max
            && bytes <= JOIN_INLINE_BYTES_MAX as u64
            && job.waiting().all(|shard| shard.failed_on.is_none())
    }

    /// Whether a waiting job that must not run beside a worker's attempts may be its next job: then no
    /// later job goes to that worker either.
    fn may_be_held_up(&self, now: Timestamp, at: SlotId, sent: &[Assignment]) -> bool {
        let slot = self.slot(at);
        let is_sent = |id: JobId| sent.iter().any(|sent| sent.attempt.job == id);
        let waits = |job: &Job| job.group == at.group() && job.waits() && !self.is_held(now, job);
        let others = self.jobs.iter().filter(|&(&id, job)| waits(job) && !is_sent(id));
        let mut own = others.map(|(_, job)| job).filter(|job| slot.has_for(&job.request));
        own.any(|job| !self.may_run_beside(slot, job))
    }

    /// If every waiting job whose model a worker has may run beside others and anywhere, a worker with
    /// capacity gets one. A job that waits for another model delays none of them.
    pub(super) fn a_worker_with_capacity_gets_more_if_any_waiting_job_may_run_beside_others(
        &self,
        now: Timestamp,
    ) -> Result<(), Broken> {
        let rule = "a_worker_with_capacity_gets_more_if_any_waiting_job_may_run_beside_others";
        for (at, slot) in self.slots().filter(|&(at, _)| self.has_capacity(now, at)) {
            let own =
                |job: &&Job| job.group == at.group() && job.waits() && !self.is_held(now, job);
            let waiting = self.jobs.values().filter(own);
            let mut own = waiting.filter(|job| slot.has_for(&job.request)).peekable();
            let some_wait = own.peek().is_some();
            let all_may = own.all(|job| self.may_run_beside(slot, job));
            holds(rule, !(some_wait && all_may), || format!("{}: {slot:?}", self.worker(at)))?;
        }
        Ok(())
    }

    /// Whether a worker may have a second dispatch.
    fn is_open(&self, now: Timestamp, at: SlotId) -> bool {
        let (group, slot) = (self.group(at.group()), self.slot(at));
        let State::Busy { outstanding } = &slot.state else { return false };
        let [front] = &outstanding.0[..] else { return false };
        !group.is_concurrent()
            && front.cost <= group.feed_cost_max()
            && front.may_lead
            && front.attempts.iter().all(|sent| sent.free_at.is_none())
            && !self.is_suspect(now, slot)
            && !self.is_away(at.device())
    }

    pub(super) fn a_second_dispatch_is_sent_only_if_no_worker_idles_and_both_are_short(
        &self,
        now: Timestamp,
        at: SlotId,
        dispatch: &Dispatch,
    ) -> Result<(), Broken> {
        let rule = "a_second_dispatch_is_sent_only_if_no_worker_idles_and_both_are_short";
        let ok = self.is_open(now, at)
            && dispatch.cost <= self.group(at.group()).feed_cost_max()
            && !self.slots_of(at.group()).any(|(_, slot)| self.is_idle(now, slot));
        holds(rule, ok, || format!("{dispatch:?} to {}: {:?}", self.worker(at), self.devices))
    }

    pub(super) fn a_second_dispatch_goes_to_the_least_loaded_worker(
        &self,
        now: Timestamp,
        at: SlotId,
        sent: &[Assignment],
    ) -> Result<(), Broken> {
        let rule = "a_second_dispatch_goes_to_the_least_loaded_worker";
        let job = &self.jobs[&sent[0].attempt.job];
        let shard = job.shards.iter().find(|shard| shard.items == sent[0].shard);
        let failed_on = shard.and_then(|shard| shard.failed_on);
        // A worker that is about to serve would take it sooner.
        let own = self.devices.iter().filter(|(other, _)| other.group == at.group());
        let mut others = own.filter(|(other, _)| Some(other.device) != failed_on);
        let one_comes = others.any(|(_, device)| device.is_near(&job.request));
        let load = |slot: &Slot| slot.outstanding()[0].cost;
        // It does not wait behind what should make room for it.
        let open = self.slots_of(at.group()).filter(|&(other, _)| {
            Some(other.device()) != failed_on
                && self.is_open(now, other)
                && !self.is_larger(other, job, job.cost(sent[0].shard))
        });
        let least = open.map(|(_, slot)| load(slot)).min();
        let ok = least == Some(load(self.slot(at))) && !one_comes;
        holds(rule, ok, || format!("{sent:?} to {}: {:?}", self.worker(at), self.devices))
    }

    pub(super) fn only_idempotent_jobs_wait_behind_a_dispatch(
        &self,
        sent: &[Assignment],
    ) -> Result<(), Broken> {
        let rule = "only_idempotent_jobs_wait_behind_a_dispatch";
        let again = |sent: &Assignment| self.jobs[&sent.attempt.job].request.idempotent;
        holds(rule, sent.iter().all(again), || format!("{sent:?}"))
    }

    /// If all waiting jobs are short and may go anywhere, any of them may be next.
    pub(super) fn a_worker_gets_a_second_dispatch_if_any_waiting_job_may_be_it(
        &self,
        now: Timestamp,
    ) -> Result<(), Broken> {
        let rule = "a_worker_gets_a_second_dispatch_if_any_waiting_job_may_be_it";
        for (&group, state) in self.groups.iter().filter(|(_, state)| !state.is_concurrent()) {
            let own = |job: &&Job| job.group == group && job.waits() && !self.is_held(now, job);
            let mut waiting = self.jobs.values().filter(own).peekable();
            let Some(&first) = waiting.peek() else { continue };
            let all_short = waiting.all(|job| {
                job.request.idempotent
                    && job.shard_cost_max() <= state.feed_cost_max()
                    && job.waiting().all(|shard| shard.failed_on.is_none())
            });
            let is_idle = self.slots_of(group).any(|(_, slot)| self.is_idle(now, slot));
            let is_open = self.slots_of(group).any(|(at, _)| {
                self.is_open(now, at) && !self.jobs_of(group).any(|job| self.is_in_the_way(at, job))
            });
            let mut own = self.devices.iter().filter(|(at, _)| at.group == group);
            let one_comes = own.any(|(_, device)| device.is_near(&first.request));
            let unused = all_short && !is_idle && is_open && !one_comes;
            holds(rule, !unused, || format!("{:?}", self.devices))?;
        }
        Ok(())
    }
}
