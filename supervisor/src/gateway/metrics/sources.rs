//! The sources of metrics. A source gives each family its labels and rows.

use gridpool_protocol::fault::{FaultClass, FaultCode};
use gridpool_protocol::metrics::{DeviceMetrics, Histogram, Histograms, Metrics, RoleMetrics};
use gridpool_protocol::status::{DeviceStatus, Status, WorkerStatus};

use super::super::tally::ModelTotals;
use super::page::{Labelled, Row, RowValue, number};
use super::requests::Requests;

/// The counts that a page is made from.
#[derive(Clone, Copy)]
pub(super) struct PageInput<'a> {
    /// `None` if the supervisor does not answer.
    pub(super) metrics: Option<&'a Metrics>,
    pub(super) requests: &'a Requests,
    pub(super) load: &'a Load,
    /// Every model by name and version.
    pub(super) models: &'a [((String, String), ModelTotals)],
}

/// What this gateway holds and refuses.
#[derive(Debug, Default)]
pub(super) struct Load {
    pub(super) refused: Vec<(&'static str, u64)>,
    /// Ordinary connections and reserved ones.
    pub(super) connections: [usize; 2],
    pub(super) body_bytes: usize,
    /// Spans of requests that the tracer did not take.
    pub(super) spans_unsent: u64,
    pub(super) is_saturated: bool,
}

/// The workers of one device and role.
pub(super) struct DeviceWorkers<'a> {
    pub(super) row: &'a DeviceMetrics,
    /// Its processes. If there are none, the status row of the empty slot.
    pub(super) processes: Vec<&'a WorkerStatus>,
}

impl DeviceWorkers<'_> {
    /// The sum over its processes. It saturates, since a worker may report any number.
    pub(super) fn sum(&self, of: fn(&WorkerStatus) -> u64) -> u64 {
        self.processes.iter().map(|row| of(row)).fold(0, u64::saturating_add)
    }
}

/// One GPU, as the monitor reports it.
pub(super) struct MonitoredGpu<'a> {
    pub(super) status: &'a DeviceStatus,
    monitor_is_up: bool,
}

impl MonitoredGpu<'_> {
    /// NVML's data, if the monitor has current data.
    pub(super) fn known(&self) -> Option<&DeviceStatus> {
        let is_known = self.status.memory_total > 0 && self.status.nvml_error.is_none();
        (self.monitor_is_up && is_known).then_some(self.status)
    }
}

