//! The model in this process, by the engine of the workers: what is left of a pool without a pool.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};

use gridpool_protocol::bench::{Hops, ModelSubject};
use gridpool_protocol::chain::Chain;
use gridpool_protocol::client::InferOutputs;
use gridpool_protocol::clock;
use gridpool_protocol::ids::DeviceKind;
use gridpool_protocol::receipt::DeviceInfo;
use gridpool_protocol::tensor::model::ModelInfo;

use super::crowd::{Caller, Timed};
use super::question::Question;
use crate::bench::BenchError;
use crate::bench::evidence::Evidence;
use crate::bench::load::Trouble;
use crate::cpu::CpuDevice;
use crate::cuda::CudaDevice;
use crate::device::Device;
use crate::infer::{
    Answer, Destination, Engine, InferError, LoadError, Placed, Places, Request, Runtime, Source,
};

/// How its answers are called.
const NAME: &str = "the engine";

/// A model that is loaded here.
pub(super) struct Direct {
    engine: Arc<Engine>,
    device: Arc<DeviceInfo>,
    pub(super) info: Arc<ModelInfo>,
}

impl Direct {
    /// Loads it as a worker would. The inner error is about the model.
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

    /// Asks every question once, one after the other: those are the first answers.
    pub(super) fn answer_all(&self, questions: &[Arc<Question>]) -> Result<(), Trouble> {
        questions.iter().try_for_each(|question| self.caller(0, question).call().map(drop))
    }

    /// One who asks this question, under a number of its own.
    pub(super) fn caller(&self, number: u64, question: &Arc<Question>) -> Box<dyn Caller> {
        let (sender, answers) = mpsc::channel();
        Box::new(Engaged {
            engine: Arc::clone(&self.engine),
            device: Arc::clone(&self.device),
            model: self.info.name.clone(),
            number,
            question: Arc::clone(question),
            sender,
            answers,
            evidence: Evidence::of_requests(question.rows),
        })
    }
}

/// One who asks the engine.
struct Engaged {
    engine: Arc<Engine>,
    device: Arc<DeviceInfo>,
    model: String,
    number: u64,
    question: Arc<Question>,
    sender: Sender<Result<Answer, InferError>>,
    answers: Receiver<Result<Answer, InferError>>,
    evidence: Evidence,
}

impl Caller for Engaged {
    fn call(&mut self) -> Result<Timed, Trouble> {
        let wrong = |error: &dyn std::error::Error| Trouble::Wrong(Chain(error).to_string());
        let started = clock::now();
        let sender = self.sender.clone();
        let request = Request {
            model: self.model.clone(),
            client: self.number,
            inputs: Source::Inline(Arc::clone(&self.question.packed)),
            outputs: Destination::Answer,
            deadline: None,
            // A caller that is gone waits for nothing.
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
        let outputs = InferOutputs::new(bytes).map_err(|error| wrong(&error))?;
        self.question.judge(&outputs, NAME)?;
        let device_us = report.device_us.min(took_us);
        let hops = Hops { device_us, worker_us: took_us - device_us, ..Hops::default() };
        Ok((took_us, hops))
    }

    fn evidence(&mut self) -> Evidence {
        std::mem::replace(&mut self.evidence, Evidence::of_requests(self.question.rows))
    }
}
