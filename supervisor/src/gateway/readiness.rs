//! Whether the pool is ready, which means: a known job went through it to a device and back a moment
//! ago, and its result was right; and where the pool has models, that one of them has been run likewise
//! ([`trial`](super::trial)). Nothing else counts, neither that processes live nor that they say so.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use gridpool_protocol::batch::{Grid, GridBatch};
use gridpool_protocol::chain::Chain;
use gridpool_protocol::client::{Client, ClientError, Job};
use gridpool_protocol::clock;
use gridpool_protocol::message::Priority;
use gridpool_protocol::output::Output;
use gridpool_protocol::program::{Program, Ties};
use gridpool_protocol::receipt::Verdict;
use tokio::time::timeout;

use super::Gateway;
use super::failure::Failure;
use super::limits::{READY_DEADLINE, READY_EVERY, READY_RETRY, READY_STALE, TRIAL_WAIT};
use super::models::{OnnxModel, State};
use super::observer::View;

/// The program of the known job. Its grid is another one each time: no job of it is ever one that was
/// convicted, or remembered.
const KNOWN_PROGRAM: &str = "rot90";

/// Grid number `run`, of two rows of three cells, and the same after a quarter turn.
fn known_grids(run: u32) -> [Grid; 2] {
    let mut rest = run;
    let [a, b, c, d, e, f] = [(); 6].map(|()| {
        let digit = rest % 10;
        rest /= 10;
        u8::try_from(digit).expect("a digit is a colour")
    });
    let input = Grid::from_rows(&[[a, b, c], [d, e, f]]);
    let output = Grid::from_rows(&[[d, a], [e, b], [f, c]]);
    [input, output].map(|grid| grid.expect("the known grids are grids"))
}

