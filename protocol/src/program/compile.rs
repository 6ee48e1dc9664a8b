//! Calls to steps: looks names up, checks arguments and kinds, and says what is wrong where.

use super::Step;
use super::error::ProgramError;
use super::extent::Rooms;
use super::kind::{Kind, Type};
use super::ops::Op;
use super::parameter::{Arguments, Parameter};
use super::parse::{Argument, Call, Value};
use super::table::{Build, OPS, OpSpec, REFUSED};
use crate::limits::{GRID_CELLS_MAX, PROGRAM_OPS_MAX};

/// The steps of a program and what it starts with: a grid, or a pair if its first op takes one.
pub(super) fn compile(text: &str, calls: &[Call]) -> Result<(Type, Vec<Step>), ProgramError> {
    let takes = match calls.first() {
        Some(call) => starts_with(lookup(text, call)?),
        None => Type::one(Kind::Grid),
    };
    let mut compiler = Compiler { text, steps: Vec::new(), rooms: Rooms::input(takes) };
    compiler.chain(calls, takes, Applied::No)?;
    Ok((takes, compiler.steps))
}

/// A pair for what works on tuples and not on a grid, else a grid.
fn starts_with(spec: &OpSpec) -> Type {
    let kinds = spec.kinds();
    let takes = |wanted: Type| kinds.iter().any(|&(takes, _)| takes == wanted);
    let grid = Type::one(Kind::Grid);
    if takes(Type::PAIR) && !takes(grid) { Type::PAIR } else { grid }
}

/// Whether steps work on the elements of a tuple one by one, and of how many.
#[derive(Clone, Copy)]
enum Applied {
    No,
    To { values: u8 },
}

struct Compiler<'t> {
    text: &'t str,
    steps: Vec<Step>,
    rooms: Rooms,
}

