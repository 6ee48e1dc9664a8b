//! How workers get the wanted models: one command at a time, for the first difference. Unloads come first;
//! then by name.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use gridpool_core::event::Timestamp;
use gridpool_protocol::ids::{Group, WorkerId};
use gridpool_protocol::message::ModelCommand;
use gridpool_protocol::tensor::model::{ModelInfo, ModelState};
use gridpool_protocol::tensor::options::ModelPlan;

use super::models::{Change, Models, Wanted, are_alike};
use super::notes::Logged;
use super::slots::{State, Why};
use super::{Broken, Model, holds};
use crate::swarm::{contexts_of, plan};

/// What a worker should have of a model: edition, contexts, whether versions before it stay, hash of the file.
type Goal<'a> = (u64, u32, bool, Option<&'a str>);

impl Wanted {
    fn goal(&self) -> Goal<'_> {
        (self.edition, self.contexts, self.keep, self.file.as_deref())
    }
}

/// A worker's report of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Says {
    pub(super) is_ready: bool,
    pub(super) contexts: u32,
}

/// A command without an answer.
#[derive(Clone, Debug)]
struct Command {
    /// Known once it was sent.
    number: Option<u64>,
    what: ModelCommand,
    edition: u64,
    sent: Timestamp,
}

/// A worker that has reported its models and was not told to end.
#[derive(Clone, Debug, Default)]
pub(super) struct Holder {
    pub(super) has: BTreeMap<String, u64>,
    pub(super) says: BTreeMap<String, Says>,
    /// Editions that it could not load, or not with this number of contexts.
    pub(super) refused: BTreeSet<(u64, u32)>,
    command: Option<Command>,
}

impl Holder {
    /// Whether its command changes this model.
    pub(super) fn is_at(&self, name: &str) -> bool {
        self.command.as_ref().is_some_and(|command| command.what.name() == name)
    }

    fn loads(&self, edition: u64) -> bool {
        let command = self.command.as_ref().filter(|command| command.edition == edition);
        command.is_some_and(|command| matches!(command.what, ModelCommand::Load(_)))
    }

    /// Its reports, by model.
    pub(super) fn rows(&self) -> impl Iterator<Item = (&String, &Says)> {
        self.says.iter()
    }

    /// A command that failed before may succeed now.
    pub(super) fn forgive(&mut self) {
        self.refused.clear();
    }
}

impl Models {
    /// The supervisor did not run for `gap`: extends the timeouts of commands.
    pub(super) fn excuse(&mut self, gap: Duration) {
        for command in self.holders.values_mut().filter_map(|holder| holder.command.as_mut()) {
            command.sent = command.sent.after(gap);
        }
        if let Some(due) = self.change.as_mut().and_then(|change| change.due.as_mut()) {
            *due = due.after(gap);
        }
    }

    /// Whether no worker has the file that was loaded, nor would find it.
    pub(super) fn has_lost_its_file(&self, name: &str, wanted: &Wanted, now: &str) -> bool {
        let Some(file) = &wanted.file else { return false };
        let is_ready = |holder: &Holder| holder.says.get(name).is_some_and(|says| says.is_ready);
        (!self.holders.is_empty() || file != now) && !self.holders.values().any(is_ready)
    }

