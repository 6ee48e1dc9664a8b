//! Why a model was not asked, or gave no outputs: one sentence each, and what to type instead.

use std::io;
use std::path::PathBuf;

use gridpool_protocol::chain::Chain;
use gridpool_protocol::exit::cli as exit;
use gridpool_protocol::limits::TENSORS_MAX;
use gridpool_protocol::receipt::{Receipt, Verdict};
use gridpool_protocol::tensor::{TensorError, bytes_needed};

use super::npz::FILE_BYTES_MAX;

/// Why a request of a model did not end OK.
#[derive(Debug, thiserror::Error)]
pub(in crate::cli) enum InferError {
    /// INPUT holds no good arrays.
    #[error("{file}: {}", Chain(.flaw.as_ref()))]
    Input { file: String, flaw: Box<Flaw> },
    /// The arrays are not what the model takes.
    #[error("{model}: {what}")]
    Misfit { model: String, what: String },
    /// No worker has told of a model, so nobody knows the name of an only input.
    #[error(
        "no worker of this pool serves models yet, and an .npy does not say which input it is: give an \
         .npz, or wait until `gridpool models` lists the model"
    )]
    NoModels,
    /// The file for the outputs cannot be written.
    #[error("--output {}: name a file that can be written", path.display())]
    Output {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// Standard input is a person.
    #[error("standard input is a terminal: pipe an .npz into it, or name a file")]
    Terminal,
    /// The tensors are beyond a limit together.
    #[error(transparent)]
    Tensors(TensorError),
    /// The model cannot be asked anywhere.
    #[error("{model} cannot be asked: {}", .why.join("; "))]
    Unavailable { model: String, why: Vec<String> },
    /// There is no such model.
    #[error("there is no model `{model}`: write one of {}", .known.join(", "))]
    Unknown { model: String, known: Vec<String> },
    /// The request has another verdict than OK.
    #[error("{model}: {verdict}: {reason}{advice}")]
    Verdict { model: String, verdict: Verdict, reason: String, advice: String },
}

impl InferError {
    /// That of a receipt whose verdict is not OK.
    pub(super) fn verdict(model: &str, receipt: &Receipt) -> Self {
        let needed = bytes_needed(&receipt.reason);
        let advice = needed.map(|bytes| format!(": ask again with --output-bytes {bytes}"));
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
            Self::Output { .. } | Self::Terminal | Self::Unknown { .. } => exit::USAGE,
            Self::Verdict { .. } => exit::JOB,
        }
    }
}

/// What is wrong with the bytes of INPUT.
#[derive(Debug, thiserror::Error)]
pub(in crate::cli) enum Flaw {
    /// An array is not good.
    #[error("array `{name}` {what}")]
    Array { name: String, what: String },
    /// Together they are too large.
    #[error("its arrays take more than {FILE_BYTES_MAX} bytes")]
    ArraysTooLarge,
    /// It is too large.
    #[error("it has more than {FILE_BYTES_MAX} bytes")]
    FileTooLarge,
    /// Another file lies in the .npz.
    #[error("`{name}` in it is no .npy: an .npz of numpy.savez has no other files")]
    Foreign { name: String },
    /// It is neither of both.
    #[error("it is neither an .npz nor an .npy: write one with numpy.savez('in.npz', x=x)")]
    Neither,
    /// It cannot be read.
    #[error("it cannot be read")]
    Read(#[source] io::Error),
    /// A tensor is beyond a limit.
    #[error(transparent)]
    Tensor(#[from] TensorError),
    /// It has too many arrays.
    #[error("it has {count} arrays; at most {TENSORS_MAX} are allowed")]
    TooMany { count: usize },
    /// It is no zip, or a broken one.
    #[error("it is no whole .npz")]
    Zip(#[source] zip::result::ZipError),
}
