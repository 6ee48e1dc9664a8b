//! How the verdicts of a chunk get to their places.

use gridpool_protocol::output::ItemErrorCode;
use gridpool_protocol::search::{CellScore, PairStatus, SearchReport};
use rayon::prelude::*;

use super::Chunk;
use super::programs::ChunkPrograms;
use crate::chunk::number;
use crate::device::AttemptReport;
use crate::fault::Fault;

/// Evaluations of a chunk that one thread goes through at a time.
const PIECE: usize = 1 << 16;

/// Where the bytes are this one.
pub(super) fn places_of(one: u8, bytes: &[u8]) -> Vec<u32> {
    let of_piece = |(at, piece): (usize, &[u8])| -> Vec<u32> {
        if !piece.contains(&one) {
            return Vec::new();
        }
        let places = piece.iter().enumerate().filter(|(_, byte)| **byte == one);
        places.map(|(place, _)| number(at * PIECE + place)).collect()
    };
    bytes.par_chunks(PIECE).enumerate().flat_map_iter(of_piece).collect()
}

/// Writes the verdicts of a chunk, those of what is no program too. Bytes from the device are checked before.
///
/// The threads of the current pool share the work: one alone takes as long over a large chunk as the device does.
pub(super) fn deliver(
    chunk: &Chunk<'_>,
    statuses: &[u8],
    scores: &[[u8; 2]],
    sum: &mut AttemptReport,
) -> Result<(), Fault> {
    let is_score = |bytes: &[u8; 2]| CellScore::from_number(u16::from_le_bytes(*bytes)).is_some();
    let are_known = statuses.par_chunks(PIECE).all(PairStatus::are_known);
    if !are_known || !scores.par_iter().with_min_len(PIECE).all(is_score) {
        let wrong = statuses.iter().find(|byte| PairStatus::from_byte(**byte).is_none());
        let detail = format!("a verdict of {wrong:?}, or a score of more cells than a grid has");
        return Err(Fault::WrongResult { detail });
    }
    let is_capped = |byte: &&u8| **byte == ItemErrorCode::StepLimit as u8;
    let capped = statuses.par_chunks(PIECE).map(|piece| piece.iter().filter(is_capped).count());
    let (capped, executed) = (capped.sum::<usize>() as u64, statuses.len() as u64);
    let more = SearchReport { executed, capped, ..SearchReport::default() };
    sum.search = sum.search.map(|search| search.plus(more));
    let first = chunk.attempt.programs().start;
    let pairs = chunk.pairs.len();
    let valid = match &chunk.programs {
        ChunkPrograms::Listed(_, valid) if valid.len() < chunk.span.len() => valid,
        ChunkPrograms::Listed(..) | ChunkPrograms::OfTemplate(..) => {
            let piece = (PIECE / pairs).max(1);
            let write = |(at, statuses): (usize, &[u8])| {
                let (start, end) = (at * piece, at * piece + statuses.len() / pairs);
                let near = scores.get(pairs * start..pairs * end).unwrap_or(&[]);
                let span = first + chunk.span.start + start..first + chunk.span.start + end;
                chunk.attempt.write(&span, statuses, near);
            };
            statuses.par_chunks(piece * pairs).enumerate().for_each(write);
            return Ok(());
        }
    };
    sum.item_errors += number(chunk.span.len() - valid.len());
    for program in chunk.span.clone() {
        let at = valid.binary_search_by_key(&program, |(at, _)| *at);
        let rows = at.map(|at| at * pairs..(at + 1) * pairs);
        let own = rows
            .clone()
            .map_or_else(|_| vec![PairStatus::NO_PROGRAM; pairs], |rows| statuses[rows].to_vec());
        let near = rows
            .ok()
            .and_then(|rows| scores.get(rows))
            .map_or_else(|| vec![[0; 2]; pairs], <[_]>::to_vec);
        chunk.attempt.write(&(first + program..first + program + 1), &own, &near);
    }
    Ok(())
}
