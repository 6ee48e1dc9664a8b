//! What `supervisor/monitoring` holds, made from the table of metrics: a Grafana dashboard with a panel for
//! each family, recording rules for its histograms, and alerts. The tests here write the files and hold
//! them, so a family that is renamed is renamed there, and an alert on a family that is gone is told.

use serde_json::{Value, json};

use super::families::{FAMILIES, Family};
use super::page::Kind;
use crate::generated;

/// The labels of a scrape. Rules keep them, so that an alert says which pool it means.
const SCRAPE_LABELS: &str = "job, instance";

/// The quantiles that are recorded of every histogram.
const QUANTILES: [(&str, &str); 2] = [("p50", "0.5"), ("p99", "0.99")];

/// An alert: what must hold, for how long, how urgent it is, and what it says.
struct Alert {
    name: &'static str,
    holds: &'static str,
    during: &'static str,
    severity: &'static str,
    summary: &'static str,
}

/// Grafana's grid is 24 wide: three panels to a line.
const GRID_WIDTH: usize = 24;
const PANEL_WIDTH: usize = 8;
const PANEL_HEIGHT: usize = 7;

macro_rules! alerts {
    ($($severity:ident $name:ident $during:literal $holds:literal $summary:literal;)*) => {
        /// `monitoring/alerts_test.yaml` holds a case in which each of them fires and one in which it does not.
        const ALERTS: &[Alert] = &[$(Alert {
            name: stringify!($name),
            holds: $holds,
            during: $during,
            severity: stringify!($severity),
            summary: $summary,
        }),*];
    };
}

