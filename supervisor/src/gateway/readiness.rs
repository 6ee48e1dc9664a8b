//! Whether the pool is ready, which means: a known job went through it to a device and back a moment
//! ago, and its result was right. Nothing else counts, neither that processes live nor that they say so.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use gridpool_protocol::batch::{Grid, GridBatch};
use gridpool_protocol::chain::Chain;
use gridpool_protocol::client::{Client, ClientError, Job};
use gridpool_protocol::clock;
use gridpool_protocol::message::Priority;
use gridpool_protocol::output::Output;
use gridpool_protocol::program::{Program, Ties};
use gridpool_protocol::receipt::Verdict;

use super::limits::{READY_DEADLINE, READY_EVERY, READY_RETRY, READY_STALE};

/// The known job, and what comes of it.
const KNOWN_PROGRAM: &str = "rot90";
const KNOWN_INPUT: [[u8; 3]; 2] = [[1, 2, 3], [4, 5, 6]];
const KNOWN_OUTPUT: [[u8; 2]; 3] = [[4, 1], [5, 2], [6, 3]];

/// What came of the last run of the known job.
#[derive(Debug)]
pub(super) struct Readiness(Mutex<Last>);

#[derive(Clone, Debug)]
enum Last {
    /// It has not come back yet.
    Unknown,
    /// It was right.
    Right(Instant),
    /// It was not, or did not come back.
    Wrong(String),
    /// The connection to the pool is gone for good.
    Cut(String),
}

impl Readiness {
    pub(super) fn new() -> Self {
        Self(Mutex::new(Last::Unknown))
    }

    fn lock(&self) -> MutexGuard<'_, Last> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why the pool is not ready, if it is not.
    pub(super) fn check(&self) -> Result<(), String> {
        match &*self.lock() {
            Last::Unknown => Err("no job has come back from a device yet".to_owned()),
            Last::Right(when) if when.elapsed() <= READY_STALE => Ok(()),
            Last::Right(when) => {
                Err(format!("no job has come back from a device for {:.0?}", when.elapsed()))
            }
            Last::Wrong(why) | Last::Cut(why) => Err(why.clone()),
        }
    }

    /// Why there will be no other run, if that is so.
    pub(super) fn is_cut(&self) -> Option<String> {
        match &*self.lock() {
            Last::Cut(why) => Some(why.clone()),
            Last::Unknown | Last::Right(_) | Last::Wrong(_) => None,
        }
    }

    /// Runs the known job once; gives how long to wait before the next time.
    pub(super) fn probe(&self, client: &Client) -> Duration {
        let last = match run(client) {
            Ok(()) => Last::Right(clock::now()),
            Err(Fault::Client(error @ (ClientError::Closed(_) | ClientError::Lost))) => {
                Last::Cut(Chain(&error).to_string())
            }
            Err(fault) => Last::Wrong(format!("the last known job failed: {}", Chain(&fault))),
        };
        let (was_right, is_right) =
            (matches!(*self.lock(), Last::Right(_)), matches!(last, Last::Right(_)));
        match &last {
            Last::Right(_) if !was_right => tracing::info!("ready: a job came back from a device"),
            Last::Wrong(why) | Last::Cut(why) if was_right => tracing::warn!(why, "not ready"),
            Last::Unknown | Last::Right(_) | Last::Wrong(_) | Last::Cut(_) => {}
        }
        *self.lock() = last;
        if is_right { READY_EVERY } else { READY_RETRY }
    }
}

/// Why the known job did not do what it should.
#[derive(Debug, thiserror::Error)]
enum Fault {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("{verdict}: {reason}")]
    Verdict { verdict: Verdict, reason: String },
    #[error("its result was wrong: {0}")]
    Wrong(String),
}

fn run(client: &Client) -> Result<(), Fault> {
    let known = "the known job is right";
    let input = Grid::from_rows(&KNOWN_INPUT).expect(known);
    let batch = GridBatch::from_grids([&input]).expect(known);
    let program = Program::compile(KNOWN_PROGRAM, Ties::Cpython).expect(known);
    let job = Job::new(program, batch).expect(known);
    let job = job.with_deadline(READY_DEADLINE).with_priority(Priority::High);
    let answer = client.run(job)?;
    let Some(outputs) = answer.outputs else {
        let (verdict, reason) = (answer.receipt.verdict, answer.receipt.reason);
        return Err(Fault::Verdict { verdict, reason });
    };
    let want = Output::Grid(Grid::from_rows(&KNOWN_OUTPUT).expect(known));
    match outputs.item(0).map_err(ClientError::from)? {
        Ok(got) if got == want => Ok(()),
        Ok(got) => Err(Fault::Wrong(format!("{got:?}"))),
        Err(error) => Err(Fault::Wrong(error.to_string())),
    }
}
