//! `gridpool config` and `gridpool completions`: the settings of a pool with their origins, all errors of a
//! config file, and a script that a real shell runs.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use gridpool_tests::oracle::samples::random_grids;
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::command::gridpool;
use crate::jobs::{PROGRAM, data, job};
use crate::pool::cpu;
use crate::wait::eventually_so;

/// A config file in a folder of its own.
fn config(text: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder for temporary files");
    let path = folder.path().join("pool.toml");
    fs::write(&path, text).expect("a file can be written");
    (folder, path)
}

/// A setting of the document: its value and its origin.
fn setting<'a>(document: &'a Value, name: &str) -> (&'a Value, &'a Value) {
    let all = document["settings"].as_array().expect("a list of settings");
    let found = all.iter().find(|setting| setting["name"] == name).expect(name);
    (&found["value"], &found["origin"])
}

#[test]
fn show_names_the_flag_the_variable_or_the_line_that_a_setting_comes_from() {
    let text = "devices = 'cpu:3'\nallow_chaos = true\n[limits]\nqueue_jobs_max = 7\n\
                standbys = 2\n";
    let (_folder, path) = config(text);
    let show = |json: &[&str]| {
        gridpool(["config", "show", "--standby", "1", "--model", "m=/m.onnx", "--config"])
            .arg(&path)
            .args(json)
            .env("GRIDPOOL_DEVICES", "cpu:2")
            .env("GRIDPOOL_STANDBY", "3")
            .env("GRIDPOOL_HTTP", "127.0.0.1:0")
            .run()
    };
    let document = show(&["--json"]).document();
    let file = |line: u64| serde_json::json!({"kind": "file", "file": path.to_str().expect("readable"), "line": line});
    let variable = |name: &str| serde_json::json!({"kind": "environment", "variable": name});
    let flag = |name: &str| serde_json::json!({"kind": "flag", "flag": name});
    let wanted = [
        // A variable beats the file, a flag beats both.
        ("devices", "cpu:2".into(), variable("GRIDPOOL_DEVICES")),
        ("limits.standbys", 1.into(), flag("--standby")),
        ("http", "127.0.0.1:0".into(), variable("GRIDPOOL_HTTP")),
        ("allow_chaos", true.into(), file(2)),
        ("limits.queue_jobs_max", 7.into(), file(4)),
        ("limits.kill_timeout_ms", 5_000.into(), serde_json::json!({"kind": "default"})),
        ("model.m.path", "/m.onnx".into(), flag("--model")),
        ("worker_bin", Value::Null, serde_json::json!({"kind": "default"})),
    ];
    for (name, value, origin) in wanted {
        let got = setting(&document, name);
        assert_eq!((got.0, got.1), (&value, &origin), "{name}");
    }
    let table = show(&[]).output();
    assert!(table.lines().all(|line| line.chars().count() <= 100), "{table}");
    for words in ["environment GRIDPOOL_DEVICES", "flag --standby", "line 4", "kill_timeout_s"] {
        assert!(table.contains(words), "`{words}` is not in: {table}");
    }
}

#[test]
fn a_pool_uses_the_settings_that_show_lists() {
    let text = "standbys = 1\n[policy]\n'cuda 2' = 'restart'\n";
    let (_folder, path) = config(&format!("[limits]\n{text}"));
    let pool = cpu(2).limits(text).start_early();
    let document = gridpool(["config", "show", "--devices", "cpu:2", "--json", "--config"]);
    let document = document.arg(&path).run().document();
    let (standbys, _) = setting(&document, "limits.standbys");
    let workers = 2 * (1 + standbys.as_u64().expect("a number"));
    // A standby is started when its device is served.
    pool.until_status("a row for every worker", |s| s.workers.len() as u64 == workers);
    let policy = pool.cli(&["status", "--policy", "--json"]).run().document();
    let changed = policy["rules"].as_array().expect("rules").iter();
    let changed: Vec<_> = changed.filter(|rule| rule["configured"] == true).collect();
    assert_eq!(changed.len(), 1);
    let (response, _) = setting(&document, "policy.cuda 2");
    assert_eq!(*response, changed[0]["response"]);
}

