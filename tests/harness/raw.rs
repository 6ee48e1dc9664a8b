//! A client that follows no rules: whatever bytes and messages a test likes, on the pool's socket.

#![expect(
    clippy::panic,
    clippy::wildcard_enum_match_arm,
    reason = "a test that hears something else than it expects says what it heard"
)]

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use gridpool_ipc::arena::{Arena, ArenaMap};
use gridpool_ipc::frame::{self, FrameError, FrameReader};
use gridpool_protocol::batch::{BatchLayout, Grid, GridBatch};
use gridpool_protocol::codec;
use gridpool_protocol::ids::{ArenaId, JobKey};
use gridpool_protocol::limits::PROTOCOL_VERSION;
use gridpool_protocol::message::{
    ClientMessage, Destination, Inline, Input, Packing, Payload, Priority, Refusal, ServerMessage,
    Slice, Submission, Terms, Work,
};
use gridpool_protocol::output::OutputLayout;
use gridpool_protocol::program::{Program, Ties};
use gridpool_protocol::receipt::{Receipt, Verdict};
use gridpool_protocol::shared::SharedSlice;

use super::wait::TIMEOUT;

/// A program that every test may use: two kernels, and a result that shows both.
pub const PROGRAM: &str = "rot90 | replace(1, 7)";

/// Compiles a program of a test.
///
/// # Panics
/// If it does not compile.
#[must_use]
pub fn program(text: &str) -> Program {
    Program::compile(text, Ties::Cpython).expect("the program is well formed")
}

/// One connection.
#[derive(Debug)]
pub struct Raw {
    reader: FrameReader,
}

/// A mapped arena of a connection.
#[derive(Debug)]
pub struct Memory {
    /// Its name.
    pub id: ArenaId,
    /// Where it is mapped here.
    pub map: ArenaMap,
    /// Its descriptor.
    pub arena: Arena,
}

impl Raw {
    /// A connection that has said nothing yet.
    ///
    /// # Panics
    /// If no pool listens there.
    #[must_use]
    pub fn connect(socket: &Path) -> Self {
        Self::try_connect(socket).expect("the pool accepts connections")
    }

    /// The same, of a pool that may be full or gone.
    ///
    /// # Errors
    /// The system's.
    pub fn try_connect(socket: &Path) -> io::Result<Self> {
        let socket = UnixStream::connect(socket)?;
        Ok(Self { reader: FrameReader::with_descriptors(socket) })
    }

    /// A connection that has shaken hands.
    ///
    /// # Panics
    /// If the pool does not shake hands.
    #[must_use]
    pub fn greeted(socket: &Path) -> Self {
        let mut raw = Self::connect(socket);
        raw.say(&ClientMessage::Hello { version: PROTOCOL_VERSION });
        let welcome = raw.hear();
        assert_eq!(welcome, ServerMessage::Welcome { version: PROTOCOL_VERSION });
        raw
    }

    /// The socket, to write to.
    #[must_use]
    pub fn socket(&self) -> &UnixStream {
        self.reader.socket()
    }

    /// Sends bytes; the pool may have hung up already.
    pub fn send(&self, bytes: &[u8]) {
        drop(self.socket().write_all(bytes));
    }

    /// Sends bytes with descriptors beside the first.
    pub fn send_with(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) {
        drop(frame::send_all(self.socket(), bytes, fds));
    }

    /// Sends a message.
    ///
    /// # Panics
    /// If it fits no frame.
    pub fn say(&self, message: &ClientMessage) {
        self.send(&frame::pack(&codec::encode(message).expect("it fits a frame"), 0));
    }

    /// The next message, or how the connection ended.
    ///
    /// # Errors
    /// How it ended.
    ///
    /// # Panics
    /// If nothing comes, or no message.
    pub fn try_hear(&mut self) -> Result<ServerMessage, FrameError> {
        Ok(self.try_hear_with_arena()?.0)
    }

    fn try_hear_with_arena(&mut self) -> Result<(ServerMessage, Option<Arena>), FrameError> {
        Ok(self.hear_within(TIMEOUT)?.expect("an answer before the timeout"))
    }

