//! A supervisor's start, end and death, and what it leaves behind.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::time::Duration;

use gridpool_client::{Client, ClientError};
use gridpool_ipc::clock;
use gridpool_protocol::message::Refusal;
use gridpool_protocol::receipt::Verdict;
use gridpool_protocol::status::{WorkerState, WorkerStatus};
use gridpool_tests::oracle::samples::random_grids;
use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::command::gridpool;
use crate::jobs::{
    PROGRAM, answer, as_json, as_npy, data, heavy_work, job, large_job, serves, small_job, submit,
};
use crate::pool::{Setup, cpu, named};
use crate::processes::{all_gone, children, go_on, maps, signal, stop, ticks};
use crate::wait::{eventually, eventually_so};

/// What a pool that runs has in its folder.
const FILES: [&str; 3] = ["a folder of its own", "pool.sock", "pool.sock.lock"];

/// What lies in the folder of a pool but for what these tests need; for a folder of the process
/// `supervisor` its place in the name.
fn files(setup: &Setup, supervisor: u32) -> Vec<String> {
    let entries = fs::read_dir(setup.folder()).expect("the folder can be listed");
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let passing = |name: &String| !["log", "pool.toml"].contains(&&**name);
    let own = |name: String| match name.strip_suffix(&supervisor.to_string()) {
        Some(_) => "a folder of its own".to_owned(),
        None => name,
    };
    let mut names: Vec<String> = names.filter(passing).map(own).collect();
    names.sort();
    names
}

#[test]
fn a_second_supervisor_on_one_socket_is_refused_and_the_first_serves_on() {
    let pool = cpu(1).start();
    let mut second = pool.setup().serve();
    assert_eq!(second.exit().code(), Some(69), "{}", pool.log());
    let sentence =
        format!("gridpool: another supervisor is running at {}", pool.socket().display());
    assert!(pool.log().contains(&sentence), "{}", pool.log());
    serves(&pool.client());
    assert_eq!(pool.slot("cpu0").generation, 1);
    assert_eq!(files(pool.setup(), pool.supervisor.pid()), FILES);
}

#[test]
fn a_killed_supervisor_leaves_no_process_and_nothing_that_blocks_a_restart() {
    let pool = cpu(3).start();
    pool.stop("cpu0");
    pool.stop("cpu1");
    pool.stop("cpu2");
    let client = pool.client();
    let _jobs = [submit(&client, small_job(1)), submit(&client, large_job(2))];
    pool.until_status("both jobs to run", |status| status.counters.attempts == 2);
    pool.go_on("cpu2");
    let workers = pool.pids();
    for process in workers.iter().chain([&pool.supervisor.pid()]) {
        assert!(!maps(*process).contains("/dev/shm/"), "shared memory with a name");
    }
    let setup = pool.killed();
    all_gone(&workers);
    assert!(setup.socket().exists(), "SIGKILL leaves no time to clean up");
    let shared = fs::read_dir("/dev/shm").expect("it can be listed");
    let names = shared.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let ours = |name: &String| ["gridpool", "ipc-channel"].iter().any(|ours| name.contains(ours));
    assert_eq!(names.filter(ours).collect::<Vec<_>>(), [""; 0]);
    drop(client);

    let pool = setup.start();
    serves(&pool.client());
    assert_eq!(files(pool.setup(), pool.supervisor.pid()), FILES);
}

#[test]
fn a_killed_run_leaves_no_process() {
    let (text, grids) = heavy_work();
    let folder = tempfile::tempdir().expect("a folder for temporary files");
    let input = folder.path().join("grids.npy");
    fs::write(&input, as_npy(&grids)).expect("a file can be written");
    let mut run = gridpool(["run", &text, "--devices", "cpu:2"]).arg(input).start();
    let workers = eventually("the workers to be busy", || {
        let workers = children(run.process.pid());
        let busy = workers.len() == 2 && workers.iter().all(|&worker| ticks(worker) > 10);
        if busy { Ok(workers) } else { Err(format!("{workers:?}")) }
    });
    run.process.kill();
    all_gone(&workers);
}

