//! Errors of `gridpool infer`: one sentence each, with what to type instead.

use std::io;
use std::path::PathBuf;

use gridpool_protocol::chain::Chain;
use gridpool_protocol::exit::cli as exit;
use gridpool_protocol::limits::TENSORS_MAX;
use gridpool_protocol::receipt::{Receipt, Verdict};
use gridpool_protocol::tensor::{TensorError, bytes_needed};

use super::file::FLAG;

/// Largest INPUT, and most bytes of all its unpacked arrays together.
pub(super) const FILE_BYTES_MAX: u64 = 1 << 30;

/// Why a request did not end OK.
#[derive(Debug, thiserror::Error)]
pub(in crate::cli) enum InferError {
    /// The name of the file for outputs has another ending.
    #[error(
        "{FLAG} {}: the end of the name tells the format: write .npz, .npy (of one output) or .json",
        path.display()
    )]
    Format { path: PathBuf },
    /// INPUT holds bad arrays.
    #[error("{file}: {}", Chain(.cause.as_ref()))]
    Input { file: String, cause: Box<ArraysError> },
    /// The arrays do not fit the model's inputs.
    #[error("{model}: {what}")]
    Misfit { model: String, what: String },
    /// No worker has reported its models yet, so the name of the only input is unknown.
    #[error(
        "no worker of this pool serves models yet, and an .npy does not name its input: give an .npz, or \
         wait until `gridpool models` lists the model"
    )]
    NoModels,
    /// The format holds one output, and there are others.
    #[error("{FLAG} {}: the model gives {outputs} outputs, and an .npy holds one: write .npz or .json", path.display())]
    Several { path: PathBuf, outputs: usize },
    /// Standard input is a terminal.
    #[error("standard input is a terminal: pipe an .npz into it, or name a file")]
    Terminal,
    /// The tensors together exceed a limit.
    #[error(transparent)]
    Tensors(TensorError),
    /// No device serves the model.
    #[error("no device serves {model}: {}", .why.join("; "))]
    Unavailable { model: String, why: Vec<String> },
    /// There is no such model.
    #[error("there is no model `{model}`: write one of {}", .known.join(", "))]
    Unknown { model: String, known: Vec<String> },
    /// The request has another verdict than OK.
    #[error("{model}: {verdict}: {reason}{advice}")]
    Verdict { model: String, verdict: Verdict, reason: String, advice: String },
}

impl InferError {
    /// The error of a receipt whose verdict is not OK.
    pub(super) fn verdict(model: &str, receipt: &Receipt) -> Self {
        let needed = bytes_needed(&receipt.reason);
        let advice = needed.map(|bytes| format!(": try again with --output-bytes {bytes}"));
        Self::Verdict {
            model: model.to_owned(),
            verdict: receipt.verdict,
            reason: receipt.reason.clone(),
            advice: advice.unwrap_or_default(),
        }
    }

    pub(in crate::cli) fn exit_code(&self) -> u8 {
        match self {
            Self::Input { .. } | Self::Misfit { .. } | Self::Tensors(_) => exit::DATA,
            Self::NoModels | Self::Unavailable { .. } => exit::UNAVAILABLE,
            Self::Format { .. } | Self::Several { .. } | Self::Terminal | Self::Unknown { .. } => {
                exit::USAGE
            }
            Self::Verdict { .. } => exit::JOB,
        }
    }
}

/// Why the bytes of INPUT are not arrays.
#[derive(Debug, thiserror::Error)]
pub(in crate::cli) enum ArraysError {
    /// An array has an error.
    #[error("array `{name}` {what}")]
    Array { name: String, what: String },
    /// The arrays together are too large.
    #[error("its arrays take more than {FILE_BYTES_MAX} bytes")]
    ArraysTooLarge,
    /// The file is too large.
    #[error("it has more than {FILE_BYTES_MAX} bytes")]
    FileTooLarge,
    /// The .npz has a file of another kind.
    #[error("`{name}` in it is not an .npy: write the .npz with numpy.savez")]
    Foreign { name: String },
    /// Another format.
    #[error("it is neither an .npz nor an .npy: write one with numpy.savez('in.npz', x=x)")]
    Neither,
    /// Reading failed.
    #[error("it cannot be read")]
    Read(#[source] io::Error),
    /// A tensor exceeds a limit.
    #[error(transparent)]
    Tensor(#[from] TensorError),
    /// It has too many arrays.
    #[error("it has {count} arrays; at most {TENSORS_MAX} are allowed")]
    TooMany { count: usize },
    /// A broken zip.
    #[error("the .npz is broken or incomplete")]
    Zip(#[source] zip::result::ZipError),
}
