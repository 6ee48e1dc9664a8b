//! A pool that has nothing to do: it keeps no worker, starts none, and gets all of them back.

use std::sync::Arc;

use super::models::{ask, offer, windowed};
use super::*;

/// A pool without workers, and those that it orders when it wakes.
fn resting() -> Rig {
    resting_with(|_| {})
}

fn resting_with(change: impl FnOnce(&mut PoolConfig)) -> Rig {
    let mut rig = windowed(1, 4);
    rig.seen.clear();
    let mut config = PoolConfig::DEFAULT;
    change(&mut config);
    rig.pool = Pool::new(config, &[device(0)]).windowed(4).resting();
    rig.tell(Event::ClientConnected { client: ClientId(1) });
    rig
}

/// The same, awake and READY.
fn awake_with(change: impl FnOnce(&mut PoolConfig)) -> Rig {
    let mut rig = resting_with(change);
    rig.tell(Event::WakeRequested);
    offer(&mut rig, 0, &["a"]);
    rig.ready(0);
    rig
}

fn exited(rig: &mut Rig, worker: WorkerId, status: ExitStatus) {
    let exit = Exit { status, fault: None, last_words: None };
    rig.tell(Event::WorkerExited { worker, exit });
}

#[test]
fn a_pool_that_rests_has_no_worker_and_takes_no_job_until_it_wakes() {
    let mut rig = resting();
    rig.wait_ms(10_000);
    assert_eq!(rig.seen, []);
    ask(&mut rig, 1, "a");
    let [Refusal::Invalid(why)] = rig.refusals()[..] else { panic!("{:?}", rig.seen) };
    assert!(why.contains("model load"), "{why}");
    rig.tell(Event::WakeRequested);
    assert_eq!(rig.spawns(0).len(), 1);
    offer(&mut rig, 0, &["a"]);
    rig.ready(0);
    ask(&mut rig, 2, "a");
    assert_eq!(rig.batches(0).concat(), [2]);
}

#[test]
fn a_pool_that_goes_to_rest_finishes_what_it_has_and_may_wake_while_its_workers_end() {
    let mut rig = resting();
    rig.tell(Event::WakeRequested);
    offer(&mut rig, 0, &["a"]);
    rig.ready(0);
    ask(&mut rig, 1, "a");
    rig.tell(Event::RestRequested);
    let stops = |rig: &Rig| rig.count(|action| matches!(action, Action::Stop { .. }));
    assert_eq!(stops(&rig), 0, "it has a job");
    rig.answer(0);
    assert_eq!((rig.verdicts(1), stops(&rig)), (vec![Verdict::Ok], 1));
    rig.tell(Event::WakeRequested);
    assert_eq!(rig.spawns(0).len(), 1, "the old process may still hold the device's memory");
    rig.die(0, ExitStatus::Code(0));
    rig.wait_ms(10);
    assert_eq!(rig.spawns(0).len(), 2);
    rig.tell(Event::RestRequested);
    rig.die(0, ExitStatus::Code(0));
    rig.wait_ms(60_000);
    assert_eq!(rig.spawns(0).len(), 2, "nothing is started while it rests");
    assert_eq!(rig.pool.counters().quarantines, 0);
    rig.tell(Event::DrainRequested);
    assert!(rig.actions().any(|action| *action == Action::Leave));
}

#[test]
fn a_worker_that_dies_while_the_pool_goes_to_rest_is_replaced_as_long_as_a_job_waits() {
    let mut rig = resting();
    rig.tell(Event::WakeRequested);
    offer(&mut rig, 0, &["a"]);
    rig.ready(0);
    ask(&mut rig, 1, "a");
    rig.tell(Event::RestRequested);
    rig.die(0, SIGKILL);
    rig.wait_ms(50);
    offer(&mut rig, 0, &["a"]);
    rig.ready(0);
    rig.answer(0);
    assert_eq!(rig.verdicts(1), [Verdict::Ok]);
    let name: Arc<str> = "a".into();
    assert!(rig.pool.is_resting() && rig.pool.slots[0].offers.contains(&name));
}

