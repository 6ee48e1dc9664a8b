//! Random well-typed programs: each call is drawn from the public table, for the type of the value before it.

use gridpool_protocol::program::{Accepts, Key, Kind, OPS, OpSpec, Parameter, Program, Ties, Type};

use super::samples::SplitMix64;

/// Draws that may fail, such as a canvas with too many cells, before a program ends early.
const TRIES: usize = 60;
/// Arguments for patches, as in `fill(5, ofcolor(0))`.
const PATCHES: &[&str] = &[
    "ofcolor(0)",
    "ofcolor(8) | outbox",
    "o_g(5) | argmax(size)",
    "o_g(7) | last | delta",
    "fgpartition | first",
    "asobject | shift(1, -1)",
    "o_g(3) | merge",
];

/// A program of at most `calls_max` calls (plus the calls within `apply`) on values of this type: a grid, or a
/// pair of grids.
///
/// # Panics
/// If no op takes this type.
pub fn random_program(rng: &mut SplitMix64, takes: Type, calls_max: usize) -> Program {
    let ties = rng.pick(&[Ties::Cpython, Ties::Lowest]);
    let calls = 1 + rng.below(calls_max);
    let mut program: Option<Program> = None;
    for at in 1..=calls {
        let before = program.as_ref().map_or(takes, Program::gives);
        let prefix = program.as_ref().map_or(String::new(), |p| format!("{} | ", p.text()));
        let longer = (0..TRIES).find_map(|_| {
            let (call, _) = random_call(rng, before, at == calls)?;
            let longer = Program::compile(&format!("{prefix}{call}"), ties).ok()?;
            (longer.takes() == takes).then_some(longer)
        });
        match longer {
            Some(longer) => program = Some(longer),
            None => break,
        }
    }
    program.expect("some op works on it")
}

/// A call on a value of this type, and the type of its result in the table; `None` for a bad draw.
fn random_call(rng: &mut SplitMix64, before: Type, is_last: bool) -> Option<(String, Type)> {
    // The table lists pairs for all tuples, and only `apply` for tuples of other kinds.
    let listed = if before.tuple.is_some() { Type::PAIR } else { before };
    let fits = |spec: &OpSpec| spec.kinds().into_iter().find(|&(takes, _)| takes == listed);
    let all: Vec<(&OpSpec, Type)> =
        OPS.iter().filter_map(|spec| Some((spec, fits(spec)?.1))).collect();
    let on: Vec<(&OpSpec, Type)> =
        all.iter().copied().filter(|(_, gives)| goes_on(*gives)).collect();
    let among = if (is_last && rng.below(2) == 0) || on.is_empty() { all } else { on };
    let (spec, gives) = if before == Type::one(Kind::Grid) && rng.below(12) == 0 {
        let painters = OPS.iter().filter(|spec| spec.takes_patch_program());
        (rng.pick(&painters.collect::<Vec<_>>()), before)
    } else if among.is_empty() {
        return None;
    } else {
        rng.pick(&among)
    };
    let mut arguments = Vec::new();
    for &parameter in spec.parameters {
        arguments.push(match parameter.accepts {
            Accepts::Program => random_inner(rng, Type::one(before.kind))?,
            Accepts::Flag | Accepts::Color | Accepts::Key | Accepts::Number { .. } => {
                let values = every_value(parameter);
                // Mostly numbers near 0, where grids lie.
                let near = values.iter().filter(|value| value.trim_start_matches('-').len() == 1);
                let near: Vec<&String> = near.collect();
                let is_near = !near.is_empty() && rng.below(8) > 0;
                if is_near {
                    rng.pick(&near).clone()
                } else {
                    values[rng.below(values.len())].clone()
                }
            }
        });
    }
    if before == Type::one(Kind::Grid) && spec.takes_patch_program() {
        arguments.push(rng.pick(PATCHES).to_owned());
    }
    Some((call(spec, &arguments), gives))
}

/// A program for `apply`, of one to three calls.
fn random_inner(rng: &mut SplitMix64, takes: Type) -> Option<String> {
    let mut calls = Vec::new();
    let mut before = takes;
    for _ in 0..=rng.below(3) {
        let Some((call, gives)) = random_call(rng, before, false) else { break };
        calls.push(call);
        before = gives;
    }
    (!calls.is_empty() && before.tuple.is_none()).then(|| calls.join(" | "))
}

/// Whether other ops take it.
fn goes_on(gives: Type) -> bool {
    match gives.kind {
        Kind::Grid | Kind::Object | Kind::Objects | Kind::Patch => true,
        Kind::Colors | Kind::Flag | Kind::Number | Kind::Value | Kind::Vector => false,
    }
}

/// All values of a parameter; none for a program.
#[must_use]
pub fn every_value(parameter: Parameter) -> Vec<String> {
    match parameter.accepts {
        Accepts::Flag => vec!["false".to_owned(), "true".to_owned()],
        Accepts::Color => (0..=9).map(|color| color.to_string()).collect(),
        Accepts::Number { min, max } => (min..=max).map(|n| n.to_string()).collect(),
        Accepts::Key => Key::ALL.map(|key| key.name().to_owned()).into(),
        Accepts::Program => Vec::new(),
    }
}

/// The text of a call.
#[must_use]
pub fn call(spec: &OpSpec, arguments: &[String]) -> String {
    if arguments.is_empty() {
        return spec.name.to_owned();
    }
    format!("{}({})", spec.name, arguments.join(", "))
}
