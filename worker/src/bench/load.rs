//! Jobs through a pool: client threads with a connection each, that keep a number of jobs under way.
//!
//! Owns what is submitted and when; every job under way has grids of its own, so that an answer that
//! went to another job is seen. May not judge what comes back beyond comparing it.

use std::collections::VecDeque;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use gridpool_protocol::batch::GridBatch;
use gridpool_protocol::bench::Workload;
use gridpool_protocol::chain::Chain;
use gridpool_protocol::client::{Client, ClientError, Job, JobAnswer, JobHandle};
use gridpool_protocol::clock;
use gridpool_protocol::ids::DeviceKind;
use gridpool_protocol::limits::INLINE_BYTES_MAX;
use gridpool_protocol::message::Refusal;
use gridpool_protocol::output::{OutputLayout, Outputs};
use gridpool_protocol::program::Program;

use super::evidence::Evidence;
use super::memory;
use super::native;
use super::workload::Source;

/// Client threads at most; each has a connection, and shares the jobs under way with the others.
const THREADS_MAX: u32 = 8;
/// How long a job may take: a large batch on one core is no fault.
const DEADLINE: Duration = Duration::from_secs(600);

/// Why there is no measurement.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// It cannot be had here.
    Skipped(String),
    /// What came back is wrong, or proves nothing.
    Wrong(String),
    /// The pool cannot be talked to.
    Lost(ClientError),
}

impl From<ClientError> for Trouble {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Refused(Refusal::Busy(_)) | ClientError::Arena(_) => {
                Self::Skipped(format!("the pool has no room: {}", Chain(&error)))
            }
            ClientError::Refused(Refusal::Invalid(_))
            | ClientError::Batch(_)
            | ClientError::Malformed(_)
            | ClientError::Tensors(_) => Self::Wrong(Chain(&error).to_string()),
            ClientError::Closed(_)
            | ClientError::Frame(_)
            | ClientError::Lost
            | ClientError::NoPool { .. }
            | ClientError::Refused(Refusal::Draining | Refusal::KeyInUse(_) | Refusal::Poison(_))
            | ClientError::Silent
            | ClientError::Unexpected(_)
            | ClientError::Version { .. } => Self::Lost(error),
        }
    }
}

/// What jobs are made of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kind<'a> {
    pub(super) source: &'a Source,
    pub(super) program: &'a Program,
    pub(super) workload: Workload,
    /// Items of one job.
    pub(super) batch: u32,
}

/// Jobs that are ready to be submitted again and again.
#[derive(Debug)]
pub(super) struct Load {
    lanes: Vec<Lane>,
    device: DeviceKind,
}

/// One client thread's part.
#[derive(Debug)]
struct Lane {
    client: Client,
    slots: Vec<Slot>,
}

/// One job, and what must come of it.
#[derive(Debug)]
struct Slot {
    job: Job,
    want: Outputs,
    /// Its first grid's number in the stream.
    first: u64,
}

/// What a round did.
#[derive(Debug, Default)]
pub(super) struct Round {
    pub(super) elapsed: Duration,
    pub(super) evidence: Evidence,
}

/// What is done with an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answers {
    /// Every byte is compared with the reference's.
    Compared,
    /// Only the receipt is looked at.
    Counted,
}

impl Load {
    /// Makes `jobs` jobs of a kind, loads their batches, and works out what must come back. The
    /// clients look for messages for at most `spin` before they sleep; if it is zero, as they do by default.
    pub(super) fn prepare(
        socket: &Path,
        device: DeviceKind,
        kind: Kind<'_>,
        jobs: u32,
        spin: Duration,
    ) -> Result<Self, Trouble> {
        let threads = jobs.min(THREADS_MAX);
        let mut lanes = Vec::new();
        for thread in 0..threads {
            let client = Client::connect(socket)?;
            let client = if spin.is_zero() { client } else { client.with_spin(spin) };
            let own = (thread..jobs).step_by(threads as usize);
            let slots = own.map(|number| Slot::new(&client, kind, number, jobs));
            lanes.push(Lane { slots: slots.collect::<Result<_, _>>()?, client });
        }
        Ok(Self { lanes, device })
    }

    /// How often the supervisor has ordered a launch so far.
    pub(super) fn runs(&self) -> Result<u64, Trouble> {
        let Some(lane) = self.lanes.first() else { return Ok(0) };
        Ok(lane.client.status()?.counters.runs)
    }

