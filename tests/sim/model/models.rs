//! The wanted models, and the change that an operator asks for. `commands` has how workers get them.

use std::collections::BTreeMap;

use gridpool_core::config::MODELS_MAX;
use gridpool_core::event::Timestamp;
use gridpool_protocol::ids::{ClientId, Role, WorkerId};
use gridpool_protocol::message::ModelCommand;
use gridpool_protocol::tensor::options::ModelPlan;

use super::commands::Holder;
use super::notes::Logged;
use super::{Broken, Model, holds};

/// The role of the workers that have models.
pub(crate) const ROLE: Role = Role::Infer;

/// A model that workers should have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) contexts: u32,
    /// Distinguishes it from earlier ones of the same name.
    pub(super) edition: u64,
    /// It is unloaded when no job uses it.
    pub(super) closes: bool,
    /// The hash of its file, once a worker has loaded it.
    pub(super) file: Option<String>,
}

/// The change that an operator asks for.
#[derive(Clone, Debug)]
pub(super) struct Change {
    from: (ClientId, u64),
    pub(super) command: ModelCommand,
    pub(super) edition: u64,
    /// A worker could not make it.
    pub(super) failed: bool,
    /// The hash of the new model's file, once a worker has loaded it.
    pub(super) file: Option<String>,
}

#[derive(Debug, Default)]
pub(super) struct Models {
    pub(super) wanted: BTreeMap<String, Wanted>,
    /// The same when workers were started, before the models changed in the same event.
    pub(super) at_starts: BTreeMap<String, Wanted>,
    pub(super) change: Option<Change>,
    /// The models given to each worker that has not reported yet.
    pub(super) started: BTreeMap<WorkerId, BTreeMap<String, u64>>,
    pub(super) holders: BTreeMap<WorkerId, Holder>,
    editions: u64,
}

impl Models {
    pub(super) fn new(plans: &[ModelPlan]) -> Self {
        let mut models = Self::default();
        for plan in plans {
            models.editions += 1;
            let (contexts, edition) = (plan.options.contexts, models.editions);
            let wanted = Wanted { contexts, edition, closes: false, file: None };
            models.wanted.insert(plan.name.clone(), wanted);
        }
        models
    }
}

/// Whether two commands are about the same thing.
pub(super) fn are_alike(a: &ModelCommand, b: &ModelCommand) -> bool {
    a.name() == b.name() && std::mem::discriminant(a) == std::mem::discriminant(b)
}

impl Model {
    pub(super) fn change_requested(
        &mut self,
        client: ClientId,
        request: u64,
        command: &ModelCommand,
    ) {
        let models = &self.models;
        let is_known = models.wanted.contains_key(command.name());
        let refused = if self.is_draining() {
            Some("change: of a pool that drains")
        } else if models.change.is_some() {
            Some("change: during another")
        } else {
            match command {
                ModelCommand::Load(_) if is_known => Some("change: a model that is there already"),
                ModelCommand::Load(_) if models.wanted.len() >= MODELS_MAX => {
                    Some("change: too many")
                }
                ModelCommand::Contexts { contexts: 0, .. } if is_known => {
                    Some("change: no context")
                }
                ModelCommand::Contexts { .. } | ModelCommand::Unload { .. } if !is_known => {
                    Some("change: no such model")
                }
                ModelCommand::Contexts { .. }
                | ModelCommand::Load(_)
                | ModelCommand::Unload { .. } => None,
            }
        };
        if let Some(why) = refused {
            self.coverage.hit(why);
            self.due.told.insert((client, request), false);
            return;
        }
        self.coverage.hit(match command {
            ModelCommand::Contexts { .. } => "change: contexts",
            ModelCommand::Load(_) => "change: a model is loaded",
            ModelCommand::Unload { .. } => "change: a model is being unloaded",
        });
        let models = &mut self.models;
        if let ModelCommand::Unload { name } = command {
            models.wanted.get_mut(name).expect("it is known").closes = true;
        }
        models.editions += 1;
        let (from, edition) = ((client, request), models.editions);
        let command = command.clone();
        models.change = Some(Change { from, command, edition, failed: false, file: None });
        models.holders.values_mut().for_each(Holder::forgive);
        self.role_wakes();
    }