#[test]
fn a_signal_drains_accepted_jobs_and_new_ones_are_refused() {
    for number in [Signal::SIGTERM, Signal::SIGINT] {
        let pool = cpu(1).start();
        pool.stop("cpu0");
        let client = pool.client();
        let jobs = [submit(&client, small_job(1)), submit(&client, large_job(2))];
        pool.until_busy("cpu0");
        pool.signal(number);
        pool.until_status("the pool to drain", |status| status.supervisor.draining);
        let refused = client.submit(small_job(3).refuse_if_busy()).map(drop);
        assert!(matches!(refused, Err(ClientError::Refused(Refusal::Draining))), "{refused:?}");
        let call = pool.cli(&["submit", PROGRAM, "--no-wait"]).arg(data("tasks/lines.json")).run();
        call.complains(69, &["gridpool: the pool is draining", "leave out --no-wait"]);
        pool.go_on("cpu0");
        for job in jobs {
            assert_eq!(answer(job).verdict(), Verdict::Ok);
        }
        let (setup, supervisor) = (pool.setup().clone(), pool.supervisor.pid());
        pool.ends_well();
        assert_eq!(files(&setup, supervisor), [""; 0]);
    }
}

#[test]
fn a_second_signal_a_second_later_stops_at_once() {
    let pool = cpu(1).start();
    let held = pool.stop("cpu0");
    let client = pool.client();
    let jobs = [submit(&client, small_job(1)), submit(&client, large_job(2))];
    pool.until_busy("cpu0");
    pool.signal_twice();
    for job in jobs {
        let answer = answer(job);
        assert_eq!(answer.verdict(), Verdict::Cancelled);
        assert!(answer.receipt.reason.contains("the pool stopped"), "{:?}", answer.receipt);
    }
    pool.ends_well();
    all_gone(&[held]);
}

#[test]
fn drain_returns_when_the_pool_is_gone() {
    let pool = cpu(1).start();
    pool.stop("cpu0");
    let client = pool.client();
    let job = submit(&client, small_job(1));
    pool.until_busy("cpu0");
    let mut drain = pool.cli(&["drain"]).start();
    pool.until_status("the pool to drain", |status| status.supervisor.draining);
    assert!(drain.process.is_running(), "a job is left");
    pool.go_on("cpu0");
    assert_eq!(answer(job).verdict(), Verdict::Ok);
    assert_eq!(drain.finish().output(), "the pool has finished its last job (1 OK) and stopped\n");
    pool.wait_closed();
    pool.ends_well();
}

#[test]
fn drain_reports_an_empty_pool_or_the_unfinished_jobs() {
    let pool = cpu(1).start();
    serves(&pool.client());
    let drain = pool.cli(&["drain"]).run();
    assert_eq!(drain.output(), "the pool had no job left and has stopped\n");
    pool.ends_well();

    let pool = cpu(1).limits("drain_timeout_ms = 100").start();
    pool.stop("cpu0");
    let client = pool.client();
    let jobs = [submit(&client, small_job(1)), submit(&client, large_job(2))];
    pool.until_busy("cpu0");
    let said = pool.cli(&["drain"]).run().output();
    let want = "the pool has stopped, but not finished its last 2 jobs: 2 CANCELLED\n";
    assert_eq!(said, want);
    for job in jobs {
        assert_eq!(answer(job).verdict(), Verdict::Cancelled);
    }
    pool.ends_well();
}

/// Two files of 20 grids each: more jobs of one grid than `submit` has under way at a time.
fn two_inputs(folder: &Path) -> [String; 2] {
    ["a", "b"].map(|name| {
        let path = folder.join(name);
        fs::write(&path, as_json(&random_grids(3, 20))).expect("a file can be written");
        path.into_os_string().into_string().expect("a readable path")
    })
}

