//! Who may share a launch, and who may wait in a worker's channel.

use gridpool::pool::event::{Assignment, Timestamp};
use gridpool_protocol::ids::{AttemptId, JobId, WorkerId};
use gridpool_protocol::limits::{JOIN_INLINE_BYTES_MAX, JOIN_MAX};
use gridpool_protocol::receipt::ItemRange;

use super::hands::Batch;
use super::jobs::Job;
use super::seats::{Seat, SeatId, State};
use super::{Broken, Model, holds};

impl Model {
    pub(super) fn nobody_joins_where_his_last_attempt_failed(
        &self,
        worker: WorkerId,
        attempt: AttemptId,
        items: ItemRange,
    ) -> Result<(), Broken> {
        let rule = "nobody_joins_where_his_last_attempt_failed";
        let job = &self.jobs[&attempt.job];
        let part = job.parts.iter().find(|part| part.items == items);
        let same = part.is_some_and(|part| part.failed_on == Some(worker.device));
        // Suspects go where the first of them goes.
        holds(rule, !same || job.group != 0, || format!("{attempt} joined on {worker}"))
    }

    pub(super) fn a_launch_of_several_has_one_program_and_keeps_its_limits(
        &self,
        sent: &[Assignment],
        batch: &Batch,
    ) -> Result<(), Broken> {
        let rule = "a_launch_of_several_has_one_program_and_keeps_its_limits";
        if sent.len() == 1 {
            return Ok(());
        }
        let jobs: Vec<_> = sent.iter().map(|sent| &self.jobs[&sent.attempt.job]).collect();
        let (program, group) = (&jobs[0].request.program_hash, jobs[0].group);
        let one_program =
            self.window > 1 || jobs.iter().all(|job| job.request.program_hash == *program);
        let one_group = jobs.iter().all(|job| job.group == group);
        holds("suspects_join_suspects_of_the_same_loss_alone", one_group, || format!("{jobs:?}"))?;
        let inline: u64 = jobs.iter().map(|job| job.request.inline_bytes).sum();
        let ok = one_program
            && sent.len() <= self.launch_max()
            && batch.cost <= self.config.join_cost_max
            && inline <= JOIN_INLINE_BYTES_MAX as u64
            && jobs.iter().all(|job| job.may_join(self.window));
        let killed_alone = self.window > 1 && jobs.iter().any(|job| job.evidence > 0);
        let rule_alone = "nobody_runs_beside_a_job_that_a_worker_died_of_alone";
        holds(rule_alone, !killed_alone, || format!("{sent:?}: {jobs:?}"))?;
        holds(rule, ok, || format!("{sent:?}: {jobs:?}"))
    }

    /// Only of the launch's own client is it known that it is not too far ahead of those who wait.
    pub(super) fn whoever_may_join_a_launch_of_his_client_does(
        &self,
        at: SeatId,
        sent: &[Assignment],
    ) -> Result<(), Broken> {
        let rule = "whoever_may_join_a_launch_of_his_client_does";
        let lead = &self.jobs[&sent[0].attempt.job];
        let cost = |job: &Job| job.request.cost;
        let front = self.seat(at).hands().first();
        let in_hand = match front {
            Some(front) if self.window > 1 => front.attempts.len(),
            Some(_) | None => sent.len(),
        };
        if !lead.may_join(self.window)
            || cost(lead) > self.config.join_cost_max
            || in_hand == self.launch_max()
        {
            return Ok(());
        }
        let jobs = sent.iter().map(|sent| &self.jobs[&sent.attempt.job]);
        let (total, own_inline) = jobs.fold((0, 0), |(total, bytes), job| {
            (total + cost(job), bytes + job.request.inline_bytes)
        });
        let inline = match front {
            Some(front) if self.window > 1 => front.inline_bytes(),
            Some(_) | None => own_inline,
        };
        let second = self.seat(at).hands().len() > 1;
        let short = if second { self.config.feed_cost_max } else { u64::MAX };
        let mut left_out = self.jobs.values().filter(|job| {
            job.client == lead.client
                && job.waits()
                && job.may_join(self.window)
                && self.seat(at).has_for(&job.request)
                && (self.window > 1 || job.request.program_hash == lead.request.program_hash)
                && job.group == lead.group
                && total + cost(job) <= self.config.join_cost_max.min(short)
                && inline + job.request.inline_bytes <= JOIN_INLINE_BYTES_MAX as u64
                && (job.group != 0
                    || job.parts.iter().all(|part| part.failed_on != Some(at.device)))
        });
        let left_out = left_out.next();
        holds(rule, left_out.is_none(), || format!("{sent:?} without {left_out:?}"))
    }

