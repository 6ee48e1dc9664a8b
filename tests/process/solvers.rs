//! Solvers on the command line: what they give on CPU workers, what `check` and `solve` say, and how mistakes are told.

use gridpool_protocol::status::WorkerState;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::command::gridpool;
use crate::jobs::{data, serves};
use crate::pool::cpu;
use crate::processes;
use crate::wait::eventually_so;

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
    assert_eq!(ended.code, Some(65));
    assert!(ended.stderr.contains("close to it: solve_lines"), "{}", ended.stderr);
}

#[test]
fn a_function_that_programs_call_is_no_mistake_of_a_file() {
    let text = "def alone(x):\n    return increment(objects(x, T, F, T))\n\
                def part(o):\n    return increment(o)\n\
                def used(I):\n    return part(height(I))\n";
    let (_folder, path) = file(text);
    let all = gridpool(["check", &path, "--all"]).run();
    assert_eq!(all.code, Some(65), "{}", all.stdout);
    let line = |name: &str| all.stdout.lines().find(|line| line.contains(name)).unwrap_or_default();
    assert!(line("part").contains("is no program by itself: used calls it"), "{}", all.stdout);
    assert!(line("alone").contains("does not compile"), "{}", all.stdout);
    assert!(all.stdout.ends_with("1 of 2 compile\n"), "{}", all.stdout);
    let (_folder, path) = file(text.split_at(text.find("def part").unwrap()).1);
    let all = gridpool(["check", &path, "--all"]).run();
    assert!(all.stdout.ends_with("1 of 1 compile\n") && all.code == Some(0), "{}", all.stdout);
    let one = gridpool(["check", &format!("{path}:used")]).run().output();
    assert!(!one.contains(" 1 kinds"), "{one}");
    std::fs::write(&path, b"O = rot90(I)\n\xff\n").unwrap();
    gridpool(["check", &path]).run().complains(65, &[&format!("{path}: line 2: it is not UTF-8")]);
    std::fs::write(&path, "# a comment\n").unwrap();
    gridpool(["check", &path]).run().complains(65, &[&format!("{path}: "), "found a comment"]);
    std::fs::write(&path, "def f(I):\n    return rot90(I)\n").unwrap();
    let words = ["there is no file `rot90`, and the program is read from a file already"];
    gridpool(["run", "--program", &path, "rot90"]).run().complains(2, &words);
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
    assert_eq!(wrong.code, Some(65));
    assert!(
        wrong.stderr.starts_with("gridpool: standard input: line 1, column 5: "),
        "{}",
        wrong.stderr
    );
}

#[test]
fn a_program_of_a_file_is_told_its_at_and_its_name_and_ends_with_65() {
    let solvers = data("solvers.py").display().to_string();
    let run = |program: &str| gridpool(["run", program]).arg(data("tasks")).run();
    let several = format!(
        "{solvers}: it has 4 programs: name one, `@{solvers}:NAME`; there is solve_quarter_turn, solve_lines, \
         solve_left_and_right, solve_one_becomes_five\n"
    );
    run(&format!("@{solvers}")).complains(65, &[&several]);
    gridpool(["check", &solvers]).run().complains(65, &[&several]);
    let named = format!("{solvers}:solve_lines");
    let at = format!(
        "`{named}` is no program; one definition of a file has an `@` before it: write @{named}\n"
    );
    run(&named).complains(2, &[&at]);
    let close = "it has no `def solve_line(…):`; close to it: solve_lines";
    run(&format!("@{solvers}:solve_line")).complains(65, &[close]);
    gridpool(["check", &format!("{solvers}:solve_line")]).run().complains(65, &[close]);
    for missing in ["none.py", "none.py:one"] {
        let said = format!("there is no file `none.py`, and `{missing}` is no program either");
        run(missing).complains(65, &[&said]);
        run(&format!("@{missing}")).complains(65, &["none.py: cannot be read: No such file"]);
    }
    // Functions that others use are no programs.
    let (_folder, path) =
        file("def own(x):\n    return rot90(x)\n\ndef f(I):\n    return own(I)\n");
    assert_eq!(gridpool(["check", &path]).run().code, Some(0));
}