#[test]
fn a_submit_during_a_drain_gets_its_accepted_jobs_and_names_the_rest() {
    let folder = tempfile::tempdir().expect("a folder for temporary files");
    let [a, b] = two_inputs(folder.path());
    for form in ["--json", "--quiet"] {
        let pool = cpu(2).limits("feed_cost_max = 0").start();
        pool.stop("cpu0");
        pool.stop("cpu1");
        // The pool does not end before this job does.
        let last = submit(&pool.client(), small_job(1));
        let holds = |row: &WorkerStatus| row.state == WorkerState::Busy;
        let status = pool.until_status("a busy worker", |status| status.workers.iter().any(holds));
        let busy = if holds(&status.workers[0]) { ["cpu0", "cpu1"] } else { ["cpu1", "cpu0"] };
        let submit =
            pool.cli(&["submit", PROGRAM, "--no-wait", "--batch", "1", form, &a, &b]).start();
        pool.until_status("jobs to be accepted", |status| status.counters.accepted == 33);
        let mut drain = pool.cli(&["drain"]).start();
        pool.until_status("the pool to drain", |status| status.supervisor.draining);
        pool.go_on(busy[1]);
        let submitted = submit.finish();
        assert_eq!(submitted.code, Some(69), "{submitted:?}");
        let want = "gridpool: the pool is draining; 32 of 40 items have a verdict, 8 have none: submit \
                    those again; leave out --no-wait to wait for the next pool, or name another with \
                    --socket\n";
        assert_eq!(submitted.stderr, want);
        if form == "--json" {
            let document: Value = serde_json::from_str(&submitted.stdout).expect("one document");
            let results = document["results"].as_array().expect("a list of results");
            let verdicts: Vec<_> = results.iter().map(|result| &result["verdict"]).collect();
            assert_eq!(verdicts, [&json!("OK"), &Value::Null]);
            assert_eq!(results[0]["output"].as_array().map(Vec::len), Some(20));
            let partly = results[1]["output"].as_array().expect("what was done, null for the rest");
            assert_eq!(partly.iter().filter(|output| output.is_null()).count(), 8, "{partly:?}");
            assert_eq!(document["receipts"].as_array().map(Vec::len), Some(32));
        } else {
            let text = &submitted.stdout;
            let partly =
                format!("{b}  no verdict; 12 of 20 grids have a result, which --json shows\n");
            assert!(text.contains(&partly), "{text}");
            assert!(text.contains("\n2 inputs, 40 grids: 1 OK, 1 no verdict; "), "{text}");
            assert!(text.contains(&format!("\n{}#1  32 grids  ", busy[1])), "{text}");
        }
        assert!(drain.process.is_running(), "a job is left");
        pool.go_on(busy[0]);
        assert_eq!(answer(last).verdict(), Verdict::Ok);
        let said = drain.finish().output();
        assert_eq!(said, "the pool has finished its last 33 jobs (33 OK) and stopped\n");
        pool.ends_well();
    }
}

/// What it was told before the pool ended, `submit` reads when it goes on.
#[test]
fn a_submit_whose_pool_has_stopped_says_so_and_shows_its_results() {
    let folder = tempfile::tempdir().expect("a folder for temporary files");
    let [a, b] = two_inputs(folder.path());
    let pool = cpu(1).start();
    pool.stop("cpu0");
    let submit = pool.cli(&["submit", PROGRAM, "--batch", "1", "--json", &a, &b]).start();
    pool.until_status("jobs to be accepted", |status| status.counters.accepted == 32);
    stop(submit.process.pid());
    let drain = pool.cli(&["drain"]).start();
    pool.until_status("the pool to drain", |status| status.supervisor.draining);
    pool.go_on("cpu0");
    let said = drain.finish().output();
    assert_eq!(said, "the pool has finished its last 32 jobs (32 OK) and stopped\n");
    let submitter = submit.process.pid();
    pool.ends_well();
    go_on(submitter);
    let submitted = submit.finish();
    assert_eq!(submitted.code, Some(69), "{submitted:?}");
    let want = "gridpool: the pool closed the connection: it was drained and has stopped; 32 of 40 items \
                have a verdict, 8 have none: submit those again\n";
    assert_eq!(submitted.stderr, want);
    let document: Value = serde_json::from_str(&submitted.stdout).expect("one document");
    assert_eq!(document["receipts"].as_array().map(Vec::len), Some(32));
}

