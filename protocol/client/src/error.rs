//! The errors of a client.

use std::io;
use std::path::{Path, PathBuf};

use gridpool_ipc::account::{Account, Barrier};
use gridpool_ipc::arena::ArenaError;
use gridpool_ipc::frame::FrameError;
use gridpool_protocol::batch::BatchError;
use gridpool_protocol::message::{Refusal, ServerMessage};
use gridpool_protocol::output::MalformedOutput;
use gridpool_protocol::search::SearchError;
use gridpool_protocol::tensor::TensorError;

/// Why a call of the client failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The batch is invalid.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// A verdict of a search could not be compared with another machine's ([`Check`](crate::Check)): that gave none.
    #[error(
        "the check of a verdict failed, and with it the search: {why}; the verdict may be right"
    )]
    CheckFailed {
        /// What the checker says.
        why: String,
    },
    /// The cluster cannot be reached, or has no pool yet.
    #[error("{0}")]
    Cluster(String),
    /// The supervisor closed the connection and said why.
    #[error("the pool closed the connection: {0}")]
    Closed(String),
    /// The socket failed during the handshake, or the peer does not speak this protocol.
    #[error(
        "the pool and this program do not understand each other: check that the socket is a pool's, and \
         that both come from one build"
    )]
    Connection(#[source] io::Error),
    /// The connection was lost, and the client could not reconnect in time.
    #[error(
        "the connection to the pool was lost; it is unknown whether this request was carried out: check \
         that the pool runs, then send the request again if it may run twice"
    )]
    Lost,
    /// The result is not one that the program can give.
    #[error(transparent)]
    Malformed(#[from] MalformedOutput),
    /// Shared memory could not be mapped.
    #[error(
        "this process cannot map the pool's shared memory: raise its limit of memory (`ulimit -v`, or that \
         of its container) or send smaller batches"
    )]
    Memory(#[source] io::Error),
    /// No pool answers at the socket.
    #[error("no pool is running at {}", path.display())]
    NoPool {
        /// The socket.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// This user may not connect to the socket.
    #[error(
        "a pool may be running at {}, but you ({me}) may not connect to it: {}",
        path.display(), barrier_words(.barrier, .me)
    )]
    NotAllowed {
        /// The socket.
        path: PathBuf,
        /// The file or folder that keeps this user out, if it is known.
        barrier: Option<Barrier>,
        /// This user.
        me: Account,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The pool belongs to another user. Nothing was sent to it.
    #[error(
        "the pool at {} belongs to {owner} and serves only that user; you are {me}: connect as that user, or \
         to a pool of your own", path.display()
    )]
    OtherUser {
        /// The socket.
        path: PathBuf,
        /// The pool's user.
        owner: Account,
        /// This user.
        me: Account,
    },
    /// The pool belongs to another user, and its socket may be a third one's. Nothing was sent to it.
    #[error(
        "the pool at {} belongs to {owner}, and you are {me}: others than {owner} could exchange {}, and you \
         would speak to another pool; name a socket whose folders only {owner} and root can change",
        path.display(), barrier.words()
    )]
    Replaceable {
        /// The socket.
        path: PathBuf,
        /// The pool's user.
        owner: Account,
        /// This user.
        me: Account,
        /// What could be exchanged, and whose it is.
        barrier: Barrier,
    },
    /// The pool refused the request.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The search cannot run.
    #[error(transparent)]
    Search(#[from] SearchError),
    /// The pool did not answer in time, although it is connected.
    #[error("the pool does not answer: it may be stopped or overloaded; its log says more")]
    Silent,
    /// The system gave this process no file, thread or random number.
    #[error(
        "the system gave the client no file, thread or random number: raise the limits of this process \
         (`ulimit -n`, `ulimit -u`)"
    )]
    System(#[source] io::Error),
    /// [`Handle::try_wait`](crate::Handle::try_wait) has returned the answer before.
    #[error("the answer to this job was taken already: keep it when try_wait first returns it")]
    Taken,
    /// The outputs of a model are not valid tensors. A [`TensorError`] of your own inputs does not turn into
    /// this:
    ///
    /// ```compile_fail,E0277
    /// # use gridpool_client::{ClientError, ModelInput};
    /// fn input() -> Result<ModelInput, ClientError> {
    ///     Ok(ModelInput::new("x", [2], vec![0_u8; 3])?)
    /// }
    /// ```
    #[error("the outputs cannot be read")]
    Tensors(#[source] TensorError),
    /// The pool sent another answer than the expected one.
    #[error("the pool sent an unexpected answer: {0}")]
    Unexpected(String),
    /// The supervisor speaks another version of the protocol.
    #[error("the supervisor speaks protocol {theirs}, this client {ours}: use both of one build")]
    Version {
        /// The supervisor's.
        theirs: u32,
        /// The client's.
        ours: u32,
    },
    /// A verdict of a search is wrong: a device computes wrongly, or the pool is of another build.
    #[error(
        "a verdict of program {program} of a job is wrong: {why}; do not trust the results of this search, and check \
         the devices with `gridpool diagnose`"
    )]
    WrongVerdict {
        /// The program's position in its job.
        program: usize,
        /// What differs.
        why: String,
    },
}

