//! Jobs that are split over the devices.

use gridpool_protocol::receipt::{AttemptOutcome, ItemRange};

use super::*;

/// A pool over `devices` devices that splits jobs of cost 200 or more.
fn rig(devices: u32) -> Rig {
    Rig::with(devices, |config| (config.shard_cost_min, config.shards_per_device) = (100, 3))
}

/// Client 1 submits a job of 100 items with this cost.
fn submit(rig: &mut Rig, key: u128, cost: u64) {
    rig.submit_as(1, key, |request| (request.items, request.cost) = (100, cost));
}

/// The items of the first attempt that the device's worker runs.
fn shard_of(rig: &Rig, index: u32) -> Option<(u32, u32)> {
    let ItemRange { start, end } = rig.running.get(&rig.worker(index))?.front()?.first()?.shard;
    Some((start, end))
}

fn outcomes(rig: &Rig, key: u128) -> Vec<(u32, AttemptOutcome)> {
    rig.receipt(key).attempts.iter().map(|a| (a.part.start, a.outcome)).collect()
}

#[test]
fn a_costly_job_is_split_and_each_idle_device_takes_the_next_shard() {
    let mut rig = rig(2);
    submit(&mut rig, 1, 300);
    assert_eq!([shard_of(&rig, 0), shard_of(&rig, 1)], [Some((0, 33)), Some((33, 66))]);
    assert_eq!(rig.core.queue().jobs, 1, "one shard waits");
    rig.reply(1, Ok(RunReport { item_errors: 2, ..report() }));
    assert_eq!(shard_of(&rig, 1), Some((66, 100)));
    assert_eq!(rig.core.queue().jobs, 0);
    rig.reply(1, Ok(RunReport { item_errors: 3, ..report() }));
    assert_eq!(rig.verdicts(1), [], "the first shard runs on");
    rig.answer(0);
    assert_eq!(rig.verdicts(1), [Verdict::Ok]);
    assert_eq!(rig.receipts(1)[0].item_errors, 5);
    assert_eq!(rig.core.counters().attempts, 3);
}

#[test]
fn cost_devices_and_items_limit_the_shards_of_a_job() {
    let shards = |devices, items, cost, change: fn(&mut JobRequest)| {
        let mut rig = rig(devices);
        rig.submit_as(1, 1, |request| {
            (request.items, request.cost) = (items, cost);
            change(request);
        });
        while rig.verdicts(1).is_empty() {
            rig.answer((0..devices).find(|&index| rig.runs(index).is_some()).unwrap());
        }
        let receipt = rig.receipts(1)[0];
        let mut ranges: Vec<_> =
            receipt.attempts.iter().map(|a| (a.part.start, a.part.end)).collect();
        ranges.sort_unstable();
        assert!(ranges.windows(2).all(|two| two[0].1 == two[1].0));
        assert_eq!((ranges[0].0, ranges[ranges.len() - 1].1), (0, items));
        ranges.len()
    };
    assert_eq!(shards(2, 100, 199, |_| {}), 1);
    assert_eq!(shards(2, 100, 200, |_| {}), 2);
    assert_eq!(shards(2, 100, 1 << 40, |_| {}), 6);
    assert_eq!(shards(2, 4, 1 << 40, |_| {}), 4);
    assert_eq!(shards(1, 100, 1 << 40, |_| {}), 1);
    assert_eq!(shards(30, 100, 1 << 40, |_| {}), 64);
    assert_eq!(shards(2, 100, 1 << 40, |request| request.idempotent = false), 1);
    assert_eq!(shards(2, 100, 1 << 40, |request| request.divisible = false), 1);
}

#[test]
fn a_job_is_cut_into_fewer_shards_while_others_keep_the_devices_busy() {
    let mut rig = rig(2);
    (1..=7).for_each(|key| submit(&mut rig, key, 600));
    // One as large as all of them, and one that is small beside them.
    submit(&mut rig, 8, 4_200);
    submit(&mut rig, 9, 200);
    while let Some(index) = (0..2).find(|&index| rig.runs(index).is_some()) {
        rig.answer(index);
    }
    let shards = |key| rig.receipt(key).attempts.len();
    assert_eq!((1..=9).map(shards).collect::<Vec<_>>(), [6, 3, 2, 2, 2, 1, 1, 3, 1]);
    // Once they have their verdicts, they count no more.
    submit(&mut rig, 10, 600);
    (0..3).for_each(|_| [0, 1].into_iter().for_each(|index| rig.answer(index)));
    assert_eq!(rig.receipt(10).attempts.len(), 6);
}

#[test]
fn a_shard_whose_worker_died_runs_again_and_the_others_run_on() {
    let mut rig = rig(2);
    submit(&mut rig, 1, 200);
    rig.die(0, SIGSEGV);
    rig.answer(1);
    assert_eq!(shard_of(&rig, 1), Some((0, 50)));
    rig.answer(1);
    assert_eq!(rig.verdicts(1), [Verdict::Ok]);
    let expected =
        [(0, AttemptOutcome::WorkerDied), (50, AttemptOutcome::Ok), (0, AttemptOutcome::Ok)];
    assert_eq!(outcomes(&rig, 1), expected);
}

