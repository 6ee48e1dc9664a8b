//! The run state of one context of a pipeline: a binding or a program for each step, the tensors between them and, on a
//! GPU, the stream on which all of it happens.
//!
//! A step's output stays where it was made, and the next step takes it from there. On a GPU the host queues copies in,
//! all steps and copies out, and then waits once. An output that a node on the CPU makes or takes crosses the host's
//! memory; those bytes are counted apart.

mod gpu;

use std::sync::Arc;

use gridpool_device::cuda::{ComputeStream, GridKernels};
use gridpool_ipc::clock;
use gridpool_protocol::tensor::model::StepInfo;
use gridpool_protocol::tensor::pipeline::WireError;
use gridpool_protocol::tensor::{DataType, TensorSpec, form};

use super::program::{Given, Memory, ProgramStep};
use super::wires::{self, Origin, Wiring};
use super::{Lane, LaneStep, LoadError};
use crate::context::RunError;
use crate::error::RuntimeFault;
use crate::seam::{
    Bound, DeviceMemory, OwnedAllocator, Place, SharedSession, Side, Stop, Value, places,
};
use crate::signature::Signature;

use gpu::Captured;
pub(crate) use gpu::NotCaptured;

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Chain {
    // The graph is dropped first, with its tensors, and the stream last: no session outlives it.
    captured: Option<Captured>,
    inputs: Vec<Option<Value>>,
    /// The inputs on a GPU.
    uploaded: Vec<Option<Value>>,
    steps: Vec<ChainStep>,
    host: Arc<OwnedAllocator>,
    /// The device's memory, of the first model's session; none on a cpu device.
    device: Option<Arc<OwnedAllocator>>,
    session: SharedSession,
    wiring: Arc<Wiring>,
    stream: Option<ComputeStream>,
}

/// A step of a context.
#[derive(Debug)]
struct ChainStep {
    name: String,
    body: Body,
    inputs: Vec<TensorSpec>,
    /// The wire of each input, and the memory in which the step takes it.
    wires: Vec<(String, Place)>,
    /// The memory in which each output that is used is made.
    gives: Vec<Place>,
}

/// What a step runs.
#[derive(Debug)]
enum Body {
    Model { bound: Bound, session: SharedSession },
    Program(ProgramStep),
}

/// What a step did in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct StepRun {
    /// Microseconds.
    pub(crate) device_us: f64,
    /// Bytes of other steps' outputs that it took where they lay.
    pub(crate) device_bytes: u64,
    /// Bytes of other steps' outputs that crossed the host's memory.
    pub(crate) host_bytes: u64,
}

impl StepRun {
    /// Adds another run.
    pub(crate) fn add(&mut self, other: &Self) {
        self.device_us += other.device_us;
        self.device_bytes += other.device_bytes;
        self.host_bytes += other.host_bytes;
    }
}

impl ChainStep {
    fn new(
        info: &StepInfo,
        step: &LaneStep,
        gives: &[usize],
        on_gpu: bool,
        kernels: Option<&Arc<GridKernels>>,
    ) -> Result<Self, RuntimeFault> {
        let wires = |takes: Vec<Place>| {
            let wires = info.inputs.iter().zip(takes);
            wires.map(|((_, wire), place)| (wire.clone(), place)).collect()
        };
        let opened = match step {
            LaneStep::Model(opened) => opened,
            LaneStep::Program(step) => {
                return Ok(Self {
                    name: info.name.clone(),
                    body: Body::Program(ProgramStep::new(step, gives, kernels)),
                    inputs: step.inputs(),
                    wires: wires(vec![Place::Device; step.inputs().len()]),
                    gives: vec![Place::Device; gives.len()],
                });
            }
        };
        let (session, signature) = (opened.session.clone(), &opened.signature);
        let (inputs, outputs) = (&signature.inputs, &signature.outputs);
        let takes = places(&session, Side::Input, inputs.len())?;
        let makes = places(&session, Side::Output, outputs.len())?;
        let names = Signature::names(outputs);
        let gives: Vec<_> = gives.iter().map(|&at| (names[at].clone(), makes[at])).collect();
        // Without a GPU all memory is the host's, whatever it is called.
        let bound = gives
            .iter()
            .map(|(name, place)| (name.clone(), if on_gpu { *place } else { Place::Host }));
        let bound = Bound::new(&session, Signature::names(inputs), bound.collect())?;
        Ok(Self {
            name: info.name.clone(),
            body: Body::Model { bound, session },
            inputs: inputs.clone(),
            wires: wires(takes),
            gives: gives.into_iter().map(|(_, place)| place).collect(),
        })
    }

