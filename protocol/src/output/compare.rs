//! Compares two results without decoding them.
//!
//! Owns which bytes count. Of a value in error only the status counts. High bytes of labels count only if they
//! are read. Cells of a packed result count wherever they are.

use std::ops::Range;

use super::PALETTE_BYTES;
use super::decode::{MalformedOutput, Outputs};
use super::layout::OutputLayout;
use crate::program::Kind;

/// The number of values that are compared at a time, byte for byte.
const VALUES_AT_ONCE: usize = 4_096;
/// Bytes that are copied and compared at a time. Two such buffers fit the first-level cache.
const BYTES_AT_ONCE: usize = 8 * 1_024;

impl Outputs {
    /// The first item whose result differs in `other`. Both must be results of one program over one batch,
    /// else they differ at item 0.
    ///
    /// # Errors
    /// [`MalformedOutput`] if a value has an invalid place.
    pub fn first_difference(&self, other: &Self) -> Result<Option<usize>, MalformedOutput> {
        if self.layout != other.layout {
            return Ok(Some(0));
        }
        let width = self.layout.width();
        let count = self.layout.values_count();
        let mut planes = Planes::default();
        for start in (0..count).step_by(VALUES_AT_ONCE) {
            let values = start..count.min(start + VALUES_AT_ONCE);
            if !self.layout.is_packed() && self.is_same_run(other, &values) {
                continue;
            }
            for value in values {
                let differs = self.differs(other, [value, value], &mut planes);
                let item = value / width;
                if differs.map_err(|what| MalformedOutput { item, what })? {
                    return Ok(Some(item));
                }
            }
        }
        Ok(None)
    }

    /// The first item whose result differs from that of the item it is a copy of: items 0, 1, … are copies of the
    /// items of `one` in turn. Both must be results of one program.
    ///
    /// # Errors
    /// [`MalformedOutput`] if a value has an invalid place.
    pub fn first_difference_of_copies(&self, one: &Self) -> Result<Option<usize>, MalformedOutput> {
        if (self.layout.kind(), self.layout.width()) != (one.layout.kind(), one.layout.width()) {
            return Ok(Some(0));
        }
        let mut planes = Planes::default();
        for value in 0..self.layout.values_count() {
            let places = [value, value % one.layout.values_count()];
            let item = value / self.layout.width();
            let differs = self.differs(one, places, &mut planes);
            if differs.map_err(|what| MalformedOutput { item, what })? {
                return Ok(Some(item));
            }
        }
        Ok(None)
    }

    /// Whether neighbouring values in place are equal byte for byte. If not, the values may still be equal.
    fn is_same_run(&self, other: &Self, values: &Range<usize>) -> bool {
        let layout = &self.layout;
        let per_value = [
            (layout.status(), 2),
            (layout.shapes(), 2),
            (layout.origins(), 4),
            (layout.numbers(), 4),
            (layout.palettes(), PALETTE_BYTES),
            (layout.counts(), 2),
        ];
        let same_bytes = |part: &Range<usize>, run: Range<usize>| {
            part.is_empty() || self.same_bytes(other, part.start + run.start..part.start + run.end)
        };
        let same_values = per_value
            .iter()
            .all(|(part, bytes)| same_bytes(part, bytes * values.start..bytes * values.end));
        if !same_values || layout.capacity() == 0 {
            return same_values;
        }
        let Ok(tables) = self.source.tables() else { return false };
        let cells = tables.cells_of(values.start).start..tables.cells_of(values.end - 1).end;
        // Where high bytes count, the values are compared one by one.
        let has_high = !layout.counts().is_empty()
            && values.clone().any(|value| self.count(value) > usize::from(u8::MAX));
        !has_high
            && [layout.labels_low(), layout.cells()].iter().all(|p| same_bytes(p, cells.clone()))
    }

    fn same_bytes(&self, other: &Self, range: Range<usize>) -> bool {
        let (mut ours, mut theirs) = ([0; BYTES_AT_ONCE], [0; BYTES_AT_ONCE]);
        range.clone().step_by(BYTES_AT_ONCE).all(|at| {
            let bytes = BYTES_AT_ONCE.min(range.end - at);
            self.bytes.read(at, &mut ours[..bytes]);
            other.bytes.read(at, &mut theirs[..bytes]);
            ours[..bytes] == theirs[..bytes]
        })
    }

