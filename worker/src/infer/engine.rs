//! The engine of inference: models by name, requests in, answers out. It knows neither the supervisor
//! nor the wire.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use gridpool_protocol::chain::Chain;
use gridpool_protocol::ids::DeviceKind;
use gridpool_protocol::tensor::TensorError;
use gridpool_protocol::tensor::model::{ModelInfo, ModelState, check_model_name};
use gridpool_protocol::tensor::options::ModelOptions;

use super::batcher::{Entry, QueueError};
use super::job::{Done, Job};
use super::load::{LoadError, ModelFile, load};
use super::model::{Model, Ticket};
use super::place::{Destination, Source};
use super::runtime::Runtime;
use super::signature::InputError;

/// A request of a model.
pub struct Request {
    /// The model's name.
    pub model: String,
    /// Whose it is: requests of one client start in the order they come.
    pub client: u64,
    /// Its inputs, packed.
    pub inputs: Source,
    /// Where its outputs go.
    pub outputs: Destination,
    /// When it need not begin any more. That is looked at when a context next looks for work: a request
    /// that is late while every context is busy hears of it then, and not before. Whoever cannot wait for
    /// that withdraws it ([`Ticket::cancel`]).
    pub deadline: Option<Instant>,
    /// Called once with the answer, if the request is accepted.
    pub done: Done,
}

impl std::fmt::Debug for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { model, client, inputs: _, outputs: _, deadline, done: _ } = self;
        let mut request = f.debug_struct("Request");
        request.field("model", model).field("client", client).field("deadline", deadline);
        request.finish_non_exhaustive()
    }
}

/// Longest reason why a model was not loaded: names of nodes, which may be in it, have any length.
const REASON_BYTES_MAX: usize = 4_000;

