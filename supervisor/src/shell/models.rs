//! What the shell knows of models: which there are, what the workers say of them, and the pool of the
//! workers that hold them.

use gridpool_protocol::ids::{DeviceId, WorkerId};
use gridpool_protocol::message::DeviceModel;
use gridpool_protocol::tensor::model::{ModelInfo, ModelState};

use super::Shared;
use super::spawn::WorkerCommand;
use crate::pool::config::PoolConfig;
use crate::pool::{Pool, Pools};

impl Shared {
    /// An inference worker tells of its models.
    pub(super) fn tells_of_models(&self, worker: WorkerId, models: Vec<ModelInfo>) {
        for model in &models {
            let (name, reason) = (&model.name, &model.reason);
            match model.state {
                ModelState::Ready => tracing::info!(%worker, name, "model is READY"),
                ModelState::Unavailable => {
                    tracing::error!(%worker, name, reason, "model could not be loaded");
                }
            }
        }
        self.lock().models.insert(worker, models);
    }

    /// What the inference workers say of their models.
    pub(super) fn models(&self) -> Vec<DeviceModel> {
        let core = self.lock();
        let row = |worker: &WorkerId, model: &ModelInfo| DeviceModel {
            worker: worker.to_string(),
            model: model.clone(),
        };
        let rows = core
            .models
            .iter()
            .flat_map(|(worker, models)| models.iter().map(move |model| row(worker, model)));
        rows.collect()
    }

    /// Whether somebody may ask for this model.
    pub(super) fn check_model(&self, name: &str) -> Result<(), String> {
        if self.models.contains(name) {
            return Ok(());
        }
        let known: Vec<_> = self.models.iter().map(String::as_str).collect();
        Err(match known.is_empty() {
            true => "this pool has no models: start it with `--model NAME=PATH`".to_owned(),
            false => format!("there is no model `{name}`; there is {}", known.join(", ")),
        })
    }
}

/// The pools of a supervisor: of grids, and of models if there are any.
pub(super) fn pools(config: PoolConfig, devices: &[DeviceId], command: &WorkerCommand) -> Pools {
    let infer = (!command.models.is_empty()).then(|| {
        let window = config.infer_window as usize;
        let pool = Pool::new(config.for_models(), devices).windowed(window);
        pool.with_policy(command.policy.clone())
    });
    Pools::new(Pool::new(config, devices).with_policy(command.policy.clone()), infer)
}
