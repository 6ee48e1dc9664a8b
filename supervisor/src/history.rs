//! Rates and trends from successive snapshots of a pool, and a row for each worker. Pure: the only clock is
//! the pool's own, which each snapshot has.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use gridpool_protocol::ids::{DeviceKind, Role};
use gridpool_protocol::message::DeviceModel;
use gridpool_protocol::status::{
    Counters, QueueStatus, Status, SupervisorStatus, WorkerState, WorkerStatus,
};
use gridpool_protocol::tensor::model::ModelState;

use crate::cli::faults::{driver_faults, out_of_service};
use crate::cli::show::printable;
use crate::cli::words::ratio;
use crate::devices::{busy_percent, device_of};
use crate::timeline::Past;

/// Points of a trend: more than a screen is wide.
const TREND_MAX: usize = 240;

/// The pool at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    pub(crate) status: Status,
    /// The models of its workers.
    pub(crate) models: Vec<DeviceModel>,
    /// What each device did, if that was asked for.
    pub(crate) past: Past,
}

/// The device and group of a row or a trend, which outlive their processes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DeviceGroup {
    pub(crate) device: String,
    pub(crate) group: String,
}

/// One worker, or a device without any.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    /// The pool's report, with control characters replaced.
    pub(crate) own: WorkerStatus,
    pub(crate) device_group: DeviceGroup,
    /// Its number among the workers of its device and group.
    pub(crate) nth: usize,
    /// See [`busy_percent`].
    pub(crate) busy_percent: Option<f64>,
    /// GPU: memory that all processes hold there. CPU: memory that the worker holds.
    pub(crate) memory: Option<u64>,
    /// GPUs only.
    pub(crate) memory_total: Option<u64>,
    pub(crate) power_mw: Option<u32>,
    pub(crate) jobs_rate: Option<f64>,
    pub(crate) items_rate: Option<f64>,
    /// Items per second of its device and group; empty for all but one of their workers.
    pub(crate) trend: Vec<f64>,
}

/// A model, over all workers.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ModelRow {
    pub(crate) name: String,
    /// Workers that serve it, and workers that report it.
    pub(crate) ready: usize,
    pub(crate) workers: usize,
    /// Runs of it that are possible at once, over those workers.
    pub(crate) contexts: u64,
    pub(crate) device_bytes: u64,
    /// Attempts a second; `None` if that is unknown, as for models that share a group.
    pub(crate) jobs_rate: Option<f64>,
    /// Why a worker does not serve it; else empty.
    pub(crate) reason: String,
}

/// Everything to show.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Picture {
    pub(crate) supervisor: SupervisorStatus,
    pub(crate) rows: Vec<Row>,
    pub(crate) models: Vec<ModelRow>,
    /// Present and past faults, one line each, gravest first.
    pub(crate) faults: Vec<String>,
    pub(crate) queue: QueueStatus,
    pub(crate) counters: Counters,
    pub(crate) jobs_rate: Option<f64>,
    pub(crate) items_rate: Option<f64>,
    pub(crate) trend: Vec<f64>,
    pub(crate) past: Past,
}

impl Picture {
    /// The pool has stopped.
    pub(crate) fn stop(&mut self) {
        for row in &mut self.rows {
            (row.own.pid, row.own.state, row.own.run) = (0, WorkerState::Stopped, None);
            (row.busy_percent, row.jobs_rate, row.items_rate) = (None, None, None);
        }
        (self.jobs_rate, self.items_rate) = (None, None);
        self.supervisor.draining = false;
    }
}

/// Values of earlier snapshots.
#[derive(Debug, Default)]
pub(crate) struct History {
    before: Option<Status>,
    trends: BTreeMap<DeviceGroup, VecDeque<f64>>,
    total: VecDeque<f64>,
}

