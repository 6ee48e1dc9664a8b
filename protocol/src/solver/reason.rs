//! Why an instruction ended an item, in words: by its error, its opcode and the kind of its result.

use super::code::{Code, Instruction};
use super::kind::Kind;
use super::opcode::Opcode;
use crate::limits::{
    COLOR_MAX, DISTANCES_MAX, GRID_CELLS_MAX, MACHINE_COLOR_MAX, MACHINE_COLOR_MIN, PERIODS_MAX,
    RESULT_BYTES_MAX, SIDE_MAX, VALUE_WEIGHT_MAX,
};
use crate::output::ItemErrorCode;

/// The sentence for this error of an instruction.
pub(super) fn of(code: &Code, instruction: usize, error: ItemErrorCode) -> String {
    let Some(found) = code.instructions().get(instruction) else { return error.message() };
    match error {
        ItemErrorCode::Overflow => overflow(code, found),
        ItemErrorCode::BadShape => "the rows of the grid would have different lengths".to_owned(),
        ItemErrorCode::EmptyArg if found.op == Opcode::Fail => {
            "none of the functions to choose from fits".to_owned()
        }
        ItemErrorCode::EmptyArg => "there is no element, cell, row or column to take".to_owned(),
        ItemErrorCode::BadIndex => "it reaches outside of the second grid".to_owned(),
        ItemErrorCode::BadCell
        | ItemErrorCode::MissingOutput
        | ItemErrorCode::BadCrop
        | ItemErrorCode::BadType
        | ItemErrorCode::BadNumber
        | ItemErrorCode::StepLimit => error.message(),
    }
}

/// What was too large.
fn overflow(code: &Code, found: &Instruction) -> String {
    let is_one_of = |ops: &[Opcode]| ops.contains(&found.op);
    if is_one_of(&[Opcode::Manhattan, Opcode::Adjacent]) {
        return format!("the numbers of places of the two multiply to over {DISTANCES_MAX}");
    }
    if is_one_of(&[Opcode::HPeriod, Opcode::VPeriod]) {
        return format!("the object's cells times its side are over {PERIODS_MAX}");
    }
    if is_one_of(&[Opcode::Return]) {
        return if *code.kind(found.from[0]) == Kind::Grid {
            format!("a colour of the result is not from 0 to {COLOR_MAX}")
        } else {
            format!("the result takes over {RESULT_BYTES_MAX} bytes")
        };
    }
    // The end of a loop gives what the loop gives.
    let is_end = is_one_of(&[Opcode::Next]);
    let begin = code.instructions().get(usize::from(found.immediate)).filter(|_| is_end);
    let halves = format!("outside of {} to {}", i16::MIN, i16::MAX);
    let container = |word: &str| {
        format!(
            "the {word} would weigh over {VALUE_WEIGHT_MAX} (a number or a cell weighs 1), or a row, column or colour \
             in it would be {halves}"
        )
    };
    match code.kind(begin.unwrap_or(found).to) {
        Kind::Number => "the number does not fit into 32 bits".to_owned(),
        Kind::Vector => format!("a row or column would be {halves}"),
        Kind::Cell | Kind::Place => format!("a colour, row or column would be {halves}"),
        Kind::Grid => format!(
            "the grid would have over {GRID_CELLS_MAX} cells, a side over {SIDE_MAX}, or a colour outside of \
             {MACHINE_COLOR_MIN} to {MACHINE_COLOR_MAX}"
        ),
        Kind::Set(_) => container("set"),
        Kind::Tuple(_) => container("tuple"),
        Kind::Pair(_) => container("pair"),
        Kind::Never | Kind::Flag => "a value on the way would be too large".to_owned(),
    }
}