    /// The models that workers should have, with edition and contexts; with the change, while no worker has
    /// failed to make it.
    fn goal(&self) -> BTreeMap<&str, Goal<'_>> {
        let wanted = self.wanted.iter();
        let mut goal: BTreeMap<_, _> =
            wanted.map(|(name, model)| (name.as_str(), model.goal())).collect();
        match self.change.as_ref().filter(|change| !change.failed && !change.given_up) {
            Some(Change { command: ModelCommand::Load(plan), edition, file, .. }) => {
                let (contexts, keep) = (contexts_of(plan), plan.options.keep);
                goal.insert(&plan.name, (*edition, contexts, keep, file.as_deref()));
            }
            Some(Change { command: ModelCommand::Contexts { name, contexts }, .. }) => {
                goal.entry(name).and_modify(|(_, own, ..)| *own = *contexts);
            }
            Some(Change { command: ModelCommand::Unload { .. }, .. }) | None => {}
        }
        goal
    }

    /// Whether a first worker is loading a new model, so that no other may.
    fn is_tried(&self, edition: u64) -> bool {
        let is_new = self.change.as_ref().is_some_and(|change| change.edition == edition);
        let holders = || self.holders.values();
        is_new
            && holders().any(|holder| holder.loads(edition))
            && !holders().any(|holder| holder.has.values().any(|&own| own == edition))
    }

    /// The next command of a worker.
    fn next(&self, holder: &Holder) -> Option<(ModelCommand, u64)> {
        let goal = self.goal();
        let is_extra = |(name, edition): &(&String, &u64)| {
            goal.get(name.as_str()).is_none_or(|(own, ..)| own != *edition)
        };
        if let Some((name, &edition)) = holder.has.iter().find(is_extra) {
            return Some((ModelCommand::Unload { name: name.clone() }, edition));
        }
        let differs = |(&name, &(edition, contexts, keep, file)): (&&str, &Goal<'_>)| {
            if holder.refused.contains(&(edition, contexts)) {
                return None;
            }
            if !holder.has.contains_key(name) {
                let mut plan = plan(name, contexts);
                plan.options.keep = keep;
                plan.options.devices = self.placement.clone();
                plan.options.sha256 = file.map(str::to_owned);
                let load = ModelCommand::Load(plan);
                return (!self.is_tried(edition)).then_some((load, edition));
            }
            let says = holder.says.get(name).filter(|says| says.is_ready)?;
            let command = ModelCommand::Contexts { name: name.to_owned(), contexts };
            (says.contexts != contexts).then_some((command, edition))
        };
        goal.iter().find_map(differs)
    }
}

impl Model {
    /// The workers that have models, of all groups.
    fn holders(&self) -> impl Iterator<Item = (&WorkerId, &Holder)> {
        self.models.values().flat_map(|models| &models.holders)
    }

    /// Those of the group of a worker.
    fn holders_like(&self, worker: WorkerId) -> &BTreeMap<WorkerId, Holder> {
        &self.models[&worker.group].holders
    }

    fn holder_mut(&mut self, worker: WorkerId) -> Option<&mut Holder> {
        self.models.get_mut(&worker.group)?.holders.get_mut(&worker)
    }

    /// Every worker of a group without a command gets its next one.
    pub(super) fn commands_are_due(&mut self, now: Timestamp, group: Group) {
        let idle =
            self.models[&group].holders.iter().filter(|(_, holder)| holder.command.is_none());
        for worker in idle.map(|(&worker, _)| worker).collect::<Vec<_>>() {
            let models = self.models.get_mut(&group).expect("the group is known");
            let Some((what, edition)) = models.next(&models.holders[&worker]) else {
                continue;
            };
            let command = Command { number: None, what, edition, sent: now };
            let holder = models.holders.get_mut(&worker).expect("it was just listed");
            holder.command = Some(command);
            let at = self.slot_of(worker).expect("a worker with a command has a slot");
            self.slot_mut(at).is_changing = true;
        }
    }

    pub(super) fn commanded(
        &mut self,
        now: Timestamp,
        worker: WorkerId,
        number: u64,
        command: &ModelCommand,
    ) -> Result<(), Broken> {
        self.coverage.hit(match command {
            ModelCommand::Contexts { .. } => "command: contexts",
            ModelCommand::Load(_) => "command: load",
            ModelCommand::Unload { .. } => "command: unload",
        });
        let others = self.holders_like(worker).values();
        let others = others.filter_map(|holder| holder.command.as_ref());
        let is_new = others.filter_map(|other| other.number).all(|other| other != number);
        holds("a_command_has_a_number_of_its_own", is_new, || format!("{worker}: {number}"))?;
        let rule = "a_worker_gets_one_command_at_a_time_for_its_first_difference";
        let holder = self.holder_mut(worker);
        let due = holder.and_then(|holder| holder.command.as_mut());
        let due = due.filter(|due| due.number.is_none());
        let is_due = due.as_ref().is_some_and(|due| due.what == *command && due.sent == now);
        let detail = || format!("{worker}: {command:?}, due {:?}", due.as_ref().map(|d| &d.what));
        holds(rule, is_due, detail)?;
        due.expect("it is due").number = Some(number);
        Ok(())
    }

