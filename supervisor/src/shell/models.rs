//! The rows about models, as many as fit one message; and which changes of models are refused before the core hears of
//! them.

use std::path::PathBuf;

use gridpool_protocol::codec;
use gridpool_protocol::limits::FRAME_BYTES_MAX;
use gridpool_protocol::message::{DeviceModel, ModelCommand, Refusal};
use gridpool_protocol::tensor::options::ModelPlan;
use gridpool_protocol::tensor::version::split;

use super::Shared;
use super::core::Core;
use crate::gateway::why_taken;

/// Most bytes of model rows in one message.
const MODEL_ROWS_BYTES_MAX: usize = FRAME_BYTES_MAX / 2;

impl Shared {
    /// The rows from one on, as many as go into one message, and how many there are in all.
    pub(super) fn models_from(&self, from: u32) -> (Vec<DeviceModel>, u32) {
        let all = self.lock().pool.models();
        let total = u32::try_from(all.len()).unwrap_or(u32::MAX);
        let mut bytes = 0;
        let fits = |row: &DeviceModel| {
            let is_first = bytes == 0;
            bytes += codec::encode(row).map_or(MODEL_ROWS_BYTES_MAX, |row| row.len());
            is_first || bytes <= MODEL_ROWS_BYTES_MAX
        };
        (all.into_iter().skip(from as usize).take_while(fits).collect(), total)
    }

    /// The file of the model of this full name that workers are to have, loaded or not.
    pub(super) fn model_file(&self, full_name: &str) -> Option<PathBuf> {
        self.lock().pool.model_plan(full_name).map(|plan| plan.path.clone())
    }
}

impl Core {
    /// Whether the models may change now. Sets descriptors aside for the workers of a model that needs a new group.
    pub(super) fn may_change(
        &mut self,
        shared: &Shared,
        command: &ModelCommand,
    ) -> Result<(), Refusal> {
        // A successor has been told of the models that there were when it began.
        if shared.upgrading.is_taken() {
            let why = "the pool is being upgraded: try again when that is done".to_owned();
            return Err(Refusal::Unable(why));
        }
        let ModelCommand::Load(plan) = command else { return Ok(()) };
        if let Some(why) = why_taken(split(&plan.name).0) {
            return Err(Refusal::Invalid(why));
        }
        let plan = ModelPlan { name: self.pool.name_of_new(&plan.name), ..plan.clone() };
        let groups = self.pool.groups().count() + 1;
        if !self.pool.needs_new_group(&plan) || groups <= self.groups + self.of_groups.len() {
            return Ok(());
        }
        let needed = shared.of_group;
        let taken = shared.descriptors.take(needed).ok_or_else(|| {
            Refusal::Unable(format!(
                "another group of models needs {needed} descriptors for its workers, and so many are not left: close \
                 connections, raise `ulimit -n`, or give the model the group of another (group = \"NAME\")"
            ))
        })?;
        self.of_groups.push(taken);
        Ok(())
    }
}
