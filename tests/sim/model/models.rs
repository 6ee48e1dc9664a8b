//! The wanted models, and the change that an operator asks for. `commands` has how workers get them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use gridpool_core::config::MODELS_MAX;
use gridpool_core::event::{Timestamp, Work};
use gridpool_protocol::ids::{ClientId, Group, WorkerId};
use gridpool_protocol::message::ModelCommand;
use gridpool_protocol::tensor::options::ModelPlan;
use gridpool_protocol::tensor::placement::Placement;

use super::commands::Holder;
use super::devices::Device;
use super::fair::Fair;
use super::notes::Logged;
use super::quarantine::Service;
use super::slots::{Slot, State, Station};
use super::versions::{parts, written};
use super::{Broken, GroupModel, Model, Phase, holds};
use crate::swarm::contexts_of;

/// A model that workers should have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) contexts: u32,
    /// Whether versions before it stay when it takes over.
    pub(super) keep: bool,
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
    pub(super) from: (ClientId, u64),
    pub(super) command: ModelCommand,
    pub(super) edition: u64,
    /// A worker could not make it.
    pub(super) failed: bool,
    /// A load ends without its workers: it is late, unloaded, or nobody's.
    pub(super) given_up: bool,
    /// When a load is late.
    pub(super) due: Option<Timestamp>,
    /// The hash of the new model's file, once a worker has loaded it.
    pub(super) file: Option<String>,
}

#[derive(Debug, Default)]
pub(super) struct Models {
    pub(super) wanted: BTreeMap<String, Wanted>,
    /// The same when workers were started, before the models changed in the same event.
    pub(super) at_starts: BTreeMap<String, Wanted>,
    pub(super) change: Option<Change>,
    /// Unloads that wait for the change to end.
    pub(super) later: VecDeque<((ClientId, u64), String)>,
    /// The models given to each worker that has not reported yet.
    pub(super) started: BTreeMap<WorkerId, BTreeMap<String, u64>>,
    pub(super) holders: BTreeMap<WorkerId, Holder>,
    editions: u64,
    /// The name of the group.
    pub(super) name: String,
    /// The devices that it has workers on; all without it.
    pub(super) placement: Option<Placement>,
}

