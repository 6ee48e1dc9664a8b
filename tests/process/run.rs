//! `gridpool run`: the results, their document, and the receipts that prove them.

use std::collections::BTreeSet;
use std::fs;

use gridpool_protocol::batch::Grid;
use gridpool_protocol::program::{Program, Ties};
use gridpool_tests::oracle::tasks;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::command::gridpool;
use crate::documents::{by_oracle, entry, read, says};
use crate::jobs::{PROGRAM, as_json, data, program, small_job, submit};
use crate::pool::cpu;
use crate::processes;
use crate::wait::eventually_so;

/// At least one result of each kind; some may be empty or errors.
const PROGRAMS: [&str; 16] = [
    PROGRAM,
    "o_g(5)",
    "cmirror | objects(true, false, true)",
    "palette",
    "switch(1, 2) | leastcolor",
    "colorcount(0)",
    "tophalf",
    "upscale(2) | trim",
    "fill(7, ofcolor(0))",
    "ofcolor(2) | outbox",
    "o_g(5) | argmax(size) | subgrid",
    "partition | last | shift(-1, 3)",
    "o_g(1) | merge | centerofmass",
    "dmirror | portrait",
    "hsplit(3)",
    "vsplit(2) | apply(o_g(5)) | apply(size)",
];

#[test]
fn every_example_comes_back_in_its_own_shape_as_the_oracle_says() {
    for text in PROGRAMS {
        let program = program(text);
        let document = gridpool(["run", text, "--devices", "cpu:2", "--json"])
            .arg(data("tasks"))
            .arg(data("grids.json"))
            .arg(data("grids.npy"))
            .run()
            .document();
        let got = document["results"].as_array().expect("a list of results");
        let mut want: Vec<Value> = tasks::examples()
            .iter()
            .map(|task| entry(&task.name, task_output(&program, &task.name)))
            .collect();
        let list = by_oracle(&program, &read(&data("grids.json")));
        want.push(entry(&data("grids.json").display().to_string(), list));
        want.push(entry(&data("grids.npy").display().to_string(), npy_output(&program)));
        assert_eq!(got.len(), want.len());
        for (got, want) in got.iter().zip(&want) {
            assert_eq!(got, want, "{text}");
        }
        assert_eq!(keys(&document), ["results", "receipts"].into());
    }
}

#[test]
fn receipts_are_complete_and_true() {
    let document = gridpool(["run", PROGRAM, "--devices", "cpu:2", "--batch", "7", "--json"])
        .arg(data("grids.json"))
        .run()
        .document();
    let items = document["results"][0]["output"].as_array().expect("a list of grids").len();
    let receipts = document["receipts"].as_array().expect("a list of receipts");
    assert_eq!(receipts.len(), items.div_ceil(7), "one job for every seven grids");
    assert_eq!(sum(receipts, "items"), items as u64);
    let distinct = |key: &str| receipts.iter().map(|r| r[key].to_string()).collect::<BTreeSet<_>>();
    assert_eq!((distinct("job").len(), distinct("key").len()), (receipts.len(), receipts.len()));
    assert_eq!(distinct("program_hash").len(), 1);
    for receipt in receipts {
        let fields = [
            "job",
            "key",
            "program_hash",
            "items",
            "item_errors",
            "verdict",
            "queue_us",
            "total_us",
            "attempts",
        ];
        assert!(keys(receipt).is_superset(&fields.into()), "{receipt}");
        assert_eq!((&receipt["verdict"], &receipt["item_errors"]), (&json!("OK"), &json!(0)));
        assert!(receipt["queue_us"].as_u64() <= receipt["total_us"].as_u64(), "{receipt}");
        let attempts = receipt["attempts"].as_array().expect("a list of attempts");
        assert_eq!(attempts.len(), 1, "{receipt}");
        is_true(&attempts[0], receipt);
    }
}

fn is_true(attempt: &Value, receipt: &Value) {
    let fields = [
        "worker",
        "outcome",
        "device",
        "module_hash",
        "joined_items",
        "kernels",
        "h2d_bytes",
        "d2h_bytes",
        "service_us",
    ];
    assert!(keys(attempt).is_superset(&fields.into()), "{attempt}");
    assert!(["cpu0#1", "cpu1#1"].map(Value::from).contains(&attempt["worker"]), "{attempt}");
    assert_eq!(attempt["outcome"], "ok");
    assert!(attempt["joined_items"].as_u64() >= receipt["items"].as_u64(), "{attempt}");
    assert_eq!((&attempt["h2d_bytes"], &attempt["d2h_bytes"]), (&json!(0), &json!(0)));
    assert_eq!(attempt["module_hash"].as_str().map(str::len), Some(64), "{attempt}");
    assert!(attempt["service_us"].as_u64() <= receipt["total_us"].as_u64(), "{receipt}");

    let device = &attempt["device"];
    assert_eq!(keys(device), ["kind", "index", "name", "uuid", "driver"].into());
    assert_eq!((&device["kind"], &device["uuid"]), (&json!("cpu"), &json!("")));
    let worker = format!("\"cpu{}#1\"", device["index"]);
    assert_eq!(attempt["worker"].to_string(), worker);
    assert!(!device["name"].as_str().expect("a name").is_empty());

    let kernels = attempt["kernels"].as_array().expect("a list of kernels");
    let names: Vec<_> = kernels.iter().filter_map(|kernel| kernel["name"].as_str()).collect();
    assert_eq!(names, ["validate", "rot90", "replace"], "in the order of the program");
    for kernel in kernels {
        assert_eq!(keys(kernel), ["name", "launches", "device_us"].into());
        assert!(kernel["launches"].as_u64() >= Some(1), "{kernel}");
        assert!(kernel["device_us"].as_f64() > Some(0.0), "{kernel}");
    }
}

