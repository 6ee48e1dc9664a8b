//! What the gateway knows about the pool. A request queries the pool if needed, one query at a time.
//! Requests that arrive during a query share the next one.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use gridpool_client::{Client, ClientError, Death, DeviceModel};
use gridpool_ipc::clock;
use gridpool_ipc::mutex::Mutex;
use gridpool_protocol::metrics::Metrics;
use gridpool_protocol::receipt::Receipt;
use gridpool_protocol::status::{LoadStatus, MissingModel, Status};
use gridpool_protocol::tensor::model::ModelInfo;
use gridpool_protocol::tensor::version::{parse_version, split};
use gridpool_protocol::timeline::{Mark, Part};
use tokio::sync::OwnedMutexGuard;
use tokio::time::timeout;

use super::blocking::run_blocking;
use super::catalogue::{Catalogue, PoolReport};
use super::failure::Failure;
use super::limits::{MODELS_EVERY, STATUS_TIMEOUT};
use super::listing::UNAVAILABLE;
use super::models::{Asked, GridModel, Model, OnnxModel, VERSION};
use super::pool;

/// See the module's text.
#[derive(Debug)]
pub(super) struct Observer {
    client: Client,
    /// Held by the running query, to its end.
    turn: Arc<tokio::sync::Mutex<()>>,
    /// Held by the running query for metrics.
    measuring: Arc<tokio::sync::Mutex<()>>,
    latest_view: Mutex<Arc<PoolView>>,
}

/// The pool, as of one query.
#[derive(Clone, Debug, Default)]
pub(super) struct PoolView {
    /// The time just before the query.
    asked: Option<Instant>,
    /// The pool drains.
    draining: bool,
    pub(super) catalogue: Catalogue,
    /// A row for each model and worker.
    pub(super) rows: Vec<DeviceModel>,
    /// The full names of the models that it should have, or is loading.
    expected: Vec<String>,
    loads: Vec<LoadStatus>,
    /// Models that no device serves, nor is about to.
    pub(super) missing: Vec<MissingModel>,
}

impl PoolView {
    /// Queries the pool, and updates what was known.
    fn ask(&self, client: &Client) -> Result<Self, ClientError> {
        let asked = clock::now();
        self.ask_after(client, (asked, client.status()?))
    }

    /// The same with a status that was asked for at this time.
    fn ask_after(
        &self,
        client: &Client,
        (asked, status): (Instant, Status),
    ) -> Result<Self, ClientError> {
        // A worker reports its models before it is READY, so every worker that serves has done so.
        let (workers, quarantines) = (status.workers, status.quarantines);
        let (expected, loads, missing) = (status.models, status.loads, status.missing);
        let mut report = PoolReport { workers, quarantines, rows: client.models()? };
        if report.is_inconsistent() {
            report.mark_ended(&client.status()?.workers);
        }
        let catalogue = self.catalogue.updated(&report);
        let (draining, rows) = (status.supervisor.draining, report.rows);
        let asked = Some(asked);
        Ok(Self { asked, draining, catalogue, rows, expected, loads, missing })
    }

    /// Whether the pool takes jobs.
    pub(super) fn is_open(&self) -> Result<(), String> {
        if self.draining { Err("the pool is draining".to_owned()) } else { Ok(()) }
    }

    /// Why a model that the pool should have is not served, although it should be, in words; `None` if the pool should
    /// not have it.
    fn why_not_served(&self, name: &str, version: Option<u32>) -> Option<String> {
        let is_it = |full_name: &str| {
            let (own, number) = split(full_name);
            own == name && version.is_none_or(|version| version == number)
        };
        let full_name = self.expected.iter().find(|full_name| is_it(full_name))?;
        let why = match self.missing.iter().find(|missing| missing.model == *full_name) {
            Some(missing) => missing.why.clone(),
            None => match self.loads.iter().find(|load| load.model == *full_name) {
                Some(load) => format!("{} is loading it: {}", load.worker, load.phase),
                None => "no worker has it yet".to_owned(),
            },
        };
        Some(format!("the model `{full_name}` is not served now: {why}"))
    }