impl History {
    /// Takes the next snapshot and returns what to show.
    pub(crate) fn snapshot(&mut self, snapshot: Snapshot) -> Picture {
        let Snapshot { status, models, past } = snapshot;
        let before = self.before.take().filter(|before| is_same_pool(before, &status));
        if before.is_none() {
            *self = Self::default();
        }
        let since = Since::new(before.as_ref(), &status);
        let mut rows: Vec<_> = status.workers.iter().map(|own| row(own, &status, &since)).collect();
        number(&mut rows);
        let items_rate = since.seconds.map(|_| rows.iter().filter_map(|row| row.items_rate).sum());
        self.note(&rows, items_rate);
        self.show_trends(&mut rows);
        let models = model_rows(&models, &rows);
        let picture = Picture {
            supervisor: status.supervisor.clone(),
            rows,
            models,
            faults: faults(&status),
            queue: status.queue,
            counters: status.counters,
            jobs_rate: since.jobs_rate(&status),
            items_rate,
            trend: self.total.iter().copied().collect(),
            past,
        };
        self.before = Some(status);
        picture
    }

    fn note(&mut self, rows: &[Row], total: Option<f64>) {
        let Some(total) = total else { return };
        let mut sums: BTreeMap<&DeviceGroup, f64> = BTreeMap::new();
        for row in rows {
            *sums.entry(&row.device_group).or_default() += row.items_rate.unwrap_or(0.0);
        }
        // Groups are named after models, which come and go.
        self.trends.retain(|place, _| sums.contains_key(place));
        for (place, rate) in sums {
            push(self.trends.entry(place.clone()).or_default(), rate);
        }
        push(&mut self.total, total);
    }

    /// Gives each trend to the worker that serves its device and group.
    fn show_trends(&self, rows: &mut [Row]) {
        for (place, trend) in &self.trends {
            let own = |row: &&mut Row| row.device_group == *place;
            let serves = |row: &Row| row.own.state != WorkerState::Standby;
            let chosen = rows.iter_mut().filter(own).max_by_key(|row| {
                // `max_by_key` would take the last of equals, not the first.
                (serves(row), std::cmp::Reverse(row.nth))
            });
            if let Some(row) = chosen {
                row.trend = trend.iter().copied().collect();
            }
        }
    }
}

fn push(trend: &mut VecDeque<f64>, rate: f64) {
    if trend.len() == TREND_MAX {
        trend.pop_front();
    }
    trend.push_back(rate);
}

/// Whether both snapshots are of the same supervisor, and in order.
fn is_same_pool(before: &Status, after: &Status) -> bool {
    let (before, after) = (&before.supervisor, &after.supervisor);
    before.pid == after.pid && before.uptime_s < after.uptime_s
}

/// The changes since the previous snapshot.
struct Since<'a> {
    before: Option<&'a Status>,
    seconds: Option<f64>,
}

impl<'a> Since<'a> {
    fn new(before: Option<&'a Status>, now: &Status) -> Self {
        let seconds = before.map(|before| now.supervisor.uptime_s - before.supervisor.uptime_s);
        Self { before, seconds }
    }

    /// How fast a number of a worker grew. `None` for a new process: its numbers continue those of the
    /// worker that it replaced.
    fn rate(&self, now: &WorkerStatus, number: impl Fn(&WorkerStatus) -> u64) -> Option<f64> {
        let mut before = self.before?.workers.iter();
        let before = before.find(|row| row.name == now.name && row.group == now.group)?;
        let grown = number(now).checked_sub(number(before))?;
        Some(ratio(grown, 1) / self.seconds?)
    }

    /// Verdicts per second.
    fn jobs_rate(&self, now: &Status) -> Option<f64> {
        let sum = |of: &Status| of.counters.verdicts().iter().map(|(_, count)| count).sum::<u64>();
        Some(ratio(sum(now).saturating_sub(sum(self.before?)), 1) / self.seconds?)
    }
}

fn row(worker: &WorkerStatus, status: &Status, since: &Since<'_>) -> Row {
    let device_group = device_group_of(worker);
    let gpu = status.devices.iter().find(|device| device.name == device_group.device);
    let cpu = (worker.device.kind == DeviceKind::Cpu && worker.pid != 0).then_some(worker);
    let cpu_us = cpu.and_then(|own| since.rate(own, |row| row.cpu_us));
    // An unknown GPU has zeros.
    let known = gpu.filter(|gpu| gpu.memory_total > 0);
    let mut own = worker.clone();
    own.device.name = printable(&own.device.name);
    if let Some(run) = &mut own.run {
        run.what = printable(&run.what);
    }
    Row {
        own,
        device_group,
        nth: 0,
        busy_percent: busy_percent(worker, &status.devices, cpu_us),
        memory: known.map(|gpu| gpu.memory_used).or_else(|| cpu.map(|own| own.resident_bytes)),
        memory_total: known.map(|gpu| gpu.memory_total),
        power_mw: gpu.and_then(|gpu| gpu.power_mw),
        jobs_rate: since.rate(worker, |row| row.jobs_done),
        items_rate: since.rate(worker, |row| row.items_done),
        trend: Vec::new(),
    }
}

