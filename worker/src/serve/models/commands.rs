//! Model commands of a serving worker: loads, unloads and changes of contexts. One thread runs them one after
//! the other, while requests run and heartbeats go on.

use std::collections::BTreeMap;
use std::panic;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread;

use gridpool_device::fault::{Fault, end_process};
use gridpool_infer::{ContextsError, Engine, LoadError, RuntimeFault, Unloading};
use gridpool_ipc::channel::Replies;
use gridpool_protocol::chain::Chain;
use gridpool_protocol::codec;
use gridpool_protocol::message::{FromWorker, ModelCommand};
use gridpool_protocol::tensor::options::ModelPlan;

use crate::growth::{self, Growth, Holding};
use crate::link::{Link, send};

/// Most commands that run or wait: the supervisor sends one at a time.
const COMMANDS_MAX: usize = 1;

/// A command, after the part that is done when it arrives.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "changes of models are rare")]
enum Command {
    Contexts {
        name: String,
        contexts: u32,
    },
    Load(ModelPlan),
    /// The model takes no more requests: those that arrive after the command do not run.
    Unload {
        name: String,
        model: Unloading,
    },
}

/// Why a command failed.
#[derive(Debug)]
enum CommandFailure {
    /// It changed nothing.
    Refused(String),
    /// The device is unusable.
    Device(RuntimeFault),
}

impl From<LoadError> for CommandFailure {
    fn from(error: LoadError) -> Self {
        match error.end_of_device() {
            Some(fault) => Self::Device(fault.clone()),
            None => Self::Refused(Chain(&error).to_string()),
        }
    }
}

/// Passes commands to the thread that runs them.
#[derive(Debug)]
pub(super) struct Commands {
    commands: SyncSender<(u64, Command)>,
    is_busy: Arc<AtomicBool>,
}

impl Commands {
    /// Starts the thread. `loaded` is the memory of the models that are loaded already.
    pub(super) fn start(
        link: &Link,
        engine: Arc<Engine>,
        loaded: LoadedModels,
    ) -> Result<Self, Fault> {
        let (commands, received) = mpsc::sync_channel(COMMANDS_MAX);
        let is_busy = Arc::new(AtomicBool::new(false));
        let (replies, growth) = (link.replies.clone(), Arc::clone(&link.growth));
        growth.set_wanted(loaded.total());
        let mut runner = CommandRunner { engine, loaded, growth };
        let ends = Arc::clone(&is_busy);
        let body = move || serve(&received, &replies, &ends, |command| runner.run(command));
        let thread = thread::Builder::new().name("commands".to_owned()).spawn(body);
        thread.map_err(|error| Fault::Threads { threads: 1, reason: error.to_string() })?;
        Ok(Self { commands, is_busy })
    }

    /// Accepts a command; its result is sent when it is done. From here on, requests of a model that is being
    /// unloaded do not run.
    pub(super) fn take(
        &self,
        number: u64,
        command: ModelCommand,
        engine: &Engine,
    ) -> Result<(), String> {
        if self.is_busy() {
            return Err(format!(
                "another command is running, and a worker runs {COMMANDS_MAX} at a time; try again"
            ));
        }
        let command = match command {
            ModelCommand::Contexts { name, contexts } => Command::Contexts { name, contexts },
            ModelCommand::Load(plan) => Command::Load(plan),
            ModelCommand::Unload { name } => {
                let model = engine.begin_unload(&name).map_err(|error| error.to_string())?;
                Command::Unload { name, model }
            }
        };
        self.is_busy.store(true, Ordering::Release);
        self.commands
            .try_send((number, command))
            .expect("the thread lives, and its queue is empty");
        Ok(())
    }

    /// Whether a command is waiting or running.
    pub(super) fn is_busy(&self) -> bool {
        self.is_busy.load(Ordering::Acquire)
    }
}

