//! Threads that send requests to the same model at the same time, each with one request in flight.
//!
//! It decides which thread sends when, and makes a row of the results. It does not know where requests go.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use gridpool_protocol::bench::{Hops, Row, Spread, Unit};

use crate::evidence::Evidence;
use crate::failure::Failure;
use crate::pool::with_hops;
use crate::repeat::{Repeat, at_once, latency, per_piece};

/// Fewest and most requests in one repetition of a latency.
const LATENCY_CALLS_MIN: u32 = 20;
const LATENCY_CALLS_MAX: u32 = 400;

/// How long a request took in microseconds, and its hops.
pub(super) type Timed = (f64, Hops);

/// Sends requests to a model, and compares the answers.
pub(super) trait Caller: Send {
    /// Sends one request.
    fn call(&mut self) -> Result<Timed, Failure>;
    /// The evidence of its answers since the last call.
    fn evidence(&mut self) -> Evidence;
}

/// Several callers that run at the same time, and their results.
pub(super) struct LoadGenerator {
    row: Row,
    callers: Vec<Box<dyn Caller>>,
    /// Requests in one repetition, of all callers together.
    calls: u32,
    rates: Vec<f64>,
    /// The median time of each repetition.
    medians: Vec<f64>,
    times: Vec<Timed>,
    failure: Option<Failure>,
}

impl fmt::Debug for LoadGenerator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let callers = self.callers.len();
        f.debug_struct("LoadGenerator").field("row", &self.row).field("callers", &callers).finish()
    }
}

impl LoadGenerator {
    /// For this row, whose unit says whether it is a rate or a latency.
    pub(super) fn new(row: Row, callers: Vec<Box<dyn Caller>>) -> Self {
        let (rates, medians, times) = (Vec::new(), Vec::new(), Vec::new());
        Self { row, callers, calls: 0, rates, medians, times, failure: None }
    }

    fn wants_latency(&self) -> bool {
        self.row.unit == Unit::Microseconds
    }

    /// Finds how many requests fill a repetition.
    pub(super) fn warm_up(&mut self, repeat: Repeat) {
        let callers = u32::try_from(self.callers.len()).unwrap_or(u32::MAX);
        let (least, most) = match self.wants_latency() {
            true => (LATENCY_CALLS_MIN, LATENCY_CALLS_MAX),
            false => (callers, u32::MAX),
        };
        match repeat.warm_up(least, |calls| self.round(calls).map(|(took, _)| took)) {
            Ok(calls) => self.calls = calls.min(most),
            Err(failure) => self.failure = Some(failure),
        }
        // Evidence of the warm-up is dropped.
        self.callers.iter_mut().for_each(|caller| drop(caller.evidence()));
    }

    /// Runs one repetition, unless an earlier one failed.
    pub(super) fn time(&mut self) {
        if self.failure.is_some() {
            return;
        }
        match self.round(self.calls) {
            Ok((took, times)) => {
                self.rates.push(1.0 / per_piece(took, self.calls));
                let us = times.iter().map(|(us, _)| *us).collect();
                self.medians.extend(latency(us).map(|latency| latency.p50_us));
                self.times.extend(times);
            }
            Err(failure) => self.failure = Some(failure),
        }
    }

    /// Sends `calls` requests: a free caller takes the next one.
    fn round(&mut self, calls: u32) -> Result<(Duration, Vec<Timed>), Failure> {
        let left = AtomicU32::new(calls);
        let ask = |caller: &mut Box<dyn Caller>| {
            let mut times = Vec::new();
            let next = |left: u32| left.checked_sub(1);
            while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok() {
                // After a failure the others stop.
                let timed = caller.call().inspect_err(|_| left.store(0, Ordering::Relaxed));
                times.push(timed?);
            }
            Ok(times)
        };
        let (took, times) = at_once(self.callers.iter_mut(), ask);
        let times = times.into_iter().collect::<Result<Vec<_>, Failure>>()?;
        Ok((took, times.concat()))
    }

