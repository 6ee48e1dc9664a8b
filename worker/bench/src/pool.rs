//! The rows of a pool: rates with many jobs in flight, latencies with one, and the overhead of scheduling.

use std::path::Path;
use std::time::Duration;

use gridpool_ipc::clock;
use gridpool_protocol::bench::{
    Hops, Latency, Plan, PoolRows, Row, Section, Spread, Unit, Workload,
};
use gridpool_protocol::ids::DeviceKind;

use super::evidence::{self, Evidence};
use super::failure::Failure;
use super::load::{Answers, Kind, Load, THREADS_MAX};
use super::programs::{self, Entry, IDENTITY};
use super::repeat::{Phase, Repeat, latency};
use super::workload::Source;
use super::{BenchError, Report, WORKLOADS, count, native_batch};

/// Items in flight at a time, if the limits on jobs below allow it; in a full and in a quick run.
const ITEMS_IN_FLIGHT: u32 = 400_000;
const ITEMS_IN_FLIGHT_QUICK: u32 = 4_000;
/// Jobs in flight when a CPU's cores are measured: one more than they work on.
const JOBS_IN_FLIGHT_NATIVE: u32 = 2;
/// Most jobs in flight: the pool's limit for one client, here shared by several.
const JOBS_IN_FLIGHT_MAX: u32 = 64;
/// Batches of at most this many items have a row for the latency of one job.
const LATENCY_ITEMS_MAX: u32 = 999;
/// Jobs of one latency row, in a full and in a quick run.
const LATENCY_JOBS: u32 = 2_000;
const LATENCY_JOBS_QUICK: u32 = 100;
/// How long a spinning client polls for its answer: longer than any job of such a row takes.
const SPIN: Duration = Duration::from_millis(1);
/// The name of such a client in the table.
const SPINNING: &str = "pool, client spins";
/// Jobs that are sent together, of 8 clients with two such messages under way; only small batches are.
const TOGETHER: u32 = 32;
const JOBS_IN_FLIGHT_TOGETHER: u32 = 8 * 2 * TOGETHER;
const JOBS_IN_FLIGHT_TOGETHER_QUICK: u32 = 2 * TOGETHER;
const TOGETHER_ITEMS_MAX: u32 = 32;
/// Items of the jobs that measure scheduling: at this size its cost should be negligible.
const SCHEDULING_ITEMS: u32 = 4_096;
/// Batches of at least this many items are worth splitting over devices.
const LARGE_ITEMS: u32 = 10_000;

/// The pool that is measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pool<'a> {
    pub(super) plan: &'a Plan,
    pub(super) source: &'a Source,
    pub(super) socket: &'a Path,
    pub(super) devices: u32,
    pub(super) kind: DeviceKind,
}

