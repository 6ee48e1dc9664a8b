//! The metrics: each number changes when its event happens, and not otherwise.

use gridpool_protocol::fault::FaultCode;
use gridpool_protocol::metrics::{
    DeviceMetrics, DeviceWork, Histogram, RestartReason, RoleMetrics,
};
use gridpool_protocol::receipt::{AttemptOutcome, KernelUse};
use gridpool_protocol::tensor::model::InferReport;

use super::*;
use crate::action::KillReason;

fn metrics(rig: &Rig) -> RoleMetrics {
    rig.core.metrics(rig.now).0.into_iter().find(|row| row.role == rig.group.role()).unwrap()
}

fn of_device(rig: &Rig, index: u32) -> DeviceMetrics {
    let rows = rig.core.metrics(rig.now).1;
    rows.into_iter()
        .find(|row| (row.device, row.role) == (device(index), rig.group.role()))
        .unwrap()
}

/// Restarts by reason that are not 0. Their sum is the number in `status`.
fn restarts(rig: &Rig) -> Vec<(RestartReason, u64)> {
    let metrics = metrics(rig);
    assert_eq!(metrics.restarts.len(), RestartReason::ALL.len());
    let sum: u64 = metrics.restarts.iter().map(|(_, count)| count).sum();
    assert_eq!(sum, metrics.counters.restarts);
    metrics.restarts.into_iter().filter(|(_, count)| *count > 0).collect()
}

/// Attempts that ended, by outcome, without zeros.
fn ended(rig: &Rig) -> Vec<(AttemptOutcome, u64)> {
    let ended = metrics(rig).ended;
    assert_eq!(ended.len(), AttemptOutcome::ALL.len());
    ended.into_iter().filter(|(_, count)| *count > 0).collect()
}

/// Faults that workers have met.
fn faults(rig: &Rig) -> Vec<(FaultCode, u64)> {
    let faults = rig.core.metrics(rig.now).2;
    let is_met = |fault: FaultCode| !matches!(fault, FaultCode::Xid(_));
    faults.into_iter().filter(|&(fault, count)| count > 0 && is_met(fault)).collect()
}

/// How many values there were, and their sum in milliseconds.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a few seconds")]
fn of(histogram: &Histogram) -> (u64, u64) {
    (histogram.count(), (histogram.sum * 1e3).round() as u64)
}

/// The device's process ends with a fault that it names.
fn fail(rig: &mut Rig, status: ExitStatus, fault: FaultCode) {
    let worker = rig.worker(0);
    rig.running.remove(&worker);
    let exit = Exit { status, fault: Some(fault), last_words: None, is_ordered: false };
    rig.tell(Event::Worker(worker, WorkerEvent::Exited(exit)));
    rig.tell(Event::Worker(worker, WorkerEvent::Reclaimed));
}

/// Waits until the next process of the device starts.
fn ordered(rig: &mut Rig) {
    while rig.state(0) == WorkerState::Backoff {
        rig.wait_ms(10);
    }
}

/// The next process of the device is READY.
fn back(rig: &mut Rig) {
    ordered(rig);
    rig.ready(0);
}

#[test]
fn an_idle_pool_shows_every_metric_at_zero() {
    let rig = Rig::starting(2, |_| {});
    let metrics = metrics(&rig);
    assert_eq!((restarts(&rig), ended(&rig), faults(&rig)), (Vec::new(), Vec::new(), Vec::new()));
    let rows = rig.core.metrics(rig.now).2;
    let named = |fault| rows.contains(&(fault, 0));
    assert!(FaultCode::others().into_iter().all(|(other, _)| named(other)));
    let unnamed: Vec<_> = FaultCode::listed().filter(|&fault| !named(fault)).collect();
    assert_eq!(unnamed, [FaultCode::Recovery(0)], "that nothing is needed is no fault");
    let histograms = metrics.sums.histograms;
    for histogram in [
        &histograms.failover,
        &histograms.recovery,
        &histograms.start,
        &histograms.queue,
        &histograms.service,
        &histograms.total,
        &histograms.dispatch_attempts,
        &histograms.dispatch_items,
    ] {
        assert_eq!(of(histogram), (0, 0));
        assert!(!histogram.buckets.is_empty());
    }
    assert_eq!((metrics.sums.retries, metrics.queue.oldest_us), (0, None));
    let row = of_device(&rig, 1);
    assert_eq!((row.generation, row.is_out, row.quarantines), (1, false, 0));
    assert_eq!(row.work, DeviceWork::default());
}

