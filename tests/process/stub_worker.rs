//! A worker that misbehaves as `GRIDPOOL_STUB` says. Where the word begins with `first-`, only the
//! first process of a device does; the others become the worker of `GRIDPOOL_STUB_REAL`.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use gridpool_protocol::channel::{self, Receiver, Sender};
use gridpool_protocol::ids::{AttemptId, WorkerId};
use gridpool_protocol::limits::PROTOCOL_VERSION;
use gridpool_protocol::message::{AttemptError, FromWorker, Lifeline, ToWorker};
use gridpool_protocol::receipt::DeviceInfo;
use gridpool_protocol::status::WorkerMemory;
use gridpool_protocol::{codec, frame};
use nix::sys::prctl;
use nix::sys::signal::Signal;

type Ends = (Sender<FromWorker>, Receiver<ToWorker>);

fn main() -> ExitCode {
    prctl::set_pdeathsig(Signal::SIGKILL).expect("a worker ends with its supervisor");
    let worker: WorkerId = argument("--worker").parse().expect("a worker's name");
    let fault = std::env::var("GRIDPOOL_STUB").expect("GRIDPOOL_STUB says what to do");
    let fault = match fault.strip_prefix("first-") {
        Some(_) if worker.generation > 1 => become_real(),
        Some(fault) => fault,
        None => &fault,
    };
    let build = if fault == "other-build" { "0.0.1" } else { env!("CARGO_PKG_VERSION") };
    match fault {
        "exits-at-once" => return ExitCode::from(1),
        "says-nothing" => wait_for_ever(),
        "does-not-greet" => {
            drop(connect().0.send(&FromWorker::Heartbeat { memory: WorkerMemory::default() }))
        }
        _ => {
            serve(&greeted(worker, build), worker, fault);
            return ExitCode::SUCCESS;
        }
    }
    wait_for_ever()
}

/// Takes jobs and does something else with them.
fn serve((replies, requests): &Ends, worker: WorkerId, fault: &str) {
    let device = DeviceInfo {
        kind: worker.device.kind,
        index: worker.device.index,
        name: "stub".to_owned(),
        uuid: String::new(),
        driver: String::new(),
    };
    say(replies, &FromWorker::Ready { device });
    while let Ok(request) = requests.recv() {
        let ToWorker::Run(run) = request else { return };
        let attempt = run.members[0].attempt;
        match fault {
            "exits-on-a-job" => return,
            "answers-another-attempt" => {
                let other = AttemptId { number: attempt.number + 1, ..attempt };
                refuse(replies, other, AttemptError::Refused("another attempt".to_owned()));
                return;
            }
            "device-errors" => {
                let why = "out of memory for a moment".to_owned();
                refuse(replies, attempt, AttemptError::Device(why));
            }
            other => unreachable!("no fault is called {other}"),
        }
    }
}

fn refuse(replies: &Sender<FromWorker>, attempt: AttemptId, error: AttemptError) {
    say(replies, &FromWorker::Answer { attempt, result: Err(error) });
}

fn greeted(worker: WorkerId, build: &str) -> Ends {
    let ends = connect();
    let build = build.to_owned();
    say(&ends.0, &FromWorker::Hello { version: PROTOCOL_VERSION, build, worker });
    ends
}

/// Connects, and tells the supervisor so on the lifeline, which is standard input.
fn connect() -> Ends {
    let ends = channel::connect(&argument("--bootstrap")).expect("the supervisor listens");
    let lifeline = std::io::stdin().as_fd().try_clone_to_owned().expect("there is a lifeline");
    let hello = codec::encode(&Lifeline::Connected).expect("it fits a frame");
    let sent = frame::send_all(&UnixStream::from(lifeline), &frame::pack(&hello, 0), &[]);
    sent.expect("the supervisor reads");
    ends
}

fn say(replies: &Sender<FromWorker>, message: &FromWorker) {
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
