//! A client that follows no rules: whatever bytes and messages a test likes, on the pool's socket.

use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

use gridpool_protocol::arena::{Arena, ArenaMap};
use gridpool_protocol::batch::{BatchLayout, Grid, GridBatch};
use gridpool_protocol::codec;
use gridpool_protocol::frame::{self, FrameError, FrameReader};
use gridpool_protocol::ids::{ArenaId, JobKey};
use gridpool_protocol::limits::PROTOCOL_VERSION;
use gridpool_protocol::message::{
    Call, ClientMessage, Destination, Inline, Input, Payload, Priority, Refusal, ServerMessage,
    Slice, Submission,
};
use gridpool_protocol::output::OutputLayout;
use gridpool_protocol::program::Ties;
use gridpool_protocol::receipt::{Receipt, Verdict};
use gridpool_protocol::shared::SharedSlice;

use crate::jobs::{PROGRAM, program};
use crate::wait::PATIENCE;

/// One connection.
#[derive(Debug)]
pub(crate) struct Raw {
    reader: FrameReader,
}

/// A mapped arena of a connection.
#[derive(Debug)]
pub(crate) struct Memory {
    pub(crate) id: ArenaId,
    pub(crate) map: ArenaMap,
    pub(crate) arena: Arena,
}

impl Raw {
    /// A connection that has said nothing yet.
    pub(crate) fn connect(socket: &Path) -> Self {
        let socket = UnixStream::connect(socket).expect("the pool accepts connections");
        Self { reader: FrameReader::with_descriptors(socket) }
    }

    /// A connection that has shaken hands.
    pub(crate) fn greeted(socket: &Path) -> Self {
        let mut raw = Self::connect(socket);
        raw.say(&ClientMessage::Hello { version: PROTOCOL_VERSION });
        let welcome = raw.hear();
        assert_eq!(welcome, ServerMessage::Welcome { version: PROTOCOL_VERSION });
        raw
    }

    pub(crate) fn socket(&self) -> &UnixStream {
        self.reader.socket()
    }

    /// Sends bytes; the pool may have hung up already.
    pub(crate) fn send(&self, bytes: &[u8]) {
        drop(self.socket().write_all(bytes));
    }

    /// Sends bytes with descriptors beside the first.
    pub(crate) fn send_with(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) {
        drop(frame::send_all(self.socket(), bytes, fds));
    }

    pub(crate) fn say(&self, message: &ClientMessage) {
        self.send(&frame::pack(&codec::encode(message).expect("it fits a frame"), 0));
    }

    /// The next message, or how the connection ended.
    pub(crate) fn try_hear(&mut self) -> Result<ServerMessage, FrameError> {
        Ok(self.try_hear_with_arena()?.0)
    }

    fn try_hear_with_arena(&mut self) -> Result<(ServerMessage, Option<Arena>), FrameError> {
        let frame = self.reader.read(Some(PATIENCE))?.expect("an answer within our patience");
        let message = codec::decode(&frame.body).expect("the pool speaks the protocol");
        let arena = match (&message, frame.fds.into_iter().next()) {
            (ServerMessage::ArenaCreated { bytes, .. }, Some(fd)) => {
                Some(Arena::accept(fd, *bytes).expect("the pool's arenas are sealed"))
            }
            _ => None,
        };
        Ok((message, arena))
    }

    pub(crate) fn hear(&mut self) -> ServerMessage {
        self.try_hear().expect("the connection is open")
    }

    /// The pool's last sentence before it hangs up.
    pub(crate) fn hear_closing(&mut self) -> String {
        let reason = match self.hear() {
            ServerMessage::Closing { reason } => reason,
            other => panic!("expected the end of the connection, got {other:?}"),
        };
        self.is_hung_up();
        reason
    }