    /// The next message and the arena beside it; `None` if nothing comes in time.
    ///
    /// # Errors
    /// How the connection ended.
    ///
    /// # Panics
    /// If what comes is no message.
    pub fn hear_within(
        &mut self,
        timeout: Duration,
    ) -> Result<Option<(ServerMessage, Option<Arena>)>, FrameError> {
        let Some(frame) = self.reader.read(Some(timeout))? else { return Ok(None) };
        let message = codec::decode(&frame.body).expect("the pool speaks the protocol");
        let arena = match (&message, frame.fds.into_iter().next()) {
            (ServerMessage::ArenaCreated { bytes, .. }, Some(fd)) => {
                Some(Arena::accept(fd, *bytes).expect("the pool's arenas are sealed"))
            }
            _ => None,
        };
        Ok(Some((message, arena)))
    }

    /// The next message.
    ///
    /// # Panics
    /// If there is none.
    pub fn hear(&mut self) -> ServerMessage {
        self.try_hear().expect("the connection is open")
    }

    /// The pool's last sentence before it hangs up.
    ///
    /// # Panics
    /// If something else comes.
    pub fn hear_closing(&mut self) -> String {
        let reason = match self.hear() {
            ServerMessage::Closing { reason } => reason,
            other => panic!("expected the end of the connection, got {other:?}"),
        };
        self.is_hung_up();
        reason
    }

    /// Whether the pool has nothing more to say and has hung up.
    ///
    /// # Panics
    /// If something else comes.
    pub fn is_hung_up(&self) {
        self.socket().set_read_timeout(Some(TIMEOUT)).expect("a timeout can be set");
        let mut rest = Vec::new();
        // Where it had not read all we sent, the end of the connection is an error and not an EOF.
        if let Err(error) = self.socket().read_to_end(&mut rest) {
            assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{error}");
        }
        assert!(rest.is_empty(), "more after the last sentence: {rest:02x?}");
    }

    /// The verdict of the next job that has one.
    ///
    /// # Panics
    /// If something else comes.
    pub fn hear_done(&mut self) -> (JobKey, Receipt, Option<Inline>) {
        loop {
            match self.hear() {
                ServerMessage::Accepted { .. } => {}
                ServerMessage::Done { key, receipt, output, .. } => return (key, *receipt, output),
                other => panic!("expected a verdict, got {other:?}"),
            }
        }
    }

    /// The refusal of a submission.
    ///
    /// # Panics
    /// If something else comes.
    pub fn hear_refused(&mut self) -> Refusal {
        match self.hear() {
            ServerMessage::Refused { refusal, .. } => refusal,
            other => panic!("expected a refusal, got {other:?}"),
        }
    }

    /// Submits a job, which must be accepted.
    ///
    /// # Panics
    /// If something else comes.
    pub fn submit(&mut self, submission: Submission) {
        let key = submission.key;
        self.say(&ClientMessage::Submit(Box::new(submission)));
        assert_eq!(self.hear(), ServerMessage::Accepted { key });
    }

    /// Asks for an arena, which must be given.
    ///
    /// # Panics
    /// If something else comes.
    pub fn arena(&mut self, bytes: u64) -> Memory {
        self.try_arena(bytes).expect("an arena")
    }

    /// Asks for an arena.
    ///
    /// # Errors
    /// Why the pool gives none.
    ///
    /// # Panics
    /// If something else comes.
    pub fn try_arena(&mut self, bytes: u64) -> Result<Memory, Refusal> {
        self.say(&ClientMessage::CreateArena { request: 1, bytes });
        match self.try_hear_with_arena().expect("the connection is open") {
            (ServerMessage::ArenaCreated { arena: id, .. }, Some(arena)) => {
                Ok(Memory { id, map: arena.map().expect("it can be mapped"), arena })
            }
            (ServerMessage::Denied { refusal, .. }, _) => Err(refusal),
            (other, _) => panic!("expected an arena, got {other:?}"),
        }
    }
}

/// A well-formed job of these grids, inline.
///
/// # Panics
/// If they are no batch.
#[must_use]
pub fn inline(key: u128, grids: &[Grid]) -> Submission {
    let batch = GridBatch::from_grids(grids).expect("the batch is within the limits");
    inline_batch(key, PROGRAM, &batch)
}

