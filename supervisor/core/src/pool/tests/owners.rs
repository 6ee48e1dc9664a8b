//! How devices go from one pool to the next, one by one.

use super::*;
use crate::event::{HandOver, Predecessor};

const BEGUN: Event = Event::HandOver(HandOver::Begun);
const FAILED: Event = Event::HandOver(HandOver::Failed);
const ONE_BY_ONE: Event = Event::HandOver(HandOver::OneByOne);

fn done() -> Event {
    Event::HandOver(HandOver::Done { stay: vec![ClientId(1)] })
}

fn freed(index: u32) -> Event {
    Event::Predecessor(Predecessor::Freed(device(index)))
}

impl Rig {
    /// The devices that are free for the successor.
    fn free(&self) -> Vec<u32> {
        let free = |action: &Action| {
            let Action::Free { device } = action else { return None };
            Some(device.index)
        };
        self.actions().filter_map(free).collect()
    }

    fn stopped(&self) -> Vec<u32> {
        let stopped = |action: &Action| {
            let Action::Stop { worker } = action else { return None };
            Some(worker.device.index)
        };
        self.actions().filter_map(stopped).collect()
    }

    /// A worker that was asked to end does.
    fn ends(&mut self, index: u32) {
        self.die(index, ExitStatus::Code(0));
    }

    /// A pool whose devices another still has.
    fn held(devices: u32) -> Self {
        let mut rig = Self::over(PoolConfig::DEFAULT, PolicyTable::default(), Group::Grid, devices);
        rig.core.hold_devices();
        rig.tell(Event::TimePassed);
        rig
    }

    /// Why an operator may not release a device.
    fn why_not_released(&mut self, index: u32) -> String {
        self.tell(released(Release::Device(device(index))));
        let why = self.actions().filter_map(|action| {
            let Action::Reply { result: Err(Refusal::Invalid(why)), .. } = action else {
                return None;
            };
            Some(why.clone())
        });
        why.last().expect("it is refused")
    }

    fn last_fault(&self, index: u32) -> String {
        self.rows()[index as usize].last_fault.clone()
    }
}

#[test]
fn the_first_device_that_serves_is_vacated_and_freed_once_nothing_of_its_worker_is_left() {
    let mut rig = Rig::with(3, |config| config.feed_cost_max = 1_000);
    rig.die(0, ExitStatus::Code(73));
    rig.submit(1);
    rig.submit(2);
    rig.tell(ONE_BY_ONE);
    assert_eq!((rig.stopped(), rig.free()), (vec![], vec![]), "device 1 is busy");
    assert!(rig.last_fault(1).contains("the new one gets it"), "{}", rig.last_fault(1));
    rig.submit(3);
    rig.submit(4);
    let at = |rig: &Rig, index| rig.dispatches(index).concat();
    assert_eq!((at(&rig, 1), at(&rig, 2)), (vec![1], vec![2, 3]), "nothing more for device 1");
    rig.answer(1);
    assert_eq!(rig.stopped(), [1]);
    let worker = rig.worker(1);
    let exit =
        Exit { status: ExitStatus::Code(0), fault: None, last_words: None, is_ordered: false };
    rig.tell(Event::Worker(worker, WorkerEvent::Exited(exit)));
    assert_eq!(rig.free(), [], "its memory is not");
    rig.tell(Event::Worker(worker, WorkerEvent::Reclaimed));
    assert_eq!(rig.free(), [1]);
    rig.wait(Duration::from_secs(2));
    assert_eq!(rig.spawns(1).len(), 1);
    rig.assert_counters_add_up(3);
}

#[test]
fn a_successor_that_fails_leaves_its_device_here() {
    for ended in [false, true] {
        let mut rig = Rig::new(2);
        rig.submit(1);
        rig.submit(2);
        rig.tell(ONE_BY_ONE);
        if ended {
            rig.answer(0);
            rig.ends(0);
            rig.tell(BEGUN);
        }
        rig.tell(FAILED);
        assert_eq!(rig.last_fault(0), "");
        if ended {
            assert_eq!(rig.spawns(0).len(), 2);
            rig.ready(0);
        } else {
            rig.answer(0);
        }
        rig.submit(3);
        assert_eq!(rig.runs(0), Some((3, 1)));
        // And another may come.
        rig.tell(ONE_BY_ONE);
        rig.answer(0);
        assert_eq!(rig.stopped().last(), Some(&0));
    }
}

