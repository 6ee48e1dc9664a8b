//! The CPU device: the reference implementation on threads, when a `cpu` device was named.
//!
//! It is never a stand-in for a GPU. In its reports a kernel is a reference function, and a launch
//! is one call of it over a chunk of the batch; its time is the sum over threads.

use std::fs;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use gridpool_kernels::part::{Part, Run};
use gridpool_kernels::reference::{self, Evaluator};
use gridpool_protocol::chaos::DeviceFault;
use gridpool_protocol::ids::DeviceKind;
use gridpool_protocol::receipt::DeviceInfo;
use gridpool_protocol::shared::SharedSlice;

use crate::chaos::process;
use crate::chunk::{ChunkLimits, Feed, Piece, Span};
use crate::device::{Device, MemberWork, Refusal, Task, TaskMember, Work};
use crate::fault::Fault;
use crate::gauges::Gauges;
use crate::tally::Tally;

/// The step before the first op, as reports name it.
const VALIDATE: &str = "validate";

/// Chunks per thread, so that threads that finish early find more work.
const CHUNKS_PER_THREAD: usize = 4;
/// A chunk smaller than this costs more to hand over than to compute.
const CHUNK_CELLS_MIN: usize = 8 * 1024;
/// A chunk of this size, its image and its labels stay in a core's second-level cache. Chunks of
/// programs that make grids grow have as much room for what they make.
const CHUNK_CELLS_MAX: usize = 64 * 1024;

/// Threads that run the reference implementation.
#[derive(Debug)]
pub struct CpuDevice {
    info: DeviceInfo,
    threads: rayon::ThreadPool,
    /// One for each thread; the first also for tasks of one chunk, which run on the caller's thread.
    desks: Vec<Mutex<Desk>>,
    gauges: Arc<Gauges>,
}

/// What one thread works with, kept from run to run.
#[derive(Debug, Default)]
struct Desk {
    evaluator: Evaluator,
    shapes: Vec<[u8; 2]>,
    offsets: Vec<[u8; 4]>,
    pieces: Vec<Piece>,
    rest: Vec<Span>,
}

impl CpuDevice {
    /// A device of `threads` threads, the `index`th of its kind.
    ///
    /// # Errors
    /// [`Fault::Threads`] if they cannot be started.
    pub fn open(index: u32, threads: usize) -> Result<Self, Fault> {
        let builder = rayon::ThreadPoolBuilder::new().num_threads(threads);
        let pool = builder.thread_name(|n| format!("reference {n}")).build();
        let refused = |error: rayon::ThreadPoolBuildError| {
            let reason = error.to_string();
            Fault::Threads { threads, reason }
        };
        let info = DeviceInfo {
            kind: DeviceKind::Cpu,
            index,
            name: match threads {
                1 => format!("{}, 1 thread", processor()),
                _ => format!("{}, {threads} threads", processor()),
            },
            uuid: String::new(),
            driver: String::new(),
        };
        let threads = pool.map_err(refused)?;
        let desks = (0..threads.current_num_threads()).map(|_| Mutex::default()).collect();
        Ok(Self { info, threads, desks, gauges: Arc::default() })
    }

    /// What threads take one after the other: items of about `cells_max` cells.
    fn spans(task: &Task<'_>, cells_max: usize) -> Vec<Span> {
        let mut spans = Vec::new();
        for (at, member) in task.members.iter().enumerate() {
            let items = member.items();
            let step = (cells_max * member.batch().items() / member.batch().cell_count()).max(1);
            spans.extend(
                items
                    .clone()
                    .step_by(step)
                    .map(|start| Span { member: at, items: start..items.end.min(start + step) }),
            );
        }
        spans
    }
}

impl Device for CpuDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn module_hash(&self) -> &str {
        reference::source_hash()
    }

    fn gauges(&self) -> Arc<Gauges> {
        Arc::clone(&self.gauges)
    }

    fn run(&mut self, task: &Task<'_>) -> Result<Work, Fault> {
        let cells: usize = task.members.iter().map(cells_expected).sum();
        let share = cells / (self.desks.len() * CHUNKS_PER_THREAD);
        let cells_max = share.clamp(CHUNK_CELLS_MIN, CHUNK_CELLS_MAX);
        let limits = ChunkLimits { items_max: usize::MAX, cells_max };
        let spans = Self::spans(task, cells_max);
        let next = AtomicUsize::new(0);
        let work_off = |desk: usize| {
            let mut desk = self.desks[desk].lock().unwrap_or_else(PoisonError::into_inner);
            let mut done = Done::new(task.members.len());
            while let Some(span) = spans.get(next.fetch_add(1, Ordering::Relaxed)) {
                desk.run(task, span, limits, &mut done)?;
            }
            Ok(done)
        };
        let done = if cells <= cells_max {
            work_off(0)?
        } else {
            let of_threads = self.threads.broadcast(|thread| work_off(thread.index()));
            let none = Done::new(task.members.len());
            of_threads.into_iter().try_fold(none, |all, done| Ok(all.merged(done?)))?
        };
        Ok(Work { kernels: done.tally.into_uses(), allocations: 0, members: done.members })
    }

    fn adopt(&mut self, _arena: SharedSlice<'_>) -> Result<(), Fault> {
        Ok(())
    }

    fn release(&mut self, _arena: SharedSlice<'_>) -> Result<(), Fault> {
        Ok(())
    }

    fn meet(&mut self, fault: DeviceFault) -> Result<(), Fault> {
        match fault {
            DeviceFault::Assert => std::process::abort(),
            DeviceFault::Endless => process::never_end(),
            DeviceFault::Memory => {
                // More than any address space has, so it is refused by whoever hands memory out.
                let bytes = isize::MAX.unsigned_abs();
                let refused = Vec::<u8>::new().try_reserve_exact(bytes).err();
                let reason = refused.map_or_else(String::new, |error| error.to_string());
                Err(Fault::Memory { bytes, reason })
            }
            DeviceFault::Misaligned => process::load_misaligned(),
            DeviceFault::Oob => process::store_out_of_bounds(),
            DeviceFault::Trap => process::run_no_instruction(),
        }
    }
}

