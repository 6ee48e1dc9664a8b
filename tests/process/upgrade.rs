//! `gridpool upgrade`: another process takes the place of the supervisor, and nobody loses anything.

mod load;
mod one_by_one;
mod turns;

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use gridpool_client::{ClientError, Handle, JobKey, Outputs};
use gridpool_ipc::frame;
use gridpool_protocol::codec;
use gridpool_protocol::handover::FromSuccessor;
use gridpool_protocol::limits::PROTOCOL_VERSION;
use gridpool_protocol::receipt::Verdict;
use nix::sys::signal::Signal;

use load::{Load, upgrades};

use crate::binaries;
use crate::command::{Finished, gridpool};
use crate::jobs::{answer, large_job, serves, small_job, submit};
use crate::pool::{Pool, Setup, cpu, stub_worker};
use crate::processes::{Process, all_gone, children, go_on, lives, signal, stop};
use crate::wait::{eventually, eventually_so, within};

/// The process that serves the socket.
fn serving(pool: &Pool) -> u32 {
    pool.client().status().expect("a pool serves").supervisor.pid
}

/// Upgrades a pool, which must go well; gives the process that serves then.
#[track_caller]
fn upgraded(pool: &Pool) -> u32 {
    let before = serving(pool);
    let said = pool.cli(&["upgrade"]).run().output();
    let after = serving(pool);
    assert_ne!(before, after);
    for words in [format!("(pid {after}) serves in place of"), format!("(pid {before}), ")] {
        assert!(said.contains(&words), "{said}");
    }
    after
}

/// A call that must have failed, after which the pool serves as before.
#[track_caller]
fn changes_nothing(pool: &Pool, call: &Finished, words: &[&str]) {
    call.complains(1, &[words, &["the pool goes on"]].concat());
    assert_eq!(serving(pool), pool.supervisor.pid());
    assert_eq!(pool.slot("cpu0").generation, 1);
    serves(&pool.client());
}

/// A pool whose program can be replaced: a link to it, in the pool's folder.
pub(crate) fn replaceable() -> (Setup, PathBuf) {
    let setup = cpu(1);
    let program = setup.folder().join("gridpool");
    symlink(binaries::gridpool(), &program).expect("a link can be made");
    (setup.program(&program), program)
}

/// Puts a script in a program's place, as a package does it.
pub(crate) fn replace(program: &Path, script: &str) {
    let new = program.with_extension("new");
    fs::write(&new, script).expect("a file can be written");
    fs::set_permissions(&new, fs::Permissions::from_mode(0o755)).expect("a mode can be set");
    fs::rename(&new, program).expect("a file can be renamed");
}

pub(crate) fn hello(version: u32, pid: u32) -> FromSuccessor {
    FromSuccessor::Hello { version, build: "x".to_owned(), pid }
}

/// The script of a successor that says this and nothing more.
pub(crate) fn says(messages: &[FromSuccessor]) -> String {
    let pack = |message| frame::pack(&codec::encode(message).expect("it fits a frame"), 0);
    let octal = |byte: u8| format!("\\{byte:03o}");
    let said: String = messages.iter().flat_map(pack).map(octal).collect();
    format!("#!/bin/sh\nprintf '{said}' >&0; exec sleep 1000\n")
}

#[test]
fn clients_under_load_do_not_notice_upgrades() {
    let upgrades = upgrades(5);
    // No dispatch waits behind another, where it might have to move.
    let pool = cpu(2).limits("feed_cost_max = 0");
    let pool = pool.env("GRIDPOOL_LOG", "info,gridpool::shell::core=debug").start();
    let load = Load::on(&pool);
    let mut supervisors = vec![serving(&pool)];
    for _ in 0..upgrades {
        load.more_jobs();
        supervisors.push(upgraded(&pool));
    }
    load.more_jobs();
    load.end(&pool, &format!("{upgrades} upgrades"));
    let last = supervisors.pop().expect("there are six");
    all_gone(&supervisors[1..]);
    let log = pool.log();
    assert!(!log.contains("panicked") && !log.contains("ERROR"), "{log}");
    // The last one has the socket and its lock.
    let mut second = pool.setup().serve();
    assert_eq!(second.exit().code(), Some(69), "{}", pool.log());
    fs::remove_file(pool.socket()).expect("a file can be removed");
    eventually_so("the socket to be served again", || pool.socket().exists());
    serves(&pool.client());
    signal(last, Signal::SIGTERM);
    all_gone(&[last]);
    assert!(!pool.socket().exists() && !pool.folder().join("pool.sock.lock").exists());
}

