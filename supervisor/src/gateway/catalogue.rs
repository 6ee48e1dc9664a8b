//! The models of the pool, as its workers last reported them. Plain data: each report updates what was
//! known before.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use gridpool_protocol::ids::Role;
use gridpool_protocol::message::DeviceModel;
use gridpool_protocol::status::{QuarantineStatus, WorkerState, WorkerStatus};
use gridpool_protocol::tensor::model::{ModelInfo, ModelState};
use gridpool_protocol::tensor::version::full_name;

use super::limits::UNLOADED_MAX;
use super::models::{Availability, OnnxModel, Record};
use crate::devices::device_of;

/// See the module's text.
#[derive(Clone, Debug, Default)]
pub(super) struct Catalogue {
    /// By their full names.
    models: BTreeMap<String, Arc<OnnxModel>>,
    /// Full names of unloaded models, the oldest first.
    unloaded: VecDeque<String>,
    /// The groups of models that no worker serves, and why.
    outages: BTreeMap<String, String>,
}

/// What a pool reports about its models.
#[derive(Clone, Debug)]
pub(super) struct PoolReport {
    /// Every worker.
    pub(super) workers: Vec<WorkerStatus>,
    /// The devices that are out of service.
    pub(super) quarantines: Vec<QuarantineStatus>,
    /// The models of each worker, queried after `workers`.
    pub(super) rows: Vec<DeviceModel>,
}

/// Whether a worker serves models now.
fn serves(worker: &WorkerStatus) -> bool {
    is_for_models(worker) && worker.state.serves()
}

fn is_for_models(worker: &WorkerStatus) -> bool {
    worker.role == Role::Infer.name()
}

fn is_of(out: &QuarantineStatus, worker: &WorkerStatus) -> bool {
    out.group == worker.group && out.device == device_of(&worker.name)
}

/// Says when the device comes back, in the words that the pool uses.
fn out_of_service(QuarantineStatus { device, why, tried_in_us, .. }: &QuarantineStatus) -> String {
    match tried_in_us {
        None => format!("{device} is out of service until `gridpool release {device}` ({why})"),
        Some(us) => {
            let seconds = us.div_ceil(1_000_000);
            format!("{device} is out of service and tried again in {seconds} s ({why})")
        }
    }
}

impl PoolReport {
    /// The models of workers that serve.
    fn serving_rows(&self) -> impl Iterator<Item = &DeviceModel> {
        let is_up = |name: &str| self.workers.iter().any(|w| w.name == name && serves(w));
        self.rows.iter().filter(move |row| is_up(&row.worker))
    }

    /// Whether a worker serves but none of its models is listed: it has no models, or it has just ended.
    pub(super) fn is_inconsistent(&self) -> bool {
        let is_listed =
            |worker: &WorkerStatus| self.rows.iter().any(|row| row.worker == worker.name);
        self.workers.iter().any(|worker| serves(worker) && !is_listed(worker))
    }

    /// The group of a worker.
    fn group_of(&self, worker: &str) -> &str {
        let own = self.workers.iter().find(|own| own.name == worker);
        own.map_or("", |own| &own.group)
    }

    /// Marks workers as stopping that no longer serve in the `later` report.
    pub(super) fn mark_ended(&mut self, later: &[WorkerStatus]) {
        let still = |name: &str| later.iter().any(|worker| worker.name == name && serves(worker));
        for worker in &mut self.workers {
            if serves(worker) && !still(&worker.name) {
                worker.state = WorkerState::Stopping;
            }
        }
    }

    /// The groups of models that no worker serves, and why.
    fn outages(&self) -> BTreeMap<String, String> {
        let mut groups: BTreeMap<&str, Vec<&WorkerStatus>> = BTreeMap::new();
        for worker in self.workers.iter().filter(|worker| is_for_models(worker)) {
            groups.entry(&worker.group).or_default().push(worker);
        }
        let say = |worker: &&WorkerStatus| {
            let state = format!("{:?}", worker.state).to_lowercase();
            let out = self.quarantines.iter().find(|out| is_of(out, worker));
            match (out, worker.last_fault.as_str()) {
                (Some(out), _) => out_of_service(out),
                (None, "") => format!("{} is {state}", worker.name),
                (None, fault) => format!("{} is {state} ({fault})", worker.name),
            }
        };
        let out = groups.into_iter().filter(|(_, workers)| !workers.iter().any(|own| serves(own)));
        out.map(|(group, workers)| {
            let all: Vec<_> = workers.iter().map(say).collect();
            let why = format!("no worker of the group `{group}` serves now: {}", all.join("; "));
            (group.to_owned(), why)
        })
        .collect()
    }
}

