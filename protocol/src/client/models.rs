//! Which models the pool has, how they are changed, and what a client remembers of that to size the room of outputs.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::connection::Connection;
use super::{Client, ClientError};
use crate::message::{ClientMessage, DeviceModel, ModelOrder, ServerMessage};
use crate::tensor::Tensor;
use crate::tensor::model::{ModelInfo, ModelState};
use crate::tensor::options::ModelPlan;

/// A change of the models has ended by then: an unload waits for requests that were accepted, each of
/// which has a deadline of an hour at most.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(2 * 3_600);

/// Models that were asked for, each as it was on the connection of that number.
#[derive(Debug, Default)]
pub(super) struct KnownModels {
    inner: Mutex<BTreeMap<String, (u64, ModelInfo)>>,
}

impl KnownModels {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, (u64, ModelInfo)>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It gave no outputs: another may have come in its place, and is asked about anew.
    pub(super) fn forget(&self, model: &str) {
        self.lock().remove(model);
    }
}

impl Client {
    /// Which models there are: one row for each model of each device that serves models, those that
    /// could not be loaded included.
    ///
    /// # Errors
    /// What the connection says.
    pub fn models(&self) -> Result<Vec<DeviceModel>, ClientError> {
        self.connection.models()
    }

    /// Has the pool load a model, on all of its devices or on none, and says on which workers it is. A
    /// path must be absolute: it is read where the workers run. Waits until that is done, two hours at most.
    ///
    /// # Errors
    /// [`ClientError::Refused`] if a device could not load it, and why; then nothing has changed.
    pub fn load_model(&self, plan: ModelPlan) -> Result<String, ClientError> {
        self.change_models(&ModelOrder::Load(plan))
    }

    /// Has the pool forget a model. It takes no new request at once; those that it had are run first.
    ///
    /// # Errors
    /// [`ClientError::Refused`] if there is no such model, or models are being changed already.
    pub fn unload_model(&self, name: &str) -> Result<String, ClientError> {
        self.change_models(&ModelOrder::Unload { name: name.to_owned() })
    }

    /// Has the pool run so many requests of a model at once on each device, on all of them or on none
    /// more than before. No request is lost.
    ///
    /// # Errors
    /// [`ClientError::Refused`] if there is no such model, or no room for so many contexts.
    pub fn set_contexts(&self, name: &str, contexts: u32) -> Result<String, ClientError> {
        self.change_models(&ModelOrder::Contexts { name: name.to_owned(), contexts })
    }

    fn change_models(&self, order: &ModelOrder) -> Result<String, ClientError> {
        let message = |request| ClientMessage::Model { request, order: order.clone() };
        let reply = self.connection.request_within(CHANGE_TIMEOUT, &message)?;
        let message = reply.received.message;
        if let ServerMessage::Granted { what, .. } = message {
            Ok(what)
        } else {
            Err(ClientError::unexpected(&message))
        }
    }
}

impl Connection {
    fn models(&self) -> Result<Vec<DeviceModel>, ClientError> {
        let mut all: Vec<DeviceModel> = Vec::new();
        loop {
            let from = u32::try_from(all.len()).unwrap_or(u32::MAX);
            let (rows, total) = self.models_from(from)?;
            // Rows may have become fewer meanwhile.
            let is_last = rows.is_empty() || all.len() + rows.len() >= total as usize;
            all.extend(rows);
            if is_last {
                return Ok(all);
            }
        }
    }

    /// A part of the rows, and how many there are in all.
    fn models_from(&self, from: u32) -> Result<(Vec<DeviceModel>, u32), ClientError> {
        let reply = self.request(&|request| ClientMessage::Models { request, from })?;
        let message = reply.received.message;
        if let ServerMessage::Models { models, total, .. } = message {
            Ok((models, total))
        } else {
            Err(ClientError::unexpected(&message))
        }
    }

    /// How many bytes the outputs of a model take for such inputs, if that can be known before it has
    /// run. The pool is asked about a model once for every connection.
    pub(super) fn outputs_of(
        &self,
        model: &str,
        inputs: &[Tensor],
    ) -> Result<Option<u64>, ClientError> {
        let epoch = self.wire.epoch();
        if let Some((known, info)) = self.known.lock().get(model)
            && *known == epoch
        {
            return Ok(info.output_bytes(inputs));
        }
        let mut rows = self.models()?.into_iter().map(|row| row.model);
        let ready = |row: &ModelInfo| row.name == model && row.state == ModelState::Ready;
        let Some(info) = rows.find(ready) else { return Ok(None) };
        let bytes = info.output_bytes(inputs);
        self.known.lock().insert(model.to_owned(), (epoch, info));
        Ok(bytes)
    }
}
