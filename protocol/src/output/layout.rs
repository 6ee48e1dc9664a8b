//! Where the parts of a result lie.

use std::ops::Range;

use super::PALETTE_BYTES;
use crate::batch::{BatchError, BatchLayout, align};
use crate::limits::{JOB_CELLS_MAX, JOB_VALUES_MAX};
use crate::program::{Extent, Kind, Program};

/// Where the parts of a result lie. Parts that the kind does not have are empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputLayout {
    kind: Kind,
    values: usize,
    width: usize,
    extent: Extent,
    /// Room for cells of all values.
    room: usize,
    packed: bool,
    with_cells: bool,
}

impl OutputLayout {
    /// The layout of what `program` gives for a batch.
    ///
    /// # Errors
    /// [`BatchError`] if the items are not what the program takes, or the result might be larger than
    /// one job's may be.
    ///
    /// # Panics
    /// Never: what is converted has been compared with a smaller limit.
    pub fn new(program: &Program, batch: BatchLayout) -> Result<Self, BatchError> {
        program.check_items(batch.grids_per_item())?;
        let kind = program.gives().kind;
        let has_cells = kind.has_cells();
        let width = program.gives().width();
        let values = batch.items() * width;
        if values > JOB_VALUES_MAX as usize {
            return Err(BatchError::Values { values });
        }
        let extent = program.extent().clamped(batch.cell_count(), batch.items());
        let cells = if has_cells { extent.capacity(batch.cell_count(), batch.items()) } else { 0 };
        if cells > u64::from(JOB_CELLS_MAX) {
            return Err(BatchError::Room { cells });
        }
        Ok(Self {
            kind,
            values,
            width,
            extent,
            room: usize::try_from(cells).expect("2^30 cells can be counted"),
            packed: program.is_packed(),
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

    /// Where cells and labels of runs of items start.
    #[must_use]
    pub fn extent(&self) -> Extent {
        self.extent
    }

    /// Room for cells, and for labels, of all values together.
    #[must_use]
    pub fn room(&self) -> usize {
        self.room
    }

    /// Whether values say where their cells lie; else those lie where the input's do.
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

    /// Where the cells and labels of every value start in their parts, if the result is packed.
    #[must_use]
    pub fn offsets(&self) -> Range<usize> {
        self.after(&self.origins(), self.packed, 4)
    }

    /// A number, flag or vector for every value.
    #[must_use]
    pub fn numbers(&self) -> Range<usize> {
        let has = matches!(self.kind, Kind::Flag | Kind::Number | Kind::Vector);
        self.after(&self.offsets(), has, 4)
    }

    /// A palette for every value.
    #[must_use]
    pub fn palettes(&self) -> Range<usize> {
        self.after(&self.numbers(), self.kind == Kind::Colors, PALETTE_BYTES)
    }

    /// How many objects every value has.
    #[must_use]
    pub fn counts(&self) -> Range<usize> {
        self.after(&self.palettes(), self.kind == Kind::Objects, 2)
    }

    /// Low bytes of the labels.
    #[must_use]
    pub fn labels_low(&self) -> Range<usize> {
        self.room_after(&self.counts(), self.kind == Kind::Objects)
    }

    /// High bytes of the labels, meant only for values with more than 255 objects.
    #[must_use]
    pub fn labels_high(&self) -> Range<usize> {
        self.room_after(&self.labels_low(), self.kind == Kind::Objects)
    }

    /// The cells of the pictures, or of the grids whose objects are listed.
    #[must_use]
    pub fn cells(&self) -> Range<usize> {
        self.room_after(&self.labels_high(), self.with_cells)
    }

    /// The length of the whole result.
    #[must_use]
    pub fn bytes(&self) -> usize {
        align(self.cells().end)
    }

    /// The part after another, with `bytes` bytes for each value if the result `has` it.
    fn after(&self, part: &Range<usize>, has: bool, bytes: usize) -> Range<usize> {
        let start = align(part.end);
        start..start + if has { bytes * self.values } else { 0 }
    }

    /// The part after another, with a byte for each cell if the result `has` it.
    fn room_after(&self, part: &Range<usize>, has: bool) -> Range<usize> {
        let start = align(part.end);
        start..start + if has { self.room } else { 0 }
    }
}
