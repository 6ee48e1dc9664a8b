//! The model in this process, in the engine that workers use: the cost without a pool.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};

use gridpool_client::TensorOutputs;
use gridpool_device::cpu::CpuDevice;
use gridpool_device::cuda::CudaDevice;
use gridpool_device::device::Device;
use gridpool_infer::{
    Answer, Destination, Engine, InferError, LoadError, Placed, Places, Request, Runtime, Source,
};
use gridpool_ipc::clock;
use gridpool_protocol::bench::{Hops, ModelSubject};
use gridpool_protocol::chain::Chain;
use gridpool_protocol::ids::DeviceKind;
use gridpool_protocol::message::Priority;
use gridpool_protocol::receipt::DeviceInfo;
use gridpool_protocol::tensor::model::ModelInfo;
use gridpool_protocol::tensor::options::ModelPlan;

use super::load_generator::{Caller, Timed};
use super::stepwise::{Full, OneRun, StepCaller, packed};
use super::test_input::TestInput;
use crate::BenchError;
use crate::evidence::Evidence;
use crate::failure::Failure;

/// The name of the source of its answers.
const NAME: &str = "the engine";

/// A model that is loaded in this process.
pub(super) struct Direct {
    engine: Arc<Engine>,
    device: Arc<DeviceInfo>,
    pub(super) info: Arc<ModelInfo>,
    plan: Arc<ModelPlan>,
}

impl Direct {
    /// Loads it as a worker does. The inner error is about the model.
    pub(super) fn load(subject: &ModelSubject) -> Result<Result<Self, LoadError>, BenchError> {
        let ModelSubject { device, uuid, threads, onnxruntime, model, .. } = subject;
        let device = match device.kind {
            DeviceKind::Cpu => CpuDevice::open(device.index, *threads)?.info().clone(),
            DeviceKind::Gpu => CudaDevice::describe(device.index, Some(uuid))?,
        };
        let runtime = Runtime::find(&Places::here(onnxruntime.as_deref()), *threads)?;
        let engine = Engine::new(runtime, device.kind);
        let loaded = subject.served().into_iter().try_fold(None, |first, plan| {
            let info = engine.load(&plan.name, &plan.path, &plan.options)?;
            Ok(first.or(Some(info)))
        });
        let loaded = loaded.map(|first| first.expect("the model itself is the first"));
        let plan = Arc::new(model.clone());
        Ok(loaded.map(|info| Self {
            engine: Arc::new(engine),
            device: Arc::new(device),
            info: Arc::new(info),
            plan,
        }))
    }

    /// Another model that the same engine has loaded.
    pub(super) fn other(&self, name: &str) -> Option<Self> {
        let info = self.engine.list().into_iter().find(|info| info.name == name)?;
        Some(Self {
            engine: Arc::clone(&self.engine),
            device: Arc::clone(&self.device),
            info: Arc::new(info),
            plan: Arc::clone(&self.plan),
        })
    }

    /// Sends every input once, one after the other: these are the first answers.
    pub(super) fn answer_all(&self, test_inputs: &[Arc<TestInput>]) -> Result<(), Failure> {
        test_inputs.iter().try_for_each(|test_input| self.caller(0, test_input).call().map(drop))
    }

    /// A caller with this input, under a client number of its own.
    pub(super) fn caller(&self, number: u64, test_input: &Arc<TestInput>) -> Box<dyn Caller> {
        Box::new(EngineCaller {
            runs: self.runs(number),
            model: self.info.name.clone(),
            test_input: Arc::clone(test_input),
            evidence: Evidence::of_requests(test_input.rows),
        })
    }

    /// A caller of the steps one by one, each a model of this engine; none if it is no pipeline.
    pub(super) fn step_caller(
        &self,
        number: u64,
        test_input: &Arc<TestInput>,
    ) -> Option<Box<dyn Caller>> {
        Some(Box::new(StepCaller::new(&self.plan, self.runs(number), test_input)?))
    }

    fn runs(&self, number: u64) -> EngineRuns {
        let (sender, answers) = mpsc::channel();
        let (engine, device) = (Arc::clone(&self.engine), Arc::clone(&self.device));
        EngineRuns { engine, device, number, sender, answers }
    }
}

/// Requests to the engine, one at a time.
struct EngineRuns {
    engine: Arc<Engine>,
    device: Arc<DeviceInfo>,
    number: u64,
    sender: Sender<Result<Answer, InferError>>,
    answers: Receiver<Result<Answer, InferError>>,
}

impl EngineRuns {
    /// Sends a request and waits for its answer.
    fn ask(&mut self, model: &str, inputs: Arc<[u8]>) -> Result<Answer, Failure> {
        let sender = self.sender.clone();
        let request = Request {
            model: model.to_owned(),
            client: self.number,
            priority: Priority::Normal,
            inputs: Source::Inline(inputs),
            outputs: Destination::Answer,
            deadline: None,
            // The caller may be gone.
            done: Box::new(move |answer| drop(sender.send(answer))),
        };
        self.engine.submit(request).map_err(|error| wrong(&error))?;
        let answer = self.answers.recv().expect("this caller holds a sender");
        answer.map_err(|error| wrong(&error))
    }
}

impl OneRun for EngineRuns {
    fn run(
        &mut self,
        model: &str,
        inputs: Vec<Full>,
        evidence: &mut Evidence,
    ) -> Result<TensorOutputs, Failure> {
        let Answer { outputs, report, .. } = self.ask(model, packed(&inputs)?.into())?;
        evidence.add_run(&report, &self.device);
        unpacked(outputs)
    }
}

fn wrong(error: &dyn std::error::Error) -> Failure {
    Failure::Wrong(Chain(error).to_string())
}

fn unpacked(outputs: Placed) -> Result<TensorOutputs, Failure> {
    let bytes = match outputs {
        Placed::Inline(bytes) => bytes,
        Placed::InArena(_) => unreachable!("it named no arena"),
    };
    TensorOutputs::new(bytes).map_err(|error| wrong(&error))
}

/// Calls the engine.
struct EngineCaller {
    runs: EngineRuns,
    model: String,
    test_input: Arc<TestInput>,
    evidence: Evidence,
}

impl Caller for EngineCaller {
    fn call(&mut self) -> Result<Timed, Failure> {
        let started = clock::now();
        let answer = self.runs.ask(&self.model, Arc::clone(&self.test_input.packed))?;
        let took_us = started.elapsed().as_secs_f64() * 1e6;
        let Answer { outputs, report, .. } = answer;
        self.evidence.add_run(&report, &self.runs.device);
        self.test_input.check(&unpacked(outputs)?, NAME)?;
        let device_us = report.device_us.min(took_us);
        let hops = Hops { device_us, worker_us: took_us - device_us, ..Hops::default() };
        Ok((took_us, hops))
    }

    fn evidence(&mut self) -> Evidence {
        std::mem::replace(&mut self.evidence, Evidence::of_requests(self.test_input.rows))
    }
}
