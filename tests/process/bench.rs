//! `gridpool bench`: it compares and proves every row before it prints a number, and prints none for wrong
//! results. The tests do not check how large the numbers are.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::binaries;
use crate::command::{Cli, Finished, gridpool};
use crate::infer::has_runtime;
use crate::jobs::data;
use crate::pool::stub_worker;

/// A bench of one program on a worker that has this fault; native rates are the true worker's.
fn on_stubs(fault: &str) -> Finished {
    gridpool(["bench", "--quick", "--devices", "cpu:1", "--batches", "1", "--ops", "rot90"])
        .arg("--worker-bin")
        .arg(stub_worker())
        .env("GRIDPOOL_STUB", fault)
        .env("GRIDPOOL_STUB_REAL", binaries::worker())
        .run()
}

#[test]
fn a_quick_bench_compares_and_proves_every_row() {
    let call = gridpool(["bench", "--quick", "--json", "--devices", "cpu:2"]);
    let call = call.arg("--batches=1,32").arg("--ops=identity,o_g(5)");
    let document = call.run().document();
    assert!(document["machine"]["cores"].as_u64() >= Some(1), "{}", document["machine"]);
    let rows = document["rows"].as_array().expect("a list of rows");
    let sections: BTreeSet<_> = rows.iter().filter_map(|row| row["section"].as_str()).collect();
    let want = ["end_to_end", "latency", "limits", "native", "scheduling"];
    assert_eq!(sections, want.into());
    for row in rows {
        assert!(row["fault"].is_null() && row["skipped"].is_null(), "{row}");
        let value = |key: &str| row["value"][key].as_f64().expect("a number");
        assert!(0.0 < value("min") && value("min") <= value("median"), "{row}");
        assert!(value("median") <= value("max"), "{row}");
        assert!(row["value"]["repetitions"].as_u64() >= Some(5), "{row}");
        if row["runner"] != "library" && row["section"] != "limits" {
            is_proven(row);
        }
        if row["section"] == "end_to_end" {
            assert!(row["to_native"].as_f64() > Some(0.0), "{row}");
        }
        if row["section"] == "latency" {
            assert!(row["latency"]["jobs"].as_u64() >= Some(100), "{row}");
            assert!(row["latency"]["hops"]["worker_us"].as_f64() >= Some(0.0), "{row}");
        }
    }
}

#[test]
fn searches_are_measured_from_texts_to_verdicts() {
    let document =
        gridpool(["bench", "--quick", "--json", "--devices", "cpu:2", "--search"]).run().document();
    let rows = document["rows"].as_array().expect("a list of rows");
    let names: BTreeSet<_> = rows.iter().filter_map(|row| row["name"].as_str()).collect();
    let want = [
        "evaluations, cells",
        "evaluations, exact",
        "evaluations, kernels alone",
        "templates, exact",
        "templates, kernels alone",
        "text to verdict",
        "texts compiled",
    ];
    assert_eq!(names, want.into());
    for row in rows {
        assert!(row["fault"].is_null() && row["skipped"].is_null(), "{row}");
        assert_eq!(row["section"], "search");
        assert!(row["value"]["min"].as_f64() > Some(0.0), "{row}");
    }
}

/// A bench of solvers over the example tasks.
fn of_solvers(file: &Path) -> Cli {
    gridpool(["bench", "--quick", "--devices", "cpu:2", "--batches=60", "--solvers"])
        .arg(file)
        .arg("--tasks")
        .arg(data("tasks"))
}

#[test]
fn solvers_are_measured_over_copies_of_their_own_inputs() {
    let document = of_solvers(&data("solvers.py")).arg("--json").run().document();
    let rows = document["rows"].as_array().expect("a list of rows");
    let tasks = ["left_and_right", "lines", "one_becomes_five", "quarter_turn"];
    for (section, runner) in [("native", "library"), ("end_to_end", "pool")] {
        let of: Vec<_> = rows.iter().filter(|row| row["section"] == section).collect();
        let names: BTreeSet<_> = of.iter().filter_map(|row| row["name"].as_str()).collect();
        assert_eq!((names, of.len()), (tasks.into(), tasks.len()), "{section}");
        for row in of {
            assert!(row["fault"].is_null() && row["skipped"].is_null(), "{row}");
            assert!(row["value"]["min"].as_f64() > Some(0.0), "{row}");
            assert!(row["workload"].is_null() && row["runner"] == runner, "{row}");
            let batch = row["batch"].as_u64().expect("a number of copies");
            assert!(section == "native" && batch <= 60 || batch == 60, "{row}");
            if section == "end_to_end" {
                assert!(row["to_native"].as_f64() > Some(0.0), "{row}");
                assert!(row["proof"]["kernels"][0]["launches"].as_u64() > Some(0), "{row}");
            }
        }
    }
    let summaries = document["summaries"].as_array().expect("a list of summaries");
    assert_eq!(summaries.len(), 2, "{summaries:?}");
    for summary in summaries {
        let rate = |key: &str| summary[key].as_f64().expect("a rate");
        assert_eq!(summary["measured"], 4, "{summary}");
        assert!(0.0 < rate("worst") && rate("worst") <= rate("p10"), "{summary}");
        assert!(rate("p10") <= rate("median"), "{summary}");
    }
}

