//! What a user may get wrong: each mistake ends with the exit code of its kind and one sentence that
//! names the place or what to type instead.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::command::{Cli, Finished, gridpool};
use crate::jobs::{PROGRAM, data, small_job, submit};
use crate::pool::cpu;

/// Every file of `tests/data/bad`, and words of the sentence that it is refused with.
const FILES: [(&str, &[&str]); 26] = [
    ("cell_10.json", &["grid 0, row 1, column 0: 10 is not a colour from 0 to 9"]),
    ("cell_10.npy", &["grid 0, row 1, column 0: 10 is not a colour from 0 to 9"]),
    ("cell_fraction.json", &["grid 0, row 0, column 1: 1.5 is not a colour"]),
    ("cell_letter.json", &["grid 0, row 0, column 1: \"a\" is not a colour"]),
    ("cell_minus_1.json", &["grid 0, row 1, column 1: -1 is not a colour"]),
    ("cell_true.json", &["grid 0, row 0, column 1: true is not a colour"]),
    ("cells_4160.json", &["grid 0", "64 x 65 = 4160 cells; at most 4096 are allowed"]),
    ("empty_grid.json", &["grid 1: the grid is empty"]),
    ("empty_row.json", &["grid 1: the grid is empty"]),
    ("float64.npy", &["float64", "uint8"]),
    ("folder_without_tasks", &["it holds no task"]),
    ("no_grids.json", &["it holds no grid"]),
    ("not_json.json", &["line 2, column 0: not JSON"]),
    ("one_pair.json", &["this is one pair where a list of pairs should be: put it into [ ]"]),
    ("pair_among_grids.json", &["pair 1: this is a pair in a list of grids: keep grids and"]),
    ("pair_with_empty_output.json", &["pair 0, output: the grid is empty"]),
    ("pair_with_other_key.json", &["pair 1: there is no key `grid` here: a pair has `input`"]),
    ("pair_with_output_null.json", &["pair 0, output: expected a grid", "no key `output`", "null"]),
    ("pair_without_input.json", &["pair 1: the key `input` is missing"]),
    ("ragged.json", &["grid 1: row 1 has 2 cells, row 0 has 3"]),
    ("side_256.json", &["grid 0: the grid is 1 x 256; a side has at most 255 cells"]),
    ("task_ragged.json", &["train pair 0, output: row 1 has 1 cells, row 0 has 2"]),
    ("task_without_input.json", &["train pair 0: the key `input` is missing"]),
    ("task_without_train_and_test.json", &["task training", "`train` and `test`"]),
    ("truncated.npy", &["it is cut off: 1 bytes of the array are missing"]),
    // Not bad at all: one grid.
    ("two_dimensions.npy", &[]),
];

fn run(program: &str) -> Cli {
    gridpool(["run", program, "--devices", "cpu:1", "--json"])
}

fn on_a_task(arguments: &[&str]) -> Finished {
    let call = gridpool(["run", PROGRAM]).arg(data("tasks/lines.json"));
    arguments.iter().fold(call, |call, argument| call.arg(argument)).run()
}

#[test]
fn each_bad_file_is_refused_with_its_place() {
    let mut listed: Vec<String> = FILES.iter().map(|(name, _)| (*name).to_owned()).collect();
    let entries = fs::read_dir(data("bad")).expect("the folder can be listed");
    let mut there: Vec<String> =
        entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    listed.sort();
    there.sort();
    assert_eq!(listed, there, "each bad file has its sentence here");
    for (name, words) in FILES {
        let path = data("bad").join(name);
        let finished = run("rot90").arg(&path).run();
        if words.is_empty() {
            finished.output();
            continue;
        }
        finished.complains(65, words);
        finished.complains(65, &[&format!("gridpool: {}: ", path.display())]);
    }
}

#[test]
fn one_bad_file_spoils_its_own_command_and_no_other() {
    let pool = cpu(1).start();
    pool.stop("cpu0");
    let good = submit(&pool.client(), small_job(1));
    pool.until_busy("cpu0");
    let call = pool.cli(&["submit", "rot90"]).arg(data("tasks")).arg(data("bad/ragged.json"));
    call.run().complains(65, &["bad/ragged.json: grid 1: row 1"]);
    assert_eq!(pool.status().counters.accepted, 1, "nothing of it was submitted");
    pool.go_on("cpu0");
    assert!(crate::jobs::answer(good).outputs.is_some());
}

