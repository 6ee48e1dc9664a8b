//! Loads as their operators follow them: how far each worker is, and when a load is given up: it takes too long, an
//! operator unloads the model that is still loaded, or the one who asked is gone.
//!
//! A load that is given up is a change that has failed. A worker that is still at it is not killed for that: if it has
//! no other model, it is stopped with its group; else its models run on, and it unloads the new one once it has it.

use gridpool_protocol::status::LoadStatus;

use super::*;

impl Models {
    /// The version of the model `name` that is being loaded, if the load may still succeed.
    pub(crate) fn loading(&self, name: &str) -> Option<&str> {
        let change = self.change.as_ref().filter(|change| change.loads() && change.is_live())?;
        let full_name = change.command.name();
        (split(full_name).0 == name).then_some(full_name)
    }

    /// The plans of those models.
    pub(crate) fn plans_now(&self) -> impl Iterator<Item = &ModelPlan> {
        let loaded = self.change.as_ref().and_then(|change| match &change.command {
            ModelCommand::Load(plan) => Some(plan),
            ModelCommand::Contexts { .. } | ModelCommand::Unload { .. } => None,
        });
        self.wanted.values().map(|wanted| &wanted.plan).chain(loaded)
    }

    /// The models that there should be, and the one that is being loaded.
    pub(crate) fn expected(&self) -> impl Iterator<Item = &str> {
        let loaded = self.change.as_ref().filter(|change| change.loads());
        self.wanted().chain(loaded.map(|change| change.command.name()))
    }

    /// Whether a load that may still succeed was asked for by this client.
    pub(crate) fn loads_for(&self, client: ClientId) -> bool {
        let is_its =
            |change: &Change| change.loads() && change.is_live() && change.client == client;
        self.change.as_ref().is_some_and(is_its)
    }

    /// Gives up the load.
    pub(crate) fn give_up(&mut self, why: &str) {
        if let Some(change) = self.change.as_mut().filter(|change| change.is_live()) {
            change.given_up = Some(why.to_owned());
            self.needs_step = true;
        }
    }

    /// Gives up a load that has taken too long.
    pub(super) fn give_up_late(&mut self, now: Timestamp) {
        let due = self.change.as_ref().and_then(|change| change.due);
        if due.is_none_or(|due| now < due) {
            return;
        }
        let at: Vec<_> =
            self.loads().iter().map(|load| format!("{}: {}", load.worker, load.phase)).collect();
        let at = if at.is_empty() { "no process has started".to_owned() } else { at.join(", ") };
        self.give_up(&format!(
            "that took longer than it may ({at}); `--deadline` gives it more time"
        ));
    }

    /// A worker says how far it is with a load.
    pub(crate) fn on_progress(&mut self, worker: WorkerId, model: &str, phase: LoadPhase) {
        if let Some(started) = self.started.get_mut(&worker) {
            started.progress = Some((model.to_owned(), phase));
        } else if let Some(holder) = self.holders.get_mut(&worker) {
            holder.phase = Some(phase);
        }
    }

    /// The loads of each worker: at its start, and because an operator asked.
    pub(crate) fn loads(&self) -> Vec<LoadStatus> {
        let row = |worker: &WorkerId, model: &str, phase| LoadStatus {
            worker: worker.to_string(),
            model: model.to_owned(),
            phase,
        };
        let asked = self.change.as_ref().filter(|change| change.loads());
        let asked = asked.map(|change| change.command.name());
        let starting = self.started.iter().filter_map(|(worker, started)| {
            let first = || started.editions.keys().next().map(String::as_str).or(asked);
            match &started.progress {
                Some((model, phase)) => Some(row(worker, model, *phase)),
                None => Some(row(worker, first()?, LoadPhase::Start)),
            }
        });
        let loading = self.holders.iter().filter_map(|(worker, holder)| {
            let pending = holder.pending.as_ref()?;
            matches!(pending.command, ModelCommand::Load(_)).then(|| {
                row(worker, pending.command.name(), holder.phase.unwrap_or(LoadPhase::Reading))
            })
        });
        starting.chain(loading).collect()
    }
}
