//! The kernels of searches and of templates: every evaluation by the reference. One over a large grid is left for a
//! larger arena, as the real kernels leave those whose values do not fit. A launch goes on a little at a time, so that
//! it can be stopped meanwhile.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use gridpool_kernels::argument::DeviceAddress;
use gridpool_kernels::reference::machine::Machine;
use gridpool_kernels::reference::search::{SearchPairs, judge};
use gridpool_kernels::solve::{NEEDS_MEMORY, SearchArgument};
use gridpool_protocol::search::CellScore;
use gridpool_protocol::solver::{Code, HEADER_BYTES, INSTRUCTION_BYTES, Kind};

use super::solve::{program, words_needed};
use super::{area, number};
use crate::memory::{Illegal, Memory};

/// Words of `holes` for each hole and for all: `HOLE_WORDS` of kernels/cuda/machine/template.cuh.
const HOLE_WORDS: usize = 8;
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
    // All evaluations are made without runs.
    let listed = search.evaluations != DeviceAddress::NULL;
    let expanded = (search.expanded_count * search.pairs_count) as usize;
    let count = match search.evaluations_count as usize {
        units if units == 0 || listed => units,
        _ if expanded > 0 => expanded,
        units if search.runs == DeviceAddress::NULL => units,
        _ => (search.programs_count * search.pairs_count) as usize,
    };
    let until = count.min(from + EVALUATIONS_AT_ONCE);
    for at in from..until {
        let evaluation = if listed { word(search.evaluations, at)? } else { at };
        let pairs = search.pairs_count as usize;
        let (at, pair) = (evaluation / pairs, evaluation % pairs);
        let code = match codes.entry(at) {
            Entry::Occupied(code) => code.into_mut(),
            Entry::Vacant(entry) => {
                let start = if expanded > 0 { 0 } else { word(search.program_offsets, at)? };
                let first = program(search.programs.plus(start), memory)?;
                entry.insert(match expanded {
                    0 => first,
                    _ => chosen(search, &first, search.first + at as u64, memory)?,
                })
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
        let (status, score) = if words_needed(*cells) > search.arena_words as usize {
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

/// A program of a template: the first one with the choices that `holes` has for this number.
fn chosen(
    search: &SearchArgument,
    first: &Code,
    mut number_of: u64,
    memory: &Memory,
) -> Result<Code, Illegal> {
    let word = |address: DeviceAddress, at: usize| -> Result<usize, Illegal> {
        let bytes = memory.read(number(address.plus(4 * at)), 4)?;
        Ok(u32::from_le_bytes(bytes.try_into().unwrap_or_default()) as usize)
    };
    let holes = |at: usize| word(search.holes, at);
    let (mut bytes, instructions) = (first.to_bytes(), first.instructions().len());
    for hole in 0..holes(0)? {
        let of = |field: usize| holes(HOLE_WORDS * (1 + hole) + field);
        let [_, choices, places, is_opcode, choices_at, places_at] =
            [of(0)?, of(1)?, of(2)?, of(3)?, of(4)?, of(5)?];
        let at = usize::try_from(number_of % choices as u64).unwrap_or(0);
        number_of /= choices as u64;
        let choice = holes(choices_at + at)?;
        for place in 0..places {
            let place = holes(places_at + place)?;
            if is_opcode > 0 {
                let at = HEADER_BYTES + INSTRUCTION_BYTES * place;
                let from = search.programs.plus(word(search.program_offsets, choice)?);
                bytes[at] = program(from, memory)?.to_bytes()[at];
            } else {
                let at = HEADER_BYTES + INSTRUCTION_BYTES * instructions + 4 * (place - 1);
                let choice = u32::try_from(choice).unwrap_or(0);
                let is_vector = first.constants()[place - 1].kind() == Kind::Vector;
                let choice = match is_vector {
                    true => (choice ^ 0x8000_8000).rotate_left(16),
                    false => choice ^ 0x8000_0000,
                };
                bytes[at..at + 4].copy_from_slice(&choice.to_le_bytes());
            }
        }
    }
    Ok(Code::from_bytes(&bytes).expect("the host has checked each choice"))
}