#[test]
fn once_the_successor_serves_each_device_ends_its_workers_when_nothing_waits() {
    let mut rig = Rig::with(3, |config| config.shard_cost_min = 1);
    for client in 1..=3_u32 {
        rig.submit_as(client.into(), client.into(), |request| request.idempotent = false);
    }
    rig.submit_as(4, 4, |request| request.idempotent = false);
    rig.tell(ONE_BY_ONE);
    rig.answer(0);
    rig.ends(0);
    rig.tell(BEGUN);
    rig.tell(done());
    assert_eq!(rig.stopped(), [0], "a job waits that must not run twice");
    rig.answer(2);
    assert_eq!(rig.runs(2).map(|(job, _)| job), Some(4), "it runs here");
    rig.wait_ms(1);
    rig.answer(1);
    assert_eq!(rig.stopped(), [0, 1], "nothing waits for its device");
    rig.ends(1);
    assert_eq!(rig.free(), [0, 1]);
    rig.answer(2);
    rig.ends(2);
    assert_eq!(rig.free(), [0, 1, 2]);
    assert_eq!([1, 2, 3, 4].map(|key| rig.verdicts(key)), [[Verdict::Ok]; 4]);
}

#[test]
fn jobs_that_wait_for_the_only_device_go_over_even_those_that_must_not_run_twice() {
    let mut rig = Rig::new(1);
    rig.tell(Event::Client(ClientId(1), ClientEvent::Connected));
    rig.submit(1);
    rig.submit(2);
    rig.submit_as(1, 3, |request| request.idempotent = false);
    rig.tell(ONE_BY_ONE);
    rig.answer(0);
    rig.ends(0);
    rig.submit(4);
    rig.wait_ms(500);
    assert_eq!((rig.verdicts(2), rig.refusals().len()), (vec![], 0), "they wait");
    rig.tell(BEGUN);
    rig.tell(done());
    assert_eq!([2, 3, 4].map(|key| rig.verdicts(key)), [[Verdict::Cancelled]; 3]);
    let let_go = |action: &Action| matches!(action, Action::LetGo { .. });
    assert_eq!(rig.count(let_go), 1, "no worker stays for the gateway's connections");
    let told = |action: &Action| matches!(action, Action::Finish { client: Some(_), .. });
    assert_eq!(rig.count(told), 1, "the gateway submits what it has no verdict of");
}

#[test]
fn a_job_whose_worker_dies_on_the_last_device_goes_over() {
    let mut rig = Rig::new(2);
    rig.submit(1);
    rig.submit(2);
    rig.tell(ONE_BY_ONE);
    rig.answer(0);
    rig.ends(0);
    rig.tell(BEGUN);
    rig.tell(done());
    rig.die(1, SIGKILL);
    assert_eq!((rig.verdicts(2), rig.free()), (vec![Verdict::Cancelled], vec![0, 1]));
}

#[test]
fn a_device_that_was_given_away_is_not_released() {
    let mut rig = Rig::with(2, |_| {});
    rig.die(0, ExitStatus::Code(73));
    rig.tell(ONE_BY_ONE);
    let why = "gpu1 cannot be released: the pool is upgraded, and the new one gets it";
    assert_eq!((rig.stopped(), &*rig.why_not_released(1)), (vec![1], why));
    rig.tell(FAILED);
    assert_eq!(rig.why_not_released(1), "gpu1 is in service");
}

#[test]
fn no_process_starts_on_a_held_device_and_jobs_wait_for_it() {
    let mut rig = Rig::held(2);
    assert_eq!(rig.core.poll_deadline(), None, "no timer runs");
    rig.submit(1);
    rig.wait_ms(500);
    assert_eq!((rig.spawns(0), rig.verdicts(1)), (vec![], vec![]));
    assert_eq!(rig.last_fault(1), "the pool before this one still has it");
    let why = "gpu1 cannot be released: the pool before this one still has it";
    assert_eq!(rig.why_not_released(1), why);
    rig.tell(freed(1));
    rig.tell(freed(9));
    assert_eq!((rig.spawns(0).len(), rig.spawns(1).len()), (0, 1));
    rig.ready(1);
    assert_eq!(rig.runs(1), Some((1, 1)));
    rig.tell(Event::Predecessor(Predecessor::Gone));
    assert_eq!(rig.spawns(0).len(), 1);
}

#[test]
fn a_pool_that_can_start_no_worker_on_what_it_has_is_misconfigured() {
    let mut rig = Rig::held(2);
    rig.tell(freed(0));
    rig.die(0, ExitStatus::Code(73));
    let said = |action: &Action| matches!(action, Action::Misconfigured { .. });
    assert_eq!(rig.count(said), 1, "the other device is not tried");
}

#[test]
fn a_request_whose_model_only_the_given_device_had_goes_over() {
    let mut rig = Rig::concurrent(2, 1, |_| {});
    rig.tell(Event::TimePassed);
    (0..2).for_each(|index| rig.ready(index));
    rig.offer(0, &["m"]);
    rig.offer(1, &[]);
    rig.ask(1, "m");
    rig.submit_as(1, 2, |request| (request.work, request.idempotent) = (model("m"), false));
    rig.tell(ONE_BY_ONE);
    rig.answer(0);
    rig.ends(0);
    assert_eq!((rig.free(), rig.verdicts(2)), (vec![0], vec![]));
    rig.tell(BEGUN);
    rig.tell(done());
    assert_eq!(rig.verdicts(2), [Verdict::Cancelled], "not DEVICE_LOST");
}
