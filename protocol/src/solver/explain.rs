//! Lists a program of the machine for people.

use std::fmt;

use super::Solver;
use super::code::{Code, Constant, Instruction};
use super::opcode::{Opcode, Primitive};

/// One line for each instruction: its number, the register and kind that it writes, what it reads, the line of the
/// text.
impl fmt::Display for Solver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut depth = 0_usize;
        for (at, instruction) in self.code.instructions().iter().enumerate() {
            if matches!(instruction.op, Opcode::Else | Opcode::EndIf | Opcode::Next) {
                depth = depth.saturating_sub(1);
            }
            let indent = "  ".repeat(depth);
            let text = written(&self.code, instruction);
            match self.place(at) {
                Some((_, line)) if instruction.op != Opcode::Return => {
                    writeln!(f, "{at:4}  {indent}{text}  # line {line}")?;
                }
                Some(_) | None => writeln!(f, "{at:4}  {indent}{text}")?,
            }
            if instruction.op.begins_loop() || matches!(instruction.op, Opcode::If | Opcode::Else) {
                depth += 1;
            }
        }
        Ok(())
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "most opcodes are written alike")]
fn written(code: &Code, instruction: &Instruction) -> String {
    let Instruction { op, to, from, immediate } = *instruction;
    let name = |register: u8| match register.checked_sub(1) {
        None => "I".to_owned(),
        Some(at) => match code.constants().get(usize::from(at)) {
            Some(Constant::Flag(flag)) => {
                if *flag {
                    "T".to_owned()
                } else {
                    "F".to_owned()
                }
            }
            Some(Constant::Number(number)) => number.to_string(),
            Some(Constant::Vector([row, col])) => format!("({row}, {col})"),
            None => format!("r{register}"),
        },
    };
    let names =
        |count: usize| from[..count].iter().map(|from| name(*from)).collect::<Vec<_>>().join(", ");
    let writes = || format!("{}: {} =", name(to), code.kind(to));
    if let Some(primitive) = Primitive::of(op) {
        return format!("{} {} {}", writes(), op.name(), names(primitive.parameters.len()));
    }
    match op {
        Opcode::Zip | Opcode::Pairs => {
            let over = format!(
                "{}, {} over {}, {}",
                name(from[2]),
                name(from[3]),
                name(from[0]),
                name(from[1])
            );
            format!("{} {} of {over}", writes(), op.name())
        }
        Opcode::Iterate => {
            format!(
                "{} iterate {} from {}, {} times",
                writes(),
                name(from[2]),
                name(from[0]),
                name(from[1])
            )
        }
        op if op.begins_loop() => {
            format!("{} {} of {} in {}", writes(), op.name(), name(from[2]), name(from[0]))
        }
        Opcode::Return | Opcode::Next | Opcode::If => format!("{} {}", op.name(), name(from[0])),
        Opcode::Tuple | Opcode::Push => {
            format!("{} {} {}", writes(), op.name(), names(usize::from(immediate)))
        }
        Opcode::Fail => format!("fail {immediate}"),
        Opcode::Pair => format!("{} {} {}", writes(), op.name(), names(2)),
        Opcode::Select => format!("{} {} {}", writes(), op.name(), names(3)),
        _ => format!("{} {} {}", writes(), op.name(), names(1)),
    }
}
