//! Shared by the tests of the engine: an engine, and a waiter for an answer.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};

use gridpool_infer::{
    Answer, Destination, Engine, InferError, ModelOptions, Placed, Request, RequestError, Source,
    Ticket,
};
use gridpool_protocol::message::Priority;
use gridpool_protocol::tensor::DataType;
use gridpool_protocol::tensor::model::ModelInfo;

use crate::tensors::{Full, TIMEOUT, device, model, pack, runtime, unpack};

/// An engine without models.
pub(crate) fn engine() -> Option<Engine> {
    Some(Engine::new(runtime()?, device()))
}

/// Loads a model of `tests/data/models` under its own name.
pub(crate) fn load(engine: &Engine, name: &str, options: &ModelOptions) -> ModelInfo {
    engine.load(name, &model(name), options).expect("the model loads")
}

/// Options with this number of contexts.
pub(crate) fn contexts(contexts: u32) -> ModelOptions {
    ModelOptions { contexts: contexts.into(), ..ModelOptions::default() }
}

impl Full {
    pub(crate) fn fp32(&self) -> Vec<f32> {
        assert_eq!(self.datatype, DataType::Fp32, "{}", self.name);
        self.bytes.as_chunks().0.iter().map(|&number| f32::from_le_bytes(number)).collect()
    }

    pub(crate) fn int64(&self) -> Vec<i64> {
        assert_eq!(self.datatype, DataType::Int64, "{}", self.name);
        self.bytes.as_chunks().0.iter().map(|&number| i64::from_le_bytes(number)).collect()
    }
}

/// Waits for one answer.
pub(crate) struct Waiter {
    pub(crate) ticket: Ticket,
    answer: Receiver<Result<Answer, InferError>>,
}

impl Waiter {
    pub(crate) fn wait(self) -> Result<Answer, InferError> {
        let answer = self.answer.recv_timeout(TIMEOUT).expect("every request is answered");
        assert!(self.answer.try_recv().is_err(), "a second answer");
        answer
    }

    /// The outputs.
    pub(crate) fn outputs(self) -> Vec<Full> {
        outputs(&self.wait().expect("the run succeeds"))
    }
}

pub(crate) fn outputs(answer: &Answer) -> Vec<Full> {
    let inline = match &answer.outputs {
        Placed::Inline(bytes) => Some(bytes),
        Placed::InArena(_) => None,
    };
    unpack(inline.expect("they were to come with the answer"))
}

/// A request whose answer `done` takes.
pub(crate) fn request(
    model: &str,
    inputs: &[Full],
    done: impl FnOnce(Result<Answer, InferError>) + Send + 'static,
) -> Request {
    Request {
        model: model.to_owned(),
        client: 1,
        priority: Priority::Normal,
        inputs: Source::Inline(Arc::from(pack(inputs))),
        outputs: Destination::Answer,
        deadline: None,
        done: Box::new(done),
    }
}

/// Submits a request after `change` has changed it.
pub(crate) fn submit_with(
    engine: &Engine,
    model: &str,
    inputs: &[Full],
    change: impl FnOnce(Request) -> Request,
) -> Result<Waiter, RequestError> {
    let (sender, answer) = mpsc::channel();
    // The waiter is gone if its test has failed.
    let done = move |answer| drop(sender.send(answer));
    let ticket = engine.submit(change(request(model, inputs, done)))?;
    Ok(Waiter { ticket, answer })
}

pub(crate) fn submit(
    engine: &Engine,
    model: &str,
    inputs: &[Full],
) -> Result<Waiter, RequestError> {
    submit_with(engine, model, inputs, |request| request)
}

/// Sends a request and waits for its outputs.
pub(crate) fn ask(engine: &Engine, model: &str, inputs: &[Full]) -> Vec<Full> {
    submit(engine, model, inputs).expect("the request is accepted").outputs()
}

/// Keeps the thread of a context busy until it is dropped. Requests submitted meanwhile wait, so that tests
/// know which of them are joined.
pub(crate) struct BlockedContext(mpsc::Sender<()>);

impl BlockedContext {
    /// Sends a request to a model with one context, and blocks the thread that answers.
    pub(crate) fn one(engine: &Engine, model: &str, inputs: &[Full]) -> Self {
        let (go, gone) = mpsc::channel::<()>();
        let (here, held) = mpsc::channel();
        let done = move |_| {
            here.send(()).expect("the test waits for it");
            // An error means that the test's end was dropped.
            gone.recv_timeout(TIMEOUT).unwrap_or_default();
        };
        engine.submit(request(model, inputs, done)).expect("the request is accepted");
        held.recv_timeout(TIMEOUT).expect("the thread comes");
        Self(go)
    }

    pub(crate) fn let_go(self) {
        self.0.send(()).expect("it is held");
    }
}

/// Asserts that every number is within `tolerance` of `want`.
#[track_caller]
pub(crate) fn close(got: &[f32], want: &[f32], tolerance: f32) {
    assert_eq!(got.len(), want.len());
    for (at, (got, want)) in got.iter().zip(want).enumerate() {
        assert!((got - want).abs() <= tolerance, "{at}: {got} instead of {want}");
    }
}
