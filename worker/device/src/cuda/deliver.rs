//! Copies a finished chunk from staging to the results of its attempts. Numbers from the device are
//! checked before they are used as lengths.

use std::ops::Range;

use gridpool_kernels::part::Part;
use gridpool_protocol::batch::tables::shift_offsets;
use gridpool_protocol::program::Kind;

use super::pass::{AREA_BYTES, Bytes, Pass};
use crate::chunk::Piece;
use crate::device::{GridAttempt, GridDispatch};
use crate::fault::Fault;
use crate::tally::Totals;

/// Statuses are scanned in blocks of this size; most blocks hold no error.
const STATUS_BLOCK_BYTES: usize = 4_096;

/// A chunk that has come back.
pub(super) struct Came<'a> {
    pub(super) pass: &'a Pass,
    /// Each piece's cells in the chunk's result.
    pub(super) areas: &'a [Range<usize>],
    /// The staging of the input, tables included.
    pub(super) input: &'a [u8],
    /// The staging of the output.
    pub(super) output: &'a mut [u8],
    /// High bytes of labels, if kernels wrote them here.
    pub(super) high_labels: &'a [u8],
}

/// Where each piece's cells lie in those parts of the chunk's result that have cells. For a packed result,
/// the device has placed them.
pub(super) fn areas(
    dispatch: &GridDispatch<'_>,
    pieces: &[Piece],
    pass: &Pass,
    staging: &[u8],
) -> Result<Vec<Range<usize>>, Fault> {
    if !pass.result.is_packed() {
        return Ok(pieces.iter().map(|piece| piece.of_chunk.cell_range(&pass.result)).collect());
    }
    let number = |bytes: &[u8]| {
        let bytes: [u8; AREA_BYTES] = bytes.try_into().expect("a number has four bytes");
        u32::from_le_bytes(bytes) as usize
    };
    let total = number(&staging[pass.area()]);
    bound(total, pass.result.capacity())?;
    let offsets = &staging[pass.part(Part::Offsets)];
    let start_of = |piece: &Piece| {
        let at = AREA_BYTES * piece.of_chunk.items.start * pass.result.width();
        number(&offsets[at..at + AREA_BYTES])
    };
    let mut areas = Vec::with_capacity(pieces.len());
    let mut start = 0;
    for (at, piece) in pieces.iter().enumerate() {
        let end = pieces.get(at + 1).map_or(total, start_of);
        if start_of(piece) != start || end < start {
            let detail = format!("results from {} that end at {end}", start_of(piece));
            return Err(Fault::WrongResult { detail });
        }
        let attempt = &dispatch.attempts[piece.attempt];
        bound(end - start, piece.of_batch.cell_range(attempt.output_layout()).len())?;
        areas.push(start..end);
        start = end;
    }
    Ok(areas)
}

fn bound(area: usize, capacity: usize) -> Result<(), Fault> {
    if area <= capacity {
        return Ok(());
    }
    let detail = format!("a result of {area} cells in a place of {capacity}");
    Err(Fault::WrongResult { detail })
}

/// Copies what came through staging into the attempts' results, and adds up errors and bytes.
pub(super) fn deliver(
    dispatch: &GridDispatch<'_>,
    pieces: &[Piece],
    mut came: Came<'_>,
    bytes: &Bytes,
    done: &mut Totals,
) -> Result<(), Fault> {
    let mut rest = bytes.shared;
    let items = came.pass.batch.items() as u64;
    // In order: the next piece's offset, not yet rebased, says where the last labels of a piece end.
    for (at, piece) in pieces.iter().enumerate() {
        let attempt = &dispatch.attempts[piece.attempt];
        let high_bytes = came.put_high_labels(at, piece, attempt)?;
        came.rebase(at, piece, attempt);
        came.put(at, piece, attempt);
        // Bytes that pieces share are divided by items; the last piece gets the remainder.
        let share = |way: usize| bytes.shared[way] * piece.of_chunk.items.len() as u64 / items;
        let shares = if at + 1 == pieces.len() { rest } else { [share(0), share(1)] };
        rest = [rest[0] - shares[0], rest[1] - shares[1]];
        if let Ok(sum) = &mut done.attempts[piece.attempt] {
            sum.item_errors += came.count_errors(piece);
            sum.h2d_bytes += shares[0] + bytes.own[at][0];
            sum.d2h_bytes += shares[1] + bytes.own[at][1] + high_bytes;
        }
    }
    Ok(())
}