#[test]
fn input_that_is_not_there_is_named() {
    run("rot90").run().complains(65, &["standard input: it is empty"]);
    run("rot90").stdin("[[[1, 2], [3]]]").run().complains(65, &["standard input: grid 0: row 1"]);
    let nowhere = run("rot90").arg("/nowhere.json").run();
    nowhere.complains(65, &["/nowhere.json: cannot be read: No such file"]);
    run("rot90").arg("-").arg("-").run().complains(2, &["`-` is named twice"]);
}

#[test]
fn bad_programs_are_usage_errors_that_point_at_the_place() {
    let cases: [(&str, &[&str]); 30] = [
        ("rot91", &["there is no op `rot91`\n  rot91\n  ^^^^^\n  close to it: rot90"]),
        ("hmirror | frobnicate", &["frobnicate\n            ^^^^^^^^^^"]),
        ("flip", &["`flip` is a boolean not", "hmirror", "vmirror"]),
        ("rot90(3)", &["`rot90` takes 0 arguments, got 1"]),
        ("replace(1)", &["`replace` takes 2 arguments, got 1"]),
        ("replace(0, 10)", &["a colour from 0 to 9, got `10`\n  replace(0, 10)\n             ^^"]),
        ("objects(1, 2, 3)", &["objects(1, 2, 3)\n          ^"]),
        ("palette | rot90", &["`rot90` works on a grid", "a list of colours"]),
        ("rot90 |", &["expected an op"]),
        ("", &["expected an op"]),
        ("rot90)", &["this bracket closes nothing"]),
        ("rot90 | hconcat", &["`hconcat` works on a pair or tuple of grids", "gives a grid"]),
        ("first | second", &["`second` works on a list of objects or a pair", "gives a grid"]),
        ("o_g(1) | subgrid", &["`subgrid` works on an object or a patch", "a list of objects"]),
        ("ofcolor(3) | paint", &["`paint` works on an object, but", "gives a patch"]),
        ("ofcolor(1) | o_g(1)", &["`o_g` works on a grid, but", "gives a patch"]),
        ("shape | rot90", &["`rot90` works on a grid, but", "gives a vector"]),
        ("square | height", &["`height` works on a grid, an object or a patch", "gives a flag"]),
        ("fill(5)", &["`fill` works on an object or a patch, but a program starts with a grid"]),
        ("hsplit(2) | rot90", &["gives a pair of grids\n", "for each of them write apply(rot90)"]),
        ("hsplit(3) | cellwise(0)", &["works on a pair of grids", "gives a tuple of 3 grids"]),
        ("rot90 | apply(rot90)", &["`apply` works on a pair or tuple", "gives a grid"]),
        ("apply(palette | rot90)", &["\n  apply(palette | rot90)\n                  ^^^^^"]),
        ("apply(hsplit(2))", &["inside `apply` each element must stay one value"]),
        ("nth(2)", &["a pair of grids has elements 0 to 1, or -2 to -1, not 2"]),
        ("fill(5, palette)", &["`fill` needs an object or a patch here, got a list of colours"]),
        ("fill(5, rot90 | ofcolor(1))", &["`rot90` would change the grid that `fill` works on"]),
        ("upscale(31)", &["`factor` of `upscale` is a number from 1 to 30, got `31`"]),
        ("canvas(0, 255, 255)", &["a grid of 255 x 255 has more than 4096 cells"]),
        ("o_g(1) | argmax(weight)", &["`key` of `argmax` is one of size, height", "got `weight`"]),
    ];
    for (text, words) in cases {
        run(text).arg(data("tasks/lines.json")).run().complains(2, words);
    }
}

#[test]
fn bad_flags_are_usage_errors_that_say_what_to_write() {
    let cases: [(&[&str], &[&str]); 12] = [
        (&["--devices", "cpu:0"], &["--devices: `cpu:0`: cpu:N needs N from 1 to 64"]),
        (&["--devices", "cpu:65"], &["cpu:N needs N from 1 to 64"]),
        (&["--devices", "cpu"], &["--devices: `cpu`"]),
        (&["--devices", "tpu:1"], &["--devices: `tpu:1`"]),
        (&["--devices", ""], &["--devices"]),
        (&["--devices", "cpu:1,cpu:2"], &["named twice"]),
        (&["--device", "cpu:1"], &["unexpected argument '--device'", "'--devices'"]),
        (&["--batch", "0"], &["0 is not in 1..="]),
        (&["--deadline", "soon"], &["write a number of seconds from 0 to 3600"]),
        (&["--deadline=-1"], &["write a number of seconds from 0 to 3600"]),
        (&["--ties", "highest"], &["write cpython or lowest"]),
        (&["--json", "--all"], &["cannot be used with"]),
    ];
    for (arguments, words) in cases {
        on_a_task(arguments).complains(2, words);
    }
    gridpool(["frob"]).run().complains(2, &["unrecognized subcommand 'frob'"]);
    let kill = gridpool(["kill", "cpu0", "--signal", "FOO"]).run();
    kill.complains(2, &["`FOO` is no signal: write KILL"]);
    let from_environment = gridpool(["run", PROGRAM]).env("GRIDPOOL_DEVICES", "cpu:0");
    from_environment.arg(data("tasks/lines.json")).run().complains(2, &["`cpu:0`"]);
}

