//! The loop between messages: when the device is tested, and that a job need not wait for all of that.

use gridpool_kernels::known_answer::KNOWN_ANSWERS;
use gridpool_protocol::batch::{Grid, GridBatch};
use std::sync::mpsc;
use std::thread;

use gridpool_protocol::channel::{self, Listener, Sender};
use gridpool_protocol::chaos::{ChaosFault, DeviceFault, ReplyFault};
use gridpool_protocol::fault::FaultCode;
use gridpool_protocol::ids::JobId;
use gridpool_protocol::message::{Destination, Inline, Input, Payload};
use gridpool_protocol::program::Ties;
use gridpool_protocol::receipt::ItemRange;
use gridpool_protocol::shared::SharedSlice;

use super::*;
use crate::checkup::LATEST;
use crate::cpu::CpuDevice;

/// Far longer than any of this takes.
const PATIENCE: Duration = Duration::from_secs(60);
const NEVER: Duration = Duration::from_secs(3_600);
/// So many small messages lie in a channel that nobody reads.
const QUEUED: u32 = 30;

/// A loop in a thread of its own, and the supervisor's ends of its channel.
struct Looped {
    requests: Sender<ToWorker>,
    replies: Receiver<FromWorker>,
    ended: mpsc::Receiver<i32>,
}

/// A loop that tests its device `every` so often; the device lies or does not.
fn looped(every: Duration, lies: bool) -> Looped {
    looped_over(0, Checkup::new(every, clock::now()), lies)
}

/// The same with so many runs that wait for it when it begins.
fn looped_over(queued: u32, mut checkup: Checkup, lies: bool) -> Looped {
    let (listener, name) = Listener::open().unwrap();
    let (to_supervisor, mut from_supervisor) = channel::connect(&name).unwrap();
    let (requests, replies) = listener.accept().unwrap();
    (0..queued).for_each(|number| requests.send(&run(number)).unwrap());
    let (end, ended) = mpsc::channel();
    // Not joined: it may be waiting for ever.
    thread::spawn(move || {
        let (arenas, between, growth_max, wear) = Default::default();
        let link = Link { replies: to_supervisor, arenas, between, growth_max, wear };
        let mut worker = Worker::new(link);
        let mut device = Saboteur::new(Box::new(CpuDevice::open(0, 1).unwrap()));
        device.arm(lies.then_some(ChaosFault::Reply(ReplyFault::Wrong)));
        end.send(worker.serve(&mut from_supervisor, &mut device, &mut checkup)).unwrap();
    });
    Looped { requests, replies, ended }
}

fn run(number: u32) -> ToWorker {
    ToWorker::Run(Box::new(joined(vec![member(number, None)])))
}

fn joined(members: Vec<Member>) -> Run {
    Run { program: "rot90".to_owned(), ties: Ties::Cpython, members }
}

fn member(number: u32, chaos: Option<ChaosFault>) -> Member {
    let batch = GridBatch::from_grids([&Grid::from_rows(&[[1, 2]]).unwrap()]).unwrap();
    let layout = batch.layout().unwrap();
    let mut bytes = vec![0; layout.bytes()];
    batch.write_to(layout, &SharedSlice::private(&mut bytes));
    let input = Input::Inline(Inline(bytes));
    Member {
        attempt: AttemptId { job: JobId(1), number },
        payload: Payload { items: 1, cells: 2, input, output: Destination::Inline },
        part: ItemRange { start: 0, end: 1 },
        chaos,
    }
}

/// How many runs were answered before the worker ended with a wrong answer as its last words.
fn answered_until_found_out(looped: Looped) -> usize {
    let Looped { requests: _requests, mut replies, ended } = looped;
    assert_eq!(ended.recv_timeout(PATIENCE), Ok(exit::DEVICE_LOST));
    let mut said: Vec<_> = std::iter::from_fn(|| replies.recv().ok()).collect();
    let words = said.pop();
    let Some(FromWorker::Dying { code, fault, message, attempt }) = words else {
        panic!("{words:?}")
    };
    assert_eq!((code, attempt), (exit::DEVICE_LOST, None));
    assert_eq!(fault, Some(FaultCode::WrongAnswer));
    assert!(message.starts_with("the device fails its known-answer test: "), "{message}");
    assert!(said.iter().all(|reply| matches!(reply, FromWorker::Answer { result: Ok(_), .. })));
    said.len()
}

#[test]
fn an_idle_worker_whose_device_lies_ends() {
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
fn a_device_that_does_not_lie_is_tested_again_and_again_and_jobs_are_answered_in_between() {
    let Looped { requests, mut replies, ended } = looped(Duration::from_millis(1), false);
    for number in 0..2 * u32::try_from(KNOWN_ANSWERS.len()).unwrap() {
        requests.send(&run(number)).unwrap();
        let reply = replies.recv().unwrap();
        let FromWorker::Answer { attempt, result: Ok(_) } = reply else { panic!("{reply:?}") };
        assert_eq!(attempt.number, number);
    }
    requests.send(&ToWorker::Stop).unwrap();
    assert_eq!(ended.recv_timeout(PATIENCE), Ok(exit::OK));
}

#[test]
fn before_its_time_no_test_is_made_however_much_is_run() {
    let Looped { requests, mut replies, ended } = looped(NEVER, true);
    for number in 0..2 * u32::try_from(KNOWN_ANSWERS.len()).unwrap() {
        requests.send(&run(number)).unwrap();
        assert!(matches!(replies.recv(), Ok(FromWorker::Answer { result: Ok(_), .. })));
    }
    drop(requests);
    assert_eq!(ended.recv_timeout(PATIENCE), Ok(exit::OK), "its supervisor is gone");
}

#[test]
fn all_that_share_a_launch_meet_the_fault_that_one_of_them_brings() {
    let Looped { requests, mut replies, ended } = looped(NEVER, false);
    let memory = Some(ChaosFault::Device(DeviceFault::Memory));
    let members = vec![member(0, None), member(1, memory), member(2, None)];
    requests.send(&ToWorker::Run(Box::new(joined(members)))).unwrap();
    for number in 0..3 {
        let reply = replies.recv().unwrap();
        let FromWorker::Answer { attempt, result: Err(AttemptError::Device(why)) } = reply else {
            panic!("{reply:?}")
        };
        assert_eq!(attempt.number, number);
        assert!(why.starts_with("no memory for"), "{why}");
    }
    requests.send(&run(3)).unwrap();
    assert!(matches!(replies.recv(), Ok(FromWorker::Answer { result: Ok(_), .. })));
    requests.send(&ToWorker::Stop).unwrap();
    assert_eq!(ended.recv_timeout(PATIENCE), Ok(exit::OK));
}
