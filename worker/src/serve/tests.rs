//! The loop between messages: when it tests the device, and that a job does not wait for the whole test.

use std::env;
use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use std::thread;

use gridpool_device::cpu::CpuDevice;
use gridpool_ipc::channel::{Listener, Replies, ReplyReader, Sender};
use gridpool_kernels::known_answer::KNOWN_ANSWERS;
use gridpool_protocol::batch::{Grid, GridBatch};
use gridpool_protocol::chaos::{ChaosFault, DeviceFault, ReplyFault};
use gridpool_protocol::fault::FaultCode;
use gridpool_protocol::ids::{ClientId, JobId};
use gridpool_protocol::message::{AttemptAnswer, Destination, Input, Packing, Payload, Priority};
use gridpool_protocol::program::Ties;
use gridpool_protocol::receipt::ItemRange;
use gridpool_protocol::shared::SharedSlice;

use super::*;
use crate::checkup::LATEST;

/// Far longer than any step takes.
const TIMEOUT: Duration = Duration::from_secs(60);
const NEVER: Duration = Duration::from_secs(3_600);
/// The number of small messages that fit into an unread channel.
const QUEUED: u32 = 30;

/// A loop on a thread of its own, and the supervisor's ends of its channel.
struct Looped {
    requests: Sender,
    replies: ReplyReader,
    ended: mpsc::Receiver<i32>,
}

/// A loop that tests its device at this interval; `is_wrong` makes the device compute wrong results.
fn looped(every: Duration, is_wrong: bool) -> Looped {
    looped_over(0, Checkup::new(every, clock::now()), is_wrong)
}

/// Such a loop with `queued` runs waiting when it begins.
fn looped_over(queued: u32, mut checkup: Checkup, is_wrong: bool) -> Looped {
    let (listener, name) = Listener::open(&env::temp_dir()).unwrap();
    let requests = Sender::connect(&name).unwrap();
    let mut from_supervisor = listener.accept().unwrap();
    let (theirs, ours) = UnixStream::pair().unwrap();
    (0..queued).for_each(|number| requests.send(&run(number)).unwrap());
    let (end, ended) = mpsc::channel();
    // Not joined: it may wait forever.
    thread::spawn(move || {
        let link = link_over(theirs);
        let mut worker = Worker { link, programs: Programs::default(), adopted: BTreeMap::new() };
        let mut device = FaultInjector::new(Box::new(CpuDevice::open(0, 1).unwrap()));
        device.arm(is_wrong.then_some(ChaosFault::Reply(ReplyFault::Wrong)));
        end.send(worker.serve(&mut from_supervisor, &mut device, &mut checkup)).unwrap();
    });
    Looped { requests, replies: ReplyReader::new(ours), ended }
}

fn link_over(lifeline: UnixStream) -> Link {
    let (arenas, cancels, idle_step, growth_max, growth) = Default::default();
    Link { replies: Replies::new(lifeline), arenas, cancels, idle_step, growth_max, growth }
}

fn run(number: u32) -> ToWorker {
    joined(vec![assignment(number, None)])
}

fn joined(assignments: Vec<Assignment>) -> ToWorker {
    let work = Work::Program {
        text: "rot90".to_owned(),
        ties: Ties::Cpython,
        steps: gridpool_protocol::limits::STEPS_DEFAULT,
    };
    ToWorker::Dispatch(Box::new(Dispatch { work, assignments }))
}

fn assignment(number: u32, chaos: Option<ChaosFault>) -> Assignment {
    let batch = GridBatch::from_grids([&Grid::from_rows(&[[1, 2]]).unwrap()]).unwrap();
    let layout = batch.layout().unwrap();
    let mut bytes = vec![0; layout.bytes()];
    batch.write_to(layout, &SharedSlice::private(&mut bytes));
    let input = Input::Inline(Inline(bytes));
    let packing = Packing::Grids { items: 1, cells: 2 };
    Assignment {
        attempt: AttemptId { job: JobId(1), number },
        client: ClientId(1),
        priority: Priority::Normal,
        payload: Payload { packing, input, output: Destination::Inline },
        shard: ItemRange { start: 0, end: 1 },
        deadline_ms: 60_000,
        trace: None,
        chaos,
    }
}

/// The answers of a message that has nothing else.
fn answers_in(reply: FromWorker) -> Vec<(AttemptId, Result<AttemptAnswer, AttemptError>)> {
    let mut answers = Vec::new();
    let mut push = |attempt, result| answers.push((attempt, result));
    if let FromWorker::Answer { attempt, result } = reply {
        push(attempt, result);
    } else {
        let FromWorker::Answers(together) = reply else { panic!("{reply:?}") };
        together.each(push).unwrap();
    }
    answers
}

