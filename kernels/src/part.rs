//! The parts of a result by name, and where neighbouring items lie in each.
//!
//! A device works on a batch in spans of neighbouring items and puts the parts of each span in place.

use std::ops::Range;

use gridpool_protocol::output::{OutputLayout, PALETTE_BYTES};

/// One part of a result (see `gridpool_protocol::output`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// `(code, op)` of every value.
    Status,
    /// `(h, w)` of every picture.
    Shapes,
    /// `(row, col)` of every object and patch.
    Origins,
    /// Where every value's cells start, if the result is packed.
    Offsets,
    /// A number, flag or vector for every value.
    Numbers,
    /// A palette for every value.
    Palettes,
    /// The number of objects of every value.
    Counts,
    /// Low bytes of the labels.
    LabelsLow,
    /// High bytes of the labels.
    LabelsHigh,
    /// Cells of the pictures; of lists of objects those of their grids.
    Cells,
}

/// Neighbouring items, and where their cells lie in the input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemSpan {
    /// The items.
    pub items: Range<usize>,
    /// The cells of their grids.
    pub cells: Range<usize>,
}

impl ItemSpan {
    /// Its place in the parts that have cells. If the result is packed, its values lie next to
    /// each other from its start and may leave a rest.
    ///
    /// # Panics
    /// If it is not of the batch that `layout` is for.
    #[must_use]
    pub fn cell_range(&self, layout: &OutputLayout) -> Range<usize> {
        let start = |cells: usize, items: usize| {
            let start = layout.extent().capacity(cells, items);
            usize::try_from(start).expect("a result has at most 2^30 cells")
        };
        start(self.cells.start, self.items.start)..start(self.cells.end, self.items.end)
    }
}

impl Part {
    /// All parts, in the order of the layout.
    pub const ALL: [Self; 10] = [
        Self::Status,
        Self::Shapes,
        Self::Origins,
        Self::Offsets,
        Self::Numbers,
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
            Self::Origins => layout.origins(),
            Self::Offsets => layout.offsets(),
            Self::Numbers => layout.numbers(),
            Self::Palettes => layout.palettes(),
            Self::Counts => layout.counts(),
            Self::LabelsLow => layout.labels_low(),
            Self::LabelsHigh => layout.labels_high(),
            Self::Cells => layout.cells(),
        }
    }

    /// Bytes per value, or `None` if the part has cells.
    #[must_use]
    pub fn bytes_per_value(self) -> Option<usize> {
        match self {
            Self::Status | Self::Shapes | Self::Counts => Some(2),
            Self::Origins | Self::Offsets | Self::Numbers => Some(4),
            Self::Palettes => Some(PALETTE_BYTES),
            Self::LabelsLow | Self::LabelsHigh | Self::Cells => None,
        }
    }

    /// Where the part of `span` lies; `None` if this kind of result does not have the part.
    #[must_use]
    pub fn span(self, layout: &OutputLayout, span: &ItemSpan) -> Option<Range<usize>> {
        let whole = self.range(layout);
        if whole.is_empty() {
            return None;
        }
        let inner = match self.bytes_per_value() {
            Some(bytes) => {
                let per_item = bytes * layout.width();
                per_item * span.items.start..per_item * span.items.end
            }
            None => span.cell_range(layout),
        };
        Some(whole.start + inner.start..whole.start + inner.end)
    }
}

#[cfg(test)]
mod tests {
    use gridpool_protocol::batch::BatchLayout;
    use gridpool_protocol::program::{Program, Ties};

    use super::*;

    #[test]
    fn neighbouring_spans_fill_every_part_without_a_gap() {
        let programs = [
            "rot90",
            "palette",
            "mostcolor",
            "square",
            "shape",
            "o_g(5)",
            "rot90 | o_g(5)",
            "trim",
            "upscale(3)",
            "ofcolor(1) | outbox",
            "hsplit(3) | apply(o_g(5))",
            "first",
            "apply(rot90)",
            "apply(ofcolor(1))",
            "hconcat",
            "apply(mostcolor)",
        ];
        for text in programs {
            let program = Program::compile(text, Ties::Cpython).unwrap();
            let batch = BatchLayout::new(7, program.grids_per_item(), 100).unwrap();
            let layout = OutputLayout::new(&program, batch).unwrap();
            for part in Part::ALL {
                let first = part.span(&layout, &ItemSpan { items: 0..3, cells: 0..41 });
                let second = part.span(&layout, &ItemSpan { items: 3..7, cells: 41..100 });
                match (first, second) {
                    (Some(first), Some(second)) => {
                        assert_eq!(first.end, second.start, "{text} {part:?}");
                        assert_eq!(first.start..second.end, part.range(&layout), "{text} {part:?}");
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
