//! `supervisor/monitoring` with Debian's Prometheus: what promtool says of the rules and their cases, and every query
//! of the dashboard against a Prometheus that scrapes a pool.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use gridpool_protocol::chaos::Chaos;
use gridpool_protocol::receipt::Verdict;
use gridpool_tests::oracle::samples::random_grids;
use serde_json::Value;

use super::{get, http, served};
use crate::binaries::root;
use crate::jobs::{PROGRAM, answer, job, submit};
use crate::needs::is_installed;
use crate::pool::cpu;
use crate::processes::{Process, free_ports};
use crate::wait::{eventually, eventually_so};

fn has_prometheus() -> bool {
    let required = "GRIDPOOL_REQUIRE_PROMETHEUS";
    ["promtool", "prometheus"].iter().all(|program| is_installed(program, "prometheus", required))
}

fn monitoring() -> PathBuf {
    root().join("supervisor/monitoring")
}

/// Runs promtool in the folder `supervisor/monitoring`.
fn promtool(arguments: &[&str]) -> Output {
    let mut command = Command::new("promtool");
    command.args(arguments).current_dir(monitoring()).stdin(Stdio::null());
    command.output().expect("promtool runs")
}

#[test]
fn promtool_accepts_the_rules_and_each_alert_fires_when_it_should() {
    if !has_prometheus() {
        return;
    }
    for check in [["check", "rules", "rules.yaml"], ["test", "rules", "alerts_test.yaml"]] {
        let output = promtool(&check);
        assert!(output.status.success(), "{check:?}: {output:?}");
    }
}

/// A Prometheus that scrapes one pool each second and follows the rules.
struct Prometheus {
    url: String,
    _process: Process,
    _folder: tempfile::TempDir,
}

impl Prometheus {
    fn of(pool: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder for temporary files");
        let rules = monitoring().join("rules.yaml");
        let config = format!(
            "global: {{ scrape_interval: 1s, evaluation_interval: 1s }}\nrule_files: [{rules:?}]\n\
             scrape_configs: [{{ job_name: gridpool, static_configs: [{{ targets: [{pool:?}] }}] }}]\n"
        );
        let file = folder.path().join("prometheus.yaml");
        std::fs::write(&file, config).expect("a file can be written");
        let address = format!("127.0.0.1:{}", free_ports(1)[0]);
        let mut command = Command::new("prometheus");
        command.arg(format!("--config.file={}", file.display()));
        command.arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()));
        command.arg(format!("--web.listen-address={address}")).arg("--log.level=error");
        let process = Process::new(command.spawn().expect("prometheus starts"));
        Self { url: format!("http://{address}"), _process: process, _folder: folder }
    }

    /// The series that a query gives, or what Prometheus says is wrong.
    fn query(&self, expression: &str) -> Result<Vec<Value>, String> {
        let output = promtool(&["query", "instant", "--format=json", &self.url, expression]);
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
        serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())
    }
}

/// The queries of the dashboard, with what Grafana would put into them.
fn dashboard() -> Vec<String> {
    let text = std::fs::read_to_string(monitoring().join("dashboard.json")).expect("it is there");
    let text = text.replace("$__rate_interval", "1m");
    let text = text.replace("$job", ".*").replace("$instance", ".*");
    let document: Value = serde_json::from_str(&text).expect("it is JSON");
    let panels = document["panels"].as_array().expect("panels");
    let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
    targets.map(|target| target["expr"].as_str().expect("a query").to_owned()).collect()
}

#[test]
fn a_real_prometheus_answers_every_panel_and_tells_of_a_poison_job() {
    if !has_prometheus() {
        return;
    }
    let pool = served(cpu(2).env("GRIDPOOL_ALLOW_CHAOS", "1"));
    let prometheus = Prometheus::of(&http(&pool).address);
    eventually_so("Prometheus to see the pool twice", || {
        prometheus.query("count_over_time(gridpool_up[1m]) > 1").is_ok_and(|rows| !rows.is_empty())
    });

    let chaos = Chaos { fault: "segv".parse().expect("a fault"), attempts: 2 };
    let poison = job(PROGRAM, &random_grids(1, 5)).with_chaos(chaos);
    let answered = answer(submit(&pool.client(), poison));
    assert_eq!(answered.verdict(), Verdict::Poison, "{:?}", answered.receipt);
    eventually("the alert", || {
        let fires = r#"ALERTS{alertname="GridpoolPoison", alertstate="firing", role="grid"}"#;
        match prometheus.query(fires) {
            Ok(rows) if rows.len() == 1 => Ok(()),
            seen => Err(format!("{seen:?}")),
        }
    });

    // What it says of a worker is not there while the next one starts.
    pool.all_ready();
    let all = dashboard();
    assert!(all.len() > 60, "{all:?}");
    let page = String::from_utf8(get(&pool, "/metrics").body).expect("text");
    let names = page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    let there: BTreeSet<&str> = names.collect();
    for query in all {
        let rows = prometheus.query(&query).unwrap_or_else(|why| panic!("{query}: {why}"));
        let words = query.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
        let is_there = words.into_iter().any(|word| there.contains(word));
        assert_eq!(!rows.is_empty(), is_there, "{query}");
    }
}