    /// Why a request for a model is refused, if it is.
    pub(super) fn cannot_be_asked(&self, name: &str) -> Option<&'static str> {
        let open = self.models.wanted.get(name).filter(|wanted| !wanted.closes);
        if open.is_none() {
            return Some("refuse: no such model");
        }
        let said = self.models.holders.values().filter_map(|holder| holder.says.get(name));
        let mut said = said.peekable();
        let all_failed = said.peek().is_some() && said.all(|says| !says.is_ready);
        (all_failed && !self.awaits_workers(ROLE)).then_some("refuse: a model that failed to load")
    }

    /// What is due for models by the end of an event.
    pub(super) fn models_change(&mut self, now: Timestamp) {
        self.models.at_starts.clone_from(&self.models.wanted);
        loop {
            let asked: Vec<_> = self.models.wanted.keys().cloned().collect();
            let is_asked = |name: &str| {
                let mut models = self.jobs.values().filter_map(|job| job.request.work.model());
                models.any(|model| **model == *name)
            };
            let unasked: Vec<_> = asked.into_iter().filter(|name| !is_asked(name)).collect();
            for name in unasked {
                if self.models.wanted[&name].closes {
                    self.models.wanted.remove(&name);
                }
            }
            self.commands_are_due(now);
            let Some(is_done) = self.change_ends() else { return };
            let change = self.models.change.take().expect("it has just ended");
            self.coverage.hit(match (&change.command, is_done) {
                (ModelCommand::Unload { .. }, _) => "change: a model is unloaded",
                (_, true) => "change: done",
                (_, false) if change.failed => "change: failed by a worker",
                (_, false) => "change: failed without workers",
            });
            self.due.told.insert(change.from, is_done);
            self.notes.due.push(Logged::Changed(is_done));
            if is_done {
                self.is_adopted(&change);
            }
            self.commands_are_due(now);
            if self.models.wanted.is_empty() {
                self.coverage.hit("rest: no model is left");
                self.role_rests(now);
            }
        }
    }

    /// Whether the change has ended, and succeeded.
    fn change_ends(&self) -> Option<bool> {
        let change = self.models.change.as_ref()?;
        let name = change.command.name();
        let holders = || self.models.holders.values();
        let is_under_way = holders().any(|holder| holder.is_at(name));
        let is_done = |holder: &Holder| match &change.command {
            ModelCommand::Contexts { contexts, .. } => holder
                .says
                .get(name)
                .is_some_and(|says| says.is_ready && says.contexts == *contexts),
            ModelCommand::Load(_) => holder.has.get(name) == Some(&change.edition),
            ModelCommand::Unload { .. } => false,
        };
        match &change.command {
            ModelCommand::Unload { .. } => {
                (!self.models.wanted.contains_key(name) && !is_under_way).then_some(true)
            }
            ModelCommand::Contexts { .. } | ModelCommand::Load(_) if change.failed => Some(false),
            ModelCommand::Contexts { .. } | ModelCommand::Load(_) => {
                let waits = is_under_way || self.awaits_workers(ROLE);
                (!waits).then(|| holders().any(is_done))
            }
        }
    }

    fn is_adopted(&mut self, change: &Change) {
        let wanted = &mut self.models.wanted;
        match &change.command {
            ModelCommand::Contexts { name, contexts } => {
                if let Some(model) = wanted.get_mut(name) {
                    model.contexts = *contexts;
                }
            }
            ModelCommand::Load(plan) => {
                let (contexts, edition) = (plan.options.contexts, change.edition);
                let file = change.file.clone();
                let model = Wanted { contexts, edition, closes: false, file };
                wanted.insert(plan.name.clone(), model);
            }
            ModelCommand::Unload { .. } => {}
        }
    }

    pub(super) fn replied(
        &mut self,
        _now: Timestamp,
        client: ClientId,
        request: u64,
        is_done: bool,
    ) -> Result<(), Broken> {
        let rule = "an_operator_gets_one_reply_to_each_request";
        let due = self.due.told.remove(&(client, request));
        holds(rule, due == Some(is_done), || format!("{client} {request}: {is_done}, due {due:?}"))
    }

    /// Models that accept requests and can have a worker, if this is the hash of all files.
    pub(crate) fn open_models(&mut self, now: &str) -> Vec<String> {
        let open = self.models.wanted.iter().filter(|(_, wanted)| !wanted.closes);
        let (lost, open): (Vec<_>, Vec<_>) =
            open.partition(|(name, wanted)| self.models.has_lost_its_file(name, wanted, now));
        if !lost.is_empty() {
            self.coverage.hit("phase 2: no worker has the file that was loaded");
        }
        open.into_iter().map(|(name, _)| name.clone()).collect()
    }

    /// Whether every active worker has the wanted models, or has failed to load them.
    pub(crate) fn every_worker_has_the_wanted_models_once_the_faults_stop(
        &mut self,
    ) -> Result<(), Broken> {
        let rule = "every_worker_has_the_wanted_models_once_the_faults_stop";
        let Models { wanted, holders, change, .. } = &self.models;
        holds(rule, change.is_none(), || format!("{change:?} has not ended"))?;
        for (worker, holder) in holders {
            let editions = wanted.iter().map(|(name, model)| (name, &model.edition));
            let is_refused = |edition| holder.refused.iter().any(|&(own, _)| own == edition);
            let missing = editions.clone().find(|&(name, edition)| {
                holder.has.get(name) != Some(edition) && !is_refused(*edition)
            });
            holds(rule, missing.is_none(), || format!("{worker} has no {missing:?}: {holder:?}"))?;
            let extra = holder.has.keys().find(|name| !wanted.contains_key(*name));
            holds(rule, extra.is_none(), || format!("{worker} still has {extra:?}"))?;
        }
        if !holders.is_empty() && !wanted.is_empty() {
            self.coverage.hit("phase 2: workers have the wanted models");
        }
        Ok(())
    }
}
