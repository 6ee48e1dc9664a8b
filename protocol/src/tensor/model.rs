//! The description of a model, and the report of a request. `--json` prints these types, so field names are part
//! of the interface. The wire format is not self-describing, so never skip or flatten a field.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{ANY_SIZE, Tensor, TensorLayout, TensorSpec};
use crate::limits::MODEL_NAME_BYTES_MAX;
use crate::named::named;

named! {
    /// Whether a model accepts requests. The names are those of the Open Inference Protocol.
    pub enum ModelState {
        /// It is loaded, and a run of it on the device has succeeded.
        Ready = "READY",
        /// It could not be loaded. [`ModelInfo::reason`] has the reason.
        Unavailable = "UNAVAILABLE",
    }
}

/// The number of nodes of a model's graph that an execution provider runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProviderNodes {
    /// ONNX Runtime's name of the provider: `CUDAExecutionProvider`.
    pub provider: String,
    /// Nodes of the optimised graph.
    pub nodes: u32,
}

impl ProviderNodes {
    /// All providers of a graph: `CUDAExecutionProvider 53, CPUExecutionProvider 2`.
    #[must_use]
    pub fn list(rows: &[Self]) -> String {
        let row = |row: &Self| format!("{} {}", row.provider, row.nodes);
        rows.iter().map(row).collect::<Vec<_>>().join(", ")
    }
}

/// What a worker measured with a number of contexts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContextsMeasured {
    /// Contexts that ran at the same time.
    pub contexts: u32,
    /// Runs of all of them in a minute. A run has the shapes of the warm-up.
    pub runs_per_minute: u64,
    /// The time within which 99 of 100 runs ended, microseconds.
    pub p99_us: u64,
}

/// Prints `4 contexts: 300 runs/s, p99 14 ms`.
impl fmt::Display for ContextsMeasured {
    #[expect(clippy::cast_precision_loss, reason = "numbers that are rounded for people")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { contexts, runs_per_minute, p99_us } = self;
        let s = if *contexts == 1 { "" } else { "s" };
        let (rate, ms) = (*runs_per_minute as f64 / 60.0, *p99_us as f64 / 1e3);
        let digits = |number: f64| if number < 10.0 { 2 } else { usize::from(number < 100.0) };
        let (few, fewer) = (digits(rate), digits(ms));
        write!(f, "{contexts} context{s}: {rate:.few$} runs/s, p99 {ms:.fewer$} ms")
    }
}

impl ContextsMeasured {
    /// All rows in a line.
    #[must_use]
    pub fn list(rows: &[Self]) -> String {
        rows.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    }
}

/// A step of a pipeline on a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepInfo {
    /// Its name.
    pub name: String,
    /// Its model, as the pipeline names it; none for a program.
    pub model: Option<String>,
    /// The text of its program over grids; none for a model.
    pub program: Option<String>,
    /// SHA-256 of the model's file, or the hash of the program and of the size of its results.
    pub sha256: String,
    /// For each of its own inputs, the wire that it takes: `image`, `detect.boxes`.
    pub inputs: Vec<(String, String)>,
    /// The outputs that the pipeline uses.
    pub outputs: Vec<TensorSpec>,
    /// The number of nodes that each provider runs; none for a program.
    pub nodes: Vec<ProviderNodes>,
}

/// A model on a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelInfo {
    /// Its full name: `mlp`, or `mlp:2` for version 2.
    pub name: String,
    /// SHA-256 of its file; empty if the file could not be read.
    pub sha256: String,
    /// Version of ONNX Runtime.
    pub onnxruntime: String,
    /// Its inputs.
    pub inputs: Vec<TensorSpec>,
    /// Its outputs.
    pub outputs: Vec<TensorSpec>,
    /// Most rows of one run; 1 if requests are never joined.
    pub max_batch: u32,
    /// Its contexts: the number of runs that may overlap.
    pub contexts: u32,
    /// With `contexts = "auto"`: what the worker measured before it chose. Empty if the number was known.
    pub contexts_measured: Vec<ContextsMeasured>,
    /// The number of nodes that each provider runs.
    pub nodes: Vec<ProviderNodes>,
    /// Device memory, bytes: of the model, and the most that each context used in warm-up; 0 if unknown.
    pub device_bytes: u64,
    /// The CUDA graphs that each of its contexts had when it was loaded; 0 unless it asks for them, and on a CPU.
    pub cuda_graphs: u32,
    /// The shape of each input in the warm-up run. A probe sends zeros of these shapes.
    #[serde(rename = "trial_shapes")]
    pub warm_up_shapes: Vec<Vec<u64>>,
    /// Its steps in the order in which they run; none if it is one model.
    pub steps: Vec<StepInfo>,
    /// Whether it accepts requests.
    pub state: ModelState,
    /// The reason if it does not, else empty.
    pub reason: String,
}