#[test]
fn each_shard_has_its_own_attempts_and_evidence_counts_for_the_job() {
    let lose = |status: [ExitStatus; 2]| {
        let mut rig =
            Rig::with(2, |config| (config.shard_cost_min, config.attempts_max) = (100, 2));
        submit(&mut rig, 1, 200);
        rig.die(0, status[0]);
        rig.die(1, status[1]);
        rig.verdicts(1)
    };
    assert_eq!(lose([SIGKILL, SIGKILL]), [], "each shard may try once more");
    assert_eq!(lose([SIGSEGV, SIGKILL]), []);
    assert_eq!(lose([SIGSEGV, SIGSEGV]), [Verdict::Poison]);
}

#[test]
fn a_refused_shard_takes_no_time_from_the_others_and_kills_no_worker() {
    let mut rig = rig(3);
    submit(&mut rig, 1, 300);
    rig.reply(1, Err(AttemptError::Refused("not a batch".to_owned())));
    assert_eq!(rig.verdicts(1), [Verdict::Failed]);
    let expected = [
        (33, AttemptOutcome::Refused),
        (0, AttemptOutcome::Preempted),
        (66, AttemptOutcome::Preempted),
    ];
    assert_eq!(outcomes(&rig, 1), expected);
    rig.wait_ms(20_000);
    rig.answer(0);
    assert_eq!(rig.state(0), WorkerState::Ready);
    assert_eq!(rig.verdicts(1), [Verdict::Failed], "the answer goes nowhere");
    assert_eq!(rig.core.counters().stale, 0);
    rig.wait_ms(9_999);
    assert_eq!(rig.kills(), 0);
    rig.wait_ms(1);
    assert_eq!(
        rig.actions().last(),
        Some(&Action::Kill { worker: rig.worker(2), reason: rig.kill_reason(2).unwrap() })
    );
    assert_eq!(rig.kills(), 1, "it hangs: the job would be late by now");
    rig.assert_counters_add_up(0);
}

#[test]
fn a_job_that_waits_behind_a_good_shard_of_a_refused_job_is_not_preempted() {
    let mut rig = Rig::with(2, |config| (config.shard_cost_min, config.feed_cost_max) = (100, 200));
    submit(&mut rig, 1, 200);
    rig.submit(2);
    assert_eq!((rig.dispatches(0), rig.dispatches(1)), (vec![vec![1], vec![2]], vec![vec![1]]));
    rig.reply(1, Err(AttemptError::Refused("not a batch".to_owned())));
    rig.wait_ms(900);
    rig.answer(0);
    rig.answer(0);
    assert_eq!(rig.kills(), 0);
    assert_eq!(outcomes(&rig, 2), [(0, AttemptOutcome::Ok)]);
}

#[test]
fn a_shard_of_a_refused_job_that_had_not_begun_has_the_jobs_time_too() {
    let mut rig = Rig::with(2, |config| (config.shard_cost_min, config.feed_cost_max) = (100, 200));
    rig.submit_as(2, 9, |request| request.deadline = Duration::from_secs(60));
    submit(&mut rig, 1, 200);
    assert_eq!((rig.dispatches(0), rig.dispatches(1)), (vec![vec![1], vec![2]], vec![vec![2]]));
    rig.reply(1, Err(AttemptError::Refused("not a batch".to_owned())));
    rig.answer(0);
    rig.wait_ms(29_999);
    assert_eq!(rig.kills(), 0);
    rig.wait_ms(1);
    assert_eq!(rig.kills(), 1);
}

#[test]
fn waiting_shards_end_with_their_client_and_running_ones_by_themselves() {
    let mut rig = rig(2);
    submit(&mut rig, 1, 600);
    rig.tell(Event::Client(ClientId(1), ClientEvent::Gone));
    assert_eq!(rig.verdicts(1), []);
    assert_eq!(rig.core.queue().jobs, 0);
    rig.answer(0);
    assert_eq!(rig.runs(0), None);
    rig.die(1, SIGSEGV);
    assert_eq!(rig.verdicts(1), [Verdict::Cancelled]);
    assert_eq!(rig.kills(), 0);
    rig.assert_counters_add_up(0);
}

#[test]
fn a_receipt_shows_every_answered_attempt_and_as_many_others_as_fit_a_frame() {
    let mut rig = Rig::with(1, |config| config.attempts_max = 1_000);
    rig.submit_as(1, 1, |request| request.deadline = Duration::from_secs(100_000));
    for _ in 0..200 {
        rig.die_and_return(0, SIGKILL);
    }
    rig.answer(0);
    let outcomes = outcomes(&rig, 1);
    assert_eq!(outcomes.len(), 128);
    assert_eq!(outcomes[127].1, AttemptOutcome::Ok);
}
