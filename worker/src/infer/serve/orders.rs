//! Changes of the models while they serve: on one thread of their own, one after the other, however long
//! each takes. Requests run beside them, and signs of life are given.

use std::collections::BTreeMap;
use std::panic;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread;

use gridpool_protocol::chain::Chain;
use gridpool_protocol::channel::Sender;
use gridpool_protocol::codec;
use gridpool_protocol::message::{FromWorker, ModelOrder};
use gridpool_protocol::tensor::options::ModelPlan;

use crate::fault::Fault;
use crate::infer::{ContextsError, Engine, LoadError, RuntimeFault, Unloading};
use crate::link::{Link, end_process, say};
use crate::wear::{self, Holding, Wear};

/// Most orders that are under way, or wait for one that is: the supervisor has no more for a worker.
const ORDERS_MAX: usize = 1;

/// An order, as far as it was obeyed when it came.
#[derive(Debug)]
enum Task {
    Contexts {
        name: String,
        contexts: u32,
    },
    Load(ModelPlan),
    /// The model takes no more requests: those that came after the order are not to be run.
    Unload {
        name: String,
        model: Unloading,
    },
}

/// Why an order was not obeyed.
#[derive(Debug)]
enum Failure {
    /// It changes nothing.
    Refused(String),
    /// The device is of no use any more.
    Device(RuntimeFault),
}

impl From<LoadError> for Failure {
    fn from(error: LoadError) -> Self {
        match error.end_of_device() {
            Some(fault) => Self::Device(fault.clone()),
            None => Self::Refused(Chain(&error).to_string()),
        }
    }
}

/// Takes orders from the supervisor to the thread that obeys them.
#[derive(Debug)]
pub(super) struct Orders {
    tasks: SyncSender<(u64, Task)>,
    is_busy: Arc<AtomicBool>,
}

impl Orders {
    /// Starts the thread. `loaded` is what the models take that were loaded before.
    pub(super) fn start(
        link: &Link,
        engine: Arc<Engine>,
        loaded: LoadedHere,
    ) -> Result<Self, Fault> {
        let (tasks, taken) = mpsc::sync_channel(ORDERS_MAX);
        let is_busy = Arc::new(AtomicBool::new(false));
        let (replies, wear) = (link.replies.clone(), Arc::clone(&link.wear));
        wear.wants(loaded.total());
        let mut changer = Changer { engine, loaded, wear };
        let ends = Arc::clone(&is_busy);
        let body = move || serve(&taken, &replies, &ends, |task| changer.obey(task));
        let thread = thread::Builder::new().name("orders".to_owned()).spawn(body);
        thread.map_err(|error| Fault::Threads { threads: 1, reason: error.to_string() })?;
        Ok(Self { tasks, is_busy })
    }

    /// Takes an order, and says so when it has been obeyed. From here on requests are not run with a
    /// model that is to be unloaded.
    pub(super) fn take(&self, order: u64, what: ModelOrder, engine: &Engine) -> Result<(), String> {
        if self.are_under_way() {
            return Err(format!(
                "another order is under way, and a worker has {ORDERS_MAX} at a time; try again"
            ));
        }
        let task = match what {
            ModelOrder::Contexts { name, contexts } => Task::Contexts { name, contexts },
            ModelOrder::Load(plan) => Task::Load(plan),
            ModelOrder::Unload { name } => {
                let model = engine.begin_unload(&name).map_err(|error| error.to_string())?;
                Task::Unload { name, model }
            }
        };
        self.is_busy.store(true, Ordering::Release);
        self.tasks.try_send((order, task)).expect("the thread lives, and has room for an order");
        Ok(())
    }

    /// Whether an order has been taken and not been obeyed.
    pub(super) fn are_under_way(&self) -> bool {
        self.is_busy.load(Ordering::Acquire)
    }
}

/// The body of the thread.
fn serve<T>(
    tasks: &Receiver<(u64, T)>,
    replies: &Sender<FromWorker>,
    is_busy: &AtomicBool,
    mut obey: impl FnMut(T) -> Result<FromWorker, Failure>,
) {
    for (order, task) in tasks {
        let result = match obey(task) {
            Ok(models) => {
                say(replies, &models);
                Ok(())
            }
            Err(Failure::Refused(why)) => Err(why),
            Err(Failure::Device(fault)) => {
                let fault = fault.to_fault();
                let (code, message) = (fault.exit_code(), fault.to_string());
                let fault = Some(fault.code());
                say(replies, &FromWorker::Dying { code, fault, message, attempt: None });
                end_process(code)
            }
        };
        // Before the supervisor hears of it, for it may send the next one then.
        is_busy.store(false, Ordering::Release);
        say(replies, &FromWorker::Ordered { order, result });
    }
}

