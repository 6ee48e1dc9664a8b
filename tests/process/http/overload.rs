//! A pool that is full, slow, draining or without a device, seen over HTTP.

use std::thread;
use std::time::Duration;

use gridpool_ipc::clock;
use gridpool_protocol::batch::Grid;
use gridpool_protocol::status::WorkerState;
use serde_json::json;

use super::access::with_tokens;
use super::{
    Web, as_request, get, post, post_aside, post_over, request, served, small, until_ready,
    until_status_of, with_http,
};
use crate::jobs::serves;
use crate::pool::{Pool, cpu, named, stub_worker};
use crate::processes::{all_gone, go_on, stop};
use crate::wait::{eventually, within};

const INFER: &str = "/v2/models/rot90/infer";

#[test]
fn a_full_pool_is_503_at_once_and_answers_what_it_has_accepted() {
    // One job for each of the gateway's four connections.
    let pool = served(cpu(1).limits("client_jobs_max = 1\n"));
    let worker = pool.stop("cpu0");
    let before = pool.status().counters.refused_busy;
    let all: Vec<_> = (0..12).map(|_| post_aside(&pool, INFER, &as_request(&small()))).collect();
    pool.until_status("eight to be refused", |s| s.counters.refused_busy == before + 8);
    go_on(worker);
    let join = |one: thread::JoinHandle<_>| within("an answer", || one.join().expect("an answer"));
    let answers: Vec<_> = all.into_iter().map(join).collect();
    let (good, bad): (Vec<_>, Vec<_>) = answers.iter().partition(|answer| answer.status == 200);
    assert_eq!((good.len(), bad.len()), (4, 8), "{answers:?}");
    bad.iter().for_each(|answer| answer.complains(503, "BUSY: "));
    until_ready(&pool);
}

#[test]
fn only_a_deadline_that_passes_is_504() {
    let pool = served(cpu(1));
    let mut body = as_request(&small());
    body["parameters"] = json!({"timeout": 20_000_000, "priority": 1});
    assert_eq!(post(&pool, INFER, &body).status, 200);
    pool.stop("cpu0");
    body["parameters"] = json!({"timeout": 100_000});
    post(&pool, INFER, &body).complains(504, "DEADLINE");
    // The worker that held the job was replaced.
    assert_eq!(post(&pool, INFER, &as_request(&small())).status, 200);
}

#[test]
fn a_client_that_has_cost_too_many_workers_is_told_when_to_try_again() {
    let pool = served(cpu(1).limits("kills_max = 1"));
    let mut body = as_request(&small());
    body["parameters"] = json!({"timeout": 100_000});
    pool.stop("cpu0");
    post(&pool, INFER, &body).complains(504, "DEADLINE");
    pool.until("cpu0", "in its second generation", |slot| slot.generation == 2);
    let answer = post(&pool, INFER, &as_request(&small()));
    assert_eq!(answer.status, 503, "{answer:?}");
    let why = answer.json()["error"].as_str().expect("a text").to_owned();
    let (_, seconds) =
        why.split_once("too many workers; others are accepted again in ").expect(&why);
    let seconds = seconds.strip_suffix(" s").expect(&why);
    assert_eq!(answer.header("retry-after"), Some(seconds), "{why}");
    assert!((2..=10).contains(&seconds.parse::<u32>().expect(&why)), "{why}");
    serves(&pool.client());
}

#[test]
fn the_job_of_a_client_that_hangs_up_is_cancelled() {
    let pool = served(cpu(1));
    pool.stop("cpu0");
    let before = pool.status().counters;
    let mut web = Web::open(&pool);
    let body = as_request(&small()).to_string();
    web.send(&request("POST", INFER, "", body.as_bytes()));
    pool.until_status("its job", |status| status.counters.accepted > before.accepted);
    drop(web);
    pool.until_status("its end", |status| status.counters.cancelled == before.cancelled + 1);
    until_ready(&pool);
}

#[test]
fn a_pool_that_does_not_read_holds_up_its_requests_and_not_the_gateway() {
    // Nearly as many as one client may have, each as large as an IO thread sends: four connections do not hold them.
    const REQUESTS: usize = 90;
    let grid = Grid::from_rows(&[[7; 30]; 30]).expect("it is a grid");
    let body = as_request(&vec![grid; 8]);
    let length = body.to_string().len();
    assert!((12 << 10..16 << 10).contains(&length), "{length} bytes");
    let pool = served(cpu(1));
    let mut web = Web::open(&pool);
    let open: Vec<_> = (0..REQUESTS).map(|_| Web::open(&pool)).collect();
    let supervisor = pool.supervisor.pid();
    stop(supervisor);
    let all: Vec<_> = open.into_iter().map(|own| post_over(own, INFER, &body)).collect();
    for _ in 0..100 {
        assert_eq!(web.ask("GET", "/v2/health/live", "", b"").status, 200);
    }
    go_on(supervisor);
    for one in all {
        assert_eq!(within("an answer", || one.join().expect("an answer")).status, 200);
    }
}