#[test]
fn one_definition_may_be_measured_over_all_tasks_and_names_choose_some() {
    let file = format!("@{}:solve_quarter_turn", data("solvers.py").display());
    let text = of_solvers(Path::new(&file)).arg("--ops=lines,one_cell").run().output();
    assert!(text.contains("END TO END, 2 devices, pool\n"), "{text}");
    assert!(text.contains("pool: 2 solvers, median "), "{text}");
    assert!(text.lines().skip(1).all(|line| line.chars().count() <= 100), "{text}");
}

#[test]
fn mistakes_in_what_solvers_to_measure_are_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).expect("a file can be written");
        path
    };
    let none = file("none.py", "BG = 5\n");
    of_solvers(&none).run().complains(65, &["none.py has no `def solve_", "it has no functions"]);
    let bad = "def solve_lines(I):\n    return rot91(I)\n";
    let only_bad = of_solvers(&file("bad.py", bad)).run();
    only_bad.complains(2, &["no solver compiles: solve_lines does not compile: line 2", "rot91"]);
    let good = data("solvers.py");
    of_solvers(&good).arg("--ops=no such").run().complains(2, &["--ops no such: no task with a"]);
    let two = of_solvers(&good).arg("--batches=1,2").run();
    two.complains(2, &["--batches: solvers are measured over one number of copies"]);
    let bench = |more: &[&str]| gridpool(["bench", "--devices", "cpu:1"]).args(more).run();
    bench(&["--solvers", "x.py"]).complains(2, &["--tasks"]);
    bench(&["--tasks", "x"]).complains(2, &["--solvers"]);
    let good = good.display().to_string();
    let gone = bench(&["--solvers", &good, "--tasks", "/no/such/task.json"]);
    gone.complains(65, &["/no/such/task.json: cannot be read"]);

    // One that does not compile leaves the others alone.
    let text = format!("{bad}def solve_one_cell(I):\n    return rot90(I)\n");
    let text = of_solvers(&file("both.py", &text)).run().output();
    assert!(text.contains("skipped: solve_lines does not compile: line 2"), "{text}");
    assert!(text.contains("library: 1 solvers,") && text.contains("; 1 not measured"), "{text}");
}

#[test]
fn wrong_results_of_solvers_have_no_rate() {
    let call = of_solvers(&data("solvers.py")).arg("--ops=lines").arg("--worker-bin");
    let call = call.arg(stub_worker()).env("GRIDPOOL_STUB", "gives-zeros");
    let Finished { code, stdout, stderr } =
        call.env("GRIDPOOL_STUB_REAL", binaries::worker()).run();
    assert_eq!(code, Some(70), "{stdout}{stderr}");
    assert!(stdout.contains("(input 0 of the task) from cpu"), "{stdout}");
    assert!(!stdout.contains("pool: 1 solvers"), "{stdout}");
}

#[test]
fn recovery_is_measured_also_with_more_kills_than_a_principal_may_cost() {
    let kills = gridpool_core::config::PoolConfig::DEFAULT.kills_max + 1;
    let call = gridpool(["bench", "--json", "--devices", "cpu:1", "--recovery"]);
    let document = call.arg(kills.to_string()).run().document();
    let rows = document["rows"].as_array().expect("a list of rows");
    let hangs =
        rows.iter().filter(|row| row["name"].as_str().is_some_and(|n| n.starts_with("DEADLINE")));
    assert_eq!(hangs.count(), 2, "with a standby and without: {document}");
    for row in rows {
        assert!(row["fault"].is_null() && row["skipped"].is_null(), "{row}");
    }
}

