//! The machine's program: instructions of 8 bytes, constants, and the kind of every register.
//!
//! Owns the layout of the bytes that a device gets. `verify` says which of them are a program.

use sha2::{Digest, Sha256};

use super::kind::Kind;
use super::opcode::Opcode;
use super::verify::Malformed;
use crate::limits::{SOLVER_INSTRUCTIONS_MAX, SOLVER_KINDS_MAX, SOLVER_REGISTERS_MAX};
use crate::program::{Ties, hex};

/// Bytes of one instruction.
pub const INSTRUCTION_BYTES: usize = 8;
/// Bytes before the first instruction.
pub const HEADER_BYTES: usize = 16;
/// Most bytes of a program.
pub const CODE_BYTES_MAX: usize = HEADER_BYTES
    + INSTRUCTION_BYTES * SOLVER_INSTRUCTIONS_MAX
    + 4 * (SOLVER_REGISTERS_MAX + SOLVER_KINDS_MAX)
    + SOLVER_REGISTERS_MAX;
/// The version of the machine. It is part of a program's hash. Another table of opcodes, or another meaning of one, is
/// another version: bytecode outlives the build that made it.
pub const MACHINE_VERSION: u8 = 1;

/// One instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// What it does.
    pub op: Opcode,
    /// The register that it writes.
    pub to: u8,
    /// The registers a, b, c and d; 0 where the opcode has none.
    pub from: [u8; 4],
    /// The immediate: a place in the code, a count or an error.
    pub immediate: u16,
}

impl Instruction {
    /// Its bytes: opcode, destination, a, b, c, d, immediate (little-endian).
    #[must_use]
    pub fn to_bytes(self) -> [u8; INSTRUCTION_BYTES] {
        let [low, high] = self.immediate.to_le_bytes();
        let [a, b, c, d] = self.from;
        [self.op as u8, self.to, a, b, c, d, low, high]
    }

    /// The instruction of these bytes; `None` if there is no such opcode.
    #[must_use]
    pub fn from_bytes([op, to, a, b, c, d, low, high]: [u8; INSTRUCTION_BYTES]) -> Option<Self> {
        let op = Opcode::from_byte(op)?;
        Some(Self { op, to, from: [a, b, c, d], immediate: u16::from_le_bytes([low, high]) })
    }
}

/// A value that a register holds from the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Constant {
    /// True or false.
    Flag(bool),
    /// A number.
    Number(i32),
    /// A row and a column.
    Vector([i16; 2]),
}

impl Constant {
    /// Its kind.
    #[must_use]
    pub fn kind(self) -> Kind {
        match self {
            Self::Flag(_) => Kind::Flag,
            Self::Number(_) => Kind::Number,
            Self::Vector(_) => Kind::Vector,
        }
    }

    /// Its word: a number, 0 or 1, or the row in the low half and the column in the high half.
    #[must_use]
    pub fn word(self) -> u32 {
        match self {
            Self::Flag(flag) => flag.into(),
            Self::Number(number) => number.cast_unsigned(),
            Self::Vector([row, col]) => {
                u32::from(row.cast_unsigned()) | u32::from(col.cast_unsigned()) << 16
            }
        }
    }

    /// The constant of a kind and a word; `None` if the kind has no constants or the word is none of its values.
    #[must_use]
    pub fn from_word(kind: &Kind, word: u32) -> Option<Self> {
        let half = |bits: u32| u16::try_from(bits & 0xffff).map(u16::cast_signed);
        match kind {
            Kind::Flag => (word < 2).then_some(Self::Flag(word == 1)),
            Kind::Number => {
                let number = word.cast_signed();
                (number != crate::solver::value::NOTHING).then_some(Self::Number(number))
            }
            Kind::Vector => {
                let vector = [half(word).ok()?, half(word >> 16).ok()?];
                (vector != crate::solver::value::NO_VECTOR).then_some(Self::Vector(vector))
            }
            Kind::Never
            | Kind::Cell
            | Kind::Place
            | Kind::Grid
            | Kind::Pair(_)
            | Kind::Set(_)
            | Kind::Tuple(_) => None,
        }
    }
}

/// A verified program of the machine.
///
/// Register 0 holds the item's grid, the next ones the constants. All others are written before they are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Code {
    pub(super) ties: Ties,
    /// Steps that an item may run, from 1 to [`STEPS_MAX`](crate::limits::STEPS_MAX).
    pub(super) step_limit: u32,
    pub(super) instructions: Vec<Instruction>,
    pub(super) constants: Vec<Constant>,
    /// The kinds that occur. A kind stands behind those that it is made of.
    pub(super) kinds: Vec<Kind>,
    /// The kind of each register, as a place in `kinds`.
    pub(super) registers: Vec<u8>,
}

impl Code {
    /// How ties of colours are broken.
    #[must_use]
    pub fn ties(&self) -> Ties {
        self.ties
    }

    /// Steps that an item may run: instructions, each turn of a loop anew.
    #[must_use]
    pub fn step_limit(&self) -> u32 {
        self.step_limit
    }

