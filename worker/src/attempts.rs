//! Takes the assignments of a dispatch to their answers: holds their memory, runs them together, and answers
//! each on its own. It knows neither messages nor what a fault means for the worker.

use std::mem;
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
    Answers, Assignment, AttemptError, Destination, Inline, Input, JoinedAnswer, OwnReport,
    Packing, Payload, Slice,
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
    Batch(BatchLayout, OutputLayout),
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
    shape: Shape,
    items: Range<usize>,
    input: Memory,
    output: Place,
}

/// The memory of an attempt's input.
#[derive(Debug)]
enum Memory {
    Arena(Arc<ArenaMap>, Slice),
    Inline(Vec<u8>),
}

/// Where an attempt's output goes.
#[derive(Debug)]
enum Place {
    Arena(Arc<ArenaMap>, Slice),
    /// So many bytes go into the answer.
    Inline(usize),
}

fn in_arena<'a>(map: &'a ArenaMap, slice: &Slice) -> Result<SharedSlice<'a>, AttemptError> {
    let part = map.all().part(slice.offset, slice.bytes);
    part.ok_or_else(|| refused(&format!("{slice:?} does not lie in its arena")))
}

impl Memory {
    fn view(&mut self) -> Result<SharedSlice<'_>, AttemptError> {
        match self {
            Self::Arena(map, slice) => in_arena(map, slice),
            Self::Inline(bytes) => Ok(SharedSlice::private(bytes)),
        }
    }
}

impl Place {
    /// Its bytes in the answers of a dispatch.
    fn inline_bytes(&self) -> usize {
        match self {
            Self::Arena(..) => 0,
            Self::Inline(bytes) => *bytes,
        }
    }

