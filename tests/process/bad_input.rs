//! Mistakes of users: each ends with the exit code of its kind and a sentence that names the place or what to
//! type instead.

use std::fs;

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use crate::binaries;
use crate::command::{Cli, Finished, gridpool, gridpool_at};
use crate::jobs::{PROGRAM, data, small_job, submit};
use crate::needs::is_root;
use crate::pool::cpu;
use crate::wait::eventually_so;

/// Every file of `tests/data/bad`, and words of its error.
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
    ("one_pair.json", &["this is one pair, not a list of pairs: put it into [ ]"]),
    ("pair_among_grids.json", &["pair 1: this is a pair in a list of grids: put grids and"]),
    ("pair_with_empty_output.json", &["pair 0, output: the grid is empty"]),
    ("pair_with_other_key.json", &["pair 1: there is no key `grid` here: a pair has `input`"]),
    ("pair_with_output_null.json", &["pair 0, output: expected a grid", "no such key", "null"]),
    ("pair_without_input.json", &["pair 1: the key `input` is missing"]),
    ("ragged.json", &["grid 1: row 1 has 2 cells, row 0 has 3"]),
    ("side_256.json", &["grid 0: the grid is 1 x 256; a side has at most 255 cells"]),
    ("task_ragged.json", &["train pair 0, output: row 1 has 1 cells, row 0 has 2"]),
    ("task_without_input.json", &["train pair 0: the key `input` is missing"]),
    ("task_without_train_and_test.json", &["task training", "`train` and `test`"]),
    ("truncated.npy", &["it ends too early: 1 bytes of the array are missing"]),
    // A good file with one grid.
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
    assert!(crate::jobs::answer(good).outputs().is_some());
}

#[test]
fn a_missing_input_is_named() {
    run("rot90").run().complains(65, &["standard input: it is empty"]);
    run("rot90").stdin("[[[1, 2], [3]]]").run().complains(65, &["standard input: grid 0: row 1"]);
    let nowhere = run("rot90").arg("/nowhere.json").run();
    nowhere.complains(65, &["/nowhere.json: cannot be read: No such file"]);
    run("rot90").arg("-").arg("-").run().complains(2, &["`-` is named twice"]);
    let typed = gridpool(["check", "rot90 | hmirror"]).run();
    typed.complains(65, &["no file has this name", "echo 'rot90 | hmirror' | gridpool check -"]);
    let wrong = gridpool(["check", "O = foo(I)"]).run();
    wrong.complains(65, &["no file has this name", "`gridpool run` takes a program that is typed"]);
}

#[test]
fn what_is_said_of_a_text_does_not_steer_the_terminal() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("red.py");
    fs::write(&program, "O = rot90(\x1b[31mX)\n").expect("a file");
    let check = |flags: &[&str]| gridpool(["check"]).arg(&program).args(flags).run();
    let calls = [
        run("rot90").arg("/tmp/\x1b[31mfoo").run(),
        gridpool(["run", "rot90", "--steps", "\x1b[31m1"]).run(),
        check(&[]),
        check(&["--all"]),
    ];
    for call in calls {
        let said = call.stdout + &call.stderr;
        assert!(!said.contains('\x1b') && !said.is_empty(), "{said:?}");
    }
}

#[test]
fn what_newcomers_type_is_told_what_to_type_instead() {
    let (tasks, grids) = (data("tasks").display().to_string(), data("grids.json"));
    let solvers = data("solvers.py").display().to_string();
    run("@").arg(&grids).run().complains(65, &["@: no file is named: write @FILE or @FILE:NAME"]);
    let folder = format!("{tasks}: it is a folder: name a file of programs");
    run(&format!("@{tasks}")).arg(&grids).run().complains(65, &[&folder]);
    gridpool(["check", &tasks]).run().complains(65, &[&folder]);
    run(&format!("@{solvers}:")).arg(&grids).run().complains(65, &["it has 4 programs: name one"]);
    let bars = "write `|` between ops, and arguments in brackets: replace(1, 7)";
    run("rot90 trim").arg(&grids).run().complains(2, &[bars]);
    run("rot90")
        .arg("no*.json")
        .run()
        .complains(65, &["no*.json: no file has this name, and your"]);
    let model = data("models/mlp.onnx");
    run("rot90").arg(model).run().complains(65, &["mlp.onnx: it begins as no JSON, .npz"]);
    let programs = format!("{solvers}: it is a file of programs, not of grids: it stands in the");
    run("rot90").arg(&solvers).run().complains(65, &[&programs]);
    let swapped = gridpool(["solve", &tasks, &solvers, "--devices=cpu:1"]).run();
    swapped.complains(65, &[&programs]);
    let empty = gridpool(["solve", "-", &tasks, "--devices=cpu:1"]).stdin("").run();
    empty.complains(65, &["gridpool: standard input has no `def solve_commonest"]);
}

