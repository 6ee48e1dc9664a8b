//! What a status of gRPC says besides its code and its sentence: when to try again.

use bytes::Bytes;

/// The details of a status, as `google.rpc.Status`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct StatusDetails {
    /// The code.
    #[prost(int32, tag = "1")]
    pub code: i32,
    /// The sentence.
    #[prost(string, tag = "2")]
    pub message: String,
    /// The details.
    #[prost(message, repeated, tag = "3")]
    pub details: Vec<Any>,
}

/// A message with the name of its type.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Any {
    /// The type, as a URL.
    #[prost(string, tag = "1")]
    pub type_url: String,
    /// The message.
    #[prost(bytes = "bytes", tag = "2")]
    pub value: Bytes,
}

/// When to try again, as `google.rpc.RetryInfo`.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct RetryInfo {
    /// After this time.
    #[prost(message, optional, tag = "1")]
    pub retry_delay: Option<Duration>,
}

impl RetryInfo {
    /// The name of its type.
    pub const TYPE_URL: &'static str = "type.googleapis.com/google.rpc.RetryInfo";
}

/// A span of time, as `google.protobuf.Duration`.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Duration {
    /// Whole seconds.
    #[prost(int64, tag = "1")]
    pub seconds: i64,
    /// And nanoseconds.
    #[prost(int32, tag = "2")]
    pub nanos: i32,
}
