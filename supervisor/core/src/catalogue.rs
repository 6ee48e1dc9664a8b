//! Which group has which model. Groups are independent: each has its own workers, its own queue and its own changes.
//! A model without a group of its owner's choice has one to itself, of its own name.

mod loads;
mod memory;
mod versions;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use gridpool_protocol::ids::{ClientId, DeviceId, Group, WorkerId};
use gridpool_protocol::message::{DeviceModel, ModelCommand};
use gridpool_protocol::tensor::model::ModelInfo;
use gridpool_protocol::tensor::options::ModelPlan;
use gridpool_protocol::tensor::version::{ModelRef, split};

use crate::Core;
use crate::config::MODELS_MAX;
use crate::event::Timestamp;
use crate::models::{Effect, Models, StepContext, check_new};
use crate::placing::DeviceMemory;
use crate::pool::Pool;
use versions::{OpenVersion, Task, in_order, new_name};

/// The most groups of models, those included whose last processes have not ended.
const GROUPS_MAX: usize = 2 * MODELS_MAX;

/// The models of a pool, by their groups.
#[derive(Debug, Default)]
pub(crate) struct Catalogue {
    groups: BTreeMap<Group, Models>,
    /// Those with a change, a pending command, or news since the last step: the others are not looked at.
    busy: BTreeSet<Group>,
    tasks: Vec<Task>,
    /// Models that must be loaded, and are not known to be yet.
    required: BTreeSet<String>,
    /// The memory of each device that the driver has told of.
    memory: BTreeMap<DeviceId, DeviceMemory>,
}

/// What became of a change that an operator asks for.
pub(crate) enum Begun {
    /// It was done at once: a sentence about it.
    Done(String),
    /// The reply comes later.
    Later,
}

/// Views, for status.
impl Core {
    /// The models that each worker reports; for each device that is out of service for a group of models, why it has
    /// none of them.
    #[must_use]
    pub fn models(&self) -> Vec<DeviceModel> {
        let all = self.catalogue.groups.iter();
        let out_of = |own| self.pool.quarantines().filter(move |out| out.group == own);
        let rows = all.flat_map(|(&group, models)| models.rows(out_of(group)));
        let row = |(worker, model): (String, ModelInfo)| {
            let serving = self.catalogue.full_name_of(split(&model.name).0);
            DeviceModel { worker, serves: serving == Some(&model.name), model }
        };
        rows.map(row).collect()
    }

    /// The models that workers should have, as operators have changed them.
    ///
    /// # Errors
    /// Which model is being changed, if one is.
    pub fn model_plans(&self) -> Result<Vec<ModelPlan>, String> {
        let mut plans = Vec::new();
        for models in self.catalogue.groups.values() {
            plans.extend(models.plans()?);
        }
        plans.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(plans)
    }

    /// The model of this full name that workers should have, or are being given.
    #[must_use]
    pub fn model_plan(&self, full_name: &str) -> Option<&ModelPlan> {
        let mut plans = self.catalogue.groups.values().flat_map(Models::plans_now);
        plans.find(|plan| plan.name == full_name)
    }

    /// The full name that a model gets which is loaded under this name; the name itself if none is left.
    #[must_use]
    pub fn name_of_new(&self, name: &str) -> String {
        let new = ModelRef::parse(name).ok().map(|asked| {
            let known = self.catalogue.versions(asked.name);
            new_name(asked, &known)
        });
        new.and_then(Result::ok).unwrap_or_else(|| name.to_owned())
    }

    /// Whether a new model of this full name needs one group more than there ever were.
    #[must_use]
    pub fn needs_new_group(&self, plan: &ModelPlan) -> bool {
        self.catalogue.needs_new_group(plan, &self.pool)
    }

    /// The name of a group: `grid`, or that of its models.
    #[must_use]
    pub fn group_name(&self, group: Group) -> &str {
        self.pool.group_name(group)
    }
}

impl Catalogue {
    /// Groups for these models, which their workers load when they start.
    pub(crate) fn new(plans: &[ModelPlan], pool: &mut Pool) -> Self {
        let mut of_group = BTreeMap::<&str, Vec<ModelPlan>>::new();
        for plan in plans {
            of_group.entry(plan.group()).or_default().push(plan.clone());
        }
        let group = |(name, plans): (&str, Vec<ModelPlan>)| {
            let placement = plans.first().and_then(|plan| plan.options.devices.clone());
            (pool.add_group(name, placement.as_ref()), Models::new(&plans))
        };
        let groups = of_group.into_iter().map(group).collect();
        Self { groups, ..Self::default() }
    }

    /// The models of a worker's group, to be told something; `None` for a worker that has no models.
    pub(crate) fn of(&mut self, worker: WorkerId) -> Option<&mut Models> {
        let own = self.groups.get_mut(&worker.group)?;
        self.busy.insert(worker.group);
        Some(own)
    }

    /// The driver says what memory a device has.
    pub(crate) fn on_memory(&mut self, device: DeviceId, memory: DeviceMemory) {
        self.memory.insert(device, memory);
    }