    /// `own` are its bytes in the answers.
    fn view<'a>(&'a self, own: &'a mut [u8]) -> Result<SharedSlice<'a>, AttemptError> {
        match self {
            Self::Arena(map, slice) => in_arena(map, slice),
            Self::Inline(_) => Ok(SharedSlice::private(own)),
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
                Ok((Shape::Batch(batch, layout), layout.bytes()))
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
    /// None yet, with room for so many.
    fn of(task: &'a Task, count: usize) -> Self {
        match task {
            Task::Program(program) => Self::Grids(program, Vec::with_capacity(count)),
            Task::Search(_) => Self::Searches(Vec::with_capacity(count)),
        }
    }

    /// Adds what is held. `own` are the bytes of its output in the answers; `stop` is set once nobody wants those.
    fn push(
        &mut self,
        hold: &'a mut Hold,
        own: &'a mut [u8],
        stop: &'a AtomicBool,
    ) -> Result<(), AttemptError> {
        let Hold { shape, items, input, output } = hold;
        let (input, output) = (input.view()?, output.view(own)?);
        match (self, *shape) {
            (Self::Grids(_, attempts), Shape::Batch(batch, layout)) => {
                let attempt = GridAttempt::placed(batch, layout, items.clone(), input, output);
                attempts.push(attempt.map_err(|error| refused(&error))?.with_stop(stop));
            }
            (Self::Searches(attempts), Shape::Search(layout)) => {
                let attempt = SearchAttempt::new(layout, items.clone(), input, output);
                attempts.push(attempt.map_err(|error| refused(&error))?.with_stop(stop));
            }
            (Self::Grids(..), Shape::Search(_)) | (Self::Searches(_), Shape::Batch(..)) => {
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
        mut find: impl FnMut(&Slice) -> Result<Arc<ArenaMap>, E>,
    ) -> Result<Self, E> {
        let Assignment { payload: Payload { packing, input, output }, shard, .. } = assignment;
        let (shape, output_bytes) = task.shape(packing)?;
        let input = match input {
            Input::Arena(slice) => Memory::Arena(find(&slice)?, slice),
            Input::Inline(Inline(bytes)) => Memory::Inline(bytes),
        };
        let output = match output {
            Destination::Arena(slice) => Place::Arena(find(&slice)?, slice),
            Destination::Inline => Place::Inline(output_bytes),
        };
        let items = shard.start as usize..shard.end as usize;
        Ok(Self { shape, items, input, output })
    }
}

fn refused(why: &dyn ToString) -> AttemptError {
    AttemptError::Refused(why.to_string())
}

/// An attempt and its memory, or why that could not be held.
pub(crate) type Held = (AttemptId, Result<Hold, AttemptError>);

/// Runs all held attempts in one launch and answers each, in order. An attempt that could not be held gets
/// its error. `stops` are their flags, and `arrived` is when the message came.
///
/// # Errors
/// A fault that ends the worker.
///
/// # Panics
/// If there are fewer flags than attempts.
pub(crate) fn run_together(
    device: &mut dyn Device,
    task: &Task,
    mut holds: Vec<Held>,
    stops: &[AtomicBool],
    arrived: Instant,
) -> Result<Answers, Fault> {
    let inline_bytes =
        |(_, hold): &Held| hold.as_ref().map_or(0, |hold| hold.output.inline_bytes());
    // All zeros: what a device leaves out must not be what another job left behind.
    let mut outputs = vec![0; holds.iter().map(inline_bytes).sum()];
    let mut rest = outputs.as_mut_slice();
    let mut attempts = Attempts::of(task, holds.len());
    let mut held = Vec::with_capacity(holds.len());
    let gauges = device.gauges();
    let stops = &stops[..holds.len()];
    for ((attempt, hold), stop) in holds.iter_mut().zip(stops) {
        let hold = hold.as_mut().map_err(|error| error.clone());
        held.push(hold.and_then(|hold| {
            gauges.position.names(attempts.len(), *attempt);
            let (own, others) = mem::take(&mut rest).split_at_mut(hold.output.inline_bytes());
            rest = others;
            attempts.push(hold, own, stop)
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
    let (report, ran) = match work {
        Ok(DispatchReport { kernels, allocations, attempts }) => {
            let report = RunReport {
                module_hash: device.module_hash().into(),
                joined_items: u32::try_from(items).unwrap_or(u32::MAX),
                kernels: kernels.into_iter().map(rounded).collect(),
                service_us: u64::try_from(arrived.elapsed().as_micros()).unwrap_or(u64::MAX),
                allocations,
                ..RunReport::default()
            };
            (report, Ok(attempts))
        }
        Err(error) => (RunReport::default(), Err(error)),
    };
    let mut ran = ran.map(Vec::into_iter);
    let mut end = 0;
    let answers = holds.into_iter().zip(held).map(|((attempt, hold), held)| {
        let own = || {
            let hold = hold?;
            let place = end..end + hold.output.inline_bytes();
            end = place.end;
            held?;
            let ran = ran.as_mut().map_err(|error| error.clone())?;
            let ran = ran.next().expect("a device says what it did for each attempt");
            own_report(ran.map_err(|refusal| refused(&refusal))?, &hold, place)
        };
        JoinedAnswer { attempt, result: own() }
    });
    let attempts = answers.collect();
    Ok(Answers { report, attempts, outputs: Inline(outputs) })
}

/// The report of an attempt, whose place in the outputs of all is `place`.
fn own_report(
    ran: AttemptReport,
    hold: &Hold,
    place: Range<usize>,
) -> Result<OwnReport, AttemptError> {
    let AttemptReport { item_errors, h2d_bytes, d2h_bytes, search } = ran;
    let number = |at: usize| u32::try_from(at).map_err(|_| refused(&"the results are too long"));
    let output = match &hold.output {
        Place::Arena(..) => None,
        Place::Inline(_) => Some(number(place.start)?..number(place.end)?),
    };
    let items = u32::try_from(hold.items.len()).unwrap_or(u32::MAX);
    let search = search.map(Box::new);
    Ok(OwnReport { items, item_errors, h2d_bytes, d2h_bytes, search, output })
}

/// Rounds the time to whole nanoseconds: no clock here is finer.
fn rounded(kernel: KernelUse) -> KernelUse {
    KernelUse { device_us: (kernel.device_us * 1e3).round() / 1e3, ..kernel }
}

#[cfg(test)]
mod tests;
