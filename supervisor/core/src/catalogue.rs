//! Which group has which model. Groups are independent: each has its own workers, its own queue and its own changes.
//! A model without a group of its owner's choice has one to itself, of its own name.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use gridpool_protocol::ids::{ClientId, Group, WorkerId};
use gridpool_protocol::message::ModelCommand;
use gridpool_protocol::tensor::model::ModelInfo;
use gridpool_protocol::tensor::options::ModelPlan;

use crate::Core;
use crate::config::MODELS_MAX;
use crate::event::Timestamp;
use crate::models::{Effect, Models, StepContext, check_new};
use crate::pool::Pool;

/// The most groups of models, those included whose last processes have not ended.
const GROUPS_MAX: usize = 2 * MODELS_MAX;

/// The models of a pool, by their groups.
#[derive(Debug, Default)]
pub(crate) struct Catalogue {
    groups: BTreeMap<Group, Models>,
    /// Those with a change, a pending command, or news since the last step: the others are not looked at.
    busy: BTreeSet<Group>,
}

/// Views, for status.
impl Core {
    /// The models that each worker reports; for each device that is out of service for a group of models, why it has
    /// none of them.
    #[must_use]
    pub fn models(&self) -> Vec<(String, ModelInfo)> {
        let all = self.catalogue.groups.iter();
        let out_of = |own| self.pool.quarantines().filter(move |out| out.group == own);
        all.flat_map(|(&group, models)| models.rows(out_of(group))).collect()
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
        let group = |(name, plans): (&str, Vec<_>)| (pool.add_group(name), Models::new(&plans));
        Self { groups: of_group.into_iter().map(group).collect(), busy: BTreeSet::new() }
    }

    /// The models of a worker's group, to be told something; `None` for a worker that has no models.
    pub(crate) fn of(&mut self, worker: WorkerId) -> Option<&mut Models> {
        let own = self.groups.get_mut(&worker.group)?;
        self.busy.insert(worker.group);
        Some(own)
    }

    /// The group whose workers have a model, or should have it; the error says why the model accepts no requests.
    /// `settled` says whether no more workers are expected in a group.
    pub(crate) fn check(
        &self,
        name: &str,
        settled: impl Fn(Group) -> bool,
    ) -> Result<Group, String> {
        let Some((&group, models)) = self.groups.iter().find(|(_, models)| models.is_open(name))
        else {
            return Err(match self.names().as_str() {
                "none" => "this pool has no models: `gridpool model load NAME=PATH` gives it one"
                    .to_owned(),
                names => format!("there is no model `{name}`; there is {names}"),
            });
        };
        match models.why_unavailable(name) {
            Some(why) if settled(group) => {
                Err(format!("the model `{name}` could not be loaded: {why}"))
            }
            Some(_) | None => Ok(group),
        }
    }

    /// Begins the change that an operator asks for, in its group; the error is the reply to a change that is refused.
    pub(crate) fn begin(
        &mut self,
        pool: &mut Pool,
        client: ClientId,
        request: u64,
        command: ModelCommand,
    ) -> Result<(), String> {
        let known = self.groups.iter().find(|(_, models)| models.knows(command.name()));
        let known = known.map(|(&group, _)| group);
        let group = match (&command, known) {
            (_, Some(group)) => group,
            (ModelCommand::Load(plan), None) => {
                check_new(plan)?;
                self.group_for(plan, pool)?
            }
            (ModelCommand::Contexts { name, .. } | ModelCommand::Unload { name }, None) => {
                return Err(format!("there is no model `{name}`; there is {}", self.names()));
            }
        };
        self.groups.entry(group).or_default().begin(client, request, command)?;
        self.busy.insert(group);
        pool.wake(group);
        Ok(())
    }

    /// The group for a new model: the one of that name, or a new one.
    fn group_for(&mut self, plan: &ModelPlan, pool: &mut Pool) -> Result<Group, String> {
        if self.groups.values().map(Models::len).sum::<usize>() >= MODELS_MAX {
            return Err(format!("a pool has at most {MODELS_MAX} models: unload one first"));
        }
        let named = |group: &Group| **pool.group_name(*group) == *plan.group();
        if let Some(&group) = self.groups.keys().find(|group| named(group)) {
            return Ok(group);
        }
        if pool.model_groups() >= GROUPS_MAX {
            let why = format!("workers of {GROUPS_MAX} groups of models have not ended yet");
            return Err(format!("{why}: try again later"));
        }
        let group = pool.add_group(plan.group());
        self.groups.insert(group, Models::default());
        Ok(group)
    }

    /// The models that accept requests.
    fn names(&self) -> String {
        let mut names: Vec<_> = self.groups.values().flat_map(Models::open).collect();
        names.sort_unstable();
        if names.is_empty() { "none".to_owned() } else { names.join(", ") }
    }

    /// When the next pending command times out.
    pub(crate) fn deadline(&self, timeout: Duration) -> Option<Timestamp> {
        self.busy().filter_map(|(_, models)| models.deadline(timeout)).min()
    }

    /// A worker whose command has timed out.
    pub(crate) fn late(&self, now: Timestamp, timeout: Duration) -> Option<WorkerId> {
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
