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
use super::model::Model;
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
    /// When it need not begin any more.
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

/// Names a request while it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(u64);

/// A model by its name.
#[derive(Clone, Debug)]
enum Slot {
    Serving(Arc<Model>),
    Failed(Arc<ModelInfo>),
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

    /// Loads a model, warms its contexts and serves it. A failure changes nothing for other models, nor
    /// for one of this name that is served; else the name is listed as unavailable, and why.
    ///
    /// # Errors
    /// [`LoadError`]; what is listed says the same.
    pub fn load(
        &self,
        name: &str,
        path: &Path,
        options: &ModelOptions,
    ) -> Result<ModelInfo, LoadError> {
        check_model_name(name)?;
        let exists = || LoadError::Exists { name: name.to_owned() };
        let is_served = |slot: Option<&Slot>| matches!(slot, Some(Slot::Serving(_)));
        if is_served(self.models().get(name)) {
            return Err(exists());
        }
        let file = ModelFile::read(path);
        let sha256 = file.as_ref().map_or_else(|_| String::new(), |file| file.sha256.clone());
        let blank = ModelInfo {
            name: name.to_owned(),
            sha256,
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
        };
        let started = file.and_then(|file| self.start(&file, options, &blank));
        let mut models = self.models();
        // Somebody else may have loaded one of that name meanwhile.
        let is_served = is_served(models.get(name));
        match started {
            Ok(_) if is_served => Err(exists()),
            Ok(model) => {
                let info = model.info();
                models.insert(name.to_owned(), Slot::Serving(Arc::new(model)));
                Ok((*info).clone())
            }
            Err(error) => {
                if !is_served {
                    let reason = match blank.sha256.as_str() {
                        "" => Chain(&error).to_string(),
                        sha256 => format!("{} (sha256 {sha256})", Chain(&error)),
                    };
                    let info = Arc::new(ModelInfo { reason, ..blank });
                    models.insert(name.to_owned(), Slot::Failed(info));
                }
                Err(error)
            }
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

    /// Forgets a model. Requests that wait for it are run first; requests that come meanwhile are not
    /// accepted. Whether there was one.
    pub fn unload(&self, name: &str) -> bool {
        let gone = self.models().remove(name);
        match gone {
            Some(Slot::Serving(model)) => {
                model.close();
                true
            }
            Some(Slot::Failed(_)) => true,
            None => false,
        }
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
            Ok(true) => Ok(Ticket(id)),
            Ok(false) => {
                job.forget();
                Err(self.unknown(&name))
            }
            Err(error) => {
                job.forget();
                Err(error.into())
            }
        }
    }

    /// Withdraws a request of a model that still waits, or the parts of it that do; it is told so.
    /// Whether there was one.
    pub fn cancel(&self, name: &str, ticket: Ticket) -> bool {
        self.model(name).is_ok_and(|model| model.cancel(ticket.0))
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
