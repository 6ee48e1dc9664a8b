//! Takes the assignments of a dispatch to their answers: holds their memory, runs them together, and answers
//! each on its own. It knows neither messages nor what a fault means for the worker.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use gridpool_device::device::{AttemptReport, Device, DispatchReport, GridAttempt, GridDispatch};
use gridpool_device::fault::Fault;
use gridpool_device::search::SearchAttempt;
use gridpool_ipc::arena::ArenaMap;
use gridpool_protocol::batch::BatchLayout;
use gridpool_protocol::ids::AttemptId;
use gridpool_protocol::message::{
    Assignment, AttemptAnswer, AttemptError, Destination, Inline, Input, Packing, Payload, Slice,
};
use gridpool_protocol::output::OutputLayout;
use gridpool_protocol::program::Program;
use gridpool_protocol::receipt::{KernelUse, RunReport};
use gridpool_protocol::search::{Score, SearchLayout};
use gridpool_protocol::shared::SharedSlice;

/// What all attempts of a dispatch run.
#[derive(Debug)]
pub(crate) enum Task {
    /// A program over grids.
    Program(Arc<Program>),
    /// Programs over pairs.
    Search(Score),
}

/// Where the parts of an attempt's input lie.
#[derive(Clone, Copy, Debug)]
enum Shape {
    Batch(BatchLayout),
    Search(SearchLayout),
}

/// Attempts as the device takes them.
enum Attempts<'a> {
    Grids(&'a Program, Vec<GridAttempt<'a>>),
    Searches(Vec<SearchAttempt<'a>>),
}

/// The memory of one attempt, held until it is answered even if the supervisor forgets the arena.
#[derive(Debug)]
pub(crate) struct Hold {
    attempt: AttemptId,
    shape: Shape,
    items: Range<usize>,
    input: Memory,
    output: Memory,
    /// Set once nobody wants the answer.
    stop: Arc<AtomicBool>,
}

/// The memory of an attempt's input or output.
#[derive(Debug)]
enum Memory {
    Arena(Arc<ArenaMap>, Slice),
    Inline(Vec<u8>),
}

impl Memory {
    fn view(&mut self) -> Result<SharedSlice<'_>, AttemptError> {
        match self {
            Self::Arena(map, slice) => {
                let part = map.all().part(slice.offset, slice.bytes);
                part.ok_or_else(|| refused(&format!("{slice:?} does not lie in its arena")))
            }
            Self::Inline(bytes) => Ok(SharedSlice::private(bytes)),
        }
    }
}

impl Task {
    /// Where the parts of an input of that packing lie, and the bytes of its result.
    fn shape(&self, packing: Packing) -> Result<(Shape, usize), AttemptError> {
        match (self, packing) {
            (Self::Program(program), Packing::Grids { items, cells }) => {
                let batch = BatchLayout::new(items, program.grids_per_item(), cells);
                let batch = batch.map_err(|error| refused(&error))?;
                let layout = OutputLayout::new(program, batch).map_err(|error| refused(&error))?;
                Ok((Shape::Batch(batch), layout.bytes()))
            }
            (Self::Search(score), Packing::Search(size)) => {
                let layout = SearchLayout::new(size, *score).map_err(|error| refused(&error))?;
                Ok((Shape::Search(layout), layout.output_bytes()))
            }
            (Self::Program(_), Packing::Search(_) | Packing::Tensors) => {
                Err(refused(&"a program runs over grids"))
            }
            (Self::Search(_), Packing::Grids { .. } | Packing::Tensors) => {
                Err(refused(&"a search runs over programs and pairs"))
            }
        }
    }
}

impl<'a> Attempts<'a> {
    fn of(task: &'a Task) -> Self {
        match task {
            Task::Program(program) => Self::Grids(program, Vec::new()),
            Task::Search(_) => Self::Searches(Vec::new()),
        }
    }

    /// Adds what is held.
    fn push(&mut self, hold: &'a mut Hold) -> Result<(), AttemptError> {
        let Hold { shape, items, input, output, stop, .. } = hold;
        let (input, output) = (input.view()?, output.view()?);
        match (self, *shape) {
            (Self::Grids(program, attempts), Shape::Batch(batch)) => {
                let attempt = GridAttempt::new(program, batch, items.clone(), input, output);
                attempts.push(attempt.map_err(|error| refused(&error))?.with_stop(stop));
            }
            (Self::Searches(attempts), Shape::Search(layout)) => {
                let attempt = SearchAttempt::new(layout, items.clone(), input, output);
                attempts.push(attempt.map_err(|error| refused(&error))?.with_stop(stop));
            }
            (Self::Grids(..), Shape::Search(_)) | (Self::Searches(_), Shape::Batch(_)) => {
                return Err(refused(&"it is held for other work"));
            }
        }
        Ok(())
    }

    fn len(&self) -> usize {
        match self {
            Self::Grids(_, attempts) => attempts.len(),
            Self::Searches(attempts) => attempts.len(),
        }
    }