impl Pool<'_> {
    /// How many jobs of `batch` items are in flight at a time.
    fn jobs_in_flight(&self, batch: u32) -> u32 {
        let items = if self.plan.quick { ITEMS_IN_FLIGHT_QUICK } else { ITEMS_IN_FLIGHT };
        (items / batch).clamp(1, JOBS_IN_FLIGHT_MAX)
    }

    /// Measures all the rows that the plan asks for.
    pub(super) fn measure(
        &self,
        rows: PoolRows,
        report: &mut Report<'_>,
    ) -> Result<(), BenchError> {
        match rows {
            PoolRows::All => {
                self.latencies(report)?;
                self.rates(report, |_| true)?;
                if programs::is_wanted(self.plan, &IDENTITY) || self.plan.ops.is_empty() {
                    self.scheduling(report)?;
                }
                Ok(())
            }
            PoolRows::Large => self.rates(report, |batch| batch >= LARGE_ITEMS),
            PoolRows::Native => self.rates_in(Section::Native, report, &[native_batch(self.plan)]),
            PoolRows::Recovery { .. } => unreachable!("`recovery` measures it"),
            PoolRows::Search => unreachable!("`search` measures it"),
        }
    }

    fn rates(&self, report: &mut Report<'_>, is_wanted: fn(u32) -> bool) -> Result<(), BenchError> {
        let batches = self.plan.batches.iter().copied().filter(|&batch| is_wanted(batch));
        let batches = batches.collect::<Vec<_>>();
        self.rates_in(Section::EndToEnd, report, &batches)?;
        let small: Vec<u32> =
            batches.into_iter().filter(|&batch| batch <= TOGETHER_ITEMS_MAX).collect();
        self.each(report, &small, |entry, workload, batch| {
            let (section, spin) = (Section::EndToEnd, Duration::ZERO);
            let jobs = match self.plan.quick {
                true => JOBS_IN_FLIGHT_TOGETHER_QUICK,
                false => JOBS_IN_FLIGHT_TOGETHER,
            };
            let together = TOGETHER.min(jobs.div_ceil(THREADS_MAX));
            Shape { section, entry, workload, batch, jobs, together, spin }
        })
    }

    fn rates_in(
        &self,
        section: Section,
        report: &mut Report<'_>,
        batches: &[u32],
    ) -> Result<(), BenchError> {
        self.each(report, batches, |entry, workload, batch| {
            let is_native = section == Section::Native;
            let jobs = if is_native { JOBS_IN_FLIGHT_NATIVE } else { self.jobs_in_flight(batch) };
            let (together, spin) = (1, Duration::ZERO);
            Shape { section, entry, workload, batch, jobs, together, spin }
        })
    }

    /// Measures the smallest batch again, with a client that spins.
    fn latencies(&self, report: &mut Report<'_>) -> Result<(), BenchError> {
        let batches = self.plan.batches.iter().copied();
        let small: Vec<u32> = batches.filter(|&batch| batch <= LATENCY_ITEMS_MAX).collect();
        let smallest: Vec<u32> = small.iter().copied().min().into_iter().collect();
        for (batches, spin) in [(&small, Duration::ZERO), (&smallest, SPIN)] {
            self.each(report, batches, |entry, workload, batch| Shape {
                section: Section::Latency,
                entry,
                workload,
                batch,
                jobs: 1,
                together: 1,
                spin,
            })?;
        }
        Ok(())
    }

    /// One row for each workload, program and batch size.
    fn each(
        &self,
        report: &mut Report<'_>,
        batches: &[u32],
        shape: impl Fn(&'static Entry, Workload, u32) -> Shape<'static>,
    ) -> Result<(), BenchError> {
        for workload in WORKLOADS {
            for entry in programs::chosen(self.plan) {
                for &batch in batches {
                    self.row(report, shape(entry, workload, batch))?;
                }
            }
        }
        Ok(())
    }

    fn row(&self, report: &mut Report<'_>, shape: Shape<'_>) -> Result<(), BenchError> {
        let row = shape.row(self);
        report.doing(&row)?;
        let measured = if shape.section == Section::Latency {
            self.latency(row.clone(), shape)
        } else if shape.section == Section::Scheduling {
            self.overhead(row.clone(), shape)
        } else {
            self.rate(row.clone(), shape)
        };
        report.measured(row, measured)
    }

    fn scheduling(&self, report: &mut Report<'_>) -> Result<(), BenchError> {
        let batches = self.plan.batches.iter().copied().filter(|&batch| batch >= LARGE_ITEMS);
        for batch in [SCHEDULING_ITEMS].into_iter().chain(batches) {
            let (section, workload, entry) = (Section::Scheduling, Workload::Arc, &IDENTITY);
            let (jobs, together, spin) = (1, 1, Duration::ZERO);
            self.row(report, Shape { section, entry, workload, batch, jobs, together, spin })?;
        }
        Ok(())
    }

    /// A load whose every answer has been compared once, with all jobs in flight together.
    fn checked_load(&self, shape: Shape<'_>) -> Result<Load, Failure> {
        let program = shape.entry.program();
        let Shape { workload, batch, jobs, .. } = shape;
        let kind = Kind { source: self.source, program: &program, workload, batch };
        let load = Load::prepare(self.socket, self.kind, kind, (jobs, shape.together), shape.spin)?;
        load.round(jobs, shape.together, Answers::Compared)?;
        Ok(load)
    }

    fn rate(&self, row: Row, shape: Shape<'_>) -> Result<Row, Failure> {
        let load = self.checked_load(shape)?;
        let mut evidence = Evidence::default();
        let mut runs_before = None;
        let round = |jobs, phase| {
            if phase == Phase::Timed && runs_before.is_none() {
                runs_before = Some(load.runs()?);
            }
            let round = load.round(jobs, shape.together, Answers::Counted)?;
            if phase == Phase::Timed {
                evidence.merge(round.evidence);
            }
            Ok::<_, Failure>(round.elapsed)
        };
        let (_, seconds) = Repeat::new(self.plan).time(shape.jobs, round)?;
        let runs = load.runs()?.saturating_sub(runs_before.unwrap_or(0));
        let batch = f64::from(shape.batch);
        let proof = evidence.into_proof(runs);
        let items = count(proof.jobs) * batch;
        let bytes = count(proof.h2d_bytes + proof.d2h_bytes);
        Ok(Row {
            value: Spread::of(seconds.iter().map(|seconds| batch / seconds).collect()),
            bytes_per_item: (bytes > 0.0).then_some(bytes / items),
            proof: Some(proof),
            ..row
        })
    }

    fn latency(&self, row: Row, shape: Shape<'_>) -> Result<Row, Failure> {
        let load = self.checked_load(shape)?;
        let jobs = if self.plan.quick { LATENCY_JOBS_QUICK } else { LATENCY_JOBS };
        for _ in 0..jobs / 10 {
            load.one()?;
        }
        let runs_before = load.runs()?;
        let (mut evidence, mut all, mut medians) = (Evidence::default(), Vec::new(), Vec::new());
        let groups = self.plan.repetitions;
        for _ in 0..groups {
            let mut times = Vec::new();
            for _ in 0..jobs.div_ceil(groups) {
                let started = clock::now();
                let answer = load.one()?;
                let took_us = started.elapsed().as_secs_f64() * 1e6;
                evidence.add(&answer.receipt, self.kind).map_err(Failure::Wrong)?;
                times.push(took_us);
                all.push((took_us, evidence::hops(&answer.receipt, took_us)));
            }
            medians.extend(latency(times).map(|latency| latency.p50_us));
        }
        let runs = load.runs()?.saturating_sub(runs_before);
        Ok(Row {
            value: Spread::of(medians),
            latency: with_hops(all),
            proof: Some(evidence.into_proof(runs)),
            ..row
        })
    }

    /// The supervisor's overhead per item: the time from acceptance to verdict during which no worker works on
    /// the job.
    fn overhead(&self, row: Row, shape: Shape<'_>) -> Result<Row, Failure> {
        let load = self.checked_load(shape)?;
        let mut evidence = Evidence::default();
        let mut means = Vec::new();
        let round = |jobs: u32, phase| {
            let started = clock::now();
            let mut idle_us = 0.0;
            for _ in 0..jobs {
                let answer = load.one()?;
                let hops = evidence::hops(&answer.receipt, 0.0);
                idle_us += hops.queue_us + hops.channel_us;
                if phase == Phase::Timed {
                    evidence.add(&answer.receipt, self.kind).map_err(Failure::Wrong)?;
                }
            }
            if phase == Phase::Timed {
                means.push(idle_us * 1e3 / f64::from(jobs) / f64::from(shape.batch));
            }
            Ok::<_, Failure>(started.elapsed())
        };
        Repeat::new(self.plan).time(1, round)?;
        Ok(Row { value: Spread::of(means), proof: Some(evidence.into_proof(0)), ..row })
    }
}

