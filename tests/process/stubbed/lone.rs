//! One GPU worker by itself, with the test in its supervisor's place: from its start over a job in a
//! message and one in an arena to its end.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;

use gridpool_ipc::arena::Arena;
use gridpool_ipc::channel::{ReplyReader, Sender};
use gridpool_ipc::frame;
use gridpool_kernels::reference::run_batch;
use gridpool_protocol::batch::GridBatch;
use gridpool_protocol::ids::{ArenaId, AttemptId, ClientId, JobId};
use gridpool_protocol::message::{
    Assignment, AttemptError, Destination, Dispatch, FromWorker, Inline, Input, OnLifeline,
    Packing, Payload, Priority, SharedArena, Slice, ToWorker, Work,
};
use gridpool_protocol::output::{OutputLayout, Outputs};
use gridpool_protocol::program::{Program, Ties};
use gridpool_protocol::receipt::ItemRange;
use gridpool_protocol::shared::SharedSlice;
use gridpool_protocol::{codec, limits, position};
use gridpool_stub_cuda::machine::uuid_text;
use gridpool_tests::oracle::samples::random_grids;

use super::{SCRIPT, driver_in, in_folder, make};
use crate::binaries;
use crate::jobs::program;
use crate::processes::Process;
use crate::wait::within;

/// With its result there is too much for kernels to work on in the host's memory, so that it is copied both ways.
const TEXT: &str = "o_g(5)";
const ARENA: ArenaId = ArenaId(7);

/// What became of a worker.
#[derive(Debug)]
pub(super) struct Story {
    pub(super) is_ready: bool,
    /// Of the job in a message, the job in the arena, and one more in a message.
    pub(super) answers: Vec<Result<(), AttemptError>>,
    pub(super) last_words: Option<(i32, String)>,
    pub(super) exit: ExitStatus,
}

/// The life of a worker whose driver obeys a script. The files `job` and `arena` of its folder are made
/// before the first job and before the second.
pub(super) fn live(script: &str) -> Story {
    let script = script.to_owned();
    // It may have to be built first, which is no part of its life.
    binaries::worker();
    within("a worker to live and end", move || {
        let folder = tempfile::tempdir().expect("a folder for temporary files");
        let mut worker = Lone::start(folder.path(), &script);
        worker.serve(folder.path());
        worker.end()
    })
}

struct Lone {
    process: Process,
    lifeline: UnixStream,
    replies: ReplyReader,
    requests: Option<Sender>,
    is_ready: bool,
    has_forgot: bool,
    answers: Vec<Result<(), AttemptError>>,
    last_words: Option<(i32, String)>,
    program: Program,
    batch: Arc<GridBatch>,
    arena: Arena,
    /// What it records its position in.
    position: Arena,
}

impl Lone {
    fn start(folder: &Path, script: &str) -> Self {
        let (ours, theirs) = UnixStream::pair().expect("a pair of sockets");
        let mut command = Command::new(binaries::worker());
        command
            .args(["grid", "--worker", "gpu0#1", "--uuid", &uuid_text(0), "--boot-folder"])
            .arg(std::env::temp_dir())
            .args(["--supervisor-pid", &std::process::id().to_string(), "--sandbox-write"])
            .arg(folder)
            .env("CUDA_VISIBLE_DEVICES", uuid_text(0))
            .env("LD_LIBRARY_PATH", driver_in(folder))
            .env(SCRIPT, in_folder(script, folder))
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let process = Process::new(command.spawn().expect("the worker can be started"));
        let lifeline = ours.try_clone().expect("a descriptor");
        let batch = GridBatch::from_grids(&random_grids(61, 60)).expect("a few grids");
        Self {
            process,
            lifeline,
            replies: ReplyReader::new(ours),
            requests: None,
            is_ready: false,
            has_forgot: false,
            answers: Vec::new(),
            last_words: None,
            program: program(TEXT),
            batch: Arc::new(batch),
            arena: Arena::create(limits::ARENA_BYTES_MIN).expect("an arena"),
            position: Arena::named("position", (position::WORDS * size_of::<u64>()) as u64)
                .expect("an arena"),
        }
    }

    /// Goes through all that a worker does, until it ends.
    fn serve(&mut self, folder: &Path) {
        self.send_arena(ArenaId::POSITION, &self.position);
        if !self.hears(|worker| worker.is_ready) {
            return;
        }
        make(folder, "job");
        self.run(Input::Inline(Inline(self.input())), Destination::Inline);
        if !self.hears(|worker| worker.answers.len() == 1) {
            return;
        }
        make(folder, "arena");
        let (input, output) = self.places();
        self.arena.map().expect("the arena can be mapped").all().write(0, &self.input());
        self.send_arena(ARENA, &self.arena);
        self.run(Input::Arena(input), Destination::Arena(output));
        if !self.hears(|worker| worker.answers.len() == 2) {
            return;
        }
        self.say(ToWorker::Forget { arenas: vec![ARENA] });
        if !self.hears(|worker| worker.has_forgot) {
            return;
        }
        self.run(Input::Inline(Inline(self.input())), Destination::Inline);
        if self.hears(|worker| worker.answers.len() == 3) {
            self.say(ToWorker::Stop);
        }
    }

