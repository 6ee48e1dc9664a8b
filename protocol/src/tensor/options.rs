//! The options of a model: contexts, memory, rows of a run, warm-up, providers.

mod error;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::codec;
use crate::ids::{DeviceKind, Role};
use crate::limits::{
    MODEL_BATCH_MAX, MODEL_CONTEXTS_MAX, MODEL_NAME_BYTES_MAX, MODEL_PLAN_BYTES_MAX,
    MODEL_QUEUE_DELAY_US_MAX,
};
use crate::named::named;
use crate::tensor::Contexts;
use crate::tensor::model::check_model_name;
use crate::tensor::pipeline::{Pipeline, PipelineError};
use crate::tensor::placement::Placement;
use crate::tensor::{ANY_SIZE, TensorSpec};
pub use error::{ChangedFile, OptionsError, OtherTensors};

/// Default for the most rows of one run.
pub const MAX_BATCH_DEFAULT: u32 = 32;
/// Default for the most waiting requests of one model.
pub const QUEUE_REQUESTS_DEFAULT: usize = 1_024;
/// Default for the most bytes of waiting inputs of one model.
pub const QUEUE_BYTES_DEFAULT: u64 = 4 << 30;

named! {
    /// An execution provider of ONNX Runtime.
    pub enum Provider {
        /// The CPU. On a GPU device it runs only the allowed ops.
        Cpu = "cpu",
        /// NVIDIA GPUs, by ONNX Runtime's kernels, cuDNN and cuBLAS.
        Cuda = "cuda",
        /// NVIDIA GPUs, by engines that TensorRT builds.
        TensorRt = "tensorrt",
    }
}

impl Provider {
    /// ONNX Runtime's name.
    #[must_use]
    pub fn runtime_name(self) -> &'static str {
        match self {
            Self::Cpu => "CPUExecutionProvider",
            Self::Cuda => "CUDAExecutionProvider",
            Self::TensorRt => "TensorrtExecutionProvider",
        }
    }
}

/// A text that does not name a provider.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a provider: write tensorrt, cuda or cpu")]
pub struct ParseProviderError {
    text: String,
}

impl FromStr for Provider {
    type Err = ParseProviderError;

    fn from_str(text: &str) -> Result<Self, ParseProviderError> {
        Self::from_name(text).ok_or_else(|| ParseProviderError { text: text.to_owned() })
    }
}

/// Inputs and outputs that a model must have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ListedTensors {
    /// All inputs; if none is listed, any.
    pub inputs: Vec<TensorSpec>,
    /// Some of the outputs.
    pub outputs: Vec<TensorSpec>,
}

/// The options of a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ModelOptions {
    /// Contexts: the number of runs that may overlap, or `"auto"`: a worker measures how many serve most.
    pub contexts: Contexts,
    /// With `contexts = "auto"`: the longest that 99 of 100 runs may take, milliseconds.
    pub latency_ms: Option<u32>,
    /// Most bytes of device memory that it and all its contexts may take.
    pub device_bytes: Option<u64>,
    /// Most rows of one run; with 1, requests are never joined.
    pub max_batch: Option<u32>,
    /// Longest time in microseconds that a request waits for others to join it, when it could start.
    pub max_queue_delay_us: u64,
    /// Numbers of rows: a run that has one of them starts at once, and without the requests beyond it.
    pub preferred_batch: BTreeSet<u32>,
    /// Warm-up runs of every context before the model is READY: a shape for each input, by name.
    pub warm_up: Vec<BTreeMap<String, Vec<u64>>>,
    /// Ops that may run on the CPU of a GPU device: `Shape`, `Gather`.
    pub cpu_ops: BTreeSet<String>,
    /// The providers, in order of preference. If empty, `cuda` on a GPU device.
    pub providers: Vec<Provider>,
    /// Whether a GPU may multiply FP32 as TF32, which is faster but has 10 bits of mantissa instead of 23.
    pub tf32: bool,
    /// Whether a GPU replays its runs as CUDA graphs: one for each shape of its inputs, in each context.
    pub cuda_graphs: bool,
    /// Most waiting requests.
    pub queue_requests: usize,
    /// Most bytes of waiting inputs.
    pub queue_bytes: u64,
    /// The models that share its worker processes: those of this group. Without one, none does that does not name it.
    pub group: Option<String>,
    /// The devices that have it, such as `[0, 2]` for GPUs or `["cpu1"]`. Without them, all of the pool.
    pub devices: Option<Placement>,
    /// How many of those devices have it: the ones with the most memory left when it is loaded. Without one, all.
    pub device_count: Option<u32>,
    /// Whether earlier versions of its name stay loaded when it takes over.
    pub keep: bool,
    /// Longest time in seconds that a change which loads it may take, over all devices. Without one, `load_timeout`.
    pub load_timeout_s: Option<u32>,
    /// The inputs and outputs that the file must have, by name, type and shape, -1 for any size.
    pub tensors: Option<Box<ListedTensors>>,
    /// SHA-256 that the file must have. Without one, that of the file that a worker loads first.
    pub sha256: Option<String>,
    /// Its steps, if it is a pipeline. Then its file is the one that describes it, and workers do not read that.
    pub pipeline: Option<Box<Pipeline>>,
}

