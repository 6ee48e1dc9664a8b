//! Which changes of a group's models are refused, and with which words.

use super::*;

impl Models {
    pub(super) fn check_command(&self, command: &ModelCommand) -> Result<(), String> {
        match (command, self.wanted.get(command.name())) {
            (ModelCommand::Load(ModelPlan { name, .. }), Some(known)) => Err(format!(
                "there is a version {} of `{}` already, from {}: leave the number out to load the next one",
                split(name).1,
                split(name).0,
                known.plan.path.display()
            )),
            (ModelCommand::Contexts { contexts, .. }, _) => {
                check_contexts(*contexts).map_err(|error| error.to_string())
            }
            (ModelCommand::Load(_), None) | (ModelCommand::Unload { .. }, _) => Ok(()),
        }
    }

    /// Checks that a new model may join. One whose owner chose no group does not come among others by its name.
    pub(crate) fn check_joins(&self, plan: &ModelPlan) -> Result<(), String> {
        let is_chosen = |plan: &ModelPlan| plan.options.group.is_some();
        let mut own = self.wanted.values().map(|wanted| &wanted.plan);
        let group = plan.group();
        let chose = own.find(|own| is_chosen(own));
        match chose.filter(|_| !is_chosen(plan)) {
            None => Ok(()),
            Some(other) => Err(format!(
                "`{group}` is the group that the model `{}` has chosen: give this one another name, or \
                 group = \"{group}\" to share its workers",
                other.name
            )),
        }
    }

    /// The error says which model is being changed.
    pub(crate) fn check_settled(&self) -> Result<(), String> {
        let Some(Change { command, .. }) = &self.change else { return Ok(()) };
        let (name, verb) = (command.name(), verb(command));
        Err(format!("`{name}` is being {verb}; try again when that is done"))
    }

    /// The error: a version of the model `name` is being changed.
    pub(crate) fn check_unchanged(&self, name: &str) -> Result<(), String> {
        let is_its = |change: &Change| split(change.command.name()).0 == name;
        match self.change.as_ref().is_some_and(is_its) {
            true => self.check_settled(),
            false => Ok(()),
        }
    }
}

/// Checks a model that is new to the pool.
pub(crate) fn check_new(plan: &ModelPlan) -> Result<(), String> {
    check_full_name(&plan.name).map_err(|error| error.to_string())?;
    let what = if plan.options.pipeline.is_some() { "pipeline" } else { "model" };
    plan.check().map_err(|error| format!("{what} `{}`: {error}", plan.name))?;
    let steps = plan.options.pipeline.iter().flat_map(|pipeline| &pipeline.steps);
    let models = steps.filter_map(|step| step.model());
    let mut paths = models.map(|model| &model.path).chain([&plan.path]);
    match paths.find(|path| !path.is_absolute()) {
        None => Ok(()),
        Some(path) => Err(format!("`{}` is not an absolute path", path.display())),
    }
}
