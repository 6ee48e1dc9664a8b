//! Capsules of crashes, and `gridpool replay`: each fault on purpose gives one whose replay dies the same way, or
//! none; the innocent have none, or one whose replay lives; limits and modes hold; a hostile file is refused.

mod kinds;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use gridpool_protocol::chaos::{Chaos, ChaosFault};
use gridpool_protocol::message::Priority;
use gridpool_protocol::receipt::Verdict;
use gridpool_protocol::status::CapsuleMode;
use gridpool_tests::oracle::samples::random_grids;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::command::{Finished, gridpool};
use crate::jobs::{PROGRAM, answer, heavy_work, job, serves, submit};
use crate::pool::{Pool, Setup, cpu};
use crate::processes::{signal, ticks};
use crate::wait::{eventually, eventually_so};

/// A worker that is silent is killed soon, and one with wrong results found out.
const SOON: &str =
    "heartbeat_suspect_ms = 1500\nheartbeat_kill_ms = 2000\nknown_answer_every_ms = 500\n";

/// One worker, and faults are taken.
fn chaotic() -> Setup {
    cpu(1).env("GRIDPOOL_ALLOW_CHAOS", "1")
}

/// Where a pool in this folder keeps its capsules.
fn folder(setup: &Setup) -> PathBuf {
    setup.state().join("gridpool/capsules")
}

/// The capsules of a pool.
fn capsules(setup: &Setup) -> BTreeSet<PathBuf> {
    let Ok(entries) = fs::read_dir(folder(setup)) else { return BTreeSet::new() };
    let paths = entries.map(|entry| entry.expect("the folder can be read").path());
    // One that is being written has a dot before its name.
    let is_hidden =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.as_encoded_bytes()[0] == b'.');
    let is_json = |path: &PathBuf| path.extension().is_some_and(|end| end == "json");
    paths.filter(|path| is_json(path) && !is_hidden(path)).collect()
}

/// Waits for a pool's only capsule.
fn the_only(pool: &Pool) -> PathBuf {
    eventually("a capsule", || {
        let all = capsules(pool.setup());
        if all.len() == 1 {
            Ok(all.into_iter().next().expect("one"))
        } else {
            Err(format!("{all:?}"))
        }
    })
}

fn read(path: &Path) -> Value {
    let text = fs::read_to_string(path).expect("a capsule can be read");
    serde_json::from_str(&text).expect("a capsule is JSON")
}

fn replay(capsule: &Path, flags: &[&str]) -> Finished {
    gridpool(["replay", "--json"]).arg(capsule).args(flags).run()
}

/// The document of a replay, whatever its exit code.
fn document(replayed: &Finished) -> Value {
    serde_json::from_str(&replayed.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}{}", replayed.stdout, replayed.stderr))
}

/// A job in which a fault strikes once.
fn strike(
    pool: &Pool,
    fault: ChaosFault,
    items: usize,
    attempts: u32,
) -> gridpool_client::Answer<gridpool_client::Outputs> {
    let grids = random_grids(items as u64, items);
    let deadline = Duration::from_millis(if fault.name() == "endless" { 300 } else { 30_000 });
    let job = job(PROGRAM, &grids).with_deadline(deadline);
    answer(submit(&pool.client(), job.with_chaos(Chaos { fault, attempts })))
}

fn fault(name: &str) -> ChaosFault {
    name.parse().expect("it is a fault")
}

