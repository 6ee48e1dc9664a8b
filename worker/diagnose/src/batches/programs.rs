//! Which programs test an op: the known answers that end with it, and its example for types of value that
//! those do not cover.

use gridpool_kernels::known_answer::KNOWN_ANSWERS;
use gridpool_protocol::program::{Kind, OPS, OpSpec, Program, Ties, Type};

use crate::DiagnoseError;

/// Only the first program for a type is tested at larger sizes: those test the size, not the op.
const OTHERS_ITEMS_MAX: u32 = 1_000;
/// A prefix of a call on a grid, to give it empty grids.
const EMPTIES: &str = "trim | ";

/// An op and the programs that test it.
#[derive(Debug)]
pub(super) struct OpTest {
    /// Its name in programs.
    pub(super) op: &'static str,
    pub(super) programs: Vec<TestProgram>,
}

/// A program, and the most items that it is tested with.
#[derive(Debug)]
pub(super) struct TestProgram {
    pub(super) program: Program,
    pub(super) items_max: u32,
}

/// Every op, or the named ones.
pub(super) fn op_tests(ops: &[String]) -> Result<Vec<OpTest>, DiagnoseError> {
    if let Some(name) = ops.iter().find(|op| !OPS.iter().any(|spec| spec.name == op.as_str())) {
        return Err(DiagnoseError::NoOp { name: name.clone() });
    }
    let wanted = |spec: &&OpSpec| ops.is_empty() || ops.iter().any(|op| op == spec.name);
    Ok(OPS.iter().filter(wanted).map(op_test).collect())
}

fn op_test(spec: &OpSpec) -> OpTest {
    let known = KNOWN_ANSWERS.iter().filter(|known| last_call(known.text) == spec.name);
    let known = known.map(|known| known.program());
    let mut programs = Vec::new();
    let mut others: Vec<Program> = Vec::new();
    for program in known {
        let takes = takes(&program);
        if programs.iter().any(|tried: &TestProgram| self::takes(&tried.program) == takes) {
            others.push(program);
        } else {
            programs.push(TestProgram { program, items_max: u32::MAX });
        }
    }
    for (takes, _) in spec.kinds() {
        if !programs.iter().any(|tried| self::takes(&tried.program) == takes) {
            let program = compiled(&spec.example_on(takes));
            programs.push(TestProgram { program, items_max: u32::MAX });
        }
    }
    let on_grids = |tried: &&TestProgram| {
        takes(&tried.program) == Type::one(Kind::Grid) && tried.program.steps().len() == 1
    };
    let empties = programs.iter().filter(on_grids);
    others.extend(empties.map(|tried| compiled(&format!("{EMPTIES}{}", tried.program.text()))));
    let other = |program| TestProgram { program, items_max: OTHERS_ITEMS_MAX };
    programs.extend(others.into_iter().map(other));
    OpTest { op: spec.name, programs }
}

fn compiled(text: &str) -> Program {
    Program::compile(text, Ties::Cpython).expect("a test compiles every program of diagnose")
}

/// The type that the op under test works on; for applied ops, the pair.
fn takes(program: &Program) -> Type {
    let last = program.steps().last().expect("a program has at least one step");
    if last.applied { Type::PAIR } else { last.takes }
}

/// The name of the last call of a program's text: the text between the last bar outside brackets and the next
/// bracket.
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
    fn every_op_is_tested_on_every_type_that_it_works_on_and_at_every_size() {
        let all = op_tests(&[]).unwrap();
        assert_eq!(all.len(), OPS.len());
        for (spec, op_test) in OPS.iter().zip(&all) {
            assert_eq!(spec.name, op_test.op);
            for (wants, _) in spec.kinds() {
                let is_tried = |tried: &&TestProgram| tried.items_max == u32::MAX;
                let mut large = op_test.programs.iter().filter(is_tried);
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
    fn only_named_ops_are_tested_and_an_unknown_name_is_refused() {
        let of = |names: &[&str]| {
            let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
            op_tests(&names).map(|all| all.iter().map(|op_test| op_test.op).collect::<Vec<_>>())
        };
        assert_eq!(of(&["rot90", "o_g"]).unwrap(), ["rot90", "o_g"]);
        let error = of(&["rot90", "rot91"]).unwrap_err().to_string();
        assert!(error.starts_with("--ops rot91: there is no such op"), "{error}");
    }
}