    /// How many there are, and their items together.
    fn count(&self) -> (usize, usize) {
        let items: usize = match self {
            Self::Grids(_, attempts) => attempts.iter().map(|attempt| attempt.items().len()).sum(),
            Self::Searches(attempts) => {
                attempts.iter().map(|attempt| attempt.programs().len()).sum()
            }
        };
        (self.len(), items)
    }

    fn run(&self, device: &mut dyn Device) -> Result<DispatchReport, Fault> {
        match self {
            Self::Grids(program, attempts) => device.run(&GridDispatch { program, attempts }),
            Self::Searches(attempts) => device.search(attempts),
        }
    }
}

impl Hold {
    /// Holds the memory that `assignment` names; `find` returns an arena that the device knows.
    pub(crate) fn new<E: From<AttemptError>>(
        task: &Task,
        assignment: Assignment,
        stop: Arc<AtomicBool>,
        mut find: impl FnMut(&Slice) -> Result<Arc<ArenaMap>, E>,
    ) -> Result<Self, E> {
        let Assignment { attempt, payload: Payload { packing, input, output }, shard, .. } =
            assignment;
        let (shape, output_bytes) = task.shape(packing)?;
        let input = match input {
            Input::Arena(slice) => Memory::Arena(find(&slice)?, slice),
            Input::Inline(Inline(bytes)) => Memory::Inline(bytes),
        };
        let output = match output {
            Destination::Arena(slice) => Memory::Arena(find(&slice)?, slice),
            Destination::Inline => Memory::Inline(vec![0; output_bytes]),
        };
        let items = shard.start as usize..shard.end as usize;
        Ok(Self { attempt, shape, items, input, output, stop })
    }

    /// The bytes that go into the answer, unless they lie in an arena.
    fn into_answer(self) -> Option<Inline> {
        match self.output {
            Memory::Arena(..) => None,
            Memory::Inline(bytes) => Some(Inline(bytes)),
        }
    }
}

fn refused(why: &dyn ToString) -> AttemptError {
    AttemptError::Refused(why.to_string())
}

/// Runs all held attempts in one launch and answers each, in order. An attempt that could not be held gets
/// its error. `arrived` is when the message came.
///
/// # Errors
/// A fault that ends the worker.
pub(crate) fn run_together(
    device: &mut dyn Device,
    task: &Task,
    mut holds: Vec<Result<Hold, AttemptError>>,
    arrived: Instant,
) -> Result<Vec<Result<AttemptAnswer, AttemptError>>, Fault> {
    let mut attempts = Attempts::of(task);
    let mut held = Vec::with_capacity(holds.len());
    let gauges = device.gauges();
    for hold in &mut holds {
        let hold = hold.as_mut().map_err(|error| error.clone());
        held.push(hold.and_then(|hold| {
            gauges.position.names(attempts.len(), hold.attempt);
            attempts.push(hold)
        }));
    }
    let (count, items) = attempts.count();
    let alone = count == 1;
    gauges.position.dispatch_begins(count);
    let ran = if count == 0 { Ok(DispatchReport::default()) } else { attempts.run(device) };
    drop(attempts);
    let work = match ran {
        Err(fault) if fault.ends_worker() => return Err(fault),
        Err(fault) => Err(fault.attempt_error(alone)),
        Ok(work) => Ok(work),
    };
    gauges.position.dispatch_ends();
    let report = work.as_ref().map(|work| RunReport {
        module_hash: device.module_hash().to_owned(),
        items: 0,
        joined_items: u32::try_from(items).unwrap_or(u32::MAX),
        item_errors: 0,
        kernels: work.kernels.iter().cloned().map(rounded).collect(),
        h2d_bytes: 0,
        d2h_bytes: 0,
        service_us: u64::try_from(arrived.elapsed().as_micros()).unwrap_or(u64::MAX),
        allocations: work.allocations,
        infer: None,
        search: None,
    });
    let mut done = work.as_ref().map_or(&[][..], |work| &work.attempts).iter();
    let answer = |(hold, held): (Result<Hold, AttemptError>, Result<(), AttemptError>)| {
        held?;
        let report = report.clone().map_err(AttemptError::clone)?;
        let attempt = done.next().expect("a device says what it did for each attempt");
        let AttemptReport { item_errors, h2d_bytes, d2h_bytes, search } =
            attempt.clone().map_err(|refusal| refused(&refusal))?;
        let hold = hold?;
        let items = u32::try_from(hold.items.len()).unwrap_or(u32::MAX);
        let report = RunReport {
            items,
            item_errors,
            h2d_bytes,
            d2h_bytes,
            search: search.map(Box::new),
            ..report
        };
        Ok(AttemptAnswer { report, output: hold.into_answer() })
    };
    Ok(holds.into_iter().zip(held).map(answer).collect())
}

/// Rounds the time to whole nanoseconds: no clock here is finer.
fn rounded(kernel: KernelUse) -> KernelUse {
    KernelUse { device_us: (kernel.device_us * 1e3).round() / 1e3, ..kernel }
}

#[cfg(test)]
mod tests;
