//! What becomes of the process when an order meets what it may not survive: in a process of its own.

use std::env;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use gridpool_protocol::channel::{self, ChannelError, Listener};
use gridpool_protocol::clock;
use gridpool_protocol::exit::worker as exit;
use gridpool_protocol::fault::FaultCode;

use super::*;

/// Names the channel to the process that looks on.
const CHANNEL: &str = "GRIDPOOL_TEST_CHANNEL";
/// What the order meets.
const MEETS: &str = "GRIDPOOL_TEST_MEETS";
/// Far longer than any of this takes.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn a_process_that_obeys_an_order() {
    let (Ok(name), Ok(meets)) = (env::var(CHANNEL), env::var(MEETS)) else { return };
    let (replies, _requests) = channel::connect(&name).unwrap();
    end_on_panic(replies.clone());
    let (tasks, taken) = mpsc::sync_channel(ORDERS_MAX);
    tasks.send((1, meets)).unwrap();
    drop(tasks);
    let obey = |meets: String| match meets.as_str() {
        "nothing" => Ok(FromWorker::Models { models: Vec::new() }),
        "panic" => panic!("planted"),
        "a refusal" => Err(Failure::Refused("no".to_owned())),
        fault => {
            let fault = RuntimeFault::new("RunWithBinding", 6, fault, true);
            Err(LoadError::Session(fault).into())
        }
    };
    let thread = thread::spawn(move || serve(&taken, &replies, &AtomicBool::new(true), obey));
    thread.join().unwrap();
}

/// What such a process says, and its end.
fn obeys(meets: &str) -> (Vec<FromWorker>, ExitStatus) {
    let (listener, name) = Listener::open().unwrap();
    let mut process = Command::new(env::current_exe().unwrap());
    process.args(["infer::serve::orders::tests::a_process_that_obeys_an_order", "--exact"]);
    process.env(CHANNEL, name).env(MEETS, meets).stdout(Stdio::null()).stderr(Stdio::null());
    let mut process = process.spawn().unwrap();
    let (accepted, ends) = mpsc::channel();
    thread::spawn(move || accepted.send(listener.accept()).unwrap());
    let (_to, mut from) = ends.recv_timeout(PATIENCE).expect("it connects").unwrap();
    let until = clock::now() + PATIENCE;
    let mut said = Vec::new();
    let ended = loop {
        match from.recv_until(until) {
            Ok(message) => said.push(message.expect("it ends")),
            Err(error) => break error,
        }
    };
    assert!(matches!(ended, ChannelError::Disconnected), "{ended}");
    (said, process.wait().unwrap())
}

#[test]
fn an_order_that_is_obeyed_or_refused_is_answered() {
    let (said, status) = obeys("nothing");
    let ordered = |result| FromWorker::Ordered { order: 1, result };
    assert_eq!(said, [FromWorker::Models { models: Vec::new() }, ordered(Ok(()))]);
    assert_eq!(status.code(), Some(0));
    let (said, status) = obeys("a refusal");
    assert_eq!(said, [ordered(Err("no".to_owned()))], "no models: they are as they were");
    assert_eq!(status.code(), Some(0));
    let (said, _) = obeys("CUDA failure 2: out of memory");
    let why = "RunWithBinding: CUDA failure 2: out of memory (cuda 2)".to_owned();
    assert_eq!(said, [ordered(Err(why))], "the device is none the worse");
}

#[test]
fn a_fault_after_which_the_device_is_of_no_use_ends_the_worker_and_speaks_against_no_attempt() {
    let (said, status) = obeys("CUDA failure 700: an illegal memory access was encountered");
    let [FromWorker::Dying { code, fault, message, attempt }] = said.as_slice() else {
        panic!("{said:?}")
    };
    assert_eq!((*code, *attempt), (exit::STICKY, None));
    assert_eq!(*fault, Some(FaultCode::Cuda(700)));
    assert!(message.contains("illegal memory access"), "{message}");
    assert_eq!(status.code(), Some(exit::STICKY));
}

#[test]
fn a_panic_ends_the_worker_with_a_sentence() {
    let (said, status) = obeys("panic");
    let [FromWorker::Dying { code, message, .. }] = said.as_slice() else { panic!("{said:?}") };
    assert!(message.starts_with("a fault of gridpool itself: planted (worker/src/"), "{message}");
    assert_eq!((*code, status.signal()), (ABORTED, Some(6)));
}
