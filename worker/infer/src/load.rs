//! Loads a model: its file, its session, the placement of its nodes, its first runs, its signature.

mod auto;
mod error;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use gridpool_ipc::{clock, regular};
use gridpool_protocol::ids::DeviceKind;
use gridpool_protocol::program::hex;
use gridpool_protocol::tensor::Contexts;
use gridpool_protocol::tensor::model::{ContextsMeasured, ProviderNodes};
use gridpool_protocol::tensor::options::{MAX_BATCH_DEFAULT, ModelOptions, Provider};
use ort::ep::{self, ExecutionProvider, ExecutionProviderDispatch};
use ort::logging::LogLevel;
use ort::session::Session;
use ort::session::builder::SessionBuilder;
use ort::value::{Outlet, ValueType};
use sha2::{Digest, Sha256};

use super::context::Context;
use super::cuda_libraries;
use super::error::RuntimeFault;
use super::placement::audit;
use super::runtime::Runtime;
use super::seam::{self, DeviceMemory, HostMemory, Manner, SharedSession};
use super::signature::Signature;
use super::warm_up::{NotRows, WarmUp, WarmUpError};

use error::TENSORRT_LIBRARIES;
pub use error::{LoadError, MODEL_FILE_BYTES_MAX};

/// ONNX Runtime's message if a node would run on the CPU although none may.
const FALLBACK_IS_DISABLED: &str = "fallback to CPU EP has been explicitly disabled";

/// The file of a model.
#[derive(Debug)]
pub(super) struct ModelFile {
    path: PathBuf,
    content: Vec<u8>,
    pub(super) sha256: String,
}

impl ModelFile {
    pub(super) fn read(path: &Path) -> Result<Self, LoadError> {
        let fails = |source| LoadError::File { path: path.to_owned(), source };
        let file = regular::open(path).map_err(fails)?;
        let bytes = file.metadata().map_err(fails)?.len();
        let mut content = Vec::new();
        let mut limited = file.take(MODEL_FILE_BYTES_MAX + 1);
        if bytes <= MODEL_FILE_BYTES_MAX {
            limited.read_to_end(&mut content).map_err(fails)?;
        }
        let bytes = bytes.max(content.len() as u64);
        if bytes > MODEL_FILE_BYTES_MAX {
            return Err(LoadError::TooLarge { path: path.to_owned(), bytes });
        }
        let sha256 = hex(&Sha256::digest(&content));
        Ok(Self { path: path.to_owned(), content, sha256 })
    }
}

/// A loaded model.
#[derive(Debug)]
pub(super) struct Loaded {
    session: SharedSession,
    pub(super) signature: Arc<Signature>,
    pub(super) nodes: Vec<ProviderNodes>,
    /// Most rows of a run, if its requests may be joined.
    pub(super) rows_max: Option<u32>,
    /// What was measured to choose the number of contexts.
    pub(super) contexts_measured: Vec<ContextsMeasured>,
    /// The longest warm-up run.
    pub(super) run_time: Duration,
    warm_ups: Vec<WarmUp>,
    /// Bytes of the model itself, and of one context at most.
    memory: Option<(u64, u64)>,
    device_bytes: Option<u64>,
}

/// Loads a model and its contexts, each warmed by runs of its own: all or none.
pub(super) fn load(
    runtime: &Runtime,
    kind: DeviceKind,
    file: &ModelFile,
    options: &ModelOptions,
) -> Result<(Loaded, Vec<Context>), LoadError> {
    let (host, manner) = match kind {
        DeviceKind::Cpu => (HostMemory::Plain, Manner::Bound),
        DeviceKind::Gpu => (HostMemory::Pinned, Manner::Fed),
    };
    load_to_run(runtime, kind, (host, manner), file, options)
}