    /// Whether the pool has nothing more to say and has hung up.
    pub(crate) fn is_hung_up(&self) {
        self.socket().set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
        let mut rest = Vec::new();
        // Where it had not read all we sent, the end of the connection is an error and not an EOF.
        if let Err(error) = self.socket().read_to_end(&mut rest) {
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}");
        }
        assert!(rest.is_empty(), "more after the last sentence: {rest:02x?}");
    }

    /// The verdict of the next job that has one.
    pub(crate) fn hear_done(&mut self) -> (JobKey, Receipt, Option<Inline>) {
        loop {
            match self.hear() {
                ServerMessage::Accepted { .. } => {}
                ServerMessage::Done { key, receipt, output, .. } => return (key, *receipt, output),
                other => panic!("expected a verdict, got {other:?}"),
            }
        }
    }

    /// The refusal of a submission.
    pub(crate) fn hear_refused(&mut self) -> Refusal {
        match self.hear() {
            ServerMessage::Refused { refusal, .. } => refusal,
            other => panic!("expected a refusal, got {other:?}"),
        }
    }

    /// Submits a job, which must be accepted.
    pub(crate) fn submit(&mut self, submission: Submission) {
        let key = submission.key;
        self.say(&ClientMessage::Submit(Box::new(submission)));
        assert_eq!(self.hear(), ServerMessage::Accepted { key });
    }

    /// Asks for an arena, which must be given.
    pub(crate) fn arena(&mut self, bytes: u64) -> Memory {
        self.say(&ClientMessage::CreateArena { request: 1, bytes });
        match self.try_hear_with_arena().expect("the connection is open") {
            (ServerMessage::ArenaCreated { arena: id, .. }, Some(arena)) => {
                Memory { id, map: arena.map().expect("it can be mapped"), arena }
            }
            (other, _) => panic!("expected an arena, got {other:?}"),
        }
    }
}

/// A well-formed job of these grids, inline.
pub(crate) fn inline(key: u128, grids: &[Grid]) -> Submission {
    let batch = GridBatch::from_grids(grids).expect("the batch is within the limits");
    inline_batch(key, PROGRAM, &batch)
}

/// A well-formed job of this batch, inline.
pub(crate) fn inline_batch(key: u128, program: &str, batch: &GridBatch) -> Submission {
    let layout = batch.layout().expect("the batch has an item");
    let mut bytes = vec![0; layout.bytes()];
    batch.write_to(layout, &SharedSlice::private(&mut bytes));
    Submission {
        key: JobKey(key),
        call: Call {
            program: program.to_owned(),
            ties: Ties::Cpython,
            payload: Payload {
                items: u32::try_from(layout.items()).expect("a few"),
                cells: u32::try_from(layout.cell_count()).expect("a few"),
                input: Input::Inline(Inline(bytes)),
                output: Destination::Inline,
            },
        },
        deadline_ms: 60_000,
        priority: Priority::Normal,
        idempotent: true,
        chaos: None,
    }
}

/// A well-formed job of these grids, written to the start of an arena, its result behind it.
pub(crate) fn in_arena(key: u128, grids: &[Grid], memory: &Memory) -> Submission {
    let batch = GridBatch::from_grids(grids).expect("the batch is within the limits");
    let layout = batch.layout().expect("the batch has a grid");
    batch.write_to(layout, &memory.map.all());
    let slice = |offset: usize, bytes: usize| Slice {
        arena: memory.id,
        offset: offset as u64,
        bytes: bytes as u64,
    };
    let output = OutputLayout::new(&program(PROGRAM), layout).expect("a small result").bytes();
    let mut submission = inline(key, grids);
    submission.call.payload.input = Input::Arena(slice(0, layout.bytes()));
    submission.call.payload.output = Destination::Arena(slice(layout.bytes(), output));
    submission
}

/// Where a job in an arena keeps its batch.
pub(crate) fn layout(submission: &Submission) -> BatchLayout {
    BatchLayout::new(submission.call.payload.items, 1, submission.call.payload.cells)
        .expect("it is within the limits")
}

/// Whether a verdict is OK.
#[track_caller]
pub(crate) fn is_ok(receipt: &Receipt) {
    assert_eq!(receipt.verdict, Verdict::Ok, "{receipt:?}");
}

/// A descriptor to pass.
pub(crate) fn dev_null() -> std::fs::File {
    std::fs::File::open("/dev/null").expect("it is always there")
}

/// The same descriptor many times.
pub(crate) fn times(file: &std::fs::File, count: usize) -> Vec<BorrowedFd<'_>> {
    std::iter::repeat_n(file.as_fd(), count).collect()
}