#[test]
fn only_a_run_on_a_device_makes_the_pool_ready() {
    // The process lives, but it never becomes READY.
    let pool = with_http(cpu(1)).worker(stub_worker()).env("GRIDPOOL_STUB", "says-nothing");
    let pool = pool.start_early();
    until_status_of(&pool, "/v2/health/live", 200);
    get(&pool, "/v2/health/ready").complains(503, "no job has come back from a device yet");
    get(&pool, "/v2/models/rot90/ready").complains(503, "no job has come back");
    assert_eq!(get(&pool, "/v2/models/rot90").status, 200, "its metadata is known");
    let index = post(&pool, "/v2/repository/index", &json!({})).json();
    assert_eq!(index[0]["state"], "UNAVAILABLE");
    assert_eq!(post(&pool, "/v2/repository/index", &json!({"ready": true})).json(), json!([]));
}

#[test]
fn a_known_job_that_does_not_return_ends_readiness_until_the_next_succeeds() {
    let pool = served(cpu(1));
    let generation = pool.stop("cpu0");
    // The known job's deadline passes; its worker is killed for it and replaced.
    let answer = until_status_of(&pool, "/v2/health/ready", 503);
    answer.complains(503, "the last known job failed: DEADLINE");
    assert_eq!(get(&pool, "/v2/health/live").status, 200);
    until_ready(&pool);
    all_gone(&[generation]);
}

#[test]
fn a_draining_pool_is_not_ready_finishes_its_jobs_and_ends_its_gateway() {
    let pool = served(cpu(1));
    let gateway = super::gateway_pid(&pool);
    let worker = pool.stop("cpu0");
    // So large that the gateway is still writing the answer when the pool has ended.
    let held = post_aside(&pool, INFER, &as_request(&vec![small().remove(0); 1_000]));
    // Its own, and no known job of the gateway.
    pool.until_status("the job", |status| {
        let mut all = status.principals.iter();
        all.any(|own| own.principal.starts_with("address ") && own.queued + own.running > 0)
    });
    let mut open = Web::open(&pool);
    pool.observer().drain().expect("the pool accepts the command");
    // The gateway hears of it a moment after whoever has drained the pool.
    until_status_of(&pool, "/v2/health/ready", 503).complains(503, "the pool is draining");
    assert_eq!(open.ask("GET", "/v2/health/live", "", b"").status, 200);
    let body = as_request(&small()).to_string();
    open.ask("POST", INFER, "", body.as_bytes()).complains(503, "draining");
    assert_eq!(pool.slot("cpu0").state, WorkerState::Busy);
    go_on(worker);
    let answer =
        within("the answer of a job that was accepted", || held.join().expect("an answer"));
    assert_eq!(answer.status, 200, "{answer:?}");
    open.closes();
    pool.ends_well();
    all_gone(&[gateway]);
}

#[test]
fn retry_after_is_the_time_of_the_device_s_next_probe() {
    // The worker was READY once, or the pool would end. Its first death quarantines the device.
    let setup = with_http(cpu(1)).limits("[policy]\n'signal 11' = 'quarantine'\n");
    let pool = setup.start();
    pool.until_status("an address", |status| status.http.is_some());
    pool.client().kill(named("cpu0"), 11).expect("it is there");
    let answer = eventually("the device to be out of service", || {
        let answer = post(&pool, INFER, &as_request(&small()));
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        if text.contains("tried again in ") { Ok(answer) } else { Err(text) }
    });
    assert_eq!(answer.status, 503, "{answer:?}");
    let why = answer.json()["error"].as_str().expect("a text").to_owned();
    let (_, seconds) = why.split_once("tried again in ").expect("looked at above");
    let (seconds, _) = seconds.split_once(" s ").expect(&why);
    assert_ne!(seconds, "1", "{why}");
    assert_eq!(answer.header("retry-after"), Some(seconds), "{why}");
}

/// How long so many answers of one status take, to requests that are all sent at once on one connection.
fn pipelined(pool: &Pool, count: usize, status: u16, one: &[u8]) -> Duration {
    let mut web = Web::open(pool);
    let began = clock::now();
    web.send(&one.repeat(count));
    (0..count).for_each(|_| assert_eq!(web.hear().status, status));
    began.elapsed()
}

#[test]
fn requests_that_are_sent_ahead_have_a_rate_whether_they_are_refused_or_for_health() {
    let scopes = [("good", "infer,metrics")];
    let (pool, headers) = with_tokens(with_http(cpu(1)), &scopes);
    // 100 at once, and 100 a second; the rate is that of the address, whatever is refused.
    let least = Duration::from_millis(950);
    let refused = pipelined(&pool, 200, 401, &request("GET", "/v2", "", b""));
    assert!(refused >= least, "{refused:?}");
    let metrics = pipelined(&pool, 200, 200, &request("GET", "/metrics", &headers["good"], b""));
    assert!(metrics >= least, "{metrics:?}");
    let wrong = pipelined(&pool, 200, 400, &request("POST", INFER, &headers["good"], b"{}"));
    assert!(wrong >= least, "{wrong:?}");
    // 1,000 at once, and 1,000 a second.
    let health = pipelined(&pool, 1_500, 200, &request("GET", "/v2/health/live", "", b""));
    assert!(health >= Duration::from_millis(450), "{health:?}");
}
