//! Workers that do not start, or do not work as they should.

use std::fs;

use gridpool_client::Client;
use gridpool_protocol::ids::DeviceId;
use gridpool_protocol::limits::PROTOCOL_VERSION;
use gridpool_protocol::receipt::{Attempt, AttemptOutcome, Verdict};
use gridpool_protocol::status::WorkerState;
use gridpool_tests::oracle::samples::random_grids;
use nix::sys::signal::Signal;

use crate::binaries;
use crate::command::{Finished, gridpool};
use crate::jobs::{PROGRAM, answer, data, is_right, job, serves, small_job, submit};
use crate::pool::{Pool, Setup, cpu, named, stub_worker};
use crate::processes::signal;
use crate::wait::eventually;

/// A pool of one stub worker that has this fault.
fn stubs(fault: &str) -> Setup {
    stubs_on(1, fault)
}

fn stubs_on(devices: usize, fault: &str) -> Setup {
    let real = binaries::worker().to_str().expect("a readable path");
    cpu(devices)
        .worker(stub_worker())
        .env("GRIDPOOL_STUB", fault)
        .env("GRIDPOOL_STUB_REAL", real)
        .limits("backoff_min_ms = 1\nbackoff_max_ms = 2\n")
}

/// `gridpool run` with some other worker.
fn run_with(worker: &str, fault: &str) -> Finished {
    let arguments = ["run", PROGRAM, "--devices", "cpu:1", "--worker-bin", worker, "--json"];
    let call = gridpool(arguments).arg(data("tasks/lines.json"));
    call.env("GRIDPOOL_STUB", fault).run()
}

/// How a supervisor ends whose only worker has this fault, and its log. It leaves nothing behind.
fn serve_with(setup: &Setup) -> (Option<i32>, String) {
    let code = setup.serve().exit().code();
    let entries = fs::read_dir(setup.folder()).expect("the folder can be listed");
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let left = names.filter(|name| !["log", "pool.toml"].contains(&&**name));
    assert_eq!(left.collect::<Vec<_>>(), [""; 0]);
    (code, setup.log())
}

#[test]
fn a_worker_of_another_version_is_refused_with_both_versions() {
    let build = format!("gridpool-worker 0.0.1 (protocol {PROTOCOL_VERSION})");
    let words = &format!("the worker binary is {build}, the supervisor gridpool");
    let finished = run_with(stub_worker(), "other-build");
    assert_eq!(finished.code, Some(73), "{}", finished.stderr);
    assert!(finished.stderr.contains(words), "{}", finished.stderr);
    let (code, log) = serve_with(&stubs("other-build"));
    assert_eq!(code, Some(73), "{log}");
    assert!(log.contains(words) && log.contains("install both from one build"), "{log}");
}

#[test]
fn programs_that_are_not_workers_are_given_up_with_a_sentence() {
    let stub = stub_worker();
    let cases = [
        ("/bin/true", "", "cpu0#3 died: exit code 0"),
        (stub, "exits-at-once", "cpu0#3 died: exit code 1"),
        (stub, "does-not-greet", "it did not say who it is first"),
        ("/etc/passwd", "", "/etc/passwd: Permission denied"),
    ];
    for (worker, fault, words) in cases {
        let finished = run_with(worker, fault);
        assert_eq!(finished.code, Some(73), "{worker} {fault}: {}", finished.stderr);
        for words in ["gridpool: no worker can start", words] {
            assert!(finished.stderr.contains(words), "{worker} {fault}: {}", finished.stderr);
        }
    }
}

#[test]
fn a_worker_that_never_gets_ready_is_given_up() {
    let (code, log) = serve_with(&stubs("says-nothing").limits("ready_timeout_ms = 100"));
    assert_eq!(code, Some(73), "{log}");
    assert!(log.contains("gridpool: no worker can start"), "{log}");
}

#[test]
fn a_worker_that_says_nothing_while_it_starts_is_noticed_by_its_silence() {
    let limits = "ready_timeout_s = 3000\nheartbeat_start_ms = 500";
    let (code, log) = serve_with(&stubs("says-nothing").limits(limits));
    assert_eq!(code, Some(73), "{log}");
    assert!(log.contains("it said nothing for 0.5 s"), "{log}");
}

#[test]
fn a_worker_that_exits_by_itself_costs_one_attempt() {
    let pool = stubs("first-exits-on-a-job").start();
    let grids = random_grids(31, 5);
    let answer = answer(submit(&pool.client(), job(PROGRAM, &grids)));
    is_right(&answer, PROGRAM, &grids);
    let attempts: Vec<_> =
        answer.receipt.attempts.iter().map(|a| (&*a.worker, a.outcome)).collect();
    assert_eq!(attempts, [("cpu0#1", AttemptOutcome::WorkerDied), ("cpu0#2", AttemptOutcome::Ok)]);
    assert_eq!(answer.receipt.attempts[0].detail, "exit code 0");
    assert_eq!(pool.slot("cpu0").restarts, 1);
}

