//! The gateway as its users see it: HTTP over a plain socket, so that no HTTP library hides a mistake.

mod abuse;
mod access;
mod attack;
mod crowds;
mod doors;
mod endpoints;
mod grpc;
mod inference;
mod lifecycle;
mod memory;
mod metrics;
mod models;
mod monitoring;
mod overload;
mod page;
mod repository;
mod traces;
mod triton;
mod upgrades;
mod verdicts;
mod versions;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::thread;

use gridpool_protocol::batch::Grid;
use gridpool_protocol::status::HttpStatus;
use serde_json::{Value, json};

pub(crate) use self::triton::python_of_models;
use crate::pool::{Pool, Setup};
use crate::wait::{TIMEOUT, eventually};

/// A pool that serves HTTP on a port that the system chose, once it is ready.
fn served(setup: Setup) -> Pool {
    let pool = with_http(setup).start();
    until_ready(&pool);
    pool
}

fn with_http(setup: Setup) -> Setup {
    setup.env("GRIDPOOL_HTTP", "127.0.0.1:0")
}

fn until_ready(pool: &Pool) {
    until_status_of(pool, "/v2/health/ready", 200);
}

/// Waits until a path answers with this status.
fn until_status_of(pool: &Pool, path: &str, status: u16) -> Answer {
    eventually(&format!("{status} from {path}"), || {
        let answer = get(pool, path);
        if answer.status == status { Ok(answer) } else { Err(format!("{answer:?}")) }
    })
}

/// The gateway's row in the pool's status.
fn http(pool: &Pool) -> HttpStatus {
    // The socket answers a moment before the gateway is started.
    let status = pool.until_status("a gateway to be started", |status| status.http.is_some());
    status.http.expect("it was just seen")
}

/// The gateway's process.
fn gateway_pid(pool: &Pool) -> u32 {
    pool.until_status("a gateway", |status| status.http.as_ref().is_some_and(|http| http.up));
    http(pool).pid
}

/// A connection to the gateway.
struct Web<S = TcpStream> {
    stream: S,
    /// Bytes read but not yet parsed.
    rest: Vec<u8>,
}

/// A response.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Answer {
    status: u16,
    /// Names in lower case, in the order received.
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    #[track_caller]
    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Checks that it is an error in JSON with this status, and that its sentence contains these words.
    #[track_caller]
    fn complains(&self, status: u16, words: &str) {
        assert_eq!(self.status, status, "{self:?}");
        assert_eq!(self.header("content-type"), Some("application/json"), "{self:?}");
        let document = self.json();
        let error = document["error"].as_str().unwrap_or_else(|| panic!("{document}"));
        assert!(error.contains(words), "`{words}` is not in: {error}");
        assert_eq!(document.as_object().map(serde_json::Map::len), Some(1), "{document}");
        let comes_back = (status == 503).then_some("1");
        assert_eq!(self.header("retry-after"), comes_back, "{self:?}");
    }
}

impl Web {
    fn open(pool: &Pool) -> Self {
        Self::over(tcp(pool))
    }
}

impl<S: Read + Write> Web<S> {
    fn over(stream: S) -> Self {
        Self { stream, rest: Vec::new() }
    }

    fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the gateway takes it");
    }

    /// Reads a whole answer.
    #[track_caller]
    fn hear(&mut self) -> Answer {
        let head = loop {
            if let Some(at) = self.rest.windows(4).position(|four| four == b"\r\n\r\n") {
                let after = self.rest.split_off(at + 4);
                break std::mem::replace(&mut self.rest, after);
            }
            assert!(self.more(), "closed without an answer: {:?}", self.rest);
        };
        let head = String::from_utf8(head).expect("a head is text");
        let mut lines = head.lines();
        let first = lines.next().expect("a first line");
        let status = first.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3));
        let status = status.and_then(|digits| digits.parse().ok()).expect(first);
        let headers = lines.filter_map(|line| line.split_once(": "));
        let headers: Vec<_> =
            headers.map(|(name, value)| (name.to_lowercase(), value.to_owned())).collect();
        let mut answer = Answer { status, headers, body: Vec::new() };
        let length = answer.header("content-length").map_or(0, |n| n.parse().expect("a number"));
        while self.rest.len() < length {
            assert!(self.more(), "closed in a body: {answer:?}");
        }
        let after = self.rest.split_off(length);
        answer.body = std::mem::replace(&mut self.rest, after);
        answer
    }

    /// Reads more bytes; `false` at the end of the stream.
    fn more(&mut self) -> bool {
        let mut bytes = [0; 65_536];
        let count = self.stream.read(&mut bytes).expect("an answer comes in time");
        self.rest.extend_from_slice(&bytes[..count]);
        count > 0
    }

    /// Waits until the gateway closes the connection, and returns what it sent before.
    fn closes(mut self) -> Vec<u8> {
        loop {
            let mut bytes = [0; 65_536];
            match self.stream.read(&mut bytes) {
                Ok(0) => return self.rest,
                Ok(count) => self.rest.extend_from_slice(&bytes[..count]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {
                    return self.rest;
                }
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn ask(&mut self, method: &str, path: &str, headers: &str, body: &[u8]) -> Answer {
        self.send(&request(method, path, headers, body));
        self.hear()
    }
}

fn tcp(pool: &Pool) -> TcpStream {
    let stream = TcpStream::connect(http(pool).address).expect("the gateway listens");
    stream.set_read_timeout(Some(TIMEOUT)).expect("a timeout can be set");
    stream.set_nodelay(true).expect("an option can be set");
    stream
}

/// A request with the right Content-Length.
fn request(method: &str, path: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n{headers}\r\n"
    );
    [head.as_bytes(), body].concat()
}

/// What `/metrics` of a pool says, once its gateway answers.
pub(crate) fn metrics_of(pool: &Pool) -> String {
    let page = until_status_of(pool, "/metrics", 200);
    String::from_utf8(page.body).expect("it is text")
}

fn get(pool: &Pool, path: &str) -> Answer {
    Web::open(pool).ask("GET", path, "", b"")
}

fn post(pool: &Pool, path: &str, body: &Value) -> Answer {
    Web::open(pool).ask("POST", path, "", body.to_string().as_bytes())
}

/// Sends a request, and reads the answer on another thread.
fn post_aside(pool: &Pool, path: &str, body: &Value) -> thread::JoinHandle<Answer> {
    post_over(Web::open(pool), path, body)
}

/// The same over a connection that is open already.
fn post_over(mut web: Web<TcpStream>, path: &str, body: &Value) -> thread::JoinHandle<Answer> {
    web.send(&request("POST", path, "", body.to_string().as_bytes()));
    thread::spawn(move || web.hear())
}

// ---- grids as tensors ----

/// GRID and SIZE of some grids, little-endian.
fn tensors(grids: &[Grid]) -> (Vec<u8>, Vec<i32>) {
    let mut cells = vec![0; grids.len() * 900];
    let mut sizes = Vec::new();
    for (grid, place) in grids.iter().zip(cells.chunks_exact_mut(900)) {
        for (row, place) in grid.rows().zip(place.chunks_exact_mut(30)) {
            place[..row.len()].copy_from_slice(row);
        }
        sizes.extend([grid.h(), grid.w()].map(|side| i32::try_from(side).expect("it is small")));
    }
    (cells, sizes)
}

/// A request over grids, all in JSON.
fn as_request(grids: &[Grid]) -> Value {
    let (cells, sizes) = tensors(grids);
    let n = grids.len();
    json!({"inputs": [
        {"name": "GRID", "shape": [n, 30, 30], "datatype": "UINT8", "data": cells},
        {"name": "SIZE", "shape": [n, 2], "datatype": "INT32", "data": sizes},
    ]})
}

/// One grid of a few cells.
fn small() -> Vec<Grid> {
    vec![Grid::from_rows(&[[1, 2, 3], [4, 5, 6]]).expect("it is a grid")]
}

/// The data of an output in JSON.
#[track_caller]
fn numbers(document: &Value, name: &str) -> Vec<i64> {
    let outputs = document["outputs"].as_array().expect("outputs");
    let output = outputs.iter().find(|output| output["name"] == name).expect(name);
    let data = output["data"].as_array().expect("data");
    data.iter().map(|number| number.as_i64().expect("a whole number")).collect()
}

/// Item `item` of GRID as rows, by SIZE.
fn rows(cells: &[i64], sizes: &[i64], item: usize) -> Value {
    let side = |at: usize| usize::try_from(sizes[2 * item + at]).expect("a size");
    let (h, w) = (side(0), side(1));
    let cells = &cells[900 * item..900 * (item + 1)];
    json!(cells.chunks_exact(30).take(h).map(|row| &row[..w]).collect::<Vec<_>>())
}

/// Closes the sending half of a connection.
fn done_sending(web: &Web) {
    web.stream.shutdown(Shutdown::Write).expect("a connection can be half closed");
}