#[test]
fn solve_compares_with_the_expected_outputs_and_exits_1_if_one_differs() {
    let solvers = format!("@{}", data("solvers.py").display());
    let solve = ["solve", &solvers, "--devices", "cpu:2"];
    let all = gridpool(solve).arg(data("tasks")).run();
    assert_eq!(all.code, Some(1), "{}", all.stderr);
    assert!(all.stdout.contains("3 of 8 tasks solved; 9 of 12 pairs equal"), "{}", all.stdout);
    let text = std::fs::read_to_string(data("solvers.py")).expect("an example");
    let typed = gridpool(["solve", "-", "--devices", "cpu:1"]).arg(data("tasks")).stdin(text).run();
    assert_eq!(typed.stdout, all.stdout, "{}", typed.stderr);
    let right = gridpool(solve).arg(data("tasks/quarter_turn.json")).arg("--json").run();
    assert_eq!(right.code, Some(0), "{}", right.stderr);
    let document = right.document();
    assert_eq!(document["solved"], 1);
    let equal = json!(["equal", "equal", "equal"]);
    assert_eq!(document["tasks"][0], json!({"task": "quarter_turn", "pairs": equal}));
}

#[test]
fn ctrl_c_of_solve_prints_what_is_known_and_ends_with_130() {
    let text = "def solve_a_short(I):\n    return rot90(I)\n\ndef solve_b_long(I):\n    \
                n = multiply(999, size(initset(I)))\n    \
                return power(power(power(increment, n), n), n)(ZERO)\n";
    let (folder, path) = file(text);
    let tasks = folder.path().join("tasks");
    std::fs::create_dir(&tasks).expect("a folder can be made");
    let task = |name: &str, pairs: usize| {
        let pairs = vec![json!({"input": [[1, 2]], "output": [[1], [2]]}); pairs];
        let task = json!({ "train": pairs, "test": [] }).to_string();
        std::fs::write(tasks.join(name), task).expect("the file can be written");
    };
    task("a_short.json", 1);
    task("b_long.json", 5_000);
    let call = gridpool(["solve", &path, "--devices", "cpu:1", "--json"]).arg(&tasks).start();
    // The start and the first job take far less.
    eventually_so("the worker runs the second job", || {
        let mut workers = processes::children(call.process.pid()).into_iter();
        workers.any(|worker| processes::ticks(worker) > 100)
    });
    processes::signal(call.process.pid(), Signal::SIGINT);
    let ended = call.finish();
    let cancelled = "stopped by Ctrl-C or SIGTERM, and what was under way is cancelled";
    let counts = "1 of 2 tasks have a verdict, 1 have none";
    assert_eq!(ended.code, Some(130), "{}", ended.stderr);
    assert_eq!(ended.stderr, format!("gridpool: {cancelled}; {counts}\n"));
    let known: Value = serde_json::from_str(&ended.stdout).expect("one JSON document");
    assert_eq!(known["tasks"], json!([{ "task": "a_short", "pairs": ["equal"] }]), "{known}");
}

/// A file of solvers in a new folder.
fn file(text: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().expect("a folder for temporary files");
    let path = folder.path().join("own.py");
    std::fs::write(&path, text).expect("the file can be written");
    let path = path.display().to_string();
    (folder, path)
}

#[test]
fn a_mistake_stands_at_its_line_of_the_file_and_leaves_the_other_functions_alone() {
    let text = "\u{feff}BG = 5\n\ndef nested(I):\n    def g(x):\n        return x\n    return g(I)\n\n\
                def odd(I):\n    x = rot90(I)\n      return x\n\n\
                def open(I):\n    x = fill(I, ONE, ofcolor(I, TWO)\n    return x\n\n\
                def wrong(I):\n    return increment(I)\n\n\
                def right(I):\n    return replace(I, ZERO, BG)\n";
    let (_folder, path) = file(text);
    let said = |name: &str| {
        let ended = gridpool(["check", &format!("@{path}:{name}")]).run();
        assert_eq!(ended.code, Some(65), "{name}: {}", ended.stdout);
        ended.stderr
    };
    for (name, want) in [
        ("nested", "own.py: line 4, column 5: a `def` stands inside of another function"),
        ("odd", "line 10, column 7: this line is indented deeper"),
        ("open", "line 13, column 13: this bracket is never closed"),
        ("wrong", "line 17, column 12: increment wants a number or a vector"),
    ] {
        assert!(said(name).contains(want), "{name}: {}", said(name));
    }
    assert_eq!(results(&format!("@{path}:right"), &[]), results("replace(0, 5)", &[]));
    let all = gridpool(["check", &path, "--all"]).run();
    assert_eq!(all.code, Some(65));
    assert!(all.stdout.contains("1 of 5 compile"), "{}", all.stdout);
    let traced = results(&format!("@{path}:right"), &["--trace", "20"]);
    assert_eq!(traced, results("replace(0, 5)", &[]));
}

