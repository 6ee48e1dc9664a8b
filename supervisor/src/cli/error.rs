//! Why a command did not do what was asked, and the exit code that says so.

use std::io;

use gridpool_protocol::client::ClientError;
use gridpool_protocol::exit::cli as exit;
use gridpool_protocol::message::Refusal;

use super::input::InputError;
use super::{bench, infer, work};
use crate::config::ConfigError;
use crate::devices::DevicesError;
use crate::gateway::GatewayError;
use crate::shell::{HttpError, ListenError};

/// Why a command did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub(super) enum CommandError {
    #[error(transparent)]
    Bench(#[from] bench::BenchError),
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("{}", lines(.0))]
    ConfigFile(Vec<ConfigError>),
    #[error(transparent)]
    Devices(#[from] DevicesError),
    #[error(transparent)]
    Infer(#[from] infer::InferError),
    #[error(transparent)]
    Gateway(#[from] GatewayError),
    #[error(transparent)]
    Http(#[from] HttpError),
    #[error(transparent)]
    Input(#[from] InputError),
    #[error(transparent)]
    Listen(#[from] ListenError),
    #[error("no worker can start:\n  {}", .0.join("\n  "))]
    Misconfigured(Vec<String>),
    #[error("{0}; `gridpool chaos --random` has another job meet the fault")]
    Convicted(Refusal),
    #[error("{0}")]
    Order(String),
    #[error("standard output")]
    Output(#[source] io::Error),
    #[error("{0}")]
    Program(gridpool_protocol::program::ProgramError),
    #[error(transparent)]
    Unfinished(#[from] work::Unfinished),
    #[error("{what}")]
    System {
        what: &'static str,
        #[source]
        source: io::Error,
    },
}

impl CommandError {
    pub(super) fn exit_code(&self) -> u8 {
        match self {
            Self::Bench(error) => error.exit_code(),
            Self::Client(error) | Self::Unfinished(work::Unfinished { cause: error, .. }) => {
                exit_code_of(error)
            }
            Self::Config(error) => error.exit_code(),
            Self::ConfigFile(_) => exit::CONFIG,
            Self::Convicted(_) => exit::JOB,
            Self::Devices(
                DevicesError::NoGpu(_) | DevicesError::NoSuchGpu { .. } | DevicesError::Probe(_),
            )
            | Self::Listen(_) => exit::UNAVAILABLE,
            Self::Devices(DevicesError::NoWorkerBinary(_)) | Self::Misconfigured(_) => exit::WORKER,
            Self::Devices(DevicesError::Twice { .. }) | Self::Order(_) | Self::Program(_) => {
                exit::USAGE
            }
            Self::Infer(error) => error.exit_code(),
            Self::Gateway(GatewayError::Client(error)) => exit_code_of(error),
            Self::Gateway(GatewayError::Cut(_)) => exit::UNAVAILABLE,
            Self::Gateway(GatewayError::Orphan) => exit::USAGE,
            Self::Gateway(GatewayError::System { .. }) => exit::INTERNAL,
            Self::Http(error) if error.is_taken() => exit::UNAVAILABLE,
            Self::Http(_) => exit::CONFIG,
            Self::Input(error) => error.exit_code(),
            Self::Output(_) | Self::System { .. } => exit::INTERNAL,
        }
    }
}

/// The first errors of a config file, each on a line.
fn lines(errors: &[ConfigError]) -> String {
    /// More than fits a screen helps nobody.
    const SHOWN_MAX: usize = 40;
    let shown: Vec<_> = errors.iter().take(SHOWN_MAX).map(ConfigError::to_string).collect();
    match errors.len().saturating_sub(SHOWN_MAX) {
        0 => shown.join("\n"),
        more => format!("{}\nand {more} more", shown.join("\n")),
    }
}

pub(super) fn exit_code_of(error: &ClientError) -> u8 {
    match error {
        ClientError::Refused(Refusal::Draining)
        | ClientError::Closed(_)
        | ClientError::Lost
        | ClientError::NoPool { .. }
        | ClientError::Silent => exit::UNAVAILABLE,
        ClientError::Refused(
            Refusal::Busy(_) | Refusal::Invalid(_) | Refusal::KeyInUse(_) | Refusal::Poison(_),
        ) => exit::JOB,
        ClientError::Arena(_)
        | ClientError::Batch(_)
        | ClientError::Frame(_)
        | ClientError::Malformed(_)
        | ClientError::Tensors(_)
        | ClientError::Unexpected(_)
        | ClientError::Version { .. } => exit::INTERNAL,
    }
}

pub(super) fn system(what: &'static str) -> impl FnOnce(io::Error) -> CommandError {
    move |source| CommandError::System { what, source }
}
