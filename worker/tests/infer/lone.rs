//! One inference worker by itself, with the test in its supervisor's place.

use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use gridpool_protocol::channel::{ChannelError, Listener, Receiver, Sender};
use gridpool_protocol::clock;
use gridpool_protocol::frame::FrameReader;
use gridpool_protocol::ids::{AttemptId, ClientId, DeviceKind, JobId};
use gridpool_protocol::message::{
    self, AttemptError, Destination, FromWorker, InferMember, Inline, Input, ModelCall, ModelOrder,
    ToWorker,
};
use gridpool_protocol::tensor::model::ModelInfo;
use gridpool_protocol::tensor::options::{ModelOptions, ModelPlan};
use gridpool_worker::probe::probe;

use crate::harness::{Full, PATIENCE, device, pack, runtime, unpack};

/// Far longer than any test lasts.
const FAR: u64 = 3_600_000;

/// A model as the supervisor writes it.
pub(crate) fn plan(name: &str, path: impl Into<PathBuf>, contexts: u32) -> ModelPlan {
    let options = ModelOptions { contexts, ..ModelOptions::default() };
    ModelPlan { name: name.to_owned(), path: path.into(), options }
}

pub(crate) fn load(plan: ModelPlan) -> ModelOrder {
    ModelOrder::Load(plan)
}

pub(crate) fn unload(name: &str) -> ModelOrder {
    ModelOrder::Unload { name: name.to_owned() }
}

pub(crate) fn contexts(name: &str, contexts: u32) -> ModelOrder {
    ModelOrder::Contexts { name: name.to_owned(), contexts }
}

pub(crate) fn attempt(job: u64) -> AttemptId {
    AttemptId { job: JobId(job), number: 1 }
}

/// A worker, and whatever it has said but that it lives.
pub(crate) struct Lone {
    process: Child,
    _lifeline: UnixStream,
    to: Sender<ToWorker>,
    from: Receiver<FromWorker>,
    pub(crate) said: Vec<FromWorker>,
    beats: u32,
}

