//! How jobs end: attempts, poison, deadlines, cancellation.

use gridpool_protocol::receipt::AttemptOutcome;

use super::*;

fn outcomes(rig: &Rig, key: u128) -> Vec<(String, AttemptOutcome)> {
    rig.receipt(key).attempts.iter().map(|a| (a.worker.to_string(), a.outcome)).collect()
}

#[test]
fn a_job_whose_worker_died_runs_again_on_another_device() {
    let mut rig = Rig::new(2);
    rig.submit(1);
    assert_eq!(rig.runs(0), Some((1, 1)));
    rig.die(0, SIGSEGV);
    assert_eq!(rig.runs(1), Some((1, 2)));
    rig.answer(1);
    assert_eq!(rig.verdicts(1), [Verdict::Ok]);
    let expected = [
        ("gpu0#1".to_owned(), AttemptOutcome::WorkerDied),
        ("gpu1#1".to_owned(), AttemptOutcome::Ok),
    ];
    assert_eq!(outcomes(&rig, 1), expected);
}

#[test]
fn a_retried_job_waits_for_a_starting_device_but_not_for_a_busy_or_lost_one() {
    let mut rig = Rig::new(2);
    rig.submit(1);
    rig.die(1, SIGSEGV);
    assert_eq!(rig.state(1), WorkerState::Starting);
    rig.die_and_return(0, SIGSEGV);
    assert_eq!(rig.runs(0), None, "device 1 will be ready soon");
    rig.ready(1);
    assert_eq!(rig.runs(1), Some((1, 2)));

    let mut rig = Rig::new(2);
    rig.submit(1);
    rig.submit(2);
    rig.die_and_return(0, SIGSEGV);
    assert_eq!(rig.runs(0), Some((1, 2)), "device 1 may be busy for long");

    let mut rig = Rig::new(2);
    rig.die(1, ExitStatus::Code(73));
    rig.submit(1);
    rig.die_and_return(0, SIGSEGV);
    assert_eq!(rig.runs(0), Some((1, 2)));
}

#[test]
fn a_bare_sigkill_gives_no_reason_to_avoid_the_device() {
    let mut rig = Rig::new(2);
    rig.submit(1);
    rig.die(1, SIGSEGV);
    assert_eq!(rig.state(1), WorkerState::Starting);
    rig.die_and_return(0, SIGKILL);
    assert_eq!(rig.runs(0), Some((1, 2)));
}

#[test]
fn a_bare_sigkill_is_no_evidence_but_counts_as_an_attempt() {
    let mut rig = Rig::with(1, |config| config.attempts_max = 3);
    rig.submit(1);
    for attempt in 1..=3 {
        assert_eq!(rig.verdicts(1), []);
        assert_eq!(rig.runs(0), Some((1, attempt)));
        rig.die_and_return(0, SIGKILL);
    }
    assert_eq!(rig.verdicts(1), [Verdict::Failed]);
    assert_eq!(rig.state(0), WorkerState::Ready);
}

#[test]
fn a_job_is_poison_after_two_deaths_with_evidence_and_not_after_one() {
    for status in [SIGSEGV, SIGABRT, STICKY] {
        let mut rig = Rig::new(1);
        rig.submit(1);
        rig.die_and_return(0, status);
        rig.die_and_return(0, SIGKILL);
        assert_eq!(rig.verdicts(1), []);
        rig.die(0, status);
        assert_eq!(rig.verdicts(1), [Verdict::Poison]);
        assert_eq!(rig.core.counters().attempts, 3);
    }
}

#[test]
fn the_second_death_with_evidence_is_poison_even_on_the_last_attempt() {
    let mut rig = Rig::with(1, |config| config.attempts_max = 2);
    rig.submit(1);
    rig.die_and_return(0, SIGSEGV);
    rig.die(0, SIGSEGV);
    assert_eq!(rig.verdicts(1), [Verdict::Poison]);
}

#[test]
fn a_worker_that_hangs_is_killed_and_its_job_runs_again() {
    let mut rig = Rig::new(2);
    rig.submit(1);
    rig.mute.insert(0);
    rig.wait_ms(4_999);
    assert_eq!(rig.kills(), 0);
    rig.wait_ms(1);
    assert_eq!(rig.kills(), 1);
    assert_eq!(rig.runs(1), None, "it may still run: the process is not gone yet");
    rig.die(0, SIGKILL);
    assert_eq!(rig.runs(1), Some((1, 2)));
    rig.answer(1);
    assert_eq!(outcomes(&rig, 1)[0].1, AttemptOutcome::Hang);
}

