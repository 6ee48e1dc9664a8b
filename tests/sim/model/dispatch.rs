//! Which job may run where. `sharing` has the rules for jobs beside and behind others.

use std::time::Duration;

use gridpool_core::action::Assignment;
use gridpool_core::event::Timestamp;
use gridpool_protocol::ids::{AttemptId, DeviceId, Group, WorkerId};
use gridpool_protocol::receipt::ItemRange;

use super::jobs::{Job, Shard};
use super::outstanding::{Dispatch, Outstanding, Sent};
use super::slots::{Slot, SlotId, State, Station};
use super::{Broken, Model, holds};

impl Model {
    pub(super) fn dispatched(
        &mut self,
        now: Timestamp,
        worker: WorkerId,
        sent: &[Assignment],
    ) -> Result<(), Broken> {
        let rule = "a_dispatch_is_not_empty";
        let lead = sent.first().ok_or_else(|| Broken { rule, detail: worker.to_string() })?;
        let at = self.only_a_ready_worker_of_this_generation_gets_a_job(worker)?;
        self.a_vacated_device_gets_no_dispatch(worker)?;
        let second = self.slot(at).state != State::Ready;
        let (group, limits) = (worker.group, self.group(worker.group).limits);
        let many = self.group(group).is_concurrent();
        self.a_suspect_gets_no_job(now, at)?;
        let mut dispatch = Dispatch {
            sent: sent.len(),
            since: now,
            divided: now,
            progressed: (!many).then_some(now),
            may_lead: true,
            ..Dispatch::default()
        };
        for (position, &Assignment { attempt, shard, drop_after }) in sent.iter().enumerate() {
            let job = self.a_job_without_acceptance_or_with_a_verdict_never_runs(attempt)?;
            self.no_job_begins_whose_principal_has_spent_its_kills(now, job)?;
            let inline_bytes = job.request.inline_bytes;
            let cost = job.cost(shard);
            let (free_at, moved, spent) = (None, false, 0);
            dispatch.attempts.push(Sent { attempt, inline_bytes, cost, spent, free_at, moved });
            dispatch.cost += cost;
            dispatch.cost_max = dispatch.cost_max.max(cost);
            let shares = job.may_join(many) && job.request.cost <= limits.join_cost_max;
            dispatch.may_lead &= job.request.idempotent && !job.is_suspect();
            dispatch.may_lead &= !many || shares;
            dispatch.has_suspects |= job.is_suspect();
            a_worker_drops_an_attempt_after_its_deadline(now, job, drop_after)?;
            self.an_attempt_may_begin(now, worker, attempt, shard)?;
            self.a_request_goes_to_a_worker_that_has_its_model(at, attempt)?;
            if position > 0 {
                self.no_job_joins_on_the_device_where_its_last_attempt_failed(
                    worker, attempt, shard,
                )?;
            } else {
                self.a_retried_shard_avoids_the_device_it_failed_on_while_another_will_soon_serve(
                    worker, attempt, shard,
                )?;
            }
        }
        self.a_joined_dispatch_has_one_program_and_keeps_its_limits(sent, &dispatch)?;
        if second && many {
            self.an_attempt_beside_others_is_allowed_and_fits(now, at, sent, &dispatch)?;
        } else if second {
            self.a_second_dispatch_is_sent_only_if_no_worker_idles_and_both_are_short(
                now, at, &dispatch,
            )?;
            self.a_second_dispatch_goes_to_the_least_loaded_worker(now, at, sent)?;
            self.only_idempotent_jobs_wait_behind_a_dispatch(sent)?;
            self.no_small_shard_waits_behind_a_large_one_of_others(at, lead)?;
        }
        self.note_workers_without_the_model(now, lead.attempt, second);
        self.note_dispatch(at, second, dispatch);

        // A retried shard may wait for another device, so others may overtake it.
        let retries = self.group(group).retries;
        let nothing_is_kept_back = self.facts.len() == 1 || retries == 0;
        let no_other_client_waits = self.is_the_only_client(lead);
        let job = &self.jobs[&lead.attempt.job];
        let fresh = |id| {
            let job = &self.jobs[&id];
            (retries == 0 || job.begun == 0) && self.slot(at).has_for(&job.request)
        };
        let fair = &self.group(group).fair;
        fair.a_clients_jobs_go_by_priority_and_then_in_order(job, fresh)?;
        for &Assignment { attempt, shard, .. } in sent {
            self.begins(now, worker, attempt, shard)?;
        }
        // A job whose model is nowhere, or without capacity, waits for other reasons than its turn.
        let one_for_all = nothing_is_kept_back && group == Group::Grid;
        if one_for_all {
            self.group(group).fair.nobody_starves(limits.join_cost_max)?;
        }
        if one_for_all || no_other_client_waits {
            self.a_job_that_may_join_a_dispatch_of_its_client_does(at, sent)?;
        }
        Ok(())
    }