impl Lone {
    /// A worker that has said READY with these models; `None` where there is no ONNX Runtime.
    pub(crate) fn start(models: &[ModelPlan], more: &[&str]) -> Option<Self> {
        runtime()?;
        let (listener, name) = Listener::open().expect("a listener");
        let (ours, theirs) = UnixStream::pair().expect("a pair of sockets");
        let mut command = Command::new(env!("CARGO_BIN_EXE_gridpool-worker"));
        command.args(["infer", "--bootstrap", &name]);
        command.args(["--supervisor-pid", &std::process::id().to_string()]);
        match device() {
            DeviceKind::Cpu => {
                command.args(["--worker", "cpu0#2", "--threads", "1"]);
                command.env("CUDA_VISIBLE_DEVICES", "");
            }
            DeviceKind::Gpu => {
                let uuid = probe().gpus.first().expect("a GPU").uuid.clone();
                command.args(["--worker", "gpu0#2", "--uuid", &uuid]);
                command.env("CUDA_VISIBLE_DEVICES", uuid);
            }
        }
        for model in models {
            command.args(["--model", &serde_json::to_string(model).expect("plain data")]);
        }
        command.args(more).stdin(Stdio::from(OwnedFd::from(theirs))).stdout(Stdio::null());
        let process = command.stderr(Stdio::piped()).spawn().expect("the worker can be started");
        // Between its start and here nothing may fail: it would outlive this test until its end.
        let lifeline = ours.try_clone().expect("a descriptor");
        FrameReader::new(ours).read(None).expect("it connects").expect("it says so");
        let (to, from) = listener.accept().expect("it sends its ends");
        let mut lone = Self { process, _lifeline: lifeline, to, from, said: Vec::new(), beats: 0 };
        lone.hears(|message| matches!(message, FromWorker::Ready { .. }).then_some(()));
        Some(lone)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    pub(crate) fn say(&self, message: &ToWorker) {
        self.to.send(message).expect("the worker listens");
    }

    /// What it has said, or says next, of which `find` makes something.
    pub(crate) fn hears<T>(&mut self, find: impl Fn(&FromWorker) -> Option<T>) -> T {
        let until = clock::now() + PATIENCE;
        let mut at = 0;
        loop {
            if let Some(found) = self.said[at..].iter().find_map(&find) {
                return found;
            }
            at = self.said.len();
            let listened = self.listens(until);
            assert!(listened.is_ok(), "{listened:?}: {}: {:?}", self.errors(), self.said);
        }
    }

    /// Waits for the next thing that it says.
    fn listens(&mut self, until: Instant) -> Result<(), ChannelError> {
        let heard = self.from.recv_until(until)?;
        let is_in_time = heard.is_some() && !clock::until(until).is_zero();
        assert!(is_in_time, "it said nothing of the kind: {:?}", self.said);
        match heard {
            Some(FromWorker::Heartbeat { .. }) => self.beats += 1,
            heard => self.said.extend(heard),
        }
        Ok(())
    }

    /// Waits for so many signs of life.
    pub(crate) fn beats(&mut self, count: u32) {
        let until = clock::now() + PATIENCE;
        let enough = self.beats + count;
        while self.beats < enough {
            self.listens(until).expect("it lives");
        }
    }

    /// Asks a model; the request's attempt is `attempt(job)`.
    pub(crate) fn ask(&self, job: u64, model: &str, inputs: &[Full]) {
        self.ask_by(job, model, inputs, 1, FAR);
    }

    pub(crate) fn ask_by(
        &self,
        job: u64,
        model: &str,
        inputs: &[Full],
        client: u64,
        deadline_ms: u64,
    ) {
        let call = ModelCall {
            model: model.to_owned(),
            input: Input::Inline(Inline(pack(inputs))),
            output: Destination::Inline,
        };
        let (attempt, client) = (attempt(job), ClientId(client));
        self.say(&ToWorker::Infer(vec![InferMember { attempt, client, call, deadline_ms }]));
    }

    pub(crate) fn cancel(&self, jobs: &[u64]) {
        let attempts = jobs.iter().map(|&job| attempt(job)).collect();
        self.say(&ToWorker::Cancel { attempts });
    }

    /// The answer to `attempt(job)`.
    pub(crate) fn answer(&mut self, job: u64) -> Result<Vec<Full>, AttemptError> {
        let answer = self.hears(|message| answer_to(message, job).cloned());
        answer.map(|answer| unpack(&answer.output.expect("it was to come inline").0))
    }

    /// The answers that it has given to `attempt(job)` so far.
    pub(crate) fn answers(&self, job: u64) -> usize {
        self.said.iter().filter(|message| answer_to(message, job).is_some()).count()
    }

    /// Gives an order.
    pub(crate) fn order(&self, order: u64, what: ModelOrder) {
        self.say(&ToWorker::Model { order, what });
    }

    /// What came of an order.
    pub(crate) fn ordered(&mut self, order: u64) -> Result<(), String> {
        self.hears(|message| ordered(message, order))
    }

    /// Gives an order and waits until it has been obeyed.
    pub(crate) fn obeys(&mut self, order: u64, what: ModelOrder) -> Result<(), String> {
        self.order(order, what);
        self.ordered(order)
    }

    /// Where in what it has said something of that kind is.
    pub(crate) fn place(&self, is_it: impl Fn(&FromWorker) -> bool) -> usize {
        self.said.iter().position(is_it).expect("it has said so")
    }

    /// The models as it has told of them last.
    pub(crate) fn models(&self) -> &[ModelInfo] {
        self.said.iter().rev().find_map(models).expect("they come before READY")
    }

    /// Names of the models that it has told of last.
    pub(crate) fn names(&self) -> Vec<&str> {
        self.models().iter().map(|model| model.name.as_str()).collect()
    }

    /// Says stop; its exit code.
    pub(crate) fn stop(mut self) -> Option<i32> {
        self.say(&ToWorker::Stop);
        self.end()
    }

    /// Hears it out; its exit code.
    pub(crate) fn end(&mut self) -> Option<i32> {
        let until = clock::now() + PATIENCE;
        let ended = loop {
            if let Err(error) = self.listens(until) {
                break error;
            }
        };
        assert!(matches!(ended, ChannelError::Disconnected), "{ended}");
        self.process.wait().expect("it is this process's child").code()
    }

    /// What it has written, if it has ended.
    fn errors(&mut self) -> String {
        let mut text = String::new();
        if let Some(errors) = &mut self.process.stderr {
            errors.read_to_string(&mut text).expect("its end");
        }
        text
    }
}

impl Drop for Lone {
    fn drop(&mut self) {
        // It may have ended.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// The attempt that a message answers, and how.
pub(crate) fn answered(
    message: &FromWorker,
) -> Option<(AttemptId, &Result<message::Answer, AttemptError>)> {
    let FromWorker::Answer { attempt, result } = message else { return None };
    Some((*attempt, result))
}

fn answer_to(message: &FromWorker, job: u64) -> Option<&Result<message::Answer, AttemptError>> {
    answered(message).filter(|(of, _)| *of == attempt(job)).map(|(_, result)| result)
}

pub(crate) fn is_answer_to(message: &FromWorker, job: u64) -> bool {
    answer_to(message, job).is_some()
}

/// What came of an order, if it says that.
pub(crate) fn ordered(message: &FromWorker, number: u64) -> Option<Result<(), String>> {
    let FromWorker::Ordered { order, result } = message else { return None };
    (*order == number).then(|| result.clone())
}

fn models(message: &FromWorker) -> Option<&[ModelInfo]> {
    let FromWorker::Models { models } = message else { return None };
    Some(models)
}
