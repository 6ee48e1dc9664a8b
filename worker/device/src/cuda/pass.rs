//! Where a chunk and its result lie on the device, and how their bytes are copied. Plain arithmetic, done
//! before anything is copied.
//!
//! Staging mirrors the device: bytes lie at the same offset in both, so that neighbours are one copy.

use std::ops::Range;

use gridpool_kernels::argument::DeviceAddress;
use gridpool_kernels::part::Part;
use gridpool_protocol::batch::{BatchLayout, PART_ALIGN};
use gridpool_protocol::limits::RESULT_BYTES_MAX;
use gridpool_protocol::output::OutputLayout;
use gridpool_protocol::program::Program;

use super::parts::Parts;
use super::scratch::ScratchLayout;
use super::solve::stop::STOP_BYTES;
use crate::chunk::Piece;
use crate::tally::Totals;

/// Bytes of the number that gives the area of a packed result. It is the last of the sums.
pub(super) const AREA_BYTES: usize = 4;

/// Kernels work on a chunk of at most this many bytes, in and out, where it is staged. They read it over
/// the bus once and write its result there, which is faster than starting two copies.
const NEAR_BYTES_MAX: usize = 8 * 1024;

/// With fewer values, copying a part's table on the host costs less than a device copy of its own.
const DIRECT_VALUES_MIN: usize = 4_096;

/// The input of a chunk: tables of all pieces, the code of a solver with its counter, then the cells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct InputLayout {
    offsets: Range<usize>,
    code: Range<usize>,
    used: Range<usize>,
    cells_start: usize,
}

impl InputLayout {
    /// Layout with capacity for the tables of `grids` grids, and for so many bytes of code.
    pub(super) fn new(grids: usize, code_bytes: usize) -> Self {
        let mut parts = Parts::default();
        parts.add(2 * grids);
        let (offsets, code) = (parts.add(4 * (grids + 1)), parts.add(code_bytes));
        let used = parts.add(if code.is_empty() { 0 } else { 4 + STOP_BYTES });
        Self { offsets, code, used, cells_start: parts.bytes }
    }

    /// The start of the offsets; the shapes start at 0.
    pub(super) fn offsets_start(&self) -> usize {
        self.offsets.start
    }

    /// The end of the offsets.
    pub(super) fn tables_end(&self) -> usize {
        self.offsets.end
    }

    /// Where the code of a solver lies; empty for a chain.
    pub(super) fn code(&self) -> Range<usize> {
        self.code.clone()
    }

    /// How many bytes a solver's results take so far, and behind that the word that stops a launch. They begin as 0.
    pub(super) fn used(&self) -> Range<usize> {
        self.used.clone()
    }

    /// The start of the cells.
    pub(super) fn cells_start(&self) -> usize {
        self.cells_start
    }
}

/// How the bytes of one piece are copied.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ends {
    /// Its cells are copied from its arena.
    pub(super) input: bool,
    /// The device address of its result, if the result's cells are copied straight to its arena.
    pub(super) output: Option<DeviceAddress>,
}

/// What goes through staging, where copying it on the host costs less than device copies of its own.
#[derive(Clone, Copy, Debug)]
pub(super) struct StagingLimits {
    /// Most cells of a piece, before and after.
    pub(super) piece_bytes: usize,
    /// Most bytes of a packed result, if all of it were used: kernels write it there, so no copy waits for another.
    pub(super) packed_bytes: usize,
}

impl StagingLimits {
    pub(super) const USUAL: Self = Self { piece_bytes: 32 << 10, packed_bytes: 2 << 20 };
}

/// A chunk on the device.
#[derive(Clone, Debug)]
pub(super) struct Pass {
    pub(super) input: InputLayout,
    pub(super) batch: BatchLayout,
    pub(super) result: OutputLayout,
    pub(super) scratch: ScratchLayout,
    /// Cells of its largest grid.
    pub(super) area_max: usize,
    /// One for each piece, in order.
    pub(super) ends: Vec<Ends>,
    /// Kernels read the chunk from the host's staging.
    pub(super) reads_near: bool,
    /// Kernels write the result to the host's staging.
    pub(super) writes_near: bool,
}

