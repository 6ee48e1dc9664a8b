//! A worker's death costs one attempt, never the job, the pool or another job.

use gridpool_client::{Handle, Outputs};
use gridpool_protocol::output::Output;
use gridpool_protocol::receipt::{AttemptOutcome, Verdict};
use gridpool_protocol::status::WorkerState;
use gridpool_tests::oracle::samples::random_grids;
use nix::sys::signal::Signal;

use crate::command::gridpool;
use crate::jobs::{
    PROGRAM, answer, as_npy, data, heavy_work, is_right, job, large_job, serves, small_job, submit,
};
use crate::pool::{Pool, cpu, named};
use crate::processes::{children, go_on, lives, signal, ticks};
use crate::wait::{eventually, eventually_so};

/// The device that runs the only job of a pool of two whose workers are stopped, and the other.
fn busy_and_idle(pool: &Pool) -> (&'static str, &'static str) {
    eventually("the job to be on a worker", || {
        let busy = |device| pool.slot(device).state == WorkerState::Busy;
        match (busy("cpu0"), busy("cpu1")) {
            (true, false) => Ok(("cpu0", "cpu1")),
            (false, true) => Ok(("cpu1", "cpu0")),
            both => Err(format!("{both:?}")),
        }
    })
}

/// A job that is on a stopped worker; both workers are stopped.
fn held_job(pool: &Pool) -> (Handle<Outputs>, &'static str, &'static str) {
    pool.stop("cpu0");
    pool.stop("cpu1");
    let handle = submit(&pool.client(), small_job(1));
    let (busy, idle) = busy_and_idle(pool);
    (handle, busy, idle)
}

#[test]
fn a_worker_killed_in_the_middle_of_a_job_costs_one_attempt() {
    for items in [5, 300] {
        let pool = cpu(2).start();
        let grids = random_grids(3, items);
        pool.stop("cpu0");
        pool.stop("cpu1");
        let handle = submit(&pool.client(), job(PROGRAM, &grids));
        let (busy, idle) = busy_and_idle(&pool);
        signal(pool.pid(busy), Signal::SIGKILL);
        pool.go_on(idle);

        let answer = answer(handle);
        is_right(&answer, PROGRAM, &grids);
        let [first, second] = answer.receipt.attempts.as_slice() else {
            panic!("expected two attempts: {:?}", answer.receipt)
        };
        assert_eq!(first.outcome, AttemptOutcome::WorkerDied);
        assert_eq!(*first.worker, format!("{busy}#1"));
        // Another attempt may have been quicker than the end of the process.
        let said = ["signal 9 (SIGKILL)", "its worker ended"];
        assert!(said.contains(&&*first.detail), "{}", first.detail);
        assert!(first.kernels.is_empty(), "the lost attempt has reported no kernels");
        assert_eq!(second.outcome, AttemptOutcome::Ok);
        assert!(second.kernels.iter().all(|kernel| kernel.launches >= 1));

        let slot = pool.until(busy, "in its second generation", |slot| {
            slot.generation == 2 && slot.state == WorkerState::Ready
        });
        assert_eq!((slot.name, slot.restarts), (format!("{busy}#2"), 1));
        assert!(slot.last_fault.contains("signal 9 (SIGKILL)"), "{}", slot.last_fault);
        assert_eq!(pool.slot(idle).restarts, 0, "the neighbour was not touched");
        let sums = pool.status().counters;
        assert_eq!((sums.accepted, sums.ok, sums.attempts, sums.restarts), (1, 1, 2, 1));
    }
}

#[test]
fn a_submit_whose_worker_is_killed_by_gridpool_kill_ends_ok() {
    let pool = cpu(2).start();
    for device in ["cpu0", "cpu1"] {
        let said = pool.cli(&["kill", device, "--signal", "STOP"]).run().output();
        assert_eq!(said, format!("signal 19 sent to {device}#1 (pid {})\n", pool.pid(device)));
    }
    let task = data("tasks/quarter_turn.json");
    let submit = pool.cli(&["submit", PROGRAM, "--json"]).arg(task).start();
    let (busy, idle) = busy_and_idle(&pool);
    pool.cli(&["kill", &format!("{busy}#1")]).run().output();
    pool.cli(&["kill", idle, "--signal", "18"]).run().output();
    let document = submit.finish().document();
    assert_eq!(document["results"][0]["verdict"], "OK");
    let attempts = &document["receipts"][0]["attempts"];
    assert_eq!(attempts[0]["outcome"], "worker_died");
    assert_eq!(attempts[0]["worker"], format!("{busy}#1"));
    assert_eq!(attempts[1]["outcome"], "ok");
    pool.all_ready();
    let status = pool.cli(&["status"]).run().output();
    assert!(status.contains(&format!("{busy}#2")), "{status}");
    pool.cli(&["kill", &format!("{busy}#1")]).run().complains(2, &["no worker", "cpu0#", "cpu1#"]);
}

