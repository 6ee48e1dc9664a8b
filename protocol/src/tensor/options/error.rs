//! What is wrong with the options of a model, or with its file.

use std::path::PathBuf;

use super::*;

/// Why the options of a model are invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionsError {
    /// Too few or too many contexts.
    #[error("{contexts} contexts: write 1 to {MODEL_CONTEXTS_MAX}")]
    Contexts {
        /// The requested number.
        contexts: u32,
    },
    /// What cannot go with CUDA graphs.
    #[error("cuda_graphs cannot go with {with}; leave one of the two out")]
    CudaGraphs {
        /// What it is, and why not.
        with: &'static str,
    },
    /// A model on no device.
    #[error("a device_count of 0: write at least 1, or leave it out")]
    DeviceCount,
    /// A name that no group can have.
    #[error(
        "`{group}` cannot be the name of a group of models: write 1 to {MODEL_NAME_BYTES_MAX} letters, digits, `-`, \
         `_` or `.`, the first a letter or a digit; `grid` is the group of programs"
    )]
    Group {
        /// The name.
        group: String,
    },
    /// A bound that no run keeps.
    #[error("a latency_ms of 0: write at least 1, or leave it out")]
    Latency,
    /// A time in which nothing can be loaded.
    #[error("a load_timeout_s of 0: write at least 1, or leave it out")]
    LoadTimeout,
    /// Too few or too many rows.
    #[error("a max_batch of {max_batch}: write 1 to {MODEL_BATCH_MAX}")]
    MaxBatch {
        /// The requested number.
        max_batch: u32,
    },
    /// A delay or preferred sizes for requests that are never joined.
    #[error(
        "max_queue_delay_us and preferred_batch with a max_batch of 1: its requests are never joined, so there is \
         nothing to wait for; leave both out"
    )]
    NothingToJoin,
    /// A size of a run that no run has.
    #[error("a preferred_batch of {rows}: write sizes from 1 to max_batch, which is {max_batch}")]
    PreferredBatch {
        /// The size.
        rows: u32,
        /// Most rows of a run.
        max_batch: u32,
    },
    /// Its steps or wires are wrong.
    #[error(transparent)]
    Pipeline(#[from] PipelineError),
    /// A queue that holds no request.
    #[error("queue_requests and queue_bytes must be at least 1")]
    Queue,
    /// The CPU provider was requested for a GPU device.
    #[error(
        "providers: `cpu` is the provider of cpu devices; on a GPU name the ops that may run on its CPU, \
         cpu_ops = [\"Shape\", …]"
    )]
    CpuProvider,
    /// Too long a delay.
    #[error("a max_queue_delay_us of {us}: write 0 to {MODEL_QUEUE_DELAY_US_MAX}")]
    QueueDelay {
        /// The delay.
        us: u64,
    },
    /// The hash has another form.
    #[error(
        "a sha256 of `{text}`: write the 64 lower-case hexadecimal digits that `sha256sum FILE` prints"
    )]
    Sha256 {
        /// The text.
        text: String,
    },
    /// The plan is too long.
    #[error(
        "path, warm_up, cpu_ops and steps have {bytes} bytes, the texts of programs included; at most \
         {MODEL_PLAN_BYTES_MAX} are allowed: write less, or make two pipelines of it"
    )]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// A provider was named twice.
    #[error("providers: `{provider}` is named twice: keep one")]
    Twice {
        /// The provider.
        provider: Provider,
    },
}

/// The file of a model is not the one that the model was loaded from.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{} has changed since the model was loaded, or is another file than its option names (sha256 {then} then, {now} \
     now): restore the file before a worker starts again, or type `gridpool model unload {name}` and load it again",
    path.display()
)]
pub struct ChangedFile {
    /// The model.
    pub name: String,
    /// Its file.
    pub path: PathBuf,
    /// The SHA-256 that it must have.
    pub then: String,
    /// The SHA-256 that it has.
    pub now: String,
}

/// The file of a model has other inputs or outputs than its options list.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("its options list the {kind} {want}; the file has {has}")]
pub struct OtherTensors {
    /// `input` or `output`.
    pub kind: &'static str,
    /// What is listed.
    pub want: String,
    /// What the file has.
    pub has: String,
}

#[cfg(test)]
mod tests {
    use crate::tensor::options::{ListedTensors, ModelOptions};
    use crate::tensor::{ANY_SIZE, DataType, TensorSpec};

    #[test]
    fn an_input_that_the_list_lacks_is_named() {
        let spec = |name: &str| TensorSpec::new(name, DataType::Fp32, [ANY_SIZE, 4]);
        let tensors = ListedTensors { inputs: vec![spec("x")], outputs: Vec::new() };
        let options = ModelOptions { tensors: Some(tensors.into()), ..ModelOptions::default() };
        let error = options.check_tensors(&[spec("x"), spec("i")], &[]).unwrap_err().to_string();
        let want = "its options list the input x FP32 [?, 4]; the file has i FP32 [?, 4] besides";
        assert_eq!(error, want);
    }
}
