//! Injected faults: each costs what it should, the pool serves other jobs meanwhile and afterwards, and only a
//! pool with `--allow-chaos` accepts them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use gridpool_client::{Answer, Client, ClientError, Job, Outputs};
use gridpool_protocol::chaos::{Chaos, ChaosFault, SLOW_REPLY};
use gridpool_protocol::message::Refusal;
use gridpool_protocol::receipt::{AttemptOutcome, Verdict};
use gridpool_protocol::status::WorkerState;
use gridpool_tests::oracle::samples::random_grids;
use serde_json::{Value, json};

use crate::command::gridpool;
use crate::jobs::{PROGRAM, answer, data, is_right, job, serves, submit};
use crate::pool::{Pool, Setup, cpu};

/// What the innocent run: another program, so that none of their jobs joins the fault's launch.
const INNOCENT: &str = "hmirror | replace(2, 3)";

/// Two workers, and faults are taken.
fn chaotic() -> Setup {
    cpu(2).env("GRIDPOOL_ALLOW_CHAOS", "1")
}

fn chaos(fault: &str, attempts: u32) -> Chaos {
    Chaos { fault: fault.parse().expect("it is a fault"), attempts }
}

/// Somebody who submits one job after the other and wants all of them answered rightly.
struct Innocent {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<usize>,
}

impl Innocent {
    fn of(pool: &Pool) -> Self {
        let (stop, client) = (Arc::new(AtomicBool::new(false)), pool.client());
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut jobs = 0;
            while !stopped.load(Ordering::Relaxed) {
                let items = if jobs % 3 == 0 { 300 } else { 5 };
                let grids = random_grids(jobs as u64, items);
                is_right(&answer(submit(&client, job(INNOCENT, &grids))), INNOCENT, &grids);
                jobs += 1;
            }
            jobs
        });
        Self { stop, thread }
    }

    /// Waits for the end of the job under way; all of them were answered rightly.
    fn ends_content(self) {
        self.stop.store(true, Ordering::Relaxed);
        let jobs = self.thread.join().expect("every job was answered, and rightly");
        assert!(jobs > 0, "none was under way");
    }
}

/// The answer to a job that meets a fault, and its attempts without the last if that went well.
fn struck(
    client: &Client,
    job: Job<Outputs>,
    chaos: Chaos,
) -> (Answer<Outputs>, Vec<(AttemptOutcome, String)>) {
    let answer = answer(submit(client, job.with_chaos(chaos)));
    let attempts = answer.receipt.attempts.iter();
    let attempts = attempts.filter(|attempt| attempt.outcome != AttemptOutcome::Ok);
    let attempts = attempts.map(|attempt| (attempt.outcome, attempt.detail.clone())).collect();
    (answer, attempts)
}

/// A job meets `fault` once, while others run: it is answered rightly by its second attempt, so are
/// they, and the pool has both its workers again.
#[track_caller]
fn costs_one_attempt(fault: &str, outcome: AttemptOutcome, detail: &str) {
    let pool = chaotic().start();
    let innocent = Innocent::of(&pool);
    for items in [5, 300] {
        let grids = random_grids(11, items);
        let (answer, lost) = struck(&pool.client(), job(PROGRAM, &grids), chaos(fault, 1));
        is_right(&answer, PROGRAM, &grids);
        let [(got, words)] = lost.as_slice() else { panic!("{fault}: {:?}", answer.receipt) };
        assert_eq!(*got, outcome, "{fault}: {words}");
        // Where the result comes in the answer, another attempt waits for nothing, and so may not know
        // yet what the first died of.
        let said = words.contains(detail) || items == 5 && words == "its worker ended";
        assert!(said, "{fault}: `{detail}` is not in `{words}`");
        serves(&pool.client());
    }
    innocent.ends_content();
    pool.all_ready();
    assert_eq!(pool.status().counters.ok, pool.status().counters.accepted, "{fault}");
}

#[test]
fn device_faults_on_a_cpu_are_the_signals_of_a_process_and_cost_one_attempt() {
    for (fault, detail) in [
        ("oob", "signal 11 (SIGSEGV)"),
        ("trap", "signal 4 (SIGILL)"),
        ("misaligned", "signal 7 (SIGBUS)"),
        ("assert", "signal 6 (SIGABRT)"),
    ] {
        costs_one_attempt(fault, AttemptOutcome::WorkerDied, detail);
    }
}

