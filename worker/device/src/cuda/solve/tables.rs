//! The tables of a chunk of a solver, and how its results get to their places; and how parts of any buffer follow each
//! other.

use std::ops::Range;

use gridpool_kernels::part::{ItemSpan, Part};
use gridpool_protocol::batch::PART_ALIGN;

use super::stop::STOP_BYTES;
use crate::device::GridAttempt;
use crate::fault::Fault;

/// Parts that lie behind each other in a buffer.
#[derive(Debug, Default)]
pub(super) struct Parts {
    /// Bytes of all parts so far.
    pub(super) bytes: usize,
}

impl Parts {
    /// Adds a part of so many bytes. Returns its place.
    pub(super) fn add(&mut self, bytes: usize) -> Range<usize> {
        let start = self.bytes;
        self.bytes = (start + bytes).next_multiple_of(PART_ALIGN);
        start..start + bytes
    }
}

/// Where parts of the input lie in a buffer.
#[derive(Debug)]
pub(super) struct Input {
    pub(super) shapes: usize,
    pub(super) offsets: usize,
    pub(super) cells: usize,
    pub(super) bytes: usize,
}

/// Where the tables of all items of a chunk lie in a buffer. The list of items goes in, the rest comes out.
#[derive(Debug)]
pub(super) struct Tables {
    pub(super) items: Range<usize>,
    pub(super) status: Range<usize>,
    pub(super) shapes: Range<usize>,
    pub(super) instructions: Range<usize>,
    pub(super) places: Range<usize>,
    pub(super) lengths: Range<usize>,
    /// How much of the results is used, and behind it the word that stops the launch.
    pub(super) used: Range<usize>,
    pub(super) bytes: usize,
}

/// What came out for an item.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Came {
    pub(super) status: [u8; 2],
    pub(super) shape: [u8; 2],
    pub(super) instruction: [u8; 4],
    /// Its bytes among those of all items.
    pub(super) start: usize,
    pub(super) length: usize,
}

impl Tables {
    /// Where the word lies that stops the launch.
    pub(super) fn stop(&self) -> usize {
        self.used.end - STOP_BYTES
    }

    pub(super) fn new(items: usize) -> Self {
        let mut parts = Parts::default();
        Self {
            items: parts.add(4 * items),
            used: parts.add(4 + STOP_BYTES),
            status: parts.add(2 * items),
            shapes: parts.add(2 * items),
            instructions: parts.add(4 * items),
            places: parts.add(4 * items),
            lengths: parts.add(4 * items),
            bytes: parts.bytes,
        }
    }
}

/// A number of four bytes.
pub(super) fn word(bytes: &[u8]) -> usize {
    let bytes = bytes.first_chunk::<4>().copied().unwrap_or_default();
    u32::from_le_bytes(bytes) as usize
}

/// Writes the parts of a piece's result, items in order. Returns how many have an error.
pub(super) fn deliver(
    attempt: &GridAttempt<'_>,
    span: &ItemSpan,
    came: &[Came],
    bytes: &[u8],
) -> Result<u32, Fault> {
    let layout = attempt.output_layout();
    let mut at = span.cell_range(layout).start;
    let mut offsets = Vec::with_capacity(4 * came.len());
    let mut cells = Vec::with_capacity(came.iter().map(|of| of.length).sum());
    for of in came {
        offsets.extend(u32::try_from(at).unwrap_or(u32::MAX).to_le_bytes());
        cells.extend_from_slice(&bytes[of.start..of.start + of.length]);
        at += of.length;
    }
    for part in Part::ALL {
        let Some(to) = part.span(layout, span) else { continue };
        let made: Vec<u8> = match part {
            Part::Status => came.iter().flat_map(|of| of.status).collect(),
            Part::Shapes => came.iter().flat_map(|of| of.shape).collect(),
            Part::Numbers => came.iter().flat_map(|of| of.instruction).collect(),
            Part::Offsets => std::mem::take(&mut offsets),
            Part::Cells => std::mem::take(&mut cells),
            Part::Origins | Part::Palettes | Part::Counts | Part::LabelsLow | Part::LabelsHigh => {
                continue;
            }
        };
        if made.len() > to.len() {
            let detail =
                format!("{} bytes of {part:?} in a place of {} bytes", made.len(), to.len());
            return Err(Fault::WrongResult { detail });
        }
        attempt.output().write(to.start, &made);
    }
    let errors = came.iter().filter(|of| of.status[0] != 0).count();
    Ok(u32::try_from(errors).unwrap_or(u32::MAX))
}