/// Counts by the value of one label.
pub(super) type By = Vec<(&'static str, u64)>;

/// A source of numbers. Its own labels come before those that the family names.
#[derive(Clone, Copy)]
pub(super) enum FamilySource {
    /// One number of the gateway.
    Gateway(fn(&PageInput<'_>) -> f64),
    /// Several numbers of the gateway.
    GatewayBy(&'static [&'static str], fn(&PageInput<'_>) -> Labelled),
    /// One number of the supervisor.
    Pool(fn(&Metrics) -> f64),
    /// Several numbers of the supervisor.
    PoolBy(&'static [&'static str], fn(&Metrics) -> Labelled),
    /// One number of each role.
    Role(fn(&RoleMetrics) -> f64),
    /// Several numbers of each role, by one more label.
    RoleBy(&'static str, fn(&RoleMetrics) -> By),
    /// A histogram of each role.
    RoleHistogram(fn(&Histograms) -> &Histogram),
    /// One number of the workers of each device and role. The label is the worker's name without its
    /// generation.
    Worker(fn(&DeviceWorkers<'_>) -> Option<f64>),
    /// Several numbers of each, by one more label.
    WorkerBy(&'static str, fn(&DeviceWorkers<'_>) -> By),
    /// One number of each device and role.
    Device(fn(&DeviceMetrics) -> Option<f64>),
    /// Several numbers of each, by one more label.
    DeviceBy(&'static str, fn(&DeviceMetrics) -> By),
    /// One number of each GPU.
    Gpu(fn(&MonitoredGpu<'_>) -> Option<f64>),
    /// One number of each model that HTTP serves.
    Model(fn(&ModelTotals) -> u64),
}

impl FamilySource {
    /// The labels of every row.
    pub(super) fn labels(self) -> Vec<&'static str> {
        let (own, named): (&[&str], &[&str]) = match self {
            Self::Gateway(_) | Self::Pool(_) => (&[], &[]),
            Self::GatewayBy(named, _) | Self::PoolBy(named, _) => (&[], named),
            Self::Role(_) | Self::RoleHistogram(_) => (&["role"], &[]),
            Self::RoleBy(ref named, _) => (&["role"], std::slice::from_ref(named)),
            Self::Worker(_) => (&["worker", "role"], &[]),
            Self::WorkerBy(ref named, _) => (&["worker", "role"], std::slice::from_ref(named)),
            Self::Device(_) => (&["device", "kind", "role"], &[]),
            Self::DeviceBy(ref named, _) => {
                (&["device", "kind", "role"], std::slice::from_ref(named))
            }
            Self::Gpu(_) => (&["gpu_uuid", "device"], &[]),
            Self::Model(_) => (&["model", "version"], &[]),
        };
        [own, named].concat()
    }

    /// The rows. If the supervisor does not answer, its sources have none.
    pub(super) fn rows<'a>(self, view: &PageInput<'a>) -> Vec<Row<'a>> {
        match self {
            Self::Gateway(of) => return vec![(Vec::new(), RowValue::Number(of(view)))],
            Self::GatewayBy(_, of) => return numbers(of(view)),
            Self::Model(of) => {
                let row = |((name, version), numbers): &((String, String), ModelTotals)| {
                    (vec![name.clone(), version.clone()], number(of(numbers)))
                };
                return numbers(view.models.iter().map(row).collect());
            }
            Self::Pool(_) | Self::PoolBy(..) | Self::Role(_) | Self::RoleBy(..) => {}
            Self::RoleHistogram(_) | Self::Worker(_) | Self::WorkerBy(..) => {}
            Self::Device(_) | Self::DeviceBy(..) | Self::Gpu(_) => {}
        }
        view.metrics.map_or_else(Vec::new, |metrics| self.of_pool(metrics))
    }

    fn of_pool(self, metrics: &Metrics) -> Vec<Row<'_>> {
        let (roles, devices) = (metrics.roles.iter(), metrics.devices.iter());
        let role_of = |role: &RoleMetrics| vec![role.role.name().to_owned()];
        let workers = devices.clone().map(|row| workers_of_row(&metrics.status, row));
        let rows: Labelled = match self {
            Self::Gateway(_) | Self::GatewayBy(..) | Self::Model(_) => Vec::new(),
            Self::Pool(of) => vec![(Vec::new(), of(metrics))],
            Self::PoolBy(_, of) => of(metrics),
            Self::Role(of) => roles.map(|role| (role_of(role), of(role))).collect(),
            Self::RoleBy(_, of) => roles.flat_map(|role| under(role_of(role), of(role))).collect(),
            Self::RoleHistogram(of) => {
                let row = |role| (role_of(role), RowValue::Histogram(of(&role.sums.histograms)));
                return roles.map(row).collect();
            }
            Self::Worker(of) => workers
                .filter_map(|workers_of_row| {
                    Some((worker_of(workers_of_row.row), of(&workers_of_row)?))
                })
                .collect(),
            Self::WorkerBy(_, of) => workers
                .flat_map(|workers_of_row| {
                    under(worker_of(workers_of_row.row), of(&workers_of_row))
                })
                .collect(),
            Self::Device(of) => {
                devices.filter_map(|row| Some((device_of(row), of(row)?))).collect()
            }
            Self::DeviceBy(_, of) => {
                devices.flat_map(|row| under(device_of(row), of(row))).collect()
            }
            Self::Gpu(of) => {
                let monitor_is_up = metrics.status.monitor.is_some_and(|monitor| monitor.up);
                let row = |status: &DeviceStatus| {
                    let labels = vec![status.uuid.clone(), status.name.clone()];
                    Some((labels, of(&MonitoredGpu { status, monitor_is_up })?))
                };
                metrics.status.devices.iter().filter_map(row).collect()
            }
        };
        numbers(rows)
    }
}

fn numbers<'a>(rows: Labelled) -> Vec<Row<'a>> {
    rows.into_iter().map(|(labels, value)| (labels, RowValue::Number(value))).collect()
}

/// Rows with these labels and one more.
fn under(labels: Vec<String>, rows: By) -> impl Iterator<Item = (Vec<String>, f64)> {
    let row = move |(label, count): (&str, _)| {
        ([&labels[..], &[label.to_owned()]].concat(), number(count))
    };
    rows.into_iter().map(row)
}

fn worker_of(row: &DeviceMetrics) -> Vec<String> {
    vec![row.device.to_string(), row.role.name().to_owned()]
}

fn device_of(row: &DeviceMetrics) -> Vec<String> {
    vec![row.device.to_string(), row.device.kind.to_string(), row.role.name().to_owned()]
}

fn workers_of_row<'a>(status: &'a Status, row: &'a DeviceMetrics) -> DeviceWorkers<'a> {
    let (device, role) = (row.device, row.role.name());
    let is_of = |worker: &&WorkerStatus| {
        (worker.device.kind, worker.device.index) == (device.kind, device.index)
            && worker.role == role
    };
    DeviceWorkers { row, processes: status.workers.iter().filter(is_of).collect() }
}

/// One row.
pub(super) fn one<const N: usize>(labels: [&String; N], value: f64) -> Labelled {
    vec![(labels.map(String::clone).into(), value)]
}

/// A row for each helper process. `of` gets whether it is up and its number of restarts.
pub(super) fn helpers(metrics: &Metrics, of: fn(bool, u32) -> f64) -> Labelled {
    let Status { http, monitor, nats, tracer, .. } = &metrics.status;
    let nats = nats.as_ref().map(|nats| ("bridge", of(nats.up, nats.restarts)));
    let http = http.as_ref().map(|http| ("gateway", of(http.up, http.restarts)));
    let monitor = monitor.map(|monitor| ("monitor", of(monitor.up, monitor.restarts)));
    let tracer = tracer.as_ref().map(|tracer| ("tracer", of(tracer.up, tracer.restarts)));
    let helpers = http.into_iter().chain(monitor).chain(nats).chain(tracer);
    helpers.map(|(name, value)| (vec![name.to_owned()], value)).collect()
}

/// What the bridge counted under the names that `is_wanted`.
pub(super) fn bridge(metrics: &Metrics, is_wanted: fn(&str) -> bool) -> Labelled {
    let counts = metrics.status.nats.iter().flat_map(|nats| &nats.counts);
    let counts = counts.filter(|(name, _)| is_wanted(name));
    counts.map(|(name, &count)| (vec![name.clone()], number(count))).collect()
}

/// What became of spans, or of what they would have been made of. The supervisor counts jobs, this gateway requests:
/// one sum of both would fall whenever a gateway is replaced.
pub(super) fn spans(view: &PageInput<'_>) -> Labelled {
    let tracer = view.metrics.and_then(|metrics| metrics.status.tracer.as_ref());
    let row = |(result, count): (&str, u64)| (vec![result.to_owned()], number(count));
    let rows = tracer.map(|tracer| {
        let spans = [("exported", tracer.exported), ("dropped", tracer.dropped)];
        let unsent = [("unsent_jobs", tracer.unsent), ("unsent_requests", view.load.spans_unsent)];
        [spans, unsent].concat().into_iter().map(row)
    });
    rows.into_iter().flatten().collect()
}

/// Faults by class.
pub(super) fn faults(metrics: &Metrics) -> Labelled {
    let of_class = |class: FaultClass| {
        let counts = metrics.faults.iter().filter(|(fault, _)| fault.class() == class);
        (vec![class.to_string()], number(counts.map(|(_, count)| count).sum()))
    };
    FaultClass::ALL.map(of_class).into()
}

/// Faults by class and code.
pub(super) fn faults_by_code(metrics: &Metrics) -> Labelled {
    let others = FaultCode::others();
    let of_code = |&(fault, count): &(FaultCode, u64)| {
        let other = others.iter().find(|(other, _)| *other == fault);
        let code = other.map_or_else(|| fault.to_string(), |(_, words)| (*words).to_owned());
        (vec![fault.class().to_string(), code], number(count))
    };
    metrics.faults.iter().map(of_code).collect()
}

pub(super) fn flag(is: bool) -> f64 {
    if is { 1.0 } else { 0.0 }
}

/// Converts microseconds to seconds.
pub(super) fn seconds(us: u64) -> f64 {
    number(us) / 1e6
}
