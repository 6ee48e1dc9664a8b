//! Families of workers and devices.

use gridpool_protocol::ids::Role;
use gridpool_protocol::metrics::{DeviceMetrics, Metrics, Work};
use gridpool_protocol::status::{DeviceStatus, Status, WorkerState, WorkerStatus};

use super::super::page::{Labels, Page, Row, labels};
use super::super::requests::number;
use super::{flag, seconds};

/// What a worker holds, and where.
type Held = (&'static str, fn(&WorkerStatus) -> u64);

const HELD: [Held; 5] = [
    ("arenas", |row| row.arena_bytes),
    ("device", |row| row.memory.device_bytes),
    ("pinned", |row| row.memory.pinned_bytes),
    ("registered", |row| row.memory.registered_bytes),
    ("resident", |row| row.resident_bytes),
];

/// A device and a role, by the name that a worker has without its generation.
fn worker_of(row: &DeviceMetrics) -> Labels {
    labels([("worker", &row.device), ("role", &row.role.name())])
}

/// The processes of a device and a role.
fn processes<'a>(
    status: &'a Status,
    row: &DeviceMetrics,
) -> impl Iterator<Item = &'a WorkerStatus> {
    let (kind, index, role) = (row.device.kind, row.device.index, row.role.name());
    let is_of = move |worker: &&WorkerStatus| {
        (worker.device.kind, worker.device.index) == (kind, index) && worker.role == role
    };
    status.workers.iter().filter(is_of)
}

/// Of every device and role, whether it has a process or not.
pub(super) fn workers(page: &mut Page, Metrics { status, devices, .. }: &Metrics) {
    let states = |row: &DeviceMetrics| {
        let row = row.clone();
        WorkerState::ALL.map(move |state| {
            let count = processes(status, &row).filter(|worker| worker.state == state).count();
            let (worker, role) = (row.device, row.role.name());
            let labels = labels([("worker", &worker), ("role", &role), ("state", &state.name())]);
            (labels, number(count as u64))
        })
    };
    page.gauges(
        "gridpool_worker_state",
        "Processes of a device and a role by what they are doing: one, and those that stand by; \
         without any process, what is awaited.",
        devices.iter().flat_map(states),
    );
    page.gauges(
        "gridpool_worker_generation",
        "The number of the latest process; 0 before the first.",
        devices.iter().map(|row| (worker_of(row), f64::from(row.generation))),
    );
    let started = |row: &DeviceMetrics| -> Option<Row> {
        let latest = processes(status, row)
            .filter_map(|worker| worker.start_us.map(|start_us| (worker.generation, start_us)));
        latest.max().map(|(_, start_us)| (worker_of(row), seconds(start_us)))
    };
    page.gauges(
        "gridpool_worker_last_start_seconds",
        "How long the latest of its processes that is READY took to be that; no row if none is.",
        devices.iter().filter_map(started),
    );
    page.counters(
        "gridpool_worker_jobs_total",
        "Attempts at jobs that its processes have answered.",
        devices.iter().map(|row| (worker_of(row), number(row.work.attempts))),
    );
    page.counters(
        "gridpool_worker_items_total",
        "Items that a job got a result of from its processes; a request of a model is one.",
        devices.iter().map(|row| (worker_of(row), number(row.work.items))),
    );
    let memory = |row: &DeviceMetrics| {
        let row = row.clone();
        HELD.map(move |(what, of)| {
            // A worker may say any number.
            let bytes = processes(status, &row).map(of).fold(0, u64::saturating_add);
            let (worker, role) = (row.device, row.role.name());
            (labels([("worker", &worker), ("role", &role), ("memory", &what)]), number(bytes))
        })
    };
    page.gauges(
        "gridpool_worker_memory_bytes",
        "What its processes hold: arenas that are mapped, buffers on the device, page-locked buffers, \
         arenas registered with the driver, and memory of the host in all.",
        devices.iter().flat_map(memory),
    );
}

