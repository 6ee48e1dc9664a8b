//! Jobs through a pool: client threads, each with a connection, that keep a number of jobs in flight.
//!
//! It decides what is submitted and when. Every job in flight has grids of its own, so that an answer that
//! went to the wrong job is detected. It only compares answers and does not interpret them.

use std::collections::VecDeque;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use gridpool_client::{Answer, Client, ClientError, Handle, Job, Outputs};
use gridpool_ipc::clock;
use gridpool_protocol::batch::GridBatch;
use gridpool_protocol::bench::Workload;
use gridpool_protocol::ids::DeviceKind;
use gridpool_protocol::limits::INLINE_BYTES_MAX;
use gridpool_protocol::output::OutputLayout;
use gridpool_protocol::program::Program;

use super::evidence::Evidence;
use super::failure::Failure;
use super::memory;
use super::native;
use super::repeat::at_once;
use super::workload::Source;

/// Most client threads; each has a connection, and they share the jobs in flight.
pub(super) const THREADS_MAX: u32 = 8;
/// The deadline of a job: a large batch on one core may take long.
const DEADLINE: Duration = Duration::from_secs(600);

/// The content of the jobs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kind<'a> {
    pub(super) source: &'a Source,
    pub(super) program: &'a Program,
    pub(super) workload: Workload,
    /// Items of one job.
    pub(super) batch: u32,
}

/// Jobs that can be submitted again and again.
#[derive(Debug)]
pub(super) struct Load {
    clients: Vec<ClientJobs>,
    device: DeviceKind,
}

/// The jobs of one client thread.
#[derive(Debug)]
struct ClientJobs {
    client: Client,
    jobs: Vec<PreparedJob>,
}

/// One job, and its right result.
#[derive(Debug)]
struct PreparedJob {
    job: Job<Outputs>,
    want: Outputs,
    /// The number of its first grid in the stream.
    first: u64,
}

/// The result of a round.
#[derive(Debug, Default)]
pub(super) struct Round {
    pub(super) elapsed: Duration,
    pub(super) evidence: Evidence,
}

/// How answers are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answers {
    /// Every byte is compared with the reference.
    Compared,
    /// Only the receipt is checked.
    Counted,
}

impl Load {
    /// Makes `jobs` jobs of a kind, loads their batches, and computes the right results. The clients poll for
    /// messages for at most `spin` before they sleep; the default is zero.
    pub(super) fn prepare(
        socket: &Path,
        device: DeviceKind,
        kind: Kind<'_>,
        (jobs, together): (u32, u32),
        spin: Duration,
    ) -> Result<Self, Failure> {
        let threads = jobs.min(THREADS_MAX);
        let mut clients = Vec::new();
        for thread in 0..threads {
            let client = Client::builder().socket(socket);
            let client = if spin.is_zero() { client } else { client.spin(spin) }.connect()?;
            let own = (thread..jobs).step_by(threads as usize);
            let is_loaded = together == 1;
            let jobs = own.map(|number| PreparedJob::new(&client, kind, (number, jobs), is_loaded));
            clients.push(ClientJobs { jobs: jobs.collect::<Result<_, _>>()?, client });
        }
        Ok(Self { clients, device })
    }

    /// How many dispatches the supervisor has sent so far.
    pub(super) fn runs(&self) -> Result<u64, Failure> {
        let Some(client_jobs) = self.clients.first() else { return Ok(0) };
        Ok(client_jobs.client.status()?.counters.runs)
    }

    /// Submits `jobs` jobs, `together` of them at a time, with all jobs in flight at a time, and waits for their
    /// verdicts.
    pub(super) fn round(
        &self,
        jobs: u32,
        together: u32,
        answers: Answers,
    ) -> Result<Round, Failure> {
        let together = together as usize;
        if let [only] = self.clients.as_slice() {
            let started = clock::now();
            let evidence = only.run(jobs, together, answers, self.device)?;
            return Ok(Round { elapsed: started.elapsed(), evidence });
        }
        let count = u32::try_from(self.clients.len()).unwrap_or(u32::MAX);
        let share = |number: u32| jobs / count + u32::from(number < jobs % count);
        let shares: Vec<_> = (0..count).map(share).zip(&self.clients).collect();
        let (elapsed, done) = at_once(shares.into_iter(), |(jobs, client_jobs)| {
            client_jobs.run(jobs, together, answers, self.device)
        });
        let mut evidence = Evidence::default();
        for client_jobs in done {
            evidence.merge(client_jobs?);
        }
        Ok(Round { elapsed, evidence })
    }

