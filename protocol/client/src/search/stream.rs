//! The stream of a search's results: waits for its jobs in order, and keeps the counts.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use gridpool_ipc::clock;
use gridpool_protocol::search::{JobPrograms, Score};

use super::convict::Sent;
use super::job::{JobTerms, OverPairs, Pairs};
use super::outcomes::Outcomes;
use super::pipeline::{Compiled, Pipeline, Taken, Terms};
use super::plan::{Entry, Pace, Place, Planned, Planner, Slot, known_max};
use super::queue::{Batch, Queue};
use super::stop::SearchStopper;
use super::summary::SearchSummary;
use super::template::{Expandable, Expanded};
use super::verdict::CheckError;
use super::{Candidate, Check, Search, SearchOutcome, SearchResult};
use crate::{Client, ClientError};

/// How long a job that is not full waits for more programs.
const FLUSH_AFTER: Duration = Duration::from_millis(20);

/// Most programs of the first job of a template; each further one may have twice as many.
const TEMPLATE_PROGRAMS_FIRST: u64 = 1 << 13;

/// The results of a search, in the order of the programs ([`Client::search`](crate::Client::search)). After an error
/// it ends. Dropping it cancels what runs.
#[derive(Debug)]
#[must_use = "dropping it cancels the search"]
pub struct SearchStream {
    queue: Queue,
    ready: VecDeque<SearchResult>,
    /// The results behind them, of a job of a template.
    expanded: Option<Expanded>,
    only_solving: bool,
    /// The outcomes of the last programs that ran, for duplicates.
    known: VecDeque<SearchOutcome>,
    /// The slot of the first of them.
    first_known: Slot,
    known_max: u64,
    pace: Arc<Pace>,
    check: Option<Check>,
}

impl SearchStream {
    pub(super) fn start(
        client: Client,
        search: Search,
        programs: impl Iterator<Item = Candidate> + Send + 'static,
    ) -> Result<Self, ClientError> {
        let Search { pairs, score, steps, ties, deadline, trace, trace_state, .. } = search;
        let Search { threads, jobs, job_programs_max, sharing, only_solving, check, .. } = search;
        let terms = JobTerms { deadline, trace, trace_state };
        let pairs = Arc::new(Pairs::new(&pairs, score)?);
        let verdict_bytes = pairs.count() * if score == Score::Cells { 3 } else { 1 };
        let planner = Planner::new(pairs.count(), verdict_bytes, job_programs_max, sharing);
        let pace = Arc::new(Pace::default());
        let pipeline = Pipeline::start(programs, Terms { ties, steps, sharing }, threads)?;
        let stopper = SearchStopper::new(Arc::clone(&pipeline), jobs);
        // Permits bound what is in it.
        let (to, batches) = channel();
        let submitter = Submitter {
            client: client.clone(),
            pipeline: Arc::clone(&pipeline),
            pairs,
            planner,
            pace: Arc::clone(&pace),
            terms: terms.clone(),
            stopper: stopper.clone(),
            to,
        };
        let spawned = thread::Builder::new().name("search submit".into());
        let spawned = spawned.spawn(move || submitter.run());
        if let Err(error) = spawned {
            pipeline.stop();
            return Err(ClientError::System(error));
        }
        Ok(Self {
            queue: Queue::new(client, terms, stopper, batches),
            ready: VecDeque::new(),
            expanded: None,
            only_solving,
            known: VecDeque::new(),
            first_known: 0,
            known_max: known_max(verdict_bytes),
            pace,
            check,
        })
    }

    /// What was done so far.
    #[must_use]
    pub fn summary(&self) -> &SearchSummary {
        &self.queue.summary
    }

    /// What ends this search from another thread.
    #[must_use]
    pub fn stopper(&self) -> SearchStopper {
        self.queue.stopper.clone()
    }

    /// The next result, or `None` in its place once a job has ended: for a caller that looks at the
    /// [summary](Self::summary) though few results are given. The outer `None` ends the search, as in `next`.
    pub fn step(&mut self) -> Option<Result<Option<SearchResult>, ClientError>> {
        if let Some(result) = self.ready.pop_front() {
            return Some(Ok(Some(result)));
        }
        if let Some(mut expanded) = self.expanded.take() {
            // Those of a stopped search are not wanted: there may be millions.
            let is_wanted = !self.queue.stopper.is_stopped();
            let next = is_wanted.then(|| expanded.next(self.only_solving)).flatten();
            if next.is_some() {
                self.expanded = Some(expanded);
                return Some(Ok(next));
            }
            self.queue.summary.count_expanded(&expanded.given());
        }
        let Some(received) = self.queue.next() else {
            self.queue.end();
            return None;
        };
        let finished = received.and_then(|batch| self.finish(batch));
        if finished.is_err() {
            self.queue.end();
        }
        Some(finished.map(|()| None))
    }

