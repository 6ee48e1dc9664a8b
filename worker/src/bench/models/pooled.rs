//! The model in the workers of a pool, asked through its socket.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use gridpool_protocol::bench::ModelSubject;
use gridpool_protocol::client::{Client, InferAnswer, InferJob};
use gridpool_protocol::clock;
use gridpool_protocol::ids::DeviceKind;
use gridpool_protocol::receipt::{AttemptOutcome, Receipt};
use gridpool_protocol::tensor::model::{InferReport, ModelInfo, ModelState, ProviderNodes};
use gridpool_protocol::tensor::options::Provider;

use super::crowd::{Caller, Timed};
use super::question::Question;
use crate::bench::BenchError;
use crate::bench::evidence::{self, Evidence};
use crate::bench::load::Trouble;

/// How long a request may take: a large model on one core is no fault.
const DEADLINE: Duration = Duration::from_secs(600);

/// A pool that serves the model.
pub(super) struct Pooled {
    socket: PathBuf,
    proper: Arc<Proper>,
}

/// What every receipt must say.
#[derive(Debug)]
struct Proper {
    kind: DeviceKind,
    /// The model as it was loaded in this process.
    info: Arc<ModelInfo>,
    /// Whether some ops may run on the CPU of a GPU device.
    allows_cpu: bool,
}

impl Pooled {
    /// The pool of the subject. The inner error says why its worker does not serve the model.
    pub(super) fn find(
        subject: &ModelSubject,
        info: &Arc<ModelInfo>,
    ) -> Result<Result<Self, String>, BenchError> {
        let rows = Client::connect(&subject.socket)?.models()?;
        let row = rows.iter().find(|row| row.model.name == info.name);
        let why = match row {
            None => Some("the pool's worker has told of no such model".to_owned()),
            Some(row) => match row.model.state {
                ModelState::Unavailable => Some(format!("{}: {}", row.worker, row.model.reason)),
                ModelState::Ready if row.model.contexts != info.contexts => {
                    let (got, want) = (row.model.contexts, info.contexts);
                    Some(format!("{} has {got} contexts of it, not {want}", row.worker))
                }
                ModelState::Ready => None,
            },
        };
        if let Some(why) = why {
            return Ok(Err(why));
        }
        let allows_cpu = !subject.model.options.cpu_ops.is_empty();
        let proper = Proper { kind: subject.device.kind, info: Arc::clone(info), allows_cpu };
        Ok(Ok(Self { socket: subject.socket.clone(), proper: Arc::new(proper) }))
    }

    /// One who asks this question over a connection of its own.
    pub(super) fn caller(&self, question: &Arc<Question>) -> Result<Box<dyn Caller>, Trouble> {
        let job = InferJob::new(self.proper.info.name.clone(), question.tensors.clone());
        let job = job.map_err(|error| Trouble::Wrong(error.to_string()))?.with_deadline(DEADLINE);
        Ok(Box::new(Connected {
            client: Client::connect(&self.socket)?,
            job,
            question: Arc::clone(question),
            proper: Arc::clone(&self.proper),
            evidence: Evidence::of_requests(question.rows),
        }))
    }
}

/// One who asks the pool.
struct Connected {
    client: Client,
    job: InferJob,
    question: Arc<Question>,
    proper: Arc<Proper>,
    evidence: Evidence,
}

impl Caller for Connected {
    fn call(&mut self) -> Result<Timed, Trouble> {
        let started = clock::now();
        let InferAnswer { receipt, outputs } = self.client.infer(self.job.clone())?.wait()?;
        let took_us = started.elapsed().as_secs_f64() * 1e6;
        self.evidence.add(&receipt, self.proper.kind).map_err(Trouble::Wrong)?;
        let worker = self.proper.check(&receipt).map_err(Trouble::Wrong)?;
        let Some(outputs) = outputs else {
            return Err(Trouble::Wrong("a request ended OK without outputs".to_owned()));
        };
        self.question.judge(&outputs, worker)?;
        Ok((took_us, evidence::hops(&receipt, took_us)))
    }

