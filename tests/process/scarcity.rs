//! A machine short of descriptors or memory, and workers whose memory grows.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use gridpool_protocol::receipt::AttemptOutcome;
use gridpool_protocol::status::{Status, WorkerState, WorkerStatus};
use gridpool_tests::oracle::samples::random_grids;
use nix::sys::signal::Signal;

use crate::binaries;
use crate::jobs::{PROGRAM, answer, is_right, job, serves, small_job, submit};
use crate::needs::is_met;
use crate::pool::{Pool, Setup, cpu, named};
use crate::processes::{descriptors, signal};
use crate::raw::Raw;
use crate::wait::eventually;

fn supervisor(pool: &Pool) -> u32 {
    pool.status().supervisor.pid
}

#[test]
fn a_worker_that_has_grown_too_much_is_recycled_between_jobs() {
    let pool = cpu(1).limits("worker_memory_growth_max = 0\n").start();
    let grids = random_grids(61, 400);
    let client = pool.client();
    let replaced = loop {
        let answer = answer(submit(&client, job(PROGRAM, &grids)));
        is_right(&answer, PROGRAM, &grids);
        let slot = pool.slot("cpu0");
        if slot.generation > 1 {
            break slot;
        }
    };
    let fault = &replaced.last_fault;
    assert!(fault.contains("exit code 76: it has grown by"), "{fault}");
    assert!(fault.contains("more than worker_memory_growth_max allows"), "{fault}");
    assert_eq!(pool.status().counters.failed, 0);
}

#[test]
fn when_memory_is_short_the_kernel_kills_a_worker_before_the_supervisor() {
    let pool = cpu(1).env("GRIDPOOL_HTTP", "127.0.0.1:0").start();
    let score = |pid: u32| {
        let text = fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).expect("it lives");
        text.trim().parse::<i32>().expect("a number")
    };
    let (worker, supervisor) = (score(pool.pid("cpu0")), score(supervisor(&pool)));
    assert!(worker > supervisor, "{worker} and {supervisor}");
    let is_up = |status: &Status| status.http.as_ref().is_some_and(|http| http.up);
    let gateway = pool.until_status("a gateway", is_up).http.expect("it was just seen");
    let gateway = score(gateway.pid);
    assert!(gateway > supervisor, "{gateway} and {supervisor}");
}

/// A group of processes that may have little memory together, made for one test.
struct SmallMemory(PathBuf);

impl SmallMemory {
    /// `None` where this user may make no such group.
    fn new(bytes: u64) -> Option<Self> {
        let name = format!("gridpool-test-{}", std::process::id());
        let of = |root: &str, limit: &str| {
            let folder = Path::new(root).join(&name);
            fs::create_dir(&folder).ok()?;
            let group = Self(folder);
            fs::write(group.0.join(limit), bytes.to_string()).ok()?;
            Some(group)
        };
        of("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
            .or_else(|| of("/sys/fs/cgroup", "memory.max"))
    }

    fn add(&self, pid: u32) {
        fs::write(self.0.join("cgroup.procs"), pid.to_string()).expect("it may be moved there");
    }
}

impl Drop for SmallMemory {
    fn drop(&mut self) {
        drop(fs::remove_dir(&self.0));
    }
}

#[test]
fn a_worker_that_the_oom_killer_kills_costs_one_attempt_and_not_the_pool() {
    const LITTLE: u64 = 4 << 10;
    let group = SmallMemory::new(LITTLE);
    let without = "this user may make no memory cgroup, so none is killed in one";
    if !is_met(group.is_some(), "GRIDPOOL_REQUIRE_CGROUPS", without) {
        return;
    }
    let group = group.expect("it was just met");
    let pool = cpu(1).start();
    let worker = pool.pid("cpu0");
    let grids = random_grids(63, 200_000);
    let submitted = submit(&pool.client(), job(PROGRAM, &grids));
    // Even one that waits for work touches a page now and then: before the job it would cost no attempt.
    pool.until_busy("cpu0");
    group.add(worker);
    let answer = answer(submitted);
    is_right(&answer, PROGRAM, &grids);
    let lost = &answer.receipt.attempts[0];
    assert_eq!(lost.outcome, AttemptOutcome::WorkerDied);
    assert!(lost.detail.contains("signal 9 (SIGKILL)"), "{}", lost.detail);
    assert_ne!(pool.pid("cpu0"), worker);
    serves(&pool.client());
}

/// Sets the number that every descriptor which the supervisor opens must be below.
fn allow_descriptors(pool: &Pool, below: u32) {
    let pid = supervisor(pool).to_string();
    let mut prlimit = std::process::Command::new("prlimit");
    let set = prlimit.args(["--pid", &pid, &format!("--nofile={below}:")]).status();
    assert!(set.expect("prlimit is part of util-linux").success());
}

#[test]
fn a_worker_without_descriptors_to_start_starts_once_there_are_some() {
    let pool = cpu(2).start();
    let client = pool.client();
    allow_descriptors(&pool, 10);
    signal(pool.pid("cpu0"), Signal::SIGKILL);
    let slot = pool.until("cpu0", "without descriptors", |slot| {
        slot.last_fault.contains("could not be started")
    });
    assert!(slot.last_fault.contains("os error"), "{}", slot.last_fault);
    let grids = random_grids(62, 5);
    let answer = answer(submit(&client, job(PROGRAM, &grids)));
    is_right(&answer, PROGRAM, &grids);
    assert_eq!(&*answer.receipt.attempts[0].worker, "cpu1#1", "the other serves");
    allow_descriptors(&pool, 4_096);
    pool.until("cpu0", "READY again", |slot| slot.state == WorkerState::Ready);
}

/// A pool that may never have more than `files` files open.
fn with_files(setup: Setup, files: u32) -> Setup {
    let program = setup.folder().join("gridpool");
    let exec = binaries::gridpool().display();
    let text = format!("#!/bin/sh\nulimit -n {files} && exec {exec} \"$@\"\n");
    fs::write(&program, text).expect("a file can be written");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).expect("a mode can be set");
    setup.program(program)
}

#[test]
fn clients_leave_the_pool_the_descriptors_that_it_needs() {
    const FILES: u32 = 1_024;
    const FOR_WORKERS: usize = 64;
    let pool = with_files(cpu(1), FILES).start();
    let socket = pool.socket();
    let mut clients = Vec::new();
    let mut arenas = 0;
    // Some more than there are seats of clients: these take kept ones.
    for _ in 0..112 {
        let mut raw = Raw::greeted(&socket);
        arenas += std::iter::from_fn(|| raw.try_arena(1).ok()).count();
        clients.push(raw);
    }
    let held = descriptors(pool.supervisor.pid());
    let left = FILES as usize - held;
    assert!(arenas > 500 && left > FOR_WORKERS, "{arenas} arenas, {held} descriptors");
    // An operator is heard, and a worker starts.
    pool.client().kill(named("cpu0"), 9).expect("it is killed");
    let is_new = |slot: &WorkerStatus| slot.generation == 2 && slot.state == WorkerState::Ready;
    pool.until("cpu0", "replaced", is_new);
    drop(clients);
    eventually("a job to be taken", || pool.client().submit(small_job(1)).map(drop));
    assert!(!pool.log().contains("could not be"), "{}", pool.log());
}
