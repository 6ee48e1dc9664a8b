//! The messages of the Open Inference Protocol v2 over gRPC, Triton's extensions included: names, numbers and types of
//! the published service `inference.GRPCInferenceService`, as Rust types. No compiler of `.proto` files is needed.
//!
//! A message without fields is [`Empty`]. Messages that describe something are read from the documents that HTTP gives
//! too, by the names of their fields, so that both protocols say the same. May not know what a pool is.

mod config;
mod infer;
mod memory;
mod statistics;
mod status;

use serde::Deserialize;

/// Encodes and decodes messages.
use std::collections::BTreeMap;

pub use prost::Message;

pub use config::{
    DynamicBatching, InstanceGroup, LatestVersions, ModelConfig, ModelConfigResponse, ModelInput,
    ModelOutput, ModelParameter, Reshape, VersionPolicy,
};
pub use infer::{
    Choice, InferInputTensor, InferOutputTensor, InferParameter, InferRequestedOutputTensor,
    ModelInferRequest, ModelInferResponse, ModelStreamInferResponse, RAW_OUTPUT_CONTENTS,
    TensorContents,
};
pub use memory::{SharedMemoryRegion, SharedMemoryRequest, SharedMemoryStatusResponse};
pub use statistics::{
    InferStatistics, ModelStatistics, ModelStatisticsResponse, StatisticDuration,
};
pub use status::{Any, Duration, RetryInfo, StatusDetails};

/// The service. A method's path is `/SERVICE/METHOD`.
pub const SERVICE: &str = "inference.GRPCInferenceService";

/// A message whose fields are none, or are not read.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Empty {}

/// Whether the server lives.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct ServerLiveResponse {
    /// It does.
    #[prost(bool, tag = "1")]
    pub live: bool,
}

/// Whether a server or a model takes requests.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct ReadyResponse {
    /// It does.
    #[prost(bool, tag = "1")]
    pub ready: bool,
}

/// Names a model: of `ModelReady`, `ModelMetadata`, `ModelConfig` and `ModelStatistics`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ModelRequest {
    /// The name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// The version; empty for any.
    #[prost(string, tag = "2")]
    pub version: String,
}

/// What a server is.
#[derive(Clone, PartialEq, Eq, prost::Message, Deserialize)]
#[serde(default)]
pub struct ServerMetadataResponse {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Its version.
    #[prost(string, tag = "2")]
    pub version: String,
    /// What it serves beyond the protocol.
    #[prost(string, repeated, tag = "3")]
    pub extensions: Vec<String>,
}

/// What a model takes and gives.
#[derive(Clone, PartialEq, Eq, prost::Message, Deserialize)]
#[serde(default)]
pub struct ModelMetadataResponse {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Its versions.
    #[prost(string, repeated, tag = "2")]
    pub versions: Vec<String>,
    /// What runs it.
    #[prost(string, tag = "3")]
    pub platform: String,
    /// What it takes.
    #[prost(message, repeated, tag = "4")]
    pub inputs: Vec<TensorMetadata>,
    /// What it gives.
    #[prost(message, repeated, tag = "5")]
    pub outputs: Vec<TensorMetadata>,
}

/// One tensor of a model.
#[derive(Clone, PartialEq, Eq, prost::Message, Deserialize)]
#[serde(default)]
pub struct TensorMetadata {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// The type of its elements.
    #[prost(string, tag = "2")]
    pub datatype: String,
    /// Its dimensions; -1 for any.
    #[prost(int64, repeated, tag = "3")]
    pub shape: Vec<i64>,
}

/// Asks for the models of a repository.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct RepositoryIndexRequest {
    /// The repository.
    #[prost(string, tag = "1")]
    pub repository_name: String,
    /// Only those that are ready.
    #[prost(bool, tag = "2")]
    pub ready: bool,
}

/// The models of a repository.
#[derive(Clone, PartialEq, Eq, prost::Message, Deserialize)]
#[serde(default)]
pub struct RepositoryIndexResponse {
    /// One for each model.
    #[prost(message, repeated, tag = "1")]
    pub models: Vec<ModelIndex>,
}

/// A model of a repository.
#[derive(Clone, PartialEq, Eq, prost::Message, Deserialize)]
#[serde(default)]
pub struct ModelIndex {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Its version.
    #[prost(string, tag = "2")]
    pub version: String,
    /// `READY` or `UNAVAILABLE`.
    #[prost(string, tag = "3")]
    pub state: String,
    /// Why it is not ready.
    #[prost(string, tag = "4")]
    pub reason: String,
}

/// Names a model that is to be loaded or unloaded. Its other fields are not read.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct RepositoryModelRequest {
    /// The repository.
    #[prost(string, tag = "1")]
    pub repository_name: String,
    /// The model.
    #[prost(string, tag = "2")]
    pub model_name: String,
    /// Parameters.
    #[prost(btree_map = "string, message", tag = "3")]
    pub parameters: BTreeMap<String, RepositoryParameter>,
}

/// A parameter of such a request. Values of other types are not read.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct RepositoryParameter {
    /// A number.
    #[prost(int64, optional, tag = "2")]
    pub int64_param: Option<i64>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_description_is_read_from_the_document_that_http_gives() {
        let document = json!({
            "name": "m", "versions": ["1"], "platform": "p", "more": 1,
            "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 2]}], "outputs": [],
        });
        let model: ModelMetadataResponse = serde_json::from_value(document).unwrap();
        assert_eq!(model.inputs[0].shape, [-1, 2]);
        let bytes = model.encode_to_vec();
        assert_eq!(&bytes[..8], b"\x0a\x01m\x12\x011\x1a\x01", "fields 1, 2 and 3");
        assert_eq!(ModelMetadataResponse::decode(&*bytes).unwrap(), model);
    }
}
