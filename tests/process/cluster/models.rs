//! A real model on two of three hosts: only these get its requests, whatever happens to one of them.

use std::collections::BTreeSet;
use std::time::Duration;

use gridpool_client::{ClientError, Handle, Job, TensorOutputs, Verdict};

use super::servers::{Servers, are_there};
use super::{client, host, until};
use crate::command::gridpool;
use crate::infer::{answer, has_runtime, is_right, model, rows};
use crate::jobs::data;
use crate::pool::Pool;
use crate::processes::stop;
use crate::wait::eventually;

/// Requests of each part of the test.
const REQUESTS: u64 = 30;

fn with_models(servers: &Servers, name: &str, models: &[&str]) -> Pool {
    let setup = models.iter().fold(host(servers, name, ""), |setup, name| {
        setup.args(&["--model", &format!("{name}={}", model(name).display())])
    });
    let pool = setup.start();
    until(servers, "the host and its models", |status| {
        status.hosts.iter().any(|host| host.host == name && host.models.len() == models.len())
    });
    pool
}

#[test]
fn requests_reach_the_hosts_that_have_the_model_while_one_is_killed_and_one_unloads_it() {
    if !are_there() || !has_runtime() {
        return;
    }
    let servers = Servers::start(1);
    let names = ["three_outputs", "two_inputs"];
    let one = with_models(&servers, "one", &names);
    let two = with_models(&servers, "two", &names);
    let three = with_models(&servers, "three", &[]);
    let client = client(&servers);
    let deadline = Duration::from_secs(120);
    let send = |first| {
        let (numbers, job) = rows(first, 1 + first % 5);
        (numbers, client.send(job.with_deadline(deadline)).expect("it is sent"))
    };
    let mut hosts = BTreeSet::new();
    // The first keeps its requests until it dies with them.
    for row in one.status().workers.iter().filter(|row| row.role == "infer") {
        stop(row.pid);
    }
    let sent: Vec<_> = (0..REQUESTS).map(send).collect();
    until(&servers, "a host that has requests", |status| {
        status.hosts.iter().any(|host| host.host == "one" && host.counts.running > 0)
    });
    drop(one.killed());
    for (numbers, handle) in sent.into_iter().chain((0..REQUESTS).map(send)) {
        let answer = answer(handle);
        is_right(&answer, &numbers);
        hosts.insert(answer.receipt.host);
    }
    assert!(hosts.contains("two") && !hosts.contains("three"), "{hosts:?}");
    let url = servers.url();
    gridpool(["infer", "--nats", &url, "two_inputs"]).arg(data("two_inputs.npz")).run().output();
    // No host has it any more.
    two.client().unload_model("three_outputs").expect("it is there");
    let soon = Duration::from_secs(2);
    let asked =
        |job: Job<TensorOutputs>| client.submit(job.with_deadline(soon)).and_then(Handle::wait);
    eventually("a refusal", || match asked(rows(1, 1).1) {
        Err(ClientError::Refused(why)) => Ok(why),
        other => Err(format!("{other:?}")),
    });
    // And now another one has.
    let load = format!("three_outputs={}", model("three_outputs").display());
    three.cli(&["model", "load"]).arg(load).run().output();
    let again = eventually("an answer", || {
        let (numbers, job) = rows(3, 2);
        match asked(job) {
            Ok(answer) if answer.verdict() == Verdict::Ok => Ok((numbers, answer)),
            other => Err(format!("{other:?}")),
        }
    });
    is_right(&again.1, &again.0);
    assert_eq!(again.1.receipt.host, "three");
}
