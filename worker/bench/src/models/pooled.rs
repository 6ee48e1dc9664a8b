//! The model in the workers of a pool, called through the pool's socket.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use gridpool_client::{Client, Job, ModelInput, TensorOutputs};
use gridpool_ipc::clock;
use gridpool_protocol::bench::ModelSubject;
use gridpool_protocol::ids::DeviceKind;
use gridpool_protocol::receipt::{AttemptOutcome, Receipt};
use gridpool_protocol::tensor::model::{InferReport, ModelInfo, ModelState, ProviderNodes};
use gridpool_protocol::tensor::options::{ModelPlan, Provider};

use super::load_generator::{Caller, Timed};
use super::stepwise::{Full, OneRun, StepCaller};
use super::test_input::TestInput;
use crate::BenchError;
use crate::evidence::{self, Evidence};
use crate::failure::Failure;

/// The deadline of a request: a large model on one core may take long.
const DEADLINE: Duration = Duration::from_secs(600);

/// A pool that serves the model.
pub(super) struct Pooled {
    socket: PathBuf,
    proper: Arc<ExpectedReceipt>,
    plan: Arc<ModelPlan>,
}

/// What every receipt must show.
#[derive(Debug)]
struct ExpectedReceipt {
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
            None => Some("the pool's worker has no such model".to_owned()),
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
        let proper =
            ExpectedReceipt { kind: subject.device.kind, info: Arc::clone(info), allows_cpu };
        let (socket, plan) = (subject.socket.clone(), Arc::new(subject.model.clone()));
        Ok(Ok(Self { socket, proper: Arc::new(proper), plan }))
    }

    /// A caller with this input, over a connection of its own.
    pub(super) fn caller(&self, test_input: &Arc<TestInput>) -> Result<Box<dyn Caller>, Failure> {
        let inputs = ModelInput::from_tensors(test_input.tensors.iter().cloned());
        let job = inputs.and_then(|inputs| Job::model(&*self.proper.info.name, inputs));
        let job = job.map_err(|error| Failure::Wrong(error.to_string()))?.with_deadline(DEADLINE);
        Ok(Box::new(PoolCaller {
            client: Client::connect(&self.socket)?,
            job,
            test_input: Arc::clone(test_input),
            proper: Arc::clone(&self.proper),
            evidence: Evidence::of_requests(test_input.rows),
        }))
    }

    /// A caller of the steps one by one, each a model of the pool; none if it is no pipeline.
    pub(super) fn step_caller(
        &self,
        test_input: &Arc<TestInput>,
    ) -> Result<Option<Box<dyn Caller>>, Failure> {
        let runs = PoolRuns { client: Client::connect(&self.socket)?, kind: self.proper.kind };
        let caller = StepCaller::new(&self.plan, runs, test_input);
        Ok(caller.map(|caller| -> Box<dyn Caller> { Box::new(caller) }))
    }
}

/// Requests to models of the pool, one at a time.
struct PoolRuns {
    client: Client,
    kind: DeviceKind,
}

impl OneRun for PoolRuns {
    fn run(
        &mut self,
        model: &str,
        inputs: Vec<Full>,
        evidence: &mut Evidence,
    ) -> Result<TensorOutputs, Failure> {
        let job = ModelInput::from_tensors(inputs).and_then(|inputs| Job::model(model, inputs));
        let job = job.map_err(|error| Failure::Wrong(error.to_string()))?.with_deadline(DEADLINE);
        let (receipt, outputs) = self.client.run(job)?.into_parts();
        evidence.add(&receipt, self.kind).map_err(Failure::Wrong)?;
        outputs.ok_or_else(|| Failure::Wrong("a request ended OK without outputs".to_owned()))
    }
}

/// Calls the pool.
struct PoolCaller {
    client: Client,
    job: Job<TensorOutputs>,
    test_input: Arc<TestInput>,
    proper: Arc<ExpectedReceipt>,
    evidence: Evidence,
}

impl Caller for PoolCaller {
    fn call(&mut self) -> Result<Timed, Failure> {
        let started = clock::now();
        let answer = self.client.run(self.job.clone())?;
        let took_us = started.elapsed().as_secs_f64() * 1e6;
        let (receipt, outputs) = answer.into_parts();
        self.evidence.add(&receipt, self.proper.kind).map_err(Failure::Wrong)?;
        let worker = self.proper.check(&receipt).map_err(Failure::Wrong)?;
        let Some(outputs) = outputs else {
            return Err(Failure::Wrong("a request ended OK without outputs".to_owned()));
        };
        self.test_input.check(&outputs, worker)?;
        Ok((took_us, evidence::hops(&receipt, took_us)))
    }

    fn evidence(&mut self) -> Evidence {
        std::mem::replace(&mut self.evidence, Evidence::of_requests(self.test_input.rows))
    }
}

impl ExpectedReceipt {
    /// The worker that answered. The error says what the receipt shows that it should not: another model, another
    /// runtime, nodes on another provider.
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
        are_there.map_err(|why| format!("{worker} ran {why}: {}", ProviderNodes::list(nodes)))?;
        if *nodes != self.info.nodes {
            let (got, want) = (ProviderNodes::list(nodes), ProviderNodes::list(&self.info.nodes));
            return Err(format!("{worker} ran {got}, and the engine in this process {want}"));
        }
        Ok(worker)
    }

    /// Checks that the nodes run where this kind of device should run them.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(counts: &[(&str, u32)]) -> Vec<ProviderNodes> {
        let one = |&(name, nodes): &(&str, u32)| ProviderNodes { provider: name.into(), nodes };
        counts.iter().map(one).collect()
    }

    #[test]
    fn a_gpu_whose_nodes_are_on_the_cpu_is_wrong() {
        const CPU: &str = "CPUExecutionProvider";
        const CUDA: &str = "CUDAExecutionProvider";
        let are_there = |kind, allows_cpu, counts: &[(&str, u32)]| {
            let info = Arc::new(ModelInfo::unavailable("m", String::new()));
            ExpectedReceipt { kind, info, allows_cpu }.are_there(&nodes(counts)).is_ok()
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
