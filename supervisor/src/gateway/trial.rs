//! Whether a model is ready, which means: a run of it on a device, through the job path, succeeded a
//! moment ago, by a worker that still has it. A request that somebody sent is as good a proof as a trial,
//! and a trial is made only when somebody asks and there is no such proof: an idle model is left alone.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use gridpool_protocol::chain::Chain;
use gridpool_protocol::client::{Client, InferJob};
use gridpool_protocol::clock;
use gridpool_protocol::message::Priority;
use gridpool_protocol::receipt::{AttemptOutcome, Receipt, Verdict};
use gridpool_protocol::tensor::Tensor;
use gridpool_protocol::tensor::model::ModelInfo;

use super::limits::{PROOF_STALE, READY_RETRY, TRIAL_DEADLINE};
use super::models::OnnxModel;

/// What came of the last run that says something.
#[derive(Debug, Default)]
pub(super) struct Proof(Mutex<Last>);

#[derive(Clone, Debug, Default)]
enum Last {
    /// None has ended yet.
    #[default]
    Unknown,
    /// It succeeded.
    Right(Run),
    /// A trial failed.
    Wrong(Instant, String),
}

/// A run that succeeded.
#[derive(Clone, Debug)]
struct Run {
    when: Instant,
    worker: String,
    /// Of the model's file.
    sha256: String,
}

impl Proof {
    fn lock(&self) -> MutexGuard<'_, Last> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the model is ready, as far as that is known.
    pub(super) fn check(&self, model: &OnnxModel) -> Option<Result<(), String>> {
        match &*self.lock() {
            Last::Right(Run { when, worker, sha256 })
                if when.elapsed() <= PROOF_STALE
                    && *sha256 == model.info.sha256
                    && model.workers.contains(worker) =>
            {
                Some(Ok(()))
            }
            Last::Wrong(when, why) if when.elapsed() <= READY_RETRY => Some(Err(why.clone())),
            Last::Unknown | Last::Right(_) | Last::Wrong(..) => None,
        }
    }

    /// Somebody's request has succeeded.
    pub(super) fn succeeded(&self, receipt: &Receipt) {
        let mut answered = receipt.attempts.iter().filter(|a| a.outcome == AttemptOutcome::Ok);
        let Some(attempt) = answered.next_back() else { return };
        let Some(report) = &attempt.infer else { return };
        let (worker, sha256) = (attempt.worker.clone(), report.sha256.clone());
        *self.lock() = Last::Right(Run { when: clock::now(), worker, sha256 });
    }

    /// Runs the model once over zeros.
    pub(super) fn try_once(&self, client: &Client, info: &ModelInfo) -> Result<(), String> {
        let tried = run(client, info).and_then(|receipt| match receipt.verdict {
            Verdict::Ok => Ok(receipt),
            Verdict::Cancelled
            | Verdict::Deadline
            | Verdict::DeviceLost
            | Verdict::Failed
            | Verdict::Poison => Err(format!("{}: {}", receipt.verdict, receipt.reason)),
        });
        match tried {
            Ok(receipt) => {
                self.succeeded(&receipt);
                Ok(())
            }
            Err(why) => {
                let why = format!("the last trial of the model `{}` failed: {why}", info.name);
                *self.lock() = Last::Wrong(clock::now(), why.clone());
                Err(why)
            }
        }
    }
}

/// A request of the shapes that the model was run with when it was loaded.
fn run(client: &Client, info: &ModelInfo) -> Result<Receipt, String> {
    let zeros = info.inputs.iter().zip(&info.trial_shapes).map(|(spec, shape)| {
        let tensor = Tensor::new(spec.name.clone(), spec.datatype, shape.clone())?;
        let zeros = vec![0; tensor.bytes()];
        Ok((tensor, zeros))
    });
    let job = zeros.collect::<Result<_, _>>().and_then(|inputs| InferJob::new(&*info.name, inputs));
    let job = job.map_err(|error| error.to_string())?;
    let job = job.with_deadline(TRIAL_DEADLINE).with_priority(Priority::High).refuse_if_busy();
    let answer = client.infer(job).and_then(|handle| handle.wait());
    answer.map(|answer| answer.receipt).map_err(|error| Chain(&error).to_string())
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use gridpool_protocol::ids::DeviceKind;
    use gridpool_protocol::receipt::{Attempt, DeviceInfo, ItemRange, RunReport};
    use gridpool_protocol::tensor::model::InferReport;

    use super::*;
    use crate::gateway::models::tests::model;

    /// Of a request that one worker answered.
    pub(in crate::gateway) fn receipt(
        worker: &str,
        sha256: &str,
        runs: u32,
        joined_rows: u32,
    ) -> Receipt {
        let device = DeviceInfo {
            kind: DeviceKind::Cpu,
            index: 0,
            name: String::new(),
            uuid: String::new(),
            driver: String::new(),
        };
        let infer = InferReport {
            model: "m".to_owned(),
            sha256: sha256.to_owned(),
            onnxruntime: "1.31.1".to_owned(),
            nodes: Vec::new(),
            runs,
            joined_rows,
            device_us: 1.0,
            h2d_bytes: 0,
            d2h_bytes: 0,
        };
        let report = RunReport {
            module_hash: String::new(),
            items: 1,
            joined_items: joined_rows,
            item_errors: 0,
            kernels: Vec::new(),
            h2d_bytes: 0,
            d2h_bytes: 0,
            service_us: 1,
            allocations: 0,
            infer: Some(infer),
        };
        let attempt = Attempt::answered(worker.to_owned(), device, ItemRange::default(), report);
        Receipt {
            job: "job7".to_owned(),
            key: String::new(),
            program_hash: String::new(),
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
        let proof = Proof::default();
        assert_eq!(proof.check(&model), None, "nothing is known");
        proof.succeeded(&receipt("cpu1#1", &sha256, 1, 1));
        assert_eq!(proof.check(&model), Some(Ok(())));
        proof.succeeded(&receipt("cpu1#2", &sha256, 1, 1));
        assert_eq!(proof.check(&model), None, "that worker does not have it");
        proof.succeeded(&receipt("cpu1#1", "another file", 1, 1));
        assert_eq!(proof.check(&model), None);
        let ago = |span| clock::now().checked_sub(span).unwrap();
        let second = Duration::from_secs(1);
        let right =
            |when| Last::Right(Run { when, worker: "cpu0#1".into(), sha256: sha256.clone() });
        *proof.lock() = right(ago(PROOF_STALE - second));
        assert_eq!(proof.check(&model), Some(Ok(())));
        *proof.lock() = right(ago(PROOF_STALE + second));
        assert_eq!(proof.check(&model), None, "it is too old");
        *proof.lock() = Last::Wrong(clock::now(), "why".to_owned());
        assert_eq!(proof.check(&model), Some(Err("why".to_owned())));
        *proof.lock() = Last::Wrong(ago(READY_RETRY + second), "why".to_owned());
        assert_eq!(proof.check(&model), None, "it may be tried again");
    }
}
