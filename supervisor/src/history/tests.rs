//! Tests with snapshots made by hand.

use gridpool_protocol::status::{DeviceStatus, MonitorStatus, QuarantineStatus, WorkerDevice};
use gridpool_protocol::tensor::model::ModelInfo;

use super::*;

/// A READY worker; of a GPU if its name begins with `gpu`.
pub(crate) fn worker(name: &str, role: &str) -> WorkerStatus {
    let kind = if name.starts_with("gpu") { DeviceKind::Gpu } else { DeviceKind::Cpu };
    let (_, generation) = name.split_once('#').unwrap();
    let device = WorkerDevice { kind, name: "a product".to_owned(), ..WorkerDevice::default() };
    WorkerStatus {
        name: name.to_owned(),
        pid: 100,
        role: role.to_owned(),
        group: if role == "infer" { "models" } else { role }.to_owned(),
        device,
        state: WorkerState::Ready,
        generation: generation.parse().unwrap(),
        start_us: Some(1),
        resident_bytes: 64 << 20,
        ..WorkerStatus::default()
    }
}

/// A snapshot of a pool after `seconds`.
pub(crate) fn snapshot(uptime_s: f64, workers: Vec<WorkerStatus>) -> Snapshot {
    let supervisor = SupervisorStatus {
        pid: 1,
        version: "0.1.0".to_owned(),
        uptime_s,
        socket: "/run/user/1000/gridpool/pool.sock".to_owned(),
        clients: 2,
        ..SupervisorStatus::default()
    };
    let status = Status { supervisor, workers, ..Status::default() };
    Snapshot { status, models: Vec::new(), past: Past::default() }
}

pub(crate) fn gpu(name: &str) -> DeviceStatus {
    DeviceStatus {
        name: name.to_owned(),
        uuid: format!("GPU-{name}"),
        memory_used: 12 << 30,
        memory_total: 141 << 30,
        busy_percent: Some(97),
        power_mw: Some(612_400),
        processes: vec![100],
        recovery: Some(0),
        ..DeviceStatus::default()
    }
}

pub(crate) fn model(worker: &str, name: &str, reason: &str) -> DeviceModel {
    let info = ModelInfo::unavailable(name, reason.to_owned());
    let model = match reason {
        "" => ModelInfo { state: ModelState::Ready, contexts: 2, device_bytes: 3 << 20, ..info },
        _ => info,
    };
    DeviceModel { worker: worker.to_owned(), serves: true, model }
}

/// The picture after each of these snapshots.
pub(crate) fn pictures(snapshots: impl IntoIterator<Item = Snapshot>) -> Vec<Picture> {
    let mut history = History::default();
    snapshots.into_iter().map(|snapshot| history.snapshot(snapshot)).collect()
}

/// The worker after more jobs of ten items each.
fn after(worker: &WorkerStatus, jobs: u64) -> WorkerStatus {
    WorkerStatus {
        jobs_done: worker.jobs_done + jobs,
        items_done: worker.items_done + 10 * jobs,
        cpu_us: worker.cpu_us + 100_000 * jobs,
        ..worker.clone()
    }
}

#[test]
fn rates_go_by_the_pools_own_clock() {
    let first = WorkerStatus { jobs_done: 1_000, ..worker("cpu0#1", "grid") };
    let mut snapshots =
        [snapshot(5.0, vec![first.clone()]), snapshot(7.0, vec![after(&first, 30)])];
    snapshots[0].status.counters.ok = 4;
    (snapshots[1].status.counters.ok, snapshots[1].status.counters.failed) = (23, 1);
    let [before, now] = pictures(snapshots).try_into().unwrap();
    let rates = |picture: &Picture| (picture.rows[0].jobs_rate, picture.rows[0].items_rate);
    assert_eq!(rates(&before), (None, None), "a rate needs two snapshots");
    assert_eq!((before.jobs_rate, before.items_rate), (None, None));
    assert_eq!(rates(&now), (Some(15.0), Some(150.0)));
    assert_eq!((now.jobs_rate, now.items_rate), (Some(10.0), Some(150.0)));
    assert_eq!(now.rows[0].busy_percent, Some(150.0), "3 s on CPUs within 2 s");
    assert_eq!(now.rows[0].memory, Some(64 << 20));
}

#[test]
fn a_new_process_or_a_new_pool_starts_from_nothing() {
    let one = worker("cpu0#1", "grid");
    // Its numbers continue those of the processes before it.
    let two = WorkerStatus { jobs_done: 500, items_done: 5_000, ..worker("cpu0#2", "grid") };
    let snapshots = [
        snapshot(1.0, vec![one]),
        snapshot(2.0, vec![two.clone()]),
        snapshot(3.0, vec![after(&two, 1)]),
    ];
    let seen = pictures(snapshots.clone());
    assert_eq!(seen[1].rows[0].items_rate, None);
    assert_eq!(seen[2].rows[0].items_rate, Some(10.0));
    assert_eq!(seen[2].rows[0].trend, [0.0, 10.0], "the device's trend over all its processes");
    assert_eq!(seen[2].trend, [0.0, 10.0]);

    let mut other = snapshots[2].clone();
    other.status.supervisor.pid = 2;
    let seen = pictures([snapshots[1].clone(), snapshots[2].clone(), other.clone()]);
    assert_eq!((seen[2].items_rate, &*seen[2].trend), (None, &[][..]));
    other.status.supervisor = snapshot(2.5, Vec::new()).status.supervisor;
    assert_eq!(pictures([snapshots[2].clone(), other])[1].items_rate, None, "its clock went back");
}