impl Compiler<'_> {
    /// Adds the steps of `calls`, which start with a value of the type; gives that at the end.
    fn chain(
        &mut self,
        calls: &[Call],
        takes: Type,
        applied: Applied,
    ) -> Result<Type, ProgramError> {
        let mut value = takes;
        for call in calls {
            let spec = lookup(self.text, call)?;
            value = self.call(call, spec, value, applied)?;
        }
        Ok(value)
    }

    fn call(
        &mut self,
        call: &Call,
        spec: &'static OpSpec,
        takes: Type,
        applied: Applied,
    ) -> Result<Type, ProgramError> {
        let grid = Type::one(Kind::Grid);
        if takes == grid
            && spec.takes_patch_program()
            && call.arguments.len() == spec.parameters.len() + 1
        {
            let (last, rest) = call.arguments.split_last().expect("one more than there must be");
            let arguments = check_arguments(self.text, call, spec, rest)?;
            let patch = self.patch_program(spec, last, applied)?;
            return self.op(call, spec, &arguments, patch, applied);
        }
        if !matches!(spec.build, Build::Apply) {
            let arguments = check_arguments(self.text, call, spec, &call.arguments)?;
            return self.op(call, spec, &arguments, takes, applied);
        }
        let (Some(values), [Argument { value: Value::Calls(program), .. }]) =
            (takes.tuple, call.arguments.as_slice())
        else {
            check_count(self.text, call, spec, &call.arguments)?;
            return Err(match takes.tuple {
                None => self.wrong_kind(call, spec, takes),
                Some(_) => wrong_argument(self.text, spec, spec.parameters[0], &call.arguments[0]),
            });
        };
        let gives = self.chain(program, Type::one(takes.kind), Applied::To { values })?;
        Ok(Type::tuple(gives.kind, values))
    }

    /// The steps from a grid to a patch that stand as the last argument of what works on it.
    fn patch_program(
        &mut self,
        spec: &OpSpec,
        argument: &Argument,
        applied: Applied,
    ) -> Result<Type, ProgramError> {
        let error = |message| Err(ProgramError::new(self.text, argument.span.clone(), message));
        let Value::Calls(program) = &argument.value else {
            let got = &self.text[argument.span.clone()];
            let name = spec.name;
            return error(format!("the last argument of `{name}` is a patch, got `{got}`"));
        };
        let first = self.steps.len();
        let gives = self.chain(program, Type::one(Kind::Grid), applied)?;
        let error = |message| Err(ProgramError::new(self.text, argument.span.clone(), message));
        if let Some(step) = self.steps[first..].iter().find(|step| step.gives.kind == Kind::Grid) {
            return error(format!(
                "`{}` would change the grid that `{}` works on: put it before `{}`",
                step.op, spec.name, spec.name
            ));
        }
        if !matches!(gives, Type { kind: Kind::Object | Kind::Patch, tuple: None }) {
            return error(format!("`{}` needs an object or a patch here, got {gives}", spec.name));
        }
        Ok(gives)
    }

    fn op(
        &mut self,
        call: &Call,
        spec: &OpSpec,
        arguments: &[i16],
        takes: Type,
        applied: Applied,
    ) -> Result<Type, ProgramError> {
        let op = self.instruction(call, spec, arguments, takes)?;
        let Some(gives) = op.gives(takes) else {
            return Err(self.wrong_kind(call, spec, takes));
        };
        let step_gives = match applied {
            Applied::No => gives,
            Applied::To { values } if gives.tuple.is_none() => Type::tuple(gives.kind, values),
            Applied::To { .. } => {
                let message = format!(
                    "`{}` gives {gives}; inside `apply` each element must stay one value",
                    spec.name
                );
                return Err(ProgramError::new(self.text, call.whole.clone(), message));
            }
        };
        if self.steps.len() == PROGRAM_OPS_MAX {
            let message = format!("a program has at most {PROGRAM_OPS_MAX} ops");
            return Err(ProgramError::new(self.text, call.whole.clone(), message));
        }
        let before = self.rooms;
        self.rooms = before.after(op, takes.kind, step_gives);
        self.steps.push(Step {
            op,
            applied: matches!(applied, Applied::To { .. }),
            takes: match applied {
                Applied::No => takes,
                Applied::To { values } => Type::tuple(takes.kind, values),
            },
            gives: step_gives,
            from: before.picture,
            ground: self.rooms.ground,
            to: self.rooms.picture,
        });
        Ok(gives)
    }

    fn instruction(
        &self,
        call: &Call,
        spec: &OpSpec,
        arguments: &[i16],
        takes: Type,
    ) -> Result<Op, ProgramError> {
        let arguments = Arguments(arguments);
        let op = match spec.build {
            Build::Op(build) => build(arguments),
            Build::Nth(which) => match takes.tuple {
                None => Op::NthObject { index: which(arguments) },
                Some(values) => {
                    let index = self.element(call, takes, which(arguments), values)?;
                    Op::NthElement { index }
                }
            },
            Build::Apply => return Err(self.wrong_kind(call, spec, takes)),
        };
        if let Op::Canvas { height, width, .. } = op
            && usize::from(height) * usize::from(width) > GRID_CELLS_MAX
        {
            let message =
                format!("a grid of {height} x {width} has more than {GRID_CELLS_MAX} cells");
            return Err(ProgramError::new(self.text, call.whole.clone(), message));
        }
        Ok(op)
    }

    /// The element of a tuple that `which` names, counted from 0.
    fn element(
        &self,
        call: &Call,
        takes: Type,
        which: i16,
        values: u8,
    ) -> Result<u8, ProgramError> {
        let from_end = if which < 0 { i16::from(values) } else { 0 };
        let index = u8::try_from(which + from_end).ok().filter(|&index| index < values);
        index.ok_or_else(|| {
            let last = values - 1;
            let message =
                format!("{takes} has elements 0 to {last}, or -{values} to -1, not {which}");
            ProgramError::new(self.text, call.whole.clone(), message)
        })
    }

    fn wrong_kind(&self, call: &Call, spec: &OpSpec, takes: Type) -> ProgramError {
        let wants = wants(spec);
        let message = if self.steps.is_empty() {
            format!("`{}` works on {wants}, but a program starts with {takes}", spec.name)
        } else {
            format!("`{}` works on {wants}, but what comes before it gives {takes}", spec.name)
        };
        let error = ProgramError::new(self.text, call.span.clone(), message);
        let applies = !matches!(spec.build, Build::Apply)
            && spec.kinds().iter().any(|&(wanted, _)| wanted == Type::one(takes.kind));
        if takes.tuple.is_some() && applies {
            error.with_help(format!("for each of them write apply({})", spec.signature()))
        } else {
            error
        }
    }
}

