//! What clients may do: limits, keys, fair share, going away.

use gridpool_protocol::message::Limit;

use super::*;

#[test]
fn the_jobs_of_a_client_that_is_gone_end_without_a_reply() {
    let mut rig = Rig::new(1);
    rig.submit(1);
    rig.submit(2);
    rig.submit_as(2, 3, |_| {});
    rig.tell(Event::Client(ClientId(1), ClientEvent::Gone));
    assert_eq!(rig.verdicts(2), [Verdict::Cancelled], "it was queued");
    assert_eq!(rig.verdicts(1), [], "it runs on and frees its device by itself");
    rig.answer(0);
    assert_eq!(rig.verdicts(1), [Verdict::Cancelled]);
    assert_eq!(rig.receipts(1)[0].reason, "its client is gone");
    assert_eq!(rig.runs(0), Some((3, 1)));
    let told = rig.count(|action| matches!(action, Action::Finish { client: Some(_), .. }));
    assert_eq!(told, 0);
    assert_eq!(rig.kills(), 0);
    rig.assert_counters_add_up(1);
}

#[test]
fn the_running_job_of_a_client_that_is_gone_does_not_run_again() {
    let mut rig = Rig::new(2);
    rig.submit(1);
    rig.tell(Event::Client(ClientId(1), ClientEvent::Gone));
    rig.die(0, SIGSEGV);
    assert_eq!(rig.verdicts(1), [Verdict::Cancelled]);
    assert_eq!(rig.runs(1), None);
}

#[test]
fn one_job_more_than_the_queue_holds_is_busy() {
    let mut rig = Rig::with(1, |config| config.queue_jobs_max = 2);
    rig.submit(1); // runs
    rig.submit(2);
    rig.submit(3);
    assert_eq!(rig.refusals(), [] as [&Refusal; 0]);
    rig.submit(4);
    assert_eq!(rig.refusals(), [&Refusal::Busy(Limit::QueueJobs)]);
    assert_eq!(rig.core.counters().refused_busy, 1);
    rig.answer(0);
    rig.submit(4);
    assert_eq!(rig.refusals().len(), 1);
    rig.assert_counters_add_up(3);
}

#[test]
fn one_byte_more_than_the_queue_holds_is_busy() {
    let mut rig = Rig::with(1, |config| config.queue_bytes_max = 1_000);
    rig.submit_as(1, 1, |request| request.inline_bytes = 400);
    rig.submit_as(1, 2, |request| request.inline_bytes = 600);
    assert_eq!(rig.core.queue().bytes, 1_000);
    rig.submit_as(1, 3, |request| request.inline_bytes = 0);
    assert_eq!(rig.refusals().len(), 0);
    rig.submit_as(2, 4, |request| request.inline_bytes = 1);
    assert_eq!(rig.refusals(), [&Refusal::Busy(Limit::QueueBytes)]);
    rig.answer(0); // gives 400 back
    rig.submit_as(2, 5, |request| request.inline_bytes = 400);
    assert_eq!(rig.refusals().len(), 1);
}

#[test]
fn a_principal_has_its_limits_alone_and_a_share_of_them_while_others_wait() {
    let mut rig = Rig::with(1, |config| {
        (config.client_jobs_max, config.principal_jobs_max) = (100, 4);
    });
    let submit = |rig: &mut Rig, client: u64, key: u128, principal: u32| {
        rig.submit_as(client, key, |request| request.principal = Principal::Uid(principal));
    };
    // One runs and four wait, over two connections.
    (1..=5).for_each(|key| submit(&mut rig, 1 + u64::try_from(key % 2).unwrap(), key, 1));
    assert_eq!(rig.refusals(), [] as [&Refusal; 0]);
    submit(&mut rig, 3, 6, 1);
    assert_eq!(rig.refusals(), [&Refusal::Busy(Limit::PrincipalJobs)]);
    // Half of it is another's, whatever the first has.
    submit(&mut rig, 4, 7, 2);
    submit(&mut rig, 4, 8, 2);
    assert_eq!(rig.refusals().len(), 1);
    submit(&mut rig, 4, 9, 2);
    assert_eq!(rig.refusals().len(), 2);
    for _ in 0..3 {
        rig.answer(0);
    }
    submit(&mut rig, 1, 10, 1);
    assert_eq!(rig.refusals().len(), 3, "two of it wait: as many as may beside another");
}

