//! `gridpool top --nats` on a real pseudo-terminal and without one.

use std::process::Command;

use super::servers::{Servers, are_there};
use super::{client, serving};
use crate::binaries;
use crate::command::gridpool;
use crate::jobs::{answer, small_job, submit};
use crate::top::terminal::Terminal;

#[test]
fn top_shows_hosts_devices_rates_and_what_waits_in_a_cluster() {
    if !are_there() {
        return;
    }
    let servers = Servers::start(1);
    let url = servers.url();
    let one = serving(&servers, "one", "under_way_max = 2");
    let mut command = Command::new(binaries::gridpool());
    command.args(["top", "--every", "0.1", "--nats", &url]);
    command.env("TERM", "xterm-256color").env_remove("NO_COLOR").env_remove("GRIDPOOL_LOG");
    let mut terminal = Terminal::start(&command, 100, 24);
    terminal.until(&["cluster at nats://127.0.0.1", "1 host  1 copy", "one ", "serving", "0/2"]);
    terminal.until(&["cpu0 ", "(grid): ready", "? help"]);
    one.stop("cpu0");
    let client = client(&servers);
    let jobs: Vec<_> = (0..5).map(|seed| submit(&client, small_job(seed))).collect();
    terminal.until(&["3 wait  2 run", "grid-normal", "2/2"]);
    one.go_on("cpu0");
    jobs.into_iter().map(answer).for_each(drop);
    terminal.until(&["0 wait  0 run", "0/2"]);
    let two = serving(&servers, "two", "");
    terminal.until(&["2 hosts", "two ", "0/8"]);
    terminal.press("?");
    terminal.until(&["REDEL    jobs taken that were delivered before"]);
    terminal.press("?p");
    terminal.until(&["PAUSED", "HOST "]);
    terminal.press("p");
    // A host that vanished is not listed for long.
    drop(two.killed());
    terminal.until(&["1 host "]);
    let plain = gridpool(["top", "--every", "0.1", "--nats", &url]).run().output();
    assert!(plain.contains("1 host  1 copy") && plain.contains("serving"), "{plain}");
    // It says so while no server answers, and goes on afterwards.
    servers.stop(0);
    terminal.until(&["JetStream"]);
    servers.go_on(0);
    terminal.until(&["0 wait  0 run", "serving"]);
    terminal.press("q");
    assert_eq!(terminal.is_given_back(), Some(0));
    gridpool(["top", "--nats", "nats://127.0.0.1:1"])
        .run()
        .complains(69, &["no NATS server at nats://127.0.0.1:1"]);
}