impl Default for ModelOptions {
    fn default() -> Self {
        Self {
            contexts: Contexts::Fixed(1),
            latency_ms: None,
            device_bytes: None,
            max_batch: None,
            max_queue_delay_us: 0,
            preferred_batch: BTreeSet::new(),
            warm_up: Vec::new(),
            cpu_ops: BTreeSet::new(),
            providers: Vec::new(),
            tf32: false,
            cuda_graphs: false,
            queue_requests: QUEUE_REQUESTS_DEFAULT,
            queue_bytes: QUEUE_BYTES_DEFAULT,
            group: None,
            devices: None,
            device_count: None,
            keep: false,
            load_timeout_s: None,
            tensors: None,
            sha256: None,
            pipeline: None,
        }
    }
}

/// A model that every inference worker of a pool loads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelPlan {
    /// Its full name: `mlp`, or `mlp:2` for version 2. If an operator asks for a load, `mlp` is the next version.
    pub name: String,
    /// Its file.
    pub path: PathBuf,
    /// Its options.
    pub options: ModelOptions,
}

impl ModelPlan {
    /// The group whose workers have it: by default one of its full name, to itself.
    #[must_use]
    pub fn group(&self) -> &str {
        self.options.group.as_deref().unwrap_or(&self.name)
    }

    /// Checks that every number is within its limit, and that the plan fits a message and a command line.
    ///
    /// # Errors
    /// The first [`OptionsError`].
    pub fn check(&self) -> Result<(), OptionsError> {
        self.options.check()?;
        let group = self.group();
        let explicit =
            self.options.group.as_deref().is_some_and(|own| check_model_name(own).is_err());
        if group == Role::Grid.name() || explicit {
            return Err(OptionsError::Group { group: group.to_owned() });
        }
        let bytes = codec::encode(self).map_or(usize::MAX, |plan| plan.len());
        match bytes > MODEL_PLAN_BYTES_MAX {
            true => Err(OptionsError::TooLong { bytes }),
            false => Ok(()),
        }
    }
}

/// Whether a text is what `sha256sum` prints.
pub(crate) fn is_sha256(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
}

impl ModelOptions {
    /// Checks that every number is within its limit.
    ///
    /// # Errors
    /// The first [`OptionsError`].
    pub fn check(&self) -> Result<(), OptionsError> {
        if let Some(contexts) = self.contexts.fixed() {
            check_contexts(contexts)?;
        }
        if self.latency_ms == Some(0) {
            return Err(OptionsError::Latency);
        }
        let max_batch = self.max_batch.unwrap_or(MAX_BATCH_DEFAULT);
        if max_batch == 0 || max_batch > MODEL_BATCH_MAX {
            return Err(OptionsError::MaxBatch { max_batch });
        }
        if self.max_queue_delay_us > MODEL_QUEUE_DELAY_US_MAX {
            return Err(OptionsError::QueueDelay { us: self.max_queue_delay_us });
        }
        if max_batch == 1 && self.waits_for_rows() {
            return Err(OptionsError::NothingToJoin);
        }
        let fits = |rows: &&u32| (1..=max_batch).contains(*rows);
        if let Some(&rows) = self.preferred_batch.iter().find(|rows| !fits(rows)) {
            return Err(OptionsError::PreferredBatch { rows, max_batch });
        }
        if self.queue_requests == 0 || self.queue_bytes == 0 {
            return Err(OptionsError::Queue);
        }
        if let Some(text) = self.sha256.as_ref().filter(|text| !is_sha256(text)) {
            return Err(OptionsError::Sha256 { text: text.clone() });
        }
        if self.device_count == Some(0) {
            return Err(OptionsError::DeviceCount);
        }
        if self.load_timeout_s == Some(0) {
            return Err(OptionsError::LoadTimeout);
        }
        self.pipeline.as_deref().map_or(Ok(()), Pipeline::check)?;
        self.check_cuda_graphs()?;
        let mut seen = BTreeSet::new();
        match self.providers.iter().find(|&&provider| !seen.insert(provider)) {
            Some(&provider) => Err(OptionsError::Twice { provider }),
            None => Ok(()),
        }
    }

