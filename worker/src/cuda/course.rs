//! Which lane takes which chunk, and when it is waited for: chunks go round the lanes, so that one is
//! copied in while another is computed and a third is copied out.

use std::hint;

use super::device::Gpu;
use super::lane::{Done, Lane};
use crate::chunk::{ChunkLimits, Feed, Span};
use crate::device::Task;
use crate::fault::Fault;

/// Cells of a chunk as it comes. Measured on an H200, chunks of 7 to 45 MB fill the bus; each costs some
/// ten microseconds beside its copies.
const CHUNK_CELLS: usize = 12 << 20;

/// Cells of the first chunk of a task and of the last.
const CHUNK_CELLS_MIN: usize = 1 << 20;

/// Takes all of `task` through `lanes`.
///
/// After a fault that ends the worker no call is made; after a lesser one every lane has been waited
/// for.
pub(super) fn run(
    gpu: &mut Gpu,
    lanes: &mut [Lane],
    task: &Task<'_>,
    limits: ChunkLimits,
    done: &mut Done,
) -> Result<(), Fault> {
    let members = task.members.iter().enumerate();
    let mut rest: Vec<_> = members.map(|(member, of)| Span { member, items: of.items() }).collect();
    let mut feed = Feed::new(task, &mut rest, limits, CHUNK_CELLS);
    let ran = go_round(gpu, lanes, task, &mut feed, done);
    match &ran {
        Ok(()) => {}
        Err(fault) if fault.ends_worker() => lanes.iter_mut().for_each(Lane::forget),
        // Each of them, whatever the one before it says: its copies reach members' memory.
        Err(_) => lanes.iter_mut().map(Lane::settle).fold(Ok(()), Result::and)?,
    }
    ran
}

fn go_round(
    gpu: &mut Gpu,
    lanes: &mut [Lane],
    task: &Task<'_>,
    feed: &mut Feed<'_>,
    done: &mut Done,
) -> Result<(), Fault> {
    let mut turn = 0;
    while !feed.is_empty() {
        let at = turn % lanes.len();
        finish(lanes, at, task, done)?;
        feed.limit_cells(chunk_cells(turn, feed.cells_left()));
        lanes[at].begin(gpu, task, feed, done)?;
        turn += 1;
    }
    (turn..turn + lanes.len()).try_for_each(|turn| finish(lanes, turn % lanes.len(), task, done))
}

/// Most cells of chunk number `turn`, where so many are left.
///
/// While the first chunk comes in nothing goes out, and while the last goes out nothing comes in: so
/// sizes double from a small one at the start, and halve to a small one at the end.
fn chunk_cells(turn: usize, left: usize) -> usize {
    const DOUBLINGS_MAX: usize = 16;
    let begun = CHUNK_CELLS_MIN << turn.min(DOUBLINGS_MAX);
    CHUNK_CELLS.min(begun).min((left / 2).max(CHUNK_CELLS_MIN))
}

/// Waits for one lane's chunk. Where results are packed, their last copies are started when their
/// tables have come, so while one lane is waited for, the others are looked after.
fn finish(lanes: &mut [Lane], at: usize, task: &Task<'_>, done: &mut Done) -> Result<(), Fault> {
    let others = |lanes: &[Lane]| {
        let waiting = lanes.iter().enumerate().filter(|(_, lane)| lane.waits_for_tables());
        waiting.filter(|(other, _)| *other != at).count()
    };
    if lanes[at].waits_for_tables() && others(lanes) > 0 {
        while !lanes[at].poll(task)? {
            for lane in lanes.iter_mut() {
                lane.poll(task)?;
            }
            hint::spin_loop();
        }
    }
    lanes[at].finish(task, done).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

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
