//! The log: JSON that machines read line by line, lines about jobs and workers that name them, and one
//! block for each death of a worker.

use std::fs;
use std::io::BufRead;
use std::os::unix::fs::OpenOptionsExt;

use gridpool_protocol::chaos::Chaos;
use gridpool_protocol::receipt::Verdict;
use gridpool_protocol::status::WorkerState;
use nix::fcntl::OFlag;
use nix::pty::{grantpt, posix_openpt, ptsname_r, unlockpt};
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::command::gridpool;
use crate::jobs::{PROGRAM, answer, data, serves, small_job, submit};
use crate::pool::{Pool, Setup, cpu, named, stub_worker};
use crate::processes::signal;
use crate::wait::{TIMEOUT, eventually, eventually_so};

/// The word before each event of a death.
const DIED: &str = "worker died";

/// A pool that logs as JSON.
fn logs_json(setup: Setup) -> Setup {
    setup.args(&["--log-format", "json"])
}

/// All lines of a log. Each must be a JSON object of an event.
fn events(log: &str) -> Vec<Value> {
    let event = |line: &str| {
        let event: Value = serde_json::from_str(line).unwrap_or_else(|error| {
            panic!("a line of the log is no JSON: {error}: {line}\n{log}");
        });
        for field in ["timestamp", "level", "message", "target"] {
            assert!(event[field].is_string(), "{field} is not in {line}");
        }
        event
    };
    log.lines().map(event).collect()
}

/// The event of a worker's death, which must come, and come once.
fn death(pool: &Pool, worker: &str) -> Value {
    let all = || {
        // The last line may not be whole yet.
        let log = pool.log();
        let whole = &log[..log.rfind('\n').map_or(0, |end| end + 1)];
        let deaths = events(whole).into_iter();
        let deaths = deaths.filter(|event| event["message"] == DIED && event["worker"] == worker);
        deaths.collect::<Vec<_>>()
    };
    eventually(&format!("the death of {worker} to be told"), || all().pop().ok_or("not yet"));
    let mut told = all();
    assert_eq!(told.len(), 1, "{told:#?}");
    told.remove(0)
}

/// The block of a worker's death in a log for people: its lines without their indent.
fn block(pool: &Pool, worker: &str) -> Vec<String> {
    let start = format!("{DIED} worker={worker} ");
    eventually(&format!("the death of {worker} to be told"), || {
        let log = pool.log();
        let (_, rest) = log.split_once(&start).ok_or("it is not there")?;
        let lines: Vec<_> = rest.lines().skip(1).map_while(|l| l.strip_prefix("    ")).collect();
        let has_all = lines.iter().any(|line| line.starts_with("next ")) && rest.ends_with('\n');
        has_all.then(|| lines.iter().map(|&line| line.to_owned()).collect()).ok_or("not all of it")
    })
}

#[test]
fn a_worker_killed_from_outside_has_a_death_report_with_its_job() {
    let pool = logs_json(cpu(1)).start();
    let pid = pool.stop("cpu0");
    let handle = submit(&pool.client(), small_job(1));
    pool.until_busy("cpu0");
    signal(pid, Signal::SIGKILL);
    assert_eq!(answer(handle).verdict(), Verdict::Ok);
    let death = death(&pool, "cpu0#1");
    assert_eq!((&death["pid"], &death["role"]), (&pid.into(), &"grid".into()));
    assert_eq!((&death["signal"], &death["exit_code"]), (&9.into(), &Value::Null));
    assert_eq!((&death["level"], &death["killed_for"]), (&"WARN".into(), &Value::Null));
    assert_eq!(death["restart_in_s"], 0.0);
    let jobs = death["jobs"].as_array().expect("a list of jobs");
    assert_eq!(jobs.len(), 1, "{death:#}");
    assert_eq!((&jobs[0]["attempt"], &jobs[0]["what"]), (&1.into(), &PROGRAM.into()));
    assert_eq!((&jobs[0]["fate"], &jobs[0]["begun"]), (&"waits".into(), &true.into()));
    // It is told there and nowhere else.
    let others = events(&pool.log())
        .into_iter()
        .filter(|event| event["message"] != DIED && event.to_string().contains("signal 9"));
    assert_eq!(others.count(), 0, "{}", pool.log());
}

