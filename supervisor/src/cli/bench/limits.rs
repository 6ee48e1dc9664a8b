//! The rows of what the machine can do: a process for each device, all told at once what to measure.

use std::path::Path;

use gridpool_protocol::bench::{Measure, Measured, Row, Section, Spread, Unit};

use super::SILENCE_MAX;
use crate::cli::child::{ChildError, Helper};

/// What devices were measured.
#[derive(Debug)]
pub(super) struct Limits {
    pub(super) rows: Vec<Row>,
    /// The devices as they found themselves, one for each process.
    pub(super) devices: Vec<String>,
    pub(super) driver: String,
}

/// The processes of one measurement, one for each device, all greeted.
pub(super) struct Measurers {
    all: Vec<Helper>,
    devices: Vec<String>,
    driver: String,
}

/// What is measured on a GPU, by the names of its rows.
const GPU: [(Measure, &str); 3] = [
    (Measure::In, "copy to the device"),
    (Measure::Out, "copy from the device"),
    (Measure::Both, "copy both ways at once"),
];
/// The same on the CPU.
const CPU: [(Measure, &str); 2] =
    [(Measure::In, "memory, one thread"), (Measure::Both, "memory, all threads")];
/// The round trip's row.
const ROUND_TRIP: &str = "one 30x30 grid there and back";

impl Measurers {
    /// Starts a process for each GPU, or one for the CPU if there is none.
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
            Helper::start(worker, &role, uuid, SILENCE_MAX)
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

    /// Measures with the first `count` devices at work at a time, for each of `counts`.
    pub(super) fn measure(
        mut self,
        counts: &[usize],
        is_gpu: bool,
        mut doing: impl FnMut(&str),
    ) -> Result<Limits, ChildError> {
        let wanted: &[_] = if is_gpu { &GPU } else { &CPU };
        let mut rows = Vec::new();
        for &count in counts {
            // The CPU's memory is one, however many workers share it.
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
        // The first alone is among the counts.
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
            first.tell(&Measure::RoundTrip)?;
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

/// The sums over devices that are told at once, repetition by repetition.
fn rates(processes: &mut [Helper], measure: Measure) -> Result<Vec<f64>, ChildError> {
    for process in &mut *processes {
        process.tell(&measure)?;
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

/// Bytes in a second that `devices` devices copy both ways at once.
pub(super) fn both_ways(rows: &[Row], devices: u32) -> Option<f64> {
    let of = |row: &&Row| {
        row.section == Section::Limits && row.name == GPU[2].1 && row.devices == devices
    };
    rows.iter().find(of).and_then(|row| row.value).map(|value| value.median)
}
