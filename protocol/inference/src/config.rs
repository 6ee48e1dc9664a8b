//! A model's configuration in Triton's terms: the fields that say something of a pool's models.

use std::collections::BTreeMap;

use serde::de::Error;
use serde::{Deserialize, Deserializer};

/// The names of Triton's types of elements, in the order of their numbers, from 0.
const DATA_TYPES: [&str; 15] = [
    "TYPE_INVALID",
    "TYPE_BOOL",
    "TYPE_UINT8",
    "TYPE_UINT16",
    "TYPE_UINT32",
    "TYPE_UINT64",
    "TYPE_INT8",
    "TYPE_INT16",
    "TYPE_INT32",
    "TYPE_INT64",
    "TYPE_FP16",
    "TYPE_FP32",
    "TYPE_FP64",
    "TYPE_STRING",
    "TYPE_BF16",
];

/// The configuration of a model.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ModelConfigResponse {
    /// It.
    #[prost(message, optional, tag = "1")]
    pub config: Option<ModelConfig>,
}

/// See the module's text.
#[derive(Clone, PartialEq, Eq, prost::Message, Deserialize)]
#[serde(default)]
pub struct ModelConfig {
    /// The model's name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// What runs it.
    #[prost(string, tag = "2")]
    pub platform: String,
    /// Which versions are served.
    #[prost(message, optional, tag = "3")]
    pub version_policy: Option<VersionPolicy>,
    /// Most rows of a run; 0 for a model without rows.
    #[prost(int32, tag = "4")]
    pub max_batch_size: i32,
    /// What it takes.
    #[prost(message, repeated, tag = "5")]
    pub input: Vec<ModelInput>,
    /// What it gives.
    #[prost(message, repeated, tag = "6")]
    pub output: Vec<ModelOutput>,
    /// How many of its requests run at a time.
    #[prost(message, repeated, tag = "7")]
    pub instance_group: Vec<InstanceGroup>,
    /// That its requests share runs.
    #[prost(message, optional, tag = "11")]
    pub dynamic_batching: Option<DynamicBatching>,
    /// More about it.
    #[prost(btree_map = "string, message", tag = "14")]
    pub parameters: BTreeMap<String, ModelParameter>,
    /// The backend that runs it.
    #[prost(string, tag = "17")]
    pub backend: String,
}

/// Which versions of a model are served.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message, Deserialize)]
#[serde(default)]
pub struct VersionPolicy {
    /// The latest ones.
    #[prost(message, optional, tag = "1")]
    pub latest: Option<LatestVersions>,
}

/// How many of the latest versions are served.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message, Deserialize)]
#[serde(default)]
pub struct LatestVersions {
    /// So many.
    #[prost(uint32, tag = "1")]
    pub num_versions: u32,
}

/// An input of a model.
#[derive(Clone, PartialEq, Eq, prost::Message, Deserialize)]
#[serde(default)]
pub struct ModelInput {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// The number of the type of its elements.
    #[prost(int32, tag = "2")]
    #[serde(deserialize_with = "data_type")]
    pub data_type: i32,
    /// Its dimensions, without that of rows; -1 for any.
    #[prost(int64, repeated, tag = "4")]
    pub dims: Vec<i64>,
    /// The shape that the model has in the place of `dims`.
    #[prost(message, optional, tag = "5")]
    pub reshape: Option<Reshape>,
}

/// An output of a model.
#[derive(Clone, PartialEq, Eq, prost::Message, Deserialize)]
#[serde(default)]
pub struct ModelOutput {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// The number of the type of its elements.
    #[prost(int32, tag = "2")]
    #[serde(deserialize_with = "data_type")]
    pub data_type: i32,
    /// Its dimensions, without that of rows; -1 for any.
    #[prost(int64, repeated, tag = "3")]
    pub dims: Vec<i64>,
    /// The shape that the model has in the place of `dims`.
    #[prost(message, optional, tag = "5")]
    pub reshape: Option<Reshape>,
}

/// Another shape of a tensor.
#[derive(Clone, PartialEq, Eq, prost::Message, Deserialize)]
#[serde(default)]
pub struct Reshape {
    /// Its dimensions.
    #[prost(int64, repeated, tag = "1")]
    pub shape: Vec<i64>,
}

/// Instances of a model.
#[derive(Clone, PartialEq, Eq, prost::Message, Deserialize)]
#[serde(default)]
pub struct InstanceGroup {
    /// Their name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// How many there are on each device.
    #[prost(int32, tag = "2")]
    pub count: i32,
}

/// That requests share runs; there is nothing more to say of it.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message, Deserialize)]
#[serde(default)]
pub struct DynamicBatching {}

/// A text about a model.
#[derive(Clone, PartialEq, Eq, prost::Message, Deserialize)]
#[serde(default)]
pub struct ModelParameter {
    /// The text.
    #[prost(string, tag = "1")]
    pub string_value: String,
}

/// The number of a type that is written as its name.
fn data_type<'de, D: Deserializer<'de>>(from: D) -> Result<i32, D::Error> {
    let name = String::deserialize(from)?;
    let place = (0..).zip(DATA_TYPES).find(|(_, known)| *known == name);
    place.map(|(number, _)| number).ok_or_else(|| D::Error::custom(format!("no type `{name}`")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_type_has_the_number_that_triton_gives_it() {
        let input = |name: &str| {
            let input = serde_json::from_value(json!({ "data_type": name, "dims": [1] }));
            input.map(|input: ModelInput| input.data_type)
        };
        assert_eq!(input("TYPE_FP32").unwrap(), 11);
        assert_eq!(input("TYPE_BF16").unwrap(), 14);
        assert!(input("FP32").unwrap_err().to_string().contains("no type `FP32`"));
    }
}
