//! Which bytes are a program of the machine. A device runs nothing else.

use super::code::{Code, Constant, HEADER_BYTES, INSTRUCTION_BYTES, Instruction, MACHINE_VERSION};
use super::kind::Kind;
use super::opcode::{OPERANDS, Opcode, Primitive};
use super::registers::Registers;
use crate::limits::{
    KIND_DEPTH_MAX, SOLVER_INSTRUCTIONS_MAX, SOLVER_KINDS_MAX, SOLVER_NESTING_MAX,
    SOLVER_REGISTERS_MAX, STEPS_MAX,
};
use crate::output::ItemErrorCode;
use crate::program::Ties;

/// Why bytes are no program of the machine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the program is malformed{}: {what}", at.map_or_else(String::new, |at| format!(" at instruction {at}")))]
pub struct Malformed {
    /// The instruction, if it is in one.
    pub at: Option<usize>,
    /// What is wrong.
    pub what: &'static str,
}

fn malformed<T>(what: &'static str) -> Result<T, Malformed> {
    Err(Malformed { at: None, what })
}

impl Code {
    /// Reads and verifies a program.
    ///
    /// # Errors
    /// [`Malformed`] if it breaks a rule of docs/src/design/machine.md.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Malformed> {
        let Some((header, mut rest)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
            return malformed("its header is too short");
        };
        let count = |at: usize| usize::from(u16::from_le_bytes([header[at], header[at + 1]]));
        let ties = match (header[0], header[1]) {
            (MACHINE_VERSION, 0) => Ties::Cpython,
            (MACHINE_VERSION, 1) => Ties::Lowest,
            (MACHINE_VERSION, _) => return malformed("there is no such tie-break"),
            _ => return malformed("it is for another version of the machine"),
        };
        let [instructions, constants, registers, kinds] = [2, 4, 6, 8].map(count);
        let too_many = instructions > SOLVER_INSTRUCTIONS_MAX
            || registers > SOLVER_REGISTERS_MAX
            || kinds > SOLVER_KINDS_MAX
            || constants >= registers.max(1);
        let length = INSTRUCTION_BYTES * instructions + 4 * constants + 4 * kinds + registers;
        if too_many || rest.len() != length || header[10..12] != [0; 2] {
            return malformed("its parts have other lengths than its header says");
        }
        let step_limit = u32::from_le_bytes([header[12], header[13], header[14], header[15]]);
        if !(1..=STEPS_MAX).contains(&step_limit) {
            return malformed("its limit of steps is out of range");
        }
        let mut code = Self {
            ties,
            step_limit,
            instructions: vec![],
            constants: vec![],
            kinds: vec![],
            registers: vec![],
        };
        for at in 0..instructions {
            let Some((bytes, after)) = rest.split_first_chunk::<INSTRUCTION_BYTES>() else { break };
            rest = after;
            let Some(instruction) = Instruction::from_bytes(*bytes) else {
                return Err(Malformed { at: Some(at), what: "there is no such opcode" });
            };
            code.instructions.push(instruction);
        }
        let (words, rest) = rest.split_at(4 * constants);
        let (rows, of_registers) = rest.split_at(4 * kinds);
        for row in rows.chunks_exact(4) {
            let kind = kind_of_row(&code.kinds, row)?;
            code.kinds.push(kind);
        }
        code.registers = of_registers.to_vec();
        if code.registers.iter().any(|kind| usize::from(*kind) >= code.kinds.len()) {
            return malformed("a register has no kind");
        }
        for (at, word) in (1_u8..).zip(words.chunks_exact(4)) {
            let word = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
            let Some(constant) = Constant::from_word(code.kind(at), word) else {
                return malformed("a constant is no value of its kind");
            };
            code.constants.push(constant);
        }
        code.verify()?;
        Ok(code)
    }

    /// Checks the instructions.
    ///
    /// # Errors
    /// [`Malformed`] if they break a rule of docs/src/design/machine.md.
    pub fn verify(&self) -> Result<(), Malformed> {
        if self.registers.is_empty() || *self.kind(0) != Kind::Grid {
            return malformed("register 0 is not for a grid");
        }
        if self.instructions.last().is_none_or(|last| last.op != Opcode::Return) {
            return malformed("it does not end with return");
        }
        let fixed = u8::try_from(1 + self.constants.len()).unwrap_or(u8::MAX);
        let mut known = Registers::default();
        let held = (0..=u8::MAX).take(1 + self.constants.len());
        held.for_each(|register| known.insert(register));
        let mut checker = Checker { code: self, fixed, known: vec![known], open: Vec::new() };
        for (at, instruction) in self.instructions.iter().enumerate() {
            checker.check(at, instruction).map_err(|what| Malformed { at: Some(at), what })?;
        }
        if checker.open.is_empty() { Ok(()) } else { malformed("a loop or a branch has no end") }
    }
}

