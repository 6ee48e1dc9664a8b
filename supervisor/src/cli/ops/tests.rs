//! Tests of the table's forms, also of the documentation's.

use gridpool_protocol::program::{Program, Ties, find_op};

use super::*;

#[test]
fn the_generated_ops_match_the_code() {
    crate::generated::check("reference/ops.md", "ops", &markdown());
}

#[test]
fn every_op_is_in_every_form_and_no_line_is_too_wide() {
    let help = help();
    assert!(help.lines().all(|line| line.chars().count() <= HELP_COLUMNS), "{help}");
    for columns in [80, 132] {
        let screen = screen(columns);
        assert!(screen.lines().all(|line| line.chars().count() <= columns), "{screen}");
        for form in [&help, &screen] {
            let has = |op: &OpSpec| {
                let mut lines = form.lines().map(str::trim_start);
                lines.any(|line| line.split([' ', '(']).next() == Some(op.name))
            };
            let lost: Vec<_> = OPS.iter().filter(|op| !has(op)).map(|op| op.name).collect();
            assert!(lost.is_empty(), "{lost:?} are not in {form}");
        }
    }
    let document = document(OPS);
    assert_eq!(document["ops"].as_array().unwrap().len(), OPS.len());
}

#[test]
fn a_description_has_all_syntax_and_arguments_and_its_examples_compile() {
    for op in OPS {
        let entry = entry(op, HELP_COLUMNS);
        assert!(entry.lines().all(|line| line.chars().count() <= HELP_COLUMNS), "{entry}");
        assert!(entry.starts_with(&op.signature()), "{entry}");
        for parameter in op.parameters {
            let line =
                entry.lines().find(|line| line.starts_with(&format!("  {}", parameter.name)));
            assert!(line.is_some(), "{} is not in: {entry}", parameter.name);
        }
        let runs = entry.lines().filter_map(|line| line.trim().strip_prefix("gridpool run '"));
        let programs: Vec<_> = runs.filter_map(|rest| rest.split('\'').next()).collect();
        assert_eq!(programs.len(), 1 + usize::from(op.takes_patch_program()), "{entry}");
        for program in programs {
            Program::compile(program, Ties::Cpython).unwrap();
        }
    }
    let fill = entry(find_op("fill").unwrap(), 80);
    assert_eq!(
        fill,
        "\
fill(color)
fill(color, places)
  the colour at its places

Arguments
  color   a colour from 0 to 9
  places  after a grid, a program that finds the places, such as ofcolor(0)

Works on
  object, patch  gives grid

Examples
  gridpool run 'asobject | fill(0)' INPUT
  gridpool run 'fill(0, ofcolor(0))' INPUT

Family: painting on the ground. Source: arc-dsl.
"
    );
}

#[test]
fn types_with_the_same_result_are_listed_together() {
    let kinds = |name: &str| kinds(OPS.iter().find(|op| op.name == name).expect(name));
    assert_eq!(kinds("rot90"), "grid -> grid");
    assert_eq!(kinds("hmirror"), "grid, object, patch -> the same");
    assert_eq!(kinds("mostcolor"), "grid, object -> number");
    assert_eq!(kinds("first"), "objects -> object; tuple of grids -> grid");
    assert_eq!(kinds("cellwise"), "pair of grids -> grid");
    assert_eq!(kinds("hsplit"), "grid -> tuple of grids");
}