#[test]
fn a_start_is_timed_from_its_spawn_and_is_no_recovery() {
    let mut rig = Rig::starting(1, |_| {});
    rig.wait_ms(300);
    rig.ready(0);
    let histograms = metrics(&rig).sums.histograms;
    assert_eq!((of(&histograms.start), of(&histograms.recovery)), ((1, 300), (0, 0)));
    assert_eq!(restarts(&rig), []);
}

#[test]
fn a_job_is_timed_once_in_the_queue_and_by_its_worker_while_it_runs() {
    let mut rig = Rig::new(1);
    rig.submit(1);
    rig.submit(2);
    rig.wait_ms(40);
    assert_eq!(of(&metrics(&rig).sums.histograms.queue), (1, 0), "the second waits");
    assert_eq!(metrics(&rig).queue.oldest_us, Some(40_000));
    rig.reply(0, Ok(RunReport { service_us: 7_000, ..report() }));
    let histograms = metrics(&rig).sums.histograms;
    assert_eq!((of(&histograms.queue), of(&histograms.service)), ((2, 40), (1, 7)));
    assert_eq!(of(&histograms.total), (1, 40), "the first alone has its verdict");
    rig.die_and_return(0, SIGSEGV);
    assert_eq!(
        of(&metrics(&rig).sums.histograms.queue),
        (2, 40),
        "it waits again, and is not timed again"
    );
    assert_eq!(of(&metrics(&rig).sums.histograms.failover), (0, 0));
    rig.answer(0);
    assert_eq!(ended(&rig), [(AttemptOutcome::Ok, 2), (AttemptOutcome::WorkerDied, 1)]);
    assert_eq!((metrics(&rig).sums.retries, metrics(&rig).counters.attempts), (1, 3));
}

#[test]
fn a_failover_is_from_the_first_sign_of_the_loss_to_the_next_answer() {
    let mut rig = Rig::with(1, |config| config.standbys = 1);
    let standby = WorkerId { device: device(0), group: Group::Grid, generation: 2 };
    rig.tell(Event::Worker(standby, WorkerEvent::Ready(info(0))));
    rig.submit_as(1, 1, |request| (request.answer_inline, request.divisible) = (true, false));
    let dying = rig.lose_beacon(0);
    rig.wait_ms(3);
    rig.answer(0);
    assert_eq!(of(&metrics(&rig).sums.histograms.failover), (1, 3), "the standby has answered");
    rig.wait_ms(97);
    rig.exit(dying, SIGKILL);
    assert_eq!(restarts(&rig), [(RestartReason::Killed, 1)]);
    let rows = rig.core.workers().into_iter().map(|(_, row)| (row.restarts, row.restart_reasons));
    let (replaced, by) = ((1, [("killed".to_owned(), 1)].into()), (0, BTreeMap::new()));
    assert_eq!(rows.collect::<BTreeSet<_>>(), [replaced, by].into(), "each worker has its own");
    assert_eq!(of(&metrics(&rig).sums.histograms.recovery), (0, 0));
    rig.wait_ms(200);
    let next = WorkerId { generation: 3, ..standby };
    rig.tell(Event::Worker(next, WorkerEvent::Ready(info(0))));
    let histograms = metrics(&rig).sums.histograms;
    assert_eq!(of(&histograms.recovery), (1, 300), "from the beacon to READY of its successor");
    assert_eq!(of(&histograms.failover), (1, 3));
}

#[test]
fn a_failover_that_waits_for_the_workers_end_counts_from_the_first_sign_too() {
    let mut rig = Rig::new(1);
    rig.submit(1);
    rig.lose_beacon(0);
    rig.wait_ms(20);
    rig.die(0, SIGKILL);
    rig.wait_ms(30);
    rig.ready(0);
    rig.wait_ms(5);
    rig.answer(0);
    rig.submit(2);
    rig.answer(0);
    let histograms = metrics(&rig).sums.histograms;
    assert_eq!((of(&histograms.failover), of(&histograms.recovery)), ((1, 55), (1, 50)));
}