#[test]
fn results_in_a_pipe_are_plain_text() {
    let call = gridpool(["run", PROGRAM, "--devices", "cpu:2", "--all"]).arg(data("tasks"));
    let text = call.run().output();
    assert!(!text.contains('\x1b'), "an escape code is in: {text:?}");
    for words in ["quarter_turn  OK", "train pair 0, input", "8 OK", "rot90 x", "#1  54 grids"] {
        assert!(text.contains(words), "`{words}` is not in: {text}");
    }
}

#[test]
fn ties_go_to_the_first_in_cpython_or_to_the_lowest() {
    let path = data("tasks/commonest_color_with_ties.json");
    let mut hashes = BTreeSet::new();
    for ties in [Ties::Cpython, Ties::Lowest] {
        for text in ["mostcolor", "leastcolor", "palette"] {
            let program = Program::compile(text, ties).expect("the program is well formed");
            let call = gridpool(["run", text, "--devices", "cpu:1", "--json", "--ties"]);
            let document = call.arg(ties.to_string()).arg(&path).run().document();
            let want = task_output(&program, "commonest_color_with_ties");
            assert_eq!(document["results"][0]["output"], want, "{text}, {ties}");
            hashes.insert(document["receipts"][0]["program_hash"].to_string());
        }
    }
    assert_eq!(hashes.len(), 6, "the tie mode is part of the program's hash");
}

#[test]
fn standard_input_is_read_without_a_file_and_for_a_dash() {
    let grids = [Grid::from_rows(&[[1, 2], [3, 4]]).expect("a grid")];
    let want = json!([{"input": "-", "verdict": "OK", "output": [[[3, 7], [4, 2]]]}]);
    for named in [&[][..], &["-"][..]] {
        let call = gridpool(["run", PROGRAM, "--devices", "cpu:1", "--json"].iter().chain(named));
        assert_eq!(call.stdin(as_json(&grids)).run().document()["results"], want);
    }
}

// ---- what the oracle says ----

fn task_output(program: &Program, name: &str) -> Value {
    by_oracle(program, &read(&data(&format!("tasks/{name}.json"))))
}

/// The example array has 5 grids of 4 x 6 cells, which are the end of the file.
fn npy_output(program: &Program) -> Value {
    let bytes = fs::read(data("grids.npy")).expect("an example");
    let cells = &bytes[bytes.len() - 5 * 4 * 6..];
    let grid = |cells: &[u8]| Grid::new(4, 6, cells.to_vec()).expect("a grid");
    cells.chunks(4 * 6).map(|cells| says(program, &grid(cells))).collect()
}

fn keys(value: &Value) -> BTreeSet<&str> {
    value.as_object().expect("an object").keys().map(String::as_str).collect()
}

fn sum(receipts: &[Value], key: &str) -> u64 {
    receipts.iter().filter_map(|receipt| receipt[key].as_u64()).sum()
}

#[test]
fn ctrl_c_says_what_was_done_and_cancels_what_is_under_way() {
    let endless = "n = multiply(999, size(initset(I)))\n\
                   O = power(power(power(increment, n), n), n)(ZERO)";
    let long = ["--steps", "100000000", "--batch", "1"];
    let pool = cpu(1).start();
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let before = pool.status().counters.cancelled;
        let call = pool.cli(&["submit", endless]).args(&long).arg(data("grids.json")).start();
        pool.until_busy("cpu0");
        processes::signal(call.process.pid(), signal);
        let ended = call.finish();
        let words = [
            "stopped by Ctrl-C or SIGTERM, and what was under way is cancelled; 0 of ",
            "have none",
        ];
        ended.complains(130, &words);
        pool.until_status("idle", |status| {
            status.counters.cancelled > before && status.workers.iter().all(|row| row.run.is_none())
        });
    }
    // It waits for room that only others' jobs can make.
    let full = cpu(1).limits("queue_jobs_max = 1\nfeed_cost_max = 0").start();
    full.stop("cpu0");
    let client = full.client();
    let running = submit(&client, small_job(1));
    full.until_busy("cpu0");
    let others = [running, submit(&client, small_job(2))];
    let call = full.cli(&["submit", "rot90"]).arg(data("grids.json")).start();
    full.until_status("a refusal", |status| status.counters.refused_busy > 0);
    processes::signal(call.process.pid(), Signal::SIGINT);
    call.finish().complains(130, &["stopped by Ctrl-C or SIGTERM", "; 0 of "]);
    drop(others);
    let run =
        gridpool(["run", endless, "--devices", "cpu:1"]).args(&long[..2]).arg(data("grids.json"));
    let call = run.start();
    // Its start takes far less.
    eventually_so("the worker runs the job", || {
        processes::children(call.process.pid())
            .into_iter()
            .any(|worker| processes::ticks(worker) > 100)
    });
    processes::signal(call.process.pid(), Signal::SIGINT);
    call.finish().complains(130, &["stopped by Ctrl-C or SIGTERM", "; 0 of "]);
}