    /// The row, or the failure and the row without a measurement. `runs`: dispatches that the supervisor sent
    /// meanwhile.
    pub(super) fn end(mut self, runs: u64) -> (Row, Option<Failure>) {
        if self.failure.is_some() {
            return (self.row, self.failure);
        }
        let mut evidence = Evidence::default();
        self.callers.iter_mut().for_each(|caller| evidence.merge(caller.evidence()));
        let values = if self.wants_latency() { self.medians } else { self.rates };
        let row = Row {
            value: Spread::of(values),
            latency: with_hops(self.times),
            proof: Some(evidence.into_proof(runs)),
            ..self.row
        };
        (row, None)
    }
}

#[cfg(test)]
mod tests {
    use gridpool_protocol::bench::{Plan, Section, Subject};
    use gridpool_protocol::receipt::DeviceInfo;
    use gridpool_protocol::tensor::model::InferReport;

    use super::*;

    /// Gives right answers until the answer with this number, if it has one.
    struct Scripted {
        calls: u32,
        wrong_at: Option<u32>,
        asked: u64,
    }

    impl Caller for Scripted {
        fn call(&mut self) -> Result<Timed, Failure> {
            self.calls += 1;
            self.asked += 1;
            match self.wrong_at == Some(self.calls) {
                true => Err(Failure::Wrong("it is another".to_owned())),
                false => Ok((5.0, Hops::default())),
            }
        }

        fn evidence(&mut self) -> Evidence {
            let device = DeviceInfo { name: "a device".to_owned(), ..DeviceInfo::default() };
            let report = InferReport {
                model: "m".to_owned(),
                runs: 1,
                joined_rows: 2,
                device_us: 1.0,
                h2d_bytes: 1,
                d2h_bytes: 1,
                ..InferReport::default()
            };
            let mut evidence = Evidence::of_requests(1);
            let asked = 0..std::mem::take(&mut self.asked);
            asked.for_each(|_| evidence.add_run(&report, &device));
            evidence
        }
    }

    fn load_generator(unit: Unit, wrong_at: Option<u32>) -> (Row, Option<Failure>) {
        let plan = Plan {
            subject: Subject::Library,
            ops: Vec::new(),
            batches: Vec::new(),
            repetitions: 5,
            quick: true,
            solvers: None,
        };
        let repeat = Repeat::new(&plan).with_span(Duration::from_millis(2));
        let caller =
            |wrong_at| -> Box<dyn Caller> { Box::new(Scripted { calls: 0, wrong_at, asked: 0 }) };
        let row = Row::new(Section::Models, "m", "direct", unit);
        let mut load_generator = LoadGenerator::new(row, vec![caller(None), caller(wrong_at)]);
        load_generator.warm_up(repeat);
        (0..repeat.repetitions()).for_each(|_| load_generator.time());
        load_generator.end(7)
    }

    #[test]
    fn a_load_generator_gives_a_rate_or_a_latency_and_counts_only_timed_requests() {
        let (rate, failure) = load_generator(Unit::ItemsPerSecond, None);
        assert!(failure.is_none(), "{failure:?}");
        let (value, proof) = (rate.value.unwrap(), rate.proof.unwrap());
        assert!(value.median > 0.0 && value.repetitions == 5, "{value:?}");
        let timed = rate.latency.unwrap();
        assert_eq!((proof.jobs, proof.runs), (timed.jobs.into(), 7));
        // Two share a run.
        assert_eq!(proof.kernels[0].launches, proof.jobs.div_ceil(2));
        let (latency, _) = load_generator(Unit::Microseconds, None);
        assert_eq!(latency.value.map(|value| value.median), Some(5.0));
        let calls = latency.latency.unwrap().jobs;
        assert!((5 * LATENCY_CALLS_MIN..=5 * LATENCY_CALLS_MAX).contains(&calls), "{calls}");
    }

    #[test]
    fn one_wrong_answer_leaves_the_row_without_a_rate() {
        let (row, failure) = load_generator(Unit::ItemsPerSecond, Some(1));
        assert_eq!(row.value, None);
        assert!(matches!(failure, Some(Failure::Wrong(why)) if why == "it is another"));
    }
}
