//! How the verdicts of a chunk get to their places.

use gridpool_protocol::output::ItemErrorCode;
use gridpool_protocol::search::{CellScore, PairStatus, SearchReport};

use super::Chunk;
use super::programs::ChunkPrograms;
use crate::chunk::number;
use crate::device::AttemptReport;
use crate::fault::Fault;

/// Writes the verdicts of a chunk, those of what is no program too. Bytes from the device are checked before.
pub(super) fn deliver(
    chunk: &Chunk<'_>,
    statuses: &[u8],
    scores: &[[u8; 2]],
    sum: &mut AttemptReport,
) -> Result<(), Fault> {
    let is_score = |bytes: &[u8; 2]| CellScore::from_number(u16::from_le_bytes(*bytes)).is_some();
    let are_known = PairStatus::are_known(statuses);
    if !are_known || !scores.iter().all(is_score) {
        let wrong = statuses.iter().find(|byte| PairStatus::from_byte(**byte).is_none());
        let detail = format!("a verdict of {wrong:?}, or a score of more cells than a grid has");
        return Err(Fault::WrongResult { detail });
    }
    let capped = ItemErrorCode::StepLimit as u8;
    let capped = statuses.iter().filter(|byte| **byte == capped).count() as u64;
    let executed = statuses.len() as u64;
    let more = SearchReport { executed, capped, ..SearchReport::default() };
    sum.search = sum.search.map(|search| search.plus(more));
    let first = chunk.attempt.programs().start;
    let span = first + chunk.span.start..first + chunk.span.end;
    let valid = match &chunk.programs {
        ChunkPrograms::Listed(_, valid) if valid.len() < chunk.span.len() => valid,
        ChunkPrograms::Listed(..) | ChunkPrograms::OfTemplate(..) => {
            chunk.attempt.write(&span, statuses, scores);
            return Ok(());
        }
    };
    let pairs = chunk.pairs.len();
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
