//! Large dispatches that make room for small jobs of others.

use gridpool_protocol::message::AttemptError;
use gridpool_protocol::receipt::AttemptOutcome;

use super::*;

/// A pool in which a shard of cost 1,000 is large beside one of cost 1.
fn rig(devices: u32) -> Rig {
    Rig::with(devices, |config| (config.shard_cost_min, config.feed_cost_max) = (1_000, 10_000))
}

fn large(rig: &mut Rig, client: u64, key: u128) {
    rig.submit_as(client, key, |request| (request.cost, request.divisible) = (1_000, false));
}

fn small(rig: &mut Rig, client: u64, key: u128) {
    rig.submit_as(client, key, |request| request.cost = 1);
}

fn asked(rig: &Rig) -> usize {
    rig.count(|action| matches!(action, Action::Withdraw { .. }))
}

/// The worker stops the first attempt of its front dispatch.
fn stops(rig: &mut Rig, index: u32) {
    let why = "the attempt was cancelled".to_owned();
    rig.reply(index, Err(AttemptError::Refused(why)));
}

#[test]
fn a_large_job_that_has_just_begun_makes_room_for_a_small_one_and_runs_again() {
    let mut rig = rig(1);
    large(&mut rig, 1, 1);
    // One more of the same principal waits behind it.
    large(&mut rig, 1, 2);
    rig.wait_ms(49);
    rig.submit_as(2, 3, |request| request.cost = 62);
    assert_eq!((asked(&rig), rig.dispatches(0)), (2, vec![vec![1], vec![2]]));
    small(&mut rig, 3, 4);
    assert_eq!(asked(&rig), 2, "one at a time");
    stops(&mut rig, 0);
    stops(&mut rig, 0);
    assert_eq!(rig.runs(0), Some((3, 1)));
    (0..4).for_each(|_| rig.answer(0));
    let ran = [1, 2, 3, 4].map(|key| (rig.verdicts(key), rig.outcomes(key)));
    let (once, twice) =
        (vec![AttemptOutcome::Ok], vec![AttemptOutcome::Preempted, AttemptOutcome::Ok]);
    let ok = |outcomes| (vec![Verdict::Ok], outcomes);
    assert_eq!(ran, [ok(twice.clone()), ok(twice), ok(once.clone()), ok(once)]);
    assert_eq!((rig.kills(), rig.core.counters().stale), (0, 0));
}

#[test]
fn a_job_makes_room_three_times_at_most_and_only_while_it_is_young() {
    let mut rig = rig(1);
    large(&mut rig, 1, 1);
    for key in 2..=4 {
        small(&mut rig, 2, key);
        stops(&mut rig, 0);
        rig.answer(0);
        assert_eq!(rig.verdicts(key), [Verdict::Ok]);
    }
    small(&mut rig, 2, 5);
    assert_eq!(asked(&rig), 3);
    rig.answer(0);
    rig.answer(0);
    assert_eq!([1, 5].map(|key| rig.verdicts(key)), [[Verdict::Ok], [Verdict::Ok]]);
    large(&mut rig, 1, 6);
    rig.wait_ms(50);
    small(&mut rig, 2, 7);
    assert_eq!(asked(&rig), 3, "too much would be lost");
}

#[test]
fn only_what_may_run_twice_makes_room_and_only_for_far_smaller_jobs_of_others() {
    let mut rig = rig(1);
    large(&mut rig, 1, 1);
    rig.submit_as(1, 2, |request| request.priority = Priority::High);
    rig.submit_as(2, 3, |request| request.cost = 63);
    assert_eq!(asked(&rig), 0);
    (0..3).for_each(|_| rig.answer(0));
    rig.submit_as(1, 4, |request| (request.cost, request.idempotent) = (1_000, false));
    small(&mut rig, 2, 5);
    assert_eq!(asked(&rig), 0);
    (0..2).for_each(|_| rig.answer(0));
    rig.submit_as(1, 6, |request| request.cost = 999);
    small(&mut rig, 2, 7);
    assert_eq!(asked(&rig), 0, "it is not worth it");
}

#[test]
fn an_attempt_that_was_asked_to_make_room_is_not_asked_again() {
    let mut rig = rig(2);
    large(&mut rig, 1, 1);
    large(&mut rig, 1, 2);
    small(&mut rig, 2, 3);
    assert_eq!(asked(&rig), 1, "one worker is enough");
    rig.cancel(1);
    rig.cancel(2);
    assert_eq!(asked(&rig), 2);
    rig.wait_ms(250);
    assert_eq!(rig.kills(), 2, "they do not stop");
}

#[test]
fn a_worker_that_was_asked_and_has_got_more_is_not_asked_again() {
    let mut rig = rig(1);
    large(&mut rig, 1, 1);
    small(&mut rig, 3, 2);
    assert_eq!((asked(&rig), rig.dispatches(0)), (1, vec![vec![1]]));
    // Its turn is before the small one's. It is not far smaller than what is stopped, so it goes behind that.
    rig.submit_as(2, 3, |request| request.cost = 500);
    assert_eq!((asked(&rig), rig.dispatches(0)), (1, vec![vec![1], vec![3]]));
}

#[test]
fn a_worker_that_goes_on_with_others_after_a_cancellation_is_not_soon_free() {
    let mut rig = Rig::with(2, |config| {
        (config.shard_cost_min, config.feed_cost_max, config.join_cost_max) = (1_000, 0, 1_000);
    });
    large(&mut rig, 1, 1);
    for key in 2..=4 {
        rig.submit_as(1, key, |request| (request.cost, request.divisible) = (400, false));
    }
    rig.answer(1);
    assert_eq!(rig.dispatches(1), [[3, 4]], "they run together");
    rig.cancel(3);
    small(&mut rig, 3, 5);
    assert_eq!(asked(&rig), 2, "what is cancelled, and the large one");
    rig.cancel(4);
    small(&mut rig, 4, 6);
    assert_eq!(asked(&rig), 3, "what is cancelled");
}

#[test]
fn no_room_is_made_on_a_device_that_the_successor_gets() {
    let mut rig = rig(2);
    large(&mut rig, 1, 1);
    large(&mut rig, 1, 2);
    rig.wait_ms(1);
    rig.answer(0);
    large(&mut rig, 1, 3);
    assert_eq!(rig.runs(0), Some((3, 1)), "the youngest");
    rig.tell(Event::HandOver(crate::event::HandOver::OneByOne));
    small(&mut rig, 2, 4);
    let asked = rig.actions().filter_map(|action| {
        let Action::Withdraw { worker, .. } = action else { return None };
        Some(worker.device)
    });
    assert_eq!(asked.collect::<Vec<_>>(), [device(1)]);
}