impl ModelInfo {
    /// The description of a model whose file could not be read.
    #[must_use]
    pub fn unavailable(name: &str, reason: String) -> Self {
        Self {
            name: name.to_owned(),
            sha256: String::new(),
            onnxruntime: String::new(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            max_batch: 1,
            contexts: 0,
            contexts_measured: Vec::new(),
            nodes: Vec::new(),
            device_bytes: 0,
            cuda_graphs: 0,
            warm_up_shapes: Vec::new(),
            steps: Vec::new(),
            state: ModelState::Unavailable,
            reason,
        }
    }

    /// The size of the packed outputs for these inputs, bytes. `None` unless the model fixes every dimension of
    /// every output and how many there are, except for a first one that the inputs choose, and none is BYTES.
    #[must_use]
    pub fn output_bytes(&self, inputs: &[Tensor]) -> Option<u64> {
        let free = |spec: &&TensorSpec| spec.shape.first() == Some(&ANY_SIZE);
        let named = |spec: &TensorSpec| inputs.iter().find(|tensor| tensor.name() == spec.name);
        let rows = self.inputs.iter().find(free).and_then(named);
        let rows = rows.and_then(|tensor| tensor.shape().first().copied());
        if self.outputs.iter().any(|spec| spec.any_rank || spec.is_text()) {
            return None;
        }
        let given = |spec: &TensorSpec| {
            let side = |(axis, &side): (usize, &i64)| match u64::try_from(side) {
                Ok(side) => Some(side),
                Err(_) if axis == 0 => rows,
                Err(_) => None,
            };
            let shape = spec.shape.iter().enumerate().map(side).collect::<Option<_>>()?;
            Tensor::new(spec.name.clone(), spec.datatype, shape).ok()
        };
        let outputs = self.outputs.iter().map(given).collect::<Option<_>>()?;
        Some(TensorLayout::new(outputs).ok()?.bytes() as u64)
    }
}

/// How a model's request ran: the additional part of its receipt.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct InferReport {
    /// The model's full name: `mlp`, or `mlp:2` for version 2.
    pub model: String,
    /// SHA-256 of its file.
    pub sha256: String,
    /// Version of ONNX Runtime.
    pub onnxruntime: String,
    /// The number of nodes that each provider ran, in each run.
    pub nodes: Vec<ProviderNodes>,
    /// The number of runs: more than one if the request had more rows than a run may have.
    pub runs: u32,
    /// How many of those runs were replays of CUDA graphs.
    pub graph_replays: u32,
    /// Rows of all those runs, those of other requests included. For a model without rows, the number of runs.
    pub joined_rows: u32,
    /// Time of those runs by the worker's clock, microseconds. It includes copies and nodes that run on the host.
    /// Device time is not measured.
    pub device_us: f64,
    /// Bytes of its own inputs.
    pub h2d_bytes: u64,
    /// Bytes of its own outputs.
    pub d2h_bytes: u64,
    /// What each step of a pipeline did in those runs, in the order in which they ran; none for one model.
    pub steps: Vec<StepReport>,
}

/// What a step of a pipeline did, in all runs of a request: those of other requests that shared them included.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StepReport {
    /// The step.
    pub name: String,
    /// SHA-256 of its model's file, or the hash of its program and of the size of its results.
    pub sha256: String,
    /// Its time, microseconds: device time from CUDA events on a GPU, else by the worker's clock.
    pub device_us: f64,
    /// Bytes of other steps' outputs that it took where they lay, in the device's memory. On a CPU device that is
    /// the memory of the host.
    pub device_bytes: u64,
    /// Bytes of other steps' outputs that crossed the host's memory on the way to it, because a node on the CPU of
    /// a GPU device makes or takes them. It is 0 unless `cpu_ops` allows such nodes, and on a CPU device.
    pub host_bytes: u64,
}

/// A text that cannot be the name of a model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{name}` cannot be the name of a model: write 1 to {MODEL_NAME_BYTES_MAX} letters, digits, `-`, `_` or `.`, \
     the first a letter or a digit; for a certain version add `:` and its number"
)]
pub struct ModelNameError {
    name: String,
}

impl ModelNameError {
    pub(super) fn new(name: &str) -> Self {
        Self { name: name.to_owned() }
    }
}

