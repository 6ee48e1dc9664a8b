//! The copies of a lane between host memory (staging or attempts' memory) and the lane's buffers. Ranges
//! that are adjacent at both ends are one copy, so that there are few.

#![expect(unsafe_code, reason = "starts copies over this lane's own buffers and attempts' memory")]

use std::ops::Range;

use gridpool_kernels::argument::DeviceAddress;
use gridpool_kernels::part::Part;
use gridpool_protocol::batch::PART_ALIGN;

use super::{Lane, cells_of};
use crate::cuda::pass::{Bytes, Pass};
use crate::device::GridDispatch;
use crate::fault::Fault;

/// The two directions in [`Bytes`].
const TO_DEVICE: usize = 0;
const TO_HOST: usize = 1;

impl Lane {
    /// Starts the copies of the chunk's tables and cells.
    pub(super) fn upload(
        &self,
        dispatch: &GridDispatch<'_>,
        pass: &Pass,
        bytes: &mut Bytes,
    ) -> Result<(), Fault> {
        let mut staged = 0..pass.input.cells_start();
        for (at, (piece, ends)) in self.pieces.iter().zip(&pass.ends).enumerate() {
            let place = cells_of(pass, piece);
            if ends.input {
                let attempt = &dispatch.attempts[piece.attempt];
                let first = attempt.batch().cells().start + piece.of_batch.cells.start;
                let cells = attempt.input().as_ptr().wrapping_add(first);
                self.copy_in(self.input.at(place.start), cells, place.len())?;
                bytes.own[at][TO_DEVICE] += place.len() as u64;
            } else if place.start == staged.end {
                staged.end = place.end;
            } else {
                self.copy_in_staged(std::mem::replace(&mut staged, place), pass, bytes)?;
            }
        }
        self.copy_in_staged(staged, pass, bytes)
    }

    /// Starts the copies of the `wanted` parts of the result; of cells, only those in `areas`, counted from the
    /// start of their part.
    pub(super) fn download(
        &self,
        dispatch: &GridDispatch<'_>,
        pass: &Pass,
        bytes: &mut Bytes,
        areas: &[Range<usize>],
        wanted: impl Fn(Part) -> bool,
    ) -> Result<(), Fault> {
        let mut staged = if wanted(Part::Status) && pass.result.is_packed() {
            pass.area()
        } else {
            pass.result_start()..pass.result_start()
        };
        for part in Part::ALL.into_iter().filter(|&part| wanted(part) && part != Part::LabelsHigh) {
            let whole = pass.part(part);
            let is_table = part.bytes_per_value().is_some();
            if is_table && pass.stages_table(part) {
                self.stage_out(&mut staged, whole, pass, bytes)?;
                continue;
            }
            for (at, (piece, ends)) in self.pieces.iter().zip(&pass.ends).enumerate() {
                let attempt = &dispatch.attempts[piece.attempt];
                let Some(to) = part.span(attempt.output_layout(), &piece.of_batch) else { break };
                let from = match areas.get(at) {
                    Some(area) if !is_table => whole.start + area.start..whole.start + area.end,
                    _ => whole.clone(),
                };
                if ends.output.is_none() {
                    self.stage_out(&mut staged, from, pass, bytes)?;
                } else if !from.is_empty() {
                    assert!(from.len() <= to.len(), "a piece's result fits its place");
                    let to = attempt.output().as_ptr().wrapping_add(to.start);
                    self.copy_out(to, self.output.at(from.start), from.len())?;
                    bytes.own[at][TO_HOST] += from.len() as u64;
                }
            }
        }
        self.copy_out_staged(staged, pass, bytes)
    }

    /// Adds a range to the copies through staging. It joins the copy of the range right before it, if only
    /// padding lies between.
    fn stage_out(
        &self,
        staged: &mut Range<usize>,
        range: Range<usize>,
        pass: &Pass,
        bytes: &mut Bytes,
    ) -> Result<(), Fault> {
        if range.is_empty() {
            return Ok(());
        }
        if range.start >= staged.end && range.start <= staged.end.next_multiple_of(PART_ALIGN) {
            staged.end = range.end;
            return Ok(());
        }
        self.copy_out_staged(std::mem::replace(staged, range), pass, bytes)
    }

    /// Counts the bytes that kernels read and write in the staging itself: they too go over the bus.
    fn copy_in_staged(
        &self,
        range: Range<usize>,
        pass: &Pass,
        bytes: &mut Bytes,
    ) -> Result<(), Fault> {
        bytes.shared[TO_DEVICE] += range.len() as u64;
        if range.is_empty() || pass.reads_near {
            return Ok(());
        }
        let from = self.input_staging.at(range.start);
        self.copy_in(self.input.at(range.start), from, range.len())
    }

    fn copy_out_staged(
        &self,
        range: Range<usize>,
        pass: &Pass,
        bytes: &mut Bytes,
    ) -> Result<(), Fault> {
        bytes.shared[TO_HOST] += range.len() as u64;
        if range.is_empty() || pass.writes_near {
            return Ok(());
        }
        let to = self.output_staging.at(range.start);
        self.copy_out(to, self.output.at(range.start), range.len())
    }

    fn copy_in(&self, to: DeviceAddress, from: *const u8, bytes: usize) -> Result<(), Fault> {
        // SAFETY: callers name parts of buffers that `reserve` made long enough, or of an attempt's
        // input by its checked tables; the stream is waited for before either changes or goes.
        unsafe { self.driver.copy_to_device(to, from, bytes, self.stream) }
    }

    fn copy_out(&self, to: *mut u8, from: DeviceAddress, bytes: usize) -> Result<(), Fault> {
        // SAFETY: as for `copy_in`, with an attempt's output.
        unsafe { self.driver.copy_to_host(to, from, bytes, self.stream) }
    }
}
