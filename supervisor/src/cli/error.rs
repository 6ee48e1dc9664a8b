//! Why a command failed, and its exit code.

use std::io;

use gridpool_client::ClientError;
use gridpool_nats::NatsError;
use gridpool_protocol::exit::cli as exit;
use gridpool_protocol::message::Refusal;
use gridpool_protocol::receipt::{Receipt, Verdict};
use gridpool_protocol::status::MissingModel;

use super::advice::Advised;
use super::diagnose::limits::{FILE_BYTES_MIN, FILE_SIZE_REMEDY, OPEN_FILES_REMEDY};
use super::export::ExportError;
use super::input::InputError;
use super::onnx::ModelFileError;
use super::output::OutputError;
use super::replay::ReplayError;
use super::{bench, infer, work};
use crate::bridge::BridgeModeError;
use crate::config::ConfigError;
use crate::devices::DevicesError;
use crate::gateway::GatewayError;
use crate::helper::HelperError;
use crate::logging::FilterError;
use crate::programs::SourceError;
use crate::shell::{HttpError, ListenError, TakeOverError};
use crate::state::StateError;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum CommandError {
    #[error(transparent)]
    Bench(#[from] bench::BenchError),
    #[error(transparent)]
    Client(Advised<ClientError>),
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
    /// A cluster cannot be reached.
    #[error(transparent)]
    Nats(#[from] NatsError),
    /// The bridge does not serve.
    #[error(transparent)]
    Bridge(#[from] BridgeModeError),
    /// The tracer does not serve.
    #[error(transparent)]
    Tracer(#[from] HelperError),
    #[error(transparent)]
    Http(#[from] HttpError),
    #[error(transparent)]
    Input(#[from] InputError),
    #[error(transparent)]
    Listen(#[from] ListenError),
    #[error("{0}")]
    Misplaced(String),
    /// What this user may not read.
    #[error("{0}")]
    NotAllowed(String),
    #[error(transparent)]
    ModelFile(#[from] ModelFileError),
    #[error("no worker can start:\n  {}", .0.join("\n  "))]
    Misconfigured(Vec<String>),
    #[error("the model `{}` cannot be loaded: {}; `--keep-going` serves without it", .0.model, .0.why)]
    ModelMissing(MissingModel),
    #[error("the model `{model}`: {why}; `--keep-going` serves without it")]
    ModelOfStart { model: String, why: ModelFileError },
    /// The pool ended while it was watched.
    #[error("the pool has ended, or the connection to it was lost{0}")]
    Gone(String),
    #[error("the socket was removed, and the pool could not open it again: {0}")]
    Displaced(String),
    #[error(
        "this process may open {limit} files, and a pool of these devices needs {needed}: {}",
        OPEN_FILES_REMEDY
    )]
    OpenFiles { limit: usize, needed: usize },
    #[error(
        "files of this process, and so its shared memory, may have {limit} bytes, and a pool needs {}: {}",
        FILE_BYTES_MIN,
        FILE_SIZE_REMEDY
    )]
    FileSize { limit: u64 },
    #[error("{0}; `gridpool chaos --random` injects the fault with another job")]
    Denylisted(Refusal),
    /// What was given holds no program that can run, or is not there.
    #[error("{0}")]
    NoPrograms(String),
    #[error("{0}")]
    Usage(String),
    #[error("standard output")]
    Output(#[source] io::Error),
    #[error(transparent)]
    Export(#[from] ExportError),
    #[error(transparent)]
    File(OutputError),
    #[error(transparent)]
    Filter(FilterError),
    #[error(
        "{verdict}: {reason}; {done} of {all} items have a result, {} have none{}",
        all - done,
        if *verdict == Verdict::Poison { "" } else { ": submit those again" }
    )]
    Partial { verdict: Verdict, reason: String, done: usize, all: usize },
    #[error(transparent)]
    Program(#[from] SourceError),
    #[error(transparent)]
    Replay(#[from] ReplayError),
    #[error(transparent)]
    State(#[from] StateError),
    #[error(transparent)]
    TakeOver(#[from] TakeOverError),
    #[error(transparent)]
    Unfinished(#[from] work::Unfinished),
    #[error("{what}")]
    System {
        what: &'static str,
        #[source]
        source: io::Error,
    },
}

impl From<ClientError> for CommandError {
    fn from(error: ClientError) -> Self {
        Self::Client(Advised(error))
    }
}

impl CommandError {
    /// A job ended with some of its items done: so many of all.
    pub(super) fn partial(worst: &Receipt, done: usize, all: usize) -> Self {
        let Receipt { verdict, reason, .. } = worst;
        Self::Partial { verdict: *verdict, reason: reason.clone(), done, all }
    }

    /// A question that was not answered has done nothing, and is not to be sent again. `after` goes on with what that
    /// means.
    pub(super) fn unanswered(error: ClientError, after: String) -> Self {
        if matches!(error, ClientError::Lost) { Self::Gone(after) } else { error.into() }
    }

    pub(super) fn exit_code(&self) -> u8 {
        match self {
            Self::Bench(error) => error.exit_code(),
            Self::Client(Advised(error)) => exit_code_of(error),
            Self::Unfinished(error) => error.exit_code(),
            Self::Config(error) => error.exit_code(),
            Self::ConfigFile(_) | Self::ModelOfStart { .. } => exit::CONFIG,
            Self::ModelMissing(_) => exit::JOB,
            Self::Denylisted(_) | Self::Partial { .. } => exit::JOB,
            Self::Devices(
                DevicesError::NoGpu(_) | DevicesError::NoSuchGpu { .. } | DevicesError::Probe(_),
            )
            | Self::Displaced(_)
            | Self::Gone(_) => exit::UNAVAILABLE,
            Self::FileSize { .. } | Self::OpenFiles { .. } | Self::System { .. } => exit::SYSTEM,
            Self::Devices(DevicesError::NoWorkerBinary(_)) | Self::Misconfigured(_) => exit::WORKER,
            Self::Devices(DevicesError::Twice { .. })
            | Self::Filter(_)
            | Self::Misplaced(_)
            | Self::Program(SourceError::Typed(_))
            | Self::Usage(_) => exit::USAGE,
            Self::Infer(error) => error.exit_code(),
            Self::ModelFile(_) | Self::NoPrograms(_) | Self::Program(SourceError::File { .. }) => {
                exit::DATA
            }
            Self::Nats(NatsError::File { .. }) => exit::CONFIG,
            Self::Nats(_) => exit::UNAVAILABLE,
            Self::Bridge(BridgeModeError::Helper(error))
            | Self::Gateway(GatewayError::Helper(error))
            | Self::Tracer(error) => match error {
                HelperError::Orphan(_) => exit::USAGE,
                HelperError::Sandbox(_) | HelperError::System { .. } => exit::SYSTEM,
            },
            Self::Bridge(BridgeModeError::Serving(_)) => exit::UNAVAILABLE,
            Self::Gateway(GatewayError::Client(error)) => exit_code_of(error),
            Self::Gateway(GatewayError::Cut(_)) => exit::UNAVAILABLE,
            Self::Http(error) => code_of_http(error),
            Self::Listen(error) => code_of_listening(error),
            Self::Replay(error) => error.exit_code(),
            Self::State(_) => exit::CONFIG,
            Self::TakeOver(error) => match error {
                TakeOverError::Orphan => exit::USAGE,
                TakeOverError::Models(_) | TakeOverError::Socket { .. } => exit::CONFIG,
                TakeOverError::Model { .. } => exit::JOB,
                TakeOverError::Link(_) => exit::SYSTEM,
                TakeOverError::GivenUp(_) => exit::UNAVAILABLE,
                TakeOverError::Http(error) => code_of_http(error),
                TakeOverError::Listen(error) => code_of_listening(error),
            },
            Self::NotAllowed(_) => exit::NOT_ALLOWED,
            Self::Input(error) => error.exit_code(),
            Self::Export(error) => error.exit_code(),
            Self::File(error) => error.exit_code(),
            Self::Output(_) => exit::OUTPUT,
        }
    }
}

impl From<OutputError> for CommandError {
    fn from(error: OutputError) -> Self {
        // `end_of` handles closed standard output.
        if let OutputError::Stdout(source) = error {
            return Self::Output(source);
        }
        Self::File(error)
    }
}

/// The first errors of a config file, each on a line.
fn lines(errors: &[ConfigError]) -> String {
    /// About a screen.
    const SHOWN_MAX: usize = 40;
    let shown: Vec<_> = errors.iter().take(SHOWN_MAX).map(ConfigError::to_string).collect();
    match errors.len().saturating_sub(SHOWN_MAX) {
        0 => shown.join("\n"),
        more => format!("{}\nand {more} more", shown.join("\n")),
    }
}

/// The code where HTTP cannot be served.
fn code_of_http(error: &HttpError) -> u8 {
    match error {
        HttpError::Address { .. } if error.is_taken() => exit::UNAVAILABLE,
        HttpError::Socket(_, error) => code_of_listening(error),
        HttpError::Address { .. }
        | HttpError::File { .. }
        | HttpError::Group { .. }
        | HttpError::Open { .. } => exit::CONFIG,
    }
}

/// The code where a socket cannot be served. Who has it may end: then another try helps.
fn code_of_listening(error: &ListenError) -> u8 {
    match error {
        ListenError::Served(_) | ListenError::Taken(_) => exit::UNAVAILABLE,
        // Another path helps.
        ListenError::Io { source, .. }
            if matches!(
                source.kind(),
                // As in /proc.
                io::ErrorKind::NotFound
                    | io::ErrorKind::PermissionDenied
                    | io::ErrorKind::ReadOnlyFilesystem
            ) =>
        {
            exit::CONFIG
        }
        ListenError::Io { .. } => exit::SYSTEM,
        ListenError::Directory(_)
        | ListenError::Folder(_)
        | ListenError::Foreign { .. }
        | ListenError::Given(_)
        | ListenError::Link(_)
        | ListenError::LongName { .. }
        | ListenError::Missing(_)
        | ListenError::Movable { .. }
        | ListenError::NotDirectory(_)
        | ListenError::NotLock(_)
        | ListenError::NotSocket(_)
        | ListenError::TooLong(_)
        | ListenError::Unmade { .. } => exit::CONFIG,
    }
}

pub(super) fn exit_code_of(error: &ClientError) -> u8 {
    match error {
        ClientError::Refused(Refusal::Draining)
        | ClientError::Closed(_)
        | ClientError::Cluster(_)
        | ClientError::Lost
        | ClientError::NoPool { .. }
        | ClientError::Silent => exit::UNAVAILABLE,
        ClientError::Refused(Refusal::NotAllowed(_))
        | ClientError::NotAllowed { .. }
        | ClientError::OtherUser { .. }
        | ClientError::Replaceable { .. } => exit::NOT_ALLOWED,
        ClientError::Refused(
            Refusal::Bundled
            | Refusal::Busy(_)
            | Refusal::Invalid(_)
            | Refusal::KeyInUse(_)
            | Refusal::Poison(_)
            | Refusal::Unable(_),
        ) => exit::JOB,
        ClientError::System(_) => exit::SYSTEM,
        ClientError::Batch(_)
        | ClientError::Connection(_)
        | ClientError::Malformed(_)
        | ClientError::Memory(_)
        | ClientError::Taken
        | ClientError::Tensors(_)
        | ClientError::Unexpected(_)
        | ClientError::Version { .. }
        | _ => exit::INTERNAL,
    }
}

pub(super) fn system(what: &'static str) -> impl FnOnce(io::Error) -> CommandError {
    move |source| CommandError::System { what, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_where_this_user_may_not_make_one_is_a_wrong_setting() {
        use io::ErrorKind::{NotFound, OutOfMemory, PermissionDenied, ReadOnlyFilesystem};
        let kinds = [NotFound, PermissionDenied, ReadOnlyFilesystem, OutOfMemory];
        let codes = kinds.map(|kind| {
            let (path, source) = ("/ro/pool.sock".into(), kind.into());
            code_of_listening(&ListenError::Io { path, what: "the lock", source })
        });
        assert_eq!(codes, [exit::CONFIG, exit::CONFIG, exit::CONFIG, exit::SYSTEM]);
    }
}