impl Catalogue {
    /// The version of a model, unloaded ones included: the one of this number, or the one that serves the name. If none
    /// does, the highest, best one that has workers or had some lately.
    pub(super) fn find(&self, name: &str, version: Option<u32>) -> Option<&Arc<OnnxModel>> {
        if let Some(version) = version {
            return self.models.get(&full_name(name, version));
        }
        let rank = |model: &&Arc<OnnxModel>| {
            let is_there = model.availability != Availability::Unloaded;
            (model.serves && is_there, is_there, model.version())
        };
        self.versions(name).max_by_key(rank)
    }

    /// All versions of a model, unloaded ones included.
    pub(super) fn versions<'a, 'n>(
        &'a self,
        name: &'n str,
    ) -> impl Iterator<Item = &'a Arc<OnnxModel>> + use<'a, 'n> {
        let near = self.models.range::<str, _>((Bound::Included(name), Bound::Unbounded));
        let near = near.take_while(move |(full_name, _)| full_name.starts_with(name));
        near.map(|(_, model)| model).filter(move |model| model.name() == name)
    }

    /// Every model, recently unloaded ones included.
    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<OnnxModel>> {
        self.models.values()
    }

    /// Why no worker serves some models, although the pool should have them.
    pub(super) fn outage(&self) -> Option<&str> {
        self.outages.values().next().map(String::as_str)
    }

    /// The catalogue after this report.
    pub(super) fn updated(&self, report: &PoolReport) -> Self {
        let mut rows: BTreeMap<&str, Vec<&DeviceModel>> = BTreeMap::new();
        for row in report.serving_rows() {
            rows.entry(&row.model.name).or_default().push(row);
        }
        let outages = report.outages();
        let mut models = BTreeMap::new();
        for (&name, rows) in &rows {
            let before = self.models.get(name);
            let record = before.map_or_else(Arc::default, |before| Arc::clone(&before.record));
            let group = report.group_of(&rows[0].worker);
            models.insert(name.to_owned(), Arc::new(model(rows, group, record)));
        }
        let mut unloaded = self.unloaded.clone();
        unloaded.retain(|name| !rows.contains_key(name.as_str()));
        let mut gone_too = Vec::new();
        for (name, before) in
            self.models.iter().filter(|(name, _)| !rows.contains_key(name.as_str()))
        {
            let availability = match (&before.availability, outages.get(&before.group)) {
                (Availability::Unloaded, _) => Availability::Unloaded,
                (_, Some(why)) => Availability::NoWorker(why.clone()),
                (_, None) => Availability::Unloaded,
            };
            if availability == Availability::Unloaded
                && before.availability != Availability::Unloaded
            {
                unloaded.push_back(name.clone());
            }
            let gone = OnnxModel { workers: Vec::new(), availability, ..(**before).clone() };
            gone_too.push((name.clone(), Arc::new(gone)));
        }
        models.extend(gone_too);
        while unloaded.len() > UNLOADED_MAX {
            unloaded.pop_front().and_then(|name| models.remove(&name));
        }
        Self { models, unloaded, outages }
    }
}

/// One model, from the rows of all workers that have it.
fn model(rows: &[&DeviceModel], group: &str, record: Arc<Record>) -> OnnxModel {
    let is_ready = |row: &&&DeviceModel| row.model.state == ModelState::Ready;
    let ready = || rows.iter().filter(is_ready);
    let info: &ModelInfo = &ready().next().unwrap_or(&rows[0]).model;
    let serves = rows.iter().any(|row| row.serves);
    let workers: Vec<_> = ready().map(|row| row.worker.clone()).collect();
    let availability = if workers.is_empty() {
        let why = rows.iter().map(|row| format!("{}: {}", row.worker, row.model.reason));
        Availability::Unavailable(why.collect::<Vec<_>>().join("; "))
    } else {
        Availability::Ready
    };
    let (info, group) = (info.clone(), group.to_owned());
    OnnxModel { info, serves, group, workers, availability, record }
}

#[cfg(test)]
mod tests;