/// The rows of a single snapshot, without rates.
pub(crate) fn rows(status: &Status) -> Vec<Row> {
    let since = Since::new(None, status);
    status.workers.iter().map(|own| row(own, status, &since)).collect()
}

fn device_group_of(worker: &WorkerStatus) -> DeviceGroup {
    DeviceGroup { device: device_of(&worker.name).to_owned(), group: worker.group.clone() }
}

/// Numbers the workers of each device and group.
fn number(rows: &mut [Row]) {
    let mut counts: BTreeMap<DeviceGroup, usize> = BTreeMap::new();
    for row in rows {
        let next = counts.entry(row.device_group.clone()).or_default();
        row.nth = *next;
        *next += 1;
    }
}

fn model_rows(models: &[DeviceModel], workers: &[Row]) -> Vec<ModelRow> {
    let mut rows: BTreeMap<&str, ModelRow> = BTreeMap::new();
    let mut shared = BTreeSet::new();
    for DeviceModel { worker, model, .. } in models {
        let is_alone = models.iter().filter(|other| other.worker == *worker).count() == 1;
        let serves = workers
            .iter()
            .find(|row| row.own.name == *worker && row.own.role == Role::Infer.name());
        let named = || ModelRow { name: model.name.clone(), ..ModelRow::default() };
        let row = rows.entry(&model.name).or_insert_with(named);
        row.workers += 1;
        if !is_alone {
            shared.insert(&*model.name);
        }
        if let Some(rate) = serves.and_then(|row| row.jobs_rate) {
            *row.jobs_rate.get_or_insert_default() += rate;
        }
        match model.state {
            ModelState::Ready => {
                row.ready += 1;
                row.contexts += u64::from(model.contexts);
                row.device_bytes += model.device_bytes;
            }
            ModelState::Unavailable => {
                row.reason = printable(&format!("{worker}: {}", model.reason));
            }
        }
    }
    // A part of a rate would be taken for the whole.
    for name in shared {
        rows.entry(name).and_modify(|row| row.jobs_rate = None);
    }
    rows.into_values().collect()
}

/// Quarantined devices, then what the driver reports, then the last faults of workers.
fn faults(status: &Status) -> Vec<String> {
    let mut lines = out_of_service(&status.quarantines);
    lines.extend(
        status.devices.iter().flat_map(|device| {
            driver_faults(device).map(|fault| format!("{}: {fault}", device.name))
        }),
    );
    if status.monitor.is_some_and(|monitor| !monitor.up) {
        lines.push("the GPU monitor is not running".to_owned());
    }
    if let Some(http) = status.http.as_ref().filter(|http| !http.up) {
        lines.push(format!("{}: not served at the moment", http.url()));
    }
    if status.supervisor.cuda_mapped {
        lines.push("libcuda is mapped into the supervisor, a fault".to_owned());
    }
    for worker in &status.workers {
        let fault = &worker.last_fault;
        let is_said = status.quarantines.iter().any(|out| out.why == *fault);
        let DeviceGroup { device, group } = device_group_of(worker);
        let of =
            if worker.role == Role::Infer.name() { format!(" ({group})") } else { String::new() };
        let line = match fault.starts_with(&device) {
            true => format!("last fault: {fault}"),
            false => format!("last fault of {device}{of}: {fault}"),
        };
        if !fault.is_empty() && !is_said && !lines.contains(&line) {
            lines.push(line);
        }
    }
    // A last word of several lines is one here.
    let one_line = |line: &String| line.lines().map(str::trim).collect::<Vec<_>>().join(" ");
    lines.iter().map(|line| printable(&one_line(line))).collect()
}

#[cfg(test)]
pub(crate) mod tests;
