//! Upper bounds for the size of pictures at each step of a program, known before it runs.
//!
//! A bound is linear in the numbers of a batch. So the place of every value follows from the input's offsets,
//! without a table of places.

use crate::limits::GRID_CELLS_MAX;

use super::kind::{Kind, Type};
use super::ops::Op;
use super::table::CellCapacity;

/// A value that may need as many cells as the largest grid gets that many, whatever its input.
const WHOLE: u32 = 4_096;
const _: () = assert!(WHOLE as usize == GRID_CELLS_MAX);

/// The capacity for the pictures of a batch at one step, in cells.
///
/// A value has at most `per_cell * cells + per_value` cells. While the values are aligned, value `v` comes from
/// grid `v` of the input, and `cells` are that grid's. Otherwise a tuple is made of the parts of one grid, and
/// `cells` are an equal share of the item's cells. So the values of an item start at `per_cell` times the cells
/// before the item, plus their share of its own, plus `per_value` for each value before them (`Extent` in
/// `kernels/cuda/step.cuh`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    per_cell: u32,
    per_value: u32,
    width: u32,
    grids_per_item: u32,
    aligned: bool,
    in_place: bool,
}

impl Extent {
    /// The capacity of the input itself.
    pub(super) fn input(takes: Type) -> Self {
        let grids_per_item = takes.tuple.map_or(1, u32::from);
        Self {
            per_cell: 1,
            per_value: 0,
            width: grids_per_item,
            grids_per_item,
            aligned: true,
            in_place: true,
        }
    }

    /// The capacity for the results of a solver: so many bytes for each item, whatever its input.
    pub(super) fn of_solver(bytes: u32) -> Self {
        let input = Self::input(Type::one(Kind::Grid));
        Self { per_cell: 0, per_value: bytes, in_place: false, ..input }
    }

    /// Capacity for each input cell, in cells.
    #[must_use]
    pub fn per_cell(self) -> u32 {
        self.per_cell
    }

    /// Additional capacity for each value, in cells.
    #[must_use]
    pub fn per_value(self) -> u32 {
        self.per_value
    }

    /// Values of one item.
    #[must_use]
    pub fn width(self) -> u32 {
        self.width
    }

    /// Grids of one item of the input.
    #[must_use]
    pub fn grids_per_item(self) -> u32 {
        self.grids_per_item
    }

    /// Whether value `v` comes from grid `v` of the input.
    #[must_use]
    pub fn is_aligned(self) -> bool {
        self.aligned
    }

    /// Whether value `v` has as many cells as grid `v` of the input, and the same place.
    #[must_use]
    pub fn is_in_place(self) -> bool {
        self.in_place
    }

    /// The capacity for a batch of `cells` cells and `items` items, limited by the largest grid for each value.
    #[must_use]
    pub fn clamped(self, cells: usize, items: usize) -> Self {
        let whole = Self { per_cell: 0, per_value: WHOLE, ..self };
        let is_less = whole.capacity(cells, items) < self.capacity(cells, items);
        if is_less && !self.in_place { whole } else { self }
    }

    /// The capacity for the values of a batch, or of neighbouring items of it, in cells.
    #[must_use]
    pub fn capacity(self, cells: usize, items: usize) -> u64 {
        let (cells, items) = (cells as u64, items as u64);
        u64::from(self.per_cell) * cells + u64::from(self.per_value) * items * u64::from(self.width)
    }

    /// The most cells of one value, if no grid of the batch has more than `area_max` cells.
    #[must_use]
    pub fn value_max(self, area_max: usize) -> u64 {
        let grids = if self.aligned { 1 } else { self.grids_per_item };
        let cells = u64::from(self.per_cell) * u64::from(grids) * area_max as u64;
        (cells + u64::from(self.per_value)).min(WHOLE.into())
    }

    /// The start of a value's cells. `offsets` are those of the input's grids, and their end. The start of the
    /// value after the last is the capacity of all.
    ///
    /// # Panics
    /// If there are too few offsets.
    #[must_use]
    pub fn start_of(self, offsets: &[u32], value: usize) -> u64 {
        let (width, grids) = if self.aligned { (1, 1) } else { (self.width, self.grids_per_item) };
        let (item, element) = (value / width as usize, value as u64 % u64::from(width));
        let before_item = |item: usize| u64::from(offsets[item * grids as usize]);
        let per_cell = u64::from(self.per_cell);
        let share = match element {
            0 => 0,
            _ => {
                per_cell * element * (before_item(item + 1) - before_item(item)) / u64::from(width)
            }
        };
        per_cell * before_item(item) + share + u64::from(self.per_value) * value as u64
    }

    /// The capacity after `op`, whose result is `gives`. `self` is the capacity of its argument's picture, or of
    /// the argument's ground if `op` makes a picture from that.
    pub(super) fn after(self, op: Op, gives: Type) -> Self {
        let width = gives.tuple.map_or(1, u32::from);
        let capacity = op.capacity();
        let in_place = self.in_place && capacity == CellCapacity::Keeps;
        let moved = Self { width, in_place, aligned: self.aligned && width == self.width, ..self };
        let by = |factor: u32| {
            let (per_cell, per_value) = (self.per_cell, self.per_value);
            moved.sized(per_cell.saturating_mul(factor), per_value.saturating_mul(factor))
        };
        match capacity {
            CellCapacity::Keeps | CellCapacity::Within => moved,
            CellCapacity::Times(factor) => by(factor),
            CellCapacity::Cells(cells) => moved.sized(0, cells),
            CellCapacity::Outline => {
                // (h + 2)(w + 2) is at most 5hw + 4.
                let outlined = by(5);
                outlined.sized(outlined.per_cell, outlined.per_value + 4)
            }
            // The grids of a tuple have the item's cells between them.
            CellCapacity::Joined => {
                moved.sized(self.per_cell, self.per_value.saturating_mul(self.width))
            }
        }
    }