#[test]
fn every_fault_gives_a_capsule_whose_replay_dies_the_same_way_or_none() {
    /// What ends no worker while it has a job in hand.
    const NONE: [&str; 3] = ["memory", "slow", "wrong"];
    let pool = chaotic().only_limits(SOON).start();
    for fault in ChaosFault::ALL {
        let before = capsules(pool.setup());
        let generation = pool.slot("cpu0").generation;
        strike(&pool, fault, 5, 1);
        let lives = ["memory", "slow"].contains(&fault.name());
        if !lives {
            pool.until("cpu0", "replaced", |slot| slot.generation > generation);
        }
        pool.all_ready();
        serves(&pool.client());
        if NONE.contains(&fault.name()) {
            assert_eq!(capsules(pool.setup()), before, "{fault}");
            continue;
        }
        let new = eventually(&format!("the capsule of {fault}"), || {
            capsules(pool.setup()).difference(&before).next().cloned().ok_or("none")
        });
        let meta = fs::metadata(&new).expect("it is there");
        assert_eq!(meta.mode() & 0o777, 0o600, "{fault}");
        let saved = read(&new);
        assert_eq!(saved["jobs"][0]["chaos"]["fault"], fault.name());
        // A CPU meets a fault of a device before its work, and others have it behind them.
        let position = &saved["death"]["position"];
        match fault {
            ChaosFault::Device(_) => assert_eq!(position["chunks_begun"], 0, "{fault}: {saved}"),
            ChaosFault::Host(_) => {
                assert_eq!(
                    (&position["chunks_begun"], &position["chunks_done"]),
                    (&json!(1), &json!(1))
                );
            }
            ChaosFault::Reply(_) => assert_eq!(*position, Value::Null, "{fault}"),
        }
        let replayed = replay(&new, &[]);
        let told = document(&replayed);
        assert_eq!(replayed.code, Some(1), "{fault}: {told}");
        assert_eq!(told["runs"][0]["same"], true, "{fault}: {told}");
        assert_eq!(told["lacks"], json!([]), "{fault}: {told}");
        assert_eq!(told["differs"], json!([]), "{fault}: {told}");
    }
    let meta = fs::metadata(folder(pool.setup())).expect("it is there");
    assert_eq!(meta.mode() & 0o777, 0o700);
    let status = pool.status().capsules.expect("it keeps capsules");
    assert_eq!((status.mode, status.written, status.lost), (CapsuleMode::On, 10, 0));
}

#[test]
fn a_capsule_has_all_attempts_so_far_and_the_last_lines_of_its_worker() {
    let pool = chaotic().start();
    let receipt = strike(&pool, fault("segv"), 5, 2).receipt;
    assert_eq!(receipt.verdict, Verdict::Poison);
    let names: Vec<_> = receipt.attempts.iter().map(|attempt| &*attempt.capsule).collect();
    assert_eq!(names.len(), 2, "{receipt:?}");
    let path = |name: &str| folder(pool.setup()).join(format!("{name}.json"));
    for (number, name) in names.iter().enumerate() {
        eventually_so("the capsule", || path(name).exists());
        let saved = read(&path(name));
        let job = &saved["jobs"][0];
        assert_eq!((&job["job"], &job["attempt"]), (&json!(receipt.job), &json!(number + 1)));
        assert_eq!(job["attempts"], json!(receipt.attempts[..=number]), "{saved}");
        let lines = saved["death"]["stderr"].as_array().expect("a list").iter();
        let mut lines = lines.filter_map(|line| line.as_str());
        let is_of_fault = |line: &str| line.contains("injected fault") && line.contains("segv");
        assert!(lines.any(is_of_fault), "{saved}");
    }
}

#[test]
fn a_replay_says_what_is_another_here_than_where_the_worker_died() {
    let pool = chaotic().start();
    strike(&pool, fault("segv"), 3, 1);
    let mut other = read(&the_only(&pool));
    other["worker"] = json!("gridpool-worker 0.0.0 (protocol 1)\nkernels 0123 on a CPU");
    (other["driver"], other["cuda"]) = (json!("570.0"), json!("12.8"));
    other["death"]["device_name"] = json!("another processor");
    let changed = pool.folder().join("other.json");
    fs::write(&changed, other.to_string()).expect("a file");
    let told = document(&replay(&changed, &[]));
    assert_eq!(told["runs"][0]["same"], true, "{told}");
    let differs = told["differs"].as_array().expect("a list").iter();
    let differs: Vec<_> = differs.map(|one| one.as_str().expect("a text")).collect();
    let begins = [
        "the worker's build was gridpool-worker 0.0.0 (protocol 1), and is gridpool-worker ",
        "the hash of the kernels on a CPU was 0123, and is ",
        "the NVIDIA driver was 570.0, and is ",
        "the driver's CUDA version was 12.8, and is ",
        "the device was another processor, and is ",
    ];
    assert_eq!(differs.len(), begins.len(), "{differs:?}");
    for (line, begin) in differs.iter().zip(begins) {
        assert!(line.starts_with(begin) && line.ends_with(" here"), "{line}");
    }
    let text = gridpool(["replay"]).arg(&changed).run();
    assert!(text.stdout.contains("the NVIDIA driver was 570.0"), "{text:?}");
}