/// The cells of a part, if its grids are like those of the whole.
fn cells_expected(member: &TaskMember<'_>) -> usize {
    member.batch().cell_count() * member.items().len() / member.batch().items()
}

/// What one thread has done.
struct Done {
    tally: Tally,
    members: Vec<Result<MemberWork, Refusal>>,
}

impl Done {
    fn new(members: usize) -> Self {
        Self { tally: Tally::default(), members: vec![Ok(MemberWork::default()); members] }
    }

    fn merged(mut self, other: Self) -> Self {
        for (member, of_other) in self.members.iter_mut().zip(other.members) {
            match (&mut *member, of_other) {
                (Ok(sum), Ok(more)) => sum.item_errors += more.item_errors,
                (Ok(_), Err(refusal)) => *member = Err(refusal),
                (Err(_), Ok(_) | Err(_)) => {}
            }
        }
        Self { tally: self.tally.merged(other.tally), members: self.members }
    }
}

impl Desk {
    /// Runs neighbouring items of one member, in chunks if they are larger than was expected.
    fn run(
        &mut self,
        task: &Task<'_>,
        span: &Span,
        limits: ChunkLimits,
        done: &mut Done,
    ) -> Result<(), Fault> {
        let Self { evaluator, shapes, offsets, pieces, rest } = self;
        rest.clear();
        rest.push(span.clone());
        let mut feed = Feed::new(task, rest, limits, limits.cells_max);
        while !feed.is_empty() {
            let grids = feed.plan();
            if shapes.len() < grids {
                shapes.resize(grids, [0; 2]);
                offsets.resize(grids + 1, [0; 4]);
            }
            feed.fill(shapes, offsets, pieces, |member, refusal| {
                done.members[member] = Err(refusal);
            });
            for piece in &*pieces {
                let member = &task.members[piece.member];
                let grids = piece.of_batch.items.len() * member.batch().grids_per_item();
                let tally = &mut done.tally;
                let errors =
                    run_chunk(evaluator, task, member, &piece.of_batch, &shapes[..grids], tally)?;
                if let Ok(sum) = &mut done.members[piece.member] {
                    sum.item_errors += errors;
                }
            }
        }
        Ok(())
    }
}

/// Reads a chunk's cells once, applies the program, writes each part of the result once. Gives how many
/// items have an error.
fn run_chunk(
    evaluator: &mut Evaluator,
    task: &Task<'_>,
    member: &TaskMember<'_>,
    chunk: &Run,
    shapes: &[[u8; 2]],
    tally: &mut Tally,
) -> Result<u32, Fault> {
    let batch = member.batch();
    evaluator.load(batch.grids_per_item(), shapes, |cells| {
        member.input().read(batch.cells().start + chunk.cells.start, cells);
    });
    timed(tally, VALIDATE, || evaluator.validate());
    let steps = task.program.steps();
    for (at, step) in steps.iter().enumerate() {
        timed(tally, step.op.name(), || {
            evaluator.apply(step, at, task.program.ties());
            if at + 1 == steps.len() {
                evaluator.finish(member.output_layout(), chunk);
            }
        });
    }
    for part in Part::ALL {
        if let Some(span) = part.span(member.output_layout(), chunk) {
            write_part(member, part, span, evaluator.part(part))?;
        }
    }
    Ok(evaluator.item_errors())
}

/// Puts a part of a chunk's result in its place, and never into that of its neighbours. Of a packed
/// result a part may leave a rest of its room.
fn write_part(
    member: &TaskMember<'_>,
    part: Part,
    span: Range<usize>,
    bytes: &[u8],
) -> Result<(), Fault> {
    if bytes.len() > span.len() {
        let (found, room) = (bytes.len(), span.len());
        let detail = format!("{found} bytes of {part:?} where there is room for {room}");
        return Err(Fault::WrongResult { detail });
    }
    member.output().write(span.start, bytes);
    Ok(())
}

fn timed<T>(tally: &mut Tally, name: &str, call: impl FnOnce() -> T) -> T {
    #[expect(clippy::disallowed_methods, reason = "a device times its own work")]
    let start = Instant::now();
    let result = call();
    tally.add(name, start.elapsed().as_secs_f64() * 1e6);
    result
}

/// The processor's name as Linux gives it.
pub(crate) fn processor() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name"));
    let name = model.map(|line| line.trim_start_matches([' ', '\t', ':']));
    name.unwrap_or("unknown processor").to_owned()
}

#[cfg(test)]
mod tests;
