//! Looks at a pool, one after the other, and what they say together: rates, trends, and a row for each
//! worker. Pure: the only clock is the pool's own, which each look brings with it.

use std::collections::{BTreeMap, VecDeque};

use gridpool_protocol::fault::FaultCode;
use gridpool_protocol::ids::{DeviceKind, Role};
use gridpool_protocol::message::DeviceModel;
use gridpool_protocol::status::{
    Counters, DeviceStatus, QueueStatus, RunStatus, Status, SupervisorStatus, WorkerState,
    WorkerStatus,
};
use gridpool_protocol::tensor::model::ModelState;

use super::words::ratio;
use crate::cli::show::printable;
use crate::cli::status::out_of_service;

/// Points of a trend that are kept: more than a screen is wide.
const TREND_MAX: usize = 240;

/// A moment of the pool.
#[derive(Clone, Debug)]
pub(super) struct Look {
    pub(super) status: Status,
    /// What its workers say of models; empty if none holds any.
    pub(super) models: Vec<DeviceModel>,
}

/// Whose workers a row and a trend are of, whatever process that is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) device: String,
    pub(super) role: String,
}

/// One worker, or a device without any.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    pub(super) place: Place,
    /// Which of the workers of its place it is.
    pub(super) seat: usize,
    pub(super) name: String,
    /// 0 where there is no process.
    pub(super) pid: u32,
    pub(super) state: WorkerState,
    /// Of a GPU, the share of time in which anything ran on it; of a worker on the CPU, its time on
    /// CPUs by time, so 200 for two of them.
    pub(super) busy_percent: Option<f64>,
    /// Of a GPU, what anybody holds there; of a worker on the CPU, what that holds.
    pub(super) memory: Option<u64>,
    /// Of a GPU.
    pub(super) memory_total: Option<u64>,
    pub(super) power_mw: Option<u32>,
    pub(super) jobs_rate: Option<f64>,
    pub(super) items_rate: Option<f64>,
    pub(super) restarts: u32,
    pub(super) run: Option<RunStatus>,
    /// Items per second of its place; empty for all but one of its workers.
    pub(super) trend: Vec<f64>,
    /// The product.
    pub(super) device_name: String,
}

/// A model, on all workers together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ModelRow {
    pub(super) name: String,
    /// Workers that can be asked for it, and those that have said anything of it.
    pub(super) ready: usize,
    pub(super) workers: usize,
    /// Runs of it at once, on all of those.
    pub(super) contexts: u64,
    pub(super) device_bytes: u64,
    /// Why one cannot be asked, or an empty text.
    pub(super) reason: String,
}

/// All that is shown.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Picture {
    pub(super) supervisor: SupervisorStatus,
    pub(super) rows: Vec<Row>,
    pub(super) models: Vec<ModelRow>,
    /// What is or was wrong, one line each: the gravest first.
    pub(super) faults: Vec<String>,
    pub(super) queue: QueueStatus,
    pub(super) counters: Counters,
    pub(super) jobs_rate: Option<f64>,
    pub(super) items_rate: Option<f64>,
    pub(super) trend: Vec<f64>,
}

impl Picture {
    /// Nothing of it runs any more.
    pub(super) fn stop(&mut self) {
        for row in &mut self.rows {
            (row.pid, row.state, row.run) = (0, WorkerState::Stopped, None);
            (row.busy_percent, row.jobs_rate, row.items_rate) = (None, None, None);
        }
        (self.jobs_rate, self.items_rate) = (None, None);
        self.supervisor.draining = false;
    }
}

/// What is kept of the looks so far.
#[derive(Debug, Default)]
pub(super) struct History {
    before: Option<Status>,
    trends: BTreeMap<Place, VecDeque<f64>>,
    total: VecDeque<f64>,
}

impl History {
    /// Takes in the next look and says what is to be seen now.
    pub(super) fn look(&mut self, look: Look) -> Picture {
        let Look { status, models } = look;
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
        let picture = Picture {
            supervisor: status.supervisor.clone(),
            rows,
            models: model_rows(&models),
            faults: faults(&status),
            queue: status.queue,
            counters: status.counters,
            jobs_rate: since.jobs_rate(&status),
            items_rate,
            trend: self.total.iter().copied().collect(),
        };
        self.before = Some(status);
        picture
    }

    fn note(&mut self, rows: &[Row], total: Option<f64>) {
        let Some(total) = total else { return };
        let mut sums: BTreeMap<&Place, f64> = BTreeMap::new();
        for row in rows {
            *sums.entry(&row.place).or_default() += row.items_rate.unwrap_or(0.0);
        }
        for (place, rate) in sums {
            push(self.trends.entry(place.clone()).or_default(), rate);
        }
        push(&mut self.total, total);
    }

