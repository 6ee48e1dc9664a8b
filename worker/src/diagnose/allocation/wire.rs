//! A connection to the pool that says what no client of the library can say: sizes and shapes that
//! there are not.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use gridpool_protocol::arena::{Arena, ArenaError};
use gridpool_protocol::codec;
use gridpool_protocol::frame::{self, FrameError, FrameReader};
use gridpool_protocol::ids::ArenaId;
use gridpool_protocol::limits::PROTOCOL_VERSION;
use gridpool_protocol::message::{
    ClientMessage, InferSubmission, Refusal, ServerMessage, Submission,
};
use gridpool_protocol::receipt::Receipt;

/// How long an answer may take: a job of a few grids on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Why nothing more can be said on a connection.
#[derive(Debug, thiserror::Error)]
pub(super) enum WireError {
    /// What came with an arena is none.
    #[error("an arena of the pool cannot be used")]
    Arena(#[from] ArenaError),
    /// What the pool says is no message.
    #[error("what the pool says")]
    Decode(#[from] codec::DecodeError),
    /// What is to be said fits no message.
    #[error("a message")]
    Encode(#[from] codec::EncodeError),
    /// The socket fails.
    #[error("the pool's socket")]
    Frame(#[from] FrameError),
    /// The socket cannot be written to, or is not there.
    #[error("the pool's socket")]
    Io(#[from] std::io::Error),
    /// The pool does not answer.
    #[error("the pool has not answered for {} s", PATIENCE.as_secs())]
    Silent,
    /// It answers something else than it should.
    #[error("the pool answers {0}")]
    Unexpected(String),
}

/// What became of a submission.
#[derive(Debug)]
pub(super) enum Outcome {
    /// It was not accepted.
    Refused(Refusal),
    /// It was accepted and has a verdict.
    Done(Box<Receipt>),
}

/// One connection, that has shaken hands.
pub(super) struct Wire {
    reader: FrameReader,
}

impl Wire {
    pub(super) fn connect(socket: &Path) -> Result<Self, WireError> {
        let socket = UnixStream::connect(socket)?;
        let mut wire = Self { reader: FrameReader::with_descriptors(socket) };
        wire.say(&ClientMessage::Hello { version: PROTOCOL_VERSION })?;
        let message = wire.hear()?.0;
        let is_welcome = matches!(message, ServerMessage::Welcome { .. });
        if is_welcome { Ok(wire) } else { Err(unexpected(&message)) }
    }

    /// Asks for an arena; the inner error is the pool's refusal.
    pub(super) fn arena(
        &mut self,
        bytes: u64,
    ) -> Result<Result<(ArenaId, Arena), Refusal>, WireError> {
        self.say(&ClientMessage::CreateArena { request: 1, bytes })?;
        match self.hear()? {
            (ServerMessage::ArenaCreated { arena, .. }, Some(made)) => Ok(Ok((arena, made))),
            (ServerMessage::Denied { refusal, .. }, _) => Ok(Err(refusal)),
            (other, _) => Err(unexpected(&other)),
        }
    }

    /// Gives an arena back.
    pub(super) fn drop_arena(&mut self, arena: ArenaId) -> Result<(), WireError> {
        self.say(&ClientMessage::DropArena { arena })
    }

    /// Submits a job.
    pub(super) fn submit(&mut self, submission: Submission) -> Result<Outcome, WireError> {
        self.outcome(&ClientMessage::Submit(Box::new(submission)))
    }

    /// Asks a model.
    pub(super) fn infer(&mut self, submission: InferSubmission) -> Result<Outcome, WireError> {
        self.outcome(&ClientMessage::Infer(Box::new(submission)))
    }

    fn outcome(&mut self, message: &ClientMessage) -> Result<Outcome, WireError> {
        self.say(message)?;
        loop {
            let message = self.hear()?.0;
            if let ServerMessage::Refused { refusal, .. } = message {
                return Ok(Outcome::Refused(refusal));
            }
            if let ServerMessage::Done { receipt, .. } = message {
                return Ok(Outcome::Done(receipt));
            }
            if !matches!(message, ServerMessage::Accepted { .. }) {
                return Err(unexpected(&message));
            }
        }
    }

    fn say(&mut self, message: &ClientMessage) -> Result<(), WireError> {
        let packed = frame::pack(&codec::encode(message)?, 0);
        Ok(frame::send_all(self.reader.socket(), &packed, &[])?)
    }

    fn hear(&mut self) -> Result<(ServerMessage, Option<Arena>), WireError> {
        let frame = self.reader.read(Some(PATIENCE))?.ok_or(WireError::Silent)?;
        let message: ServerMessage = codec::decode(&frame.body)?;
        let arena = match (&message, frame.fds.into_iter().next()) {
            (ServerMessage::ArenaCreated { bytes, .. }, Some(fd)) => {
                Some(Arena::accept(fd, *bytes)?)
            }
            _ => None,
        };
        Ok((message, arena))
    }
}

fn unexpected(message: &ServerMessage) -> WireError {
    if let ServerMessage::Closing { reason } = message {
        return WireError::Unexpected(format!("that it closes the connection: {reason}"));
    }
    WireError::Unexpected(format!("{message:?}"))
}
