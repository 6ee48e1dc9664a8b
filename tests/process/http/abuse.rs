//! Clients that misbehave: the answer that each gets, and that other clients notice nothing.

use std::io::Write;

use serde_json::json;

use super::{
    Web, as_request, done_sending, gateway_pid, get, numbers, post, request, served, small,
};
use crate::pool::{Pool, cpu};
use crate::processes::most_held;

const INFER: &str = "/v2/models/rot90/infer";
/// The longest body that the gateway accepts.
const BODY_BYTES_MAX: usize = 64 << 20;

/// Checks that the same gateway process still serves.
fn is_unharmed(pool: &Pool, gateway: u32) {
    assert_eq!(post(pool, INFER, &as_request(&small())).status, 200);
    assert_eq!(gateway_pid(pool), gateway, "the gateway was replaced");
    assert!(!pool.log().contains("panicked"));
}

#[test]
fn one_connection_serves_many_requests_pipelined_ones_included() {
    let pool = served(cpu(1));
    let mut web = Web::open(&pool);
    for _ in 0..3 {
        assert_eq!(web.ask("GET", "/v2/health/live", "", b"").status, 200);
        assert_eq!(web.ask("GET", "/v2/nope", "", b"").status, 404);
    }
    let body = as_request(&small()).to_string();
    let infer = |op: &str| request("POST", &format!("/v2/models/{op}/infer"), "", body.as_bytes());
    let about = request("GET", "/v2/models/rot180", "", b"");
    web.send(&[infer("rot90"), about, infer("identity"), infer("nope")].concat());
    assert_eq!(numbers(&web.hear().json(), "SIZE"), [3, 2]);
    assert_eq!(web.hear().json()["name"], "rot180");
    assert_eq!(numbers(&web.hear().json(), "SIZE"), [2, 3]);
    web.hear().complains(404, "there is no model `nope`");
    web.send(b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    assert_eq!(web.hear().status, 200);
    assert!(web.closes().is_empty());
}

#[test]
fn a_body_may_come_in_pieces_and_in_chunks() {
    let pool = served(cpu(1));
    let body = as_request(&small()).to_string();
    let mut web = Web::open(&pool);
    let whole = request("POST", INFER, "", body.as_bytes());
    for piece in whole.chunks(101) {
        web.send(piece);
    }
    assert_eq!(web.hear().status, 200);
    web.send(
        format!("POST {INFER} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
            .as_bytes(),
    );
    for piece in body.as_bytes().chunks(1_000) {
        web.send(format!("{:x}\r\n", piece.len()).as_bytes());
        web.send(&[piece, b"\r\n"].concat());
    }
    web.send(b"0\r\n\r\n");
    assert_eq!(web.hear().status, 200);
}

#[test]
fn a_request_that_is_refused_leaves_its_connection_to_the_next_one() {
    let pool = served(cpu(1));
    // More than the sockets buffer: the gateway sees the next request only if it reads all of this.
    let large = vec![b' '; 8 << 20];
    let mut web = Web::open(&pool);
    let paths = [
        ("/v2/models/nope/infer", 404),
        ("/v2/models/rot90/infer", 400),
        ("/v2/nope", 404),
        ("/v2/models/rot90", 405),
        ("/v2/repository/models/rot90/load", 413),
        ("/v2/repository/models/nope/unload", 413),
        ("/v2/repository/index", 413),
    ];
    for (path, status) in paths {
        let answer = web.ask("POST", path, "", &large);
        assert_eq!(answer.status, status, "{path}: {answer:?}");
        assert_eq!(answer.header("connection"), None, "{path}");
    }
    assert_eq!(web.ask("GET", "/v2/health/live", "", b"").status, 200);
}

#[test]
fn a_body_that_is_too_long_is_413_with_or_without_a_content_length() {
    let pool = served(cpu(1));
    let gateway = gateway_pid(&pool);
    let mut web = Web::open(&pool);
    let length = BODY_BYTES_MAX + 1;
    web.send(
        format!("POST {INFER} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n")
            .as_bytes(),
    );
    let answer = web.hear();
    answer.complains(413, "more than 67108864 bytes");
    assert_eq!(answer.header("connection"), Some("close"), "nothing can follow it");
    let mut web = Web::open(&pool);
    web.send(
        format!("POST {INFER} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
            .as_bytes(),
    );
    let mib = [b"100000\r\n", vec![b' '; 1 << 20].as_slice(), b"\r\n"].concat();
    // The gateway may hang up before this has sent everything.
    while web.stream.write_all(&mib).is_ok() && web.stream.set_nonblocking(true).is_ok() {
        let answered = web.stream.peek(&mut [0]).is_ok();
        web.stream.set_nonblocking(false).expect("an option can be set");
        if answered {
            break;
        }
    }
    web.stream.set_nonblocking(false).expect("an option can be set");
    web.hear().complains(413, "more than 67108864 bytes");
    is_unharmed(&pool, gateway);
}

#[test]
fn a_body_with_millions_of_values_takes_hardly_more_memory_than_its_bytes() {
    const BYTES: usize = 16 << 20;
    let pool = served(cpu(1));
    let gateway = gateway_pid(&pool);
    let filled = |before: &str, value: &str, after: &str| {
        [before, &value.repeat(BYTES / value.len()), after].concat().into_bytes()
    };
    let input = r#"{"name":"A","datatype":"UINT8","shape":[1],"data":[0]}"#;
    let many = (0..BYTES / 12).map(|name| format!(r#""{name:07x}":0,"#)).collect::<String>();
    let bodies = [
        filled(r#"{"parameters":{"a":["#, "1,", r#"1]},"inputs":[]}"#),
        filled(r#"{"parameters":{"a":["#, "[],", r#"1]},"inputs":[]}"#),
        filled(r#"{"parameters":{"#, &many, r#""z":0},"inputs":[]}"#),
        filled(r#"{"inputs":[{"parameters":{"a":["#, "1,", r#"1]},"name":"A"}]}"#),
        filled(r#"{"inputs":["#, &format!("{input},"), &format!("{input}]}}")),
        filled(r#"{"inputs":[{"name":"A","shape":["#, "1,", "1]}]}"),
        filled(r#"{"inputs":[],"outputs":["#, r#"{"name":"a"},"#, r#"{"name":"a"}]}"#),
    ];
    let mut asked = bodies.iter().map(|body| (INFER, body, 400)).collect::<Vec<_>>();
    for path in ["index", "models/rot90/load", "models/rot90/unload"] {
        asked.push((path, &bodies[0], 413));
    }
    for (path, body, status) in asked {
        let path = if status == 413 { format!("/v2/repository/{path}") } else { path.to_owned() };
        assert_eq!(Web::open(&pool).ask("POST", &path, "", body).status, status, "{path}");
    }
    // A buffer that grows is there twice for a moment.
    let most = most_held(gateway);
    assert!(most < 5 * BYTES as u64, "{most} bytes");
    is_unharmed(&pool, gateway);
}

#[test]
fn garbage_is_refused_and_costs_its_own_connection_alone() {
    let pool = served(cpu(1));
    let gateway = gateway_pid(&pool);
    let long = format!("GET /v2 HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(1 << 17));
    let many = format!("GET /v2 HTTP/1.1\r\n{}\r\n", "X: y\r\n".repeat(1_000));
    let garbage: [&[u8]; 8] = [
        b"\0\x01\x02\xff\xfe\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET /v2 HTTP/9.9\r\n\r\n",
        b"POST /v2/models/rot90/infer HTTP/1.1\r\nContent-Length: x\r\n\r\n",
        b"POST /v2/models/rot90/infer HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        long.as_bytes(),
        many.as_bytes(),
    ];
    for bytes in garbage {
        let mut web = Web::open(&pool);
        // The gateway may refuse it before this has sent everything.
        drop(web.stream.write_all(bytes));
        let said = String::from_utf8_lossy(&web.closes()).into_owned();
        let refused =
            said.is_empty() || said.starts_with("HTTP/1.1 4") || said.starts_with("HTTP/1.1 5");
        assert!(refused, "{said}");
    }
    for bytes in [&b"{"[..], b"", b"\xff\xff", b"[[[[", b"null", &vec![b'['; 1 << 20]] {
        let answer = Web::open(&pool).ask("POST", INFER, "", bytes);
        answer.complains(400, "not valid JSON of the inference protocol");
    }
    let zipped = Web::open(&pool).ask("POST", INFER, "Content-Encoding: gzip\r\n", b"\x1f\x8b");
    zipped.complains(415, "send it without Content-Encoding");
    // The gateway reads a body of any type that no web page can send without asking; tritonclient names none.
    let body = as_request(&small()).to_string();
    for kind in ["application/json", "application/octet-stream", "x"] {
        let header = format!("Content-Type: {kind}\r\n");
        assert_eq!(Web::open(&pool).ask("POST", INFER, &header, body.as_bytes()).status, 200);
    }
    assert_eq!(Web::open(&pool).ask("POST", INFER, "", body.as_bytes()).status, 200);
    is_unharmed(&pool, gateway);
}

#[test]
fn a_body_that_ends_early_or_never_ends_is_refused() {
    let pool = served(cpu(1));
    let gateway = gateway_pid(&pool);
    let body = as_request(&small()).to_string();
    let whole = request("POST", INFER, "", body.as_bytes());
    let mut early = Web::open(&pool);
    early.send(&whole[..whole.len() - 10]);
    done_sending(&early);
    drop(early.closes());
    let mut slow = Web::open(&pool);
    slow.send(&whole[..whole.len() - 10]);
    // Send nothing more, and wait for as long as a body may pause.
    slow.hear().complains(408, "the body came too slowly");
    slow.closes();
    is_unharmed(&pool, gateway);
}

#[test]
fn a_head_that_never_ends_and_a_silent_connection_are_closed() {
    let pool = served(cpu(1));
    let gateway = gateway_pid(&pool);
    let silent = Web::open(&pool);
    let mut slow = Web::open(&pool);
    slow.send(b"GET /v2 HTTP/1.1\r\nX: ");
    let mut idle = Web::open(&pool);
    assert_eq!(idle.ask("GET", "/v2", "", b"").status, 200);
    // Wait for as long as a head may take.
    for web in [silent, slow, idle] {
        drop(web.closes());
    }
    is_unharmed(&pool, gateway);
}

#[test]
fn ids_and_texts_of_any_kind_come_back_as_json() {
    let pool = served(cpu(1));
    for id in ["", "\u{0}\n\"\\", "\u{1f600}", "</script>"] {
        let mut body = as_request(&small());
        body["id"] = json!(id);
        assert_eq!(post(&pool, INFER, &body).json()["id"], id);
        let answer = get(&pool, "/v2/models/%22%5C%0A");
        answer.complains(404, "there is no model `\"\\\n`");
    }
}

#[test]
fn a_head_of_64_kib_is_served_and_a_longer_one_is_told_so() {
    let pool = served(cpu(1));
    let gateway = gateway_pid(&pool);
    let head = |bytes: usize| {
        let rest = "GET /v2/health/live HTTP/1.1\r\nhost: localhost\r\nx: \r\n\r\n";
        let x = "x".repeat(bytes - rest.len());
        format!("GET /v2/health/live HTTP/1.1\r\nhost: localhost\r\nx: {x}\r\n\r\n")
    };
    let mut web = Web::open(&pool);
    web.send(head(64 << 10).as_bytes());
    assert_eq!(web.hear().status, 200);
    web.send(head((64 << 10) + 1).as_bytes());
    web.hear().complains(431, "the head has 65537 bytes; at most 65536 are read");
    // The HTTP library ends what is much longer.
    let mut web = Web::open(&pool);
    // It may be closed before all of it is sent.
    drop(web.stream.write_all(head(1 << 20).as_bytes()));
    let said = web.closes();
    assert!(said.is_empty() || said.starts_with(b"HTTP/1.1 431"), "{said:?}");
    is_unharmed(&pool, gateway);
}
