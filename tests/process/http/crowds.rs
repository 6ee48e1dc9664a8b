//! Clients that hold connections, memory or places, and what others still get.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::json;

use super::access::{token, tokens};
use super::{Web, as_request, get, http, post, request, served, small, until_ready, with_http};
use crate::pool::{Pool, cpu};
use crate::processes::go_on;
use crate::wait::{eventually, eventually_so};

const INFER: &str = "/v2/models/rot90/infer";
/// Connections of one client.
const CONNECTIONS_EACH_MAX: usize = 384;
/// Requests in progress of one client.
const REQUESTS_EACH_MAX: usize = 96;
/// A request whose body never comes.
const NO_BODY: &[u8] =
    b"POST /v2/models/rot90/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\n";

/// A number of the metrics.
fn metric(pool: &Pool, row: &str) -> f64 {
    let page = String::from_utf8(get(pool, "/metrics").body).expect("text");
    let line = page.lines().find_map(|line| line.strip_prefix(row)).unwrap_or_else(|| {
        panic!("{row} is not in {page}");
    });
    line.trim().parse().expect("a number")
}

fn refused(pool: &Pool, reason: &str) -> f64 {
    metric(pool, &format!("gridpool_http_refused_total{{reason=\"{reason}\"}}"))
}

/// A connection that sends these bytes and reads nothing.
fn holding(pool: &Pool, bytes: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(http(pool).address).expect("the gateway listens");
    // One that was closed already is as good.
    drop(stream.write_all(bytes));
    stream
}

/// Checks that a connection answers at once, whoever holds the others.
fn is_live(pool: &Pool) {
    let mut web = Web::open(pool);
    web.stream.set_read_timeout(Some(Duration::from_secs(3))).expect("a timeout can be set");
    assert_eq!(web.ask("GET", "/v2/health/live", "", b"").status, 200);
}

#[test]
fn health_and_metrics_answer_while_600_connections_dribble() {
    let pool = served(cpu(1));
    // Half of a head; a head and no body; both.
    let head = b"GET /v2 HTTP/1.1\r\nX: ".as_slice();
    let kinds = [vec![head], vec![NO_BODY], vec![head, NO_BODY]];
    for kind in kinds {
        let mut held: Vec<_> =
            (0..600).map(|number| holding(&pool, kind[number % kind.len()])).collect();
        for _ in 0..10 {
            is_live(&pool);
            // They dribble on.
            held.iter_mut().for_each(|stream| drop(stream.write_all(b"x")));
        }
        eventually("a place for a request", || {
            held.iter_mut().for_each(|stream| drop(stream.write_all(b"x")));
            let status = post(&pool, INFER, &as_request(&small())).status;
            if status == 200 { Ok(()) } else { Err(status) }
        });
        assert!(metric(&pool, "gridpool_http_connections{seat=\"ordinary\"}") <= 512.0);
    }
    let mut crowd = Vec::new();
    eventually("one that makes room", || {
        crowd.extend((0..100).map(|_| holding(&pool, head)));
        let evicted = refused(&pool, "evicted");
        if evicted > 0.0 { Ok(()) } else { Err(evicted) }
    });
}

#[test]
fn a_client_with_too_many_connections_loses_idle_ones_or_is_told() {
    let pool = served(cpu(1));
    let mut idle: Vec<_> = (0..CONNECTIONS_EACH_MAX).map(|_| Web::open(&pool)).collect();
    // The one that waits longest makes room.
    let body = as_request(&small()).to_string();
    eventually("a place", || {
        let mut web = Web::open(&pool);
        let answer = web.ask("POST", INFER, "", body.as_bytes());
        if answer.status == 200 { Ok(()) } else { Err(format!("{answer:?}")) }
    });
    assert!(idle.remove(0).closes().is_empty());
    drop(idle);
    // These send their bodies in good time, so they keep their connections.
    let head =
        format!("POST {INFER} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999999\r\n\r\n");
    let hold = || (0..CONNECTIONS_EACH_MAX).map(|_| holding(&pool, head.as_bytes()));
    let mut busy: Vec<_> = hold().collect();
    let said = eventually("the refusal", || {
        busy.iter_mut().for_each(|stream| drop(stream.write_all(&[b' '; 32 << 10])));
        let asked = [post(&pool, INFER, &as_request(&small())), get(&pool, "/v2/health/ready")];
        match &asked {
            [said, ready] if (said.status, ready.status) == (503, 503) => Ok(asked),
            other => Err(format!("{other:?}")),
        }
    });
    said[0].complains(503, "BUSY: 384 connections of yours are open already");
    assert_eq!(said[0].header("connection"), Some("close"));
    said[1].complains(503, "saturated: BUSY: 384 connections of yours");
    is_live(&pool);
    drop(busy);
    until_ready(&pool);
}

#[test]
fn a_body_that_dribbles_ends_although_it_never_pauses() {
    let pool = served(cpu(1));
    let mut web = Web::open(&pool);
    web.send(NO_BODY);
    // The time between two bytes.
    web.stream.set_read_timeout(Some(Duration::from_millis(250))).expect("a timeout can be set");
    let mut sent = 0;
    while web.stream.peek(&mut [0]).is_err() {
        web.send(b" ");
        sent += 1;
        assert!(sent < 90, "{sent} bytes in as many quarters of a second");
    }
    web.hear().complains(408, "16384 bytes a second");
    assert_eq!(refused(&pool, "slow_body"), 1.0);
}

