//! What was asked of every model since the gateway started, in Triton's terms.
//!
//! Time is split so: `queue` is the pool's, from acceptance to the first dispatch; `compute_infer` the
//! worker's, all attempts that answered; `compute_input` and `compute_output` are the gateway's own, from
//! the body to a job and from the verdict to a body. `inference_count` counts items or rows;
//! `execution_count` attempts that answered, and of a model that joins requests its runs: of a run that
//! several requests share each counts its part.
//! There is no `last_inference`: it is a time of day, and nothing here reads that clock.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gridpool_protocol::receipt::{Attempt, AttemptOutcome, Receipt};
use gridpool_protocol::tensor::model::InferReport;
use serde_json::{Value, json};

use super::models::{GridModel, Model, VERSION};

/// Of the models that are built in; those of the pool keep their own.
#[derive(Debug)]
pub(super) struct Statistics(BTreeMap<&'static str, Tally>);

/// Of one model.
#[derive(Debug, Default)]
pub(super) struct Tally {
    sums: Mutex<Sums>,
    /// Requests that are being worked on.
    in_flight: AtomicU64,
}

/// A request that is being worked on.
pub(super) struct UnderWay<'a>(&'a Tally);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Of one model, as metrics show it; times in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Numbers {
    pub(super) successes: u64,
    pub(super) failures: u64,
    pub(super) inferences: u64,
    pub(super) executions: u64,
    pub(super) request_us: u64,
    pub(super) queue_us: u64,
    pub(super) input_us: u64,
    pub(super) infer_us: u64,
    pub(super) output_us: u64,
    pub(super) in_flight: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    inferences: u64,
    /// Parts of runs add up to runs.
    executions: f64,
    success: Sum,
    fail: Sum,
    queue: Sum,
    input: Sum,
    infer: Sum,
    output: Sum,
}

impl Sums {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rounded sum")]
    fn whole_executions(&self) -> u64 {
        self.executions.round() as u64
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    count: u64,
    time: Duration,
}

impl Sum {
    fn add(&mut self, time: Duration) {
        self.count += 1;
        self.time += time;
    }

    fn micros(self) -> u64 {
        u64::try_from(self.time.as_micros()).unwrap_or(u64::MAX)
    }

    fn document(self) -> Value {
        json!({ "count": self.count, "ns": u64::try_from(self.time.as_nanos()).unwrap_or(u64::MAX) })
    }
}

/// What one good request took in the gateway.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spent {
    pub(super) input: Duration,
    pub(super) output: Duration,
    pub(super) total: Duration,
}

impl Statistics {
    pub(super) fn new() -> Self {
        Self(GridModel::all().map(|model| (model.name(), Tally::default())).collect())
    }

    /// That of a model.
    pub(super) fn of<'a>(&'a self, model: &'a Model) -> &'a Tally {
        match model {
            Model::Grid(model) => self.0.get(model.name()).expect("every one has its tally"),
            Model::Onnx(model) => &model.record.tally,
        }
    }

    /// As `/v2/models/stats` says it; every model from zero.
    pub(super) fn document(&self, models: impl IntoIterator<Item = Model>) -> Value {
        let row = |model: Model| self.of(&model).row(model.name());
        json!({ "model_stats": models.into_iter().map(row).collect::<Value>() })
    }
}

impl Tally {
    fn lock(&self) -> MutexGuard<'_, Sums> {
        self.sums.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request is being worked on, until this is dropped.
    pub(super) fn enter(&self) -> UnderWay<'_> {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        UnderWay(self)
    }

    /// All sums.
    pub(super) fn numbers(&self) -> Numbers {
        let sums = *self.lock();
        Numbers {
            successes: sums.success.count,
            failures: sums.fail.count,
            inferences: sums.inferences,
            executions: sums.whole_executions(),
            request_us: sums.success.micros(),
            queue_us: sums.queue.micros(),
            input_us: sums.input.micros(),
            infer_us: sums.infer.micros(),
            output_us: sums.output.micros(),
            in_flight: self.in_flight.load(Ordering::Relaxed),
        }
    }

    /// A request of so many items or rows that got its result.
    pub(super) fn succeeded(&self, items: u64, receipt: &Receipt, spent: Spent) {
        let mut sums = self.lock();
        let answered = receipt.attempts.iter().filter(|a| a.outcome == AttemptOutcome::Ok);
        let mut service_us = 0;
        for attempt in answered {
            sums.executions += executions(items, attempt);
            service_us += attempt.service_us;
        }
        sums.inferences += items;
        sums.success.add(spent.total);
        sums.queue.add(Duration::from_micros(receipt.queue_us));
        sums.input.add(spent.input);
        sums.infer.add(Duration::from_micros(service_us));
        sums.output.add(spent.output);
    }

    /// A request that did not.
    pub(super) fn failed(&self, total: Duration) {
        self.lock().fail.add(total);
    }

    fn row(&self, name: &str) -> Value {
        let sums = *self.lock();
        let none = Sum::default().document();
        json!({
            "name": name,
            "version": VERSION,
            "inference_count": sums.inferences,
            "execution_count": sums.whole_executions(),
            "inference_stats": {
                "success": sums.success.document(),
                "fail": sums.fail.document(),
                "queue": sums.queue.document(),
                "compute_input": sums.input.document(),
                "compute_infer": sums.infer.document(),
                "compute_output": sums.output.document(),
                "cache_hit": none,
                "cache_miss": none,
            },
            "batch_stats": [],
        })
    }
}

/// The part of its runs that an attempt with so many rows was.
fn executions(items: u64, attempt: &Attempt) -> f64 {
    let Some(InferReport { runs, joined_rows, .. }) = &attempt.infer else { return 1.0 };
    let (runs, joined) = (f64::from(*runs), f64::from(*joined_rows));
    #[expect(clippy::cast_precision_loss, reason = "rows of one request")]
    let share = items as f64 / joined;
    // A model without rows counts a run as one; so does a request without any.
    if share < 1.0 && items > 0 { runs * share } else { runs }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::trial::tests::receipt;

    #[test]
    fn requests_that_share_a_run_count_it_once() {
        let tally = Tally::default();
        let spent = Spent {
            input: Duration::from_micros(1),
            output: Duration::from_micros(2),
            total: Duration::from_micros(9),
        };
        let asked = |rows, runs, joined_rows| {
            tally.succeeded(rows, &receipt("cpu0#1", "00", runs, joined_rows), spent);
        };
        // Three requests in a run of 8 rows, one in a run of its own, one of 40 rows in two of 64 in all.
        asked(1, 1, 8);
        asked(4, 1, 8);
        asked(3, 1, 8);
        asked(5, 1, 5);
        asked(40, 2, 64);
        asked(24, 2, 64);
        let row = tally.row("m");
        assert_eq!(row["inference_count"], 77);
        assert_eq!(row["execution_count"], 4, "{row}");
        assert_eq!(row["inference_stats"]["success"], json!({"count": 6, "ns": 54_000}));
        tally.failed(Duration::from_micros(3));
        assert_eq!(tally.row("m")["inference_stats"]["fail"], json!({"count": 1, "ns": 3_000}));
    }
}