#[test]
fn the_private_folder_is_made_again_or_the_obstacle_is_named() {
    let pool = cpu(1).start();
    let own = format!(".gridpool-boot-{}", pool.supervisor.pid());
    let own = pool.folder().join(own);
    fs::remove_dir_all(&own).expect("it is there");
    pool.cli(&["kill", "cpu0"]).run().output();
    pool.until("cpu0", "replaced", |slot| slot.restarts == 1 && slot.state == WorkerState::Ready);
    let mode = fs::metadata(&own).expect("it is there again").permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    assert!(pool.log().contains("the folder was gone: it is made again"), "{}", pool.log());
    serves(&pool.client());

    fs::remove_dir_all(&own).expect("it is there");
    fs::write(&own, "").expect("a file can be written");
    pool.cli(&["kill", "cpu0"]).run().output();
    let sentence = format!(
        "could not be started: {} is not the private folder that this supervisor made: remove it",
        own.display()
    );
    pool.until("cpu0", "not started", |slot| slot.last_fault.ends_with(&sentence));
    fs::remove_file(&own).expect("it is there");
    pool.until("cpu0", "replaced", |slot| slot.state == WorkerState::Ready);
    serves(&pool.client());
}

#[test]
fn a_pool_whose_socket_is_removed_serves_a_new_one_and_keeps_its_connections() {
    let pool = cpu(1).start();
    let before = pool.client();
    for name in ["pool.sock", "pool.sock.lock"] {
        fs::remove_file(pool.folder().join(name)).expect("it is there");
        let again = || Client::connect(pool.socket()).map_err(|error| error.to_string());
        serves(&eventually("the pool to answer at a new socket", again));
        serves(&before);
    }
    assert!(pool.log().contains("the socket was removed, and is served again"), "{}", pool.log());
    assert_eq!(files(pool.setup(), pool.supervisor.pid()), FILES);
    pool.signal(Signal::SIGTERM);
    pool.ends_well();
}

#[test]
fn a_pool_whose_folder_is_moved_makes_it_again_and_ends_if_a_link_is_in_its_place() {
    let pool = cpu(1).start();
    let [here, link] = ["here", "link"].map(|name| pool.folder().join(name));
    let socket = here.join("pool.sock");
    let is_served = || Client::connect(&socket).is_ok();
    fs::create_dir(&here).expect("a folder can be made");
    let serve = gridpool(["serve", "--devices", "cpu:2", "--socket"]).arg(&socket).start();
    eventually_so("the pool to answer", is_served);
    fs::rename(&here, pool.folder().join("gone")).expect("it can be renamed");
    eventually_so("the pool to answer in a new folder", is_served);
    // A link to a folder in which another pool serves.
    symlink(pool.folder(), &link).expect("a link can be made");
    let exchange = RenameFlags::RENAME_EXCHANGE;
    renameat2(AT_FDCWD, &here, AT_FDCWD, &link, exchange).expect("they can be exchanged");
    let ended = serve.finish();
    assert_eq!(ended.code, Some(69), "{}", ended.stderr);
    let why = "gridpool: the socket was removed, and the pool could not open it again: ";
    assert!(ended.stderr.contains(why), "{}", ended.stderr);
    assert!(ended.stderr.contains("here is a symbolic link"), "{}", ended.stderr);
    serves(&pool.client());
    let names = ["pool.sock", "pool.sock.lock"].map(|name| link.join(name).exists());
    assert_eq!(names, [false; 2], "it clears up where it made them");
    let moved = fs::read_dir(pool.folder().join("gone")).expect("it is there");
    assert_eq!(moved.count(), 0, "and in the folder that was moved");
}