    fn evidence(&mut self) -> Evidence {
        std::mem::replace(&mut self.evidence, Evidence::of_requests(self.question.rows))
    }
}

impl Proper {
    /// The worker that answered. The error says what a receipt says that it should not: another model,
    /// another runtime, nodes elsewhere.
    fn check<'a>(&self, receipt: &'a Receipt) -> Result<&'a str, String> {
        let answered = receipt.attempts.iter().rev().find(|a| a.outcome == AttemptOutcome::Ok);
        let attempt = answered.ok_or("a request ended OK and its receipt names no worker")?;
        let worker = &attempt.worker;
        let report = attempt.infer.as_ref();
        let report = report.ok_or_else(|| format!("{worker} does not say how it ran the model"))?;
        let InferReport { sha256, onnxruntime, nodes, .. } = report;
        let of = |sha256: &str, version: &str| format!("sha256 {sha256} by ONNX Runtime {version}");
        let (got, want) = (of(sha256, onnxruntime), of(&self.info.sha256, &self.info.onnxruntime));
        if got != want {
            return Err(format!("{worker} ran {got}, not {want}"));
        }
        let are_there = self.are_there(nodes);
        are_there.map_err(|why| format!("{worker} ran {why}: {}", listed(nodes)))?;
        if *nodes != self.info.nodes {
            let (got, want) = (listed(nodes), listed(&self.info.nodes));
            return Err(format!("{worker} ran {got}, and the engine in this process {want}"));
        }
        Ok(worker)
    }

    /// Whether the nodes are where this kind of device has them.
    fn are_there(&self, nodes: &[ProviderNodes]) -> Result<(), &'static str> {
        let cpu = Provider::Cpu.runtime_name();
        let count = |on_cpu: bool| {
            let those = nodes.iter().filter(|row| (row.provider == cpu) == on_cpu);
            those.map(|row| u64::from(row.nodes)).sum::<u64>()
        };
        match (self.kind, count(true), count(false)) {
            (DeviceKind::Cpu, _, 0) => Ok(()),
            (DeviceKind::Cpu, _, _) => Err("a model of a cpu device elsewhere"),
            (DeviceKind::Gpu, _, 0) => Err("no node on the gpu"),
            (DeviceKind::Gpu, 1.., _) if !self.allows_cpu => Err("nodes on the cpu"),
            (DeviceKind::Gpu, _, _) => Ok(()),
        }
    }
}

/// `CUDAExecutionProvider 120, CPUExecutionProvider 2`.
fn listed(nodes: &[ProviderNodes]) -> String {
    let one = |row: &ProviderNodes| format!("{} {}", row.provider, row.nodes);
    nodes.iter().map(one).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(counts: &[(&str, u32)]) -> Vec<ProviderNodes> {
        let one = |&(name, nodes): &(&str, u32)| ProviderNodes { provider: name.into(), nodes };
        counts.iter().map(one).collect()
    }

    #[test]
    fn a_gpu_whose_nodes_are_on_the_cpu_is_not_believed() {
        const CPU: &str = "CPUExecutionProvider";
        const CUDA: &str = "CUDAExecutionProvider";
        let are_there = |kind, allows_cpu, counts: &[(&str, u32)]| {
            let info = Arc::new(ModelInfo::unavailable("m", String::new()));
            Proper { kind, info, allows_cpu }.are_there(&nodes(counts)).is_ok()
        };
        assert!(are_there(DeviceKind::Cpu, false, &[(CPU, 7)]));
        assert!(!are_there(DeviceKind::Cpu, false, &[(CUDA, 7)]));
        assert!(are_there(DeviceKind::Gpu, false, &[(CUDA, 7)]));
        assert!(!are_there(DeviceKind::Gpu, false, &[(CPU, 7)]));
        assert!(!are_there(DeviceKind::Gpu, true, &[(CPU, 7)]));
        assert!(!are_there(DeviceKind::Gpu, false, &[(CUDA, 7), (CPU, 1)]));
        assert!(are_there(DeviceKind::Gpu, true, &[(CUDA, 7), (CPU, 1)]));
    }
}