    fn end(mut self) -> Story {
        let exit = self.process.exit();
        let Self { is_ready, answers, last_words, .. } = self;
        Story { is_ready, answers, last_words, exit }
    }

    /// Listens until something is so; `false` if the worker has nothing to say any more.
    fn hears(&mut self, is_so: impl Fn(&Self) -> bool) -> bool {
        while !is_so(self) {
            match self.replies.recv().ok() {
                Some(FromWorker::Hello { listens_at, .. }) => {
                    self.requests = Some(Sender::connect(&listens_at).expect("it listens"));
                }
                Some(FromWorker::Ready { .. }) => self.is_ready = true,
                Some(FromWorker::Forgot) => self.has_forgot = true,
                Some(FromWorker::Answer { result, .. }) => {
                    let answer = result.map(|answer| self.check(answer.output));
                    self.answers.push(answer);
                }
                Some(FromWorker::Answers(together)) => {
                    let mut results = Vec::new();
                    together.each(|_, result| results.push(result)).expect("it reports well");
                    for result in results {
                        let answer = result.map(|answer| self.check(answer.output));
                        self.answers.push(answer);
                    }
                }
                Some(FromWorker::Dying { code, message, .. }) => {
                    self.last_words = Some((code, message));
                }
                Some(
                    FromWorker::Heartbeat { .. }
                    | FromWorker::Loading { .. }
                    | FromWorker::Models { .. }
                    | FromWorker::CommandEnded { .. },
                ) => {}
                None => return false,
            }
        }
        true
    }

    /// A result is what the reference gives, wherever it lies.
    fn check(&self, inline: Option<Inline>) {
        let bytes = inline.map_or_else(
            || {
                let (_, place) = self.places();
                let map = self.arena.map().expect("the arena can be mapped");
                let mut bytes = vec![0; self.output_bytes()];
                let place = map.all().part(place.offset, place.bytes).expect("it lies within");
                place.read(0, &mut bytes);
                bytes
            },
            |Inline(bytes)| bytes,
        );
        let got = Outputs::new(self.program.clone(), Arc::clone(&self.batch), bytes);
        let want = run_batch(&self.program, &self.batch).expect("the reference runs it");
        let got = got.expect("a result has its layout's length");
        for item in 0..self.batch.len() {
            assert_eq!(got.item(item), want.item(item), "item {item}");
        }
    }

    fn say(&self, message: ToWorker) {
        let to = self.requests.as_ref().expect("it has connected");
        // One that has just ended does not listen, and what it said last is read all the same.
        drop(to.send(&message));
    }

    fn run(&self, input: Input, output: Destination) {
        let layout = self.batch.layout().expect("it has grids");
        let count = |n: usize| u32::try_from(n).expect("a small batch");
        let (items, cells) = (count(layout.items()), count(layout.cell_count()));
        let number = count(self.answers.len()) + 1;
        let attempt = AttemptId { job: JobId(1), number };
        let payload = Payload { packing: Packing::Grids { items, cells }, input, output };
        let assignment = Assignment {
            attempt,
            client: ClientId(1),
            priority: Priority::Normal,
            payload,
            shard: ItemRange { start: 0, end: items },
            deadline_ms: 60_000,
            trace: None,
            chaos: None,
        };
        let work = Work::Program {
            text: TEXT.to_owned(),
            ties: Ties::Cpython,
            steps: limits::STEPS_DEFAULT,
        };
        let assignments = vec![assignment];
        self.say(ToWorker::Dispatch(Box::new(Dispatch { work, assignments })));
    }

    fn input(&self) -> Vec<u8> {
        let layout = self.batch.layout().expect("it has grids");
        let mut bytes = vec![0; layout.bytes()];
        self.batch.write_to(layout, &SharedSlice::private(&mut bytes));
        bytes
    }

    fn output_bytes(&self) -> usize {
        let layout = self.batch.layout().expect("it has grids");
        OutputLayout::new(&self.program, layout).expect("it fits a job").bytes()
    }

    /// The halves of the arena.
    fn places(&self) -> (Slice, Slice) {
        let slice = |offset, bytes: usize| Slice { arena: ARENA, offset, bytes: bytes as u64 };
        (slice(0, self.input().len()), slice(self.arena.bytes() / 2, self.output_bytes()))
    }

    /// A worker that has ended does not read it.
    fn send_arena(&self, arena: ArenaId, memory: &Arena) {
        let message = OnLifeline::Arena(SharedArena { arena, bytes: memory.bytes() });
        let body = codec::encode(&message).expect("it fits a frame");
        let fds = [memory.as_fd()];
        drop(frame::send_all(&self.lifeline, &frame::pack(&body, fds.len()), &fds));
    }
}
