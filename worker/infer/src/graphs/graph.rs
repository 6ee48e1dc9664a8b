//! One CUDA graph of a context.

use gridpool_device::cuda::CaptureError;

use super::model::ModelGraph;
use super::{GraphsError, written};
use crate::context::RunError;
use crate::error::RuntimeFault;
use crate::load::LoadError;
use crate::pipeline::{Chain, LoadedPipeline, NotCaptured};
use crate::seam::{DeviceMemory, SharedSession, alone, running};
use crate::signature::Signature;

/// One graph.
#[derive(Debug)]
pub(super) struct Graph {
    pub(super) body: Body,
    pub(super) shapes: Vec<Vec<i64>>,
    /// Whether a replay was compared with a run.
    pub(super) is_checked: bool,
}

/// What is replayed.
#[derive(Debug)]
pub(super) enum Body {
    Model(Box<ModelGraph>),
    /// It runs nothing else.
    Pipeline(Box<Chain>),
}

impl Graph {
    /// One that was captured, and not compared with a run.
    pub(super) fn new(body: Body, shapes: &[Vec<i64>]) -> Self {
        Self { body, shapes: shapes.to_vec(), is_checked: false }
    }

    /// The captured steps of a pipeline.
    pub(super) fn of_pipeline(
        pipeline: &LoadedPipeline,
        signature: &Signature,
        shapes: &[Vec<i64>],
    ) -> Result<Self, LoadError> {
        let mut chain = pipeline.chain()?;
        if let Some(step) = chain.on_host() {
            return Err(GraphsError::Host { tensor: format!("tensor of the step `{step}`") }.into());
        }
        let began = running();
        for (at, (spec, shape)) in signature.inputs.iter().zip(shapes).enumerate() {
            chain.input(at, spec.datatype, shape)?.fill(0);
        }
        let stop = chain.new_stop()?;
        let run = |chain: &mut Chain| match chain.run(&stop) {
            // Of grids of zeros. All steps ran.
            Ok(_) | Err(RunError::Grid { .. }) => Ok(()),
            Err(source) => Err(GraphsError::Run { shapes: written(shapes), source }),
        };
        // They load kernels, choose plans and fill the allocators: a capture is to be a run like all later ones.
        run(&mut chain)?;
        run(&mut chain)?;
        drop(began);
        let alone = alone();
        let captured = chain.capture(&stop);
        drop(alone);
        captured.map_err(|error| not_captured(error, shapes))?;
        let _running = running();
        run(&mut chain)?;
        Ok(Self::new(Body::Pipeline(Box::new(chain)), shapes))
    }

    pub(super) fn session(&self) -> &SharedSession {
        match &self.body {
            Body::Model(graph) => graph.fixed.session(),
            Body::Pipeline(chain) => chain.session(),
        }
    }

    /// The device memory of its sessions; `None` if they keep no count.
    pub(super) fn device_memory(&self) -> Result<Option<DeviceMemory>, RuntimeFault> {
        match &self.body {
            Body::Model(graph) => graph.fixed.session().device_memory(),
            Body::Pipeline(chain) => chain.device_memory(),
        }
    }

    /// Bytes of all tensors of a model's graph, which another one needs, too. A pipeline's are its chain's.
    pub(super) fn tensor_bytes(&self) -> Result<u64, RuntimeFault> {
        match &self.body {
            Body::Model(graph) => graph.fixed.tensor_bytes(),
            Body::Pipeline(_) => Ok(0),
        }
    }
}

fn not_captured(error: NotCaptured, shapes: &[Vec<i64>]) -> GraphsError {
    let shapes = written(shapes);
    match error {
        NotCaptured::Run(source) => GraphsError::Capture { shapes, source },
        NotCaptured::Capture(CaptureError::Fault(fault)) => {
            GraphsError::Capture { shapes, source: RuntimeFault::from(fault).into() }
        }
        NotCaptured::Capture(source) => GraphsError::Replay { shapes, source },
    }
}
