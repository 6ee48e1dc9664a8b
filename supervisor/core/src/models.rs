//! Which models a pool is to have, which worker has which, and the change that an operator wants.
//!
//! Nothing here remembers what was to be done next. Whenever a worker has no command, what it has is
//! compared with what it is to have, and the first difference is its next command. So a worker that starts
//! late, one that dies in the midst, and a change that is taken back all come to the same in the end.
//!
//! A change holds on all workers or on none. One worker loads a new model first: if it dies of it, only
//! one was lost. A model that is unloaded takes nothing new at once, and stays where it is until the
//! last request that it had has its verdict.

mod step;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use gridpool_protocol::ids::{ClientId, Role, WorkerId};
use gridpool_protocol::message::ModelCommand;
use gridpool_protocol::tensor::model::{ModelInfo, ModelState, check_model_name};
use gridpool_protocol::tensor::options::{ModelPlan, check_contexts};

use crate::action::Note;
use crate::config::MODELS_MAX;
use crate::event::Timestamp;

/// The role of workers that have models.
pub(crate) const ROLE: Role = Role::Infer;

/// What is kept of the reason why a model could not be loaded, bytes: a list of all of its nodes may be
/// long.
const REASON_BYTES_MAX: usize = 4_096;

/// The models of a pool.
#[derive(Debug, Default)]
pub(crate) struct Models {
    wanted: BTreeMap<String, Wanted>,
    /// Workers that have said what they have, and have not been told to end.
    holders: BTreeMap<WorkerId, Holder>,
    /// What each worker was started with that has not said anything yet.
    started: BTreeMap<WorkerId, BTreeMap<String, Edition>>,
    change: Option<Change>,
    /// Of the latest command, and of the latest edition.
    number: u64,
    /// Something has happened since the last step.
    is_stirred: bool,
}

/// Tells two models of one name apart: one was unloaded, the other loaded.
type Edition = u64;

/// A model that workers are to have.
#[derive(Debug)]
struct Wanted {
    plan: ModelPlan,
    edition: Edition,
    /// It takes nothing new, and goes when the last request that it had has its verdict.
    is_closing: bool,
}

/// A worker.
#[derive(Debug, Default)]
struct Holder {
    says: Vec<ModelInfo>,
    has: BTreeMap<String, Edition>,
    command: Option<Command>,
    /// What it could not do, so that it is not asked again: the model and its contexts.
    refused: Vec<(Edition, u32)>,
}

#[derive(Debug)]
struct Command {
    number: u64,
    what: ModelCommand,
    edition: Edition,
    sent: Timestamp,
}

/// What an operator wants.
#[derive(Debug)]
struct Change {
    client: ClientId,
    request: u64,
    what: ModelCommand,
    /// Of a model that is loaded.
    edition: Edition,
    /// The workers that could not do it, and why.
    failed: Vec<(WorkerId, String)>,
}

/// What a step needs to know of everything else.
pub(crate) struct Around<'a> {
    pub(crate) now: Timestamp,
    /// Whether a request without a verdict asks a model.
    pub(crate) is_asked: &'a dyn Fn(&str) -> bool,
    /// Whether a worker is there, or about to be, that has not said what it has.
    pub(crate) awaits: bool,
    /// Why there is no worker, if there is none.
    pub(crate) why_none: &'a dyn Fn() -> String,
}

/// Something to do.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Have a worker change its models.
    Command { worker: WorkerId, number: u64, what: ModelCommand },
    /// No model is left.
    Rest,
    /// Tell an operator what came of the change.
    Tell { client: ClientId, request: u64, result: Result<String, String> },
}

impl Models {
    pub(crate) fn new(plans: &[ModelPlan]) -> Self {
        let mut models = Self::default();
        for plan in plans {
            let edition = models.next_number();
            let wanted = Wanted { plan: plan.clone(), edition, is_closing: false };
            models.wanted.insert(plan.name.clone(), wanted);
        }
        models
    }