/// How the first attempt of a job ended, which went to a process of this fault; the next process answers it.
fn first_attempt(pool: &Pool) -> Attempt {
    let grids = random_grids(37, 5);
    let answer = answer(submit(&pool.client(), job(PROGRAM, &grids)));
    is_right(&answer, PROGRAM, &grids);
    let [first, second] = &*answer.receipt.attempts else { panic!("{:?}", answer.receipt) };
    assert_eq!((&*second.worker, second.outcome), ("cpu0#2", AttemptOutcome::Ok), "{first:?}");
    first.clone()
}

#[test]
fn a_worker_that_hangs_up_and_lives_on_is_killed() {
    let pool = stubs("first-hangs-up-on-a-job").start();
    let first = first_attempt(&pool);
    let words = "its worker was killed: it closed its channel and lived on";
    assert_eq!((&*first.detail, first.outcome), (words, AttemptOutcome::WorkerDied));
}

#[test]
fn an_impossible_report_of_a_worker_breaks_the_protocol() {
    let first = first_attempt(&stubs("first-reports-no-number").start());
    let words = "killed by the supervisor: its report says NaN us in zeros";
    assert!(first.detail.contains(words), "{}", first.detail);
}

#[test]
fn whatever_a_corrupt_worker_sends_costs_that_worker_alone() {
    let silent = ["lifeline: a frame was not completed", "it said nothing for"];
    let cases = [
        ("sends-a-byte", &silent[..]),
        ("sends-a-byte-and-closes", &["its worker was killed: it closed its channel and lived on"]),
        ("sends-no-frame", &["lifeline: not a gridpool frame"]),
        ("sends-half-a-header-and-a-socket", &["lifeline: a frame with 1 descriptors"]),
        ("sends-a-frame-without-its-descriptor", &["lifeline: a frame with 1 descriptors"]),
        ("sends-a-frame-with-descriptors", &["lifeline: a frame with 1 descriptors"]),
        ("sends-descriptors-unannounced", &["lifeline: a frame with 1 descriptors"]),
        ("sends-a-length-beyond-all", &["lifeline: a frame of 4294967295 bytes"]),
        ("sends-half-a-frame", &silent),
        ("sends-no-message", &["channel: "]),
    ];
    for (fault, words) in cases {
        let pool = stubs(&format!("first-{fault}")).start();
        let before = pool.footprint();
        let first = first_attempt(&pool);
        let said = |words: &&str| first.detail.contains(words);
        assert!(words.iter().any(said), "{fault}: {}", first.detail);
        pool.back_to(before);
    }
}

/// A hundred workers of cpu0, one after the other, or as many as `GRIDPOOL_TEST_STREAMS` says.
#[test]
fn workers_that_send_random_packets_cost_nobody_else_anything() {
    let streams = std::env::var("GRIDPOOL_TEST_STREAMS").ok();
    let streams: u32 = streams.map_or(100, |count| count.parse().expect("a number"));
    let last = (streams + 1).to_string();
    let setup = stubs_on(2, "sends-anything").env("GRIDPOOL_STUB_LAST", &last);
    // None of them takes the device out of service.
    let limits = "restart_limit = 1000\nrestart_window_s = 1\nstart_failures_max = 1000\n\
                  attempts_max = 1000\npoison_deaths = 1000\n";
    let pool = setup.limits(limits).start();
    let client = pool.client();
    serves(&client);
    let before = pool.footprint();
    let cpu0 = "cpu0".parse::<DeviceId>().expect("a device");
    signal(pool.pid("cpu0"), Signal::SIGKILL);
    for number in 1.. {
        // Some are on such a worker when they come.
        let jobs: Vec<_> = (0..4)
            .map(|of| {
                let grids = random_grids(4 * number + of, 5);
                (submit(&client, job(PROGRAM, &grids)), grids)
            })
            .collect();
        for (handle, grids) in jobs {
            is_right(&answer(handle), PROGRAM, &grids);
        }
        let slot = pool.slot("cpu0");
        // Its last words may be those of a device that no restart mends. A release that is one too many in a minute is
        // asked for again.
        if slot.state == WorkerState::Quarantined {
            drop(pool.observer().release(cpu0));
        }
        if slot.generation > streams + 1 && slot.state == WorkerState::Ready {
            break;
        }
        // Four jobs each time, and no worker outlives a few of them.
        assert!(number < 100 * u64::from(streams), "{slot:?}");
    }
    assert_eq!(pool.slot("cpu1").restarts, 0);
    pool.back_to(before);
    assert!(!pool.log().contains("panicked"), "{}", pool.log());
}

#[test]
fn a_worker_that_listens_nowhere_is_replaced() {
    for fault in ["first-listens-nowhere", "first-listens-at-no-path"] {
        let pool = stubs(fault).start();
        serves(&pool.client());
        assert_eq!(pool.slot("cpu0").restarts, 1, "{fault}");
    }
}