/// The parameters of a row.
#[derive(Clone, Copy, Debug)]
struct Shape<'a> {
    section: Section,
    entry: &'a Entry,
    workload: Workload,
    batch: u32,
    jobs: u32,
    /// How many of them a client sends together.
    together: u32,
    /// How long the client polls for its answer before it sleeps.
    spin: Duration,
}

impl Shape<'_> {
    /// The row without its measurement.
    fn row(&self, pool: &Pool<'_>) -> Row {
        let sending_many = format!("pool, {} jobs sent together", self.together);
        let (runner, unit) = match self.section {
            Section::Native => ("cpu:1 pool", Unit::ItemsPerSecond),
            Section::Latency if self.spin.is_zero() => ("pool", Unit::Microseconds),
            Section::Latency => (SPINNING, Unit::Microseconds),
            Section::Scheduling => ("pool", Unit::NanosecondsPerItem),
            Section::EndToEnd if self.together > 1 => (&*sending_many, Unit::ItemsPerSecond),
            Section::EndToEnd
            | Section::Isolation
            | Section::Limits
            | Section::ModelLatency
            | Section::Models
            | Section::Recovery
            | Section::Resident
            | Section::Search => ("pool", Unit::ItemsPerSecond),
        };
        Row {
            jobs: Some(self.jobs),
            devices: pool.devices,
            ..self.entry.row(self.section, runner, unit, self.workload, self.batch)
        }
    }
}

