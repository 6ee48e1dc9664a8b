//! `gridpool diagnose`: nothing wrong where nothing is, and every set-up that was broken on purpose named.
//!
//! All on CPU devices. What it finds of drivers is whatever this machine has, so nothing here is said of it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::binaries;
use crate::command::{Cli, Finished, gridpool, gridpool_under};
use crate::isolation::library;
use crate::pool::cpu;
use crate::processes::{Process, signal};
use crate::stubbed::gpus;
use crate::wait::eventually_so;

/// What it printed as JSON, and its exit code.
struct Diagnosis {
    checks: Vec<Value>,
    code: Option<i32>,
}

impl Diagnosis {
    #[track_caller]
    fn of(call: Cli) -> Self {
        let Finished { code, stdout, stderr } = call.arg("--json").run();
        let document: Value = serde_json::from_str(&stdout)
            .unwrap_or_else(|error| panic!("{error}: {stdout}{stderr}"));
        let checks = document["checks"].as_array().expect("a list of checks").clone();
        let count =
            |outcome: &str| checks.iter().filter(|check| check["outcome"] == outcome).count();
        assert_eq!(document["summary"]["passed"], count("pass"));
        assert_eq!(document["summary"]["skipped"], count("skip"));
        assert_eq!(document["summary"]["failed"], count("fail"));
        assert_eq!(code == Some(0), count("fail") == 0, "only without a failure it ends with 0");
        Self { checks, code }
    }

    /// The checks of a name; at least one.
    #[track_caller]
    fn named(&self, name: &str) -> Vec<&Value> {
        let named: Vec<_> = self.checks.iter().filter(|check| check["name"] == name).collect();
        assert!(!named.is_empty(), "no check is called {name}: {:#?}", self.checks);
        named
    }

    /// The one failure is this, names these words, and says what to do.
    #[track_caller]
    fn fails(&self, name: &str, words: &[&str]) -> &Value {
        let is_failure = |check: &&Value| check["outcome"] == "fail" && is_ours(check);
        let failed: Vec<_> = self.checks.iter().filter(is_failure).collect();
        let [check] = failed[..] else { panic!("one check should fail: {failed:#?}") };
        assert_eq!(check["name"], name, "{check:#}");
        let says = check["says"].as_str().expect("a sentence");
        for word in words {
            assert!(says.contains(word), "`{word}` is not in: {says}");
        }
        assert_ne!(check["next"], "", "{check:#}");
        assert_eq!(self.code, Some(1));
        check
    }
}

/// Whether a check is about what the test has made. Other tests kill supervisors, whose workers may still
/// be ending; and what is installed here is not the test's.
fn is_ours(check: &&Value) -> bool {
    let others = ["leftovers", "nvml", "libcuda", "kernels", "mps", "onnxruntime"];
    others.iter().all(|name| check["name"] != *name)
}

fn diagnose(arguments: &[&str]) -> Cli {
    gridpool(["diagnose", "--devices", "cpu:1"]).args(arguments)
}

#[test]
fn where_nothing_is_wrong_every_group_passes_and_what_was_not_tried_says_why() {
    let arguments = ["diagnose", "--devices", "cpu:2", "--sizes", "1,2,33,1000"];
    let found = Diagnosis::of(gridpool(arguments));
    let failed: Vec<_> =
        found.checks.iter().filter(|check| check["outcome"] == "fail" && is_ours(check)).collect();
    assert!(failed.is_empty(), "{failed:#?}");
    for group in ["environment", "isolation", "batches", "allocation", "faults"] {
        let passed = |check: &&Value| check["group"] == group && check["outcome"] == "pass";
        assert!(found.checks.iter().any(|check| passed(&check)), "no check of {group} passed");
    }
    for check in found.checks.iter().filter(|check| check["outcome"] == "skip") {
        assert_ne!(check["says"], "", "{check:#}");
    }
    let ops = gridpool(["ops", "--json"]).run().document();
    for op in ops["ops"].as_array().expect("a list of ops") {
        let name = format!("op {}", op["name"].as_str().expect("a name"));
        assert_eq!(found.named(&name).len(), 2, "{name} on each device");
    }
    assert_eq!(found.named("contamination is found")[0]["outcome"], "pass");
    assert!(found.named("models").iter().all(|check| check["outcome"] == "skip"));
}

#[test]
fn a_kernel_that_computes_something_else_is_named_with_its_op_and_its_first_size() {
    let arguments = ["--only", "batches", "--ops", "rot90,rot180,hmirror"];
    let corrupt = diagnose(&arguments).env("GRIDPOOL_TEST_CORRUPT", "rot90:33");
    let found = Diagnosis::of(corrupt);
    let check = found.fails("op rot90", &["item 32 of 33", "must be"]);
    assert_eq!(check["first_failing"], 33);
    assert_eq!(check["device"], "cpu0");
    assert_eq!(found.named("op rot180")[0]["outcome"], "pass");
    let text = diagnose(&arguments).env("GRIDPOOL_TEST_CORRUPT", "rot90:33").run();
    assert_eq!(text.code, Some(1));
    assert!(text.stdout.contains("batches: op rot90 on cpu0, first at 33"), "{}", text.stdout);
}

