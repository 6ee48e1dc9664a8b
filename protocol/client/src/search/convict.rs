//! From a job to the outcomes of its programs, also if the job was not finished.
//!
//! The pool convicts jobs. If a job of several programs killed its workers or took too long, what was done of it
//! counts, and the rest is submitted again in parts, until the program that is to blame is alone. The others get
//! their verdicts.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use gridpool_protocol::message::Refusal;
use gridpool_protocol::receipt::{Receipt, Verdict};

use super::SearchOutcome;
use super::job::{OverPairs, SearchOutputs};
use super::stop::SearchStopper;
use super::stream::SearchSummary;
use crate::{Answer, Client, ClientError, Handle, Job};

/// Parts of a job that killed its workers. Each round costs two workers, so there are few rounds; less than the jobs
/// that a pool allows one client.
const PARTS_MAX: usize = 32;

/// A job that was sent, and which of the programs its own are.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) work: Arc<OverPairs>,
    pub(super) handle: Handle<SearchOutputs>,
}

impl Sent {
    /// Sends a job of these programs.
    pub(super) fn new(
        client: &Client,
        work: Arc<OverPairs>,
        deadline: Duration,
    ) -> Result<Self, ClientError> {
        let handle = client.send(Job::search(&work).with_deadline(deadline))?;
        Ok(Self { work, handle })
    }

    /// Waits for the outcomes of all its programs; `None` if the search was stopped before.
    pub(super) fn settle(
        self,
        client: &Client,
        deadline: Duration,
        stopper: &SearchStopper,
        summary: &mut SearchSummary,
    ) -> Result<Option<Vec<SearchOutcome>>, ClientError> {
        let all = self.work;
        let programs: Vec<usize> = (0..all.programs().len()).collect();
        let mut outcomes: Vec<Option<SearchOutcome>> = vec![None; programs.len()];
        let mut waiting = VecDeque::from([(programs, self.handle)]);
        while let Some((programs, handle)) = waiting.pop_front() {
            if !stopper.waits_for(handle.canceller()) {
                return Ok(None);
            }
            let (ended, reason, has_run) = match handle.wait() {
                Ok(answer) => {
                    summary.note(&answer.receipt);
                    take(&answer, &programs, &mut outcomes)?;
                    let Receipt { verdict, reason, attempts, .. } = answer.receipt;
                    (verdict, reason, !attempts.is_empty())
                }
                Err(ClientError::Refused(refusal @ Refusal::Poison(_))) => {
                    (Verdict::Poison, refusal.to_string(), true)
                }
                // There was no place for it in all its time.
                Err(ClientError::Refused(refusal @ Refusal::Busy(_))) => {
                    (Verdict::Deadline, refusal.to_string(), false)
                }
                Err(error) => return Err(error),
            };
            if stopper.is_stopped() {
                return Ok(None);
            }
            let left: Vec<usize> =
                programs.into_iter().filter(|at| outcomes[*at].is_none()).collect();
            if left.len() > 1 && has_run && is_one_to_blame(ended) {
                let length = left.len().div_ceil(PARTS_MAX);
                for part in left.chunks(length) {
                    let work = Arc::new(all.part(part)?);
                    let sent = Self::new(client, work, deadline)?;
                    waiting.push_back((part.to_vec(), sent.handle));
                }
            } else {
                for at in left {
                    let reason = reason.clone();
                    outcomes[at] = Some(SearchOutcome::Failed { verdict: ended, reason });
                }
            }
        }
        Ok(Some(outcomes.into_iter().flatten().collect()))
    }
}

/// Takes the verdicts that an answer has.
fn take(
    answer: &Answer<SearchOutputs>,
    programs: &[usize],
    outcomes: &mut [Option<SearchOutcome>],
) -> Result<(), ClientError> {
    let Some(outputs) = answer.outputs().or_else(|| answer.partial()) else { return Ok(()) };
    for (at, program) in programs.iter().enumerate() {
        if let Some(verdicts) = outputs.program(at) {
            outcomes[*program] = Some(SearchOutcome::Done(verdicts?));
        }
    }
    Ok(())
}

/// Whether a job that has run ended so because of some of its programs, perhaps one.
fn is_one_to_blame(verdict: Verdict) -> bool {
    match verdict {
        Verdict::Deadline | Verdict::Failed | Verdict::Poison => true,
        Verdict::Cancelled | Verdict::DeviceLost | Verdict::Ok => false,
    }
}
