//! `gridpool watch`: a job is followed to its verdict, by its number or its key.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use gridpool_client::JobKey;
use gridpool_protocol::chaos::Chaos;
use gridpool_protocol::receipt::{Receipt, Verdict};
use gridpool_tests::oracle::samples::random_grids;

use crate::binaries;
use crate::command::Dialogue;
use crate::jobs::{PROGRAM, answer, job, submit};
use crate::pool::cpu;
use crate::wait::within;

#[test]
fn a_job_is_followed_from_its_worker_through_a_lost_attempt_to_its_verdict() {
    let pool = cpu(2).env("GRIDPOOL_ALLOW_CHAOS", "1").start();
    // Both devices are stopped, so the job is sent to one of them and goes no further.
    let devices = ["cpu0", "cpu1"];
    for device in devices {
        pool.stop(device);
    }
    let chaos = Chaos { fault: "segv".parse().expect("a fault"), attempts: 1 };
    let key = JobKey(7);
    let strikes = job(PROGRAM, &random_grids(1, 3)).with_key(key).with_chaos(chaos);
    let handle = submit(&pool.client(), strikes);

    let talk = pool.cli(&["watch", &key.to_string()]).talk();
    let Dialogue { process: mut watcher, stdin: _stdin, mut lines, _folder } = talk;
    let (first, rest) = within("a first line", move || (lines.next(), lines));
    let first = first.expect("a line").expect("text");
    assert!(first.contains(" runs on cpu") && first.ends_with(", 0 of 3 items done"), "{first}");
    devices.iter().for_each(|device| pool.go_on(device));
    let receipt = answer(handle).receipt;
    assert_eq!((receipt.verdict, receipt.attempts.len()), (Verdict::Ok, 2));
    let last = within("the last line", move || rest.last()).expect("a line").expect("text");
    assert!(last.starts_with(&format!("{} OK after ", receipt.job)), "{last}");
    assert!(last.ends_with(", 2 attempts"), "{last}");
    assert_eq!(watcher.exit().code(), Some(0));

    let again = pool.cli(&["watch", &receipt.job, "--json"]).run().document();
    let again: Receipt = serde_json::from_value(again).expect("a receipt");
    assert_eq!(again, receipt);
    pool.cli(&["watch", "job999999"]).run().complains(2, &["no job job999999", "gridpool jobs"]);
    pool.cli(&["watch", "cpu0"]).run().complains(2, &["job17"]);
    let number = receipt.job.strip_prefix("job").expect("it is a number");
    assert!(pool.cli(&["watch", number]).run().output().starts_with(&last));
}

#[test]
fn a_job_whose_pool_is_killed_is_told_apart_from_one_that_failed() {
    let pool = cpu(1).start();
    pool.stop("cpu0");
    let key = JobKey(7);
    let _handle = submit(&pool.client(), job(PROGRAM, &random_grids(1, 3)).with_key(key));
    let mut command = Command::new(binaries::gridpool());
    command.args(["watch", &key.to_string(), "--socket"]).arg(pool.socket());
    let mut watcher =
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut lines = BufReader::new(watcher.stdout.take().expect("a pipe")).lines();
    within("a first line", move || lines.next()).expect("a line").expect("text");
    let _setup = pool.killed();
    let ended =
        within("its end", move || watcher.wait_with_output()).expect("it can be waited for");
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(69), "{said}");
    let words = format!("{key} had no verdict yet");
    assert!(said.contains("the pool has ended") && said.contains(&words), "{said}");
    assert!(!said.contains("send the request again"), "{said}");
}
