//! Workers with models: which one gets a request, which requests end because no worker has the model, and
//! which attempts are withdrawn.

use super::*;

/// Two devices: one has `a` and `b`, the other only `a`.
fn both() -> Rig {
    let mut rig = Rig::concurrent(2, 2, |_| {});
    rig.wake();
    rig.offer(0, &["a", "b"]);
    rig.offer(1, &["a"]);
    rig.ready(0);
    rig.ready(1);
    rig
}

fn withdrawn(rig: &Rig) -> Vec<(WorkerId, u64)> {
    let of = |action: &Action| {
        let Action::Withdraw { worker, attempt } = action else { return None };
        Some((*worker, attempt.job.0))
    };
    rig.actions().filter_map(of).collect()
}

#[test]
fn a_request_goes_where_its_model_is_although_another_device_idles() {
    let mut rig = both();
    (1..=3).for_each(|key| rig.ask(key, "b"));
    assert_eq!(rig.dispatches(0).concat(), [1, 2], "beside each other, up to the window");
    assert!(rig.dispatches(1).is_empty(), "it idles and has no `b`");
    rig.ask(4, "a");
    assert_eq!(rig.dispatches(1).concat(), [4], "a request for another model holds up none");
    rig.answer(0);
    assert_eq!(rig.dispatches(0).concat(), [2, 3]);
}

#[test]
fn requests_for_a_model_that_is_being_loaded_delay_no_other_model() {
    let mut rig = both();
    rig.die(0, SIGSEGV);
    rig.ask(1, "b");
    (2..=4).for_each(|key| rig.ask(key, "a"));
    assert_eq!(rig.dispatches(1).concat(), [2, 3]);
    rig.answer(1);
    assert_eq!(rig.dispatches(1).concat(), [3, 4], "the first in the queue is passed over");
    assert!(rig.verdicts(1).is_empty(), "the next process may have `b`");
    rig.wait_ms(50);
    rig.offer(0, &["a", "b"]);
    rig.ready(0);
    assert_eq!(rig.dispatches(0).concat(), [1]);
}

#[test]
fn a_retry_avoids_a_device_only_for_one_that_has_the_model() {
    let mut rig = both();
    rig.ask(1, "b");
    rig.reply(0, Err(AttemptError::Device("out of memory".to_owned())));
    assert_eq!(rig.runs(0), Some((1, 2)), "no other worker has it");
    let mut rig = both();
    rig.ask(1, "a");
    let first = if rig.dispatches(0).is_empty() { 1 } else { 0 };
    rig.reply(first, Err(AttemptError::Device("out of memory".to_owned())));
    assert_eq!(rig.runs(1 - first), Some((1, 2)));
}

#[test]
fn a_model_of_a_standby_keeps_no_request_waiting_until_the_standby_serves() {
    let mut rig = Rig::concurrent(1, 2, |config| config.standbys = 1);
    rig.tell(Event::TimePassed);
    rig.offer(0, &["a"]);
    rig.ready(0);
    let standby = WorkerId { device: device(0), group: Group::Models(0), generation: 2 };
    let mut has = ModelInfo::unavailable("b", String::new());
    has.state = ModelState::Ready;
    rig.tell(Event::Worker(standby, WorkerEvent::ModelsReported(vec![has])));
    rig.tell(Event::Worker(standby, WorkerEvent::Ready(info(0))));
    rig.ask(1, "b");
    assert_eq!(rig.verdicts(1), [Verdict::DeviceLost]);
    rig.lose_beacon(0);
    rig.ask(2, "b");
    assert_eq!((rig.worker(0), rig.runs(0)), (standby, Some((2, 1))));
}

#[test]
fn a_request_that_no_device_can_serve_ends() {
    let mut rig = both();
    rig.ask(1, "c");
    assert_eq!(rig.verdicts(1), [Verdict::DeviceLost]);
    let reason = "no device in service has the model `c`; `gridpool models` says why";
    assert_eq!(rig.receipts(1)[0].reason, reason);
    (2..=4).for_each(|key| rig.ask(key, "b"));
    rig.offer(0, &["a"]);
    assert_eq!(rig.verdicts(4), [Verdict::DeviceLost], "it waited");
    assert!(rig.verdicts(2).is_empty(), "it was sent while the worker had `b`");
    rig.assert_counters_add_up(2);
    // A device that is starting may still have the model.
    rig.die(1, SIGSEGV);
    rig.ask(5, "b");
    assert!(rig.verdicts(5).is_empty());
    rig.wait_ms(50);
    rig.offer(1, &["a"]);
    rig.ready(1);
    assert_eq!(rig.verdicts(5), [Verdict::DeviceLost]);
}