/// The types that an op works on, in words.
fn wants(spec: &OpSpec) -> String {
    let names: Vec<String> = spec
        .kinds()
        .iter()
        .map(|(takes, _)| match (takes.tuple, spec.name) {
            (None, _) => takes.to_string(),
            (Some(_), "cellwise") => "a pair of grids".to_owned(),
            (Some(_), "apply" | "mapply") => "a pair or tuple".to_owned(),
            (Some(_), _) => "a pair or tuple of grids".to_owned(),
        })
        .collect();
    match names.as_slice() {
        [] => String::new(),
        [one] => one.clone(),
        [rest @ .., last] => format!("{} or {last}", rest.join(", ")),
    }
}

fn lookup(text: &str, call: &Call) -> Result<&'static OpSpec, ProgramError> {
    if let Some(spec) = OPS.iter().find(|spec| spec.name == call.name) {
        return Ok(spec);
    }
    if let Some((_, sentence)) = REFUSED.iter().find(|(name, _)| *name == call.name) {
        return Err(ProgramError::new(text, call.span.clone(), (*sentence).to_owned()));
    }
    let message = format!("there is no op `{}`", call.name);
    let close = close_names(&call.name);
    let help = if close.is_empty() {
        "`gridpool ops` lists the ops".to_owned()
    } else {
        format!("close to it: {}", close.join(", "))
    };
    Err(ProgramError::new(text, call.span.clone(), message).with_help(help))
}

fn check_count(
    text: &str,
    call: &Call,
    spec: &OpSpec,
    arguments: &[Argument],
) -> Result<(), ProgramError> {
    let (got, want) = (arguments.len(), spec.parameters.len());
    if got == want {
        return Ok(());
    }
    let plural = if want == 1 { "argument" } else { "arguments" };
    let message = format!("`{}` takes {want} {plural}, got {got}", spec.name);
    let help = format!("write {}", spec.signature());
    Err(ProgramError::new(text, call.whole.clone(), message).with_help(help))
}

fn check_arguments(
    text: &str,
    call: &Call,
    spec: &OpSpec,
    arguments: &[Argument],
) -> Result<Vec<i16>, ProgramError> {
    check_count(text, call, spec, arguments)?;
    let pairs = spec.parameters.iter().zip(arguments);
    pairs
        .map(|(&parameter, argument)| {
            let number = parameter.accept(argument);
            number.ok_or_else(|| wrong_argument(text, spec, parameter, argument))
        })
        .collect()
}

fn wrong_argument(
    text: &str,
    spec: &OpSpec,
    parameter: Parameter,
    argument: &Argument,
) -> ProgramError {
    let got = &text[argument.span.clone()];
    let (name, wants) = (parameter.name(), parameter.wants());
    let message = format!("`{name}` of `{}` is {wants}, got `{got}`", spec.name);
    ProgramError::new(text, argument.span.clone(), message)
}

/// Names at a small edit distance, or that share a prefix, nearest first.
fn close_names(name: &str) -> Vec<&'static str> {
    let lower = name.to_lowercase();
    let mut close: Vec<(usize, &str)> = OPS
        .iter()
        .map(|spec| (edit_distance(&lower, spec.name), spec.name))
        .filter(|&(distance, candidate)| {
            distance <= 2.max(candidate.len() / 3)
                || (lower.len() >= 3 && candidate.starts_with(&lower))
        })
        .collect();
    close.sort_unstable();
    close.into_iter().map(|(_, name)| name).take(4).collect()
}

/// Levenshtein distance in characters.
fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let change = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