    /// Whether a value differs from another of `other`; both places are given.
    fn differs(
        &self,
        other: &Self,
        [value, of_other]: [usize; 2],
        planes: &mut Planes,
    ) -> Result<bool, &'static str> {
        let (layout, values) = (&self.layout, [value, of_other]);
        let status: [u8; 2] = self.word(layout.status(), value);
        if status != other.word(other.layout.status(), of_other) {
            return Ok(true);
        }
        if status[0] != 0 {
            return Ok(false);
        }
        let words_differ = self.word_differs::<2>(other, OutputLayout::shapes, values)
            || self.word_differs::<4>(other, OutputLayout::origins, values)
            || self.word_differs::<4>(other, OutputLayout::numbers, values)
            || self.word_differs::<PALETTE_BYTES>(other, OutputLayout::palettes, values)
            || self.word_differs::<2>(other, OutputLayout::counts, values);
        if !words_differ && layout.kind() == Kind::Value {
            return Ok(self.value(value)? != other.value(of_other)?);
        }
        if words_differ || !layout.kind().has_cells() {
            return Ok(words_differ);
        }
        let (ours, theirs) = (self.place(value)?, other.place(of_other)?);
        let has_high = !layout.counts().is_empty() && self.count(value) > usize::from(u8::MAX);
        let planes_of = [OutputLayout::labels_low, OutputLayout::labels_high, OutputLayout::cells];
        let counts = [true, has_high, true].into_iter().zip(planes_of);
        let mut parts = counts.filter(|(counts, part)| *counts && !part(layout).is_empty());
        Ok(parts.any(|(_, part)| {
            self.plane_into(part(layout), &ours, &mut planes.ours);
            other.plane_into(part(&other.layout), &theirs, &mut planes.theirs);
            planes.ours != planes.theirs
        }))
    }

    fn word_differs<const N: usize>(
        &self,
        other: &Self,
        part: fn(&OutputLayout) -> Range<usize>,
        [value, of_other]: [usize; 2],
    ) -> bool {
        let (ours, theirs) = (part(&self.layout), part(&other.layout));
        !ours.is_empty() && self.word::<N>(ours, value) != other.word(theirs, of_other)
    }
}

/// Cells of one value on both sides. The buffers are reused.
#[derive(Default)]
struct Planes {
    ours: Vec<u8>,
    theirs: Vec<u8>,
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::batch::{Grid, GridBatch};
    use crate::output::OutputLayout;
    use crate::program::{Program, Ties};

    type Edit = fn(&OutputLayout, &mut Vec<u8>);

    /// Results for `items` grids of 2 x 300 / 2 x 3 cells, zeros but for the edits.
    fn outputs(text: &str, edits: &[Edit]) -> Outputs {
        let program = Program::compile(text, Ties::Cpython).unwrap();
        let wide = Grid::new(2, 150, vec![1; 300]).unwrap();
        let small = Grid::new(2, 3, vec![2; 6]).unwrap();
        let batch = Arc::new(GridBatch::from_grids([&wide, &small, &small]).unwrap());
        let layout = OutputLayout::new(&program, batch.layout().unwrap()).unwrap();
        let mut bytes = vec![0; layout.bytes()];
        let shapes = [2, 150, 2, 3, 2, 3];
        let start = layout.shapes().start;
        if !layout.shapes().is_empty() {
            bytes[start..start + 6].copy_from_slice(&shapes);
        }
        edits.iter().for_each(|edit| edit(&layout, &mut bytes));
        Outputs::new(program, batch, bytes).unwrap()
    }

    #[track_caller]
    fn differ(text: &str, ours: &[Edit], theirs: &[Edit]) -> Option<usize> {
        let (ours, theirs) = (outputs(text, ours), outputs(text, theirs));
        let found = ours.first_difference(&theirs).unwrap();
        assert_eq!(theirs.first_difference(&ours).unwrap(), found);
        found
    }

    #[test]
    fn the_first_item_that_differs_is_found_in_every_part() {
        assert_eq!(differ("rot90", &[], &[]), None);
        assert_eq!(differ("rot90", &[], &[|l, b| b[l.cells().start + 306] = 1]), Some(2));
        assert_eq!(differ("rot90", &[], &[|l, b| b[l.cells().start + 305] = 1]), Some(1));
        assert_eq!(differ("rot90", &[], &[|l, b| b[l.shapes().start + 2] = 1]), Some(1));
        assert_eq!(differ("rot90", &[], &[|l, b| b[l.status().start + 4] = 3]), Some(2));
        assert_eq!(differ("o_g(5)", &[], &[|l, b| b[l.counts().start] = 1]), Some(0));
        assert_eq!(differ("o_g(5)", &[], &[|l, b| b[l.labels_low().start + 300] = 1]), Some(1));
        assert_eq!(differ("width", &[], &[|l, b| b[l.numbers().start + 11] = 1]), Some(2));
        assert_eq!(differ("palette", &[], &[|l, b| b[l.palettes().start + 13] = 1]), Some(1));
        let other = outputs("rot180", &[]);
        assert_eq!(outputs("o_g(1)", &[]).first_difference(&other).unwrap(), Some(0));
    }