    /// Gives every place's trend to the worker that serves it.
    fn show_trends(&self, rows: &mut [Row]) {
        for (place, trend) in &self.trends {
            let own = |row: &&mut Row| row.place == *place;
            let serves = |row: &Row| row.state != WorkerState::Standby;
            let chosen = rows.iter_mut().filter(own).max_by_key(|row| {
                // Of equals the last is taken; it is to be the first.
                (serves(row), std::cmp::Reverse(row.seat))
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

/// Whether both looks are of one supervisor, and in order.
fn is_same_pool(before: &Status, after: &Status) -> bool {
    let (before, after) = (&before.supervisor, &after.supervisor);
    before.pid == after.pid && before.uptime_s < after.uptime_s
}

/// What has happened since the look before.
struct Since<'a> {
    before: Option<&'a Status>,
    seconds: Option<f64>,
}

impl<'a> Since<'a> {
    fn new(before: Option<&'a Status>, now: &Status) -> Self {
        let seconds = before.map(|before| now.supervisor.uptime_s - before.supervisor.uptime_s);
        Self { before, seconds }
    }

    /// How fast a number of a process has grown. `None` if it is a new process: its numbers go on from
    /// those of another one.
    fn rate(&self, now: &WorkerStatus, number: impl Fn(&WorkerStatus) -> u64) -> Option<f64> {
        let mut before = self.before?.workers.iter();
        let before = before.find(|row| row.name == now.name && row.role == now.role)?;
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
    let place = place_of(worker);
    let gpu = status.devices.iter().find(|device| device.name == place.device);
    let cpu = (worker.device.kind == DeviceKind::Cpu && worker.pid != 0).then_some(worker);
    let cpu_percent = cpu.and_then(|own| since.rate(own, |row| row.cpu_us)).map(|us| us / 1e4);
    // Zeros are what is shown of a GPU of which nothing is known.
    let known = gpu.filter(|gpu| gpu.memory_total > 0);
    Row {
        seat: 0,
        name: worker.name.clone(),
        pid: worker.pid,
        state: worker.state,
        busy_percent: gpu.and_then(|gpu| gpu.busy_percent).map(f64::from).or(cpu_percent),
        memory: known.map(|gpu| gpu.memory_used).or_else(|| cpu.map(|own| own.resident_bytes)),
        memory_total: known.map(|gpu| gpu.memory_total),
        power_mw: gpu.and_then(|gpu| gpu.power_mw),
        jobs_rate: since.rate(worker, |row| row.jobs_done),
        items_rate: since.rate(worker, |row| row.items_done),
        restarts: worker.restarts,
        run: worker.run.clone().map(|run| RunStatus { what: printable(&run.what), ..run }),
        trend: Vec::new(),
        device_name: printable(&worker.device.name),
        place,
    }
}

fn place_of(worker: &WorkerStatus) -> Place {
    let device = worker.name.split('#').next().unwrap_or_default();
    Place { device: device.to_owned(), role: worker.role.clone() }
}

/// Counts the workers of each place.
fn number(rows: &mut [Row]) {
    let mut seats: BTreeMap<Place, usize> = BTreeMap::new();
    for row in rows {
        let next = seats.entry(row.place.clone()).or_default();
        row.seat = *next;
        *next += 1;
    }
}

fn model_rows(models: &[DeviceModel]) -> Vec<ModelRow> {
    let mut rows: BTreeMap<&str, ModelRow> = BTreeMap::new();
    for DeviceModel { worker, model } in models {
        let row = rows.entry(&model.name).or_insert_with(|| ModelRow {
            name: model.name.clone(),
            ready: 0,
            workers: 0,
            contexts: 0,
            device_bytes: 0,
            reason: String::new(),
        });
        row.workers += 1;
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
    rows.into_values().collect()
}

/// What is out of service, then what the driver says, then what was the matter last.
fn faults(status: &Status) -> Vec<String> {
    let mut lines: Vec<_> = status.quarantines.iter().map(out_of_service).collect();
    lines.extend(status.devices.iter().flat_map(driver_faults));
    if status.monitor.is_some_and(|monitor| !monitor.up) {
        lines.push("the monitor of the GPUs is not up".to_owned());
    }
    if let Some(http) = status.http.as_ref().filter(|http| !http.up) {
        lines.push(format!("http://{} is not served at this moment", http.address));
    }
    if status.supervisor.cuda_mapped {
        lines.push("libcuda is mapped into the supervisor, which is a fault".to_owned());
    }
    for worker in &status.workers {
        let fault = &worker.last_fault;
        let is_said = status.quarantines.iter().any(|out| out.why == *fault);
        let Place { device, role } = place_of(worker);
        let of = if role == Role::Infer.name() { " (models)" } else { "" };
        let line = match fault.starts_with(&device) {
            true => format!("last fault: {fault}"),
            false => format!("last fault of {device}{of}: {fault}"),
        };
        if !fault.is_empty() && !is_said && !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines.iter().map(|line| printable(line)).collect()
}

fn driver_faults(device: &DeviceStatus) -> impl Iterator<Item = String> {
    let faults = [
        device.recovery.filter(|&action| action != 0).map(FaultCode::Recovery),
        device.nvml_error.map(FaultCode::Nvml),
        device.last_xid.map(FaultCode::Xid),
    ];
    let name = &device.name;
    faults
        .into_iter()
        .flatten()
        .map(move |fault| format!("{name}: {fault}: {}", fault.meaning().sentence))
}

#[cfg(test)]
pub(super) mod tests;
