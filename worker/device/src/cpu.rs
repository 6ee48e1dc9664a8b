//! The CPU device: the reference implementation on threads, for `cpu` devices.
//!
//! It never replaces a GPU. In its reports a kernel is a reference function, and a launch is one call of it
//! over a chunk of the batch. Kernel time is the sum over threads.

mod search;

use std::hint::black_box;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use gridpool_ipc::mutex::Mutex;
use gridpool_kernels::part::{ItemSpan, Part};
use gridpool_kernels::reference::machine::Runner;
use gridpool_kernels::reference::{self, Evaluator};
use gridpool_protocol::chaos::DeviceFault;
use gridpool_protocol::ids::DeviceKind;
use gridpool_protocol::receipt::DeviceInfo;
use gridpool_protocol::shared::SharedSlice;
use procfs::{CpuInfo, Current};

use crate::chaos::process;
use crate::chunk::{ChunkLimits, Feed, Piece, Span};
use crate::device::{AttemptRefusal, Device, DispatchReport, GridAttempt, GridDispatch};
use crate::fault::Fault;
use crate::gauges::Gauges;
use crate::search::SearchAttempt;
use crate::tally::{Tally, Totals};

/// The step before the first op, as reports name it.
const VALIDATE: &str = "validate";

/// A solver, as reports name it.
const SOLVE: &str = "solve";

/// Chunks per thread, so that threads that finish early find more work.
const CHUNKS_PER_THREAD: usize = 4;
/// A chunk smaller than this costs more to hand over than to compute.
const CHUNK_CELLS_MIN: usize = 8 * 1024;
/// A chunk of this size, its image and its labels stay in a core's second-level cache. Programs that make
/// grids grow get the same capacity for their results.
const CHUNK_CELLS_MAX: usize = 64 * 1024;

/// Threads that run the reference implementation.
#[derive(Debug)]
pub struct CpuDevice {
    info: DeviceInfo,
    threads: rayon::ThreadPool,
    /// One for each thread; the first also for dispatches of one chunk, which run on the caller's thread.
    buffers: Vec<Mutex<ThreadBuffers>>,
    gauges: Arc<Gauges>,
}

