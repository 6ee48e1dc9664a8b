//! Pipelines: models and programs over grids whose outputs go on to others, in one process and without a way over the
//! host's memory.
//!
//! - `wires` finds the tensors that each step takes.
//! - `chain` is the run state of one context: its bindings, its tensors and, on a GPU, its stream.
//! - `program` is a program over grids in a chain.
//!
//! On a cpu device the contexts share the sessions. On a GPU each has its own, because a session computes on one
//! stream only, and a context's steps are ordered by theirs.

mod chain;
mod program;
mod wires;

use std::path::PathBuf;
use std::sync::Arc;

use gridpool_device::cuda::{ComputeStream, GridKernels};
use gridpool_ipc::mutex::Mutex;
use gridpool_protocol::ids::DeviceKind;
use gridpool_protocol::tensor::model::{ProviderNodes, StepInfo};
use gridpool_protocol::tensor::options::{ChangedFile, ModelOptions};
use gridpool_protocol::tensor::pipeline::{GridStep, Pipeline, StepTensors};

use super::load::{LoadError, ModelFile, Opened, StepSource};
use super::runtime::Runtime;
use super::seam::{AssignedNode, SharedSession, assigned_nodes, changing};
use super::signature::Signature;

pub(super) use chain::{Chain, NotCaptured, StepRun};
use wires::Wiring;

/// A pipeline whose models are loaded.
#[derive(Debug)]
pub(super) struct LoadedPipeline {
    wiring: Arc<Wiring>,
    steps: Vec<StepInfo>,
    sessions: Sessions,
    /// What its programs run on a GPU.
    kernels: Option<Arc<GridKernels>>,
}

/// All steps, in the order in which they run.
#[derive(Debug)]
struct Lane {
    steps: Vec<LaneStep>,
    /// What they compute on; none on a cpu device.
    stream: Option<ComputeStream>,
}

/// What a step runs.
#[derive(Clone, Debug)]
enum LaneStep {
    Model(Opened),
    Program(Arc<GridStep>),
}

/// The sessions of a pipeline.
#[derive(Debug)]
enum Sessions {
    /// All contexts run these.
    Shared(Vec<LaneStep>),
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
    /// In the order in which they run, by name.
    steps: Vec<(String, MadeOf)>,
}

/// What a step is made of.
#[derive(Debug)]
enum MadeOf {
    /// A file with its hash.
    File(PathBuf, String),
    Program(Arc<GridStep>),
}

impl MadeOf {
    fn of(source: &StepSource) -> Self {
        match source {
            StepSource::Model(file) => Self::File(file.path.clone(), file.sha256.clone()),
            StepSource::Program(step) => Self::Program(Arc::clone(step)),
        }
    }

    /// The hash of the file or of the program.
    fn hash(&self) -> String {
        match self {
            Self::File(_, sha256) => sha256.clone(),
            Self::Program(step) => step.hash(),
        }
    }
}