#[test]
fn a_statement_that_a_program_has_not_is_a_mistake_of_the_command_line() {
    let (_folder, path) = file("BG = 5\n\ndef right(I):\n    x = rot90(I)\n    return x\n");
    for named in ["x9", "1", "4294967295"] {
        let of_file = format!("{path} has no statement `{named}`: name a statement, or its line; ");
        let program = format!("@{path}:right");
        let ended = gridpool(["run", &program, "--trace", named]).run();
        ended.complains(2, &[&of_file, "the first are x"]);
    }
    let typed = gridpool(["run", "y = rot90(I)\nO = y", "--trace", "x9"]).run();
    typed.complains(2, &["the program has no statement `x9`: name a statement"]);
}

#[test]
fn values_above_the_last_function_are_for_functions_and_may_not_use_the_grid() {
    let (_folder, path) = file("x = rot90(I)\ndef solve(I):\n    return rot180(I)\n");
    let ended = gridpool(["check", &path]).run();
    assert_eq!(ended.code, Some(65), "{}", ended.stdout);
    let want = "line 1, column 1: `x` stands outside of functions: it may not use I";
    assert!(ended.stderr.contains(want), "{}", ended.stderr);
    assert!(ended.stderr.contains("below the last function"), "{}", ended.stderr);
}

#[test]
fn every_command_takes_the_same_names_of_a_solver() {
    let file = data("solvers.py").display().to_string();
    let grids = data("grids.json").display().to_string();
    let quarter = format!("{file}:solve_quarter_turn");
    for name in [quarter.clone(), format!("@{quarter}")] {
        let check = gridpool(["check", &name]).run();
        assert_eq!(check.code, Some(0), "{name}: {}", check.stderr);
        let run = ["run", "--program", &name, &grids, "--devices", "cpu:1", "--json"];
        let document = gridpool(run).run().document();
        assert_eq!(*document["results"][0]["output"].as_array().unwrap(), results("rot90", &[]));
        let task = data("tasks/quarter_turn.json");
        let solve = gridpool(["solve", &name, "--devices", "cpu:1"]).arg(task).run();
        assert_eq!(solve.code, Some(0), "{}", solve.stderr);
    }
    let whole = gridpool(["check", &format!("@{file}"), "--all"]).run();
    assert!(whole.stdout.contains("5 of 5 compile"), "{}{}", whole.stdout, whole.stderr);
    let one = gridpool(["check", &quarter, "--all"]).run();
    assert_eq!(one.code, Some(2));
    assert!(one.stderr.contains("--all checks every definition"), "{}", one.stderr);
}

#[test]
fn solve_without_a_solver_for_any_task_is_an_error() {
    let (_folder, path) = file("def turned(I):\n    return rot90(I)\n");
    let task = data("tasks/quarter_turn.json");
    let ended = gridpool(["solve", &path, "--devices", "cpu:1"]).arg(&task).run();
    assert_eq!(ended.code, Some(65), "{}", ended.stdout);
    let want = "has no `def solve_quarter_turn(I):`; to run one function over all tasks, write";
    assert!(ended.stderr.contains(want), "{}", ended.stderr);
    let named =
        gridpool(["solve", &format!("{path}:turned"), "--devices", "cpu:1"]).arg(task).run();
    assert_eq!(named.code, Some(0), "{}{}", named.stdout, named.stderr);
}