/// The buffers of one thread, kept from dispatch to dispatch.
#[derive(Debug, Default)]
struct ThreadBuffers {
    evaluator: Evaluator,
    /// For solvers.
    runner: Runner,
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
        let buffers = (0..threads.current_num_threads()).map(|_| Mutex::default()).collect();
        Ok(Self { info, threads, buffers, gauges: Arc::default() })
    }

    /// The work that threads take in turn: items of about `cells_max` cells.
    fn spans(dispatch: &GridDispatch<'_>, cells_max: usize) -> Vec<Span> {
        let mut spans = Vec::new();
        for (at, attempt) in dispatch.attempts.iter().enumerate() {
            let items = attempt.items();
            let step = (cells_max * attempt.batch().items() / attempt.batch().cell_count()).max(1);
            spans.extend(
                items
                    .clone()
                    .step_by(step)
                    .map(|start| Span { attempt: at, items: start..items.end.min(start + step) }),
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

    fn run(&mut self, dispatch: &GridDispatch<'_>) -> Result<DispatchReport, Fault> {
        let cells: usize = dispatch.attempts.iter().map(cells_expected).sum();
        let share = cells / (self.buffers.len() * CHUNKS_PER_THREAD);
        let cells_max = share.clamp(CHUNK_CELLS_MIN, CHUNK_CELLS_MAX);
        let limits = ChunkLimits { items_max: usize::MAX, cells_max };
        let spans = Self::spans(dispatch, cells_max);
        let next = AtomicUsize::new(0);
        let work_off = |thread: usize| {
            let mut buffers = self.buffers[thread].lock();
            let mut done = Totals::of(dispatch);
            while let Some(span) = spans.get(next.fetch_add(1, Ordering::Relaxed)) {
                buffers.run(dispatch, span, limits, (&mut done, &self.gauges, thread))?;
            }
            Ok(done)
        };
        let done = if cells <= cells_max {
            work_off(0)?
        } else {
            let of_threads = self.threads.broadcast(|thread| work_off(thread.index()));
            let none = Totals::of(dispatch);
            of_threads.into_iter().try_fold(none, |all, done| Ok(all.merged(done?)))?
        };
        Ok(done.into_report(0))
    }

    fn search(&mut self, attempts: &[SearchAttempt<'_>]) -> Result<DispatchReport, Fault> {
        search::run(self, attempts)
    }

    fn adopt(&mut self, _arena: SharedSlice<'_>) -> Result<(), Fault> {
        Ok(())
    }

    fn release(&mut self, _arena: SharedSlice<'_>) -> Result<(), Fault> {
        Ok(())
    }

    fn inject(&mut self, fault: DeviceFault) -> Result<(), Fault> {
        match fault {
            DeviceFault::Assert => std::process::abort(),
            DeviceFault::Endless => process::never_end(),
            DeviceFault::Memory => {
                // More than any address space has, so the allocator refuses it.
                let bytes = isize::MAX.unsigned_abs();
                // The optimizer may leave out an allocation that nobody uses, and then nothing is refused.
                let mut memory = Vec::<u8>::new();
                let refused = memory.try_reserve_exact(black_box(bytes)).err();
                black_box(memory);
                let reason = refused.map_or_else(String::new, |error| error.to_string());
                Err(Fault::Memory { bytes, reason })
            }
            DeviceFault::Misaligned => process::load_misaligned(),
            DeviceFault::Oob => process::store_out_of_bounds(),
            DeviceFault::Trap => process::run_no_instruction(),
        }
    }
}

/// The cells of a part, if its grids are like those of the whole batch.
fn cells_expected(attempt: &GridAttempt<'_>) -> usize {
    attempt.batch().cell_count() * attempt.items().len() / attempt.batch().items()
}

impl ThreadBuffers {
    /// Runs neighbouring items of one attempt, in chunks if they are larger than expected.
    fn run(
        &mut self,
        dispatch: &GridDispatch<'_>,
        span: &Span,
        limits: ChunkLimits,
        (done, gauges, thread): (&mut Totals, &Gauges, usize),
    ) -> Result<(), Fault> {
        let Self { evaluator, runner, shapes, offsets, pieces, rest } = self;
        rest.clear();
        rest.push(span.clone());
        let mut feed = Feed::new(dispatch, rest, limits, limits.cells_max);
        while !feed.is_empty() {
            let grids = feed.plan();
            if shapes.len() < grids {
                shapes.resize(grids, [0; 2]);
                offsets.resize(grids + 1, [0; 4]);
            }
            feed.fill(shapes, offsets, pieces, |attempt, refusal| {
                done.attempts[attempt] = Err(refusal);
            });
            for piece in &*pieces {
                gauges.position.pieces_begin(thread, std::slice::from_ref(piece));
                let attempt = &dispatch.attempts[piece.attempt];
                let grids = piece.of_batch.items.len() * attempt.batch().grids_per_item();
                let tally = &mut done.tally;
                let begins = |step: &str| gauges.position.launches(thread, step);
                let ran = run_chunk(
                    (evaluator, runner),
                    dispatch,
                    attempt,
                    &piece.of_batch,
                    &shapes[..grids],
                    (tally, begins),
                )?;
                match (&mut done.attempts[piece.attempt], ran) {
                    (Ok(sum), Some(errors)) => sum.item_errors += errors,
                    (all @ Ok(_), None) => *all = Err(AttemptRefusal::Cancelled),
                    (Err(_), _) => {}
                }
                gauges.position.chunk_is_done(thread);
                gauges.chunk_is_done();
            }
        }
        Ok(())
    }
}

/// Reads a chunk's cells once, applies the program, and writes each part of the result once. Returns how
/// many items have an error; `None` if the attempt was cancelled meanwhile.
fn run_chunk(
    (evaluator, runner): (&mut Evaluator, &mut Runner),
    dispatch: &GridDispatch<'_>,
    attempt: &GridAttempt<'_>,
    chunk: &ItemSpan,
    shapes: &[[u8; 2]],
    (tally, begins): (&mut Tally, impl Fn(&str)),
) -> Result<Option<u32>, Fault> {
    let batch = attempt.batch();
    if let Some(solver) = dispatch.program.solver() {
        runner.load(shapes, |cells| {
            attempt.input().read(batch.cells().start + chunk.cells.start, cells);
        });
        let layout = attempt.output_layout();
        begins(SOLVE);
        let done =
            timed(tally, SOLVE, || runner.run(solver, layout, chunk, || attempt.is_cancelled()));
        if !done {
            return Ok(None);
        }
        for part in Part::ALL {
            if let Some(span) = part.span(layout, chunk) {
                write_part(attempt, part, span, runner.part(part))?;
            }
        }
        return Ok(Some(runner.item_errors()));
    }
    evaluator.load(batch.grids_per_item(), shapes, |cells| {
        attempt.input().read(batch.cells().start + chunk.cells.start, cells);
    });
    begins(VALIDATE);
    timed(tally, VALIDATE, || evaluator.validate());
    let steps = dispatch.program.steps();
    for (at, step) in steps.iter().enumerate() {
        if attempt.is_cancelled() {
            return Ok(None);
        }
        begins(step.op.name());
        timed(tally, step.op.name(), || {
            evaluator.apply(step, at, dispatch.program.ties());
            if at + 1 == steps.len() {
                evaluator.finish(attempt.output_layout(), chunk);
            }
        });
    }
    for part in Part::ALL {
        if let Some(span) = part.span(attempt.output_layout(), chunk) {
            write_part(attempt, part, span, evaluator.part(part))?;
        }
    }
    Ok(Some(evaluator.item_errors()))
}

/// Writes a part of a chunk's result to its place, never beyond it. A part of a packed result may be
/// shorter than its place.
fn write_part(
    attempt: &GridAttempt<'_>,
    part: Part,
    span: Range<usize>,
    bytes: &[u8],
) -> Result<(), Fault> {
    if bytes.len() > span.len() {
        let (found, capacity) = (bytes.len(), span.len());
        let detail = format!("{found} bytes of {part:?} in a place of {capacity} bytes");
        return Err(Fault::WrongResult { detail });
    }
    attempt.output().write(span.start, bytes);
    Ok(())
}

fn timed<T>(tally: &mut Tally, name: &str, call: impl FnOnce() -> T) -> T {
    #[expect(clippy::disallowed_methods, reason = "a device times its own work")]
    let start = Instant::now();
    let result = call();
    tally.add(name, start.elapsed().as_secs_f64() * 1e6);
    result
}

/// The processor's name from Linux.
#[must_use]
pub fn processor() -> String {
    let known = CpuInfo::current().ok();
    let name = known.as_ref().and_then(|known| known.model_name(0));
    name.unwrap_or("unknown processor").to_owned()
}

#[cfg(test)]
mod tests;
