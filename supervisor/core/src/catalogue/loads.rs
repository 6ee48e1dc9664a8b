//! Loads that are given up, and models that a pool must have.

use gridpool_protocol::ids::{ClientId, WorkerId};
use gridpool_protocol::status::{LoadStatus, MissingModel};
use gridpool_protocol::tensor::version::{ModelRef, split};

use super::Catalogue;
use crate::Core;
use crate::action::Action;
use crate::event::Timestamp;
use crate::models::Models;

/// Why a load ends.
const UNLOADED: &str = "an unload of it has ended the load";
const GONE: &str = "the client that asked for it is gone";

/// Views, for status.
impl Core {
    /// The full names of the models that it should have, and of those that are being loaded.
    #[must_use]
    pub fn expected_models(&self) -> Vec<String> {
        self.catalogue.groups.values().flat_map(Models::expected).map(str::to_owned).collect()
    }

    /// A row for each worker that is loading a model.
    #[must_use]
    pub fn loads(&self) -> Vec<LoadStatus> {
        self.catalogue.groups.values().flat_map(Models::loads).collect()
    }

    /// A row for each model that no device serves, nor is about to. In a pool that ends none is missed.
    #[must_use]
    pub fn missing(&self, now: Timestamp) -> Vec<MissingModel> {
        if self.pool.is_draining() {
            return Vec::new();
        }
        let all = self.catalogue.groups.values().flat_map(Models::open);
        all.filter_map(|full_name| match self.state_of(now, full_name) {
            Load::Failed { why, elsewhere: false } => {
                Some(MissingModel { model: full_name.to_owned(), why })
            }
            Load::Done | Load::Failed { .. } | Load::UnderWay => None,
        })
        .collect()
    }
}

/// How the load of a model that the pool should have ended.
enum Load {
    /// All devices that can have it do.
    Done,
    /// A device could not load it, or none can have a worker.
    Failed {
        why: String,
        /// Another has it, or may have it soon.
        elsewhere: bool,
    },
    /// A device is about to load it, and none has failed.
    UnderWay,
}

/// Models that must be loaded.
impl Core {
    fn state_of(&self, now: Timestamp, full_name: &str) -> Load {
        let all = &self.catalogue.groups;
        let Some((&group, models)) = all.iter().find(|(_, models)| models.is_open(full_name))
        else {
            return Load::Done;
        };
        let (is_ready, refused) = models.reports_of(full_name);
        let may_come = self.pool.awaits_workers(group);
        match refused {
            Some(why) => Load::Failed { why, elsewhere: is_ready || may_come },
            None if may_come => Load::UnderWay,
            None if is_ready => Load::Done,
            None => Load::Failed { why: self.pool.why_no_device(now, group), elsewhere: false },
        }
    }

    /// Reports the first model that must be loaded and cannot be, on whatever device.
    pub(crate) fn report_missing(&mut self, now: Timestamp) {
        if self.catalogue.required.is_empty() {
            return;
        }
        if self.pool.is_draining() {
            return self.catalogue.required.clear();
        }
        let mut missing = None;
        let mut required = std::mem::take(&mut self.catalogue.required);
        required.retain(|full_name| match self.state_of(now, full_name) {
            Load::Done => false,
            Load::UnderWay => true,
            Load::Failed { why, .. } => {
                let model = full_name.clone();
                missing.get_or_insert(MissingModel { model, why });
                false
            }
        });
        match missing {
            Some(missing) => self.pool.act(Action::ModelMissing(missing)),
            None => self.catalogue.required = required,
        }
    }
}

impl Catalogue {
    /// Each model that there is must be loaded.
    pub(crate) fn require_all(&mut self) {
        let all = self.groups.values().flat_map(Models::open);
        self.required = all.map(str::to_owned).collect();
    }

    /// The models of a worker's group, to be told what needs no step.
    pub(crate) fn of_quietly(&mut self, worker: WorkerId) -> Option<&mut Models> {
        self.groups.get_mut(&worker.group)
    }

    /// Gives up the load of a version that an operator unloads, if one is being loaded. Returns its full name.
    pub(super) fn give_up_load(&mut self, asked: ModelRef<'_>) -> Option<String> {
        let is_meant =
            |full_name: &&str| asked.version.is_none_or(|version| split(full_name).1 == version);
        let loads =
            |models: &Models| models.loading(asked.name).filter(is_meant).map(str::to_owned);
        let (&group, full_name) =
            self.groups.iter().find_map(|(group, models)| Some((group, loads(models)?)))?;
        self.groups.get_mut(&group)?.give_up(UNLOADED);
        self.busy.insert(group);
        Some(full_name)
    }

    /// A client is gone: its loads are given up.
    pub(crate) fn on_client_gone(&mut self, client: ClientId) {
        let busy = self.busy.iter();
        let own = busy.filter(|group| self.groups[group].loads_for(client)).copied();
        for group in own.collect::<Vec<_>>() {
            self.groups.get_mut(&group).expect("it was just listed").give_up(GONE);
        }
    }
}
