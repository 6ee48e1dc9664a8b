//! A program over grids as a step of a context: its results lie in tensors that are like a model's outputs, in the
//! device's memory.
//!
//! Where nothing takes the statuses, a grid without a result fails the request, once all steps have run: on a GPU they
//! come to the host with the outputs, so that nothing waits for them between two steps.

use std::sync::Arc;

use gridpool_device::cuda::{ComputeStream, GridKernels, GridPlaces, GridsOnDevice};
use gridpool_device::grids::GridsOnHost;
use gridpool_protocol::tensor::DataType;
use gridpool_protocol::tensor::pipeline::{GridStep, GridsRun};

use super::WireError;
use super::wires::described;
use crate::context::RunError;
use crate::error::RuntimeFault;
use crate::seam::{OwnedAllocator, SharedSession, Value, run_grids, upload};

/// See the module's text.
#[derive(Debug)]
pub(super) struct ProgramStep {
    step: Arc<GridStep>,
    /// The outputs that are used, by index: its results are 0, their statuses 1.
    gives: Vec<usize>,
    on: Processor,
}

/// What runs it.
#[derive(Debug)]
enum Processor {
    Host(Box<GridsOnHost>),
    Device { kernels: Arc<GridKernels>, prepared: Option<Box<Prepared>> },
}

/// What a run on a GPU needs besides its tensors, for tensors of one shape.
#[derive(Debug)]
struct Prepared {
    run: GridsRun,
    on_device: GridsOnDevice,
    tables: Value,
    scratch: Value,
    /// The tables before they were copied.
    _staged: Value,
}

/// The memory of a context: the host's, and a GPU's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Memory<'a> {
    pub(super) host: &'a Arc<OwnedAllocator>,
    pub(super) device: Option<&'a Arc<OwnedAllocator>>,
    pub(super) session: &'a SharedSession,
}

/// What a program gave.
#[derive(Debug)]
pub(super) struct Given {
    /// The outputs that are used, in the order of their wires.
    pub(super) outputs: Vec<Value>,
    /// The statuses, if nothing takes them.
    pub(super) unread: Option<Value>,
    /// The results, if nothing takes them: a GPU may still write them.
    pub(super) unused: Option<Value>,
}

impl ProgramStep {
    /// A step that runs on a GPU if there are kernels.
    pub(super) fn new(
        step: &Arc<GridStep>,
        gives: &[usize],
        kernels: Option<&Arc<GridKernels>>,
    ) -> Self {
        let on = match kernels {
            None => Processor::Host(Box::default()),
            Some(kernels) => Processor::Device { kernels: Arc::clone(kernels), prepared: None },
        };
        Self { step: Arc::clone(step), gives: gives.to_vec(), on }
    }

    /// Runs it over a tensor, or queues that on a GPU's stream. `of` is the name of the step and its wire.
    pub(super) fn run(
        &mut self,
        input: &Value,
        of: (&str, &str),
        memory: Memory<'_>,
        stream: Option<&mut ComputeStream>,
    ) -> Result<Given, RunError> {
        let Memory { host, device, session } = memory;
        let (_, shape) = input.description(session)?;
        let run = self.sized(&shape, of)?;
        let [h, w] = run.result.map(i64::from);
        let shapes = [vec![shape[0], h, w], vec![shape[0], 2]];
        let both = match (&mut self.on, device, stream) {
            (Processor::Device { kernels, prepared }, Some(device), Some(stream)) => {
                let blank =
                    |shape: &Vec<i64>| Value::blank(device, DataType::Uint8, shape, session);
                let [results, status] = [blank(&shapes[0])?, blank(&shapes[1])?];
                if prepared.as_ref().is_none_or(|own| own.run != run) {
                    *prepared = None;
                    let new = Prepared::new(&self.step, run, memory, device, stream)?;
                    *prepared = new.map(Box::new);
                }
                if let Some(Prepared { on_device, tables, scratch, .. }) = prepared.as_deref() {
                    let (results, status) = (&results, &status);
                    let tensors = GridPlaces { tables, scratch, grids: input, results, status };
                    run_grids(kernels, on_device, &tensors, session, stream)?;
                }
                [results, status]
            }
            (Processor::Host(buffers), ..) => {
                let zeros = |shape: &Vec<i64>| Value::new(host, DataType::Uint8, shape, session);
                let [mut results, mut status] = [zeros(&shapes[0])?, zeros(&shapes[1])?];
                let (made, statuses) = (results.bytes_mut(session)?, status.bytes_mut(session)?);
                buffers.run(&self.step, &run, input.bytes(session)?, made, statuses);
                [results, status]
            }
            (Processor::Device { .. }, ..) => unreachable!("a GPU has its memory and a stream"),
        };
        Ok(self.given(both))
    }

    /// How it runs over a tensor of this shape.
    fn sized(&self, shape: &[i64], (step, wire): (&str, &str)) -> Result<GridsRun, RunError> {
        let sides: Vec<_> = shape.iter().map(|side| side.unsigned_abs()).collect();
        let sides = sides.try_into().expect("the wire was checked: it has three dimensions");
        self.step.run(sides).map_err(|why| {
            RunError::Wire(Box::new(WireError::Grids {
                step: step.to_owned(),
                wire: wire.to_owned(),
                got: described(DataType::Uint8, shape),
                why,
            }))
        })
    }

    fn given(&self, both: [Value; 2]) -> Given {
        let mut both = both.map(Some);
        let take = |&at: &usize| both[at].take().expect("each output is given once");
        let outputs = self.gives.iter().map(take).collect();
        let [unused, unread] = both;
        Given { outputs, unread, unused }
    }

    /// Checks the statuses that nothing takes.
    pub(super) fn check(&self, statuses: &[u8], step: &str) -> Result<(), RunError> {
        let mut all = statuses.as_chunks::<2>().0.iter().enumerate();
        let failed = all.find_map(|(grid, status)| Some((grid, self.step.error_of(*status)?)));
        match failed {
            None => Ok(()),
            Some((grid, why)) => Err(RunError::Grid { step: step.to_owned(), grid, why }),
        }
    }
}

impl Prepared {
    /// `None` if there is no grid.
    fn new(
        step: &Arc<GridStep>,
        run: GridsRun,
        Memory { host, session, .. }: Memory<'_>,
        device: &Arc<OwnedAllocator>,
        stream: &ComputeStream,
    ) -> Result<Option<Self>, RuntimeFault> {
        let Some(on_device) = GridsOnDevice::new(step, run) else { return Ok(None) };
        let blank = |allocator, bytes: usize| {
            let bytes = i64::try_from(bytes).expect("memory is counted in 63 bits");
            Value::blank(allocator, DataType::Uint8, &[bytes], session)
        };
        let mut staged = blank(host, on_device.table_bytes())?;
        on_device.write_tables(staged.bytes_mut(session)?);
        let tables = blank(device, on_device.table_bytes())?;
        let scratch = blank(device, on_device.scratch_bytes())?;
        upload(&staged, &tables, session, stream)?;
        Ok(Some(Self { run, on_device, tables, scratch, _staged: staged }))
    }
}
