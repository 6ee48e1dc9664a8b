//! `GET /metrics` of real pools, read by Prometheus's own parser. `tests/http/metrics.py` checks the rules
//! that hold for every page, and prints its samples.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::process::{Command, Stdio};

use gridpool_protocol::status::WorkerState;
use nix::sys::signal::Signal;
use serde_json::Value;

use super::triton::python;
use super::{Answer, as_request, gateway_pid, get, post, served, small, with_http};
use crate::binaries;
use crate::jobs::{answer, serves, small_job, submit};
use crate::pool::{Pool, cpu, stub_worker};
use crate::processes::{go_on, signal, stop};
use crate::stubbed::gpus;
use crate::wait::{eventually, within};

/// If this variable is set, a Python without the parser is a failure.
const REQUIRED: &str = "GRIDPOOL_REQUIRE_PROMETHEUS_CLIENT";

/// Whether the parser is installed. Fails if it must be and is not.
#[expect(clippy::print_stderr, reason = "a test that does nothing says so")]
fn has_parser() -> bool {
    let mut command = Command::new(python());
    command.args(["-c", "import prometheus_client.parser"]).stderr(Stdio::null());
    let has_parser = command.status().is_ok_and(|status| status.success());
    if !has_parser {
        assert!(
            std::env::var_os(REQUIRED).is_none(),
            "{REQUIRED} is set and `{}` cannot import prometheus_client.parser: pip install \
             prometheus_client",
            python().display()
        );
        eprintln!("skipped: python3 has no prometheus_client");
    }
    has_parser
}

/// The samples of a page by name and labels. The labels are JSON, sorted by name.
#[derive(Debug)]
struct Metrics(BTreeMap<String, f64>);

impl Metrics {
    /// The value of a sample.
    #[track_caller]
    fn of(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let labels: BTreeMap<_, _> = labels.iter().copied().collect();
        let labels = serde_json::to_string(&labels).expect("labels are plain");
        let key = format!("{name}{labels}");
        *self.0.get(&key).unwrap_or_else(|| panic!("{key} is not there"))
    }

    /// The value of a sample of the role `grid`.
    #[track_caller]
    fn grid(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.of(name, &[labels, &[("role", "grid")]].concat())
    }
}

/// The pool's metrics, checked by the script.
fn metrics(pool: &Pool) -> Metrics {
    read(&page(pool))
}

fn page(pool: &Pool) -> Answer {
    let page = get(pool, "/metrics");
    assert_eq!(page.status, 200, "{page:?}");
    let version = "text/plain; version=0.0.4; charset=utf-8";
    assert_eq!(page.header("content-type"), Some(version), "{page:?}");
    page
}

fn read(page: &Answer) -> Metrics {
    let mut command = Command::new(python());
    command.arg(binaries::root().join("tests/http/metrics.py"));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("python can be started");
    let (mut input, body) = (child.stdin.take().expect("a pipe"), page.body.clone());
    let parse = move || {
        input.write_all(&body).expect("the script reads it");
        drop(input);
        child.wait_with_output().expect("the script ends")
    };
    let output = within("the parser", parse);
    let why = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{why}: {}", String::from_utf8_lossy(&page.body));
    Metrics(serde_json::from_slice(&output.stdout).expect("the script prints JSON"))
}

/// Waits until `is_so` holds for the metrics.
fn until(pool: &Pool, what: &str, is_so: impl Fn(&Metrics) -> bool) -> Metrics {
    eventually(what, || {
        let metrics = metrics(pool);
        if is_so(&metrics) { Ok(metrics) } else { Err(format!("{metrics:?}")) }
    })
}

/// The names of families in a text.
fn families(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("gridpool_") || word.starts_with("nv_")).collect()
}