impl From<FrameError> for ClientError {
    fn from(error: FrameError) -> Self {
        Self::Connection(io::Error::other(error))
    }
}

impl From<ArenaError> for ClientError {
    fn from(error: ArenaError) -> Self {
        Self::Memory(io::Error::other(error))
    }
}

fn barrier_words(barrier: &Option<Barrier>, me: &Account) -> String {
    match barrier {
        Some(Barrier { path, owner }) if owner == me => {
            format!("{0} is yours, but closed: type `chmod u+rwx {0}`", path.display())
        }
        Some(Barrier { path, owner }) => {
            let path = path.display();
            format!("{path} belongs to {owner}: connect as that user, or to a pool of your own")
        }
        None => "connect as the user that started it, or to a pool of your own".to_owned(),
    }
}

impl ClientError {
    /// The error for a failed connect.
    pub(super) fn connecting(path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        if source.kind() == io::ErrorKind::PermissionDenied {
            let barrier = Barrier::of(&path);
            return Self::NotAllowed { path, barrier, me: Account::mine(), source };
        }
        Self::NoPool { path, source }
    }

    /// The error for another message than the expected one.
    pub(super) fn unexpected(message: &ServerMessage) -> Self {
        if let ServerMessage::Denied { refusal, .. } = message {
            return refusal.clone().into();
        }
        if let ServerMessage::Closing { reason } = message {
            return Self::Closed(reason.clone());
        }
        Self::Unexpected(format!("{message:?}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gridpool_protocol::chain::Chain;

    #[test]
    fn a_socket_that_this_user_may_not_reach_is_not_called_a_missing_pool() {
        let said = |path: &Path, kind: io::ErrorKind| {
            Chain(&ClientError::connecting(path, kind.into())).to_string()
        };
        let denied = said(Path::new("/nowhere/pool.sock"), io::ErrorKind::PermissionDenied);
        let me = Account::mine();
        let start = format!("a pool may be running at /nowhere/pool.sock, but you ({me}) may not");
        assert!(denied.starts_with(&start) && denied.contains(" to it: / "), "{denied}");
        let seen = Barrier { path: "/".into(), owner: Account::new(0) };
        assert_eq!(Barrier::of(Path::new("/nowhere/pool.sock")), Some(seen));
        let gone = said(Path::new("pool.sock"), io::ErrorKind::ConnectionRefused);
        assert!(gone.starts_with("no pool is running at pool.sock"), "{gone}");
    }

    #[test]
    fn errors_of_the_connection_and_of_memory_say_what_to_do() {
        let why = || io::Error::other("WHY");
        for (error, remedy) in [
            (ClientError::Connection(why()), "check that the socket is a pool's"),
            (ClientError::Memory(why()), "raise its limit of memory"),
            (ClientError::System(why()), "raise the limits of this process"),
            (ClientError::Lost, "send the request again if it may run twice"),
            (ClientError::Silent, "its log says more"),
            (ClientError::Version { theirs: 1, ours: 2 }, "use both of one build"),
        ] {
            let has_cause = std::error::Error::source(&error).is_some();
            let said = Chain(&error).to_string();
            assert!(said.contains(remedy) && said.ends_with(": WHY") == has_cause, "{said}");
        }
    }

    #[test]
    fn the_barrier_is_named_with_its_owner() {
        let [me, theirs] = [7, 4_000_007].map(Account::new);
        let barrier = |owner| Some(Barrier { path: "/run/theirs".into(), owner });
        let said = barrier_words(&barrier(theirs), &me);
        assert!(said.starts_with("/run/theirs belongs to user 4000007: connect as"), "{said}");
        let said = barrier_words(&barrier(me), &me);
        assert_eq!(said, "/run/theirs is yours, but closed: type `chmod u+rwx /run/theirs`");
    }
}
