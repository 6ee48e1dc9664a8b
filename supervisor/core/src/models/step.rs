//! One step: what each idle worker is to do next, and whether the change has come to its end.

use super::*;

impl Models {
    /// Whatever is to be done now.
    pub(crate) fn step(&mut self, around: &Around<'_>) -> Vec<Effect> {
        self.is_stirred = false;
        self.wanted.retain(|name, wanted| !wanted.is_closing || (around.is_asked)(name));
        let mut effects = self.commands(around.now);
        if let Some((change, result)) = self.ended(around) {
            let Change { client, request, .. } = change;
            let tell = Effect::Tell { client, request, result };
            if self.wanted.is_empty() {
                // All workers end: what one was to do next is not worth telling it.
                return vec![tell, Effect::Rest];
            }
            effects.push(tell);
            // What was done of it may have to be taken back.
            effects.extend(self.commands(around.now));
        }
        effects
    }

    /// The next command of every worker that has none.
    fn commands(&mut self, sent: Timestamp) -> Vec<Effect> {
        let idle = self.holders.iter().filter(|(_, holder)| holder.command.is_none());
        let idle: Vec<_> = idle.map(|(&worker, _)| worker).collect();
        let mut effects = Vec::new();
        for worker in idle {
            let Some((what, edition)) = self.difference(&self.holders[&worker]) else { continue };
            let number = self.next_number();
            let command = Command { number, what: what.clone(), edition, sent };
            self.holders.get_mut(&worker).expect("it was just listed").command = Some(command);
            effects.push(Effect::Command { worker, number, what });
        }
        effects
    }

    /// What workers are to have, with what the change would have them have.
    fn goal(&self) -> BTreeMap<&str, (&ModelPlan, Edition, u32)> {
        let own = |wanted: &Wanted| wanted.plan.options.contexts;
        let of = |(name, wanted)| {
            let (name, wanted): (&String, &Wanted) = (name, wanted);
            (name.as_str(), (&wanted.plan, wanted.edition, own(wanted)))
        };
        let mut goal: BTreeMap<_, _> = self.wanted.iter().map(of).collect();
        let Some(change) = self.change.as_ref().filter(|change| change.failed.is_empty()) else {
            return goal;
        };
        match &change.what {
            ModelCommand::Contexts { name, contexts } => {
                if let Some((_, _, wanted)) = goal.get_mut(name.as_str()) {
                    *wanted = *contexts;
                }
            }
            ModelCommand::Load(plan) => {
                goal.insert(&plan.name, (plan, change.edition, plan.options.contexts));
            }
            ModelCommand::Unload { .. } => {}
        }
        goal
    }

    /// The first thing in which a worker has not what it is to have.
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
            let what = if !holder.has.contains_key(name) {
                if self.is_tried_elsewhere(edition) {
                    return None;
                }
                let mut plan = plan.clone();
                plan.options.contexts = contexts;
                ModelCommand::Load(plan)
            } else if holder.ready(name).is_some_and(|info| info.contexts != contexts) {
                ModelCommand::Contexts { name: name.to_owned(), contexts }
            } else {
                return None;
            };
            Some((what, edition))
        })
    }

    /// Whether a model that is new to the pool is being loaded for the first time.
    fn is_tried_elsewhere(&self, edition: Edition) -> bool {
        let is_new = self.change.as_ref().is_some_and(|change| change.edition == edition);
        let tries = |holder: &Holder| {
            holder.command.as_ref().is_some_and(|command| {
                command.edition == edition && matches!(command.what, ModelCommand::Load(_))
            })
        };
        let has = |holder: &Holder| holder.has.values().any(|&own| own == edition);
        is_new && self.holders.values().any(tries) && !self.holders.values().any(has)
    }

    /// The change, if it has come to its end, and what came of it.
    fn ended(&mut self, around: &Around<'_>) -> Option<(Change, Result<String, String>)> {
        let change = self.change.as_ref()?;
        let name = change.what.name();
        let is_at_it = |holder: &Holder| {
            holder.command.as_ref().is_some_and(|command| command.what.name() == name)
        };
        let is_pending = self.holders.values().any(is_at_it);
        let is_done = |(&worker, holder): (&WorkerId, &Holder)| {
            let done = match &change.what {
                ModelCommand::Contexts { contexts, .. } => {
                    holder.ready(name).is_some_and(|info| info.contexts == *contexts)
                }
                ModelCommand::Load(_) => holder.has.get(name) == Some(&change.edition),
                ModelCommand::Unload { .. } => !holder.has.contains_key(name),
            };
            done.then_some(worker)
        };
        let done: Vec<_> = self.holders.iter().filter_map(is_done).collect();
        let result = match &change.what {
            ModelCommand::Unload { .. } => {
                if self.wanted.contains_key(name) || is_pending {
                    return None;
                }
                Ok(done_in_words(&change.what, &done))
            }
            ModelCommand::Contexts { .. } | ModelCommand::Load(_) => {
                let cannot =
                    |why: &str| Err(format!("`{name}` cannot be {}: {why}", verb(&change.what)));
                if !change.failed.is_empty() {
                    cannot(&told_once(&change.failed))
                } else if is_pending || around.awaits {
                    return None;
                } else if done.is_empty() {
                    let why = self.why_unavailable(name).unwrap_or_else(around.why_none);
                    cannot(&why)
                } else {
                    Ok(done_in_words(&change.what, &done))
                }
            }
        };
        let change = self.change.take()?;
        if result.is_ok() {
            self.adopt(&change);
        }
        Some((change, result))
    }

    /// The change holds from now on.
    fn adopt(&mut self, change: &Change) {
        match &change.what {
            ModelCommand::Contexts { name, contexts } => {
                if let Some(wanted) = self.wanted.get_mut(name) {
                    wanted.plan.options.contexts = *contexts;
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

/// What each worker says, once for all that say the same.
fn told_once(failed: &[(WorkerId, String)]) -> String {
    let mut by_reason: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (worker, why) in failed {
        by_reason.entry(why).or_default().push(worker.to_string());
    }
    let told = by_reason.iter().map(|(why, workers)| format!("{}: {why}", workers.join(", ")));
    told.collect::<Vec<_>>().join("; ")
}

fn done_in_words(what: &ModelCommand, done: &[WorkerId]) -> String {
    let names: Vec<_> = done.iter().map(WorkerId::to_string).collect();
    let on = if names.is_empty() { "no worker".to_owned() } else { names.join(", ") };
    match what {
        ModelCommand::Contexts { name, contexts: 1 } => format!("`{name}` has 1 context on {on}"),
        ModelCommand::Contexts { name, contexts } => {
            format!("`{name}` has {contexts} contexts on {on}")
        }
        ModelCommand::Load(ModelPlan { name, .. }) => format!("`{name}` is loaded on {on}"),
        ModelCommand::Unload { name } => format!("`{name}` is unloaded from {on}"),
    }
}
