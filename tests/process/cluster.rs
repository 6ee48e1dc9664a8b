//! Pools that take jobs of a cluster: NATS JetStream between clients and hosts. `storm` kills everything.

mod access;
mod credentials;
mod cuts;
mod delay;
mod flow;
mod hosts;
mod losses;
mod models;
mod network;
mod pieces;
mod room;
mod scale;
pub(crate) mod servers;
mod storm;
mod suspects;
mod top;
mod versions;

use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

use gridpool_client::{
    Client, ClientError, Handle, Job, JobKey, NatsOptions, Priority, Program, Refusal, Ties,
    Verdict,
};
use gridpool_ipc::frame::{self, FrameReader};
use gridpool_nats::{Cluster, ClusterStatus, Patience, Sender};
use gridpool_protocol::batch::{Grid, GridBatch};
use gridpool_protocol::chaos::{Chaos, ChaosFault, HostFault};
use gridpool_protocol::codec;
use gridpool_protocol::message::{ClientMessage, ServerMessage};
use gridpool_protocol::status::NatsStatus;
use gridpool_tests::oracle::samples::random_grids;
use serde_json::{Value, json};

use crate::command::gridpool;
use crate::jobs::{PROGRAM, answer, as_json, is_right, job, small_job, submit};
use crate::pool::{Pool, Setup, cpu};
use crate::raw::inline;
use crate::traces::collector::{Answers, Collector};
use crate::traces::{SAMPLED, TRACE};
use crate::wait::{TIMEOUT, eventually, pause};
use servers::{Servers, are_there};

/// How long servers are silent: longer than one request waits for its answer.
const SILENT_FOR: Duration = Duration::from_secs(6);

/// A host of a cluster: a pool of one worker that takes jobs, and says so.
pub(crate) fn host(servers: &Servers, name: &str, lines: &str) -> Setup {
    let url = servers.url();
    let mut nats =
        format!("\n[nats]\nservers = \"{url}\"\nhost = \"{name}\"\nack_wait_s = 2\n{lines}\n");
    for limit in ["data_bytes_max", "results_bytes_max", "jobs_bytes_max"] {
        if !lines.contains(limit) {
            nats += &format!("{limit} = 268435456\n");
        }
    }
    cpu(1).limits(&nats).args(&["--allow-chaos"])
}

/// What is seen of the cluster once it is so.
fn until(servers: &Servers, what: &str, is_so: impl Fn(&ClusterStatus) -> bool) -> ClusterStatus {
    eventually(what, || {
        let cluster = Cluster::connect(&servers.options()).map_err(|error| error.to_string())?;
        let status = cluster.status().map_err(|error| error.to_string())?;
        if is_so(&status) { Ok(status) } else { Err(format!("{status:?}")) }
    })
}

/// Starts a host, and waits until the cluster knows it.
fn serving(servers: &Servers, name: &str, lines: &str) -> Pool {
    known(servers, name, host(servers, name, lines))
}

/// The same, of this setup.
fn known(servers: &Servers, name: &str, setup: Setup) -> Pool {
    let pool = setup.start();
    until(servers, "the host", |status| {
        status.hosts.iter().any(|host| host.host == name && host.pool)
    });
    pool
}

fn client(servers: &Servers) -> Client {
    Client::builder().nats(servers.options()).connect().expect("the cluster answers")
}

/// Submits a job as a client that ends without a word once the job is accepted.
fn of_a_client_that_vanishes(servers: &Servers, key: JobKey, grids: &[Grid]) {
    of_a_client_that_vanishes_within(servers, key, grids, 60_000);
}

/// The same, with a deadline in milliseconds.
fn of_a_client_that_vanishes_within(
    servers: &Servers,
    key: JobKey,
    grids: &[Grid],
    deadline_ms: u64,
) {
    let (sender, socket) =
        Sender::connect(&servers.options(), Patience::of(TIMEOUT)).expect("the cluster answers");
    let mut submission = inline(key.0, grids);
    submission.terms.deadline_ms = deadline_ms;
    submission.tell_acceptance = true;
    let message = ClientMessage::Submit(Box::new(submission));
    let message = frame::of(&message, 0).expect("it fits a message");
    frame::send_all(&socket, &message, &[]).expect("it is sent");
    let accepted = FrameReader::new(socket).read(Some(TIMEOUT)).expect("it is heard");
    let accepted: ServerMessage =
        codec::decode(&accepted.expect("an answer").body).expect("a message");
    assert_eq!(accepted, ServerMessage::Accepted { key });
    drop(sender);
}

/// Waits until the pool's bridge has counted so many; it says so once a second.
fn counts(pool: &Pool, name: &str, is_enough: impl Fn(u64) -> bool) {
    eventually(name, || {
        let nats = pool.status().nats.expect("the pool has a bridge");
        let counted = nats.counts.get(name).copied().unwrap_or(0);
        if is_enough(counted) { Ok(()) } else { Err(format!("{nats:?}")) }
    });
}