    /// Every due command was sent.
    pub(super) fn every_command_is_given(&self) -> Result<(), Broken> {
        let rule = "a_worker_that_differs_gets_a_command_at_once";
        let is_kept = |holder: &Holder| {
            holder.command.as_ref().is_some_and(|command| command.number.is_none())
        };
        let kept = self.holders().find(|(_, holder)| is_kept(holder));
        holds(rule, kept.is_none(), || format!("{kept:?}"))
    }

    pub(super) fn models_reported(&mut self, now: Timestamp, worker: WorkerId, told: &[ModelInfo]) {
        let others = self.of_other_files(worker, told);
        let is_ready =
            |info: &&ModelInfo| info.state == ModelState::Ready && !others.contains(&info.name);
        let says = told.iter().map(|info| {
            let says = Says { is_ready: is_ready(&info), contexts: info.contexts };
            (info.name.clone(), says)
        });
        let says: BTreeMap<_, _> = says.collect();
        let models = self.models.get_mut(&worker.group);
        if let Some(models) = models
            && let Some(editions) = models.started.remove(&worker)
        {
            let has = says.keys().map(|name| (name.clone(), editions[name]));
            let holder = Holder { has: has.collect(), ..Holder::default() };
            models.holders.insert(worker, holder);
        }
        let models = self.models.get_mut(&worker.group);
        if let Some(holder) = models.and_then(|models| models.holders.get_mut(&worker)) {
            for (name, now) in &says {
                let before = holder.says.get(name).map(|says| says.is_ready);
                if before != Some(now.is_ready) {
                    self.notes.due.push(Logged::Model(worker, name.clone(), now.is_ready));
                }
            }
            holder.says = says;
        }
        let ready = told.iter().filter(is_ready).map(|info| info.name.as_str().into()).collect();
        self.models_offered(now, worker, &ready);
    }

    /// The first worker that loads a model decides which file it is. Returns the models of `told` that come from
    /// another file: they are not used.
    fn of_other_files(&mut self, worker: WorkerId, told: &[ModelInfo]) -> BTreeSet<String> {
        let mut others = BTreeSet::new();
        let Some(models) = self.models.get_mut(&worker.group) else { return others };
        let holder = models.holders.get(&worker);
        let command = holder.and_then(|holder| holder.command.as_ref());
        for info in told.iter().filter(|info| info.state == ModelState::Ready) {
            let edition = match (models.started.get(&worker), holder) {
                (Some(editions), _) => editions.get(&info.name),
                (None, Some(holder)) => holder.has.get(&info.name).or_else(|| {
                    command.filter(|own| own.what.name() == info.name).map(|own| &own.edition)
                }),
                (None, None) => None,
            };
            let wanted = models.wanted.get_mut(&info.name);
            let wanted = wanted.map(|wanted| (wanted.edition, &mut wanted.file));
            let change = models.change.as_mut();
            let change = change.filter(|change| matches!(change.command, ModelCommand::Load(_)));
            let change = change.map(|change| (change.edition, &mut change.file));
            let mut files = wanted.into_iter().chain(change);
            let file = files.find(|(own, _)| Some(own) == edition);
            let Some((_, file)) = file else { continue };
            if *file.get_or_insert_with(|| info.sha256.clone()) != info.sha256 {
                self.coverage.hit("models: two workers have loaded two files");
                others.insert(info.name.clone());
            }
        }
        others
    }

    pub(super) fn command_ended(
        &mut self,
        now: Timestamp,
        worker: WorkerId,
        number: u64,
        is_done: bool,
    ) {
        let at = self.is_current(now, worker);
        let models = self.models.get_mut(&worker.group);
        let Some(holder) = models.and_then(|models| models.holders.get_mut(&worker)) else {
            self.coverage.hit("command: answered by a worker that is ending");
            if let Some(at) = at {
                self.slot_mut(at).is_changing = false;
            }
            return;
        };
        let at = at.expect("a worker that has models is there");
        let Some(command) = holder.command.take_if(|command| command.number == Some(number)) else {
            self.coverage.hit("kill: it answers an unknown command");
            return self.kill(now, at, Why::Command { after: None });
        };
        let name = command.what.name().to_owned();
        match (&command.what, is_done) {
            (ModelCommand::Load(_), true) => {
                holder.has.insert(name, command.edition);
            }
            (ModelCommand::Contexts { .. }, true) => {}
            (ModelCommand::Unload { .. }, _) => {
                holder.has.remove(&name);
            }
            (ModelCommand::Contexts { contexts, .. }, false) => {
                holder.refused.insert((command.edition, *contexts));
                self.command_failed(worker, &command, true);
            }
            (ModelCommand::Load(plan), false) => {
                holder.refused.insert((command.edition, contexts_of(plan)));
                self.command_failed(worker, &command, true);
            }
        }
        self.slot_mut(at).is_changing = false;
    }

