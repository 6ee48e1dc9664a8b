//! What the shell knows of models: which there are, what the workers say of them, and the pool of the
//! workers that hold them. How they change while the pool serves is in `change`.

mod change;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gridpool_protocol::codec;
use gridpool_protocol::ids::{DeviceId, Role, WorkerId};
use gridpool_protocol::limits::FRAME_BYTES_MAX;
use gridpool_protocol::message::DeviceModel;
use gridpool_protocol::tensor::model::{ModelInfo, ModelState};
use gridpool_protocol::tensor::options::ModelPlan;

use super::Shared;
use super::core::Core;
use crate::pool::config::PoolConfig;
use crate::pool::event::Event;
use crate::pool::policy::PolicyTable;
use crate::pool::{Pool, Pools};

pub(super) use change::Changes;

/// What one message says of models at most, bytes.
const MODEL_ROWS_BYTES_MAX: usize = FRAME_BYTES_MAX / 2;
/// What is kept of the reason why a model could not be loaded, bytes: a list of all of its nodes may be
/// long.
const REASON_BYTES_MAX: usize = 4_096;

/// The models of a pool.
#[derive(Debug)]
pub(super) struct Catalogue {
    /// What every inference worker is to have, by name.
    plans: BTreeMap<String, ModelPlan>,
    /// What the inference workers said of their models.
    reports: BTreeMap<WorkerId, Vec<ModelInfo>>,
    changes: Changes,
}

impl Catalogue {
    pub(super) fn new(plans: &[ModelPlan]) -> Self {
        let plans = plans.iter().map(|plan| (plan.name.clone(), plan.clone())).collect();
        Self { plans, reports: BTreeMap::new(), changes: Changes::default() }
    }

    /// What a worker that starts now is to load.
    pub(super) fn plans(&self) -> Vec<ModelPlan> {
        self.plans.values().cloned().collect()
    }

    /// Why each worker that has said something of a model could not load it; nothing if one could, or
    /// none has said anything.
    fn why_unavailable(&self, name: &str) -> Option<String> {
        let named = |infos: &[ModelInfo]| infos.iter().find(|info| info.name == name).cloned();
        let mut said = self.reports.iter().filter_map(|(at, infos)| Some((at, named(infos)?)));
        let (at, first) = said.next()?;
        let is_ready = |info: &ModelInfo| info.state == ModelState::Ready;
        (!is_ready(&first) && !said.any(|(_, info)| is_ready(&info)))
            .then(|| format!("{at}: {}", first.reason))
    }
}

impl Shared {
    /// An inference worker tells of its models.
    pub(super) fn tells_of_models(&self, worker: WorkerId, mut models: Vec<ModelInfo>) {
        models.iter_mut().for_each(|model| shorten(&mut model.reason));
        let mut core = self.lock();
        let is_ready = |info: &&ModelInfo| info.state == ModelState::Ready;
        let before = core.catalogue.reports.insert(worker, models.clone());
        let before = before.unwrap_or_default();
        let as_before = |model: &&ModelInfo| {
            before.iter().any(|other| (&other.name, other.state) == (&model.name, model.state))
        };
        for model in models.iter().filter(|model| !as_before(model)) {
            let (name, reason) = (&model.name, &model.reason);
            match model.state {
                ModelState::Ready => tracing::info!(%worker, name, "model is READY"),
                ModelState::Unavailable => {
                    tracing::error!(%worker, name, reason, "model could not be loaded");
                }
            }
        }
        let models: BTreeSet<Arc<str>> =
            models.iter().filter(is_ready).map(|model| model.name.as_str().into()).collect();
        core.bring_up_to_date(worker);
        core.handle(self, self.timestamp(), Event::ModelsOffered { worker, models });
    }

    /// A worker has done what it was ordered, or says why not.
    pub(super) fn ordered(
        &self,
        worker: WorkerId,
        order: u64,
        result: Result<(), String>,
    ) -> Result<(), String> {
        let mut core = self.lock();
        core.ordered(worker, order, result)?;
        core.handle(self, self.timestamp(), Event::TimePassed);
        Ok(())
    }

    /// What the inference workers say of their models, and of each device that is out of service for
    /// models, why.
    pub(super) fn models(&self) -> Vec<DeviceModel> {
        let core = self.lock();
        let row = |worker: &WorkerId, model: &ModelInfo| DeviceModel {
            worker: worker.to_string(),
            model: model.clone(),
        };
        let reports = core.catalogue.reports.iter();
        let mut rows: Vec<_> = reports
            .flat_map(|(worker, models)| models.iter().map(move |model| row(worker, model)))
            .collect();
        for device in core.pool.devices() {
            let out = core.pool.quarantines(device).find(|&(role, _)| role == Role::Infer);
            let Some((_, quarantine)) = out else { continue };
            let row = |name: &String| DeviceModel {
                worker: device.to_string(),
                model: ModelInfo::unavailable(
                    name,
                    format!("{device} is out of service for models: {}", quarantine.why),
                ),
            };
            rows.extend(core.catalogue.plans.keys().map(row));
        }
        rows
    }

    /// The rows from one on, as many as go into one message, and how many there are in all.
    pub(super) fn models_from(&self, from: u32) -> (Vec<DeviceModel>, u32) {
        let all = self.models();
        let total = u32::try_from(all.len()).unwrap_or(u32::MAX);
        let mut bytes = 0;
        let fits = |row: &DeviceModel| {
            let is_first = bytes == 0;
            bytes += codec::encode(row).map_or(MODEL_ROWS_BYTES_MAX, |row| row.len());
            is_first || bytes <= MODEL_ROWS_BYTES_MAX
        };
        (all.into_iter().skip(from as usize).take_while(fits).collect(), total)
    }

    /// Whether somebody may ask for this model.
    pub(super) fn check_model(&self, name: &str) -> Result<(), String> {
        let core = self.lock();
        let plans = &core.catalogue.plans;
        if plans.contains_key(name) {
            return match core.catalogue.why_unavailable(name) {
                Some(why) if !core.pool.awaits_model_workers() => {
                    Err(format!("the model `{name}` could not be loaded: {why}"))
                }
                Some(_) | None => Ok(()),
            };
        }
        let known: Vec<_> = plans.keys().map(String::as_str).collect();
        Err(match known.is_empty() {
            true => {
                "this pool has no models: `gridpool model load NAME=PATH` gives it one".to_owned()
            }
            false => format!("there is no model `{name}`; there is {}", known.join(", ")),
        })
    }
}

impl Core {
    /// A worker is gone, and what it said of its models with it.
    pub(super) fn forget_models_of(&mut self, worker: WorkerId) {
        self.catalogue.reports.remove(&worker);
        self.ends_with_orders(worker);
    }
}

/// Cuts a sentence that is too long.
fn shorten(text: &mut String) {
    if text.len() > REASON_BYTES_MAX {
        text.truncate(text.floor_char_boundary(REASON_BYTES_MAX));
        text.push('…');
    }
}

/// The pools of a supervisor: of grids, and of models, which rests as long as there are none.
pub(super) fn pools(
    config: PoolConfig,
    devices: &[DeviceId],
    models: &[ModelPlan],
    policy: &PolicyTable,
) -> Pools {
    let window = config.infer_window as usize;
    let infer = Pool::new(config.for_models(), devices).windowed(window);
    let infer = infer.with_policy(policy.clone());
    let infer = if models.is_empty() { infer.resting() } else { infer };
    Pools::new(Pool::new(config, devices).with_policy(policy.clone()), infer)
}