impl Came<'_> {
    /// Where a piece's entries of a per-value part lie in the staging.
    fn table(&self, part: Part, piece: &Piece) -> Range<usize> {
        let whole = self.pass.part(part);
        let values = self.values(piece);
        let per_value = part.bytes_per_value().expect("the part has entries for values");
        whole.start + per_value * values.start..whole.start + per_value * values.end
    }

    /// The values of a piece, numbered as in the chunk.
    fn values(&self, piece: &Piece) -> Range<usize> {
        let width = self.pass.result.width();
        piece.of_chunk.items.start * width..piece.of_chunk.items.end * width
    }

    fn put(&self, at: usize, piece: &Piece, attempt: &GridAttempt<'_>) {
        for part in Part::ALL.into_iter().filter(|&part| part != Part::LabelsHigh) {
            let Some(to) = part.span(attempt.output_layout(), &piece.of_batch) else { continue };
            let from = if part.bytes_per_value().is_some() {
                if !self.pass.stages_table(part) {
                    continue;
                }
                self.table(part, piece)
            } else {
                if self.pass.ends[at].output.is_some() {
                    continue;
                }
                let start = self.pass.part(part).start;
                start + self.areas[at].start..start + self.areas[at].end
            };
            assert!(from.len() <= to.len(), "a piece's result fits its place");
            attempt.output().write(to.start, &self.output[from]);
        }
    }

    /// Changes offsets of a packed result, which count from the chunk, to count from the attempt's result.
    fn rebase(&mut self, at: usize, piece: &Piece, attempt: &GridAttempt<'_>) {
        if !self.pass.result.is_packed() {
            return;
        }
        let number = |n: usize| u32::try_from(n).expect("a result has at most 2^30 cells");
        let start = number(piece.of_batch.cell_range(attempt.output_layout()).start);
        let by = start.wrapping_sub(number(self.areas[at].start));
        let place = self.table(Part::Offsets, piece);
        shift_offsets(self.output[place].as_chunks_mut::<4>().0, by);
    }

    /// Copies the high bytes of labels of the values that need them, unless kernels wrote them in place.
    /// Returns how many there are.
    fn put_high_labels(
        &self,
        at: usize,
        piece: &Piece,
        attempt: &GridAttempt<'_>,
    ) -> Result<u64, Fault> {
        if self.pass.result.kind() != Kind::Objects {
            return Ok(0);
        }
        let counts = self.output[self.table(Part::Counts, piece)].as_chunks::<2>().0;
        let is_large = |count: &[u8; 2]| u16::from_le_bytes(*count) > u16::from(u8::MAX);
        if !counts.iter().fold(false, |any, count| any | is_large(count)) {
            return Ok(0);
        }
        let area = &self.areas[at];
        let span = Part::LabelsHigh.span(attempt.output_layout(), &piece.of_batch);
        let span = span.expect("a list of objects has labels");
        let mut bytes = 0;
        let first = self.values(piece).start;
        for (value, _) in counts.iter().enumerate().filter(|(_, count)| is_large(count)) {
            let place = self.labels_of(first + value);
            if place.start < area.start || place.end < place.start || place.end > area.end {
                let detail = format!("labels at {place:?} of a result at {area:?}");
                return Err(Fault::WrongResult { detail });
            }
            bytes += place.len() as u64;
            if self.pass.only_output().is_none() {
                let to = span.start + place.start - area.start;
                attempt.output().write(to, &self.high_labels[place]);
            }
        }
        Ok(bytes)
    }

    /// Where a value's labels lie in the chunk's planes.
    fn labels_of(&self, value: usize) -> Range<usize> {
        let (offsets, end) = if self.pass.result.is_packed() {
            (&self.output[self.pass.part(Part::Offsets)], self.areas.last().map_or(0, |a| a.end))
        } else {
            let input = &self.pass.input;
            (&self.input[input.offsets_start()..input.tables_end()], 0)
        };
        let offsets = offsets.as_chunks::<4>().0;
        let at = |value: usize| {
            let is_end = value == self.pass.result.values_count() && self.pass.result.is_packed();
            if is_end { end } else { u32::from_le_bytes(offsets[value]) as usize }
        };
        at(value)..at(value + 1)
    }

    /// Items of a piece with an error in any value.
    fn count_errors(&self, piece: &Piece) -> u32 {
        let width = self.pass.result.width();
        let status = &self.output[self.table(Part::Status, piece)];
        // A whole number of items.
        let block = 2 * width * (STATUS_BLOCK_BYTES / (2 * width)).max(1);
        let mut errors = 0;
        for block in status.chunks(block) {
            if block.iter().fold(0, |any, byte| any | byte) == 0 {
                continue;
            }
            let items = block.as_chunks::<2>().0.chunks_exact(width);
            let has_error = |values: &&[[u8; 2]]| values.iter().any(|&[code, _]| code != 0);
            errors += items.filter(has_error).count();
        }
        u32::try_from(errors).expect("no more errors than items")
    }
}
