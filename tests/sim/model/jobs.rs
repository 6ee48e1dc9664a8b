//! What becomes of a job: attempts, evidence, its one verdict and the receipt.

use gridpool::pool::event::{JobRequest, Timestamp};
use gridpool_protocol::ids::{AttemptId, ClientId, DeviceId, JobId, JobKey, WorkerId};
use gridpool_protocol::message::AttemptError;
use gridpool_protocol::receipt::{AttemptOutcome, Receipt, RunReport, Verdict};

use super::devices::State;
use super::{Broken, Model, Remembered, Reply, holds};

/// Device errors that one job may meet before it fails.
const DEVICE_ERRORS_MAX: u32 = 2;

/// One accepted job.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) client: ClientId,
    pub(super) request: JobRequest,
    pub(super) orphaned: bool,
    pub(super) deadline: Timestamp,
    pub(super) running: Option<WorkerId>,
    pub(super) begun: u32,
    pub(super) evidence: u32,
    /// Where its last attempt failed.
    pub(super) failed_on: Option<DeviceId>,
    pub(super) first_dispatch: Option<Timestamp>,
    accepted: Timestamp,
    device_errors: u32,
    item_errors: u32,
    attempts: Vec<(WorkerId, AttemptOutcome)>,
}

impl Job {
    pub(super) fn new(now: Timestamp, client: ClientId, request: JobRequest) -> Self {
        Self {
            client,
            orphaned: false,
            deadline: now.after(request.deadline),
            running: None,
            begun: 0,
            evidence: 0,
            failed_on: None,
            first_dispatch: None,
            accepted: now,
            device_errors: 0,
            item_errors: 0,
            attempts: Vec::new(),
            request,
        }
    }
}

impl Model {
    /// The worker runs `attempt` no more, and this is what it said of it.
    pub(super) fn attempt_answered(
        &mut self,
        attempt: AttemptId,
        worker: WorkerId,
        result: &Result<RunReport, AttemptError>,
        now: Timestamp,
    ) {
        let Some(job) = self.jobs.get_mut(&attempt.job) else {
            self.coverage.hit("answer: after its job's verdict");
            return;
        };
        if job.deadline == now {
            self.coverage.hit("answer: at the deadline");
        }
        match result {
            Ok(report) => {
                job.attempts.push((worker, AttemptOutcome::Ok));
                job.item_errors = report.item_errors;
                self.end(attempt.job, Verdict::Ok);
            }
            Err(AttemptError::Refused(_)) => {
                self.coverage.hit("answer: refused");
                job.attempts.push((worker, AttemptOutcome::Refused));
                self.end(attempt.job, Verdict::Failed);
            }
            Err(AttemptError::Device(_)) => {
                self.coverage.hit("answer: device error");
                job.device_errors += 1;
                self.attempt_failed(attempt, worker, AttemptOutcome::DeviceError, false);
            }
        }
    }

    /// The attempt gave nothing: the job runs again or ends.
    pub(super) fn attempt_failed(
        &mut self,
        attempt: AttemptId,
        worker: WorkerId,
        outcome: AttemptOutcome,
        evidence: bool,
    ) {
        let Some(job) = self.jobs.get_mut(&attempt.job) else { return };
        job.attempts.push((worker, outcome));
        job.evidence += u32::from(evidence);
        job.failed_on = Some(worker.device);
        let verdict = if job.orphaned {
            self.coverage.hit("retry: job of a client that is gone");
            Verdict::Cancelled
        } else if job.evidence >= self.config.poison_deaths {
            Verdict::Poison
        } else if !job.request.idempotent {
            self.coverage.hit("retry: may not run twice");
            Verdict::Failed
        } else if job.device_errors >= DEVICE_ERRORS_MAX {
            Verdict::Failed
        } else if job.begun >= self.config.attempts_max {
            self.coverage.hit("retry: last attempt");
            Verdict::Failed
        } else {
            job.running = None;
            self.retries += 1;
            let job = &self.jobs[&attempt.job];
            self.fair.waits(job.client, &job.request);
            if self.fair.waiting() > self.config.queue_jobs_max {
                self.coverage.hit("retry: queue above its limit");
            }
            return;
        };
        self.end(attempt.job, verdict);
    }

    pub(super) fn jobs_are_late(&mut self, now: Timestamp) {
        let late: Vec<_> =
            self.jobs.iter().filter(|(_, job)| job.deadline <= now).map(|(&id, _)| id).collect();
        for id in late {
            let job = &self.jobs[&id];
            self.coverage.hit(match job.running {
                None if job.accepted == now => "deadline: at submission",
                None => "deadline: queued",
                Some(worker) => match self.devices[&worker.device].state {
                    State::Killed { .. } => "deadline: while its worker is being killed",
                    State::Absent
                    | State::Busy { .. }
                    | State::Quarantined
                    | State::Ready
                    | State::Starting { .. }
                    | State::Stopping { .. }
                    | State::Unkillable { .. } => "deadline: running",
                },
            });
            self.cut_off(id, now, AttemptOutcome::Deadline);
            self.end(id, Verdict::Deadline);
        }
    }

    pub(super) fn jobs_have_no_device(&mut self) {
        if self.devices.values().any(super::Device::may_serve) {
            return;
        }
        let waiting: Vec<_> =
            self.jobs.iter().filter(|(_, job)| job.running.is_none()).map(|(&id, _)| id).collect();
        for id in waiting {
            self.end(id, Verdict::DeviceLost);
        }
    }