    /// The versions that the pool is to have and no worker has had, each with its model's name.
    pub(super) fn coming(&self) -> impl Iterator<Item = (&str, u32)> {
        let is_new = |&(name, version): &(&str, u32)| {
            !self.catalogue.versions(name).any(|own| own.version() == version)
        };
        self.expected.iter().map(|full_name| split(full_name)).filter(is_new)
    }

    /// The state of a version that no worker has had, for the index, and why it is that.
    pub(super) fn why_unknown(&self, name: &str, version: u32) -> (&'static str, String) {
        let is_it = |full_name: &str| split(full_name) == (name, version);
        let state = match self.loads.iter().any(|load| is_it(&load.model)) {
            true => "LOADING",
            false => UNAVAILABLE,
        };
        let why = self.why_not_served(name, Some(version));
        (
            state,
            why.unwrap_or_else(|| {
                "it was not loaded; if it could not be, the pool's log says why".to_owned()
            }),
        )
    }

    /// Every model, in the order of the ops and then of names.
    pub(super) fn models(&self) -> impl Iterator<Item = Model> {
        let of_pool = self.catalogue.all().map(|model| {
            let model = Arc::clone(model);
            Model::Onnx(model, Asked::Version)
        });
        GridModel::all().map(Model::Grid).chain(of_pool)
    }
}

