//! A worker that misbehaves as `GRIDPOOL_STUB` says. If the word begins with `first-`, only the first process of
//! a device misbehaves; the others become the worker of `GRIDPOOL_STUB_REAL`, as does every process of another
//! role than `grid`.

use std::io::Write;
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

use gridpool_ipc::channel::{Listener, Receiver, Replies};
use gridpool_ipc::frame;
use gridpool_protocol::batch::BatchLayout;
use gridpool_protocol::codec;
use gridpool_protocol::ids::{AttemptId, WorkerName};
use gridpool_protocol::limits::PROTOCOL_VERSION;
use gridpool_protocol::message::{
    Assignment, AttemptAnswer, AttemptError, Destination, FromWorker, Inline, Packing, Payload,
    ToWorker, Work,
};
use gridpool_protocol::output::OutputLayout;
use gridpool_protocol::program::Program;
use gridpool_protocol::receipt::{DeviceInfo, KernelUse, RunReport};
use gridpool_protocol::status::WorkerMemory;
use gridpool_tests::oracle::samples::SplitMix64;
use nix::sys::prctl;
use nix::sys::signal::Signal;

#[expect(dead_code, reason = "the fuzzer's seeds need more of it")]
#[path = "../fuzz/shared/any.rs"]
mod any;

type Ends = (Replies, Receiver);

fn main() -> ExitCode {
    prctl::set_pdeathsig(Signal::SIGKILL).expect("a worker ends with its supervisor");
    if std::env::args().nth(1).as_deref() != Some("grid") {
        become_real();
    }
    let worker: WorkerName = argument("--worker").parse().expect("a worker's name");
    let fault = std::env::var("GRIDPOOL_STUB").expect("GRIDPOOL_STUB says what to do");
    let fault = match fault.strip_prefix("first-") {
        Some(_) if worker.generation > 1 => become_real(),
        Some(fault) => fault,
        None => &fault,
    };
    let build = if fault == "other-build" { "0.0.1" } else { env!("CARGO_PKG_VERSION") };
    match fault {
        "chatters" => {
            chatter();
            become_real()
        }
        "exits-at-once" => return ExitCode::from(1),
        "says-nothing" => wait_for_ever(),
        "sends-anything" => {
            send_anything(worker);
            return ExitCode::SUCCESS;
        }
        "does-not-greet" => drop(
            lifeline().send(&FromWorker::Heartbeat { memory: WorkerMemory::default(), chunks: 0 }),
        ),
        _ => {
            serve(&mut greeted(worker, build, fault), worker, fault);
            if fault != "hangs-up-on-a-job" {
                return ExitCode::SUCCESS;
            }
            hang_up();
        }
    }
    wait_for_ever()
}

fn ready(worker: WorkerName) -> FromWorker {
    let device = DeviceInfo {
        kind: worker.device.kind,
        index: worker.device.index,
        name: "stub".to_owned(),
        ..DeviceInfo::default()
    };
    FromWorker::Ready { device }
}

/// Takes jobs and does something else with them.
fn serve((replies, requests): &mut Ends, worker: WorkerName, fault: &str) {
    say(replies, &ready(worker));
    while let Ok(request) = requests.recv() {
        let ToWorker::Dispatch(dispatch) = request else { return };
        let attempt = dispatch.assignments[0].attempt;
        let answer_all = |launches, device_us| {
            let each = |a| answer(replies, &dispatch.work, a, launches, device_us);
            dispatch.assignments.iter().for_each(each);
        };
        match fault {
            "exits-on-a-job" | "hangs-up-on-a-job" => return,
            "floods" => return flood(),
            "answers-another-attempt" => {
                let other = AttemptId { number: attempt.number + 1, ..attempt };
                refuse(replies, other, AttemptError::Refused("another attempt".to_owned()));
                return;
            }
            "device-errors" => {
                let why = "out of memory for a moment".to_owned();
                refuse(replies, attempt, AttemptError::Device(why));
            }
            "launches-nothing" => answer_all(0, 1.0),
            "gives-zeros" => answer_all(1, 1.0),
            "reports-no-number" => answer_all(1, f64::NAN),
            corrupt if corrupt.starts_with("sends-") => {
                send_raw(corrupt);
                wait_for_ever()
            }
            other => unreachable!("no fault is called {other}"),
        }
    }
}

