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

use super::load_generator::{Caller, Timed};
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
        let loaded = engine.load(&model.name, &model.path, &model.options);
        Ok(loaded.map(|info| Self {
            engine: Arc::new(engine),
            device: Arc::new(device),
            info: Arc::new(info),
        }))
    }

    /// Sends every input once, one after the other: these are the first answers.
    pub(super) fn answer_all(&self, test_inputs: &[Arc<TestInput>]) -> Result<(), Failure> {
        test_inputs.iter().try_for_each(|test_input| self.caller(0, test_input).call().map(drop))
    }

    /// A caller with this input, under a client number of its own.
    pub(super) fn caller(&self, number: u64, test_input: &Arc<TestInput>) -> Box<dyn Caller> {
        let (sender, answers) = mpsc::channel();
        Box::new(EngineCaller {
            engine: Arc::clone(&self.engine),
            device: Arc::clone(&self.device),
            model: self.info.name.clone(),
            number,
            test_input: Arc::clone(test_input),
            sender,
            answers,
            evidence: Evidence::of_requests(test_input.rows),
        })
    }
}

/// Calls the engine.
struct EngineCaller {
    engine: Arc<Engine>,
    device: Arc<DeviceInfo>,
    model: String,
    number: u64,
    test_input: Arc<TestInput>,
    sender: Sender<Result<Answer, InferError>>,
    answers: Receiver<Result<Answer, InferError>>,
    evidence: Evidence,
}

impl Caller for EngineCaller {
    fn call(&mut self) -> Result<Timed, Failure> {
        let wrong = |error: &dyn std::error::Error| Failure::Wrong(Chain(error).to_string());
        let started = clock::now();
        let sender = self.sender.clone();
        let request = Request {
            model: self.model.clone(),
            client: self.number,
            priority: Priority::Normal,
            inputs: Source::Inline(Arc::clone(&self.test_input.packed)),
            outputs: Destination::Answer,
            deadline: None,
            // The caller may be gone.
            done: Box::new(move |answer| drop(sender.send(answer))),
        };
        self.engine.submit(request).map_err(|error| wrong(&error))?;
        let answer = self.answers.recv().expect("this caller holds a sender");
        let took_us = started.elapsed().as_secs_f64() * 1e6;
        let Answer { outputs, report, .. } = answer.map_err(|error| wrong(&error))?;
        self.evidence.add_run(&report, &self.device);
        let bytes = match outputs {
            Placed::Inline(bytes) => bytes,
            Placed::InArena(_) => unreachable!("it named no arena"),
        };
        let outputs = TensorOutputs::new(bytes).map_err(|error| wrong(&error))?;
        self.test_input.check(&outputs, NAME)?;
        let device_us = report.device_us.min(took_us);
        let hops = Hops { device_us, worker_us: took_us - device_us, ..Hops::default() };
        Ok((took_us, hops))
    }

    fn evidence(&mut self) -> Evidence {
        std::mem::replace(&mut self.evidence, Evidence::of_requests(self.test_input.rows))
    }
}