#[test]
fn attempts_that_were_cut_off_are_withdrawn() {
    let mut rig = both();
    (1..=2).for_each(|key| rig.ask(key, "b"));
    let worker = rig.worker(0);
    rig.cancel(1);
    assert_eq!(withdrawn(&rig), [(worker, 1)]);
    rig.reply(0, Err(AttemptError::Refused("it was cancelled".to_owned())));
    assert_eq!((rig.verdicts(1), rig.kills()), (vec![Verdict::Cancelled], 0));
    rig.wait_ms(10_000);
    assert_eq!(rig.kills(), 0, "it was answered within the grace");
    rig.tell(Event::Client(ClientId(1), ClientEvent::Gone));
    assert_eq!(withdrawn(&rig), [(worker, 1), (worker, 2)]);
}

#[test]
fn a_death_during_a_change_of_models_is_no_evidence_against_a_request() {
    let mut rig = both();
    rig.ask(1, "b");
    for _ in 0..2 {
        let worker = rig.worker(0);
        rig.core.pool.begin_change(worker);
        rig.die(0, STICKY);
        rig.wait_ms(500);
        rig.offer(0, &["a", "b"]);
        rig.ready(0);
    }
    assert!(rig.verdicts(1).is_empty(), "it is innocent, and has one attempt left");
    let worker = rig.worker(0);
    rig.core.pool.begin_change(worker);
    rig.tell(Event::Worker(worker, WorkerEvent::CommandEnded { number: 1, result: Ok(()) }));
    rig.answer(0);
    assert_eq!(rig.verdicts(1), [Verdict::Ok]);
}

#[test]
fn a_request_that_waits_for_capacity_delays_none_whose_model_is_elsewhere() {
    let mut rig = Rig::concurrent(2, 2, |_| {});
    rig.wake();
    rig.offer(0, &["a"]);
    rig.offer(1, &["b"]);
    rig.ready(0);
    rig.ready(1);
    (1..=3).for_each(|key| rig.ask(key, "a"));
    rig.ask(4, "b");
    rig.ask(5, "b");
    assert_eq!(rig.dispatches(0).concat(), [1, 2]);
    assert_eq!(rig.dispatches(1).concat(), [4, 5], "the third `a` could not go there");
}

#[test]
fn a_request_that_must_run_alone_is_not_overtaken_on_workers_that_have_its_model() {
    let mut rig = both();
    rig.ask(1, "b");
    rig.submit_as(1, 2, |request| {
        request.work = model("b");
        request.idempotent = false;
    });
    rig.ask(3, "a");
    rig.ask(4, "a");
    assert_eq!(rig.dispatches(0).concat(), [1], "or the second would wait for ever");
    assert_eq!(rig.dispatches(1).concat(), [3, 4]);
    rig.answer(0);
    assert_eq!(rig.dispatches(0).concat(), [2]);
}

#[test]
fn a_retried_request_ends_if_its_model_is_gone_everywhere() {
    let mut rig = both();
    rig.ask(1, "b");
    rig.offer(0, &["a"]);
    assert!(rig.verdicts(1).is_empty(), "its worker may answer");
    rig.reply(0, Err(AttemptError::Device("out of memory".to_owned())));
    assert_eq!(rig.verdicts(1), [Verdict::DeviceLost]);
    // The same for a job that no other worker may run before its worker is gone.
    let mut rig = both();
    rig.ask(1, "b");
    let worker = rig.worker(0);
    let fault = gridpool_protocol::fault::FaultCode::Xid(48);
    rig.tell(Event::DeviceFault { device: device(0), fault });
    assert!(rig.verdicts(1).is_empty());
    rig.exit(worker, SIGKILL);
    assert_eq!(
        rig.verdicts(1),
        [Verdict::DeviceLost],
        "the device with the model is out of service"
    );
}

#[test]
fn the_attempts_of_a_client_that_is_gone_are_withdrawn_once() {
    let mut rig = both();
    rig.ask(1, "b");
    let worker = rig.worker(0);
    rig.tell(Event::Client(ClientId(1), ClientEvent::Gone));
    rig.wait_ms(40_000);
    assert_eq!(withdrawn(&rig), [(worker, 1)], "its deadline has passed since");
}

#[test]
fn a_new_process_has_no_model_before_it_reports_it() {
    let mut rig = both();
    rig.die(0, SIGSEGV);
    rig.wait_ms(50);
    rig.ready(0);
    rig.ask(1, "b");
    assert_eq!(rig.verdicts(1), [Verdict::DeviceLost]);
}