/// Why a request was not accepted. Nobody is called for it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// Its inputs are not what the model takes.
    #[error(transparent)]
    Inputs(#[from] InputError),
    /// Too much waits.
    #[error(transparent)]
    Queue(#[from] QueueError),
    /// Its inputs are no packed tensors.
    #[error("the inputs")]
    Tensors(#[from] TensorError),
    /// The model is there and cannot be asked.
    #[error("the model `{name}` is not available: {reason}")]
    Unavailable {
        /// Its name.
        name: String,
        /// Why.
        reason: String,
    },
    /// There is no such model.
    #[error("there is no model `{name}`; there is {}", list(known))]
    Unknown {
        /// The name.
        name: String,
        /// Those that there are.
        known: Vec<String>,
    },
}

/// Why a model has as many contexts as before.
#[derive(Debug, thiserror::Error)]
pub enum ContextsError {
    /// They are too many, or cannot be made.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The model cannot be asked.
    #[error(transparent)]
    Model(#[from] RequestError),
}

fn list(names: &[String]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// Why a model was not loaded, and the file that it was not loaded from.
#[derive(Debug)]
pub struct NotLoaded {
    /// Why.
    pub error: Box<LoadError>,
    /// SHA-256 of the file; empty if it could not be read.
    pub sha256: String,
}

impl NotLoaded {
    /// All of it in a sentence.
    #[must_use]
    pub fn reason(&self) -> String {
        let Self { error, sha256 } = self;
        let why = Chain(error).to_string();
        let why = &why[..why.floor_char_boundary(REASON_BYTES_MAX)];
        if sha256.is_empty() { why.to_owned() } else { format!("{why} (sha256 {sha256})") }
    }
}

/// A model that takes no more requests. Dropped, it finishes too.
#[derive(Debug)]
#[must_use = "who drops it waits until its requests have run"]
pub struct Unloading(Option<Arc<Model>>);

impl Unloading {
    /// Runs what waits for it, then gives its memory back.
    pub fn finish(self) {
        if let Some(model) = self.0 {
            model.close();
        }
    }
}

/// A model by its name.
#[derive(Clone, Debug)]
enum Slot {
    Serving(Arc<Model>),
    Failed(Arc<ModelInfo>),
}

fn is_served(slot: Option<&Slot>) -> bool {
    matches!(slot, Some(Slot::Serving(_)))
}

/// Models on one device.
#[derive(Debug)]
pub struct Engine {
    runtime: Runtime,
    kind: DeviceKind,
    models: Mutex<BTreeMap<String, Slot>>,
    next: AtomicU64,
}

impl Engine {
    /// An engine without models.
    #[must_use]
    pub fn new(runtime: Runtime, kind: DeviceKind) -> Self {
        Self { runtime, kind, models: Mutex::new(BTreeMap::new()), next: AtomicU64::new(1) }
    }

    fn models(&self) -> MutexGuard<'_, BTreeMap<String, Slot>> {
        self.models.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As [`Engine::try_load`]; a model that cannot be loaded is listed as unavailable, and why, unless
    /// one of its name is served.
    ///
    /// # Errors
    /// [`LoadError`]; what is listed says the same.
    pub fn load(
        &self,
        name: &str,
        path: &Path,
        options: &ModelOptions,
    ) -> Result<ModelInfo, LoadError> {
        let failed = match self.try_load(name, path, options) {
            Ok(info) => return Ok(info),
            Err(failed) => failed,
        };
        if matches!(*failed.error, LoadError::Exists { .. } | LoadError::Name(_)) {
            return Err(*failed.error);
        }
        let blank = self.blank(name, &failed.sha256, options);
        let info = ModelInfo { reason: failed.reason(), ..blank };
        let mut models = self.models();
        if !is_served(models.get(name)) {
            models.insert(name.to_owned(), Slot::Failed(Arc::new(info)));
        }
        Err(*failed.error)
    }

    /// Loads a model, warms its contexts and serves it. A failure changes nothing.
    ///
    /// # Errors
    /// [`NotLoaded`]: why not.
    pub fn try_load(
        &self,
        name: &str,
        path: &Path,
        options: &ModelOptions,
    ) -> Result<ModelInfo, NotLoaded> {
        let without_file = |error| NotLoaded { error: Box::new(error), sha256: String::new() };
        check_model_name(name).map_err(|error| without_file(error.into()))?;
        let exists = || LoadError::Exists { name: name.to_owned() };
        if is_served(self.models().get(name)) {
            return Err(without_file(exists()));
        }
        let file = ModelFile::read(path).map_err(without_file)?;
        let sha256 = file.sha256.clone();
        let started = self.start(&file, options, &self.blank(name, &sha256, options));
        drop(file);
        let model = started.map_err(|error| NotLoaded { error: Box::new(error), sha256 })?;
        let mut models = self.models();
        // Somebody else may have loaded one of that name meanwhile.
        if is_served(models.get(name)) {
            drop(models);
            return Err(without_file(exists()));
        }
        let info = model.info();
        models.insert(name.to_owned(), Slot::Serving(Arc::new(model)));
        Ok((*info).clone())
    }

    /// What is listed of a model that is not loaded.
    fn blank(&self, name: &str, sha256: &str, options: &ModelOptions) -> ModelInfo {
        ModelInfo {
            name: name.to_owned(),
            sha256: sha256.to_owned(),
            onnxruntime: self.runtime.version().to_owned(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            max_batch: options.max_batch.unwrap_or(1),
            contexts: 0,
            nodes: Vec::new(),
            device_bytes: 0,
            trial_shapes: Vec::new(),
            state: ModelState::Unavailable,
            reason: String::new(),
        }
    }

    fn start(
        &self,
        file: &ModelFile,
        options: &ModelOptions,
        blank: &ModelInfo,
    ) -> Result<Model, LoadError> {
        let (loaded, contexts) = load(&self.runtime, self.kind, file, options)?;
        let info = ModelInfo {
            inputs: loaded.signature.inputs.clone(),
            outputs: loaded.signature.outputs.clone(),
            max_batch: loaded.rows_max.unwrap_or(1),
            contexts: options.contexts,
            nodes: loaded.nodes.clone(),
            device_bytes: loaded.device_bytes(options.contexts),
            trial_shapes: loaded.trial_shapes(),
            state: ModelState::Ready,
            ..blank.clone()
        };
        Model::start(loaded, contexts, options, info)
    }

    /// Forgets a model: it takes no more requests from now on, and those that it has are run. Returns at
    /// once; what is returned waits for them.
    ///
    /// # Errors
    /// [`RequestError::Unknown`] if there is no such model.
    pub fn begin_unload(&self, name: &str) -> Result<Unloading, RequestError> {
        let gone = self.models().remove(name);
        match gone {
            Some(Slot::Serving(model)) => {
                model.refuse();
                Ok(Unloading(Some(model)))
            }
            Some(Slot::Failed(_)) => Ok(Unloading(None)),
            None => Err(self.unknown(name)),
        }
    }

    /// Forgets a model, waits until requests that wait for it have run, and gives its memory back.
    /// Whether there was one.
    pub fn unload(&self, name: &str) -> bool {
        self.begin_unload(name).map(Unloading::finish).is_ok()
    }

    /// Every model, by name.
    #[must_use]
    pub fn list(&self) -> Vec<ModelInfo> {
        let info = |slot: &Slot| match slot {
            Slot::Serving(model) => (*model.info()).clone(),
            Slot::Failed(info) => (**info).clone(),
        };
        self.models().values().map(info).collect()
    }

    /// How many requests wait for a model.
    #[must_use]
    pub fn waiting(&self, name: &str) -> usize {
        self.model(name).map_or(0, |model| model.waiting())
    }

    /// Has a model run so many requests at once from now on: all of its new contexts or none.
    ///
    /// # Errors
    /// [`ContextsError`] if there is no such model, or no room for them; then nothing has changed.
    pub fn set_contexts(&self, name: &str, contexts: u32) -> Result<ModelInfo, ContextsError> {
        let info = self.model(name)?.set_contexts(contexts)?;
        let info = info.ok_or_else(|| self.unknown(name))?;
        Ok((*info).clone())
    }

    /// Lets a request wait for a context of its model.
    ///
    /// # Errors
    /// [`RequestError`] if it is not accepted; then `done` is not called.
    pub fn submit(&self, request: Request) -> Result<Ticket, RequestError> {
        let Request { model: name, client, inputs, outputs, deadline, done } = request;
        let model = self.model(&name)?;
        let layout = inputs.layout()?;
        let arrangement = model.arrange(&layout)?;
        let rows = arrangement.rows.map(|rows| {
            let inputs = arrangement.order.iter().map(|&at| &layout.tensors()[at]);
            (rows, inputs.map(|tensor| tensor.shape()[1..].to_vec()).collect())
        });
        let bytes = layout.bytes() as u64;
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let job = Arc::new(Job::new(id, inputs, layout, arrangement, outputs, done));
        let entry = Entry { client, rows, bytes, deadline, request: Arc::clone(&job) };
        match model.push(entry) {
            Ok(Some(ticket)) => Ok(ticket),
            Ok(None) => {
                job.forget();
                Err(self.unknown(&name))
            }
            Err(error) => {
                job.forget();
                Err(error.into())
            }
        }
    }

    fn model(&self, name: &str) -> Result<Arc<Model>, RequestError> {
        let slot = self.models().get(name).cloned();
        match slot {
            Some(Slot::Serving(model)) => Ok(model),
            Some(Slot::Failed(info)) => {
                let reason = info.reason.clone();
                Err(RequestError::Unavailable { name: name.to_owned(), reason })
            }
            None => Err(self.unknown(name)),
        }
    }

    fn unknown(&self, name: &str) -> RequestError {
        let known = self.models().keys().cloned().collect();
        RequestError::Unknown { name: name.to_owned(), known }
    }
}