#[test]
fn neither_the_loss_of_a_terminal_nor_a_signal_sent_twice_stops_a_pool() {
    let pool = cpu(1).start();
    pool.signal(Signal::SIGHUP);
    serves(&pool.client());
    let (text, grids) = heavy_work();
    let job = submit(&pool.client(), job(&text, &grids));
    pool.until_busy("cpu0");
    pool.signal(Signal::SIGTERM);
    pool.signal(Signal::SIGINT);
    assert_eq!(answer(job).verdict(), Verdict::Ok, "a stop would have cancelled it");
    pool.ends_well();
}

#[test]
fn a_drain_ends_at_its_timeout() {
    let pool = cpu(1).limits("drain_timeout_ms = 100").start();
    let held = pool.stop("cpu0");
    let job = submit(&pool.client(), small_job(1));
    pool.until_busy("cpu0");
    pool.signal(Signal::SIGTERM);
    assert_eq!(answer(job).verdict(), Verdict::Cancelled);
    pool.ends_well();
    all_gone(&[held]);
}

#[test]
fn a_worker_that_does_not_stop_when_it_is_told_to_is_killed() {
    let pool = cpu(2).limits("kill_timeout_ms = 200").start();
    let held = pool.stop("cpu0");
    pool.signal(Signal::SIGTERM);
    pool.ends_well();
    all_gone(&[held]);
}

#[test]
fn a_stopped_supervisor_does_not_take_its_workers_for_hung() {
    let limits = "heartbeat_suspect_ms = 1500\nheartbeat_kill_ms = 2000";
    let pool = cpu(2).only_limits(limits).start();
    stop(pool.supervisor.pid());
    let end = clock::now() + Duration::from_secs(4);
    let status = pool.cli(&["status"]).run();
    status.complains(69, &["the pool does not answer: it may be stopped or overloaded"]);
    eventually_so("it to have stood still long enough", || clock::until(end).is_zero());
    go_on(pool.supervisor.pid());
    serves(&pool.client());
    assert_eq!(pool.status().counters.restarts, 0);
}

#[test]
fn a_pool_that_is_told_to_end_while_its_workers_start_ends() {
    for number in [1, 2] {
        let pool = cpu(4).start_early();
        for _ in 0..number {
            signal(pool.supervisor.pid(), Signal::SIGTERM);
        }
        pool.ends_well();
    }
}

#[test]
fn a_closed_log_does_not_end_the_pool() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    let pool = cpu(1).start_piped(writer);
    pool.all_ready();
    drop(reader);
    // It has something to say about this, as the next worker has.
    pool.client().kill(named("cpu0"), 9).expect("it is there");
    pool.until("cpu0", "the next one", |row| row.generation > 1 && row.state == WorkerState::Ready);
    serves(&pool.client());
    pool.signal(Signal::SIGTERM);
    pool.ends_well();
}

#[test]
fn only_the_default_folder_of_a_socket_is_made() {
    let folder = tempfile::tempdir().expect("a folder for temporary files");
    let socket = folder.path().join("gridpool/pool.sock");
    let serve = gridpool(["serve", "--devices", "cpu:1"]).env("XDG_RUNTIME_DIR", folder.path());
    let mut serve = serve.start();
    eventually_so("the pool's socket to be there", || socket.exists());
    let mode = fs::metadata(folder.path().join("gridpool")).expect("it was made").permissions();
    assert_eq!(mode.mode() & 0o777, 0o700);
    serve.process.kill();

    let serve = gridpool(["serve", "--devices", "cpu:1"]);
    let serve = serve.env("XDG_RUNTIME_DIR", folder.path().join("none")).run();
    serve.complains(78, &["none/gridpool cannot be made: make it with `mkdir -p ", "No such file"]);
    let config = folder.path().join("pool.toml");
    fs::write(&config, "socket = 'none/pool.sock'\n").expect("a file can be written");
    // A pool of its own listens nowhere, so it needs no such folder, and makes none.
    let run = gridpool(["run", PROGRAM, "--devices", "cpu:1", "--config"]).arg(&config);
    run.arg(data("tasks/lines.json")).run().output();
    assert!(!folder.path().join("none").exists());
}