/// Loads the model for runs whose inputs lie in this kind of memory and are passed in this manner.
fn load_to_run(
    runtime: &Runtime,
    kind: DeviceKind,
    (host, manner): (HostMemory, Manner),
    file: &ModelFile,
    options: &ModelOptions,
) -> Result<(Loaded, Vec<Context>), LoadError> {
    options.check()?;
    let providers = options.providers_on(kind)?;
    let is_strict = kind == DeviceKind::Gpu && options.cpu_ops.is_empty();
    let new = |is_strict| session(runtime, kind, file, &providers, options, is_strict);
    let made = new(is_strict).map_err(|error| {
        let LoadError::Session(fault) = error else { return error };
        if !fault.message().contains(FALLBACK_IS_DISABLED) {
            return LoadError::Session(fault);
        }
        // A second session, which may have nodes on the CPU and never runs, names those nodes. An unserved
        // signature is reported first.
        let lenient = new(false).and_then(|session| {
            Signature::of(&described(session.inputs()), &described(session.outputs()))?;
            Ok(SharedSession::of(session, host, manner))
        });
        refusal(lenient, fault, &providers, &options.cpu_ops)
    });
    let session = made?;
    let signature =
        Arc::new(Signature::of(&described(session.inputs()), &described(session.outputs()))?);
    let session = SharedSession::of(session, host, manner);
    let nodes = audit(&seam::assigned_nodes(&session)?, &providers, &options.cpu_ops)?;
    let before = session.device_memory()?;
    let mut loaded = Loaded {
        session,
        signature,
        nodes,
        rows_max: None,
        run_time: Duration::ZERO,
        contexts_measured: Vec::new(),
        warm_ups: Vec::new(),
        memory: None,
        device_bytes: options.device_bytes,
    };
    let first = loaded.first_context(kind, options, before)?;
    let contexts = match options.contexts {
        Contexts::Auto => loaded.choose_contexts(first, options)?,
        Contexts::Fixed(count) => {
            loaded.check_budget(count)?;
            let mut contexts = vec![first];
            contexts.extend(loaded.more_contexts(count - 1)?);
            contexts
        }
    };
    Ok((loaded, contexts))
}

/// The error for a model with nodes on the CPU where none may be. It names the nodes if they are known.
fn refusal(
    lenient: Result<SharedSession, LoadError>,
    fault: RuntimeFault,
    providers: &[Provider],
    cpu_ops: &BTreeSet<String>,
) -> LoadError {
    let nodes = lenient.and_then(|session| Ok(seam::assigned_nodes(&session)?));
    match nodes.map(|nodes| audit(&nodes, providers, cpu_ops)) {
        Ok(Err(named)) => LoadError::Placement(named),
        Ok(Ok(_)) => LoadError::Session(fault),
        Err(other) => other,
    }
}

/// Inputs or outputs, with their types.
fn described(outlets: &[Outlet]) -> Vec<(&str, &ValueType)> {
    outlets.iter().map(|outlet| (outlet.name(), outlet.dtype())).collect()
}

/// A session of the model. With `is_strict` it fails if any node would run on the CPU.
fn session(
    runtime: &Runtime,
    kind: DeviceKind,
    file: &ModelFile,
    providers: &[Provider],
    options: &ModelOptions,
    is_strict: bool,
) -> Result<Session, LoadError> {
    let on_gpu = kind == DeviceKind::Gpu;
    let fails = |error: ort::Error<SessionBuilder>| {
        LoadError::Session(seam::fault("CreateSessionOptions", &error, on_gpu))
    };
    let new = Session::builder(runtime.environment());
    let mut builder = new.map_err(|error| seam::fault("CreateSessionOptions", &error, on_gpu))?;
    builder = builder.with_log_level(LogLevel::Warning).map_err(fails)?;
    let mut set = |key: &str, value: &str| -> Result<(), LoadError> {
        builder = builder.clone().with_config_entry(key, value).map_err(fails)?;
        Ok(())
    };
    set("session.record_ep_graph_assignment_info", "1")?;
    // The model is read from memory; files with its weights lie beside its own file.
    let folder = file.path.canonicalize().ok();
    let folder = folder.as_deref().and_then(Path::parent).and_then(Path::to_str);
    set("session.model_external_initializers_file_folder_path", folder.unwrap_or("."))?;
    if is_strict {
        // With an allow-list the audit decides: this switch rejects every node on the CPU.
        set("session.disable_cpu_ep_fallback", "1")?;
    }
    if on_gpu {
        cuda_libraries::preload(runtime.library());
    }
    for &provider in providers {
        let dispatch = dispatch(provider, options)?;
        let added = builder.with_execution_providers([dispatch]);
        builder = added.map_err(|error| LoadError::Provider {
            provider,
            source: seam::fault("AppendExecutionProvider", &error, on_gpu),
        })?;
    }
    let made = builder.commit_from_memory(&file.content);
    Ok(made.map_err(|error| seam::fault("CreateSession", &error, on_gpu))?)
}