#[test]
fn the_death_report_of_an_injected_fault_names_signal_meaning_and_job() {
    let setup = cpu(1).args(&["--allow-chaos"]);
    let pool = setup.start();
    let chaos = Chaos { fault: "segv".parse().expect("a fault"), attempts: 9 };
    let answer = answer(submit(&pool.client(), small_job(2).with_chaos(chaos)));
    assert_eq!(answer.verdict(), Verdict::Poison);
    let first = block(&pool, "cpu0#1");
    let line = |block: &[String], name: &str| {
        let found = block.iter().find(|line| line.starts_with(name));
        found.unwrap_or_else(|| panic!("{name} is not in {block:#?}")).clone()
    };
    assert!(line(&first, "device").starts_with("device     cpu0 "), "{first:#?}");
    let ended = line(&first, "ended");
    assert!(ended.starts_with("ended      signal 11 (SIGSEGV): "), "{ended}");
    assert!(line(&first, "life").ends_with("0 jobs answered"), "{first:#?}");
    let job = line(&first, "job");
    assert!(job.ends_with(&format!("waits to run again ({PROGRAM})")), "{job}");
    assert_eq!(line(&first, "next"), "next       another process starts at once");
    // The worker has said what it was about to do, with its job.
    let said = line(&first, "stderr");
    for word in ["injected fault", "job=job", "attempt=1", "fault=segv"] {
        assert!(said.contains(word), "`{word}` is not in {said}");
    }
    // It was passed on when it was said, with the name of the worker.
    assert_eq!(pool.log().matches("fault=segv worker=cpu0#1\n").count(), 1, "{}", pool.log());
    let second = block(&pool, "cpu0#2");
    assert!(line(&second, "job").contains("its verdict is POISON ("), "{second:#?}");
}

#[test]
fn the_death_report_explains_the_exit_code() {
    let pool = logs_json(cpu(2)).args(&["--allow-chaos"]).start();
    let chaos = Chaos { fault: "exit".parse().expect("a fault"), attempts: 1 };
    let answer = answer(submit(&pool.client(), small_job(3).with_chaos(chaos)));
    assert_eq!(answer.verdict(), Verdict::Ok);
    let worker = answer.receipt.attempts[0].worker.clone();
    let death = death(&pool, &worker);
    assert_eq!(death["signal"], Value::Null);
    let ended = death["ended"].as_str().expect("words");
    let code = death["exit_code"].as_i64().expect("a code");
    assert!(ended.starts_with(&format!("exit code {code}")) && ended.contains(": "), "{ended}");
}

#[test]
fn the_death_report_of_a_worker_killed_by_the_pool_has_the_reason() {
    let pool = logs_json(cpu(1)).start();
    pool.stop("cpu0");
    let late = small_job(4).with_deadline(std::time::Duration::from_millis(100));
    assert_eq!(answer(submit(&pool.client(), late)).verdict(), Verdict::Deadline);
    let death = death(&pool, "cpu0#1");
    assert_eq!(death["killed_for"], "late");
    let job = &death["jobs"][0];
    assert_eq!((&job["fate"], &job["verdict"]), (&"over".into(), &"DEADLINE".into()));
    let killing = events(&pool.log());
    let killing = killing.iter().find(|event| event["message"] == "killing worker");
    let killing = killing.expect("it is told when it is killed");
    assert_eq!((&killing["worker"], &killing["why"]), (&"cpu0#1".into(), &"late".into()));
}

#[test]
fn a_commanded_stop_has_no_death_report() {
    let pool = cpu(2).start();
    serves(&pool.client());
    let setup = pool.setup().clone();
    pool.signal(Signal::SIGTERM);
    pool.ends_well();
    assert!(!setup.log().contains(DIED), "{}", setup.log());
}