alerts! {
    critical GridpoolUnreachable "1m"
        "up{job=\"gridpool\"} == 0"
        "{{ $labels.instance }} does not answer: its supervisor, its gateway or its host is gone";
    critical GridpoolSupervisorSilent "30s"
        "gridpool_up == 0"
        "The supervisor of {{ $labels.instance }} does not answer its gateway";
    critical GridpoolNoWorker "1m"
        "sum by (job, instance, role) (gridpool_worker_state{state=~\"ready|busy\"}) == 0 \
         and sum by (job, instance, role) (gridpool_worker_state) > 0"
        "No {{ $labels.role }} worker of {{ $labels.instance }} serves: see gridpool status";
    warning GridpoolDeviceOut "1m"
        "gridpool_device_out == 1"
        "{{ $labels.device }} of {{ $labels.instance }} is quarantined for {{ $labels.role }}: see gridpool status; \
         gridpool release {{ $labels.device }} returns it to service";
    warning GridpoolWorkerUnkillable "1m"
        "gridpool_worker_state{state=\"unkillable\"} > 0"
        "A process on {{ $labels.worker }} of {{ $labels.instance }} survives SIGKILL: the host must be restarted";
    warning GridpoolWorkersRestart "0m"
        "sum by (job, instance, role) (increase(gridpool_worker_restarts_total\
         {reason!~\"cancelled|others_wait|recycled\"}[10m])) > 3"
        "{{ $value | humanize }} {{ $labels.role }} workers of {{ $labels.instance }} were replaced in 10 minutes";
    warning GridpoolXid "0m"
        "increase(gridpool_gpu_xids_total[10m]) > 0"
        "The driver reported an Xid on {{ $labels.device }} of {{ $labels.instance }}: see the log";
    warning GridpoolPoison "0m"
        "sum by (job, instance, role) (increase(gridpool_jobs_total{verdict=\"POISON\"}[10m])) > 0"
        "A job of {{ $labels.instance }} killed its workers and is refused: gridpool status names it";
    critical GridpoolJobsLost "0m"
        "sum by (job, instance, role) (increase(gridpool_jobs_total{verdict=\"DEVICE_LOST\"}[10m])) > 0"
        "{{ $labels.instance }} gave jobs up, since no device was left to run them";
    warning GridpoolLate "5m"
        "sum by (job, instance, role) (rate(gridpool_jobs_total{verdict=\"DEADLINE\"}[5m])) \
         > 0.01 * sum by (job, instance, role) (rate(gridpool_jobs_total[5m]))"
        "More than 1 % of the jobs of {{ $labels.instance }} miss their deadline";
    warning GridpoolQueueWaits "2m"
        "gridpool_queue_oldest_seconds > 30"
        "A {{ $labels.role }} job of {{ $labels.instance }} has waited {{ $value | humanizeDuration }} for a worker";
    warning GridpoolRefuses "5m"
        "sum by (job, instance, role) (rate(gridpool_jobs_refused_total{reason=\"busy\"}[5m])) \
         > 0.01 * sum by (job, instance, role) (rate(gridpool_jobs_accepted_total[5m]))"
        "{{ $labels.instance }} refuses more than 1 % of its jobs, since a queue is full";
    warning GridpoolRecoversSlowly "0m"
        "job_instance_role:gridpool_recovery_seconds:p99 > 30 \
         and sum by (job, instance, role) (increase(gridpool_recovery_seconds_count[5m])) > 5"
        "One in 100 lost workers of {{ $labels.instance }} takes {{ $value | humanizeDuration }} to be replaced";
    warning GridpoolHelperDown "1m"
        "gridpool_helper_up == 0"
        "The {{ $labels.helper }} of {{ $labels.instance }} is down";
    warning GridpoolSaturated "1m"
        "gridpool_http_saturated == 1"
        "{{ $labels.instance }} refuses every request over HTTP and gRPC for want of room";
    warning GridpoolHttpErrors "5m"
        "sum by (job, instance) (rate(gridpool_http_requests_total{status=~\"5..\"}[5m])) \
         > 0.01 * sum by (job, instance) (rate(gridpool_http_requests_total[5m]))"
        "More than 1 % of the requests to {{ $labels.instance }} are answered with a server's error";
    info GridpoolModelFails "5m"
        "rate(nv_inference_request_failure[5m]) \
         > 0.05 * (rate(nv_inference_request_success[5m]) + rate(nv_inference_request_failure[5m]))"
        "More than 5 % of the requests to {{ $labels.model }} {{ $labels.version }} of {{ $labels.instance }} fail or \
         are refused, for mistakes of clients too";
    warning GridpoolDrains "15m"
        "gridpool_draining == 1"
        "{{ $labels.instance }} has been draining for 15 minutes: gridpool status says which jobs it waits for";
    warning GridpoolClusterUnreached "1m"
        "gridpool_cluster_connected == 0"
        "No NATS server answers {{ $labels.instance }}, so it takes no jobs of the cluster: gridpool status says why";
    warning GridpoolClusterRedelivers "0m"
        "sum by (job, instance) (increase(gridpool_cluster_jobs_total{event=\"redelivered\"}[10m])) > 10"
        "{{ $labels.instance }} took {{ $value | humanize }} jobs in 10 minutes that another host had begun";
}

/// Families with the heading that they stand under.
fn families() -> impl Iterator<Item = (&'static str, &'static Family)> {
    FAMILIES
        .iter()
        .flat_map(|(heading, families)| families.iter().map(move |family| (*heading, family)))
}

fn histograms() -> impl Iterator<Item = &'static Family> {
    families().map(|(_, family)| family).filter(|family| family.head.kind == Kind::Histogram)
}

/// The series that a recording rule makes of a histogram: its labels, its name, what was done.
fn recorded(family: &Family, quantile: &str) -> String {
    let labels = [&["job", "instance"][..], &family.source.labels()].concat().join("_");
    format!("{labels}:{}:{quantile}", family.head.name)
}

