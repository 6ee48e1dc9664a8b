//! Who may run what, where.

use gridpool::pool::event::Timestamp;
use gridpool_protocol::ids::{AttemptId, WorkerId};

use super::devices::{Device, State};
use super::jobs::Job;
use super::{Broken, Model, holds};

impl Model {
    pub(super) fn dispatched(
        &mut self,
        now: Timestamp,
        worker: WorkerId,
        attempt: AttemptId,
    ) -> Result<(), Broken> {
        let job = self.a_job_without_acceptance_or_with_a_verdict_never_runs(attempt)?;
        let (client, request) = (job.client, job.request.clone());
        a_job_runs_on_one_worker_at_a_time(attempt, job)?;
        attempts_are_numbered_from_one(attempt, job)?;
        self.a_job_is_tried_no_more_often_than_attempts_max(attempt, job)?;
        self.a_job_with_evidence_of_poison_is_not_tried_again(attempt, job)?;
        a_job_that_may_not_run_twice_is_dispatched_once(attempt, job)?;
        a_job_that_is_late_is_not_started(now, attempt, job)?;
        self.a_retried_job_avoids_the_device_it_failed_on_while_another_is_near(worker, job)?;
        self.only_an_idle_ready_worker_of_this_generation_gets_a_job(worker)?;
        self.a_suspect_gets_no_job(now, worker)?;

        let failed_on = job.failed_on;
        let device = self.devices.get_mut(&worker.device).expect("devices stay");
        device.state = State::Busy { attempt, free_at: None };
        self.coverage.hit(match failed_on {
            None => "dispatch",
            Some(device) if device == worker.device => "dispatch: again on the same device",
            Some(_) => "dispatch: again on another device",
        });
        if std::mem::take(&mut device.was_suspect) {
            self.coverage.hit("dispatch: worker that was suspect before");
        }
        self.counters.attempts += 1;
        let job = self.jobs.get_mut(&attempt.job).expect("it was just found");
        job.running = Some(worker);
        job.begun += 1;
        job.first_dispatch.get_or_insert(now);

        // A job that was tried before may be kept back for another device, and may thus be overtaken.
        let nothing_is_kept_back = self.devices.len() == 1 || self.retries == 0;
        let fresh = |id| nothing_is_kept_back || self.jobs[&id].begun == 0;
        self.fair.a_clients_jobs_go_by_priority_and_then_in_order(client, &request, fresh)?;
        self.fair.leaves(client, &request);
        if self.fair.serves(client, request.cost) {
            self.coverage.hit("fairness: somebody else waited");
        }
        if nothing_is_kept_back {
            self.fair.nobody_is_passed_over_for_ever()?;
        }
        Ok(())
    }

    fn a_job_without_acceptance_or_with_a_verdict_never_runs(
        &self,
        attempt: AttemptId,
    ) -> Result<&Job, Broken> {
        let rule = "a_job_without_acceptance_or_with_a_verdict_never_runs";
        let job = self.jobs.get(&attempt.job);
        job.ok_or_else(|| Broken { rule, detail: format!("{attempt} was dispatched") })
    }

    fn a_job_is_tried_no_more_often_than_attempts_max(
        &self,
        attempt: AttemptId,
        job: &Job,
    ) -> Result<(), Broken> {
        let rule = "a_job_is_tried_no_more_often_than_attempts_max";
        holds(rule, job.begun < self.config.attempts_max, || attempt.to_string())
    }

    fn a_job_with_evidence_of_poison_is_not_tried_again(
        &self,
        attempt: AttemptId,
        job: &Job,
    ) -> Result<(), Broken> {
        let rule = "a_job_with_evidence_of_poison_is_not_tried_again";
        holds(rule, job.evidence < self.config.poison_deaths, || attempt.to_string())
    }

    fn a_retried_job_avoids_the_device_it_failed_on_while_another_is_near(
        &self,
        worker: WorkerId,
        job: &Job,
    ) -> Result<(), Broken> {
        let rule = "a_retried_job_avoids_the_device_it_failed_on_while_another_is_near";
        let same = job.failed_on == Some(worker.device);
        holds(rule, !same || !self.another_is_near(worker), || {
            format!("{} went to {worker} again", job.request.job)
        })
    }

    fn another_is_near(&self, worker: WorkerId) -> bool {
        let mut others = self.devices.iter().filter(|(id, _)| **id != worker.device);
        others.any(|(_, device)| device.is_near())
    }

    fn only_an_idle_ready_worker_of_this_generation_gets_a_job(
        &self,
        worker: WorkerId,
    ) -> Result<(), Broken> {
        let rule = "only_an_idle_ready_worker_of_this_generation_gets_a_job";
        let device = &self.devices[&worker.device];
        let ok = device.state == State::Ready && device.generation == worker.generation;
        holds(rule, ok, || format!("{worker}: {device:?}"))
    }

    fn a_suspect_gets_no_job(&self, now: Timestamp, worker: WorkerId) -> Result<(), Broken> {
        let device = &self.devices[&worker.device];
        holds("a_suspect_gets_no_job", !self.is_suspect(now, device), || {
            format!("{worker} was last heard at {}", device.heard)
        })
    }

    fn is_suspect(&self, now: Timestamp, device: &Device) -> bool {
        now.since(device.heard) >= self.config.heartbeat_suspect
    }

    /// Checked once everything that the event brought is done.
    pub(super) fn no_device_is_idle_while_a_job_waits_that_may_go_there(
        &mut self,
        now: Timestamp,
    ) -> Result<(), Broken> {
        let rule = "no_device_is_idle_while_a_job_waits_that_may_go_there";
        let waiting: Vec<_> = self.jobs.values().filter(|job| job.running.is_none()).collect();
        let (mut idle, mut suspects) = (Vec::new(), Vec::new());
        for (&id, device) in &self.devices {
            if device.state == State::Ready {
                let worker = WorkerId { device: id, generation: device.generation };
                let suspect = self.is_suspect(now, device);
                if suspect { suspects.push(worker) } else { idle.push(worker) }
            }
        }
        for &worker in &idle {
            for job in &waiting {
                let kept_back =
                    job.failed_on == Some(worker.device) && self.another_is_near(worker);
                holds(rule, kept_back, || format!("{} waits and {worker} idles", job.request.job))?;
            }
        }
        if !suspects.is_empty() && !waiting.is_empty() {
            self.coverage.hit("suspect: a job waits although a worker is READY");
        }
        for worker in suspects {
            self.devices.get_mut(&worker.device).expect("devices stay").was_suspect = true;
        }
        Ok(())
    }
}

fn a_job_runs_on_one_worker_at_a_time(attempt: AttemptId, job: &Job) -> Result<(), Broken> {
    let rule = "a_job_runs_on_one_worker_at_a_time";
    holds(rule, job.running.is_none(), || format!("{attempt} beside {:?}", job.running))
}

fn attempts_are_numbered_from_one(attempt: AttemptId, job: &Job) -> Result<(), Broken> {
    let rule = "attempts_are_numbered_from_one";
    holds(rule, attempt.number == job.begun + 1, || format!("{attempt} after {}", job.begun))
}

fn a_job_that_may_not_run_twice_is_dispatched_once(
    attempt: AttemptId,
    job: &Job,
) -> Result<(), Broken> {
    let rule = "a_job_that_may_not_run_twice_is_dispatched_once";
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