    /// Checks a tensor of another step that its input `at` takes.
    fn check(&self, at: usize, value: &Value, session: &SharedSession) -> Result<(), RunError> {
        let (datatype, shape) = value.description(session)?;
        let spec = &self.inputs[at];
        if wires::takes(spec, datatype, &shape) {
            return Ok(());
        }
        let got = datatype.map_or_else(
            || "of a type that is not served".to_owned(),
            |datatype| form(datatype, &shape),
        );
        Err(RunError::Wire(Box::new(WireError::Unfit {
            step: self.name.clone(),
            wire: self.wires[at].0.clone(),
            input: spec.name.clone(),
            got,
            want: spec.form(),
        })))
    }

    /// Runs it over these inputs, or queues that.
    fn run(
        &mut self,
        inputs: &[&Value],
        stop: &Stop,
        memory: Memory<'_>,
        stream: Option<&mut ComputeStream>,
    ) -> Result<Given, RunError> {
        match &mut self.body {
            Body::Model { bound, .. } => {
                let outputs = bound.run(inputs, stop);
                let outputs = outputs.map_err(|fault| fault.in_step(&self.name))?;
                assert_eq!(outputs.len(), self.gives.len(), "a run gives all outputs or fails");
                Ok(Given { outputs, unread: None, unused: Vec::new() })
            }
            Body::Program(program) => {
                program.run(inputs, (&self.name, &self.wires), memory, stream)
            }
        }
    }

    /// Checks the statuses of a program that no other step took. `sizes` gives the sizes of the grids that it took.
    fn check_statuses(
        &self,
        statuses: &[u8],
        sizes: impl FnOnce() -> Result<Vec<u8>, RunError>,
    ) -> Result<(), RunError> {
        match &self.body {
            Body::Model { .. } => Ok(()),
            Body::Program(program) => program.check(statuses, &self.name, sizes),
        }
    }
}

impl Chain {
    pub(super) fn new(
        wiring: &Arc<Wiring>,
        infos: &[StepInfo],
        lane: Lane,
        kernels: Option<&Arc<GridKernels>>,
    ) -> Result<Self, LoadError> {
        let session = lane.session().clone();
        let Lane { steps: made, stream } = lane;
        let host = Arc::new(OwnedAllocator::of_host(&session)?);
        let on_gpu = stream.is_some();
        let device = on_gpu.then(|| OwnedAllocator::of_device(&session)).transpose()?;
        let device = device.map(Arc::new);
        let mut steps = Vec::with_capacity(made.len());
        for ((info, step), wired) in infos.iter().zip(&made).zip(&wiring.steps) {
            steps.push(ChainStep::new(info, step, &wired.gives, on_gpu, kernels)?);
        }
        let none = || wiring.inputs.iter().map(|_| None).collect();
        let (inputs, uploaded, wiring) = (none(), none(), Arc::clone(wiring));
        let captured = None;
        Ok(Self { captured, inputs, uploaded, steps, host, device, session, wiring, stream })
    }

    /// A session, for what concerns all of them alike.
    pub(crate) fn session(&self) -> &SharedSession {
        &self.session
    }

    /// The device memory of all sessions; `None` if one keeps no count.
    pub(crate) fn device_memory(&self) -> Result<Option<DeviceMemory>, RuntimeFault> {
        let mut all = DeviceMemory { peak: 0, used: 0 };
        for step in &self.steps {
            let Body::Model { session, .. } = &step.body else { continue };
            let Some(own) = session.device_memory()? else { return Ok(None) };
            (all.peak, all.used) = (all.peak + own.peak, all.used + own.used);
        }
        Ok(Some(all))
    }