/// Checks the name of a model, which appears in HTTP paths and in labels of metrics.
///
/// # Errors
/// [`ModelNameError`] if it is invalid.
pub fn check_model_name(name: &str) -> Result<(), ModelNameError> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let starts = name.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
    if starts && name.len() <= MODEL_NAME_BYTES_MAX && name.bytes().all(plain) {
        return Ok(());
    }
    Err(ModelNameError::new(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec;
    use crate::tensor::DataType;

    fn info() -> ModelInfo {
        ModelInfo {
            name: "m".into(),
            sha256: "00".into(),
            onnxruntime: "1.31.1".into(),
            inputs: vec![TensorSpec::new("x", DataType::Bf16, [-1, 3])],
            outputs: Vec::new(),
            max_batch: 32,
            contexts: 4,
            contexts_measured: vec![ContextsMeasured {
                contexts: 4,
                runs_per_minute: 18_030,
                p99_us: 1_500,
            }],
            nodes: vec![ProviderNodes { provider: "CUDAExecutionProvider".into(), nodes: 7 }],
            device_bytes: 1 << 40,
            cuda_graphs: 2,
            warm_up_shapes: vec![vec![1, 3]],
            steps: Vec::new(),
            state: ModelState::Unavailable,
            reason: "why".into(),
        }
    }

    #[test]
    fn names_of_models_can_stand_in_a_path() {
        let long = "m".repeat(MODEL_NAME_BYTES_MAX);
        for name in ["resnet50", "a", "bert-base_v2.1", "0", &long] {
            assert_eq!(check_model_name(name), Ok(()), "{name}");
        }
        let longer = format!("{long}m");
        for name in ["", ".", "..", "-x", "a/b", "a b", "é", "a\n", &longer] {
            let error = check_model_name(name).unwrap_err();
            assert!(error.to_string().contains("cannot be the name of a model"), "{error}");
        }
    }

    #[test]
    fn the_size_of_outputs_is_known_where_only_the_first_dimension_is_free() {
        let given = [Tensor::new("x", DataType::Fp32, vec![5, 3]).unwrap()];
        let bytes = |inputs: &[i64], outputs: &[&[i64]]| {
            let spec = |name: String, shape: &[i64]| TensorSpec::new(name, DataType::Fp32, shape);
            let outputs = outputs.iter().enumerate();
            let outputs = outputs.map(|(at, shape)| spec(format!("y{at}"), shape)).collect();
            let inputs = vec![spec("x".into(), inputs)];
            ModelInfo { inputs, outputs, ..info() }.output_bytes(&given)
        };
        let packed = |shapes: &[&[u64]]| {
            let tensor = |(at, shape): (usize, &&[u64])| {
                Tensor::new(format!("y{at}"), DataType::Fp32, shape.to_vec()).unwrap()
            };
            let tensors = shapes.iter().enumerate().map(tensor).collect();
            Some(TensorLayout::new(tensors).unwrap().bytes() as u64)
        };
        assert_eq!(bytes(&[-1, 3], &[&[-1, 7], &[-1], &[]]), packed(&[&[5, 7], &[5], &[]]));
        assert_eq!(bytes(&[5, 3], &[&[2, 2]]), packed(&[&[2, 2]]));
        assert_eq!(bytes(&[5, 3], &[&[-1, 2]]), None, "no input says how many rows");
        assert_eq!(bytes(&[-1, 3], &[&[2, 2], &[-1, -1]]), None);
        assert_eq!(bytes(&[-1, 3], &[&[-1, 1 << 33]]), None, "beyond every limit");
        let open = TensorSpec { any_rank: true, ..TensorSpec::new("y", DataType::Fp32, []) };
        let open = ModelInfo { outputs: vec![open], ..info() };
        assert_eq!(open.output_bytes(&given), None, "it is no single number");
    }

    #[test]
    fn what_is_known_of_a_model_survives_the_wire_and_reads_as_json() {
        let info = info();
        let bytes = codec::encode(&info).unwrap();
        assert_eq!(codec::decode::<ModelInfo>(&bytes).unwrap(), info);
        let said = ContextsMeasured::list(&info.contexts_measured);
        assert_eq!(said, "4 contexts: 300 runs/s, p99 1.50 ms");
        let json = serde_json::to_value(&info).unwrap();
        assert_eq!(json["state"], ModelState::Unavailable.name());
        assert_eq!(json["inputs"][0]["datatype"], "BF16");
        assert_eq!(serde_json::to_value(ModelState::Ready).unwrap(), ModelState::Ready.name());
    }
}