/// The rules, as Prometheus reads them.
fn rules() -> String {
    let mut text = String::from(
        "# Written by `GRIDPOOL_WRITE=1 cargo test -p gridpool --lib generated`, from the table of metrics.\n\
         groups:\n  - name: gridpool-quantiles\n    rules:\n",
    );
    for family in histograms() {
        let labels = family.source.labels().join(", ");
        for (name, quantile) in QUANTILES {
            let by = format!("sum by ({SCRAPE_LABELS}, {labels}, le)");
            let expression = format!(
                "histogram_quantile({quantile}, {by} (rate({}_bucket[5m])))",
                family.head.name
            );
            text += &format!(
                "      - record: {}\n        expr: {expression}\n",
                recorded(family, name)
            );
        }
    }
    text += "  - name: gridpool\n    rules:\n";
    for alert in ALERTS {
        let Alert { name, holds, during, severity, summary } = alert;
        text += &format!(
            "      - alert: {name}\n        expr: {holds}\n        for: {during}\n        labels:\n          \
             severity: {severity}\n        annotations:\n          summary: \"{summary}\"\n"
        );
    }
    text
}

/// The queries of a panel, each with the legend of its lines.
fn queries(family: &Family) -> Vec<(String, String)> {
    let (head, labels) = (&family.head, family.source.labels());
    let chosen = "{job=~\"$job\", instance=~\"$instance\"}";
    let legend =
        labels.iter().map(|label| format!("{{{{{label}}}}}")).collect::<Vec<_>>().join(" ");
    let legend = format!("{{{{instance}}}} {legend}").trim_end().to_owned();
    match head.kind {
        Kind::Counter => {
            let by = [&["instance"][..], &labels].concat().join(", ");
            vec![(format!("sum by ({by}) (rate({}{chosen}[$__rate_interval]))", head.name), legend)]
        }
        Kind::Gauge => vec![(format!("{}{chosen}", head.name), legend)],
        Kind::Histogram => QUANTILES
            .iter()
            .map(|(name, _)| {
                (format!("{}{chosen}", recorded(family, name)), format!("{legend} {name}"))
            })
            .collect(),
    }
}

/// The unit of what a panel shows, as Grafana names it.
fn unit(family: &Family) -> &'static str {
    let name = family.head.name;
    let base = name.strip_suffix("_total").unwrap_or(name);
    match family.head.kind {
        // Seconds a second: the share of the time.
        Kind::Counter if base.ends_with("_seconds") => "percentunit",
        Kind::Counter if base.ends_with("_bytes") => "Bps",
        Kind::Counter if base.ends_with("_us") => "µs",
        Kind::Counter => "cps",
        Kind::Gauge | Kind::Histogram => match base {
            time if time.ends_with("_seconds") => "s",
            memory if memory.ends_with("_bytes") => "bytes",
            share if share.ends_with("_utilization") => "percentunit",
            power if power.ends_with("_power_usage") => "watt",
            _ => "short",
        },
    }
}

fn source() -> Value {
    json!({ "type": "prometheus", "uid": "${source}" })
}

fn panel(family: &Family, id: usize, [x, y]: [usize; 2]) -> Value {
    let targets: Vec<Value> = queries(family)
        .into_iter()
        .zip('A'..)
        .map(|((expr, legend), letter)| {
            json!({ "datasource": source(), "expr": expr, "legendFormat": legend, "refId": letter.to_string() })
        })
        .collect();
    json!({
        "id": id,
        "type": "timeseries",
        "title": family.head.name,
        "description": family.head.help,
        "datasource": source(),
        "fieldConfig": { "defaults": { "unit": unit(family), "min": 0 }, "overrides": [] },
        "gridPos": { "x": x, "y": y, "w": PANEL_WIDTH, "h": PANEL_HEIGHT },
        "targets": targets,
    })
}