    fn next_number(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    /// What a worker that starts now is to load.
    pub(crate) fn start(&mut self, worker: WorkerId) -> Vec<ModelPlan> {
        let edition = |(name, wanted): (&String, &Wanted)| (name.clone(), wanted.edition);
        self.started.insert(worker, self.wanted.iter().map(edition).collect());
        self.wanted.values().map(|wanted| wanted.plan.clone()).collect()
    }

    /// A worker says what it has. Gives what of that is news; of one that is to end, nothing.
    pub(crate) fn on_reported(&mut self, worker: WorkerId, mut says: Vec<ModelInfo>) -> Vec<Note> {
        says.iter_mut().for_each(|model| shorten(&mut model.reason));
        self.is_stirred = true;
        if let Some(editions) = self.started.remove(&worker) {
            let edition = |info: &ModelInfo| editions.get(&info.name).copied().unwrap_or_default();
            let has = says.iter().map(|info| (info.name.clone(), edition(info))).collect();
            self.holders.insert(worker, Holder { has, ..Holder::default() });
        }
        let Some(holder) = self.holders.get_mut(&worker) else { return Vec::new() };
        let before = std::mem::replace(&mut holder.says, says);
        let as_before = |model: &&ModelInfo| {
            before.iter().any(|other| (&other.name, other.state) == (&model.name, model.state))
        };
        let news = self.holders[&worker].says.iter().filter(|model| !as_before(model));
        let note = |model: &ModelInfo| match model.state {
            ModelState::Ready => Note::ModelReady { worker, name: model.name.clone() },
            ModelState::Unavailable => Note::ModelUnavailable {
                worker,
                name: model.name.clone(),
                path: self.wanted.get(&model.name).map(|wanted| wanted.plan.path.clone()),
                reason: model.reason.clone(),
            },
        };
        news.map(note).collect()
    }

    /// A worker has ended, or was told to: it does nothing more.
    pub(crate) fn on_ended(&mut self, worker: WorkerId) {
        self.started.remove(&worker);
        let Some(holder) = self.holders.remove(&worker) else { return };
        self.is_stirred = true;
        if let Some(command) = holder.command {
            self.failed(worker, &command, "it ended while it was at it".to_owned());
        }
    }

    /// A worker has done what it was told, or says why not. The error is that it was not told so.
    pub(crate) fn on_command_ended(
        &mut self,
        worker: WorkerId,
        number: u64,
        result: Result<(), String>,
    ) -> Result<Option<Note>, NotTold> {
        // What it says while it ends is of no interest.
        let Some(holder) = self.holders.get_mut(&worker) else { return Ok(None) };
        let command = holder.command.take_if(|command| command.number == number);
        let command = command.ok_or(NotTold)?;
        self.is_stirred = true;
        let name = command.what.name().to_owned();
        match (&command.what, result) {
            (ModelCommand::Load(_), Ok(())) => drop(holder.has.insert(name, command.edition)),
            (ModelCommand::Contexts { .. }, Ok(())) => {}
            // What it does not have need not go.
            (ModelCommand::Unload { .. }, _) => drop(holder.has.remove(&name)),
            (ModelCommand::Contexts { .. } | ModelCommand::Load(_), Err(why)) => {
                holder.refused.push((command.edition, contexts_of(&command.what)));
                self.failed(worker, &command, why.clone());
                return Ok(Some(Note::CommandFailed { worker, command: command.what, why }));
            }
        }
        Ok(None)
    }

    /// A command was not carried out: neither is the change that it is of.
    fn failed(&mut self, worker: WorkerId, command: &Command, why: String) {
        let Some(change) = &mut self.change else { return };
        if change.what.name() == command.what.name() && verb(&change.what) == verb(&command.what) {
            change.failed.push((worker, why));
        }
    }

    /// The command that was given longest ago and is not carried out.
    fn oldest(&self) -> Option<(Timestamp, WorkerId)> {
        let sent = |(&worker, holder): (&WorkerId, &Holder)| {
            holder.command.as_ref().map(|command| (command.sent, worker))
        };
        self.holders.iter().filter_map(sent).min()
    }

    /// When a worker is late with what it was told.
    pub(crate) fn deadline(&self, timeout: Duration) -> Option<Timestamp> {
        self.oldest().map(|(sent, _)| sent.after(timeout))
    }

    /// A worker that is late.
    pub(crate) fn late(&self, now: Timestamp, timeout: Duration) -> Option<WorkerId> {
        self.oldest().filter(|(sent, _)| sent.after(timeout) <= now).map(|(_, worker)| worker)
    }

    /// The supervisor was not running for about `gap`: nothing is late because of that.
    pub(crate) fn excuse(&mut self, gap: Duration) {
        for command in self.holders.values_mut().filter_map(|holder| holder.command.as_mut()) {
            command.sent = command.sent.after(gap);
        }
    }

    /// Takes in what an operator wants; the error is what he is told at once.
    pub(crate) fn begin(
        &mut self,
        client: ClientId,
        request: u64,
        what: ModelCommand,
    ) -> Result<(), String> {
        if let Some(Change { what, .. }) = &self.change {
            let (name, verb) = (what.name(), verb(what));
            return Err(format!("`{name}` is being {verb}; try again when that is done"));
        }
        self.check_command(&what)?;
        if let ModelCommand::Unload { name } = &what
            && let Some(wanted) = self.wanted.get_mut(name)
        {
            wanted.is_closing = true;
        }
        let edition = self.next_number();
        self.change = Some(Change { client, request, what, edition, failed: Vec::new() });
        // A worker that could not before may be able to now.
        self.holders.values_mut().for_each(|holder| holder.refused.clear());
        self.is_stirred = true;
        Ok(())
    }

    fn check_command(&self, what: &ModelCommand) -> Result<(), String> {
        let known = self.wanted.get(what.name());
        match (what, known) {
            (ModelCommand::Load(ModelPlan { name, .. }), Some(known)) => Err(format!(
                "there is a model `{name}` already, from {}: `gridpool model unload {name}` makes room \
                 for another",
                known.plan.path.display()
            )),
            (ModelCommand::Load(plan), None) => {
                check_model_name(&plan.name).map_err(|error| error.to_string())?;
                plan.check().map_err(|error| format!("model `{}`: {error}", plan.name))?;
                if !plan.path.is_absolute() {
                    return Err(format!("`{}` is no absolute path", plan.path.display()));
                }
                match self.wanted.len() >= MODELS_MAX {
                    true => {
                        Err(format!("a pool has at most {MODELS_MAX} models: unload one first"))
                    }
                    false => Ok(()),
                }
            }
            (ModelCommand::Contexts { name, .. } | ModelCommand::Unload { name }, None) => {
                Err(format!("there is no model `{name}`; there is {}", self.names()))
            }
            (ModelCommand::Contexts { contexts, .. }, Some(_)) => {
                check_contexts(*contexts).map_err(|error| error.to_string())
            }
            (ModelCommand::Unload { .. }, Some(_)) => Ok(()),
        }
    }

    /// Those that take requests.
    fn names(&self) -> String {
        let open = self.wanted.iter().filter(|(_, wanted)| !wanted.is_closing);
        let names: Vec<_> = open.map(|(name, _)| name.as_str()).collect();
        if names.is_empty() { "none".to_owned() } else { names.join(", ") }
    }

    /// Whether a model may be asked; `settled` says whether no worker is to come.
    pub(crate) fn check(&self, name: &str, settled: impl Fn() -> bool) -> Result<(), String> {
        if self.wanted.get(name).is_some_and(|wanted| !wanted.is_closing) {
            return match self.why_unavailable(name) {
                Some(why) if settled() => {
                    Err(format!("the model `{name}` could not be loaded: {why}"))
                }
                Some(_) | None => Ok(()),
            };
        }
        Err(match self.names().as_str() {
            "none" => {
                "this pool has no models: `gridpool model load NAME=PATH` gives it one".to_owned()
            }
            names => format!("there is no model `{name}`; there is {names}"),
        })
    }

    /// Why no worker that has said something of a model could load it; nothing if one could, or none
    /// has said anything.
    fn why_unavailable(&self, name: &str) -> Option<String> {
        let own = self.holders.iter();
        let mut said = own.filter_map(|(at, holder)| Some((at, holder.said_of(name)?)));
        let (at, first) = said.next()?;
        let is_ready = |info: &ModelInfo| info.state == ModelState::Ready;
        (!is_ready(first) && !said.any(|(_, info)| is_ready(info)))
            .then(|| format!("{at}: {}", first.reason))
    }

    /// What every worker says of its models.
    pub(crate) fn rows(&self) -> impl Iterator<Item = (WorkerId, &ModelInfo)> {
        let of = |(&worker, holder)| {
            let Holder { says, .. }: &Holder = holder;
            says.iter().map(move |info| (worker, info))
        };
        self.holders.iter().flat_map(of)
    }

    /// The models that workers are to have.
    pub(crate) fn wanted(&self) -> impl Iterator<Item = &str> {
        self.wanted.keys().map(String::as_str)
    }

    /// Whether a step may find something to do.
    pub(crate) fn is_stirred(&self) -> bool {
        self.is_stirred || self.change.is_some()
    }
}

impl Holder {
    /// What it says of a model.
    fn said_of(&self, name: &str) -> Option<&ModelInfo> {
        self.says.iter().find(|info| info.name == name)
    }

    fn ready(&self, name: &str) -> Option<&ModelInfo> {
        self.said_of(name).filter(|info| info.state == ModelState::Ready)
    }
}

/// A worker has answered a command that it was not given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotTold;

/// Cuts a sentence that is too long.
fn shorten(text: &mut String) {
    if text.len() > REASON_BYTES_MAX {
        text.truncate(text.floor_char_boundary(REASON_BYTES_MAX));
        text.push('…');
    }
}

/// The contexts that a command is about.
fn contexts_of(what: &ModelCommand) -> u32 {
    match what {
        ModelCommand::Contexts { contexts, .. } => *contexts,
        ModelCommand::Load(plan) => plan.options.contexts,
        ModelCommand::Unload { .. } => 0,
    }
}

/// `loaded`.
pub(crate) fn verb(what: &ModelCommand) -> &'static str {
    match what {
        ModelCommand::Contexts { .. } => "given other contexts",
        ModelCommand::Load(_) => "loaded",
        ModelCommand::Unload { .. } => "unloaded",
    }
}
