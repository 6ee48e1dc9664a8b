//! Isolation: the supervisor has no CUDA, a worker has only one CUDA library, and a worker inherits no
//! descriptors.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::sys::signal::Signal;

use crate::binaries::root;
use crate::command::gridpool;
use crate::jobs::{PROGRAM, data, large_job, serves, submit};
use crate::pool::{Setup, cpu};
use crate::processes::{maps, signal};
use crate::raw::Raw;

#[test]
fn the_supervisor_never_maps_a_cuda_library() {
    let pool = cpu(2).start();
    serves(&pool.client());
    for process in pool.pids().into_iter().chain([pool.supervisor.pid()]) {
        let maps = maps(process);
        let cuda = maps.lines().find(|line| line.contains("libcuda") || line.contains("libnv"));
        assert_eq!(cuda, None, "no process of a pool on CPU devices has CUDA");
    }
    let status: serde_json::Value =
        serde_json::from_str(&pool.cli(&["status", "--json"]).run().output()).expect("JSON");
    assert_eq!(status["supervisor"]["cuda_mapped"], false);
    let text = pool.cli(&["status"]).run().output();
    assert!(text.contains("libcuda in this process: no"), "{text}");
}

#[test]
fn the_supervisor_does_not_depend_on_what_it_must_not_load() {
    let tree = Command::new(env!("CARGO"))
        .args(["tree", "-p", "gridpool", "--edges", "normal", "--locked", "--offline"])
        .args(["--prefix", "none", "--format", "{p}"])
        .current_dir(root())
        .output()
        .expect("cargo can be started");
    assert!(tree.status.success(), "{}", String::from_utf8_lossy(&tree.stderr));
    let tree = String::from_utf8(tree.stdout).expect("cargo prints UTF-8");
    let names: BTreeSet<&str> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
    assert!(names.contains("gridpool-protocol"), "{names:?}");
    let foreign =
        ["cudarc", "ort", "ort-sys", "gridpool-kernels", "gridpool-device", "gridpool-worker"];
    let found: Vec<_> = names
        .iter()
        .filter(|name| foreign.contains(name) || name.contains("nvml") || name.contains("cuda"))
        .collect();
    assert!(found.is_empty(), "{found:?}");
}

/// A library without a symbol under some name; `None` where there is no C compiler.
pub(crate) fn library(folder: &Path, name: &str) -> Option<PathBuf> {
    let path = folder.join(name);
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-nostdlib", "-x", "c", "/dev/null", "-o"]);
    let made = compiler.arg(&path).status().ok()?;
    assert!(made.success(), "cc makes a library");
    Some(path)
}

#[test]
#[expect(clippy::print_stderr, reason = "says that nothing was tested")]
fn a_worker_with_a_foreign_cuda_library_refuses_to_start() {
    let folder = tempfile::tempdir().expect("a folder for temporary files");
    let Some(foreign) = library(folder.path(), "libcudart.so.12") else {
        eprintln!("not tested: there is no C compiler `cc` to make a library with");
        return;
    };
    let sentence = format!("{} is mapped into this worker", foreign.display());
    let run =
        gridpool(["run", PROGRAM, "--devices", "cpu:2", "--json"]).env("LD_PRELOAD", &foreign);
    let finished = run.arg(data("tasks/lines.json")).run();
    assert_eq!(finished.code, Some(73), "{}", finished.stderr);
    for words in ["gridpool: no worker can start", "cpu0#1", "cpu1#1", &sentence, "LD_PRELOAD"] {
        assert!(finished.stderr.contains(words), "`{words}` is not in: {}", finished.stderr);
    }
    let setup = cpu(1).env("LD_PRELOAD", foreign.to_str().expect("a readable path"));
    assert_eq!(setup.serve().exit().code(), Some(73), "{}", setup.log());
    assert!(setup.log().contains(&sentence), "{}", setup.log());
    assert!(!setup.log().contains("cpu0#2"), "a restart would fail the same way");

    // Any other library is allowed.
    let harmless = library(folder.path(), "libharmless.so").expect("there is a compiler");
    let run =
        gridpool(["run", PROGRAM, "--devices", "cpu:1", "--json"]).env("LD_PRELOAD", harmless);
    run.arg(data("tasks/lines.json")).run().document();
}

#[test]
fn a_worker_inherits_no_foreign_descriptors_or_signals() {
    let pool = Setup::start(cpu(2));
    let client = pool.client();
    let mut raw = Raw::greeted(&pool.socket());
    let _memory = raw.arena(1 << 20);
    crate::jobs::answer(submit(&client, large_job(1)));
    // Workers that are started while connections and arenas are open.
    for device in ["cpu0", "cpu1"] {
        signal(pool.pid(device), Signal::SIGKILL);
        pool.until(device, "in its second generation", |slot| slot.generation == 2);
    }
    pool.all_ready();
    // Descriptors that this test itself inherited are allowed, such as its runner's pipes.
    let mut inherited = open_files(std::process::id());
    inherited.retain(|file| file.starts_with("pipe:") || file.starts_with("/dev/"));
    let of_the_supervisor = &open_files(pool.supervisor.pid()) - &inherited;
    assert!(of_the_supervisor.iter().any(|file| file.contains("gridpool-arena")));
    let log = pool.folder().join("log").display().to_string();
    for worker in pool.pids() {
        let files = open_files(worker);
        let shared: Vec<_> = files
            .intersection(&of_the_supervisor)
            .filter(|file| **file != log && !file.starts_with("anon_inode"))
            .collect();
        assert!(shared.is_empty(), "{worker} has descriptors of the supervisor: {shared:?}");
        assert!(!files.iter().any(|file| file.contains("gridpool-arena")), "{files:?}");
        let environment = fs::read(format!("/proc/{worker}/environ")).expect("it lives");
        let hides = environment.split(|&byte| byte == 0).any(|v| v == b"CUDA_VISIBLE_DEVICES=");
        assert!(hides, "a CPU worker sees no GPU");
    }
}

/// What the descriptors of a process lead to; sockets and pipes by their number.
fn open_files(pid: u32) -> BTreeSet<String> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).expect("the process lives");
    let targets = entries.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    targets.map(|target| target.display().to_string()).collect()
}
