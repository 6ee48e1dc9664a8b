//! An ordinary client: it uses the client library, one job at a time, some over a batch that was loaded
//! once, and now and then some together, which go as one. Its history is what the library's user sees.

use std::ops::Range;
use std::path::Path;
use std::time::{Duration, Instant};

use gridpool_client::{Answer, Client, ClientError, Job, LoadedBatch, Outputs};
use gridpool_ipc::clock;
use gridpool_protocol::ids::JobKey;

use super::board::Board;
use super::history::{Event, Found, Reply, Submitted};
use super::wire_client::AMPLE;
use super::workload::{Request, Size, Workload};
use crate::oracle::samples::SplitMix64;

/// Jobs over one loaded batch.
const LOADED_JOBS: u64 = 10;
/// One turn in so many sends jobs together, up to so many.
const BUNDLE_EVERY: usize = 8;
const BUNDLED_MAX: usize = 6;

/// See the module's text.
#[derive(Debug)]
pub struct LibraryClient<'a> {
    client: Client,
    workload: &'a Workload,
    board: &'a Board,
    rng: SplitMix64,
    began: Instant,
    name: u64,
    next: u64,
    loaded: Option<(Request, LoadedBatch)>,
}

impl<'a> LibraryClient<'a> {
    /// A client called `name`.
    ///
    /// # Errors
    /// A sentence, if the pool does not let it in.
    pub fn enter(
        socket: &Path,
        workload: &'a Workload,
        board: &'a Board,
        name: u64,
    ) -> Result<Self, String> {
        let client = Client::connect(socket).map_err(|error| error.to_string())?;
        let (rng, began) = (SplitMix64::new(name), clock::now());
        Ok(Self { client, workload, board, rng, began, name, next: 0, loaded: None })
    }

    /// Runs `count` jobs, or fewer if `stop` says so.
    pub fn round(&mut self, count: usize, stop: impl Fn() -> bool) -> Vec<Event> {
        let mut history = Vec::new();
        for _ in 0..count {
            if stop() {
                break;
            }
            if self.rng.below(BUNDLE_EVERY) == 0 {
                self.run_bundle(&mut history);
                continue;
            }
            let (request, job) = match self.request() {
                Ok(ordered) => ordered,
                Err(error) => {
                    history.push(Event::Broke(None, error.to_string()));
                    break;
                }
            };
            self.run(&request, job, &mut history);
        }
        history
    }

    fn request(&mut self) -> Result<(Request, Job<Outputs>), ClientError> {
        let tag = self.next_tags(1).start;
        let size = if self.rng.below(20) == 0 { Size::Middle } else { Size::Small };
        if self.next % 200 < LOADED_JOBS {
            let (request, batch) = match self.loaded.take() {
                Some(loaded) => loaded,
                None => {
                    let request = self.workload.request(Size::Middle, tag, &mut self.rng);
                    let batch = self.client.load(request.batch())?;
                    (request, batch)
                }
            };
            let job = Job::over(request.program().clone(), &batch)?;
            self.loaded = Some((request.clone(), batch));
            return Ok((request, job));
        }
        self.loaded = None;
        let request = self.workload.request(size, tag, &mut self.rng);
        let job = Job::program(request.program().clone(), (**request.batch()).clone())?;
        Ok((request, job))
    }

    /// The numbers of the next jobs.
    fn next_tags(&mut self, count: u64) -> Range<u64> {
        let first = (self.name % 1_000_000_000) * 10_000_000_000 + self.next + 1;
        self.next += count;
        first..first + count
    }

    fn run_bundle(&mut self, history: &mut Vec<Event>) {
        let count = 2 + self.rng.below(BUNDLED_MAX - 1);
        let tags = self.next_tags(count as u64);
        let requests = self.workload.alike(tags, &mut self.rng);
        let job = |request: &Request| {
            let (program, batch) = (request.program().clone(), (**request.batch()).clone());
            Job::program(program, batch).map(|job| job.with_deadline(AMPLE))
        };
        let sent = clock::now();
        let jobs = requests.iter().map(job).collect::<Result<Vec<_>, _>>();
        let handles =
            match jobs.map_err(ClientError::from).and_then(|jobs| self.client.submit_many(jobs)) {
                Ok(handles) => handles,
                Err(error) => return history.push(Event::Broke(None, error.to_string())),
            };
        let at = sent - self.began;
        for (request, handle) in requests.iter().zip(&handles) {
            history.push(Event::Submitted(submitted(handle.key(), request, at)));
            history.push(Event::Accepted(handle.key()));
        }
        for (request, handle) in requests.iter().zip(handles) {
            let key = handle.key();
            if self.rng.below(100) == 0 {
                history.push(Event::Cancelled(key));
                handle.cancel();
            }
            match handle.wait() {
                Ok(answer) => self.note(key, request, &answer, sent, history),
                Err(error) => history.push(Event::Broke(Some(key), error.to_string())),
            }
        }
    }

    fn run(&mut self, request: &Request, job: Job<Outputs>, history: &mut Vec<Event>) {
        let key = JobKey(u128::from(self.name) << 64 | u128::from(self.next));
        let sent = clock::now();
        history.push(Event::Submitted(submitted(key, request, sent - self.began)));
        let accepted = self.client.submit(job.with_key(key).with_deadline(AMPLE));
        let answer = accepted.and_then(|handle| {
            history.push(Event::Accepted(key));
            if self.rng.below(100) == 0 {
                history.push(Event::Cancelled(key));
                handle.cancel();
            }
            handle.wait()
        });
        match answer {
            Ok(answer) => self.note(key, request, &answer, sent, history),
            Err(error) => history.push(Event::Broke(Some(key), error.to_string())),
        }
    }

    fn note(
        &self,
        key: JobKey,
        request: &Request,
        answer: &Answer<Outputs>,
        sent: Instant,
        history: &mut Vec<Event>,
    ) {
        let found = match answer.outputs().map(|outputs| request.digest(outputs)) {
            None => Found::Nothing,
            Some(Ok(digest)) => Found::Digest(digest),
            Some(Err(error)) => Found::Malformed(error.to_string()),
        };
        let is_right = found == Found::Digest(request.expected());
        self.board.answered(&answer.receipt, is_right, sent, clock::now());
        let at = self.began.elapsed();
        history.push(Event::Replied(Reply::new(key, at, &answer.receipt, false, found)));
    }
}

fn submitted(key: JobKey, request: &Request, at: Duration) -> Submitted {
    Submitted { key, expected: request.expected(), idempotent: true, at, deadline: AMPLE }
}
