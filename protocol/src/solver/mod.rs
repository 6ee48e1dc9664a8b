//! Solvers: whole programs of an ARC DSL in Python's syntax, compiled for the machine of docs/src/design/machine.md.

mod code;
mod gives;
mod kind;
mod opcode;
mod table;
pub mod value;
mod want;

pub use code::{Code, Constant, HEADER_BYTES, INSTRUCTION_BYTES, Instruction, MACHINE_VERSION};
pub use kind::Kind;
pub use opcode::{FIRST_PRIMITIVE, Opcode, PRIMITIVES, Primitive};
pub use want::{Fit, Want};
