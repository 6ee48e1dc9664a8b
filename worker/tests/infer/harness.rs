//! What every test of inference needs: an engine, tensors, and somebody who waits for an answer.

use std::env;
use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use gridpool_protocol::ids::DeviceKind;
use gridpool_protocol::tensor::model::ModelInfo;
use gridpool_protocol::tensor::{DataType, Packed, Tensor, TensorLayout};
use gridpool_worker::infer::library::Places;
use gridpool_worker::infer::{
    Answer, Destination, Engine, InferError, LibraryError, ModelOptions, Placed, Request,
    RequestError, Runtime, Source, Ticket,
};

/// With it, a machine without ONNX Runtime fails.
pub(crate) const REQUIRED: &str = "GRIDPOOL_REQUIRE_ONNXRUNTIME";
/// `gpu` where the tests are to run on one.
const DEVICE: &str = "GRIDPOOL_INFER_DEVICE";
/// How long an answer may take on the slowest machine that runs these.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);
/// Threads of the CPU's part of models.
const THREADS: usize = 2;

/// The one ONNX Runtime of this process.
static RUNTIME: LazyLock<Option<Runtime>> =
    LazyLock::new(|| match Runtime::find(&Places::here(None), THREADS) {
        Err(error @ LibraryError::NotFound { .. }) => {
            assert!(env::var_os(REQUIRED).is_none(), "{error}");
            None
        }
        found => Some(found.expect("a library that was found")),
    });

/// ONNX Runtime, or `None` where there is none and none is required.
#[expect(clippy::print_stdout, reason = "a test that was skipped says so")]
pub(crate) fn runtime() -> Option<Runtime> {
    if RUNTIME.is_none() {
        println!("skipped: no ONNX Runtime (pip install onnxruntime)");
    }
    RUNTIME.clone()
}

/// Where the tests run.
pub(crate) fn device() -> DeviceKind {
    let named = env::var(DEVICE).unwrap_or_else(|_| "cpu".to_owned());
    assert!(["cpu", "gpu"].contains(&named.as_str()), "{DEVICE}={named}: write cpu or gpu");
    if named == "gpu" { DeviceKind::Gpu } else { DeviceKind::Cpu }
}

/// An engine without models.
pub(crate) fn engine() -> Option<Engine> {
    Some(Engine::new(runtime()?, device()))
}

/// A model of `tests/data/models`.
pub(crate) fn model(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/data/models");
    folder.join(format!("{name}.onnx"))
}

/// Loads a model of `tests/data/models` under its own name.
pub(crate) fn load(engine: &Engine, name: &str, options: &ModelOptions) -> ModelInfo {
    engine.load(name, &model(name), options).expect("the model loads")
}

/// With so many contexts.
pub(crate) fn contexts(contexts: u32) -> ModelOptions {
    ModelOptions { contexts, ..ModelOptions::default() }
}

/// A tensor with its data.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Full {
    pub(crate) name: String,
    pub(crate) datatype: DataType,
    pub(crate) shape: Vec<u64>,
    pub(crate) bytes: Vec<u8>,
}

pub(crate) fn full(name: &str, datatype: DataType, shape: &[u64], bytes: &[u8]) -> Full {
    Full { name: name.to_owned(), datatype, shape: shape.to_vec(), bytes: bytes.to_vec() }
}

pub(crate) fn fp32(name: &str, shape: &[u64], numbers: &[f32]) -> Full {
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    full(name, DataType::Fp32, shape, &bytes)
}

pub(crate) fn int64(name: &str, shape: &[u64], numbers: &[i64]) -> Full {
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    full(name, DataType::Int64, shape, &bytes)
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

/// Numbers between -1 and 1 that look irregular, the same for the same seed.
pub(crate) fn irregular(seed: u64, count: usize) -> Vec<f32> {
    let number = |at: u64| {
        let mixed = (seed * 1_000_003 + at + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        f32::from(u16::try_from(mixed & 0xffff).expect("16 bits")) / 32_768.0 - 1.0
    };
    (0..count as u64).map(number).collect()
}

pub(crate) fn pack(tensors: &[Full]) -> Vec<u8> {
    let new = |full: &Full| Tensor::new(&full.name, full.datatype, full.shape.clone());
    let layout = tensors.iter().map(new).collect::<Result<Vec<_>, _>>().and_then(TensorLayout::new);
    let data: Vec<_> = tensors.iter().map(|full| &full.bytes[..]).collect();
    layout.and_then(|layout| layout.pack(&data)).expect("a small set of tensors")
}

pub(crate) fn unpack(bytes: &[u8]) -> Vec<Full> {
    let packed = Packed::read(bytes).expect("the engine packs what can be read");
    let tensors = packed.layout().tensors().iter().enumerate();
    tensors.map(|(at, t)| full(t.name(), t.datatype(), t.shape(), packed.data(at))).collect()
}

/// Somebody who waits for one answer.
pub(crate) struct Waiter {
    pub(crate) ticket: Ticket,
    answer: Receiver<Result<Answer, InferError>>,
}

impl Waiter {
    pub(crate) fn wait(self) -> Result<Answer, InferError> {
        let answer = self.answer.recv_timeout(PATIENCE).expect("every request is answered");
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
        inputs: Source::Inline(Arc::from(pack(inputs))),
        outputs: Destination::Answer,
        deadline: None,
        done: Box::new(done),
    }
}

/// Submits what `change` makes of a request.
pub(crate) fn submit_with(
    engine: &Engine,
    model: &str,
    inputs: &[Full],
    change: impl FnOnce(Request) -> Request,
) -> Result<Waiter, RequestError> {
    let (sender, answer) = mpsc::channel();
    // A test that has failed waits for nobody.
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

/// Asks and waits.
pub(crate) fn ask(engine: &Engine, model: &str, inputs: &[Full]) -> Vec<Full> {
    submit(engine, model, inputs).expect("the request is accepted").outputs()
}

/// Keeps the thread of a context busy until it is let go: what is submitted meanwhile waits, so that
/// what joins what is no matter of luck.
pub(crate) struct Held(mpsc::Sender<()>);

impl Held {
    /// Asks a model of one context, and holds the thread that answers.
    pub(crate) fn one(engine: &Engine, model: &str, inputs: &[Full]) -> Self {
        let (go, gone) = mpsc::channel::<()>();
        let (here, held) = mpsc::channel();
        let done = move |_| {
            here.send(()).expect("somebody waits for it");
            // An error is the end of whoever held it.
            gone.recv_timeout(PATIENCE).unwrap_or_default();
        };
        engine.submit(request(model, inputs, done)).expect("the request is accepted");
        held.recv_timeout(PATIENCE).expect("the thread comes");
        Self(go)
    }

    pub(crate) fn let_go(self) {
        self.0.send(()).expect("it is held");
    }
}

/// Asserts that every number is that of `want`, but for `tolerance`.
#[track_caller]
pub(crate) fn close(got: &[f32], want: &[f32], tolerance: f32) {
    assert_eq!(got.len(), want.len());
    for (at, (got, want)) in got.iter().zip(want).enumerate() {
        assert!((got - want).abs() <= tolerance, "{at}: {got} instead of {want}");
    }
}
