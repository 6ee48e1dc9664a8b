//! A client as most are: by the client library, one job at a time, some over a batch that was loaded
//! once. Its history is what the library's user sees.

use std::path::Path;
use std::time::Instant;

use gridpool_client::{Client, ClientError, Job, LoadedBatch, Outputs};
use gridpool_ipc::clock;
use gridpool_protocol::ids::JobKey;

use super::board::Board;
use super::history::{Event, Found, Reply, Submitted};
use super::menu::{Menu, Order, Size};
use super::witness::AMPLE;
use crate::oracle::samples::SplitMix64;

/// Jobs over one loaded batch.
const LOADED_JOBS: u64 = 10;

/// See the module's text.
#[derive(Debug)]
pub struct Customer<'a> {
    client: Client,
    menu: &'a Menu,
    board: &'a Board,
    rng: SplitMix64,
    began: Instant,
    name: u64,
    next: u64,
    loaded: Option<(Order, LoadedBatch)>,
}

impl<'a> Customer<'a> {
    /// A client called `name`.
    ///
    /// # Errors
    /// A sentence, if the pool does not let it in.
    pub fn enter(
        socket: &Path,
        menu: &'a Menu,
        board: &'a Board,
        name: u64,
    ) -> Result<Self, String> {
        let client = Client::connect(socket).map_err(|error| error.to_string())?;
        let (rng, began) = (SplitMix64::new(name), clock::now());
        Ok(Self { client, menu, board, rng, began, name, next: 0, loaded: None })
    }

    /// Runs `count` jobs, or fewer if `stop` says so.
    pub fn round(&mut self, count: usize, stop: impl Fn() -> bool) -> Vec<Event> {
        let mut history = Vec::new();
        for _ in 0..count {
            if stop() {
                break;
            }
            let (order, job) = match self.order() {
                Ok(ordered) => ordered,
                Err(error) => {
                    history.push(Event::Broke(None, error.to_string()));
                    break;
                }
            };
            self.run(&order, job, &mut history);
        }
        history
    }

    fn order(&mut self) -> Result<(Order, Job<Outputs>), ClientError> {
        self.next += 1;
        let tag = (self.name % 1_000_000_000) * 10_000_000_000 + self.next;
        let size = if self.rng.below(20) == 0 { Size::Middle } else { Size::Small };
        if self.next % 200 < LOADED_JOBS {
            let (order, batch) = match self.loaded.take() {
                Some(loaded) => loaded,
                None => {
                    let order = self.menu.order(Size::Middle, tag, &mut self.rng);
                    let batch = self.client.load(order.batch())?;
                    (order, batch)
                }
            };
            let job = Job::over(order.program().clone(), &batch)?;
            self.loaded = Some((order.clone(), batch));
            return Ok((order, job));
        }
        self.loaded = None;
        let order = self.menu.order(size, tag, &mut self.rng);
        let job = Job::program(order.program().clone(), (**order.batch()).clone())?;
        Ok((order, job))
    }

    fn run(&mut self, order: &Order, job: Job<Outputs>, history: &mut Vec<Event>) {
        let key = JobKey(u128::from(self.name) << 64 | u128::from(self.next));
        let sent = clock::now();
        history.push(Event::Submitted(Submitted {
            key,
            expected: order.expected(),
            idempotent: true,
            at: sent - self.began,
            deadline: AMPLE,
        }));
        let accepted = self.client.submit(job.with_key(key).with_deadline(AMPLE));
        let answer = accepted.and_then(|handle| {
            history.push(Event::Accepted(key));
            if self.rng.below(100) == 0 {
                history.push(Event::Cancelled(key));
                handle.cancel();
            }
            handle.wait()
        });
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => return history.push(Event::Broke(Some(key), error.to_string())),
        };
        let found = match answer.outputs().map(|outputs| order.digest(outputs)) {
            None => Found::Nothing,
            Some(Ok(digest)) => Found::Digest(digest),
            Some(Err(error)) => Found::Malformed(error.to_string()),
        };
        let is_right = found == Found::Digest(order.expected());
        self.board.answered(&answer.receipt, is_right, sent, clock::now());
        let at = self.began.elapsed();
        history.push(Event::Replied(Reply::new(key, at, &answer.receipt, false, found)));
    }
}
