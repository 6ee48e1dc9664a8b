//! The one verdict of a job, its receipt, and the memory of it by key.

use gridpool_core::event::{JobRequest, Timestamp};
use gridpool_protocol::ids::{ClientId, JobId, JobKey};
use gridpool_protocol::receipt::{AttemptOutcome, Receipt, Verdict};

use super::jobs::Job;
use super::{Broken, Model, Reply, holds};

/// The job of a key, and its verdict.
#[derive(Clone, Debug)]
pub(super) struct Remembered {
    pub(super) job: JobId,
    pub(super) fingerprint: u64,
    pub(super) verdict: Verdict,
}

impl Model {
    fn remember(&mut self, request: &JobRequest, verdict: Verdict) {
        let fingerprint = request.fingerprint;
        let remembered = Remembered { job: request.job, fingerprint, verdict };
        let name = (request.principal.clone(), request.key);
        self.memory.insert(name.clone(), remembered);
        self.memory_order.push_back(name);
        while self.memory_order.len() > self.config.verdicts_kept {
            let oldest = self.memory_order.pop_front().expect("it is too long");
            self.memory.remove(&oldest);
            self.forgotten.insert(oldest);
        }
    }

    pub(super) fn finished(
        &mut self,
        now: Timestamp,
        client: Option<ClientId>,
        id: JobId,
        key: JobKey,
        receipt: &Receipt,
    ) -> Result<(), Broken> {
        self.a_job_gets_one_verdict_and_only_if_it_was_accepted(id, receipt.verdict)?;
        let (job, verdict) = self.due.verdicts.remove(&id).expect("the rule holds");
        self.the_successor_is_told_before_the_client(&job)?;
        let is_given_back = self.was_given_back(id);
        let goes_apart = self.due.apart.contains(&id);
        if !is_given_back && !goes_apart && !job.orphaned {
            self.remember(&job.request, verdict);
        }
        self.remember_verdict(id, &job, verdict);
        self.account_of(&job.request.principal).done += job.count();
        self.an_acceptance_comes_before_the_verdict(client, id, key)?;
        a_verdict_follows_from_the_events(id, verdict, receipt)?;
        self.a_payload_is_hashed_before_it_is_forgotten(id)?;
        self.a_job_is_poison_only_after_poison_deaths_deaths_alone(id, &job, verdict)?;
        self.a_deadline_verdict_comes_at_the_deadline(now, id, &job, receipt)?;
        let is_quiet = goes_apart || is_given_back && self.is_quiet(job.client);
        a_client_that_is_gone_gets_no_message(id, &job, client, is_quiet)?;
        every_item_of_an_ok_job_was_answered_by_exactly_one_attempt(id, &job, receipt)?;
        a_receipt_shows_what_happened(now, id, key, &job, receipt)?;
        self.a_receipt_names_the_capsules_of_its_deaths(id, &job, receipt)
    }

    fn a_job_gets_one_verdict_and_only_if_it_was_accepted(
        &self,
        id: JobId,
        verdict: Verdict,
    ) -> Result<(), Broken> {
        let rule = "a_job_gets_one_verdict_and_only_if_it_was_accepted";
        holds(rule, self.due.verdicts.contains_key(&id), || {
            let state = if self.jobs.contains_key(&id) {
                "is live and no verdict is due"
            } else if self.accepted.contains_key(&id) {
                "has its verdict already"
            } else {
                "was never accepted"
            };
            format!("{id} got {verdict}; it {state}")
        })
    }

    fn a_deadline_verdict_comes_at_the_deadline(
        &mut self,
        now: Timestamp,
        id: JobId,
        job: &Job,
        receipt: &Receipt,
    ) -> Result<(), Broken> {
        let rule = "a_deadline_verdict_comes_at_the_deadline";
        let late = self.late && now > job.deadline;
        if receipt.verdict != Verdict::Deadline {
            return Ok(());
        }
        if late {
            self.coverage.hit("pause: late verdict");
        }
        holds(rule, late || now == job.deadline, || format!("{id} was due at {}", job.deadline))
    }

