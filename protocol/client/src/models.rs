//! Calls that list the pool's models and change them.

use std::time::Duration;

use gridpool_protocol::message::{
    ClientMessage, DeviceModel, ModelCommand, Reply, RepositoryCommand, ServerMessage,
};
use gridpool_protocol::tensor::Tensor;
use gridpool_protocol::tensor::model::ModelState;
use gridpool_protocol::tensor::options::ModelPlan;
use gridpool_protocol::tensor::version::{ModelRef, split};

use super::connection::Connection;
use super::operator::granted;
use super::{Client, ClientError};

/// The longest time for a change of models. An unload waits for accepted requests, whose deadlines are at
/// most an hour away.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(2 * 3_600);

impl Client {
    /// Lists the models: one row for each model and each device that serves models. Models that could not be
    /// loaded are included.
    ///
    /// # Errors
    /// A [`ClientError`] of the connection.
    pub fn models(&self) -> Result<Vec<DeviceModel>, ClientError> {
        self.connection.models()
    }

    /// Loads a model on all devices of the pool, and returns a sentence that names the workers. If the name serves
    /// already, this is its next version: it takes over, and those before it are unloaded unless the plan keeps them.
    /// The path must be absolute, since the workers read the file. Waits until the model is loaded, at most two hours.
    ///
    /// # Errors
    /// [`ClientError::Refused`] if a device could not load the model; then no device keeps it.
    pub fn load_model(&self, plan: ModelPlan) -> Result<String, ClientError> {
        self.change_models(&ModelCommand::Load(plan))
    }

    /// Unloads a model: `mlp` with all its versions, `mlp:2` that one. The pool refuses new requests at once, and runs
    /// the accepted ones first.
    ///
    /// # Errors
    /// [`ClientError::Refused`] if there is no such model, or models are being changed already.
    pub fn unload_model(&self, name: &str) -> Result<String, ClientError> {
        self.change_models(&ModelCommand::Unload { name: name.to_owned() })
    }

    /// Sets the number of contexts of a model: the requests that each device runs at the same time. The
    /// change takes effect on all devices or on none. No request is lost.
    ///
    /// # Errors
    /// [`ClientError::Refused`] if there is no such model, or a device has too little memory.
    pub fn set_contexts(&self, name: &str, contexts: u32) -> Result<String, ClientError> {
        self.change_models(&ModelCommand::Contexts { name: name.to_owned(), contexts })
    }

    /// Loads or unloads a model of the pool's model repository, if the pool follows one by request.
    ///
    /// # Errors
    /// [`ClientError::Refused`] if it does not, or the model cannot be loaded.
    pub fn change_repository(&self, command: &RepositoryCommand) -> Result<String, ClientError> {
        let message = |request| ClientMessage::Repository { request, command: command.clone() };
        granted(&self.connection.request_within(CHANGE_TIMEOUT, &message)?)
    }

    /// Ends the connection: whoever waits for the pool gets an error, and the pool gives up what waits for this
    /// client, such as a load. A client that reconnects does so with its next call.
    pub fn hang_up(&self) {
        self.connection.wire.hang_up();
    }

    fn change_models(&self, command: &ModelCommand) -> Result<String, ClientError> {
        let message = |request| ClientMessage::Model { request, command: command.clone() };
        granted(&self.connection.request_within(CHANGE_TIMEOUT, &message)?)
    }
}

impl Connection {
    fn models(&self) -> Result<Vec<DeviceModel>, ClientError> {
        let mut all: Vec<DeviceModel> = Vec::new();
        loop {
            let from = u32::try_from(all.len()).unwrap_or(u32::MAX);
            let (rows, total) = self.models_from(from)?;
            // A model may have been unloaded between two messages.
            let is_last = rows.is_empty() || all.len() + rows.len() >= total as usize;
            all.extend(rows);
            if is_last {
                return Ok(all);
            }
        }
    }

    /// Some of the rows, and the number of all rows.
    fn models_from(&self, from: u32) -> Result<(Vec<DeviceModel>, u32), ClientError> {
        let message = self.request(&|request| ClientMessage::Models { request, from })?;
        if let ServerMessage::Reply { reply: Reply::Models { models, total }, .. } = message {
            Ok((models, total))
        } else {
            Err(ClientError::unexpected(&message))
        }
    }

    /// The size of a model's packed outputs for these inputs, bytes; `None` if it is known only after the
    /// run. Asks the pool once for each model and connection.
    pub(super) fn outputs_of(
        &self,
        model: &str,
        inputs: &[Tensor],
    ) -> Result<Option<u64>, ClientError> {
        let epoch = self.wire.epoch();
        if let Some(bytes) = self.known.output_bytes(model, epoch, inputs) {
            return Ok(bytes);
        }
        let Ok(asked) = ModelRef::parse(model) else { return Ok(None) };
        let is_asked = |row: &DeviceModel| {
            let (name, version) = split(&row.model.name);
            name == asked.name && asked.version.map_or(row.serves, |own| own == version)
        };
        let ready = |row: &DeviceModel| is_asked(row) && row.model.state == ModelState::Ready;
        let Some(row) = self.models()?.into_iter().find(ready) else { return Ok(None) };
        let bytes = row.model.output_bytes(inputs);
        self.known.note(model, epoch, row.model);
        Ok(bytes)
    }
}
