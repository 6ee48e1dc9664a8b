//! The engine of inference: models by name, requests in, answers out. It knows neither the supervisor nor
//! the wire.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use gridpool_device::chaos::deadly::Deadly;
use gridpool_ipc::clock;
use gridpool_ipc::mutex::Mutex;
use gridpool_protocol::chain::Chain;
use gridpool_protocol::ids::DeviceKind;
use gridpool_protocol::message::Priority;
use gridpool_protocol::status::LoadPhase;
use gridpool_protocol::tensor::TensorError;
use gridpool_protocol::tensor::model::{ModelInfo, ModelState};
use gridpool_protocol::tensor::options::ModelOptions;
use gridpool_protocol::tensor::version::check_full_name;

use super::batcher::{Entry, QueueError};
use super::job::{Done, Job};
use super::load::{LoadError, ModelFiles, load};
use super::model::{Model, Ticket};
use super::place::{Destination, Source};
use super::runtime::Runtime;
use super::signature::InputError;

/// A request of a model.
pub struct Request {
    /// The model's name.
    pub model: String,
    /// The client: requests of one client start by priority, and then in the order they come.
    pub client: u64,
    /// Its priority among those of its client.
    pub priority: Priority,
    /// Its inputs, packed.
    pub inputs: Source,
    /// Where its outputs go.
    pub outputs: Destination,
    /// When it need not begin any more. A context checks this when it takes its next request, so a late
    /// request is told only then. A caller that cannot wait withdraws it ([`Ticket::cancel`]).
    pub deadline: Option<Instant>,
    /// Called once with the answer, if the request is accepted.
    pub done: Done,
}

impl std::fmt::Debug for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { model, client, priority, inputs: _, outputs: _, deadline, done: _ } = self;
        let mut request = f.debug_struct("Request");
        request.field("model", model).field("client", client).field("priority", priority);
        request.field("deadline", deadline);
        request.finish_non_exhaustive()
    }
}

/// Longest reason why a model was not loaded. It may contain names of nodes, which have any length.
const REASON_BYTES_MAX: usize = 4_000;

