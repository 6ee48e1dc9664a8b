//! What may be said about a model when it is named: contexts, memory, rows of a run, warm-up, providers.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::codec;
use crate::ids::DeviceKind;
use crate::limits::{MODEL_BATCH_MAX, MODEL_CONTEXTS_MAX, MODEL_PLAN_BYTES_MAX};

/// Rows of one run of a model whose requests may be joined, if nothing else is said.
pub const MAX_BATCH_DEFAULT: u32 = 32;
/// Requests of one model that wait, if nothing else is said.
pub const QUEUE_REQUESTS_DEFAULT: usize = 1_024;
/// Bytes of inputs that wait for one model, if nothing else is said.
pub const QUEUE_BYTES_DEFAULT: u64 = 4 << 30;

/// An execution provider of ONNX Runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Provider {
    /// Of a CPU device; on a GPU device only for the ops that are allowed there.
    Cpu,
    /// NVIDIA's, by ONNX Runtime's own kernels, cuDNN and cuBLAS.
    Cuda,
    /// NVIDIA's, by engines that TensorRT builds.
    TensorRt,
}

impl Provider {
    /// What is written for it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Cuda => "cuda",
            Self::TensorRt => "tensorrt",
        }
    }

    /// ONNX Runtime's name of it.
    #[must_use]
    pub fn runtime_name(self) -> &'static str {
        match self {
            Self::Cpu => "CPUExecutionProvider",
            Self::Cuda => "CUDAExecutionProvider",
            Self::TensorRt => "TensorrtExecutionProvider",
        }
    }
}

impl fmt::Display for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A text that names no provider.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no provider: write tensorrt, cuda or cpu")]
pub struct ParseProviderError {
    text: String,
}

impl FromStr for Provider {
    type Err = ParseProviderError;

    fn from_str(text: &str) -> Result<Self, ParseProviderError> {
        let all = [Self::Cpu, Self::Cuda, Self::TensorRt];
        let found = all.into_iter().find(|provider| provider.name() == text);
        found.ok_or_else(|| ParseProviderError { text: text.to_owned() })
    }
}

/// What may be said about a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ModelOptions {
    /// How many runs of it may be under way at once.
    pub contexts: u32,
    /// Most bytes of device memory that it and all its contexts may take.
    pub device_bytes: Option<u64>,
    /// Most rows of one run; 1 so that requests are never joined.
    pub max_batch: Option<u32>,
    /// What every context runs before the model is READY: a shape for each input, by name.
    pub warm_up: Vec<BTreeMap<String, Vec<u64>>>,
    /// Ops that may run on the CPU of a GPU device: `Shape`, `Gather`.
    pub cpu_ops: BTreeSet<String>,
    /// Which providers to use, the first before the next. None: `cuda` on a GPU device.
    pub providers: Vec<Provider>,
    /// Whether a GPU may multiply FP32 with the precision of TF32, which is faster and has 10 bits of
    /// mantissa instead of 23.
    pub tf32: bool,
    /// Most requests that wait.
    pub queue_requests: usize,
    /// Most bytes of inputs that wait.
    pub queue_bytes: u64,
}

impl Default for ModelOptions {
    fn default() -> Self {
        Self {
            contexts: 1,
            device_bytes: None,
            max_batch: None,
            warm_up: Vec::new(),
            cpu_ops: BTreeSet::new(),
            providers: Vec::new(),
            tf32: false,
            queue_requests: QUEUE_REQUESTS_DEFAULT,
            queue_bytes: QUEUE_BYTES_DEFAULT,
        }
    }
}

/// A model that every inference worker of a pool loads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelPlan {
    /// The name it is asked by.
    pub name: String,
    /// Its file.
    pub path: PathBuf,
    /// How it is loaded and run.
    pub options: ModelOptions,
}

/// What is wrong with what was said about a model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionsError {
    /// Too few or too many contexts.
    #[error("{contexts} contexts: write 1 to {MODEL_CONTEXTS_MAX}")]
    Contexts {
        /// How many were asked for.
        contexts: u32,
    },
    /// Too few or too many rows.
    #[error("a max_batch of {max_batch}: write 1 to {MODEL_BATCH_MAX}")]
    MaxBatch {
        /// How many were asked for.
        max_batch: u32,
    },
    /// A queue for nothing.
    #[error("a queue for no request: queue_requests and queue_bytes are at least 1")]
    Queue,
    /// The CPU's provider was asked for where a GPU is to be used.
    #[error(
        "`cpu` is the provider of cpu devices; on a GPU name the ops that may run on its CPU: cpu_ops = \
         [\"Shape\", …]"
    )]
    CpuProvider,
    /// More is said about it than is taken.
    #[error("{bytes} bytes of path, warm_up and cpu_ops: at most {MODEL_PLAN_BYTES_MAX}")]
    TooLong {
        /// How much.
        bytes: usize,
    },
    /// A provider was named twice.
    #[error("the provider `{provider}` is named twice")]
    Twice {
        /// Which one.
        provider: Provider,
    },
}

