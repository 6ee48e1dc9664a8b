//! Solvers on the command line: what they give on CPU workers, what `check` and `solve` say, and how mistakes are told.

use serde_json::{Value, json};

use crate::command::gridpool;
use crate::jobs::data;

/// The file with solvers, as the command line names one of them.
fn named(name: &str) -> String {
    format!("@{}:{name}", data("solvers.py").display())
}

/// The results of a program over the example grids.
fn results(program: &str, more: &[&str]) -> Vec<Value> {
    let document = gridpool(["run", program, "--devices", "cpu:2", "--json"])
        .args(more)
        .arg(data("grids.json"))
        .run()
        .document();
    document["results"][0]["output"].as_array().expect("a list of results").clone()
}

#[test]
fn a_solver_gives_what_the_chain_of_the_same_ops_gives() {
    let pairs = [
        ("O = rot90(I)", "rot90"),
        ("O = fill(I, FIVE, ofcolor(I, ZERO))", "fill(5, ofcolor(0))"),
        ("def f(g):\n  x1 = objects(g, T, F, T)\n  return size(x1)", "o_g(5) | size"),
        ("O = I | o_g(5) | argmax(size) | subgrid", "o_g(5) | argmax(size) | subgrid"),
        ("O = mostcolor(I)", "mostcolor"),
        ("O = shape(I)", "shape"),
        ("O = portrait(I)", "portrait"),
        ("O = ofcolor(I, TWO)", "ofcolor(2)"),
    ];
    for (solver, chain) in pairs {
        for (got, want) in results(solver, &[]).iter().zip(&results(chain, &[])) {
            // Errors name lines in solvers and ops in chains.
            let errors = (got.get("error").is_some(), want.get("error").is_some());
            if errors == (true, true) {
                continue;
            }
            assert_eq!(got, want, "{solver}");
        }
    }
}

#[test]
fn a_definition_of_a_file_a_whole_file_and_a_traced_line_run() {
    let turned = results("rot90", &[]);
    assert_eq!(results(&named("solve_quarter_turn"), &[]), turned);
    let file = data("solver.py").display().to_string();
    let grids = data("grids.json").display().to_string();
    let run = ["run", "--program", &file, &grids, "--devices", "cpu:2", "--json"];
    let whole = gridpool(run).run().document();
    let covered = results("o_g(5) | argmax(size) | cover", &[]);
    let output = whole["results"][0]["output"].as_array().unwrap();
    let grids_of =
        |all: &[Value]| all.iter().filter(|one| one.is_array()).cloned().collect::<Vec<_>>();
    assert_eq!(grids_of(output), grids_of(&covered));
    let traced = results(&named("solve_lines"), &["--trace", "x2"]);
    let palettes = results("palette", &["--ties", "lowest"]);
    assert_eq!(traced, palettes);
}

#[test]
fn an_item_without_a_result_names_op_and_line() {
    let text = "x1 = objects(I, T, F, T)\nx2 = sizefilter(x1, 4000)\nO = first(x2)";
    let got = results(text, &[]);
    assert_eq!(got[0]["error"]["code"], "EmptyArg", "{got:?}");
    assert_eq!(got[0]["error"]["op"], "first in line 3");
}

#[test]
fn mistakes_are_told_with_their_lines_before_a_pool_starts() {
    let text = "x1 = objekts(I)\nx2 = rot90(ONE)\nO = x1";
    let ended = gridpool(["run", text, "--devices", "cpu:1"]).arg(data("grids.json")).run();
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    for want in [
        "line 1, column 6: there is no name `objekts`",
        "line 2, column 6: rot90 wants a grid; ONE is a number",
    ] {
        assert!(ended.stderr.contains(want), "{}", ended.stderr);
    }
    let ended =
        gridpool(["run", &named("solve_lnes"), "--devices", "cpu:1"]).arg(data("grids.json")).run();
    assert_eq!(ended.code, Some(2));
    assert!(ended.stderr.contains("close to it: solve_lines"), "{}", ended.stderr);
}

#[test]
fn check_tells_kinds_needs_and_which_compile() {
    let file = data("solvers.py").display().to_string();
    let all = gridpool(["check", &file, "--all"]).run();
    assert_eq!(all.code, Some(0), "{}", all.stderr);
    assert!(all.stdout.contains("5 of 5 compile"), "{}", all.stdout);
    let one = gridpool(["check", &format!("{file}:solve_lines")]).run();
    assert!(one.stdout.contains("x1") && one.stdout.contains("a set of objects"), "{}", one.stdout);
    let document = gridpool(["check", &format!("{file}:solve_lines"), "--json"]).run().document();
    assert_eq!(document["gives"], "a grid");
    assert_eq!(document["lines"][1]["kind"], "a set of numbers");
    let explained =
        gridpool(["check", &format!("{file}:solve_one_becomes_five"), "--explain"]).run();
    assert!(explained.stdout.contains("ofcolor I, 1"), "{}", explained.stdout);
    let wrong = gridpool(["check", "-"]).stdin("O = rot90(ONE)").run();
    assert_eq!(wrong.code, Some(2));
}

#[test]
fn solve_compares_with_the_expected_outputs_and_exits_1_if_one_differs() {
    let solvers = format!("@{}", data("solvers.py").display());
    let solve = ["solve", &solvers, "--devices", "cpu:2"];
    let all = gridpool(solve).arg(data("tasks")).run();
    assert_eq!(all.code, Some(1), "{}", all.stderr);
    assert!(all.stdout.contains("3 of 8 tasks solved; 9 of 12 pairs equal"), "{}", all.stdout);
    let right = gridpool(solve).arg(data("tasks/quarter_turn.json")).arg("--json").run();
    assert_eq!(right.code, Some(0), "{}", right.stderr);
    let document = right.document();
    assert_eq!(document["solved"], 1);
    let equal = json!(["equal", "equal", "equal"]);
    assert_eq!(document["tasks"][0], json!({"task": "quarter_turn", "pairs": equal}));
}