#[test]
fn a_worker_stopped_without_work_counts_as_neither_lost_nor_restarted() {
    for wakes_early in [false, true] {
        let mut rig = Rig::new(1);
        rig.rest();
        if wakes_early {
            rig.wake();
        }
        rig.die(0, ExitStatus::Code(0));
        rig.wait_ms(1_000);
        rig.wake();
        back(&mut rig);
        assert_eq!(of(&metrics(&rig).sums.histograms.recovery), (0, 0));
        assert_eq!((restarts(&rig), faults(&rig)), (Vec::new(), Vec::new()));
    }
}

#[test]
fn an_attempt_that_had_not_begun_is_preempted_and_still_a_failover() {
    let mut rig = Rig::with(1, |config| config.feed_cost_max = 1_000);
    rig.submit(1);
    rig.submit(2);
    assert_eq!(rig.dispatches(0), [[1], [2]]);
    rig.die_and_return(0, SIGSEGV);
    let lost = [(AttemptOutcome::Preempted, 1), (AttemptOutcome::WorkerDied, 1)];
    assert_eq!(ended(&rig), lost);
    rig.answer(0);
    rig.answer(0);
    assert_eq!((metrics(&rig).sums.retries, of(&metrics(&rig).sums.histograms.failover).0), (2, 2));
}

#[test]
fn an_idle_worker_that_dies_costs_a_recovery_and_no_failover() {
    let mut rig = Rig::new(1);
    rig.submit(1);
    rig.answer(0);
    rig.die(0, SIGKILL);
    rig.wait_ms(50);
    rig.ready(0);
    rig.submit(2);
    rig.answer(0);
    let histograms = metrics(&rig).sums.histograms;
    assert_eq!((of(&histograms.failover), of(&histograms.recovery)), ((0, 0), (1, 50)));
    assert_eq!(ended(&rig), [(AttemptOutcome::Ok, 2)]);
    assert_eq!(metrics(&rig).sums.retries, 0);
}

#[test]
fn every_way_to_end_has_its_own_reason_and_fault() {
    let mut rig = Rig::with(1, |config| config.restart_limit = 100);
    let mut reasons = Vec::new();
    let mut met = Vec::new();
    let mut want = |rig: &Rig, reason: RestartReason, fault: Option<FaultCode>| {
        reasons.push((reason, 1));
        reasons.sort_unstable();
        assert_eq!(restarts(rig), reasons, "{reason:?}");
        met.extend(fault.map(|fault| (fault, 1)));
        met.sort_unstable();
        assert_eq!(faults(rig), met, "{reason:?}");
    };
    rig.die(0, SIGSEGV);
    back(&mut rig);
    want(&rig, RestartReason::Signal, Some(FaultCode::Signal(11)));
    rig.die(0, SIGKILL);
    back(&mut rig);
    want(&rig, RestartReason::Killed, Some(FaultCode::Signal(9)));
    rig.die(0, STICKY);
    back(&mut rig);
    want(&rig, RestartReason::Exit, Some(FaultCode::Exit(70)));
    rig.die(0, ExitStatus::Code(76));
    back(&mut rig);
    want(&rig, RestartReason::Recycled, Some(FaultCode::Exit(76)));
    rig.die(0, ExitStatus::Rejected);
    back(&mut rig);
    want(&rig, RestartReason::Rejected, Some(FaultCode::Rejected));
    fail(&mut rig, STICKY, FaultCode::Cuda(700));
    back(&mut rig);
    want(&rig, RestartReason::Fault, Some(FaultCode::Cuda(700)));
    rig.wait_ms(20_000);
    rig.tell(Event::DeviceFault { device: device(0), fault: FaultCode::Xid(109) });
    rig.die(0, SIGKILL);
    back(&mut rig);
    want(&rig, RestartReason::DeviceFault, None);
    rig.mute.insert(0);
    rig.wait_ms(6_000);
    rig.die(0, SIGKILL);
    rig.mute.clear();
    back(&mut rig);
    want(&rig, RestartReason::Silent, Some(FaultCode::Hang));
    rig.submit_as(1, 1, |request| request.deadline = Duration::from_millis(10));
    rig.wait_ms(260);
    rig.die(0, SIGKILL);
    back(&mut rig);
    want(&rig, RestartReason::Late, None);
    rig.submit(2);
    rig.cancel(2);
    rig.wait_ms(250);
    rig.die(0, SIGKILL);
    back(&mut rig);
    want(&rig, RestartReason::Cancelled, None);
    rig.die(0, SIGSEGV);
    ordered(&mut rig);
    let worker = rig.worker(0);
    rig.tell(Event::Worker(
        worker,
        WorkerEvent::SpawnFailed { detail: "no".to_owned(), is_final: false },
    ));
    ordered(&mut rig);
    let last = restarts(&rig);
    assert!(last.contains(&(RestartReason::SpawnFailed, 1)), "{last:?}");
    assert!(last.contains(&(RestartReason::Signal, 2)), "{last:?}");
    assert!(faults(&rig).contains(&(FaultCode::SpawnFailed, 1)));
}

