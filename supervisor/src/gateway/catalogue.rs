//! The models of the pool, as its workers last reported them. Plain data: each report updates what was
//! known before.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use gridpool_protocol::ids::Role;
use gridpool_protocol::message::DeviceModel;
use gridpool_protocol::status::{QuarantineStatus, WorkerState, WorkerStatus};
use gridpool_protocol::tensor::model::{ModelInfo, ModelState};

use super::limits::UNLOADED_MAX;
use super::models::{Availability, OnnxModel, Record, why_taken};

/// See the module's text.
#[derive(Clone, Debug, Default)]
pub(super) struct Catalogue {
    models: BTreeMap<String, Arc<OnnxModel>>,
    /// Names of unloaded models, the oldest first.
    unloaded: VecDeque<String>,
    /// Why no worker serves models, although the pool should have some.
    outage: Option<String>,
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
    let device = worker.name.split('#').next();
    out.role == worker.role && device == Some(&out.device)
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

    /// Whether some worker serves but no model is listed: the worker has no models, or it has just ended.
    pub(super) fn is_inconsistent(&self) -> bool {
        self.workers.iter().any(serves) && self.serving_rows().next().is_none()
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

    /// Why no worker serves models; `None` if one does, or if the pool has no workers for models.
    fn outage(&self) -> Option<String> {
        let mut workers = self.workers.iter().filter(|worker| is_for_models(worker)).peekable();
        if workers.peek().is_none() || workers.clone().any(serves) {
            return None;
        }
        let say = |worker: &WorkerStatus| {
            let state = format!("{:?}", worker.state).to_lowercase();
            let out = self.quarantines.iter().find(|out| is_of(out, worker));
            match (out, worker.last_fault.as_str()) {
                (Some(out), _) => out_of_service(out),
                (None, "") => format!("{} is {state}", worker.name),
                (None, fault) => format!("{} is {state} ({fault})", worker.name),
            }
        };
        let all: Vec<_> = workers.map(say).collect();
        Some(format!("no worker serves models now: {}", all.join("; ")))
    }
}

impl Catalogue {
    /// The model of that name, unloaded ones included.
    pub(super) fn find(&self, name: &str) -> Option<&Arc<OnnxModel>> {
        self.models.get(name)
    }

    /// Every model, recently unloaded ones included.
    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<OnnxModel>> {
        self.models.values()
    }

    /// Why no worker serves models, although the pool should have some.
    pub(super) fn outage(&self) -> Option<&str> {
        self.outage.as_deref()
    }

    /// The catalogue after this report.
    pub(super) fn updated(&self, report: &PoolReport) -> Self {
        let mut rows: BTreeMap<&str, Vec<&DeviceModel>> = BTreeMap::new();
        for row in report.serving_rows() {
            rows.entry(&row.model.name).or_default().push(row);
        }
        let outage = report.outage();
        let mut models = BTreeMap::new();
        for (&name, rows) in &rows {
            let before = self.models.get(name);
            let record = before.map_or_else(Arc::default, |before| Arc::clone(&before.record));
            models.insert(name.to_owned(), Arc::new(model(rows, record)));
        }
        let mut unloaded = self.unloaded.clone();
        unloaded.retain(|name| !rows.contains_key(name.as_str()));
        let mut gone_too = Vec::new();
        for (name, before) in
            self.models.iter().filter(|(name, _)| !rows.contains_key(name.as_str()))
        {
            let availability = match (&before.availability, &outage) {
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
        Self { models, unloaded, outage }
    }
}

/// One model, from the rows of all workers that have it.
fn model(rows: &[&DeviceModel], record: Arc<Record>) -> OnnxModel {
    let is_ready = |row: &&&DeviceModel| row.model.state == ModelState::Ready;
    let ready = || rows.iter().filter(is_ready);
    let info: &ModelInfo = &ready().next().unwrap_or(&rows[0]).model;
    let name = &info.name;
    let workers: Vec<_> = ready().map(|row| row.worker.clone()).collect();
    let availability = if let Some(why) = why_taken(name) {
        Availability::Unavailable(why)
    } else if workers.is_empty() {
        let why = rows.iter().map(|row| format!("{}: {}", row.worker, row.model.reason));
        Availability::Unavailable(why.collect::<Vec<_>>().join("; "))
    } else {
        Availability::Ready
    };
    OnnxModel { info: info.clone(), workers, availability, record }
}

#[cfg(test)]
mod tests;
