//! From the members of a `Run` to their answers: what each needs is held, all run together, each gets
//! an answer of its own. It knows nothing of messages or of the device's fate.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use gridpool_protocol::arena::ArenaMap;
use gridpool_protocol::batch::BatchLayout;
use gridpool_protocol::message::{
    Answer, AttemptError, Destination, Inline, Input, Member, Payload, Slice,
};
use gridpool_protocol::output::OutputLayout;
use gridpool_protocol::program::Program;
use gridpool_protocol::receipt::{KernelUse, RunReport};
use gridpool_protocol::shared::SharedSlice;

use crate::device::{Device, MemberWork, Task, TaskMember, Work};
use crate::fault::Fault;

/// What one attempt works on, held until it is answered, whatever is forgotten meanwhile.
#[derive(Debug)]
pub(crate) struct Hold {
    batch: BatchLayout,
    items: Range<usize>,
    input: Memory,
    output: Memory,
}

/// Bytes of an end of an attempt.
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

impl Hold {
    /// Holds what `member` names; `find` gives an arena that the device knows.
    pub(crate) fn new<E: From<AttemptError>>(
        program: &Program,
        member: Member,
        mut find: impl FnMut(&Slice) -> Result<Arc<ArenaMap>, E>,
    ) -> Result<Self, E> {
        let Member { attempt: _, payload, part, chaos: _ } = member;
        let Payload { items, cells, input, output } = payload;
        let batch = BatchLayout::new(items, program.grids_per_item(), cells);
        let batch = batch.map_err(|error| refused(&error))?;
        let layout = OutputLayout::new(program, batch).map_err(|error| refused(&error))?;
        let input = match input {
            Input::Arena(slice) => Memory::Arena(find(&slice)?, slice),
            Input::Inline(Inline(bytes)) => Memory::Inline(bytes),
        };
        let output = match output {
            Destination::Arena(slice) => Memory::Arena(find(&slice)?, slice),
            Destination::Inline => Memory::Inline(vec![0; layout.bytes()]),
        };
        Ok(Self { batch, items: part.start as usize..part.end as usize, input, output })
    }

    fn member(&mut self, program: &Program) -> Result<TaskMember<'_>, AttemptError> {
        let (input, output) = (self.input.view()?, self.output.view()?);
        let member = TaskMember::new(program, self.batch, self.items.clone(), input, output);
        member.map_err(|error| refused(&error))
    }

    /// The bytes that go into the answer, if any do.
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

/// Runs all that is held in one launch and answers each, in order; one that could not be held has its
/// error. `arrived` is when the message came.
///
/// # Errors
/// A fault that ends the worker.
pub(crate) fn run_together(
    device: &mut dyn Device,
    program: &Program,
    mut holds: Vec<Result<Hold, AttemptError>>,
    arrived: Instant,
) -> Result<Vec<Result<Answer, AttemptError>>, Fault> {
    let mut members = Vec::with_capacity(holds.len());
    let mut held = Vec::with_capacity(holds.len());
    for hold in &mut holds {
        let member = hold.as_mut().map_err(|error| error.clone());
        held.push(member.and_then(|hold| hold.member(program)).map(|member| members.push(member)));
    }
    let items: usize = members.iter().map(|member| member.items().len()).sum();
    let alone = members.len() == 1;
    let ran = if members.is_empty() {
        Ok(Work::default())
    } else {
        device.run(&Task { program, members: &members })
    };
    drop(members);
    let work = match ran {
        Err(fault) if fault.ends_worker() => return Err(fault),
        Err(fault) => Err(fault.attempt_error(alone)),
        Ok(work) => Ok(work),
    };
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
    });
    let mut done = work.as_ref().map_or(&[][..], |work| &work.members).iter();
    let answer = |(hold, held): (Result<Hold, AttemptError>, Result<(), AttemptError>)| {
        held?;
        let report = report.clone().map_err(AttemptError::clone)?;
        let member = done.next().expect("a device says what it did for each member");
        let MemberWork { item_errors, h2d_bytes, d2h_bytes } =
            member.clone().map_err(|refusal| refused(&refusal))?;
        let hold = hold?;
        let items = u32::try_from(hold.items.len()).unwrap_or(u32::MAX);
        let report = RunReport { items, item_errors, h2d_bytes, d2h_bytes, ..report };
        Ok(Answer { report, output: hold.into_answer() })
    };
    Ok(holds.into_iter().zip(held).map(answer).collect())
}

/// The time in whole nanoseconds: no clock here is finer.
fn rounded(kernel: KernelUse) -> KernelUse {
    KernelUse { device_us: (kernel.device_us * 1e3).round() / 1e3, ..kernel }
}

#[cfg(test)]
mod tests;