#[test]
fn an_answer_to_another_attempt_has_no_effect() {
    let pool = stubs("first-answers-another-attempt").start();
    let grids = random_grids(32, 5);
    let answer = answer(submit(&pool.client(), job(PROGRAM, &grids)));
    is_right(&answer, PROGRAM, &grids);
    assert_eq!(answer.receipt.attempts.len(), 2, "{:?}", answer.receipt);
    assert!(pool.status().counters.stale >= 1);
}

#[test]
fn a_job_fails_when_the_device_has_refused_it_twice() {
    let pool = stubs("device-errors").start();
    let answer = answer(submit(&pool.client(), small_job(33)));
    assert_eq!(answer.verdict(), Verdict::Failed);
    assert!(answer.receipt.reason.contains("out of memory for a moment"), "{:?}", answer.receipt);
    let outcomes: Vec<_> = answer.receipt.attempts.iter().map(|a| a.outcome).collect();
    assert_eq!(outcomes, [AttemptOutcome::DeviceError; 2]);
    assert_eq!(pool.slot("cpu0").restarts, 0, "the worker is whole");
}

#[test]
fn a_device_whose_workers_always_die_of_the_first_job_is_quarantined() {
    let pool = stubs("exits-on-a-job").limits("attempts_max = 100\n").start();
    let answer = answer(submit(&pool.client(), small_job(34)));
    assert_eq!(answer.verdict(), Verdict::DeviceLost, "{:?}", answer.receipt);
    assert!(answer.receipt.reason.contains("cpu0#5 died: exit code 0"), "{:?}", answer.receipt);
    assert_eq!(answer.receipt.attempts.len(), 5);
    assert_eq!(pool.slot("cpu0").state, WorkerState::Quarantined);
}

#[test]
fn a_device_out_of_service_leaves_the_others_serving() {
    // A worker that serves cpu1 and not cpu0.
    let folder = tempfile::tempdir().expect("a folder for temporary files");
    let half = folder.path().join("half");
    let real = binaries::worker().display();
    let script = format!("#!/bin/sh\ncase $3 in cpu0*) exit 70;; esac\nexec '{real}' \"$@\"\n");
    write_executable(&half, &script);
    let pool = cpu(2).worker(&half).limits("backoff_min_ms = 1\nbackoff_max_ms = 2").start_early();
    pool.until("cpu0", "out of service", |slot| slot.state == WorkerState::Quarantined);
    pool.until("cpu1", "ready", |slot| slot.state == WorkerState::Ready);
    serves(&pool.client());
    assert_eq!(pool.slot("cpu0").last_fault, "cpu0#3 died: exit code 70");
    let log = pool.log();
    let said = log.lines().find(|line| line.contains("device is out of service"));
    assert!(said.is_some_and(|line| line.contains("rule=\"3 failed starts\"")), "{log}");
}

/// Writes a script and closes it before anyone runs it.
fn write_executable(path: &std::path::Path, script: &str) {
    use std::os::unix::fs::PermissionsExt;
    fs::write(path, script).expect("a file can be written");
    let executable = fs::Permissions::from_mode(0o755);
    fs::set_permissions(path, executable).expect("its mode can be set");
}

#[test]
fn a_package_that_is_upgraded_under_a_running_pool_changes_nothing() {
    let folder = tempfile::tempdir().expect("a folder for temporary files");
    let worker = folder.path().join("gridpool-worker");
    fs::copy(binaries::worker(), &worker).expect("the worker can be copied");
    let pool = cpu(1).worker(&worker).start();
    let first = pool.pid("cpu0");
    // As a package manager does it: another file takes the name.
    let other = folder.path().join("other");
    fs::copy("/bin/false", &other).expect("a program can be copied");
    fs::rename(&other, &worker).expect("it can take the name");
    pool.observer().kill(named("cpu0"), 9).expect("there is a worker");
    pool.until_status("a new worker", |status| status.workers[0].pid != first);
    serves(&pool.client());
    let name = fs::read_to_string(format!("/proc/{}/comm", pool.pid("cpu0")));
    assert_eq!(name.expect("it lives").trim_end(), "gridpool-worker");
}

#[test]
fn a_pool_with_a_relative_socket_does_not_need_the_folder_that_it_was_started_in() {
    let folder = tempfile::tempdir().expect("a folder for temporary files");
    let inner = folder.path().join("inner");
    fs::create_dir(&inner).expect("a folder can be made");
    let worker = binaries::worker().to_str().expect("a readable path");
    let serve = ["serve", "--devices", "cpu:1", "--socket", "../p.sock", "--worker-bin", worker];
    let serving = gridpool(serve).current_dir(&inner).start();
    let socket = folder.path().join("p.sock");
    let client = eventually("a pool", || Client::connect(&socket));
    fs::remove_dir(&inner).expect("it is empty");
    serves(&client);
    client.kill(named("cpu0"), 9).expect("the pool takes the order");
    serves(&client);
    let status = client.status().expect("a status");
    assert_eq!(status.quarantines, []);
    assert_eq!(status.workers[0].generation, 2, "{status:?}");
    drop(serving);
}