    /// Whether all waiting jobs are of this job's client.
    fn is_the_only_client(&self, lead: &Assignment) -> bool {
        let own = &self.jobs[&lead.attempt.job];
        let waits = |job: &&Job| job.group == own.group && job.waits();
        let is_own =
            |job: &Job| job.client == own.client && job.request.principal == own.request.principal;
        self.jobs.values().filter(waits).all(is_own)
    }

    fn note_dispatch(&mut self, at: SlotId, second: bool, dispatch: Dispatch) {
        let members = dispatch.attempts.len();
        let several_at_a_time = self.group(at.group()).is_concurrent();
        match (second, members) {
            (true, _) if several_at_a_time => self.coverage.hit("dispatch: beside other attempts"),
            (true, 1) => self.coverage.hit("dispatch: second dispatch"),
            (true, _) => self.coverage.hit("dispatch: joined as second dispatch"),
            (false, 1) => {}
            (false, _) => self.coverage.hit("dispatch: joined"),
        }
        if self.devices[&at.station].siblings(at.number).any(Slot::has_process) {
            self.coverage.hit("dispatch: beside another process of the device");
        }
        let slot = self.slot_mut(at);
        if let State::Busy { outstanding } = &mut slot.state {
            match outstanding.0.first_mut() {
                Some(front) if several_at_a_time => front.grows_by(dispatch),
                Some(_) | None => outstanding.0.push(dispatch),
            }
        } else {
            slot.state = State::Busy { outstanding: Outstanding(vec![dispatch]) };
        }
        if std::mem::take(&mut slot.was_suspect) {
            self.coverage.hit("dispatch: worker that was suspect before");
        }
        self.counters.attempts += members as u64;
        self.counters.runs += 1;
        self.counters.joined += if members > 1 { members as u64 } else { 0 };
    }

    /// What must hold for each attempt, whatever runs beside it.
    fn an_attempt_may_begin(
        &self,
        now: Timestamp,
        worker: WorkerId,
        attempt: AttemptId,
        items: ItemRange,
    ) -> Result<(), Broken> {
        let job = &self.jobs[&attempt.job];
        attempts_are_numbered_from_one(attempt, job)?;
        a_job_that_must_not_run_twice_is_dispatched_once(attempt, job)?;
        a_job_that_is_late_is_not_started(now, attempt, job)?;
        self.a_job_with_evidence_of_poison_is_not_retried(attempt, job)?;
        self.no_two_processes_write_the_same_result(worker, attempt, items)?;
        let Some(shard) = job.shards.iter().find(|shard| shard.items == items) else {
            return shards_are_equal_and_come_in_order_without_gap_or_overlap(attempt, job, items);
        };
        a_shard_runs_on_one_worker_at_a_time_until_it_is_answered(attempt, shard)?;
        self.a_shard_has_at_most_attempts_max_attempts(attempt, shard)
    }