    /// Attempts of one message to a worker.
    fn launch_max(&self) -> usize {
        if self.window > 1 { self.window } else { JOIN_MAX }
    }

    /// Whether others may run beside what a worker has in hand.
    pub(super) fn has_room(&self, now: Timestamp, seat: &Seat) -> bool {
        let State::Busy { hands } = &seat.state else { return false };
        let front = hands.front();
        front.may_lead && front.attempts.len() < self.window && !self.is_suspect(now, seat)
    }

    pub(super) fn who_runs_beside_others_may_and_fits(
        &self,
        now: Timestamp,
        at: SeatId,
        sent: &[Assignment],
        batch: &Batch,
    ) -> Result<(), Broken> {
        let rule = "who_runs_beside_others_may_and_fits";
        let front = self.seat(at).hands()[0].clone();
        let jobs = || sent.iter().map(|sent| &self.jobs[&sent.attempt.job]);
        let inline: u64 = jobs().map(|job| job.request.inline_bytes).sum();
        let ok = self.has_room(now, self.seat(at))
            && front.attempts.len() + sent.len() <= self.window
            && front.inline_bytes() + inline <= JOIN_INLINE_BYTES_MAX as u64
            && jobs().all(|job| job.may_join(self.window))
            && !jobs().next().is_some_and(Job::is_suspect);
        holds(rule, ok, || format!("{batch:?} beside {front:?}"))?;
        self.nobody_runs_beside_others_though_one_idles_that_may_take_him(now, sent)?;
        let rule = "who_runs_beside_others_goes_where_fewest_are";
        let parts = &self.jobs[&sent[0].attempt.job].parts;
        let part = parts.iter().find(|part| part.items == sent[0].part);
        let failed_on = part.and_then(|part| part.failed_on);
        let lead = &self.jobs[&sent[0].attempt.job].request;
        let load = |at: SeatId, seat: &Seat| {
            (Some(at.device) == failed_on, seat.hands()[0].attempts.len())
        };
        let least = self
            .seats()
            .filter(|(_, seat)| self.has_room(now, seat) && seat.has_for(lead))
            .filter(|(_, seat)| {
                let lead = lead.inline_bytes;
                seat.hands()[0].inline_bytes() + lead <= JOIN_INLINE_BYTES_MAX as u64
            })
            .filter(|(_, seat)| !self.may_be_held_up(seat, sent))
            .map(|(other, seat)| load(other, seat))
            .min();
        let own = load(at, self.seat(at));
        let ok = least.is_none_or(|least| own <= least);
        holds(rule, ok, || format!("{own:?} and not {least:?}"))
    }

    /// But one that is kept back from whoever idles, as he failed there and another comes, may join others.
    fn nobody_runs_beside_others_though_one_idles_that_may_take_him(
        &self,
        now: Timestamp,
        sent: &[Assignment],
    ) -> Result<(), Broken> {
        let rule = "nobody_runs_beside_others_though_one_idles_that_may_take_him";
        for (position, sent) in sent.iter().enumerate() {
            let job = &self.jobs[&sent.attempt.job];
            let kept_back = |at: SeatId| {
                let failed_there = job.parts.iter().any(|part| part.failed_on == Some(at.device));
                position > 0 && failed_there && self.another_is_near(at.device, job)
            };
            let idles = |(at, seat): &(SeatId, &Seat)| {
                self.is_idle(now, seat) && seat.has_for(&job.request) && !kept_back(*at)
            };
            let idle = self.seats().find(idles);
            holds(rule, idle.is_none(), || format!("{sent:?}: {idle:?}"))?;
        }
        Ok(())
    }

    /// Whether a job that waits may run beside what a worker has, wherever it was before.
    fn may_run_beside(&self, seat: &Seat, job: &Job) -> bool {
        let bytes = seat.hands()[0].inline_bytes() + job.request.inline_bytes;
        job.may_join(self.window)
            && !job.is_suspect()
            && job.request.cost <= self.config.join_cost_max
            && bytes <= JOIN_INLINE_BYTES_MAX as u64
            && job.waiting().all(|part| part.failed_on.is_none())
    }

    /// Whether somebody may be first at a worker who may not run beside what that has, so that nobody
    /// else does. Where all have the same models, that one would hold up all others as well.
    fn may_be_held_up(&self, seat: &Seat, sent: &[Assignment]) -> bool {
        let is_sent = |id: JobId| sent.iter().any(|sent| sent.attempt.job == id);
        let others = self.jobs.iter().filter(|&(&id, job)| job.waits() && !is_sent(id));
        let mut own = others.map(|(_, job)| job).filter(|job| seat.has_for(&job.request));
        self.has_models && own.any(|job| !self.may_run_beside(seat, job))
    }

