//! Traces: what a collector gets of a job, and that no collector costs a job anything.

pub(crate) mod collector;

use gridpool_client::{TraceContext, TraceState, Verdict};
use gridpool_protocol::chaos::Chaos;
use gridpool_protocol::receipt::AttemptOutcome;
use gridpool_protocol::status::TracerStatus;
use gridpool_tests::oracle::samples::random_grids;
use nix::sys::signal::Signal;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;

use crate::command::gridpool;
use crate::infer;
use crate::job_log::receipts;
use crate::jobs::{PROGRAM, answer, as_json, data, job, serves, small_job, submit};
use crate::pool::{Pool, cpu};
use crate::processes::signal;
use crate::wait::{eventually, eventually_so};
use collector::{Answers, Collector, hex, texts};

/// A context of a trace that is recorded.
pub(crate) const SAMPLED: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
pub(crate) const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
pub(crate) const PARENT: &str = "b7ad6b7169203331";

fn tracer(pool: &Pool) -> TracerStatus {
    pool.status().tracer.expect("the pool sends traces")
}

fn context(text: &str) -> TraceContext {
    text.parse().expect("a context")
}

fn is_within(inner: &Span, outer: &Span) -> bool {
    outer.start_time_unix_nano <= inner.start_time_unix_nano
        && inner.start_time_unix_nano <= inner.end_time_unix_nano
        && inner.end_time_unix_nano <= outer.end_time_unix_nano
}

fn named<'a>(spans: &'a [Span], name: &str) -> Vec<&'a Span> {
    spans.iter().filter(|span| span.name == name).collect()
}

#[test]
fn a_job_that_lost_a_worker_is_one_tree_with_an_attempt_that_failed() {
    let collector = Collector::open(Answers::Status(200));
    let pool = cpu(1).args(&["--trace", &collector.url()]).start();
    pool.stop("cpu0");
    let handle = submit(&pool.client(), small_job(1).with_trace(context(SAMPLED)));
    pool.until_busy("cpu0");
    signal(pool.pid("cpu0"), Signal::SIGKILL);
    let answer = answer(handle);
    assert_eq!(answer.verdict(), Verdict::Ok);
    assert_eq!(answer.receipt.trace_id, TRACE);
    let [lost, ok] = answer.receipt.attempts.as_slice() else { panic!("{:?}", answer.receipt) };
    assert_eq!(lost.outcome, AttemptOutcome::WorkerDied);
    assert!(lost.begun_us <= lost.ended_us && lost.ended_us <= ok.begun_us);
    assert!(ok.begun_us <= ok.ended_us && ok.ended_us <= answer.receipt.total_us);

    let spans = collector.trace(Some(TRACE), "program");
    let [root] = named(&spans, "program")[..] else { panic!("{spans:#?}") };
    assert_eq!(hex(&root.parent_span_id), PARENT);
    let about = texts(&root.attributes);
    assert_eq!(about["gridpool.job"], answer.receipt.job);
    assert_eq!(about["gridpool.program.hash"], *answer.receipt.program_hash);
    assert_eq!((&*about["gridpool.verdict"], &*about["gridpool.items"]), ("OK", "5"));
    assert_eq!(about["gridpool.user.kind"], "uid");
    let [first, second] = named(&spans, "attempt")[..] else { panic!("{spans:#?}") };
    let status = first.status.as_ref().expect("it failed");
    assert_eq!(status.code(), StatusCode::Error);
    assert_eq!(status.message, lost.detail);
    assert_eq!(texts(&first.attributes)["gridpool.worker"], "cpu0#1");
    assert_eq!(texts(&second.attributes)["gridpool.worker"], "cpu0#2");
    assert!(second.status.is_none() && root.status.is_none());
    for child in [named(&spans, "queue"), vec![first, second]].concat() {
        assert_eq!(child.parent_span_id, root.span_id);
        assert!(is_within(child, root), "{child:#?} in {root:#?}");
    }
    let parts: Vec<_> =
        spans.iter().filter(|span| ["channel", "copy", "kernel"].contains(&&*span.name)).collect();
    assert!(parts.len() >= 3, "{spans:#?}");
    for part in parts {
        assert_eq!(part.parent_span_id, second.span_id);
        assert!(is_within(part, second), "{part:#?} in {second:#?}");
    }
    assert_eq!(collector.resource()["service.name"], "gridpool");
    // The block of the worker's death leads to the trace.
    let line = format!("\n    job        {} attempt 1, trace_id={TRACE}: ", answer.receipt.job);
    eventually("the death to be told", || {
        let log = pool.log();
        log.contains(&line).then_some(()).ok_or(log)
    });
    eventually_so("the spans to be counted", || tracer(&pool).exported >= spans.len() as u64);
    assert_eq!((tracer(&pool).dropped, tracer(&pool).unsent), (0, 0));
    pool.signal(Signal::SIGTERM);
    pool.ends_well();
}

