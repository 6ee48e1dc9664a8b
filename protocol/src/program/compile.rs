//! Compiles calls to steps, and checks arguments and kinds. `diagnostic` writes the errors.

use super::Step;
use super::diagnostic::{Applied, At, Place};
use super::error::ProgramError;
use super::extent::Extents;
use super::kind::{Kind, Type};
use super::names::lookup;
use super::ops::Op;
use super::parse::{Argument, Call, Value};
use super::table::{ARGUMENTS_MAX, Arguments, Makes, OpSpec};
use crate::limits::{GRID_CELLS_MAX, PROGRAM_OPS_MAX};

/// The steps of a program and its input type: a grid, or a pair if the first op takes one.
pub(super) fn compile(text: &str, calls: &[Call]) -> Result<(Type, Vec<Step>), ProgramError> {
    let takes = match calls.first() {
        Some(call) => starts_with(lookup(text, call)?),
        None => Type::one(Kind::Grid),
    };
    let mut compiler = Compiler { text, steps: Vec::new(), extents: Extents::input(takes) };
    let place = Place { applied: Applied::No, patch_of: None, previous: None };
    compiler.chain(calls, takes, place)?;
    Ok((takes, compiler.steps))
}

/// A pair if the op works on tuples but not on a grid, else a grid.
fn starts_with(spec: &OpSpec) -> Type {
    let grid = Type::one(Kind::Grid);
    if spec.works_on(Type::PAIR) && !spec.works_on(grid) { Type::PAIR } else { grid }
}

struct Compiler<'t> {
    text: &'t str,
    steps: Vec<Step>,
    extents: Extents,
}

impl<'t> Compiler<'t> {
    /// Adds the steps of `calls` to a value of the type, and returns the type at the end.
    fn chain(
        &mut self,
        calls: &'t [Call],
        takes: Type,
        mut place: Place<'t>,
    ) -> Result<Type, ProgramError> {
        let mut value = takes;
        for call in calls {
            let spec = lookup(self.text, call)?;
            let gives = self.call(At { text: self.text, call, spec, place }, value)?;
            place.previous = Some((call, value));
            value = gives;
        }
        Ok(value)
    }

    fn call(&mut self, at: At<'t>, takes: Type) -> Result<Type, ProgramError> {
        if matches!(at.spec.makes, Makes::Apply) {
            return self.apply(at, takes);
        }
        if let Some((patch, rest)) = at.patch_argument() {
            let is_program = matches!(patch.value, Value::Calls(_));
            if takes == Type::one(Kind::Grid) {
                let arguments = check_arguments(at, rest)?;
                let found = self.patch_program(at, patch)?;
                return self.op(at, &arguments, found);
            }
            if is_program {
                return Err(at.wants_a_grid(takes, rest));
            }
        }
        at.check_count(takes)?;
        let arguments = check_arguments(at, &at.call.arguments)?;
        self.op(at, &arguments, takes)
    }

    fn apply(&mut self, at: At<'t>, takes: Type) -> Result<Type, ProgramError> {
        let (Some(values), [Argument { value: Value::Calls(program), span }]) =
            (takes.tuple, at.call.arguments.as_slice())
        else {
            at.check_count(takes)?;
            return Err(match takes.tuple {
                None => at.wrong_kind(takes),
                Some(_) => at.wrong_argument(at.spec.parameters[0], &at.call.arguments[0]),
            });
        };
        let text = &self.text[span.clone()];
        let applied = Applied::To { by: at.spec.name, values, elements: takes.kind, text };
        let place = Place { applied, patch_of: None, previous: None };
        let gives = self.chain(program, Type::one(takes.kind), place)?;
        Ok(Type::tuple(gives.kind, values))
    }

    /// The steps from a grid to a patch, written as the last argument of an op on patches.
    fn patch_program(&mut self, at: At<'t>, argument: &'t Argument) -> Result<Type, ProgramError> {
        let Value::Calls(program) = &argument.value else {
            return Err(at.no_patch_program(argument));
        };
        let first = self.steps.len();
        let place = Place { patch_of: Some(at.spec), previous: None, ..at.place };
        let gives = self.chain(program, Type::one(Kind::Grid), place)?;
        if let Some(step) = self.steps[first..].iter().find(|step| step.gives.kind == Kind::Grid) {
            return Err(at.changes_its_grid(argument, step.op));
        }
        if !at.spec.works_on(gives) {
            return Err(at.wrong_patch(argument, gives));
        }
        Ok(gives)
    }

    fn op(&mut self, at: At<'t>, arguments: &Arguments, takes: Type) -> Result<Type, ProgramError> {
        let op = instruction(at, arguments, takes)?;
        let Some(gives) = op.gives(takes) else {
            return Err(at.wrong_kind(takes));
        };
        let of_all = |of_one: Type| match at.place.applied {
            Applied::No => of_one,
            Applied::To { values, .. } => Type::tuple(of_one.kind, values),
        };
        let applied = matches!(at.place.applied, Applied::To { .. });
        if applied && gives.tuple.is_some() {
            return Err(at.not_one_value(gives));
        }
        if self.steps.len() == PROGRAM_OPS_MAX {
            let message = format!("a program has at most {PROGRAM_OPS_MAX} ops");
            return Err(at.error(at.call.whole.clone(), message));
        }
        let before = self.extents;
        self.extents = before.after(op, takes.kind, of_all(gives));
        self.steps.push(Step {
            op,
            applied,
            takes: of_all(takes),
            gives: of_all(gives),
            from: before.picture,
            ground: self.extents.ground,
            to: self.extents.picture,
        });
        Ok(gives)
    }
}

fn instruction(at: At<'_>, arguments: &Arguments, takes: Type) -> Result<Op, ProgramError> {
    let op = match at.spec.makes {
        Makes::Op(make) => make(arguments),
        Makes::Nth(which) => match takes.tuple {
            None => Op::NthObject { index: which(arguments) },
            Some(values) => Op::NthElement { index: element(at, takes, which(arguments), values)? },
        },
        Makes::Apply => return Err(at.wrong_kind(takes)),
    };
    if let Op::Canvas { height, width, .. } = op
        && usize::from(height) * usize::from(width) > GRID_CELLS_MAX
    {
        let message = format!("a grid of {height} x {width} has more than {GRID_CELLS_MAX} cells");
        return Err(at.error(at.call.whole.clone(), message));
    }
    Ok(op)
}

/// The element of a tuple that `which` names, counted from 0.
fn element(at: At<'_>, takes: Type, which: i16, values: u8) -> Result<u8, ProgramError> {
    let from_end = if which < 0 { i16::from(values) } else { 0 };
    let index = u8::try_from(which + from_end).ok().filter(|&index| index < values);
    index.ok_or_else(|| {
        let last = values - 1;
        let message = format!("{takes} has elements 0 to {last}, or -{values} to -1, not {which}");
        at.error(at.call.whole.clone(), message)
    })
}

/// The arguments as numbers, one for each parameter.
fn check_arguments(at: At<'_>, arguments: &[Argument]) -> Result<Arguments, ProgramError> {
    let mut numbers = [0; ARGUMENTS_MAX];
    for ((number, &parameter), argument) in
        numbers.iter_mut().zip(at.spec.parameters).zip(arguments)
    {
        let accepted = parameter.accept(argument);
        *number = accepted.ok_or_else(|| at.wrong_argument(parameter, argument))?;
    }
    Ok(numbers)
}
