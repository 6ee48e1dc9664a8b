//! Reads and checks the tables of some items of a batch in shared memory. Only this file decides whether to trust
//! shapes and offsets of a client.
//!
//! It copies the bytes once, into memory of the caller, and checks the copy. The host does this for every grid on
//! its way to a device, so it takes one pass without branches. Only a wrong batch gets a second pass.

use std::ops::Range;

use super::{BatchError, BatchLayout};
use crate::limits::GRID_CELLS_MAX;
use crate::shared::SharedSlice;

/// An offset with one of these bits exceeds every limit. Without them no sum here overflows.
const OFFSET_BITS_OVER: u32 = 1 << 31;

/// An area less one is valid if it has none of these bits.
const AREA_BITS: u32 = GRID_CELLS_MAX.trailing_zeros();
const _: () = assert!(GRID_CELLS_MAX.is_power_of_two());

/// Copies the shapes of the grids of `items` to `shapes`, and their offsets and last end to `offsets`. Returns the
/// range of their cells in the batch.
///
/// # Errors
/// [`BatchError`] if `memory` is shorter than the layout, a shape is out of bounds, or the offsets do not follow
/// from the shapes: the first item of a batch starts at 0, and the last ends with the cells. This does not read
/// cells.
///
/// # Panics
/// If the batch does not have these items, or a buffer has the wrong length.
pub fn read_range(
    layout: BatchLayout,
    items: Range<usize>,
    memory: &SharedSlice<'_>,
    shapes: &mut [[u8; 2]],
    offsets: &mut [[u8; 4]],
) -> Result<Range<usize>, BatchError> {
    let per_item = layout.grids_per_item();
    let grids = items.start * per_item..items.end * per_item;
    assert!(items.start < items.end && items.end <= layout.items(), "items of the batch");
    assert_eq!(
        (shapes.len(), offsets.len()),
        (grids.len(), grids.len() + 1),
        "room for the tables"
    );
    if memory.bytes() < layout.bytes() {
        return Err(BatchError::Bytes { got: memory.bytes(), want: layout.bytes() });
    }
    memory.read(layout.shapes().start + 2 * grids.start, shapes.as_flattened_mut());
    memory.read(layout.offsets().start + 4 * grids.start, offsets.as_flattened_mut());

    let first = u32::from_le_bytes(offsets[0]);
    let last = u32::from_le_bytes(offsets[grids.len()]);
    let starts = items.start > 0 || first == 0;
    let ends = if items.end < layout.items() {
        last as usize <= layout.cell_count()
    } else {
        last as usize == layout.cell_count()
    };
    if starts && ends && agree(shapes, offsets, per_item) {
        return Ok(first as usize..last as usize);
    }
    Err(first_error(layout, &grids, shapes, offsets))
}

/// Adds `by` to every offset, for grids that move. Sums wrap, so `by` may be a negative number modulo 2^32.
pub fn shift_offsets(offsets: &mut [[u8; 4]], by: u32) {
    for offset in offsets {
        *offset = u32::from_le_bytes(*offset).wrapping_add(by).to_le_bytes();
    }
}

/// Whether every shape is within bounds and every offset follows from the grids before it.
fn agree(shapes: &[[u8; 2]], offsets: &[[u8; 4]], grids_per_item: usize) -> bool {
    let (starts, ends) = (&offsets[..shapes.len()], &offsets[1..]);
    let mut wrong = 0;
    if grids_per_item == 1 {
        for ((shape, start), end) in shapes.iter().zip(starts).zip(ends) {
            wrong |= wrong_bits(*shape, *start, *end, false);
        }
    } else {
        let (shapes, starts) = (shapes.as_chunks::<2>().0, starts.as_chunks::<2>().0);
        for ((shape, start), end) in shapes.iter().zip(starts).zip(ends.as_chunks::<2>().0) {
            wrong |= wrong_bits(shape[0], start[0], end[0], false);
            wrong |= wrong_bits(shape[1], start[1], end[1], true);
        }
    }
    wrong == 0
}

/// Checks one grid; 0 if it is right.
#[inline(always)]
fn wrong_bits(shape: [u8; 2], start: [u8; 4], end: [u8; 4], may_miss: bool) -> u32 {
    let (start, end) = (u32::from_le_bytes(start), u32::from_le_bytes(end));
    let shape = u16::from_le_bytes(shape);
    let area = (shape & 0xff) * (shape >> 8);
    // A valid area less one has none of the bits; 0 less one has all.
    let over = area.wrapping_sub(1) >> AREA_BITS;
    let is_missing = may_miss && shape == 0;
    let shape_bits = if is_missing { 0 } else { u32::from(over) };
    shape_bits | (end.wrapping_sub(start) ^ u32::from(area)) | (end & OFFSET_BITS_OVER)
}