/// The worker runs an innocent job when another process kills it.
#[test]
fn the_capsule_of_an_innocent_does_not_die_in_its_replay() {
    let pool = cpu(1).start();
    let pid = pool.stop("cpu0");
    let grids = random_grids(3, 300);
    let handle = submit(&pool.client(), job(PROGRAM, &grids));
    pool.until_busy("cpu0");
    signal(pid, Signal::SIGSEGV);
    crate::processes::go_on(pid);
    let ended = answer(handle);
    assert_eq!(ended.verdict(), Verdict::Ok);
    let capsule = the_only(&pool);
    let name = capsule.file_stem().expect("a name").to_string_lossy().into_owned();
    assert_eq!(ended.receipt.attempts[0].capsule, name, "the receipt names it");
    assert_eq!(ended.receipt.attempts[1].capsule, "");
    let status = pool.status().capsules.expect("it keeps capsules");
    assert_eq!((&status.latest[0].name, &*status.latest[0].worker), (&name, "cpu0#1"));
    let block = format!("    capsule    {name}: run it again with `gridpool replay {name}`\n");
    assert!(pool.log().contains(&block), "{}", pool.log());
    let saved = read(&capsule);
    assert_eq!(saved["jobs"][0]["input"]["grids"].as_array().map(Vec::len), Some(300));
    assert_eq!(
        (&saved["jobs"][0]["is_certain"], &saved["manner"]["signal"]),
        (&json!(true), &json!(11))
    );
    let replayed = replay(&capsule, &[]);
    let told = document(&replayed);
    assert_eq!((replayed.code, &told["runs"][0]["verdict"]), (Some(0), &json!("OK")), "{told}");
    // By its name alone, in the pool's state folder.
    let by_name = gridpool(["replay", &name]).env("XDG_STATE_HOME", pool.setup().state()).run();
    assert!(by_name.output().contains("runs to its end: 300 items, OK"));
}

#[test]
fn a_capsule_says_which_chunk_the_worker_was_in_and_at_which_step() {
    let pool = cpu(1).limits("[capsules]\nbytes_max = 2048\n").start();
    let pid = pool.pid("cpu0");
    let (text, grids) = heavy_work();
    let before = ticks(pid);
    let handle = submit(&pool.client(), job(&text, &grids));
    eventually_so("the worker to be at work", || ticks(pid) > before + 10);
    signal(pid, Signal::SIGSEGV);
    let capsule = the_only(&pool);
    let saved = read(&capsule);
    let position = &saved["death"]["position"];
    handle.cancel();
    let chunk = &position["under_way"][0];
    let number = |value: &Value| value.as_u64().expect("a number");
    let (first, last) = (number(&chunk["first"]["item"]), number(&chunk["last"]["item"]));
    assert!(first <= last && last < grids.len() as u64, "{position}");
    let saved_job = &saved["jobs"][0];
    assert_eq!(chunk["first"]["job"], saved_job["job"]);
    // What was under way is kept first: a chunk for each thread.
    let all = position["under_way"].as_array().expect("a list");
    let last = all.iter().map(|chunk| number(&chunk["last"]["item"])).max().expect("a chunk");
    assert_eq!(saved_job["under_way"], json!({"start": first, "end": last + 1}), "{position}");
    let (skipped, kept) = (number(&saved_job["skipped"]), &saved_job["input"]["grids"]);
    let kept = kept.as_array().expect("a list").len() as u64;
    assert!(0 < kept && kept < last - first, "{kept} of {position}");
    assert_eq!(
        (skipped, number(&saved_job["input"]["left_out"])),
        (first, grids.len() as u64 - kept)
    );
    let replayed = replay(&capsule, &[]);
    let told = document(&replayed);
    assert_eq!((replayed.code, &told["may_lack_cause"]), (Some(65), &json!(true)), "{told}");
    let lack = format!("; the items {first} to {last} were under way");
    assert!(told["lacks"][0].as_str().is_some_and(|why| why.ends_with(&lack)), "{told}");
    assert!(
        ["rot90", "numcolors", "validate"].iter().any(|step| chunk["kernel"] == **step),
        "{position}"
    );
    assert!((1..=62).contains(&number(&chunk["launches"])), "{position}");
    // Chunks may end in another order than they began in: each that did not end is named.
    let open = number(&position["chunks_begun"]) - number(&position["chunks_done"]);
    assert_eq!(open, all.len() as u64, "{position}");
    assert!(
        (1..=number(&position["chunks_begun"])).contains(&number(&chunk["chunk"])),
        "{position}"
    );
    let line = format!("    at         chunk {} of its work, ", chunk["chunk"]);
    assert!(pool.log().contains(&line), "{}", pool.log());
}

