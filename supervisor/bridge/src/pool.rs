//! The pool of this host, as the bridge sees it: whether it answers, what it can work on, which models it has.

use std::io;
use std::time::{Duration, Instant};

use gridpool_client::{Client, ClientError};
use gridpool_ipc::clock;
use gridpool_nats::DeviceRow;
use gridpool_protocol::message::DeviceModel;
use gridpool_protocol::status::{Status, WorkerState};
use gridpool_protocol::tensor::model::ModelState;
use gridpool_protocol::tensor::version::{ModelRef, split};
use tokio::sync::watch;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{sleep, timeout};

/// How long the pool may take to answer.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Questions without an answer, one after the other, after which the bridge ends.
const FAILURES_MAX: u32 = 3;
/// How often it is asked.
const ASK_EVERY: Duration = Duration::from_secs(1);
/// Jobs for each device: one runs, and the others wait for it, so that it never waits for the network.
const JOBS_PER_DEVICE: u32 = 8;
/// Jobs that one client of a pool may have (`client_jobs_max`, unless it is set).
const JOBS_MAX: u32 = 64;

/// What the pool said last.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PoolState {
    /// It has answered.
    pub(crate) is_alive: bool,
    /// It takes no more jobs.
    pub(crate) is_draining: bool,
    /// Jobs that this bridge may have at a time.
    pub(crate) slots: u32,
    pub(crate) devices: Vec<DeviceRow>,
    pub(crate) models: Vec<DeviceModel>,
}

impl PoolState {
    fn new(status: &Status, models: Vec<DeviceModel>, under_way_max: Option<u32>) -> Self {
        let devices: Vec<_> = status.workers.iter().map(row).collect();
        let ready = status
            .workers
            .iter()
            .filter(|worker| matches!(worker.state, WorkerState::Ready | WorkerState::Busy));
        let ready = u32::try_from(ready.count()).unwrap_or(u32::MAX);
        let usual = ready.saturating_mul(JOBS_PER_DEVICE).clamp(1, JOBS_MAX);
        Self {
            is_alive: ready > 0,
            is_draining: status.supervisor.draining,
            slots: under_way_max.unwrap_or(usual),
            devices,
            models,
        }
    }

    /// The models as requests may name them: those that serve by their name, and each by its version.
    pub(crate) fn model_names(&self) -> Vec<String> {
        names_of(&self.models)
    }
}

/// The names under which requests may ask for these models.
pub(crate) fn names_of(models: &[DeviceModel]) -> Vec<String> {
    let mut names = Vec::new();
    for row in models.iter().filter(|row| row.model.state == ModelState::Ready) {
        let (name, version) = split(&row.model.name);
        names.extend(row.serves.then(|| name.to_owned()));
        names.push(format!("{name}:{version}"));
    }
    names.retain(|name| ModelRef::parse(name).is_ok());
    names.sort();
    names.dedup();
    names
}

fn row(worker: &gridpool_protocol::status::WorkerStatus) -> DeviceRow {
    DeviceRow {
        device: format!("{}{}", worker.device.kind, worker.device.index),
        name: worker.device.name.clone(),
        role: worker.role.clone(),
        state: worker.state.to_string(),
        jobs_done: worker.jobs_done,
    }
}

/// Asks the pool again and again, from now on. The task ends with the reason when the pool does not answer any more.
pub(crate) fn follow(
    pool: Client,
    under_way_max: Option<u32>,
) -> (watch::Receiver<PoolState>, JoinHandle<ClientError>) {
    let ask = move || {
        let pool = pool.clone();
        let asked = spawn_blocking(move || Ok::<_, ClientError>((pool.status()?, pool.models()?)));
        async {
            match timeout(ANSWER_TIMEOUT * 3, asked).await {
                Ok(Ok(answer)) => answer,
                Ok(Err(error)) => Err(ClientError::System(io::Error::other(error))),
                Err(late) => Err(ClientError::System(io::Error::other(late))),
            }
        }
    };
    let first = PoolState { slots: under_way_max.unwrap_or(1), ..PoolState::default() };
    let (tell, state) = watch::channel(first);
    let task = tokio::spawn(async move {
        let mut failures = 0;
        let mut heard: Instant = clock::now();
        loop {
            match ask().await {
                Ok((status, models)) => {
                    failures = 0;
                    heard = clock::now();
                    let new = PoolState::new(&status, models, under_way_max);
                    tell.send_if_modified(|old| std::mem::replace(old, new.clone()) != new);
                }
                Err(error) => {
                    failures += 1;
                    tracing::warn!(%error, silent_s = heard.elapsed().as_secs(), "the pool");
                    tell.send_modify(|state| state.is_alive = false);
                    // The connection may be dead while the pool is not: another bridge makes another one.
                    if failures == FAILURES_MAX {
                        return error;
                    }
                }
            }
            sleep(ASK_EVERY).await;
        }
    });
    (state, task)
}