/// Its receipts name workers of the pool that called the program's functions.
fn is_proven(row: &Value) {
    let proof = &row["proof"];
    let workers = proof["workers"].as_array().expect("a list of workers");
    assert!(!workers.is_empty(), "{row}");
    assert!(workers.iter().all(|worker| worker == "cpu0#1" || worker == "cpu1#1"), "{row}");
    assert!(proof["jobs"].as_u64() >= Some(1), "{row}");
    let kernels = proof["kernels"].as_array().expect("a list of kernels");
    assert!(kernels.iter().all(|kernel| kernel["launches"].as_u64() >= Some(1)), "{row}");
    let names: Vec<_> = kernels.iter().filter_map(|kernel| kernel["name"].as_str()).collect();
    let program = row["program"].as_str().expect("a program");
    let first = program.split(['|', '(']).next().expect("a first op").trim();
    let first = if first == "o_g" { "objects" } else { first };
    assert!(names.contains(&first), "{first} is not among {names:?}");
}

#[test]
fn wrong_results_have_no_rate_and_an_exit_code() {
    let Finished { code, stdout, stderr } = on_stubs("gives-zeros");
    assert_eq!(code, Some(70), "{stdout}{stderr}");
    assert!(stderr.contains("rows are wrong"), "{stderr}");
    assert!(stdout.contains("WRONG: item 0 of a job (grid 0) from cpu0#1 differs"), "{stdout}");
    let (_, pools) = stdout.split_once("cpu:1 pool").expect("a section for the CPU's pool");
    let rates = pools.lines().filter(|line| line.starts_with("rot90"));
    // Its grids and the size of its jobs, and nothing after them.
    assert!(rates.clone().count() >= 3, "{pools}");
    for line in rates {
        assert!(line.split_whitespace().count() <= 4, "{line}");
    }
}

#[test]
fn a_worker_without_launches_has_no_rate() {
    let Finished { code, stdout, stderr } = on_stubs("launches-nothing");
    assert_eq!(code, Some(70), "{stdout}{stderr}");
    assert!(stdout.contains("cpu0#1 answered, and its launch counters did not move"), "{stdout}");
}

#[test]
fn a_table_fits_a_screen_and_a_picture_shows_its_rates() {
    let folder = tempfile::tempdir().expect("a folder for temporary files");
    let picture = folder.path().join("rates.svg");
    let call = gridpool(["bench", "--quick", "--devices", "cpu:1", "--ops", "rot90"]);
    let text = call.arg("--batches=1,2k").arg("--plot").arg(&picture).run().output();
    for words in ["NATIVE", "LATENCY", "END TO END", "x native", "   2k "] {
        assert!(text.contains(words), "`{words}` is not in: {text}");
    }
    let rows = text.lines().filter(|line| !line.starts_with("LIMITS") && !line.contains("cores, "));
    let widest = rows.map(|line| line.chars().count()).max();
    assert!(widest <= Some(100), "{text}");
    let svg = fs::read_to_string(&picture).expect("a picture");
    assert_eq!(svg.matches("<circle").count(), 4, "two batches on two kinds of grids");
    assert!(svg.contains("rot90"), "{svg}");

    let call = gridpool(["bench", "--quick", "--devices", "cpu:1", "--ops", "rot90"]);
    let (code, piped, said) = call.arg("--batches=1").arg("--plot=-").bytes();
    assert_eq!(code, Some(0), "{said}");
    assert!(piped.starts_with(b"<svg") && said.contains("NATIVE"), "{said}");
}

#[test]
fn unknown_programs_and_flags_of_bench_are_usage_errors() {
    let bench = || gridpool(["bench", "--quick", "--devices", "cpu:1"]);
    let unknown = bench().arg("--ops=no such").run();
    assert_eq!(unknown.code, Some(2), "{}", unknown.stderr);
    assert!(unknown.stderr.contains("there are identity, rot90"), "{}", unknown.stderr);
    bench().arg("--batches=2M").run().complains(2, &["from 1 to 1M"]);
    bench().arg("--repetitions=4").run().complains(2, &["write a whole number from 5 to 1000"]);
    bench().arg("--plot=-").arg("--json").run().complains(2, &["--plot -: --json writes to"]);
    bench().arg("--plot=/no/such/x.svg").run().complains(2, &["there is no folder /no/such"]);
}

