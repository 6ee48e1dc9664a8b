//! Requests for inference, and their answers.

use std::collections::BTreeMap;

use bytes::Bytes;

/// The field of [`ModelInferResponse`] that has the data of outputs.
pub const RAW_OUTPUT_CONTENTS: u32 = 6;

/// A request for inference.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ModelInferRequest {
    /// The model.
    #[prost(string, tag = "1")]
    pub model_name: String,
    /// Its version; empty for any.
    #[prost(string, tag = "2")]
    pub model_version: String,
    /// The client's name for the request.
    #[prost(string, tag = "3")]
    pub id: String,
    /// Parameters of the request.
    #[prost(btree_map = "string, message", tag = "4")]
    pub parameters: BTreeMap<String, InferParameter>,
    /// What the model is to take.
    #[prost(message, repeated, tag = "5")]
    pub inputs: Vec<InferInputTensor>,
    /// What it is to give; empty for all.
    #[prost(message, repeated, tag = "6")]
    pub outputs: Vec<InferRequestedOutputTensor>,
    /// The data of all inputs, in their order; empty if the inputs have `contents`.
    #[prost(bytes = "bytes", repeated, tag = "7")]
    pub raw_input_contents: Vec<Bytes>,
}

/// An input.
#[derive(Clone, PartialEq, prost::Message)]
pub struct InferInputTensor {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// The type of its elements.
    #[prost(string, tag = "2")]
    pub datatype: String,
    /// Its dimensions.
    #[prost(int64, repeated, tag = "3")]
    pub shape: Vec<i64>,
    /// Parameters of the input.
    #[prost(btree_map = "string, message", tag = "4")]
    pub parameters: BTreeMap<String, InferParameter>,
    /// Its data, unless that is in `raw_input_contents`.
    #[prost(message, optional, tag = "5")]
    pub contents: Option<TensorContents>,
}

/// An output that is asked for.
#[derive(Clone, PartialEq, prost::Message)]
pub struct InferRequestedOutputTensor {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Parameters of the output.
    #[prost(btree_map = "string, message", tag = "2")]
    pub parameters: BTreeMap<String, InferParameter>,
}

/// The elements of a tensor, in the field that its type has.
#[derive(Clone, PartialEq, prost::Message)]
pub struct TensorContents {
    /// BOOL.
    #[prost(bool, repeated, tag = "1")]
    pub bool_contents: Vec<bool>,
    /// INT8, INT16 and INT32.
    #[prost(int32, repeated, tag = "2")]
    pub int_contents: Vec<i32>,
    /// INT64.
    #[prost(int64, repeated, tag = "3")]
    pub int64_contents: Vec<i64>,
    /// UINT8, UINT16 and UINT32.
    #[prost(uint32, repeated, tag = "4")]
    pub uint_contents: Vec<u32>,
    /// UINT64.
    #[prost(uint64, repeated, tag = "5")]
    pub uint64_contents: Vec<u64>,
    /// FP32.
    #[prost(float, repeated, tag = "6")]
    pub fp32_contents: Vec<f32>,
    /// FP64.
    #[prost(double, repeated, tag = "7")]
    pub fp64_contents: Vec<f64>,
    /// BYTES.
    #[prost(bytes = "bytes", repeated, tag = "8")]
    pub bytes_contents: Vec<Bytes>,
}

/// The value of a parameter.
#[derive(Clone, PartialEq, prost::Message)]
pub struct InferParameter {
    /// It.
    #[prost(oneof = "Choice", tags = "1, 2, 3, 4, 5")]
    pub choice: Option<Choice>,
}

/// A value of one of these types.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Choice {
    /// True or false.
    #[prost(bool, tag = "1")]
    Bool(bool),
    /// A whole number.
    #[prost(int64, tag = "2")]
    Int64(i64),
    /// A text.
    #[prost(string, tag = "3")]
    String(String),
    /// A number.
    #[prost(double, tag = "4")]
    Double(f64),
    /// A whole number that is not negative.
    #[prost(uint64, tag = "5")]
    Uint64(u64),
}

/// An answer.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ModelInferResponse {
    /// The model.
    #[prost(string, tag = "1")]
    pub model_name: String,
    /// Its version.
    #[prost(string, tag = "2")]
    pub model_version: String,
    /// The client's name for the request.
    #[prost(string, tag = "3")]
    pub id: String,
    /// Parameters of the answer.
    #[prost(btree_map = "string, message", tag = "4")]
    pub parameters: BTreeMap<String, InferParameter>,
    /// What the model gives.
    #[prost(message, repeated, tag = "5")]
    pub outputs: Vec<InferOutputTensor>,
    /// The data of all outputs, in their order.
    #[prost(bytes = "bytes", repeated, tag = "6")]
    pub raw_output_contents: Vec<Bytes>,
}

/// An output.
#[derive(Clone, PartialEq, prost::Message)]
pub struct InferOutputTensor {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// The type of its elements.
    #[prost(string, tag = "2")]
    pub datatype: String,
    /// Its dimensions.
    #[prost(int64, repeated, tag = "3")]
    pub shape: Vec<i64>,
    /// Parameters of the output.
    #[prost(btree_map = "string, message", tag = "4")]
    pub parameters: BTreeMap<String, InferParameter>,
    /// Its data, unless that is in `raw_output_contents`.
    #[prost(message, optional, tag = "5")]
    pub contents: Option<TensorContents>,
}

/// One answer of a stream.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ModelStreamInferResponse {
    /// Why the request failed; empty if it did not.
    #[prost(string, tag = "1")]
    pub error_message: String,
    /// The answer. If the request failed, only what tells it from others.
    #[prost(message, optional, tag = "2")]
    pub infer_response: Option<ModelInferResponse>,
}

impl From<Choice> for InferParameter {
    fn from(choice: Choice) -> Self {
        Self { choice: Some(choice) }
    }
}