/// Why a request was not accepted. Its `done` is not called.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// Its inputs do not match the model.
    #[error(transparent)]
    Inputs(#[from] InputError),
    /// The queue is full.
    #[error(transparent)]
    Queue(#[from] QueueError),
    /// Its inputs are not packed tensors.
    #[error("the inputs are malformed")]
    Tensors(#[from] TensorError),
    /// The model is listed but not available.
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
        /// All models.
        known: Vec<String>,
    },
}

/// Why the number of a model's contexts did not change.
#[derive(Debug, thiserror::Error)]
pub enum ContextsError {
    /// There are too many, or they cannot be made.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The model is not available.
    #[error(transparent)]
    Model(#[from] RequestError),
}

fn list(names: &[String]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// Why a model was not loaded, with the hash of its file.
#[derive(Debug)]
pub struct NotLoaded {
    /// Why.
    pub error: Box<LoadError>,
    /// SHA-256 of the file; empty if it could not be read.
    pub sha256: String,
}

impl NotLoaded {
    /// The reason as a sentence, with the hash.
    #[must_use]
    pub fn reason(&self) -> String {
        let Self { error, sha256 } = self;
        let why = Chain(error).to_string();
        let why = &why[..why.floor_char_boundary(REASON_BYTES_MAX)];
        if sha256.is_empty() { why.to_owned() } else { format!("{why} (sha256 {sha256})") }
    }
}

/// A model that takes no more requests. Dropping it also finishes it.
#[derive(Debug)]
#[must_use = "who drops it waits until its requests have run"]
pub struct Unloading(Option<Arc<Model>>);

impl Unloading {
    /// Runs the waiting requests, then frees the model's memory.
    pub fn finish(self) {
        if let Some(model) = self.0 {
            model.close();
        }
    }
}

/// A model by its name.
#[derive(Clone, Debug)]
enum NamedModel {
    Serving(Arc<Model>),
    Failed(Arc<ModelInfo>),
}

fn is_served(slot: Option<&NamedModel>) -> bool {
    matches!(slot, Some(NamedModel::Serving(_)))
}

/// Models on one device.
#[derive(Debug)]
pub struct Engine {
    runtime: Runtime,
    kind: DeviceKind,
    models: Mutex<BTreeMap<String, NamedModel>>,
    next: AtomicU64,
    progress: Option<Progress>,
    deadly: Option<Deadly>,
}

type Tell = dyn Fn(&str, LoadPhase) + Send + Sync;

/// Is told how far the load of a model is.
pub struct Progress(Box<Tell>);

impl Progress {
    /// Calls `tell` with a model's full name, and how far its load is.
    pub fn new(tell: impl Fn(&str, LoadPhase) + Send + Sync + 'static) -> Self {
        Self(Box::new(tell))
    }
}

impl std::fmt::Debug for Progress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Progress")
    }
}

impl Engine {
    /// An engine without models.
    #[must_use]
    pub fn new(runtime: Runtime, kind: DeviceKind) -> Self {
        let (models, next) = (Mutex::new(BTreeMap::new()), AtomicU64::new(1));
        Self { runtime, kind, models, next, progress: None, deadly: None }
    }

    /// Tells `progress` how far each load is.
    #[must_use]
    pub fn telling(self, progress: Progress) -> Self {
        Self { progress: Some(progress), ..self }
    }

    /// Models that are loaded from now on may kill the process: a hook for tests.
    #[must_use]
    pub fn dying_of(self, deadly: Option<Deadly>) -> Self {
        Self { deadly, ..self }
    }

    /// Like [`Engine::try_load`]. A model that cannot be loaded is listed as unavailable with the reason, unless
    /// a model of its name is served.
    ///
    /// # Errors
    /// [`LoadError`]; the listed reason is the same.
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
        let mut models = self.models.lock();
        if !is_served(models.get(name)) {
            models.insert(name.to_owned(), NamedModel::Failed(Arc::new(info)));
        }
        Err(*failed.error)
    }

    /// Loads a model, warms its contexts and serves it. A failure changes nothing.
    ///
    /// # Errors
    /// [`NotLoaded`]: why.
    pub fn try_load(
        &self,
        name: &str,
        path: &Path,
        options: &ModelOptions,
    ) -> Result<ModelInfo, NotLoaded> {
        let without_file = |error| NotLoaded { error: Box::new(error), sha256: String::new() };
        check_full_name(name).map_err(|error| without_file(error.into()))?;
        let exists = || LoadError::Exists { name: name.to_owned() };
        if is_served(self.models.lock().get(name)) {
            return Err(without_file(exists()));
        }
        self.is_at(name, LoadPhase::Reading);
        let files = ModelFiles::read(name, path, options)?;
        let sha256 = files.sha256.clone();
        let started = self.start(&files, options, &self.blank(name, &sha256, options));
        drop(files);
        let model = started.map_err(|error| NotLoaded { error: Box::new(error), sha256 })?;
        let mut models = self.models.lock();
        // Another thread may have loaded a model of this name meanwhile.
        if is_served(models.get(name)) {
            drop(models);
            return Err(without_file(exists()));
        }
        let info = model.info();
        models.insert(name.to_owned(), NamedModel::Serving(Arc::new(model)));
        Ok((*info).clone())
    }

    fn is_at(&self, name: &str, phase: LoadPhase) {
        if let Some(Progress(tell)) = &self.progress {
            tell(name, phase);
        }
    }

    /// The listing of a model that is not loaded.
    fn blank(&self, name: &str, sha256: &str, options: &ModelOptions) -> ModelInfo {
        ModelInfo {
            name: name.to_owned(),
            sha256: sha256.to_owned(),
            onnxruntime: self.runtime.version().to_owned(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            max_batch: options.max_batch.unwrap_or(1),
            contexts: 0,
            contexts_measured: Vec::new(),
            nodes: Vec::new(),
            device_bytes: 0,
            cuda_graphs: 0,
            warm_up_shapes: Vec::new(),
            steps: Vec::new(),
            state: ModelState::Unavailable,
            reason: String::new(),
        }
    }

    fn start(
        &self,
        files: &ModelFiles,
        options: &ModelOptions,
        blank: &ModelInfo,
    ) -> Result<Model, LoadError> {
        let is_at = |phase| self.is_at(&blank.name, phase);
        let loaded = load(&self.runtime, self.kind, &blank.name, files, options, &is_at);
        let (loaded, contexts) = loaded?;
        let count = u32::try_from(contexts.len()).expect("they are few");
        options.check_tensors(&loaded.signature.inputs, &loaded.signature.outputs)?;
        let info = ModelInfo {
            inputs: loaded.signature.inputs.clone(),
            outputs: loaded.signature.outputs.clone(),
            max_batch: loaded.rows_max.unwrap_or(1),
            contexts: count,
            contexts_measured: loaded.contexts_measured.clone(),
            nodes: loaded.nodes.clone(),
            device_bytes: loaded.device_bytes(count),
            warm_up_shapes: loaded.warm_up_shapes(),
            steps: loaded.steps(),
            state: ModelState::Ready,
            ..blank.clone()
        };
        Model::start(loaded, contexts, options, info, self.deadly.clone())
    }

    /// Removes a model: it takes no more requests. Returns at once; [`Unloading::finish`] waits until its
    /// requests have run.
    ///
    /// # Errors
    /// [`RequestError::Unknown`] if there is no such model.
    pub fn begin_unload(&self, name: &str) -> Result<Unloading, RequestError> {
        let gone = self.models.lock().remove(name);
        match gone {
            Some(NamedModel::Serving(model)) => {
                model.refuse();
                Ok(Unloading(Some(model)))
            }
            Some(NamedModel::Failed(_)) => Ok(Unloading(None)),
            None => Err(self.unknown(name)),
        }
    }

    /// Removes a model, waits until its requests have run, and frees its memory. Returns whether there was such a
    /// model.
    pub fn unload(&self, name: &str) -> bool {
        self.begin_unload(name).map(Unloading::finish).is_ok()
    }

    /// Every model, by name.
    #[must_use]
    pub fn list(&self) -> Vec<ModelInfo> {
        let info = |slot: &NamedModel| match slot {
            NamedModel::Serving(model) => (*model.info()).clone(),
            NamedModel::Failed(info) => (**info).clone(),
        };
        self.models.lock().values().map(info).collect()
    }

    /// Whether runs of a model can have the device copy some input from a client's memory, if its pages are locked. On
    /// a cpu device none can.
    #[must_use]
    pub fn can_lend(&self, name: &str) -> bool {
        self.model(name).is_ok_and(|model| model.can_lend())
    }

    /// How many requests wait for a model.
    #[must_use]
    pub fn waiting(&self, name: &str) -> usize {
        self.model(name).map_or(0, |model| model.waiting())
    }

    /// Sets how many requests a model runs at once. It makes all new contexts or none.
    ///
    /// # Errors
    /// [`ContextsError`] if there is no such model, or no memory for them; then nothing has changed.
    pub fn set_contexts(&self, name: &str, contexts: u32) -> Result<ModelInfo, ContextsError> {
        let info = self.model(name)?.set_contexts(contexts)?;
        let info = info.ok_or_else(|| self.unknown(name))?;
        Ok((*info).clone())
    }

    /// Puts a request into the queue of its model.
    ///
    /// # Errors
    /// [`RequestError`] if it is not accepted; then `done` is not called.
    pub fn submit(&self, request: Request) -> Result<Ticket, RequestError> {
        let Request { model: name, client, priority, inputs, outputs, deadline, done } = request;
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
        let (arrived, request) = (clock::now(), Arc::clone(&job));
        let entry = Entry { client, priority, rows, bytes, arrived, deadline, request };
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
        let slot = self.models.lock().get(name).cloned();
        match slot {
            Some(NamedModel::Serving(model)) => Ok(model),
            Some(NamedModel::Failed(info)) => {
                let reason = info.reason.clone();
                Err(RequestError::Unavailable { name: name.to_owned(), reason })
            }
            None => Err(self.unknown(name)),
        }
    }

    fn unknown(&self, name: &str) -> RequestError {
        let known = self.models.lock().keys().cloned().collect();
        RequestError::Unknown { name: name.to_owned(), known }
    }
}