#[test]
fn what_runs_is_finished_by_the_old_pool_and_what_waits_runs_in_the_new_one() {
    let pool = cpu(1).limits("feed_cost_max = 0\njoin_cost_max = 0").start();
    let held = pool.stop("cpu0");
    let client = pool.client();
    let running = submit(&client, small_job(1));
    pool.until_busy("cpu0");
    let once = submit(&client, small_job(2).at_most_once());
    let given_back = [submit(&pool.client(), small_job(3)), submit(&client, large_job(4))];
    let successor = upgraded(&pool);
    // Other clients are served by the new one while the old one waits.
    serves(&pool.client());
    let [other, own] = given_back;
    assert_eq!(answer(other).verdict(), Verdict::Ok);
    let status = pool.client().status().expect("a status");
    assert_eq!((status.supervisor.pid, status.supervisor.draining), (successor, false));
    // There is no other upgrade before the old pool has ended.
    let old = format!("the pool before this one (pid {})", pool.supervisor.pid());
    pool.cli(&["upgrade"]).run().complains(1, &[&old, "type `gridpool upgrade` again"]);
    go_on(held);
    for job in [running, once, own] {
        assert_eq!(answer(job).verdict(), Verdict::Ok);
    }
    all_gone(&[pool.supervisor.pid()]);
    let next = upgraded(&pool);
    serves(&client);
    all_gone(&[successor]);
    assert!(lives(next));
}

#[test]
fn while_a_successor_comes_up_there_is_no_other_upgrade_and_no_change_of_models() {
    let (setup, program) = replaceable();
    let pool = setup.start();
    let detached = Process::new(Command::new("sleep").arg("1000").spawn().expect("it starts"));
    let said = says(&[hello(PROTOCOL_VERSION, detached.pid()), FromSuccessor::Ready]);
    replace(&program, &said.replace("exec sleep 1000", "exec 3<&0; cat <&3 >/dev/null &"));
    let first = pool.cli(&["upgrade"]).start();
    eventually_so("the upgrade to begin", || pool.log().contains("a successor is started"));
    pool.cli(&["upgrade"]).run().complains(1, &["an upgrade is under way already"]);
    eventually("the change to be refused", || {
        let change = pool.client().unload_model("any").expect_err("there is none").to_string();
        let is_so = change.contains("the pool is being upgraded: try again");
        if is_so { Ok(()) } else { Err(change) }
    });
    first.finish().complains(1, &["it did not take over"]);
}

#[test]
fn an_old_pool_that_hangs_is_killed_and_its_jobs_run_in_the_new_one() {
    let pool = cpu(1).start();
    pool.configure("drain_timeout_s = 1");
    let old = [children(pool.supervisor.pid()), vec![pool.supervisor.pid()]].concat();
    let (job, held, successor) = replaced(&pool);
    stop(pool.supervisor.pid());
    go_on(held);
    serves(&pool.client());
    all_gone(&old);
    logged(&pool, "the pool before this one does not end");
    assert_eq!(answer(job).verdict(), Verdict::Ok);
    let next = upgraded(&pool);
    assert_ne!(next, successor);
}

/// Waits until the log says so: another thread of the pool writes it.
fn logged(pool: &Pool, words: &str) {
    eventually(words, || {
        let log = pool.log();
        if log.contains(words) { Ok(()) } else { Err(log) }
    });
}

/// A pool that has a job to finish, which its worker does not: the job, the worker, and the pool that takes its place,
/// which may have less patience than this one: that one's jobs must not run out of time before it is stopped.
fn replaced(pool: &Pool) -> (Handle<Outputs>, u32, u32) {
    let held = pool.stop("cpu0");
    let job = submit(&pool.client(), small_job(1));
    pool.until_busy("cpu0");
    (job, held, upgraded(pool))
}

