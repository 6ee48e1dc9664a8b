//! `gridpool upgrade --one-by-one`: no device ever holds workers of both pools.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use gridpool_protocol::receipt::Verdict;
use gridpool_protocol::status::WorkerState;

use super::load::{Load, upgrades};
use super::serving;
use crate::binaries;
use crate::jobs::{answer, serves, small_job, submit};
use crate::pool::{Pool, cpu, named};
use crate::processes::{all_gone, go_on};
use crate::wait::{eventually, eventually_so};

/// Upgrades a pool, which must go well; gives the process that serves then.
#[track_caller]
fn upgraded(pool: &Pool) -> u32 {
    let before = serving(pool);
    pool.cli(&["upgrade", "--one-by-one"]).run().output();
    let after = serving(pool);
    assert_ne!(before, after);
    after
}

/// A worker that holds a lock of its device as long as it lives, and notes each start, and each beside another.
fn alone(folder: &Path) -> PathBuf {
    let path = folder.join("worker");
    let (folder, real) = (folder.display(), binaries::worker().display());
    let script = format!(
        "#!/bin/sh\nfor word; do case $word in cpu*) exec 9>\"{folder}/${{word%#*}}\"; flock -n 9 || echo $word >> \
         {folder}/beside; echo $word >> {folder}/starts;; esac; done; exec {real} \"$@\"\n"
    );
    fs::write(&path, script).expect("a file can be written");
    fs::set_permissions(&path, Permissions::from_mode(0o755)).expect("a mode can be set");
    path
}

/// Upgrades a pool under the load of three clients, whose first sends jobs that must not run twice.
fn under_load(devices: usize) {
    let folder = tempfile::tempdir().expect("a folder for temporary files");
    let folder = folder.path();
    let pool = cpu(devices).worker(alone(folder)).limits("feed_cost_max = 0");
    let pool = pool.env("GRIDPOOL_LOG", "info,gridpool::shell::core=debug").start();
    let lock = File::open(folder.join("cpu0")).expect("it was made");
    assert!(lock.try_lock().is_err(), "its worker has it");
    let load = Load::on(&pool);
    let upgrades = upgrades(4);
    let mut former = vec![];
    for _ in 0..upgrades {
        load.more_jobs();
        former.push(serving(&pool));
        upgraded(&pool);
    }
    load.more_jobs();
    let all_serve = || {
        let workers = pool.client().status().expect("a status").workers;
        workers.iter().all(|row| matches!(row.state, WorkerState::Busy | WorkerState::Ready))
    };
    eventually_so("every device to serve", all_serve);
    load.end(&pool, &format!("{upgrades} upgrades one by one, {devices} devices"));
    all_gone(&former[1..]);
    let log = pool.log();
    assert!(!log.contains("panicked") && !log.contains("ERROR"), "{log}");
    assert_eq!(fs::read_to_string(folder.join("beside")).unwrap_or_default(), "");
    let starts = fs::read_to_string(folder.join("starts")).expect("it was written");
    assert_eq!(starts.lines().count(), devices * (1 + upgrades), "{starts}");
}

#[test]
fn no_job_is_lost_and_no_device_has_two_workers() {
    under_load(2);
}

#[test]
fn the_only_device_changes_hands_and_no_job_is_lost() {
    under_load(1);
}

#[test]
fn a_device_that_the_old_pool_needs_comes_later_and_orders_about_it_say_why() {
    let pool = cpu(2).start();
    let client = pool.client();
    let held = pool.stop("cpu1");
    let jobs = [1, 2].map(|number| submit(&client, small_job(number)));
    pool.until_busy("cpu1");
    let successor = upgraded(&pool);
    let other = pool.client();
    let row = || other.status().expect("a status").workers.into_iter().next_back().expect("two");
    assert_eq!(row().last_fault, "the pool before this one still has it");
    assert_eq!((row().pid, row().name), (0, "cpu1#0".to_owned()));
    let why = "the pool before this one still has it";
    let killed = other.kill(named("cpu1"), 9).expect_err("it has no worker").to_string();
    assert!(killed.contains(&format!("there is no worker on cpu1 now: {why}")), "{killed}");
    pool.cli(&["release", "cpu1"]).run().complains(2, &["cpu1 cannot be released", why]);
    // The other device serves meanwhile.
    serves(&other);
    go_on(held);
    for job in jobs {
        assert_eq!(answer(job).verdict(), Verdict::Ok);
    }
    eventually("the other device", || {
        let row = row();
        if row.state == WorkerState::Ready { Ok(()) } else { Err(format!("{row:?}")) }
    });
    all_gone(&[pool.supervisor.pid()]);
    assert_eq!(serving(&pool), successor);
}

#[test]
fn a_successor_whose_workers_do_not_start_leaves_the_old_pool_with_all_devices() {
    let folder = tempfile::tempdir().expect("a folder for temporary files");
    let worker = folder.path().join("worker");
    fs::copy(binaries::worker(), &worker).expect("the worker can be copied");
    let limits = "start_failures_max = 1\nbackoff_min_ms = 1\nbackoff_max_ms = 2\n";
    let pool = cpu(2).worker(&worker).limits(limits).start();
    // As a package manager does it: another file takes the name.
    let other = folder.path().join("other");
    fs::copy("/bin/false", &other).expect("a program can be copied");
    fs::rename(&other, &worker).expect("it can take the name");
    let call = pool.cli(&["upgrade", "--one-by-one"]).run();
    call.complains(1, &["does not take over, and the pool goes on", "cpu0#1 died: exit code 1"]);
    assert_eq!(serving(&pool), pool.supervisor.pid());
    pool.all_ready();
    let generations = ["cpu0", "cpu1"].map(|device| pool.slot(device).generation);
    assert_eq!(generations, [2, 1], "the first device was used again, and the other all the time");
    serves(&pool.client());
}