/// What came of the last run of the known job.
#[derive(Debug)]
pub(super) struct Readiness {
    last: Mutex<Last>,
    runs: AtomicU32,
}

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
        Self { last: Mutex::new(Last::Unknown), runs: AtomicU32::new(0) }
    }

    fn lock(&self) -> MutexGuard<'_, Last> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
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
        let last = match run(client, self.runs.fetch_add(1, Ordering::Relaxed)) {
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

fn run(client: &Client, run: u32) -> Result<(), Fault> {
    let known = "the known job is right";
    let [input, want] = known_grids(run);
    let batch = GridBatch::from_grids([&input]).expect(known);
    let program = Program::compile(KNOWN_PROGRAM, Ties::Cpython).expect(known);
    let job = Job::new(program, batch).expect(known);
    let job = job.with_deadline(READY_DEADLINE).with_priority(Priority::High);
    let answer = client.run(job)?;
    let Some(outputs) = answer.outputs else {
        let (verdict, reason) = (answer.receipt.verdict, answer.receipt.reason);
        return Err(Fault::Verdict { verdict, reason });
    };
    match outputs.item(0).map_err(ClientError::from)? {
        Ok(Output::Grid(got)) if got == want => Ok(()),
        Ok(got) => Err(Fault::Wrong(format!("{got:?}, not {want:?}"))),
        Err(error) => Err(Fault::Wrong(error.to_string())),
    }
}

impl Gateway {
    /// Whether a job of grids came back from a device lately, and the pool still takes jobs.
    pub(super) async fn check_grids(&self) -> Result<Arc<View>, Failure> {
        self.readiness.check().map_err(Failure::unavailable)?;
        let view = self.observer.look().await?;
        view.is_open().map_err(Failure::unavailable)?;
        Ok(view)
    }

    /// Whether one model at least is ready, where the pool has models. One is enough: a model that fails
    /// has a path of its own that says so, and must not take the others, and grids, out of service.
    pub(super) async fn check_models(&self, view: &View) -> Result<(), Failure> {
        let is_ready = |model: &&Arc<OnnxModel>| model.state == State::Ready;
        let ready: Vec<_> = view.catalogue.all().filter(is_ready).collect();
        let is_proven = |model: &Arc<OnnxModel>| model.record.proof.check(model) == Some(Ok(()));
        if ready.iter().any(|model| is_proven(model)) {
            return Ok(());
        }
        let mut why = None;
        for model in ready {
            match self.prove(model).await {
                Ok(()) => return Ok(()),
                Err(one) => why = why.or(Some(one)),
            }
        }
        let none = || {
            let mut others = view.catalogue.all().filter(|model| model.state != State::Unloaded);
            others.find_map(|model| {
                let (name, why) = (&model.info.name, model.why_not_ready()?);
                Some(format!("no model is ready; `{name}`: {why}"))
            })
        };
        let silence = view.catalogue.silence().map(str::to_owned);
        why.or(silence).or_else(none).map_or(Ok(()), |why| Err(Failure::unavailable(why)))
    }

    /// Whether a model is ready: a worker has it, and a run of it came back from a device lately.
    pub(super) async fn check_model(&self, name: &str) -> Result<(), Failure> {
        let view = self.observer.look().await?;
        view.is_open().map_err(Failure::unavailable)?;
        let gone = || Failure::unavailable(format!("`{name}` was unloaded"));
        let model = view.catalogue.find(name).ok_or_else(gone)?;
        match model.why_not_ready() {
            Some(why) => Err(Failure::unavailable(why)),
            None => self.prove(model).await.map_err(Failure::unavailable),
        }
    }

    /// Finds a proof that a model runs, or makes one. Of all who ask for one, one tries.
    async fn prove(&self, model: &Arc<OnnxModel>) -> Result<(), String> {
        let proof = |model: &OnnxModel| model.record.proof.check(model);
        let trying = async {
            if let Some(known) = proof(model) {
                return known;
            }
            let turn = Arc::clone(&model.record.turn).lock_owned().await;
            if let Some(known) = proof(model) {
                return known;
            }
            let slot = Arc::clone(&self.slots).acquire_owned().await;
            let slot = slot.expect("the slots are never closed");
            let (client, model) = (self.observer.client().clone(), Arc::clone(model));
            let tried = tokio::task::spawn_blocking(move || {
                let _held = (turn, slot);
                model.record.proof.try_once(&client, &model.info)
            });
            tried.await.unwrap_or_else(|error| Err(error.to_string()))
        };
        timeout(TRIAL_WAIT, trying).await.unwrap_or_else(|_| {
            let (name, wait) = (&model.info.name, TRIAL_WAIT.as_secs());
            Err(format!("the trial of the model `{name}` has not come back for {wait} s"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_known_grids_are_quarter_turns_and_differ() {
        let [input, output] = known_grids(654_321);
        assert_eq!(input, Grid::from_rows(&[[1, 2, 3], [4, 5, 6]]).unwrap());
        assert_eq!(output, Grid::from_rows(&[[4, 1], [5, 2], [6, 3]]).unwrap());
        let mut inputs: Vec<_> = (0..1_000).map(|run| known_grids(run)[0].clone()).collect();
        inputs.sort();
        inputs.dedup();
        assert_eq!(inputs.len(), 1_000);
        known_grids(u32::MAX);
    }

    #[test]
    fn it_is_ready_after_a_right_run_and_for_no_longer_than_it_says_something() {
        let readiness = Readiness::new();
        let is = |last| {
            *readiness.lock() = last;
            readiness.check()
        };
        assert!(is(Last::Unknown).unwrap_err().contains("no job has come back"));
        assert_eq!(is(Last::Right(clock::now())), Ok(()));
        let old = clock::now().checked_sub(READY_STALE + Duration::from_secs(1)).unwrap();
        assert!(is(Last::Right(old)).unwrap_err().contains("for 61s"));
        assert_eq!(is(Last::Wrong("why".to_owned())), Err("why".to_owned()));
        assert_eq!(readiness.is_cut(), None);
        assert_eq!(is(Last::Cut("cut".to_owned())), Err("cut".to_owned()));
        assert_eq!(readiness.is_cut(), Some("cut".to_owned()));
    }
}