/// The first error in the tables.
fn first_error(
    layout: BatchLayout,
    grids: &Range<usize>,
    shapes: &[[u8; 2]],
    offsets: &[[u8; 4]],
) -> BatchError {
    let offset = |at: usize| u32::from_le_bytes(offsets[at]);
    let mut want = if grids.start == 0 { 0 } else { offset(0) };
    for (at, &[h, w]) in shapes.iter().enumerate() {
        let grid = grids.start + at;
        let area = u32::from(h) * u32::from(w);
        let is_missing = grid % layout.grids_per_item() == 1 && [h, w] == [0, 0];
        if !is_missing && (area == 0 || area as usize > GRID_CELLS_MAX) {
            return BatchError::Shape { grid, h, w };
        }
        if offset(at) != want {
            return BatchError::Offset { grid, got: offset(at), want };
        }
        want = want.saturating_add(area);
    }
    let (grid, got) = (grids.end, offset(shapes.len()));
    if got == want {
        // The grids follow each other and are more, or fewer, than the batch has cells.
        want = u32::try_from(layout.cell_count()).unwrap_or(u32::MAX);
    }
    BatchError::Offset { grid, got, want }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{Grid, GridBatch, Tables};

    /// A batch in memory, in `BatchLayout`'s order.
    fn packed(batch: &GridBatch) -> (BatchLayout, Vec<u8>) {
        let layout = batch.layout().unwrap();
        let mut memory = vec![0; layout.bytes()];
        batch.write_to(layout, &SharedSlice::private(&mut memory));
        (layout, memory)
    }

    /// The range of the cells, the shapes and the offsets.
    type Read = (Range<usize>, Vec<[u8; 2]>, Vec<u32>);

    fn read(
        layout: BatchLayout,
        memory: &mut [u8],
        items: Range<usize>,
    ) -> Result<Read, BatchError> {
        let grids = items.len() * layout.grids_per_item();
        let (mut shapes, mut offsets) = (vec![[9; 2]; grids], vec![[9; 4]; grids + 1]);
        let memory = SharedSlice::private(memory);
        let cells = read_range(layout, items, &memory, &mut shapes, &mut offsets)?;
        Ok((cells, shapes, offsets.into_iter().map(u32::from_le_bytes).collect()))
    }

    fn grids() -> Vec<Grid> {
        let shapes = [(2, 3), (1, 1), (1, 255), (64, 64), (30, 30), (255, 16), (3, 7)];
        shapes.map(|(h, w)| Grid::new(h, w, vec![1; h * w]).unwrap()).to_vec()
    }

    fn singles_and_pairs() -> [GridBatch; 2] {
        let grids = grids();
        let pairs = grids.iter().enumerate();
        let pairs = pairs.map(|(at, grid)| (grid, (at % 3 != 1).then_some(grid)));
        [GridBatch::from_grids(&grids).unwrap(), GridBatch::from_pairs(pairs).unwrap()]
    }

    #[test]
    fn any_range_reads_as_it_does_in_the_whole() {
        for batch in singles_and_pairs() {
            let (layout, mut memory) = packed(&batch);
            let (per_item, tables) = (layout.grids_per_item(), batch.tables());
            for start in 0..layout.items() {
                for end in start + 1..=layout.items() {
                    let (cells, shapes, offsets) = read(layout, &mut memory, start..end).unwrap();
                    let grids = start * per_item..end * per_item;
                    assert_eq!(shapes, tables.shapes()[grids.clone()]);
                    assert_eq!(offsets, tables.offsets()[grids.start..=grids.end]);
                    let want = tables.offsets()[grids.start]..tables.offsets()[grids.end];
                    assert_eq!(cells, want.start as usize..want.end as usize);
                }
            }
        }
    }

    #[test]
    fn every_bit_that_is_wrong_in_the_tables_of_a_range_is_noticed() {
        for batch in singles_and_pairs() {
            let (layout, memory) = packed(&batch);
            let per_item = layout.grids_per_item();
            let whole = Tables::read(layout, &SharedSlice::private(&mut memory.clone()));
            assert!(whole.is_ok());
            for items in [0..layout.items(), 0..2, 2..4, 3..layout.items()] {
                let grids = items.start * per_item..items.end * per_item;
                let shapes = 2 * grids.start..2 * grids.end;
                let first = layout.offsets().start;
                // The first offset of a range in the middle is believed if all the others agree.
                let offsets = first + 4 * grids.start..first + 4 * (grids.end + 1);
                for at in shapes.chain(offsets) {
                    for bit in 0..8 {
                        let mut broken = memory.clone();
                        broken[at] ^= 1 << bit;
                        let error = read(layout, &mut broken, items.clone());
                        let is_turned = at < layout.shapes().end && {
                            let [h, w] = [broken[at & !1], broken[at | 1]].map(usize::from);
                            let [a, b] = [memory[at & !1], memory[at | 1]].map(usize::from);
                            h * w == a * b
                        };
                        assert!(is_turned || error.is_err(), "byte {at} bit {bit} of {items:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn grids_that_follow_each_other_but_not_from_the_first_cell_to_the_last_are_refused() {
        let (tight, memory) = packed(&GridBatch::from_grids(&grids()).unwrap());
        let (items, cells) = (tight.items(), u32::try_from(tight.cell_count()).unwrap());
        let one_more = BatchLayout::new(7, 1, cells + 1).unwrap();
        let moved = |by: u32| {
            let mut memory = memory.clone();
            memory.resize(one_more.bytes(), 0);
            for offset in memory[one_more.offsets()].as_chunks_mut::<4>().0 {
                shift_offsets(std::slice::from_mut(offset), by);
            }
            memory
        };
        let refused = |by: u32, range: Range<usize>, grid, want| {
            let got = if grid == 0 { by } else { cells + by };
            let error = read(one_more, &mut moved(by), range).unwrap_err();
            assert_eq!(error, BatchError::Offset { grid, got, want });
        };
        refused(1, 0..items, 0, 0);
        refused(1, 0..3, 0, 0);
        refused(0, 0..items, items, cells + 1);
        refused(0, 3..items, items, cells + 1);
        // The first offset of a range in the middle is not checked, except against the batch's cells.
        assert!(read(one_more, &mut moved(1), 3..items).is_ok());
        assert!(read(one_more, &mut moved(1), 1..3).is_ok());
        assert!(read(one_more, &mut moved(cells), 1..3).is_err());
    }

    #[test]
    fn errors_name_the_grid_as_the_whole_batch_counts() {
        let (layout, memory) = packed(&GridBatch::from_grids(&grids()).unwrap());
        let mut zero = memory.clone();
        zero[2 * 4] = 0;
        let error = read(layout, &mut zero, 3..6).unwrap_err();
        assert_eq!(error, BatchError::Shape { grid: 4, h: 0, w: 30 });
        let mut moved = memory.clone();
        moved[layout.offsets().start + 4 * 5] ^= 1;
        let error = read(layout, &mut moved, 3..7).unwrap_err();
        assert!(matches!(error, BatchError::Offset { grid: 5, .. }), "{error}");
        assert_eq!(
            read(layout, &mut moved, 0..5).unwrap_err().to_string().matches("grid 5").count(),
            1
        );
        assert!(read(layout, &mut moved, 0..4).is_ok(), "a range does not depend on others");
        let mut short = memory[..layout.bytes() - 1].to_vec();
        assert!(matches!(read(layout, &mut short, 0..1), Err(BatchError::Bytes { .. })));
    }

    #[test]
    fn grids_that_would_wrap_32_bits_are_refused() {
        // 2^20 grids of 2^12 cells are 2^32 cells: the end wraps to the start.
        let items = 1_u32 << 20;
        let layout = BatchLayout::new(items, 1, items).unwrap();
        let mut memory = vec![64; layout.bytes()];
        for grid in 0..=items {
            let at = layout.offsets().start + 4 * grid as usize;
            memory[at..at + 4].copy_from_slice(&grid.wrapping_mul(4_096).to_le_bytes());
        }
        assert!(read(layout, &mut memory, 0..items as usize).is_err());
        assert!(read(layout, &mut memory, 1..items as usize - 1).is_err());
        assert!(read(layout, &mut memory, 0..16).is_ok());
    }

    #[test]
    fn a_shift_is_undone_by_its_opposite() {
        let mut offsets = [0_u32, 7, u32::MAX].map(u32::to_le_bytes);
        let was = offsets;
        shift_offsets(&mut offsets, 5_u32.wrapping_neg());
        assert_eq!(offsets[1], 2_u32.to_le_bytes());
        shift_offsets(&mut offsets, 5);
        assert_eq!(offsets, was);
    }

    /// `cargo test --release -p gridpool-protocol tables -- --ignored --nocapture`
    #[test]
    #[ignore = "prints a rate"]
    #[expect(clippy::print_stdout, reason = "a measurement is read by people")]
    #[expect(clippy::disallowed_methods, reason = "a measurement takes time")]
    fn how_many_grids_a_second_are_read() {
        let items = 1 << 20;
        for per_item in [1, 2] {
            let grid = Grid::new(13, 13, vec![0; 169]).unwrap();
            let mut batch = GridBatch::of_items(per_item);
            for _ in 0..items / per_item {
                match per_item {
                    1 => batch.push(&grid).unwrap(),
                    _ => batch.push_pair(&grid, Some(&grid)).unwrap(),
                }
            }
            let (layout, mut memory) = packed(&batch);
            let window = 65_536 / per_item as usize;
            let (mut shapes, mut offsets) = (vec![[0; 2]; 65_536], vec![[0; 4]; 65_537]);
            let memory = SharedSlice::private(&mut memory);
            let start = std::time::Instant::now();
            for _ in 0..20 {
                for first in (0..layout.items()).step_by(window) {
                    let items = first..first + window;
                    read_range(layout, items, &memory, &mut shapes, &mut offsets).unwrap();
                    shift_offsets(&mut offsets, 17);
                }
            }
            let rate = 20.0 * f64::from(items) / start.elapsed().as_secs_f64() / 1e6;
            println!("{per_item} a item: {rate:.0} M grids/s");
        }
    }
}