#[test]
fn jobs_run_on_a_host_with_results_receipts_and_priorities_as_in_a_pool() {
    if !are_there() {
        return;
    }
    let servers = Servers::start(1);
    let collector = Collector::open(Answers::Status(200));
    let setup = host(&servers, "one", "").args(&["--trace", &collector.url()]);
    let pool = known(&servers, "one", setup);
    let client = client(&servers);
    let batches: Vec<_> =
        (0..60_u8).map(|seed| random_grids(seed.into(), 1 + usize::from(seed) % 7)).collect();
    let priorities = [Priority::High, Priority::Normal, Priority::Low];
    let jobs = batches.iter().zip(priorities.into_iter().cycle());
    let jobs = jobs.map(|(grids, priority)| job(PROGRAM, grids).with_priority(priority));
    let handles = client.send_many(jobs).unwrap();
    for (handle, grids) in handles.into_iter().zip(&batches) {
        let key = handle.key().to_string();
        let answer = answer(handle);
        is_right(&answer, PROGRAM, grids);
        assert_eq!((answer.receipt.host.as_str(), &answer.receipt.key), ("one", &key));
    }
    // A large result travels in pieces.
    let large = random_grids(9, 4_000);
    is_right(&answer(submit(&client, job(PROGRAM, &large))), PROGRAM, &large);
    counts(&pool, "published", |jobs| jobs == 61);
    counts(&pool, "duplicates", |jobs| jobs == 0);
    // The command line sends there, too, and reads the same errors.
    let url = servers.url();
    let said = gridpool(["submit", "--nats", &url, "--json", "rot90", "-"])
        .env("TRACEPARENT", SAMPLED)
        .env("TRACESTATE", "vendor=1,other=2")
        .stdin(as_json(&random_grids(3, 4)))
        .run()
        .document();
    assert_eq!(said["receipts"][0]["host"], "one", "{said}");
    assert_eq!(said["receipts"][0]["trace_id"], TRACE, "{said}");
    let spans = collector.trace(Some(TRACE), "program");
    assert!(spans.iter().all(|span| span.trace_state == "vendor=1,other=2"), "{spans:#?}");
    let shown = gridpool(["cluster", "status", "--nats", &url]).run().output();
    assert!(shown.contains("1 host, 0 jobs in the stream"), "{shown}");
    let nowhere = ["submit", "--nats", "nats://127.0.0.1:1", "rot90", "-", "--deadline", "1"];
    let none = "no NATS server at nats://127.0.0.1:1";
    let nowhere = || gridpool(nowhere).stdin(as_json(&random_grids(3, 1)));
    nowhere().run().complains(69, &[none, "waiting up to 1 s", none]);
    let at_once = nowhere().args(&["--no-wait"]).run();
    assert!(!at_once.stderr.contains("waiting"), "{at_once:?}");
    at_once.complains(69, &[none]);
}

#[test]
fn a_batch_that_many_jobs_use_travels_to_a_host_once() {
    if !are_there() {
        return;
    }
    let servers = Servers::start(1);
    let pool = serving(&servers, "one", "");
    let client = client(&servers);
    let grids = random_grids(5, 8_000);
    let loaded = client.load(&GridBatch::from_grids(&grids).unwrap()).unwrap();
    assert!(loaded.bytes() > 512 * 1_024, "it needs several pieces");
    let programs = ["rot90", "rot180", "hmirror", "vmirror", "dmirror", "rot270"];
    let submitted = programs.map(|text| {
        let program = Program::compile(text, Ties::Cpython).unwrap();
        client.send(Job::over(program, &loaded).unwrap()).unwrap()
    });
    for (text, handle) in programs.iter().zip(submitted) {
        is_right(&answer(handle), text, &grids);
    }
    counts(&pool, "batches_reused", |jobs| jobs == 5);
    counts(&pool, "fetched_bytes", |bytes| bytes == loaded.bytes() as u64);
}