#[test]
fn a_trend_belongs_to_its_device_and_role_and_is_shown_with_the_serving_worker() {
    let standby = WorkerStatus { state: WorkerState::Standby, ..worker("gpu0#1", "grid") };
    let own = [standby, worker("gpu0#2", "grid"), worker("gpu0#4", "infer")];
    let next: Vec<_> = own.iter().zip([0, 2, 5]).map(|(own, jobs)| after(own, jobs)).collect();
    let seen = pictures([snapshot(1.0, own.to_vec()), snapshot(2.0, next)]);
    let trends: Vec<_> = seen[1].rows.iter().map(|row| (row.nth, row.trend.clone())).collect();
    assert_eq!(trends, [(0, vec![]), (1, vec![20.0]), (0, vec![50.0])]);
    assert_eq!(seen[1].trend, [70.0]);
}

#[test]
fn a_trend_has_a_greatest_length() {
    let snapshots =
        (1..=TREND_MAX + 9).map(|n| snapshot(ratio(n as u64, 1), vec![worker("cpu0#1", "grid")]));
    let seen = pictures(snapshots);
    assert_eq!(seen.last().unwrap().trend.len(), TREND_MAX);
    assert_eq!(seen.last().unwrap().rows[0].trend.len(), TREND_MAX);
}

#[test]
fn a_gpu_shows_the_values_of_nvml_and_leaves_unknown_ones_out() {
    let mut snapshots = [
        snapshot(1.0, vec![worker("gpu0#1", "grid")]),
        snapshot(2.0, vec![worker("gpu0#1", "grid")]),
    ];
    snapshots[0].status.devices = vec![gpu("gpu0")];
    let silent =
        DeviceStatus { memory_total: 0, busy_percent: None, power_mw: None, ..gpu("gpu0") };
    snapshots[1].status.devices = vec![silent];
    let seen = pictures(snapshots);
    let shown = |at: usize| {
        let row = &seen[at].rows[0];
        (row.busy_percent, row.memory, row.memory_total, row.power_mw)
    };
    assert_eq!(shown(0), (Some(97.0), Some(12 << 30), Some(141 << 30), Some(612_400)));
    assert_eq!(shown(1), (None, None, None, None));
}

#[test]
fn models_are_summed_up_over_workers_with_the_reason_of_one_that_fails() {
    let rows =
        [model("gpu0#2", "a", ""), model("gpu1#2", "a", ""), model("gpu0#2", "b", "no\tfile")];
    let rows = model_rows(&rows, &[]);
    let said = rows.iter().map(|row| (&*row.name, row.ready, row.workers, row.contexts));
    assert_eq!(said.collect::<Vec<_>>(), [("a", 2, 2, 4), ("b", 0, 1, 0)]);
    assert_eq!((rows[0].device_bytes, &*rows[1].reason), (6 << 20, "gpu0#2: no\u{fffd}file"));
}

#[test]
fn a_model_has_the_rate_of_the_workers_that_have_it_alone() {
    let [one, two, three] = ["gpu0#2", "gpu1#2", "gpu2#1"].map(|name| worker(name, "infer"));
    let before = vec![one.clone(), two.clone(), three.clone()];
    let later = vec![after(&one, 30), after(&two, 10), after(&three, 8)];
    let mut snapshots = [snapshot(1.0, before), snapshot(3.0, later)];
    let models = [("gpu0#2", "a"), ("gpu1#2", "a"), ("gpu2#1", "b"), ("gpu2#1", "c")];
    snapshots[1].models = models.map(|(worker, name)| model(worker, name, "")).into();
    let rates = pictures(snapshots).remove(1).models;
    let rates: Vec<_> = rates.iter().map(|row| (&*row.name, row.jobs_rate)).collect();
    assert_eq!(rates, [("a", Some(20.0)), ("b", None), ("c", None)]);
}

#[test]
fn every_fault_has_one_line_and_the_gravest_come_first() {
    let dead = |name: &str, role: &str, fault: &str| WorkerStatus {
        last_fault: fault.to_owned(),
        ..worker(name, role)
    };
    let workers = vec![
        dead("gpu0#3", "grid", "gpu0#1 died: exit code 71"),
        dead("gpu0#5", "grid", "gpu0#1 died: exit code 71"),
        dead("gpu1#2", "infer", "said\x1b[2Jthis\n  and that"),
        dead("gpu2#1", "grid", "gpu2#1 died: signal 9"),
    ];
    let mut snapshot = snapshot(1.0, workers);
    let [device, role, group, why] =
        ["gpu2", "grid", "grid", "gpu2#1 died: signal 9"].map(str::to_owned);
    let tried_in_us = None;
    snapshot.status.quarantines = vec![QuarantineStatus { device, role, group, why, tried_in_us }];
    snapshot.status.devices = vec![gpu("gpu0"), DeviceStatus { last_xid: Some(79), ..gpu("gpu1") }];
    snapshot.status.monitor =
        Some(MonitorStatus { pid: 0, up: false, restarts: 2, ..MonitorStatus::default() });
    let want = [
        "gpu2 is out of service: gpu2#1 died: signal 9; try again with `gridpool release gpu2`",
        "gpu1: xid 79: the GPU has fallen off the bus: reboot the machine",
        "the GPU monitor is not running",
        "last fault: gpu0#1 died: exit code 71",
        "last fault of gpu1 (models): said\u{fffd}[2Jthis and that",
    ];
    assert_eq!(pictures([snapshot]).remove(0).faults, want);
}
