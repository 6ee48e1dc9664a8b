//! Clients whose jobs are always late or given up, beside a good one: what they cost the pool and the good client.
//!
//! The bounded tests count. This one measures, and prints what the good client gets:
//!
//! ```sh
//! cargo build --release && GRIDPOOL_ATTACK_S=20 cargo test --release -p gridpool-tests --test process -- \
//!     --ignored --nocapture attack
//! ```
//!
//! `GRIDPOOL_ATTACK_GRIDS` is how many grids a job of an attacker has: more than the machine does in 20 ms.
//! `GRIDPOOL_ATTACK_LIMITS` are lines of the config.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use gridpool_ipc::clock;
use gridpool_protocol::batch::Grid;
use serde_json::json;

use super::access::{token, tokens};
use super::inference::binary_request;
use super::{Web, request, small, until_ready, with_http};
use crate::pool::{Pool, cpu};
use crate::wait::{pause, within};

/// Attackers at once.
const ATTACKERS: usize = 4;
/// How long an attacker wants its job to run.
const PATIENCE: Duration = Duration::from_millis(20);
/// Labels the objects of a grid as often as a program may.
const UNIT: &str = "o_g(5) | merge | paint";

/// What an attacker does with a job that takes far longer than its patience.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attack {
    /// Gives it a deadline.
    Deadline,
    /// Closes the connection.
    HangUp,
    /// Sends the same bytes to a model that does not exist, and waits: no work for the pool.
    NoWork,
}

/// Who attacks, and how often.
#[derive(Clone, Debug)]
struct Attacker {
    attack: Attack,
    /// A request.
    bytes: Arc<Vec<u8>>,
    stop: Arc<AtomicBool>,
    /// Requests sent by all.
    sent: Arc<AtomicU64>,
    most: u64,
}

impl Attacker {
    /// An attacker whose jobs have this many grids of 30 x 30.
    fn new(attack: Attack, token: &str, grids: usize, most: u64) -> Self {
        let color = |number: usize| u8::try_from(number % 7 % 3).expect("below three");
        let grid = |at| {
            let cells = (0..900).map(|cell| color(cell * cell + at)).collect();
            Grid::new(30, 30, cells).expect("it is within the limits")
        };
        let grids: Vec<Grid> = (0..grids).map(grid).collect();
        let timeout = if attack == Attack::Deadline { PATIENCE } else { Duration::from_secs(600) };
        let timeout = u64::try_from(timeout.as_micros()).expect("it is short");
        let program = [UNIT; 21].join(" | ");
        let parameters = json!({"program": program, "timeout": timeout});
        let (body, json) = binary_request(&grids, &json!({ "parameters": parameters }));
        let name = if attack == Attack::NoWork { "nobody" } else { "program" };
        let headers =
            format!("Authorization: Bearer {token}\r\nInference-Header-Content-Length: {json}\r\n");
        let bytes = request("POST", &format!("/v2/models/{name}/infer"), &headers, &body);
        let (stop, sent) = (Arc::default(), Arc::default());
        Self { attack, bytes: Arc::new(bytes), stop, sent, most }
    }

    /// Attacks until it is stopped or has sent as much as it may.
    fn run(&self, connect: impl Fn() -> TcpStream) {
        let mut web = Web::over(connect());
        while !self.stop.load(Ordering::Relaxed)
            && self.sent.fetch_add(1, Ordering::Relaxed) < self.most
        {
            web.send(&self.bytes);
            match self.attack {
                Attack::Deadline => {
                    let answer = web.hear();
                    assert!([200, 503, 504].contains(&answer.status), "{answer:?}");
                }
                Attack::HangUp => {
                    waits_in_vain(&mut web.stream);
                    web = Web::over(connect());
                }
                Attack::NoWork => {
                    assert_eq!(web.hear().status, 404);
                    waits_in_vain(&mut web.stream);
                }
            }
        }
    }
}

/// Reads for as long as an attacker has patience.
fn waits_in_vain(stream: &mut TcpStream) {
    let before = stream.read_timeout().expect("a socket has one");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
    match stream.read(&mut [0; 4_096]) {
        Err(error) if [ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&error.kind()) => {}
        came => assert!(came.is_ok(), "{came:?}"),
    }
    stream.set_read_timeout(before).expect("a timeout can be set");
}

/// A pool with a token for the good client and one for the attackers.
fn attacked(limits: &str) -> (Pool, [String; 2]) {
    let made = [token(&["good"]), token(&["mallory"])];
    let setup = with_http(cpu(2).limits(limits));
    let lines: Vec<_> = made.iter().map(|(_, line)| line.as_str()).collect();
    let file = tokens(&setup, &lines);
    let pool = setup.args(&["--http-tokens", file.to_str().expect("readable")]).start();
    until_ready(&pool);
    (pool, made.map(|(token, _)| token))
}