#[test]
fn an_answer_that_is_read_byte_by_byte_ends() {
    let pool = served(cpu(1));
    let mut slow = Web::open(&pool);
    slow.stream.set_nonblocking(true).expect("a mode can be set");
    // Many answers wait behind each other, more than the kernel takes.
    let ask = request("GET", "/metrics", "", b"").repeat(100);
    eventually_so("the gateway to read no more", || slow.stream.write(&ask).is_err());
    slow.stream.set_nonblocking(false).expect("a mode can be set");
    // A byte at a time, which is no pause.
    eventually("the end", || {
        drop(slow.stream.read(&mut [0]));
        match refused(&pool, "slow_answer") {
            0.0 => Err("it is still served"),
            _ => Ok(()),
        }
    });
}

#[test]
fn three_large_bodies_leave_room_for_smaller_ones() {
    let pool = served(cpu(1));
    let head =
        format!("POST {INFER} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 67108864\r\n\r\n");
    // Held three times over, they are all that there is but three MiB.
    let body = vec![b' '; (512 - 3) * (1 << 20) / 9];
    let mut hold: Vec<_> = (0..3).map(|_| holding(&pool, head.as_bytes())).collect();
    hold.iter_mut().for_each(|stream| drop(stream.write_all(&body)));
    let mut ask = as_request(&small());
    ask["id"] = json!("x");
    let mut text = ask.to_string();
    text.insert_str(1, &" ".repeat(1_200_000));
    for _ in 0..50 {
        let answer = Web::open(&pool).ask("POST", INFER, "", text.as_bytes());
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    assert!(metric(&pool, "gridpool_http_body_bytes") > f64::from(100 << 20));
    assert_eq!(get(&pool, "/v2/health/ready").status, 200);
    drop(hold);
    eventually_so("the memory to be free", || metric(&pool, "gridpool_http_body_bytes") == 0.0);
}

#[test]
fn a_pool_whose_places_are_taken_is_not_ready_for_who_takes_them() {
    let pool = served(cpu(1));
    let worker = pool.stop("cpu0");
    let whole = request("POST", INFER, "", as_request(&small()).to_string().as_bytes());
    let held: Vec<_> = (0..REQUESTS_EACH_MAX).map(|_| holding(&pool, &whole)).collect();
    let said = eventually("the refusal of one more", || {
        let in_flight = metric(&pool, "gridpool_http_requests_in_flight");
        if in_flight < 97.0 {
            return Err(format!("{in_flight} are in flight"));
        }
        let answer = post(&pool, INFER, &as_request(&small()));
        if answer.status == 503 { Ok(answer) } else { Err(format!("{answer:?}")) }
    });
    said.complains(503, "BUSY: 96 requests of yours are in progress already");
    get(&pool, "/v2/health/ready").complains(503, "saturated: 96 requests of yours");
    is_live(&pool);
    go_on(worker);
    for mut stream in held {
        assert!(stream.read(&mut [0]).expect("an answer") > 0);
    }
    until_ready(&pool);
}

#[test]
fn a_flood_of_refusals_is_counted_and_costs_few_lines_of_log() {
    let pool = served(cpu(1));
    let mut web = Web::open(&pool);
    let before = pool.log().len();
    let bad = b"GET /v2 HTTP/1.1\r\nHost: evil.example\r\n\r\n";
    for _ in 0..5_000 {
        web.send(bad);
        assert_eq!(web.hear().status, 421);
    }
    assert_eq!(refused(&pool, "host"), 5_000.0);
    let log = pool.log();
    assert!(log.len() - before < 4_096, "{log}");
    assert!(
        log.contains("clients of the gateway are refused") && log.contains("reason=\"host\""),
        "{log}"
    );
}

#[test]
fn a_token_that_floods_locks_out_no_other_token_of_its_address() {
    let setup = with_http(cpu(1));
    let [(bad, line), (good, other)] =
        ["bad", "good"].map(|name| token(&[name, "--scope", "infer"]));
    let file = tokens(&setup, &[&line, &other]).display().to_string();
    let pool = setup.args(&["--http-tokens", &file]).start();
    until_ready(&pool);
    let body = as_request(&small()).to_string();
    let asks = |pool: &Pool| {
        let mut web = Web::open(pool);
        web.stream.set_read_timeout(Some(Duration::from_secs(5))).expect("a timeout can be set");
        let answer = web.ask("POST", INFER, &bearer(&good), body.as_bytes());
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(Web::open(pool).ask("GET", "/v2/health/ready", "", b"").status, 200);
    };
    // Bodies in good time, more of them than a token may have.
    let head = format!(
        "POST {INFER} HTTP/1.1\r\nHost: localhost\r\n{}Content-Length: 9999999\r\n\r\n",
        bearer(&bad)
    );
    let mut busy: Vec<_> =
        (0..CONNECTIONS_EACH_MAX + 40).map(|_| holding(&pool, head.as_bytes())).collect();
    for _ in 0..10 {
        busy.iter_mut().for_each(|stream| drop(stream.write_all(&[b' '; 8 << 10])));
        (0..5).for_each(|_| asks(&pool));
    }
    // Beside them as many connections as there may be that send nothing.
    for _ in 0..10 {
        let idle: Vec<_> = (0..300).map(|_| holding(&pool, b"")).collect();
        busy.iter_mut().for_each(|stream| drop(stream.write_all(&[b' '; 8 << 10])));
        let mut web = Web::open(&pool);
        let answer = web.ask("POST", INFER, &bearer(&good), body.as_bytes());
        assert_eq!(answer.status, 200, "{answer:?}");
        drop(idle);
    }
}

fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}\r\n")
}