#[test]
fn host_faults_cost_one_attempt() {
    for (fault, detail) in
        [("exit", "exit code 1"), ("segv", "signal 11 (SIGSEGV)"), ("abort", "signal 6 (SIGABRT)")]
    {
        costs_one_attempt(fault, AttemptOutcome::WorkerDied, detail);
    }
}

#[test]
fn garbage_in_place_of_an_answer_costs_one_attempt_and_not_the_supervisor() {
    costs_one_attempt("corrupt", AttemptOutcome::WorkerDied, "malformed message");
}

#[test]
fn a_device_without_memory_costs_one_attempt_and_no_worker() {
    let pool = chaotic().start();
    let innocent = Innocent::of(&pool);
    let grids = random_grids(12, 5);
    let (answer, lost) = struck(&pool.client(), job(PROGRAM, &grids), chaos("memory", 1));
    is_right(&answer, PROGRAM, &grids);
    assert_eq!(lost.len(), 1, "{lost:?}");
    assert_eq!(lost[0].0, AttemptOutcome::DeviceError);
    assert!(lost[0].1.contains("no memory for"), "{lost:?}");
    let (answer, lost) = struck(&pool.client(), job(PROGRAM, &grids), chaos("memory", 9));
    assert_eq!((answer.verdict(), lost.len()), (Verdict::Failed, 2), "{lost:?}");
    innocent.ends_content();
    let workers = pool.status().workers;
    assert!(workers.iter().all(|row| row.generation == 1), "{workers:?}");
}

#[test]
fn an_endless_run_ends_at_its_deadline_and_its_worker_with_it() {
    let pool = chaotic().start();
    let innocent = Innocent::of(&pool);
    let endless = job(PROGRAM, &random_grids(13, 5)).with_deadline(Duration::from_millis(300));
    let (answer, lost) = struck(&pool.client(), endless, chaos("endless", 1));
    assert_eq!(answer.verdict(), Verdict::Deadline);
    assert_eq!(lost.len(), 1, "{lost:?}");
    assert_eq!(lost[0].0, AttemptOutcome::Deadline);
    let victim = answer.receipt.attempts[0].device.id().to_string();
    pool.until(&victim, "replaced", |slot| {
        slot.generation == 2 && matches!(slot.state, WorkerState::Ready | WorkerState::Busy)
    });
    innocent.ends_content();
    serves(&pool.client());
}

#[test]
fn a_worker_that_stops_itself_is_missed_and_its_job_runs_elsewhere() {
    let limits = "heartbeat_suspect_ms = 1500\nheartbeat_kill_ms = 2000";
    let pool = chaotic().only_limits(limits).start();
    let innocent = Innocent::of(&pool);
    let grids = random_grids(14, 5);
    let (answer, lost) = struck(&pool.client(), job(PROGRAM, &grids), chaos("stop", 1));
    is_right(&answer, PROGRAM, &grids);
    assert_eq!(lost.len(), 1, "{lost:?}");
    assert_eq!(lost[0].0, AttemptOutcome::Hang);
    innocent.ends_content();
    pool.all_ready();
    serves(&pool.client());
}

#[test]
fn a_slow_answer_is_late_by_its_time_and_costs_nothing() {
    let pool = chaotic().start();
    let innocent = Innocent::of(&pool);
    let grids = random_grids(15, 5);
    let (answer, lost) = struck(&pool.client(), job(PROGRAM, &grids), chaos("slow", 1));
    is_right(&answer, PROGRAM, &grids);
    assert_eq!(lost, []);
    let took = Duration::from_micros(answer.receipt.total_us);
    assert!(took >= SLOW_REPLY, "{took:?}");
    innocent.ends_content();
    let workers = pool.status().workers;
    assert!(workers.iter().all(|row| row.generation == 1), "{workers:?}");
}

#[test]
fn a_fault_in_two_attempts_is_poison_and_only_for_its_job() {
    let pool = chaotic().start();
    let innocent = Innocent::of(&pool);
    let (answer, lost) =
        struck(&pool.client(), job(PROGRAM, &random_grids(16, 5)), chaos("segv", 2));
    assert_eq!(answer.verdict(), Verdict::Poison, "{:?}", answer.receipt);
    assert!(answer.outputs().is_none());
    assert_eq!(lost.len(), 2, "{lost:?}");
    innocent.ends_content();
    pool.all_ready();
    let sums = pool.status().counters;
    assert_eq!((sums.poison, sums.ok), (1, sums.accepted - 1));
    serves(&pool.client());
}