impl LoadedPipeline {
    /// Loads the models of all steps. `sources` are those of the steps, in the order in which the pipeline is written.
    pub(super) fn load(
        runtime: &Runtime,
        kind: DeviceKind,
        name: &str,
        pipeline: &Pipeline,
        sources: &[StepSource],
        options: &ModelOptions,
    ) -> Result<(Self, Signature), LoadError> {
        let order = pipeline.order()?;
        let steps = order.iter().map(|&at| (&pipeline.steps[at].name, &sources[at]));
        let recipe = Recipe {
            runtime: runtime.clone(),
            kind,
            name: name.to_owned(),
            // gridpool captures all steps together: ONNX Runtime is not to capture each by itself.
            options: ModelOptions { cuda_graphs: false, ..options.clone() },
            steps: steps.map(|(name, source)| (name.clone(), MadeOf::of(source))).collect(),
        };
        let mut lane = recipe.open(|place| match &sources[order[place]] {
            StepSource::Model(file) => Ok(file),
            StepSource::Program(_) => unreachable!("a program has no file"),
        })?;
        let mut signatures = Vec::with_capacity(order.len());
        let mut known = Vec::with_capacity(order.len());
        for step in &lane.steps {
            let signature = match step {
                LaneStep::Model(opened) => Arc::clone(&opened.signature),
                LaneStep::Program(step) => {
                    let StepTensors { inputs, outputs } =
                        pipeline.tensors_of(step, &order, &known)?;
                    // Each grid is on its own.
                    let (may_have_rows, rows_share_a_name) = (true, true);
                    Arc::new(Signature { inputs, outputs, may_have_rows, rows_share_a_name })
                }
            };
            known.push(Some(wires::tensors(&signature)));
            signatures.push(signature);
        }
        let own: Vec<_> = signatures.iter().map(|signature| &**signature).collect();
        let (wiring, signature) = Wiring::of(pipeline, &order, &own)?;
        let infos = order.iter().zip(&signatures).enumerate().map(|(place, (&at, signature))| {
            let step = &pipeline.steps[at];
            let wires = signature.inputs.iter();
            let wires = wires.map(|spec| (spec.name.clone(), step.inputs[&spec.name].clone()));
            let used = wiring.steps[place].gives.iter();
            let (program, nodes) = match &lane.steps[place] {
                LaneStep::Model(opened) => (None, opened.nodes.clone()),
                LaneStep::Program(own) => {
                    (Some(own.program().text().trim().to_owned()), Vec::new())
                }
            };
            StepInfo {
                name: step.name.clone(),
                model: step.model().map(|own| own.model.clone()),
                program,
                sha256: recipe.steps[place].1.hash(),
                inputs: wires.collect(),
                outputs: used.map(|&output| signature.outputs[output].clone()).collect(),
                nodes,
            }
        });
        let (steps, wiring) = (infos.collect(), Arc::new(wiring));
        let kernels = lane.load_kernels()?;
        let sessions = match kind {
            DeviceKind::Cpu => Sessions::Shared(lane.steps),
            DeviceKind::Gpu => {
                let spare = Mutex::new(Some(lane));
                Sessions::Own(Box::new(OwnSessions { spare, recipe }))
            }
        };
        Ok((Self { wiring, steps, sessions, kernels }, signature))
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

    /// The nodes of all steps' models, of a pipeline that has no context yet.
    pub(super) fn assigned_nodes(&self) -> Result<Vec<AssignedNode>, super::RuntimeFault> {
        let all = |steps: &[LaneStep]| {
            let mut nodes = Vec::new();
            for step in steps {
                if let LaneStep::Model(opened) = step {
                    nodes.extend(assigned_nodes(&opened.session)?);
                }
            }
            Ok(nodes)
        };
        match &self.sessions {
            Sessions::Shared(steps) => all(steps),
            Sessions::Own(own) => {
                let spare = own.spare.lock();
                all(&spare.as_ref().expect("no context has it yet").steps)
            }
        }
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
        Chain::new(&self.wiring, &self.steps, lane, self.kernels.as_ref())
    }
}

impl Lane {
    /// A session of a model, for what concerns all of them alike.
    fn session(&self) -> &SharedSession {
        let session = self.steps.iter().find_map(|step| match step {
            LaneStep::Model(opened) => Some(&opened.session),
            LaneStep::Program(_) => None,
        });
        session.expect("a pipeline without a model was refused")
    }

    /// Loads the kernels of programs, if it is on a GPU and has some.
    fn load_kernels(&mut self) -> Result<Option<Arc<GridKernels>>, super::RuntimeFault> {
        let programs = self.steps.iter().filter_map(|step| match step {
            LaneStep::Program(step) => Some(step.program().solver().is_some()),
            LaneStep::Model(_) => None,
        });
        let are_solvers: Vec<bool> = programs.collect();
        match &mut self.stream {
            Some(stream) if !are_solvers.is_empty() => {
                let _changing = changing();
                let kernels = GridKernels::load(stream, are_solvers.contains(&true))?;
                Ok(Some(Arc::new(kernels)))
            }
            Some(_) | None => Ok(None),
        }
    }
}

impl Recipe {
    /// Makes all steps on a new stream, those of models from the files that `file` gives by the step's place.
    fn open<F: std::borrow::Borrow<ModelFile>>(
        &self,
        file: impl Fn(usize) -> Result<F, LoadError>,
    ) -> Result<Lane, LoadError> {
        let stream = match self.kind {
            DeviceKind::Cpu => None,
            DeviceKind::Gpu => Some(ComputeStream::open().map_err(super::RuntimeFault::from)?),
        };
        let steps = self.steps.iter().enumerate().map(|(place, (name, of))| match of {
            MadeOf::Program(step) => Ok(LaneStep::Program(Arc::clone(step))),
            MadeOf::File(..) => {
                let opened = file(place).and_then(|file| {
                    let (file, stream) = (file.borrow(), stream.as_ref());
                    Opened::open(&self.runtime, self.kind, file, &self.options, stream)
                });
                opened.map(LaneStep::Model).map_err(|error| error.in_step(name))
            }
        });
        Ok(Lane { steps: steps.collect::<Result<_, _>>()?, stream })
    }

    /// Loads the same files again.
    fn again(&self) -> Result<Lane, LoadError> {
        self.open(|place| {
            let MadeOf::File(path, then) = &self.steps[place].1 else {
                unreachable!("a program has no file")
            };
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
        })
    }
}
