//! A client and a supervisor that follows a script.

mod at_once;
mod busy;
#[cfg(feature = "async")]
mod futures;
mod greeting;
mod polling;
mod sleepers;
#[cfg(feature = "async")]
mod watch;

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread;
use std::time::Duration;

use super::*;
use crate::ClientError;
use gridpool_ipc::arena::{Arena, ArenaMap};
use gridpool_ipc::frame::{self, FrameReader};
use gridpool_protocol::codec;
use gridpool_protocol::ids::ArenaId;
use gridpool_protocol::limits::{INLINE_BYTES_MAX, PROTOCOL_VERSION};
use gridpool_protocol::message::{
    ClientMessage, Destination, DeviceModel, Inline, Input, Limit, Reply, ServerMessage,
    Submission, Work,
};
use gridpool_protocol::receipt::{Receipt, RunReport, Verdict};
use gridpool_protocol::tensor::model::{ModelInfo, ModelState};
use gridpool_protocol::tensor::{
    ANY_SIZE, DataType, Tensor, TensorError, TensorLayout, TensorSpec,
};

/// How long the script waits for the client's next message.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Bytes of a tensor that goes into an arena.
const LARGE: usize = 3 * INLINE_BYTES_MAX;

/// The supervisor's end of one connection.
struct Server {
    reader: FrameReader,
    arenas: BTreeMap<ArenaId, ArenaMap>,
    made: u64,
}

impl Server {
    fn greeted(socket: UnixStream) -> Self {
        let reader = FrameReader::with_descriptors(socket);
        let mut server = Self { reader, arenas: BTreeMap::new(), made: 0 };
        assert_eq!(server.hear(), ClientMessage::Hello { version: PROTOCOL_VERSION });
        server.say(&ServerMessage::Welcome { version: PROTOCOL_VERSION });
        server
    }

    fn say(&self, message: &ServerMessage) {
        let frame = frame::of(message, 0).unwrap();
        frame::send_all(self.reader.socket(), &frame, &[]).unwrap();
    }

    /// Handles messages about arenas, and returns the next other message.
    fn hear(&mut self) -> ClientMessage {
        loop {
            let frame = self.reader.read(Some(TIMEOUT)).unwrap().expect("the client says more");
            let message = codec::decode(&frame.body).unwrap();
            if let ClientMessage::CreateArena { request, bytes } = message {
                self.make_arena(request, bytes);
            } else if let ClientMessage::DropArena { arena } = message {
                assert!(self.arenas.remove(&arena).is_some(), "{arena:?} is given up once");
            } else {
                return message;
            }
        }
    }

    fn make_arena(&mut self, request: u64, bytes: u64) {
        let made = Arena::create(bytes).unwrap();
        self.made += 1;
        let arena = ArenaId(self.made);
        let message = ServerMessage::ArenaCreated { request, arena, bytes: made.bytes() };
        let frame = frame::of(&message, 1).unwrap();
        frame::send_all(self.reader.socket(), &frame, &[made.as_fd()]).unwrap();
        self.arenas.insert(arena, made.map().unwrap());
    }

    fn submitted(&mut self) -> Submission {
        let message = self.hear();
        let ClientMessage::Submit(submission) = message else { panic!("{message:?}") };
        *submission
    }

    fn accept(&mut self) -> Submission {
        let submission = self.submitted();
        self.say(&ServerMessage::Accepted { key: submission.key });
        submission
    }

    fn say_models(&mut self, rows: &[ModelInfo]) {
        let message = self.hear();
        let ClientMessage::Models { request, from: 0 } = message else { panic!("{message:?}") };
        let row = |model: &ModelInfo| DeviceModel {
            worker: "cpu0#1".into(),
            serves: true,
            model: model.clone(),
        };
        let models: Vec<_> = rows.iter().map(row).collect();
        let total = u32::try_from(models.len()).unwrap();
        let reply = Reply::Models { models, total };
        self.say(&ServerMessage::Reply { request, reply });
    }

    /// The packed inputs.
    fn input(&self, submission: &Submission) -> Vec<u8> {
        match &submission.payload.input {
            Input::Inline(Inline(bytes)) => bytes.clone(),
            Input::Arena(slice) => {
                let all = self.arenas[&slice.arena].all();
                let mut bytes = vec![0; usize::try_from(slice.bytes).unwrap()];
                all.part(slice.offset, slice.bytes).unwrap().read(0, &mut bytes);
                bytes
            }
        }
    }