/// The pool of `run` has no socket, so its worker is killed when it has computed for a while.
#[test]
fn a_run_whose_worker_is_killed_ends_ok() {
    let (text, grids) = heavy_work();
    // Several times the work that it has done when it is killed, since the test may see it late.
    let grids = [&grids[..]; 4].concat();
    let folder = tempfile::tempdir().expect("a folder for temporary files");
    let input = folder.path().join("grids.npy");
    std::fs::write(&input, as_npy(&grids)).expect("a file can be written");
    let arguments = ["run", &text, "--devices", "cpu:2", "--batch", "100", "--json"];
    let run = gridpool(arguments).arg(input).start();
    let victim = eventually("a worker that has computed for a while", || {
        let workers = children(run.process.pid());
        let busy = workers.iter().copied().find(|&worker| ticks(worker) > 30);
        busy.ok_or_else(|| format!("{workers:?}"))
    });
    signal(victim, Signal::SIGKILL);
    let document = run.finish().document();
    assert_eq!(document["results"][0]["verdict"], "OK");
    assert_eq!(document["results"][0]["output"], serde_json::json!(vec![5; grids.len()]));
    let receipts = document["receipts"].as_array().expect("a list of receipts");
    let outcomes = receipts.iter().map(|receipt| {
        let attempts = receipt["attempts"].as_array().expect("a list of attempts");
        attempts.iter().map(|attempt| attempt["outcome"].as_str().expect("a text")).collect()
    });
    let retried: Vec<Vec<&str>> = outcomes.filter(|outcomes: &Vec<_>| outcomes.len() > 1).collect();
    // What ran in one launch lost an attempt; what waited behind it in the channel did not.
    assert!(retried.contains(&vec!["worker_died", "ok"]), "{retried:?}");
    let once = [["worker_died", "ok"], ["preempted", "ok"]];
    assert!(
        retried.iter().all(|outcomes| once.contains(&outcomes[..].try_into().unwrap_or([""; 2])))
    );
}

#[test]
fn a_job_that_kills_two_workers_is_poison_and_the_pool_goes_on() {
    let pool = cpu(2).start();
    pool.stop("cpu0");
    pool.stop("cpu1");
    let task = data("tasks/quarter_turn.json");
    let submit = pool.cli(&["submit", PROGRAM, "--json"]).arg(task).start();
    let (first, second) = busy_and_idle(&pool);
    for device in [first, second] {
        pool.until_busy(device);
        let pid = pool.pid(device);
        signal(pid, Signal::SIGSEGV);
        go_on(pid);
        eventually_so("the worker to be dead", || !lives(pid));
    }
    let finished = submit.finish();
    assert_eq!(finished.code, Some(1), "{}", finished.stderr);
    let document: serde_json::Value = serde_json::from_str(&finished.stdout).expect("JSON");
    assert_eq!(document["results"][0]["verdict"], "POISON");
    assert!(document["results"][0]["output"].is_null());
    let receipt = &document["receipts"][0];
    for (attempt, device) in [(0, first), (1, second)] {
        let attempt = &receipt["attempts"][attempt];
        assert_eq!(attempt["worker"], format!("{device}#1"));
        assert_eq!(attempt["outcome"], "worker_died");
        assert_eq!(attempt["detail"], "signal 11 (SIGSEGV)");
    }
    assert_eq!(receipt["attempts"].as_array().map(Vec::len), Some(2));
    pool.all_ready();
    serves(&pool.client());
    assert_eq!(pool.status().counters.poison, 1);
}

#[test]
fn a_worker_that_stops_answering_is_killed_and_its_job_runs_elsewhere() {
    // The job is not cut into shards: one worker runs all of it.
    let whole = format!("shard_cost_min = {}", 1_u64 << 40);
    let limits = format!("heartbeat_suspect_ms = 1500\nheartbeat_kill_ms = 2000\n{whole}");
    let pool = cpu(2).only_limits(&limits).start();
    // Stopped only when it runs something: an idle one would be passed over as suspect.
    let (text, grids) = heavy_work();
    let handle = submit(&pool.client(), job(&text, &grids));
    let (busy, idle) = busy_and_idle(&pool);
    let hung = pool.stop(busy);
    let answer = answer(handle);
    let outputs = answer.outputs().expect("OK comes with results");
    for item in 0..grids.len() {
        assert_eq!(outputs.item(item).expect("well formed"), Ok(Output::Number(5)), "item {item}");
    }
    let outcomes: Vec<_> = answer.receipt.attempts.iter().map(|a| a.outcome).collect();
    assert_eq!(outcomes, [AttemptOutcome::Hang, AttemptOutcome::Ok], "{:?}", answer.receipt);
    assert_eq!(*answer.receipt.attempts[1].worker, format!("{idle}#1"));
    assert!(!lives(hung), "the hung worker was killed");
    let slot = pool.until(busy, "in its second generation", |slot| slot.generation == 2);
    assert!(slot.last_fault.contains("said nothing for 2 s and was killed"), "{}", slot.last_fault);
}

