//! The run state of one context of a pipeline: a binding or a program for each step, the tensors between them and, on a
//! GPU, the stream on which all of it happens.
//!
//! A step's output stays where it was made, and the next step takes it from there. On a GPU the host queues copies in,
//! all steps and copies out, and then waits once. An output that a node on the CPU makes or takes crosses the host's
//! memory; those bytes are counted apart.

use std::sync::Arc;

use gridpool_device::cuda::{ComputeStream, GridKernels};
use gridpool_ipc::clock;
use gridpool_protocol::tensor::model::StepInfo;
use gridpool_protocol::tensor::{DataType, TensorSpec};

use super::program::{Given, Memory, ProgramStep};
use super::wires::{self, Origin, Wiring};
use super::{Lane, LaneStep, LoadError, WireError};
use crate::context::RunError;
use crate::error::RuntimeFault;
use crate::seam::{
    Bound, DeviceMemory, OwnedAllocator, Place, SharedSession, Stop, Value, download, places,
    upload,
};
use crate::signature::Signature;

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Chain {
    // The stream is dropped last: no session outlives it.
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
                    inputs: vec![step.input()],
                    wires: wires(vec![Place::Device]),
                    gives: vec![Place::Device; gives.len()],
                });
            }
        };
        let (session, signature) = (opened.session.clone(), &opened.signature);
        let (inputs, outputs) = (&signature.inputs, &signature.outputs);
        let (takes, makes) = places(&session, inputs.len(), outputs.len())?;
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
            |datatype| wires::described(datatype, &shape),
        );
        Err(RunError::Wire(Box::new(WireError::Unfit {
            step: self.name.clone(),
            wire: self.wires[at].0.clone(),
            input: spec.name.clone(),
            got,
            want: wires::written(spec),
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
                Ok(Given { outputs, unread: None, unused: None })
            }
            Body::Program(program) => {
                let of = (self.name.as_str(), self.wires[0].0.as_str());
                program.run(inputs[0], of, memory, stream)
            }
        }
    }

    /// Checks the statuses of a program that no other step took.
    fn check_statuses(&self, statuses: &[u8]) -> Result<(), RunError> {
        match &self.body {
            Body::Model { .. } => Ok(()),
            Body::Program(program) => program.check(statuses, &self.name),
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
        Ok(Self { inputs, uploaded, steps, host, device, session, wiring, stream })
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
        for (step, statuses) in self.steps.iter().zip(&unread) {
            if let Some(statuses) = statuses {
                step.check_statuses(statuses.bytes(session)?)?;
            }
        }
        let take = |&(step, place): &(usize, usize)| -> Value {
            given[step][place].take().expect("each output is of one wire")
        };
        Ok((self.wiring.outputs.iter().map(take).collect(), runs))
    }

    /// Queues everything, then waits. Nothing that was queued outlives this.
    fn run_on(
        &mut self,
        stream: &mut ComputeStream,
        stop: &Stop,
    ) -> Result<(Vec<Value>, Vec<StepRun>), RunError> {
        stream.enter().map_err(RuntimeFault::from)?;
        let mut kept = Kept::default();
        let queued = self.queue(stream, stop, &mut kept);
        let waited = stream.wait().map_err(RuntimeFault::from);
        match (queued, waited) {
            // The cause, even if the run noticed it too.
            (_, Err(fault)) if !fault.leaves_device_usable() => return Err(fault.into()),
            (Err(error), _) => return Err(error),
            (Ok(()), waited) => waited?,
        }
        for (at, run) in kept.runs.iter_mut().enumerate() {
            run.device_us = stream.between(2 * at, 2 * at + 1).map_err(RuntimeFault::from)?;
        }
        for (step, statuses) in &kept.statuses {
            self.steps[*step].check_statuses(statuses.bytes(&self.session)?)?;
        }
        Ok((kept.outputs, kept.runs))
    }

    fn queue(
        &mut self,
        stream: &mut ComputeStream,
        stop: &Stop,
        kept: &mut Kept,
    ) -> Result<(), RunError> {
        self.upload_inputs(stream)?;
        let (host, device, session) = (&self.host, self.device.as_ref(), &self.session);
        let memory = Memory { host, device, session };
        for (place, (step, wired)) in self.steps.iter_mut().zip(&self.wiring.steps).enumerate() {
            let mut run = StepRun::default();
            // What is copied for this step alone, by input.
            let mut moved: Vec<Option<Value>> = Vec::with_capacity(wired.takes.len());
            for (at, from) in wired.takes.iter().enumerate() {
                let Origin::Step { step: from, given } = *from else {
                    moved.push(None);
                    continue;
                };
                let value = &kept.given[from][given];
                step.check(at, value, session)?;
                let bytes = value.size(session)? as u64;
                let (lies, wanted) = (kept.places[from][given], step.wires[at].1);
                let on_device = lies == Place::Device && wanted == Place::Device;
                *(if on_device { &mut run.device_bytes } else { &mut run.host_bytes }) += bytes;
                let copy = match (lies, wanted) {
                    (Place::Device, Place::Device) | (Place::Host, Place::Host) => None,
                    (Place::Device, Place::Host) => {
                        let mut copy = like(value, host, session)?;
                        download(value, &mut copy, session, stream)?;
                        // The CPU reads it as soon as the step runs.
                        stream.wait().map_err(RuntimeFault::from)?;
                        Some(copy)
                    }
                    (Place::Host, Place::Device) => {
                        let allocator = device.expect("a GPU has it");
                        let copy = like(value, allocator, session)?;
                        upload(value, &copy, session, stream)?;
                        Some(copy)
                    }
                };
                moved.push(copy);
            }
            let inputs =
                wired.takes.iter().enumerate().map(|(at, from)| match (*from, &moved[at]) {
                    (_, Some(moved)) => moved,
                    (Origin::Input(input), None) => match step.wires[at].1 {
                        Place::Device => present(&self.uploaded[input]),
                        Place::Host => present(&self.inputs[input]),
                    },
                    (Origin::Step { step, given }, None) => &kept.given[step][given],
                });
            let inputs: Vec<_> = inputs.collect();
            stream.mark(2 * place).map_err(RuntimeFault::from)?;
            let Given { outputs, unread, unused } =
                step.run(&inputs, stop, memory, Some(stream))?;
            stream.mark(2 * place + 1).map_err(RuntimeFault::from)?;
            kept.moved.extend(moved.into_iter().flatten().chain(unused));
            kept.unread.extend(unread.map(|statuses| (place, statuses)));
            kept.given.push(outputs);
            kept.places.push(step.gives.clone());
            kept.runs.push(run);
        }
        for &(step, place) in &self.wiring.outputs {
            let value = &kept.given[step][place];
            let mut output = like(value, host, session)?;
            match kept.places[step][place] {
                Place::Device => download(value, &mut output, session, stream)?,
                Place::Host => {
                    // A queued copy may still read memory that the allocator gave again.
                    stream.wait().map_err(RuntimeFault::from)?;
                    output.bytes_mut(session)?.copy_from_slice(value.bytes(session)?);
                }
            }
            kept.outputs.push(output);
        }
        for (step, statuses) in &kept.unread {
            let mut came = like(statuses, host, session)?;
            download(statuses, &mut came, session, stream)?;
            kept.statuses.push((*step, came));
        }
        Ok(())
    }

    /// Queues the copies of those inputs that a step takes on the device.
    fn upload_inputs(&mut self, stream: &ComputeStream) -> Result<(), RuntimeFault> {
        let session = &self.session;
        let allocator = self.device.as_ref().expect("a GPU has it");
        for (at, (host, device)) in self.inputs.iter().zip(&mut self.uploaded).enumerate() {
            let takes = |(step, wired): (&ChainStep, &wires::WiredStep)| {
                let mut inputs = wired.takes.iter().zip(&step.wires);
                inputs.any(|(&from, wire)| from == Origin::Input(at) && wire.1 == Place::Device)
            };
            if !self.steps.iter().zip(&self.wiring.steps).any(takes) {
                continue;
            }
            let host = present(host);
            let (datatype, shape) = host.made_as().expect("an input is made here");
            if !device.as_ref().is_some_and(|value| value.is(datatype, shape)) {
                *device = None;
                *device = Some(Value::blank(allocator, datatype, shape, session)?);
            }
            upload(host, present(device), session, stream)?;
        }
        Ok(())
    }
}

/// What a run on a GPU keeps until the stream has been waited for.
#[derive(Debug, Default)]
struct Kept {
    /// The outputs of each step so far, and where they lie.
    given: Vec<Vec<Value>>,
    places: Vec<Vec<Place>>,
    /// Copies in another memory, and what nothing takes.
    moved: Vec<Value>,
    outputs: Vec<Value>,
    /// Statuses that no step takes, by step: on the device, and on the host.
    unread: Vec<(usize, Value)>,
    statuses: Vec<(usize, Value)>,
    runs: Vec<StepRun>,
}

fn present(value: &Option<Value>) -> &Value {
    value.as_ref().expect("it was given memory")
}

/// A tensor of the type and shape of another.
fn like(
    value: &Value,
    allocator: &Arc<OwnedAllocator>,
    session: &SharedSession,
) -> Result<Value, RunError> {
    let (datatype, shape) = value.description(session)?;
    let datatype = datatype.expect("a model with an output of another type was refused");
    Ok(Value::blank(allocator, datatype, &shape, session)?)
}