impl Pass {
    /// The layouts of a chunk that is not empty, whose input is laid out so. Results of a solver have `cells_max`
    /// bytes, which are more than most chunks need: one whose results are larger runs again in parts. Whatever one item
    /// gives fits. `ends` are those that copies may reach.
    pub(super) fn new(
        program: &Program,
        pieces: &[Piece],
        (input, cells_max): (InputLayout, usize),
        area_max: usize,
        (mut ends, staging): (Vec<Ends>, StagingLimits),
    ) -> Self {
        let count = |n: usize| u32::try_from(n).expect("a chunk is no larger than a batch");
        let last = &pieces.last().expect("a chunk has an item").of_chunk;
        let (items, cells) = (count(last.items.end), count(last.cells.end));
        let batch = BatchLayout::new(items, program.grids_per_item(), cells)
            .expect("a chunk is no larger than a batch");
        let result =
            OutputLayout::new(program, batch).expect("the result of a chunk is within its limits");
        let (result, scratch) = match program.solver() {
            None => (result, ScratchLayout::new(program, &batch)),
            Some(_) => {
                let result = result.limited(cells_max.max(RESULT_BYTES_MAX));
                (result, ScratchLayout::of_solver(batch.items(), result.capacity()))
            }
        };
        let is_packed = result.is_packed();
        let writes_packed_near = is_packed && result.bytes() <= staging.packed_bytes;
        for (piece, ends) in pieces.iter().zip(&mut ends) {
            let cells = piece.of_chunk.cells.len();
            let made = piece.of_chunk.cell_range(&result).len().max(cells);
            ends.input &= cells > staging.piece_bytes;
            ends.output = ends.output.filter(|_| !writes_packed_near && made > staging.piece_bytes);
        }
        let mut pass = Self {
            input,
            batch,
            result,
            scratch,
            area_max,
            ends,
            reads_near: false,
            writes_near: writes_packed_near,
        };
        let is_staged = |ends: &Ends| !ends.input && ends.output.is_none();
        let bytes = pass.input.cells_start() + pass.batch.cell_count() + pass.output_bytes();
        if !is_packed && bytes <= NEAR_BYTES_MAX && pass.ends.iter().all(is_staged) {
            (pass.reads_near, pass.writes_near) = (true, true);
        }
        pass
    }

    /// Where the result starts: after the sums, so that a packed result's area, the last of the sums, comes
    /// back with its parts.
    pub(super) fn result_start(&self) -> usize {
        if self.result.is_packed() { self.sums_bytes().next_multiple_of(PART_ALIGN) } else { 0 }
    }

    /// Where the sums of a packed result start.
    pub(super) fn sums_start(&self) -> usize {
        self.result_start() - self.sums_bytes()
    }

    fn sums_bytes(&self) -> usize {
        if self.result.is_packed() { self.scratch.sums.len() } else { 0 }
    }

    /// Where a packed result's area lies.
    pub(super) fn area(&self) -> Range<usize> {
        self.result_start() - AREA_BYTES..self.result_start()
    }

    /// The bytes of the sums and the result.
    pub(super) fn output_bytes(&self) -> usize {
        self.result_start() + self.result.bytes()
    }

    /// Where a part of the result lies; empty if the kind does not have it.
    pub(super) fn part(&self, part: Part) -> Range<usize> {
        let Range { start, end } = part.range(&self.result);
        self.result_start() + start..self.result_start() + end
    }

    /// The only piece's output, if kernels and copies may reach all of it.
    pub(super) fn only_output(&self) -> Option<DeviceAddress> {
        if let [Ends { output, .. }] = self.ends.as_slice() { *output } else { None }
    }

    /// Whether a per-value part goes through staging. The host counts statuses and changes offsets there, and
    /// counts tell where labels need a second byte.
    pub(super) fn stages_table(&self, part: Part) -> bool {
        match part {
            Part::Status | Part::Offsets | Part::Counts => true,
            Part::Shapes
            | Part::Origins
            | Part::Numbers
            | Part::Palettes
            | Part::LabelsLow
            | Part::LabelsHigh
            | Part::Cells => {
                self.only_output().is_none() || self.result.values_count() < DIRECT_VALUES_MIN
            }
        }
    }

    /// The most bytes of the output's staging that a chunk may use.
    pub(super) fn staged_output_bytes(&self) -> usize {
        if self.ends.iter().all(|ends| ends.output.is_some()) {
            self.result_start() + self.result.counts().end
        } else {
            self.output_bytes()
        }
    }
}

/// Bytes copied for a chunk.
#[derive(Debug, Default)]
pub(super) struct Bytes {
    /// To the device and back, for all pieces together.
    pub(super) shared: [u64; 2],
    /// In and out, for each piece alone.
    pub(super) own: Vec<[u64; 2]>,
}

impl Bytes {
    /// Adds them to the attempts of a chunk that gave no results; what pieces share to the last.
    pub(super) fn add_to(&self, pieces: &[Piece], done: &mut Totals) {
        let shared = pieces.last().map(|piece| (piece, &self.shared));
        for (piece, [h2d, d2h]) in pieces.iter().zip(&self.own).chain(shared) {
            if let Ok(sum) = &mut done.attempts[piece.attempt] {
                sum.h2d_bytes += h2d;
                sum.d2h_bytes += d2h;
            }
        }
    }
}