#[test]
fn where_no_pool_runs_each_command_says_so() {
    let commands: [&[&str]; 4] = [&["status"], &["kill", "cpu0"], &["drain"], &["submit", "rot90"]];
    for command in commands {
        let call = gridpool(command.iter().chain(&["--socket", "/nowhere/pool.sock"]));
        let finished = call.stdin("[[[1]]]").run();
        let sentence = "no pool is running at /nowhere/pool.sock: start one with `gridpool serve`";
        finished.complains(69, &[sentence, "--socket"]);
    }
}

#[test]
fn a_machine_without_a_gpu_is_told_what_to_type() {
    if Path::new("/proc/driver/nvidia/version").exists() {
        return;
    }
    for devices in [&["--devices", "0"][..], &["--devices", "all"], &[]] {
        on_a_task(devices).complains(69, &["no GPU found", "type --devices cpu:2"]);
    }
    let folder = tempfile::tempdir().expect("a folder for temporary files");
    let serve = gridpool(["serve", "--socket"]).arg(folder.path().join("pool.sock")).run();
    serve.complains(69, &["no GPU found", "type --devices cpu:2"]);
}

#[test]
fn a_bad_config_file_is_named_with_its_line() {
    let folder = tempfile::tempdir().expect("a folder for temporary files");
    let path = folder.path().join("pool.toml");
    let cases = [
        ("devices = ", "line 1: not TOML"),
        ("\ndevice = 'cpu:1'", "line 2: there is no setting `device`"),
        ("devices = 'cpu:0'", "line 1: `cpu:0`"),
        ("[limits]\nattempts_max = 0", "line 2: `attempts_max` needs a whole number from 1"),
        ("[limits]\nattemps_max = 1", "line 2: there is no limit `attemps_max`; close to it"),
    ];
    for (text, words) in cases {
        fs::write(&path, text).expect("a file can be written");
        let place = format!("{}, ", path.display());
        let config = path.to_str().expect("a readable path");
        on_a_task(&["--devices", "cpu:1", "--config", config]).complains(78, &[&place, words]);
        gridpool(["serve", "--config", config]).run().complains(78, &[&place, words]);
    }
    on_a_task(&["--config", "/nowhere.toml"]).complains(78, &["/nowhere.toml: cannot read"]);
}

#[test]
fn a_missing_worker_is_named() {
    let words = ["/nowhere/worker is not there: build it with `cargo build", "--worker-bin"];
    on_a_task(&["--devices", "cpu:1", "--worker-bin", "/nowhere/worker"]).complains(73, &words);
    on_a_task(&["--devices", "cpu:1", "--worker-bin", "/"]).complains(73, &["/ is not there"]);
}

#[test]
fn a_socket_that_cannot_be_is_refused_with_a_remedy() {
    let folder = tempfile::tempdir().expect("a folder for temporary files");
    let serve =
        |socket: &Path| gridpool(["serve", "--devices", "cpu:1", "--socket"]).arg(socket).run();
    let long = folder.path().join("x".repeat(108));
    serve(&long).complains(2, &["--socket", "at most 107"]);
    serve(Path::new("")).complains(2, &["--socket"]);

    let file = folder.path().join("file");
    fs::write(&file, "mine").expect("a file can be written");
    serve(&file).complains(69, &["exists and is not a socket", "--socket"]);
    assert_eq!(fs::read_to_string(&file).expect("it is still there"), "mine");
    serve(&file.join("pool.sock")).complains(69, &["file"]);

    let shared = folder.path().join("shared");
    fs::create_dir(&shared).expect("a folder can be made");
    for mode in [0o777, 0o770, 0o720] {
        fs::set_permissions(&shared, fs::Permissions::from_mode(mode)).expect("a mode can be set");
        let socket = shared.join("pool.sock");
        serve(&socket).complains(69, &["is not a directory that only you may write to", "chmod"]);
        assert!(!socket.exists());
    }
}

#[test]
fn whoever_stops_reading_the_results_has_had_enough() {
    let run = gridpool(["run", "rot90", "--devices", "cpu:1", "--all"]).arg(data("tasks"));
    let finished = run.without_stdout();
    assert_eq!((finished.code, &*finished.stderr), (Some(0), ""));
}