#[test]
fn devices_that_are_not_there_are_a_failure_and_all_that_needs_them_is_skipped() {
    let found = Diagnosis::of(gridpool(["diagnose", "--devices", "99"]));
    found.fails("devices", &["GPU"]);
    let skipped = found.named("all checks");
    assert_eq!(skipped.len(), 5);
    assert!(skipped.iter().all(|check| check["outcome"] == "skip"));
}

#[test]
fn too_few_open_files_are_named_with_both_numbers() {
    let call = gridpool_under(&["prlimit", "--nofile=64:64"], ["diagnose", "--devices", "cpu:2"]);
    Diagnosis::of(call).fails("open files", &["at most 64 may be open; a pool of 2 devices needs"]);
}

#[test]
fn other_limits_under_which_no_pool_can_be_are_named_and_the_document_is_whole() {
    for (limit, name, words) in [
        ("--fsize=102400", "file size", "102400 bytes (ulimit -f)"),
        ("--as=1073741824", "address space", "1.00 GiB (ulimit -v)"),
    ] {
        let call = gridpool_under(&["prlimit", limit], ["diagnose", "--devices", "cpu:1"]);
        let found = Diagnosis::of(call);
        found.fails(name, &[words]);
        assert!(found.named("all checks").iter().all(|check| check["outcome"] == "skip"));
    }
}

#[test]
fn a_folder_for_temporary_files_that_is_not_fit_is_a_failure_and_not_the_end() {
    let folder = tempfile::tempdir().expect("a folder for temporary files");
    let long = folder.path().join("s".repeat(80));
    fs::create_dir(&long).expect("a folder");
    for (place, words) in [(Path::new("/nonexistent"), "No such file"), (&long, "too long")] {
        let found = Diagnosis::of(diagnose(&[]).env("TMPDIR", place));
        found.fails("temporary folder", &[path(place), "TMPDIR", words]);
    }
}

#[test]
fn a_worker_binary_that_says_nothing_is_not_waited_for_without_an_end() {
    let folder = tempfile::tempdir().expect("a folder for temporary files");
    let mute = folder.path().join("gridpool-worker");
    fs::write(&mute, "#!/bin/sh\nexec sleep 1000\n").expect("a script");
    fs::set_permissions(&mute, fs::Permissions::from_mode(0o700)).expect("it is ours");
    let found = Diagnosis::of(diagnose(&["--worker-bin", path(&mute)]));
    found.fails("worker binary", &["says nothing for 10 s"]);
}

#[test]
fn a_signal_that_ends_it_leaves_no_folder_behind() {
    let folder = tempfile::tempdir().expect("a folder for temporary files");
    let entries = || fs::read_dir(folder.path()).expect("it is there").count();
    let call = diagnose(&["--only", "batches"]).env("TMPDIR", folder.path());
    let mut running = call.start();
    eventually_so("the folder to be made", || entries() > 0);
    signal(running.process.pid(), Signal::SIGTERM);
    assert_eq!(running.process.exit().signal(), Some(15));
    assert_eq!(entries(), 0);
}

#[test]
fn a_worker_binary_of_another_version_is_named_with_both_versions() {
    let folder = tempfile::tempdir().expect("a folder for temporary files");
    let old = folder.path().join("gridpool-worker");
    fs::write(&old, "#!/bin/sh\necho gridpool-worker 0.0.9 '(protocol 1)'\n").expect("a script");
    fs::set_permissions(&old, fs::Permissions::from_mode(0o700)).expect("it is ours");
    let found = Diagnosis::of(diagnose(&["--worker-bin", path(&old)]));
    found.fails("worker binary", &[path(&old), "is 0.0.9 (protocol 1), this program is "]);
    let none = Diagnosis::of(diagnose(&["--worker-bin", "/no/such"]));
    none.fails("worker binary", &["/no/such is not there"]);
}

#[test]
fn a_socket_where_others_could_put_theirs_is_refused_by_its_folder() {
    let folder = tempfile::tempdir().expect("a folder for temporary files");
    let open = folder.path().join("open");
    fs::create_dir(&open).expect("a folder");
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).expect("it is ours");
    let socket = open.join("pool.sock");
    let found = Diagnosis::of(diagnose(&["--only", "environment", "--socket", path(&socket)]));
    found.fails("the pool's socket", &[path(&open), "chmod 700"]);
}

#[test]
fn a_pool_that_runs_is_named_and_left_alone() {
    let pool = cpu(1).start();
    let socket = pool.socket();
    let arguments = ["--only", "environment", "--socket", path(&socket)];
    let found = Diagnosis::of(diagnose(&arguments));
    let check = found.named("the pool's socket")[0];
    let pid = format!("pid {}", pool.supervisor.pid());
    assert_eq!(check["outcome"], "pass");
    assert!(check["says"].as_str().expect("a sentence").contains(&pid), "{check:#}");
    assert_eq!(pool.slot("cpu0").generation, 1);
}