    /// What ends a run of it.
    pub(crate) fn new_stop(&self) -> Result<Stop, RuntimeFault> {
        if self.stream.is_some() { Stop::of_queued_runs() } else { Stop::new() }
    }

    /// The memory of an input of this type and shape: the previous memory if both are unchanged, else new.
    pub(crate) fn input(
        &mut self,
        input: usize,
        datatype: DataType,
        shape: &[i64],
    ) -> Result<&mut [u8], RuntimeFault> {
        let session = &self.session;
        let place = &mut self.inputs[input];
        if !place.as_ref().is_some_and(|value| value.is(datatype, shape)) {
            // Free the old one first: both together may be too much.
            *place = None;
            *place = Some(Value::new(&self.host, datatype, shape, session)?);
        }
        let value = place.as_mut().expect("it was put there");
        value.bytes_mut(session)
    }

    /// The name of an input or output of a step that lies in the host's memory.
    pub(crate) fn on_host(&self) -> Option<&str> {
        let on_host = |step: &&ChainStep| {
            let takes = step.wires.iter().map(|(_, place)| place);
            takes.chain(&step.gives).any(|place| *place == Place::Host)
        };
        self.steps.iter().find(on_host).map(|step| step.name.as_str())
    }

    /// Runs all steps over the current inputs, unless `stop` ends them. Returns the outputs, in memory of the host,
    /// and what each step did.
    pub(crate) fn run(&mut self, stop: &Stop) -> Result<(Vec<Value>, Vec<StepRun>), RunError> {
        let Some(mut stream) = self.stream.take() else { return self.run_on_host(stop) };
        let ran = self.run_on(&mut stream, stop);
        self.stream = Some(stream);
        ran
    }

    fn run_on_host(&mut self, stop: &Stop) -> Result<(Vec<Value>, Vec<StepRun>), RunError> {
        let (host, session) = (&self.host, &self.session);
        let memory = Memory { host, device: None, session };
        let mut given: Vec<Vec<Option<Value>>> = Vec::with_capacity(self.steps.len());
        let mut unread = Vec::with_capacity(self.steps.len());
        let mut runs = Vec::with_capacity(self.steps.len());
        for (step, wired) in self.steps.iter_mut().zip(&self.wiring.steps) {
            let (mut inputs, mut run) = (Vec::with_capacity(wired.takes.len()), StepRun::default());
            for (at, from) in wired.takes.iter().enumerate() {
                inputs.push(match *from {
                    Origin::Input(input) => present(&self.inputs[input]),
                    Origin::Step { step: from, given: place } => {
                        let value = present(&given[from][place]);
                        step.check(at, value, session)?;
                        run.device_bytes += value.size(session)? as u64;
                        value
                    }
                });
            }
            let began = clock::now();
            let outputs = step.run(&inputs, stop, memory, None)?;
            run.device_us = began.elapsed().as_secs_f64() * 1e6;
            given.push(outputs.outputs.into_iter().map(Some).collect());
            unread.push(outputs.unread);
            runs.push(run);
        }
        for ((step, wired), statuses) in self.steps.iter().zip(&self.wiring.steps).zip(&unread) {
            if let Some(statuses) = statuses {
                let sizes = || {
                    let sizes = match wired.takes[SIZES_AT] {
                        Origin::Input(input) => &self.inputs[input],
                        Origin::Step { step, given: place } => &given[step][place],
                    };
                    Ok(present(sizes).bytes(session)?.to_vec())
                };
                step.check_statuses(statuses.bytes(session)?, sizes)?;
            }
        }
        let take = |&(step, place): &(usize, usize)| -> Value {
            given[step][place].take().expect("each output is of one wire")
        };
        Ok((self.wiring.outputs.iter().map(take).collect(), runs))
    }
}

/// The place among its inputs at which a program takes the sizes of its grids.
const SIZES_AT: usize = 1;

fn present(value: &Option<Value>) -> &Value {
    value.as_ref().expect("it was given memory")
}
