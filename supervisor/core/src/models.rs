//! The models that the pool should have, the models that each worker has, and the change that an operator
//! asked for.
//!
//! There is no list of next steps. Whenever a worker has no pending command, its models are compared with
//! the models that it should have, and the first difference becomes its next command. So a worker that
//! starts late, a worker that dies during a change and a change that is rolled back all converge.
//!
//! A change applies to all workers or to none. One worker loads a new model first: if the model kills it,
//! only one worker is lost. A model that is being unloaded accepts no new requests, and stays loaded until
//! its last request has a verdict.

mod checks;
mod loads;
mod pins;
mod reports;
mod step;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::time::Duration;

use gridpool_protocol::ids::{ClientId, WorkerId};
use gridpool_protocol::message::ModelCommand;
use gridpool_protocol::status::LoadPhase;
use gridpool_protocol::tensor::model::{ModelInfo, ModelState};
use gridpool_protocol::tensor::options::{ModelPlan, check_contexts};
use gridpool_protocol::tensor::version::{check_full_name, split};

use crate::Quarantine;
use crate::action::Note;
use crate::event::Timestamp;
pub(crate) use checks::check_new;

/// Most bytes kept of the reason why a model could not be loaded: it may list every node of the model.
const REASON_BYTES_MAX: usize = 4_096;

/// The models of one group.
#[derive(Debug, Default)]
pub(crate) struct Models {
    wanted: BTreeMap<String, Wanted>,
    /// Workers that have reported their models and were not told to end.
    holders: BTreeMap<WorkerId, Holder>,
    /// The models given to each worker that has started and not reported yet.
    started: BTreeMap<WorkerId, Started>,
    change: Option<Change>,
    /// Versions to unload after the change, for whom. They accept no requests already.
    unloads: VecDeque<(ClientId, u64, String)>,
    /// The number of the latest command or edition.
    number: u64,
    /// Something has changed since the last step.
    needs_step: bool,
}

/// Distinguishes a model from an earlier one of the same name.
type Edition = u64;

/// A model that workers should have.
#[derive(Debug)]
struct Wanted {
    plan: ModelPlan,
    edition: Edition,
    /// It accepts no new requests, and is unloaded when its last request has a verdict.
    is_closing: bool,
}

/// A worker that has not reported its models yet.
#[derive(Debug)]
struct Started {
    editions: BTreeMap<String, Edition>,
    /// What it said last of its loads.
    progress: Option<(String, LoadPhase)>,
}

/// A worker.
#[derive(Debug, Default)]
struct Holder {
    reported: Vec<ModelInfo>,
    has: BTreeMap<String, Edition>,
    pending: Option<PendingCommand>,
    /// Commands that it could not carry out, so that they are not repeated: edition and contexts.
    refused: Vec<(Edition, u32)>,
    /// How far it is with a command that loads.
    phase: Option<LoadPhase>,
    /// How long its command may have taken, and has.
    late_after: Option<Duration>,
}

/// A command that a worker was given and has not answered.
#[derive(Debug)]
struct PendingCommand {
    number: u64,
    command: ModelCommand,
    edition: Edition,
    sent: Timestamp,
}

/// The change that an operator has asked for.
#[derive(Debug)]
struct Change {
    client: ClientId,
    request: u64,
    command: ModelCommand,
    /// The edition of the new model, if the change loads one.
    edition: Edition,
    /// The workers that failed to make the change, and why.
    failed: Vec<(WorkerId, String)>,
    /// When a load has taken too long; none for other changes.
    due: Option<Timestamp>,
    /// Why a load ends before its workers are done with it.
    given_up: Option<String>,
}

/// What a step needs to know of the rest of the core.
pub(crate) struct StepContext<'a> {
    pub(crate) now: Timestamp,
    /// Whether a request without a verdict uses a model.
    pub(crate) is_requested: &'a dyn Fn(&str) -> bool,
    /// Whether a worker that has not reported its models is starting or about to start.
    pub(crate) awaits_workers: bool,
    /// Why there is no worker, if there is none.
    pub(crate) why_no_worker: &'a dyn Fn() -> String,
}

