//! Standbys: which one takes over, when, and which attempts run again before the old process is gone.

use gridpool_protocol::receipt::AttemptOutcome;

use super::*;

/// One device with an active worker and a standby.
fn rig(change: impl FnOnce(&mut PoolConfig)) -> Rig {
    let mut rig = Rig::with(1, |config| {
        config.standbys = 1;
        change(config);
    });
    let standby = named(2);
    rig.tell(Event::Worker(standby, WorkerEvent::Ready(info(0))));
    assert_eq!(states(&rig), [WorkerState::Ready, WorkerState::Standby]);
    rig
}

fn named(generation: u32) -> WorkerId {
    WorkerId { device: device(0), group: Group::Grid, generation }
}

fn states(rig: &Rig) -> Vec<WorkerState> {
    rig.rows().iter().map(|row| row.state).collect()
}

fn submit_inline(rig: &mut Rig, key: u128) {
    rig.submit_as(1, key, |request| (request.answer_inline, request.divisible) = (true, false));
}

#[test]
fn a_standby_is_started_once_a_worker_serves_and_gets_no_job() {
    let mut rig = Rig::starting(1, |config| config.standbys = 2);
    assert_eq!(rig.spawns(0).len(), 1);
    rig.ready(0);
    assert_eq!(rig.spawns(0).len(), 3);
    for generation in [2, 3] {
        rig.tell(Event::Worker(named(generation), WorkerEvent::Ready(info(0))));
    }
    rig.submit(1);
    rig.submit(2);
    assert_eq!(rig.runs(0), Some((1, 1)));
    assert_eq!(states(&rig), [WorkerState::Busy, WorkerState::Standby, WorkerState::Standby]);
    assert_eq!(rig.core.counters().attempts, 1);
}

#[test]
fn a_lost_beacon_is_enough_to_retry_a_job_with_an_inline_answer() {
    let mut rig = rig(|_| {});
    submit_inline(&mut rig, 1);
    let old = rig.lose_beacon(0);
    assert!(
        rig.actions().any(|action| matches!(action, Action::Kill { worker, .. } if *worker == old))
    );
    assert_eq!((rig.worker(0), rig.runs(0)), (named(2), Some((1, 2))));
    rig.answer(0);
    assert_eq!(rig.verdicts(1), [Verdict::Ok]);
    rig.exit(old, SIGSEGV);
    assert_eq!(rig.verdicts(1), [Verdict::Ok]);
    assert_eq!(rig.spawns(0).len(), 3, "the next standby");
    let outcomes = rig.outcomes(1);
    assert_eq!(outcomes, [AttemptOutcome::WorkerDied, AttemptOutcome::Ok]);
}

#[test]
fn a_result_in_shared_memory_waits_until_the_old_process_is_gone() {
    let mut rig = rig(|_| {});
    rig.submit_as(1, 1, |request| request.divisible = false);
    let old = rig.lose_beacon(0);
    assert_eq!(rig.runs(0), None);
    rig.exit(old, SIGKILL);
    assert_eq!((rig.worker(0), rig.runs(0)), (named(2), Some((1, 2))));
}

#[test]
fn the_last_message_of_an_old_process_has_no_effect_on_a_retried_job() {
    let mut rig = rig(|_| {});
    submit_inline(&mut rig, 1);
    let attempt = rig.attempt(0).unwrap();
    let worker = rig.lose_beacon(0);
    rig.tell(Event::Worker(worker, WorkerEvent::Answered { attempt, result: Ok(report()) }));
    assert_eq!((rig.verdicts(1).len(), rig.core.counters().stale), (0, 1));
    rig.answer(0);
    rig.exit(worker, SIGSEGV);
    assert_eq!(rig.verdicts(1), [Verdict::Ok]);
    assert_eq!(rig.receipts(1)[0].attempts.len(), 2);
}

#[test]
fn a_late_answer_clears_its_job_and_the_death_counts_against_the_next() {
    let mut rig = rig(|config| (config.feed_cost_max, config.poison_deaths) = (100, 2));
    submit_inline(&mut rig, 1);
    submit_inline(&mut rig, 2);
    let attempt = rig.attempt(0).unwrap();
    let worker = rig.lose_beacon(0);
    rig.tell(Event::Worker(worker, WorkerEvent::Answered { attempt, result: Ok(report()) }));
    rig.exit(worker, SIGSEGV);
    let asked = rig.count(|action| matches!(action, Action::HashContent { job: JobId(2), .. }));
    assert_eq!(asked, 1, "the second was running when it died");
}

