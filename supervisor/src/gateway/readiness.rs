//! Whether the pool is ready: a known job ran on a device a moment ago and its result was right. If the
//! pool has models, one of them must have run too ([`probe`](super::probe)). Living processes and their
//! own claims do not count.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use gridpool_client::{Client, ClientError, Job, JobError, Principal};
use gridpool_ipc::clock;
use gridpool_ipc::mutex::Mutex;
use gridpool_protocol::batch::{Grid, GridBatch};
use gridpool_protocol::chain::Chain;
use gridpool_protocol::message::Priority;
use gridpool_protocol::output::Output;
use gridpool_protocol::program::{Program, Ties};
use tokio::time::timeout;

use super::Server;
use super::failure::Failure;
use super::limits::{
    PROBE_WAIT, READY_DEADLINE, READY_EVERY, READY_RETRY, READY_STALE, REQUESTS_EACH_MAX,
    REQUESTS_MAX,
};
use super::models::{Availability, OnnxModel};
use super::observer::PoolView;
use super::shares::Full;

/// The program of the known job. Its grid differs each time, so that no known job is ever denylisted or
/// answered from memory.
const KNOWN_PROGRAM: &str = "rot90";

/// Grid number `run`, of two rows and three columns, and that grid after a quarter turn.
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

/// The outcome of the last run of the known job.
#[derive(Debug)]
pub(super) struct Readiness {
    last: Mutex<GridProbe>,
    runs: AtomicU32,
}

#[derive(Clone, Debug)]
enum GridProbe {
    /// No run has ended yet.
    Unknown,
    /// The result was right.
    Succeeded(Instant),
    /// The result was wrong, or there was none.
    Failed(String),
    /// The connection to the pool is gone for good.
    Cut(String),
}

impl Readiness {
    pub(super) fn new() -> Self {
        Self { last: Mutex::new(GridProbe::Unknown), runs: AtomicU32::new(0) }
    }

    /// Why the pool is not ready, if it is not.
    pub(super) fn check(&self) -> Result<(), String> {
        match &*self.last.lock() {
            GridProbe::Unknown => Err("no job has come back from a device yet".to_owned()),
            GridProbe::Succeeded(when) if when.elapsed() <= READY_STALE => Ok(()),
            GridProbe::Succeeded(when) => {
                Err(format!("no job has come back from a device for {:.0?}", when.elapsed()))
            }
            GridProbe::Failed(why) | GridProbe::Cut(why) => Err(why.clone()),
        }
    }

    /// Why the connection to the pool is gone for good, if it is.
    pub(super) fn is_cut(&self) -> Option<String> {
        match &*self.last.lock() {
            GridProbe::Cut(why) => Some(why.clone()),
            GridProbe::Unknown | GridProbe::Succeeded(_) | GridProbe::Failed(_) => None,
        }
    }

    /// Runs the known job once and returns how long to wait before the next run.
    pub(super) async fn probe(&self, client: &Client) -> Duration {
        let last = match run(client, self.runs.fetch_add(1, Ordering::Relaxed)).await {
            Ok(()) => GridProbe::Succeeded(clock::now()),
            Err(Fault::Client(error @ (ClientError::Closed(_) | ClientError::Lost))) => {
                GridProbe::Cut(Chain(&error).to_string())
            }
            Err(fault) => {
                GridProbe::Failed(format!("the last known job failed: {}", Chain(&fault)))
            }
        };
        let (was_ready, is_ready_now) = (
            matches!(*self.last.lock(), GridProbe::Succeeded(_)),
            matches!(last, GridProbe::Succeeded(_)),
        );
        match &last {
            GridProbe::Succeeded(_) if !was_ready => {
                tracing::info!("ready: a job came back from a device")
            }
            GridProbe::Failed(why) | GridProbe::Cut(why) if was_ready => {
                tracing::warn!(why, "not ready")
            }
            GridProbe::Unknown
            | GridProbe::Succeeded(_)
            | GridProbe::Failed(_)
            | GridProbe::Cut(_) => {}
        }
        *self.last.lock() = last;
        if is_ready_now { READY_EVERY } else { READY_RETRY }
    }
}

/// Why the known job failed.
#[derive(Debug, thiserror::Error)]
enum Fault {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error(transparent)]
    Verdict(#[from] JobError),
    #[error("its result was wrong: {0}")]
    WrongResult(String),
}

async fn run(client: &Client, run: u32) -> Result<(), Fault> {
    let known = "the known job is right";
    let [input, want] = known_grids(run);
    let batch = GridBatch::from_grids([&input]).expect(known);
    let program = Program::compile(KNOWN_PROGRAM, Ties::Cpython).expect(known);
    let job = Job::program(program, batch).expect(known);
    let job = job.with_deadline(READY_DEADLINE).with_priority(Priority::High);
    // The small batch travels in the message, so sending waits for no shared memory.
    let outputs = client.send(job)?.await?.ok()?;
    match outputs.item(0).map_err(ClientError::from)? {
        Ok(Output::Grid(got)) if got == want => Ok(()),
        Ok(got) => Err(Fault::WrongResult(format!("{got:?}, not {want:?}"))),
        Err(error) => Err(Fault::WrongResult(error.to_string())),
    }
}