    fn sized(self, per_cell: u32, per_value: u32) -> Self {
        if per_cell >= WHOLE || per_value >= WHOLE {
            return Self { per_cell: 0, per_value: WHOLE, ..self };
        }
        Self { per_cell, per_value, ..self }
    }
}

/// The extents before and after one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extents {
    /// Of the value's picture, if its kind has one.
    pub(super) picture: Extent,
    /// Of its ground, if its kind has one.
    pub(super) ground: Extent,
}

impl Extents {
    pub(super) fn input(takes: Type) -> Self {
        let picture = Extent::input(takes);
        Self { picture, ground: picture }
    }

    /// The extents after `op`.
    pub(super) fn after(self, op: Op, takes: Kind, gives: Type) -> Self {
        let onto_ground = takes.has_ground() && gives.kind == Kind::Grid;
        let of_ground = takes == Kind::Objects;
        let from = if onto_ground || of_ground { self.ground } else { self.picture };
        let picture = from.after(op, gives);
        let ground = if takes.has_ground() { self.ground } else { self.picture };
        Self { picture, ground }
    }
}

#[cfg(test)]
mod tests {
    use crate::program::{Extent, Program, Ties};

    fn extent(text: &str) -> Extent {
        Program::compile(text, Ties::Cpython).unwrap().extent()
    }

    #[test]
    fn what_keeps_areas_stays_in_place() {
        for text in ["rot90 | replace(1, 2)", "apply(cmirror)", "ofcolor(1) | fill(2)", "o_g(5)"] {
            assert!(extent(text).is_in_place(), "{text}");
        }
        for text in
            ["first", "trim", "asobject", "apply(upscale(1))", "hsplit(1)", "first | o_g(5)"]
        {
            assert!(!extent(text).is_in_place(), "{text}");
        }
    }

    #[test]
    fn capacities_grow_as_pictures_may() {
        let cases = [
            ("upscale(3)", (9, 0, true)),
            ("upscale(2) | hupscale(5)", (20, 0, true)),
            ("upscale(30) | upscale(30)", (0, 4_096, true)),
            ("canvas(0, 3, 7)", (0, 21, true)),
            ("canvas(0, 3, 7) | upscale(2)", (0, 84, true)),
            ("asobject | outbox", (5, 4, true)),
            ("upscale(2) | asobject | outbox | fill(1)", (4, 0, true)),
            ("hsplit(3)", (1, 0, false)),
            ("hsplit(3) | hconcat", (1, 0, true)),
            ("hconcat", (1, 0, false)),
            ("apply(canvas(0, 2, 2)) | vconcat", (0, 8, false)),
            ("first", (1, 0, false)),
            ("hsplit(3) | first | upscale(2)", (4, 0, false)),
        ];
        for (text, (per_cell, per_value, aligned)) in cases {
            let extent = extent(text);
            assert_eq!((extent.per_cell(), extent.per_value()), (per_cell, per_value), "{text}");
            let still = aligned && !text.contains("split");
            assert_eq!(extent.is_aligned(), still, "{text}");
        }
    }

    #[test]
    fn runs_of_items_follow_each_other() {
        for text in ["upscale(3)", "apply(trim)", "hsplit(4)", "hconcat", "asobject | outbox"] {
            let extent = extent(text).clamped(100, 7);
            let (first, all) = (extent.capacity(41, 3), extent.capacity(100, 7));
            assert_eq!(first + extent.capacity(59, 4), all, "{text}");
            assert!(first < all);
        }
    }

    #[test]
    fn values_start_where_the_capacity_of_those_before_them_ends() {
        // Three items. A pair has two grids, and its second may be missing.
        let (singles, pairs) = ([0, 7, 8, 20], [0, 7, 7, 8, 20, 33, 34]);
        for text in ["upscale(3)", "hsplit(4)", "asobject | outbox", "hsplit(3) | apply(trim)"] {
            let extent = extent(text);
            let width = extent.width() as usize;
            assert_eq!(extent.start_of(&singles, 3 * width), extent.capacity(20, 3), "{text}");
            assert_eq!(extent.start_of(&singles, width), extent.capacity(7, 1), "{text}");
        }
        for text in
            ["apply(upscale(2))", "first | hsplit(3)", "hconcat", "apply(asobject | outbox)"]
        {
            let extent = extent(text);
            let width = extent.width() as usize;
            assert_eq!(extent.start_of(&pairs, 3 * width), extent.capacity(34, 3), "{text}");
            assert_eq!(extent.start_of(&pairs, width), extent.capacity(7, 1), "{text}");
        }
    }

    #[test]
    fn no_value_has_capacity_for_more_than_the_largest_grid() {
        let extent = extent("upscale(30)");
        assert_eq!(extent.clamped(900, 1).capacity(900, 1), 4_096);
        assert_eq!(extent.clamped(2, 1).capacity(2, 1), 1_800);
    }
}
