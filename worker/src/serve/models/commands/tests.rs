//! Commands that the process does not survive. Each runs in a process of its own.

use std::env;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use gridpool_ipc::channel::{ChannelError, ReplyReader};
use gridpool_ipc::clock;
use gridpool_protocol::exit::worker as exit;
use gridpool_protocol::fault::FaultCode;

use super::*;

/// What happens to the command.
const OUTCOME: &str = "GRIDPOOL_TEST_OUTCOME";
/// Far longer than any step takes.
const TIMEOUT: Duration = Duration::from_secs(60);

#[test]
fn a_process_that_runs_a_command() {
    let Ok(outcome) = env::var(OUTCOME) else { return };
    let lifeline = std::io::stdin().as_fd().try_clone_to_owned().unwrap();
    let replies = Replies::new(lifeline.into());
    end_on_panic(replies.clone());
    let (commands, received) = mpsc::sync_channel(COMMANDS_MAX);
    commands.send((1, outcome)).unwrap();
    drop(commands);
    let run = |outcome: String| match outcome.as_str() {
        "nothing" => Ok(FromWorker::Models { models: Vec::new() }),
        "panic" => panic!("planted"),
        "a refusal" => Err(CommandFailure::Refused("no".to_owned())),
        fault => {
            let fault = RuntimeFault::new("RunWithBinding", 6, fault, true);
            Err(LoadError::Session(fault).into())
        }
    };
    let thread = thread::spawn(move || serve(&received, &replies, &AtomicBool::new(true), run));
    thread.join().unwrap();
}

/// The messages of such a process, and its exit status.
fn run_one(outcome: &str) -> (Vec<FromWorker>, ExitStatus) {
    let (theirs, ours) = UnixStream::pair().unwrap();
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["serve::models::commands::tests::a_process_that_runs_a_command", "--exact"]);
    command.env(OUTCOME, outcome).stdin(OwnedFd::from(theirs));
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut process = command.spawn().unwrap();
    // It holds the other end of the lifeline.
    drop(command);
    let mut from = ReplyReader::new(ours);
    let until = clock::now() + TIMEOUT;
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
fn a_command_that_succeeds_or_is_refused_is_answered() {
    let (said, status) = run_one("nothing");
    let ended = |result| FromWorker::CommandEnded { number: 1, result };
    assert_eq!(said, [FromWorker::Models { models: Vec::new() }, ended(Ok(()))]);
    assert_eq!(status.code(), Some(0));
    let (said, status) = run_one("a refusal");
    assert_eq!(said, [ended(Err("no".to_owned()))], "no models: they are as they were");
    assert_eq!(status.code(), Some(0));
    let (said, _) = run_one("CUDA failure 2: out of memory");
    let why = "RunWithBinding: CUDA failure 2: out of memory (cuda 2)".to_owned();
    assert_eq!(said, [ended(Err(why))], "the device still works");
}

#[test]
fn a_fault_that_leaves_the_device_unusable_ends_the_worker_and_blames_no_attempt() {
    let (said, status) = run_one("CUDA failure 700: an illegal memory access was encountered");
    let [FromWorker::Dying { code, fault, message, attempt }] = said.as_slice() else {
        panic!("{said:?}")
    };
    assert_eq!((*code, *attempt), (exit::STICKY, None));
    assert_eq!(*fault, Some(FaultCode::Cuda(700)));
    assert!(message.contains("illegal memory access"), "{message}");
    assert_eq!(status.code(), Some(exit::STICKY));
}

#[test]
fn a_panic_ends_the_worker_with_a_reason() {
    let (said, status) = run_one("panic");
    let [FromWorker::Dying { code, message, .. }] = said.as_slice() else { panic!("{said:?}") };
    assert!(message.starts_with("a fault of gridpool itself: planted (worker/src/"), "{message}");
    assert_eq!((*code, status.signal()), (ABORTED, Some(6)));
}