#[test]
fn a_principal_s_bytes_are_limited_over_all_its_connections() {
    let mut rig = Rig::with(1, |config| config.principal_bytes_max = 1_000);
    let submit = |rig: &mut Rig, client: u64, key: u128, bytes: u64| {
        rig.submit_as(client, key, |request| {
            (request.principal, request.inline_bytes) = (Principal::Uid(1), bytes);
        });
    };
    submit(&mut rig, 1, 1, 400);
    submit(&mut rig, 2, 2, 600);
    submit(&mut rig, 3, 3, 1);
    assert_eq!(rig.refusals(), [&Refusal::Busy(Limit::PrincipalBytes)]);
    rig.answer(0);
    submit(&mut rig, 3, 4, 400);
    assert_eq!(rig.refusals().len(), 1);
}

#[test]
fn a_principal_that_has_cost_too_many_workers_is_busy_until_one_is_given_back() {
    let mut rig = Rig::with(1, |config| config.kills_max = 2);
    let costs_a_worker = |rig: &mut Rig, key| {
        rig.submit_as(1, key, |request| request.deadline = Duration::from_millis(10));
        rig.wait_ms(260);
        rig.die(0, SIGKILL);
        rig.ready(0);
    };
    costs_a_worker(&mut rig, 1);
    costs_a_worker(&mut rig, 2);
    rig.submit(3);
    assert_eq!(rig.refusals(), [&Refusal::Busy(Limit::Kills { back_s: 10 })]);
    rig.submit_as(2, 4, |_| {});
    rig.answer(0);
    assert_eq!(rig.verdicts(4), [Verdict::Ok], "another principal");
    rig.wait_ms(9_400);
    rig.submit(5);
    assert_eq!(rig.refusals()[1..], [&Refusal::Busy(Limit::Kills { back_s: 1 })]);
    rig.wait_ms(600);
    rig.submit(6);
    assert_eq!(rig.refusals().len(), 2, "one is given back");
}

#[test]
fn jobs_that_wait_are_held_while_their_principal_has_no_budget_of_kills() {
    let mut rig = Rig::with(1, |config| config.kills_max = 1);
    rig.submit_as(1, 1, |request| request.deadline = Duration::from_millis(10));
    // One waits behind it in the worker's channel, one in the queue.
    rig.submit(2);
    rig.submit(3);
    rig.wait_ms(260);
    rig.die(0, SIGKILL);
    rig.ready(0);
    assert_eq!(rig.runs(0), None);
    rig.submit_as(2, 4, |_| {});
    rig.answer(0);
    assert_eq!(rig.verdicts(4), [Verdict::Ok], "another principal");
    rig.tell(Event::Client(ClientId(1), ClientEvent::CancelRequested { key: JobKey(3) }));
    assert_eq!(rig.verdicts(3), [Verdict::Cancelled]);
    rig.wait_ms(9_900);
    assert_eq!((rig.verdicts(2), rig.runs(0)), (vec![], None));
    rig.wait_ms(100);
    rig.answer(0);
    assert_eq!(rig.verdicts(2), [Verdict::Ok]);
}

#[test]
fn one_job_more_than_a_client_may_have_is_busy_for_that_client_alone() {
    let mut rig = Rig::with(1, |config| config.client_jobs_max = 2);
    rig.submit(1);
    rig.submit(2);
    rig.submit(3);
    assert_eq!(rig.refusals(), [&Refusal::Busy(Limit::ClientJobs)]);
    rig.submit_as(2, 4, |_| {});
    rig.answer(0);
    rig.submit(3);
    assert_eq!(rig.refusals().len(), 1);
}

#[test]
fn a_key_that_its_client_submits_again_is_accepted_again_and_runs_once() {
    let mut rig = Rig::new(2);
    rig.submit(1);
    rig.submit(1);
    let accepts = rig.count(|action| matches!(action, Action::Accept { .. }));
    assert_eq!(accepts, 2);
    assert_eq!(rig.count(|action| *action == Action::Discard { job: JobId(2) }), 1);
    assert_eq!(rig.runs(1), None);
    rig.answer(0);
    assert_eq!(rig.verdicts(1), [Verdict::Ok]);
    rig.assert_counters_add_up(0);
}