/// Sends what no worker sends on the lifeline.
fn send_raw(what: &str) {
    let lifeline = std::io::stdin().as_fd().try_clone_to_owned().expect("there is a lifeline");
    let lifeline = UnixStream::from(lifeline);
    let frame = |fds: u8, announced: u32, body: &[u8]| {
        [b"GPL1".as_slice(), &[fds, 0, 0, 0], &announced.to_le_bytes(), body].concat()
    };
    let (_ours, theirs) = UnixStream::pair().expect("a pair of sockets");
    let fd = theirs.as_fd();
    let (bytes, fds) = match what {
        "sends-a-byte" | "sends-a-byte-and-closes" => (vec![0], vec![]),
        "sends-no-frame" => (vec![0xff; 64], vec![]),
        "sends-half-a-header-and-a-socket" => (frame(1, 0, b"")[..8].to_vec(), vec![fd]),
        "sends-a-frame-without-its-descriptor" => (frame(1, 4, b"body"), vec![]),
        "sends-a-frame-with-descriptors" => (frame(253, 4, b"body"), vec![fd; 253]),
        "sends-descriptors-unannounced" => (frame(0, 0, b""), vec![fd; 253]),
        "sends-a-length-beyond-all" => (frame(0, u32::MAX, b"body"), vec![]),
        "sends-half-a-frame" => (frame(0, 1_000, b"body"), vec![]),
        "sends-no-message" => (frame(0, 64, &[0xff; 64]), vec![]),
        other => unreachable!("no fault is called {other}"),
    };
    frame::send_all(&lifeline, &bytes, &fds).expect("the supervisor reads");
    if what == "sends-a-byte-and-closes" {
        hang_up();
    }
}

/// Sends packets that its number gives, in the state that it gives: as it starts, once it is ready, or with a job. The
/// first worker of a device is a real one, and so are those after that of `GRIDPOOL_STUB_LAST`, and other devices'.
fn send_anything(worker: WorkerName) {
    const PACKETS_MAX: usize = 4;
    let last = std::env::var("GRIDPOOL_STUB_LAST").expect("the last one that sends anything");
    let last: u32 = last.parse().expect("a number");
    if worker.device.index > 0 || !(2..=last).contains(&worker.generation) {
        become_real();
    }
    let mut rng = SplitMix64::new(worker.generation.into());
    let (replies, mut requests) = greeted(worker, env!("CARGO_PKG_VERSION"), "sends-anything");
    let state = rng.below(3);
    if state > 0 {
        say(&replies, &ready(worker));
    }
    // It has a job once it is told anything.
    if state > 1 && requests.recv().is_err() {
        return;
    }
    let lifeline = std::io::stdin().as_fd().try_clone_to_owned().expect("there is a lifeline");
    let lifeline = UnixStream::from(lifeline);
    let (_ours, theirs) = UnixStream::pair().expect("a pair of sockets");
    for _ in 0..=rng.below(PACKETS_MAX) {
        let fds = if rng.below(4) == 0 { vec![theirs.as_fd(); rng.below(5)] } else { vec![] };
        if frame::send_all(&lifeline, &packet(&mut rng), &fds).is_err() {
            return; // The supervisor has had enough.
        }
    }
}

/// A message that a worker might send, whole, changed or cut; or bytes.
fn packet(rng: &mut SplitMix64) -> Vec<u8> {
    let made = std::iter::repeat_with(|| any::any::<FromWorker>(rng.number())).flatten().next();
    let body = codec::encode(&made.expect("there are more numbers")).expect("it fits a frame");
    let mut bytes = frame::pack(&body, 0);
    match rng.below(5) {
        0 | 1 => {}
        2 => {
            let at = rng.below(bytes.len());
            bytes[at] ^= 1 << rng.below(8);
        }
        3 => bytes.truncate(1 + rng.below(bytes.len() - 1)),
        _ => bytes = (0..=rng.below(200)).map(|_| rng.number().to_le_bytes()[0]).collect(),
    }
    bytes
}