    /// If all that a worker has the models for may run beside others and anywhere, whose turn it is does
    /// not matter, and whoever waits for another model holds up nobody.
    pub(super) fn a_worker_with_room_gets_more_if_only_such_wait_as_may_run_beside_others(
        &self,
        now: Timestamp,
    ) -> Result<(), Broken> {
        let rule = "a_worker_with_room_gets_more_if_only_such_wait_as_may_run_beside_others";
        if self.window == 1 {
            return Ok(());
        }
        for (at, seat) in self.seats().filter(|(_, seat)| self.has_room(now, seat)) {
            let waiting = self.jobs.values().filter(|job| job.waits());
            let mut own = waiting.filter(|job| seat.has_for(&job.request)).peekable();
            let some_wait = own.peek().is_some();
            let all_may = own.all(|job| self.may_run_beside(seat, job));
            holds(rule, !(some_wait && all_may), || format!("{}: {seat:?}", self.worker(at)))?;
        }
        Ok(())
    }

    /// Whether a worker may have a second batch.
    fn is_open(&self, now: Timestamp, seat: &Seat) -> bool {
        let State::Busy { hands } = &seat.state else { return false };
        let [front] = &hands.0[..] else { return false };
        front.cost <= self.config.feed_cost_max
            && front.may_lead
            && front.attempts.iter().all(|sent| sent.free_at.is_none())
            && !self.is_suspect(now, seat)
    }

    pub(super) fn a_second_batch_is_sent_if_nobody_idles_and_both_are_short(
        &self,
        now: Timestamp,
        at: SeatId,
        batch: &Batch,
    ) -> Result<(), Broken> {
        let rule = "a_second_batch_is_sent_if_nobody_idles_and_both_are_short";
        let ok = self.is_open(now, self.seat(at))
            && batch.cost <= self.config.feed_cost_max
            && !self.seats().any(|(_, seat)| self.is_idle(now, seat));
        holds(rule, ok, || format!("{batch:?} to {}: {:?}", self.worker(at), self.devices))
    }

    pub(super) fn a_second_batch_goes_where_least_is_outstanding(
        &self,
        now: Timestamp,
        at: SeatId,
        sent: &[Assignment],
    ) -> Result<(), Broken> {
        let rule = "a_second_batch_goes_where_least_is_outstanding";
        let parts = &self.jobs[&sent[0].attempt.job].parts;
        let part = parts.iter().find(|part| part.items == sent[0].part);
        let failed_on = part.and_then(|part| part.failed_on);
        // One that is about to serve would take it sooner.
        let mut others = self.devices.iter().filter(|(id, _)| Some(**id) != failed_on);
        let lead = &self.jobs[&sent[0].attempt.job].request;
        let one_comes = others.any(|(_, device)| device.is_near(lead));
        let load = |seat: &Seat| seat.hands()[0].cost;
        let open = self
            .seats()
            .filter(|(other, seat)| Some(other.device) != failed_on && self.is_open(now, seat));
        let least = open.map(|(_, seat)| load(seat)).min();
        let ok = least == Some(load(self.seat(at))) && !one_comes;
        holds(rule, ok, || format!("{sent:?} to {}: {:?}", self.worker(at), self.devices))
    }

    pub(super) fn what_is_sent_early_may_be_taken_back(
        &self,
        sent: &[Assignment],
    ) -> Result<(), Broken> {
        let rule = "what_is_sent_early_may_be_taken_back";
        let again = |sent: &Assignment| self.jobs[&sent.attempt.job].request.idempotent;
        holds(rule, sent.iter().all(again), || format!("{sent:?}"))
    }

    /// If all that waits is short and may go anywhere, whose turn it is does not matter.
    pub(super) fn a_worker_that_may_have_a_second_batch_gets_one_if_only_such_wait(
        &self,
        now: Timestamp,
    ) -> Result<(), Broken> {
        let rule = "a_worker_that_may_have_a_second_batch_gets_one_if_only_such_wait";
        if self.window > 1 {
            return Ok(());
        }
        let mut waiting = self.jobs.values().filter(|job| job.waits()).peekable();
        let Some(&first) = waiting.peek() else { return Ok(()) };
        let all_short = waiting.all(|job| {
            job.request.idempotent
                && job.part_cost_max() <= self.config.feed_cost_max
                && job.waiting().all(|part| part.failed_on.is_none())
        });
        let is_idle = self.seats().any(|(_, seat)| self.is_idle(now, seat));
        let is_open = self.seats().any(|(_, seat)| self.is_open(now, seat));
        // Nobody asks for models here.
        let one_comes = self.devices.values().any(|device| device.is_near(&first.request));
        let unused = all_short && !is_idle && is_open && !one_comes;
        holds(rule, !unused, || format!("{:?}", self.devices))
    }
}
