//! Why a model was not loaded.

use std::io;
use std::path::PathBuf;

use gridpool_protocol::tensor::model::ModelNameError;
use gridpool_protocol::tensor::options::{ChangedFile, OptionsError, OtherTensors, Provider};
use gridpool_protocol::tensor::pipeline::{PipelineError, WireError};

use crate::context::RunError;
use crate::error::RuntimeFault;
use crate::graphs::GraphsError;
use crate::placement::PlacementError;
use crate::signature::SignatureError;
use crate::warm_up::WarmUpError;

/// Largest file of a model: the limit of a protobuf. Larger models keep their weights in other files.
pub const MODEL_FILE_BYTES_MAX: u64 = (1 << 31) - 1;
/// The library that ONNX Runtime's TensorRT provider needs, by its names.
pub(super) const TENSORRT_LIBRARIES: [&str; 2] = ["libnvinfer.so.10", "libnvinfer.so"];

/// Why a model was not loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A thread of a context panicked before it served. Its own message is in the log.
    #[error("a thread of a context ended before it served a request; the log says why")]
    Ended,
    /// Its contexts take more memory than they may.
    #[error(
        "{contexts} contexts take {needs} bytes of device memory (weights {weights}, each context up to \
         {context}); it is allowed {allowed}, which is enough for {fit}"
    )]
    Budget {
        /// Contexts that were asked for.
        contexts: u32,
        /// Bytes of the model and all contexts.
        needs: u64,
        /// Bytes of the model itself.
        weights: u64,
        /// Bytes of one context.
        context: u64,
        /// Bytes allowed.
        allowed: u64,
        /// The most contexts that fit.
        fit: u64,
    },
    /// There is a memory limit, and the memory of its contexts is unknown.
    #[error("the device memory of its contexts is unknown, so device_bytes cannot be enforced")]
    BudgetUnknown,
    /// Its file is not the one that was loaded first.
    #[error(transparent)]
    Changed(#[from] ChangedFile),
    /// Its requests would wait for others, and none can join them.
    #[error(
        "leave max_queue_delay_us and preferred_batch out: there is nothing to wait for, because its requests cannot \
         share runs: {reason}"
    )]
    Delay {
        /// Why they cannot.
        reason: String,
    },
    /// A model of this name is loaded.
    #[error("a model `{name}` is loaded already")]
    Exists {
        /// The name.
        name: String,
    },
    /// Its file cannot be read.
    #[error("{}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It asks for CUDA graphs and cannot have them.
    #[error("leave cuda_graphs out")]
    Graphs(#[from] GraphsError),
    /// Its name is not valid.
    #[error(transparent)]
    Name(#[from] ModelNameError),
    /// Its options are not valid.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// Its steps or wires are wrong.
    #[error(transparent)]
    Pipeline(#[from] PipelineError),
    /// It has other inputs or outputs than its options list.
    #[error(transparent)]
    Other(#[from] OtherTensors),
    /// Nodes would run where they may not.
    #[error(transparent)]
    Placement(#[from] PlacementError),
    /// A provider cannot be used.
    #[error("the provider `{provider}` cannot be used; nothing falls back to another")]
    Provider {
        /// Which one.
        provider: Provider,
        /// Why.
        #[source]
        source: RuntimeFault,
    },
    /// `max_batch` asks for joined requests, and they cannot be joined.
    #[error(
        "max_batch = {max_batch}: its requests cannot share runs: {reason}; set max_batch = 1 (in a \
         config.pbtxt max_batch_size: 0), or leave it out"
    )]
    Rows {
        /// The requested value.
        max_batch: u32,
        /// Why not.
        reason: String,
    },
    /// ONNX Runtime refuses it.
    #[error(transparent)]
    Session(#[from] RuntimeFault),
    /// Its inputs or outputs are not served.
    #[error(transparent)]
    Signature(#[from] SignatureError),
    /// A step of the pipeline cannot be loaded.
    #[error("the step `{step}`")]
    Step {
        /// The step.
        step: String,
        /// Why.
        #[source]
        source: Box<Self>,
    },
    /// TensorRT is not installed.
    #[error(
        "the provider `tensorrt` needs {}: install TensorRT 10 (`pip install tensorrt`) and have its \
         folder in LD_LIBRARY_PATH, or use `cuda`", TENSORRT_LIBRARIES[0]
    )]
    TensorRtMissing,
    /// The system gave no thread for a context.
    #[error("cannot start a thread for a context")]
    Thread(#[source] io::Error),
    /// Its file is too large for a model.
    #[error("{} has {bytes} bytes; the file of a model has at most {MODEL_FILE_BYTES_MAX}", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its size.
        bytes: u64,
    },
    /// Its first run fails.
    #[error(transparent)]
    WarmUp(#[from] WarmUpError),
}

impl From<WireError> for LoadError {
    fn from(error: WireError) -> Self {
        Self::Pipeline(error.into())
    }
}

impl LoadError {
    /// The error of ONNX Runtime, if there is one. It may be a fault of the device.
    #[must_use]
    pub fn fault(&self) -> Option<&RuntimeFault> {
        if let Self::Step { source, .. } = self {
            return source.fault();
        }
        if let Self::Graphs(
            GraphsError::Capture { source: RunError::Fault(fault), .. }
            | GraphsError::Run { source: RunError::Fault(fault), .. },
        )
        | Self::Provider { source: fault, .. }
        | Self::Session(fault)
        | Self::WarmUp(WarmUpError::Run { source: RunError::Fault(fault), .. }) = self
        {
            Some(fault)
        } else {
            None
        }
    }

    /// This error, of a step of a pipeline.
    pub(crate) fn in_step(self, step: &str) -> Self {
        Self::Step { step: step.to_owned(), source: Box::new(self) }
    }

    /// The fault, if it leaves the device unusable.
    #[must_use]
    pub fn end_of_device(&self) -> Option<&RuntimeFault> {
        self.fault().filter(|fault| !fault.leaves_device_usable())
    }
}
