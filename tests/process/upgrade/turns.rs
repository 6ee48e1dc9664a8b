//! One upgrade at a time: which order takes the place of a successor that comes up, and what a pool says that has begun
//! to end meanwhile.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use gridpool_protocol::handover::FromSuccessor;
use gridpool_protocol::limits::PROTOCOL_VERSION;
use gridpool_protocol::receipt::Verdict;
use nix::sys::signal::Signal;

use super::{hello, replace, replaceable, says, serving};
use crate::binaries;
use crate::jobs::{answer, serves, small_job, submit};
use crate::processes::{Process, go_on, stop};
use crate::wait::{eventually, eventually_so};

/// A process that stands for a successor which has made itself one that nobody waits for.
fn detached() -> Process {
    Process::new(Command::new("sleep").arg("1000").spawn().expect("it starts"))
}

/// The script, as a successor that leaves one in the background and ends.
fn in_background(script: &str) -> String {
    script.replace("exec sleep 1000", "exec 3<&0; cat <&3 >/dev/null &")
}

#[test]
fn another_upgrade_takes_the_place_of_a_successor_that_hangs() {
    let (setup, program) = replaceable();
    let pool = setup.limits("upgrade_timeout_s = 30").start();
    let detached = detached();
    replace(&program, &in_background(&says(&[hello(PROTOCOL_VERSION, detached.pid())])));
    let first = pool.cli(&["upgrade"]).start();
    eventually_so("the upgrade to begin", || pool.log().contains("a successor is started"));
    fs::remove_file(&program).expect("it is there");
    symlink(binaries::gridpool(), &program).expect("a link can be made");
    // For a tenth of its time nothing takes its place.
    pool.cli(&["upgrade"])
        .run()
        .complains(1, &["is under way already", "from 3 s after its start"]);
    eventually("another upgrade", || {
        let call = pool.cli(&["upgrade"]).run();
        if call.code == Some(0) { Ok(()) } else { Err(call.stderr) }
    });
    first.finish().complains(1, &["because another upgrade was ordered"]);
    assert_ne!(serving(&pool), pool.supervisor.pid());
    serves(&pool.client());
}

#[test]
fn a_signal_takes_the_place_of_no_successor() {
    let (setup, program) = replaceable();
    // `gridpool upgrade` would take its place after 1 s.
    let pool = setup.limits("upgrade_timeout_s = 10").start();
    let detached = detached();
    replace(&program, &in_background(&says(&[hello(PROTOCOL_VERSION, detached.pid())])));
    let first = pool.cli(&["upgrade"]).start();
    eventually_so("the upgrade to begin", || pool.log().contains("a successor is started"));
    pool.signal(Signal::SIGUSR2);
    eventually_so("the answer to the signal", || {
        pool.log().contains("an upgrade is under way already")
    });
    first.finish().complains(1, &["it did not come up within 10 s"]);
    serves(&pool.client());
}

#[test]
fn a_pool_that_begins_to_end_while_its_successor_comes_up_has_not_refused_it() {
    let (setup, program) = replaceable();
    let pool = setup.start();
    let (detached, go) = (detached(), pool.folder().join("go"));
    let both = says(&[hello(PROTOCOL_VERSION, detached.pid()), FromSuccessor::Ready]);
    let hello = says(&[hello(PROTOCOL_VERSION, detached.pid())]);
    let said = |script: &str| script.split('\'').nth(1).expect("it is quoted").to_owned();
    let ready = said(&both).strip_prefix(&said(&hello)).expect("it begins so").to_owned();
    let late = format!(
        "exec 3<&0; (until [ -e {} ]; do sleep 0.02; done; printf '{ready}' >&3; cat <&3 >/dev/null) &",
        go.display()
    );
    replace(&program, &hello.replace("exec sleep 1000", &late));
    let client = pool.client();
    let held = client.status().expect("a status").workers[0].pid;
    stop(held);
    let job = submit(&client, small_job(1));
    eventually_so("the job to run", || client.status().expect("a status").counters.attempts > 0);
    let upgrade = pool.cli(&["upgrade"]).start();
    eventually_so("the upgrade to begin", || pool.log().contains("a successor is started"));
    pool.signal(Signal::SIGTERM);
    eventually_so("a drain", || client.status().expect("a status").supervisor.draining);
    fs::write(&go, "").expect("a file can be written");
    let words = ["the pool has begun to end since", "does not take over", "start the next one"];
    upgrade.finish().complains(1, &words);
    go_on(held);
    assert_eq!(answer(job).verdict(), Verdict::Ok);
    let log = pool.log();
    let audited = log.lines().find(|line| line.contains("audit:") && line.contains("upgrade"));
    let audited = audited.expect("each order has its line");
    assert!(audited.contains("order failed"), "{audited}");
}
