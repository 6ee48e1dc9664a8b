//! The loop between messages: when the device is tested, and that a job need not wait for all of that.

use std::thread::JoinHandle;

use gridpool_kernels::known_answer::KNOWN_ANSWERS;
use gridpool_protocol::batch::{Grid, GridBatch};
use gridpool_protocol::channel::Listener;
use gridpool_protocol::chaos::{ChaosFault, ReplyFault};
use gridpool_protocol::ids::JobId;
use gridpool_protocol::message::{Destination, Inline, Input, Payload};
use gridpool_protocol::program::Ties;
use gridpool_protocol::receipt::ItemRange;
use gridpool_protocol::shared::SharedSlice;

use super::*;
use crate::cpu::CpuDevice;

/// Far longer than any of this takes.
const PATIENCE: Duration = Duration::from_secs(60);
const NEVER: Duration = Duration::from_secs(3_600);

/// A loop in a thread of its own, and the supervisor's ends of its channel.
struct Looped {
    requests: Sender<ToWorker>,
    replies: Receiver<FromWorker>,
    ended: mpsc::Receiver<i32>,
}

/// A loop that tests its device `every` so often; the device lies or does not.
fn looped(every: Duration, lies: bool) -> Looped {
    let (listener, name) = Listener::open().unwrap();
    let (to_supervisor, mut from_supervisor) = channel::connect(&name).unwrap();
    let (requests, replies) = listener.accept().unwrap();
    let (end, ended) = mpsc::channel();
    // Not joined: it may be waiting for ever.
    thread::spawn(move || {
        let (arenas, programs, adopted) = Default::default();
        let mut worker = Worker { replies: to_supervisor, arenas, programs, adopted };
        let mut device = Saboteur::new(Box::new(CpuDevice::open(0, 1).unwrap()));
        device.arm(lies.then_some(ChaosFault::Reply(ReplyFault::Wrong)));
        let mut checkup = Checkup::new(every, clock::now());
        end.send(worker.serve(&mut from_supervisor, &mut device, &mut checkup)).unwrap();
    });
    Looped { requests, replies, ended }
}

fn run(number: u32) -> ToWorker {
    let batch = GridBatch::from_grids([&Grid::from_rows(&[[1, 2]]).unwrap()]).unwrap();
    let layout = batch.layout().unwrap();
    let mut bytes = vec![0; layout.bytes()];
    batch.write_to(layout, &SharedSlice::private(&mut bytes));
    let input = Input::Inline(Inline(bytes));
    let member = Member {
        attempt: AttemptId { job: JobId(1), number },
        payload: Payload { items: 1, cells: 2, input, output: Destination::Inline },
        part: ItemRange { start: 0, end: 1 },
        chaos: None,
    };
    let program = "rot90".to_owned();
    ToWorker::Run(Box::new(Run { program, ties: Ties::Cpython, members: vec![member] }))
}

/// Sends runs as fast as they are taken, until nobody takes them: the loop is never idle.
fn flood(requests: Sender<ToWorker>) -> JoinHandle<u32> {
    thread::spawn(move || {
        (0..).take_while(|&number| requests.send(&run(number)).is_ok()).last().unwrap()
    })
}

/// Whether the last words are of a wrong answer, and the code with them.
fn is_found_out(looped: &mut Looped) {
    assert_eq!(looped.ended.recv_timeout(PATIENCE), Ok(exit::DEVICE_LOST));
    let words = std::iter::from_fn(|| looped.replies.recv().ok()).last();
    let Some(FromWorker::Dying { code, message, attempt }) = words else { panic!("{words:?}") };
    assert_eq!((code, attempt), (exit::DEVICE_LOST, None));
    assert!(message.starts_with("the device fails its known-answer test: "), "{message}");
}

#[test]
fn an_idle_worker_whose_device_lies_ends() {
    is_found_out(&mut looped(Duration::from_millis(10), true));
}

#[test]
fn a_worker_that_is_never_idle_and_whose_device_lies_ends_too() {
    let Looped { requests, mut replies, ended } = looped(Duration::from_millis(10), true);
    let flood = flood(requests);
    // Answers are taken, or the worker would wait for room.
    let taken = thread::spawn(move || {
        std::iter::from_fn(|| replies.recv().ok())
            .filter(|m| matches!(m, FromWorker::Answer { .. }))
            .count()
    });
    assert_eq!(ended.recv_timeout(PATIENCE), Ok(exit::DEVICE_LOST));
    assert!(flood.join().unwrap() > 0 && taken.join().unwrap() > 0);
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