    /// Answers OK, with these packed outputs.
    fn answer(&self, submission: &Submission, outputs: &[u8]) {
        let output = match submission.payload.output {
            Destination::Inline => Some(Inline(outputs.to_vec())),
            Destination::Arena(slice) => {
                let all = self.arenas[&slice.arena].all();
                all.part(slice.offset, slice.bytes).unwrap().write(0, outputs);
                None
            }
        };
        self.done(submission, Verdict::Ok, output);
    }

    fn done(&self, submission: &Submission, verdict: Verdict, output: Option<Inline>) {
        let (key, receipt) = (submission.key, Box::new(receipt(verdict)));
        self.say(&ServerMessage::Done { key, receipt, output, replayed: false });
    }
}

/// The script of a pool that refuses a job twice, answers it with 7, and refuses the next one.
fn often_busy(server: &mut Server) {
    let busy = |server: &mut Server| {
        let Submission { key, .. } = server.submitted();
        server.say(&ServerMessage::Refused { key, refusal: Refusal::Busy(Limit::QueueJobs) });
        key
    };
    let keys = [busy(server), busy(server)];
    let third = server.accept();
    assert_eq!(keys, [third.key; 2]);
    server.answer(&third, &packed("y", 7));
    busy(server);
}

/// Runs a client and a script until both have ended.
fn against(script: impl FnOnce(&mut Server) + Send + 'static, customer: impl FnOnce(&Client)) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let server = thread::spawn(move || script(&mut Server::greeted(theirs)));
    customer(&Client::builder().connect_over(ours).unwrap());
    server.join().unwrap();
}

fn receipt(verdict: Verdict) -> Receipt {
    Receipt {
        host: String::new(),
        job: "job1".into(),
        key: "k".into(),
        program_hash: "ab".into(),
        trace_id: String::new(),
        items: 1,
        item_errors: 0,
        verdict,
        reason: String::new(),
        queue_us: 1,
        total_us: 2,
        attempts: Vec::new(),
    }
}

fn tensor(name: &str, bytes: usize) -> (Tensor, Vec<u8>) {
    let data: Vec<u8> = (0..bytes).map(|at| u8::try_from(at % 251).unwrap()).collect();
    (Tensor::new(name, DataType::Uint8, vec![bytes as u64]).unwrap(), data)
}

/// A request that reserves that many bytes for its outputs.
fn request(input: usize, output: usize) -> Job<TensorOutputs> {
    let (x, data) = tensor("x", input);
    let x = ModelInput::from_bytes(x, data).unwrap();
    Job::model("m", [x]).unwrap().with_output_bytes(output as u64)
}

fn packed(name: &str, bytes: usize) -> Vec<u8> {
    let (tensor, data) = tensor(name, bytes);
    TensorLayout::new(vec![tensor]).unwrap().pack(&[&data]).unwrap()
}

#[track_caller]
fn gives(answer: Answer<TensorOutputs>, bytes: usize) {
    assert_eq!(answer.verdict(), Verdict::Ok);
    let outputs = answer.ok().unwrap();
    let y = outputs.find("y").unwrap();
    assert_eq!(outputs.find("x"), None);
    let (tensor, data) = tensor("y", bytes);
    assert_eq!(outputs.tensors(), [tensor]);
    assert_eq!(outputs.data(y), data);
    let mut last = [0; 2];
    outputs.copy_to(y, bytes - 2, &mut last);
    assert_eq!(last, data[bytes - 2..]);
}

#[test]
fn a_small_request_and_its_outputs_travel_in_the_messages() {
    let script = |server: &mut Server| {
        let asked = server.accept();
        assert_eq!(asked.work, Work::Model { name: "m".to_owned() });
        assert_eq!(asked.payload.output, Destination::Inline);
        assert_eq!((asked.terms.priority, asked.terms.idempotent), (Priority::High, false));
        assert!(asked.terms.deadline_ms <= 5_000, "{}", asked.terms.deadline_ms);
        assert!(matches!(asked.payload.input, Input::Inline(_)));
        assert_eq!(server.input(&asked), packed("x", 10));
        server.answer(&asked, &packed("y", 7));
    };
    against(script, |client| {
        let asked = request(10, INLINE_BYTES_MAX)
            .with_priority(Priority::High)
            .at_most_once()
            .with_deadline(Duration::from_secs(5));
        gives(client.submit(asked).unwrap().wait().unwrap(), 7);
        assert_eq!(client.arenas_made(), 0);
    });
}

