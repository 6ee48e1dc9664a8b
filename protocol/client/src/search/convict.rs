//! From a job to the outcomes of its programs, also if the job was not finished.
//!
//! The pool convicts jobs. If a job of several programs killed its workers or took too long, what was done of it
//! counts, and the rest is submitted again in parts, until the program that is to blame is alone. The others get
//! their verdicts. Parts count among the jobs under way: the first takes the place of its job, others one that is free.
//! What was late beside another job that was late may have waited for that one, and is submitted again too.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use gridpool_ipc::clock;
use gridpool_protocol::message::Refusal;
use gridpool_protocol::receipt::{Receipt, Verdict};

use super::job::{JobTerms, OverPairs, SearchOutputs};
use super::outcomes::Outcomes;
use super::queue::Queue;
use super::stop::{Permit, SearchStopper};
use super::summary::SearchSummary;
use crate::busy::RETRY_EVERY;
use crate::{Client, ClientError, Handle, Job};

/// Parts of a job that killed its workers. Each round costs two workers, so there are few rounds.
const PARTS_MAX: usize = 32;

/// How often a program may be late beside others before it is to blame. If all was late for a third party, that ends.
const LATE_MAX: u32 = 3;

/// A job that was sent, and its programs.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) work: Arc<OverPairs>,
    answer: SentAnswer,
}

#[derive(Debug)]
enum SentAnswer {
    Awaited(Handle<SearchOutputs>),
    /// It needs no shared memory any more.
    Heard(Heard),
}

/// What the answer of a job says.
#[derive(Debug)]
struct Heard {
    /// Of those of its programs that it got to.
    outcomes: Outcomes,
    done: Vec<Range<usize>>,
    ended: Verdict,
    reason: String,
    has_run: bool,
}

/// What came of an attempt to send a job.
#[derive(Debug)]
pub(super) enum Sending {
    Sent(Sent),
    /// The pool has no shared memory for it now.
    NoMemory(ClientError),
}

/// Part of a job that is submitted again.
struct Part {
    span: Span,
    sent: Sent,
    /// [`Queue::late`] when it was sent; 0 of the whole job.
    late_before: u64,
    /// The first part takes the place of its job.
    _permit: Option<Permit>,
}

/// Programs of a job that travel together.
#[derive(Debug)]
struct Span {
    programs: Range<usize>,
    /// How often they were late beside others.
    late: u32,
}

impl Sent {
    /// Sends a job of these programs, if the pool has shared memory for it now.
    pub(super) fn now(
        client: &Client,
        work: &Arc<OverPairs>,
        terms: JobTerms,
    ) -> Result<Sending, ClientError> {
        match client.send(Job::search(work, terms)) {
            Ok(handle) => {
                let (work, answer) = (Arc::clone(work), SentAnswer::Awaited(handle));
                Ok(Sending::Sent(Self { work, answer }))
            }
            Err(error @ ClientError::Refused(Refusal::Busy(_))) => {
                client.connection.free_memory();
                Ok(Sending::NoMemory(error))
            }
            Err(error) => Err(error),
        }
    }

    /// The same, and waits until the pool has shared memory, as long as the deadline at most. `None` if the search is
    /// stopped meanwhile.
    pub(super) fn once_there_is_memory(
        client: &Client,
        work: &Arc<OverPairs>,
        terms: JobTerms,
        stopper: &SearchStopper,
    ) -> Result<Option<Self>, ClientError> {
        let until = clock::now() + terms.deadline;
        loop {
            match Self::now(client, work, terms.clone())? {
                Sending::Sent(sent) => return Ok(Some(sent)),
                Sending::NoMemory(refusal) => {
                    if !may_wait(until, refusal, stopper)? {
                        return Ok(None);
                    }
                }
            }
        }
    }