#[test]
fn results_show_nothing_rows_without_columns_and_what_overflowed() {
    let nothing = results("O = astuple(ONE, ulcorner(ofcolor(canvas(ZERO, UNITY), ONE)))", &[]);
    assert_eq!(nothing[0], json!([1, []]));
    let hollow = results("O = hupscale(canvas(ZERO, TWO_BY_TWO), ZERO)", &[]);
    assert_eq!(hollow[0], json!([[], []]));
    let drawn =
        gridpool(["run", "O = hupscale(canvas(ZERO, TWO_BY_TWO), ZERO)", "--devices", "cpu:1"])
            .arg(data("grids.json"))
            .run();
    assert!(drawn.stdout.contains("a grid of 2 rows without columns"), "{}", drawn.stdout);
    for (text, want) in [
        ("O = power(lambda x: multiply(x, x), TEN)(TEN)", "the number does not fit into 32 bits"),
        ("O = multiply((99, 99), 999)", "a row or column would be outside of -32768 to 32767"),
        ("O = canvas(ZERO, (99, 99))", "the grid would have over 4096 cells, a side over 255"),
        (
            "O = product(interval(0, 999, 1), interval(0, 999, 1))",
            "the set would weigh over 131072",
        ),
        ("O = canvas(TEN, UNITY)", "a colour of the result is not from 0 to 9"),
        ("O = combine(((1, 2, 3),), ((1,),)) | identity | rot90", "different lengths"),
    ] {
        let got = results(text, &[]);
        let message = got[0]["error"]["message"].as_str().unwrap_or_default();
        assert!(message.contains(want), "{text}: {}", got[0]);
    }
}

#[test]
fn the_limit_of_steps_is_the_jobs_own() {
    let long = "n = multiply(999, size(initset(I)))\nO = power(power(increment, n), n)(ZERO)";
    assert_eq!(results(long, &[])[0]["error"]["code"], "StepLimit");
    assert_eq!(results(long, &["--steps", "3000000"])[0], 998_001);
    assert_eq!(results("O = rot90(I)", &["--steps", "1"])[0]["error"]["code"], "StepLimit");
    for (program, steps, want) in [
        ("O = rot90(I)", "0", "from 1 to 100000000"),
        ("O = rot90(I)", "100000001", "from 1 to 100000000"),
        ("rot90", "5", "only a solver has a limit of steps"),
    ] {
        let run = ["run", program, "--steps", steps, "--devices", "cpu:1"];
        let ended = gridpool(run).arg(data("grids.json")).run();
        assert_eq!(ended.code, Some(2), "{program}");
        assert!(ended.stderr.contains(want), "{}", ended.stderr);
    }
}

#[test]
fn explain_prints_the_program_and_runs_nothing() {
    let solver = gridpool(["run", "--explain", &named("solve_one_becomes_five")]).run();
    assert_eq!(solver.code, Some(0), "{}", solver.stderr);
    assert!(solver.stdout.contains("ofcolor I, 1"), "{}", solver.stdout);
    assert!(solver.stdout.contains("at most 1000000 steps"), "{}", solver.stdout);
    let chain = gridpool(["run", "--explain", "rot90 | palette"]).run();
    assert!(chain.stdout.contains("a grid -> a grid"), "{}{}", chain.stdout, chain.stderr);
}

/// A solver that runs as many instructions as a job may ask for: minutes.
const ENDLESS: &str = "m = multiply(multiply(TEN, TEN), multiply(TEN, TEN))\n\
                       f = lambda x: power(increment, m)(x)\n\
                       x1 = power(f, m)(ZERO)\n\
                       O = canvas(x1, UNITY)\n";

#[test]
fn a_solver_that_is_late_or_given_up_is_stopped_and_costs_no_worker() {
    let pool = cpu(1).start();
    let (_kept, file) = file(ENDLESS);
    let call = || pool.cli(&["submit", "--program", &file, "--steps", "100000000"]);
    let late = call().args(&["--deadline", "0.3"]).arg(data("grids.json")).run();
    assert!(late.stdout.contains("1 DEADLINE"), "{late:?}");
    let mut given_up = call().arg(data("grids.json")).start();
    pool.until_busy("cpu0");
    given_up.process.kill();
    pool.until("cpu0", "READY", |slot| slot.state == WorkerState::Ready);
    serves(&pool.client());
    assert_eq!(pool.slot("cpu0").generation, 1, "the worker was killed");
}