/// A bit of every result is another, and no code says so.
#[test]
fn wrong_results_are_found_by_the_next_known_answer_test() {
    let pool = chaotic().limits("known_answer_every_ms = 500").start();
    let client = pool.client();
    let grids = random_grids(17, 5);
    let (answer, lost) = struck(&client, job(PROGRAM, &grids), chaos("wrong", 1));
    assert_eq!((answer.verdict(), lost.len()), (Verdict::Ok, 0), "the pool cannot know yet");
    let liar = &answer.receipt.attempts[0];
    let (device, outputs) = (liar.device.id().to_string(), answer.outputs());
    let lie = outputs.expect("OK comes with results").packed();
    let slot = pool.until(&device, "found out and replaced", |slot| {
        slot.generation == 2 && slot.state == WorkerState::Ready
    });
    let fault = &slot.last_fault;
    assert!(fault.starts_with(&format!("{} died: exit code 71", liar.worker)), "{fault}");
    assert!(fault.contains("the device fails its known-answer test: `"), "{fault}");
    let truth = crate::jobs::answer(submit(&client, job(PROGRAM, &grids)));
    is_right(&truth, PROGRAM, &grids);
    let truth = truth.ok().expect("OK comes with results");
    let wrong = lie.iter().zip(&*truth.packed()).filter(|(a, b)| a != b).count();
    assert_eq!((lie.len(), wrong), (truth.packed().len(), 1), "one byte of the answer was wrong");
}

#[test]
fn wrong_results_of_a_busy_worker_are_found_too() {
    let pool = cpu(1)
        .env("GRIDPOOL_ALLOW_CHAOS", "1")
        .limits("known_answer_every_ms = 20\nclient_jobs_max = 64")
        .start();
    let client = pool.client();
    let (answer, _) = struck(&client, job(PROGRAM, &random_grids(18, 5)), chaos("wrong", 1));
    assert_eq!(answer.verdict(), Verdict::Ok);
    let stop = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..4)
        .map(|seed| {
            let (client, stop) = (pool.client(), Arc::clone(&stop));
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let grids = random_grids(seed, 300);
                    let handles: Vec<_> =
                        (0..4).map(|_| submit(&client, job(INNOCENT, &grids))).collect();
                    for handle in handles {
                        assert_eq!(crate::jobs::answer(handle).verdict(), Verdict::Ok);
                    }
                }
            })
        })
        .collect();
    let slot = pool.until("cpu0", "found out", |slot| slot.generation == 2);
    assert!(slot.last_fault.contains("fails its known-answer test"), "{}", slot.last_fault);
    stop.store(true, Ordering::Relaxed);
    clients.into_iter().for_each(|thread| thread.join().expect("every job was answered"));
    serves(&pool.client());
}

#[test]
fn a_pool_without_allow_chaos_refuses_faults_and_serves_on() {
    let pool = cpu(1).start();
    for fault in ChaosFault::ALL {
        let chaotic = job(PROGRAM, &random_grids(19, 5)).with_chaos(Chaos { fault, attempts: 1 });
        match pool.client().submit(chaotic) {
            Err(ClientError::Refused(Refusal::Invalid(why))) => {
                assert!(why.contains("gridpool serve --allow-chaos"), "{why}");
            }
            other => panic!("{fault} was not refused: {other:?}"),
        }
    }
    pool.cli(&["chaos", "segv"])
        .run()
        .complains(1, &["this pool takes no faults", "--allow-chaos"]);
    serves(&pool.client());
    assert_eq!(pool.slot("cpu0").generation, 1);
}

// ---- gridpool chaos ----

#[test]
fn gridpool_chaos_reports_the_fault_and_the_recovery() {
    let pool = chaotic().start();
    let text = pool.cli(&["chaos", "oob"]).run().output();
    for words in [
        "oob: a kernel stores out of bounds: CUDA 700; on a CPU device SIGSEGV\n",
        "; the result is right\n",
        "  lost, the worker died: ",
        "#1 died: signal 11 (SIGSEGV)\ncpu",
        "#1 was replaced: cpu",
        " answered the next job ",
        "\nthe pool recovered as it should\n",
    ] {
        assert!(text.contains(words), "`{words}` is not in: {text}");
    }
    let document = pool.cli(&["chaos", "abort", "--attempts", "2", "--json"]).run().document();
    assert_eq!(document["verdict"], "POISON", "{document}");
    assert_eq!((&document["right"], &document["recovered"]), (&Value::Null, &json!(true)));
    assert_eq!(document["receipt"]["attempts"].as_array().map(Vec::len), Some(2));
    assert_eq!(document["replaced"].as_array().map(Vec::len), Some(2));
    assert_eq!(document["served_again"]["receipt"]["verdict"], "OK");
    let document = pool.cli(&["chaos", "abort", "--json"]).run().document();
    assert_eq!((&document["verdict"], &document["right"]), (&json!("OK"), &json!(true)));
}