    /// Checks that nothing speaks against replays, on any device.
    fn check_cuda_graphs(&self) -> Result<(), OptionsError> {
        let why = [
            (!self.cpu_ops.is_empty(), "cpu_ops: the CPU takes no part in a replay"),
            (
                self.contexts == Contexts::Auto,
                "contexts = \"auto\": it measures runs that are not replays",
            ),
            (self.providers.contains(&Provider::TensorRt), "the provider `tensorrt`"),
        ];
        let against = why.into_iter().find(|(is_there, _)| self.cuda_graphs && *is_there);
        against.map_or(Ok(()), |(_, with)| Err(OptionsError::CudaGraphs { with }))
    }

    /// Longest time of a change that loads it, if its owner chose one.
    #[must_use]
    pub fn load_timeout(&self) -> Option<Duration> {
        self.load_timeout_s.map(|seconds| Duration::from_secs(seconds.into()))
    }

    /// Whether its runs look at how many rows they have before they start.
    #[must_use]
    pub fn waits_for_rows(&self) -> bool {
        self.max_queue_delay_us > 0 || !self.preferred_batch.is_empty()
    }

    /// Checks that the file of the model `name` has the SHA-256 that it must have, if that is known.
    ///
    /// # Errors
    /// [`ChangedFile`] if it has another.
    pub fn check_file(&self, name: &str, path: &Path, sha256: &str) -> Result<(), ChangedFile> {
        check_file(name, path, self.sha256.as_ref(), sha256)
    }

    /// Checks that a model has the inputs and outputs that are listed for it.
    ///
    /// # Errors
    /// [`OtherTensors`]: the first that differs.
    pub fn check_tensors(
        &self,
        inputs: &[TensorSpec],
        outputs: &[TensorSpec],
    ) -> Result<(), OtherTensors> {
        let listed = |listed: &[TensorSpec], own: &[TensorSpec], kind| {
            let is_like = |want: &TensorSpec, own: &TensorSpec| {
                let mut sides = want.shape.iter().zip(&own.shape);
                (&own.name, own.datatype) == (&want.name, want.datatype)
                    && (own.any_rank || own.shape.len() == want.shape.len())
                    && sides.all(|(&a, &b)| a == b || a == ANY_SIZE || b == ANY_SIZE)
            };
            let other = listed.iter().find(|want| !own.iter().any(|own| is_like(want, own)));
            let other = other.map(|want| OtherTensors {
                kind,
                want: want.to_string(),
                has: own.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
            });
            other.map_or(Ok(()), Err)
        };
        let Some(wanted) = &self.tensors else { return Ok(()) };
        listed(&wanted.inputs, inputs, "input")?;
        listed(&wanted.outputs, outputs, "output")?;
        let is_listed = |own: &&TensorSpec| wanted.inputs.iter().any(|want| want.name == own.name);
        match inputs.iter().find(|own| !wanted.inputs.is_empty() && !is_listed(own)) {
            Some(own) => Err(OtherTensors {
                kind: "input",
                want: wanted.inputs.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
                has: format!("{own} besides"),
            }),
            None => Ok(()),
        }
    }

    /// The providers for a device of that kind, in order. A CPU device has only one.
    ///
    /// # Errors
    /// [`OptionsError::CpuProvider`] if the CPU is requested on a GPU device and no op is allowed there.
    pub fn providers_on(&self, kind: DeviceKind) -> Result<Vec<Provider>, OptionsError> {
        match kind {
            DeviceKind::Cpu => Ok(vec![Provider::Cpu]),
            DeviceKind::Gpu => {
                let wants_cpu = self.providers.contains(&Provider::Cpu);
                if wants_cpu && self.cpu_ops.is_empty() {
                    return Err(OptionsError::CpuProvider);
                }
                let gpu = self.providers.iter().copied().filter(|&p| p != Provider::Cpu);
                let gpu: Vec<_> = gpu.collect();
                Ok(if gpu.is_empty() { vec![Provider::Cuda] } else { gpu })
            }
        }
    }
}

/// Checks that a file of the model `name` has the SHA-256 that it must have, if that is known.
///
/// # Errors
/// [`ChangedFile`] if it has another.
pub fn check_file(
    name: &str,
    path: &Path,
    then: Option<&String>,
    sha256: &str,
) -> Result<(), ChangedFile> {
    match then {
        Some(then) if then != sha256 => Err(ChangedFile {
            name: name.to_owned(),
            path: path.to_owned(),
            then: then.clone(),
            now: sha256.to_owned(),
        }),
        Some(_) | None => Ok(()),
    }
}

/// Checks the number of a model's contexts.
///
/// # Errors
/// [`OptionsError::Contexts`] if it is out of bounds.
pub fn check_contexts(contexts: u32) -> Result<(), OptionsError> {
    if contexts == 0 || contexts > MODEL_CONTEXTS_MAX {
        return Err(OptionsError::Contexts { contexts });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