#[test]
fn large_tensors_lie_in_arenas_that_the_next_request_uses_again() {
    const TURNS: usize = 3;
    let script = |server: &mut Server| {
        for _ in 0..TURNS {
            let asked = server.accept();
            assert!(matches!(asked.payload.input, Input::Arena(slice) if slice.offset == 0));
            let Destination::Arena(room) = asked.payload.output else { panic!("{asked:?}") };
            assert_eq!((room.offset, room.bytes), (0, 2 * LARGE as u64));
            assert_eq!(server.input(&asked), packed("x", LARGE));
            server.answer(&asked, &packed("y", LARGE));
        }
    };
    against(script, |client| {
        for _ in 0..TURNS {
            let answer = client.submit(request(LARGE, 2 * LARGE)).unwrap().wait().unwrap();
            gives(answer, LARGE);
        }
        assert_eq!(client.arenas_made(), 2, "one for inputs, one for outputs");
    });
}

#[test]
fn outputs_of_an_earlier_request_are_never_taken_for_the_next_one_s() {
    let script = |server: &mut Server| {
        let first = server.accept();
        server.answer(&first, &packed("y", LARGE));
        let second = server.accept();
        server.done(&second, Verdict::Ok, None);
    };
    against(script, |client| {
        gives(client.submit(request(10, 2 * LARGE)).unwrap().wait().unwrap(), LARGE);
        let error = client.submit(request(10, 2 * LARGE)).unwrap().wait().unwrap_err();
        assert!(matches!(error, ClientError::Tensors(TensorError::Magic)), "{error}");
        assert_eq!(client.arenas_made(), 1, "the second lay where the first did");
    });
}

#[test]
fn a_cancelled_request_s_arenas_are_not_used_again() {
    let script = |server: &mut Server| {
        let first = server.accept();
        assert_eq!(server.hear(), ClientMessage::Cancel { key: first.key });
        let arenas: Vec<_> = server.arenas.keys().copied().collect();
        server.done(&first, Verdict::Cancelled, None);
        let second = server.accept();
        assert!(arenas.iter().all(|arena| !server.arenas.contains_key(arena)), "given back");
        server.answer(&second, &packed("y", 7));
        // Dropping a handle cancels, too.
        let third = server.accept();
        assert_eq!(server.hear(), ClientMessage::Cancel { key: third.key });
    };
    against(script, |client| {
        let handle = client.submit(request(LARGE, LARGE)).unwrap();
        handle.cancel();
        let answer = handle.wait().unwrap();
        assert_eq!(answer.verdict(), Verdict::Cancelled);
        assert!(answer.outputs().is_none());
        gives(client.submit(request(LARGE, LARGE)).unwrap().wait().unwrap(), 7);
        assert_eq!(client.arenas_made(), 4);
        drop(client.submit(request(10, 10)).unwrap());
    });
}

#[test]
fn a_request_is_sent_again_to_a_busy_pool_unless_it_forbids_that() {
    against(often_busy, |client| {
        gives(client.submit(request(10, 100)).unwrap().wait().unwrap(), 7);
        let error = client.submit(request(10, 100).refuse_if_busy()).unwrap_err();
        assert!(matches!(error, ClientError::Refused(Refusal::Busy(_))), "{error}");
    });
}

#[test]
fn a_partial_result_that_cannot_be_read_costs_no_verdict() {
    let script = |server: &mut Server| {
        let Submission { key, .. } = server.accept();
        let part = ItemRange { start: 0, end: 1 };
        let report = RunReport::default();
        let attempt = Attempt::answered("cpu0#1", DeviceInfo::default(), part, report);
        let receipt = Receipt { attempts: vec![attempt], ..receipt(Verdict::Deadline) };
        // Far shorter than a result of the program.
        let (receipt, output) = (Box::new(receipt), Some(Inline(vec![1])));
        server.say(&ServerMessage::Done { key, receipt, output, replayed: false });
    };
    against(script, |client| {
        let grid = Grid::from_rows(&[[1, 2]]).unwrap();
        let program = Program::compile("rot90", Ties::Cpython).unwrap();
        let job = Job::program(program, GridBatch::from_grids([&grid]).unwrap()).unwrap();
        let answer = client.run(job).unwrap();
        assert_eq!((answer.verdict(), answer.partial().is_none()), (Verdict::Deadline, true));
    });
}

#[test]
fn a_verdict_that_the_pool_repeats_has_no_outputs() {
    let script = |server: &mut Server| {
        let asked = server.submitted();
        let (key, receipt) = (asked.key, Box::new(receipt(Verdict::Ok)));
        server.say(&ServerMessage::Done { key, receipt, output: None, replayed: true });
    };
    against(script, |client| {
        let error = client.submit(request(10, 100).with_key(JobKey(7))).unwrap_err();
        assert!(error.to_string().contains("submit it under a new key"), "{error}");
    });
}