    /// Submits the first job and waits for its answer.
    pub(super) fn one(&self) -> Result<Answer<Outputs>, Failure> {
        let client_jobs = self.clients.first().expect("a load has at least one job");
        let prepared = client_jobs.jobs.first().expect("a client has at least one job");
        Ok(client_jobs.client.run(prepared.job.clone())?)
    }
}

impl ClientJobs {
    fn run(
        &self,
        jobs: u32,
        together: usize,
        answers: Answers,
        device: DeviceKind,
    ) -> Result<Evidence, Failure> {
        let mut evidence = Evidence::default();
        let mut under_way: VecDeque<(&PreparedJob, Handle<Outputs>)> = VecDeque::new();
        let mut take = |(prepared, handle): (&PreparedJob, Handle<Outputs>)| {
            let answer = handle.wait()?;
            evidence.add(&answer.receipt, device).map_err(Failure::Wrong)?;
            match answers {
                Answers::Compared => prepared.compare(&answer),
                Answers::Counted => Ok(()),
            }
        };
        let jobs: Vec<_> = self.jobs.iter().cycle().take(jobs as usize).collect();
        for jobs in jobs.chunks(together) {
            let room = self.jobs.len().saturating_sub(jobs.len());
            let done = under_way.len().saturating_sub(room);
            under_way.drain(..done).try_for_each(&mut take)?;
            let handles = match jobs {
                [only] => vec![self.client.send(only.job.clone())?],
                jobs => self.client.send_many(jobs.iter().map(|prepared| prepared.job.clone()))?,
            };
            under_way.extend(jobs.iter().copied().zip(handles));
        }
        under_way.into_iter().try_for_each(&mut take)?;
        Ok(evidence)
    }
}

impl PreparedJob {
    /// Job `number` of `jobs`.
    fn new(
        client: &Client,
        kind: Kind<'_>,
        (number, jobs): (u32, u32),
        is_loaded: bool,
    ) -> Result<Self, Failure> {
        let first = u64::from(number) * u64::from(kind.batch);
        let grids: Range<u64> = first..first + u64::from(kind.batch);
        let batch = kind.source.batch(kind.workload, grids);
        let layout = batch.layout().map_err(ClientError::from)?;
        let result = OutputLayout::new(kind.program, layout).map_err(ClientError::from)?;
        if number == 0 {
            // This process and the arenas each hold the batch, the result and the right result.
            let one = 2 * (layout.bytes() as u64 + result.bytes() as u64);
            memory::check_available(one.saturating_mul(u64::from(jobs)))
                .map_err(Failure::Skipped)?;
        }
        let batch = Arc::new(batch);
        let want = native::outputs(kind.program, Arc::clone(&batch)).map_err(ClientError::from)?;
        let job = job(client, kind.program, &batch, is_loaded)?.with_deadline(DEADLINE);
        Ok(Self { job, want, first })
    }

    /// Compares an answer; the error names the item that differs from the reference.
    fn compare(&self, answer: &Answer<Outputs>) -> Result<(), Failure> {
        let Some(outputs) = answer.outputs() else {
            return Err(Failure::Wrong("a job ended OK without results".to_owned()));
        };
        match outputs.first_difference(&self.want) {
            Ok(None) => Ok(()),
            Ok(Some(item)) => {
                let number = self.first + item as u64;
                let worker = answer.receipt.attempts.last().map_or("?", |a| &*a.worker);
                Err(Failure::Wrong(format!(
                    "item {item} of a job (grid {number}) from {worker} differs from the reference's"
                )))
            }
            Err(malformed) => Err(Failure::Wrong(malformed.to_string())),
        }
    }
}

/// A job over a batch, as a client makes it that submits it more than once: the batch is loaded into shared
/// memory once, or travels in the message if it is small. Those that are sent together are not loaded: they go as one.
fn job(
    client: &Client,
    program: &Program,
    batch: &GridBatch,
    is_loaded: bool,
) -> Result<Job<Outputs>, ClientError> {
    let layout = batch.layout()?;
    let result = OutputLayout::new(program, layout)?;
    if !is_loaded || layout.bytes().max(result.bytes()) <= INLINE_BYTES_MAX {
        return Ok(Job::program(program.clone(), batch.clone())?);
    }
    Ok(Job::over(program.clone(), &client.load(batch)?)?)
}