    /// The same job, once its answer has come, or the search is stopped.
    pub(super) fn heard(
        self,
        stopper: &SearchStopper,
        summary: &mut SearchSummary,
    ) -> Result<Self, ClientError> {
        let Self { work, answer } = self;
        let handle = match answer {
            SentAnswer::Heard(_) => return Ok(Self { work, answer }),
            SentAnswer::Awaited(handle) => handle,
        };
        if !stopper.waits_for(handle.canceller()) {
            return Ok(Self { work, answer: SentAnswer::Awaited(handle) });
        }
        let mut outcomes = work.outcomes();
        let mut done = Vec::new();
        let (ended, reason, has_run) = match handle.wait() {
            Ok(answer) => {
                summary.note(&answer.receipt);
                if let Some(outputs) = answer.outputs().or_else(|| answer.partial()) {
                    done = outputs.done().to_vec();
                    for programs in &done {
                        outcomes.take(outputs, programs, programs.start)?;
                    }
                }
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
        let heard = Heard { outcomes, done, ended, reason, has_run };
        Ok(Self { work, answer: SentAnswer::Heard(heard) })
    }
}

impl Queue {
    /// Waits for the outcomes of all programs of a job; `None` if the search was stopped before.
    pub(super) fn settle(&mut self, sent: Sent) -> Result<Option<Outcomes>, ClientError> {
        let all = Arc::clone(&sent.work);
        let span = Span { programs: 0..all.programs().len(), late: 0 };
        let mut outcomes = None;
        // What is still to be sent, and what was.
        let mut parts: VecDeque<Span> = VecDeque::new();
        let mut under_way = VecDeque::from([Part { span, sent, late_before: 0, _permit: None }]);
        loop {
            if !self.send_parts(&all, &mut parts, &mut under_way)? {
                return Ok(None);
            }
            let Some(Part { span: Span { programs, late }, sent, late_before, .. }) =
                under_way.pop_front()
            else {
                return Ok(outcomes);
            };
            let sent = self.hear(sent)?;
            let SentAnswer::Heard(heard) = sent.answer else { return Ok(None) };
            if self.stopper.is_stopped() {
                return Ok(None);
            }
            let Heard { outcomes: came, done, ended, reason, has_run } = heard;
            let left = between(&done, programs.len());
            let of_all = match &mut outcomes {
                // The first is the whole job.
                None => outcomes.insert(came),
                Some(of_all) => {
                    done.iter().for_each(|part| of_all.copy(&came, part, programs.start));
                    of_all
                }
            };
            let left =
                left.into_iter().map(|part| programs.start + part.start..programs.start + part.end);
            let left: Vec<_> = left.collect();
            let count: usize = left.iter().map(Range::len).sum();
            if count > 1 && has_run && is_one_to_blame(ended) {
                let length = count.div_ceil(PARTS_MAX);
                let cut = left.iter().flat_map(|part| cut(part, length));
                parts.extend(cut.map(|programs| Span { programs, late: 0 }));
            } else if count > 0
                && ended == Verdict::Deadline
                && late < LATE_MAX
                && self.others_were_late(late_before, has_run)
            {
                let late = late + u32::from(has_run);
                for programs in left.into_iter().rev() {
                    // What has only waited goes first: whoever has run would make it wait again.
                    match has_run {
                        true => parts.push_back(Span { programs, late }),
                        false => parts.push_front(Span { programs, late }),
                    }
                }
            } else {
                left.into_iter().for_each(|part| of_all.fail(part, ended, &reason));
            }
        }
    }

    /// Waits for the answer of a job, and counts it if it was late.
    pub(super) fn hear(&mut self, sent: Sent) -> Result<Sent, ClientError> {
        let was_heard = matches!(sent.answer, SentAnswer::Heard(_));
        let sent = sent.heard(&self.stopper, &mut self.summary)?;
        if let SentAnswer::Heard(Heard { ended: Verdict::Deadline, has_run: true, .. }) =
            sent.answer
        {
            self.late += u64::from(!was_heard);
        }
        Ok(sent)
    }

    /// Whether a job was late since this many were, besides the last one that was heard. It may be one behind that,
    /// sent before its parts.
    fn others_were_late(&mut self, late_before: u64, has_run: bool) -> bool {
        let late_before = late_before + u64::from(has_run);
        while self.late == late_before && self.hear_ahead() {}
        self.late > late_before
    }

    /// Sends the next parts of a job, in order: one if none is under way, and more as far as there are permits and
    /// shared memory. Returns whether the search goes on.
    fn send_parts(
        &mut self,
        all: &OverPairs,
        parts: &mut VecDeque<Span>,
        under_way: &mut VecDeque<Part>,
    ) -> Result<bool, ClientError> {
        let until = clock::now() + self.terms.deadline;
        while let Some(Span { programs, .. }) = parts.front() {
            let is_needed = under_way.is_empty();
            let permit = match is_needed {
                true => None,
                false => match self.stopper.permit_now() {
                    None => break,
                    permit => permit,
                },
            };
            let work = Arc::new(all.part(programs.clone())?);
            match Sent::now(&self.client, &work, self.terms.clone())? {
                Sending::Sent(sent) => {
                    let late_before = self.late;
                    under_way.extend(parts.pop_front().map(|span| Part {
                        span,
                        sent,
                        late_before,
                        _permit: permit,
                    }));
                }
                // One that ends gives its memory back.
                Sending::NoMemory(_) if !is_needed => break,
                // Jobs behind this one may hold it: nobody takes their results before this one's.
                Sending::NoMemory(_) if self.hear_ahead() => {}
                Sending::NoMemory(refusal) => {
                    if !may_wait(until, refusal, &self.stopper)? {
                        return Ok(false);
                    }
                }
            }
        }
        Ok(true)
    }
}

/// Waits a moment for shared memory. Returns whether the search goes on; the refusal is the error if the time is over.
fn may_wait(
    until: Instant,
    refusal: ClientError,
    stopper: &SearchStopper,
) -> Result<bool, ClientError> {
    if clock::until(until).is_zero() { Err(refusal) } else { Ok(stopper.pause(RETRY_EVERY)) }
}

/// What lies between these ranges, up to `end`. They are in order.
fn between(ranges: &[Range<usize>], end: usize) -> Vec<Range<usize>> {
    let last = end..end;
    let mut start = 0;
    let before = ranges.iter().chain([&last]).map(|range| {
        let before = start..range.start;
        start = range.end;
        before
    });
    before.filter(|range| !range.is_empty()).collect()
}

/// Parts of a range of this length; the last may be shorter.
fn cut(range: &Range<usize>, length: usize) -> impl Iterator<Item = Range<usize>> {
    let end = range.end;
    range.clone().step_by(length).map(move |start| start..end.min(start + length))
}

/// Whether a job that has run ended so because of some of its programs, perhaps one.
fn is_one_to_blame(verdict: Verdict) -> bool {
    match verdict {
        Verdict::Deadline | Verdict::Failed | Verdict::Poison => true,
        Verdict::Cancelled | Verdict::DeviceLost | Verdict::Ok => false,
    }
}
