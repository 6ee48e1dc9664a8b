//! What `status` shows of workers and of the queue, beyond their states.

use gridpool_protocol::message::JobSelector;
use gridpool_protocol::receipt::AttemptOutcome;

use super::*;

fn current_dispatch(rig: &Rig, index: u32) -> Option<(u64, usize, u64, Duration)> {
    let current_dispatch = rig.core.current_dispatch(rig.worker(index))?;
    Some((
        current_dispatch.job.0,
        current_dispatch.jobs,
        current_dispatch.items,
        rig.now.since(current_dispatch.since),
    ))
}

fn items_done(rig: &Rig) -> u64 {
    rig.rows()[0].items_done
}

#[test]
fn a_worker_shows_its_job_and_for_how_long_until_it_has_answered() {
    let mut rig = Rig::with(1, |config| config.join_cost_max = 1_000);
    assert_eq!(current_dispatch(&rig, 0), None);
    rig.submit_as(1, 1, |request| request.items = 5);
    (2..=3).for_each(|key| rig.submit_as(1, key, |request| request.items = 7));
    rig.wait_ms(40);
    assert_eq!(current_dispatch(&rig, 0), Some((1, 1, 5, Duration::from_millis(40))));
    rig.answer(0);
    rig.wait_ms(9);
    let joined = Some((2, 2, 14, Duration::from_millis(9)));
    assert_eq!(current_dispatch(&rig, 0), joined, "both in one launch");
    rig.answer(0);
    rig.answer(0);
    assert_eq!(current_dispatch(&rig, 0), None);
}

#[test]
fn of_several_requests_a_worker_shows_the_oldest() {
    let mut rig = Rig::concurrent(1, 3, |_| {});
    rig.wake();
    rig.offer(0, &["a"]);
    rig.ready(0);
    for key in 1..=3 {
        rig.ask(key, "a");
        rig.wait_ms(10);
    }
    assert_eq!(current_dispatch(&rig, 0), Some((1, 3, 3, Duration::from_millis(30))));
    rig.answer(0);
    assert_eq!(current_dispatch(&rig, 0), Some((2, 2, 2, Duration::from_millis(20))));
}

#[test]
fn items_count_when_they_have_a_result_and_stay_counted_when_the_worker_dies() {
    let mut rig = Rig::new(1);
    (1..=2).for_each(|key| rig.submit_as(1, key, |request| request.items = 5));
    rig.answer(0);
    assert_eq!(items_done(&rig), 5);
    rig.die_and_return(0, SIGSEGV);
    assert_eq!(items_done(&rig), 5, "what it died over gave none");
    rig.reply(0, Err(AttemptError::Refused("no".to_owned())));
    assert_eq!((items_done(&rig), rig.rows()[0].jobs_done), (5, 2));
}

#[test]
fn a_job_that_waits_again_has_waited_since_it_was_accepted() {
    let mut rig = Rig::new(1);
    rig.submit(1);
    assert_eq!(rig.core.waits_since(), None, "it runs");
    rig.wait_ms(10);
    rig.submit(2);
    rig.wait_ms(10);
    rig.submit(3);
    assert_eq!(rig.core.waits_since(), Some(Timestamp(Duration::from_millis(10))));
    rig.die(0, SIGSEGV);
    assert_eq!(rig.core.waits_since(), Some(Timestamp::default()), "the first waits again");
}

#[test]
fn a_job_is_seen_by_its_number_and_its_key_by_those_who_may_until_it_is_forgotten() {
    let mut rig = Rig::with(1, |config| config.verdicts_kept = 2);
    let view = |rig: &Rig, name| rig.core.job_view(rig.now, name, None);
    let key = |key| JobSelector::Key(JobKey(key));
    rig.submit_as(1, 7, |request| request.items = 5);
    rig.submit_as(2, 8, |_| {});
    rig.wait_ms(40);
    let runs = view(&rig, key(7)).unwrap();
    assert_eq!((runs.has_ended, &runs.workers), (false, &vec![rig.worker(0).to_string()]));
    assert_eq!((runs.receipt.items, runs.receipt.total_us), (5, 40_000));
    assert_eq!(view(&rig, JobSelector::Number(JobId(1))), Some(runs));
    assert_eq!(view(&rig, key(8)).unwrap().workers, [""; 0], "it waits");
    let seen_by = |rig: &Rig, uid| {
        let own = Principal::Uid(uid);
        [(7, 1), (8, 2)].map(|(key, number)| {
            let names = [JobSelector::Key(JobKey(key)), JobSelector::Number(JobId(number))];
            let seen = names.map(|name| rig.core.job_view(rig.now, name, Some(&own)).is_some());
            assert_eq!(seen[0], seen[1], "by its number as by its key");
            seen[0]
        })
    };
    assert_eq!([seen_by(&rig, 1), seen_by(&rig, 2)], [[true, false], [false, true]]);

    rig.die_and_return(0, SIGSEGV);
    let lost = view(&rig, key(7)).unwrap();
    let outcomes: Vec<_> = lost.receipt.attempts.iter().map(|it| it.outcome).collect();
    assert_eq!((lost.has_ended, &outcomes[..]), (false, &[AttemptOutcome::WorkerDied][..]));
    rig.answer(0);
    rig.answer(0);
    let ended = view(&rig, key(7)).unwrap();
    assert_eq!((ended.has_ended, ended.receipt.verdict), (true, Verdict::Ok));
    assert_eq!(seen_by(&rig, 2), [false, true], "a verdict is its principal's too");
    (9..=10).for_each(|key| {
        rig.submit(key);
        rig.answer(0);
    });
    assert_eq!(view(&rig, key(7)), None, "two verdicts are remembered");
}