#[test]
fn after_a_reconnect_the_request_is_submitted_again_under_its_key() {
    let path = std::env::temp_dir().join(format!("gridpool-infer-{}.sock", std::process::id()));
    let listener = UnixListener::bind(&path).unwrap();
    let server = thread::spawn(move || {
        let mut first = Server::greeted(listener.accept().unwrap().0);
        let asked = first.accept();
        drop(first);
        let mut second = Server::greeted(listener.accept().unwrap().0);
        let again = second.accept();
        assert_eq!((asked.key, asked.work), (again.key, again.work.clone()));
        assert_eq!(second.arenas.len(), 2, "arenas of this connection");
        assert_eq!(second.input(&again), packed("x", LARGE));
        second.answer(&again, &packed("y", LARGE));
        let once = second.accept();
        assert!(!once.terms.idempotent);
        drop(second);
        Server::greeted(listener.accept().unwrap().0)
    });
    let client = Client::connect(&path).unwrap();
    gives(client.submit(request(LARGE, 2 * LARGE)).unwrap().wait().unwrap(), LARGE);
    let once = client.submit(request(10, 100).at_most_once()).unwrap().wait().unwrap_err();
    assert!(matches!(once, ClientError::Lost), "{once}");
    drop(server.join().unwrap());
    std::fs::remove_file(&path).unwrap();
}

/// A model of `[N, 4]` bytes that gives `[N, columns]` of them.
fn rows_of(columns: i64, state: ModelState) -> ModelInfo {
    let spec = |name: &str, columns| TensorSpec::new(name, DataType::Uint8, [ANY_SIZE, columns]);
    ModelInfo {
        inputs: vec![spec("x", 4)],
        outputs: vec![spec("y", columns)],
        max_batch: 32,
        contexts: 1,
        state,
        ..ModelInfo::unavailable("m", String::new())
    }
}

#[test]
fn the_size_of_outputs_follows_from_the_model_which_is_queried_once() {
    let room = |asked: &Submission| match asked.payload.output {
        Destination::Inline => 0,
        Destination::Arena(slice) => slice.bytes,
    };
    let script = move |server: &mut Server| {
        server
            .say_models(&[rows_of(1, ModelState::Unavailable), rows_of(3_000, ModelState::Ready)]);
        for verdict in [Verdict::Ok, Verdict::Failed] {
            let asked = server.accept();
            assert_eq!(room(&asked), packed_rows(5, 3_000));
            let output = matches!(verdict, Verdict::Ok).then(|| packed("y", 10));
            match output {
                Some(output) => server.answer(&asked, &output),
                None => server.done(&asked, verdict, None),
            }
        }
        // After a failure the client queries the model again.
        server.say_models(&[rows_of(2_000, ModelState::Ready)]);
        let asked = server.accept();
        assert_eq!(room(&asked), packed_rows(5, 2_000));
        server.done(&asked, Verdict::Failed, None);
        server.say_models(&[rows_of(ANY_SIZE, ModelState::Ready)]);
        let asked = server.accept();
        assert_eq!(room(&asked), OUTPUT_BYTES_DEFAULT);
    };
    against(script, |client| {
        let x = ModelInput::new("x", [5, 4], vec![1_u8; 20]).unwrap();
        let ask = || client.submit(Job::model("m", [x.clone()]).unwrap()).unwrap();
        gives(ask().wait().unwrap(), 10);
        for _ in 0..2 {
            assert_eq!(ask().wait().unwrap().verdict(), Verdict::Failed);
        }
        drop(ask());
    });
}

fn packed_rows(rows: u64, columns: u64) -> u64 {
    let y = Tensor::new("y", DataType::Uint8, vec![rows, columns]).unwrap();
    TensorLayout::new(vec![y]).unwrap().bytes() as u64
}

#[test]
fn data_of_another_length_and_invalid_names_are_refused_before_anything_is_sent() {
    let (x, data) = tensor("x", 10);
    let short = ModelInput::from_bytes(x.clone(), data[1..].to_vec()).unwrap_err();
    assert_eq!(short, TensorError::Data { name: "x".into(), got: 9, want: 10 });
    let x = ModelInput::from_bytes(x, data).unwrap();
    let twice = Job::model("m", [x.clone(), x.clone()]).unwrap_err();
    assert!(matches!(twice, TensorError::Duplicate { .. }), "{twice}");
    against(
        |_| {},
        |client| {
            let slash = Job::model("a/b", [x]).unwrap();
            let error = client.submit(slash).unwrap_err();
            assert!(error.to_string().contains("cannot be the name of a model"), "{error}");
        },
    );
}
