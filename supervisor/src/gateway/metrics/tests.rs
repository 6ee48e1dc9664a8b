//! The metrics page as a whole: its families at the start, and the source of each number.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{ErrorKind, Write};
use std::process::{Command, Stdio};

use gridpool_protocol::codec;
use gridpool_protocol::fault::FaultCode;
use gridpool_protocol::ids::{DeviceId, DeviceKind};
use gridpool_protocol::limits::FRAME_BYTES_MAX;
use gridpool_protocol::message::{Reply, ServerMessage};
use gridpool_protocol::metrics::{DeviceWork, Metrics, News, RestartReason};
use gridpool_protocol::status::{
    CapsulesStatus, Counters, DeviceStatus, HttpStatus, MonitorStatus, NatsStatus, PrincipalStatus,
    QueueStatus, Status, SupervisorStatus, TracerStatus,
};
use gridpool_protocol::tensor::options::{ModelOptions, ModelPlan};

use super::super::models::{GridModel, Model};
use super::super::reason::Reason;
use super::super::statistics::Statistics;
use super::families::Family;
use super::page::Head;
use super::*;
use crate::config::CPU_WORKERS_MAX;
use crate::refusals::Refusals;
use gridpool_core::Core;
use gridpool_core::config::{HelperLimits, PoolConfig};
use gridpool_core::event::{Event, Timestamp};
use gridpool_core::policy::PolicyTable;

fn gpu(memory_total: u64) -> DeviceStatus {
    DeviceStatus {
        name: "gpu0".to_owned(),
        uuid: "GPU-\"1\"\\\n".to_owned(),
        memory_used: 5,
        memory_total,
        busy_percent: Some(40),
        power_mw: Some(71_500),
        xids: 2,
        ..DeviceStatus::default()
    }
}

fn principal(name: &str, done: u64) -> PrincipalStatus {
    PrincipalStatus { principal: name.to_owned(), done, ..PrincipalStatus::default() }
}

#[test]
fn principals_have_few_rows_however_many_addresses_and_users_there_are() {
    let users = (0..200).map(|uid| principal(&format!("uid {uid}"), 1));
    let addresses = (0..200).map(|n| principal(&format!("address 10.0.0.{n}"), 1));
    let mut metrics = fresh();
    metrics.status.principals = addresses.chain([principal("others", 7)]).chain(users).collect();
    let text = page(Some(&metrics)).text().unwrap();
    let rows = rows(&text);
    let of = |label: &str| {
        rows[&*format!("gridpool_principal_jobs_done_total{{principal=\"{label}\"}}")]
    };
    assert_eq!([of("addresses"), of("uid 0"), of("others")], [200.0, 1.0, 7.0 + 138.0]);
    let own = rows.keys().filter(|name| name.starts_with("gridpool_principal_jobs_done_total"));
    assert_eq!(own.count(), 64);
}

fn status() -> Status {
    let version = "0".to_owned();
    let supervisor =
        SupervisorStatus { version, uptime_s: 2.5, clients: 3, ..SupervisorStatus::default() };
    let http = HttpStatus { pid: 1, up: true, ..HttpStatus::default() };
    Status { supervisor, http: Some(http), ..Status::default() }
}

/// The metrics of a pool over one GPU that has just started.
fn fresh() -> Metrics {
    started(&[DeviceId { kind: DeviceKind::Gpu, index: 0 }], &[])
}

/// The metrics of a pool that has just started.
fn started(devices: &[DeviceId], models: &[ModelPlan]) -> Metrics {
    let (config, policy) = (PoolConfig::DEFAULT, PolicyTable::default());
    let mut core = Core::new(config, policy, devices, models, HelperLimits::of);
    core.handle(Timestamp::default(), Event::TimePassed);
    let (roles, devices, faults) = core.metrics(Timestamp::default());
    let workers = core.workers().into_iter().map(|(_, row)| row).collect();
    Metrics {
        status: Status { workers, ..status() },
        roles,
        devices,
        faults,
        news: News::default(),
    }
}

/// Metrics in which every family has a row.
fn complete() -> Metrics {
    let mut metrics = fresh();
    metrics.status.devices = vec![gpu(80)];
    metrics.status.monitor =
        Some(MonitorStatus { pid: 1, up: true, restarts: 0, ..MonitorStatus::default() });
    metrics.status.workers[0].start_us = Some(250_000);
    metrics.status.supervisor.refused.insert("user".to_owned(), 2);
    metrics.status.principals = vec![principal("uid 1000", 3)];
    let counts = ["published", "running", "fetched_bytes"].map(|name| (name.to_owned(), 7));
    let nats = NatsStatus { up: true, counts: counts.into(), ..NatsStatus::default() };
    metrics.status.nats = Some(nats);
    metrics.status.tracer = Some(tracer());
    metrics.status.capsules = Some(CapsulesStatus { written: 2, ..CapsulesStatus::default() });
    metrics
}

