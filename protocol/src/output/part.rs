//! The results of some neighbouring items, by themselves: of a job that went to the pool with others as one.

use std::ops::Range;

use super::layout::OutputLayout;
use super::{MalformedOutput, Outputs, PALETTE_BYTES};
use crate::batch::Tables;
use crate::program::Kind;

/// Bytes of a status.
const STATUS_BYTES: usize = 2;

impl Outputs {
    /// The packed results of neighbouring items, as if they were all of the batch. `own` is the layout of the results
    /// of these items by themselves, and `tables` are those of their own batch.
    ///
    /// # Errors
    /// [`MalformedOutput`] if a value has an invalid place.
    ///
    /// # Panics
    /// If there are fewer items, or `own` is of other items or of another program.
    pub fn part(
        &self,
        items: Range<usize>,
        own: &OutputLayout,
        tables: &Tables,
    ) -> Result<Vec<u8>, MalformedOutput> {
        let width = self.layout.width();
        let values = items.start * width..items.end * width;
        assert_eq!(values.len(), own.values_count(), "the layout is of these items");
        let mut part = vec![0; own.bytes()];
        let words = [
            (self.layout.status(), own.status(), STATUS_BYTES),
            (self.layout.shapes(), own.shapes(), 2),
            (self.layout.origins(), own.origins(), 4),
            (self.layout.numbers(), own.numbers(), 4),
            (self.layout.palettes(), own.palettes(), PALETTE_BYTES),
            (self.layout.counts(), own.counts(), 2),
        ];
        for (all, own, bytes) in words {
            if !own.is_empty() {
                self.bytes.read(all.start + values.start * bytes, &mut part[own]);
            }
        }
        let planes: Vec<_> = self.layout.planes().zip(own.planes()).collect();
        if planes.is_empty() && !own.is_packed() {
            return Ok(part);
        }
        for (value, own_value) in values.zip(0..) {
            let malformed = |what| MalformedOutput { item: value / width, what };
            let from = self.cells_of(value).map_err(malformed)?;
            let start = own.start_of(tables, own_value);
            if own.is_packed() {
                let at = own.offsets().start + 4 * own_value;
                let offset =
                    u32::try_from(start).expect("the cells of a job are counted in 32 bits");
                part[at..at + 4].copy_from_slice(&offset.to_le_bytes());
            }
            for (all, own) in &planes {
                if own.len() < start + from.len() {
                    return Err(malformed("its shape does not fit its place"));
                }
                let to = own.start + start..own.start + start + from.len();
                self.bytes.read(all.start + from.start, &mut part[to]);
            }
        }
        Ok(part)
    }

    /// How many of these items have an error in place of a result.
    #[must_use]
    pub fn errors_in(&self, mut items: Range<usize>) -> u32 {
        let width = self.layout.width();
        let has_error = |item: usize| {
            let mut values = item * width..(item + 1) * width;
            values.any(|value| self.word::<STATUS_BYTES>(self.layout.status(), value)[0] != 0)
        };
        let count = items.by_ref().filter(|&item| has_error(item)).count();
        u32::try_from(count).expect("items are counted in 32 bits")
    }

    /// The place of a value's cells in the parts with cells; empty if it has none.
    fn cells_of(&self, value: usize) -> Result<Range<usize>, &'static str> {
        let is_error = self.word::<STATUS_BYTES>(self.layout.status(), value)[0] != 0;
        let kind = self.layout.kind();
        if is_error || !(kind.has_cells() || kind == Kind::Value) {
            return Ok(0..0);
        }
        if kind != Kind::Value {
            return Ok(self.place(value)?.cells);
        }
        // How long it is only reading it tells: its whole place.
        let start = u32::from_le_bytes(self.word(self.layout.offsets(), value)) as usize;
        let end = start + self.layout.extent().per_value() as usize;
        if end > self.layout.capacity() {
            Err("its place lies outside of the result")
        } else {
            Ok(start..end)
        }
    }
}

impl OutputLayout {
    /// The parts with an entry for each cell, those that there are.
    fn planes(&self) -> impl Iterator<Item = Range<usize>> {
        let planes = [self.labels_low(), self.labels_high(), self.cells()];
        planes.into_iter().filter(|plane| !plane.is_empty())
    }

    /// The start of a value's cells in the parts with cells.
    fn start_of(&self, tables: &Tables, value: usize) -> usize {
        let start = match self.is_packed() {
            true => self.extent().start_of(tables.offsets(), value),
            false => tables.cells_of(value).start as u64,
        };
        usize::try_from(start).expect("it lies in the job's cells")
    }
}
