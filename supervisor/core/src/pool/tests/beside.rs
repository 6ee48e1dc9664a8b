//! Workers that run several jobs at a time: which jobs run together, and what a loss costs them.

use gridpool_protocol::receipt::AttemptOutcome;

use super::*;

/// Workers that are READY, have the model `m` and take up to `attempts_max` jobs each.
fn concurrent(devices: u32, attempts_max: u32) -> Rig {
    let mut rig = Rig::concurrent(devices, attempts_max, |_| {});
    rig.models = &["m"];
    rig.wake();
    (0..devices).for_each(|index| rig.ready(index));
    rig
}

fn submit(rig: &mut Rig, job: u128) {
    submit_with(rig, job, |_| {});
}

fn submit_with(rig: &mut Rig, job: u128, change: impl FnOnce(&mut JobRequest)) {
    rig.submit_as(1, job, |request| {
        request.work = model("m");
        change(request);
    });
}

fn dispatches(rig: &Rig) -> usize {
    rig.count(|action| matches!(action, Action::Dispatch { .. }))
}

#[test]
fn a_worker_takes_jobs_of_any_kind_beside_each_other_up_to_its_window() {
    let mut rig = concurrent(2, 2);
    (1..=5).for_each(|job| submit(&mut rig, job));
    assert_eq!(dispatches(&rig), 4, "two each");
    rig.answer(0);
    assert_eq!(dispatches(&rig), 5, "the next one takes the place");
}

#[test]
fn a_job_that_must_not_run_twice_runs_alone_and_does_not_starve() {
    let mut rig = concurrent(1, 8);
    submit(&mut rig, 1);
    submit_with(&mut rig, 2, |request| request.idempotent = false);
    submit(&mut rig, 3);
    assert_eq!(dispatches(&rig), 1, "it waits for the first, and the third for it");
    rig.answer(0);
    assert_eq!((dispatches(&rig), rig.runs(0)), (2, Some((2, 1))));
    rig.answer(0);
    assert_eq!((dispatches(&rig), rig.runs(0)), (3, Some((3, 1))));
}

#[test]
fn concurrent_requests_share_a_loss_and_are_bisected() {
    let mut rig = concurrent(1, 4);
    (1..=4).for_each(|job| submit(&mut rig, job));
    rig.die_and_return(0, SIGSEGV);
    assert_eq!(rig.dispatches(0).concat(), [1, 2], "the first half, and nothing beside it");
    submit(&mut rig, 5);
    assert_eq!(rig.dispatches(0).concat(), [1, 2]);
    rig.answer(0);
    rig.answer(0);
    assert_eq!(rig.dispatches(0).concat(), [3, 4]);
    assert_eq!(rig.verdicts(1), [Verdict::Ok]);
}

#[test]
fn a_late_request_has_a_grace_while_the_others_go_on() {
    let mut rig = concurrent(1, 4);
    submit_with(&mut rig, 1, |request| request.deadline = Duration::from_secs(1));
    rig.wait_ms(1_000);
    assert_eq!((rig.verdicts(1), rig.kills()), (vec![Verdict::Deadline], 0));
    submit(&mut rig, 2);
    rig.wait_ms(249);
    assert_eq!(rig.kills(), 0);
    rig.wait_ms(1);
    assert_eq!(rig.kills(), 1);
    rig.die_and_return(0, SIGKILL);
    rig.answer(0);
    assert_eq!(rig.verdicts(2), [Verdict::Ok]);
    assert_eq!(rig.receipts(2)[0].attempts[0].outcome, AttemptOutcome::Preempted);
}

#[test]
fn a_job_that_killed_a_worker_alone_runs_alone() {
    let mut rig = concurrent(1, 4);
    submit(&mut rig, 1);
    rig.die(0, SIGSEGV);
    (2..=4).for_each(|job| submit(&mut rig, job));
    rig.wait_ms(50);
    rig.ready(0);
    assert_eq!(rig.dispatches(0).concat(), [1], "the others are not lost with it");
    rig.die_and_return(0, SIGSEGV);
    assert_eq!(rig.verdicts(1), [Verdict::Poison]);
    assert_eq!(rig.dispatches(0).concat(), [2, 3, 4]);
    assert_eq!(rig.core.counters().attempts, 5);
}

#[test]
fn a_death_explained_while_its_job_waits_again_makes_it_run_alone() {
    let mut rig = concurrent(2, 4);
    submit_with(&mut rig, 1, |request| {
        request.answer_inline = true;
        request.priority = Priority::Low;
    });
    submit_with(&mut rig, 2, |request| request.idempotent = false);
    let worker = rig.lose_beacon(0);
    (3..=4).for_each(|job| submit(&mut rig, job));
    assert_eq!(dispatches(&rig), 2, "nothing runs beside the second");
    rig.exit(worker, SIGSEGV);
    rig.answer(1);
    assert_eq!(
        rig.dispatches(1).concat(),
        [3, 4],
        "it was not known yet when the first began to wait"
    );
    rig.answer(1);
    rig.answer(1);
    assert_eq!(rig.dispatches(1).concat(), [1]);
}