/// What a step asks of the core.
#[derive(Debug, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "changes of models are rare")]
pub(crate) enum Effect {
    /// Tell a worker to change its models.
    Command { worker: WorkerId, number: u64, command: ModelCommand },
    /// No model is left.
    Rest,
    /// Tell the operator the result of the change.
    Reply { client: ClientId, request: u64, result: Result<String, String> },
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

    /// The models that a worker that starts now must load.
    pub(crate) fn start(&mut self, worker: WorkerId) -> Vec<ModelPlan> {
        let edition = |(name, wanted): (&String, &Wanted)| (name.clone(), wanted.edition);
        let editions = self.wanted.iter().map(edition).collect();
        self.started.insert(worker, Started { editions, progress: None });
        self.wanted.values().map(|wanted| wanted.plan.clone()).collect()
    }

    /// A worker reports its models. One that it loaded from another file than the first worker is UNAVAILABLE from
    /// here on. Returns a note for each that is new or has changed; none if the worker was told to end.
    pub(crate) fn on_reported(
        &mut self,
        worker: WorkerId,
        reported: &mut [ModelInfo],
    ) -> Vec<Note> {
        self.needs_step = true;
        if let Some(Started { editions, .. }) = self.started.remove(&worker) {
            let edition = |info: &ModelInfo| editions.get(&info.name).copied().unwrap_or_default();
            let has = reported.iter().map(|info| (info.name.clone(), edition(info))).collect();
            self.holders.insert(worker, Holder { has, ..Holder::default() });
        }
        self.pin(worker, reported);
        reported.iter_mut().for_each(|model| shorten(&mut model.reason));
        let Some(holder) = self.holders.get_mut(&worker) else { return Vec::new() };
        let before = std::mem::replace(&mut holder.reported, reported.to_vec());
        let as_before = |model: &&ModelInfo| {
            before.iter().any(|other| (&other.name, other.state) == (&model.name, model.state))
        };
        let news = self.holders[&worker].reported.iter().filter(|model| !as_before(model));
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

    /// A worker has ended, or was told to end: it carries out no more commands.
    pub(crate) fn on_ended(&mut self, worker: WorkerId) {
        self.started.remove(&worker);
        let Some(holder) = self.holders.remove(&worker) else { return };
        self.needs_step = true;
        if let Some(pending) = holder.pending {
            let why = match holder.late_after {
                None => "it ended before it had answered the command".to_owned(),
                Some(after) => format!(
                    "it had not answered the command after {} s; `--deadline`, or `command_timeout_s` of [limits], \
                     gives it more time",
                    after.as_secs_f64()
                ),
            };
            self.failed(worker, &pending, why);
        }
    }

    /// A worker answers a command. The error: it has no pending command of this number.
    pub(crate) fn on_command_ended(
        &mut self,
        worker: WorkerId,
        number: u64,
        result: Result<(), String>,
    ) -> Result<Option<Note>, UnknownCommand> {
        // The answers of a worker that is ending do not matter.
        let Some(holder) = self.holders.get_mut(&worker) else { return Ok(None) };
        let pending = holder.pending.take_if(|pending| pending.number == number);
        let pending = pending.ok_or(UnknownCommand)?;
        holder.phase = None;
        self.needs_step = true;
        let name = pending.command.name().to_owned();
        match (&pending.command, result) {
            (ModelCommand::Load(_), Ok(())) => drop(holder.has.insert(name, pending.edition)),
            (ModelCommand::Contexts { .. }, Ok(())) => {}
            // An unload that failed, failed because the model is not there.
            (ModelCommand::Unload { .. }, _) => drop(holder.has.remove(&name)),
            (ModelCommand::Contexts { .. } | ModelCommand::Load(_), Err(why)) => {
                holder.refused.push((pending.edition, contexts_of(&pending.command)));
                self.failed(worker, &pending, why.clone());
                let command = Box::new(pending.command);
                return Ok(Some(Note::CommandFailed { worker, command, why }));
            }
        }
        Ok(None)
    }

    /// A command failed, so the change that it belongs to fails too.
    fn failed(&mut self, worker: WorkerId, pending: &PendingCommand, why: String) {
        let Some(change) = &mut self.change else { return };
        let (wanted, failed) = (&change.command, &pending.command);
        // A load that was given up may go on in a worker for a while: it is another edition.
        let is_former = change.loads() && change.edition != pending.edition;
        if wanted.name() == failed.name() && verb(wanted) == verb(failed) && !is_former {
            change.failed.push((worker, why));
        }
    }

    /// The pending command that times out first: when, whose, and how long it may take. A load may take as long as its
    /// owner lets it.
    fn first_due(&self, timeout: Duration) -> Option<(Timestamp, WorkerId, Duration)> {
        let due = |(&worker, holder): (&WorkerId, &Holder)| {
            let PendingCommand { command, sent, .. } = holder.pending.as_ref()?;
            let within = command.load_timeout().map_or(timeout, |own| own.max(timeout));
            Some((sent.after(within), worker, within))
        };
        self.holders.iter().filter_map(due).min()
    }

    /// When the next pending command times out, or a load has taken too long.
    pub(crate) fn deadline(&self, timeout: Duration) -> Option<Timestamp> {
        let command = self.first_due(timeout).map(|(due, ..)| due);
        let load = self.change.as_ref().and_then(|change| change.due);
        command.into_iter().chain(load).min()
    }

    /// A worker whose command has timed out, and how long it had.
    pub(crate) fn late(&self, now: Timestamp, timeout: Duration) -> Option<(WorkerId, Duration)> {
        let first = self.first_due(timeout).filter(|&(due, ..)| due <= now);
        first.map(|(_, worker, within)| (worker, within))
    }

    /// It is killed because its command has timed out.
    pub(crate) fn on_late(&mut self, worker: WorkerId, after: Duration) {
        if let Some(holder) = self.holders.get_mut(&worker) {
            holder.late_after = Some(after);
        }
    }

    /// The supervisor was not running for about `gap`: extends the timeouts of commands.
    pub(crate) fn excuse(&mut self, gap: Duration) {
        for pending in self.holders.values_mut().filter_map(|holder| holder.pending.as_mut()) {
            pending.sent = pending.sent.after(gap);
        }
        if let Some(due) = self.change.as_mut().and_then(|change| change.due.as_mut()) {
            *due = due.after(gap);
        }
    }

    /// Begins the change that an operator asks for, which must be done by `due` if it is a load; the error is the reply
    /// to a change that is refused.
    pub(crate) fn begin(
        &mut self,
        client: ClientId,
        request: u64,
        command: ModelCommand,
        due: Timestamp,
    ) -> Result<(), String> {
        self.check_settled()?;
        self.check_command(&command)?;
        if let ModelCommand::Unload { name } = &command {
            self.close(name);
        }
        self.change_to(client, request, command);
        self.change = self
            .change
            .take()
            .map(|change| Change { due: change.loads().then_some(due), ..change });
        Ok(())
    }

    /// Begins to unload a version that another has followed: at once it accepts no requests, whatever is being changed.
    pub(crate) fn unload(&mut self, client: ClientId, request: u64, name: String) {
        self.close(&name);
        match self.change {
            Some(_) => self.unloads.push_back((client, request, name)),
            None => self.change_to(client, request, ModelCommand::Unload { name }),
        }
    }

    fn close(&mut self, name: &str) {
        if let Some(wanted) = self.wanted.get_mut(name) {
            wanted.is_closing = true;
        }
    }

    fn change_to(&mut self, client: ClientId, request: u64, command: ModelCommand) {
        let edition = self.next_number();
        let (failed, due, given_up) = (Vec::new(), None, None);
        self.change = Some(Change { client, request, command, edition, failed, due, given_up });
        // A worker that failed before may succeed now.
        self.holders.values_mut().for_each(|holder| holder.refused.clear());
        self.needs_step = true;
    }

    /// How many there are, or will be after the pending change.
    pub(crate) fn len(&self) -> usize {
        let loads = self.change.as_ref().is_some_and(|change| change.loads());
        self.wanted.len() + usize::from(loads)
    }

    /// Whether a model is one of them, or is being loaded.
    pub(crate) fn knows(&self, name: &str) -> bool {
        let is_its = |change: &Change| change.command.name() == name;
        self.wanted.contains_key(name) || self.change.as_ref().is_some_and(is_its)
    }

    /// Whether a model accepts requests, if it can be loaded.
    pub(crate) fn is_open(&self, name: &str) -> bool {
        self.wanted.get(name).is_some_and(|wanted| !wanted.is_closing)
    }

    /// The file of a model that is no pipeline, and the hash that it must have.
    pub(crate) fn file_of(&self, name: &str) -> Option<(&PathBuf, &Option<String>)> {
        let plan = &self.wanted.get(name).filter(|wanted| !wanted.is_closing)?.plan;
        plan.options.pipeline.is_none().then_some((&plan.path, &plan.options.sha256))
    }

    /// Those models.
    pub(crate) fn open(&self) -> impl Iterator<Item = &str> {
        self.wanted().filter(|name| self.is_open(name))
    }

    /// The models that workers should have.
    pub(crate) fn wanted(&self) -> impl Iterator<Item = &str> {
        self.wanted.keys().map(String::as_str)
    }

    /// The models that workers should have, with their options. The error says which model is being changed.
    pub(crate) fn plans(&self) -> Result<Vec<ModelPlan>, String> {
        self.check_settled()?;
        Ok(self.wanted.values().map(|wanted| wanted.plan.clone()).collect())
    }

    /// Whether nothing happens before its workers or an operator say something.
    pub(crate) fn is_settled(&self) -> bool {
        !self.needs_step() && self.holders.values().all(|holder| holder.pending.is_none())
    }

    /// Whether a step may find something to do.
    pub(crate) fn needs_step(&self) -> bool {
        self.needs_step || self.change.is_some()
    }
}

impl Holder {
    /// What it reports of a model.
    fn report_of(&self, name: &str) -> Option<&ModelInfo> {
        self.reported.iter().find(|info| info.name == name)
    }