    /// The group and the full name of the version that runs requests for `asked`; the error says why the model accepts
    /// none. `settled` says whether no more workers are expected in a group.
    pub(crate) fn route(
        &self,
        asked: &Arc<str>,
        settled: impl Fn(Group) -> bool,
    ) -> Result<(Group, Arc<str>), String> {
        let serving = ModelRef::parse(asked).ok().and_then(|asked| self.serving(asked));
        let Some(OpenVersion { group, full_name, .. }) = serving else {
            return Err(match self.open_names().is_empty() {
                true => "this pool has no models: `gridpool model load NAME=PATH` gives it one"
                    .to_owned(),
                false => self.unknown(asked),
            });
        };
        match self.groups[&group].why_unavailable(full_name) {
            Some(why) if settled(group) => {
                Err(format!("the model `{full_name}` could not be loaded: {why}"))
            }
            Some(_) | None if *full_name == **asked => Ok((group, Arc::clone(asked))),
            Some(_) | None => Ok((group, full_name.into())),
        }
    }

    /// The full name of the version that would run a request for `asked`, if there is one.
    pub(crate) fn full_name_of<'a>(&'a self, asked: &str) -> Option<&'a str> {
        let open = self.serving(ModelRef::parse(asked).ok()?)?;
        Some(open.full_name)
    }

    /// Begins the change that an operator asks for, which must be done by `due` if it is a load; the error is the
    /// reply to a change that is refused.
    pub(crate) fn begin(
        &mut self,
        pool: &mut Pool,
        from: (ClientId, u64),
        command: ModelCommand,
        due: Timestamp,
    ) -> Result<Begun, String> {
        let typed = command.name().to_owned();
        let asked = ModelRef::parse(&typed).map_err(|error| error.to_string())?;
        if matches!(command, ModelCommand::Unload { .. })
            && let Some(full_name) = self.give_up_load(asked)
        {
            return Ok(Begun::Done(format!("the load of `{full_name}` is given up")));
        }
        self.check_unchanged(asked.name)?;
        let begun = match command {
            ModelCommand::Load(plan) => self.begin_load(pool, from, asked, plan, due),
            ModelCommand::Unload { .. } if asked.version.is_none() => {
                self.begin_unloads(pool, from, asked.name, due)
            }
            ModelCommand::Contexts { .. } | ModelCommand::Unload { .. } => {
                let unknown = || self.unknown(&typed);
                let open = self.serving(asked).ok_or_else(unknown)?;
                let (group, name) = (open.group, open.full_name.to_owned());
                let command = match command {
                    ModelCommand::Contexts { contexts, .. } => {
                        ModelCommand::Contexts { name, contexts }
                    }
                    ModelCommand::Load(_) | ModelCommand::Unload { .. } => {
                        ModelCommand::Unload { name }
                    }
                };
                self.begin_in(pool, group, from, command, due)
            }
        };
        begun.map(|()| Begun::Later)
    }

    /// Begins to load a version that is new to the pool.
    fn begin_load(
        &mut self,
        pool: &mut Pool,
        from: (ClientId, u64),
        asked: ModelRef<'_>,
        plan: ModelPlan,
        due: Timestamp,
    ) -> Result<(), String> {
        let known = self.versions(asked.name);
        let mut plan = ModelPlan { name: new_name(asked, &known)?, ..plan };
        let group = self.groups.iter().find(|(_, models)| models.knows(&plan.name));
        let group = group.map(|(&group, _)| group);
        let group = match group {
            Some(group) => group,
            None => {
                self.find_steps(&mut plan)?;
                check_new(&plan)?;
                self.group_for(&mut plan, pool)?
            }
        };
        let task = Task::load(from, &plan.name, plan.options.keep);
        self.begin_in(pool, group, from, ModelCommand::Load(plan), due)?;
        self.tasks.push(task);
        Ok(())
    }

    /// Begins to unload all versions of a model.
    fn begin_unloads(
        &mut self,
        pool: &mut Pool,
        from: (ClientId, u64),
        name: &str,
        due: Timestamp,
    ) -> Result<(), String> {
        let own = in_order(self.open_versions(name));
        match own.as_slice() {
            [] => return Err(self.unknown(name)),
            [(_, group, only)] => {
                let command = ModelCommand::Unload { name: only.clone() };
                return self.begin_in(pool, *group, from, command, due);
            }
            own => own.iter().try_for_each(|(_, group, _)| self.groups[group].check_settled())?,
        }
        let versions = own.iter().map(|&(version, ..)| version).collect();
        self.tasks.push(Task::unloads(from, name, versions));
        for (_, group, full_name) in own {
            self.unload(group, from, full_name);
        }
        Ok(())
    }

    /// Unloads a version once its group has no other change.
    fn unload(&mut self, group: Group, (client, request): (ClientId, u64), full_name: String) {
        let models = self.groups.get_mut(&group).expect("it has the version");
        models.unload(client, request, full_name);
        self.busy.insert(group);
    }

    /// Begins a change in a group.
    fn begin_in(
        &mut self,
        pool: &mut Pool,
        group: Group,
        (client, request): (ClientId, u64),
        command: ModelCommand,
        due: Timestamp,
    ) -> Result<(), String> {
        self.groups.entry(group).or_default().begin(client, request, command, due)?;
        self.busy.insert(group);
        pool.wake(group);
        Ok(())
    }

    /// Finds the files of those steps of a pipeline that name a model of this pool.
    fn find_steps(&self, plan: &mut ModelPlan) -> Result<(), String> {
        let Some(pipeline) = &mut plan.options.pipeline else { return Ok(()) };
        let names = self.open_names();
        let find = |name: &str| {
            let open = self.serving(ModelRef::parse(name).ok()?)?;
            self.groups[&open.group].file_of(open.full_name)
        };
        let found = pipeline.find_models(&names, find);
        found.map_err(|error| format!("pipeline `{}`: {error}", plan.name))
    }

    /// What there is instead of a model that there is not.
    fn unknown(&self, asked: &str) -> String {
        let (name, _) = split(asked);
        let mut versions: Vec<_> = self.open_versions(name).map(|open| open.version).collect();
        versions.sort_unstable();
        if !versions.is_empty() && name != asked {
            let versions: Vec<_> = versions.iter().map(u32::to_string).collect();
            let versions = versions.join(", ");
            return format!("there is no version of `{name}` as in `{asked}`; there is {versions}");
        }
        let names = self.open_names();
        let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        format!("there is no model `{asked}`; there is {names}")
    }

    /// The group for a new model: the one of that name, or a new one.
    fn group_for(&mut self, plan: &mut ModelPlan, pool: &mut Pool) -> Result<Group, String> {
        if self.groups.values().map(Models::len).sum::<usize>() >= MODELS_MAX {
            return Err(format!("a pool has at most {MODELS_MAX} models: unload one first"));
        }
        if let Some(why) = plan.options.devices.as_ref().and_then(|own| pool.why_not_placed(own)) {
            return Err(format!("the model `{}` cannot be placed: {why}", plan.name));
        }
        self.place(plan, pool)?;
        self.check_memory(plan, pool)?;
        if let Some(group) = self.group_of(plan, pool) {
            memory::check_devices(plan, group, pool)?;
            return self.groups[&group].check_joins(plan).map(|()| group);
        }
        if pool.vacant_group(plan.group()).is_none() && pool.model_groups() >= GROUPS_MAX {
            let why = format!("workers of {GROUPS_MAX} groups of models have not ended yet");
            return Err(format!("{why}: try again later"));
        }
        let group = pool.add_group(plan.group(), plan.options.devices.as_ref());
        self.groups.insert(group, Models::default());
        Ok(group)
    }

    /// The group that a new model joins: one of that name that has models, or whose last workers end on the devices
    /// that this one is to have. One that ends elsewhere keeps no model waiting.
    fn group_of(&self, plan: &ModelPlan, pool: &Pool) -> Option<Group> {
        let wanted = plan.options.devices.as_ref();
        let of_name = self.groups.iter().filter(|&(&group, models)| {
            **pool.group_name(group) == *plan.group()
                && !pool.is_vacant(group)
                && (models.len() > 0 || pool.placement(group) == wanted)
        });
        let (group, _) = of_name.max_by_key(|(_, models)| models.len())?;
        Some(*group)
    }

    /// Whether a new model needs one group more than there ever were.
    pub(crate) fn needs_new_group(&self, plan: &ModelPlan, pool: &Pool) -> bool {
        self.group_of(plan, pool).is_none() && pool.vacant_group(plan.group()).is_none()
    }

    /// The names of the models that accept requests.
    fn open_names(&self) -> Vec<&str> {
        let open = self.groups.values().flat_map(Models::open);
        let mut names: Vec<_> = open.map(|full_name| split(full_name).0).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// When the next pending command times out, or a load has taken too long.
    pub(crate) fn deadline(&self, timeout: Duration) -> Option<Timestamp> {
        self.busy().filter_map(|(_, models)| models.deadline(timeout)).min()
    }

    /// A worker whose command has timed out, and how long it had.
    pub(crate) fn late(&self, now: Timestamp, timeout: Duration) -> Option<(WorkerId, Duration)> {
        self.busy().find_map(|(_, models)| models.late(now, timeout))
    }

    /// The supervisor was not running for about `gap`: extends the timeouts of commands.
    pub(crate) fn excuse(&mut self, gap: Duration) {
        self.groups.values_mut().for_each(|models| models.excuse(gap));
    }

    /// The groups in which a step may find something to do.
    pub(crate) fn need_step(&mut self) -> Vec<Group> {
        let groups = &self.groups;
        self.busy.retain(|group| !groups[group].is_settled());
        self.busy().filter(|(_, models)| models.needs_step()).map(|(group, _)| group).collect()
    }

    fn busy(&self) -> impl Iterator<Item = (Group, &Models)> {
        self.busy.iter().map(|&group| (group, &self.groups[&group]))
    }

    /// All effects that are due now in a group.
    pub(crate) fn step(&mut self, group: Group, context: &StepContext<'_>) -> Vec<Effect> {
        self.groups.get_mut(&group).map(|models| models.step(context)).unwrap_or_default()
    }
}