fn tracer() -> TracerStatus {
    TracerStatus { up: true, exported: 91, dropped: 92, unsent: 93, ..TracerStatus::default() }
}

fn page(metrics: Option<&Metrics>) -> Page {
    let statistics = Statistics::new();
    let numbers = |model: Model| {
        let named = (model.name().to_owned(), model.version().into_owned());
        (named, statistics.of(&model).numbers())
    };
    let models: Vec<_> = GridModel::all().map(Model::Grid).map(numbers).collect();
    let refused = Refusals::<Reason>::default().counts().collect();
    let (requests, load) =
        (Requests::default(), Load { refused, spans_unsent: 94, ..Load::default() });
    super::page(&PageInput { metrics, requests: &requests, load: &load, models: &models })
}

/// Rows of a text by name and labels.
fn rows(text: &str) -> BTreeMap<&str, f64> {
    let rows = text.lines().filter(|line| !line.starts_with('#'));
    let row =
        |line: &'_ str| line.rsplit_once(' ').expect("a name and a number").1.parse().unwrap();
    let mut all = BTreeMap::new();
    for line in rows {
        let (name, _) = line.rsplit_once(' ').unwrap();
        assert_eq!(all.insert(name, row(line)), None, "{name} is there twice");
    }
    all
}

#[test]
fn before_any_job_every_family_is_there_with_all_its_labels() {
    let metrics = fresh();
    let text = page(Some(&metrics)).text().unwrap();
    let rows = rows(&text);
    for role in ["grid", "infer"] {
        for name in [
            format!("gridpool_jobs_total{{role=\"{role}\",verdict=\"DEVICE_LOST\"}}"),
            format!("gridpool_jobs_refused_total{{role=\"{role}\",reason=\"poison\"}}"),
            format!("gridpool_worker_restarts_total{{role=\"{role}\",reason=\"killed\"}}"),
            format!("gridpool_attempts_ended_total{{role=\"{role}\",outcome=\"worker_died\"}}"),
            format!("gridpool_retries_total{{role=\"{role}\"}}"),
            format!("gridpool_queue_oldest_seconds{{role=\"{role}\"}}"),
            format!("gridpool_failover_seconds_bucket{{role=\"{role}\",le=\"0.00005\"}}"),
            format!("gridpool_recovery_seconds_bucket{{role=\"{role}\",le=\"60\"}}"),
            format!("gridpool_recovery_seconds_bucket{{role=\"{role}\",le=\"+Inf\"}}"),
            format!("gridpool_recovery_seconds_count{{role=\"{role}\"}}"),
            format!("gridpool_worker_state{{worker=\"gpu0\",role=\"{role}\",state=\"busy\"}}"),
            format!("gridpool_device_out{{device=\"gpu0\",kind=\"gpu\",role=\"{role}\"}}"),
            format!(
                "gridpool_worker_memory_bytes{{worker=\"gpu0\",role=\"{role}\",memory=\"pinned\"}}"
            ),
            "gridpool_faults_total{class=\"sticky\"}".to_owned(),
            "gridpool_faults_by_code_total{class=\"process\",code=\"hang\"}".to_owned(),
            "gridpool_faults_by_code_total{class=\"device\",code=\"xid 79\"}".to_owned(),
            "gridpool_faults_by_code_total{class=\"sticky\",code=\"cuda 700\"}".to_owned(),
            "gridpool_faults_by_code_total{class=\"notice\",code=\"other xid\"}".to_owned(),
            "nv_inference_count{model=\"rot90\",version=\"1\"}".to_owned(),
        ] {
            assert_eq!(rows.get(&*name), Some(&0.0), "{name}");
        }
    }
    let starting = "gridpool_worker_state{worker=\"gpu0\",role=\"grid\",state=\"starting\"}";
    assert_eq!((rows[starting], rows["gridpool_up"]), (1.0, 1.0));
    let moved: Vec<_> = rows.iter().filter(|(_, value)| **value != 0.0).collect();
    assert_eq!(moved.len(), 7, "{moved:?}");
}

