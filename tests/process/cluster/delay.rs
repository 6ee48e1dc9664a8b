//! A host and a client that are far from the servers: whatever either side says arrives 300 ms later.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use gridpool_client::Verdict;
use gridpool_ipc::clock;
use gridpool_tests::oracle::samples::random_grids;

use super::servers::{Servers, are_there};
use super::{client, counts, host, until};
use crate::jobs::{PROGRAM, answer, is_right, job, small_job, submit};
use crate::wait::pause;

/// How long bytes travel, each way.
const DELAY: Duration = Duration::from_millis(300);
/// Pieces under way in one direction. A sender waits while there are more.
const UNDER_WAY_MAX: usize = 1_024;
/// The most bytes of one.
const PIECE_BYTES_MAX: usize = 64 * 1_024;

/// Starts a relay to a port of this machine, which ends with the process; gives its own port.
fn relay(to: u16) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("an address").port();
    thread::spawn(move || {
        for near in listener.incoming() {
            let near = near.expect("a connection");
            // The test may have ended the server.
            let Ok(far) = TcpStream::connect(("127.0.0.1", to)) else { continue };
            for (from, to) in [(&near, &far), (&far, &near)] {
                to.set_nodelay(true).expect("an option");
                let copy = |stream: &TcpStream| stream.try_clone().expect("a descriptor");
                let ((from, to), (send, sent)) =
                    ((copy(from), copy(to)), sync_channel(UNDER_WAY_MAX));
                thread::spawn(move || take_in(from, &send));
                thread::spawn(move || hand_on(to, &sent));
            }
        }
    });
    port
}

/// Reads pieces until the connection ends, and says when each arrives.
fn take_in(mut from: TcpStream, send: &SyncSender<(Instant, Vec<u8>)>) {
    let mut piece = vec![0; PIECE_BYTES_MAX];
    while let Ok(bytes @ 1..) = from.read(&mut piece) {
        if send.send((clock::now() + DELAY, piece[..bytes].to_vec())).is_err() {
            return;
        }
    }
}

/// Writes pieces when they arrive.
fn hand_on(mut to: TcpStream, sent: &Receiver<(Instant, Vec<u8>)>) {
    for (arrives, piece) in sent {
        // The delay is what is modelled.
        pause(clock::until(arrives), &AtomicBool::new(false));
        if to.write_all(&piece).is_err() {
            break;
        }
    }
    // The other end may be gone already.
    drop(to.shutdown(Shutdown::Both));
}

#[test]
fn a_host_and_a_client_that_are_far_away_are_served_and_no_job_runs_twice() {
    if !are_there() {
        return;
    }
    let mut servers = Servers::start(1);
    let far = Some(relay(servers.port(0)));
    servers.through = far;
    let pool = host(&servers, "far", "").start();
    // The test itself looks from nearby.
    servers.through = None;
    until(&servers, "the host", |status| status.hosts.iter().any(|host| host.pool));
    servers.through = far;
    let client = client(&servers);
    servers.through = None;
    // A job that takes four times as long as a host may be silent.
    pool.stop("cpu0");
    let long = submit(&client, small_job(1).with_deadline(Duration::from_secs(600)));
    until(&servers, "a job that runs", |status| status.lanes.iter().any(|lane| lane.running == 1));
    pause(Duration::from_secs(8), &AtomicBool::new(false));
    pool.go_on("cpu0");
    assert_eq!(answer(long).verdict(), Verdict::Ok);
    // Without a word of its host it would have come back three times; a busy machine may have delayed one.
    counts(&pool, "published", |jobs| jobs == 1);
    counts(&pool, "redelivered", |jobs| jobs <= 1);
    let batches: Vec<_> = (0..60).map(|seed| random_grids(seed, 3)).collect();
    let large = random_grids(9, 4_000);
    let deadline = Duration::from_secs(600);
    let jobs = batches.iter().chain([&large]);
    let sent: Vec<_> = jobs
        .map(|grids| {
            (grids, client.send(job(PROGRAM, grids).with_deadline(deadline)).expect("it is sent"))
        })
        .collect();
    for (grids, handle) in sent {
        is_right(&answer(handle), PROGRAM, grids);
    }
    until(&servers, "an empty stream", |status| status.jobs == 0);
    counts(&pool, "published", |jobs| jobs == 62);
    counts(&pool, "duplicates", |jobs| jobs == 0);
    assert_eq!(pool.status().counters.accepted, 62, "none ran twice");
}