    fn begins(
        &mut self,
        now: Timestamp,
        worker: WorkerId,
        attempt: AttemptId,
        items: ItemRange,
    ) -> Result<(), Broken> {
        let job = self.jobs.get_mut(&attempt.job).expect("it was just found");
        job.begun += 1;
        job.first_dispatch.get_or_insert(now);
        if job.request.is_bundle() {
            self.coverage.hit("bundle: runs");
        }
        if job.shards_due > 1 {
            self.coverage.hit("dispatch: a shard");
        }
        if job.suspects != 0 {
            self.coverage.hit("dispatch: suspect after a shared death or a long wait");
        }
        let at = job.shards.iter().position(|shard| shard.items == items);
        let at = at.unwrap_or_else(|| {
            job.shards.push(Shard {
                items,
                running: None,
                makes_room: false,
                made_room: 0,
                answered: false,
                tries: 0,
                device_errors: 0,
                failed_on: None,
            });
            job.shards.len() - 1
        });
        let shard = &mut job.shards[at];
        shard.running = Some((attempt, worker));
        shard.makes_room = false;
        shard.tries += 1;
        self.coverage.hit(match shard.failed_on {
            None => "dispatch",
            Some(device) if device == worker.device => "dispatch: again on the same device",
            Some(_) => "dispatch: again on another device",
        });
        let fair = &mut self.groups.get_mut(&worker.group).expect("groups stay").fair;
        if !job.waits() {
            fair.leaves(job);
        }
        let (principal, client) = fair.serves(job, job.cost(items));
        if principal {
            self.coverage.hit("fairness: another principal waited");
        }
        if client {
            self.coverage.hit("fairness: another client of the principal waited");
        }
        self.writes(worker, attempt, items);
        Ok(())
    }

    fn a_job_without_acceptance_or_with_a_verdict_never_runs(
        &self,
        attempt: AttemptId,
    ) -> Result<&Job, Broken> {
        let rule = "a_job_without_acceptance_or_with_a_verdict_never_runs";
        let job = self.jobs.get(&attempt.job).filter(|job| job.waits());
        job.ok_or_else(|| Broken { rule, detail: format!("{attempt} was dispatched") })
    }

    fn a_shard_has_at_most_attempts_max_attempts(
        &self,
        attempt: AttemptId,
        shard: &Shard,
    ) -> Result<(), Broken> {
        let rule = "a_shard_has_at_most_attempts_max_attempts";
        holds(rule, shard.tries < self.config.attempts_max, || attempt.to_string())
    }

    fn a_job_with_evidence_of_poison_is_not_retried(
        &self,
        attempt: AttemptId,
        job: &Job,
    ) -> Result<(), Broken> {
        let rule = "a_job_with_evidence_of_poison_is_not_retried";
        holds(rule, job.evidence < self.deaths_max(job), || attempt.to_string())
    }

    fn a_retried_shard_avoids_the_device_it_failed_on_while_another_will_soon_serve(
        &self,
        worker: WorkerId,
        attempt: AttemptId,
        items: ItemRange,
    ) -> Result<(), Broken> {
        let rule = "a_retried_shard_avoids_the_device_it_failed_on_while_another_will_soon_serve";
        let mut shards = self.jobs[&attempt.job].shards.iter();
        let shard = shards.find(|shard| shard.items == items);
        let same = shard.is_some_and(|shard| shard.failed_on == Some(worker.device));
        holds(rule, !same || !self.another_is_near(worker.device, &self.jobs[&attempt.job]), || {
            format!("{attempt} went to {worker} again")
        })
    }

    /// Whether another device will soon be able to take the job.
    pub(super) fn another_is_near(&self, than: DeviceId, job: &Job) -> bool {
        let own = self.devices.iter().filter(|(at, _)| at.group == job.group);
        let mut others = own.filter(|(at, _)| at.device != than);
        others.any(|(_, device)| device.is_near(&job.request))
    }

    fn only_a_ready_worker_of_this_generation_gets_a_job(
        &self,
        worker: WorkerId,
    ) -> Result<SlotId, Broken> {
        let rule = "only_a_ready_worker_of_this_generation_gets_a_job";
        let at = self.slot_of(worker).ok_or_else(|| {
            let detail = format!("{worker}: {:?}", self.devices[&Station::of(worker)]);
            Broken { rule, detail }
        })?;
        let slot = self.slot(at);
        holds("a_standby_gets_no_job", slot.state != State::Standby, || worker.to_string())?;
        holds(rule, slot.serves(), || format!("{worker}: {slot:?}"))?;
        Ok(at)
    }

    fn a_suspect_gets_no_job(&self, now: Timestamp, at: SlotId) -> Result<(), Broken> {
        let slot = self.slot(at);
        holds("a_suspect_gets_no_job", !self.is_suspect(now, slot), || {
            format!("{} was last heard at {}", self.worker(at), slot.heard)
        })
    }