#[test]
fn the_denylisted_job_of_a_fault_is_refused_until_it_is_released() {
    let pool = chaotic().start();
    let poison = ["chaos", "segv", "--attempts", "2", "--json"];
    let document = pool.cli(&poison).run().document();
    assert_eq!(document["verdict"], "POISON", "{document}");
    let refused = pool.cli(&poison).run();
    refused.complains(1, &["gridpool: POISON: ", "`gridpool release ", "chaos --random`"]);
    let document = pool.cli(&poison).arg("--random").run().document();
    assert_eq!(document["verdict"], "POISON", "{document}");
    pool.all_ready();
    pool.cli(&["release", "jobs"]).run().output();
    let document = pool.cli(&poison).run().document();
    assert_eq!(document["verdict"], "POISON", "{document}");
}

#[test]
fn gridpool_chaos_names_a_device_out_of_service_and_waits_for_its_return() {
    let pool = chaotic().limits("restart_limit = 1\nprobe_min_ms = 500").start();
    let call = pool.cli(&["chaos", "segv"]).run();
    assert_eq!(call.code, Some(0), "{}{}", call.stdout, call.stderr);
    let device = ["cpu0", "cpu1"].into_iter().find(|device| {
        let words = format!("the fault put {device} out of service; chaos waited for its return\n");
        call.stdout.contains(&words)
    });
    let device = device.expect(&call.stdout);
    let words = format!(
        "the fault put {device} out of service; waiting up to 120 s for its return: `gridpool status` \
         says when the pool tries it again, `gridpool release {device}` has it tried now\n"
    );
    assert_eq!(call.stderr, words);
    assert!(call.stdout.contains(&format!("{device}#1 was replaced: {device}#2 serves ")));
    let document = pool.cli(&["chaos", "slow", "--json"]).run().document();
    assert_eq!(document["quarantined"], json!([]), "nothing was lost: {document}");
}

#[test]
fn gridpool_chaos_waits_until_wrong_results_are_found_or_reports_the_timeout() {
    let pool = chaotic().limits("known_answer_every_ms = 200").start();
    let document = pool.cli(&["chaos", "wrong", "--json"]).run().document();
    assert_eq!((&document["verdict"], &document["right"]), (&json!("OK"), &json!(false)));
    assert_eq!(document["replaced"][0]["worker"], document["receipt"]["attempts"][0]["worker"]);
    assert_eq!(document["recovered"], true, "{document}");

    let pool =
        cpu(1).env("GRIDPOOL_ALLOW_CHAOS", "1").limits("known_answer_every_s = 3600").start();
    let call = pool.cli(&["chaos", "wrong", "--patience", "0.3"]).run();
    assert_eq!(call.code, Some(1), "{}{}", call.stdout, call.stderr);
    let want = "NOT recovered: the pool answered no ordinary job rightly in time; the pool did not \
                replace cpu0#1 in time";
    assert!(call.stdout.contains(want), "{}", call.stdout);
}

#[test]
fn the_flag_and_the_config_allow_chaos_as_the_variable_does() {
    let task = data("tasks/quarter_turn.json");
    let run = |flag: &str| {
        let arguments = ["run", PROGRAM, "--devices", "cpu:1", "--json", flag];
        gridpool(arguments).arg(&task).run()
    };
    for flag in ["--allow-chaos", "--allow-chaos=false"] {
        assert_eq!(run(flag).document()["results"][0]["verdict"], "OK");
    }
    run("--allow-chaos=maybe").complains(2, &["--allow-chaos", "maybe"]);
    let list = gridpool(["chaos", "--list"]).run().output();
    assert_eq!(list.lines().count(), ChaosFault::ALL.len());
    let list = gridpool(["chaos", "--list", "--json"]).run().document();
    assert_eq!(list.as_array().map(Vec::len), Some(ChaosFault::ALL.len()));
    gridpool(["chaos", "fire"]).run().complains(2, &["`fire` is not a fault", "oob, trap"]);
    gridpool(["chaos"]).run().complains(2, &["<FAULT>"]);
}
