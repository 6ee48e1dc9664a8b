//! The kernel of searches: every evaluation by the reference. One over a large grid is left for a larger arena, as
//! the real kernel leaves those whose values do not fit. A launch goes on a little at a time, so that it can be stopped
//! meanwhile.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use gridpool_kernels::argument::DeviceAddress;
use gridpool_kernels::reference::machine::Machine;
use gridpool_kernels::reference::search::{SearchPairs, judge};
use gridpool_kernels::solve::{NEEDS_MEMORY, SearchArgument};
use gridpool_protocol::search::CellScore;

use super::solve::{WORDS_PER_CELL, program};
use super::{area, number};
use crate::memory::{Illegal, Memory};

/// Evaluations that a launch makes at a time. The real kernel looks more often whether it is stopped.
const EVALUATIONS_AT_ONCE: usize = 4;

/// How far a launch is.
#[derive(Debug)]
pub(crate) enum Progress {
    /// It goes on with this evaluation.
    UnderWay(usize),
    /// It has ended. The address of the first status, if it wrote any.
    Ended(Option<usize>),
}

/// Goes on with a launch from an evaluation on.
pub(crate) fn go_on(
    search: &SearchArgument,
    from: usize,
    memory: &Memory,
) -> Result<Progress, Illegal> {
    let word = |address: DeviceAddress, at: usize| -> Result<usize, Illegal> {
        let bytes = memory.read(number(address.plus(4 * at)), 4)?;
        Ok(u32::from_le_bytes(bytes.try_into().unwrap_or_default()) as usize)
    };
    let grid = |grid: usize| -> Result<([u8; 2], Vec<u8>), Illegal> {
        let shape = memory.read(number(search.shapes.plus(2 * grid)), 2)?;
        let shape = [shape[0], shape[1]];
        let cells = search.cells.plus(word(search.offsets, grid)?);
        Ok((shape, memory.read(number(cells), area(shape))?))
    };
    let (mut machine, mut codes, mut known) =
        (Machine::default(), BTreeMap::new(), BTreeMap::new());
    if search.stop != DeviceAddress::NULL && word(search.stop, 0)? != 0 {
        return Ok(Progress::Ended(None));
    }
    let count = search.evaluations_count as usize;
    let until = count.min(from + EVALUATIONS_AT_ONCE);
    for at in from..until {
        let listed = search.evaluations != DeviceAddress::NULL;
        let evaluation = if listed { word(search.evaluations, at)? } else { at };
        let pairs = search.pairs_count as usize;
        let (at, pair) = (evaluation / pairs, evaluation % pairs);
        let code = match codes.entry(at) {
            Entry::Occupied(code) => code.into_mut(),
            Entry::Vacant(entry) => {
                let start = word(search.program_offsets, at)?;
                entry.insert(program(search.programs.plus(start), memory)?)
            }
        };
        let (cells, pair) = match known.entry(pair) {
            Entry::Occupied(pair) => pair.into_mut(),
            Entry::Vacant(entry) => {
                let (input, output) = (grid(2 * pair)?, grid(2 * pair + 1)?);
                let both = SearchPairs::new(&[input.0, output.0], &[input.1, output.1].concat());
                entry.insert((area(input.0), both))
            }
        };
        let (status, score) = if WORDS_PER_CELL * *cells > search.arena_words as usize {
            (NEEDS_MEMORY, CellScore::default())
        } else {
            let (status, score) = judge(&mut machine, code, pair, 0);
            (status.byte(), score)
        };
        memory.write(number(search.statuses.plus(evaluation)), &[status])?;
        if search.scores != DeviceAddress::NULL {
            let bytes = score.number().to_le_bytes();
            memory.write(number(search.scores.plus(2 * evaluation)), &bytes)?;
        }
    }
    Ok(match until < count {
        true => Progress::UnderWay(until),
        false => Progress::Ended((count > 0).then(|| number(search.statuses))),
    })
}