/// The dashboard, as Grafana imports it: a row for each heading, a panel for each family.
fn dashboard() -> Value {
    let (mut panels, mut y) = (Vec::new(), 0);
    for (heading, families) in FAMILIES {
        let id = panels.len() + 1;
        let place = json!({ "x": 0, "y": y, "w": GRID_WIDTH, "h": 1 });
        panels.push(json!({
            "id": id, "type": "row", "title": heading, "collapsed": false, "gridPos": place, "panels": [],
        }));
        y += 1;
        let on_a_line = GRID_WIDTH / PANEL_WIDTH;
        for (at, family) in families.iter().enumerate() {
            let place = [at % on_a_line * PANEL_WIDTH, y + at / on_a_line * PANEL_HEIGHT];
            panels.push(panel(family, id + 1 + at, place));
        }
        y += families.len().div_ceil(on_a_line) * PANEL_HEIGHT;
    }
    let variable = |name: &str, of: &str| {
        json!({
            "name": name, "type": "query", "datasource": source(), "query": of, "definition": of,
            "refresh": 2, "multi": true, "includeAll": true, "current": { "text": ["All"], "value": ["$__all"] },
        })
    };
    json!({
        "uid": "gridpool",
        "title": "gridpool",
        "tags": ["gridpool"],
        "schemaVersion": 39,
        "refresh": "10s",
        "time": { "from": "now-1h", "to": "now" },
        "templating": { "list": [
            { "name": "source", "type": "datasource", "query": "prometheus" },
            variable("job", "label_values(gridpool_up, job)"),
            variable("instance", "label_values(gridpool_up{job=~\"$job\"}, instance)"),
        ] },
        "panels": panels,
    })
}

#[test]
fn generated_dashboard_and_rules_are_what_the_table_gives() {
    let dashboard = serde_json::to_string_pretty(&dashboard()).expect("plain values") + "\n";
    generated::check_file("monitoring/dashboard.json", &dashboard);
    generated::check_file("monitoring/rules.yaml", &rules());
}

#[test]
fn generated_alerts_are_in_the_book() {
    let rows = ALERTS.iter().map(|alert| {
        let Alert { name, holds, during, severity, .. } = alert;
        [format!("`{name}`"), (*severity).to_owned(), format!("`{holds}`"), (*during).to_owned()]
    });
    let table = generated::table(["alert", "severity", "fires when", "for"], rows);
    generated::check("reference/metrics.md", "alerts", &table);
}

#[test]
fn every_alert_is_on_families_and_labels_that_there_are() {
    for alert in ALERTS {
        let words = |text: &str| -> Vec<String> {
            text.split(|letter: char| !letter.is_ascii_alphanumeric() && !"_:".contains(letter))
                .map(str::to_owned)
                .collect()
        };
        let mut labels = vec!["job".to_owned(), "instance".to_owned()];
        for word in words(alert.holds) {
            let is_recorded =
                |family: &Family| QUANTILES.iter().any(|(name, _)| recorded(family, name) == word);
            let is_count = |family: &Family| {
                let is_histogram = family.head.kind == Kind::Histogram;
                is_histogram && word.strip_suffix("_count") == Some(family.head.name)
            };
            let of = families().find(|(_, family)| {
                family.head.name == word || is_count(family) || is_recorded(family)
            });
            let is_metric =
                word.starts_with("gridpool_") || word.starts_with("nv_") || word.contains(':');
            assert_eq!(of.is_some(), is_metric, "{}: there is no family {word}", alert.name);
            labels.extend(
                of.iter().flat_map(|(_, family)| family.source.labels()).map(str::to_owned),
            );
        }
        let named = alert.summary.split("$labels.").skip(1).map(|rest| words(rest)[0].clone());
        let matched = alert.holds.split('{').skip(1).map(|rest| words(rest)[0].clone());
        for label in named.chain(matched) {
            assert!(labels.contains(&label), "{}: its families have no label {label}", alert.name);
        }
    }
}

#[test]
fn every_alert_has_a_case_that_fires_and_one_that_does_not() {
    let cases = include_str!("../../../monitoring/alerts_test.yaml");
    for alert in ALERTS {
        let of = cases
            .split("- alertname: ")
            .skip(1)
            .filter(|case| case.lines().next() == Some(alert.name));
        let fires =
            of.map(|case| case.lines().nth(2).is_some_and(|line| line.contains("exp_alerts: [")));
        let fires: Vec<bool> = fires.map(|is_empty| !is_empty).collect();
        assert!(fires.contains(&true) && fires.contains(&false), "{}: {fires:?}", alert.name);
    }
}
