//! Sends chunks round the lanes: one chunk is copied in while another is computed and a third is copied
//! out.
//!
//! No call ends a kernel of a chain that runs, so what bounds the time until a job stops that nobody wants is the time
//! of the chunks under way. A long program gets smaller chunks, so that each takes some milliseconds.

use std::hint;

use gridpool_kernels::module::{Kernel, Segment, segments};
use gridpool_protocol::limits::{GRID_CELLS_MAX, JOB_CELLS_MAX, RESULT_BYTES_MAX};
use gridpool_protocol::program::Program;

use super::gpu::Gpu;
use super::lane::Lane;
use super::solve::Work;
use crate::chunk::{ChunkLimits, Feed, Span};
use crate::fault::Fault;
use crate::tally::Totals;

/// Cells of a chunk's input. On an H200, chunks of 7 to 45 MB fill the bus; each costs about ten
/// microseconds beside its copies.
const CHUNK_CELLS: usize = 12 << 20;

/// Cells of the first chunk of a dispatch and of the last.
const CHUNK_CELLS_MIN: usize = 1 << 20;

/// Most items of a chunk of a solver: the sum of all results, each of at most 2^16 bytes, is counted in 32 bits.
const SOLVED_ITEMS_MAX: usize = (1 << 16) - 1;
const _: () = assert!(RESULT_BYTES_MAX <= 1 << 16 && GRID_CELLS_MAX <= 1 << 16);

/// A program of more passes over its values than this gets smaller chunks. An H200 takes at most 0.2 ns for a cell
/// and a pass.
const PASSES_MAX: usize = 4;

/// Takes all of `dispatch` through `lanes`.
///
/// After a fault that ends the worker it makes no further call. After a lesser fault it has waited for
/// every lane.
pub(super) fn run(
    gpu: &mut Gpu,
    lanes: &mut [Lane],
    mut work: Work<'_>,
    limits: ChunkLimits,
    done: &mut Totals,
) -> Result<(), Fault> {
    let dispatch = work.dispatch;
    let parts = passes(dispatch.program).div_ceil(PASSES_MAX);
    let limits = ChunkLimits {
        items_max: (limits.items_max / parts).max(1),
        cells_max: (limits.cells_max / parts).max(1),
    };
    let limits = limits_of(&work, limits);
    let attempts = dispatch.attempts.iter().enumerate();
    let mut rest: Vec<_> =
        attempts.map(|(attempt, of)| Span { attempt, items: of.items() }).collect();
    let cells_max = CHUNK_CELLS / parts;
    let mut feed = Feed::new(dispatch, &mut rest, limits, cells_max);
    // Arenas in global memory are for one launch at a time.
    let is_alone = work.solver.as_ref().is_some_and(|of| !of.solving.kernel.begins_near());
    let lanes = if is_alone { &mut lanes[..1] } else { lanes };
    let ran = go_round(gpu, lanes, &mut work, (&mut feed, cells_max), done);
    match &ran {
        Ok(()) => {}
        Err(fault) if fault.ends_worker() => lanes.iter_mut().for_each(Lane::forget),
        // All of them, even if one fails: their copies reach the attempts' memory.
        Err(_) => {
            lanes.iter().try_for_each(|lane| lane.stop(&work))?;
            let settled = lanes.iter_mut().map(Lane::settle).fold(Ok(()), Result::and);
            let stop = work.solver.as_ref().map(|of| &of.solving.stop);
            stop.map_or(Ok(()), |stop| stop.settle(&gpu.driver)).and(settled)?;
        }
    }
    ran
}

/// The limits of the chunks of a solver, else those that are given.
pub(super) fn limits_of(work: &Work<'_>, limits: ChunkLimits) -> ChunkLimits {
    match work.solver {
        Some(_) => {
            let bytes = work.dispatch.program.extent().per_value() as usize;
            let items_max = SOLVED_ITEMS_MAX.min(JOB_CELLS_MAX as usize / bytes.max(1));
            ChunkLimits { items_max: limits.items_max.min(items_max), ..limits }
        }
        None => limits,
    }
}

