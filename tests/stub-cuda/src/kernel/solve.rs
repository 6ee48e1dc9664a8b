//! The kernel of solvers: every item by the reference. An item with a large grid is left for a larger arena, as
//! the real kernel leaves those whose values do not fit.

use gridpool_kernels::argument::DeviceAddress;
use gridpool_kernels::reference::machine::Machine;
use gridpool_kernels::solve::{NEEDS_MEMORY, NEEDS_ROOM, SolveArgument};
use gridpool_protocol::limits::{COLOR_MAX, RESULT_BYTES_MAX};
use gridpool_protocol::output::{ItemErrorCode, NO_OP};
use gridpool_protocol::solver::value::{Grid, Value};
use gridpool_protocol::solver::{Code, HEADER_BYTES, INSTRUCTION_BYTES};

use super::number;
use crate::memory::{Illegal, Memory};

/// Words of an arena that an item needs, by the cells of its grid: those of more than 73 cells need more than the first
/// arena, of more than 203, 645 and 2,580 more than each other one.
pub(super) fn words_needed(cells: usize) -> usize {
    cells.pow(3) / 256
}

/// Runs a launch. Returns the address of the first byte of a result.
pub(super) fn run(solve: &SolveArgument, memory: &Memory) -> Result<Option<usize>, Illegal> {
    if solve.items_count == 0 {
        return Ok(None);
    }
    let code = program(solve.program, memory)?;
    let (mut machine, mut content) = (Machine::default(), None);
    let word = |address: DeviceAddress, at: usize| -> Result<usize, Illegal> {
        let bytes = memory.read(number(address.plus(4 * at)), 4)?;
        Ok(u32::from_le_bytes(bytes.try_into().unwrap_or_default()) as usize)
    };
    for at in 0..solve.items_count as usize {
        let item = if solve.items == DeviceAddress::NULL { at } else { word(solve.items, at)? };
        let before = memory.read(number(solve.status.plus(2 * item)), 1)?;
        if solve.again != 0 && before != [NEEDS_MEMORY] {
            continue;
        }
        let shape = memory.read(number(solve.shapes.plus(2 * item)), 2)?;
        let (height, width) = (usize::from(shape[0]), usize::from(shape[1]));
        let start = word(solve.offsets, item)? - word(solve.offsets, 0)?;
        let cells = memory.read(number(solve.cells.plus(start)), height * width)?;
        let mut ended = Ended { status: [0; 2], instruction: 0, shape: [0; 2], bytes: Vec::new() };
        if words_needed(cells.len()) > solve.arena_words as usize {
            ended.status[0] = NEEDS_MEMORY;
        } else if cells.iter().any(|cell| *cell > COLOR_MAX) {
            ended.status = [ItemErrorCode::BadCell as u8, NO_OP];
        } else {
            let cells = cells.iter().map(|cell| cell.cast_signed()).collect();
            let grid = Grid::new(height, width, cells).expect("the host has checked the shape");
            ended.run(solve, &mut machine, &code, grid);
        }
        let used = word(solve.used, 0)?;
        let length = ended.bytes.len();
        if ended.status[0] == 0 {
            let after = u32::try_from(used + length).unwrap_or(u32::MAX);
            memory.write(number(solve.used), &after.to_le_bytes())?;
            if after > solve.results_max {
                ended.status[0] = NEEDS_ROOM;
            } else {
                memory.write(number(solve.results.plus(used)), &ended.bytes)?;
                content =
                    content.or_else(|| (length > 0).then(|| number(solve.results.plus(used))));
            }
        }
        let is_fine = ended.status[0] == 0;
        let (place, length) = if is_fine { (used, length) } else { (0, 0) };
        let put = |table: DeviceAddress, value: usize| {
            let value = u32::try_from(value).unwrap_or(u32::MAX);
            memory.write(number(table.plus(4 * item)), &value.to_le_bytes())
        };
        put(solve.places, place)?;
        put(solve.lengths, length)?;
        put(solve.instructions, ended.instruction)?;
        memory.write(number(solve.status.plus(2 * item)), &ended.status)?;
        if solve.out_shapes != DeviceAddress::NULL {
            memory.write(number(solve.out_shapes.plus(2 * item)), &ended.shape)?;
        }
    }
    Ok(content)
}

/// How an item ended.
struct Ended {
    status: [u8; 2],
    instruction: usize,
    shape: [u8; 2],
    bytes: Vec<u8>,
}

impl Ended {
    fn run(&mut self, solve: &SolveArgument, machine: &mut Machine, code: &Code, grid: Grid) {
        let finished = match machine.run(code, Value::Grid(grid.into()), solve.steps_max) {
            Ok(finished) => finished,
            Err(failed) => {
                (self.status[0], self.instruction) = (failed.code as u8, failed.instruction);
                return;
            }
        };
        let mut fits = true;
        let wants_grid = solve.out_shapes != DeviceAddress::NULL;
        if let (true, Value::Grid(grid)) = (wants_grid, &finished.value) {
            let side = |side: usize| u8::try_from(side).unwrap_or(u8::MAX);
            self.shape = [side(grid.height()), side(grid.width())];
            self.bytes = grid.cells().iter().map(|cell| cell.cast_unsigned()).collect();
            fits = self.bytes.iter().all(|cell| *cell <= COLOR_MAX);
        } else {
            finished.value.write(code.gives(), &mut self.bytes);
            fits &= self.bytes.len() <= RESULT_BYTES_MAX;
        }
        if !fits {
            self.status[0] = ItemErrorCode::Overflow as u8;
            self.instruction = code.instructions().len() - 1;
            self.shape = [0; 2];
            self.bytes.clear();
        }
    }
}

/// The program at an address. Its header says how long it is.
pub(super) fn program(at: DeviceAddress, memory: &Memory) -> Result<Code, Illegal> {
    let head = memory.read(number(at), HEADER_BYTES)?;
    let count = |at: usize| usize::from(u16::from_le_bytes([head[at], head[at + 1]]));
    let [instructions, constants, registers, kinds] = [2, 4, 6, 8].map(count);
    let length = INSTRUCTION_BYTES * instructions + 4 * (constants + kinds) + registers;
    let bytes = memory.read(number(at), HEADER_BYTES + length)?;
    Ok(Code::from_bytes(&bytes).expect("the worker has verified the program"))
}