fn kind_of_row(kinds: &[Kind], row: &[u8]) -> Result<Kind, Malformed> {
    let of = |at: usize| kinds.get(usize::from(row[at])).cloned();
    let kind = match row {
        [0, 0, 0, 0] => Some(Kind::Never),
        [1, 0, 0, 0] => Some(Kind::Flag),
        [2, 0, 0, 0] => Some(Kind::Number),
        [3, 0, 0, 0] => Some(Kind::Vector),
        [4, 0, 0, 0] => Some(Kind::Cell),
        [5, 0, 0, 0] => Some(Kind::Place),
        [6, 0, 0, 0] => Some(Kind::Grid),
        [7, _, _, 0] => of(1).zip(of(2)).map(|(first, second)| Kind::pair(first, second)),
        [8, _, 0, 0] => of(1).map(Kind::set),
        [9, _, 0, 0] => of(1).map(Kind::tuple),
        _ => None,
    };
    match kind {
        Some(kind) if kinds.contains(&kind) => malformed("a kind is there twice"),
        Some(kind) if kind.depth() <= KIND_DEPTH_MAX => Ok(kind),
        Some(_) | None => malformed("there is no such kind"),
    }
}

/// The registers that an instruction writes; 0 if fewer.
fn written(instruction: &Instruction) -> [u8; 3] {
    let [_, _, c, d] = instruction.from;
    if instruction.op.begins_loop() { [instruction.to, c, d] } else { [instruction.to, 0, 0] }
}

/// A loop or an arm of a branch that has no end yet.
struct Open {
    begin: usize,
    op: Opcode,
    /// Where its next part must be.
    end: usize,
    /// The destination, of a second arm.
    to: u8,
}

struct Checker<'c> {
    code: &'c Code,
    /// Registers that are never written: the input and the constants.
    fixed: u8,
    /// The registers that have been written, for each open block.
    known: Vec<Registers>,
    open: Vec<Open>,
}

type Checked<T = ()> = Result<T, &'static str>;

