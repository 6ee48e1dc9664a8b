//! The limits of one device without a pool. Standard input says what to measure, so that processes for
//! several devices start together.

use std::io::{BufRead, Write};
use std::time::Duration;

use gridpool_device::cuda::CopyLimits;
use gridpool_ipc::clock;
use gridpool_protocol::bench::{Measure, Measured};
use rayon::prelude::*;

use super::repeat::latency;
use super::{BenchError, write_line};

/// How long one repetition copies, in a full and in a quick run.
const SPAN: Duration = Duration::from_millis(300);
const SPAN_QUICK: Duration = Duration::from_millis(20);
/// Timed round trips, in a full and in a quick run; a tenth as many warm up.
const ROUND_TRIPS: u32 = 5_000;
/// Bytes that each thread of a CPU copies from and to: more than its share of any cache.
const THREAD_BYTES: usize = 64 << 20;

/// Measures a GPU's copies, or copies of the CPU's memory if no GPU is named, until standard input ends.
///
/// # Errors
/// [`BenchError`] if a line is malformed or the device fails.
pub fn serve(
    gpu: Option<&str>,
    repetitions: u32,
    quick: bool,
    input: &mut dyn BufRead,
    out: &mut dyn Write,
) -> Result<(), BenchError> {
    let span = if quick { SPAN_QUICK } else { SPAN };
    let mut device = match gpu {
        Some(uuid) => Device::Gpu(Box::new(CopyLimits::open(uuid)?)),
        None => Device::Cpu,
    };
    let greeting = device.measured(Vec::new());
    write_line(out, &greeting)?;
    let mut line = String::new();
    loop {
        line.clear();
        if input.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let measure: Measure = serde_json::from_str(line.trim_end()).map_err(BenchError::Plan)?;
        let answer = match measure {
            Measure::RoundTrip => {
                device.round_trips(if quick { ROUND_TRIPS / 10 } else { ROUND_TRIPS })?
            }
            Measure::In | Measure::Out | Measure::Both => {
                // The first repetition touches all memory once and does not count.
                let mut rates = Vec::new();
                for repetition in 0..=repetitions {
                    let rate = device.copy(measure, span)?;
                    if repetition > 0 {
                        rates.push(rate);
                    }
                }
                device.measured(rates)
            }
        };
        write_line(out, &answer)?;
    }
}

enum Device {
    Cpu,
    Gpu(Box<CopyLimits>),
}

impl Device {
    fn measured(&self, bytes_per_second: Vec<f64>) -> Measured {
        let (device, driver) = match self {
            Self::Cpu => (gridpool_device::cpu::processor(), String::new()),
            Self::Gpu(gpu) => (gpu.name().to_owned(), gpu.driver_version().to_owned()),
        };
        Measured { device, driver, bytes_per_second, latency: None }
    }

    /// Bytes per second over about `span`.
    fn copy(&mut self, measure: Measure, span: Duration) -> Result<f64, BenchError> {
        match self {
            Self::Gpu(gpu) => Ok(gpu.copy(measure, span)?),
            Self::Cpu => {
                let threads = if measure == Measure::In { 1 } else { rayon::current_num_threads() };
                Ok(copy_memory(threads, span))
            }
        }
    }

    fn round_trips(&mut self, jobs: u32) -> Result<Measured, BenchError> {
        let times = match self {
            Self::Gpu(gpu) => gpu.round_trips(jobs)?,
            Self::Cpu => Vec::new(),
        };
        Ok(Measured { latency: latency(times), ..self.measured(Vec::new()) })
    }
}

/// Bytes read and written per second by this many threads, each with memory of its own.
fn copy_memory(threads: usize, span: Duration) -> f64 {
    let copy = |_| {
        let (from, mut to) = (vec![1_u8; THREAD_BYTES], vec![0_u8; THREAD_BYTES]);
        to.copy_from_slice(&from);
        let started = clock::now();
        let mut bytes = 0;
        while started.elapsed() < span {
            to.copy_from_slice(&from);
            std::hint::black_box(&mut to);
            bytes += 2 * THREAD_BYTES as u64;
        }
        super::count(bytes) / started.elapsed().as_secs_f64()
    };
    (0..threads).into_par_iter().with_max_len(1).map(copy).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines that the process prints for `lines`, including its greeting.
    fn says(lines: &str) -> Result<Vec<Measured>, BenchError> {
        let mut out = Vec::new();
        serve(None, 2, true, &mut lines.as_bytes(), &mut out)?;
        let lines = String::from_utf8(out).unwrap();
        Ok(lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
    }

    #[test]
    fn it_greets_and_answers_each_line() {
        let said = says("\"In\"\n\"Both\"\n\"RoundTrip\"\n").unwrap();
        let lengths: Vec<_> = said.iter().map(|said| said.bytes_per_second.len()).collect();
        assert_eq!(lengths, [0, 2, 2, 0]);
        assert!(said.iter().flat_map(|said| &said.bytes_per_second).all(|&rate| rate > 0.0));
        assert!(matches!(says("sideways\n"), Err(BenchError::Plan(_))));
    }
}
