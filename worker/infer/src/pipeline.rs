//! Pipelines: models whose outputs go on to other models, in one process and without a way over the host's memory.
//!
//! - `wires` finds the types and shapes of all wires, and what does not fit.
//! - `chain` is the run state of one context: its bindings, its tensors and, on a GPU, its stream.
//!
//! On a cpu device the contexts share the sessions. On a GPU each has its own, because a session computes on one
//! stream only, and a context's steps are ordered by theirs.

mod chain;
mod wires;

use std::path::PathBuf;
use std::sync::Arc;

use gridpool_device::cuda::ComputeStream;
use gridpool_ipc::mutex::Mutex;
use gridpool_protocol::ids::DeviceKind;
use gridpool_protocol::tensor::model::{ProviderNodes, StepInfo};
use gridpool_protocol::tensor::options::{ChangedFile, ModelOptions};
use gridpool_protocol::tensor::pipeline::Pipeline;

use super::load::{LoadError, ModelFile, Opened};
use super::runtime::Runtime;
use super::signature::Signature;

pub(super) use chain::{Chain, StepRun};
pub use wires::WireError;
use wires::Wiring;

/// A pipeline whose models are loaded.
#[derive(Debug)]
pub(super) struct LoadedPipeline {
    wiring: Arc<Wiring>,
    steps: Vec<StepInfo>,
    sessions: Sessions,
}

/// The models of all steps, in the order in which they run.
#[derive(Debug)]
struct Lane {
    steps: Vec<Opened>,
    /// What they compute on; none on a cpu device.
    stream: Option<ComputeStream>,
}

/// The sessions of a pipeline.
#[derive(Debug)]
enum Sessions {
    /// All contexts run these.
    Shared(Vec<Opened>),
    /// Each context has its own.
    Own(Box<OwnSessions>),
}

#[derive(Debug)]
struct OwnSessions {
    /// Those that no context has yet.
    spare: Mutex<Option<Lane>>,
    recipe: Recipe,
}

/// How the sessions of another context are made.
#[derive(Debug)]
struct Recipe {
    runtime: Runtime,
    kind: DeviceKind,
    name: String,
    options: ModelOptions,
    /// In the order in which they run: name, file and hash.
    steps: Vec<(String, PathBuf, String)>,
}

impl LoadedPipeline {
    /// Loads the models of all steps. `files` are theirs, in the order in which the pipeline is written.
    pub(super) fn load(
        runtime: &Runtime,
        kind: DeviceKind,
        name: &str,
        pipeline: &Pipeline,
        files: &[ModelFile],
        options: &ModelOptions,
    ) -> Result<(Self, Signature), LoadError> {
        let order = pipeline.order()?;
        let steps = order.iter().map(|&at| (&pipeline.steps[at].name, &files[at]));
        let recipe = Recipe {
            runtime: runtime.clone(),
            kind,
            name: name.to_owned(),
            options: options.clone(),
            steps: steps
                .clone()
                .map(|(name, file)| (name.clone(), file.path.clone(), file.sha256.clone()))
                .collect(),
        };
        let lane = recipe.open(steps.map(|(_, file)| Ok(file)))?;
        let signatures: Vec<_> = lane.steps.iter().map(|step| &*step.signature).collect();
        let (wiring, signature) = Wiring::of(pipeline, &order, &signatures)?;
        let infos = order.iter().zip(&lane.steps).enumerate().map(|(place, (&at, opened))| {
            let step = &pipeline.steps[at];
            let wires = opened.signature.inputs.iter();
            let wires = wires.map(|spec| (spec.name.clone(), step.inputs[&spec.name].clone()));
            let used = wiring.steps[place].gives.iter();
            StepInfo {
                name: step.name.clone(),
                model: step.model.clone(),
                sha256: files[at].sha256.clone(),
                inputs: wires.collect(),
                outputs: used.map(|&output| opened.signature.outputs[output].clone()).collect(),
                nodes: opened.nodes.clone(),
            }
        });
        let (steps, wiring) = (infos.collect(), Arc::new(wiring));
        let sessions = match kind {
            DeviceKind::Cpu => Sessions::Shared(lane.steps),
            DeviceKind::Gpu => {
                let spare = Mutex::new(Some(lane));
                Sessions::Own(Box::new(OwnSessions { spare, recipe }))
            }
        };
        Ok((Self { wiring, steps, sessions }, signature))
    }

    pub(super) fn steps(&self) -> &[StepInfo] {
        &self.steps
    }

    /// The number of nodes that each provider runs, of all steps.
    pub(super) fn nodes(&self) -> Vec<ProviderNodes> {
        let mut all: Vec<ProviderNodes> = Vec::new();
        for row in self.steps.iter().flat_map(|step| &step.nodes) {
            match all.iter_mut().find(|own| own.provider == row.provider) {
                Some(own) => own.nodes += row.nodes,
                None => all.push(row.clone()),
            }
        }
        all.sort_by_key(|row| std::cmp::Reverse(row.nodes));
        all
    }

    /// Whether each context has the weights of all steps to itself.
    pub(super) fn has_weights_in_contexts(&self) -> bool {
        matches!(self.sessions, Sessions::Own(_))
    }

    /// The run state of a new context.
    pub(super) fn chain(&self) -> Result<Chain, LoadError> {
        let lane = match &self.sessions {
            Sessions::Shared(steps) => Lane { steps: steps.clone(), stream: None },
            Sessions::Own(own) => {
                let OwnSessions { spare, recipe } = &**own;
                let spare = spare.lock().take();
                spare.map_or_else(|| recipe.again(), Ok)?
            }
        };
        Chain::new(&self.wiring, &self.steps, lane)
    }
}

impl Recipe {
    /// Loads these files, one for each step, on a new stream.
    fn open<F: std::borrow::Borrow<ModelFile>>(
        &self,
        files: impl Iterator<Item = Result<F, LoadError>>,
    ) -> Result<Lane, LoadError> {
        let stream = match self.kind {
            DeviceKind::Cpu => None,
            DeviceKind::Gpu => Some(ComputeStream::open().map_err(super::RuntimeFault::from)?),
        };
        let steps = self.steps.iter().zip(files).map(|((name, ..), file)| {
            let opened = file.and_then(|file| {
                let (file, stream) = (file.borrow(), stream.as_ref());
                Opened::open(&self.runtime, self.kind, file, &self.options, stream)
            });
            opened.map_err(|error| error.in_step(name))
        });
        Ok(Lane { steps: steps.collect::<Result<_, _>>()?, stream })
    }

    /// Loads the same files again.
    fn again(&self) -> Result<Lane, LoadError> {
        self.open(self.steps.iter().map(|(_, path, then)| {
            let file = ModelFile::read(path)?;
            match file.sha256 == *then {
                true => Ok(file),
                false => Err(LoadError::from(ChangedFile {
                    name: self.name.clone(),
                    path: path.clone(),
                    then: then.clone(),
                    now: file.sha256,
                })),
            }
        }))
    }
}
