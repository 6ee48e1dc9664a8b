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
    with_cells: bool,
    /// Whether a solver gives it: then errors name instructions.
    of_solver: bool,
}

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
        let kind = program.gives().kind;
        let of_solver = program.solver().is_some();
        let has_cells = kind.has_cells() || kind == Kind::Value;
        let width = program.gives().width();
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
        Ok(Self {
            kind,
            values,
            width,
            extent,
            capacity: usize::try_from(cells).expect("2^30 cells can be counted"),
            packed: program.is_packed(),
            of_solver,
            with_cells: has_cells && (kind != Kind::Objects || program.changes_ground()),
        })
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
        0..2 * self.values
    }

    /// `(h, w)` of every picture, or of the grid of every list of objects.
    #[must_use]
    pub fn shapes(&self) -> Range<usize> {
        self.after(&self.status(), self.kind.has_cells(), 2)
    }

    /// `(row, col)` of every object and patch.
    #[must_use]
    pub fn origins(&self) -> Range<usize> {
        self.after(&self.shapes(), matches!(self.kind, Kind::Object | Kind::Patch), 4)
    }

    /// The start of every value's cells and labels in their parts, if the result is packed.
    #[must_use]
    pub fn offsets(&self) -> Range<usize> {
        self.after(&self.origins(), self.packed, 4)
    }

    /// A number, flag or vector for every value; for a solver's value the instruction that failed, else 0.
    #[must_use]
    pub fn numbers(&self) -> Range<usize> {
        let has = self.of_solver || matches!(self.kind, Kind::Flag | Kind::Number | Kind::Vector);
        self.after(&self.offsets(), has, 4)
    }

    /// A palette for every value.
    #[must_use]
    pub fn palettes(&self) -> Range<usize> {
        self.after(&self.numbers(), self.kind == Kind::Colors, PALETTE_BYTES)
    }

    /// The number of objects of every value.
    #[must_use]
    pub fn counts(&self) -> Range<usize> {
        self.after(&self.palettes(), self.kind == Kind::Objects, 2)
    }

    /// Low bytes of the labels.
    #[must_use]
    pub fn labels_low(&self) -> Range<usize> {
        self.capacity_after(&self.counts(), self.kind == Kind::Objects)
    }

    /// High bytes of the labels. They count only for values with more than 255 objects.
    #[must_use]
    pub fn labels_high(&self) -> Range<usize> {
        self.capacity_after(&self.labels_low(), self.kind == Kind::Objects)
    }

    /// The cells of the pictures, or of the grids whose objects are listed.
    #[must_use]
    pub fn cells(&self) -> Range<usize> {
        self.capacity_after(&self.labels_high(), self.with_cells)
    }

    /// The length of the whole result.
    #[must_use]
    pub fn bytes(&self) -> usize {
        align(self.cells().end)
    }

    /// The part after `start`, with `bytes` bytes for each value if the result `has` it.
    fn after(&self, part: &Range<usize>, has: bool, bytes: usize) -> Range<usize> {
        let start = align(part.end);
        start..start + if has { bytes * self.values } else { 0 }
    }

    /// The part after `start`, with a byte for each cell if the result `has` it.
    fn capacity_after(&self, part: &Range<usize>, has: bool) -> Range<usize> {
        let start = align(part.end);
        start..start + if has { self.capacity } else { 0 }
    }
}
