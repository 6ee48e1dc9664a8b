//! The models of workers, how workers carry out commands, and operators who change models.

use std::sync::Arc;

use gridpool_core::event::{ClientEvent, Event, Timestamp, WorkerEvent};
use gridpool_protocol::ids::{ClientId, Group, WorkerId};
use gridpool_protocol::message::ModelCommand;
use gridpool_protocol::status::LoadPhase;
use gridpool_protocol::tensor::model::{ModelInfo, ModelState};
use gridpool_protocol::tensor::options::ModelPlan;

use super::World;
use crate::swarm::{contexts_of, plan};

/// A model in a worker.
#[derive(Clone, Copy, Debug)]
pub(super) struct Loaded {
    contexts: u32,
    is_ready: bool,
    /// The content of its file, at the time of the load.
    content: u64,
    /// It was to have another content, and never gets READY.
    is_other: bool,
}

/// The hash of a content. Contents are small numbers.
fn sha256(content: u64) -> String {
    format!("{content:064x}")
}

impl World {
    /// The model that a request uses, if it uses one.
    pub(super) fn some_model(&mut self) -> Option<Arc<str>> {
        if !self.rng.chance(self.swarm.model_jobs) {
            return None;
        }
        let name = self.some_name();
        let is_certain = self.rng.chance(self.swarm.rates.certain_versions);
        Some(if is_certain { self.some_version(&name) } else { name }.into())
    }

    /// A version of a model, which may exist.
    fn some_version(&mut self, name: &str) -> String {
        let number = self.rng.pick(&[1, 2, 3, 4, 10]);
        format!("{name}:{number}")
    }

    /// A model that may exist, or one that never does.
    fn some_name(&mut self) -> String {
        if self.rng.chance(self.swarm.rates.unknown_models) {
            return self.swarm.name(self.swarm.models);
        }
        let number = self.rng.below(self.swarm.models);
        self.swarm.name(number)
    }

    /// A worker has loaded its first models, as far as it could, and reports them, usually before it is
    /// READY.
    pub(super) fn loads_at(
        &mut self,
        now: Timestamp,
        ready_at: Timestamp,
        worker: WorkerId,
        plans: &[ModelPlan],
    ) {
        if worker.group == Group::Grid {
            return;
        }
        for plan in plans {
            let is_ready = !self.rng.chance(self.swarm.rates.load_fails);
            let content = self.content_now();
            let is_other = is_other(plan, content);
            let is_ready = is_ready && !is_other;
            let loaded = Loaded { contexts: contexts_of(plan), is_ready, content, is_other };
            let process = self.processes.get_mut(&worker).expect("it has just started");
            process.models.insert(plan.name.clone(), loaded);
        }
        let at = match self.rng.chance(self.swarm.rates.late_reports) {
            true => self.soon(ready_at, 50),
            false => self.within(now, ready_at),
        };
        self.reports_at(at, worker);
    }

    /// The content of the file of all models, which someone overwrites at times.
    fn content_now(&mut self) -> u64 {
        self.content += u64::from(self.rng.chance(self.swarm.rates.overwritten_files));
        self.content
    }

    /// The hash of the file of all models.
    pub(crate) fn sha256_now(&self) -> String {
        sha256(self.content)
    }

    /// A worker reports its models as they are now: at that time, or after its last report. Its channel
    /// keeps the order.
    fn reports_at(&mut self, at: Timestamp, worker: WorkerId) {
        let process = self.processes.get_mut(&worker).expect("it reports");
        process.reported_at = process.reported_at.max(at);
        let models = process.models.iter().map(|(name, loaded)| info(name, *loaded)).collect();
        let at = process.reported_at;
        self.tell(at, Event::Worker(worker, WorkerEvent::ModelsReported(models)));
    }