#[test]
fn deadlines_and_cancellations_reach_a_job_wherever_it_is() {
    if !are_there() {
        return;
    }
    let servers = Servers::start(1);
    let pool = serving(&servers, "one", "under_way_max = 1");
    let client = client(&servers);
    pool.stop("cpu0");
    let running = submit(&client, small_job(1).with_deadline(Duration::from_secs(600)));
    until(&servers, "a job that runs", |status| status.lanes.iter().any(|lane| lane.running == 1));
    let waiting = submit(&client, small_job(2).with_deadline(Duration::from_secs(600)));
    let late = submit(&client, small_job(3).with_deadline(Duration::from_millis(300)));
    let late = answer(late);
    assert_eq!((late.verdict(), late.receipt.items), (Verdict::Deadline, 5));
    let file = pool.folder().join("late.json");
    std::fs::write(&file, as_json(&random_grids(4, 5))).unwrap();
    let printed =
        gridpool(["submit", "rot90", "--json", "--deadline", "1", "--nats", &servers.url()]);
    let printed = printed.arg(&file).run();
    let document: Value = serde_json::from_str(&printed.stdout).unwrap();
    let verdict = &document["results"][0]["verdict"];
    assert_eq!((printed.code, verdict), (Some(1), &json!("DEADLINE")), "{printed:?}");
    for handle in [waiting, running] {
        handle.cancel();
        assert_eq!(answer(handle).verdict(), Verdict::Cancelled);
    }
    pool.go_on("cpu0");
    // What is left of them in the stream is passed over.
    let status = until(&servers, "an empty stream", |status| status.jobs == 0);
    assert_eq!(status.hosts.len(), 1);
    assert_eq!(answer(submit(&client, small_job(4))).verdict(), Verdict::Ok);
    counts(&pool, "published", |jobs| jobs == 1);
    // The three that it took had their clients' verdicts first, and none has run twice.
    counts(&pool, "unwanted", |jobs| jobs >= 1);
    counts(&pool, "duplicates", |jobs| jobs == 0);
}

#[test]
fn a_job_outlives_its_client_and_its_result_waits_for_the_next() {
    if !are_there() {
        return;
    }
    let servers = Servers::start(1);
    let pool = serving(&servers, "one", "");
    pool.stop("cpu0");
    let (grids, key) = (random_grids(1, 5), JobKey(77));
    let named = || job(PROGRAM, &grids).with_key(key).with_deadline(Duration::from_secs(60));
    of_a_client_that_vanishes(&servers, key, &grids);
    pool.go_on("cpu0");
    until(&servers, "the job's end", |status| status.jobs == 0);
    is_right(&answer(submit(&client(&servers), named())), PROGRAM, &grids);
    assert_eq!(pool.status().counters.accepted, 1, "it ran once");
    // Once it was read, only the verdict is known.
    eventually("the mark", || match client(&servers).submit(named()).and_then(Handle::wait) {
        Err(ClientError::Refused(Refusal::Invalid(why))) if why.contains("new key") => Ok(()),
        other => Err(format!("{other:?}")),
    });
}

#[test]
fn a_host_that_is_killed_or_drained_loses_no_job() {
    if !are_there() {
        return;
    }
    let servers = Servers::start(1);
    let killed = serving(&servers, "killed", "");
    killed.stop("cpu0");
    let client = client(&servers);
    let batches: Vec<_> = (0..6).map(|seed| random_grids(seed, 3)).collect();
    let handles: Vec<_> =
        batches.iter().map(|grids| submit(&client, job(PROGRAM, grids))).collect();
    until(&servers, "jobs that run", |status| status.lanes.iter().any(|lane| lane.running == 6));
    drop(killed.killed());
    let drained = host(&servers, "drained", "").limits("").start();
    drained.stop("cpu0");
    counts(&drained, "taken", |jobs| jobs >= 6);
    let last = serving(&servers, "last", "");
    // It cannot finish them, and gives them back as it ends.
    drained.signal_twice();
    for (handle, grids) in handles.into_iter().zip(&batches) {
        let answer = answer(handle);
        is_right(&answer, PROGRAM, grids);
        assert_eq!(answer.receipt.host, "last");
    }
    counts(&last, "redelivered", |jobs| jobs >= 6);
}

#[test]
fn a_job_that_one_host_convicts_is_poison_for_all() {
    if !are_there() {
        return;
    }
    let servers = Servers::start(1);
    let first = serving(&servers, "first", "");
    let client = client(&servers);
    let fault = Chaos { fault: ChaosFault::Host(HostFault::Segv), attempts: 9 };
    let grids = random_grids(1, 2);
    let poison = || job(PROGRAM, &grids).with_chaos(fault);
    let convicted = answer(submit(&client, poison()));
    assert_eq!((convicted.verdict(), convicted.receipt.host.as_str()), (Verdict::Poison, "first"));
    let status = until(&servers, "a conviction", |status| status.convicted.len() == 1);
    let content = &status.convicted[0].0;
    let advice = format!("`gridpool cluster release {content}` allows it again");
    let said = &convicted.receipt.reason;
    assert!(said.ends_with(&advice) && said.matches("release").count() == 1, "{said}");
    drop(first.killed());
    let second = serving(&servers, "second", "");
    let refused = eventually("a refusal", || match client.submit(poison()) {
        Err(ClientError::Refused(Refusal::Invalid(why))) => Ok(why),
        other => Err(format!("{other:?}")),
    });
    assert!(refused.contains("convicted on first") && refused.ends_with(&advice), "{refused}");
    assert_eq!(refused.matches("release").count(), 1, "{refused}");
    assert_eq!(second.status().counters.accepted, 0, "no worker there has met it");
    gridpool(["cluster", "release", content, "--nats", &servers.url()]).run().output();
    until(&servers, "no conviction", |status| status.convicted.is_empty());
    let again = ["cluster", "release", content, "--nats", &servers.url()];
    gridpool(again).run().complains(1, &[content, "the servers have no conviction"]);
}

