//! Dispatches that wait behind another while a device idles.

use gridpool_protocol::receipt::AttemptOutcome;

use super::*;
use crate::config::Concurrency;

/// A pool whose workers may have two dispatches of cost 100 each; the second waits at most a second.
fn rig(devices: u32) -> Rig {
    Rig::with(devices, |config| {
        (config.feed_cost_max, config.feed_timeout) = (100, Duration::from_secs(1));
    })
}

/// Jobs 1 and 2 run on workers 0 and 1, and job 3 waits behind job 1.
fn fed(mut rig: Rig) -> Rig {
    rig.submit_as(1, 1, |request| request.cost = 10);
    rig.submit_as(1, 2, |request| request.cost = 20);
    rig.submit(3);
    assert_eq!((rig.dispatches(0), rig.dispatches(1)), (vec![vec![1], vec![3]], vec![vec![2]]));
    rig
}

#[test]
fn a_job_behind_one_that_hangs_goes_to_a_device_that_idles() {
    let mut rig = fed(rig(2));
    rig.wait_ms(300);
    rig.answer(1);
    rig.wait_ms(699);
    assert_eq!(rig.kills(), 0);
    rig.wait_ms(1);
    assert_eq!(rig.kills(), 1);
    assert_eq!(rig.dispatches(1), [[0; 0]; 0], "its worker may still write the result");
    rig.die(0, SIGKILL);
    assert_eq!(rig.runs(1), Some((1, 2)), "it waited first");
    rig.answer(1);
    assert_eq!(rig.runs(1), Some((3, 2)));
    rig.answer(1);
    for key in [1, 3] {
        assert_eq!(rig.outcomes(key), [AttemptOutcome::Preempted, AttemptOutcome::Ok]);
    }
}

#[test]
fn no_worker_is_killed_for_a_second_dispatch_while_no_device_idles() {
    let mut rig = fed(rig(2));
    rig.wait_ms(20_000);
    assert_eq!(rig.kills(), 0);
    rig.answer(1);
    assert_eq!(rig.kills(), 1, "it has waited for long enough");
}

#[test]
fn no_worker_is_killed_for_a_second_dispatch_without_live_jobs() {
    let mut rig = fed(rig(2));
    rig.answer(1);
    rig.cancel(3);
    rig.wait_ms(20_000);
    assert_eq!(rig.kills(), 0);
}

#[test]
fn a_silent_worker_does_not_count_as_idle() {
    let mut rig = fed(rig(2));
    let feed_timeout = Duration::from_secs(3);
    let concurrency = Concurrency::Exclusive { feed_cost_max: 100, feed_timeout };
    rig.core.pool.groups[Group::Grid].limits.concurrency = concurrency;
    rig.answer(1);
    rig.mute.insert(1);
    rig.wait_ms(4_999);
    assert_eq!(rig.kills(), 0);
}

#[test]
fn a_job_that_keeps_others_waiting_costs_one_worker_and_is_no_suspect() {
    let mut rig = Rig::with(2, |config| {
        (config.feed_cost_max, config.feed_timeout) = (100, Duration::from_secs(1));
        (config.attempts_max, config.poison_deaths, config.restart_limit) = (1, 1, 1);
    });
    rig = fed(rig);
    rig.wait_ms(1_000);
    rig.answer(1);
    rig.die(0, SIGKILL);
    rig.ready(0);
    assert_eq!((rig.dispatches(1), rig.dispatches(0)), (vec![vec![1]], vec![vec![3]]));
    rig.submit_as(1, 4, |request| request.cost = 100);
    assert_eq!(rig.dispatches(0), [[3], [4]], "no job waits behind job 1 again");
    rig.answer(0);
    rig.submit(5);
    assert_eq!(rig.dispatches(0), [[4], [5]]);
    rig.answer(0);
    rig.answer(0);
    rig.wait_ms(5_000);
    rig.answer(1);
    assert_eq!(rig.kills(), 1);
    assert_eq!(rig.outcomes(1), [AttemptOutcome::Preempted, AttemptOutcome::Ok]);
}

#[test]
fn no_job_waits_behind_one_that_must_not_run_twice() {
    let mut rig = rig(1);
    rig.submit_as(1, 1, |request| request.idempotent = false);
    rig.submit(2);
    assert_eq!(rig.dispatches(0), [[1]]);
}

#[test]
fn a_stopped_supervisor_takes_no_time_from_the_front_dispatch() {
    let mut rig = fed(rig(2));
    rig.answer(1);
    rig.now = rig.now.after(Duration::from_secs(20));
    rig.tell(Event::TimePassed);
    assert_eq!(rig.kills(), 0, "its answer may have come and not been read");
    rig.wait_ms(100);
    assert_eq!(rig.kills(), 1);
}