    #[test]
    fn copies_are_compared_with_what_they_are_copies_of() {
        let program = Program::compile("crop(0, 0, 1, 2)", Ties::Cpython).unwrap();
        let of = |grids: &[&Grid], edit: Edit| {
            let batch = Arc::new(GridBatch::from_grids(grids.iter().copied()).unwrap());
            let layout = OutputLayout::new(&program, batch.layout().unwrap()).unwrap();
            let mut bytes = vec![0; layout.bytes()];
            for (item, cell) in (0_u8..).zip(0..grids.len()) {
                let at = layout.shapes().start + 2 * cell;
                bytes[at..at + 2].copy_from_slice(&[1, 2]);
                bytes[layout.offsets().start + 4 * cell] = 2 * item;
                let at = layout.cells().start + 2 * cell;
                bytes[at..at + 2].fill(1 + item % 2);
            }
            edit(&layout, &mut bytes);
            Outputs::new(program.clone(), batch, bytes).unwrap()
        };
        let (one, two) = (Grid::new(1, 3, vec![1; 3]), Grid::new(2, 2, vec![2; 4]));
        let (one, two) = (one.unwrap(), two.unwrap());
        let want = of(&[&one, &two], |_, _| ());
        let differs = |edit| {
            let copies = of(&[&one, &two, &one, &two, &one], edit);
            copies.first_difference_of_copies(&want).unwrap()
        };
        assert_eq!(differs(|_, _| ()), None);
        assert_eq!(differs(|l, b| b[l.cells().start + 9] = 2), Some(4));
        assert_eq!(differs(|l, b| b[l.cells().start + 6] = 1), Some(3));
        assert_eq!(differs(|l, b| b[l.status().start + 4] = 3), Some(2));
        assert_eq!(differs(|l, b| b[l.shapes().start + 3] = 1), Some(1));
    }

    #[test]
    fn only_the_status_of_a_value_in_error_counts() {
        let error: Edit = |l, b| b[l.status().start + 2] = 3;
        let garbage: Edit = |l, b| b[l.cells().start + 301] = 9;
        assert_eq!(differ("rot90", &[error], &[error, garbage]), None);
        assert_eq!(differ("rot90", &[error], &[error, |l, b| b[l.shapes().start + 2] = 255]), None);
        assert_eq!(differ("rot90", &[], &[garbage]), Some(1));
        assert_eq!(differ("rot90", &[error], &[|l, b| b[l.status().start + 2] = 4]), Some(1));
    }

    #[test]
    fn high_label_bytes_count_only_above_255_objects() {
        let high: Edit = |l, b| b[l.labels_high().start + 7] = 1;
        let many: Edit = |l, b| b[l.counts().start + 1] = 1;
        assert_eq!(differ("o_g(5)", &[], &[high]), None);
        assert_eq!(differ("o_g(5)", &[many], &[many, high]), Some(0));
        assert_eq!(differ("o_g(5)", &[many], &[many]), None);
    }

    #[test]
    fn packed_cells_are_compared_wherever_they_lie() {
        // Item 0 fails: its place says nothing. The others lie one cell apart.
        let base: Edit = |l, b| {
            b[l.status().start] = 3;
            b[l.offsets().start + 4] = 10;
            b[l.offsets().start + 8] = 16;
            b[l.cells().start + 10..l.cells().start + 22].copy_from_slice(&[5; 12]);
        };
        let moved: Edit = |l, b| {
            b[l.status().start] = 3;
            b[l.offsets().start..l.offsets().start + 4].fill(0xff);
            b[l.offsets().start + 4] = 30;
            b[l.offsets().start + 8] = 1;
            b[l.cells().start + 30..l.cells().start + 36].copy_from_slice(&[5; 6]);
            b[l.cells().start + 1..l.cells().start + 7].copy_from_slice(&[5; 6]);
        };
        assert_eq!(differ("trim", &[base], &[moved]), None);
        assert_eq!(differ("trim", &[base], &[moved, |l, b| b[l.cells().start + 6] = 4]), Some(2));
        let outside: Edit = |l, b| b[l.offsets().start + 6] = 1;
        let error = outputs("trim", &[base]).first_difference(&outputs("trim", &[base, outside]));
        assert_eq!(error.unwrap_err().item, 1);
    }
}
