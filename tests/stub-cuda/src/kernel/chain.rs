//! Ops from one value to one value: decoded from a launch's argument, and run on the reference.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use gridpool_kernels::argument::OpArgument;
use gridpool_kernels::module::{CHAIN_OPS, IMAGE, SMALL_CELLS};
use gridpool_kernels::reference::Evaluator;
use gridpool_protocol::limits::COLOR_MAX;
use gridpool_protocol::program::{
    Arguments, Kind, OPS, Op, OpSpec, Program, Step, Symmetry, Ties, Type,
};

use super::{Device, LATER, OK, ties};
use crate::memory::Illegal;

const COLORS: usize = COLOR_MAX as usize + 1;

/// Which values a kernel runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Takes {
    All,
    /// Those of small grids; it leaves the others to the next kernel.
    Small,
    /// Those that the kernel before has left.
    Left,
}

impl Device<'_> {
    /// Runs the ops of the launch over its values.
    pub(super) fn chain(&mut self, takes: Takes) -> Result<(), Illegal> {
        let validates = self.step.validates != 0;
        let (mut indexes, mut shapes, mut cells) = (Vec::new(), Vec::new(), Vec::new());
        for value in 0..self.step.values as usize {
            match takes {
                Takes::Left if self.array(self.step.status, value)? != LATER => continue,
                Takes::Small if self.area_before(value)? > SMALL_CELLS as usize => {
                    self.set_status(value, LATER)?;
                    continue;
                }
                Takes::All | Takes::Left | Takes::Small => {}
            }
            let before = if validates { OK } else { self.status_before(value)? };
            if before != OK {
                self.set_status(value, before)?;
                self.put_nothing(value)?;
                continue;
            }
            let (shape, grid) = self.grid(value)?;
            indexes.push(value);
            shapes.push(shape);
            cells.extend(grid);
        }
        let mut evaluator = Evaluator::default();
        evaluator.load(1, &shapes, |to| to.copy_from_slice(&cells));
        if validates {
            evaluator.validate();
        }
        let mut kind = Kind::Grid;
        for op in self.ops() {
            for step in steps(op, kind) {
                evaluator.apply(&step, usize::from(op.place), ties(self.step));
            }
            kind = Kind::ALL[usize::from(op.gives)];
        }
        self.put_all(&mut evaluator, &indexes)
    }
}

/// The steps that an op of a launch stands for, on values of a kind.
fn steps(op: &OpArgument, kind: Kind) -> Vec<Step> {
    let name = CHAIN_OPS[usize::from(op.code)];
    if name == IMAGE {
        return image(op, kind);
    }
    let way = match kind {
        Kind::Grid => "",
        Kind::Objects => "partition | ",
        Kind::Object => "asobject | ",
        Kind::Patch => "asindices | ",
        Kind::Colors | Kind::Flag | Kind::Number | Kind::Value | Kind::Vector => {
            unreachable!("nothing works on {kind}")
        }
    };
    vec![last_step(&format!("{way}{}", written(name, &op.args)))]
}

/// The last step of a program, compiled only once.
pub(super) fn last_step(text: &str) -> Step {
    static KNOWN: Mutex<BTreeMap<String, Step>> = Mutex::new(BTreeMap::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(step) = known.get(text) {
        return *step;
    }
    let program = Program::compile(text, Ties::Cpython).expect("a launch is of a program's ops");
    let step = *program.steps().last().expect("a program has a step");
    known.insert(text.to_owned(), step);
    step
}

/// The text of an op with its arguments.
pub(super) fn written(name: &str, args: &Arguments) -> String {
    let name = if name == "nth_object" { "nth" } else { name };
    let spec = OPS.iter().find(|spec: &&OpSpec| spec.name == name).expect("the table has all ops");
    spec.written(args)
}

/// The steps of joined symmetries and recolourings: a symmetry, then colours.
fn image(op: &OpArgument, kind: Kind) -> Vec<Step> {
    let [symmetry, a, b, c] = op.args;
    let bits = [a, b, c]
        .into_iter()
        .rev()
        .fold(0_u64, |bits, word| bits << 16 | u64::from(word.cast_unsigned()));
    let colors =
        std::array::from_fn(|color| usize::try_from(bits >> (4 * color) & 15).unwrap_or(0));
    let symmetry = Symmetry::ALL[usize::try_from(symmetry).expect("a launch names a symmetry")];
    let ops = [Op::Symmetry(symmetry)].into_iter().chain(recolorings(colors));
    let any = last_step("identity");
    let (takes, gives) = (Type::one(kind), Type::one(kind));
    ops.map(|op| Step { op, takes, gives, ..any }).collect()
}

/// Replacements and switches that map the colours as `colors` does. First they merge the colours that become
/// equal; then they swap the rest into place.
fn recolorings(colors: [usize; COLORS]) -> Vec<Op> {
    let byte = |color: usize| u8::try_from(color).expect("there are ten colours");
    let mut ops = Vec::new();
    // For each target colour, the current place of the colour that becomes it.
    let mut places: [Option<usize>; COLORS] = [None; COLORS];
    for (old, &new) in colors.iter().enumerate() {
        match places[new] {
            None => places[new] = Some(old),
            Some(same) => ops.push(Op::Replace { old: byte(old), new: byte(same) }),
        }
    }
    for new in 0..COLORS {
        let Some(place) = places[new].filter(|&place| place != new) else { continue };
        ops.push(Op::Switch { a: byte(place), b: byte(new) });
        if let Some(other) = places.iter_mut().find(|other| **other == Some(new)) {
            *other = Some(place);
        }
        places[new] = Some(new);
    }
    ops
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_map_of_colours_is_made_of_replacements_and_switches() {
        let mut seed = 1_u64;
        for _ in 0..2_000 {
            let colors = std::array::from_fn(|_| {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                usize::try_from(seed >> 40).unwrap() % COLORS
            });
            let mut got: [usize; COLORS] = std::array::from_fn(|color| color);
            for op in recolorings(colors) {
                got = got.map(|color| {
                    let is = |other: u8| color == usize::from(other);
                    if let Op::Replace { old, new } = op {
                        if is(old) { usize::from(new) } else { color }
                    } else if let Op::Switch { a, b } = op {
                        usize::from(if is(a) {
                            b
                        } else if is(b) {
                            a
                        } else {
                            return color;
                        })
                    } else {
                        panic!("{op}")
                    }
                });
            }
            assert_eq!(got, colors);
        }
    }

    #[test]
    fn every_op_of_a_chain_is_read_back_as_it_is_written() {
        for spec in OPS.iter().filter(|spec| CHAIN_OPS.contains(&spec.name)) {
            let step = last_step(&spec.example());
            let args = step.op.arguments();
            let code = CHAIN_OPS.iter().position(|name| *name == spec.name).unwrap();
            let op = OpArgument { code: u8::try_from(code).unwrap(), args, ..Default::default() };
            assert_eq!(steps(&op, step.takes.kind)[0].op, step.op, "{}", spec.name);
        }
    }
}