#[test]
fn two_hangs_are_poison() {
    let mut rig = Rig::new(1);
    rig.submit_as(1, 1, |request| request.deadline = Duration::from_secs(600));
    rig.mute.insert(0);
    rig.wait_ms(5_000);
    rig.die_and_return(0, SIGKILL);
    rig.wait_ms(5_000);
    rig.die(0, SIGKILL);
    assert_eq!(rig.verdicts(1), [Verdict::Poison]);
}

#[test]
fn a_job_that_must_not_run_twice_fails_with_its_first_attempt() {
    let mut rig = Rig::new(2);
    rig.submit_as(1, 1, |request| request.idempotent = false);
    rig.die(0, SIGKILL);
    assert_eq!(rig.verdicts(1), [Verdict::Failed]);
    assert_eq!(rig.core.counters().attempts, 1);
}

#[test]
fn a_device_error_runs_again_once_and_a_refusal_does_not() {
    let mut rig = Rig::new(2);
    rig.submit(1);
    rig.reply(0, Err(AttemptError::Device("out of memory".to_owned())));
    assert_eq!(rig.runs(1), Some((1, 2)));
    rig.reply(1, Err(AttemptError::Device("out of memory".to_owned())));
    assert_eq!(rig.verdicts(1), [Verdict::Failed]);
    rig.submit(2);
    rig.reply(0, Err(AttemptError::Refused("not a batch".to_owned())));
    assert_eq!(rig.verdicts(2), [Verdict::Failed]);
    assert_eq!(rig.receipts(2)[0].reason, "not a batch");
    assert_eq!(rig.kills(), 0);
}

#[test]
fn a_job_whose_deadline_passes_in_the_queue_ends_without_an_attempt() {
    let mut rig = Rig::starting(1, |_| {});
    rig.submit_as(1, 1, |request| request.deadline = Duration::from_secs(2));
    rig.wait_ms(1_999);
    assert_eq!(rig.verdicts(1), []);
    rig.wait_ms(1);
    assert_eq!(rig.verdicts(1), [Verdict::Deadline]);
    assert_eq!(outcomes(&rig, 1), []);
    rig.ready(0);
    assert_eq!(rig.runs(0), None);
}

#[test]
fn a_deadline_of_zero_has_passed_even_if_a_device_is_idle() {
    let mut rig = Rig::new(1);
    rig.submit_as(1, 1, |request| request.deadline = Duration::ZERO);
    assert_eq!(rig.verdicts(1), [Verdict::Deadline]);
    assert_eq!(rig.core.counters().attempts, 0);
    let accepts = rig.count(|action| matches!(action, Action::Accept { .. }));
    assert_eq!(accepts, 1);
}

#[test]
fn the_worker_of_a_late_or_cancelled_job_is_asked_to_stop_it_and_lives_if_it_does() {
    let mut rig = Rig::new(1);
    for key in 1..=6 {
        let late = key % 2 == 0;
        rig.submit_as(1, key, |request| {
            request.deadline = Duration::from_millis(if late { 10 } else { 30_000 });
        });
        match late {
            true => rig.wait_ms(10),
            false => rig.cancel(key),
        }
        let asked = rig.count(|action| matches!(action, Action::Withdraw { .. }));
        assert_eq!(asked, usize::try_from(key).unwrap());
        rig.wait_ms(249);
        rig.answer(0);
    }
    rig.wait_ms(1_000);
    assert_eq!(rig.kills(), 0);
    assert_eq!(rig.state(0), WorkerState::Ready);
}

#[test]
fn a_worker_killed_for_a_late_job_counts_against_neither_device_nor_job() {
    let mut rig = Rig::with(1, |config| (config.restart_limit, config.kills_max) = (2, 100));
    for key in 1..=6 {
        rig.submit_as(1, key, |request| request.deadline = Duration::from_millis(10));
        rig.wait_ms(10);
        assert_eq!(rig.verdicts(key), [Verdict::Deadline]);
        assert_eq!(outcomes(&rig, key).len(), 1);
        assert_eq!(outcomes(&rig, key)[0].1, AttemptOutcome::Deadline);
        rig.wait_ms(250);
        assert_eq!(rig.kills(), usize::try_from(key).unwrap());
        rig.die(0, SIGKILL);
        // Neither quarantine nor backoff: the pool killed it, to free the device.
        assert_eq!(rig.state(0), WorkerState::Starting);
        rig.ready(0);
    }
}