#[test]
fn whatever_is_submitted_while_old_processes_end_waits_for_the_new_ones() {
    let mut rig = awake_with(|_| {});
    rig.tell(Event::RestRequested);
    rig.tell(Event::WakeRequested);
    assert!(rig.pool.awaits_workers());
    ask(&mut rig, 1, "a");
    assert!(rig.verdicts(1).is_empty(), "the next process may have `a`");
    // It comes for a pool that drains as well.
    rig.tell(Event::DrainRequested);
    rig.die(0, ExitStatus::Code(0));
    assert_eq!(rig.spawns(0).len(), 2);
    offer(&mut rig, 0, &["a"]);
    rig.ready(0);
    rig.answer(0);
    assert_eq!(rig.verdicts(1), [Verdict::Ok]);
}

#[test]
fn a_rest_gives_nobody_memory_that_another_has_and_forgives_no_backoff() {
    let mut rig = awake_with(|config| config.reclaim_timeout = Duration::from_secs(1));
    let worker = rig.worker(0);
    rig.tell(Event::RestRequested);
    exited(&mut rig, worker, ExitStatus::Code(0));
    rig.tell(Event::WakeRequested);
    assert_eq!(rig.spawns(0).len(), 1, "its memory is not back");
    rig.wait_ms(1_000);
    assert_eq!(rig.spawns(0).len(), 2);
    let mut rig = awake_with(|config| config.backoff_min = Duration::from_secs(1));
    rig.die_and_return(0, SIGSEGV);
    rig.die(0, SIGSEGV);
    rig.tell(Event::RestRequested);
    rig.wait_ms(100);
    rig.tell(Event::WakeRequested);
    assert_eq!(rig.spawns(0).len(), 2, "the backoff is not over");
    rig.wait_ms(900);
    assert_eq!(rig.spawns(0).len(), 3);
}

#[test]
fn a_device_whose_try_was_called_off_is_tried_when_the_pool_wakes() {
    let mut rig = awake_with(|config| config.restart_limit = 1);
    rig.die(0, SIGSEGV);
    rig.wait(Duration::from_secs(60));
    assert_eq!(rig.state(0), WorkerState::Starting, "it is tried");
    let worker = rig.worker(0);
    rig.tell(Event::RestRequested);
    rig.wait_ms(2_000);
    assert_eq!(rig.spawns(0).len(), 2, "nothing is tried while it rests");
    rig.exit(worker, ExitStatus::Code(0));
    rig.wait_ms(2_000);
    assert_eq!(rig.spawns(0).len(), 2);
    rig.tell(Event::WakeRequested);
    assert_eq!((rig.spawns(0).len(), rig.state(0)), (3, WorkerState::Starting));
    rig.ready(0);
    assert_eq!(rig.pool.counters().quarantines, 1, "the rest was no fault of the device");
    assert_eq!(rig.state(0), WorkerState::Ready);
}

#[test]
fn a_drain_or_a_stop_of_a_pool_that_rests_starts_nobody_and_leaves() {
    for order in [Event::DrainRequested, Event::StopRequested] {
        let mut rig = resting();
        rig.tell(order);
        assert!(rig.actions().all(|action| *action == Action::Leave), "{:?}", rig.seen);
        assert_eq!(rig.seen.len(), 1);
    }
}

#[test]
fn a_pool_whose_last_job_ends_by_time_starts_nobody_for_it() {
    let mut rig = awake_with(|config| config.backoff_min = Duration::from_secs(1));
    rig.die_and_return(0, SIGSEGV);
    offer(&mut rig, 0, &["a"]);
    rig.submit_as(1, 1, |request| {
        request.model = Some("a".into());
        request.deadline = Duration::from_secs(1);
    });
    rig.tell(Event::RestRequested);
    rig.die(0, SIGSEGV);
    // Its deadline and the end of the backoff fall on one moment.
    rig.wait_ms(1_000);
    assert_eq!(rig.verdicts(1), [Verdict::Deadline]);
    assert_eq!(rig.spawns(0).len(), 2);
}

#[test]
fn one_that_has_to_be_killed_when_the_pool_rests_says_nothing_about_its_device() {
    let mut rig = resting();
    rig.tell(Event::WakeRequested);
    let worker = rig.worker(0);
    rig.tell(Event::RestRequested);
    rig.wait(PoolConfig::DEFAULT.kill_timeout);
    assert_eq!(rig.kills(), 1);
    rig.exit(worker, ExitStatus::Code(73));
    assert_eq!((rig.pool.counters().quarantines, rig.pool.is_misconfigured()), (0, false));
    rig.tell(Event::WakeRequested);
    assert_eq!((rig.spawns(0).len(), rig.pool.counters().restarts), (2, 0));
}
