//! HTTP while another supervisor and another gateway take the place of those that run.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use gridpool_protocol::handover::FromSuccessor;
use gridpool_protocol::limits::PROTOCOL_VERSION;
use gridpool_protocol::receipt::Verdict;
use nix::sys::signal::Signal;

use super::{Web, as_request, gateway_pid, get, post, post_aside, served, small, until_ready};
use crate::jobs::{answer, small_job, submit};
use crate::pool::{Pool, cpu};
use crate::processes::{Process, all_gone, children, go_on, lives, signal, stop};
use crate::upgrade::{hello, replace, replaceable, says};
use crate::wait::{eventually, eventually_so, within};

const INFER: &str = "/v2/models/rot90/infer";

fn upgrade(pool: &Pool) {
    pool.cli(&["upgrade"]).run().output();
}

#[test]
fn a_request_on_an_open_connection_is_answered_by_the_old_gateway_and_the_next_by_the_new_one() {
    let pool = served(cpu(1));
    let old = gateway_pid(&pool);
    let body = as_request(&small()).to_string();
    let mut web = Web::open(&pool);
    let mut silent = Web::open(&pool);
    assert_eq!(silent.ask("GET", "/v2/health/live", "", b"").header("connection"), None);
    assert_eq!(web.ask("POST", INFER, "", body.as_bytes()).status, 200);
    // One job is in the old worker when the pool is upgraded.
    let held = pool.stop("cpu0");
    let accepted = pool.status().counters.accepted;
    let running = post_aside(&pool, INFER, &as_request(&small()));
    pool.until_status("the job", |status| status.counters.accepted > accepted);
    upgrade(&pool);
    let new = gateway_pid(&pool);
    assert_ne!(old, new);
    go_on(held);
    // The old gateway learns of the new one a moment later.
    eventually_so("the old gateway to close the connection", || {
        let answer = web.ask("POST", INFER, "", body.as_bytes());
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.header("connection") == Some("close")
    });
    assert_eq!(web.closes(), b"");
    let answer = within("the answer of the old pool", move || running.join().expect("an answer"));
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(post(&pool, INFER, &as_request(&small())).status, 200);
    // Nothing more came.
    assert_eq!(silent.closes(), b"");
    all_gone(&[old]);
    until_ready(&pool);
}

#[test]
fn a_gateway_that_ends_is_not_started_again_beside_that_of_the_new_pool() {
    let pool = served(cpu(1));
    let (old, predecessor) = (gateway_pid(&pool), pool.supervisor.pid());
    let held = pool.stop("cpu0");
    let before = children(predecessor);
    assert!(before.contains(&old), "{before:?} has no {old}");
    let job = submit(&pool.client(), small_job(1));
    pool.until_busy("cpu0");
    upgrade(&pool);
    // Until the new one serves, the old pool's goes on.
    let status = || pool.client().status().expect("a status").http;
    let new = eventually("the new gateway", || {
        status()
            .map(|http| http.pid)
            .filter(|&pid| pid != 0 && pid != old)
            .ok_or("it is not started")
    });
    stop(new);
    signal(old, Signal::SIGKILL);
    // If the new one was not stopped in time, the old pool does not try.
    let is_up = || status().is_some_and(|http| http.up);
    let told = || pool.log().contains("the gateway cannot be started") || is_up();
    eventually_so("the old pool to leave it at that", told);
    all_gone(&[old]);
    let now = children(predecessor);
    assert!(now.contains(&held), "the old pool has ended, so it could start nothing: {now:?}");
    assert!(now.iter().all(|pid| before.contains(pid)), "{now:?} after {before:?}");
    [new, held].into_iter().for_each(go_on);
    assert_eq!(answer(job).verdict(), Verdict::Ok);
    until_ready(&pool);
}

#[test]
fn a_successor_that_cannot_serve_http_says_so_at_once_and_the_old_gateway_goes_on() {
    let (setup, program) = replaceable();
    let pool = served(setup);
    let old = gateway_pid(&pool);
    let detached = Process::new(Command::new("sleep").arg("1000").spawn().expect("it starts"));
    let failed = FromSuccessor::Failed { why: "no thread is left".to_owned() };
    let hello = hello(PROTOCOL_VERSION, detached.pid());
    let said = says(&[hello, FromSuccessor::Ready, FromSuccessor::Serving, failed]);
    replace(&program, &said.replace("exec sleep 1000", "exec 3<&0; cat <&3 >/dev/null &"));
    upgrade(&pool);
    eventually("the old pool to tell", || {
        let log = pool.log();
        let line = log.lines().find(|line| line.contains("the successor cannot serve it"));
        line.filter(|line| line.contains("no thread is left")).map(drop).ok_or_else(|| log.clone())
    });
    assert!(lives(old), "HTTP is served by it");
}

#[test]
fn new_connections_are_answered_all_through_three_upgrades() {
    are_answered_through(&["upgrade"]);
}

#[test]
fn new_connections_are_answered_while_the_only_worker_is_replaced() {
    are_answered_through(&["upgrade", "--one-by-one"]);
}

fn are_answered_through(order: &[&str]) {
    let pool = served(cpu(1));
    let (stop, done) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
    let address = super::http(&pool).address;
    let body = as_request(&small()).to_string();
    let asks = {
        let (stop, done) = (Arc::clone(&stop), Arc::clone(&done));
        move || {
            while !stop.load(Ordering::Relaxed) {
                let stream = std::net::TcpStream::connect(&address).expect("nobody is refused");
                let mut web = Web::over(stream);
                let answer = web.ask("POST", INFER, "Connection: close\r\n", body.as_bytes());
                assert_eq!(answer.status, 200, "{answer:?}");
                done.fetch_add(1, Ordering::Relaxed);
            }
        }
    };
    let clients: Vec<_> = (0..2).map(|_| thread::spawn(asks.clone())).collect();
    for _ in 0..3 {
        let before = done.load(Ordering::Relaxed);
        eventually_so("more answers", || done.load(Ordering::Relaxed) > before + 10);
        let old = gateway_pid(&pool);
        pool.cli(order).run().output();
        all_gone(&[old]);
    }
    let before = done.load(Ordering::Relaxed);
    eventually_so("more answers", || done.load(Ordering::Relaxed) > before + 10);
    stop.store(true, Ordering::Relaxed);
    for client in clients {
        within("a client", move || client.join().expect("it saw no error"));
    }
    assert_eq!(get(&pool, "/v2/health/live").status, 200);
}

#[test]
fn a_unix_socket_of_http_is_handed_over_with_its_name() {
    let setup = cpu(1);
    let path = setup.folder().join("http.sock");
    let pool = setup.env("GRIDPOOL_HTTP", &format!("unix:{}", path.display())).start();
    let old = gateway_pid(&pool);
    let live = || {
        let stream = std::os::unix::net::UnixStream::connect(&path).expect("it is served");
        Web::over(stream).ask("GET", "/v2/health/live", "", b"").status
    };
    assert_eq!(live(), 200);
    upgrade(&pool);
    all_gone(&[old]);
    assert_eq!(live(), 200);
    pool.client().drain().expect("the pool accepts the command");
    eventually_so("the sockets to be gone", || !path.exists() && !pool.socket().exists());
}