    /// Submits `jobs` jobs, all that there are under way at a time, and waits for their verdicts.
    pub(super) fn round(&self, jobs: u32, answers: Answers) -> Result<Round, Trouble> {
        if let [only] = self.lanes.as_slice() {
            let started = clock::now();
            let evidence = only.run(jobs, answers, self.device)?;
            return Ok(Round { elapsed: started.elapsed(), evidence });
        }
        let count = u32::try_from(self.lanes.len()).unwrap_or(u32::MAX);
        let ready = Barrier::new(self.lanes.len() + 1);
        thread::scope(|scope| {
            let share = |number: u32| jobs / count + u32::from(number < jobs % count);
            let threads: Vec<_> = (0..)
                .zip(&self.lanes)
                .map(|(number, lane)| {
                    let ready = &ready;
                    scope.spawn(move || {
                        ready.wait();
                        lane.run(share(number), answers, self.device)
                    })
                })
                .collect();
            // Clients may be faster than this thread once all are ready.
            let started = clock::now();
            ready.wait();
            let done: Vec<_> = threads
                .into_iter()
                .map(|thread| thread.join().expect("a client thread does not panic"))
                .collect();
            let elapsed = started.elapsed();
            let mut evidence = Evidence::default();
            for lane in done {
                evidence.merge(lane?);
            }
            Ok(Round { elapsed, evidence })
        })
    }

    /// Submits the first job and waits for its answer.
    pub(super) fn one(&self) -> Result<JobAnswer, Trouble> {
        let lane = self.lanes.first().expect("a load has at least one job");
        let slot = lane.slots.first().expect("a lane has at least one job");
        Ok(lane.client.run(slot.job.clone())?)
    }
}

impl Lane {
    fn run(&self, jobs: u32, answers: Answers, device: DeviceKind) -> Result<Evidence, Trouble> {
        let mut evidence = Evidence::default();
        let mut under_way: VecDeque<(&Slot, JobHandle)> = VecDeque::new();
        let mut take = |(slot, handle): (&Slot, JobHandle)| {
            let answer = handle.wait()?;
            evidence.add(&answer.receipt, device).map_err(Trouble::Wrong)?;
            match answers {
                Answers::Compared => slot.compare(&answer),
                Answers::Counted => Ok(()),
            }
        };
        for (_, slot) in (0..jobs).zip(self.slots.iter().cycle()) {
            if under_way.len() == self.slots.len()
                && let Some(oldest) = under_way.pop_front()
            {
                take(oldest)?;
            }
            under_way.push_back((slot, self.client.submit(slot.job.clone())?));
        }
        under_way.into_iter().try_for_each(&mut take)?;
        Ok(evidence)
    }
}

impl Slot {
    /// Job `number` of `jobs`.
    fn new(client: &Client, kind: Kind<'_>, number: u32, jobs: u32) -> Result<Self, Trouble> {
        let first = u64::from(number) * u64::from(kind.batch);
        let grids: Range<u64> = first..first + u64::from(kind.batch);
        let batch = kind.source.batch(kind.workload, grids);
        let layout = batch.layout().map_err(ClientError::from)?;
        let result = OutputLayout::new(kind.program, layout).map_err(ClientError::from)?;
        if number == 0 {
            // Here and in the arenas there is one of each: the batch, the result, and what it must be.
            let one = 2 * (layout.bytes() as u64 + result.bytes() as u64);
            memory::room_for(one.saturating_mul(u64::from(jobs))).map_err(Trouble::Skipped)?;
        }
        let batch = Arc::new(batch);
        let want = native::outputs(kind.program, Arc::clone(&batch)).map_err(ClientError::from)?;
        let job = job(client, kind.program, &batch)?.with_deadline(DEADLINE);
        Ok(Self { job, want, first })
    }

    /// The error says which item differs from the reference's.
    fn compare(&self, answer: &JobAnswer) -> Result<(), Trouble> {
        let Some(outputs) = &answer.outputs else {
            return Err(Trouble::Wrong("a job ended OK without results".to_owned()));
        };
        match outputs.first_difference(&self.want) {
            Ok(None) => Ok(()),
            Ok(Some(item)) => {
                let number = self.first + item as u64;
                let worker = answer.receipt.attempts.last().map_or("?", |a| a.worker.as_str());
                Err(Trouble::Wrong(format!(
                    "item {item} of a job (grid {number}) from {worker} differs from the reference's"
                )))
            }
            Err(malformed) => Err(Trouble::Wrong(malformed.to_string())),
        }
    }
}

/// A job over a batch, as a client that submits it more than once would make it: in shared memory that
/// is loaded once, or in the message if it is small.
fn job(client: &Client, program: &Program, batch: &GridBatch) -> Result<Job, ClientError> {
    let layout = batch.layout()?;
    let result = OutputLayout::new(program, layout)?;
    if layout.bytes().max(result.bytes()) <= INLINE_BYTES_MAX {
        return Ok(Job::new(program.clone(), batch.clone())?);
    }
    Ok(Job::over(program.clone(), &client.load(batch)?)?)
}
