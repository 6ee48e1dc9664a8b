//! Looks made by hand, and what they give.

use gridpool_protocol::status::{MonitorStatus, QuarantineStatus, SlotDevice, WorkerMemory};
use gridpool_protocol::tensor::model::ModelInfo;

use super::*;

/// A worker that is READY; a GPU's if its name says so.
pub(in crate::cli) fn worker(name: &str, role: &str) -> WorkerStatus {
    let kind = if name.starts_with("gpu") { DeviceKind::Gpu } else { DeviceKind::Cpu };
    let (_, generation) = name.split_once('#').unwrap();
    WorkerStatus {
        name: name.to_owned(),
        pid: 100,
        role: role.to_owned(),
        device: SlotDevice { kind, index: 0, name: "a product".to_owned(), uuid: String::new() },
        state: WorkerState::Ready,
        generation: generation.parse().unwrap(),
        jobs_done: 0,
        items_done: 0,
        restarts: 0,
        last_fault: String::new(),
        start_us: Some(1),
        end_us: None,
        arena_bytes: 0,
        memory: WorkerMemory::default(),
        run: None,
        cpu_us: 0,
        resident_bytes: 64 << 20,
    }
}

/// A look at a pool that has been up for so many seconds.
pub(in crate::cli::top) fn look(uptime_s: f64, workers: Vec<WorkerStatus>) -> Look {
    let supervisor = SupervisorStatus {
        pid: 1,
        version: "0.1.0".to_owned(),
        uptime_s,
        socket: "/run/user/1000/gridpool/pool.sock".to_owned(),
        cuda_mapped: false,
        draining: false,
        clients: 2,
        arena_bytes: 0,
        arena_bytes_high: 0,
        outbox_bytes_high: 0,
    };
    let status = Status {
        supervisor,
        workers,
        monitor: None,
        http: None,
        devices: Vec::new(),
        quarantines: Vec::new(),
        queue: QueueStatus::default(),
        counters: Counters::default(),
    };
    Look { status, models: Vec::new() }
}

pub(in crate::cli::top) fn gpu(name: &str) -> DeviceStatus {
    DeviceStatus {
        name: name.to_owned(),
        uuid: format!("GPU-{name}"),
        memory_used: 12 << 30,
        memory_total: 141 << 30,
        busy_percent: Some(97),
        power_mw: Some(612_400),
        processes: vec![100],
        recovery: Some(0),
        last_xid: None,
        xids: 0,
        nvml_error: None,
    }
}

pub(in crate::cli::top) fn model(worker: &str, name: &str, reason: &str) -> DeviceModel {
    let info = ModelInfo::unavailable(name, reason.to_owned());
    let model = match reason {
        "" => ModelInfo { state: ModelState::Ready, contexts: 2, device_bytes: 3 << 20, ..info },
        _ => info,
    };
    DeviceModel { worker: worker.to_owned(), model }
}

/// What is to be seen after each of these looks.
pub(in crate::cli::top) fn pictures(looks: impl IntoIterator<Item = Look>) -> Vec<Picture> {
    let mut history = History::default();
    looks.into_iter().map(|look| history.look(look)).collect()
}

/// The same worker after so many more jobs of ten items each.
fn after(worker: &WorkerStatus, jobs: u64) -> WorkerStatus {
    WorkerStatus {
        jobs_done: worker.jobs_done + jobs,
        items_done: worker.items_done + 10 * jobs,
        cpu_us: worker.cpu_us + 100_000 * jobs,
        ..worker.clone()
    }
}

#[test]
fn rates_are_what_was_done_by_the_pools_own_time() {
    let first = WorkerStatus { jobs_done: 1_000, ..worker("cpu0#1", "grid") };
    let mut looks = [look(5.0, vec![first.clone()]), look(7.0, vec![after(&first, 30)])];
    looks[0].status.counters.ok = 4;
    (looks[1].status.counters.ok, looks[1].status.counters.failed) = (23, 1);
    let [before, now] = pictures(looks).try_into().unwrap();
    let rates = |picture: &Picture| (picture.rows[0].jobs_rate, picture.rows[0].items_rate);
    assert_eq!(rates(&before), (None, None), "one look says nothing of rates");
    assert_eq!((before.jobs_rate, before.items_rate), (None, None));
    assert_eq!(rates(&now), (Some(15.0), Some(150.0)));
    assert_eq!((now.jobs_rate, now.items_rate), (Some(10.0), Some(150.0)));
    assert_eq!(now.rows[0].busy_percent, Some(150.0), "3 s on CPUs within 2 s");
    assert_eq!(now.rows[0].memory, Some(64 << 20));
}