#[test]
fn every_family_of_the_book_starts_at_zero_before_any_worker() {
    if !has_parser() {
        return;
    }
    let setup = cpu(1).worker(stub_worker()).env("GRIDPOOL_STUB", "says-nothing");
    let pool = with_http(setup).start_early();
    gateway_pid(&pool);
    let page = page(&pool);
    let text = String::from_utf8(page.body.clone()).expect("it is text");
    let typed = text.lines().filter(|line| line.starts_with("# TYPE "));
    let there: BTreeSet<&str> = typed.flat_map(families).collect();
    let reference = binaries::root().join("docs/src/reference/metrics.md");
    let reference = std::fs::read_to_string(reference).expect("a page of the book");
    let (table, _) = reference.split_once("<!-- /metrics -->").expect("the table ends");
    let mut named = families(table);
    named.retain(|name| !name.starts_with("nv_gpu") && *name != "gridpool_gpu_xids_total");
    // Of the bridge and the tracer, which this pool does not have.
    named.retain(|name| !name.starts_with("gridpool_cluster_"));
    named.remove("gridpool_trace_spans_total");
    named.remove("nv_inference_pending_request_count");
    named.remove("gridpool_worker_last_start_seconds");
    assert_eq!(there, named, "on a pool without a GPU, before any worker is READY");
    let metrics = read(&page);
    for verdict in ["OK", "FAILED", "DEADLINE", "POISON", "CANCELLED", "DEVICE_LOST"] {
        assert_eq!(metrics.grid("gridpool_jobs_total", &[("verdict", verdict)]), 0.0);
    }
    for reason in ["killed", "silent", "fault", "signal", "exit", "not_ready", "recycled", "late"] {
        assert_eq!(metrics.grid("gridpool_worker_restarts_total", &[("reason", reason)]), 0.0);
    }
    for (class, code) in [("device", "xid 79"), ("sticky", "cuda 700"), ("sticky", "other cuda")] {
        let labels = [("class", class), ("code", code)];
        assert_eq!(metrics.of("gridpool_faults_by_code_total", &labels), 0.0);
    }
    let starting = [("worker", "cpu0"), ("state", "starting")];
    assert_eq!(metrics.grid("gridpool_worker_state", &starting), 1.0);
    assert_eq!(metrics.grid("gridpool_failover_seconds_count", &[]), 0.0);
    assert_eq!(metrics.of("gridpool_up", &[]), 1.0);
    let asked = [("route", "infer"), ("status", "200")];
    assert_eq!(metrics.of("gridpool_http_requests_total", &asked), 0.0);
    let model = [("model", "rot90"), ("version", "1")];
    assert_eq!(metrics.of("nv_inference_request_success_total", &model), 0.0);
}

#[test]
fn jobs_requests_and_device_work_are_counted() {
    if !has_parser() {
        return;
    }
    let pool = served(cpu(1));
    let before = metrics(&pool);
    let client = pool.client();
    (0..20).for_each(|seed| drop(answer(submit(&client, small_job(seed)))));
    let grids = [small(), small()].concat();
    assert_eq!(post(&pool, "/v2/models/rot180/infer", &as_request(&grids)).status, 200);
    post(&pool, "/v2/models/rot180/infer", &Value::Null).complains(400, "is not valid JSON");
    let after = metrics(&pool);
    let moved =
        |name: &str, labels: &[(&str, &str)]| after.of(name, labels) - before.of(name, labels);
    let grid =
        |name: &str, labels: &[(&str, &str)]| after.grid(name, labels) - before.grid(name, labels);
    // The gateway's known job may come between.
    let jobs = grid("gridpool_jobs_total", &[("verdict", "OK")]);
    assert!((21.0..=24.0).contains(&jobs), "{jobs}");
    assert_eq!(grid("gridpool_attempts_ended_total", &[("outcome", "ok")]), jobs);
    assert_eq!(grid("gridpool_worker_jobs_total", &[("worker", "cpu0")]), jobs);
    assert_eq!(grid("gridpool_job_queue_seconds_count", &[]), jobs);
    assert_eq!(grid("gridpool_attempt_service_seconds_count", &[]), jobs);
    assert_eq!(grid("gridpool_job_seconds_count", &[]), jobs);
    assert!(grid("gridpool_attempt_service_seconds_sum", &[]) > 0.0);
    assert!(grid("gridpool_dispatch_attempts_count", &[]) <= jobs);
    let device = [("device", "cpu0"), ("kind", "cpu")];
    assert!(grid("gridpool_kernel_launches_total", &device) >= 21.0);
    assert!(grid("gridpool_device_busy_seconds_total", &device) > 0.0);
    let ways = ["to_device", "to_host"].map(|way| [device[0], device[1], ("direction", way)]);
    ways.iter().for_each(|way| {
        assert_eq!(grid("gridpool_device_copied_bytes_total", way), 0.0, "grids on a CPU device");
    });
    assert_eq!(after.of("gridpool_jobs_total", &[("role", "infer"), ("verdict", "OK")]), 0.0);
    let model = [("model", "rot180"), ("version", "1")];
    assert_eq!(moved("nv_inference_request_success_total", &model), 1.0);
    assert_eq!(moved("nv_inference_request_failure_total", &model), 1.0);
    assert_eq!(moved("nv_inference_count_total", &model), 2.0);
    assert_eq!(moved("nv_inference_exec_count_total", &model), 1.0);
    assert!(moved("nv_inference_request_duration_us_total", &model) > 0.0);
    let asked = |status| [("route", "infer"), ("status", status)];
    assert_eq!(moved("gridpool_http_requests_total", &asked("200")), 1.0);
    assert_eq!(moved("gridpool_http_requests_total", &asked("400")), 1.0);
    assert_eq!(
        moved("gridpool_http_requests_total", &[("route", "metrics"), ("status", "200")]),
        1.0
    );
    assert_eq!(after.of("gridpool_http_requests_in_flight", &[]), 1.0, "this one");
    assert_eq!(after.of("gridpool_model_requests_in_flight", &model), 0.0);
}

