//! The stream of a search's results: waits for its jobs in order, and keeps the counts.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use gridpool_ipc::clock;
use gridpool_protocol::receipt::{AttemptOutcome, KernelUse, Receipt};
use gridpool_protocol::search::{Score, SearchReport};

use super::convict::Sent;
use super::job::{OverPairs, Pairs};
use super::pipeline::{Pipeline, Taken, Terms};
use super::plan::{Entry, Pace, Place, Planned, Planner, Slot, known_max};
use super::stop::SearchStopper;
use super::{Candidate, Check, Search, SearchOutcome, SearchResult};
use crate::{Client, ClientError};

/// How long a job that is not full waits for more programs.
const FLUSH_AFTER: Duration = Duration::from_millis(20);

/// What a search has done so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SearchSummary {
    /// Programs whose results were taken, those of templates each.
    pub requested: u64,
    /// Those of them that did not compile or never give a grid.
    pub refused: u64,
    /// Those of them that equal an earlier one, and did not run again.
    pub deduplicated: u64,
    /// Those of them without a verdict.
    pub failed: u64,
    /// What the devices did.
    pub evaluations: SearchReport,
    /// Verdicts that were compared with another machine's.
    pub checked: u64,
    /// Jobs with a verdict.
    pub jobs: u64,
    /// Attempts of jobs that ended without an answer.
    pub attempts_lost: u64,
    /// Kernels, or reference functions, with launches and times.
    pub kernels: Vec<KernelUse>,
    /// Devices that ran programs, by name.
    pub devices: Vec<String>,
}

impl SearchSummary {
    /// Adds a job's receipt.
    pub(super) fn note(&mut self, receipt: &Receipt) {
        self.jobs += 1;
        for attempt in &receipt.attempts {
            if attempt.outcome != AttemptOutcome::Ok {
                self.attempts_lost += 1;
                continue;
            }
            self.evaluations = self.evaluations.plus(attempt.search.unwrap_or_default());
            let device = attempt.device.id().to_string();
            if !self.devices.contains(&device) {
                self.devices.push(device);
            }
            attempt.kernels.iter().for_each(|kernel| self.note_kernel(kernel));
        }
    }

    fn note_kernel(&mut self, more: &KernelUse) {
        match self.kernels.iter_mut().find(|known| known.name == more.name) {
            Some(known) => {
                known.launches = known.launches.saturating_add(more.launches);
                known.device_us += more.device_us;
            }
            None => self.kernels.push(more.clone()),
        }
    }

    /// Adds a result.
    fn count(&mut self, place: &Place, outcome: &SearchOutcome) {
        self.requested += 1;
        match (place, outcome) {
            (Place::Refused(_), _) | (_, SearchOutcome::Refused(_)) => self.refused += 1,
            (Place::Same(_), _) => self.deduplicated += 1,
            (Place::Runs(_), _) => {}
        }
        self.failed += u64::from(matches!(outcome, SearchOutcome::Failed { .. }));
    }
}

/// Programs on their way through the pool.
#[derive(Debug)]
struct Batch {
    entries: Vec<Entry>,
    first_slot: Slot,
    /// Its job; none if it has no program of its own.
    sent: Option<Sent>,
}

/// The results of a search, in the order of the programs ([`Client::search`](crate::Client::search)). After an error
/// it ends. Dropping it cancels what runs.
#[derive(Debug)]
#[must_use = "dropping it cancels the search"]
pub struct SearchStream {
    client: Client,
    pipeline: Arc<Pipeline>,
    stopper: SearchStopper,
    /// `None` once it has ended.
    batches: Option<Receiver<Result<Batch, ClientError>>>,
    ready: VecDeque<SearchResult>,
    /// The outcomes of the last programs that ran, for duplicates.
    known: VecDeque<SearchOutcome>,
    /// The slot of the first of them.
    first_known: Slot,
    known_max: u64,
    pace: Arc<Pace>,
    deadline: Duration,
    check: Option<Check>,
    summary: SearchSummary,
}

impl SearchStream {
    pub(super) fn start(
        client: Client,
        search: Search,
        programs: impl Iterator<Item = Candidate> + Send + 'static,
    ) -> Result<Self, ClientError> {
        let Search { pairs, score, steps, ties, deadline, threads, jobs, job_programs_max, check } =
            search;
        let pairs = Arc::new(Pairs::new(&pairs, score)?);
        let verdict_bytes = pairs.count() * if score == Score::Cells { 3 } else { 1 };
        let planner = Planner::new(pairs.count(), verdict_bytes, job_programs_max);
        let pace = Arc::new(Pace::default());
        let pipeline = Pipeline::start(programs, Terms { ties, steps }, threads)?;
        // One more job is under way while it waits for its place, and one is waited for.
        let (to, batches) = sync_channel(jobs.saturating_sub(2));
        let submitter = Submitter {
            client: client.clone(),
            pipeline: Arc::clone(&pipeline),
            pairs,
            planner,
            pace: Arc::clone(&pace),
            deadline,
            to,
        };
        let spawned = thread::Builder::new().name("search submit".into());
        let spawned = spawned.spawn(move || submitter.run());
        if let Err(error) = spawned {
            pipeline.stop();
            return Err(ClientError::System(error));
        }
        Ok(Self {
            client,
            stopper: SearchStopper::new(Arc::clone(&pipeline)),
            pipeline,
            batches: Some(batches),
            ready: VecDeque::new(),
            known: VecDeque::new(),
            first_known: 0,
            known_max: known_max(verdict_bytes),
            pace,
            deadline,
            check,
            summary: SearchSummary::default(),
        })
    }

