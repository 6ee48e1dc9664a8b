//! Hosts and clients of two versions at the same servers, as while a cluster is upgraded host by host. The older host
//! is a bridge in this process, which is told that its messages are of the version before.

use std::os::unix::net::UnixStream;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use gridpool_bridge::{BridgeError, BridgeSettings};
use gridpool_client::{
    Client, ClientError, Handle, JobKey, NatsOptions, Priority, Refusal, Verdict,
};
use gridpool_nats::VERSION;
use gridpool_tests::oracle::samples::random_grids;

use super::servers::{Servers, are_there};
use super::{client, serving, until};
use crate::command::gridpool;
use crate::jobs::{PROGRAM, answer, is_right, job, small_job, submit};
use crate::pool::{Pool, cpu};
use crate::wait::eventually;

/// The version before.
const OLDER: u32 = VERSION - 1;
/// A deadline that no job here reaches.
const PATIENT: Duration = Duration::from_secs(600);

fn older(servers: &Servers) -> NatsOptions {
    NatsOptions { version: OLDER, ..servers.options() }
}

fn older_client(servers: &Servers) -> Client {
    Client::builder().nats(older(servers)).connect().expect("the cluster answers")
}

/// A host of the version before. It leaves the cluster when dropped.
struct OlderHost {
    link: Option<UnixStream>,
    bridge: Option<JoinHandle<Result<(), BridgeError>>>,
    _pool: Pool,
}

impl OlderHost {
    fn start(servers: &Servers) -> Self {
        let pool = cpu(1).start();
        let mut settings = BridgeSettings::new(older(servers), "older".to_owned());
        settings.limits.ack_wait = Duration::from_secs(2);
        let (link, theirs) = UnixStream::pair().expect("two sockets");
        let socket = pool.socket();
        let bridge = thread::spawn(move || gridpool_bridge::serve(socket, settings, theirs));
        until(servers, "the older host", |status| {
            status.hosts.iter().any(|host| host.protocol == OLDER && host.pool)
        });
        Self { link: Some(link), bridge: Some(bridge), _pool: pool }
    }
}

impl Drop for OlderHost {
    fn drop(&mut self) {
        drop(self.link.take());
        let ended = self.bridge.take().map(JoinHandle::join);
        if !thread::panicking() {
            ended.expect("it was started").expect("it does not panic").expect("it ends well");
        }
    }
}

#[test]
fn hosts_of_two_versions_run_the_jobs_of_their_own_clients() {
    if !are_there() {
        return;
    }
    let servers = Servers::start(1);
    // The newer host has made the streams.
    let _newer = serving(&servers, "newer", "");
    let _older = OlderHost::start(&servers);
    let clients = [("newer", client(&servers)), ("older", older_client(&servers))];
    let large = random_grids(9, 4_000);
    for (host, client) in &clients {
        for (seed, priority) in (1..).zip([Priority::High, Priority::Normal, Priority::Low]) {
            let ended = answer(submit(client, small_job(seed).with_priority(priority)));
            assert_eq!((ended.verdict(), ended.receipt.host.as_str()), (Verdict::Ok, *host));
        }
        is_right(&answer(submit(client, job(PROGRAM, &large))), PROGRAM, &large);
    }
    let status = until(&servers, "all results", |status| {
        status.jobs == 0 && status.hosts.iter().all(|host| host.counts.published == 4)
    });
    // None came to a host that could not read it.
    for host in status.hosts {
        assert_eq!((host.counts.taken, host.counts.given_back), (4, 0), "{}", host.host);
    }
    // A key has one job, whoever asks.
    let [(_, newer), (_, older)] = &clients;
    let named = || small_job(5).with_key(JobKey(77));
    assert_eq!(answer(submit(older, named())).verdict(), Verdict::Ok);
    match newer.submit(named()).and_then(Handle::wait) {
        Err(ClientError::Refused(Refusal::Invalid(why))) => {
            assert!(why.contains(&format!("is of protocol {OLDER}")), "{why}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn jobs_that_no_host_can_read_are_told_of_and_wait_for_one() {
    if !are_there() {
        return;
    }
    let servers = Servers::start(1);
    let newer = serving(&servers, "newer", "");
    let sender = older_client(&servers);
    let late = answer(submit(&sender, small_job(1).with_deadline(Duration::from_millis(300))));
    assert_eq!(late.verdict(), Verdict::Deadline);
    let why = &late.receipt.reason;
    assert!(
        why.contains(&format!("reads jobs of protocol {OLDER}: all are of {VERSION}")),
        "{why}"
    );
    let cancelled = submit(&sender, small_job(2).with_deadline(PATIENT));
    cancelled.cancel();
    assert_eq!(answer(cancelled).verdict(), Verdict::Cancelled);
    let waits = submit(&sender, small_job(3).with_deadline(PATIENT));
    // The newer host removes those that have ended, and leaves the other.
    let status = until(&servers, "one job", |status| status.jobs == 1);
    let [lane] = &status.lanes.iter().filter(|lane| lane.unread() > 0).collect::<Vec<_>>()[..]
    else {
        panic!("{:?}", status.lanes)
    };
    assert_eq!((lane.protocol, lane.unread(), lane.asking), (OLDER, 1, 0));
    eventually("the host to say so", || {
        let log = newer.log();
        match log.contains("jobs wait for a host of their version") {
            true => Ok(()),
            false => Err(log),
        }
    });
    let told = format!("1 in grid-normal of protocol {OLDER}: no host has the version of gridpool");
    let url = servers.url();
    let shown = gridpool(["cluster", "status", "--nats", &url]).run().output();
    assert!(shown.contains(&told), "{shown}");
    let shown = gridpool(["top", "--nats", &url]).run().output();
    assert!(shown.contains(&told), "{shown}");
    // It has its own work meanwhile.
    let own = answer(submit(&client(&servers), small_job(4)));
    assert_eq!((own.verdict(), own.receipt.host.as_str()), (Verdict::Ok, "newer"));
    let _older = OlderHost::start(&servers);
    let ended = answer(waits);
    assert_eq!((ended.verdict(), ended.receipt.host.as_str()), (Verdict::Ok, "older"));
    until(&servers, "no job", |status| {
        status.jobs == 0 && status.lanes.iter().all(|lane| lane.unread() == 0)
    });
}