#[test]
fn every_family_says_what_it_is_and_of_which_type() {
    let page = page(Some(&complete()));
    let text = page.text().unwrap();
    for name in page.names() {
        assert!(text.contains(&format!("# HELP {name} ")), "{name}");
        let is_sum = text.contains(&format!("# TYPE {name} counter\n"));
        let is_triton = name.starts_with("nv_");
        assert!(name.ends_with("_total") == is_sum || is_triton, "{name}");
    }
}

/// The table of metrics for the book, and the reasons of restarts.
fn markdown() -> String {
    let mut text = String::from("| metric | type | labels | meaning |\n|---|---|---|---|\n");
    for (heading, families) in FAMILIES {
        text.push_str(&format!("| **{heading}** | | | |\n"));
        for Family { head: Head { name, kind, help }, source } in *families {
            let (kind, labels) = (format!("{kind:?}").to_lowercase(), source.labels().join(", "));
            text.push_str(&format!("| `{name}` | {kind} | {labels} | {help} |\n"));
        }
    }
    let reasons = RestartReason::ALL.map(RestartReason::name).join(", ");
    let of = "The `reason` of `gridpool_worker_restarts_total` is one of";
    format!("{text}\n{of} {reasons}.\n")
}

#[test]
fn the_generated_list_of_metrics_is_that_of_the_code() {
    crate::generated::check("reference/metrics.md", "metrics", &markdown());
}

#[test]
fn every_family_has_rows_on_a_page_of_a_pool_that_has_everything() {
    let page = page(Some(&complete()));
    let families = FAMILIES.iter().flat_map(|(_, families)| *families);
    assert!(page.names().eq(families.map(|family| family.head.name)));
}

/// The book says why those names stay.
#[test]
fn promtool_finds_fault_with_no_family_but_those_that_triton_named() {
    let page = page(Some(&complete()));
    let mut command = Command::new("promtool");
    command.args(["check", "metrics"]).stdin(Stdio::piped()).stderr(Stdio::piped());
    let started = command.spawn();
    if started.as_ref().is_err_and(|error| error.kind() == ErrorKind::NotFound) {
        let required = std::env::var_os("GRIDPOOL_REQUIRE_PROMETHEUS");
        assert_eq!(required, None, "apt-get install prometheus");
        return;
    }
    let mut promtool = started.unwrap();
    promtool.stdin.take().unwrap().write_all(page.text().unwrap().as_bytes()).unwrap();
    let found = String::from_utf8(promtool.wait_with_output().unwrap().stderr).unwrap();
    let found: BTreeSet<_> = found.lines().filter_map(|line| line.split(' ').next()).collect();
    let of_triton = page.names().filter(|name| name.starts_with("nv_inference_"));
    assert_eq!(found, of_triton.collect(), "with all of those, so it has looked");
}

#[test]
fn a_gpu_is_listed_if_nvml_reports_it_and_its_name_is_escaped() {
    let up = Some(MonitorStatus { pid: 1, up: true, restarts: 0, ..MonitorStatus::default() });
    let text = |monitor, gpu| {
        let mut metrics = fresh();
        (metrics.status.monitor, metrics.status.devices) = (monitor, vec![gpu]);
        page(Some(&metrics)).text().unwrap()
    };
    let labels = r#"{gpu_uuid="GPU-\"1\"\\\n",device="gpu0"}"#;
    let all = text(up, gpu(80));
    for row in [
        format!("nv_gpu_utilization{labels} 0.4\n"),
        format!("nv_gpu_memory_total_bytes{labels} 80\n"),
        format!("nv_gpu_memory_used_bytes{labels} 5\n"),
        format!("nv_gpu_power_usage{labels} 71.5\n"),
        format!("gridpool_gpu_xids_total{labels} 2\n"),
    ] {
        assert!(all.contains(&row), "{row} in {all}");
    }
    let down = Some(MonitorStatus { pid: 0, up: false, restarts: 1, ..MonitorStatus::default() });
    let failing = DeviceStatus { nvml_error: Some(15), ..gpu(80) };
    for text in [text(up, gpu(0)), text(down, gpu(80)), text(up, failing), text(None, gpu(80))] {
        assert!(!text.contains("nv_gpu"), "{text}");
        assert!(text.contains("gridpool_gpu_xids_total"), "{text}");
    }
    let silent = text(up, DeviceStatus { busy_percent: None, power_mw: None, ..gpu(80) });
    assert!(!silent.contains("nv_gpu_utilization") && !silent.contains("nv_gpu_power"), "{silent}");
    assert!(silent.contains("nv_gpu_memory_used_bytes"), "{silent}");
    assert!(!page(Some(&fresh())).text().unwrap().contains("gpu_uuid"));
}

