//! Makes the session of a model, and checks where its nodes run.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use gridpool_device::cuda::ComputeStream;
use gridpool_protocol::ids::DeviceKind;
use gridpool_protocol::tensor::model::ProviderNodes;
use gridpool_protocol::tensor::options::{ModelOptions, Provider};
use ort::ep::{self, ExecutionProvider, ExecutionProviderDispatch};
use ort::logging::LogLevel;
use ort::session::Session;
use ort::session::builder::SessionBuilder;
use ort::value::{Outlet, ValueType};

use super::error::{LoadError, TENSORRT_LIBRARIES};
use super::files::ModelFile;
use crate::cuda_libraries;
use crate::error::RuntimeFault;
use crate::placement::audit;
use crate::runtime::Runtime;
use crate::seam::{self, HostMemory, Manner, SharedSession};
use crate::signature::{Signature, SignatureError};

/// ONNX Runtime's message if a node would run on the CPU although none may.
pub(super) const FALLBACK_IS_DISABLED: &str = "fallback to CPU EP has been explicitly disabled";

/// A model whose session is made.
#[derive(Clone, Debug)]
pub(crate) struct Opened {
    pub(crate) session: SharedSession,
    pub(crate) signature: Arc<Signature>,
    pub(crate) nodes: Vec<ProviderNodes>,
}

impl Opened {
    /// Makes a session of a model, which computes on `stream` if it is given.
    pub(crate) fn open(
        runtime: &Runtime,
        kind: DeviceKind,
        file: &ModelFile,
        options: &ModelOptions,
        stream: Option<&ComputeStream>,
    ) -> Result<Self, LoadError> {
        let access = match kind {
            DeviceKind::Cpu => (HostMemory::Plain, Manner::Bound),
            DeviceKind::Gpu => (HostMemory::Pinned, Manner::Fed),
        };
        Self::open_to_run(runtime, kind, access, file, options, stream)
    }

    /// Makes it for runs whose inputs lie in this kind of memory and are passed in this manner.
    pub(super) fn open_to_run(
        runtime: &Runtime,
        kind: DeviceKind,
        (host, manner): (HostMemory, Manner),
        file: &ModelFile,
        options: &ModelOptions,
        stream: Option<&ComputeStream>,
    ) -> Result<Self, LoadError> {
        let providers = options.providers_on(kind)?;
        let is_strict = kind == DeviceKind::Gpu && options.cpu_ops.is_empty();
        let new = |is_strict| session(runtime, kind, file, &providers, options, stream, is_strict);
        let made = new(is_strict).map_err(|error| {
            let LoadError::Session(fault) = error else { return error };
            if !fault.message().contains(FALLBACK_IS_DISABLED) {
                return LoadError::Session(fault);
            }
            // A second session, which may have nodes on the CPU and never runs, names those nodes. An unserved
            // signature is reported first.
            let lenient = new(false).and_then(|session| {
                let (session, signature) = SharedSession::of(session, host, manner, signature_of);
                signature.map(|_| session)
            });
            refusal(lenient, fault, &providers, &options.cpu_ops)
        });
        let (session, signature) = SharedSession::of(made?, host, manner, signature_of);
        let mut signature = signature?;
        for (index, input) in signature.inputs.iter().enumerate() {
            if input.shape.is_empty() && !seam::has_shape(&session, seam::Side::Input, index)? {
                return Err(SignatureError::NoShape { name: input.name.clone() }.into());
            }
        }
        for (index, output) in signature.outputs.iter_mut().enumerate() {
            let may_lack = output.shape.is_empty();
            output.any_rank = may_lack && !seam::has_shape(&session, seam::Side::Output, index)?;
        }
        let signature = Arc::new(signature);
        let nodes = audit(&seam::assigned_nodes(&session)?, &providers, &options.cpu_ops)?;
        Ok(Self { session, signature, nodes })
    }
}

/// The error for a model with nodes on the CPU where none may be. It names the nodes if they are known.
pub(super) fn refusal(
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

fn signature_of(session: &Session) -> Result<Signature, LoadError> {
    Ok(Signature::of(&described(session.inputs()), &described(session.outputs()))?)
}

/// Inputs or outputs, with their types.
fn described(outlets: &[Outlet]) -> Vec<(&str, &ValueType)> {
    outlets.iter().map(|outlet| (outlet.name(), outlet.dtype())).collect()
}

/// A session of the model. With `is_strict` it fails if any node would run on the CPU.
pub(super) fn session(
    runtime: &Runtime,
    kind: DeviceKind,
    file: &ModelFile,
    providers: &[Provider],
    options: &ModelOptions,
    stream: Option<&ComputeStream>,
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
    let has_graphs = options.cuda_graphs && stream.is_some();
    if has_graphs {
        // Otherwise the second run of a shape would lay out its memory anew.
        builder = builder.with_memory_pattern(false).map_err(fails)?;
    }
    // From here on, and not only for the session: adding the CUDA provider takes some of the device's memory and frees
    // it, and libraries that are loaded may do so too.
    let _changing = seam::changing();
    if on_gpu {
        cuda_libraries::preload(runtime.library());
    }
    for &provider in providers {
        let dispatch = dispatch(provider, options, stream)?;
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
    let _changing = seam::changing();
    if provider != Provider::Cpu {
        cuda_libraries::preload(runtime.library());
    }
    let dispatch = dispatch(provider, &ModelOptions::default(), None)?;
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
    stream: Option<&ComputeStream>,
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
                .with_tf32(options.tf32)
                .with_cuda_graph(options.cuda_graphs && stream.is_some());
            let cuda =
                limit.map_or_else(|| cuda.clone(), |limit| cuda.clone().with_memory_limit(limit));
            stream
                .map_or_else(|| cuda.clone(), |stream| seam::on_stream(cuda.clone(), stream))
                .build()
        }
        Provider::TensorRt => {
            if !TENSORRT_LIBRARIES.iter().any(|name| seam::is_loadable(name)) {
                return Err(LoadError::TensorRtMissing);
            }
            let engine = ep::TensorRT::default().with_device_id(0);
            stream
                .map_or_else(
                    || engine.clone(),
                    |stream| seam::on_stream_too(engine.clone(), stream),
                )
                .build()
        }
    };
    Ok(dispatch.error_on_failure())
}