impl Models {
    pub(super) fn of_group(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    fn want(&mut self, plan: &ModelPlan) {
        self.editions += 1;
        let (contexts, keep, edition) = (contexts_of(plan), plan.options.keep, self.editions);
        let wanted = Wanted { contexts, keep, edition, closes: false, file: None };
        self.wanted.insert(plan.name.clone(), wanted);
    }

    /// A change begins.
    fn changes(&mut self, from: (ClientId, u64), command: ModelCommand, due: Option<Timestamp>) {
        self.editions += 1;
        let edition = self.editions;
        let (failed, given_up, file) = (false, false, None);
        self.change = Some(Change { from, command, edition, failed, given_up, due, file });
        self.holders.values_mut().for_each(Holder::forgive);
    }

    /// A version accepts no more requests, and is unloaded once nothing else is being changed.
    pub(super) fn unload(&mut self, from: (ClientId, u64), name: &str) {
        self.wanted.get_mut(name).expect("it is there").closes = true;
        match self.change.is_some() {
            true => self.later.push_back((from, name.to_owned())),
            false => self.changes(from, ModelCommand::Unload { name: name.to_owned() }, None),
        }
    }

    /// The change is permanent.
    fn adopt(&mut self, change: &Change) {
        let wanted = &mut self.wanted;
        match &change.command {
            ModelCommand::Contexts { name, contexts } => {
                if let Some(model) = wanted.get_mut(name) {
                    model.contexts = *contexts;
                }
            }
            ModelCommand::Load(plan) => {
                let (contexts, edition) = (contexts_of(plan), change.edition);
                let (keep, file) = (plan.options.keep, change.file.clone());
                let model = Wanted { contexts, keep, edition, closes: false, file };
                wanted.insert(plan.name.clone(), model);
            }
            ModelCommand::Unload { .. } => {}
        }
    }

    /// The models that there should be, and the one that is being loaded.
    pub(super) fn names(&self) -> impl Iterator<Item = String> {
        let change = self.change.iter().map(|change| &change.command);
        let loads = change.filter(|command| matches!(command, ModelCommand::Load(_)));
        self.wanted.keys().cloned().chain(loads.map(|command| command.name().to_owned()))
    }

    pub(super) fn count(&self) -> usize {
        self.names().count()
    }
}

/// Whether two commands are about the same thing.
pub(super) fn are_alike(a: &ModelCommand, b: &ModelCommand) -> bool {
    a.name() == b.name() && std::mem::discriminant(a) == std::mem::discriminant(b)
}

impl Model {
    pub(super) fn change_requested(
        &mut self,
        now: Timestamp,
        client: ClientId,
        request: u64,
        command: &ModelCommand,
    ) {
        let from = (client, request);
        let (name, number) = parts(command.name());
        let is_unload = matches!(command, ModelCommand::Unload { .. });
        if is_unload && !self.is_draining() && self.load_is_unloaded(&name, number) {
            self.due.told.insert(from, true);
            return;
        }
        let all: usize = self.models.values().map(Models::count).sum();
        let open = self.open_versions(&name);
        let is_changed = |group: &Group| self.models[group].change.is_some();
        let number = number.unwrap_or_else(|| match command {
            ModelCommand::Load(_) => self.next_version(&name),
            ModelCommand::Contexts { .. } | ModelCommand::Unload { .. } => {
                open.keys().max().copied().unwrap_or(1)
            }
        });
        let (full, own) = (written(&name, number), open.get(&number).copied());
        let placed = match command {
            ModelCommand::Load(plan) => self.placed(plan),
            ModelCommand::Contexts { .. } | ModelCommand::Unload { .. } => Ok(None),
        };
        let home = self.group_of_new(&full, placed.as_ref().ok().and_then(Option::as_ref));
        let takes_all = matches!(command, ModelCommand::Unload { name } if !name.contains(':'));
        let refused = if self.is_draining() {
            Some("change: of a pool that drains")
        } else if self.is_being_changed(&name) {
            Some("change: during another")
        } else {
            match (command, own) {
                (ModelCommand::Load(_), Some(_)) => Some("change: a version that is there already"),
                (ModelCommand::Load(_), None) if all >= MODELS_MAX => Some("change: too many"),
                (ModelCommand::Load(plan), None) if !self.has_devices(plan) => {
                    Some("change: on a device that the pool has not")
                }
                (ModelCommand::Load(_), None) if placed.is_err() => {
                    Some("change: on more devices than it may have")
                }
                (ModelCommand::Load(plan), None) if !self.has_room(plan, placed.as_ref()) => {
                    Some("change: no memory is planned for it")
                }
                (ModelCommand::Load(_), None) => {
                    home.filter(is_changed).map(|_| "change: beside another in its group")
                }
                (ModelCommand::Contexts { .. } | ModelCommand::Unload { .. }, None) => {
                    Some("change: no such model")
                }
                (ModelCommand::Unload { .. }, Some(_)) if takes_all => {
                    let why = match open.len() {
                        1 => "change: beside another in its group",
                        _ => "change: of all versions beside another in their groups",
                    };
                    open.values().any(is_changed).then_some(why)
                }
                (ModelCommand::Contexts { .. } | ModelCommand::Unload { .. }, Some(group))
                    if is_changed(&group) =>
                {
                    Some("change: beside another in its group")
                }
                (ModelCommand::Contexts { contexts: 0, .. }, Some(_)) => Some("change: no context"),
                (ModelCommand::Contexts { .. } | ModelCommand::Unload { .. }, Some(_)) => None,
            }
        };
        if let Some(why) = refused {
            self.coverage.hit(why);
            self.due.told.insert(from, false);
            return;
        }
        self.coverage.hit(match command {
            ModelCommand::Contexts { .. } => "change: contexts",
            ModelCommand::Load(_) if !open.is_empty() => "change: another version is loaded",
            ModelCommand::Load(_) => "change: a model is loaded",
            ModelCommand::Unload { .. } => "change: a model is being unloaded",
        });
        if self.models.values().any(|models| models.change.is_some()) {
            self.coverage.hit("change: beside another of another group");
        }
        if let ModelCommand::Load(plan) = command
            && plan.options.device_count.is_some()
        {
            self.coverage.hit("change: its devices are chosen");
        }
        if takes_all && open.len() > 1 {
            return self.all_are_unloaded(from, &name, &open);
        }
        let placed = placed.expect("it is placed");
        let group = own.or(home).unwrap_or_else(|| self.has_a_new_group(&full, placed.as_ref()));
        let command = match command {
            ModelCommand::Contexts { contexts, .. } => {
                ModelCommand::Contexts { name: full.clone(), contexts: *contexts }
            }
            ModelCommand::Load(plan) => {
                self.swap_begins(from, &name, (number, plan.options.keep));
                let mut plan = ModelPlan { name: full.clone(), ..plan.clone() };
                plan.options.devices = placed;
                ModelCommand::Load(plan)
            }
            ModelCommand::Unload { .. } => ModelCommand::Unload { name: full.clone() },
        };
        let models = self.models.get_mut(&group).expect("it was just found");
        if let ModelCommand::Unload { name } = &command {
            models.wanted.get_mut(name).expect("it is known").closes = true;
        }
        let loads = matches!(command, ModelCommand::Load(_));
        let time = command.load_timeout().unwrap_or(self.config.load_timeout);
        let due = loads.then(|| now.after(time));
        models.changes(from, command, due);
        self.group_wakes(group);
    }