#[test]
fn swapped_arguments_are_corrected() {
    let tasks = data("tasks").display().to_string();
    let swapped = format!("`{tasks}` is a folder, not a program: write the program first, ");
    run(&tasks)
        .arg("rot90 | trim")
        .run()
        .complains(2, &[&swapped, &format!("'rot90 | trim' {tasks}")]);
    run(&tasks).arg(data("grids.json")).run().complains(2, &[&swapped, "PROGRAM", "--program"]);
    run("nope.py").arg(data("grids.json")).run().complains(65, &["there is no file `nope.py`"]);
    gridpool(["compile", "nope.py"]).run().complains(65, &["there is no file `nope.py`"]);
    let dash = "`-` is standard input, not a program: write the program first, ";
    run("-").arg("rot90").stdin("[[[1]]]").run().complains(2, &[dash, "'rot90' -"]);
    run("-").stdin("[[[1]]]").run().complains(2, &[dash, "PROGRAM -"]);
    run("rot90")
        .arg("trim")
        .arg(&tasks)
        .run()
        .complains(2, &["there is no file `trim`", "'rot90 | trim'"]);
    let (npz, model) = (data("two_inputs.npz").display().to_string(), "two_inputs");
    let said = format!("a file, not a model's name: write the model first, {model} {npz}");
    gridpool(["infer", &npz, model]).run().complains(2, &[&said]);
    let said =
        format!("`-` is standard input, not a model's name: write the model first, {model} -");
    gridpool(["infer", "-", model]).run().complains(2, &[&said]);
    let nowhere = ["/nowhere/pool.sock: start one"];
    let infer = gridpool(["infer", model, &npz, "--socket", "/nowhere/pool.sock", "--no-wait"]);
    infer.run().complains(69, &nowhere);
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
        ("", &["the program is empty"]),
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
fn one_op_is_described_in_full_and_a_wrong_name_gets_the_closest() {
    let fill = gridpool(["ops", "fill"]).run().output();
    for words in
        ["fill(color, places)\n", "  color   a colour from 0 to 9\n", "'fill(0, ofcolor(0))'"]
    {
        assert!(fill.contains(words), "`{words}` is not in: {fill}");
    }
    let document = gridpool(["ops", "rot90", "fill", "--json"]).run().document();
    let names: Vec<_> = (0..2).map(|at| document["ops"][at]["name"].clone()).collect();
    assert_eq!((names, document["ops"][2].is_null()), (vec!["rot90".into(), "fill".into()], true));
    gridpool(["ops", "fil"])
        .run()
        .complains(2, &["no op `fil`\n  fil\n  ^^^\n  close to it: fill"]);
    gridpool(["ops", "flip"]).run().complains(2, &["write hmirror (top and bottom) or vmirror"]);
    gridpool(["ops", "rot90", "--markdown"]).run().complains(2, &["cannot be used with"]);
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
        (&["--batch", "0"], &["'0' for '--batch <ITEMS>': write a whole number from 1 to 1000000"]),
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
    kill.complains(2, &["`FOO` is not a signal: write KILL"]);
    let from_environment = gridpool(["run", PROGRAM]).env("GRIDPOOL_DEVICES", "cpu:0");
    from_environment.arg(data("tasks/lines.json")).run().complains(2, &["`cpu:0`"]);
}

#[test]
fn without_a_pool_each_command_says_so() {
    let submit: &[&str] = &["submit", "rot90", "--no-wait"];
    let commands: [&[&str]; 4] = [&["status"], &["kill", "cpu0"], &["drain"], submit];
    for command in commands {
        let call = gridpool(command.iter().chain(&["--socket", "/nowhere/pool.sock"]));
        let finished = call.stdin("[[[1]]]").run();
        let sentence = "no pool is running at /nowhere/pool.sock: start one with `gridpool serve`";
        finished.complains(69, &[sentence, "--socket"]);
    }
}

/// A copy of a binary that every user may run; the build's folder may be closed to others.
fn for_every_user(binary: &Path, folder: &Path) -> PathBuf {
    let copy = folder.join(binary.file_name().expect("a binary has a name"));
    fs::hard_link(binary, &copy).or_else(|_| fs::copy(binary, &copy).map(drop)).expect("a copy");
    copy
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("a mode can be set");
}

/// A user id without a user.
const STRANGER: u32 = 4_000_007;

#[test]
fn a_pool_that_this_user_may_not_reach_is_not_reported_as_missing() {
    let folder = tempfile::tempdir().expect("a folder for temporary files");
    let inner = folder.path().join("inner");
    fs::create_dir(&inner).expect("a folder can be made");
    let socket = inner.join("pool.sock");
    let start = format!("a pool may be running at {}, but you (user ", socket.display());
    if !is_root() {
        set_mode(&inner, 0o600);
        let status = gridpool(["status", "--socket"]).arg(&socket).run();
        let own = format!("{} is yours, but closed: type `chmod u+rwx", inner.display());
        status.complains(77, &[&start, &own, "Permission denied"]);
        set_mode(&inner, 0o700);
        return;
    }
    set_mode(folder.path(), 0o755);
    let _held = UnixListener::bind(&socket).expect("a socket can be bound");
    let program = for_every_user(binaries::gridpool(), folder.path());
    set_mode(&socket, 0o600);
    for (mode, barrier) in [(0o700, &inner), (0o755, &socket)] {
        set_mode(&inner, mode);
        let barrier = format!("{} belongs to user 0 (root): connect as", barrier.display());
        for command in [&["status"][..], &["status", "--policy"], &["top"], &["submit", "rot90"]] {
            let call = gridpool_at(&program, command).arg("--socket").arg(&socket);
            let finished = call.stdin("[[[1]]]").of_user(STRANGER).run();
            let me = format!("{start}{STRANGER}) may not connect to it: ");
            finished.complains(77, &[&me, &barrier, "Permission denied"]);
        }
    }
}

#[test]
fn a_pool_of_another_user_names_its_owner() {
    if !is_root() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder for temporary files");
    std::os::unix::fs::chown(folder.path(), Some(STRANGER), Some(STRANGER)).expect("a new owner");
    let program = for_every_user(binaries::gridpool(), folder.path());
    let worker = for_every_user(binaries::worker(), folder.path());
    let socket = folder.path().join("pool.sock");
    let serve = gridpool_at(&program, ["serve", "--devices", "cpu:1", "--worker-bin"]);
    let serve = serve.arg(worker).arg("--socket").arg(&socket).of_user(STRANGER);
    let mut serve = serve.start();
    eventually_so("the pool's socket to be there", || socket.exists());
    // Where another could put it, root does not believe it.
    set_mode(folder.path(), 0o777);
    let status = gridpool(["status", "--socket"]).arg(&socket).run();
    status.complains(77, &[&format!("belongs to user {STRANGER}, and you are user 0")]);
    serve.process.kill();
    // What is kept of root's pools is not for others.
    let capsule = folder.path().join("capsule.json");
    fs::write(&capsule, "{}").expect("it can be written");
    set_mode(&capsule, 0o600);
    let state = folder.path().join("state");
    fs::create_dir(&state).expect("it can be made");
    set_mode(&state, 0o700);
    let why = "only the pool's user and root can read";
    let stranger = |arguments: &[&str], path: &Path| {
        gridpool_at(&program, arguments).arg(path).of_user(STRANGER).run().complains(77, &[why]);
    };
    stranger(&["replay"], &capsule);
    stranger(&["jobs", "--state-dir"], &state);
}

#[test]
fn a_machine_without_a_gpu_gets_the_command_to_type() {
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
fn a_token_that_is_refused_at_once_is_not_made() {
    gridpool(["token", "new", "x", "--expires", "2020-01-01"]).run().complains(2, &["has passed"]);
}

#[test]
fn a_missing_worker_is_named() {
    let folder = ["/tmp is a folder, not the worker's binary: build it", "--worker-bin"];
    on_a_task(&["--devices", "cpu:1", "--worker-bin", "/tmp"]).complains(73, &folder);
    let words = ["there is no file /nowhere/worker: build it with `cargo build", "--worker-bin"];
    on_a_task(&["--devices", "cpu:1", "--worker-bin", "/nowhere/worker"]).complains(73, &words);
}

#[test]
fn an_impossible_socket_is_refused_with_a_remedy() {
    let folder = tempfile::tempdir().expect("a folder for temporary files");
    let serve =
        |socket: &Path| gridpool(["serve", "--devices", "cpu:1", "--socket"]).arg(socket).run();
    let long = folder.path().join("x".repeat(108));
    serve(&long).complains(2, &["--socket", "at most 107"]);
    serve(Path::new("")).complains(2, &["--socket"]);

    let file = folder.path().join("file");
    fs::write(&file, "mine").expect("a file can be written");
    serve(&file).complains(78, &["exists and is not a socket", "--socket"]);
    let input = data("grids.json").display().to_string();
    for command in [&["status"][..], &["submit", "rot90", &input]] {
        let call = gridpool(command).arg("--socket").arg(&file).run();
        call.complains(2, &["file is not a socket: name that of a pool with --socket"]);
    }
    assert_eq!(fs::read_to_string(&file).expect("it is still there"), "mine");
    serve(&file.join("pool.sock")).complains(78, &["file"]);
    let missing = folder.path().join("no/such");
    let place = missing.display();
    let remedy = format!("there is no folder {place}: make it with `mkdir -p -m 700 {place}`");
    serve(&missing.join("pool.sock")).complains(78, &[&remedy, "--socket"]);
    let entries = fs::read_dir(folder.path()).expect("the folder can be listed");
    let names: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.file_name())).collect();
    assert_eq!(names, ["file"], "a refusal makes nothing and leaves no lock");

    let shared = folder.path().join("shared");
    fs::create_dir(&shared).expect("a folder can be made");
    for mode in [0o777, 0o770, 0o720] {
        fs::set_permissions(&shared, fs::Permissions::from_mode(mode)).expect("a mode can be set");
        let socket = shared.join("pool.sock");
        serve(&socket).complains(78, &["is not a directory that only you may write to", "chmod"]);
        assert!(!socket.exists());
    }
}

#[test]
fn a_reader_that_closes_the_pipe_is_not_an_error() {
    let run = gridpool(["run", "rot90", "--devices", "cpu:1", "--all"]).arg(data("tasks"));
    let finished = run.without_stdout();
    assert_eq!((finished.code, &*finished.stderr), (Some(0), ""));
}
