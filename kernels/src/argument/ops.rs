//! The ops of a launch, as the kernel's argument describes them. Plain data; the compiler has checked the
//! ranges.

use std::ops::Range;

use gridpool_protocol::limits::COLOR_MAX;
use gridpool_protocol::program::{Arguments, Kind, Op, Program, Symmetry};

use super::OpArgument;
use crate::module::chain_code;

/// The ops of a chain. Neighbouring symmetries and recolourings are joined into one.
///
/// Joining them changes no result: only the first can fail, on an empty grid, and then the others do not
/// run.
///
/// # Panics
/// If an op of the steps has its own kernel.
#[must_use]
pub fn chain(program: &Program, steps: Range<usize>) -> Vec<OpArgument> {
    let mut ops: Vec<OpArgument> = Vec::with_capacity(steps.len());
    let mut last: Option<(Kind, Image)> = None;
    for at in steps {
        let step = &program.steps()[at];
        let kind = step.gives.kind;
        let image = Image::of(step.op);
        match (image, last, ops.last_mut()) {
            (Some(next), Some((before, image)), Some(op)) if before == kind => {
                let both = image.then(next);
                op.args = both.arguments();
                last = Some((kind, both));
            }
            _ => {
                let args = image.map_or_else(|| step.op.arguments(), Image::arguments);
                ops.push(OpArgument { args, ..op(program, at, chain_code(step.op)) });
                last = image.map(|image| (kind, image));
            }
        }
    }
    ops
}

/// An op that has its own kernel.
///
/// # Panics
/// If the program has no such step.
#[must_use]
pub fn of_tuples(program: &Program, at: usize) -> OpArgument {
    OpArgument { args: program.steps()[at].op.arguments(), ..op(program, at, 0) }
}

fn op(program: &Program, at: usize, code: u8) -> OpArgument {
    let place = u8::try_from(at).expect("a program has at most 64 steps");
    let gives = program.steps()[at].gives.kind as u8;
    OpArgument { code, place, gives, ..OpArgument::default() }
}

/// A symmetry and a map of colours.
#[derive(Clone, Copy)]
struct Image {
    symmetry: Symmetry,
    colors: [u8; COLOR_MAX as usize + 1],
}

impl Image {
    /// The image that `op` makes, if it does nothing else.
    fn of(op: Op) -> Option<Self> {
        let mut image =
            Self { symmetry: Symmetry::Identity, colors: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9] };
        if let Op::Symmetry(symmetry) = op {
            image.symmetry = symmetry;
        } else if let Op::Replace { old, new } = op {
            image.colors[usize::from(old)] = new;
        } else if let Op::Switch { a, b } = op {
            image.colors.swap(usize::from(a), usize::from(b));
        } else {
            return None;
        }
        Some(image)
    }

    fn then(self, next: Self) -> Self {
        Self {
            symmetry: self.symmetry.then(next.symmetry),
            colors: self.colors.map(|color| next.colors[usize::from(color)]),
        }
    }

    /// The symmetry's number, and `ColorMap` of `kernels/cuda/cells.cuh`: four bits a colour.
    fn arguments(self) -> Arguments {
        let symmetry = Symmetry::ALL.iter().position(|known| *known == self.symmetry);
        let symmetry = symmetry.expect("it is one of the eight");
        let colors =
            self.colors.iter().rev().fold(0_u64, |bits, &color| bits << 4 | u64::from(color));
        let [a, b, c, d, e, f, ..] = colors.to_le_bytes();
        let symmetry = i16::try_from(symmetry).expect("there are eight");
        let colors = [[a, b], [c, d], [e, f]].map(i16::from_le_bytes);
        [symmetry, colors[0], colors[1], colors[2]]
    }
}

#[cfg(test)]
mod tests {
    use gridpool_protocol::program::Ties;

    use super::*;

    #[test]
    fn neighbouring_symmetries_and_recolourings_are_one_op() {
        let codes = |text: &str| {
            let program = Program::compile(text, Ties::Cpython).unwrap();
            let ops = chain(&program, 0..program.steps().len());
            ops.into_iter().map(|op| (op.place, op.code == 0, op.args)).collect::<Vec<_>>()
        };
        // Colours 7 to 0, 4 bits each, and then 9 and 8.
        let one = |place, symmetry, low: u32, high: u8| {
            let [a, b, c, d] = low.to_le_bytes();
            let bits = [[a, b], [c, d], [high, 0]].map(i16::from_le_bytes);
            (place, true, [symmetry, bits[0], bits[1], bits[2]])
        };
        assert_eq!(codes("rot90 | rot90 | hmirror"), [one(0, 5, 0x7654_3210, 0x98)]);
        assert_eq!(codes("replace(0, 5) | switch(5, 9)"), [one(0, 0, 0x7694_3219, 0x58)]);
        let apart = codes("rot90 | trim | identity | replace(9, 0)");
        assert_eq!(apart.len(), 3);
        assert_eq!(apart[2], one(2, 0, 0x7654_3210, 0x08));
        // An object and the grid that it is painted on are values of different kinds.
        assert_eq!(codes("asobject | hmirror | paint | hmirror").len(), 4);
    }
}
