//! How the pool ends: drain, its timeout, and the command to stop now.

use super::*;

fn leaves(rig: &Rig) -> usize {
    rig.count(|action| matches!(action, Action::Leave { .. }))
}

fn stops(rig: &Rig) -> usize {
    rig.count(|action| matches!(action, Action::Stop { .. }))
}

#[test]
fn a_drain_finishes_accepted_jobs_refuses_more_and_leaves() {
    let mut rig = Rig::new(1);
    rig.submit(1);
    rig.submit(2);
    rig.tell(Event::DrainRequested);
    assert!(rig.core.is_draining());
    rig.submit(3);
    assert_eq!(rig.refusals(), [&Refusal::Draining]);
    rig.answer(0);
    rig.die_and_return(0, SIGKILL);
    assert_eq!(rig.runs(0), Some((2, 2)), "a drain retries like any other time");
    assert_eq!(stops(&rig), 0);
    rig.answer(0);
    assert_eq!(rig.verdicts(2), [Verdict::Ok]);
    assert_eq!(stops(&rig), 1);
    assert_eq!(leaves(&rig), 0);
    rig.die(0, ExitStatus::Code(0));
    assert_eq!(leaves(&rig), 1);
    assert_eq!(rig.kills(), 0);
    assert_eq!(rig.spawns(0).len(), 2);
    rig.wait(Duration::from_secs(600));
    assert!(matches!(rig.actions().last(), Some(Action::Leave { .. })));
}

#[test]
fn a_request_to_end_that_is_sent_twice_in_a_second_stops_nothing_and_a_later_one_does() {
    let mut rig = Rig::new(1);
    rig.submit(1);
    rig.tell(Event::EndRequested);
    rig.wait_ms(999);
    rig.tell(Event::EndRequested);
    assert_eq!(rig.kills(), 0);
    rig.wait_ms(1);
    rig.tell(Event::EndRequested);
    assert_eq!((rig.kills(), rig.verdicts(1)), (1, vec![Verdict::Cancelled]));
}

#[test]
fn a_worker_that_does_not_stop_is_killed_and_one_that_cannot_be_killed_is_left_behind() {
    let mut rig = Rig::new(1);
    rig.tell(Event::DrainRequested);
    rig.wait_ms(4_999);
    assert_eq!(rig.kills(), 0);
    rig.wait_ms(1);
    assert_eq!(rig.kills(), 1);
    assert_eq!(leaves(&rig), 0);
    rig.wait_ms(5_000);
    assert_eq!(leaves(&rig), 1);
}

#[test]
fn a_drain_that_takes_too_long_is_cut_off() {
    let mut rig = Rig::new(1);
    rig.submit_as(1, 1, |request| request.deadline = Duration::from_secs(600));
    rig.submit_as(1, 2, |request| request.deadline = Duration::from_secs(600));
    rig.tell(Event::DrainRequested);
    rig.wait_ms(29_999);
    assert_eq!(rig.kills(), 0);
    rig.tell(Event::DrainRequested); // changes nothing
    rig.wait_ms(1);
    assert_eq!(rig.verdicts(1), [Verdict::Cancelled]);
    assert_eq!(rig.verdicts(2), [Verdict::Cancelled]);
    assert_eq!(rig.kills(), 1);
    rig.die(0, SIGKILL);
    assert_eq!(leaves(&rig), 1);
    assert_eq!(rig.spawns(0).len(), 1);
    rig.assert_counters_add_up(0);
}

#[test]
fn the_longest_drain_is_as_long_as_promised() {
    let mut rig = Rig::new(2);
    rig.submit_as(1, 1, |request| request.deadline = Duration::from_secs(600));
    rig.submit_as(1, 2, |request| request.deadline = Duration::from_secs(600));
    rig.tell(Event::DrainRequested);
    let longest = PoolConfig::DEFAULT.longest_drain();
    // The workers finish just in time, do not stop, and cannot be killed.
    rig.wait(PoolConfig::DEFAULT.drain_timeout - Duration::from_millis(1));
    rig.answer(0);
    rig.answer(1);
    rig.wait(longest - PoolConfig::DEFAULT.drain_timeout - Duration::from_millis(1));
    assert_eq!((rig.kills(), leaves(&rig)), (2, 0));
    rig.wait_ms(2);
    assert_eq!(leaves(&rig), 1);
}

#[test]
fn a_stop_kills_now_whatever_the_drain_is_doing() {
    for already_stopping in [false, true] {
        let mut rig = Rig::new(2);
        rig.submit(1);
        rig.tell(Event::DrainRequested);
        if already_stopping {
            rig.answer(0);
        }
        rig.tell(Event::StopRequested);
        let verdict = if already_stopping { Verdict::Ok } else { Verdict::Cancelled };
        assert_eq!(rig.verdicts(1), [verdict]);
        assert_eq!(rig.kills(), 2);
        rig.tell(Event::StopRequested);
        assert_eq!(rig.kills(), 2);
        rig.die(0, SIGKILL);
        assert_eq!(leaves(&rig), 0);
        rig.die(1, SIGKILL);
        assert_eq!(leaves(&rig), 1);
    }
}

#[test]
fn a_drain_without_processes_ends_at_once() {
    let mut rig = Rig::starting(1, |_| {});
    rig.die(0, ExitStatus::Code(73));
    rig.tell(Event::DrainRequested);
    assert_eq!(leaves(&rig), 1);
}

#[test]
fn a_drain_ends_when_the_last_device_is_lost() {
    let mut rig = Rig::starting(1, |_| {});
    rig.submit(1);
    rig.tell(Event::DrainRequested);
    rig.die(0, ExitStatus::Code(73));
    assert_eq!(rig.verdicts(1), [Verdict::DeviceLost]);
    assert_eq!(leaves(&rig), 1);
}

#[test]
fn a_start_that_fails_while_the_pool_leaves_is_not_retried() {
    let mut rig = Rig::starting(1, |config| config.start_failures_max = 1);
    rig.tell(Event::DrainRequested);
    rig.tell(Event::Worker(
        rig.worker(0),
        WorkerEvent::SpawnFailed { detail: "EAGAIN".to_owned(), is_final: false },
    ));
    assert_eq!(leaves(&rig), 1);
    assert_eq!(rig.state(0), WorkerState::Stopped);
    assert_eq!(rig.core.poll_deadline(), None);
}