impl Server {
    /// Why a request of a client, or of any, would be refused now for want of room, if one was lately.
    pub(super) fn why_saturated(&self, principal: Option<&Principal>) -> Option<String> {
        let requests = self.slots.why_full(principal).map(|full| match full {
            Full::All => format!("{REQUESTS_MAX} requests are in progress"),
            Full::Own => format!("{REQUESTS_EACH_MAX} requests of yours are in progress"),
        });
        requests.or_else(|| {
            self.budget.why_full(principal).map(|full| match full {
                Full::All => "the requests in progress hold all memory for bodies".to_owned(),
                Full::Own => {
                    "your requests in progress hold your part of the memory for bodies".to_owned()
                }
            })
        })
    }

    /// Checks that the known job succeeded recently and that the pool accepts jobs.
    pub(super) async fn check_grids(&self) -> Result<Arc<PoolView>, Failure> {
        self.readiness.check().map_err(Failure::unavailable)?;
        let view = self.observer.view().await?;
        view.is_open().map_err(Failure::unavailable)?;
        Ok(view)
    }

    /// Checks that at least one model is ready, if the pool has models. One is enough: a failing model
    /// reports that on its own path, and must not take the others out of service.
    pub(super) async fn check_models(&self, view: &PoolView) -> Result<(), Failure> {
        let is_ready = |model: &&Arc<OnnxModel>| model.availability == Availability::Ready;
        let ready: Vec<_> = view.catalogue.all().filter(is_ready).collect();
        let is_probed = |model: &Arc<OnnxModel>| model.probed() == Some(Ok(()));
        if ready.iter().any(|model| is_probed(model)) {
            return Ok(());
        }
        let mut why = None;
        for model in ready {
            match self.probe_model(model).await {
                Ok(()) => return Ok(()),
                Err(one) => why = why.or(Some(one)),
            }
        }
        let none = || {
            let mut others =
                view.catalogue.all().filter(|model| model.availability != Availability::Unloaded);
            others.find_map(|model| {
                let (name, why) = (&model.info.name, model.why_not_ready()?);
                Some(format!("no model is ready; `{name}`: {why}"))
            })
        };
        let outage = view.catalogue.outage().map(str::to_owned);
        why.or(outage).or_else(none).map_or(Ok(()), |why| Err(Failure::unavailable(why)))
    }

    /// Checks that a model is ready: a worker has it and ran it recently.
    pub(super) async fn check_model(
        &self,
        name: &str,
        version: Option<u32>,
    ) -> Result<(), Failure> {
        let view = self.observer.view().await?;
        view.is_open().map_err(Failure::unavailable)?;
        let gone = || Failure::unavailable(format!("`{name}` was unloaded"));
        let model = view.catalogue.find(name, version).ok_or_else(gone)?;
        match model.why_not_ready() {
            Some(why) => Err(Failure::unavailable(why)),
            None => self.probe_model(model).await.map_err(Failure::unavailable),
        }
    }

    /// Checks that a model runs. If there is no recent proof, one of the requests that wait probes it.
    async fn probe_model(&self, model: &Arc<OnnxModel>) -> Result<(), String> {
        let proof = |model: &OnnxModel| model.probed();
        let trying = async {
            if let Some(known) = proof(model) {
                return known;
            }
            let turn = Arc::clone(&model.record.turn).lock_owned().await;
            if let Some(known) = proof(model) {
                return known;
            }
            let slot = Arc::clone(&self.probes).acquire_owned().await;
            let slot = slot.expect("the semaphore is never closed");
            let (client, model) = (self.observer.client().clone(), Arc::clone(model));
            // A task of its own, since the client may not wait for its end.
            let tried = tokio::spawn(async move {
                let _held = (turn, slot);
                model.record.probe.probe(&client, &model.info).await
            });
            tried.await.unwrap_or_else(|error| Err(error.to_string()))
        };
        timeout(PROBE_WAIT, trying).await.unwrap_or_else(|_| {
            let (name, wait) = (&model.info.name, PROBE_WAIT.as_secs());
            Err(format!("the probe of the model `{name}` has not returned for {wait} s"))
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
    fn the_pool_is_ready_after_a_right_run_until_that_run_is_stale() {
        let readiness = Readiness::new();
        let is = |last| {
            *readiness.last.lock() = last;
            readiness.check()
        };
        assert!(is(GridProbe::Unknown).unwrap_err().contains("no job has come back"));
        assert_eq!(is(GridProbe::Succeeded(clock::now())), Ok(()));
        let old = clock::now().checked_sub(READY_STALE + Duration::from_secs(1)).unwrap();
        assert!(is(GridProbe::Succeeded(old)).unwrap_err().contains("for 61s"));
        assert_eq!(is(GridProbe::Failed("why".to_owned())), Err("why".to_owned()));
        assert_eq!(readiness.is_cut(), None);
        assert_eq!(is(GridProbe::Cut("cut".to_owned())), Err("cut".to_owned()));
        assert_eq!(readiness.is_cut(), Some("cut".to_owned()));
    }
}
