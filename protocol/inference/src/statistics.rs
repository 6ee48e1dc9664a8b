//! Statistics of models.

use serde::Deserialize;

/// The statistics of some models.
#[derive(Clone, PartialEq, Eq, prost::Message, Deserialize)]
#[serde(default)]
pub struct ModelStatisticsResponse {
    /// One for each model.
    #[prost(message, repeated, tag = "1")]
    pub model_stats: Vec<ModelStatistics>,
}

/// The statistics of a model.
#[derive(Clone, PartialEq, Eq, prost::Message, Deserialize)]
#[serde(default)]
pub struct ModelStatistics {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Its version.
    #[prost(string, tag = "2")]
    pub version: String,
    /// Items or rows of the requests that got a result.
    #[prost(uint64, tag = "4")]
    pub inference_count: u64,
    /// Runs.
    #[prost(uint64, tag = "5")]
    pub execution_count: u64,
    /// Where the time went.
    #[prost(message, optional, tag = "6")]
    pub inference_stats: Option<InferStatistics>,
}

/// Numbers of requests and their times.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message, Deserialize)]
#[serde(default)]
pub struct InferStatistics {
    /// Those that got a result.
    #[prost(message, optional, tag = "1")]
    pub success: Option<StatisticDuration>,
    /// Those that did not.
    #[prost(message, optional, tag = "2")]
    pub fail: Option<StatisticDuration>,
    /// Waiting in the pool.
    #[prost(message, optional, tag = "3")]
    pub queue: Option<StatisticDuration>,
    /// From a body to a job.
    #[prost(message, optional, tag = "4")]
    pub compute_input: Option<StatisticDuration>,
    /// In workers.
    #[prost(message, optional, tag = "5")]
    pub compute_infer: Option<StatisticDuration>,
    /// From a verdict to a body.
    #[prost(message, optional, tag = "6")]
    pub compute_output: Option<StatisticDuration>,
    /// Answers from memory, of which there are none.
    #[prost(message, optional, tag = "7")]
    pub cache_hit: Option<StatisticDuration>,
    /// The others, of which none are counted.
    #[prost(message, optional, tag = "8")]
    pub cache_miss: Option<StatisticDuration>,
}

/// A number and a time.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message, Deserialize)]
#[serde(default)]
pub struct StatisticDuration {
    /// How many.
    #[prost(uint64, tag = "1")]
    pub count: u64,
    /// How long they took together, in nanoseconds.
    #[prost(uint64, tag = "2")]
    pub ns: u64,
}