    pub(super) fn cut_off_all(&mut self, now: Timestamp) {
        for id in self.jobs.keys().copied().collect::<Vec<_>>() {
            self.cut_off(id, now, AttemptOutcome::Cancelled);
            self.end(id, Verdict::Cancelled);
        }
    }

    /// The job ends before its attempt does; its device must be free at `free_at`.
    pub(super) fn cut_off(&mut self, id: JobId, free_at: Timestamp, outcome: AttemptOutcome) {
        let job = self.jobs.get_mut(&id).expect("it is live");
        let Some(worker) = job.running else { return };
        job.attempts.push((worker, outcome));
        let device = self.devices.get_mut(&worker.device).expect("devices stay");
        device.frees(free_at);
    }

    /// From here on a verdict is due.
    pub(super) fn end(&mut self, id: JobId, verdict: Verdict) {
        let job = self.jobs.remove(&id).expect("it is live");
        if job.running.is_none() {
            self.fair.leaves(job.client, &job.request);
        }
        let verdict = if job.orphaned { Verdict::Cancelled } else { verdict };
        let (counter, name) = match verdict {
            Verdict::Cancelled => (&mut self.counters.cancelled, "verdict CANCELLED"),
            Verdict::Deadline => (&mut self.counters.deadline, "verdict DEADLINE"),
            Verdict::DeviceLost => (&mut self.counters.device_lost, "verdict DEVICE_LOST"),
            Verdict::Failed => (&mut self.counters.failed, "verdict FAILED"),
            Verdict::Ok => (&mut self.counters.ok, "verdict OK"),
            Verdict::Poison => (&mut self.counters.poison, "verdict POISON"),
        };
        *counter += 1;
        self.coverage.hit(name);
        self.due.verdicts.insert(id, (job, verdict));
    }

    fn remember(&mut self, request: &JobRequest, verdict: Verdict) {
        let (program_hash, items) = (request.program_hash.clone(), request.items);
        self.memory.insert(request.key, Remembered { program_hash, items, verdict });
        self.memory_order.push_back(request.key);
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
        if !job.orphaned {
            self.remember(&job.request, verdict);
        }
        self.an_acceptance_comes_before_the_verdict(client, key)?;
        a_verdict_is_the_one_that_the_events_call_for(id, verdict, receipt)?;
        self.a_deadline_verdict_comes_at_the_deadline(now, id, &job, receipt)?;
        a_client_that_is_gone_is_told_nothing(id, &job, client)?;
        a_receipt_tells_what_happened(now, id, key, &job, receipt)
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
            } else if self.accepted.contains(&id) {
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
        key: JobKey,
    ) -> Result<(), Broken> {
        let rule = "an_acceptance_comes_before_the_verdict";
        let unsaid =
            client.is_some_and(|client| self.due.reply == Some(Reply::Accept(client, key)));
        holds(rule, !unsaid, || format!("key {}", key.0))
    }
}

fn a_verdict_is_the_one_that_the_events_call_for(
    id: JobId,
    due: Verdict,
    receipt: &Receipt,
) -> Result<(), Broken> {
    let rule = "a_verdict_is_the_one_that_the_events_call_for";
    let given = receipt.verdict;
    holds(rule, given == due, || format!("{id} got {given}, {due} is due"))
}

fn a_client_that_is_gone_is_told_nothing(
    id: JobId,
    job: &Job,
    told: Option<ClientId>,
) -> Result<(), Broken> {
    let rule = "a_client_that_is_gone_is_told_nothing";
    let due = (!job.orphaned).then_some(job.client);
    holds(rule, told == due, || format!("{id}: {told:?} was told and not {due:?}"))
}

fn a_receipt_tells_what_happened(
    now: Timestamp,
    id: JobId,
    key: JobKey,
    job: &Job,
    receipt: &Receipt,
) -> Result<(), Broken> {
    let rule = "a_receipt_tells_what_happened";
    let seen: Vec<_> = job.attempts.iter().map(|(w, outcome)| (w.to_string(), *outcome)).collect();
    let told: Vec<_> = receipt.attempts.iter().map(|a| (a.worker.clone(), a.outcome)).collect();
    holds(rule, told == seen, || format!("{id}: told {told:?}, seen {seen:?}"))?;
    let elsewhere = receipt.attempts.iter().find(|a| a.device.name != a.worker);
    holds(rule, elsewhere.is_none(), || format!("{id}: not its worker's device: {elsewhere:?}"))?;
    let micros = |from: Timestamp, to: Timestamp| to.since(from).as_micros();
    let queue_us = micros(job.accepted, job.first_dispatch.unwrap_or(now));
    let total_us = micros(job.accepted, now);
    let ok = receipt.job == id.to_string()
        && key == job.request.key
        && receipt.key == key.to_string()
        && receipt.program_hash == job.request.program_hash
        && receipt.items == job.request.items
        && receipt.item_errors == job.item_errors
        && u128::from(receipt.queue_us) == queue_us
        && u128::from(receipt.total_us) == total_us
        && receipt.reason.is_empty() == (receipt.verdict == Verdict::Ok);
    holds(rule, ok, || format!("{id}: {receipt:?}, waited {queue_us} in all {total_us}"))
}