#[test]
fn a_pool_that_does_not_answer_is_down_and_the_gateways_own_metrics_remain() {
    let page = page(None);
    let text = page.text().unwrap();
    assert!(text.contains("\ngridpool_up 0\n"), "{text}");
    let of_pool = |name: &&str| name.starts_with("gridpool_jobs") || name.contains("worker");
    assert_eq!(page.names().find(of_pool), None);
    assert!(text.contains("gridpool_http_requests_total") && text.contains("nv_inference_count"));
}

#[test]
fn how_long_a_start_took_has_a_row_once_one_is_ready() {
    let name = "gridpool_worker_last_start_seconds";
    assert!(!page(Some(&fresh())).text().unwrap().contains(name), "nothing took no time");
    let text = page(Some(&complete())).text().unwrap();
    assert!(text.contains(&format!("{name}{{worker=\"gpu0\",role=\"grid\"}} 0.25\n")), "{text}");
    assert!(!text.contains(&format!("{name}{{worker=\"gpu0\",role=\"infer\"}}")), "{text}");
}

#[test]
fn the_memory_of_workers_is_added_up_whatever_they_report() {
    let mut metrics = complete();
    let mut standby = metrics.status.workers[0].clone();
    standby.memory.device_bytes = u64::MAX;
    metrics.status.workers.extend([standby.clone(), standby]);
    let text = page(Some(&metrics)).text().unwrap();
    let row = "memory=\"device\"} 18446744073709552000\n";
    assert!(text.contains(row), "{text}");
}

#[test]
fn histograms_are_cumulative_and_their_last_bucket_holds_all() {
    let mut metrics = fresh();
    for value in [0.000_04, 0.000_2, 3.0, 70.0, 80.0] {
        metrics.roles[0].sums.histograms.failover.observe(value);
    }
    let text = page(Some(&metrics)).text().unwrap();
    let rows = rows(&text);
    let bucket =
        |le: &str| rows[&*format!("gridpool_failover_seconds_bucket{{role=\"grid\",le=\"{le}\"}}")];
    assert_eq!(
        ["0.00005", "0.00025", "2.5", "5", "60", "+Inf"].map(bucket),
        [1.0, 2.0, 2.0, 3.0, 3.0, 5.0]
    );
    assert_eq!(rows["gridpool_failover_seconds_count{role=\"grid\"}"], 5.0);
    assert_eq!(rows["gridpool_failover_seconds_count{role=\"infer\"}"], 0.0);
}

#[test]
fn the_status_of_the_largest_pool_fits_a_message() {
    let device = |index| DeviceId { kind: DeviceKind::Cpu, index };
    let devices: Vec<_> = (0..CPU_WORKERS_MAX).map(device).collect();
    let (path, options) = ("/m.onnx".into(), ModelOptions::default());
    let mut metrics = started(&devices, &[ModelPlan { name: "m".to_owned(), path, options }]);
    assert_eq!(metrics.status.workers.len(), 2 * devices.len());
    for row in &mut metrics.status.workers {
        (row.device.name, row.last_fault) = ("n".repeat(100), "w".repeat(400));
    }
    metrics.faults.iter_mut().for_each(|(_, count)| *count = u64::MAX);
    assert!(metrics.faults.len() > FaultCode::listed().count(), "all of them, and others");
    let reply = Reply::Metrics(Box::new(metrics));
    let message = ServerMessage::Reply { request: u64::MAX, reply };
    let bytes = codec::encode(&message).expect("it can be sent").len();
    assert!(bytes < FRAME_BYTES_MAX * 3 / 4, "{bytes}");
}