#[test]
fn whoever_begins_a_trace_decides_whether_it_is_recorded() {
    let collector = Collector::open(Answers::Status(200));
    // One in a million begins: none here.
    let pool = cpu(1).args(&["--trace", &collector.url(), "--trace-sample", "0.000001"]).start();
    let client = pool.client();
    let not_sampled = SAMPLED.replace(TRACE, &TRACE.replace('a', "b")).replace("-01", "-00");
    let receipt = answer(submit(&client, small_job(1).with_trace(context(&not_sampled)))).receipt;
    assert_eq!(receipt.trace_id, TRACE.replace('a', "b"));
    let own = answer(submit(&client, small_job(2))).receipt;
    assert_eq!(own.trace_id, "", "no trace that is not recorded begins here");
    answer(submit(&client, small_job(3).with_trace(context(SAMPLED))));
    let spans = collector.trace(None, "program");
    assert!(spans.iter().all(|span| hex(&span.trace_id) == TRACE), "{spans:#?}");
    pool.signal(Signal::SIGTERM);
    pool.ends_well();
}

/// What nothing but the collector may be told.
const SECRET: &str = "swordfish hunter2";

/// The environment and the command line of a process, as others may read them.
fn shown_by_the_system(pid: u32) -> String {
    ["environ", "cmdline"]
        .map(|file| {
            let text = std::fs::read(format!("/proc/{pid}/{file}")).expect("the process lives");
            String::from_utf8_lossy(&text).into_owned()
        })
        .concat()
}

#[test]
fn the_collector_gets_the_headers_and_nobody_else() {
    for (by_variable, sandbox) in [(true, "on"), (true, "off"), (false, "on")] {
        let collector = Collector::open(Answers::Status(200));
        let setup = cpu(1).args(&["--trace", &collector.url()]).env("GRIDPOOL_LOG", "debug");
        let setup = setup.args(&["--http", "127.0.0.1:0", "--sandbox", sandbox]);
        let given = if by_variable { "other" } else { SECRET };
        let setup = setup.limits(&format!("[traces]\nheaders = {{ \"x-api-key\" = \"{given}\" }}"));
        let file = setup.folder().join("pool.toml").display().to_string();
        let variable = "OTEL_EXPORTER_OTLP_HEADERS";
        let text = format!("x-api-key={},x-tenant=a%20b", SECRET.replace(' ', "%20"));
        let setup = if by_variable { setup.env(variable, &text) } else { setup };
        let pool = setup.start();
        let receipt = answer(submit(&pool.client(), small_job(1))).receipt;
        collector.trace(Some(&receipt.trace_id), "program");
        let headers = collector.headers();
        assert_eq!(headers["x-api-key"], SECRET, "the variable comes before the file");
        assert_eq!(headers.get("x-tenant").map(String::as_str), by_variable.then_some("a b"));

        let secrets = [SECRET, "hunter2"];
        let is_told = |text: &str| secrets.iter().any(|secret| text.contains(secret));
        let status = pool.cli(&["status", "--json"]).run().output();
        assert!(!is_told(&status), "{status}");
        let seen = crate::processes::children(pool.supervisor.pid());
        let workers = pool.status().workers.into_iter().map(|worker| worker.pid);
        let known: Vec<_> = workers.chain([tracer(&pool).pid]).collect();
        assert!(seen.len() > known.len() && known.iter().all(|pid| seen.contains(pid)), "{seen:?}");
        for pid in seen {
            assert!(!is_told(&shown_by_the_system(pid)), "{pid}, sandbox {sandbox}");
        }
        let log = pool.log();
        assert!(!is_told(&log), "{log}");
        if sandbox == "off" {
            // A report shows nothing else then. It diagnoses the machine, which takes seconds.
            continue;
        }
        let report = pool.folder().join("report.zip");
        let report = report.to_str().expect("text");
        let shown = ["config", "show", "--json", "--config", &file];
        let log_file = pool.folder().join("log-of-report");
        std::fs::write(&log_file, log).expect("a file");
        let flags =
            ["report", "--output", report, "--config", &file, "--devices", "cpu:1", "--log"];
        let flags = [&flags[..], &[log_file.to_str().expect("text")]].concat();
        for command in [&shown[..], &flags] {
            let cli = pool.cli(command).env(variable, &text).env("GRIDPOOL_TRACE", "http://a");
            let said = cli.run().output();
            assert!(!is_told(&said), "{said}");
        }
        for (name, text) in crate::report::files(report.as_ref()) {
            assert!(!is_told(&text), "{name}: {text}");
        }
        pool.signal(Signal::SIGTERM);
        pool.ends_well();
    }
}