#[test]
fn a_model_without_the_bytes_that_a_limit_asks_for_is_named_with_its_line() {
    let model = data("models/mlp.onnx");
    let text = format!(
        "[[model]]\nname = 'mlp'\npath = '{}'\n\n[limits]\nmodel_bytes_max = 1_000\n",
        model.display()
    );
    let (_folder, path) = config(&text);
    let lacks = format!("{}, line 2: the model `mlp` has no `device_bytes`", path.display());
    gridpool(["config", "check"]).arg(&path).run().complains(78, &[&lacks]);
    gridpool(["serve", "--config"]).arg(&path).run().complains(78, &[&lacks]);
}

#[test]
fn a_wire_that_no_program_can_take_is_named_with_its_line_before_a_model_is_loaded() {
    let text = format!(
        "[[pipeline]]\nname = 'line'\ninputs = ['x']\noutputs = {{ out = 'turn.grids' }}\n\
         [[pipeline.steps]]\nname = 'color'\nmodel = '{}'\ninputs = {{ x = 'x' }}\n\
         [[pipeline.steps]]\nname = 'cut'\nprogram = 'compress'\nresult = [9, 9]\n\
         inputs = {{ grids = 'color.grids' }}\n\
         [[pipeline.steps]]\nname = 'turn'\nprogram = 'rot90'\ninputs = {{ grids = 'cut.sizes' }}\n",
        data("models/colors.onnx").display()
    );
    let (_folder, path) = config(&text);
    let wrong = format!(
        "{}, line 14: pipeline `line`: the step `turn` takes `cut.sizes` as its input `grids`: that is INT64 [?, 2], \
         and it takes UINT8 [?, ?, ?]",
        path.display()
    );
    gridpool(["config", "check"]).arg(&path).run().complains(78, &[&wrong]);
    gridpool(["serve", "--devices=cpu:1", "--config"]).arg(&path).run().complains(78, &[&wrong]);
}

#[test]
fn an_address_that_serve_refuses_is_warned_of() {
    let said = |more: &str| {
        let (_folder, path) = config(&format!("grpc = '0.0.0.0:8001'\n{more}"));
        gridpool(["config", "check"]).arg(&path).run().output()
    };
    let open = said("");
    assert!(open.contains("line 1: warning: everyone who reaches 0.0.0.0:8001"), "{open}");
    assert!(!said("insecure = true\n").contains("warning"));
}

#[test]
fn check_counts_the_settings_or_lists_all_errors() {
    let (_folder, path) = config("devices = 'cpu:1'\n[limits]\nqueue_jobs_max = 7\n");
    let said = gridpool(["config", "check"]).arg(&path).run().output();
    assert_eq!(said, format!("{}: ok, 2 settings\n", path.display()));
    let said = gridpool(["config", "check"]).env("GRIDPOOL_CONFIG", &path).run().output();
    assert!(said.ends_with(": ok, 2 settings\n"), "{said}");

    let text = "devices = 'gpu1'\n[limits]\nqueue_jobs_max = 0\n[[model]]\nname = 'm'\n\
                path = 'm.onnx'\ncontexts = 'four'\n";
    let (_folder, path) = config(text);
    let line = |number: u32, reason: &str| format!("{}, line {number}: {reason}", path.display());
    gridpool(["config", "check"]).arg(&path).run().complains(
        78,
        &[
            &line(1, "`gpu1`: a GPU is named by its index alone: 1"),
            &line(3, "`queue_jobs_max` needs a whole number from 1 to 1000000"),
            &line(7, "`contexts` of the model `m` needs a whole number, such as 4"),
        ],
    );
    gridpool(["config", "check", "/none"]).run().complains(78, &["/none: cannot read"]);
    gridpool(["config", "check"]).run().complains(2, &["<FILE>"]);
    // The same file, where a pool is to be started with it or shown: the first error, the same code.
    let shown = gridpool(["config", "show", "--config"]).arg(&path).run();
    shown.complains(78, &[&line(1, "`gpu1`")]);
}