fn waits_for_the_old_one(pool: &Pool) {
    let waits = || pool.log().contains("the pool before this one still finishes its jobs");
    eventually_so("the new pool to wait", waits);
}

#[test]
fn a_drain_of_the_new_pool_leaves_no_old_one_that_hangs() {
    let pool = cpu(1).start();
    pool.configure("drain_timeout_s = 1\nkill_timeout_s = 2");
    let old = [children(pool.supervisor.pid()), vec![pool.supervisor.pid()]].concat();
    let (_job, _held, successor) = replaced(&pool);
    stop(pool.supervisor.pid());
    signal(successor, Signal::SIGTERM);
    all_gone(&[successor]);
    all_gone(&old);
    logged(&pool, "and this pool has drained: it is killed");
}

#[test]
fn a_signal_to_both_pools_loses_no_job_and_the_new_one_waits_for_the_old_one() {
    let pool = cpu(1).start();
    let (job, held, successor) = replaced(&pool);
    // Ctrl-C in their terminal.
    pool.signal(Signal::SIGINT);
    signal(successor, Signal::SIGINT);
    waits_for_the_old_one(&pool);
    go_on(held);
    assert_eq!(answer(job).verdict(), Verdict::Ok);
    all_gone(&[successor]);
    pool.ends_well();
}

#[test]
fn a_second_signal_ends_the_new_pool_at_once_and_the_old_one_goes_on() {
    let pool = cpu(1).start();
    let (job, held, successor) = replaced(&pool);
    signal(successor, Signal::SIGTERM);
    waits_for_the_old_one(&pool);
    eventually_so("its end", || {
        signal(successor, Signal::SIGTERM);
        !lives(successor)
    });
    go_on(held);
    assert_eq!(answer(job).verdict(), Verdict::Ok);
    pool.ends_well();
}

#[test]
fn a_replaced_pool_keeps_no_client_waiting_once_its_successor_is_gone() {
    let pool = cpu(1).start();
    let (_job, _held, successor) = replaced(&pool);
    signal(successor, Signal::SIGKILL);
    all_gone(&[successor]);
    let why = || UnixStream::connect(pool.socket()).err().map(|error| error.kind());
    eventually_so("connections to be refused", || why() == Some(ErrorKind::ConnectionRefused));
    let _next = pool.setup().clone().start_early();
}

#[test]
fn a_job_that_runs_in_the_old_pool_is_not_begun_by_the_new_one() {
    let pool = cpu(1).start();
    let held = pool.stop("cpu0");
    let (first, second) = (pool.client(), pool.client());
    let key = JobKey(7);
    let running = submit(&first, small_job(1).with_key(key));
    pool.until_busy("cpu0");
    upgraded(&pool);
    let same = second.send(small_job(1).with_key(key)).expect("the new pool reads it");
    let status = || pool.client().status().expect("a status").counters;
    serves(&second);
    assert_eq!(status().accepted, 1, "it waits");
    go_on(held);
    assert_eq!(answer(running).verdict(), Verdict::Ok);
    let replayed = within("an answer", move || same.wait()).map(drop);
    let says = |error: &ClientError| error.to_string().contains("was run before");
    assert!(replayed.as_ref().is_err_and(says), "{replayed:?}");
    assert_eq!(status().accepted, 1);
}

#[test]
fn a_successor_whose_config_is_wrong_changes_nothing() {
    let pool = cpu(1).start();
    let config = pool.folder().join("pool.toml");
    let text = fs::read_to_string(&config).expect("it was written");
    fs::write(&config, format!("{text}\nnonsense = 1\n")).expect("a file can be written");
    changes_nothing(&pool, &pool.cli(&["upgrade"]).run(), &["nonsense"]);
    fs::write(&config, text).expect("a file can be written");
    upgraded(&pool);
}