#[test]
fn a_pipeline_is_measured_beside_its_steps_one_by_one_with_the_same_answers() {
    if !has_runtime() {
        return;
    }
    let step = |name: &str, inputs: &str| {
        let file = data("models").join(format!("{name}.onnx"));
        format!(
            "[[pipeline.steps]]\nname = '{name}'\nmodel = '{}'\ninputs = {{ {inputs} }}\n",
            file.display()
        )
    };
    let text = [
        "[[pipeline]]\nname = 'chain'\ninputs = ['image']\nmax_batch = 1\n".to_owned(),
        "outputs = { boxes = 'find.boxes', who = 'reid.who' }\n".to_owned(),
        step("find", "image = 'image'"),
        step("crop", "image = 'image', boxes = 'find.boxes'"),
        step("reid", "crops = 'crop.crops'"),
    ];
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("chain.toml");
    fs::write(&config, text.concat()).expect("a file can be written");
    let call = gridpool(["bench", "--quick", "--json", "--devices", "cpu:1", "--config"]);
    let document = call.arg(&config).run().document();
    let mut seen = BTreeSet::new();
    for row in document["rows"].as_array().expect("a list of rows") {
        assert!(row["fault"].is_null() && row["skipped"].is_null(), "{row}");
        assert!(row["value"]["median"].as_f64() > Some(0.0), "{row}");
        seen.insert((row["section"].to_string(), row["runner"].to_string()));
    }
    let runners = ["direct", "direct steps", "pool", "pool steps"];
    let rows = ["models", "model_latency"].into_iter();
    let want = rows.flat_map(|section| runners.map(|runner| (section, runner)));
    let quoted = |text: &str| format!("\"{text}\"");
    assert_eq!(seen, want.map(|(section, runner)| (quoted(section), quoted(runner))).collect());
}

/// A bench of this model alone.
fn of_model(model: &str) -> Cli {
    gridpool(["bench", "--quick", "--json", "--devices", "cpu:1"]).args(&["--model", model])
}

fn mlp() -> String {
    format!("mlp={}", data("models").join("mlp.onnx").display())
}

#[test]
fn a_model_is_measured_directly_and_through_a_pool_and_every_answer_compared() {
    if !has_runtime() {
        return;
    }
    let document = of_model(&mlp()).args(&["--set", "max_batch=8"]).run().document();
    let rows = document["rows"].as_array().expect("a list of rows");
    let mut seen = BTreeSet::new();
    for row in rows {
        assert!(row["fault"].is_null() && row["skipped"].is_null(), "{row}");
        assert!(row["name"] == "mlp" && row["devices"] == 1, "{row}");
        assert!(row["value"]["median"].as_f64() > Some(0.0), "{row}");
        assert!(row["value"]["repetitions"] == 5, "{row}");
        assert!(row["latency"]["p99_us"].as_f64() >= row["latency"]["p50_us"].as_f64(), "{row}");
        let text = |key: &str| row[key].as_str().expect("a text").to_owned();
        let number = |key: &str| row[key].as_u64().expect("a number");
        let (section, runner) = (text("section"), text("runner"));
        let is_rate = section == "models";
        let is_pool = runner == "pool";
        assert_eq!(row["to_direct"].as_f64() > Some(0.0), is_rate && is_pool, "{row}");
        assert_eq!(row["to_one_context"].as_f64() > Some(0.0), number("contexts") > 1, "{row}");
        let proof = &row["proof"];
        let nodes = proof["nodes"].as_array().expect("a list of providers");
        assert!(!nodes.is_empty(), "{row}");
        assert!(nodes.iter().all(|row| row["provider"] == "CPUExecutionProvider"), "{row}");
        assert_eq!(proof["jobs"], row["latency"]["jobs"], "{row}");
        let launches = proof["kernels"][0]["launches"].as_u64().expect("a number");
        let jobs = proof["jobs"].as_u64().expect("a number");
        let joins = number("max_batch") > 1;
        assert!(if joins { 8 * launches >= jobs } else { launches == jobs }, "{row}");
        seen.insert((section, runner, number("max_batch"), number("contexts"), number("jobs")));
    }
    let wanted = [
        ("models", "direct", 1, 1, 1),
        ("models", "direct", 1, 1, 2),
        ("models", "pool", 1, 1, 32),
        ("model_latency", "direct", 1, 1, 1),
        ("model_latency", "pool", 1, 1, 1),
        ("models", "direct", 1, 4, 4),
        ("models", "direct", 1, 4, 8),
        ("models", "pool", 1, 4, 32),
        ("models", "direct", 8, 1, 32),
        ("models", "pool", 8, 1, 32),
        ("models", "direct", 8, 4, 32),
        ("models", "pool", 8, 4, 32),
    ];
    let wanted = wanted.map(|(section, runner, batch, contexts, jobs)| {
        (section.to_owned(), runner.to_owned(), batch, contexts, jobs)
    });
    assert_eq!(seen, wanted.into());
}

