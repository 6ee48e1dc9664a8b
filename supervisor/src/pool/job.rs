//! One accepted job, from acceptance to its verdict.

use std::time::Duration;

use gridpool_protocol::ids::{AttemptId, ClientId, DeviceId, WorkerId};
use gridpool_protocol::receipt::{
    Attempt, AttemptOutcome, DeviceInfo, ItemRange, Receipt, RunReport, Verdict,
};

use super::event::{JobRequest, Timestamp};

/// Where a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JobState {
    /// Waiting for a device.
    Queued,
    /// Sent to a worker.
    Running(WorkerId),
}

/// One accepted job.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) request: JobRequest,
    /// Whom to answer.
    pub(super) client: ClientId,
    /// The client's connection is gone: nobody waits for the verdict.
    pub(super) orphaned: bool,
    pub(super) state: JobState,
    pub(super) deadline: Timestamp,
    /// The device of the last attempt, where that failed.
    pub(super) avoid: Option<DeviceId>,
    /// Deaths of workers with evidence against this job.
    pub(super) deaths: u32,
    /// Attempts that the device refused and that left the worker whole.
    pub(super) device_errors: u32,
    /// Attempts begun.
    pub(super) begun: u32,
    /// Items with an error in place of a result, once it was answered.
    item_errors: u32,
    accepted: Timestamp,
    dispatched: Option<Timestamp>,
    attempts: Vec<Attempt>,
}

impl Job {
    pub(super) fn new(now: Timestamp, client: ClientId, request: JobRequest) -> Self {
        Self {
            client,
            orphaned: false,
            state: JobState::Queued,
            deadline: now.after(request.deadline),
            avoid: None,
            deaths: 0,
            device_errors: 0,
            begun: 0,
            item_errors: 0,
            accepted: now,
            dispatched: None,
            attempts: Vec::new(),
            request,
        }
    }

    /// Begins the next attempt, on `worker`.
    pub(super) fn begin(&mut self, now: Timestamp, worker: WorkerId) -> AttemptId {
        assert_eq!(self.state, JobState::Queued, "{} is already running", self.request.job);
        self.begun += 1;
        self.dispatched.get_or_insert(now);
        self.state = JobState::Running(worker);
        AttemptId { job: self.request.job, number: self.begun }
    }

    /// The running attempt was answered.
    pub(super) fn answered(&mut self, device: DeviceInfo, report: RunReport) {
        let worker = self.running_on();
        self.item_errors = report.item_errors;
        self.attempts.push(Attempt::answered(worker.to_string(), device, self.part(), report));
    }

    /// The running attempt ended without an answer.
    pub(super) fn failed(&mut self, device: DeviceInfo, outcome: AttemptOutcome, detail: String) {
        let worker = self.running_on();
        self.attempts.push(Attempt::unreported(
            worker.to_string(),
            device,
            self.part(),
            outcome,
            detail,
        ));
        self.avoid = Some(worker.device);
    }

    fn part(&self) -> ItemRange {
        ItemRange { start: 0, end: self.request.items }
    }

    fn running_on(&self) -> WorkerId {
        match self.state {
            JobState::Running(worker) => worker,
            JobState::Queued => unreachable!("{} has no attempt to end", self.request.job),
        }
    }

    /// The proof that goes with `verdict`.
    pub(super) fn receipt(&self, now: Timestamp, verdict: Verdict, reason: String) -> Receipt {
        let micros = |span: Duration| u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
        let waited = self.dispatched.unwrap_or(now).since(self.accepted);
        Receipt {
            job: self.request.job.to_string(),
            key: self.request.key.to_string(),
            program_hash: self.request.program_hash.clone(),
            items: self.request.items,
            item_errors: self.item_errors,
            verdict,
            reason,
            queue_us: micros(waited),
            total_us: micros(now.since(self.accepted)),
            attempts: self.attempts.clone(),
        }
    }
}