impl Observer {
    pub(super) fn connect(socket: &Path) -> Result<Self, ClientError> {
        let client = pool::connect(socket)?;
        Ok(Self {
            client,
            turn: Arc::default(),
            measuring: Arc::default(),
            latest_view: Mutex::default(),
        })
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    /// The result of the latest query.
    pub(super) fn latest(&self) -> Arc<PoolView> {
        Arc::clone(&self.latest_view.lock())
    }

    /// The pool as it is now.
    pub(super) async fn view(self: &Arc<Self>) -> Result<Arc<PoolView>, Failure> {
        let came = clock::now();
        let asking = async {
            let turn = Arc::clone(&self.turn).lock_owned().await;
            let last = self.latest();
            if last.asked.is_some_and(|asked| asked >= came) {
                return Ok(last);
            }
            self.update(turn, move |client| last.ask(client)).await
        };
        in_time(asking).await
    }

    /// The pool as a status says that was asked for at this time.
    pub(super) async fn view_of(
        self: &Arc<Self>,
        asked: (Instant, Status),
    ) -> Result<Arc<PoolView>, Failure> {
        let asking = async {
            let turn = Arc::clone(&self.turn).lock_owned().await;
            let last = self.latest();
            if last.asked.is_some_and(|last| last >= asked.0) {
                return Ok(last);
            }
            self.update(turn, move |client| last.ask_after(client, asked)).await
        };
        in_time(asking).await
    }

    async fn update(
        self: &Arc<Self>,
        turn: OwnedMutexGuard<()>,
        ask: impl FnOnce(&Client) -> Result<PoolView, ClientError> + Send + 'static,
    ) -> Result<Arc<PoolView>, Failure> {
        let this = Arc::clone(self);
        let ask = move || {
            let _turn = turn;
            let view = Arc::new(ask(&this.client)?);
            *this.latest_view.lock() = Arc::clone(&view);
            Ok(view)
        };
        run_blocking(ask).await
    }

    /// The pool's metrics as of now. One query at a time.
    pub(super) async fn measure(self: &Arc<Self>) -> Result<Metrics, Failure> {
        let asking = async {
            let turn = Arc::clone(&self.measuring).lock_owned().await;
            let this = Arc::clone(self);
            let ask = move || {
                let _turn = turn;
                Ok(this.client.metrics()?)
            };
            run_blocking(ask).await
        };
        in_time(asking).await
    }

    /// The last deaths of workers, those with a larger number, without what others run.
    pub(super) async fn deaths(self: &Arc<Self>, after: u64) -> Result<Vec<Death>, Failure> {
        let this = Arc::clone(self);
        in_time(run_blocking(move || Ok(this.client.deaths(after, None)?))).await
    }

    /// What comes of the timeline after a mark.
    pub(super) async fn timeline(self: &Arc<Self>, after: Mark) -> Result<Part, Failure> {
        let this = Arc::clone(self);
        in_time(run_blocking(move || Ok(this.client.timeline(after)?))).await
    }

    /// The version of a model that a request goes to: the one that it names, or the one that serves the name.
    pub(super) async fn find(
        self: &Arc<Self>,
        name: &str,
        version: Option<&str>,
    ) -> Result<Model, Failure> {
        let Some(model) = GridModel::find(name) else {
            return self.find_of_pool(name, version).await;
        };
        match version {
            Some(other) if other != VERSION => Err(Failure::unknown(format!(
                "the model `{name}` has no version `{other}`; its only one is `{VERSION}`"
            ))),
            Some(_) | None => Ok(Model::Grid(model)),
        }
    }

    async fn find_of_pool(
        self: &Arc<Self>,
        name: &str,
        version: Option<&str>,
    ) -> Result<Model, Failure> {
        let number = version.map(parse_version);
        let asked = if version.is_some() { Asked::Version } else { Asked::Name };
        let find = |view: &PoolView| match number {
            Some(None) => None,
            Some(number) => view.catalogue.find(name, number).cloned(),
            None => view.catalogue.find(name, None).cloned(),
        };
        let last = self.latest();
        let is_fresh = last.asked.is_some_and(|asked| asked.elapsed() < MODELS_EVERY);
        let known = Some(&last).filter(|_| is_fresh).and_then(|last| find(last));
        if let Some(model) = known.filter(|model| model.is_expected()) {
            return Ok(Model::Onnx(model, asked));
        }
        let view = self.view().await?;
        if let Some(model) = find(&view) {
            return Ok(Model::Onnx(model, asked));
        }
        let of_name: Vec<_> = view.catalogue.versions(name).map(|own| own.version()).collect();
        let expected = match number {
            Some(None) => None,
            Some(number) => view.why_not_served(name, number),
            None => view.why_not_served(name, None),
        };
        Err(match (expected, version) {
            (Some(why), _) => Failure::unavailable(why),
            (None, Some(version)) if !of_name.is_empty() => Failure::unknown(format!(
                "the model `{name}` has no version `{version}`; there is {of_name:?}"
            )),
            (None, _) => Failure::unknown(format!(
                "there is no model `{name}`; the index of the repository lists those that are served"
            )),
        })
    }

    /// The version that a request went to. It is not the one that was found before, if another took over meanwhile.
    pub(super) fn ran(&self, found: &Model, receipt: &Receipt) -> Model {
        let Model::Onnx(model, asked) = found else { return found.clone() };
        let report = receipt.attempts.last().and_then(|attempt| attempt.infer.as_ref());
        let Some(report) = report.filter(|report| report.model != model.info.name) else {
            return found.clone();
        };
        let (name, version) = split(&report.model);
        let known = self.latest().catalogue.find(name, Some(version)).cloned();
        let unknown = || {
            // The next look at the pool has it.
            let info = ModelInfo { name: report.model.clone(), ..model.info.clone() };
            Arc::new(OnnxModel { info, record: Arc::default(), ..OnnxModel::clone(model) })
        };
        Model::Onnx(known.unwrap_or_else(unknown), *asked)
    }
}

/// What the supervisor answers, if it does so in time.
async fn in_time<T>(asking: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let late = |_| Failure::unavailable("the supervisor does not answer");
    timeout(STATUS_TIMEOUT, asking).await.map_err(late)?
}