#[test]
fn a_job_of_a_command_keeps_the_state_of_its_trace() {
    let collector = Collector::open(Answers::Status(200));
    let pool = cpu(1).args(&["--trace", &collector.url()]).start();
    let submit = |parent: &str, state: &str| {
        let cli = pool.cli(&["submit", "--json", PROGRAM, "-"]).env("TRACEPARENT", parent);
        let cli = cli.env("TRACESTATE", state).stdin(as_json(&random_grids(3, 4)));
        let document = cli.run().document();
        let trace = document["receipts"][0]["trace_id"].as_str().expect("a text").to_owned();
        let spans = collector.trace(Some(&trace), "program");
        spans.iter().map(|span| span.trace_state.clone()).collect::<Vec<_>>()
    };
    let all = submit(SAMPLED, "vendor=1, other=2");
    assert!(all.len() > 3 && all.iter().all(|state| state == "vendor=1,other=2"), "{all:?}");
    let other = SAMPLED.replace(TRACE, &TRACE.replace('a', "b"));
    assert!(submit(&other, "not a state").iter().all(String::is_empty), "a wrong one is ignored");
    assert!(submit("none", "vendor=1").iter().all(String::is_empty), "it belongs to a trace");
    let state = "vendor=1".parse::<TraceState>().expect("a state");
    let job = small_job(1).with_trace_state(state);
    let receipt = answer(crate::jobs::submit(&pool.client(), job)).receipt;
    let spans = collector.trace(Some(&receipt.trace_id), "program");
    assert!(spans.iter().all(|span| span.trace_state.is_empty()), "not to one that a pool began");
}