/// Whether a provider was built into ONNX Runtime.
#[must_use]
pub fn has_provider(_: &Runtime, provider: Provider) -> bool {
    let has = match provider {
        Provider::Cpu => ep::CPU::is_available(),
        Provider::Cuda => ep::CUDA::is_available(),
        Provider::TensorRt => ep::TensorRT::is_available(),
    };
    has.unwrap_or(false)
}

/// Loads a provider and its libraries, as for a model, but loads no model.
///
/// # Errors
/// [`LoadError`], with the message of the library loader.
pub fn try_provider(runtime: &Runtime, provider: Provider) -> Result<(), LoadError> {
    let fault = |error| seam::fault("CreateSessionOptions", &error, false);
    let builder = Session::builder(runtime.environment()).map_err(fault)?;
    if provider != Provider::Cpu {
        cuda_libraries::preload(runtime.library());
    }
    let dispatch = dispatch(provider, &ModelOptions::default())?;
    let added = builder.with_execution_providers([dispatch]);
    added.map(drop).map_err(|error| LoadError::Provider {
        provider,
        source: seam::fault("AppendExecutionProvider", &error, provider != Provider::Cpu),
    })
}

/// A provider that fails instead of being left out. A worker sees one GPU, so its index is 0.
fn dispatch(
    provider: Provider,
    options: &ModelOptions,
) -> Result<ExecutionProviderDispatch, LoadError> {
    let limit = options.device_bytes.and_then(|bytes| usize::try_from(bytes).ok());
    let dispatch = match provider {
        Provider::Cpu => ep::CPU::default().with_arena_allocator(true).build(),
        Provider::Cuda => {
            // By heuristics: a search times every algorithm again for every number of rows, and picks a different
            // one in another process.
            let cuda = ep::CUDA::default()
                .with_device_id(0)
                .with_arena_extend_strategy(ep::ArenaExtendStrategy::SameAsRequested)
                .with_conv_algorithm_search(ep::cuda::ConvAlgorithmSearch::Heuristic)
                .with_tf32(options.tf32);
            limit
                .map_or_else(|| cuda.clone(), |limit| cuda.clone().with_memory_limit(limit))
                .build()
        }
        Provider::TensorRt => {
            if !TENSORRT_LIBRARIES.iter().any(|name| seam::is_loadable(name)) {
                return Err(LoadError::TensorRtMissing);
            }
            ep::TensorRT::default().with_device_id(0).build()
        }
    };
    Ok(dispatch.error_on_failure())
}

impl Loaded {
    /// The first context: its runs decide whether rows may be joined, and how much memory a context takes.
    fn first_context(
        &mut self,
        kind: DeviceKind,
        options: &ModelOptions,
        before: Option<DeviceMemory>,
    ) -> Result<Context, LoadError> {
        let mut context = Context::new(&self.session, &self.signature)?;
        self.rows_max = self.decide_rows(&mut context, options)?;
        let has_rows = self.rows_max.is_some();
        let warm_up = |shapes| WarmUp::new(&self.signature, shapes, has_rows);
        let mut warm_ups = options.warm_up.iter().map(warm_up).collect::<Result<Vec<_>, _>>()?;
        if warm_ups.is_empty() {
            warm_ups.push(warm_up(&BTreeMap::new())?);
        }
        let counts = options.device_bytes.is_some() || kind == DeviceKind::Gpu;
        if let (Some(rows), true) = (self.rows_max, counts) {
            // The largest possible run, so that later runs find their memory allocated and its size is known.
            let largest = warm_ups[0].with_rows(rows.into());
            let reason = |error: gridpool_protocol::tensor::TensorError| error.to_string();
            let largest = largest.map_err(|error| WarmUpError::Shapes { reason: reason(error) })?;
            warm_ups.push(largest);
        }
        for warm_up in &warm_ups {
            let began = clock::now();
            warm_up.run(&mut context)?;
            self.run_time = self.run_time.max(began.elapsed());
        }
        self.warm_ups = warm_ups;
        let after = self.session.device_memory()?;
        self.memory = before.zip(after).map(|(before, after)| {
            let runs = after.peak.max(after.used).saturating_sub(before.used);
            (before.used, runs)
        });
        Ok(context)
    }