#[test]
fn a_job_that_a_death_may_denylist_waits_until_the_death_is_explained() {
    let mut rig = rig(|_| {});
    submit_inline(&mut rig, 1);
    let first = rig.lose_beacon(0);
    assert_eq!(rig.runs(0), Some((1, 2)));
    let second = rig.lose_beacon(0);
    assert_eq!(second, named(2));
    rig.exit(second, SIGSEGV);
    assert_eq!(rig.verdicts(1), [], "the first death is not explained yet");
    rig.exit(first, SIGSEGV);
    assert_eq!(rig.verdicts(1), [Verdict::Poison]);
    let dispatched = rig.count(|action| matches!(action, Action::Dispatch { .. }));
    assert_eq!(dispatched, 2);
}

#[test]
fn a_standby_takes_over_at_once_after_a_hang_or_a_late_job() {
    let mut rig = rig(|_| {});
    submit_inline(&mut rig, 1);
    rig.mute.insert(0);
    for _ in 0..5 {
        rig.wait_ms(999);
        rig.tell(Event::Worker(named(2), WorkerEvent::Heard));
    }
    rig.wait_ms(5);
    assert_eq!((rig.worker(0), rig.runs(0)), (named(2), Some((1, 2))));
    rig.mute.clear();
    rig.answer(0);
    rig.exit(named(1), SIGKILL);
    rig.tell(Event::Worker(named(3), WorkerEvent::Ready(info(0))));
    rig.submit_as(1, 2, |request| request.deadline = Duration::from_millis(10));
    submit_inline(&mut rig, 3);
    rig.wait_ms(10);
    assert_eq!(rig.verdicts(2), [Verdict::Deadline]);
    rig.wait_ms(250);
    assert_eq!((rig.worker(0), rig.runs(0)), (named(3), Some((3, 1))));
}

#[test]
fn the_death_of_a_standby_counts_against_no_job_or_device() {
    let mut rig = rig(|config| config.restart_limit = 1);
    for generation in 2..12 {
        rig.exit(named(generation), SIGSEGV);
        while rig.rows().len() == 1 {
            rig.wait_ms(100);
        }
        rig.tell(Event::Worker(named(generation + 1), WorkerEvent::Ready(info(0))));
    }
    assert_eq!(states(&rig), [WorkerState::Ready, WorkerState::Standby]);
    rig.exit(named(12), ExitStatus::Code(73));
    assert_eq!(rig.worker(0), named(1));
    assert_eq!(rig.kills(), 0);
}

#[test]
fn a_device_without_an_active_worker_starts_one_process_and_not_beside_an_old_one() {
    let mut rig = rig(|_| {});
    let first = rig.lose_beacon(0);
    let second = rig.lose_beacon(0);
    assert_eq!(rig.spawns(0).len(), 2);
    rig.exit(second, SIGKILL);
    assert_eq!(rig.spawns(0).len(), 2, "the first is still there");
    rig.exit(first, SIGKILL);
    assert_eq!(rig.spawns(0).len(), 3);
    rig.tell(Event::Worker(named(3), WorkerEvent::Ready(info(0))));
    assert_eq!(rig.spawns(0).len(), 4);
    assert_eq!(rig.core.counters().restarts, 2);
}

#[test]
fn the_status_shows_how_long_a_start_and_an_end_took() {
    let mut rig = Rig::starting(1, |_| {});
    rig.wait_ms(30);
    rig.ready(0);
    assert_eq!(rig.rows()[0].start_us, Some(30_000));
    let old = rig.lose_beacon(0);
    rig.wait_ms(7);
    rig.exit(old, SIGKILL);
    let row = &rig.rows()[0];
    assert_eq!((row.start_us, row.end_us), (None, Some(7_000)));
}

#[test]
fn a_drain_ends_standbys_too() {
    let mut rig = rig(|_| {});
    rig.tell(Event::DrainRequested);
    let stops = rig.count(|action| matches!(action, Action::Stop { .. }));
    assert_eq!(stops, 2);
    for generation in [2, 1] {
        rig.exit(named(generation), ExitStatus::Code(0));
    }
    assert!(matches!(rig.actions().last(), Some(Action::Leave { .. })));
}
