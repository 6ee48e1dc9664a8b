//! A program over grids as a step of a context: its results lie in tensors that are like a model's outputs, in the
//! device's memory.
//!
//! Where nothing takes the statuses, a grid without a result fails the request, once all steps have run: on a GPU they
//! come to the host with the outputs, so that nothing waits for them between two steps.

use std::sync::Arc;

use gridpool_device::cuda::{ComputeStream, GridKernels, GridPlaces, GridsOnDevice};
use gridpool_device::grids::{GridsOnHost, HostTensors};
use gridpool_protocol::tensor::pipeline::{GridStep, GridsRun, SIZES, WireError};
use gridpool_protocol::tensor::{DataType, form};

use crate::context::RunError;
use crate::error::RuntimeFault;
use crate::seam::{OwnedAllocator, Place, SharedSession, Value, run_grids, upload};

/// See the module's text.
#[derive(Debug)]
pub(super) struct ProgramStep {
    step: Arc<GridStep>,
    /// The outputs that are used, by index: its results are 0, their statuses 1, their sizes 2.
    gives: Vec<usize>,
    /// Rows and columns of the tensor of grids, of the last run that was queued here.
    plane: [u8; 2],
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
    /// What else nothing takes: a GPU may still write it.
    pub(super) unused: Vec<Value>,
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
        Self { step: Arc::clone(step), gives: gives.to_vec(), plane: [0; 2], on }
    }

    /// Runs it over a tensor of grids, and perhaps one of their sizes, or queues that on a GPU's stream. `of` is the
    /// step's name and wires.
    pub(super) fn run(
        &mut self,
        inputs: &[&Value],
        of: (&str, &[(String, Place)]),
        memory: Memory<'_>,
        stream: Option<&mut ComputeStream>,
    ) -> Result<Given, RunError> {
        let Memory { host, device, session } = memory;
        let (grids, sizes) = (inputs[0], inputs.get(1).copied());
        let run = self.sized(grids, sizes, of, session)?;
        self.plane = run.size;
        let count = i64::try_from(run.count()).expect("a tensor's sides have 63 bits");
        let [h, w] = run.result.map(i64::from);
        let mut made =
            vec![(DataType::Uint8, vec![count, h, w]), (DataType::Uint8, vec![count, 2])];
        made.extend(self.step.gives_sizes().then(|| (DataType::Int64, vec![count, 2])));
        let made = made.iter();
        let outputs = match (&mut self.on, device, stream) {
            (Processor::Device { kernels, prepared }, Some(device), Some(stream)) => {
                let blank = |(datatype, shape): &(DataType, Vec<i64>)| {
                    Value::blank(device, *datatype, shape, session)
                };
                let outputs = made.map(blank).collect::<Result<Vec<_>, _>>()?;
                if prepared.as_ref().is_none_or(|own| own.run != run) {
                    *prepared = None;
                    let new = Prepared::new(&self.step, run, memory, device, stream)?;
                    *prepared = new.map(Box::new);
                }
                if let Some(Prepared { on_device, tables, scratch, .. }) = prepared.as_deref() {
                    let tensors = GridPlaces {
                        tables,
                        scratch,
                        grids,
                        sizes,
                        results: &outputs[0],
                        status: &outputs[1],
                        result_sizes: outputs.get(2),
                    };
                    run_grids(kernels, on_device, &tensors, session, stream)?;
                }
                outputs
            }
            (Processor::Host(buffers), ..) => {
                let zeros = |(datatype, shape): &(DataType, Vec<i64>)| {
                    Value::new(host, *datatype, shape, session)
                };
                let mut outputs = made.map(zeros).collect::<Result<Vec<_>, _>>()?;
                let bytes = outputs.iter_mut().map(|value| value.bytes_mut(session));
                let mut bytes = bytes.collect::<Result<Vec<_>, _>>()?.into_iter();
                let mut next = || bytes.next().unwrap_or_default();
                let tensors = HostTensors {
                    grids: grids.bytes(session)?,
                    sizes: sizes.map(|sizes| sizes.bytes(session)).transpose()?,
                    results: next(),
                    status: next(),
                    result_sizes: next(),
                };
                buffers.run(&self.step, &run, tensors);
                outputs
            }
            (Processor::Device { .. }, ..) => unreachable!("a GPU has its memory and a stream"),
        };
        Ok(self.given(outputs))
    }

    /// How it runs over such tensors.
    fn sized(
        &self,
        grids: &Value,
        sizes: Option<&Value>,
        (step, wires): (&str, &[(String, Place)]),
        session: &SharedSession,
    ) -> Result<GridsRun, RunError> {
        let wrong = |error| RunError::Wire(Box::new(error));
        let (_, shape) = grids.description(session)?;
        if let Some(sizes) = sizes {
            let (_, got) = sizes.description(session)?;
            let want = [shape[0], 2];
            if got != want {
                return Err(wrong(WireError::Unfit {
                    step: step.to_owned(),
                    wire: wires[1].0.clone(),
                    input: SIZES.to_owned(),
                    got: form(DataType::Int64, &got),
                    want: format!("{}, a size for each grid", form(DataType::Int64, &want)),
                }));
            }
        }
        let sides: Vec<_> = shape.iter().map(|side| side.unsigned_abs()).collect();
        let sides = sides.try_into().expect("the wire was checked: it has three dimensions");
        self.step.run(sides).map_err(|why| {
            wrong(WireError::Grids {
                step: step.to_owned(),
                wire: wires[0].0.clone(),
                got: form(DataType::Uint8, &shape),
                why,
            })
        })
    }

    fn given(&self, outputs: Vec<Value>) -> Given {
        let mut all: Vec<_> = outputs.into_iter().map(Some).collect();
        let take = |&at: &usize| all[at].take().expect("each output is given once");
        let outputs = self.gives.iter().map(take).collect();
        let unread = all[1].take();
        Given { outputs, unread, unused: all.into_iter().flatten().collect() }
    }

    /// Checks the statuses that nothing takes. `sizes` gives the sizes of the grids that it took.
    pub(super) fn check(
        &self,
        statuses: &[u8],
        step: &str,
        sizes: impl FnOnce() -> Result<Vec<u8>, RunError>,
    ) -> Result<(), RunError> {
        let mut all = statuses.as_chunks::<2>().0.iter().enumerate();
        let failed =
            all.find_map(|(grid, status)| Some((grid, *status, self.step.error_of(*status)?)));
        let Some((grid, status, why)) = failed else { return Ok(()) };
        let why = match status == GridsRun::BAD_SIZE && self.step.takes_sizes() {
            true => GridStep::bad_size(size_of(&sizes()?, grid), self.plane),
            false => why,
        };
        Err(RunError::Grid { step: step.to_owned(), grid, why })
    }
}

/// The rows and columns of a grid, of a tensor of INT64.
fn size_of(sizes: &[u8], grid: usize) -> [i64; 2] {
    let sides = sizes.as_chunks::<8>().0;
    [sides[2 * grid], sides[2 * grid + 1]].map(i64::from_le_bytes)
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