#[test]
fn a_gpu_that_somebody_uses_is_left_alone_unless_it_is_asked_for() {
    let pool = gpus(2, "registry=DIR");
    let (driver, registry) = (pool.folder().join("driver"), pool.folder().to_owned());
    let pool = pool.start();
    let worker = pool.slot("gpu0");
    let script = format!("devices=2; registry={}", registry.display());
    let diagnose = |more: &[&str]| {
        let arguments = ["diagnose", "--devices", "0", "--quick", "--ops", "rot90"];
        let call = gridpool(arguments).args(more).env("LD_LIBRARY_PATH", &driver);
        Diagnosis::of(call.env("GRIDPOOL_STUB_SCRIPT", &script))
    };
    let found = diagnose(&[]);
    let processes = found.named("processes");
    assert_eq!(processes[0]["outcome"], "skip", "{:#}", processes[0]);
    let skipped = found.named("all checks");
    assert_eq!(skipped.len(), 3, "batches, allocation, faults");
    for check in skipped {
        let says = check["says"].as_str().expect("a sentence");
        assert!(says.contains(&worker.pid.to_string()), "{says}");
        assert!(check["next"].as_str().expect("a sentence").contains("--busy"), "{check:#}");
    }
    assert_eq!(pool.slot("gpu0").generation, worker.generation);
    let found = diagnose(&["--busy", "--only", "batches"]);
    assert_eq!(found.named("op rot90").len(), 1);
}

#[test]
#[expect(clippy::print_stderr, reason = "says that nothing was tested")]
fn a_foreign_library_in_every_process_is_named() {
    let folder = tempfile::tempdir().expect("a folder for temporary files");
    let Some(foreign) = library(folder.path(), "libtorch_cuda.so") else {
        eprintln!("not tested: there is no C compiler `cc` to make a library with");
        return;
    };
    let call = diagnose(&["--only", "environment,isolation"]).env("LD_PRELOAD", &foreign);
    let found = Diagnosis::of(call);
    assert_eq!(found.code, Some(1));
    for name in ["preloaded libraries", "supervisor", "workers"] {
        let check = found.named(name)[0];
        assert_eq!(check["outcome"], "fail", "{check:#}");
        assert!(check["says"].as_str().expect("a sentence").contains(path(&foreign)), "{check:#}");
    }
    let check = found.named("preloaded libraries")[0];
    assert_eq!(check["next"], format!("take it out of LD_PRELOAD, which is `{}`", path(&foreign)));
}

#[test]
fn a_worker_whose_supervisor_is_gone_is_found() {
    let folder = tempfile::tempdir().expect("a folder for temporary files");
    let orphan = folder.path().join("gridpool-worker");
    fs::write(&orphan, "#!/bin/sh\nread line\n").expect("a script");
    fs::set_permissions(&orphan, fs::Permissions::from_mode(0o700)).expect("it is ours");
    let child = Command::new(&orphan)
        .args(["grid", "--supervisor-pid", "4194304"])
        .stdin(Stdio::piped())
        .spawn()
        .expect("a script can be started");
    let orphan = Process::new(child);
    let pid = orphan.pid().to_string();
    let found = Diagnosis::of(diagnose(&["--only", "environment"]));
    let check = found.named("leftovers")[0];
    assert_eq!(check["outcome"], "fail");
    let pids = check["facts"]["pids"].as_str().expect("numbers");
    assert!(pids.split(' ').any(|left| left == pid), "{check:#}");
}

#[test]
fn settings_that_are_wrong_are_a_failure_like_any_other() {
    let folder = tempfile::tempdir().expect("a folder for temporary files");
    let config = folder.path().join("pool.toml");
    fs::write(&config, "devices = 'cpu:0'\n").expect("a file");
    let found = Diagnosis::of(gridpool(["diagnose", "--config", path(&config)]));
    found.fails("settings", &["pool.toml, line 1: `cpu:0`"]);
}

#[test]
fn a_library_that_is_not_onnx_runtime_is_named() {
    let worker = binaries::worker();
    let arguments = ["--only", "environment", "--onnxruntime", path(worker)];
    let found = Diagnosis::of(diagnose(&arguments));
    let check = found.named("onnxruntime")[0];
    assert_eq!(check["outcome"], "fail", "{check:#}");
    assert!(check["says"].as_str().expect("a sentence").contains(path(worker)), "{check:#}");
    assert_ne!(check["next"], "");
}

#[test]
fn what_is_typed_wrong_is_refused() {
    diagnose(&["--ops", "rot9"]).run().complains(2, &["there is no op `rot9`"]);
    diagnose(&["--only", "all"]).run().complains(2, &["`all` is no group of checks: write"]);
    diagnose(&["--sizes", "0"]).run().complains(2, &["0 is not in 1..=1000000"]);
}

fn path(path: &Path) -> &str {
    path.to_str().expect("a readable path")
}
