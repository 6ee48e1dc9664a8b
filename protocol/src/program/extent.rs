//! How much room pictures may need at some step of a program, before anything has run.
//!
//! The bound is linear in what is known of a batch, so that the place of every value follows from the
//! input's offsets alone and nobody needs a table of places to find it.

use crate::limits::GRID_CELLS_MAX;

use super::kind::{Kind, Type};
use super::ops::Op;
use super::variants::Frame;

/// A value that needs as much as the largest grid is given that, whatever its input was.
const WHOLE: u32 = 4_096;
const _: () = assert!(WHOLE as usize == GRID_CELLS_MAX);

/// Room for the pictures of a batch at some step.
///
/// A value has at most `per_cell * cells + per_value` cells. While it is aligned, value `v` comes of
/// grid `v` of the input, and `cells` are that grid's; else they are an equal share of those of all
/// grids of its item, for a tuple that is not aligned is made of the parts of one grid. So the values
/// of an item start at `per_cell` times the cells before the item, plus their share of its own, plus
/// `per_value` for each value before them (`Extent` of `kernels/cuda/step.cuh`).
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
    /// The room of the input itself.
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

    /// Cells of room for each cell of the input that counts.
    #[must_use]
    pub fn per_cell(self) -> u32 {
        self.per_cell
    }

    /// Cells of room for each value besides.
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

    /// Value `v` comes of grid `v` of the input.
    #[must_use]
    pub fn is_aligned(self) -> bool {
        self.aligned
    }

    /// Value `v` has as many cells as grid `v` of the input, and lies where that lies.
    #[must_use]
    pub fn is_in_place(self) -> bool {
        self.in_place
    }

    /// The same for a batch of so many cells and items, but never more than the largest grid for
    /// each value.
    #[must_use]
    pub fn clamped(self, cells: usize, items: usize) -> Self {
        let whole = Self { per_cell: 0, per_value: WHOLE, ..self };
        let is_less = whole.capacity(cells, items) < self.capacity(cells, items);
        if is_less && !self.in_place { whole } else { self }
    }

    /// Cells of room for the values of a batch, or of a run of its items, of so many cells.
    #[must_use]
    pub fn capacity(self, cells: usize, items: usize) -> u64 {
        let (cells, items) = (cells as u64, items as u64);
        u64::from(self.per_cell) * cells + u64::from(self.per_value) * items * u64::from(self.width)
    }

    /// The most cells of one value, where no grid of the batch has more than `area_max`.
    #[must_use]
    pub fn value_max(self, area_max: usize) -> u64 {
        let grids = if self.aligned { 1 } else { self.grids_per_item };
        let cells = u64::from(self.per_cell) * u64::from(grids) * area_max as u64;
        (cells + u64::from(self.per_value)).min(WHOLE.into())
    }

    /// Where the cells of a value start, `offsets` being those of the input's grids and their end.
    /// One past the last value gives the room of all.
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

    /// The room after `op`, which gives `gives`; `self` is that of its argument's picture, or of its
    /// argument's ground if it has one and `op` makes a picture of that.
    pub(super) fn after(self, op: Op, gives: Type) -> Self {
        let width = gives.tuple.map_or(1, u32::from);
        let in_place = self.in_place && op.keeps_area();
        let moved = Self { width, in_place, aligned: self.aligned && width == self.width, ..self };
        let by = |factor: u32| {
            let (per_cell, per_value) = (self.per_cell, self.per_value);
            moved.sized(per_cell.saturating_mul(factor), per_value.saturating_mul(factor))
        };
        if let Op::Upscale { factor } = op {
            by(u32::from(factor) * u32::from(factor))
        } else if let Op::HUpscale { factor } | Op::VUpscale { factor } = op {
            by(factor.into())
        } else if let Op::Canvas { height, width, .. } = op {
            moved.sized(0, u32::from(height) * u32::from(width))
        } else if let Op::Frame(Frame::InBox | Frame::OutBox) = op {
            // (h + 2)(w + 2) is at most 5hw + 4.
            let outlined = by(5);
            outlined.sized(outlined.per_cell, outlined.per_value + 4)
        } else if let Op::HConcat | Op::VConcat = op {
            // The grids of a tuple have the item's cells between them.
            moved.sized(self.per_cell, self.per_value.saturating_mul(self.width))
        } else {
            moved
        }
    }

    fn sized(self, per_cell: u32, per_value: u32) -> Self {
        if per_cell >= WHOLE || per_value >= WHOLE {
            return Self { per_cell: 0, per_value: WHOLE, ..self };
        }
        Self { per_cell, per_value, ..self }
    }
}

/// The rooms before and after one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rooms {
    /// Of the value's picture, where its kind has one.
    pub(super) picture: Extent,
    /// Of its ground, where its kind has one.
    pub(super) ground: Extent,
}

impl Rooms {
    pub(super) fn input(takes: Type) -> Self {
        let picture = Extent::input(takes);
        Self { picture, ground: picture }
    }

    /// The rooms after `op`.
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
    fn rooms_grow_as_pictures_may() {
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
    fn values_start_where_the_room_of_those_before_them_ends() {
        // Of three items; a pair has two grids, the second of which may be missing.
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
    fn no_value_has_room_for_more_than_the_largest_grid() {
        let extent = extent("upscale(30)");
        assert_eq!(extent.clamped(900, 1).capacity(900, 1), 4_096);
        assert_eq!(extent.clamped(2, 1).capacity(2, 1), 1_800);
    }
}