/// Obeys orders.
#[derive(Debug)]
struct Changer {
    engine: Arc<Engine>,
    loaded: LoadedHere,
    wear: Arc<Wear>,
}

impl Changer {
    /// The models as they are now.
    fn obey(&mut self, task: Task) -> Result<FromWorker, Failure> {
        self.wear.changes();
        let obeyed = match task {
            Task::Contexts { name, contexts } => self.set_contexts(&name, contexts),
            Task::Load(plan) => self.load(&plan),
            Task::Unload { name, model } => {
                model.finish();
                wear::give_back();
                self.loaded.removes(&name);
                Ok(())
            }
        };
        self.wear.wants(self.loaded.total());
        obeyed.map(|()| self.models())
    }

    fn models(&self) -> FromWorker {
        FromWorker::Models { models: self.engine.list() }
    }

    fn load(&mut self, plan: &ModelPlan) -> Result<(), Failure> {
        let ModelPlan { name, path, options } = plan;
        if path.as_os_str().is_empty() {
            return Err(Failure::Refused(format!("the model `{name}` has no file")));
        }
        let loaded = self.loaded.adds(name, || self.engine.try_load(name, path, options));
        loaded.map_err(|failed| match failed.error.end_of_device() {
            Some(fault) => Failure::Device(fault.clone()),
            None => Failure::Refused(failed.reason()),
        })?;
        let Err(error) = codec::encode(&self.models()) else { return Ok(()) };
        // A model of which nobody can be told would be asked for by nobody.
        self.engine.unload(name);
        wear::give_back();
        self.loaded.removes(name);
        let why = format!("with `{name}` there are more models than can be told of: {error}");
        Err(Failure::Refused(why))
    }

    fn set_contexts(&mut self, name: &str, contexts: u32) -> Result<(), Failure> {
        let set = self.loaded.adds(name, || self.engine.set_contexts(name, contexts));
        match set {
            Ok(_) => Ok(()),
            Err(ContextsError::Load(error)) => Err(error.into()),
            Err(ContextsError::Model(error)) => Err(Failure::Refused(error.to_string())),
        }
    }
}

/// What each model has added to what this process holds: as much as it is to be less without it.
#[derive(Debug, Default)]
pub(super) struct LoadedHere(BTreeMap<String, Holding>);

impl LoadedHere {
    /// Does something for a model's sake. What the process holds more afterwards, it holds for that
    /// model; if it fails, for nothing.
    pub(super) fn adds<T, E>(
        &mut self,
        name: &str,
        work: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        let before = Holding::now();
        let result = work();
        // Of reading a model as much is left as of the model.
        wear::give_back();
        let result = result?;
        match before.and_then(|before| Ok(Holding::now()?.minus(before))) {
            Ok(more) => {
                let held = self.0.entry(name.to_owned()).or_default();
                *held = held.plus(more);
            }
            Err(error) => tracing::warn!(%error, name, "what a model takes is not known"),
        }
        Ok(result)
    }

    fn removes(&mut self, name: &str) {
        self.0.remove(name);
    }

    fn total(&self) -> Holding {
        self.0.values().fold(Holding::default(), |sum, &one| sum.plus(one))
    }
}

/// Has any panic end the process with a sentence, on whatever thread: a context or a thread for orders
/// that is gone without a word would leave others waiting for it.
pub(super) fn end_on_panic(replies: Sender<FromWorker>) {
    let before = panic::take_hook();
    panic::set_hook(Box::new(move |panicked| {
        before(panicked);
        let place = panicked.location().map_or_else(String::new, |at| format!(" ({at})"));
        let said = panicked.payload_as_str().unwrap_or("a panic");
        let message = format!("a fault of gridpool itself: {said}{place}");
        let code = ABORTED;
        say(&replies, &FromWorker::Dying { code, fault: None, message, attempt: None });
        std::process::abort();
    }));
}

/// How a shell writes SIGABRT.
const ABORTED: i32 = 128 + 6;

#[cfg(test)]
mod tests;