impl Checker<'_> {
    fn kind(&self, register: u8) -> &Kind {
        self.code.kind(register)
    }

    /// A register that may be read.
    fn read(&self, register: u8) -> Checked {
        let is_known = self.known.last().is_some_and(|known| known.contains(register));
        if is_known { Ok(()) } else { Err("it reads a register that has not been written") }
    }

    /// Notes that a register of this kind is written. What an open loop holds stays.
    fn write(&mut self, register: u8, kind: &Kind) -> Checked {
        let instructions = self.code.instructions();
        let holds = |open: &Open| {
            let of = &instructions[open.begin];
            open.op.begins_loop() && (of.to == register || of.from.contains(&register))
        };
        if self.open.iter().any(holds) {
            return Err("it writes what a loop around it holds");
        }
        self.note(register, kind)
    }

    fn note(&mut self, register: u8, kind: &Kind) -> Checked {
        if usize::from(register) >= self.code.registers() || register < self.fixed {
            return Err("it writes a register that it may not");
        }
        if !self.kind(register).is_like(kind) {
            return Err("its result is of another kind than its register");
        }
        if let Some(known) = self.known.last_mut() {
            known.insert(register);
        }
        Ok(())
    }

    fn enter(&mut self, open: Open) -> Checked {
        if self.open.len() == SOLVER_NESTING_MAX {
            return Err("loops and branches nest too deep");
        }
        if open.end <= open.begin || open.end >= self.code.instructions().len() {
            return Err("its end lies outside of the program");
        }
        let known = self.known.last().copied().unwrap_or_default();
        self.known.push(known);
        self.open.push(open);
        Ok(())
    }

    fn leave(&mut self, at: usize, ops: &[Opcode]) -> Checked<Open> {
        let open = self.open.pop().ok_or("it ends nothing")?;
        if !ops.contains(&open.op) || open.end != at {
            return Err("it ends what does not end here");
        }
        self.known.pop();
        Ok(open)
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "primitives have a rule of their own")]
    fn check(&mut self, at: usize, instruction: &Instruction) -> Checked {
        let Instruction { op, to, from, immediate } = *instruction;
        let end = usize::from(immediate);
        if let Some(primitive) = Primitive::of(op) {
            let count = primitive.parameters.len();
            self.operands(instruction, count, 0)?;
            let mut kinds = [&Kind::Never; OPERANDS];
            kinds.iter_mut().zip(from).for_each(|(kind, from)| *kind = self.kind(from));
            let gives = primitive.gives(&kinds[..count]);
            let gives = gives.ok_or("its arguments are of the wrong kinds")?;
            return self.write(to, &gives);
        }
        if op.begins_loop() {
            return self.begin_loop(at, instruction);
        }
        match op {
            Opcode::Return => {
                self.operands(instruction, 1, 0)?;
                let is_last = at + 1 == self.code.instructions().len();
                if is_last && to == 0 { Ok(()) } else { Err("return stands before the end") }
            }
            Opcode::Fail => {
                self.operands(instruction, 0, immediate)?;
                let code = u8::try_from(immediate).ok().and_then(ItemErrorCode::from_byte);
                if code.is_none() {
                    return Err("there is no such error");
                }
                let kind = self.code.registers.get(usize::from(to)).map(|_| self.kind(to).clone());
                self.write(to, &kind.ok_or("it writes a register that it may not")?)
            }
            Opcode::Tuple | Opcode::Push => {
                if end > from.len() || op == Opcode::Push && end == 0 {
                    return Err("it has not so many operands");
                }
                self.operands(instruction, end, immediate)?;
                if op == Opcode::Push {
                    self.read(to)?;
                }
                let Some(Kind::Tuple(element)) =
                    self.code.registers.get(usize::from(to)).map(|_| self.kind(to).clone())
                else {
                    return Err("its register is not for a tuple");
                };
                if from[..end].iter().any(|from| !self.kind(*from).is_like(&element)) {
                    return Err("an element is of another kind than the tuple's");
                }
                self.write(to, &Kind::Tuple(element))
            }
            Opcode::Pair => {
                self.operands(instruction, 2, 0)?;
                let kind = Kind::pair(self.kind(from[0]).clone(), self.kind(from[1]).clone());
                self.write(to, &kind)
            }
            Opcode::ToSet => {
                self.operands(instruction, 1, 0)?;
                let Kind::Tuple(of) = self.kind(from[0]).clone() else {
                    return Err("its argument is no tuple");
                };
                self.write(to, &Kind::Set(of))
            }
            Opcode::Convert => {
                self.operands(instruction, 1, 0)?;
                let into = self.code.registers.get(usize::from(to)).map(|_| self.kind(to).clone());
                let into = into.ok_or("it writes a register that it may not")?;
                if !self.kind(from[0]).converts(&into) {
                    return Err("there is no such conversion");
                }
                self.write(to, &into)
            }
            Opcode::Select => {
                self.operands(instruction, 3, 0)?;
                let kind = self.kind(from[1]).clone();
                if !self.kind(from[0]).is_number() || !self.kind(from[2]).is_like(&kind) {
                    return Err("its arguments are of the wrong kinds");
                }
                self.write(to, &kind)
            }
            Opcode::If => {
                self.operands(instruction, 1, immediate)?;
                if !self.kind(from[0]).is_number() || to != 0 {
                    return Err("its arguments are of the wrong kinds");
                }
                self.enter(Open { begin: at, op, end, to: 0 })
            }
            Opcode::Else => {
                self.operands(instruction, 1, immediate)?;
                let kind = self.kind(from[0]).clone();
                self.leave(at, &[Opcode::If])?;
                self.enter(Open { begin: at, op, end, to })?;
                // The second arm does not see it.
                let arm = self.known.pop().unwrap_or_default();
                self.write(to, &kind)?;
                if let Some(known) = self.known.last_mut()
                    && !arm.contains(to)
                {
                    known.remove(to);
                }
                self.known.push(arm);
                Ok(())
            }
            Opcode::EndIf => {
                self.operands(instruction, 1, 0)?;
                let kind = self.kind(from[0]).clone();
                let open = self.leave(at, &[Opcode::Else])?;
                if open.to != to {
                    return Err("both arms write different registers");
                }
                self.write(to, &kind)
            }
            Opcode::Next => self.end_loop(at, instruction),
            _ => Err("there is no such opcode"),
        }
    }

    /// Checks that the first `count` operands may be read, that the others and, if there should be none, the immediate
    /// are 0, and that the destination is none of them.
    fn operands(&self, instruction: &Instruction, count: usize, immediate: u16) -> Checked {
        for from in &instruction.from[..count] {
            self.read(*from)?;
            let writes = !matches!(instruction.op, Opcode::Return | Opcode::If | Opcode::Next);
            if writes && *from == instruction.to {
                return Err("it writes what it reads");
            }
        }
        let unused = instruction.from[count..].iter().all(|from| *from == 0);
        if unused && instruction.immediate == immediate {
            Ok(())
        } else {
            Err("an unused field is not 0")
        }
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "primitives have a rule of their own")]
    fn begin_loop(&mut self, at: usize, instruction: &Instruction) -> Checked {
        let Instruction { op, to, from: [a, b, c, d], immediate } = *instruction;
        let two = matches!(op, Opcode::Zip | Opcode::Pairs | Opcode::Iterate);
        self.read(a)?;
        if two {
            self.read(b)?;
        }
        if !two && b != 0 || !matches!(op, Opcode::Zip | Opcode::Pairs) && d != 0 {
            return Err("an unused field is not 0");
        }
        let apart = [a, b, c, d].iter().all(|register| *register != to)
            && c != a
            && c != b
            && (c != d || d == 0);
        if !apart {
            return Err("it writes what it reads");
        }
        let element = |register: u8| {
            self.kind(register).element().cloned().ok_or("it goes over no container")
        };
        let (first, second) = match op {
            Opcode::Iterate if !self.kind(b).is_number() => return Err("its count is no number"),
            Opcode::Iterate => (self.kind(a).clone(), None),
            Opcode::Zip | Opcode::Pairs => (element(a)?, Some(element(b)?)),
            _ => (element(a)?, None),
        };
        // The destination is written at the end; what it was before is lost at once. So is what any turn writes: the
        // next turn, and what follows, would read what a turn freed.
        let body = self.code.instructions().get(at..=usize::from(immediate));
        let lost = body.into_iter().flatten().flat_map(written);
        let lost: Registers = lost.filter(|register| *register >= self.fixed).chain([to]).collect();
        for known in &mut self.known {
            known.remove_all(lost);
        }
        self.enter(Open { begin: at, op, end: usize::from(immediate), to })?;
        self.note(c, &first)?;
        if let Some(second) = second {
            if d == a || d == b {
                return Err("it writes what it reads");
            }
            self.note(d, &second)?;
        }
        Ok(())
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "primitives have a rule of their own")]
    fn end_loop(&mut self, at: usize, instruction: &Instruction) -> Checked {
        self.operands(instruction, 1, instruction.immediate)?;
        let value = self.kind(instruction.from[0]).clone();
        let open = self.open.last().ok_or("it ends nothing")?;
        let (op, to, begin) = (open.op, open.to, open.begin);
        if instruction.to != 0 || usize::from(instruction.immediate) != begin || !op.begins_loop() {
            return Err("it ends what does not end here");
        }
        self.leave(at, &[op])?;
        let [a, _, c, _] = self.code.instructions()[begin].from;
        let (container, element) = (self.kind(a).clone(), self.kind(c).clone());
        let is_flag = value.is_number();
        let gives = match op {
            Opcode::Map if matches!(container, Kind::Set(_)) => Kind::set(value),
            Opcode::Map | Opcode::Zip => Kind::tuple(value),
            Opcode::Pairs => Kind::set(value),
            Opcode::Filter if is_flag => container,
            Opcode::Extract if is_flag => element,
            Opcode::Filter | Opcode::Extract => return Err("its condition is no flag"),
            Opcode::ArgMax | Opcode::ArgMin => element,
            Opcode::ValMax | Opcode::ValMin => value,
            Opcode::Order => Kind::tuple(element),
            Opcode::Iterate if value.is_like(&element) => value,
            Opcode::Iterate => return Err("its value is of another kind than its element"),
            _ => return Err("it ends what does not end here"),
        };
        self.write(to, &gives)
    }
}
