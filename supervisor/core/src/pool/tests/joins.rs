//! Second dispatches, jobs that share a dispatch, and which jobs a death makes suspects.

use gridpool_protocol::limits::JOIN_MAX;
use gridpool_protocol::receipt::AttemptOutcome;

use super::*;

/// A pool whose workers may have two dispatches of cost 100 each.
fn rig(devices: u32) -> Rig {
    Rig::with(devices, |config| (config.feed_cost_max, config.join_cost_max) = (100, 100))
}

/// A pool over one device whose worker runs job 1 of key 1. Jobs with these programs wait, each of another
/// client.
fn busy(programs: &[&'static str]) -> Rig {
    let mut rig = rig(1);
    for (key, hash) in (1..).zip(["first", "second"].iter().chain(programs)) {
        rig.submit_as(1, key, |request| request.work = program(*hash));
    }
    rig
}

#[test]
fn a_busy_worker_gets_a_second_dispatch_and_no_third() {
    let mut rig = rig(1);
    for key in 1..=3 {
        rig.submit_as(1, key, |request| request.work = program(format!("p{key}")));
    }
    assert_eq!(rig.dispatches(0), [[1], [2]]);
    assert_eq!(rig.core.queue().jobs, 1);
    rig.answer(0);
    assert_eq!(rig.dispatches(0), [[2], [3]]);
    assert_eq!(rig.state(0), WorkerState::Busy);
    rig.answer(0);
    rig.answer(0);
    assert_eq!(rig.state(0), WorkerState::Ready);
}

#[test]
fn jobs_that_come_together_share_the_first_dispatch() {
    let mut rig = rig(1);
    let together: Vec<_> = (1..=3).map(|key| rig.submission(1, key, |_| {})).collect();
    rig.core.handle_together(rig.now, together);
    let mut sent = Vec::new();
    while let Some(action) = rig.core.poll_action() {
        if let Action::Dispatch { attempts, .. } = action {
            sent.push(attempts.iter().map(|sent| sent.attempt.job.0).collect::<Vec<_>>());
        }
    }
    assert_eq!(sent, [[1, 2, 3]], "one by one, the first would go alone");
}

#[test]
fn searches_have_dispatches_of_their_own() {
    let search = || Work::Search { score: gridpool_protocol::search::Score::Exact };
    let mut rig = rig(1);
    rig.submit_as(1, 1, |request| request.work = program("first"));
    for key in 2..=4 {
        rig.submit_as(1, key, |request| request.work = search());
    }
    // Programs of one hash would join; these have the same work, and do not.
    for want in [vec![vec![1], vec![2]], vec![vec![2], vec![3]], vec![vec![3], vec![4]]] {
        assert_eq!(rig.dispatches(0), want);
        rig.answer(0);
    }
}

#[test]
fn a_second_dispatch_goes_to_the_least_loaded_worker_and_only_if_none_is_idle() {
    let mut rig = rig(2);
    rig.submit_as(1, 1, |request| request.cost = 50);
    rig.submit_as(1, 2, |request| request.cost = 40);
    assert_eq!((rig.dispatches(0), rig.dispatches(1)), (vec![vec![1]], vec![vec![2]]));
    rig.submit(3);
    assert_eq!(rig.dispatches(1), [[2], [3]]);
}

#[test]
fn no_job_waits_behind_a_long_one_and_no_long_job_waits_behind_another() {
    let mut rig = rig(1);
    rig.submit_as(1, 1, |request| request.cost = 101);
    rig.submit(2);
    assert_eq!(rig.dispatches(0), [[1]]);
    rig.answer(0);
    assert_eq!(rig.dispatches(0), [[2]]);
    rig.submit_as(1, 3, |request| request.cost = 101);
    rig.submit_as(1, 4, |request| request.work = program("p"));
    assert_eq!(rig.dispatches(0), [[2]], "or it would never find an idle device");
    rig.answer(0);
    assert_eq!(rig.dispatches(0), [[3]]);
}

#[test]
fn a_job_that_must_not_run_twice_goes_only_to_an_idle_worker() {
    let mut rig = rig(1);
    rig.submit(1);
    rig.submit_as(1, 2, |request| request.idempotent = false);
    assert_eq!(rig.dispatches(0), [[1]], "what is sent early may have to be sent again");
}

#[test]
fn jobs_that_wait_for_one_program_join_across_clients() {
    let mut rig = busy(&["b", "a", "a"]);
    rig.submit_as(2, 9, |request| request.work = program("b"));
    assert_eq!(rig.dispatches(0), [[1], [2]]);
    rig.answer(0);
    assert_eq!(rig.dispatches(0), [vec![2], vec![3, 6]]);
    rig.answer(0);
    assert_eq!(rig.dispatches(0), [[3, 6], [4, 5]]);
    for _ in 0..4 {
        rig.answer(0);
    }
    let counters = rig.core.counters();
    assert_eq!((counters.attempts, counters.runs, counters.joined), (6, 4, 4));
    assert_eq!(counters.ok, 6);
}

#[test]
fn an_idle_pool_joins_no_jobs() {
    let mut rig = rig(2);
    rig.submit(1);
    rig.submit(2);
    assert_eq!((rig.dispatches(0), rig.dispatches(1)), (vec![vec![1]], vec![vec![2]]));
    assert_eq!(rig.core.counters().joined, 0);
}

#[test]
fn joins_keep_to_their_limits() {
    let joined = |change: fn(&mut JobRequest)| {
        let mut rig = Rig::with(1, |config| {
            (config.feed_cost_max, config.join_cost_max) = (100, 100);
            config.client_jobs_max = 100;
        });
        rig.submit_as(1, 1, |request| request.work = program("first"));
        rig.submit_as(1, 2, |request| request.work = program("second"));
        for key in 3..103 {
            rig.submit_as(u64::try_from(key % 3 + 1).unwrap(), key, |request| {
                request.cost = 1;
                change(request);
            });
        }
        rig.answer(0);
        rig.answer(0);
        rig.dispatches(0)[0].len()
    };
    assert_eq!(joined(|_| {}), JOIN_MAX);
    assert_eq!(joined(|request| request.cost = 25), 4);
    assert_eq!(joined(|request| request.inline_bytes = 10_000), 4, "48 KiB");
    assert_eq!(joined(|request| request.idempotent = false), 1);
}

#[test]
fn of_two_dispatches_only_the_one_that_ran_is_suspect() {
    let mut rig = Rig::with(1, |config| {
        (config.feed_cost_max, config.attempts_max) = (100, 1);
    });
    rig.submit(1);
    rig.submit(2);
    assert_eq!(rig.dispatches(0), [[1], [2]]);
    rig.die(0, SIGSEGV);
    assert_eq!(rig.verdicts(1), [Verdict::Failed]);
    assert_eq!(rig.verdicts(2), [], "its attempt had not begun and does not count");
    rig.ready(0);
    rig.answer(0);
    assert_eq!(rig.outcomes(2), [AttemptOutcome::Preempted, AttemptOutcome::Ok]);
}

#[test]
fn the_last_unanswered_attempt_of_a_dispatch_is_the_only_suspect() {
    let mut rig = Rig::with(1, |config| {
        (config.feed_cost_max, config.join_cost_max, config.poison_deaths) = (100, 100, 1);
    });
    for key in 1..=4 {
        rig.submit_as(1, key, |request| {
            request.work = program(if key < 3 { format!("p{key}") } else { "a".to_owned() });
        });
    }
    rig.answer(0);
    rig.answer(0);
    assert_eq!(rig.dispatches(0), [[3, 4]]);
    rig.answer(0);
    rig.die(0, SIGSEGV);
    assert_eq!(rig.verdicts(4), [Verdict::Poison]);
}

#[test]
fn an_answer_from_a_dispatch_that_has_not_begun_does_not_count() {
    let mut rig = rig(1);
    rig.submit(1);
    rig.submit(2);
    let attempt = rig.running[&rig.worker(0)][1][0].attempt;
    rig.tell(Event::Worker(rig.worker(0), WorkerEvent::Answered { attempt, result: Ok(report()) }));
    assert_eq!(rig.core.counters().stale, 1);
    assert_eq!(rig.verdicts(2), []);
    rig.answer(0);
    rig.answer(0);
    assert_eq!(rig.verdicts(2), [Verdict::Ok]);
}

#[test]
fn a_late_job_gives_the_jobs_beside_it_a_grace_and_costs_them_no_attempt() {
    let mut rig = Rig::with(1, |config| {
        (config.feed_cost_max, config.join_cost_max, config.attempts_max) = (100, 100, 1);
    });
    for (key, program) in [(1, "a"), (2, "b"), (3, "c"), (4, "c"), (5, "d")] {
        rig.submit_as(1, key, |request| {
            request.work = super::program(program);
            let limit = if key == 4 { 10 } else { 30_000 };
            request.deadline = Duration::from_millis(limit);
        });
    }
    rig.answer(0);
    rig.answer(0);
    assert_eq!(rig.dispatches(0), [vec![3, 4], vec![5]]);
    rig.wait_ms(10);
    assert_eq!(rig.verdicts(4), [Verdict::Deadline]);
    assert_eq!(rig.kills(), 0);
    rig.wait_ms(739);
    assert_eq!(rig.kills(), 0, "job 3 is wanted, and they have begun just now");
    rig.wait_ms(1);
    assert_eq!(rig.kills(), 1, "no progress");
    assert_eq!(rig.verdicts(3), [], "it may still be answered");
    rig.die_and_return(0, SIGKILL);
    assert_eq!(rig.dispatches(0), [[3], [5]]);
    rig.answer(0);
    rig.answer(0);
    for key in [3, 5] {
        assert_eq!(rig.outcomes(key), [AttemptOutcome::Preempted, AttemptOutcome::Ok]);
    }
}

/// Jobs 3 to 5 run as one on the only worker.
fn three_together() -> Rig {
    let mut rig = busy(&["c", "c", "c"]);
    rig.answer(0);
    rig.answer(0);
    assert_eq!(rig.dispatches(0), [[3, 4, 5]]);
    rig
}

fn progresses(rig: &mut Rig) {
    let worker = rig.worker(0);
    rig.tell(Event::Worker(worker, WorkerEvent::Progressed));
}

#[test]
fn a_cancelled_job_costs_no_worker_that_goes_on_with_the_jobs_beside_it() {
    let mut rig = three_together();
    rig.cancel(3);
    assert_eq!(rig.verdicts(3), [Verdict::Cancelled]);
    // A busy machine, or many jobs: far more than the grace.
    for _ in 0..20 {
        rig.wait_ms(700);
        progresses(&mut rig);
    }
    assert_eq!(rig.kills(), 0, "it makes progress");
    rig.wait_ms(749);
    assert_eq!(rig.kills(), 0);
    rig.wait_ms(1);
    assert_eq!(rig.kills(), 1, "it is stuck");
}

#[test]
fn a_cancelled_job_that_is_answered_after_the_others_costs_no_worker() {
    let mut rig = three_together();
    rig.cancel(5);
    for _ in 0..3 {
        rig.wait_ms(700);
        progresses(&mut rig);
    }
    // Its grace was over long ago, and its answer comes last.
    rig.answer(0);
    rig.answer(0);
    rig.answer(0);
    assert_eq!(
        (rig.kills(), rig.verdicts(3), rig.verdicts(4)),
        (0, vec![Verdict::Ok], vec![Verdict::Ok])
    );
}

#[test]
fn a_worker_has_a_grace_from_the_moment_when_nobody_wants_any_of_its_jobs() {
    let mut rig = three_together();
    rig.cancel(3);
    rig.wait_ms(700);
    progresses(&mut rig);
    rig.cancel(4);
    rig.wait_ms(100);
    rig.cancel(5);
    rig.wait_ms(249);
    assert_eq!(rig.kills(), 0, "it was asked to stop the last one just now");
    progresses(&mut rig);
    rig.wait_ms(1);
    assert_eq!(rig.kills(), 1, "it should have stopped, whatever it does");
}

#[test]
fn a_cancelled_job_that_waits_in_the_channel_costs_no_worker() {
    let mut rig = rig(1);
    rig.submit(1);
    rig.submit(2);
    rig.cancel(2);
    assert_eq!(rig.verdicts(2), [Verdict::Cancelled]);
    rig.wait_ms(20_000);
    assert_eq!(rig.kills(), 0, "the one in front may take its time");
    rig.answer(0);
    rig.wait_ms(249);
    assert_eq!(rig.kills(), 0, "it has begun just now");
    rig.wait_ms(1);
    assert_eq!(rig.kills(), 1);
}

#[test]
fn the_status_keeps_the_highest_number_of_waiting_jobs() {
    let mut rig = Rig::new(1);
    for key in 1..=4 {
        rig.submit(key);
    }
    for _ in 0..4 {
        rig.answer(0);
    }
    let queue = rig.core.queue();
    assert_eq!((queue.jobs, queue.jobs_high, queue.bytes, queue.bytes_high), (0, 3, 0, 400));
}