#[test]
fn an_error_in_a_variable_names_the_variable() {
    let call = gridpool(["config", "show"]).env("GRIDPOOL_DEVICES", "cpu:0").run();
    call.complains(2, &["GRIDPOOL_DEVICES: `cpu:0`: cpu:N needs N from 1 to 64"]);
    for (name, value) in [("STANDBY", "abc"), ("ALLOW_CHAOS", "perhaps"), ("LOG_FORMAT", "xml")] {
        let name = format!("GRIDPOOL_{name}");
        let call = gridpool(["config", "show"]).env(&name, value).run();
        call.complains(2, &[&format!("invalid value '{value}' for '{name}'")]);
    }
    let runtime = tempfile::tempdir().expect("a folder for temporary files");
    let call = gridpool(["config", "show"]).env("XDG_RUNTIME_DIR", runtime.path()).run();
    let socket = call.output().lines().find(|line| line.starts_with("socket")).map(str::to_owned);
    assert!(socket.is_some_and(|line| line.contains("environment XDG_RUNTIME_DIR")));
}

#[test]
fn version_names_the_workers_kernels() {
    let said = gridpool(["--version"]).run().output();
    let lines: Vec<_> = said.lines().collect();
    let build = gridpool_protocol::build::text();
    assert_eq!(lines[..2], [format!("gridpool {build}"), format!("gridpool-worker {build}")]);
    let kernels = [
        format!("kernels {} on a GPU", gridpool_kernels::module::module_hash()),
        format!("kernels {} on a CPU", gridpool_kernels::reference::source_hash()),
    ];
    assert_eq!(lines[2..], kernels);
    let alone = gridpool(["--version"]).env("GRIDPOOL_WORKER_BIN", "/no/worker").run();
    assert_eq!(alone.output(), format!("gridpool {build}\n"));
}

#[test]
fn a_filter_of_the_log_that_would_silence_it_is_refused() {
    let (_folder, path) = config("devices = 'cpu:1'\n");
    let path = path.to_str().expect("a readable path");
    let commands: [&[&str]; 4] =
        [&["run", "rot90"], &["serve", "--config", path], &["config", "check", path], &["status"]];
    for command in commands {
        let call = |filter: &str| gridpool(command).env("GRIDPOOL_LOG", filter).run();
        let words = ["GRIDPOOL_LOG: `verbose` is not a level: write one of off, error, warn"];
        call("verbose").complains(2, &words);
        call("gridpool=debgu").complains(2, &["`debgu` is not a level", "; close to it: debug"]);
        call("gridpol=debug").complains(2, &["`gridpol` is not a crate of gridpool"]);
    }
    let check = gridpool(["config", "check", path]).env("GRIDPOOL_LOG", "warn,gridpool=info");
    assert!(check.run().output().ends_with(": ok, 1 setting\n"));
}

#[test]
fn an_unknown_variable_is_a_warning_with_the_closest_name() {
    let says = "GRIDPOOL_DEVICE: ";
    let meant = "gridpool reads no such variable; close to it: GRIDPOOL_DEVICES\n";
    let (_folder, path) = config("devices = 'cpu:1'\n");
    let check = gridpool(["config", "check"]).arg(&path).env("GRIDPOOL_DEVICE", "cpu:2").run();
    assert!(check.output().starts_with(&format!("{says}warning: {meant}")));
    let run = gridpool(["run", "rot90", "--quiet", "--devices", "cpu:1"]);
    let run = run.env("GRIDPOOL_DEVICE", "cpu:2").stdin("[[[1]]]").run();
    let said = format!("gridpool: warning: {says}{meant}");
    assert_eq!((run.code, &*run.stderr), (Some(0), &*said));
    let pool = cpu(1).env("GRIDPOOL_DEVICE", "cpu:2").start();
    assert!(pool.log().starts_with(&said), "{}", pool.log());
    let ops = gridpool(["ops", "rot90"]).env("GRIDPOOL_DEVICE", "cpu:2").run();
    assert!(ops.output().starts_with("rot90\n"), "it asks for no variable");
}