#[test]
fn an_idle_worker_killed_by_any_signal_is_replaced() {
    // Not the signals that a background process ignores.
    let signals = [
        (Signal::SIGKILL, "signal 9 (SIGKILL)"),
        (Signal::SIGTERM, "signal 15 (SIGTERM)"),
        (Signal::SIGUSR1, "signal 10 (SIGUSR1)"),
        (Signal::SIGABRT, "signal 6 (SIGABRT)"),
        (Signal::SIGBUS, "signal 7 (SIGBUS)"),
        (Signal::SIGSEGV, "signal 11 (SIGSEGV)"),
    ];
    let pool = cpu(1).start();
    for (generation, (number, words)) in (2..).zip(signals) {
        signal(pool.pid("cpu0"), number);
        let slot = pool.until("cpu0", "replaced", |slot| {
            slot.generation == generation && slot.state == WorkerState::Ready
        });
        assert_eq!(slot.last_fault, format!("cpu0#{} died: {words}", generation - 1));
        serves(&pool.client());
    }
    assert_eq!(pool.slot("cpu0").jobs_done, 6);
}

#[test]
fn a_job_that_may_run_once_fails_when_its_worker_dies() {
    let pool = cpu(2).start();
    pool.stop("cpu0");
    pool.stop("cpu1");
    let handle = submit(&pool.client(), small_job(6).at_most_once());
    let (busy, idle) = busy_and_idle(&pool);
    signal(pool.pid(busy), Signal::SIGKILL);
    let answer = answer(handle);
    assert_eq!(answer.verdict(), Verdict::Failed);
    assert!(answer.receipt.reason.contains("it may not run twice"), "{}", answer.receipt.reason);
    assert_eq!(answer.receipt.attempts.len(), 1);
    pool.go_on(idle);
    serves(&pool.client());
}

#[test]
fn workers_that_die_all_the_time_lose_no_job_and_answer_each_once() {
    const CLIENTS: u64 = 3;
    const JOBS: u64 = 40;
    let pool = cpu(2).limits("backoff_min_ms = 1\nbackoff_max_ms = 10\nattempts_max = 100").start();
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let client = pool.client();
            std::thread::spawn(move || {
                for seed in 0..JOBS {
                    // Every third in shared memory.
                    let items = if seed % 3 == 0 { 300 } else { 5 };
                    let grids = random_grids(1_000 * number + seed, items);
                    is_right(&answer(submit(&client, job(PROGRAM, &grids))), PROGRAM, &grids);
                }
            })
        })
        .collect();
    let mut deaths = 0;
    while clients.iter().any(|client| !client.is_finished()) {
        let status = pool.status();
        let victims = status.workers.iter().filter(|row| row.state == WorkerState::Busy);
        for victim in victims {
            // It may have died of something else meanwhile.
            if pool.observer().kill(named(&victim.name), 9).is_ok() {
                deaths += 1;
            }
        }
        // The next deaths come when there is work again that was done in spite of these.
        let done = status.counters.ok;
        eventually_so("some job to be done", || {
            pool.status().counters.ok >= done + 3 || clients.iter().all(|c| c.is_finished())
        });
    }
    for client in clients {
        client.join().expect("every job was answered, and rightly");
    }
    let sums = pool.status().counters;
    assert_eq!((sums.accepted, sums.ok), (CLIENTS * JOBS, CLIENTS * JOBS));
    assert!(deaths > 0 && sums.attempts > sums.ok, "{deaths} deaths, {sums:?}");
}

#[test]
fn a_held_job_is_not_lost_when_its_worker_goes_on() {
    let pool = cpu(2).start();
    let (handle, busy, idle) = held_job(&pool);
    pool.go_on(busy);
    let answer = answer(handle);
    assert_eq!(answer.verdict(), Verdict::Ok);
    assert_eq!(answer.receipt.attempts.len(), 1, "a pause is no death");
    pool.go_on(idle);
    assert_eq!(*answer.receipt.attempts[0].worker, format!("{busy}#1"));
    let handle = submit(&pool.client(), large_job(2));
    assert_eq!(crate::jobs::answer(handle).verdict(), Verdict::Ok);
}
