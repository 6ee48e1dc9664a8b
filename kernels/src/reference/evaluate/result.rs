//! Assembles the bytes of a result, part by part, after the last step.

use gridpool_protocol::output::OutputLayout;
use gridpool_protocol::program::Kind;

use super::{Evaluator, Measured, area};
use crate::part::{ItemSpan, Part};

/// Parts whose bytes differ from the memory that steps work on.
#[derive(Clone, Debug, Default)]
pub(super) struct ResultParts {
    origins: Vec<[u8; 4]>,
    offsets: Vec<[u8; 4]>,
    counts: Vec<[u8; 2]>,
    labels_low: Vec<u8>,
    labels_high: Vec<u8>,
}

impl Evaluator {
    /// Assembles the parts of the result, after the last step. `span` was loaded from the batch that `layout` is
    /// for.
    ///
    /// # Panics
    /// If `span` is not of that batch.
    pub fn finish(&mut self, layout: &OutputLayout, span: &ItemSpan) {
        let pictures = match self.kind {
            Kind::Colors | Kind::Flag | Kind::Number | Kind::Value | Kind::Vector => return,
            Kind::Grid => &mut self.grids,
            Kind::Objects => {
                self.write_labels(layout.is_packed());
                &mut self.grids
            }
            Kind::Object | Kind::Patch => {
                self.parts.origins.clear();
                let origins = self.pieces.origins().iter().copied();
                self.parts.origins.extend(origins.map(|place| Measured::Vector(place).to_bytes()));
                &mut self.pieces
            }
        };
        if layout.is_packed() {
            pictures.close_gaps();
            let start = span.cell_range(layout).start;
            self.parts.offsets.clear();
            self.parts.offsets.extend((0..pictures.len()).map(|value| {
                let offset = start + pictures.place(value).start;
                u32::try_from(offset).expect("a result has at most 2^30 cells").to_le_bytes()
            }));
        }
    }

    /// Packed labels have no gaps; others lie where the input's cells do.
    fn write_labels(&mut self, packed: bool) {
        let Self { grids, labels, counts, parts, .. } = self;
        parts.counts.clear();
        parts.counts.extend(counts.iter().map(|count| count.to_le_bytes()));
        parts.labels_low.clear();
        parts.labels_high.clear();
        let mut write = |labels: &[u16]| {
            parts.labels_low.extend(labels.iter().map(|label| label.to_le_bytes()[0]));
            parts.labels_high.extend(labels.iter().map(|label| label.to_le_bytes()[1]));
        };
        if packed {
            for (value, &shape) in grids.shapes().iter().enumerate() {
                let start = grids.place(value).start;
                write(&labels[start..start + area(shape)]);
            }
        } else {
            write(labels);
        }
    }

    /// The bytes of one part of the result; meaningless if the kind does not have it. For a packed result's cells
    /// and labels, only the used bytes.
    #[must_use]
    pub fn part(&self, part: Part) -> &[u8] {
        let pictures = match self.kind {
            Kind::Object | Kind::Patch => &self.pieces,
            Kind::Colors
            | Kind::Flag
            | Kind::Grid
            | Kind::Number
            | Kind::Objects
            | Kind::Value
            | Kind::Vector => &self.grids,
        };
        match part {
            Part::Status => self.status.as_flattened(),
            Part::Shapes => pictures.shapes().as_flattened(),
            Part::Origins => self.parts.origins.as_flattened(),
            Part::Offsets => self.parts.offsets.as_flattened(),
            Part::Numbers => self.numbers.as_flattened(),
            Part::Palettes => self.palettes.as_flattened(),
            Part::Counts => self.parts.counts.as_flattened(),
            Part::LabelsLow => &self.parts.labels_low,
            Part::LabelsHigh => &self.parts.labels_high,
            Part::Cells => pictures.cells(),
        }
    }
}
