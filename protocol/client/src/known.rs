//! The client's cache of model descriptions. It gives the size of a model's outputs.

use std::collections::BTreeMap;

use gridpool_ipc::mutex::Mutex;
use gridpool_protocol::tensor::Tensor;
use gridpool_protocol::tensor::model::ModelInfo;

/// The models that the client has queried, by what jobs call them, each with the epoch of its connection.
#[derive(Debug, Default)]
pub(super) struct KnownModels {
    inner: Mutex<BTreeMap<String, (u64, ModelInfo)>>,
}

impl KnownModels {
    /// The size of a model's outputs, bytes, if it is fixed; `None` if the client has not queried the model
    /// on the connection `epoch`.
    pub(super) fn output_bytes(
        &self,
        model: &str,
        epoch: u64,
        inputs: &[Tensor],
    ) -> Option<Option<u64>> {
        let known = self.inner.lock();
        let (_, info) = known.get(model).filter(|(known, _)| *known == epoch)?;
        Some(info.output_bytes(inputs))
    }

    pub(super) fn note(&self, model: &str, epoch: u64, info: ModelInfo) {
        self.inner.lock().insert(model.to_owned(), (epoch, info));
    }

    pub(super) fn forget(&self, model: &str) {
        self.inner.lock().remove(model);
    }
}