/// Sends a small request again and again; returns how long each took.
fn good(web: &mut Web, token: &str, goes_on: impl Fn(usize) -> bool) -> Vec<Duration> {
    let (body, json) = binary_request(&small(), &json!({}));
    let headers =
        format!("Authorization: Bearer {token}\r\nInference-Header-Content-Length: {json}\r\n");
    let bytes = request("POST", "/v2/models/rot90/infer", &headers, &body);
    let mut took = Vec::new();
    while goes_on(took.len()) {
        let began = clock::now();
        web.stream.write_all(&bytes).expect("the gateway takes it");
        let answer = web.hear();
        took.push(began.elapsed());
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    took
}

fn a_good_client_is_served_beside(attack: Attack) {
    // With this grace no worker is killed in the time of a test: it must stop by itself, or run for minutes.
    let (pool, [ours, theirs]) = attacked("cancel_grace_s = 3000");
    let items = |pool: &Pool| ["cpu0", "cpu1"].map(|device| pool.slot(device).items_done);
    let before: u64 = items(&pool).iter().sum();
    let attacker = Attacker::new(attack, &theirs, 1_000, 24);
    let address = super::http(&pool).address;
    let attackers: Vec<_> = (0..ATTACKERS)
        .map(|_| {
            let (attacker, address) = (attacker.clone(), address.clone());
            thread::spawn(move || attacker.run(|| connected(&address)))
        })
        .collect();
    let took = good(&mut Web::open(&pool), &ours, |done| done < 30);
    for attacker in attackers {
        within("an attacker to end", move || attacker.join().expect("the gateway answers"));
    }
    let stopped = pool.until_status("the attackers' jobs to be over", |status| {
        status.counters.accepted == status.counters.verdicts().iter().map(|(_, n)| n).sum::<u64>()
    });
    let sum = stopped.counters;
    assert_eq!(sum.failed + sum.poison + sum.device_lost, 0, "{sum:?}");
    assert_eq!(took.len(), 30);
    good(&mut Web::open(&pool), &ours, |done| done < 2);
    for device in ["cpu0", "cpu1"] {
        assert_eq!(pool.slot(device).generation, 1, "a worker was killed that could be asked");
    }
    // The gateway's known job has an item too.
    let done = items(&pool).iter().sum::<u64>() - before;
    assert!(done < 1_000, "{done} items: a job ran to its end that nobody wanted");
}

#[test]
fn late_jobs_cost_no_worker_and_no_job_of_another() {
    a_good_client_is_served_beside(Attack::Deadline);
}

#[test]
fn jobs_of_clients_that_hang_up_cost_no_worker_and_no_job_of_another() {
    a_good_client_is_served_beside(Attack::HangUp);
}

fn connected(address: &str) -> TcpStream {
    let stream = TcpStream::connect(address).expect("the gateway listens");
    stream.set_nodelay(true).expect("an option can be set");
    stream
}

#[test]
#[ignore = "measures; the head of this file says how"]
#[expect(clippy::print_stdout, reason = "it prints what it has measured")]
fn attack() {
    let seconds =
        std::env::var("GRIDPOOL_ATTACK_S").map_or(10, |text| text.parse().expect("seconds"));
    let grids = std::env::var("GRIDPOOL_ATTACK_GRIDS");
    let grids = grids.map_or(500, |text| text.parse().expect("a number"));
    let limits = std::env::var("GRIDPOOL_ATTACK_LIMITS").unwrap_or_default();
    let attacks = [None, Some(Attack::NoWork), Some(Attack::Deadline), Some(Attack::HangUp), None];
    for attack in attacks {
        let (pool, [ours, theirs]) = attacked(&limits);
        let address = super::http(&pool).address;
        let attacker = Attacker::new(attack.unwrap_or(Attack::NoWork), &theirs, grids, u64::MAX);
        let attackers: Vec<_> = (0..if attack.is_some() { ATTACKERS } else { 0 })
            .map(|_| {
                let (attacker, address) = (attacker.clone(), address.clone());
                thread::spawn(move || attacker.run(|| connected(&address)))
            })
            .collect();
        let over = Arc::new(AtomicBool::new(false));
        let timer = Arc::clone(&over);
        let timer = thread::spawn(move || {
            pause(Duration::from_secs(seconds), &AtomicBool::new(false));
            timer.store(true, Ordering::Relaxed);
        });
        let mut took = good(&mut Web::open(&pool), &ours, |_| !over.load(Ordering::Relaxed));
        timer.join().expect("it only waits");
        attacker.stop.store(true, Ordering::Relaxed);
        attackers.into_iter().for_each(|attacker| attacker.join().expect("it was answered"));
        took.sort_unstable();
        let at = |share: usize| took[(took.len() - 1) * share / 1_000].as_secs_f64() * 1e3;
        let restarts: u32 = pool.status().workers.iter().map(|worker| worker.restarts).sum();
        println!(
            "{:10} good: {} requests, p50 {:.2} ms, p99 {:.2} ms, most {:.2} ms; {} attacks, {restarts} workers \
             killed",
            attack.map_or_else(|| "alone".to_owned(), |attack| format!("{attack:?}")),
            took.len(),
            at(500),
            at(990),
            at(1_000),
            attacker.sent.load(Ordering::Relaxed),
        );
    }
}