/// A well-formed job of this batch, inline.
///
/// # Panics
/// If the batch is empty.
#[must_use]
pub fn inline_batch(key: u128, program: &str, batch: &GridBatch) -> Submission {
    let layout = batch.layout().expect("the batch has an item");
    let mut bytes = vec![0; layout.bytes()];
    batch.write_to(layout, &SharedSlice::private(&mut bytes));
    submission(key, program, layout, Input::Inline(Inline(bytes)), Destination::Inline)
}

/// A well-formed job of these grids, written to the start of an arena, its result behind it.
///
/// # Panics
/// If they are no batch, or do not fit.
#[must_use]
pub fn in_arena(key: u128, grids: &[Grid], memory: &Memory) -> Submission {
    let batch = GridBatch::from_grids(grids).expect("the batch is within the limits");
    in_arena_batch(key, &program(PROGRAM), &batch, memory)
}

/// A well-formed job of this batch, written to the start of an arena, its result behind it.
///
/// # Panics
/// If the batch is not what the program takes, or does not fit.
#[must_use]
pub fn in_arena_batch(
    key: u128,
    program: &Program,
    batch: &GridBatch,
    memory: &Memory,
) -> Submission {
    let layout = batch.layout().expect("the batch has an item");
    batch.write_to(layout, &memory.map.all());
    let slice = |offset: usize, bytes: usize| Slice {
        arena: memory.id,
        offset: offset as u64,
        bytes: bytes as u64,
    };
    let output = OutputLayout::new(program, layout).expect("a small result").bytes();
    let (input, output) = (slice(0, layout.bytes()), slice(layout.bytes(), output));
    submission(key, program.text(), layout, Input::Arena(input), Destination::Arena(output))
}

fn submission(
    key: u128,
    program: &str,
    layout: BatchLayout,
    input: Input,
    output: Destination,
) -> Submission {
    let packing = Packing::Grids {
        items: u32::try_from(layout.items()).expect("a few"),
        cells: u32::try_from(layout.cell_count()).expect("a few"),
    };
    let (deadline_ms, priority) = (60_000, Priority::Normal);
    Submission {
        key: JobKey(key),
        work: Work::Program {
            text: program.to_owned(),
            ties: Ties::Cpython,
            steps: gridpool_protocol::limits::STEPS_DEFAULT,
        },
        payload: Payload { packing, input, output },
        terms: Terms { deadline_ms, priority, idempotent: true, chaos: None },
        jobs: 1,
        principal: None,
        trace: None,
        trace_state: None,
        tell_acceptance: true,
    }
}

/// Items and cells of a submission, as it says them.
///
/// # Panics
/// If it is not over grids.
pub fn counts(submission: &mut Submission) -> (&mut u32, &mut u32) {
    match &mut submission.payload.packing {
        Packing::Grids { items, cells } => (items, cells),
        Packing::Search(_) | Packing::Tensors => panic!("a submission over something else"),
    }
}

/// The text of a submitted program.
///
/// # Panics
/// If it is a model's.
pub fn text(submission: &mut Submission) -> &mut String {
    match &mut submission.work {
        Work::Program { text, .. } => text,
        Work::Model { .. } | Work::Search { .. } => panic!("a submission of something else"),
    }
}

/// Where a job in an arena keeps its batch.
///
/// # Panics
/// If it has none.
#[must_use]
pub fn layout(submission: &Submission) -> BatchLayout {
    let Packing::Grids { items, cells } = submission.payload.packing else {
        panic!("a submission over tensors")
    };
    BatchLayout::new(items, 1, cells).expect("it is within the limits")
}

/// Whether a verdict is OK.
///
/// # Panics
/// If it is not.
#[track_caller]
pub fn is_ok(receipt: &Receipt) {
    assert_eq!(receipt.verdict, Verdict::Ok, "{receipt:?}");
}

/// A descriptor to pass.
///
/// # Panics
/// Never: it is always there.
#[must_use]
pub fn dev_null() -> std::fs::File {
    std::fs::File::open("/dev/null").expect("it is always there")
}

/// The same descriptor many times.
#[must_use]
pub fn times(file: &std::fs::File, count: usize) -> Vec<BorrowedFd<'_>> {
    std::iter::repeat_n(file.as_fd(), count).collect()
}