#[test]
fn what_a_pool_has_convicted_for_all_is_released_there_by_the_hash_of_its_log() {
    if !are_there() {
        return;
    }
    let servers = Servers::start(1);
    let pool = serving(&servers, "one", "");
    let fault = Chaos { fault: ChaosFault::Host(HostFault::Segv), attempts: 9 };
    let grids = random_grids(1, 2);
    let poison = || job(PROGRAM, &grids).with_chaos(fault);
    assert_eq!(answer(submit(&client(&servers), poison())).verdict(), Verdict::Poison);
    let local = pool.client();
    let Err(ClientError::Refused(Refusal::Poison(own))) = local.submit(poison()) else {
        panic!("the pool refuses it")
    };
    let own = own.to_string();
    let convicted = until(&servers, "a conviction", |status| status.convicted.len() == 1);
    let content = &convicted.convicted[0].0;
    assert!(*content != own && convicted.convicted[0].1.pool == own, "{convicted:?}");
    // The log leads from one hash to the order.
    let log = pool.log();
    let said = log.lines().find(|line| line.contains("convicted for all hosts")).expect("a line");
    assert!(said.contains(&own) && said.contains(&format!("cluster release {content}")), "{said}");
    let released = gridpool(["cluster", "release", &own, "--nats", &servers.url()]).run().output();
    assert!(released.contains(content), "{released}");
    let again = eventually("its own clients' job to be accepted", || {
        local.submit(poison()).map_err(|error| error.to_string())
    });
    again.cancel();
}

#[test]
fn a_server_that_dies_and_comes_back_has_every_job() {
    if !are_there() {
        return;
    }
    let mut servers = Servers::start(1);
    let pool = serving(&servers, "one", "under_way_max = 2");
    pool.stop("cpu0");
    let client = client(&servers);
    let batches: Vec<_> = (0..8).map(|seed| random_grids(seed, 3)).collect();
    let handles: Vec<_> =
        batches.iter().map(|grids| submit(&client, job(PROGRAM, grids))).collect();
    servers.kill(0);
    let options = servers.options();
    let connect = |wait| Client::builder().nats(options.clone()).wait_for_pool(wait).connect();
    connect(Duration::ZERO).expect_err("no server is there");
    let late = thread::scope(|scope| {
        let late = scope.spawn(|| connect(TIMEOUT));
        servers.restart(0);
        late.join().expect("no panic").expect("it waits for the server")
    });
    pool.go_on("cpu0");
    assert_eq!(answer(submit(&late, small_job(9))).verdict(), Verdict::Ok);
    for (handle, grids) in handles.into_iter().zip(&batches) {
        is_right(&answer(handle), PROGRAM, grids);
    }
}

#[test]
fn a_client_that_comes_while_no_server_leads_waits_for_one() {
    if !are_there() {
        return;
    }
    let servers = Servers::start(3);
    let pool = serving(&servers, "one", "");
    let status = until(&servers, "a leader", |status| !status.leader.is_empty());
    let leader: usize = status.leader[1..].parse().expect("n0, n1 or n2");
    let (other, third) = ((leader + 1) % 3, (leader + 2) % 3);
    let only = format!("nats://127.0.0.1:{}", servers.port(third));
    let options = NatsOptions::parse(&only).expect("a right address");
    // The third alone can neither answer nor lead.
    [leader, other].iter().for_each(|&server| servers.stop(server));
    let connecting = thread::spawn(move || Client::builder().nats(options).connect());
    pause(SILENT_FOR, &AtomicBool::new(false));
    let reach = |is_so: fn(&NatsStatus) -> bool| {
        eventually("the pool to say whether it is reached", || {
            let nats = pool.status().nats.expect("a bridge");
            if is_so(&nats) { Ok(()) } else { Err(format!("{nats:?}")) }
        });
    };
    reach(|nats| nats.server.is_empty() && !nats.why_not.is_empty());
    let shown = pool.cli(&["status"]).run().output();
    assert!(shown.contains("no jobs of the cluster at nats://127.0.0.1"), "{shown}");
    [leader, other].iter().for_each(|&server| servers.go_on(server));
    reach(|nats| nats.server.starts_with('n') && nats.why_not.is_empty());
    let client = connecting.join().expect("no panic").expect("it waits for a leader");
    assert_eq!(answer(submit(&client, small_job(1))).verdict(), Verdict::Ok);
}