#[test]
fn a_new_process_or_a_new_pool_starts_from_nothing() {
    let one = worker("cpu0#1", "grid");
    // What those before it did is counted in its numbers.
    let two = WorkerStatus { jobs_done: 500, items_done: 5_000, ..worker("cpu0#2", "grid") };
    let looks =
        [look(1.0, vec![one]), look(2.0, vec![two.clone()]), look(3.0, vec![after(&two, 1)])];
    let seen = pictures(looks.clone());
    assert_eq!(seen[1].rows[0].items_rate, None);
    assert_eq!(seen[2].rows[0].items_rate, Some(10.0));
    assert_eq!(seen[2].rows[0].trend, [0.0, 10.0], "of the device, whatever process served it");
    assert_eq!(seen[2].trend, [0.0, 10.0]);

    let mut other = looks[2].clone();
    other.status.supervisor.pid = 2;
    let seen = pictures([looks[1].clone(), looks[2].clone(), other.clone()]);
    assert_eq!((seen[2].items_rate, &*seen[2].trend), (None, &[][..]));
    other.status.supervisor = look(2.5, Vec::new()).status.supervisor;
    assert_eq!(pictures([looks[2].clone(), other])[1].items_rate, None, "its time went back");
}

#[test]
fn a_trend_is_that_of_its_device_and_role_and_stands_with_the_worker_that_serves() {
    let standby = WorkerStatus { state: WorkerState::Standby, ..worker("gpu0#1", "grid") };
    let own = [standby, worker("gpu0#2", "grid"), worker("gpu0#4", "infer")];
    let next: Vec<_> = own.iter().zip([0, 2, 5]).map(|(own, jobs)| after(own, jobs)).collect();
    let seen = pictures([look(1.0, own.to_vec()), look(2.0, next)]);
    let trends: Vec<_> = seen[1].rows.iter().map(|row| (row.seat, row.trend.clone())).collect();
    assert_eq!(trends, [(0, vec![]), (1, vec![20.0]), (0, vec![50.0])]);
    assert_eq!(seen[1].trend, [70.0]);
}

#[test]
fn a_trend_is_no_longer_than_it_may_be() {
    let looks =
        (1..=TREND_MAX + 9).map(|n| look(ratio(n as u64, 1), vec![worker("cpu0#1", "grid")]));
    let seen = pictures(looks);
    assert_eq!(seen.last().unwrap().trend.len(), TREND_MAX);
    assert_eq!(seen.last().unwrap().rows[0].trend.len(), TREND_MAX);
}

#[test]
fn a_gpu_shows_what_nvml_says_and_nothing_where_that_says_nothing() {
    let mut looks =
        [look(1.0, vec![worker("gpu0#1", "grid")]), look(2.0, vec![worker("gpu0#1", "grid")])];
    looks[0].status.devices = vec![gpu("gpu0")];
    let silent =
        DeviceStatus { memory_total: 0, busy_percent: None, power_mw: None, ..gpu("gpu0") };
    looks[1].status.devices = vec![silent];
    let seen = pictures(looks);
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
    let rows = model_rows(&rows);
    let said = rows.iter().map(|row| (&*row.name, row.ready, row.workers, row.contexts));
    assert_eq!(said.collect::<Vec<_>>(), [("a", 2, 2, 4), ("b", 0, 1, 0)]);
    assert_eq!((rows[0].device_bytes, &*rows[1].reason), (6 << 20, "gpu0#2: no\u{fffd}file"));
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
        dead("gpu1#2", "infer", "said\x1b[2Jthis"),
        dead("gpu2#1", "grid", "gpu2#1 died: signal 9"),
    ];
    let mut look = look(1.0, workers);
    let [device, role, why] = ["gpu2", "grid", "gpu2#1 died: signal 9"].map(str::to_owned);
    look.status.quarantines = vec![QuarantineStatus { device, role, why, tried_in_us: None }];
    look.status.devices = vec![gpu("gpu0"), DeviceStatus { last_xid: Some(79), ..gpu("gpu1") }];
    look.status.monitor = Some(MonitorStatus { pid: 0, up: false, restarts: 2 });
    let want = [
        "gpu2 is out of service: gpu2#1 died: signal 9; not tried again before `gridpool release gpu2`",
        "gpu1: xid 79: the GPU has fallen off the bus: reboot the machine",
        "the monitor of the GPUs is not up",
        "last fault: gpu0#1 died: exit code 71",
        "last fault of gpu1 (models): said\u{fffd}[2Jthis",
    ];
    assert_eq!(pictures([look]).remove(0).faults, want);
}