#[test]
fn bash_takes_the_completions_and_completes_with_them() {
    let (folder, _) = config("");
    let script = folder.path().join("gridpool.bash");
    let text = gridpool(["completions", "bash"]).run().output();
    fs::write(&script, text).expect("a file can be written");
    let bash = |code: &str| {
        let call = Command::new("bash").arg("-c").arg(code).arg("bash").arg(&script).output();
        let call = call.expect("bash can be started");
        assert!(call.status.success(), "{}", String::from_utf8_lossy(&call.stderr));
        String::from_utf8(call.stdout).expect("bash prints UTF-8")
    };
    let registered = bash("source \"$1\"; complete -p gridpool");
    assert!(registered.contains("-F _gridpool"), "{registered}");
    let offer = |words: &str| {
        let code = format!(
            "source \"$1\"; COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
             words=(\"${{COMP_WORDS[COMP_CWORD]}}\" \"${{COMP_WORDS[COMP_CWORD - 1]}}\"); \
             _gridpool gridpool \"${{words[@]}}\"; echo \"${{COMPREPLY[@]}}\""
        );
        bash(&code)
    };
    assert_eq!(offer("gridpool compl").trim(), "completions");
    assert_eq!(offer("gridpool gat").trim(), "", "a hidden command is not offered");
    assert!(offer("gridpool serve --all").contains("--allow-chaos"));
    for (words, want) in [
        ("gridpool serve --log-format j", "json"),
        ("gridpool submit --ties l", "lowest"),
        ("gridpool kill --signal SEG", "SEGV"),
        ("gridpool diagnose --only iso", "isolation"),
        ("gridpool chaos oo", "oob"),
        ("gridpool ops underf", "underfill"),
        ("gridpool completions fi", "fish"),
    ] {
        assert_eq!(offer(words).trim(), want, "{words}");
    }
}

#[test]
fn sighup_reads_the_config_again_and_says_what_changes_and_what_does_not() {
    let pool = cpu(1).start();
    let reload = |text: &str, says: &str| {
        fs::write(pool.folder().join("pool.toml"), text).expect("a file can be written");
        pool.signal(Signal::SIGHUP);
        eventually_so(&format!("the pool to say {says}"), || pool.log().contains(says));
    };
    let chaos = || pool.cli(&["chaos", "slow"]).run();
    chaos().complains(1, &["this pool takes no faults"]);

    let changed = "changed=\"allow_chaos, policy, limits.client_jobs_max";
    let text = "allow_chaos = true\ndevices = 'cpu:1'\n[limits]\nclient_jobs_max = 1\nstandbys = 1\n\
                [policy]\n'cuda 2' = 'restart'\n";
    reload(text, changed);
    let fixed = "change only when the pool starts again fixed=\"limits.standbys\"";
    eventually_so("what is fixed", || pool.log().contains(fixed));
    assert_eq!(chaos().code, Some(0));
    let policy = pool.observer().policy().expect("the pool answers");
    assert!(policy.iter().any(|rule| rule.configured && rule.fault == "cuda 2"));
    let client = pool.client();
    pool.stop("cpu0");
    let first = job(PROGRAM, &random_grids(1, 5)).refuse_if_busy();
    let first = client.submit(first).expect("there is room for one");
    let second = client.submit(job(PROGRAM, &random_grids(1, 5)).refuse_if_busy());
    let refused = second.and_then(|second| second.wait()).expect_err("one is the limit now");
    let refused = refused.to_string();
    assert!(refused.contains("this client has as many jobs as it may"), "{refused}");
    pool.go_on("cpu0");
    assert!(first.wait().is_ok());

    // A wrong config changes nothing.
    reload("allow_chaos = false\n[limits]\nclient_jobs_max = 'many'\n", "pool.toml, line 3: ");
    assert_eq!(chaos().code, Some(0));
    reload("", "changed=\"allow_chaos, policy, limits.");
    chaos().complains(1, &["this pool takes no faults"]);
}

#[test]
fn a_setting_that_has_no_effect_or_no_file_is_refused_with_what_to_type() {
    let serve = |given: &[&str]| gridpool(["serve", "--devices", "cpu:1"]).args(given).run();
    let http = ["--http", "127.0.0.1:0"];
    let cases: [(&[&str], i32, &[&str]); 16] = [
        (&["--standby", "-1"], 2, &["invalid value '-1' for '--standby <N>'"]),
        (&["--operators", "-1"], 2, &["--operators: ", "`-1`"]),
        (
            &["--http-tokens", "/none"],
            2,
            &["--http-tokens: it says how HTTP and gRPC are served, and neither is: add --http"],
        ),
        (
            &["--http-group", "root"],
            2,
            &["--http-group: it says how HTTP and gRPC are served, and neither is: add --http"],
        ),
        (
            &["--http-host", "gpu.example.org"],
            2,
            &["--http-host: it says how HTTP and gRPC are served, and neither is: add --http"],
        ),
        (
            &["--insecure"],
            2,
            &["--insecure: it says how HTTP and gRPC are served, and neither is: add --http"],
        ),
        (
            &["--access-log"],
            2,
            &["--access-log: it says how HTTP and gRPC are served, and neither is: add --http"],
        ),
        (
            &["--nats-prefix", "one"],
            2,
            &["--nats-prefix: it says how a cluster is reached, and none is named: add --nats"],
        ),
        (
            &["--trace-sample", "0.5"],
            2,
            &["--trace-sample: it says how traces are sent, and none are: add --trace"],
        ),
        (&[&http[..], &["--http-group", "root"]].concat(), 2, &["--http-group: ", "unix:/path"]),
        (
            &[&http[..], &["--http-tokens", "/none"]].concat(),
            78,
            &["--http-tokens: /none cannot be read: name a file", "No such file"],
        ),
        (&["--model-repository", "/none"], 2, &["/none cannot be read: ", "name a folder"]),
        (&["--repository", "poll"], 2, &["--repository: there is no model repository to follow: "]),
        (&["--state-dir", "/etc/passwd"], 78, &["/etc/passwd is not a folder: name one"]),
        (&["--state-dir", "/none/a"], 78, &["/none/a cannot be made: make it with `mkdir"]),
        (
            &["--model-repository", "/etc/passwd"],
            2,
            &["/etc/passwd cannot be read: ", "name a folder"],
        ),
    ];
    for (given, code, said) in cases {
        serve(given).complains(code, said);
    }
    gridpool(["run", "rot90", "--steps", "-1"])
        .run()
        .complains(2, &["invalid value '-1' for '--steps"]);
    // A relative path is of this folder, whatever that of the workers.
    let folder = tempfile::tempdir().expect("a folder for temporary files");
    let show = gridpool(["config", "show", "--json", "--sandbox-write", "profiles"]);
    let document = show.current_dir(folder.path()).run().document();
    let path = folder.path().canonicalize().expect("it is there").join("profiles");
    let paths = serde_json::json!([path.to_str().expect("readable")]);
    assert_eq!(setting(&document, "sandbox_write").0, &paths);
}

#[test]
fn what_says_how_http_is_served_needs_an_address() {
    let (_folder, path) = config("devices = 'cpu:1'\nshared_memory = true\n");
    let lacks = format!(
        "{}, line 2: `shared_memory` says how HTTP and gRPC are served, and neither is: add `http` or `grpc`",
        path.display()
    );
    for call in [&["serve", "--config"][..], &["config", "show", "--config"]] {
        gridpool(call).arg(&path).run().complains(78, &[&lacks]);
    }
    let checked = gridpool(["config", "check"]).arg(&path).run().output();
    assert!(checked.contains("line 2: warning: `shared_memory` says how HTTP"), "{checked}");
    let (_folder, grouped) = config("http = '127.0.0.1:0'\nhttp_group = 'root'\n");
    let alone = "line 2: a group has no part in an address: ";
    gridpool(["config", "show", "--config"]).arg(&grouped).run().complains(78, &[alone]);
    let checked = gridpool(["config", "check"]).arg(&grouped).run().output();
    assert!(checked.contains("line 2: warning: a group has no part in an address: "), "{checked}");
    // The address may come from a flag; and others than `serve` serve none.
    let show = gridpool(["config", "show", "--grpc", "127.0.0.1:0", "--config"]);
    show.arg(&path).run().output();
    gridpool(["run", "rot90", "--config"]).arg(&path).arg(data("grids.json")).run().output();
    let none = [
        "GRIDPOOL_HTTP_HOST: it says how HTTP and gRPC are served, and neither is: add --http or --grpc",
    ];
    let serve = || gridpool(["serve", "--devices", "cpu:1"]);
    serve().env("GRIDPOOL_HTTP_HOST", "gpu.example.org").run().complains(2, &none);
    // What is off asks for nothing.
    gridpool(["config", "show", "--insecure=false"]).run().output();
}

#[test]
fn help_that_cannot_be_written_is_an_error() {
    for call in [&["--help"][..], &["serve", "--help"], &["-h"]] {
        let full = fs::File::options().write(true).open("/dev/full").expect("Linux has it");
        gridpool(call).into_file(full).complains(74, &["standard output: No space left on device"]);
    }
    assert_eq!(gridpool(["serve", "--help"]).run().code, Some(0));
    gridpool(["serve", "--nonsense"]).run().complains(2, &["'--nonsense'"]);
}