/// How many runs were answered before the worker ended because of a wrong answer.
fn answered_until_found_out(looped: Looped) -> usize {
    let Looped { requests: _requests, mut replies, ended } = looped;
    assert_eq!(ended.recv_timeout(TIMEOUT), Ok(exit::DEVICE_LOST));
    let mut said: Vec<_> = std::iter::from_fn(|| replies.recv().ok()).collect();
    let words = said.pop();
    let Some(FromWorker::Dying { code, fault, message, attempt }) = words else {
        panic!("{words:?}")
    };
    assert_eq!((code, attempt), (exit::DEVICE_LOST, None));
    assert_eq!(fault, Some(FaultCode::WrongAnswer));
    assert!(message.starts_with("the device fails its known-answer test: "), "{message}");
    let answers = said.into_iter().flat_map(answers_in);
    answers.map(|(_, result)| assert!(result.is_ok())).count()
}

#[test]
fn an_idle_worker_whose_device_is_wrong_ends() {
    assert_eq!(answered_until_found_out(looped(Duration::from_millis(10), true)), 0);
}

#[test]
fn a_worker_that_is_never_idle_is_tested_between_two_batches_once_that_is_late() {
    let every = Duration::from_secs(60);
    let late = clock::now().checked_sub(LATEST * every).unwrap();
    let found_out =
        |passed| answered_until_found_out(looped_over(QUEUED, Checkup::new(every, passed), true));
    assert_eq!(found_out(late), 1, "the first step finds it, after the first batch");
    let due = late + every;
    assert_eq!(found_out(due), QUEUED as usize, "until it is late, it waits for a gap");
}

#[test]
fn a_right_device_is_tested_again_and_again_and_jobs_are_answered_in_between() {
    let Looped { requests, mut replies, ended } = looped(Duration::from_millis(1), false);
    for number in 0..2 * u32::try_from(KNOWN_ANSWERS.len()).unwrap() {
        requests.send(&run(number)).unwrap();
        let [(attempt, Ok(_))] = &answers_in(replies.recv().unwrap())[..] else { panic!() };
        assert_eq!(attempt.number, number);
    }
    requests.send(&ToWorker::Stop).unwrap();
    assert_eq!(ended.recv_timeout(TIMEOUT), Ok(exit::OK));
}

#[test]
fn before_its_time_no_test_is_made_however_much_is_run() {
    let Looped { requests, mut replies, ended } = looped(NEVER, true);
    for number in 0..2 * u32::try_from(KNOWN_ANSWERS.len()).unwrap() {
        requests.send(&run(number)).unwrap();
        assert!(matches!(answers_in(replies.recv().unwrap())[..], [(_, Ok(_))]));
    }
    drop(requests);
    assert_eq!(ended.recv_timeout(TIMEOUT), Ok(exit::OK), "its supervisor is gone");
}

#[test]
fn all_attempts_of_a_launch_meet_the_fault_of_one_of_them() {
    let Looped { requests, mut replies, ended } = looped(NEVER, false);
    let memory = Some(ChaosFault::Device(DeviceFault::Memory));
    let all = vec![assignment(0, None), assignment(1, memory), assignment(2, None)];
    requests.send(&joined(all)).unwrap();
    let answers = answers_in(replies.recv().unwrap());
    assert_eq!(answers.len(), 3);
    for ((attempt, result), number) in answers.into_iter().zip(0..) {
        let Err(AttemptError::Device(why)) = result else { panic!("{result:?}") };
        assert_eq!(attempt.number, number);
        assert!(why.starts_with("no memory for"), "{why}");
    }
    requests.send(&run(3)).unwrap();
    assert!(matches!(answers_in(replies.recv().unwrap())[..], [(_, Ok(_))]));
    requests.send(&ToWorker::Stop).unwrap();
    assert_eq!(ended.recv_timeout(TIMEOUT), Ok(exit::OK));
}

#[test]
fn answers_that_are_together_too_long_for_a_message_go_alone() {
    let (theirs, ours) = UnixStream::pair().unwrap();
    let all: Vec<_> = (0..64).map(|number| assignment(number, None)).collect();
    let error = AttemptError::Refused("x".repeat(8_000));
    let answers = refuse_all(&all, &error);
    let sender = thread::spawn(move || link_over(theirs).answer(answers));
    let mut replies = ReplyReader::new(ours);
    for number in 0..64 {
        let [(attempt, Err(why))] = &answers_in(replies.recv().unwrap())[..] else { panic!() };
        assert_eq!((attempt.number, why), (number, &error));
    }
    sender.join().unwrap();
}