#[test]
fn a_successor_that_ends_or_is_missing_changes_nothing() {
    let (setup, program) = replaceable();
    let pool = setup.start();
    let upgrade = || pool.cli(&["upgrade"]).run();
    replace(&program, "#!/bin/sh\necho I cannot >&2\nexit 3\n");
    changes_nothing(&pool, &upgrade(), &["it ended (exit status: 3)", "in the log"]);
    assert!(pool.log().contains("I cannot"), "{}", pool.log());
    fs::remove_file(&program).expect("it is there");
    changes_nothing(&pool, &upgrade(), &["cannot be started", "No such file"]);
    replace(&program, &says(&[hello(99, 7)]));
    changes_nothing(&pool, &upgrade(), &["speaks protocol 99", "gridpool drain"]);
    fs::remove_file(&program).expect("it is there");
    symlink(binaries::gridpool(), &program).expect("a link can be made");
    upgraded(&pool);
    serves(&pool.client());
}

#[test]
fn a_successor_that_hangs_changes_nothing() {
    let (setup, program) = replaceable();
    let pool = setup.limits("upgrade_timeout_ms = 100").start();
    replace(&program, &says(&[]));
    let call = pool.cli(&["upgrade"]).run();
    changes_nothing(&pool, &call, &["it did not come up within 0.1 s", "upgrade_timeout_s"]);
}

#[test]
fn a_successor_that_says_nothing_is_given_up_soon() {
    let (setup, program) = replaceable();
    let pool = setup.start();
    replace(&program, &says(&[]));
    let call = pool.cli(&["upgrade"]).run();
    changes_nothing(&pool, &call, &["it was killed, because it said nothing within 10s"]);
    // It was not refused.
    let log = pool.log();
    let audited = log.lines().find(|line| line.contains("audit:") && line.contains("upgrade"));
    let audited = audited.expect("each order has its line");
    assert!(audited.contains("order failed") && audited.contains("within 10s"), "{audited}");
}

#[test]
fn a_successor_that_never_takes_over_is_not_said_to_come_up_late() {
    let (setup, program) = replaceable();
    let pool = setup.start();
    // It has made a process of its own, as it should.
    let detached = Process::new(Command::new("sleep").arg("1000").spawn().expect("it starts"));
    let said = says(&[hello(PROTOCOL_VERSION, detached.pid()), FromSuccessor::Ready]);
    replace(&program, &said.replace("exec sleep 1000", "exec 3<&0; cat <&3 >/dev/null &"));
    let call = pool.cli(&["upgrade"]).run();
    changes_nothing(&pool, &call, &["it did not take over within 10s"]);
    assert!(!pool.log().contains("upgrade_timeout_s"), "{}", pool.log());
}

#[test]
fn a_successor_ends_with_the_pool_that_has_started_it() {
    // No worker is ever READY.
    let pool = cpu(1).worker(stub_worker()).env("GRIDPOOL_STUB", "says-nothing").start_early();
    let first = serving(&pool);
    let call = pool.cli(&["upgrade"]).start();
    let successor = eventually("a successor", || {
        let pid = |line: &str| {
            line.split_once("a successor is started")?.1.split_once("pid=")?.1.parse().ok()
        };
        pool.log().lines().find_map(pid).ok_or("none")
    });
    eventually_so("its worker", || !children(successor).is_empty());
    signal(first, Signal::SIGKILL);
    all_gone(&[successor]);
    drop(call);
}

#[test]
fn sigusr2_upgrades_and_a_pool_that_ends_is_not_upgraded() {
    let pool = cpu(1).start();
    let first = serving(&pool);
    pool.signal(Signal::SIGUSR2);
    eventually_so("a successor", || serving(&pool) != first);
    let second = serving(&pool);
    let client = pool.client();
    let held = pool.client().status().expect("a status").workers[0].pid;
    stop(held);
    let job = submit(&client, small_job(1));
    eventually_so("the job to run", || client.status().expect("a status").counters.attempts > 0);
    signal(second, Signal::SIGTERM);
    eventually_so("a drain", || client.status().expect("a status").supervisor.draining);
    pool.cli(&["upgrade"]).run().complains(1, &["the pool is about to end"]);
    go_on(held);
    assert_eq!(answer(job).verdict(), Verdict::Ok);
    all_gone(&[second]);
    let orphan = gridpool(["serve", "--devices", "cpu:1", "--successor"]).run();
    orphan.complains(2, &["type `gridpool upgrade`"]);
}