#[test]
fn a_job_that_waited_behind_the_killer_is_in_no_capsule() {
    let pool = chaotic().start();
    let pid = pool.stop("cpu0");
    let client = pool.client();
    let chaos = Chaos { fault: fault("segv"), attempts: 1 };
    let killer = submit(&client, job(PROGRAM, &random_grids(1, 5)).with_chaos(chaos));
    let innocent = submit(&client, job("hmirror", &random_grids(2, 5)));
    pool.until_busy("cpu0");
    crate::processes::go_on(pid);
    assert_eq!((answer(killer).verdict(), answer(innocent).verdict()), (Verdict::Ok, Verdict::Ok));
    let saved = read(&the_only(&pool));
    let jobs = saved["jobs"].as_array().expect("a list");
    let texts: Vec<_> = jobs.iter().map(|job| &job["work"]["text"]).collect();
    assert_eq!(texts, [PROGRAM]);
}

/// A large job of a lower number waits behind the killer: it takes none of the bytes of its capsule.
#[test]
fn a_job_that_waited_takes_no_room_in_the_capsule_of_the_killer() {
    let pool = chaotic().limits("[capsules]\nbytes_max = 2048\n").start();
    let pid = pool.stop("cpu0");
    let client = pool.client();
    let large = submit(&client, job(PROGRAM, &random_grids(1, 300)));
    pool.until_busy("cpu0");
    // Its first attempt waits behind the large job and never begins.
    let chaos = Chaos { fault: fault("segv"), attempts: 2 };
    let killer = job("hmirror", &random_grids(2, 5)).with_priority(Priority::High);
    let killer = submit(&client, killer.with_chaos(chaos));
    // The next worker begins with the killer, and has the large job behind it.
    signal(pid, Signal::SIGKILL);
    assert_eq!((answer(killer).verdict(), answer(large).verdict()), (Verdict::Ok, Verdict::Ok));
    let saved = read(&the_only(&pool));
    let jobs = saved["jobs"].as_array().expect("a list");
    assert_eq!(jobs.len(), 1, "{saved}");
    assert_eq!(jobs[0]["input"]["left_out"], 0, "{saved}");
    assert_eq!(jobs[0]["input"]["grids"].as_array().map(Vec::len), Some(5));
}

#[test]
fn an_operators_kill_an_outside_sigkill_and_a_drain_leave_none() {
    let pool = cpu(1).start();
    for how in ["KILL", "SEGV"] {
        let generation = pool.slot("cpu0").generation;
        let pid = pool.stop("cpu0");
        let handle = submit(&pool.client(), job(PROGRAM, &random_grids(4, 5)));
        pool.until_busy("cpu0");
        pool.cli(&["kill", "cpu0", "--signal", how]).run().output();
        crate::processes::go_on(pid);
        let ended = answer(handle);
        assert_eq!(ended.verdict(), Verdict::Ok);
        assert_eq!(ended.receipt.attempts[0].capsule, "", "{how}: the receipt names none either");
        pool.until("cpu0", "replaced", |slot| slot.generation > generation);
        pool.all_ready();
    }
    let pid = pool.stop("cpu0");
    let handle = submit(&pool.client(), job(PROGRAM, &random_grids(5, 5)));
    pool.until_busy("cpu0");
    signal(pid, Signal::SIGKILL);
    assert_eq!(answer(handle).verdict(), Verdict::Ok);
    pool.cli(&["drain"]).run().output();
    let setup = pool.ended();
    assert_eq!(capsules(&setup), BTreeSet::new());
}

