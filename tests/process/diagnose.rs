//! `gridpool diagnose`: a sound machine passes, and every deliberately broken set-up is named.
//!
//! The tests run on CPU devices, except with a stub driver. They do not check the driver of this machine.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
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

/// The JSON document and the exit code of a call.
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

    /// The checks with a name, at least one.
    #[track_caller]
    fn named(&self, name: &str) -> Vec<&Value> {
        let named: Vec<_> = self.checks.iter().filter(|check| check["name"] == name).collect();
        assert!(!named.is_empty(), "no check is called {name}: {:#?}", self.checks);
        named
    }

    /// Asserts that only this check failed, with these words and with what to do.
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

/// Whether a check is about the test's own set-up. Other tests kill supervisors, whose workers may still be
/// ending; and the installed drivers and libraries are the machine's.
fn is_ours(check: &&Value) -> bool {
    let others = ["leftovers", "nvml", "libcuda", "kernels", "mps", "onnxruntime"];
    others.iter().all(|name| check["name"] != *name)
}

fn diagnose(arguments: &[&str]) -> Cli {
    gridpool(["diagnose", "--devices", "cpu:1"]).args(arguments)
}

#[test]
fn on_a_sound_machine_every_group_passes_and_every_skip_has_its_reason() {
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
fn missing_devices_fail_and_their_checks_are_skipped() {
    let found = Diagnosis::of(gridpool(["diagnose", "--devices", "99"]));
    found.fails("devices", &["GPU"]);
    let skipped = found.named("all checks");
    assert_eq!(skipped.len(), 5);
    assert!(skipped.iter().all(|check| check["outcome"] == "skip"));
}

#[test]
fn too_few_open_files_are_named_with_both_numbers() {
    let call = gridpool_under(&["prlimit", "--nofile=64:64"], ["diagnose", "--devices", "cpu:2"]);
    Diagnosis::of(call).fails("open files", &["the limit is 64; a pool of 2 devices needs"]);
    let folder = tempfile::tempdir().expect("a folder for temporary files");
    let serve = ["serve", "--devices", "cpu:2", "--socket"];
    let serve = gridpool_under(&["prlimit", "--nofile=64:64"], serve);
    let finished = serve.arg(folder.path().join("pool.sock")).run();
    finished.complains(71, &["may open 64 files, and a pool of these devices needs ", "ulimit -n"]);
    let serve = ["serve", "--devices", "cpu:2", "--socket"];
    let serve = gridpool_under(&["prlimit", "--fsize=10240:10240"], serve);
    let finished = serve.arg(folder.path().join("pool.sock")).run();
    finished.complains(71, &["its shared memory, may have 10240 bytes", "ulimit -f unlimited"]);
}

#[test]
fn other_limits_that_prevent_a_pool_are_named_and_the_document_is_complete() {
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
fn an_unfit_temporary_folder_fails_its_check_and_stops_no_other() {
    let folder = tempfile::tempdir().expect("a folder for temporary files");
    let long = folder.path().join("s".repeat(80));
    fs::create_dir(&long).expect("a folder");
    for (place, words) in [(Path::new("/nonexistent"), "No such file"), (&long, "too long")] {
        let found = Diagnosis::of(diagnose(&[]).env("TMPDIR", place));
        found.fails("temporary folder", &[path(place), "TMPDIR", words]);
    }
}

#[test]
fn the_wait_for_a_silent_worker_binary_has_a_timeout() {
    let folder = tempfile::tempdir().expect("a folder for temporary files");
    let mute = folder.path().join("gridpool-worker");
    fs::write(&mute, "#!/bin/sh\nexec sleep 1000\n").expect("a script");
    fs::set_permissions(&mute, fs::Permissions::from_mode(0o700)).expect("it is ours");
    let found = Diagnosis::of(diagnose(&["--worker-bin", path(&mute)]));
    found.fails("worker binary", &["prints nothing for 10 s"]);
}

#[test]
fn a_signal_removes_the_temporary_folder() {
    for command in [&["diagnose", "--only", "batches"][..], &["bench", "--quick"]] {
        let folder = tempfile::tempdir().expect("a folder for temporary files");
        let entries = || -> Vec<_> {
            let entries = fs::read_dir(folder.path()).expect("it is there");
            entries.map(|entry| entry.expect("it can be read").path()).collect()
        };
        let call = gridpool(command).args(&["--devices", "cpu:1"]).env("TMPDIR", folder.path());
        let mut running = call.start();
        eventually_so("the folder to be made", || !entries().is_empty());
        signal(running.process.pid(), Signal::SIGTERM);
        assert_eq!(running.process.exit().signal(), Some(15), "{command:?}");
        assert_eq!(entries(), Vec::<PathBuf>::new(), "{command:?}");
    }
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
    none.fails("worker binary", &["there is no file /no/such"]);
}

#[test]
fn a_socket_in_a_folder_that_others_may_write_is_refused() {
    let folder = tempfile::tempdir().expect("a folder for temporary files");
    let open = folder.path().join("open");
    fs::create_dir(&open).expect("a folder");
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).expect("it is ours");
    let socket = open.join("pool.sock");
    let found = Diagnosis::of(diagnose(&["--only", "environment", "--socket", path(&socket)]));
    found.fails("the pool's socket", &[path(&open), "chmod 700"]);
}

#[test]
fn a_running_pool_is_named_and_not_disturbed() {
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
fn a_gpu_in_use_is_skipped_without_busy() {
    let pool = gpus(2, "registry=DIR");
    let (driver, registry) = (pool.folder().join("driver"), pool.folder().to_owned());
    let pool = pool.start();
    let worker = pool.slot("gpu0");
    let script = format!("devices=2; registry={}", registry.display());
    let diagnose = |more: &[&str]| {
        let arguments = ["diagnose", "--devices", "0", "--quick", "--ops", "rot90"];
        let call = gridpool(arguments).args(more).env("LD_LIBRARY_PATH", &driver);
        let call = call.env("GRIDPOOL_SANDBOX_WRITE", &registry);
        Diagnosis::of(call.env("STUB_CUDA_SCRIPT", &script))
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
    assert_eq!(check["next"], format!("remove it from LD_PRELOAD, which is `{}`", path(&foreign)));
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
fn wrong_settings_are_a_failed_check() {
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
fn wrong_flags_are_refused() {
    diagnose(&["--ops", "rot9"]).run().complains(2, &["there is no op `rot9`"]);
    diagnose(&["--only", "all"]).run().complains(2, &["`all` is not a group of checks: write"]);
    for size in ["0", "x", "1,1000001"] {
        diagnose(&["--sizes", size])
            .run()
            .complains(2, &["write a whole number from 1 to 1000000"]);
    }
}

fn path(path: &Path) -> &str {
    path.to_str().expect("a readable path")
}
