//! One step: the next command of each worker without one, and whether the change is complete.

use super::*;

impl Models {
    /// All effects that are due now.
    pub(crate) fn step(&mut self, context: &StepContext<'_>) -> Vec<Effect> {
        self.needs_step = false;
        self.give_up_late(context.now);
        self.wanted.retain(|name, wanted| !wanted.is_closing || (context.is_requested)(name));
        let mut effects = self.commands(context.now);
        if let Some((change, result)) = self.ended(context) {
            let Change { client, request, .. } = change;
            let reply = Effect::Reply { client, request, result };
            if let Some((client, request, name)) = self.unloads.pop_front() {
                self.change_to(client, request, ModelCommand::Unload { name });
            } else if self.wanted.is_empty() {
                // All workers end: they need no more commands.
                return vec![reply, Effect::Rest];
            }
            effects.push(reply);
            // A change that failed is rolled back.
            effects.extend(self.commands(context.now));
        }
        effects
    }

    /// The next command of every worker that has none.
    fn commands(&mut self, sent: Timestamp) -> Vec<Effect> {
        let idle = self.holders.iter().filter(|(_, holder)| holder.pending.is_none());
        let idle: Vec<_> = idle.map(|(&worker, _)| worker).collect();
        let mut effects = Vec::new();
        for worker in idle {
            let Some((command, edition)) = self.difference(&self.holders[&worker]) else {
                continue;
            };
            let number = self.next_number();
            let pending = PendingCommand { number, command: command.clone(), edition, sent };
            self.holders.get_mut(&worker).expect("it was just listed").pending = Some(pending);
            effects.push(Effect::Command { worker, number, command });
        }
        effects
    }

    /// The models that workers should have, with the pending change applied.
    fn goal(&self) -> BTreeMap<&str, (&ModelPlan, Edition, u32)> {
        let own = |wanted: &Wanted| count(&wanted.plan);
        let of = |(name, wanted)| {
            let (name, wanted): (&String, &Wanted) = (name, wanted);
            (name.as_str(), (&wanted.plan, wanted.edition, own(wanted)))
        };
        let mut goal: BTreeMap<_, _> = self.wanted.iter().map(of).collect();
        let Some(change) = self.change.as_ref().filter(|change| change.is_live()) else {
            return goal;
        };
        match &change.command {
            ModelCommand::Contexts { name, contexts } => {
                if let Some((_, _, wanted)) = goal.get_mut(name.as_str()) {
                    *wanted = *contexts;
                }
            }
            ModelCommand::Load(plan) => {
                goal.insert(&plan.name, (plan, change.edition, count(plan)));
            }
            ModelCommand::Unload { .. } => {}
        }
        goal
    }

    /// The command for the first difference between a worker's models and the goal.
    fn difference(&self, holder: &Holder) -> Option<(ModelCommand, Edition)> {
        let goal = self.goal();
        let is_goal =
            |name: &str, edition| goal.get(name).is_some_and(|&(_, own, _)| own == edition);
        if let Some((name, &edition)) =
            holder.has.iter().find(|&(name, &edition)| !is_goal(name, edition))
        {
            return Some((ModelCommand::Unload { name: name.clone() }, edition));
        }
        goal.into_iter().find_map(|(name, (plan, edition, contexts))| {
            if holder.refused.contains(&(edition, contexts)) {
                return None;
            }
            let command = if !holder.has.contains_key(name) {
                if self.is_tried_elsewhere(edition) {
                    return None;
                }
                let mut plan = plan.clone();
                if contexts > NOT_CHOSEN {
                    plan.options.contexts = contexts.into();
                }
                ModelCommand::Load(plan)
            } else if contexts > NOT_CHOSEN
                && holder.ready(name).is_some_and(|info| info.contexts != contexts)
            {
                ModelCommand::Contexts { name: name.to_owned(), contexts }
            } else {
                return None;
            };
            Some((command, edition))
        })
    }

