//! The parts of a result by name, and where a run of items lies in each.
//!
//! A device works on a batch in runs of neighbouring items and puts the parts of each run in place.

use std::ops::Range;

use gridpool_protocol::output::{OutputLayout, PALETTE_BYTES};

/// One part of a packed result (see `gridpool_protocol::output`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// `(code, op)` of every item.
    Status,
    /// `(h, w)` of every grid.
    Shapes,
    /// A number for every item.
    Values,
    /// A palette for every item.
    Palettes,
    /// The number of objects of every item.
    Counts,
    /// Low bytes of the labels.
    LabelsLow,
    /// High bytes of the labels.
    LabelsHigh,
    /// Cells of the grids.
    Cells,
}

impl Part {
    /// All parts, in the order in which they lie.
    pub const ALL: [Self; 8] = [
        Self::Status,
        Self::Shapes,
        Self::Values,
        Self::Palettes,
        Self::Counts,
        Self::LabelsLow,
        Self::LabelsHigh,
        Self::Cells,
    ];

    /// Where the part lies; empty if this kind of result does not have it.
    #[must_use]
    pub fn range(self, layout: &OutputLayout) -> Range<usize> {
        match self {
            Self::Status => layout.status(),
            Self::Shapes => layout.shapes(),
            Self::Values => layout.values(),
            Self::Palettes => layout.palettes(),
            Self::Counts => layout.counts(),
            Self::LabelsLow => layout.labels_low(),
            Self::LabelsHigh => layout.labels_high(),
            Self::Cells => layout.cells(),
        }
    }

    /// Where the part of `items`, whose cells are `cells` of the batch, lies in it; `None` if this
    /// kind of result does not have the part.
    #[must_use]
    pub fn span(
        self,
        layout: &OutputLayout,
        items: &Range<usize>,
        cells: &Range<usize>,
    ) -> Option<Range<usize>> {
        let whole = self.range(layout);
        let inner = match self {
            Self::Status | Self::Shapes | Self::Counts => 2 * items.start..2 * items.end,
            Self::Values => 4 * items.start..4 * items.end,
            Self::Palettes => PALETTE_BYTES * items.start..PALETTE_BYTES * items.end,
            Self::LabelsLow | Self::LabelsHigh | Self::Cells => cells.clone(),
        };
        (!whole.is_empty()).then(|| whole.start + inner.start..whole.start + inner.end)
    }
}

#[cfg(test)]
mod tests {
    use gridpool_protocol::batch::BatchLayout;
    use gridpool_protocol::program::{Program, Ties};

    use super::*;

    #[test]
    fn neighbouring_runs_fill_every_part_without_a_gap() {
        for text in ["rot90", "palette", "mostcolor", "o_g(5)", "rot90 | o_g(5)"] {
            let program = Program::compile(text, Ties::Cpython).unwrap();
            let layout = OutputLayout::new(&program, BatchLayout::new(7, 100).unwrap());
            for part in Part::ALL {
                let first = part.span(&layout, &(0..3), &(0..41));
                let second = part.span(&layout, &(3..7), &(41..100));
                match (first, second) {
                    (Some(first), Some(second)) => {
                        assert_eq!(first.end, second.start, "{text} {part:?}");
                        assert_eq!(first.start..second.end, part.range(&layout));
                    }
                    (first, second) => {
                        assert_eq!((first, second), (None, None));
                        assert!(part.range(&layout).is_empty());
                    }
                }
            }
        }
    }
}