impl ModelPlan {
    /// Whether every number is within its limit, and all of it fits a message and a command line.
    ///
    /// # Errors
    /// [`OptionsError`] for the first that is not.
    pub fn check(&self) -> Result<(), OptionsError> {
        self.options.check()?;
        let bytes = codec::encode(self).map_or(usize::MAX, |plan| plan.len());
        match bytes > MODEL_PLAN_BYTES_MAX {
            true => Err(OptionsError::TooLong { bytes }),
            false => Ok(()),
        }
    }
}

impl ModelOptions {
    /// Whether every number is within its limit.
    ///
    /// # Errors
    /// [`OptionsError`] at the first that is not.
    pub fn check(&self) -> Result<(), OptionsError> {
        check_contexts(self.contexts)?;
        let max_batch = self.max_batch.unwrap_or(MAX_BATCH_DEFAULT);
        if max_batch == 0 || max_batch > MODEL_BATCH_MAX {
            return Err(OptionsError::MaxBatch { max_batch });
        }
        if self.queue_requests == 0 || self.queue_bytes == 0 {
            return Err(OptionsError::Queue);
        }
        let mut seen = BTreeSet::new();
        match self.providers.iter().find(|&&provider| !seen.insert(provider)) {
            Some(&provider) => Err(OptionsError::Twice { provider }),
            None => Ok(()),
        }
    }

    /// The providers of a device of that kind, in order. A cpu device has but one.
    ///
    /// # Errors
    /// [`OptionsError::CpuProvider`] if the CPU is asked for on a GPU and no op is allowed there.
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

/// Whether a model may have so many contexts.
///
/// # Errors
/// [`OptionsError::Contexts`] if not.
pub fn check_contexts(contexts: u32) -> Result<(), OptionsError> {
    if contexts == 0 || contexts > MODEL_CONTEXTS_MAX {
        return Err(OptionsError::Contexts { contexts });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_beyond_their_limits_are_refused_with_what_to_write() {
        let default = ModelOptions::default;
        assert_eq!(default().check(), Ok(()));
        let wrong = [
            ModelOptions { contexts: 0, ..default() },
            ModelOptions { contexts: MODEL_CONTEXTS_MAX + 1, ..default() },
            ModelOptions { max_batch: Some(0), ..default() },
            ModelOptions { max_batch: Some(MODEL_BATCH_MAX + 1), ..default() },
            ModelOptions { queue_requests: 0, ..default() },
            ModelOptions { queue_bytes: 0, ..default() },
            ModelOptions { providers: vec![Provider::Cuda, Provider::Cuda], ..default() },
        ];
        for options in wrong {
            assert!(options.check().is_err(), "{options:?}");
        }
    }

    #[test]
    fn the_cpu_serves_on_cpu_devices_and_on_a_gpu_only_ops_that_are_named() {
        let options = |providers: &[Provider], cpu_ops: &[&str]| ModelOptions {
            providers: providers.to_vec(),
            cpu_ops: cpu_ops.iter().map(|&op| op.to_owned()).collect(),
            ..ModelOptions::default()
        };
        let both = [Provider::TensorRt, Provider::Cuda];
        for options in [options(&[], &[]), options(&both, &[])] {
            assert_eq!(options.providers_on(DeviceKind::Cpu), Ok(vec![Provider::Cpu]));
        }
        assert_eq!(options(&[], &[]).providers_on(DeviceKind::Gpu), Ok(vec![Provider::Cuda]));
        assert_eq!(options(&both, &[]).providers_on(DeviceKind::Gpu), Ok(both.to_vec()));
        let with_cpu = [Provider::Cuda, Provider::Cpu];
        let refused = options(&with_cpu, &[]).providers_on(DeviceKind::Gpu);
        assert_eq!(refused, Err(OptionsError::CpuProvider));
        let allowed = options(&with_cpu, &["Shape"]).providers_on(DeviceKind::Gpu);
        assert_eq!(allowed, Ok(vec![Provider::Cuda]));
    }

    #[test]
    fn options_are_read_as_the_config_writes_them() {
        let json = r#"{"contexts": 4, "providers": ["tensorrt", "cuda"], "cpu_ops": ["Shape"],
                       "warm_up": [{"x": [8, 3]}]}"#;
        let options: ModelOptions = serde_json::from_str(json).unwrap();
        assert_eq!(options.contexts, 4);
        assert_eq!(options.providers, [Provider::TensorRt, Provider::Cuda]);
        assert_eq!(options.warm_up[0]["x"], [8, 3]);
        assert_eq!(options.queue_requests, QUEUE_REQUESTS_DEFAULT);
        assert!(serde_json::from_str::<ModelOptions>(r#"{"context": 4}"#).is_err());
        for name in ["cpu", "cuda", "tensorrt"] {
            assert_eq!(name.parse::<Provider>().unwrap().to_string(), name);
        }
        let error = "gpu".parse::<Provider>().unwrap_err();
        assert_eq!(error.to_string(), "`gpu` is no provider: write tensorrt, cuda or cpu");
    }
}