    /// Most rows of a run. Requests are joined only if the model's rows are proved independent.
    fn decide_rows(
        &self,
        context: &mut Context,
        options: &ModelOptions,
    ) -> Result<Option<u32>, LoadError> {
        let signature = &self.signature;
        let (max_batch, is_asked) = match options.max_batch {
            Some(1) => return Ok(None),
            Some(max_batch) => (max_batch, true),
            None => (MAX_BATCH_DEFAULT, false),
        };
        let proved = if !signature.may_have_rows {
            Err("not every input and output has a free first dimension, or one is BYTES".into())
        } else if !signature.rows_share_a_name && !is_asked {
            Err("their first dimensions have different names".into())
        } else {
            let none = BTreeMap::new();
            let warm_up = WarmUp::new(signature, options.warm_up.first().unwrap_or(&none), true);
            warm_up?.rows_are_independent(context)
        };
        match proved {
            Ok(()) => Ok(Some(max_batch)),
            // A fault says nothing about rows.
            Err(NotRows { fault: Some(fault), .. }) if !fault.leaves_device_usable() => {
                Err(LoadError::Session(fault))
            }
            Err(NotRows { reason, .. }) if is_asked => Err(LoadError::Rows { max_batch, reason }),
            Err(NotRows { reason, .. }) if options.waits_for_rows() => {
                Err(LoadError::Delay { reason })
            }
            Err(NotRows { reason, .. }) => {
                tracing::info!(reason, "requests of this model do not share runs");
                Ok(None)
            }
        }
    }

    /// Makes more contexts, each warmed: all or none. The caller has called [`Loaded::check_budget`].
    pub(super) fn more_contexts(&self, count: u32) -> Result<Vec<Context>, LoadError> {
        let one = |_| -> Result<Context, LoadError> {
            let mut context = Context::new(&self.session, &self.signature)?;
            for warm_up in &self.warm_ups {
                warm_up.run(&mut context)?;
            }
            Ok(context)
        };
        (0..count).map(one).collect()
    }

    /// Checks that this number of contexts stays within the model's memory limit.
    pub(super) fn check_budget(&self, contexts: u32) -> Result<(), LoadError> {
        let Some(allowed) = self.device_bytes else { return Ok(()) };
        let Some((weights, context)) = self.memory else { return Err(LoadError::BudgetUnknown) };
        let needs = weights.saturating_add(context.saturating_mul(contexts.into()));
        if needs <= allowed {
            return Ok(());
        }
        let fit = allowed.saturating_sub(weights).checked_div(context).unwrap_or(0);
        Err(LoadError::Budget { contexts, needs, weights, context, allowed, fit })
    }

    /// The shapes of the first warm-up run, input by input.
    pub(super) fn warm_up_shapes(&self) -> Vec<Vec<u64>> {
        self.warm_ups.first().map(WarmUp::shapes).unwrap_or_default()
    }

    /// Device memory in bytes with this number of contexts; 0 if it is unknown.
    pub(super) fn device_bytes(&self, contexts: u32) -> u64 {
        let of = |(weights, context): (u64, u64)| weights + context * u64::from(contexts);
        self.memory.map_or(0, of)
    }
}

#[cfg(test)]
mod tests;