fn go_round(
    gpu: &mut Gpu,
    lanes: &mut [Lane],
    work: &mut Work<'_>,
    (feed, cells_max): (&mut Feed<'_>, usize),
    done: &mut Totals,
) -> Result<(), Fault> {
    let mut turn = 0;
    while !feed.is_empty() || lanes.iter().any(Lane::is_busy) {
        let at = turn % lanes.len();
        finish(gpu, (lanes, at), work, feed, done)?;
        if !feed.is_empty() {
            feed.limit_cells(chunk_cells(turn, feed.cells_left()).min(cells_max));
            lanes[at].begin(gpu, work, feed, done)?;
        }
        turn += 1;
    }
    Ok(())
}

/// How often the kernels of a program go over a value: once for each step, and once for all neighbouring images.
fn passes(program: &Program) -> usize {
    let passes = |segment: Segment| match segment {
        Segment::Chain(steps, kernel) if kernel != Kernel::IMAGES => steps.len().max(1),
        Segment::Chain(..) | Segment::Tuple(..) => 1,
    };
    segments(program).into_iter().map(passes).sum()
}

/// Most cells of chunk number `turn`, with `left` cells to go.
///
/// Nothing goes out while the first chunk comes in, and nothing comes in while the last goes out. So
/// sizes double from a small one at the start, and halve to a small one at the end.
fn chunk_cells(turn: usize, left: usize) -> usize {
    const DOUBLINGS_MAX: usize = 16;
    let begun = CHUNK_CELLS_MIN << turn.min(DOUBLINGS_MAX);
    CHUNK_CELLS.min(begun).min((left / 2).max(CHUNK_CELLS_MIN))
}

/// Waits for one lane's chunk. The last copies of a packed result start when its tables have arrived, so
/// the other lanes are polled while one is waited for.
fn finish(
    gpu: &mut Gpu,
    (lanes, at): (&mut [Lane], usize),
    work: &mut Work<'_>,
    feed: &mut Feed<'_>,
    done: &mut Totals,
) -> Result<(), Fault> {
    let poll_all = |lanes: &mut [Lane], work: &Work<'_>| {
        lanes.iter_mut().try_fold(true, |all, lane| Ok::<_, Fault>(lane.poll(work)? && all))
    };
    let waiting = lanes.iter().filter(|lane| lane.is_packed()).count();
    if lanes[at].is_packed() && (waiting > 1 || work.solver.is_some()) {
        while !lanes[at].poll(work)? {
            poll_all(lanes, work)?;
            hint::spin_loop();
        }
        // What is run again has the GPU alone: it would wait for the others' launches, and nobody could stop them.
        while lanes[at].has_left_some() && !poll_all(lanes, work)? {
            hint::spin_loop();
        }
    }
    if lanes[at].finish(gpu, work, feed, done)?.is_some() {
        gpu.allocator.gauges().position.chunk_is_done(at);
        gpu.allocator.gauges().chunk_is_done();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use gridpool_protocol::program::Ties;

    use super::*;

    #[test]
    fn a_program_has_a_pass_for_each_step_and_one_for_images() {
        let passes = |text: &str| passes(&Program::compile(text, Ties::Cpython).unwrap());
        assert_eq!(passes(&["rot90 | replace(1, 2)"; 8].join(" | ")), 1);
        assert_eq!(passes("o_g(5)"), 1);
        assert_eq!(passes("rot90 | o_g(5) | argmax(size) | fill(3)"), 4);
        assert_eq!(passes(&["o_g(5) | merge | paint"; 21].join(" | ")), 63);
        assert_eq!(passes("hsplit(3) | apply(rot90 | o_g(5) | merge)"), 5);
    }

    #[test]
    fn chunks_grow_from_small_to_large_and_shrink_again_and_none_is_empty() {
        let mut left = 150 << 20;
        let mut sizes = Vec::new();
        while left > 0 {
            let cells = chunk_cells(sizes.len(), left).min(left);
            sizes.push(cells >> 20);
            left -= cells;
        }
        assert_eq!(sizes[..6], [1, 2, 4, 8, 12, 12]);
        assert!(sizes[5..].is_sorted_by(|a, b| a >= b), "{sizes:?}");
        assert!(sizes[sizes.len() - 4..].iter().sum::<usize>() <= 12, "{sizes:?}");
        assert_eq!(chunk_cells(0, 5), CHUNK_CELLS_MIN);
        assert_eq!(chunk_cells(usize::MAX, usize::MAX), CHUNK_CELLS);
    }
}