    /// The change that a command belongs to has failed with it.
    fn command_failed(&mut self, worker: WorkerId, command: &Command, by_itself: bool) {
        self.coverage.hit(match by_itself {
            true => "command: could not be done",
            false => "command: its worker ended",
        });
        if by_itself {
            self.notes.due.push(Logged::CommandFailed(worker));
        }
        let models = self.models.get_mut(&worker.group).expect("it has models");
        if let Some(change) = &mut models.change {
            let is_load = matches!(command.what, ModelCommand::Load(_));
            let is_former = is_load && change.edition != command.edition;
            change.failed |= are_alike(&change.command, &command.what) && !is_former;
        }
    }

    /// A worker has ended, or was told to: it gets no more commands.
    pub(super) fn worker_ends(&mut self, worker: WorkerId) {
        let Some(models) = self.models.get_mut(&worker.group) else { return };
        models.started.remove(&worker);
        let Some(holder) = models.holders.remove(&worker) else { return };
        if let Some(command) = holder.command {
            self.command_failed(worker, &command, false);
        }
    }

    /// When a worker's command times out.
    pub(super) fn commands_wake_at(&self) -> Option<Timestamp> {
        let commands = self.holders().filter_map(|(_, holder)| holder.command.as_ref());
        commands.map(|command| command.sent.after(self.time_of(command))).min()
    }

    /// How long a command may take: a load with a longer time of its own has that.
    fn time_of(&self, command: &Command) -> Duration {
        self.config.command_timeout.max(command.what.load_timeout().unwrap_or_default())
    }

    /// Workers whose commands time out are killed.
    pub(super) fn commands_are_late(&mut self, now: Timestamp) {
        let due = |(&worker, holder): (&WorkerId, &Holder)| {
            let command = holder.command.as_ref()?;
            let after = self.time_of(command);
            Some((command.sent.after(after), worker, after))
        };
        let due = self.holders().filter_map(due);
        let mut late: Vec<_> = due.filter(|&(due, ..)| due <= now).collect();
        late.sort_unstable();
        for (_, worker, after) in late {
            if after > self.config.command_timeout {
                self.coverage.hit("kill: late with a load of a longer time");
            }
            let at = self.slot_of(worker).expect("a worker that has models is there");
            let is_busy = matches!(self.slot(at).state, State::Busy { .. });
            self.coverage.hit(match is_busy {
                true => "kill: late with a command, and busy",
                false => "kill: late with a command",
            });
            self.kill(now, at, Why::Command { after: Some(after) });
        }
    }

    /// A worker starts with exactly the models that are wanted.
    pub(super) fn starts_with(
        &mut self,
        worker: WorkerId,
        plans: &[ModelPlan],
    ) -> Result<(), Broken> {
        let rule = "a_worker_starts_with_the_wanted_models";
        let Some(models) = self.models.get(&worker.group) else {
            return holds(rule, plans.is_empty(), || format!("{worker}: {plans:?}"));
        };
        let own = plans
            .iter()
            .map(|plan| (plan.name.clone(), contexts_of(plan), plan.options.sha256.clone()));
        let wanted = models.at_starts.iter();
        let due =
            wanted.clone().map(|(name, model)| (name.clone(), model.contexts, model.file.clone()));
        holds(rule, own.eq(due), || format!("{worker}: {plans:?}, {:?}", models.at_starts))?;
        let editions = wanted.map(|(name, model)| (name.clone(), model.edition)).collect();
        let is_kept = |at| matches!(self.slot(at).state, State::Starting { .. });
        if self.slot_of(worker).is_some_and(is_kept) {
            let models = self.models.get_mut(&worker.group).expect("it was just found");
            models.started.insert(worker, editions);
        } else {
            self.coverage.hit("command: none for a worker that is started and stopped at once");
        }
        Ok(())
    }
}
