//! One inference worker; the test acts as its supervisor.

use std::env;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use gridpool_ipc::channel::{ChannelError, ReplyReader, Sender};
use gridpool_ipc::{clock, frame};
use gridpool_protocol::ids::{AttemptId, ClientId, DeviceKind, JobId};
use gridpool_protocol::message::{
    Assignment, AttemptAnswer, AttemptError, Destination, Dispatch, FromWorker, Inline, Input,
    ModelCommand, OnLifeline, Packing, Payload, Priority, ToWorker, Work,
};
use gridpool_protocol::receipt::ItemRange;
use gridpool_protocol::tensor::model::ModelInfo;
use gridpool_protocol::tensor::options::{ModelOptions, ModelPlan};
use gridpool_worker::probe::probe;

use crate::tensors::{Full, TIMEOUT, device, pack, runtime, unpack};

/// Far longer than any test lasts.
const FAR: u64 = 3_600_000;

/// A model as the supervisor writes it.
pub(crate) fn plan(name: &str, path: impl Into<PathBuf>, contexts: u32) -> ModelPlan {
    let options = ModelOptions { contexts: contexts.into(), ..ModelOptions::default() };
    ModelPlan { name: name.to_owned(), path: path.into(), options }
}

pub(crate) fn load(plan: ModelPlan) -> ModelCommand {
    ModelCommand::Load(plan)
}

pub(crate) fn unload(name: &str) -> ModelCommand {
    ModelCommand::Unload { name: name.to_owned() }
}

pub(crate) fn contexts(name: &str, contexts: u32) -> ModelCommand {
    ModelCommand::Contexts { name: name.to_owned(), contexts }
}

pub(crate) fn attempt(job: u64) -> AttemptId {
    AttemptId { job: JobId(job), number: 1 }
}

/// A worker, and the messages that it has sent except heartbeats.
pub(crate) struct TestWorker {
    process: Child,
    to: Sender,
    from: ReplyReader,
    /// The same socket, for what it must hear while it works.
    lifeline: UnixStream,
    pub(crate) received: Vec<FromWorker>,
    wait_for_heartbeats: u32,
}

impl TestWorker {
    /// A worker that is READY with these models; `None` without ONNX Runtime.
    pub(crate) fn start(models: &[ModelPlan], more: &[&str]) -> Option<Self> {
        runtime()?;
        let (ours, theirs) = UnixStream::pair().expect("a pair of sockets");
        let mut command = Command::new(env!("CARGO_BIN_EXE_gridpool-worker"));
        command.args(["infer", "--boot-folder"]).arg(env::temp_dir());
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
        // Nothing may fail between the start and here: the worker would outlive the test.
        let lifeline = ours.try_clone().expect("a socket can be cloned");
        let mut from = ReplyReader::new(ours);
        let hello = from.recv().expect("it says who it is");
        let FromWorker::Hello { listens_at, .. } = &hello else { unreachable!("{hello:?}") };
        let to = Sender::connect(listens_at).expect("it listens");
        let received = Vec::new();
        let mut harness = Self { process, to, from, lifeline, received, wait_for_heartbeats: 0 };
        harness.wait_for(|message| matches!(message, FromWorker::Ready { .. }).then_some(()));
        Some(harness)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    pub(crate) fn say(&self, message: &ToWorker) {
        self.to.send(message).expect("the worker receive");
    }

    /// The first message, past or future, from which `find` makes a result.
    pub(crate) fn wait_for<T>(&mut self, find: impl Fn(&FromWorker) -> Option<T>) -> T {
        let until = clock::now() + TIMEOUT;
        let mut at = 0;
        loop {
            if let Some(found) = self.received[at..].iter().find_map(&find) {
                return found;
            }
            at = self.received.len();
            let listened = self.receive(until);
            assert!(listened.is_ok(), "{listened:?}: {}: {:?}", self.errors(), self.received);
        }
    }

    /// Waits for its next message.
    fn receive(&mut self, until: Instant) -> Result<(), ChannelError> {
        let heard = self.from.recv_until(until)?;
        let is_in_time = heard.is_some() && !clock::until(until).is_zero();
        assert!(is_in_time, "it received nothing of the kind: {:?}", self.received);
        match heard {
            Some(FromWorker::Heartbeat { .. }) => self.wait_for_heartbeats += 1,
            heard => self.received.extend(heard),
        }
        Ok(())
    }

    /// Waits for this many heartbeats.
    pub(crate) fn wait_for_heartbeats(&mut self, count: u32) {
        let until = clock::now() + TIMEOUT;
        let enough = self.wait_for_heartbeats + count;
        while self.wait_for_heartbeats < enough {
            self.receive(until).expect("it lives");
        }
    }

    /// Sends a request; its attempt is `attempt(job)`.
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
        let (input, output) = (Input::Inline(Inline(pack(inputs))), Destination::Inline);
        let assignment = Assignment {
            attempt: attempt(job),
            client: ClientId(client),
            priority: Priority::Normal,
            payload: Payload { packing: Packing::Tensors, input, output },
            shard: ItemRange { start: 0, end: 1 },
            deadline_ms,
            trace: None,
            chaos: None,
        };
        let work = Work::Model { name: model.to_owned() };
        let assignments = vec![assignment];
        self.say(&ToWorker::Dispatch(Box::new(Dispatch { work, assignments })));
    }