    fn an_acceptance_comes_before_the_verdict(
        &self,
        client: Option<ClientId>,
        id: JobId,
        key: JobKey,
    ) -> Result<(), Broken> {
        let rule = "an_acceptance_comes_before_the_verdict";
        let is_due = |client| self.due.replies.contains(&Reply::Accept(client, id, key));
        let unsaid = client.is_some_and(is_due);
        holds(rule, !unsaid, || format!("key {}", key.0))
    }
}

fn a_verdict_follows_from_the_events(
    id: JobId,
    due: Verdict,
    receipt: &Receipt,
) -> Result<(), Broken> {
    let rule = "a_verdict_follows_from_the_events";
    let given = receipt.verdict;
    holds(rule, given == due, || format!("{id} got {given}, {due} is due"))
}

fn a_client_that_is_gone_gets_no_message(
    id: JobId,
    job: &Job,
    told: Option<ClientId>,
    is_quiet: bool,
) -> Result<(), Broken> {
    let rule = "a_client_that_is_gone_gets_no_message";
    let due = (!job.orphaned && !is_quiet).then_some(job.client);
    holds(rule, told == due, || format!("{id}: {told:?} was given and not {due:?}"))
}

fn a_receipt_shows_what_happened(
    now: Timestamp,
    id: JobId,
    key: JobKey,
    job: &Job,
    receipt: &Receipt,
) -> Result<(), Broken> {
    let rule = "a_receipt_shows_what_happened";
    let seen =
        job.attempts.iter().map(|&(worker, outcome, shard)| (worker.to_string(), outcome, shard));
    let told = receipt.attempts.iter().map(|a| (a.worker.to_string(), a.outcome, a.part));
    let (seen, told): (Vec<_>, Vec<_>) = (seen.collect(), told.collect());
    holds(rule, told == seen, || format!("{id}: told {told:?}, seen {seen:?}"))?;
    let elsewhere = receipt.attempts.iter().find(|a| *a.device.name != *a.worker);
    holds(rule, elsewhere.is_none(), || format!("{id}: not its worker's device: {elsewhere:?}"))?;
    let micros = |from: Timestamp, to: Timestamp| to.since(from).as_micros();
    let queue_us = micros(job.accepted, job.first_dispatch.unwrap_or(now));
    let total_us = micros(job.accepted, now);
    let ok = receipt.job == id.to_string()
        && key == job.request.key
        && receipt.key == key.to_string()
        && *receipt.program_hash == *job.request.work.to_string()
        && receipt.trace_id == job.request.trace.map(|trace| trace.to_string()).unwrap_or_default()
        && receipt.items == job.request.items
        && receipt.item_errors == job.item_errors
        && u128::from(receipt.queue_us) == queue_us
        && u128::from(receipt.total_us) == total_us
        && receipt.reason.is_empty() == (receipt.verdict == Verdict::Ok);
    holds(rule, ok, || format!("{id}: {receipt:?}, waited {queue_us} in all {total_us}"))?;
    // The oldest attempt may be left out of a long history, and the first to begin need not be the first to end.
    let begun = receipt.attempts.iter().map(|a| a.begun_us).min();
    let last = receipt.attempts.last().map(|a| a.ended_us);
    let ok = begun.is_none_or(|begun| begun == receipt.queue_us)
        && receipt.attempts.iter().all(|a| a.begun_us <= a.ended_us)
        && receipt.attempts.is_sorted_by_key(|a| a.ended_us)
        && last.is_none_or(|last| last <= receipt.total_us);
    holds(rule, ok, || format!("{id}: times of attempts: {receipt:?}"))
}

fn every_item_of_an_ok_job_was_answered_by_exactly_one_attempt(
    id: JobId,
    job: &Job,
    receipt: &Receipt,
) -> Result<(), Broken> {
    let rule = "every_item_of_an_ok_job_was_answered_by_exactly_one_attempt";
    if receipt.verdict != Verdict::Ok {
        return Ok(());
    }
    let ok = receipt.attempts.iter().filter(|attempt| attempt.outcome == AttemptOutcome::Ok);
    let mut shards: Vec<_> = ok.map(|attempt| (attempt.part.start, attempt.part.end)).collect();
    shards.sort_unstable();
    let end = shards.iter().try_fold(0, |at, &(start, end)| (start == at).then_some(end));
    holds(rule, end == Some(job.request.items), || format!("{id}: {shards:?}"))
}