    /// A worker is told to change its models.
    pub(super) fn on_command(
        &mut self,
        now: Timestamp,
        worker: WorkerId,
        number: u64,
        command: &ModelCommand,
    ) {
        let Some(process) = self.processes.get(&worker) else { return };
        if process.mute || process.is_dead(now) || self.rng.chance(self.swarm.rates.lost_commands) {
            return;
        }
        let reported_at = process.reported_at;
        let at = self.soon(now, self.swarm.load_max).max(reported_at);
        if self.rng.chance(self.swarm.rates.deadly_commands) {
            let status = self.any_death();
            self.end(at, worker, status);
            return;
        }
        if let ModelCommand::Load(plan) = command {
            let event =
                WorkerEvent::Loading { model: plan.name.clone(), phase: LoadPhase::Session };
            self.tell(now, Event::Worker(worker, event));
        }
        let mut fails = self.rng.chance(self.swarm.rates.load_fails);
        let content = self.content_now();
        if let ModelCommand::Load(plan) = command {
            fails |= is_other(plan, content);
        }
        let result = if fails { Err("it does not fit".to_owned()) } else { Ok(()) };
        let models = &mut self.processes.get_mut(&worker).expect("it was just found").models;
        match command {
            ModelCommand::Unload { name } => {
                models.remove(name);
            }
            ModelCommand::Contexts { .. } | ModelCommand::Load(_) if fails => {}
            ModelCommand::Contexts { name, contexts } => {
                models.entry(name.clone()).and_modify(|loaded| loaded.contexts = *contexts);
            }
            ModelCommand::Load(plan) => {
                let loaded = Loaded {
                    contexts: contexts_of(plan),
                    is_ready: true,
                    content,
                    is_other: false,
                };
                models.insert(plan.name.clone(), loaded);
            }
        }
        self.reports_at(at, worker);
        let wrong = self.rng.chance(self.swarm.rates.wrong_commands);
        let number = if wrong { number + 1 } else { number };
        self.tell(at, Event::Worker(worker, WorkerEvent::CommandEnded { number, result }));
    }

    /// A worker loses a model, or has it again.
    pub(super) fn loses_a_model(&mut self, now: Timestamp) {
        let has_some = |(_, process): &(&WorkerId, &super::Process)| {
            !process.models.is_empty() && process.reported_at <= now && !process.ending
        };
        let workers = self.processes.iter().filter(has_some).map(|(&worker, _)| worker);
        let workers: Vec<_> = workers.collect();
        if workers.is_empty() {
            return;
        }
        let worker = self.rng.pick(&workers);
        let is_ready = self.rng.chance(400);
        let process = self.processes.get_mut(&worker).expect("it was just listed");
        process
            .models
            .values_mut()
            .for_each(|loaded| loaded.is_ready = is_ready && !loaded.is_other);
        let at = self.soon(now, 20);
        self.reports_at(at, worker);
    }

    /// An operator asks to change the models.
    pub(super) fn changes_models(&mut self, client: ClientId) -> Event {
        let mut name = self.some_name();
        if self.rng.chance(self.swarm.rates.certain_versions) {
            name = self.some_version(&name);
        }
        let contexts = u32::try_from(self.rng.below(4)).expect("it is small");
        let command = match self.rng.below(5) {
            0 => ModelCommand::Contexts { name, contexts },
            1 => ModelCommand::Unload { name },
            _ => {
                let mut plan = plan(&name, contexts.max(1));
                plan.options.keep = self.rng.chance(self.swarm.rates.kept_versions);
                ModelCommand::Load(plan)
            }
        };
        self.change_of(client, command)
    }

    /// The same with a given change.
    pub(crate) fn change_of(&mut self, client: ClientId, command: ModelCommand) -> Event {
        self.next_request += 1;
        let request = self.next_request;
        let command = Box::new(command);
        Event::Client(client, ClientEvent::ModelsChangeRequested { request, command })
    }

    /// Every worker has all its models again, once the faults stop.
    pub(super) fn all_models_work(&mut self, at: Timestamp) {
        for worker in self.processes.keys().copied().collect::<Vec<_>>() {
            let process = self.processes.get_mut(&worker).expect("it was just listed");
            if process.models.is_empty() {
                continue;
            }
            process.models.values_mut().for_each(|loaded| loaded.is_ready = !loaded.is_other);
            self.reports_at(at, worker);
        }
    }
}

fn is_other(plan: &ModelPlan, content: u64) -> bool {
    plan.options.sha256.as_ref().is_some_and(|then| *then != sha256(content))
}

fn info(name: &str, loaded: Loaded) -> ModelInfo {
    let contexts = loaded.contexts;
    if loaded.is_ready {
        let state = ModelState::Ready;
        let info = ModelInfo::unavailable(name, String::new());
        return ModelInfo { contexts, state, sha256: sha256(loaded.content), ..info };
    }
    ModelInfo { contexts, ..ModelInfo::unavailable(name, "it does not fit".to_owned()) }
}