#[test]
fn every_line_is_a_json_object_and_every_line_about_a_job_names_job_attempt_and_worker() {
    let setup = logs_json(cpu(2)).args(&["--allow-chaos"]).env("GRIDPOOL_LOG", "debug");
    let pool = setup.start();
    let client = pool.client();
    serves(&client);
    let chaos = Chaos { fault: "abort".parse().expect("a fault"), attempts: 9 };
    let poison = answer(submit(&client, small_job(5).with_chaos(chaos)));
    assert_eq!(poison.verdict(), Verdict::Poison);
    let setup = pool.setup().clone();
    pool.signal(Signal::SIGTERM);
    pool.ends_well();
    let all = events(&setup.log());
    let about_jobs: Vec<_> = all.iter().filter(|event| event.get("job").is_some()).collect();
    assert!(about_jobs.len() >= 7, "{}", setup.log());
    for event in about_jobs {
        assert!(event["job"].as_str().is_some_and(|job| job.starts_with("job")), "{event}");
        assert!(event["attempt"].is_u64() && event["worker"].is_string(), "{event}");
    }
    // No job is told of in any other way.
    let is_hidden = |event: &&Value| {
        let names_a_job = event["message"].as_str().is_some_and(|text| text.contains("job1"));
        names_a_job && event.get("job").is_none()
    };
    assert_eq!(all.iter().find(is_hidden), None);
    let messages = ["dispatch", "done", "job is denylisted", "injected fault"];
    for message in messages {
        assert!(all.iter().any(|event| event["message"] == message), "no line says `{message}`");
    }
}

#[test]
fn a_worker_that_floods_its_standard_error_is_cut_and_delays_no_thread() {
    let setup = logs_json(cpu(1)).worker(stub_worker());
    let real = crate::binaries::worker().to_str().expect("a readable path").to_owned();
    let setup = setup.env("GRIDPOOL_STUB", "first-floods").env("GRIDPOOL_STUB_REAL", &real);
    let pool = setup.start();
    // Its first process writes 2 MB, leaves a child behind that holds its standard error, and ends.
    let answer = answer(submit(&pool.client(), small_job(6)));
    assert_eq!(answer.verdict(), Verdict::Ok);
    let death = death(&pool, "cpu0#1");
    let last = death["stderr"].as_array().expect("lines");
    assert_eq!(last.len(), 20);
    assert_eq!(last[19], "the last line of the flood");
    pool.until("cpu0", "replaced", |slot| slot.generation == 2 && slot.state == WorkerState::Ready);
    let log = pool.log();
    assert!(log.len() < 1 << 18, "{} bytes of log", log.len());
    let dropped = events(&log).into_iter().filter_map(|event| event["dropped"].as_u64());
    let dropped: u64 = dropped.sum();
    let passed = events(&log).into_iter().filter(|event| event["message"] == "standard error");
    let passed = passed.count() as u64;
    assert!(passed >= 100, "{passed} lines were passed on");
    assert_eq!(dropped + passed, FLOOD_LINES, "every line is passed on or counted");
    serves(&pool.client());
}

/// What is said of lines that the supervisor had to leave out.
const LEFT_OUT: &str =
    "lines of this log were dropped, since its reader was too slow or they were too many lines=";

/// A pool whose log goes to an unread pipe, and whose workers have already written more
/// than the pipe and the supervisor take.
fn unread() -> (Pool, std::io::PipeReader) {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    let real = crate::binaries::worker().to_str().expect("a readable path");
    let setup = cpu(2).worker(stub_worker()).env("GRIDPOOL_STUB", "first-chatters");
    // Without the limit of a minute.
    let setup = setup.env("GRIDPOOL_LOG", "info,gridpool_worker=debug");
    let pool = setup.env("GRIDPOOL_STUB_REAL", real).start_piped(writer);
    pool.all_ready();
    (pool, reader)
}

/// Kills the worker of cpu0, which makes a death report.
fn loses_one(pool: &Pool, generation: u32) {
    pool.client().kill(named("cpu0"), 9).expect("it is there");
    pool.until("cpu0", "replaced", |slot| {
        slot.generation == generation && slot.state == WorkerState::Ready
    });
}

/// Whether a process has a terminal from which it gets signals.
fn has_terminal(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("it lives");
    // The name, which comes first, may have blanks.
    let (_, fields) = stat.rsplit_once(") ").expect("a name in parentheses");
    fields.split(' ').nth(4).expect("the number of a terminal") != "0"
}

