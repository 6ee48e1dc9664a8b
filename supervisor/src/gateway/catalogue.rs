//! Which models the pool has, as its workers said when they were asked last. Plain data: what is new is
//! laid over what was known.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use gridpool_protocol::ids::Role;
use gridpool_protocol::message::DeviceModel;
use gridpool_protocol::status::{QuarantineStatus, WorkerState, WorkerStatus};
use gridpool_protocol::tensor::model::{ModelInfo, ModelState};

use super::limits::UNLOADED_MAX;
use super::models::{OnnxModel, Record, State, is_taken};

/// See the module's text.
#[derive(Clone, Debug, Default)]
pub(super) struct Catalogue {
    models: BTreeMap<String, Arc<OnnxModel>>,
    /// Those that were unloaded, the first first.
    unloaded: VecDeque<String>,
    /// Why no worker says anything of models, if the pool should have some.
    silence: Option<String>,
}

/// What a pool says of its models.
#[derive(Clone, Debug)]
pub(super) struct Heard {
    /// Every worker.
    pub(super) workers: Vec<WorkerStatus>,
    /// The devices that are out of service.
    pub(super) quarantines: Vec<QuarantineStatus>,
    /// Asked for after the workers.
    pub(super) rows: Vec<DeviceModel>,
}

/// Whether a worker serves models now.
fn serves(worker: &WorkerStatus) -> bool {
    is_for_models(worker)
        && match worker.state {
            WorkerState::Busy | WorkerState::Ready | WorkerState::Standby => true,
            WorkerState::Backoff
            | WorkerState::Quarantined
            | WorkerState::Starting
            | WorkerState::Stopping
            | WorkerState::Stopped
            | WorkerState::Unkillable => false,
        }
}

fn is_for_models(worker: &WorkerStatus) -> bool {
    worker.role == Role::Infer.name()
}

fn is_of(out: &QuarantineStatus, worker: &WorkerStatus) -> bool {
    let device = worker.name.split('#').next();
    out.role == worker.role && device == Some(&out.device)
}

/// In the pool's own words, which say when to come back.
fn out_of_service(QuarantineStatus { device, why, tried_in_us, .. }: &QuarantineStatus) -> String {
    match tried_in_us {
        None => format!("{device} is out of service until `gridpool release {device}` ({why})"),
        Some(us) => {
            let seconds = us.div_ceil(1_000_000);
            format!("{device} is out of service and tried again in {seconds} s ({why})")
        }
    }
}

impl Heard {
    /// What the workers that serve say of their models.
    fn rows_of_those_that_serve(&self) -> impl Iterator<Item = &DeviceModel> {
        let is_up = |name: &str| self.workers.iter().any(|w| w.name == name && serves(w));
        self.rows.iter().filter(move |row| is_up(&row.worker))
    }

    /// Whether some worker serves and none says anything: it has no models, or has just ended.
    pub(super) fn is_doubtful(&self) -> bool {
        self.workers.iter().any(serves) && self.rows_of_those_that_serve().next().is_none()
    }

    /// Takes those for ended that do not serve any more.
    pub(super) fn correct(&mut self, later: &[WorkerStatus]) {
        let still = |name: &str| later.iter().any(|worker| worker.name == name && serves(worker));
        for worker in &mut self.workers {
            if serves(worker) && !still(&worker.name) {
                worker.state = WorkerState::Stopping;
            }
        }
    }

    /// Why no worker serves models; `None` if one does, or none is meant to.
    fn silence(&self) -> Option<String> {
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
    /// The model of that name, be it there or gone.
    pub(super) fn find(&self, name: &str) -> Option<&Arc<OnnxModel>> {
        self.models.get(name)
    }

    /// Every model, those that were unloaded lately included.
    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<OnnxModel>> {
        self.models.values()
    }

    /// Why no worker says anything of models, if the pool should have some.
    pub(super) fn silence(&self) -> Option<&str> {
        self.silence.as_deref()
    }

    /// What is known after this was heard.
    pub(super) fn after(&self, heard: &Heard) -> Self {
        let mut rows: BTreeMap<&str, Vec<&DeviceModel>> = BTreeMap::new();
        for row in heard.rows_of_those_that_serve() {
            rows.entry(&row.model.name).or_default().push(row);
        }
        let silence = heard.silence();
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
            let state = match (&before.state, &silence) {
                (State::Unloaded, _) => State::Unloaded,
                (_, Some(why)) => State::Away(why.clone()),
                (_, None) => State::Unloaded,
            };
            if state == State::Unloaded && before.state != State::Unloaded {
                unloaded.push_back(name.clone());
            }
            let gone = OnnxModel { workers: Vec::new(), state, ..(**before).clone() };
            gone_too.push((name.clone(), Arc::new(gone)));
        }
        models.extend(gone_too);
        while unloaded.len() > UNLOADED_MAX {
            unloaded.pop_front().and_then(|name| models.remove(&name));
        }
        Self { models, unloaded, silence }
    }
}

/// What all workers together say of a model.
fn model(rows: &[&DeviceModel], record: Arc<Record>) -> OnnxModel {
    let is_ready = |row: &&&DeviceModel| row.model.state == ModelState::Ready;
    let ready = || rows.iter().filter(is_ready);
    let info: &ModelInfo = &ready().next().unwrap_or(&rows[0]).model;
    let name = &info.name;
    let workers: Vec<_> = ready().map(|row| row.worker.clone()).collect();
    let state = if is_taken(name) {
        State::Unavailable(format!(
            "`{name}` is built into the gateway: name the model otherwise to ask it over HTTP"
        ))
    } else if workers.is_empty() {
        let why = rows.iter().map(|row| format!("{}: {}", row.worker, row.model.reason));
        State::Unavailable(why.collect::<Vec<_>>().join("; "))
    } else {
        State::Ready
    };
    OnnxModel { info: info.clone(), workers, state, record }
}

#[cfg(test)]
mod tests;