    pub(crate) fn cancel(&self, jobs: &[u64]) {
        for &job in jobs {
            let message = OnLifeline::Cancel { attempt: attempt(job) };
            let frame = frame::of(&message, 0).expect("it fits a frame");
            let written = (&self.lifeline).write_all(&frame);
            written.expect("the worker reads");
        }
    }

    /// The answer to `attempt(job)`.
    pub(crate) fn answer(&mut self, job: u64) -> Result<Vec<Full>, AttemptError> {
        let answer = self.wait_for(|message| answer_to(message, job).cloned());
        answer.map(|answer| unpack(&answer.output.expect("it was to come inline").0))
    }

    /// The number of answers to `attempt(job)` so far.
    pub(crate) fn answers(&self, job: u64) -> usize {
        self.received.iter().filter(|message| answer_to(message, job).is_some()).count()
    }

    /// Sends a command.
    pub(crate) fn send_command(&self, number: u64, command: ModelCommand) {
        self.say(&ToWorker::Model { number, command: Box::new(command) });
    }

    /// Waits for the result of a command.
    pub(crate) fn command_result(&mut self, number: u64) -> Result<(), String> {
        self.wait_for(|message| command_result(message, number))
    }

    /// Sends a command and waits for its result.
    pub(crate) fn run_command(&mut self, number: u64, command: ModelCommand) -> Result<(), String> {
        self.send_command(number, command);
        self.command_result(number)
    }

    /// The index of the first such message.
    pub(crate) fn position(&self, is_it: impl Fn(&FromWorker) -> bool) -> usize {
        self.received.iter().position(is_it).expect("it has received so")
    }

    /// The models that it has listed last.
    pub(crate) fn models(&self) -> &[ModelInfo] {
        self.received.iter().rev().find_map(models).expect("they come before READY")
    }

    /// The names of the models that it has listed last.
    pub(crate) fn names(&self) -> Vec<&str> {
        self.models().iter().map(|model| model.name.as_str()).collect()
    }

    /// Sends stop; returns its exit code.
    pub(crate) fn stop(mut self) -> Option<i32> {
        self.say(&ToWorker::Stop);
        self.end()
    }

    /// Reads its messages to the end; returns its exit code.
    pub(crate) fn end(&mut self) -> Option<i32> {
        let until = clock::now() + TIMEOUT;
        let ended = loop {
            if let Err(error) = self.receive(until) {
                break error;
            }
        };
        assert!(matches!(ended, ChannelError::Disconnected), "{ended}");
        self.process.wait().expect("it is this process's child").code()
    }

    /// Its standard error, if it has ended.
    fn errors(&mut self) -> String {
        let mut text = String::new();
        if let Some(errors) = &mut self.process.stderr {
            errors.read_to_string(&mut text).expect("its end");
        }
        text
    }
}

impl Drop for TestWorker {
    fn drop(&mut self) {
        // It may have ended already.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// The attempt that a message answers, and the answer.
pub(crate) fn answered(
    message: &FromWorker,
) -> Option<(AttemptId, &Result<AttemptAnswer, AttemptError>)> {
    let FromWorker::Answer { attempt, result } = message else { return None };
    Some((*attempt, result))
}

fn answer_to(message: &FromWorker, job: u64) -> Option<&Result<AttemptAnswer, AttemptError>> {
    answered(message).filter(|(of, _)| *of == attempt(job)).map(|(_, result)| result)
}

pub(crate) fn is_answer_to(message: &FromWorker, job: u64) -> bool {
    answer_to(message, job).is_some()
}

/// The result of command `number`, if the message has it.
pub(crate) fn command_result(message: &FromWorker, number: u64) -> Option<Result<(), String>> {
    let FromWorker::CommandEnded { number: own, result } = message else { return None };
    (*own == number).then(|| result.clone())
}

fn models(message: &FromWorker) -> Option<&[ModelInfo]> {
    let FromWorker::Models { models } = message else { return None };
    Some(models)
}