#[test]
fn the_folder_is_within_its_limits_and_a_long_job_is_cut() {
    let limits = "[capsules]\ncount_max = 2\nage_max_s = 3600\nbytes_max = 2048\n";
    let pool = chaotic().limits(limits).start();
    let struck = |items: usize| {
        let before = capsules(pool.setup());
        strike(&pool, fault("segv"), items, 1);
        pool.all_ready();
        eventually("a new capsule", || {
            capsules(pool.setup()).difference(&before).next().cloned().ok_or("none")
        })
    };
    let all = [1, 2, 300].map(struck);
    eventually_so("the first to go", || capsules(pool.setup()).len() == 2);
    assert_eq!(capsules(pool.setup()), all[1..].iter().cloned().collect());
    let input = &read(&all[2])["jobs"][0]["input"];
    let kept = input["grids"].as_array().map_or(0, Vec::len);
    assert!((1..300).contains(&kept), "{kept}");
    assert_eq!(input["left_out"], 300 - kept);
    assert!(fs::metadata(&all[2]).expect("it is there").len() < 8_000);
    let told = document(&replay(&all[2], &["--bisect"]));
    let lacks = format!("{} items were beyond the limit of a capsule", 300 - kept);
    assert!(told["lacks"][0].as_str().is_some_and(|why| why.ends_with(&lacks)), "{told}");
    assert_eq!(told["runs"][0]["same"], true, "{told}");
    // The fault strikes whatever the items are: one is enough.
    let bisected = &told["bisected"];
    assert_eq!((&bisected["of"], &bisected["is_done"]), (&json!(kept), &json!(true)), "{told}");
    assert_eq!(bisected["names"].as_array().map(Vec::len), Some(1), "{told}");
    let old = File::options().write(true).open(&all[1]).expect("it can be opened");
    old.set_modified(SystemTime::UNIX_EPOCH).expect("its time can be set");
    struck(4);
    eventually_so("the old one to go", || !all[1].exists());
}

#[test]
fn shapes_hold_no_cell_and_off_nothing() {
    let pool = chaotic().args(&["--capsules", "shapes"]).start();
    strike(&pool, fault("segv"), 5, 1);
    let capsule = the_only(&pool);
    let saved = read(&capsule);
    assert_eq!(saved["mode"], "shapes");
    let input = saved["jobs"][0]["input"].as_object().expect("an object");
    let keys: Vec<_> = input.keys().collect();
    assert_eq!(keys, ["kind", "shapes", "left_out"]);
    assert_eq!(input["shapes"].as_array().map(Vec::len), Some(5));
    replay(&capsule, &[]).complains(65, &["cannot be run", "only shapes were kept"]);
    for arguments in [["--capsules", "off"], ["--state-dir", "none"]] {
        let pool = chaotic().args(&arguments).start();
        strike(&pool, fault("segv"), 5, 1);
        pool.all_ready();
        assert_eq!(pool.status().capsules, None, "{arguments:?}");
        assert!(!folder(pool.setup()).exists(), "{arguments:?}");
    }
}

#[test]
fn what_is_no_capsule_is_refused_with_a_sentence() {
    let folder = tempfile::tempdir().expect("a folder for temporary files");
    let path = folder.path().join("x.json");
    for (text, words) in [
        ("", "it is not a capsule"),
        ("{", "it is not a capsule"),
        ("{\"a\": 1}", "it has no `gridpool_capsule`"),
        ("[[[0, 1], [1, 0]]]", "it has no `gridpool_capsule`; `gridpool run`"),
        ("{\"gridpool_capsule\": 99}", "of version 99; this gridpool reads version 1"),
        ("{\"gridpool_capsule\": 1}", "it is not a capsule: missing field"),
    ] {
        fs::write(&path, text).expect("a file can be written");
        replay(&path, &[]).complains(65, &["x.json: ", words]);
    }
    let state = folder.path().join("state");
    let by_name = |name: &str| gridpool(["replay", name]).env("GRIDPOOL_STATE_DIR", &state).run();
    let capsules = state.join("capsules");
    let place = format!("a capsule in {}", capsules.display());
    by_name("none.json").complains(65, &["there is no file none.json", &place, "No such file"]);
    fs::create_dir_all(&capsules).expect("a folder can be made");
    by_name("none").complains(65, &["there is no file none", &place, "(which has none)"]);
    for name in ["a", "b", "c", "d"] {
        fs::write(capsules.join(format!("{name}.json")), "").expect("a file can be written");
    }
    by_name("none").complains(65, &[&place, "(its latest: d, c, b)", "--state-dir"]);
    let missing = folder.path().join("none.json");
    let missing_file = format!("there is no file {}", missing.display());
    replay(&missing, &[]).complains(65, &[&missing_file, "name the file of a capsule"]);
}

#[test]
fn a_pool_with_a_state_folder_that_others_may_read_does_not_start_if_it_was_named() {
    let folder = tempfile::tempdir().expect("a folder for temporary files");
    let open = folder.path().join("open");
    fs::create_dir(&open).expect("a folder can be made");
    fs::set_permissions(&open, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("ours");
    let refused = gridpool(["serve", "--devices", "cpu:1", "--state-dir"]).arg(&open).run();
    refused.complains(78, &["others may look into the state folder", "chmod 700"]);
}
