//! Cuts a dispatch into chunks, so that a dispatch and its results may be larger than the device's memory.
//! A chunk is neighbouring items of one attempt, or several small attempts together.
//!
//! A `Feed` does not read a whole batch's tables first. It estimates from the mean how many items make a
//! chunk, reads the tables of those, and takes fewer if they are larger than expected.

use std::ops::Range;

use gridpool_kernels::part::ItemSpan;
use gridpool_protocol::batch::tables::{read_range, shift_offsets};
use gridpool_protocol::program::Program;

use crate::device::{AttemptRefusal, GridDispatch};

/// How large a chunk may be. One item is always allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkLimits {
    /// Most items, and most values of all items together after every step.
    pub items_max: usize,
    /// Most cells of all items together, and most capacity for cells where a step makes new pictures.
    pub cells_max: usize,
}

/// Neighbouring items of one attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) attempt: usize,
    pub(crate) items: Range<usize>,
}

/// Neighbouring items of one attempt within a chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) attempt: usize,
    /// In the attempt's batch.
    pub(crate) of_batch: ItemSpan,
    /// In the chunk.
    pub(crate) of_chunk: ItemSpan,
}

/// Items and cells, counted from the start of a chunk.
#[derive(Clone, Copy, Debug, Default)]
struct Size {
    items: usize,
    cells: usize,
}

/// The items of a dispatch that are still to be done.
#[derive(Debug)]
pub(crate) struct Feed<'a> {
    dispatch: &'a GridDispatch<'a>,
    limits: ChunkLimits,
    /// Most cells of a chunk's input; `limits` bound what its steps make.
    cells_in_max: usize,
    /// Not begun, in order; the first may be partly done.
    rest: &'a mut Vec<Span>,
    /// How many of `rest` are done.
    done: usize,
    /// How many spans, from the first that is not done, the next chunk may take from.
    windows: usize,
    last_window: Range<usize>,
}

impl<'a> Feed<'a> {
    /// Feeds the spans of `rest`, in order.
    pub(crate) fn new(
        dispatch: &'a GridDispatch<'a>,
        rest: &'a mut Vec<Span>,
        limits: ChunkLimits,
        cells_in_max: usize,
    ) -> Self {
        Self { dispatch, limits, cells_in_max, rest, done: 0, windows: 0, last_window: 0..0 }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.done == self.rest.len()
    }

    /// About how many cells are left, estimated from the means of their batches.
    pub(crate) fn cells_left(&self) -> usize {
        let cells = self.rest[self.done..].iter().map(|span| {
            let batch = self.dispatch.attempts[span.attempt].batch();
            batch.cell_count().div_ceil(batch.items()) * span.items.len()
        });
        cells.sum()
    }

    /// Limits the input cells of the next chunks.
    pub(crate) fn limit_cells(&mut self, cells_in_max: usize) {
        self.cells_in_max = cells_in_max;
    }

    /// Most cells that a chunk makes, which are bytes of a solver's results.
    pub(crate) fn cells_max(&self) -> usize {
        self.limits.cells_max
    }

    /// Takes back the pieces of a chunk. From now on no chunk has more than half of its items.
    pub(crate) fn take_back(&mut self, pieces: &[Piece]) {
        let items = pieces.last().map_or(0, |piece| piece.of_chunk.items.end);
        self.limits.items_max = self.limits.items_max.min(items / 2).max(1);
        let spans = pieces.iter().map(|piece| {
            let Piece { attempt, of_batch, .. } = piece;
            Span { attempt: *attempt, items: of_batch.items.clone() }
        });
        self.rest.splice(self.done..self.done, spans);
    }

    /// Decides how far the next chunk may reach, and returns how many grids' tables it reads.
    pub(crate) fn plan(&mut self) -> usize {
        let (mut size, mut grids) = (Size::default(), 0);
        self.windows = 0;
        for span in &self.rest[self.done..] {
            let batch = self.dispatch.attempts[span.attempt].batch();
            let mean = batch.cell_count().div_ceil(batch.items());
            let items = self.longest(size, span.items.len(), |items| items * mean);
            if items == 0 {
                break;
            }
            size = Size { items: size.items + items, cells: size.cells + items * mean };
            grids += items * batch.grids_per_item();
            self.windows += 1;
            self.last_window = span.items.start..span.items.start + items;
            if items < span.items.len() {
                break;
            }
        }
        grids
    }

