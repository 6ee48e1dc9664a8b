//! Whether a model is ready: a worker that still has it ran it successfully a moment ago.
//!
//! Any client's request counts as proof. The gateway sends a probe of its own only if a client asks for
//! readiness and there is no recent proof, so an idle model costs nothing.

use std::time::Instant;

use gridpool_client::{Client, Job, ModelInput};
use gridpool_ipc::clock;
use gridpool_ipc::mutex::Mutex;
use gridpool_protocol::chain::Chain;
use gridpool_protocol::message::Priority;
use gridpool_protocol::receipt::{AttemptOutcome, Receipt};
use gridpool_protocol::tensor::Tensor;
use gridpool_protocol::tensor::model::ModelInfo;

use super::blocking::run_blocking;
use super::failure::Failure;
use super::limits::{PROBE_DEADLINE, PROBE_STALE, READY_RETRY};

/// The outcome of the last run that proves something.
#[derive(Debug, Default)]
pub(super) struct RecentRun(Mutex<LastRun>);

#[derive(Clone, Debug, Default)]
enum LastRun {
    /// No run has ended yet.
    #[default]
    Unknown,
    /// A client's request or a probe succeeded.
    Succeeded(Run),
    /// A probe failed.
    Failed(Instant, String),
}

/// A run that succeeded.
#[derive(Clone, Debug)]
struct Run {
    when: Instant,
    worker: String,
    /// SHA-256 of the model's file.
    sha256: String,
}

impl RecentRun {
    /// Whether the model is ready: `file` is its SHA-256, `workers` have it. `None` if that is unknown.
    pub(super) fn check(&self, file: &str, workers: &[String]) -> Option<Result<(), String>> {
        match &*self.0.lock() {
            LastRun::Succeeded(Run { when, worker, sha256 })
                if when.elapsed() <= PROBE_STALE && sha256 == file && workers.contains(worker) =>
            {
                Some(Ok(()))
            }
            LastRun::Failed(when, why) if when.elapsed() <= READY_RETRY => Some(Err(why.clone())),
            LastRun::Unknown | LastRun::Succeeded(_) | LastRun::Failed(..) => None,
        }
    }

    /// Notes that a request succeeded.
    pub(super) fn succeeded(&self, receipt: &Receipt) {
        let mut answered = receipt.attempts.iter().filter(|a| a.outcome == AttemptOutcome::Ok);
        let Some(attempt) = answered.next_back() else { return };
        let Some(report) = &attempt.infer else { return };
        let (worker, sha256) = (attempt.worker.to_string(), report.sha256.clone());
        *self.0.lock() = LastRun::Succeeded(Run { when: clock::now(), worker, sha256 });
    }

    /// Runs the model once over zeros.
    pub(super) async fn probe(&self, client: &Client, info: &ModelInfo) -> Result<(), String> {
        match run(client.clone(), info.clone()).await {
            Ok(receipt) => {
                self.succeeded(&receipt);
                Ok(())
            }
            Err(why) => {
                let why = format!("the last probe of the model `{}` failed: {why}", info.name);
                *self.0.lock() = LastRun::Failed(clock::now(), why.clone());
                Err(why)
            }
        }
    }
}

/// Sends zeros of the shapes with which the worker warmed the model up.
async fn run(client: Client, info: ModelInfo) -> Result<Receipt, String> {
    let sent = run_blocking(move || {
        let zeros = info.inputs.iter().zip(info.warm_up_shapes).map(|(spec, shape)| {
            let tensor = Tensor::new(spec.name.clone(), spec.datatype, shape)?;
            let zeros = vec![0; tensor.bytes()];
            ModelInput::from_bytes(tensor, zeros)
        });
        let zeros: Result<Vec<_>, _> = zeros.collect();
        let job = zeros.and_then(|inputs| Job::model(info.name, inputs));
        let job = job.map_err(|error| Failure::internal(error.to_string()))?;
        let job = job.with_deadline(PROBE_DEADLINE).with_priority(Priority::High);
        Ok(client.send(job.refuse_if_busy().end_with_pool())?)
    });
    let handle = sent.await.map_err(|failure| failure.message().to_owned())?;
    let answer = handle.await.map_err(|error| Chain(&error).to_string())?;
    let receipt = answer.receipt.clone();
    answer.ok().map(|_| receipt).map_err(|error| error.to_string())
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use gridpool_protocol::receipt::{Attempt, DeviceInfo, ItemRange, RunReport, Verdict};
    use gridpool_protocol::tensor::model::InferReport;

    use super::*;
    use crate::gateway::models::tests::model;

    /// The receipt of a request that one worker answered.
    pub(in crate::gateway) fn receipt(
        worker: &str,
        sha256: &str,
        runs: u32,
        joined_rows: u32,
    ) -> Receipt {
        let device = DeviceInfo::default();
        let infer = InferReport {
            model: "m".to_owned(),
            sha256: sha256.to_owned(),
            onnxruntime: "1.31.1".to_owned(),
            runs,
            joined_rows,
            device_us: 1.0,
            ..InferReport::default()
        };
        let report = RunReport {
            items: 1,
            joined_items: joined_rows,
            service_us: 1,
            infer: Some(Box::new(infer)),
            ..RunReport::default()
        };
        let attempt = Attempt::answered(worker, device, ItemRange::default(), report);
        Receipt {
            host: String::new(),
            job: "job7".to_owned(),
            key: String::new(),
            program_hash: "".into(),
            trace_id: String::new(),
            items: 1,
            item_errors: 0,
            verdict: Verdict::Ok,
            reason: String::new(),
            queue_us: 0,
            total_us: 0,
            attempts: vec![attempt],
        }
    }

    #[test]
    fn a_run_proves_a_model_for_a_while_if_its_worker_still_has_that_file() {
        let model = model("m", &["cpu0#1", "cpu1#1"]);
        let sha256 = model.info.sha256.clone();
        let proof = RecentRun::default();
        let check = || proof.check(&model.info.sha256, &model.workers);
        assert_eq!(check(), None, "nothing is known");
        proof.succeeded(&receipt("cpu1#1", &sha256, 1, 1));
        assert_eq!(check(), Some(Ok(())));
        proof.succeeded(&receipt("cpu1#2", &sha256, 1, 1));
        assert_eq!(check(), None, "that worker does not have the model");
        proof.succeeded(&receipt("cpu1#1", "another file", 1, 1));
        assert_eq!(check(), None);
        let ago = |span| clock::now().checked_sub(span).unwrap();
        let second = Duration::from_secs(1);
        let succeeded = |when| {
            LastRun::Succeeded(Run { when, worker: "cpu0#1".into(), sha256: sha256.clone() })
        };
        *proof.0.lock() = succeeded(ago(PROBE_STALE - second));
        assert_eq!(check(), Some(Ok(())));
        *proof.0.lock() = succeeded(ago(PROBE_STALE + second));
        assert_eq!(check(), None, "it is too old");
        *proof.0.lock() = LastRun::Failed(clock::now(), "why".to_owned());
        assert_eq!(check(), Some(Err("why".to_owned())));
        *proof.0.lock() = LastRun::Failed(ago(READY_RETRY + second), "why".to_owned());
        assert_eq!(check(), None, "it may be tried again");
    }
}
