//! The policy: `gridpool status --policy` shows it, and a pool and its workers obey it.

use std::fs;

use gridpool_protocol::status::WorkerState;
use serde_json::Value;

use crate::command::gridpool;
use crate::jobs::serves;
use crate::pool::cpu;

/// Of the rules in a document, those that a config has changed, and how many there are.
fn changed(document: &Value) -> (Vec<(&str, &str)>, usize) {
    let rules = document["rules"].as_array().expect("a list of rules");
    let is_changed = |rule: &&Value| rule["configured"] == true;
    let text =
        |value: &'_ Value| -> &'static str { String::leak(value.as_str().expect("a text").into()) };
    let changed = rules.iter().filter(is_changed);
    (changed.map(|rule| (text(&rule["fault"]), text(&rule["response"]))).collect(), rules.len())
}

#[test]
fn status_shows_the_policy_of_the_pool_or_of_a_config_file() {
    let rules = "[policy]\n'cuda 2' = 'restart'\n'exit 74' = 'retry'\n'cuda 5000' = 'halt'\n";
    let pool = cpu(1).limits(rules).start();
    let other = pool.folder().join("other.toml");
    fs::write(&other, "[policy]\n'hang' = 'retry'\n").expect("a file can be written");
    let other = other.to_str().expect("a readable path");
    let document = pool.cli(&["status", "--policy", "--json", "--config", other]).run().document();
    assert_eq!(document["source"]["config"], other);
    assert_eq!(changed(&document).0, [("hang", "retry")]);
    let table = pool.cli(&["status", "--policy", "--config", other]).run().output();
    let first = format!("The policy of a pool with --config {other}:\n");
    assert!(table.starts_with(&first), "{table}");

    let document = pool.cli(&["status", "--policy", "--json"]).run().document();
    assert_eq!(document["source"]["pool"], pool.socket().to_str().expect("a readable path"));
    let want = vec![("cuda 2", "restart"), ("exit 74", "retry"), ("cuda 5000", "halt")];
    let (changed, count) = changed(&document);
    assert_eq!(changed, want);
    assert!(count > 200, "{count} rules");
    let table = pool.cli(&["status", "--policy"]).run().output();
    assert!(table.starts_with("The policy of the pool at "), "{table}");
    // A number that no table has may be meant, or a slip.
    let (log, says) = (pool.log(), "[policy] names a fault that is in no table");
    assert!(log.contains(&format!("{says} fault=\"cuda 5000\"")), "{log}");
    assert_eq!(log.matches(says).count(), 1, "{log}");
    // Its workers know what is theirs to decide, and no more.
    let arguments = fs::read_to_string(format!("/proc/{}/cmdline", pool.pid("cpu0")));
    let arguments = arguments.expect("a worker's command line");
    assert!(arguments.contains("--policy\0cuda 2=restart,cuda 5000=halt\0"), "{arguments:?}");
    serves(&pool.client());
}

#[test]
fn without_a_pool_status_shows_the_default_policy_or_that_of_a_file() {
    let folder = tempfile::tempdir().expect("a folder for temporary files");
    let socket = folder.path().join("none.sock");
    let config = folder.path().join("pool.toml");
    let show = |arguments: &[&str]| {
        gridpool(["status", "--policy"]).arg("--socket").arg(&socket).args(arguments).run()
    };
    let defaults = show(&["--json"]).document();
    assert_eq!((&defaults["source"], changed(&defaults).0.len()), (&"defaults".into(), 0));
    fs::write(&config, "[policy]\n'xid 109' = 'quarantine'\n").expect("a file can be written");
    let path = config.to_str().expect("a readable path");
    let document = show(&["--json", "--config", path]).document();
    assert_eq!(document["source"]["config"], path);
    assert_eq!(changed(&document).0, [("xid 109", "quarantine")]);
    fs::write(&config, "[policy]\n'cuda 700' = 'fail_job'\n").expect("a file can be written");
    let words = "`fail_job` cannot be the response to `cuda 700`; that can be suspect, retry,";
    show(&["--config", path]).complains(78, &["pool.toml, line 2: ", words]);
}

#[test]
fn a_command_about_something_unknown_is_a_usage_error() {
    let pool = cpu(1).start();
    let hash = "ab".repeat(32);
    for (arguments, words) in [
        (["release", "cpu0"], "gridpool: cpu0 is in service"),
        (["release", "gpu7"], "gridpool: the pool has no device gpu7"),
        (["release", "zebra"], "`zebra` cannot be released: write a device (`gpu0`), the 64"),
        (["release", &hash], "is on the denylist"),
        (["kill", "zebra"], "`zebra` names no worker: write a device (`gpu0`)"),
        (["kill", "cpu0#7"], "gridpool: there is no worker cpu0#7 now; there are cpu0#1"),
    ] {
        pool.cli(&arguments).run().complains(2, &[words]);
    }
    serves(&pool.client());
}

#[test]
fn status_explains_a_device_out_of_service() {
    let pool = cpu(2).limits("[policy]\n'signal 11' = 'quarantine'\n'signal 6' = 'halt'\n").start();
    for (device, signal) in [("cpu0", "SEGV"), ("cpu1", "ABRT")] {
        pool.cli(&["kill", device, "--signal", signal]).run().output();
        pool.until(device, "out of service", |slot| slot.state == WorkerState::Quarantined);
    }
    let text = pool.cli(&["status"]).run().output();
    for words in [
        "\ncpu0 is out of service: cpu0#1 died: signal 11 (SIGSEGV); next try in ",
        " s, or now with `gridpool release cpu0`\n",
        "\ncpu1 is out of service: cpu1#1 died: signal 6 (SIGABRT); try again with `gridpool release \
         cpu1`\n",
    ] {
        assert!(text.contains(words), "`{words}` is not in: {text}");
    }
    assert!(!text.contains("last fault"), "it is said once: {text}");
    let document = pool.cli(&["status", "--json"]).run().document();
    let out = &document["quarantines"];
    assert_eq!((&out[0]["device"], &out[1]["device"]), (&"cpu0".into(), &"cpu1".into()));
    assert_eq!(out[0]["why"], "cpu0#1 died: signal 11 (SIGSEGV)");
    let left = out[0]["tried_in_us"].as_u64().expect("a number");
    assert!((1..=60_000_000).contains(&left), "{left}");
    assert_eq!(out[1]["tried_in_us"], Value::Null);
    pool.cli(&["release", "cpu1"]).run().output();
    pool.until("cpu1", "back", |slot| slot.state == WorkerState::Ready);
    let status = pool.status();
    let out: Vec<_> = status.quarantines.iter().map(|row| row.device.as_str()).collect();
    assert_eq!(out, ["cpu0"]);
}

#[test]
fn a_pool_obeys_its_policy_about_a_signal() {
    let pool = cpu(2).limits("[policy]\n'signal 11' = 'quarantine'\n'signal 6' = 'halt'\n").start();
    let kill = |device, signal| pool.cli(&["kill", device, "--signal", signal]).run().output();
    kill("cpu0", "SEGV");
    let is_out =
        |slot: &gridpool_protocol::status::WorkerStatus| slot.state == WorkerState::Quarantined;
    pool.until("cpu0", "out of service at the first death", is_out);
    serves(&pool.client());
    pool.cli(&["release", "cpu0"]).run().output();
    pool.until("cpu0", "back", |slot| slot.state == WorkerState::Ready);
    kill("cpu1", "ABRT");
    pool.until("cpu1", "halted", is_out);
    serves(&pool.client());
}