    /// Waits for a batch and makes its results.
    fn finish(&mut self, batch: Batch) -> Result<(), ClientError> {
        let Batch { entries, template, first_slot, sent, permit } = batch;
        if let Some(sent) = sent {
            let work = Arc::clone(&sent.work);
            let (before, jobs) = (self.summary().busy_us(), self.summary().jobs);
            let Some(outcomes) = self.queue.settle(sent)? else {
                self.queue.end();
                return Ok(());
            };
            let evaluations = work.programs().len() * work.pairs().count();
            if self.summary().jobs == jobs + 1 {
                let took = Duration::from_micros(self.summary().busy_us() - before);
                self.pace.note(evaluations, took, self.summary().is_of_gpus());
            }
            self.check(&work, &outcomes)?;
            match work.programs() {
                JobPrograms::Listed(_) => {
                    self.known.extend((0..outcomes.len()).map(|at| outcomes.of(at)));
                }
                JobPrograms::OfTemplate(_, numbers) => {
                    let numbers = numbers.clone();
                    self.expanded =
                        template.map(|template| Expanded { template, numbers, outcomes, next: 0 });
                }
            }
        }
        drop(permit);
        for Entry { id, place } in entries {
            let outcome = match &place {
                Place::Refused(why) => SearchOutcome::Refused(why.clone()),
                Place::Runs(at) => self.outcome(first_slot + *at as u64),
                Place::Same(slot) => self.outcome(*slot),
            };
            self.queue.summary.count(&place, &outcome);
            if !self.only_solving || outcome.is_of_note() {
                self.ready.push_back(SearchResult { id, outcome });
            }
        }
        // Only now: an entry may name any slot that the planner knew when it came.
        while self.known.len() as u64 > self.known_max {
            self.known.pop_front();
            self.first_known += 1;
        }
        Ok(())
    }

    fn outcome(&self, slot: Slot) -> SearchOutcome {
        let at = usize::try_from(slot - self.first_known).expect("few outcomes are kept");
        self.known[at].clone()
    }

    /// Compares a share of the verdicts.
    fn check(&mut self, work: &OverPairs, outcomes: &Outcomes) -> Result<(), ClientError> {
        let Some(check) = &mut self.check else { return Ok(()) };
        for program in 0..outcomes.len() {
            if let SearchOutcome::Done(verdicts) = outcomes.of(program) {
                let compared = check.compare(|| work.programs().program(program), &verdicts);
                self.queue.summary.checked += compared.map_err(|error| match error {
                    CheckError::Differs(why) => ClientError::WrongVerdict { program, why },
                    CheckError::Failed(why) => ClientError::CheckFailed { why },
                })?;
            }
        }
        Ok(())
    }
}

impl Iterator for SearchStream {
    type Item = Result<SearchResult, ClientError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(result) = self.step()?.transpose() {
                return Some(result);
            }
        }
    }
}

impl Drop for SearchStream {
    fn drop(&mut self) {
        self.queue.end();
    }
}

/// The thread between the pipeline and the pool.
struct Submitter {
    client: Client,
    pipeline: Arc<Pipeline>,
    pairs: Arc<Pairs>,
    planner: Planner,
    pace: Arc<Pace>,
    terms: JobTerms,
    stopper: SearchStopper,
    to: Sender<Result<Batch, ClientError>>,
}

impl Submitter {
    fn run(mut self) {
        // When a job that is not full goes all the same: only what waits for more is in a hurry.
        let mut due = None;
        loop {
            if self.planner.is_empty() {
                due = None;
            } else {
                due.get_or_insert_with(|| clock::now() + FLUSH_AFTER);
            }
            let goes_on = match self.pipeline.take(due) {
                Taken::Programs(programs) => programs.into_iter().all(|one| match one {
                    Compiled::Program { id, made } => {
                        match self.planner.push(id, made, &self.pace) {
                            Some(planned) => {
                                due = None;
                                self.send_planned(planned)
                            }
                            None => true,
                        }
                    }
                    Compiled::Template(template) => {
                        due = None;
                        self.flush() && self.send_template(&template)
                    }
                }),
                Taken::Nothing => self.flush(),
                Taken::End(ended) => {
                    if self.flush()
                        && let Err(why) = ended
                    {
                        let error = ClientError::System(std::io::Error::other(why));
                        // Nobody hears it if the stream is gone.
                        drop(self.to.send(Err(error)));
                    }
                    return;
                }
            };
            if !goes_on {
                return;
            }
        }
    }

    fn flush(&mut self) -> bool {
        self.planner.flush().is_none_or(|planned| self.send_planned(planned))
    }

    fn send_planned(&self, planned: Planned) -> bool {
        let Planned { entries, programs, first_slot } = planned;
        let programs = (!programs.is_empty()).then_some(JobPrograms::Listed(programs));
        self.send((entries, first_slot), None, programs)
    }

    /// Submits the programs of a template, in jobs as large as the pool is fast.
    fn send_template(&self, template: &Arc<Expandable>) -> bool {
        // What other programs took says little of these.
        let (mut first, mut most) = (0, TEMPLATE_PROGRAMS_FIRST);
        while let Some(programs) =
            template.programs(first, self.planner.of_template(&self.pace).min(most))
        {
            first += programs.len() as u64;
            most = most.saturating_mul(4);
            if !self.send((Vec::new(), 0), Some(Arc::clone(template)), Some(programs)) {
                return false;
            }
        }
        true
    }

    /// Submits a job and passes it on, once there is room. Returns whether the stream still wants more.
    fn send(
        &self,
        (entries, first_slot): (Vec<Entry>, Slot),
        template: Option<Arc<Expandable>>,
        programs: Option<JobPrograms>,
    ) -> bool {
        let Some(permit) = self.stopper.permit() else { return false };
        let sent = match programs {
            None => Ok(None),
            Some(programs) => match self.submit(programs) {
                // It was stopped.
                Ok(None) => return false,
                sent => sent,
            },
        };
        let is_ok = sent.is_ok();
        let batch = sent.map(|sent| Batch { entries, template, first_slot, sent, permit });
        self.to.send(batch).is_ok() && is_ok
    }

    /// Submits a job of these programs; `None` if the search is stopped before there is memory for it.
    fn submit(&self, programs: JobPrograms) -> Result<Option<Sent>, ClientError> {
        let work = Arc::new(OverPairs::new(&self.pairs, programs)?);
        Sent::once_there_is_memory(&self.client, &work, self.terms.clone(), &self.stopper)
    }
}