#[test]
fn a_killed_worker_is_counted_under_the_word_in_the_log() {
    let mut rig = Rig::with(2, |config| {
        (config.feed_cost_max, config.feed_timeout) = (100, Duration::from_secs(1));
    });
    (1..=3).for_each(|key| rig.submit(key));
    rig.answer(1);
    rig.wait_ms(1_000);
    let told = |rig: &Rig| rig.kill_reason(0).map(KillReason::name);
    assert_eq!(told(&rig), Some("others_wait"));
    rig.die_and_return(0, SIGKILL);
    assert_eq!(restarts(&rig), [(RestartReason::OthersWait, 1)]);

    let mut rig = Rig::starting(1, |config| config.ready_timeout = Duration::from_secs(2));
    rig.wait_ms(2_000);
    assert_eq!(told(&rig), Some("not_ready"));
    rig.die_and_return(0, SIGKILL);
    assert_eq!(restarts(&rig), [(RestartReason::NotReady, 1)]);

    let mut rig = Rig::new(1);
    rig.core.pool.give_up_device(rig.now, device(0), "a model has met it");
    rig.tell(Event::TimePassed);
    assert_eq!(told(&rig), Some("device_out"));
    rig.die(0, SIGKILL);
    rig.tell(released(Release::Device(device(0))));
    rig.ready(0);
    assert_eq!(restarts(&rig), [(RestartReason::DeviceOut, 1)]);
}

#[test]
fn a_number_that_no_table_names_counts_for_its_family() {
    let mut rig = Rig::new(1);
    fail(&mut rig, STICKY, FaultCode::Cuda(123_456));
    back(&mut rig);
    fail(&mut rig, STICKY, FaultCode::Cuda(123_457));
    let (other, _) = FaultCode::others()[0];
    assert_eq!(faults(&rig), [(other, 2)]);
}

#[test]
fn a_process_that_ends_for_good_counts_as_no_restart_and_no_fault() {
    let mut rig = Rig::new(1);
    rig.tell(Event::DrainRequested);
    let worker = rig.worker(0);
    rig.exit(worker, ExitStatus::Code(0));
    assert_eq!((restarts(&rig), faults(&rig)), (Vec::new(), Vec::new()));
}

