//! Statistics of one model since the gateway started, in Triton's terms:
//!
//! - `queue`: time in the pool, from acceptance to the first dispatch;
//! - `compute_infer`: time in workers, for all attempts that answered;
//! - `compute_input`, `compute_output`: time in the gateway, from the body to a job and from the verdict to
//!   a body;
//! - `inference_count`: items or rows;
//! - `execution_count`: attempts that answered. If a model joins requests, its runs: each request that
//!   shares a run counts its fraction.
//!
//! `last_inference` is left out: it is a time of day, and the gateway reads no such clock.

use std::time::Duration;

use gridpool_ipc::mutex::Mutex;
use gridpool_protocol::receipt::{Attempt, AttemptOutcome, Receipt};
use gridpool_protocol::tensor::model::InferReport;
use serde_json::{Value, json};

/// The statistics of one model.
#[derive(Debug, Default)]
pub(super) struct Tally {
    sums: Mutex<ModelTotals>,
}

/// A request in progress. Dropping this ends it.
pub(super) struct InFlight<'a>(&'a Tally);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.sums.lock().in_flight -= 1;
    }
}

/// The totals of one model.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ModelTotals {
    pub(super) inferences: u64,
    /// A sum of fractions of runs.
    executions: f64,
    pub(super) success: Sum,
    pub(super) fail: Sum,
    pub(super) queue: Sum,
    pub(super) input: Sum,
    pub(super) infer: Sum,
    pub(super) output: Sum,
    /// Requests in progress.
    pub(super) in_flight: u64,
}

impl ModelTotals {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rounded sum")]
    pub(super) fn whole_executions(&self) -> u64 {
        self.executions.round() as u64
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sum {
    pub(super) count: u64,
    time: Duration,
}

impl Sum {
    fn add(&mut self, time: Duration) {
        self.count += 1;
        self.time += time;
    }

    pub(super) fn micros(self) -> u64 {
        u64::try_from(self.time.as_micros()).unwrap_or(u64::MAX)
    }

    fn document(self) -> Value {
        json!({ "count": self.count, "ns": u64::try_from(self.time.as_nanos()).unwrap_or(u64::MAX) })
    }
}

/// The times of one successful request in the gateway.
#[derive(Clone, Copy, Debug)]
pub(super) struct GatewayTimes {
    pub(super) input: Duration,
    pub(super) output: Duration,
    pub(super) total: Duration,
}

impl Tally {
    /// Counts a request as in progress until the result is dropped.
    pub(super) fn enter(&self) -> InFlight<'_> {
        self.sums.lock().in_flight += 1;
        InFlight(self)
    }

    /// The totals.
    pub(super) fn numbers(&self) -> ModelTotals {
        *self.sums.lock()
    }

    /// Counts a request of `items` items or rows that got its result.
    pub(super) fn succeeded(&self, items: u64, receipt: &Receipt, spent: GatewayTimes) {
        let mut sums = self.sums.lock();
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

    /// Counts a request that failed after `total`.
    pub(super) fn failed(&self, total: Duration) {
        self.sums.lock().fail.add(total);
    }

    pub(super) fn row(&self, name: &str, version: &str) -> Value {
        let sums = *self.sums.lock();
        let none = Sum::default().document();
        json!({
            "name": name,
            "version": version,
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

/// The runs that an attempt with `items` rows counts for: its fraction of those that it shared.
fn executions(items: u64, attempt: &Attempt) -> f64 {
    let Some(InferReport { runs, joined_rows, .. }) = &attempt.infer else { return 1.0 };
    let (runs, joined) = (f64::from(*runs), f64::from(*joined_rows));
    #[expect(clippy::cast_precision_loss, reason = "rows of one request")]
    let share = items as f64 / joined;
    // Without rows there are no fractions.
    if share < 1.0 && items > 0 { runs * share } else { runs }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::probe::tests::receipt;

    #[test]
    fn requests_that_share_a_run_count_it_once() {
        let tally = Tally::default();
        let spent = GatewayTimes {
            input: Duration::from_micros(1),
            output: Duration::from_micros(2),
            total: Duration::from_micros(9),
        };
        let asked = |rows, runs, joined_rows| {
            tally.succeeded(rows, &receipt("cpu0#1", "00", runs, joined_rows), spent);
        };
        // Three requests share a run of 8 rows. One has its own run. Two share two runs of 64 rows.
        asked(1, 1, 8);
        asked(4, 1, 8);
        asked(3, 1, 8);
        asked(5, 1, 5);
        asked(40, 2, 64);
        asked(24, 2, 64);
        let row = tally.row("m", "1");
        assert_eq!(row["inference_count"], 77);
        assert_eq!(row["execution_count"], 4, "{row}");
        assert_eq!(row["inference_stats"]["success"], json!({"count": 6, "ns": 54_000}));
        tally.failed(Duration::from_micros(3));
        assert_eq!(
            tally.row("m", "1")["inference_stats"]["fail"],
            json!({"count": 1, "ns": 3_000})
        );
    }
}