    /// Whether a group of models has no work, no process, no memory and no job left.
    pub(super) fn is_vacant(&self, group: Group) -> bool {
        let is_left = |slot: &Slot| !matches!(slot.state, State::Absent { .. });
        self.has_nothing_to_do(group)
            && !self.is_ending(group)
            && self.jobs_of(group).next().is_none()
            && !self.slots_of(group).any(|(_, slot)| is_left(slot))
    }

    /// A group has this name and these devices from now on, and no models yet.
    pub(super) fn begins_group(&mut self, group: Group, name: &str, placement: Option<&Placement>) {
        let (fair, retries) = (Fair::default(), 0);
        let (limits, phase) = (self.config.of(group.role()), Phase::Resting);
        self.kills.retain(|(own, _), _| *own != group);
        let new = GroupModel { limits, phase, fair, retries, jobs_high: 0, bytes_high: 0 };
        let state = self.groups.entry(group).or_insert(new);
        state.phase = Phase::Resting;
        let editions = self.models.get(&group).map_or(0, |models| models.editions);
        let placement_of = placement.cloned();
        let models = Models { editions, placement: placement_of, ..Models::of_group(name) };
        self.models.insert(group, models);
        for &device in self.facts.keys() {
            let of_grid = self.devices[&Station { group: Group::Grid, device }].clone();
            let at = Station { group, device };
            let old = self.devices.get(&at).cloned();
            let is_used = placement.is_none_or(|placement| placement.has(device));
            let new = Device::beside(&of_grid, old, self.config.standbys, is_used);
            if !is_used {
                self.coverage.hit("group: new, and not on a device");
            }
            if new.service != Service::Open {
                self.coverage.hit("group: new on a device that is out of service");
            }
            self.devices.insert(at, new);
            self.notes.forget(at);
        }
    }

    /// Gives the pool its first models.
    pub(super) fn has_plans(&mut self, plans: &[ModelPlan]) {
        let names: BTreeSet<_> = plans.iter().map(|plan| plan.group().to_owned()).collect();
        for (at, name) in (0..).zip(&names) {
            let mut own = plans.iter().filter(|plan| plan.group() == name);
            let placement = own.next().and_then(|plan| plan.options.devices.clone());
            self.begins_group(Group::Models(at), name, placement.as_ref());
            self.group_mut(Group::Models(at)).phase = Phase::Serving;
            let models = self.models.get_mut(&Group::Models(at)).expect("it was just made");
            let own = plans.iter().filter(|plan| plan.group() == name);
            own.for_each(|plan| models.want(plan));
        }
    }

