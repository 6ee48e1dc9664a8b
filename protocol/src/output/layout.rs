//! The places of the parts of a result.

use std::ops::Range;

use super::PALETTE_BYTES;
use crate::batch::{BatchError, BatchLayout, align};
use crate::limits::{JOB_CELLS_MAX, JOB_VALUES_MAX};
use crate::program::{Extent, Kind, Program};

/// The places of the parts of a result. Parts that the kind does not have are empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputLayout {
    kind: Kind,
    values: usize,
    width: usize,
    extent: Extent,
    /// Capacity for the cells of all values.
    capacity: usize,
    packed: bool,
    /// Where each part ends, in order. Devices ask for every part of every attempt.
    ends: [usize; PARTS],
}

/// The number of parts.
const PARTS: usize = 10;

impl OutputLayout {
    /// The layout of the result of `program` over a batch.
    ///
    /// # Errors
    /// [`BatchError`] if the program takes other items, or if the result may be too large for one job.
    ///
    /// # Panics
    /// Never: every converted number is below a smaller limit.
    pub fn new(program: &Program, batch: BatchLayout) -> Result<Self, BatchError> {
        program.check_items(batch.grids_per_item())?;
        let gives = program.gives();
        let kind = gives.kind;
        let of_solver = program.solver().is_some();
        let has_cells = kind.has_cells() || kind == Kind::Value;
        let width = gives.width();
        let values = batch.items() * width;
        if values > JOB_VALUES_MAX as usize {
            return Err(BatchError::Values { values });
        }
        let extent = program.extent();
        let extent = if kind == Kind::Value {
            extent
        } else {
            extent.clamped(batch.cell_count(), batch.items())
        };
        let cells = if has_cells { extent.capacity(batch.cell_count(), batch.items()) } else { 0 };
        if cells > u64::from(JOB_CELLS_MAX) {
            return Err(BatchError::Capacity { cells });
        }
        let capacity = usize::try_from(cells).expect("2^30 cells can be counted");
        let packed = program.is_packed();
        let of_values = |has: bool, bytes: usize| if has { bytes * values } else { 0 };
        let of_cells = |has: bool| if has { capacity } else { 0 };
        let is_list = kind == Kind::Objects;
        // A solver's errors name instructions.
        let has_numbers = of_solver || matches!(kind, Kind::Flag | Kind::Number | Kind::Vector);
        let lengths = [
            of_values(true, 2),
            of_values(kind.has_cells(), 2),
            of_values(matches!(kind, Kind::Object | Kind::Patch), 4),
            of_values(packed, 4),
            of_values(has_numbers, 4),
            of_values(kind == Kind::Colors, PALETTE_BYTES),
            of_values(is_list, 2),
            of_cells(is_list),
            of_cells(is_list),
            of_cells(has_cells && (!is_list || program.changes_ground())),
        ];
        let mut end = 0;
        let ends = lengths.map(|length| {
            end = align(end) + length;
            end
        });
        Ok(Self { kind, values, width, extent, capacity, packed, ends })
    }

    /// The same with capacity for at most so many bytes of a solver's results, for memory in which no larger ones are
    /// laid.
    ///
    /// # Panics
    /// If it is not the result of a solver.
    #[must_use]
    pub fn limited(mut self, bytes: usize) -> Self {
        assert!(self.packed && self.labels_low().is_empty(), "a solver's results");
        self.capacity = self.capacity.min(bytes);
        self.ends[PARTS - 1] = self.cells().start + self.capacity;
        self
    }

    /// The kind of every value.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Values of all items.
    #[must_use]
    pub fn values_count(&self) -> usize {
        self.values
    }

    /// Values of one item.
    #[must_use]
    pub fn width(&self) -> usize {
        self.width
    }

    /// The starts of cells and labels of neighbouring items.
    #[must_use]
    pub fn extent(&self) -> Extent {
        self.extent
    }

    /// Capacity for the cells, and for the labels, of all values together.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Whether values have their own offsets. Otherwise their cells have the input's offsets.
    #[must_use]
    pub fn is_packed(&self) -> bool {
        self.packed
    }

    /// `(code, op)` of every value; code 0 is success.
    #[must_use]
    pub fn status(&self) -> Range<usize> {
        self.part(0)
    }

    /// `(h, w)` of every picture, or of the grid of every list of objects.
    #[must_use]
    pub fn shapes(&self) -> Range<usize> {
        self.part(1)
    }

    /// `(row, col)` of every object and patch.
    #[must_use]
    pub fn origins(&self) -> Range<usize> {
        self.part(2)
    }

    /// The start of every value's cells and labels in their parts, if the result is packed.
    #[must_use]
    pub fn offsets(&self) -> Range<usize> {
        self.part(3)
    }

    /// A number, flag or vector for every value; for a solver's value the instruction that failed, else 0.
    #[must_use]
    pub fn numbers(&self) -> Range<usize> {
        self.part(4)
    }

    /// A palette for every value.
    #[must_use]
    pub fn palettes(&self) -> Range<usize> {
        self.part(5)
    }

    /// The number of objects of every value.
    #[must_use]
    pub fn counts(&self) -> Range<usize> {
        self.part(6)
    }

    /// Low bytes of the labels.
    #[must_use]
    pub fn labels_low(&self) -> Range<usize> {
        self.part(7)
    }

    /// High bytes of the labels. They count only for values with more than 255 objects.
    #[must_use]
    pub fn labels_high(&self) -> Range<usize> {
        self.part(8)
    }

    /// The cells of the pictures, or of the grids whose objects are listed.
    #[must_use]
    pub fn cells(&self) -> Range<usize> {
        self.part(9)
    }

    /// The length of the whole result.
    #[must_use]
    pub fn bytes(&self) -> usize {
        align(self.cells().end)
    }

    /// The part of that number.
    fn part(&self, at: usize) -> Range<usize> {
        let start = if at == 0 { 0 } else { align(self.ends[at - 1]) };
        start..self.ends[at]
    }
}