#[test]
fn a_device_counts_its_work_and_shared_launches_once() {
    let mut rig = Rig::with(2, |config| config.join_cost_max = 1_000);
    (1..=2).for_each(|key| rig.submit(key));
    (3..=5).for_each(|key| {
        rig.submit_as(1, key, |request| request.items = u32::try_from(key).unwrap())
    });
    let kernels = [KernelUse { name: "k".to_owned(), launches: 3, device_us: 120.0 }].into();
    let alone = RunReport { kernels, h2d_bytes: 100, d2h_bytes: 10, ..report() };
    rig.reply(0, Ok(alone.clone()));
    // Jobs 3, 4 and 5 have joined on device 0.
    for items in [3, 4, 5] {
        let shared = RunReport { items, joined_items: 12, ..alone.clone() };
        rig.reply(0, Ok(shared));
    }
    let row = of_device(&rig, 0);
    assert_eq!((row.work.attempts, row.work.items), (4, 13));
    assert_eq!((row.work.h2d_bytes, row.work.d2h_bytes), (400, 40));
    assert!((row.work.launches - 6.0).abs() < 1e-9, "{row:?}");
    assert!((row.work.busy_s - 240e-6).abs() < 1e-12, "{row:?}");
    assert_eq!(of_device(&rig, 1).work, DeviceWork::default());
    let histograms = metrics(&rig).sums.histograms;
    assert_eq!((histograms.dispatch_attempts.count(), histograms.dispatch_items.count()), (3, 3));
    assert!((histograms.dispatch_attempts.sum - 5.0).abs() < 1e-9);
    assert!((histograms.dispatch_items.sum - 14.0).abs() < 1e-9);
    rig.reply(1, Err(AttemptError::Device("no".to_owned())));
    let row = of_device(&rig, 1);
    assert_eq!((row.work.attempts, row.work.items, row.work.h2d_bytes), (1, 0, 0));
    assert!(ended(&rig).contains(&(AttemptOutcome::DeviceError, 1)));
}

#[test]
fn work_stays_counted_when_the_worker_is_gone() {
    let mut rig = Rig::new(1);
    rig.submit(1);
    rig.answer(0);
    let before = of_device(&rig, 0).work;
    assert_eq!(before.attempts, 1);
    rig.die_and_return(0, SIGSEGV);
    assert_eq!(of_device(&rig, 0).work, before);
    assert_eq!(of_device(&rig, 0).generation, 2);
}

#[test]
fn a_quarantined_device_shows_it_until_it_is_back() {
    let mut rig = Rig::with(1, |config| config.restart_limit = 1);
    rig.die(0, SIGSEGV);
    let row = of_device(&rig, 0);
    assert_eq!((row.is_out, row.quarantines), (true, 1));
    rig.tell(released(Release::Device(device(0))));
    rig.ready(0);
    let row = of_device(&rig, 0);
    assert_eq!((row.is_out, row.quarantines), (false, 1));
}

/// A worker's report of a request whose run took this long, with 8 rows.
fn model_report(run_us: f64) -> RunReport {
    let infer = InferReport {
        model: "a".to_owned(),
        sha256: String::new(),
        onnxruntime: String::new(),
        nodes: Vec::new(),
        runs: 1,
        graph_replays: 1,
        joined_rows: 8,
        device_us: run_us,
        h2d_bytes: 0,
        d2h_bytes: 0,
        steps: Vec::new(),
    };
    let kernels = [KernelUse { name: "a".to_owned(), launches: 1, device_us: run_us }].into();
    RunReport { joined_items: 8, kernels, infer: Some(Box::new(infer)), ..report() }
}

#[test]
fn requests_to_models_are_counted_by_their_rows() {
    let mut rig = Rig::concurrent(1, 3, |_| {});
    rig.wake();
    rig.offer(0, &["a"]);
    rig.ready(0);
    (1..=2).for_each(|key| rig.ask(key, "a"));
    let answer = |items| RunReport { items, ..model_report(80.0) };
    for items in [2, 6] {
        rig.reply(0, Ok(answer(items)));
    }
    let work = of_device(&rig, 0).work;
    assert_eq!((work.attempts, work.items), (2, 2), "a request is an item");
    assert!((work.runs - 1.0).abs() < 1e-9 && (work.run_s - 80e-6).abs() < 1e-12, "{work:?}");
    assert!((work.graph_replays - 1.0).abs() < 1e-9, "one replay, which two shared: {work:?}");
    let row = rig.core.workers().into_iter().find(|(_, row)| row.role == "infer");
    assert_eq!(row.expect("it has a row").1.graph_replays, 1);
    assert_eq!(
        (work.launches, work.busy_s),
        (0.0, 0.0),
        "a run is no kernel, its time not a GPU's"
    );
}