    fn ready(&self, name: &str) -> Option<&ModelInfo> {
        self.report_of(name).filter(|info| info.state == ModelState::Ready)
    }
}

impl Change {
    /// Whether it adds a model.
    fn loads(&self) -> bool {
        matches!(self.command, ModelCommand::Load(_))
    }

    /// Whether it may still be made.
    fn is_live(&self) -> bool {
        self.failed.is_empty() && self.given_up.is_none()
    }
}

/// A worker has answered a command that it was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UnknownCommand;

/// Cuts a reason that is too long.
fn shorten(text: &mut String) {
    if text.len() > REASON_BYTES_MAX {
        text.truncate(text.floor_char_boundary(REASON_BYTES_MAX));
        text.push('…');
    }
}

/// The contexts of a model whose first worker has not chosen them yet.
const NOT_CHOSEN: u32 = 0;

/// The contexts that a plan asks for.
fn count(plan: &ModelPlan) -> u32 {
    plan.options.contexts.fixed().unwrap_or(NOT_CHOSEN)
}

/// The contexts that a command asks for.
fn contexts_of(command: &ModelCommand) -> u32 {
    match command {
        ModelCommand::Contexts { contexts, .. } => *contexts,
        ModelCommand::Load(plan) => count(plan),
        ModelCommand::Unload { .. } => 0,
    }
}

/// What is being done to the model, as a participle.
pub(crate) fn verb(command: &ModelCommand) -> &'static str {
    match command {
        ModelCommand::Contexts { .. } => "given other contexts",
        ModelCommand::Load(_) => "loaded",
        ModelCommand::Unload { .. } => "unloaded",
    }
}
