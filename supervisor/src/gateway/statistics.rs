//! What was asked of every model since the gateway started, in Triton's terms.
//!
//! Time is split so: `queue` is the pool's, from acceptance to the first dispatch; `compute_infer` the
//! worker's, all attempts that answered; `compute_input` and `compute_output` are the gateway's own, from
//! the body to a job and from the verdict to a body. `execution_count` counts attempts that answered.
//! There is no `last_inference`: it is a time of day, and nothing here reads that clock.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gridpool_protocol::receipt::{AttemptOutcome, Receipt};
use serde_json::{Value, json};

use super::models::{Model, VERSION};

/// By model.
#[derive(Debug, Default)]
pub(super) struct Statistics(Mutex<BTreeMap<&'static str, Sums>>);

#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    inferences: u64,
    executions: u64,
    success: Sum,
    fail: Sum,
    queue: Sum,
    input: Sum,
    infer: Sum,
    output: Sum,
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
    fn lock(&self) -> MutexGuard<'_, BTreeMap<&'static str, Sums>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request that got its result.
    pub(super) fn succeeded(&self, model: Model, receipt: &Receipt, spent: Spent) {
        let mut all = self.lock();
        let sums = all.entry(model.name()).or_default();
        let answered = receipt.attempts.iter().filter(|a| a.outcome == AttemptOutcome::Ok);
        let (executions, service_us) =
            answered.fold((0, 0), |(count, us), attempt| (count + 1, us + attempt.service_us));
        sums.inferences += u64::from(receipt.items);
        sums.executions += executions;
        sums.success.add(spent.total);
        sums.queue.add(Duration::from_micros(receipt.queue_us));
        sums.input.add(spent.input);
        sums.infer.add(Duration::from_micros(service_us));
        sums.output.add(spent.output);
    }

    /// A request that did not.
    pub(super) fn failed(&self, model: Model, total: Duration) {
        self.lock().entry(model.name()).or_default().fail.add(total);
    }

    /// As `/v2/models/stats` says it; every model from zero.
    pub(super) fn document(&self, models: impl Iterator<Item = Model>) -> Value {
        let all = self.lock();
        let row = |model: Model| {
            let sums = all.get(model.name()).copied().unwrap_or_default();
            let none = Sum::default().document();
            json!({
                "name": model.name(),
                "version": VERSION,
                "inference_count": sums.inferences,
                "execution_count": sums.executions,
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
        };
        json!({ "model_stats": models.map(row).collect::<Value>() })
    }
}
