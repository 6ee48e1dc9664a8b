//! The rows of the machine's limits. Each device has a measuring process; all get each command together.

use std::path::Path;

use gridpool_protocol::bench::{Measure, Measured, Row, Section, Spread, Unit};

use super::SILENCE_MAX;
use crate::cli::child::{ChildError, ChildProcess};

/// The measured limits.
#[derive(Debug)]
pub(super) struct Limits {
    pub(super) rows: Vec<Row>,
    /// The devices, as each process reports its own.
    pub(super) devices: Vec<String>,
    pub(super) driver: String,
}

/// The measuring processes, one for each device, after their first report.
pub(super) struct Measurers {
    all: Vec<ChildProcess>,
    devices: Vec<String>,
    driver: String,
}

/// The measurements on a GPU, and the names of their rows.
const GPU: [(Measure, &str); 3] = [
    (Measure::In, "copy to the device"),
    (Measure::Out, "copy from the device"),
    (Measure::Both, "copy both ways at once"),
];
/// The measurements on the CPU, and the names of their rows.
const CPU: [(Measure, &str); 2] =
    [(Measure::In, "memory, one thread"), (Measure::Both, "memory, all threads")];
/// The round trip's row.
const ROUND_TRIP: &str = "one 30x30 grid there and back";

impl Measurers {
    /// Starts a process for each GPU; without a GPU, one for the CPU.
    pub(super) fn start(
        worker: &Path,
        uuids: &[String],
        repetitions: u32,
        quick: bool,
    ) -> Result<Self, ChildError> {
        let repetitions = repetitions.to_string();
        let start = |uuid: &str| {
            let mut role = vec!["limits", "--repetitions", &repetitions];
            if !uuid.is_empty() {
                role.extend(["--uuid", uuid]);
            }
            if quick {
                role.push("--quick");
            }
            ChildProcess::start(worker, &role, uuid, SILENCE_MAX)
        };
        let mut all = match uuids {
            [] => vec![start("")?],
            uuids => uuids.iter().map(|uuid| start(uuid)).collect::<Result<_, _>>()?,
        };
        let (mut devices, mut driver) = (Vec::new(), String::new());
        for process in &mut all {
            let greeting: Measured = process.answer()?;
            devices.push(greeting.device);
            driver = greeting.driver;
        }
        Ok(Self { all, devices, driver })
    }

    /// Measures with the first `count` devices at once, for each of `counts`.
    pub(super) fn measure(
        mut self,
        counts: &[usize],
        is_gpu: bool,
        mut doing: impl FnMut(&str),
    ) -> Result<Limits, ChildError> {
        let wanted: &[_] = if is_gpu { &GPU } else { &CPU };
        let mut rows = Vec::new();
        for &count in counts {
            // All workers on the CPU share its memory.
            let count = count.min(self.all.len());
            if rows.iter().any(|row: &Row| row.devices as usize == count) {
                continue;
            }
            for (measure, name) in wanted {
                doing(&format!("{name}, {count} at once"));
                let rates = rates(&mut self.all[..count], *measure)?;
                let mut row = self.row(name, Unit::BytesPerSecond, count);
                row.value = Spread::of(rates);
                rows.push(row);
            }
        }
        // `counts` has the first device alone already.
        for at in 1..if is_gpu { self.all.len() } else { 0 } {
            let name = format!("both ways, device {at} alone");
            doing(&name);
            let rates = rates(&mut self.all[at..=at], Measure::Both)?;
            let mut row = self.row(&name, Unit::BytesPerSecond, 1);
            row.value = Spread::of(rates);
            rows.push(row);
        }
        if is_gpu {
            doing(ROUND_TRIP);
            let first = &mut self.all[0];
            first.send(&Measure::RoundTrip)?;
            let measured: Measured = first.answer()?;
            let mut row = self.row(ROUND_TRIP, Unit::Microseconds, 1);
            row.value = measured.latency.and_then(|latency| Spread::of(vec![latency.p50_us]));
            row.latency = measured.latency;
            rows.push(row);
        }
        Ok(Limits { rows, devices: self.devices, driver: self.driver })
    }

    fn row(&self, name: &str, unit: Unit, count: usize) -> Row {
        let devices = u32::try_from(count).unwrap_or(u32::MAX);
        Row { devices, ..Row::new(Section::Limits, name, &self.devices[0], unit) }
    }
}

/// The sums over devices that work at once, for each repetition.
fn rates(processes: &mut [ChildProcess], measure: Measure) -> Result<Vec<f64>, ChildError> {
    for process in &mut *processes {
        process.send(&measure)?;
    }
    let mut sums: Vec<f64> = Vec::new();
    for process in processes {
        let measured: Measured = process.answer()?;
        sums.resize(measured.bytes_per_second.len(), 0.0);
        for (sum, rate) in sums.iter_mut().zip(measured.bytes_per_second) {
            *sum += rate;
        }
    }
    Ok(sums)
}

/// Bytes a second that `devices` devices copy in both directions at once.
pub(super) fn both_ways(rows: &[Row], devices: u32) -> Option<f64> {
    let of = |row: &&Row| {
        row.section == Section::Limits && row.name == GPU[2].1 && row.devices == devices
    };
    rows.iter().find(of).and_then(|row| row.value).map(|value| value.median)
}