    /// What was done so far.
    #[must_use]
    pub fn summary(&self) -> &SearchSummary {
        &self.summary
    }

    /// What ends this search from another thread.
    #[must_use]
    pub fn stopper(&self) -> SearchStopper {
        self.stopper.clone()
    }

    /// Waits for a batch and makes its results.
    fn finish(&mut self, batch: Batch) -> Result<(), ClientError> {
        let Batch { entries, first_slot, sent } = batch;
        if let Some(sent) = sent {
            let work = Arc::clone(&sent.work);
            let (before, jobs) = (self.busy_us(), self.summary.jobs);
            let settled =
                sent.settle(&self.client, self.deadline, &self.stopper, &mut self.summary)?;
            let Some(outcomes) = settled else {
                self.end();
                return Ok(());
            };
            let evaluations = work.programs().len() * work.pairs().count();
            if self.summary.jobs == jobs + 1 {
                let took = Duration::from_micros(self.busy_us() - before);
                self.pace.note(evaluations, took);
            }
            self.check(&work, &outcomes)?;
            self.known.extend(outcomes);
        }
        for Entry { id, place } in entries {
            let outcome = match &place {
                Place::Refused(why) => SearchOutcome::Refused(why.clone()),
                Place::Runs(at) => self.outcome(first_slot + *at as u64),
                Place::Same(slot) => self.outcome(*slot),
            };
            self.summary.count(&place, &outcome);
            self.ready.push_back(SearchResult { id, outcome });
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
    fn check(&mut self, work: &OverPairs, outcomes: &[SearchOutcome]) -> Result<(), ClientError> {
        let Some(check) = &mut self.check else { return Ok(()) };
        for (program, outcome) in outcomes.iter().enumerate() {
            if let SearchOutcome::Done(verdicts) = outcome {
                let compared = check.compare(work.programs().program(program), verdicts);
                self.summary.checked +=
                    compared.map_err(|why| ClientError::WrongVerdict { program, why })?;
            }
        }
        Ok(())
    }

    fn end(&mut self) {
        self.pipeline.stop();
        self.batches = None;
    }
}

impl SearchStream {
    /// Microseconds that the devices have worked.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a positive time")]
    fn busy_us(&self) -> u64 {
        self.summary.kernels.iter().map(|kernel| kernel.device_us).sum::<f64>() as u64
    }
}

impl Iterator for SearchStream {
    type Item = Result<SearchResult, ClientError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(result) = self.ready.pop_front() {
                return Some(Ok(result));
            }
            let received = self.batches.as_ref()?.recv();
            let finished = match received {
                Ok(Ok(batch)) => self.finish(batch),
                Ok(Err(error)) => Err(error),
                Err(_) => {
                    self.end();
                    return None;
                }
            };
            if let Err(error) = finished {
                self.end();
                return Some(Err(error));
            }
        }
    }
}

impl Drop for SearchStream {
    fn drop(&mut self) {
        self.end();
    }
}

/// The thread between the pipeline and the pool.
struct Submitter {
    client: Client,
    pipeline: Arc<Pipeline>,
    pairs: Arc<Pairs>,
    planner: Planner,
    pace: Arc<Pace>,
    deadline: Duration,
    to: SyncSender<Result<Batch, ClientError>>,
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
                Taken::Programs(programs) => {
                    programs.into_iter().all(|of| match self.planner.push(of, &self.pace) {
                        Some(planned) => {
                            due = None;
                            self.send(planned)
                        }
                        None => true,
                    })
                }
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
        self.planner.flush().is_none_or(|planned| self.send(planned))
    }

    /// Submits a job and passes it on, once there is room. Returns whether the stream still wants more.
    fn send(&self, planned: Planned) -> bool {
        let Planned { entries, programs, first_slot } = planned;
        let sent = match programs.is_empty() {
            true => Ok(None),
            false => OverPairs::new(&self.pairs, programs)
                .map_err(ClientError::from)
                .and_then(|work| Sent::new(&self.client, Arc::new(work), self.deadline))
                .map(Some),
        };
        let is_ok = sent.is_ok();
        let batch = sent.map(|sent| Batch { entries, first_slot, sent });
        self.to.send(batch).is_ok() && is_ok
    }
}
