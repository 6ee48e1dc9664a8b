//! What a chain does on a GPU: the host queues copies in, all steps and copies out, and then waits once.
//!
//! A chain that was captured replays all its steps as one CUDA graph. Its sessions then run nothing else: what a
//! replay writes lies at addresses that their allocators would give to others.

use std::sync::Arc;

use gridpool_device::cuda::{CaptureError, ComputeStream, StreamGraph};
use gridpool_device::fault::Fault;

use super::{Chain, ChainStep, SIZES_AT, StepRun, present};
use crate::context::RunError;
use crate::error::{RuntimeFault, settled};
use crate::pipeline::program::{Given, Memory};
use crate::pipeline::wires::{Origin, WiredStep};
use crate::seam::{
    OwnedAllocator, Place, SharedSession, Stop, Value, changing, download, replay, upload,
};

/// What a run on a GPU keeps until the stream has been waited for.
#[derive(Debug, Default)]
struct Kept {
    /// The outputs of each step so far, and where they lie.
    given: Vec<Vec<Value>>,
    places: Vec<Vec<Place>>,
    /// Copies in another memory, and what nothing takes.
    moved: Vec<Value>,
    /// Statuses that no step takes, by step.
    unread: Vec<(usize, Value)>,
    /// Without their times.
    runs: Vec<StepRun>,
}

/// What comes to the host.
#[derive(Debug, Default)]
struct Came {
    outputs: Vec<Value>,
    statuses: Vec<(usize, Value)>,
}

/// All steps as a CUDA graph, with the tensors that it writes.
#[derive(Debug)]
pub(super) struct Captured {
    /// None while it is dropped.
    graph: Option<StreamGraph>,
    kept: Kept,
}

impl Drop for Captured {
    fn drop(&mut self) {
        // It has memory of the device.
        let _changing = changing();
        self.graph = None;
    }
}

/// Why a chain was not captured.
#[derive(Debug)]
pub(crate) enum NotCaptured {
    Run(RunError),
    Capture(CaptureError),
}

impl From<CaptureError> for NotCaptured {
    fn from(error: CaptureError) -> Self {
        Self::Capture(error)
    }
}

impl From<Fault> for NotCaptured {
    fn from(fault: Fault) -> Self {
        Self::Capture(fault.into())
    }
}

impl Chain {
    /// Captures a run over inputs of the current shapes, which has run before: from now on each run is a replay, and
    /// `stop` ends none. Only on a GPU.
    pub(crate) fn capture(&mut self, stop: &Stop) -> Result<(), NotCaptured> {
        let enter = self.stream.as_ref().map(ComputeStream::enter);
        enter.expect("a chain of a GPU is captured")?;
        let mut stream = self.stream.take().expect("it was just entered");
        let queued = stream.capture(|stream| {
            let mut kept = Kept::default();
            self.queue_steps(stream, stop, &mut kept).map(|()| kept).map_err(NotCaptured::Run)
        });
        self.stream = Some(stream);
        let (graph, kept) = queued?;
        self.captured = Some(Captured { graph: Some(graph), kept });
        Ok(())
    }

    /// Queues everything, then waits. Nothing that was queued outlives this.
    pub(super) fn run_on(
        &mut self,
        stream: &mut ComputeStream,
        stop: &Stop,
    ) -> Result<(Vec<Value>, Vec<StepRun>), RunError> {
        stream.enter().map_err(RuntimeFault::from)?;
        let (mut own, mut came) = (Kept::default(), Came::default());
        let queued = self.queue(stream, stop, &mut own, &mut came);
        settled(queued, stream.wait())?;
        let kept = self.captured.as_ref().map_or(&own, |captured| &captured.kept);
        let mut runs = kept.runs.clone();
        for (at, run) in runs.iter_mut().enumerate() {
            run.device_us = stream.between(2 * at, 2 * at + 1).map_err(RuntimeFault::from)?;
        }
        for (step, statuses) in &came.statuses {
            let sizes = || self.sizes_taken(*step, kept, stream);
            self.steps[*step].check_statuses(statuses.bytes(&self.session)?, sizes)?;
        }
        Ok((came.outputs, runs))
    }

    /// The sizes of the grids that a program took in a run that has ended.
    fn sizes_taken(
        &self,
        step: usize,
        kept: &Kept,
        stream: &ComputeStream,
    ) -> Result<Vec<u8>, RunError> {
        let (host, session) = (&self.host, &self.session);
        let (value, place) = match self.wiring.steps[step].takes[SIZES_AT] {
            Origin::Input(input) => (present(&self.inputs[input]), Place::Host),
            Origin::Step { step, given } => (&kept.given[step][given], kept.places[step][given]),
        };
        match place {
            Place::Host => Ok(value.bytes(session)?.to_vec()),
            Place::Device => {
                let mut copy = like(value, host, session)?;
                download(value, &mut copy, session, stream)?;
                stream.wait().map_err(RuntimeFault::from)?;
                Ok(copy.bytes(session)?.to_vec())
            }
        }
    }

    /// Queues copies, steps or their replay, and copies.
    fn queue(
        &mut self,
        stream: &mut ComputeStream,
        stop: &Stop,
        own: &mut Kept,
        came: &mut Came,
    ) -> Result<(), RunError> {
        self.upload_inputs(stream)?;
        if let Some(Captured { graph: Some(graph), kept }) = &self.captured {
            replay(graph, stream)?;
            return self.queue_downloads(stream, kept, came);
        }
        self.queue_steps(stream, stop, own)?;
        self.queue_downloads(stream, own, came)
    }

    fn queue_steps(
        &mut self,
        stream: &mut ComputeStream,
        stop: &Stop,
        kept: &mut Kept,
    ) -> Result<(), RunError> {
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
        Ok(())
    }

    fn queue_downloads(
        &self,
        stream: &ComputeStream,
        kept: &Kept,
        came: &mut Came,
    ) -> Result<(), RunError> {
        let (host, session) = (&self.host, &self.session);
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
            came.outputs.push(output);
        }
        for (step, statuses) in &kept.unread {
            let mut copy = like(statuses, host, session)?;
            download(statuses, &mut copy, session, stream)?;
            came.statuses.push((*step, copy));
        }
        Ok(())
    }

    /// Queues the copies of those inputs that a step takes on the device.
    fn upload_inputs(&mut self, stream: &ComputeStream) -> Result<(), RuntimeFault> {
        let session = &self.session;
        let allocator = self.device.as_ref().expect("a GPU has it");
        for (at, (host, device)) in self.inputs.iter().zip(&mut self.uploaded).enumerate() {
            let takes = |(step, wired): (&ChainStep, &WiredStep)| {
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
