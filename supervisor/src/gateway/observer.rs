//! What the gateway knows of the pool: asked for when somebody wants to know, by one question at a time.
//! Whoever comes while one is under way shares the answer to the next, however many they are.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use gridpool_protocol::client::{Client, ClientError};
use gridpool_protocol::clock;
use gridpool_protocol::metrics::Metrics;
use tokio::time::timeout;

use super::catalogue::{Catalogue, Heard};
use super::failure::Failure;
use super::limits::{MODELS_EVERY, STATUS_TIMEOUT};
use super::models::{GridModel, Model, VERSION};
use super::pool;

/// See the module's text.
#[derive(Debug)]
pub(super) struct Observer {
    client: Client,
    /// Held by the question that is under way, to its end.
    turn: Arc<tokio::sync::Mutex<()>>,
    /// The same of questions for what was counted.
    measuring: Arc<tokio::sync::Mutex<()>>,
    seen: Mutex<Arc<View>>,
}

/// The pool, as it was when it was asked.
#[derive(Clone, Debug, Default)]
pub(super) struct View {
    /// Before the question was.
    asked: Option<Instant>,
    /// It finishes what it has.
    draining: bool,
    pub(super) catalogue: Catalogue,
}

impl View {
    /// Asks a pool, and lays what it says over what was known.
    fn ask(&self, client: &Client) -> Result<Self, ClientError> {
        let asked = Some(clock::now());
        let status = client.status()?;
        // A worker tells of its models before it is READY, so all that serve have told already.
        let (workers, quarantines) = (status.workers, status.quarantines);
        let mut heard = Heard { workers, quarantines, rows: client.models()? };
        if heard.is_doubtful() {
            heard.correct(&client.status()?.workers);
        }
        let catalogue = self.catalogue.after(&heard);
        Ok(Self { asked, draining: status.supervisor.draining, catalogue })
    }

    /// Whether the pool takes jobs.
    pub(super) fn is_open(&self) -> Result<(), String> {
        if self.draining { Err("the pool is draining".to_owned()) } else { Ok(()) }
    }

    /// Every model, in the order of the ops and then of names.
    pub(super) fn models(&self) -> impl Iterator<Item = Model> {
        let of_pool = self.catalogue.all().map(|model| Model::Onnx(Arc::clone(model)));
        GridModel::all().map(Model::Grid).chain(of_pool)
    }
}

impl Observer {
    pub(super) fn connect(socket: &Path) -> Result<Self, ClientError> {
        let client = pool::connect(socket)?;
        Ok(Self { client, turn: Arc::default(), measuring: Arc::default(), seen: Mutex::default() })
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    fn lock(&self) -> MutexGuard<'_, Arc<View>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was seen last.
    pub(super) fn last(&self) -> Arc<View> {
        Arc::clone(&self.lock())
    }

    /// The pool as it is now.
    pub(super) async fn look(self: &Arc<Self>) -> Result<Arc<View>, Failure> {
        let came = clock::now();
        let asking = async {
            let turn = Arc::clone(&self.turn).lock_owned().await;
            let last = self.last();
            if last.asked.is_some_and(|asked| asked >= came) {
                return Ok(last);
            }
            let this = Arc::clone(self);
            let ask = move || -> Result<_, Failure> {
                let _turn = turn;
                let view = Arc::new(last.ask(&this.client)?);
                *this.lock() = Arc::clone(&view);
                Ok(view)
            };
            let asked = tokio::task::spawn_blocking(ask).await;
            asked.map_err(|error| Failure::internal(error.to_string()))?
        };
        let late = |_| Failure::unavailable("the supervisor does not answer");
        timeout(STATUS_TIMEOUT, asking).await.map_err(late)?
    }

    /// What the pool has counted, up to now. One question at a time.
    pub(super) async fn measure(self: &Arc<Self>) -> Result<Metrics, Failure> {
        let asking = async {
            let turn = Arc::clone(&self.measuring).lock_owned().await;
            let this = Arc::clone(self);
            let ask = move || -> Result<_, Failure> {
                let _turn = turn;
                Ok(this.client.metrics()?)
            };
            let asked = tokio::task::spawn_blocking(ask).await;
            asked.map_err(|error| Failure::internal(error.to_string()))?
        };
        let late = |_| Failure::unavailable("the supervisor does not answer");
        timeout(STATUS_TIMEOUT, asking).await.map_err(late)?
    }

    /// The model of that name, in the version that the path names, if it names one.
    pub(super) async fn find(
        self: &Arc<Self>,
        name: &str,
        version: Option<&str>,
    ) -> Result<Model, Failure> {
        let model = match GridModel::find(name) {
            Some(model) => Model::Grid(model),
            None => self.find_of_pool(name).await?,
        };
        match version {
            Some(other) if other != VERSION => Err(Failure::unknown(format!(
                "the model `{name}` has no version `{other}`; its only one is `{VERSION}`"
            ))),
            Some(_) | None => Ok(model),
        }
    }

    async fn find_of_pool(self: &Arc<Self>, name: &str) -> Result<Model, Failure> {
        let last = self.last();
        let known = last.catalogue.find(name).filter(|model| model.can_be_asked().is_ok());
        let is_fresh = last.asked.is_some_and(|asked| asked.elapsed() < MODELS_EVERY);
        if let Some(model) = known.filter(|_| is_fresh) {
            return Ok(Model::Onnx(Arc::clone(model)));
        }
        let view = self.look().await?;
        if let Some(model) = view.catalogue.find(name) {
            return Ok(Model::Onnx(Arc::clone(model)));
        }
        // One that was never heard of may be one that is being loaded.
        Err(match view.catalogue.silence() {
            Some(why) => {
                Failure::unavailable(format!("it is not known if there is `{name}`: {why}"))
            }
            None => Failure::unknown(format!(
                "there is no model `{name}`; POST /v2/repository/index lists those that are served"
            )),
        })
    }
}
