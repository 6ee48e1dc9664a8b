//! Which programs try an op: the known answers that end with it, and where those do not have it on a
//! type of value that it works on, its example.

use gridpool_kernels::known_answer::KNOWN_ANSWERS;
use gridpool_protocol::program::{Kind, OPS, OpSpec, Program, Ties, Type};

use crate::diagnose::DiagnoseError;

/// Programs that are not the first for their type are tried at sizes up to this: larger ones are there
/// for the size.
const OTHERS_ITEMS_MAX: u32 = 1_000;
/// What comes before a call on a grid, to have it meet empty grids.
const EMPTIES: &str = "trim | ";

/// An op and the programs that try it.
#[derive(Debug)]
pub(super) struct Trial {
    /// Its name in programs.
    pub(super) op: &'static str,
    pub(super) programs: Vec<Tried>,
}

/// A program, and the most items that it is tried with.
#[derive(Debug)]
pub(super) struct Tried {
    pub(super) program: Program,
    pub(super) items_max: u32,
}

/// Every op, or those that are named.
pub(super) fn trials(ops: &[String]) -> Result<Vec<Trial>, DiagnoseError> {
    if let Some(name) = ops.iter().find(|op| !OPS.iter().any(|spec| spec.name == op.as_str())) {
        return Err(DiagnoseError::NoOp { name: name.clone() });
    }
    let wanted = |spec: &&OpSpec| ops.is_empty() || ops.iter().any(|op| op == spec.name);
    Ok(OPS.iter().filter(wanted).map(trial).collect())
}

fn trial(spec: &OpSpec) -> Trial {
    let known = KNOWN_ANSWERS.iter().filter(|known| last_call(known.text) == spec.name);
    let known = known.map(|known| known.program());
    let mut programs = Vec::new();
    let mut others: Vec<Program> = Vec::new();
    for program in known {
        let takes = takes(&program);
        if programs.iter().any(|tried: &Tried| self::takes(&tried.program) == takes) {
            others.push(program);
        } else {
            programs.push(Tried { program, items_max: u32::MAX });
        }
    }
    for (takes, _) in spec.kinds() {
        if !programs.iter().any(|tried| self::takes(&tried.program) == takes) {
            let program = compiled(&spec.example_on(takes));
            programs.push(Tried { program, items_max: u32::MAX });
        }
    }
    let on_grids = |tried: &&Tried| {
        takes(&tried.program) == Type::one(Kind::Grid) && tried.program.steps().len() == 1
    };
    let empties = programs.iter().filter(on_grids);
    others.extend(empties.map(|tried| compiled(&format!("{EMPTIES}{}", tried.program.text()))));
    let other = |program| Tried { program, items_max: OTHERS_ITEMS_MAX };
    programs.extend(others.into_iter().map(other));
    Trial { op: spec.name, programs }
}

fn compiled(text: &str) -> Program {
    Program::compile(text, Ties::Cpython).expect("a test compiles every program of diagnose")
}

/// What the op under test works on: of what is applied, the pair.
fn takes(program: &Program) -> Type {
    let last = program.steps().last().expect("a program has at least one step");
    if last.applied { Type::PAIR } else { last.takes }
}

/// The name of the last call of a program as it is written: what stands between the last bar outside
/// of brackets and the next bracket.
fn last_call(text: &str) -> &str {
    let mut depth = 0_usize;
    let mut start = 0;
    for (at, letter) in text.char_indices() {
        match letter {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            '|' if depth == 0 => start = at + 1,
            _ => {}
        }
    }
    let call = text[start..].trim();
    call.split('(').next().unwrap_or(call).trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_op_is_tried_on_every_type_that_it_works_on_and_at_every_size() {
        let all = trials(&[]).unwrap();
        assert_eq!(all.len(), OPS.len());
        for (spec, trial) in OPS.iter().zip(&all) {
            assert_eq!(spec.name, trial.op);
            for (wants, _) in spec.kinds() {
                let is_tried = |tried: &&Tried| tried.items_max == u32::MAX;
                let mut large = trial.programs.iter().filter(is_tried);
                assert!(large.any(|t| takes(&t.program) == wants), "{} on {wants}", spec.name);
            }
        }
    }

    #[test]
    fn the_last_call_is_found_behind_brackets_and_bars() {
        assert_eq!(last_call("rot90"), "rot90");
        assert_eq!(last_call("o_g(5) | argmax(size) | fill(3)"), "fill");
        assert_eq!(last_call("apply(rot90 | switch(0, 2))"), "apply");
        assert_eq!(last_call("rot90 | fill(5, ofcolor(0) | outbox)"), "fill");
    }

    #[test]
    fn only_ops_that_are_named_are_tried_and_a_name_of_none_is_refused() {
        let of = |names: &[&str]| {
            let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
            trials(&names).map(|all| all.iter().map(|trial| trial.op).collect::<Vec<_>>())
        };
        assert_eq!(of(&["rot90", "o_g"]).unwrap(), ["rot90", "o_g"]);
        let error = of(&["rot90", "rot91"]).unwrap_err().to_string();
        assert!(error.starts_with("--ops rot91: there is no such op"), "{error}");
    }
}