    /// Reads the planned tables, one attempt after the other, and fills `pieces` with the chunk's pieces.
    /// Offsets count from the chunk's first cell. An attempt with bad tables, or that was cancelled, is
    /// `refused` and left out, now and later.
    pub(crate) fn fill(
        &mut self,
        shapes: &mut [[u8; 2]],
        offsets: &mut [[u8; 4]],
        pieces: &mut Vec<Piece>,
        mut refuse: impl FnMut(usize, AttemptRefusal),
    ) {
        pieces.clear();
        let mut size = Size::default();
        for window in (1..=self.windows).rev() {
            let Span { attempt, items } = self.rest[self.done].clone();
            let items = if window == 1 { self.last_window.clone() } else { items };
            let batch = self.dispatch.attempts[attempt].batch();
            let per_item = batch.grids_per_item();
            let grids = size.items * per_item..(size.items + items.len()) * per_item;
            let (shapes, offsets) =
                (&mut shapes[grids.clone()], &mut offsets[grids.start..=grids.end]);
            let input = self.dispatch.attempts[attempt].input();
            let cells = match self.dispatch.attempts[attempt].is_cancelled() {
                true => Err(AttemptRefusal::Cancelled),
                false => read_range(batch, items.clone(), &input, shapes, offsets)
                    .map_err(AttemptRefusal::from),
            };
            let cells = match cells {
                Ok(cells) => cells,
                Err(refusal) => {
                    refuse(attempt, refusal);
                    offsets[0] = number(size.cells).to_le_bytes();
                    self.done += 1;
                    continue;
                }
            };
            let start = |at: usize| u32::from_le_bytes(offsets[at * per_item]) as usize;
            let taken = self.longest(size, items.len(), |items| start(items) - cells.start);
            let end = start(taken);
            if taken > 0 {
                let after =
                    Size { items: size.items + taken, cells: size.cells + end - cells.start };
                let by = number(size.cells).wrapping_sub(number(cells.start));
                shift_offsets(&mut offsets[..=taken * per_item], by);
                pieces.push(Piece {
                    attempt,
                    of_batch: ItemSpan {
                        items: items.start..items.start + taken,
                        cells: cells.start..end,
                    },
                    of_chunk: ItemSpan {
                        items: size.items..after.items,
                        cells: size.cells..after.cells,
                    },
                });
                size = after;
                self.advance(taken);
            } else {
                offsets[0] = number(size.cells).to_le_bytes();
            }
            if taken < items.len() {
                break;
            }
        }
    }

    /// Marks the first items of the first unfinished span as done.
    fn advance(&mut self, items: usize) {
        let first = &mut self.rest[self.done].items;
        first.start += items;
        if first.start == first.end {
            self.done += 1;
        }
    }

    /// How many of `most` more items fit after `before`, by bisection: more items never need less space.
    fn longest(&self, before: Size, most: usize, cells: impl Fn(usize) -> usize) -> usize {
        let fits = |items: usize| {
            let after = Size { items: before.items + items, cells: before.cells + cells(items) };
            after.cells <= self.cells_in_max && is_within(self.dispatch.program, after, self.limits)
        };
        if fits(most) {
            return most;
        }
        let (mut fit, mut too_many) = (usize::from(before.items == 0), most);
        while too_many - fit > 1 {
            let middle = fit.midpoint(too_many);
            if fits(middle) {
                fit = middle;
            } else {
                too_many = middle;
            }
        }
        fit
    }
}

/// Whether a chunk of this size stays within `limits` before the first step and after each.
fn is_within(program: &Program, Size { items, cells }: Size, limits: ChunkLimits) -> bool {
    let may_have = |values: usize, capacity: u64| {
        values <= limits.items_max && capacity <= limits.cells_max as u64
    };
    may_have(items * program.takes().width(), cells as u64)
        && program
            .steps()
            .iter()
            .all(|step| may_have(items * step.gives.width(), step.capacity(cells, items)))
}

/// A number of cells, items or evaluations of a chunk.
pub(crate) fn number(count: usize) -> u32 {
    u32::try_from(count)
        .expect("a chunk counts in 32 bits: it has no more of anything than a batch")
}

#[cfg(test)]
mod tests;