#[test]
fn a_pool_whose_terminal_is_closed_serves_on() {
    // No process of another test may hold it open.
    let flags = OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let terminal = posix_openpt(flags).expect("there are pseudo-terminals");
    grantpt(&terminal).and_then(|()| unlockpt(&terminal)).expect("it is ours");
    let name = ptsname_r(&terminal).expect("it has a name");
    let mut end = fs::File::options();
    let end = end.read(true).write(true).custom_flags(OFlag::O_NOCTTY.bits()).open(name);
    let pool = cpu(1).start_on_terminal(&end.expect("it can be opened").into());
    pool.all_ready();
    let supervisor = pool.supervisor.pid();
    assert!(has_terminal(supervisor));
    drop(terminal);
    eventually_so("the terminal to be lost", || !has_terminal(supervisor));
    // Whatever is logged from now on has no place.
    loses_one(&pool, 2);
    serves(&pool.client());
    pool.signal(Signal::SIGTERM);
    pool.ends_well();
}

#[test]
fn an_unread_log_delays_no_thread_and_no_end() {
    let (pool, _reader) = unread();
    serves(&pool.client());
    loses_one(&pool, 2);
    serves(&pool.client());
    assert_eq!(pool.status().workers.len(), 2);
    pool.cli(&["status"]).run().output();
    let drained = pool.cli(&["drain"]).run().output();
    assert!(drained.contains("stopped"), "{drained}");
    pool.ends_well();
}

#[test]
fn a_log_that_is_read_late_counts_its_dropped_lines_and_goes_on() {
    let (pool, reader) = unread();
    let (send, log) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for line in std::io::BufReader::new(reader).split(b'\n') {
            let line = String::from_utf8(line.expect("a pipe can be read")).expect("UTF-8");
            // The receiver is gone if the test has given up.
            drop(send.send(line));
        }
    });
    let next = || log.recv_timeout(TIMEOUT).expect("there is more to come");
    let until = |what: &str| std::iter::repeat_with(next).find(|line| line.contains(what));
    let told = until(LEFT_OUT).expect("it comes");
    let (_, count) = told.split_once(LEFT_OUT).expect("it was looked for");
    let count: u32 = count.parse().expect("a number");
    assert!(count >= 20, "400 lines of 8 kB were written: {told}");
    loses_one(&pool, 2);
    until(&format!("{DIED} worker=cpu0#1 ")).expect("it comes");
    pool.signal(Signal::SIGTERM);
    pool.ends_well();
    let rest: Vec<_> = log.into_iter().collect();
    assert!(!rest.iter().any(|line| line.contains(LEFT_OUT)), "it is told once: {rest:#?}");
    // A worker's lines that were too many may be told after that.
    assert!(rest.iter().any(|line| line.ends_with("drained verdicts=[]")), "{rest:#?}");
}

/// Lines that the stub writes.
const FLOOD_LINES: u64 = 20_001;

#[test]
fn a_run_logs_nothing() {
    let task = data("tasks/lines.json");
    let call = gridpool(["run", PROGRAM, "--devices", "cpu:1"]).arg(&task).run();
    assert!(!call.output().is_empty());
    let call = gridpool(["run", PROGRAM, "--devices", "cpu:1", "--log-format", "json"]);
    assert!(!call.arg(&task).run().output().is_empty());
}

#[test]
fn with_a_json_log_the_error_of_a_command_is_an_event() {
    let call = gridpool(["serve", "--devices", "cpu:0"]).env("GRIDPOOL_LOG_FORMAT", "json").run();
    assert_eq!(call.code, Some(2));
    let all = events(&call.stderr);
    assert_eq!(all.len(), 1, "{}", call.stderr);
    assert_eq!((&all[0]["level"], &all[0]["exit_code"]), (&"ERROR".into(), &2.into()));
    let said = all[0]["message"].as_str().expect("words");
    assert!(said.starts_with("--devices: `cpu:0`"), "{said}");
    gridpool(["status", "--log-format", "xml"]).run().complains(2, &["write human or json"]);
}

#[test]
fn the_gateway_logs_as_its_supervisor_does() {
    let pool = logs_json(cpu(1)).args(&["--http", "127.0.0.1:0"]).start();
    eventually_so("the gateway to be ready", || {
        let log = pool.log();
        log.ends_with('\n')
            && events(&log).iter().any(|event| {
                event["target"]
                    .as_str()
                    .is_some_and(|target| target.starts_with("gridpool::gateway"))
            })
    });
}