    /// Whether another worker is the first to load a model that is new to the pool.
    fn is_tried_elsewhere(&self, edition: Edition) -> bool {
        let is_new = self.change.as_ref().is_some_and(|change| change.edition == edition);
        let tries = |holder: &Holder| {
            holder.pending.as_ref().is_some_and(|pending| {
                pending.edition == edition && matches!(pending.command, ModelCommand::Load(_))
            })
        };
        let has = |holder: &Holder| holder.has.values().any(|&own| own == edition);
        is_new && self.holders.values().any(tries) && !self.holders.values().any(has)
    }

    /// The change and its result, if it is complete.
    fn ended(&mut self, context: &StepContext<'_>) -> Option<(Change, Result<String, String>)> {
        let change = self.change.as_ref()?;
        let name = change.command.name();
        let is_at_it = |holder: &Holder| {
            holder.pending.as_ref().is_some_and(|pending| pending.command.name() == name)
        };
        let is_pending = self.holders.values().any(is_at_it);
        let is_done = |(&worker, holder): (&WorkerId, &Holder)| {
            let done = match &change.command {
                ModelCommand::Contexts { contexts, .. } => {
                    holder.ready(name).is_some_and(|info| info.contexts == *contexts)
                }
                ModelCommand::Load(_) => holder.has.get(name) == Some(&change.edition),
                ModelCommand::Unload { .. } => !holder.has.contains_key(name),
            };
            done.then_some(worker)
        };
        let done: Vec<_> = self.holders.iter().filter_map(is_done).collect();
        let result = match &change.command {
            ModelCommand::Unload { .. } => {
                // A worker may still be at the command before.
                let is_there = self.holders.values().any(|holder| holder.has.contains_key(name));
                if self.wanted.contains_key(name) || is_pending || is_there {
                    return None;
                }
                Ok(done_in_words(&change.command, &done))
            }
            ModelCommand::Contexts { .. } | ModelCommand::Load(_) => {
                let cannot =
                    |why: &str| Err(format!("`{name}` cannot be {}: {why}", verb(&change.command)));
                if !change.failed.is_empty() {
                    cannot(&each_once(&change.failed))
                } else if let Some(why) = &change.given_up {
                    cannot(why)
                } else if is_pending || context.awaits_workers {
                    return None;
                } else if done.is_empty() {
                    let why = self.why_unavailable(name).unwrap_or_else(context.why_no_worker);
                    cannot(&why)
                } else {
                    Ok(done_in_words(&change.command, &done))
                }
            }
        };
        let change = self.change.take()?;
        if result.is_ok() {
            self.adopt(&change);
        }
        Some((change, result))
    }

    /// Makes the change permanent: it is the goal from now on.
    fn adopt(&mut self, change: &Change) {
        match &change.command {
            ModelCommand::Contexts { name, contexts } => {
                if let Some(wanted) = self.wanted.get_mut(name) {
                    wanted.plan.options.contexts = (*contexts).into();
                }
            }
            ModelCommand::Load(plan) => {
                let edition = change.edition;
                let wanted = Wanted { plan: plan.clone(), edition, is_closing: false };
                self.wanted.insert(plan.name.clone(), wanted);
            }
            ModelCommand::Unload { .. } => {}
        }
    }
}

/// The reasons of all workers, each once, with its workers.
fn each_once(failed: &[(WorkerId, String)]) -> String {
    let mut by_reason: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (worker, why) in failed {
        by_reason.entry(why).or_default().push(worker.to_string());
    }
    let lines = by_reason.iter().map(|(why, workers)| format!("{}: {why}", workers.join(", ")));
    lines.collect::<Vec<_>>().join("; ")
}

fn done_in_words(command: &ModelCommand, done: &[WorkerId]) -> String {
    let names: Vec<_> = done.iter().map(WorkerId::to_string).collect();
    let on = if names.is_empty() { "no worker".to_owned() } else { names.join(", ") };
    match command {
        ModelCommand::Contexts { name, contexts: 1 } => format!("`{name}` has 1 context on {on}"),
        ModelCommand::Contexts { name, contexts } => {
            format!("`{name}` has {contexts} contexts on {on}")
        }
        ModelCommand::Load(ModelPlan { name, .. }) => format!("`{name}` is loaded on {on}"),
        ModelCommand::Unload { name } => format!("`{name}` is unloaded from {on}"),
    }
}