#[test]
fn a_search_and_a_request_of_a_command_keep_the_trace_and_its_state() {
    let collector = Collector::open(Answers::Status(200));
    let url = collector.url();
    let Some(pool) = infer::pool_on(cpu(1).args(&["--trace", &url]), &["two_inputs"]) else {
        return;
    };
    let (tasks, arrays) = (data("tasks").display().to_string(), data("two_inputs.npz"));
    let search = pool.cli(&["search", "--programs", "-", "--tasks", &tasks]);
    let search = search.stdin(r#"{"id": "a", "program": "rot90"}"#);
    let infer = pool.cli(&["infer", "two_inputs"]).arg(arrays);
    for (name, command, trace) in [("search", search, "1"), ("model", infer, "2")] {
        let trace = TRACE.replace('0', trace);
        let parent = SAMPLED.replace(TRACE, &trace);
        let command = command.env("TRACEPARENT", parent).env("TRACESTATE", "vendor=1");
        command.run().output();
        let spans = collector.trace(Some(&trace), name);
        let roots = named(&spans, name).into_iter();
        let parents: Vec<_> = roots.map(|root| hex(&root.parent_span_id)).collect();
        assert!(parents.iter().all(|parent| parent == PARENT), "{spans:#?}");
        assert!(spans.iter().all(|span| span.trace_state == "vendor=1"), "{spans:#?}");
    }
}

#[test]
fn the_last_spans_are_sent_before_a_pool_ends() {
    let collector = Collector::open(Answers::Status(200));
    let pool = cpu(1).args(&["--trace", &collector.url()]).start();
    let receipt = answer(submit(&pool.client(), small_job(1))).receipt;
    pool.signal(Signal::SIGTERM);
    pool.ends_well();
    // Nobody sends any more.
    let spans = collector.trace(Some(&receipt.trace_id), "program");
    assert!(named(&spans, "program")[0].parent_span_id.is_empty());
}

#[test]
fn a_collector_that_is_away_slow_or_refuses_costs_spans_and_no_job() {
    let (broken, silent) = (Collector::open(Answers::Status(500)), Collector::open(Answers::Never));
    let nobody = "http://127.0.0.1:1".to_owned();
    for (url, is_slow) in [(nobody, false), (broken.url(), false), (silent.url(), true)] {
        let pool = cpu(1).args(&["--trace", &url]).start();
        let client = pool.client();
        (0..20).for_each(|_| serves(&client));
        if is_slow {
            eventually_so("the collector to be asked", || silent.connections() > 0);
        } else {
            eventually("spans to be dropped", || match tracer(&pool) {
                TracerStatus { dropped: 1.., exported: 0, .. } => Ok(()),
                other => Err(format!("{other:?}")),
            });
            let said = || pool.log().matches("the collector takes no spans").count();
            eventually_so("the log to say so", || said() == 1);
            serves(&client);
            assert_eq!(said(), 1, "it says so once");
        }
        // It ends in time, whatever the collector does.
        pool.signal(Signal::SIGTERM);
        pool.ends_well();
    }
}

#[test]
fn a_tracer_that_dies_is_started_again_and_no_job_notices() {
    let collector = Collector::open(Answers::Status(200));
    let pool = cpu(1).args(&["--trace", &collector.url()]).start();
    let before = pool
        .until_status("a tracer", |status| status.tracer.as_ref().is_some_and(|tracer| tracer.up));
    let pid = before.tracer.expect("it is there").pid;
    signal(pid, Signal::SIGKILL);
    let receipt = answer(submit(&pool.client(), small_job(1))).receipt;
    pool.until_status("another tracer", |status| {
        status.tracer.as_ref().is_some_and(|tracer| tracer.up && tracer.pid != pid)
    });
    // A packet that the first had read is lost with it.
    let again = answer(submit(&pool.client(), small_job(2))).receipt;
    assert_ne!(receipt.trace_id, again.trace_id);
    collector.trace(Some(&again.trace_id), "program");
    assert_eq!(tracer(&pool).restarts, 1);
}

#[test]
fn a_pool_without_traces_has_no_tracer_and_passes_a_trace_on() {
    let setup = cpu(1).args(&["--allow-chaos"]);
    let log = setup.state().join("gridpool");
    let pool = setup.start();
    assert_eq!(pool.status().tracer, None);
    let (client, grids) = (pool.client(), random_grids(3, 4));
    let plain = answer(submit(&client, job(PROGRAM, &grids))).receipt;
    assert_eq!(plain.trace_id, "");
    let traced = submit(&client, job(PROGRAM, &grids).with_trace(context(SAMPLED)));
    assert_eq!(answer(traced).receipt.trace_id, TRACE);
    let chaos = Chaos { fault: "exit".parse().expect("a fault"), attempts: 1 };
    let faulty = job(PROGRAM, &grids).with_chaos(chaos).with_trace(context(SAMPLED));
    assert_eq!(answer(submit(&client, faulty)).verdict(), Verdict::Ok);
    eventually_so("the worker's log to name the trace", || {
        let log = pool.log();
        let mut lines = log.lines().filter(|line| line.contains("injected fault"));
        lines.any(|line| line.contains(&format!("trace_id={TRACE}")))
    });

    let submit = |variable: &str| {
        let cli = pool.cli(&["submit", "--json", PROGRAM, "-"]).env("TRACEPARENT", variable);
        let document = cli.stdin(as_json(&grids)).run().document();
        document["receipts"][0]["trace_id"].as_str().expect("a text").to_owned()
    };
    assert_eq!(submit(SAMPLED), TRACE);
    assert_eq!(submit("nonsense"), "", "it is ignored");

    let tasks = data("tasks").display().to_string();
    let search =
        pool.cli(&["search", "--programs", "-", "--tasks", &tasks]).env("TRACEPARENT", SAMPLED);
    search.stdin(r#"{"id": "a", "program": "rot90"}"#).run().output();
    eventually_so("the last job in the log, the search's, to have the trace", || {
        receipts(&log, &[]).last().is_some_and(|last| last.trace_id == TRACE)
    });
}

#[test]
fn wrong_settings_are_refused_with_what_to_write() {
    let serve = |more: &[&str]| gridpool([&["serve", "--devices", "cpu:1"], more].concat()).run();
    serve(&["--trace", "collector:4318"]).complains(2, &["--trace", "http://127.0.0.1:4318"]);
    let wrong = gridpool(["serve", "--devices", "cpu:1", "--trace", "http://127.0.0.1:4318"]);
    let wrong = wrong.env("OTEL_EXPORTER_OTLP_HEADERS", "hunter2").run();
    wrong.complains(2, &["OTEL_EXPORTER_OTLP_HEADERS", "NAME=VALUE"]);
    assert!(!format!("{wrong:?}").contains("hunter2"));
    serve(&["--trace-sample", "2"]).complains(2, &["--trace-sample", "from 0 to 1"]);
}