/// What was done on devices, as the reports of attempts say it.
pub(super) fn devices(page: &mut Page, devices: &[DeviceMetrics]) {
    let of = |row: &DeviceMetrics| {
        labels([("device", &row.device), ("kind", &row.device.kind), ("role", &row.role.name())])
    };
    page.gauges(
        "gridpool_device_out",
        "Whether a device is out of service for a role.",
        devices.iter().map(|row| (of(row), flag(row.is_out))),
    );
    page.counters(
        "gridpool_device_quarantines_total",
        "How often it was put out of service.",
        devices.iter().map(|row| (of(row), number(row.quarantines))),
    );
    let copied = |row: &DeviceMetrics| {
        let ways = [("to_device", row.work.h2d_bytes), ("to_host", row.work.d2h_bytes)];
        ways.map(|(way, bytes)| {
            let (device, role) = (row.device, row.role.name());
            let kind = device.kind;
            let labels = labels([
                ("device", &device),
                ("kind", &kind),
                ("role", &role),
                ("direction", &way),
            ]);
            (labels, number(bytes))
        })
    };
    page.counters(
        "gridpool_device_copied_bytes_total",
        "Bytes copied, or read and written over the bus, by attempts that were answered. On a CPU \
         device grids are not copied.",
        devices.iter().flat_map(copied),
    );
    let of_role = |role, done: fn(&Work) -> f64| {
        let rows = devices.iter().filter(move |row| row.role == role);
        rows.map(move |row| (of(row), done(&row.work)))
    };
    page.counters(
        "gridpool_kernel_launches_total",
        "Kernels launched by attempts that were answered; on a CPU device the reference's functions.",
        of_role(Role::Grid, |work| work.launches),
    );
    page.counters(
        "gridpool_device_busy_seconds_total",
        "Their time on the device, of kernels by CUDA events, on a CPU device the functions' own. \
         What runs at the same time counts each by itself. What models do there is not in it.",
        of_role(Role::Grid, |work| work.busy_s),
    );
    page.counters(
        "gridpool_model_runs_total",
        "Runs of models by ONNX Runtime, for requests that were answered; one that requests share \
         counts once.",
        of_role(Role::Infer, |work| work.runs),
    );
    page.counters(
        "gridpool_model_run_seconds_total",
        "What those took by the worker's clock: copies to and from the device are in it, and nodes \
         that run on the host. How busy the device was is not known of models.",
        of_role(Role::Infer, |work| work.run_s),
    );
}

/// GPUs as the monitor says them. One of which NVML says nothing now has no row: no number is made up.
pub(super) fn gpus(page: &mut Page, status: &Status) {
    let is_up = status.monitor.is_some_and(|monitor| monitor.up);
    let is_known = |gpu: &&DeviceStatus| gpu.memory_total > 0 && gpu.nvml_error.is_none();
    let known: Vec<_> = status.devices.iter().filter(is_known).filter(|_| is_up).collect();
    let of = |gpu: &DeviceStatus| labels([("gpu_uuid", &gpu.uuid), ("device", &gpu.name)]);
    let share = |gpu: &&DeviceStatus| Some((of(gpu), f64::from(gpu.busy_percent?) / 100.0));
    page.gauges(
        "nv_gpu_utilization",
        "GPU utilization rate (0.0 to 1.0), by NVML, whoever uses it.",
        known.iter().filter_map(share),
    );
    page.gauges(
        "nv_gpu_memory_total_bytes",
        "GPU total memory, in bytes.",
        known.iter().map(|gpu| (of(gpu), number(gpu.memory_total))),
    );
    page.gauges(
        "nv_gpu_memory_used_bytes",
        "GPU used memory, in bytes, whoever uses it.",
        known.iter().map(|gpu| (of(gpu), number(gpu.memory_used))),
    );
    let power = |gpu: &&DeviceStatus| Some((of(gpu), f64::from(gpu.power_mw?) / 1e3));
    page.gauges(
        "nv_gpu_power_usage",
        "GPU power usage in watts, by NVML.",
        known.iter().filter_map(power),
    );
    page.counters(
        "gridpool_gpu_xids_total",
        "Xids that the driver has told of since the pool started.",
        status.devices.iter().map(|gpu| (of(gpu), number(gpu.xids))),
    );
}
