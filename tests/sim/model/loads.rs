//! Loads that end before their workers are done with them, models that the pool must have, and what holds of all models
//! once the faults have stopped.

use std::collections::BTreeSet;

use gridpool_core::event::Timestamp;
use gridpool_protocol::ids::ClientId;
use gridpool_protocol::message::ModelCommand;
use gridpool_protocol::status::MissingModel;

use super::models::{Change, Models};
use super::versions::parts;
use super::{Broken, Model, holds};

/// The models that must be loaded.
#[derive(Debug, Default)]
pub(super) struct Required {
    /// Those that are not known to be loaded.
    names: BTreeSet<String>,
    /// The report that is due.
    due: Option<String>,
}

impl Change {
    /// Whether it is a load that may still succeed.
    fn may_load(&self) -> bool {
        matches!(self.command, ModelCommand::Load(_)) && !self.failed && !self.given_up
    }
}

impl Models {
    /// A load that has taken too long ends.
    pub(super) fn load_is_late(&mut self, now: Timestamp) -> bool {
        let late = |change: &&mut Change| change.due.is_some_and(|due| due <= now);
        let Some(change) = self.change.as_mut().filter(late).filter(|change| change.may_load())
        else {
            return false;
        };
        change.given_up = true;
        true
    }
}

impl Model {
    /// An operator unloads a model that is still loaded: that ends the load, and is done at once.
    pub(super) fn load_is_unloaded(&mut self, name: &str, number: Option<u64>) -> bool {
        let is_meant = |change: &&mut Change| {
            let (own, version) = parts(change.command.name());
            own == name && number.is_none_or(|number| number == version.unwrap_or(1))
        };
        let changes = self.models.values_mut().filter_map(|models| models.change.as_mut());
        let mut loads = changes.filter(|change| change.may_load()).filter(is_meant);
        let Some(change) = loads.next() else { return false };
        change.given_up = true;
        self.coverage.hit("load: ended by an unload");
        true
    }

    /// The loads of a client that is gone end.
    pub(super) fn loader_is_gone(&mut self, client: ClientId) {
        let changes = self.models.values_mut().filter_map(|models| models.change.as_mut());
        for change in changes.filter(|change| change.may_load() && change.from.0 == client) {
            change.given_up = true;
            self.coverage.hit("load: its client is gone");
        }
    }

    /// When the next load has taken too long.
    pub(super) fn loads_wake_at(&self) -> Option<Timestamp> {
        self.models.values().filter_map(|models| models.change.as_ref()?.due).min()
    }

    /// Every model must be loaded.
    pub(super) fn models_are_required(&mut self) {
        let all = self.models.values().flat_map(|models| &models.wanted);
        let open = all.filter(|(_, wanted)| !wanted.closes).map(|(name, _)| name.clone());
        self.required.names = open.collect();
    }

    /// The first required model that a device has failed to load, or that none can load, is reported; then no other.
    pub(super) fn missing_models_are_reported(&mut self) {
        if self.is_draining() {
            self.required.names.clear();
        }
        for name in self.required.names.clone() {
            let of = |models: &Models| models.wanted.get(&name).is_some_and(|own| !own.closes);
            let Some((&group, models)) = self.models.iter().find(|(_, models)| of(models)) else {
                self.coverage.hit("required: unloaded before it was loaded");
                self.required.names.remove(&name);
                continue;
            };
            let says = || models.holders.values().filter_map(|holder| holder.says.get(&name));
            let (is_ready, fails) =
                (says().any(|says| says.is_ready), says().any(|says| !says.is_ready));
            let comes = self.awaits_workers(group);
            match (fails, comes, is_ready) {
                (false, true, _) => {}
                (false, false, true) => {
                    self.coverage.hit("required: loaded");
                    self.required.names.remove(&name);
                }
                (true, ..) | (false, false, false) => {
                    self.coverage.hit(match fails {
                        true => "required: a device cannot load it",
                        false => "required: no device can have a worker",
                    });
                    self.required = Required { due: Some(name), ..Required::default() };
                    return;
                }
            }
        }
    }

    pub(super) fn reported_missing(&mut self, missing: &MissingModel) -> Result<(), Broken> {
        let rule = "the_first_required_model_that_cannot_be_loaded_is_reported_once";
        let due = self.required.due.take();
        holds(rule, due.as_ref() == Some(&missing.model), || format!("{missing:?}, due {due:?}"))
    }

    pub(super) fn every_missing_model_is_reported(&self) -> Result<(), Broken> {
        let rule = "a_required_model_that_cannot_be_loaded_is_reported_at_once";
        holds(rule, self.required.due.is_none(), || format!("{:?}", self.required.due))
    }

    /// Models that accept requests and can have a worker, if this is the hash of all files.
    pub(crate) fn open_models(&mut self, now: &str) -> Vec<String> {
        let wanted = self.models.values().flat_map(|models| {
            models.wanted.iter().map(move |(name, wanted)| (models, name, wanted))
        });
        let open = wanted.filter(|(.., wanted)| !wanted.closes);
        let (lost, open): (Vec<_>, Vec<_>) =
            open.partition(|(models, name, wanted)| models.has_lost_its_file(name, wanted, now));
        if !lost.is_empty() {
            self.coverage.hit("phase 2: no worker has the file that was loaded");
        }
        // A name alone would be its highest version.
        let typed =
            |name: &String| if name.contains(':') { name.clone() } else { format!("{name}:1") };
        open.into_iter().map(|(_, name, _)| typed(name)).collect()
    }

    /// Whether every active worker has the wanted models, or has failed to load them.
    pub(crate) fn every_worker_has_the_wanted_models_once_the_faults_stop(
        &mut self,
    ) -> Result<(), Broken> {
        let rule = "every_worker_has_the_wanted_models_once_the_faults_stop";
        holds(rule, self.swaps.is_empty(), || format!("{:?} have not ended", self.swaps))?;
        for models in self.models.values() {
            models.every_worker_has_the_wanted_models(rule)?;
        }
        if self.models.values().any(|own| !own.holders.is_empty() && !own.wanted.is_empty()) {
            self.coverage.hit("phase 2: workers have the wanted models");
        }
        Ok(())
    }
}

impl Models {
    fn every_worker_has_the_wanted_models(&self, rule: &'static str) -> Result<(), Broken> {
        let Self { wanted, holders, change, later, .. } = self;
        let is_settled = change.is_none() && later.is_empty();
        holds(rule, is_settled, || format!("{change:?}, {later:?} have not ended"))?;
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
        Ok(())
    }
}