    pub(super) fn is_suspect(&self, now: Timestamp, slot: &Slot) -> bool {
        now.since(slot.heard) >= self.config.heartbeat_suspect
    }

    pub(super) fn is_idle(&self, now: Timestamp, slot: &Slot) -> bool {
        slot.state == State::Ready && !self.is_suspect(now, slot)
    }

    /// Checked after all actions of the event.
    pub(super) fn no_device_is_idle_while_a_job_that_may_go_there_waits(
        &mut self,
        now: Timestamp,
    ) -> Result<(), Broken> {
        let rule = "no_device_is_idle_while_a_job_that_may_go_there_waits";
        let waits = |job: &&Job| job.waits() && !self.is_held(now, job);
        let waiting: Vec<_> = self.jobs.values().filter(waits).collect();
        let mut suspects = Vec::new();
        for (at, slot) in self.slots() {
            if slot.state != State::Ready {
                continue;
            }
            if self.is_suspect(now, slot) {
                suspects.push(at);
                continue;
            }
            let id = at.device();
            let idles = |job: &&&Job| {
                let kept_back =
                    |shard: &Shard| shard.failed_on == Some(id) && self.another_is_near(id, job);
                slot.has_for(&job.request)
                    && (job.has_fresh_shard() || !job.waiting().all(kept_back))
            };
            let left = waiting.iter().filter(|job| job.group == at.group()).find(idles);
            holds(rule, left.is_none(), || format!("{left:?} waits and {id} idles"))?;
        }
        if !suspects.is_empty() && !waiting.is_empty() {
            self.coverage.hit("suspect: a job waits although a worker is READY");
        }
        for at in suspects {
            self.slot_mut(at).was_suspect = true;
        }
        Ok(())
    }
}

fn shards_are_equal_and_come_in_order_without_gap_or_overlap(
    attempt: AttemptId,
    job: &Job,
    items: ItemRange,
) -> Result<(), Broken> {
    let rule = "shards_are_equal_and_come_in_order_without_gap_or_overlap";
    let least = job.request.items / job.shards_due;
    let is_last = job.shards.len() + 1 == job.shards_due as usize;
    let ok = job.shards.len() < job.shards_due as usize
        && items.start == job.shards.last().map_or(0, |shard| shard.items.end)
        && (least..=least + 1).contains(&items.len())
        && is_last == (items.end == job.request.items);
    holds(rule, ok, || format!("{attempt} of {items:?} after {job:?}"))
}

fn a_shard_runs_on_one_worker_at_a_time_until_it_is_answered(
    attempt: AttemptId,
    shard: &Shard,
) -> Result<(), Broken> {
    let rule = "a_shard_runs_on_one_worker_at_a_time_until_it_is_answered";
    holds(rule, shard.running.is_none() && !shard.answered, || {
        format!("{attempt} beside {shard:?}")
    })
}

fn attempts_are_numbered_from_one(attempt: AttemptId, job: &Job) -> Result<(), Broken> {
    let rule = "attempts_are_numbered_from_one";
    holds(rule, attempt.number == job.begun + 1, || format!("{attempt} after {}", job.begun))
}

fn a_job_that_must_not_run_twice_is_dispatched_once(
    attempt: AttemptId,
    job: &Job,
) -> Result<(), Broken> {
    let rule = "a_job_that_must_not_run_twice_is_dispatched_once";
    holds(rule, job.request.idempotent || job.begun == 0, || attempt.to_string())
}

fn a_job_that_is_late_is_not_started(
    now: Timestamp,
    attempt: AttemptId,
    job: &Job,
) -> Result<(), Broken> {
    let rule = "a_job_that_is_late_is_not_started";
    holds(rule, now < job.deadline, || format!("{attempt} at {now}, deadline {}", job.deadline))
}

/// A little later, so that it never drops an attempt of a job without a verdict.
fn a_worker_drops_an_attempt_after_its_deadline(
    now: Timestamp,
    job: &Job,
    drop_after: Duration,
) -> Result<(), Broken> {
    let rule = "a_worker_drops_an_attempt_after_its_deadline";
    let due = job.deadline.after(Duration::from_millis(50));
    holds(rule, now.after(drop_after) == due, || format!("after {drop_after:?}, due {due}"))
}