    /// The group whose workers run a job; the error says why the job is refused.
    pub(super) fn group_for(&self, work: &Work) -> Result<Group, &'static str> {
        let Some(asked) = work.model() else { return Ok(Group::Grid) };
        let Some((group, name)) = self.version_for(asked) else {
            return Err("refuse: no such model");
        };
        let holders = self.models[&group].holders.values();
        let said = holders.filter_map(|holder| holder.says.get(&name));
        let mut said = said.peekable();
        let all_failed = said.peek().is_some() && said.all(|says| !says.is_ready);
        match all_failed && !self.awaits_workers(group) {
            true => Err("refuse: a model that failed to load"),
            false => Ok(group),
        }
    }

    /// What is due for models by the end of an event.
    pub(super) fn models_change(&mut self, now: Timestamp) {
        for models in self.models.values_mut() {
            models.at_starts.clone_from(&models.wanted);
        }
        loop {
            let groups: Vec<_> = self.models.keys().copied().collect();
            let ended = groups.into_iter().filter(|&group| self.group_changes(now, group)).count();
            if ended == 0 {
                return;
            }
        }
    }

    /// What is due for the models of a group. Returns whether its change has ended.
    fn group_changes(&mut self, now: Timestamp, group: Group) -> bool {
        let models = self.models.get_mut(&group).expect("it was just listed");
        if models.load_is_late(now) {
            self.coverage.hit("load: late");
        }
        let asked: Vec<_> = self.models[&group].wanted.keys().cloned().collect();
        let is_asked = |name: &str| {
            let mut models = self.jobs.values().filter_map(|job| job.request.work.model());
            models.any(|model| **model == *name)
        };
        let unasked: Vec<_> = asked.into_iter().filter(|name| !is_asked(name)).collect();
        let wanted = &mut self.models.get_mut(&group).expect("it was just listed").wanted;
        wanted.retain(|name, own| !own.closes || !unasked.contains(name));
        self.commands_are_due(now, group);
        let Some(is_done) = self.change_ends(group) else { return false };
        let models = self.models.get_mut(&group).expect("it was just listed");
        let change = models.change.take().expect("it has just ended");
        self.coverage.hit(match (&change.command, is_done) {
            (ModelCommand::Unload { .. }, _) => "change: a model is unloaded",
            (_, true) => "change: done",
            (_, false) if change.failed => "change: failed by a worker",
            (_, false) if change.given_up => "change: given up",
            (_, false) => "change: failed without workers",
        });
        self.notes.due.push(Logged::Changed(is_done));
        if is_done {
            models.adopt(&change);
        }
        let next = models.later.pop_front();
        let is_last = next.is_none();
        if let Some((from, name)) = next {
            models.changes(from, ModelCommand::Unload { name }, None);
        }
        self.commands_are_due(now, group);
        if is_last && self.models[&group].wanted.is_empty() {
            self.coverage.hit("rest: no model is left");
            self.group_rests(now, group);
        }
        if let Some(is_done) = self.part_ends(change.from, is_done) {
            self.due.told.insert(change.from, is_done);
        }
        true
    }

    /// Whether the change has ended, and succeeded.
    fn change_ends(&self, group: Group) -> Option<bool> {
        let models = &self.models[&group];
        let change = models.change.as_ref()?;
        let name = change.command.name();
        let holders = || models.holders.values();
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
                let is_there = holders().any(|holder| holder.has.contains_key(name));
                let waits = models.wanted.contains_key(name) || is_under_way || is_there;
                (!waits).then_some(true)
            }
            ModelCommand::Contexts { .. } | ModelCommand::Load(_)
                if change.failed || change.given_up =>
            {
                Some(false)
            }
            ModelCommand::Contexts { .. } | ModelCommand::Load(_) => {
                let waits = is_under_way || self.awaits_workers(group);
                (!waits).then(|| holders().any(is_done))
            }
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
}

impl Device {
    /// That of a new group, perhaps in the place of an old one, on a device whose programs have this one.
    fn beside(of_grid: &Self, old: Option<Self>, standbys: u32, is_used: bool) -> Self {
        let generation = old.map_or(0, |old| old.generation);
        let is_out = matches!(of_grid.service, Service::Quarantined { .. });
        let mut new = Self { generation, ..Self::new(standbys) };
        if !is_used {
            new.slots.clear();
        } else if is_out && of_grid.by_fault {
            (new.service, new.probes, new.by_fault) = (of_grid.service, of_grid.probes, true);
        }
        new
    }
}