#[test]
fn a_model_is_measured_beside_a_neighbour_in_trouble() {
    if !has_runtime() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("gridpool.toml");
    fs::write(&config, "[limits]\ninfer_cancel_grace_s = 0\n").expect("it can be written");
    let config = config.to_str().expect("UTF-8");
    let document = of_model(&mlp()).args(&["--isolation", "--config", config]).run().document();
    let rows = document["rows"].as_array().expect("a list of rows");
    let troubles: Vec<_> = rows.iter().map(|row| (&row["name"], row["jobs"].as_u64())).collect();
    let want = ["is idle", "is busy", "is killed", "hangs", "is loaded"];
    assert_eq!(rows.len(), want.len(), "{troubles:?}");
    for (row, what) in rows.iter().zip(want) {
        assert_eq!(row["name"], format!("its neighbour {what}"), "{row}");
        assert!(row["fault"].is_null() && row["skipped"].is_null(), "{row}");
        assert!(row["section"] == "isolation" && row["runner"] == "mlp", "{row}");
        assert!(row["latency"]["jobs"].as_u64() > Some(0), "{row}");
        // Each of five turns brought trouble, and only then it is compared.
        let is_idle = what == "is idle";
        assert_eq!(row["jobs"].as_u64() >= Some(5), !is_idle, "{row}");
        assert_eq!(row["to_idle"].as_f64() > Some(0.0), !is_idle, "{row}");
    }
}

#[test]
fn a_pipeline_whose_paths_are_relative_is_measured_beside_a_neighbour() {
    if !has_runtime() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    fs::copy(data("models/colors.onnx"), folder.path().join("colors.onnx")).expect("a copy");
    let text = "[limits]\ninfer_cancel_grace_s = 0\n\
                [[pipeline]]\nname = 'line'\ninputs = ['x']\noutputs = { turned = 'turn.grids' }\n\
                warm_up = [{ x = [1, 3, 3] }]\n\
                [[pipeline.steps]]\nname = 'color'\nmodel = 'colors.onnx'\ninputs = { x = 'x' }\n\
                [[pipeline.steps]]\nname = 'turn'\nprogram = 'rot90'\ninputs = { grids = 'color.grids' }\n";
    fs::write(folder.path().join("bench.toml"), text).expect("it can be written");
    let call = gridpool(["bench", "--quick", "--json", "--devices=cpu:1", "--isolation"]);
    let call = call.args(&["--config", "bench.toml"]).current_dir(folder.path());
    let document = call.run().document();
    let rows = document["rows"].as_array().expect("a list of rows");
    assert_eq!(rows.len(), 5, "{rows:?}");
    for row in rows {
        assert!(row["fault"].is_null() && row["skipped"].is_null(), "{row}");
    }
}

#[test]
fn a_model_that_cannot_be_measured_ends_bench_with_the_sentence_that_says_why() {
    let says = |call: Cli, code: i32, words: &str| {
        let Finished { code: got, stdout, stderr } = call.run();
        assert_eq!((got, stdout.as_str()), (Some(code), ""), "{stderr}");
        let last = stderr.lines().last().expect("it complains");
        assert!(last.starts_with("gridpool: ") && last.contains(words), "{stderr}");
        assert!(!stderr.contains("panicked"), "{stderr}");
    };
    let elsewhere = of_model(&mlp()).args(&["--onnxruntime", "/nonexistent/libort.so"]);
    says(
        elsewhere,
        73,
        "/nonexistent/libort.so (from --onnxruntime) does not exist: name the file",
    );
    says(of_model("mlp"), 2, "write NAME=PATH");
    says(
        of_model(&mlp()).args(&["--set", "contexts=2"]),
        2,
        "bench measures [1, 2, 4, 8] contexts",
    );
    if has_runtime() {
        says(of_model("m=/no/such.onnx"), 69, "m cannot be asked: /no/such.onnx: No such file");
    }
}
