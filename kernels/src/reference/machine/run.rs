//! Goes through the instructions of a program.

use gridpool_protocol::limits::VALUE_WEIGHT_MAX;
use gridpool_protocol::output::ItemErrorCode;
use gridpool_protocol::program::Ties;
use gridpool_protocol::solver::value::{NOTHING, Value};
use gridpool_protocol::solver::{Code, Constant, Instruction, Kind, Opcode};

use super::support::{Ends, is_true, to_set, to_tuple};
use super::turns::{After, Turns};
use super::{containers, convert, grids, measures, numbers, objects, paint, patches};

/// Why an item has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failed {
    /// The error.
    pub code: ItemErrorCode,
    /// The instruction that met it.
    pub instruction: usize,
}

/// A result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    /// The value, of the kind [`Code::gives`].
    pub value: Value,
    /// Instructions that were run.
    pub steps: u32,
}

/// Runs programs. Keeps only memory between items.
#[derive(Debug, Default)]
pub struct Machine {
    registers: Vec<Value>,
    loops: Vec<Turns>,
    steps: u32,
}

impl Machine {
    /// Runs a program over a grid, at most `limit` instructions.
    ///
    /// # Errors
    /// [`Failed`]: the first error in the order of the program.
    ///
    /// # Panics
    /// Never: nobody cancels it.
    pub fn run(&mut self, code: &Code, grid: Value, limit: u32) -> Result<Finished, Failed> {
        self.run_unless(code, grid, limit, || false).expect("nobody cancels it")
    }

    /// The same; `None` if it was cancelled. It asks `is_cancelled` before each instruction, so a cancel waits for one
    /// instruction, whatever the program's loops do.
    pub(in crate::reference) fn run_unless(
        &mut self,
        code: &Code,
        grid: Value,
        limit: u32,
        is_cancelled: impl Fn() -> bool,
    ) -> Option<Result<Finished, Failed>> {
        self.registers.clear();
        self.registers.push(grid);
        self.registers.extend(code.constants().iter().map(|constant| match *constant {
            Constant::Flag(flag) => Value::Number(flag.into()),
            Constant::Number(number) => Value::Number(number),
            Constant::Vector(vector) => Value::Vector(vector),
        }));
        self.registers.resize(code.registers(), Value::Number(NOTHING));
        self.loops.clear();
        self.steps = 0;
        let instructions = code.instructions();
        let mut at = 0;
        loop {
            let failed = |code| Failed { code, instruction: at };
            let Some(instruction) = instructions.get(at) else {
                return Some(Err(failed(ItemErrorCode::BadType)));
            };
            if self.steps == limit {
                return Some(Err(failed(ItemErrorCode::StepLimit)));
            }
            if is_cancelled() {
                return None;
            }
            self.steps += 1;
            if instruction.op == Opcode::Return {
                let value = self.register(instruction.from[0]).clone();
                return Some(Ok(Finished { value, steps: self.steps }));
            }
            match self.step(code, at, instruction) {
                Ok(next) => at = next,
                Err(code) => return Some(Err(failed(code))),
            }
        }
    }

    fn register(&self, register: u8) -> &Value {
        &self.registers[usize::from(register)]
    }

    fn write(&mut self, register: u8, value: Value) {
        self.registers[usize::from(register)] = value;
    }

    /// Runs one instruction. Returns the place of the next.
    fn step(&mut self, code: &Code, at: usize, instruction: &Instruction) -> Ends<usize> {
        let Instruction { op, to, from, immediate } = *instruction;
        let target = usize::from(immediate);
        if op.begins_loop() {
            let (first, second) = (self.register(from[0]), self.register(from[1]));
            let counts = code.kind(from[0]).element().is_some_and(Kind::is_number);
            let (turns, after) = Turns::begin(op, first, second, counts)?;
            self.loops.push(turns);
            return Ok(self.turn(after, instruction, at));
        }
        let next = at + 1;
        match op {
            Opcode::Next => {
                let value = self.register(from[0]).clone();
                let begin = code.instructions()[target];
                let turns = self.loops.last_mut().ok_or(ItemErrorCode::BadType)?;
                let after = turns.next(value)?;
                return Ok(self.turn(after, &begin, target));
            }
            Opcode::If => {
                let holds = is_true(self.register(from[0]));
                return Ok(if holds { next } else { target + 1 });
            }
            Opcode::Else => {
                self.write(to, self.register(from[0]).clone());
                return Ok(target + 1);
            }
            Opcode::Fail => {
                let known = ItemErrorCode::ALL.into_iter().find(|known| *known as u16 == immediate);
                return Err(known.unwrap_or(ItemErrorCode::BadType));
            }
            _ => {}
        }
        let value = self.value(code, instruction)?;
        if value.weight() > VALUE_WEIGHT_MAX {
            return Err(ItemErrorCode::Overflow);
        }
        self.write(to, value);
        Ok(next)
    }

    /// Sets out on the next turn of the innermost loop, or ends it. Returns the place of the next instruction.
    fn turn(&mut self, after: After, begin: &Instruction, at: usize) -> usize {
        match after {
            After::Turn(element, second) => {
                self.write(begin.from[2], element);
                if let Some(second) = second {
                    self.write(begin.from[3], second);
                }
                at + 1
            }
            After::Done(value) => {
                self.loops.pop();
                self.write(begin.to, value);
                usize::from(begin.immediate) + 1
            }
        }
    }

    /// The value that an instruction computes.
    fn value(&self, code: &Code, instruction: &Instruction) -> Ends {
        let Instruction { op, to, from, immediate } = *instruction;
        let [a, b, c, d] = from.map(|register| self.register(register));
        let gives = code.kind(to);
        let parts =
            || from.iter().take(usize::from(immediate)).map(|from| self.register(*from).clone());
        match op {
            Opcode::Tuple => return to_tuple(parts().collect()),
            Opcode::Push => {
                let before = self.register(to).elements().iter().cloned();
                return to_tuple(before.chain(parts()).collect());
            }
            Opcode::Pair => return containers::pair(a, b, gives),
            Opcode::ToSet => return to_set(a.elements().to_vec()),
            Opcode::Convert => return convert::convert(a, code.kind(from[0]), gives),
            Opcode::Select => return Ok(if is_true(a) { b.clone() } else { c.clone() }),
            Opcode::EndIf => return Ok(a.clone()),
            _ => {}
        }
        let made = primitive(op, [a, b, c, d], gives, code.ties());
        made.unwrap_or(Err(ItemErrorCode::BadType))
    }
}

/// The value of a primitive; `None` if no family has the opcode.
fn primitive(op: Opcode, [a, b, c, d]: [&Value; 4], gives: &Kind, ties: Ties) -> Option<Ends> {
    numbers::run(op, a, b, c)
        .or_else(|| containers::run(op, a, b, &containers::Known { gives, ties }))
        .or_else(|| measures::run(op, a, b, ties))
        .or_else(|| patches::run(op, a, b, gives))
        .or_else(|| objects::run(op, [a, b, c, d], ties))
        .or_else(|| grids::run(op, a, b, c))
        .or_else(|| paint::run(op, a, b, c, ties))
}

#[cfg(test)]
mod tests;