    /// The same program with another limit of steps, from 1 to [`STEPS_MAX`](crate::limits::STEPS_MAX).
    pub(crate) fn with_step_limit(self, step_limit: u32) -> Self {
        Self { step_limit, ..self }
    }

    /// The instructions; the last is `return`.
    #[must_use]
    pub fn instructions(&self) -> &[Instruction] {
        &self.instructions
    }

    /// The constants, in registers 1 and up.
    #[must_use]
    pub fn constants(&self) -> &[Constant] {
        &self.constants
    }

    /// The kinds that occur.
    #[must_use]
    pub fn kinds(&self) -> &[Kind] {
        &self.kinds
    }

    /// How many registers it has.
    #[must_use]
    pub fn registers(&self) -> usize {
        self.registers.len()
    }

    /// The kind of a register.
    ///
    /// # Panics
    /// If it has no such register.
    #[must_use]
    pub fn kind(&self, register: u8) -> &Kind {
        &self.kinds[usize::from(self.registers[usize::from(register)])]
    }

    /// The kind of the result.
    #[must_use]
    pub fn gives(&self) -> &Kind {
        let result = self.instructions.last().map_or(0, |last| last.from[0]);
        self.kind(result)
    }

    /// The most bytes that its result takes.
    #[must_use]
    pub fn result_bytes_max(&self) -> u32 {
        let bytes = super::bytes::bytes_max(self.gives());
        u32::try_from(bytes).unwrap_or(u32::MAX)
    }

    /// Its bytes, as a device gets them: see docs/src/design/machine.md.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let count = |length: usize| u16::try_from(length).unwrap_or(u16::MAX).to_le_bytes();
        let of_each = INSTRUCTION_BYTES * self.instructions.len()
            + 4 * (self.constants.len() + self.kinds.len())
            + self.registers.len();
        let mut bytes = Vec::with_capacity(HEADER_BYTES + of_each);
        bytes.resize(HEADER_BYTES, 0);
        bytes[0] = MACHINE_VERSION;
        bytes[1] = u8::from(self.ties == Ties::Lowest);
        bytes[2..4].copy_from_slice(&count(self.instructions.len()));
        bytes[4..6].copy_from_slice(&count(self.constants.len()));
        bytes[6..8].copy_from_slice(&count(self.registers.len()));
        bytes[8..10].copy_from_slice(&count(self.kinds.len()));
        bytes[12..16].copy_from_slice(&self.step_limit.to_le_bytes());
        for instruction in &self.instructions {
            bytes.extend(instruction.to_bytes());
        }
        for constant in &self.constants {
            bytes.extend(constant.word().to_le_bytes());
        }
        for kind in &self.kinds {
            bytes.extend(self.kind_row(kind));
        }
        bytes.extend(&self.registers);
        bytes
    }

    /// SHA-256 of its bytes, 64 hexadecimal digits.
    #[must_use]
    pub fn hash(&self) -> String {
        hex(&Self::digest(&self.to_bytes()))
    }

    /// Reads and verifies a program with fewer than `align` zeros behind it, up to a multiple of `align` bytes.
    ///
    /// # Errors
    /// As for [`Code::from_bytes`], and if something else is behind it.
    pub fn from_padded(bytes: &[u8], align: usize) -> Result<Self, Malformed> {
        let count = |at: usize| {
            let bytes = bytes.get(at..at + 2)?.first_chunk::<2>().copied()?;
            Some(usize::from(u16::from_le_bytes(bytes)))
        };
        let length = || {
            let of_each = INSTRUCTION_BYTES * count(2)? + 4 * count(4)? + 4 * count(8)?;
            Some(HEADER_BYTES + of_each + count(6)?)
        };
        let (code, padding) =
            length().and_then(|length| bytes.split_at_checked(length)).unwrap_or((bytes, &[]));
        if padding.len() >= align || padding.iter().any(|byte| *byte != 0) {
            return Err(Malformed { at: None, what: "something is behind it" });
        }
        Self::from_bytes(code)
    }

    /// The hash of a program's bytes as a number.
    #[must_use]
    pub fn digest(bytes: &[u8]) -> [u8; 32] {
        Sha256::digest(bytes).into()
    }

    /// Tag, and the places of the kinds that it is made of.
    fn kind_row(&self, kind: &Kind) -> [u8; 4] {
        let place = |of: &Kind| {
            let at = self.kinds.iter().position(|kind| kind == of);
            at.and_then(|at| u8::try_from(at).ok()).unwrap_or(u8::MAX)
        };
        match kind {
            Kind::Never => [0, 0, 0, 0],
            Kind::Flag => [1, 0, 0, 0],
            Kind::Number => [2, 0, 0, 0],
            Kind::Vector => [3, 0, 0, 0],
            Kind::Cell => [4, 0, 0, 0],
            Kind::Place => [5, 0, 0, 0],
            Kind::Grid => [6, 0, 0, 0],
            Kind::Pair(halves) => [7, place(&halves.0), place(&halves.1), 0],
            Kind::Set(of) => [8, place(of), 0, 0],
            Kind::Tuple(of) => [9, place(of), 0, 0],
        }
    }
}
