//! What the shell knows of models: which there are, what the workers say of them, and the pool of the
//! workers that hold them. How they change while the pool serves is in `catalogue`.

mod catalogue;

use std::time::Duration;

use gridpool_protocol::codec;
use gridpool_protocol::ids::{ClientId, DeviceId, Role, WorkerId};
use gridpool_protocol::limits::FRAME_BYTES_MAX;
use gridpool_protocol::message::{DeviceModel, ModelOrder, Refusal, ServerMessage, ToWorker};
use gridpool_protocol::tensor::model::{ModelInfo, ModelState};
use gridpool_protocol::tensor::options::ModelPlan;

use super::Shared;
use super::core::{Core, Work};
use crate::pool::config::PoolConfig;
use crate::pool::event::Event;
use crate::pool::policy::PolicyTable;
use crate::pool::{Pool, Pools};
use catalogue::{Around, Effect};

pub(super) use catalogue::Catalogue;

/// What one message says of models at most, bytes.
const MODEL_ROWS_BYTES_MAX: usize = FRAME_BYTES_MAX / 2;
/// What is kept of the reason why a model could not be loaded, bytes: a list of all of its nodes may be
/// long.
const REASON_BYTES_MAX: usize = 4_096;

/// A worker that has not done what it was ordered by then is killed: longer than any load that is known
/// to end, and as long as a worker may take to be READY.
const ORDER_TIMEOUT: Duration = Duration::from_secs(600);

impl Shared {
    /// An inference worker tells of its models.
    pub(super) fn tells_of_models(&self, worker: WorkerId, mut models: Vec<ModelInfo>) {
        models.iter_mut().for_each(|model| shorten(&mut model.reason));
        let mut core = self.lock();
        let Some(before) = core.catalogue.reported(worker, models.clone()) else { return };
        let as_before = |model: &&ModelInfo| {
            before.iter().any(|other| (&other.name, other.state) == (&model.name, model.state))
        };
        for model in models.iter().filter(|model| !as_before(model)) {
            let (name, reason) = (&model.name, &model.reason);
            match model.state {
                ModelState::Ready => tracing::info!(%worker, name, "model is READY"),
                ModelState::Unavailable => {
                    let path = core.catalogue.path(name).map(|path| path.display().to_string());
                    tracing::error!(%worker, name, path, reason, "model could not be loaded");
                }
            }
        }
        let ready = models.iter().filter(|model| model.state == ModelState::Ready);
        let models = ready.map(|model| model.name.as_str().into()).collect();
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
        core.catalogue.ordered(worker, order, result)?;
        core.handle(self, self.timestamp(), Event::ModelsSettled { worker });
        Ok(())
    }

    /// What the inference workers say of their models, and of each device that is out of service for
    /// models, why.
    pub(super) fn models(&self) -> Vec<DeviceModel> {
        let core = self.lock();
        let row = |(worker, model): (WorkerId, &ModelInfo)| DeviceModel {
            worker: worker.to_string(),
            model: model.clone(),
        };
        let mut rows: Vec<_> = core.catalogue.rows().map(row).collect();
        for device in core.pool.devices() {
            let out = core.pool.quarantines(device).find(|&(role, _)| role == Role::Infer);
            let Some((_, quarantine)) = out else { continue };
            let row = |name: &str| DeviceModel {
                worker: device.to_string(),
                model: ModelInfo::unavailable(
                    name,
                    format!("{device} is out of service for models: {}", quarantine.why),
                ),
            };
            rows.extend(core.catalogue.wanted().map(row));
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

    /// An operator wants the models changed. What came of it he is told when it is known.
    pub(super) fn change_models(&self, client: ClientId, request: u64, what: ModelOrder) {
        let mut core = self.lock();
        let begun = match core.pool.is_draining() {
            true => Err(Refusal::Draining),
            false => core.catalogue.begin(client, request, what).map_err(Refusal::Invalid),
        };
        match begun {
            Ok(()) => {
                let event = match core.pool.has_models() {
                    true => Event::TimePassed,
                    false => Event::WakeRequested,
                };
                core.handle(self, self.timestamp(), event);
            }
            Err(refusal) => core.tell(client, &ServerMessage::Denied { request, refusal }),
        }
    }
}

impl Core {
    /// Whether somebody may ask for this model.
    pub(super) fn check_model(&self, name: &str) -> Result<(), String> {
        self.catalogue.check(name, !self.pool.awaits_model_workers())
    }

    /// Has workers change their models as far as that is due.
    pub(super) fn go_on_with_models(&mut self, shared: &Shared) {
        if !self.catalogue.is_stirred() {
            return;
        }
        let (pool, payloads) = (&self.pool, &self.payloads);
        let asks =
            |work: &Work, name: &str| matches!(work, Work::Infer(call, _) if call.model == name);
        let around = Around {
            now: self.now,
            is_asked: &|name| payloads.values().any(|held| asks(&held.work, name)),
            awaits: pool.awaits_model_workers(),
            why_nobody: &|| why_nobody(pool),
        };
        for effect in self.catalogue.step(&around) {
            match effect {
                Effect::Order { worker, number, what } => {
                    tracing::debug!(%worker, number, name = what.name(), "order about a model");
                    self.handle(shared, self.now, Event::ModelsOrdered { worker });
                    let message = ToWorker::Model { order: number, what };
                    self.with_link(worker, |link| link.order(&message));
                }
                Effect::Rest => self.handle(shared, self.now, Event::RestRequested),
                Effect::Tell { client, request, result } => {
                    let message = match result {
                        Ok(what) => {
                            tracing::info!("model {what}");
                            ServerMessage::Granted { request, what }
                        }
                        Err(why) => {
                            tracing::error!("model {why}");
                            let refusal = Refusal::Invalid(why);
                            ServerMessage::Denied { request, refusal }
                        }
                    };
                    self.tell(client, &message);
                }
            }
        }
    }

    /// Whether a worker has taken too long over what it was ordered.
    pub(super) fn is_late_with_order(&self, worker: WorkerId) -> bool {
        let sent = self.catalogue.ordered_at(worker);
        sent.is_some_and(|sent| self.now.since(sent) > ORDER_TIMEOUT)
    }
}

/// Why no device has a worker that could hold a model.
fn why_nobody(pool: &Pools) -> String {
    let of = |device| pool.quarantines(device).filter(|&(role, _)| role == Role::Infer);
    let why = |device| of(device).map(move |(_, out)| format!("{device}: {}", out.why));
    let whys: Vec<_> = pool.devices().flat_map(why).collect();
    if whys.is_empty() { "no worker is there".to_owned() } else { whys.join("; ") }
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
