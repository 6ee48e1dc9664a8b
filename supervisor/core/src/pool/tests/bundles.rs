//! Jobs that came as one: they count as so many, and are given back if one of them may have cost a worker.

use gridpool_protocol::message::Limit;
use gridpool_protocol::receipt::AttemptOutcome;

use super::*;

/// Submits so many jobs as one.
fn submit(rig: &mut Rig, key: u128, jobs: u32) {
    rig.submit_as(1, key, |request| (request.jobs, request.items) = (jobs, jobs));
}

/// The keys of the bundles that a client is to submit apart.
fn given_back(rig: &Rig) -> usize {
    rig.refusals().into_iter().filter(|&refusal| *refusal == Refusal::Bundled).count()
}

#[test]
fn the_jobs_of_a_bundle_count_against_every_limit_and_in_every_sum() {
    let mut rig = Rig::with(1, |config| (config.client_jobs_max, config.queue_jobs_max) = (64, 40));
    submit(&mut rig, 1, 32);
    submit(&mut rig, 2, 32);
    assert_eq!(rig.core.counters().accepted, 64);
    assert_eq!((rig.core.queue().jobs, rig.rows()[0].jobs_done), (32, 0));
    submit(&mut rig, 3, 1);
    assert_eq!(rig.refusals(), [&Refusal::Busy(Limit::ClientJobs)]);
    rig.submit_as(2, 4, |request| request.jobs = 9);
    assert_eq!(rig.refusals()[1], &Refusal::Busy(Limit::QueueJobs));
    assert_eq!(rig.core.counters().refused_busy, 10);
    rig.answer(0);
    assert_eq!((rig.core.counters().ok, rig.rows()[0].jobs_done), (32, 1));
    let rows = rig.core.principals(Timestamp::default(), &BTreeSet::new());
    let (_, own) = rows.iter().find(|(who, _)| *who == Some(Principal::Uid(1))).unwrap();
    assert_eq!((own.done, own.running, own.refused), (32, 32, 1));
}

#[test]
fn a_bundle_of_a_program_with_a_job_on_the_denylist_is_given_back() {
    let mut rig = Rig::with(1, |config| config.poison_deaths = 1);
    rig.submit(1);
    rig.die_and_return(0, SIGSEGV);
    assert_eq!(rig.verdicts(1), [Verdict::Poison]);
    submit(&mut rig, 2, 3);
    assert_eq!(rig.refusals(), [&Refusal::Bundled], "one of its jobs may be that one");
    rig.submit_as(1, 3, |request| (request.jobs, request.work) = (3, program("another")));
    assert_eq!(given_back(&rig), 1);
}

#[test]
fn a_bundle_that_no_limit_can_ever_take_is_given_back_at_once() {
    let mut rig = Rig::with(1, |config| config.client_jobs_max = 31);
    submit(&mut rig, 1, 32);
    assert_eq!(rig.refusals(), [&Refusal::Bundled]);
    submit(&mut rig, 2, 31);
    assert_eq!((given_back(&rig), rig.core.counters().accepted), (1, 31));
}

#[test]
fn a_bundle_whose_worker_dies_of_it_is_given_back_and_none_of_its_jobs_is_convicted() {
    let mut rig = Rig::new(1);
    submit(&mut rig, 1, 3);
    rig.die_and_return(0, SIGSEGV);
    assert_eq!((given_back(&rig), rig.runs(0)), (1, None));
    assert_eq!(rig.verdicts(1), [Verdict::Cancelled], "the pool's own books end");
    let receipt = &rig.receipts(1)[0];
    assert_eq!(receipt.attempts[0].outcome, AttemptOutcome::WorkerDied);
    assert!(receipt.reason.ends_with("; its jobs run again one by one"), "{}", receipt.reason);
    let is_told = |action: &Action| matches!(action, Action::Finish { client: Some(_), .. });
    let hashed = |action: &Action| matches!(action, Action::HashContent { .. });
    assert_eq!((rig.count(is_told), rig.count(hashed)), (0, 0));
    assert_eq!((rig.core.counters().accepted, rig.core.counters().cancelled), (3, 3));
    // Its key may be used again: the verdict is not remembered.
    submit(&mut rig, 1, 3);
    assert_eq!(rig.core.counters().accepted, 6);
}

#[test]
fn a_bundle_whose_worker_was_killed_from_outside_runs_again_as_one() {
    let mut rig = Rig::new(1);
    submit(&mut rig, 1, 3);
    rig.die_and_return(0, SIGKILL);
    rig.answer(0);
    assert_eq!((given_back(&rig), rig.verdicts(1)), (0, vec![Verdict::Ok]));
    assert_eq!((rig.core.counters().accepted, rig.core.counters().ok), (3, 3));
}