#[test]
fn a_live_key_is_in_use_for_another_client_of_its_principal_and_never_another_job_s() {
    let mut rig = Rig::new(1);
    rig.submit(1);
    rig.submit_as(2, 1, |request| request.principal = Principal::Uid(1));
    assert_eq!(rig.refusals(), [&Refusal::KeyInUse(JobKey(1))]);
    for client in [1, 2] {
        rig.submit_as(client, 1, |request| {
            (request.principal, request.fingerprint) = (Principal::Uid(1), 1);
        });
    }
    assert!(matches!(rig.refusals()[1..], [Refusal::Invalid(_), Refusal::Invalid(_)]));
    // The same connection cannot have it for another principal at the same time: that is the gateway's.
    rig.submit_as(1, 1, |request| request.principal = Principal::Uid(7));
    assert_eq!(rig.refusals()[3], &Refusal::KeyInUse(JobKey(1)));
}

#[test]
fn a_key_and_its_verdict_are_their_principal_s_alone() {
    let mut rig = Rig::new(1);
    rig.submit(1);
    rig.submit_as(2, 1, |_| {});
    rig.answer(0);
    rig.answer(0);
    assert_eq!(rig.verdicts(1), [Verdict::Ok; 2], "two jobs");
    rig.submit_as(3, 1, |_| {});
    rig.answer(0);
    assert_eq!(rig.verdicts(1), [Verdict::Ok; 3], "a third");
    assert_eq!(rig.count(|action| matches!(action, Action::Replay { .. })), 0);
    assert_eq!(rig.refusals(), [] as [&Refusal; 0]);
}

#[test]
fn a_key_that_has_its_verdict_is_answered_from_memory() {
    let mut rig = Rig::new(1);
    rig.submit(1);
    rig.answer(0);
    // The same user, connected again.
    rig.submit_as(2, 1, |request| request.principal = Principal::Uid(1));
    let replayed = |action: &Action| {
        let Action::Replay { client, receipt, .. } = action else { return false };
        *client == ClientId(2) && receipt.verdict == Verdict::Ok
    };
    assert_eq!(rig.count(replayed), 1);
    assert_eq!(rig.count(|action| *action == Action::Discard { job: JobId(2) }), 1);
    assert_eq!(rig.core.counters().attempts, 1);
    rig.submit_as(1, 1, |request| request.fingerprint = 1);
    assert!(matches!(rig.refusals()[..], [Refusal::Invalid(_)]), "{:?}", rig.refusals());
    rig.assert_counters_add_up(0);
}

#[test]
fn only_the_latest_verdicts_are_remembered() {
    let mut rig = Rig::with(1, |config| config.verdicts_kept = 2);
    for key in 1..=3 {
        rig.submit(key);
        rig.answer(0);
    }
    rig.submit(3);
    rig.submit(2);
    assert_eq!(rig.runs(0), None);
    rig.submit(1);
    assert_eq!(rig.runs(0), Some((6, 1)), "forgotten, so it is a new job");
}

#[test]
fn a_client_with_a_long_queue_does_not_hold_up_another() {
    let mut rig = Rig::new(1);
    for key in 0..20 {
        rig.submit(key);
    }
    rig.submit_as(2, 100, |_| {});
    rig.answer(0);
    rig.answer(0);
    assert_eq!(rig.verdicts(100), [], "it is second in line at the latest");
    rig.answer(0);
    assert_eq!(rig.verdicts(100), [Verdict::Ok]);
}

#[test]
fn a_new_client_does_not_catch_up_on_earlier_jobs_of_others() {
    let mut rig = Rig::new(1);
    // Client 1 is alone and submits one job at a time, so it has no waiting job when client 2 comes.
    for key in 0..50 {
        rig.submit(key);
        rig.answer(0);
    }
    for key in 100..120 {
        rig.submit_as(2, key, |_| {});
    }
    rig.submit(50);
    for _ in 0..3 {
        rig.answer(0);
    }
    assert_eq!(rig.verdicts(50), [Verdict::Ok], "it waited for the newcomer's backlog");
}

#[test]
fn a_job_of_higher_priority_overtakes_only_its_own_clients_jobs() {
    let mut rig = Rig::new(1);
    rig.submit(1);
    rig.submit(2);
    rig.submit_as(1, 3, |request| request.priority = Priority::High);
    rig.submit_as(2, 4, |request| request.priority = Priority::Low);
    let mut order = Vec::new();
    while let Some((job, _)) = rig.runs(0) {
        order.push(job);
        rig.answer(0);
    }
    assert_eq!(order, [1, 3, 4, 2]);
}