#[test]
fn a_death_counts_as_a_restart_a_fault_a_retry_and_in_two_histograms() {
    if !has_parser() {
        return;
    }
    let pool = served(cpu(1));
    let client = pool.client();
    let worker = pool.stop("cpu0");
    let job = submit(&client, small_job(1));
    pool.until_busy("cpu0");
    signal(worker, Signal::SIGKILL);
    drop(answer(job));
    pool.until("cpu0", "ready", |slot| slot.state == WorkerState::Ready);
    let killed = metrics(&pool);
    assert_eq!(killed.grid("gridpool_worker_restarts_total", &[("reason", "killed")]), 1.0);
    let signal_9 = [("class", "notice"), ("code", "signal 9")];
    assert_eq!(killed.of("gridpool_faults_by_code_total", &signal_9), 1.0);
    assert_eq!(killed.of("gridpool_faults_total", &[("class", "notice")]), 1.0);
    assert!(killed.grid("gridpool_retries_total", &[]) >= 1.0);
    let died = killed.grid("gridpool_attempts_ended_total", &[("outcome", "worker_died")]);
    assert!(died >= 1.0, "{died}");
    assert_eq!(killed.grid("gridpool_recovery_seconds_count", &[]), 1.0);
    assert!(killed.grid("gridpool_failover_seconds_count", &[]) >= 1.0);
    let recovery = killed.grid("gridpool_recovery_seconds_sum", &[]);
    assert!(recovery > 0.0 && recovery < 60.0, "{recovery}");
    assert!(killed.grid("gridpool_failover_seconds_sum", &[]) >= recovery, "there was no standby");
    assert_eq!(killed.grid("gridpool_worker_start_seconds_count", &[]), 2.0);
    assert_eq!(killed.grid("gridpool_worker_generation", &[("worker", "cpu0")]), 2.0);
    signal(pool.pid("cpu0"), Signal::SIGSEGV);
    let crashed = until(&pool, "a second restart", |metrics| {
        metrics.grid("gridpool_worker_restarts_total", &[("reason", "signal")]) == 1.0
            && metrics.grid("gridpool_recovery_seconds_count", &[]) == 2.0
    });
    assert_eq!(crashed.grid("gridpool_worker_restarts_total", &[("reason", "killed")]), 1.0);
}