/// The percentiles of all times, and the mean hops of the middle half of them.
pub(super) fn with_hops(mut all: Vec<(f64, Hops)>) -> Option<Latency> {
    all.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    let middle = &all[all.len() / 4..all.len() - all.len() / 4];
    let mean = |of: fn(&Hops) -> f64| {
        middle.iter().map(|(_, hops)| of(hops)).sum::<f64>() / count(middle.len() as u64)
    };
    let hops = Hops {
        client_us: mean(|hops| hops.client_us),
        queue_us: mean(|hops| hops.queue_us),
        channel_us: mean(|hops| hops.channel_us),
        worker_us: mean(|hops| hops.worker_us),
        device_us: mean(|hops| hops.device_us),
    };
    let latency = latency(all.iter().map(|(took_us, _)| *took_us).collect())?;
    Some(Latency { hops: Some(hops), ..latency })
}

#[cfg(test)]
mod tests {
    use gridpool_protocol::bench::Subject;

    use super::*;

    #[test]
    fn large_batches_run_alone_and_small_ones_together() {
        let plan = |quick| Plan {
            subject: Subject::Library,
            ops: Vec::new(),
            batches: Vec::new(),
            repetitions: 5,
            quick,
            solvers: None,
        };
        let source = Source::open(None).unwrap();
        let jobs = |quick| {
            let (plan, socket) = (plan(quick), Path::new(""));
            let kind = DeviceKind::Cpu;
            let pool = Pool { plan: &plan, source: &source, socket, devices: 1, kind };
            [1, 32, 1_000, 100_000, 1_000_000].map(|batch| pool.jobs_in_flight(batch))
        };
        assert_eq!(jobs(false), [64, 64, 64, 4, 1]);
        assert_eq!(jobs(true), [64, 64, 4, 1, 1]);
    }

    #[test]
    fn hops_are_those_of_the_middle_half() {
        let all = [1.0, 10.0, 20.0, 1_000.0];
        let hops = |client_us| Hops { client_us, ..Hops::default() };
        let latency = with_hops(all.iter().rev().map(|&us| (us, hops(us))).collect()).unwrap();
        assert_eq!(latency.hops.map(|hops| hops.client_us), Some(15.0));
        assert_eq!((latency.jobs, latency.max_us), (4, 1_000.0));
        assert_eq!(with_hops(Vec::new()), None);
    }
}
