//! Why a model was not loaded.

use std::io;
use std::path::PathBuf;

use gridpool_protocol::tensor::model::ModelNameError;
use gridpool_protocol::tensor::options::{OptionsError, Provider};

use crate::infer::context::RunError;
use crate::infer::error::RuntimeFault;
use crate::infer::placement::PlacementError;
use crate::infer::signature::SignatureError;
use crate::infer::warm_up::WarmUpError;

/// Largest file of a model: what a protobuf may have. Larger models keep their weights in files beside.
pub const MODEL_FILE_BYTES_MAX: u64 = (1 << 31) - 1;
/// The library without which ONNX Runtime's TensorRT provider cannot be loaded, by its names.
pub(super) const TENSORRT_LIBRARIES: [&str; 2] = ["libnvinfer.so.10", "libnvinfer.so"];

/// Why a model was not loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// Its contexts take more than they may.
    #[error(
        "{contexts} contexts take {needs} bytes of device memory (weights {weights}, each context up to \
         {context}); it is allowed {allowed}, which is enough for {fit}"
    )]
    Budget {
        /// How many contexts were asked for.
        contexts: u32,
        /// Bytes of all of it.
        needs: u64,
        /// Of the model itself.
        weights: u64,
        /// Of one context.
        context: u64,
        /// Bytes allowed.
        allowed: u64,
        /// How many contexts would do.
        fit: u64,
    },
    /// What its contexts take is not known, and there is a limit.
    #[error("what its contexts take of the device is not known: device_bytes cannot be kept")]
    BudgetUnknown,
    /// A model of that name is loaded.
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
    /// Its name will not do.
    #[error(transparent)]
    Name(#[from] ModelNameError),
    /// What was said about it will not do.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// Nodes would run where they may not.
    #[error(transparent)]
    Placement(#[from] PlacementError),
    /// A provider cannot be had.
    #[error("the provider `{provider}` cannot be used; nothing falls back to another")]
    Provider {
        /// Which one.
        provider: Provider,
        /// Why.
        #[source]
        source: RuntimeFault,
    },
    /// Its requests were to be joined, and cannot be.
    #[error("max_batch = {max_batch}: its requests cannot share runs: {reason}")]
    Rows {
        /// What was asked for.
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
    /// TensorRT is not installed.
    #[error(
        "the provider `tensorrt` needs {}: install TensorRT 10 (`pip install tensorrt`) and have its \
         folder in LD_LIBRARY_PATH, or use `cuda`", TENSORRT_LIBRARIES[0]
    )]
    TensorRtMissing,
    /// No thread for it.
    #[error("no thread for a context")]
    Thread(#[source] io::Error),
    /// Its file is too large to be one.
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

impl LoadError {
    /// What ONNX Runtime said, if it was that: a fault of the device may be in it.
    #[must_use]
    pub fn fault(&self) -> Option<&RuntimeFault> {
        match self {
            Self::Provider { source: fault, .. }
            | Self::Session(fault)
            | Self::WarmUp(WarmUpError::Run { source: RunError::Fault(fault), .. }) => Some(fault),
            Self::WarmUp(
                WarmUpError::Run { source: RunError::Output { .. }, .. }
                | WarmUpError::Shapes { .. },
            )
            | Self::Budget { .. }
            | Self::BudgetUnknown
            | Self::Exists { .. }
            | Self::File { .. }
            | Self::Name(_)
            | Self::Options(_)
            | Self::Placement(_)
            | Self::Rows { .. }
            | Self::Signature(_)
            | Self::TensorRtMissing
            | Self::Thread(_)
            | Self::TooLarge { .. } => None,
        }
    }

    /// The same, if the device is of no use after it.
    #[must_use]
    pub fn end_of_device(&self) -> Option<&RuntimeFault> {
        self.fault().filter(|fault| !fault.leaves_device_usable())
    }
}