/// The body of the thread.
fn serve<T>(
    commands: &Receiver<(u64, T)>,
    replies: &Replies,
    is_busy: &AtomicBool,
    mut run: impl FnMut(T) -> Result<FromWorker, CommandFailure>,
) {
    for (number, command) in commands {
        let result = match run(command) {
            Ok(models) => {
                send(replies, &models);
                Ok(())
            }
            Err(CommandFailure::Refused(why)) => Err(why),
            Err(CommandFailure::Device(fault)) => {
                let fault = fault.to_fault();
                let (code, message) = (fault.exit_code(), fault.to_string());
                let fault = Some(fault.code());
                send(replies, &FromWorker::Dying { code, fault, message, attempt: None });
                end_process(code)
            }
        };
        // Before the result is sent, because the supervisor may send the next command then.
        is_busy.store(false, Ordering::Release);
        send(replies, &FromWorker::CommandEnded { number, result });
    }
}

/// Runs commands.
#[derive(Debug)]
struct CommandRunner {
    engine: Arc<Engine>,
    loaded: LoadedModels,
    growth: Arc<Growth>,
}

impl CommandRunner {
    /// Runs a command; returns the list of models afterwards.
    fn run(&mut self, command: Command) -> Result<FromWorker, CommandFailure> {
        self.growth.begin_change();
        let obeyed = match command {
            Command::Contexts { name, contexts } => self.set_contexts(&name, contexts),
            Command::Load(plan) => self.load(&plan),
            Command::Unload { name, model } => {
                model.finish();
                growth::trim_memory();
                self.loaded.removes(&name);
                Ok(())
            }
        };
        self.growth.set_wanted(self.loaded.total());
        obeyed.map(|()| self.models())
    }

    fn models(&self) -> FromWorker {
        FromWorker::Models { models: self.engine.list() }
    }

    fn load(&mut self, plan: &ModelPlan) -> Result<(), CommandFailure> {
        let ModelPlan { name, path, options } = plan;
        if path.as_os_str().is_empty() {
            return Err(CommandFailure::Refused(format!("the model `{name}` has no file")));
        }
        let loaded = self.loaded.adds(name, || self.engine.try_load(name, path, options));
        loaded.map_err(|failed| match failed.error.end_of_device() {
            Some(fault) => CommandFailure::Device(fault.clone()),
            None => CommandFailure::Refused(failed.reason()),
        })?;
        let Err(error) = codec::encode(&self.models()) else { return Ok(()) };
        // A model that does not fit into the list is unknown to the supervisor, so no client could use it.
        self.engine.unload(name);
        growth::trim_memory();
        self.loaded.removes(name);
        let why = format!("the list of models is too long with `{name}`: {error}");
        Err(CommandFailure::Refused(why))
    }

    fn set_contexts(&mut self, name: &str, contexts: u32) -> Result<(), CommandFailure> {
        let set = self.loaded.adds(name, || self.engine.set_contexts(name, contexts));
        match set {
            Ok(_) => Ok(()),
            Err(ContextsError::Load(error)) => Err(error.into()),
            Err(ContextsError::Model(error)) => Err(CommandFailure::Refused(error.to_string())),
        }
    }
}

/// The memory that each model added to this process: unloading the model should free as much.
#[derive(Debug, Default)]
pub(super) struct LoadedModels(BTreeMap<String, Holding>);

impl LoadedModels {
    /// Runs a load, and counts the memory that it adds as the model's. A failed load counts nothing.
    pub(super) fn adds<T, E>(
        &mut self,
        name: &str,
        work: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        let before = Holding::now();
        let result = work();
        // Reading a model leaves as much free memory behind as the model takes.
        growth::trim_memory();
        let result = result?;
        match before.and_then(|before| Ok(Holding::now()?.minus(before))) {
            Ok(more) => {
                let held = self.0.entry(name.to_owned()).or_default();
                *held = held.plus(more);
            }
            Err(error) => tracing::warn!(%error, name, "the memory of a model is unknown"),
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

/// Reports any panic and ends the process. Other threads would wait forever for a thread that
/// panicked silently.
pub(super) fn end_on_panic(replies: Replies) {
    let before = panic::take_hook();
    panic::set_hook(Box::new(move |panicked| {
        before(panicked);
        let place = panicked.location().map_or_else(String::new, |at| format!(" ({at})"));
        let said = panicked.payload_as_str().unwrap_or("a panic");
        let message = format!("a fault of gridpool itself: {said}{place}");
        let code = ABORTED;
        send(&replies, &FromWorker::Dying { code, fault: None, message, attempt: None });
        std::process::abort();
    }));
}

/// How a shell writes SIGABRT.
const ABORTED: i32 = 128 + 6;

#[cfg(test)]
mod tests;