#[test]
fn the_supervisor_s_counts_survive_a_restart_of_the_gateway_and_the_gateway_s_do_not() {
    if !has_parser() {
        return;
    }
    let pool = served(cpu(1));
    (0..5).for_each(|_| serves(&pool.client()));
    let before = metrics(&pool);
    signal(gateway_pid(&pool), Signal::SIGKILL);
    pool.until_status("another gateway", |status| {
        status.http.as_ref().is_some_and(|http| http.up && http.restarts == 1)
    });
    let after = metrics(&pool);
    let supervisors = |name: &str| {
        let is_sum = ["_total{", "_count{", "_bucket{"].iter().any(|part| name.contains(part));
        let own = ["gridpool_http", "nv_"].iter().any(|start| name.starts_with(start));
        is_sum && !own
    };
    for (name, value) in before.0.iter().filter(|(name, _)| supervisors(name)) {
        let now = after.0.get(name).unwrap_or_else(|| panic!("{name} is gone"));
        assert!(now >= value, "{name}: {value}, then {now}");
    }
    let ok = [("verdict", "OK")];
    assert!(before.grid("gridpool_jobs_total", &ok) >= 5.0);
    assert_eq!(after.of("gridpool_helper_restarts_total", &[("helper", "gateway")]), 1.0);
    let asked = [("route", "metrics"), ("status", "200")];
    assert_eq!(before.of("gridpool_http_requests_total", &asked), 0.0);
    assert_eq!(after.of("gridpool_http_requests_total", &asked), 0.0, "it is a new one");
}

#[test]
fn the_page_says_so_if_the_supervisor_does_not_answer() {
    if !has_parser() {
        return;
    }
    let pool = served(cpu(1));
    assert_eq!(metrics(&pool).of("gridpool_up", &[]), 1.0);
    let mut web = super::Web::open(&pool);
    let supervisor = pool.supervisor.pid();
    stop(supervisor);
    let page = web.ask("GET", "/metrics", "", b"");
    go_on(supervisor);
    assert_eq!(page.status, 200, "{page:?}");
    let down = read(&page);
    assert_eq!(down.of("gridpool_up", &[]), 0.0);
    assert!(!down.0.keys().any(|name| name.starts_with("gridpool_jobs")), "{down:?}");
    let asked = [("route", "metrics"), ("status", "200")];
    assert_eq!(down.of("gridpool_http_requests_total", &asked), 1.0);
    until(&pool, "the pool to be up again", |metrics| metrics.of("gridpool_up", &[]) == 1.0);
}

#[test]
fn a_gpu_has_nvml_s_numbers_and_its_copies_and_launches() {
    if !has_parser() {
        return;
    }
    let pool = served(gpus(1, ""));
    pool.until_status("the GPU's numbers", |status| status.devices[0].memory_total > 0);
    serves(&pool.client());
    let status = pool.status();
    let gpu = &status.devices[0];
    let metrics = metrics(&pool);
    let labels = [("device", "gpu0"), ("gpu_uuid", gpu.uuid.as_str())];
    #[expect(clippy::cast_precision_loss, reason = "as the format has it")]
    let total = gpu.memory_total as f64;
    assert_eq!(metrics.of("nv_gpu_memory_total_bytes", &labels), total);
    assert!(metrics.of("nv_gpu_memory_used_bytes", &labels) <= total);
    assert_eq!(metrics.of("gridpool_gpu_xids_total", &labels), 0.0);
    for (name, share) in [("nv_gpu_utilization", 1.0), ("nv_gpu_power_usage", 10_000.0)] {
        let rows: Vec<_> = metrics.0.iter().filter(|(key, _)| key.starts_with(name)).collect();
        assert!(rows.iter().all(|(_, value)| (0.0..=share).contains(*value)), "{rows:?}");
    }
    let device = [("device", "gpu0"), ("kind", "gpu")];
    assert!(metrics.grid("gridpool_kernel_launches_total", &device) >= 1.0);
    for way in ["to_device", "to_host"] {
        let labels = [device[0], device[1], ("direction", way)];
        assert!(metrics.grid("gridpool_device_copied_bytes_total", &labels) > 0.0, "{way}");
    }
    assert_eq!(metrics.of("gridpool_helper_up", &[("helper", "monitor")]), 1.0);
}