#[test]
fn every_number_stands_under_its_own_name_and_role() {
    let mut metrics = fresh();
    let role = &mut metrics.roles[1];
    role.counters = Counters {
        accepted: 11,
        ok: 12,
        failed: 13,
        deadline: 14,
        poison: 15,
        cancelled: 16,
        device_lost: 17,
        refused_busy: 18,
        refused_poison: 19,
        attempts: 20,
        runs: 21,
        joined: 22,
        stale: 23,
        ..Counters::default()
    };
    role.queue = QueueStatus { jobs: 24, bytes: 25, oldest_us: Some(26_000_000), ..role.queue };
    role.sums.retries = 27;
    let silent = |(reason, _): &&mut (RestartReason, u64)| *reason == RestartReason::Silent;
    role.restarts.iter_mut().find(silent).expect("all reasons are there").1 = 28;
    role.ended[2].1 = 29;
    let work = DeviceWork {
        attempts: 31,
        items: 32,
        h2d_bytes: 33,
        d2h_bytes: 34,
        launches: 35.5,
        busy_s: 36.25,
        runs: 39.5,
        graph_replays: 41.5,
        run_s: 40.25,
    };
    let row = &mut metrics.devices[1];
    (row.generation, row.is_out, row.quarantines, row.work) = (37, true, 38, work);
    metrics.devices[0].work = work;
    metrics.status.tracer = Some(tracer());
    let text = page(Some(&metrics)).text().unwrap();
    let rows = rows(&text);
    let of = |name: &str, labels: &str| rows[&*format!("gridpool_{name}{{{labels}}}")];
    let infer = |name: &str| of(name, "role=\"infer\"");
    assert_eq!(infer("jobs_accepted_total"), 11.0);
    let verdicts = ["OK", "FAILED", "DEADLINE", "POISON", "CANCELLED", "DEVICE_LOST"];
    let jobs = verdicts.map(|v| of("jobs_total", &format!("role=\"infer\",verdict=\"{v}\"")));
    assert_eq!(jobs, [12.0, 13.0, 14.0, 15.0, 16.0, 17.0]);
    assert_eq!(of("jobs_refused_total", "role=\"infer\",reason=\"busy\""), 18.0);
    assert_eq!(of("jobs_refused_total", "role=\"infer\",reason=\"poison\""), 19.0);
    assert_eq!((infer("attempts_total"), infer("dispatches_total")), (20.0, 21.0));
    assert_eq!((infer("attempts_joined_total"), infer("stale_messages_total")), (22.0, 23.0));
    let queue = ["queue_jobs", "queue_bytes", "queue_oldest_seconds"].map(infer);
    assert_eq!((queue, infer("retries_total")), ([24.0, 25.0, 26.0], 27.0));
    assert_eq!(of("worker_restarts_total", "role=\"infer\",reason=\"silent\""), 28.0);
    assert_eq!(of("attempts_ended_total", "role=\"infer\",outcome=\"device_error\""), 29.0);
    let worker = |name: &str| of(name, "worker=\"gpu0\",role=\"infer\"");
    let workers = ["worker_jobs_total", "worker_items_total", "worker_generation"].map(worker);
    assert_eq!(workers, [31.0, 32.0, 37.0]);
    let device = "device=\"gpu0\",kind=\"gpu\",role=\"infer\"";
    let ways = ["to_device", "to_host"].map(|way| format!("{device},direction=\"{way}\""));
    assert_eq!(ways.map(|labels| of("device_copied_bytes_total", &labels)), [33.0, 34.0]);
    let grids = "device=\"gpu0\",kind=\"gpu\",role=\"grid\"";
    assert_eq!(of("kernel_launches_total", grids), 35.5);
    assert_eq!(of("device_busy_seconds_total", grids), 36.25);
    assert_eq!(
        (of("model_runs_total", device), of("model_run_seconds_total", device)),
        (39.5, 40.25)
    );
    assert_eq!(of("model_graph_replays_total", device), 41.5);
    let has =
        |name: &str, labels: &str| rows.contains_key(&*format!("gridpool_{name}{{{labels}}}"));
    for name in ["kernel_launches_total", "device_busy_seconds_total"] {
        assert!(!has(name, device), "{name}: that is not measured for models");
    }
    assert!(!has("model_runs_total", grids) && !has("model_run_seconds_total", grids));
    let results = ["exported", "dropped", "unsent_jobs", "unsent_requests"]
        .map(|name| format!("result=\"{name}\""));
    assert_eq!(results.map(|labels| of("trace_spans_total", &labels)), [91.0, 92.0, 93.0, 94.0]);
    assert_eq!(of("device_out", device), 1.0);
    assert_eq!(of("device_quarantines_total", device), 38.0);
}

#[test]
fn faults_count_for_their_code_and_for_their_class() {
    let mut metrics = fresh();
    let (other, _) = FaultCode::others()[0];
    for (fault, count) in [(FaultCode::Cuda(700), 2), (FaultCode::Cuda(719), 1), (other, 4)] {
        let row = metrics.faults.iter_mut().find(|(of, _)| *of == fault);
        row.expect("it is there from 0 on").1 = count;
    }
    let text = page(Some(&metrics)).text().unwrap();
    for row in [
        "gridpool_faults_total{class=\"sticky\"} 7\n",
        "gridpool_faults_total{class=\"setup\"} 0\n",
        "gridpool_faults_by_code_total{class=\"sticky\",code=\"cuda 700\"} 2\n",
        "gridpool_faults_by_code_total{class=\"sticky\",code=\"other cuda\"} 4\n",
    ] {
        assert!(text.contains(row), "{row} in {text}");
    }
}
