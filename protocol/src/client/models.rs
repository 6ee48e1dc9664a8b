//! Which models the pool has, and what a client remembers of that to size the room of outputs.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::connection::Connection;
use super::{Client, ClientError};
use crate::message::{ClientMessage, DeviceModel, ServerMessage};
use crate::tensor::Tensor;
use crate::tensor::model::{ModelInfo, ModelState};

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
}

impl Connection {
    fn models(&self) -> Result<Vec<DeviceModel>, ClientError> {
        let reply = self.request(&|request| ClientMessage::Models { request })?;
        let message = reply.received.message;
        if let ServerMessage::Models { models, .. } = message {
            Ok(models)
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
