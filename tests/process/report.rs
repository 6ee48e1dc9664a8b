//! `gridpool report`: what its archive has and what it leaves out, and that no secret is in it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use gridpool_protocol::chaos::Chaos;
use serde_json::Value;

use crate::command::gridpool;
use crate::jobs::{answer, small_job, submit};
use crate::pool::cpu;

/// The files of an archive.
pub(crate) fn files(archive: &Path) -> BTreeMap<String, String> {
    let file = File::open(archive).expect("the archive is there");
    let mut archive = zip::ZipArchive::new(file).expect("it is a zip file");
    let all = archive.len();
    let text = |at: usize| {
        let mut text = String::new();
        let mut file = archive.by_index(at).expect("it is listed");
        file.read_to_string(&mut text).expect("it is text");
        (file.name().expect("a name is text").into_owned(), text)
    };
    (0..all).map(text).collect()
}

#[test]
fn a_report_holds_what_the_pool_says_and_no_secret() {
    let setup = cpu(1).env("GRIDPOOL_ALLOW_CHAOS", "1");
    let (folder, kept) = (setup.folder().to_owned(), setup.state().join("gridpool"));
    let token = format!("gridpool_{}", "0123456789abcdef".repeat(4));
    let config = folder.join("pool.toml");
    fs::write(&config, "[nats]\nservers = \"nats://joe:hunter2@127.0.0.1:1\"\n").expect("a file");
    let log = folder.join("pool.log");
    let lines = format!("serving\nsomebody showed {token}\nAuthorization: Bearer swordfish\n");
    fs::write(&log, lines).expect("a file");
    let pool = setup.start();
    let receipt = answer(submit(&pool.client(), small_job(1))).receipt;
    let chaos = Chaos { fault: "segv".parse().expect("a fault"), attempts: 1 };
    let dies = answer(submit(&pool.client(), small_job(2).with_chaos(chaos))).receipt;
    let capsule = format!("capsules/{}.json", dies.attempts[0].capsule);
    let archive = folder.join("report.zip");
    let text = |path: &Path| path.to_str().expect("text").to_owned();
    let [archive_name, config, log, state] =
        [&archive, &config, &log, &kept].map(|path| text(path));
    let report = || {
        let flags = ["report", "--output", &archive_name, "--log", &log, "--state-dir", &state];
        let cli = pool.cli(&flags).args(&["--devices", "cpu:1", "--config", &config, "--capsules"]);
        cli.env("GRIDPOOL_NATS", "nats://joe:hunter2@127.0.0.1:1").run()
    };
    let said = report().output();
    assert!(said.contains("report.zip: about.txt"), "{said}");
    assert_eq!(fs::metadata(&archive).expect("it is there").permissions().mode() & 0o777, 0o600);

    let files = files(&archive);
    for (name, text) in &files {
        for secret in ["hunter2", "swordfish", &token["gridpool_".len()..]] {
            assert!(!text.contains(secret), "{name} has {secret}: {text}");
        }
    }
    assert!(files["log.txt"].starts_with("serving\n"), "{files:?}");
    assert!(files["environment.txt"].contains("GRIDPOOL_NATS=nats://[left out]@127"), "{files:?}");
    let status: Value = serde_json::from_str(&files["status.json"]).expect("JSON");
    assert_eq!(status["supervisor"]["pid"], pool.supervisor.pid());
    for name in ["config.json", "models.json", "policy.json", "diagnose.json"] {
        let document: Result<Value, _> = serde_json::from_str(&files[name]);
        assert!(document.is_ok_and(|it| !it.is_null()), "{name}: {files:?}");
    }
    assert!(files["jobs.jsonl"].contains(&receipt.key), "{files:?}");
    let capsule: Value = serde_json::from_str(&files[&capsule]).expect("JSON");
    assert!(capsule.is_object(), "{files:?}");
    // Nothing that is there is replaced.
    report().complains(2, &["report.zip: there is such a file", "name one"]);
}

/// A `journalctl` that has a line of each service of the name, and says those that are asked for.
const JOURNALCTL: &str = r#"#!/bin/sh
while [ $# -gt 0 ]; do
    case "$1 $2" in
        "--unit gridpool") echo "the system's line" ;;
        "--user-unit gridpool") echo "the user's line" ;;
    esac
    shift
done
"#;

#[test]
fn a_report_has_the_log_of_either_service_and_leaves_out_what_it_cannot_have_whole() {
    let folder = tempfile::tempdir().expect("a folder for temporary files");
    let tools = folder.path().join("tools");
    let state = folder.path().join("state");
    let capsules = state.join("capsules");
    for made in [&tools, &state, &capsules] {
        fs::create_dir(made).expect("a folder can be made");
        fs::set_permissions(made, PermissionsExt::from_mode(0o700)).expect("ours");
    }
    let journalctl = tools.join("journalctl");
    fs::write(&journalctl, JOURNALCTL).expect("a file can be written");
    fs::set_permissions(&journalctl, PermissionsExt::from_mode(0o755)).expect("ours");
    // 9 MiB of letters of two bytes, behind one of one: every cut at an even place is in a letter.
    let large = format!("\"x{}\"", "é".repeat(9 << 19));
    for (name, text) in [("large", large.as_bytes()), ("broken", b"\"\xc3"), ("whole", b"{}")] {
        fs::write(capsules.join(format!("{name}.json")), text).expect("a file can be written");
    }
    let archive = folder.path().join("report.zip");
    let path = std::env::var("PATH").expect("it is set");
    // Devices that are none: `diagnose`, which takes long, says so at once.
    let report = gridpool(["report", "--devices", "none", "--capsules", "--state-dir"]);
    let report = report.arg(&state).arg("--output").arg(&archive);
    report.env("PATH", format!("{}:{path}", tools.display())).run().output();
    let files = files(&archive);
    assert_eq!(files["log.txt"], "the system's line\nthe user's line\n");
    let kept: Vec<_> = files.keys().filter(|name| name.starts_with("capsules")).collect();
    assert_eq!(kept, ["capsules/whole.json"]);
    let problems = &files["problems.txt"];
    let left_out = format!("capsules/large.json: it is left out: it has {} bytes, ", large.len());
    assert!(problems.contains(&left_out), "{problems}");
    assert!(problems.contains("capsules/broken.json: it is left out: "), "{problems}");
    assert!(!problems.contains("\n\n"), "a line for each: {problems}");
}