#[test]
fn a_queued_job_that_is_cancelled_never_runs() {
    let mut rig = Rig::starting(1, |_| {});
    rig.submit(1);
    rig.cancel(1);
    assert_eq!(rig.verdicts(1), [Verdict::Cancelled]);
    rig.ready(0);
    assert_eq!(rig.runs(0), None);
}

#[test]
fn a_running_job_that_is_cancelled_has_a_grace_to_free_its_device() {
    let mut rig = Rig::new(1);
    rig.submit(1);
    rig.cancel(1);
    assert_eq!(rig.verdicts(1), [Verdict::Cancelled], "the client need not wait");
    rig.submit(2);
    rig.wait_ms(249);
    rig.answer(0);
    assert_eq!(rig.kills(), 0);
    assert_eq!(rig.runs(0), Some((2, 1)));
    assert_eq!(rig.verdicts(1).len(), 1);
}

#[test]
fn a_cancelled_job_that_runs_on_after_its_grace_costs_its_worker() {
    let mut rig = Rig::new(1);
    rig.submit(1);
    rig.cancel(1);
    rig.submit(2);
    rig.wait_ms(250);
    assert_eq!(rig.kills(), 1);
    rig.die_and_return(0, SIGKILL);
    assert_eq!(rig.runs(0), Some((2, 1)));
    assert_eq!(outcomes(&rig, 1)[0].1, AttemptOutcome::Cancelled);
}

#[test]
fn a_cancellation_that_crosses_the_answer_gives_one_verdict() {
    let mut rig = Rig::new(1);
    rig.submit(1);
    rig.answer(0);
    rig.cancel(1);
    assert_eq!(rig.verdicts(1), [Verdict::Ok]);
    rig.submit(2);
    rig.tell(Event::Client(ClientId(2), ClientEvent::CancelRequested { key: JobKey(2) }));
    assert_eq!(rig.verdicts(2), [], "it is not that client's job");
    rig.cancel(2);
    rig.cancel(2);
    rig.answer(0);
    assert_eq!(rig.verdicts(2), [Verdict::Cancelled]);
    rig.assert_counters_add_up(0);
}

#[test]
fn an_answer_counts_although_its_worker_is_being_killed() {
    let mut rig = Rig::with(1, |config| config.restart_limit = 1);
    rig.submit(1);
    rig.mute.insert(0);
    rig.wait_ms(5_000);
    assert_eq!(rig.kills(), 1);
    rig.answer(0);
    assert_eq!(rig.verdicts(1), [Verdict::Ok]);
    rig.die(0, SIGKILL);
    assert_eq!(rig.verdicts(1).len(), 1);
    assert_eq!(rig.state(0), WorkerState::Starting, "it had done work: nothing is held against it");
    assert_eq!(rig.rows()[0].jobs_done, 1);
}

#[test]
fn the_counters_add_up_at_every_moment() {
    let mut rig = Rig::with(2, |config| config.attempts_max = 2);
    for key in 1..=6 {
        rig.submit(key);
        rig.assert_counters_add_up(u64::try_from(key).unwrap());
    }
    rig.answer(0);
    rig.die_and_return(1, SIGKILL);
    rig.cancel(5);
    rig.submit_as(2, 7, |request| request.deadline = Duration::ZERO);
    rig.assert_counters_add_up(4);
    rig.tell(Event::Client(ClientId(1), ClientEvent::Gone));
    rig.tell(Event::StopRequested);
    rig.assert_counters_add_up(0);
}

#[test]
fn a_deadline_outlives_those_of_many_jobs_that_end_before() {
    let mut rig = Rig::new(2);
    rig.submit(1);
    for key in 2..1_000 {
        rig.submit_as(1, key, |request| request.deadline = Duration::from_secs(60));
        rig.answer(1);
        assert!(rig.core.pool.jobs.deadlines_kept() <= 64, "those of jobs that ended go");
    }
    rig.wait(Duration::from_secs(29));
    assert_eq!(rig.verdicts(1), []);
    rig.wait(Duration::from_secs(2));
    assert_eq!(rig.verdicts(1), [Verdict::Deadline]);
}
