//! What one client saw, in order: each submission, each word of the pool on it.

use std::time::Duration;

use gridpool_protocol::ids::JobKey;
use gridpool_protocol::message::Refusal;
use gridpool_protocol::receipt::{Attempt, AttemptOutcome, Receipt, Verdict};

/// A worker that died of one of these speaks against the job that ran alone there.
const EVIDENCE: [&str; 6] = ["SIGSEGV", "SIGABRT", "SIGBUS", "SIGILL", "SIGFPE", "exit code 70"];

/// One thing that the client did or heard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// It sent a job. A second time under the same key, the same job.
    Submitted(Submitted),
    /// It gave a job up.
    Cancelled(JobKey),
    /// The pool took a job.
    Accepted(JobKey),
    /// The pool did not take it, and why.
    Refused(JobKey, Refusal),
    /// The pool gave a verdict.
    Replied(Reply),
    /// The client library gave something else than a verdict for a job, or a connection ended that
    /// should not have.
    Broke(Option<JobKey>, String),
}

/// A job as it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Submitted {
    /// Its name.
    pub key: JobKey,
    /// The digest of its right result.
    pub expected: u64,
    /// Whether it may run more than once.
    pub idempotent: bool,
    /// When, since the client began.
    pub at: Duration,
    /// How long it has.
    pub deadline: Duration,
}

/// A verdict as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// For which job.
    pub key: JobKey,
    /// Of which job the receipt says that it is.
    pub receipt_key: String,
    /// The pool's number of the job.
    pub job: String,
    /// When, since the client began.
    pub at: Duration,
    /// How the job ended.
    pub verdict: Verdict,
    /// Why, if not OK.
    pub reason: String,
    /// Said before.
    pub replayed: bool,
    /// What came of it.
    pub result: Found,
    /// Attempts that the receipt lists and that were not taken back.
    pub attempts: u32,
    /// Of these, how many ended in a way that speaks against the job.
    pub evidence: u32,
}

/// The result of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// There is none.
    Nothing,
    /// Its digest.
    Digest(u64),
    /// It is no result of this job.
    Malformed(String),
}

impl Reply {
    /// What a client notes of a receipt and of the result beside it.
    #[must_use]
    pub fn new(key: JobKey, at: Duration, receipt: &Receipt, replayed: bool, found: Found) -> Self {
        let count = |is: fn(&Attempt) -> bool| {
            u32::try_from(receipt.attempts.iter().filter(|a| is(a)).count()).unwrap_or(u32::MAX)
        };
        Self {
            key,
            receipt_key: receipt.key.clone(),
            job: receipt.job.clone(),
            at,
            verdict: receipt.verdict,
            reason: receipt.reason.clone(),
            replayed,
            result: found,
            attempts: count(|attempt| attempt.outcome != AttemptOutcome::Preempted),
            evidence: count(is_evidence),
        }
    }
}

/// Whether an attempt ended in a way that may speak against its job.
fn is_evidence(attempt: &Attempt) -> bool {
    match attempt.outcome {
        AttemptOutcome::Hang => true,
        AttemptOutcome::WorkerDied => EVIDENCE.iter().any(|name| attempt.detail.contains(name)),
        AttemptOutcome::Cancelled
        | AttemptOutcome::Deadline
        | AttemptOutcome::DeviceError
        | AttemptOutcome::Ok
        | AttemptOutcome::Preempted
        | AttemptOutcome::Refused => false,
    }
}