/// Closes the lifeline, whoever holds it open.
fn hang_up() {
    let lifeline = std::io::stdin().as_fd().try_clone_to_owned().expect("there is a lifeline");
    UnixStream::from(lifeline).shutdown(Shutdown::Both).expect("it is open");
}

/// Says that an attempt is done, and gives zeros for its result.
fn answer(replies: &Replies, work: &Work, assignment: &Assignment, launches: u32, device_us: f64) {
    let Work::Program { text, ties, .. } = work else { unreachable!("no program: {work:?}") };
    let Payload { packing, output, .. } = &assignment.payload;
    let &Packing::Grids { items, cells } = packing else { unreachable!("no grids: {packing:?}") };
    let program = Program::compile(text, *ties).expect("the supervisor compiled it");
    let batch = BatchLayout::new(items, 1, cells).expect("the supervisor checked it");
    let layout = OutputLayout::new(&program, batch).expect("the supervisor checked it");
    let kernels = [KernelUse { name: "zeros".to_owned(), launches, device_us }].into();
    let report =
        RunReport { items: 1, joined_items: items, kernels, service_us: 1, ..RunReport::default() };
    let is_inline = *output == Destination::Inline;
    let output = is_inline.then(|| Inline(vec![0; layout.bytes()]));
    let result = Ok(AttemptAnswer { report, output });
    say(replies, &FromWorker::Answer { attempt: assignment.attempt, result });
}

/// Writes 2 MB of no text to standard error, and leaves a child behind that holds it open.
#[expect(clippy::zombie_processes, reason = "it is to outlive this process")]
fn flood() {
    let mut error = std::io::stderr().lock();
    let line = [b"\xff\x1b[2J ", [b'x'; 93].as_slice(), b"\n"].concat();
    for _ in 0..20_000 {
        error.write_all(&line).expect("the supervisor reads");
    }
    error.write_all(b"the last line of the flood\n").expect("the supervisor reads");
    // Longer than the test takes.
    let child = Command::new("sleep").arg("30").stdout(Stdio::null()).stdin(Stdio::null()).spawn();
    child.expect("a child can be started");
}

/// Before its work, writes more to standard error than an unread log has room for.
fn chatter() {
    let line = [b"chatter ".as_slice(), &[b'x'; 8_000], b"\n"].concat();
    for _ in 0..200 {
        std::io::stderr().write_all(&line).expect("the supervisor reads");
    }
}

fn refuse(replies: &Replies, attempt: AttemptId, error: AttemptError) {
    say(replies, &FromWorker::Answer { attempt, result: Err(error) });
}

fn greeted(worker: WorkerName, build: &str, fault: &str) -> Ends {
    let folder = PathBuf::from(argument("--boot-folder"));
    let (listener, listens_at) = Listener::open(&folder).expect("there is room for a socket");
    let (build, replies) = (build.to_owned(), lifeline());
    let listens_at = match fault {
        "listens-nowhere" => folder.join("nowhere").display().to_string(),
        "listens-at-no-path" => format!("{listens_at}\0"),
        _ => listens_at,
    };
    say(&replies, &FromWorker::Hello { version: PROTOCOL_VERSION, build, worker, listens_at });
    // The supervisor kills one of another build.
    let requests = listener.accept().expect("the supervisor connects");
    (replies, requests)
}

/// Standard input.
fn lifeline() -> Replies {
    let lifeline = std::io::stdin().as_fd().try_clone_to_owned().expect("there is a lifeline");
    Replies::new(lifeline.into())
}

fn say(replies: &Replies, message: &FromWorker) {
    replies.send(message).expect("the supervisor reads");
}

fn become_real() -> ! {
    let real = std::env::var_os("GRIDPOOL_STUB_REAL").expect("the real worker is named");
    let error = Command::new(real).args(std::env::args_os().skip(1)).exec();
    unreachable!("the real worker cannot be started: {error}")
}

fn argument(name: &str) -> String {
    let mut arguments = std::env::args().skip_while(|argument| argument != name);
    arguments.nth(1).expect("the supervisor gives a worker its arguments")
}

fn wait_for_ever() -> ! {
    loop {
        std::thread::park();
    }
}
