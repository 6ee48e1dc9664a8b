//! Versions of a model: swaps under load, swaps that fail, workers that die meanwhile, versions that stay.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use gridpool_client::{Answer, Client, ClientError, Handle, Job, ModelInput, TensorOutputs};
use gridpool_protocol::message::Refusal;
use gridpool_protocol::receipt::Verdict;
use gridpool_protocol::tensor::options::{ModelOptions, ModelPlan};
use gridpool_protocol::tensor::version::split;
use serde_json::{Value, json};

use super::{Web, with_http};
use crate::infer::{has_runtime, model};
use crate::pool::{Pool, cpu, named};
use crate::wait::{SetAtEnd, eventually, eventually_so, within};

/// Swaps of a test, or as many as `GRIDPOOL_TEST_SWAPS` says.
const SWAPS: u32 = 6;
/// Clients of the pool's socket, and of HTTP, that ask one request after the other.
const CALLERS: usize = 3;

fn swaps() -> u32 {
    let told = std::env::var("GRIDPOOL_TEST_SWAPS").ok();
    told.map_or(SWAPS, |told| told.parse().expect("GRIDPOOL_TEST_SWAPS is a number"))
}

/// A file whose `double` multiplies by this factor instead of 2. Its name tells nothing.
pub(super) fn file(folder: &Path, factor: u16) -> PathBuf {
    let mut bytes = fs::read(model("three_outputs")).expect("it is in the repository");
    let two = [[0x4a, 4].as_slice(), &2_f32.to_le_bytes()].concat();
    let at = bytes.windows(two.len()).position(|window| window == two);
    let at = at.expect("the constant lies in the file as it is");
    bytes[at + 2..at + two.len()].copy_from_slice(&f32::from(factor).to_le_bytes());
    let path = folder.join(format!("{factor}.onnx"));
    fs::write(&path, bytes).expect("a file can be written");
    path
}

fn plan(name: &str, path: PathBuf) -> ModelPlan {
    ModelPlan { name: name.to_owned(), path, options: ModelOptions::default() }
}

/// A request for `m` or a version of it.
pub(super) fn request(name: &str) -> Job<TensorOutputs> {
    let x = ModelInput::new("x", [1, 4], vec![1.0_f32; 4]).expect("as much data as it has");
    Job::model(name, [x]).expect("a small tensor")
}

pub(super) fn ask(client: &Client, job: Job<TensorOutputs>) -> Handle<TensorOutputs> {
    client.submit(job).expect("the request is accepted")
}

pub(super) fn answer(handle: Handle<TensorOutputs>) -> Answer<TensorOutputs> {
    within("an answer", move || handle.wait()).expect("the connection stands")
}

/// The version that gave an answer, by the receipt and by its output: version V multiplies by V.
#[track_caller]
pub(super) fn version(answer: &Answer<TensorOutputs>) -> u32 {
    assert_eq!(answer.verdict(), Verdict::Ok, "{:?}", answer.receipt);
    let double = answer.outputs().expect("OK").values::<f32>("double").expect("singles");
    let last = answer.receipt.attempts.last().expect("it ran");
    let (name, version) = split(&last.infer.as_ref().expect("a model ran").model);
    assert_eq!((name, f64::from(double[0])), ("m", f64::from(version)));
    version
}

/// Versions only go up.
#[track_caller]
fn is_later(last: &mut u32, next: u32) {
    assert!(next >= *last, "version {next} after {last}");
    *last = next;
}

/// Asks over and over while `what` happens. Returns the number of answers.
fn under_load(pool: &Pool, what: impl FnOnce()) -> u64 {
    let is_over = &AtomicBool::new(false);
    let is_on = || !is_over.load(Ordering::Relaxed);
    thread::scope(|scope| {
        let local = (0..CALLERS).map(|_| {
            let client = pool.client();
            scope.spawn(move || {
                let (mut last, mut asked) = (0, 0);
                while is_on() {
                    is_later(&mut last, version(&answer(ask(&client, request("m")))));
                    asked += 1;
                }
                asked
            })
        });
        let over_http = (0..CALLERS).map(|_| {
            let mut web = Web::open(pool);
            scope.spawn(move || {
                let (mut last, mut asked) = (0, 0);
                let input =
                    json!({"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [1, 1, 1, 1]});
                let body = json!({"inputs": [input]}).to_string();
                while is_on() {
                    let json = "Content-Type: application/json\r\n";
                    let got = web.ask("POST", "/v2/models/m/infer", json, body.as_bytes());
                    let text = String::from_utf8_lossy(&got.body).into_owned();
                    assert_eq!(got.status, 200, "{text}");
                    let document: Value = serde_json::from_str(&text).expect("JSON");
                    let number = document["model_version"].as_str().and_then(|v| v.parse().ok());
                    let number = number.unwrap_or_else(|| panic!("{document}"));
                    assert_eq!(document["model_name"], "m");
                    assert_eq!(document["outputs"][1]["data"][0].as_f64(), Some(f64::from(number)));
                    is_later(&mut last, number);
                    asked += 1;
                }
                asked
            })
        });
        let callers: Vec<_> = local.chain(over_http).collect();
        let ends = SetAtEnd(is_over);
        what();
        drop(ends);
        callers.into_iter().map(|caller| caller.join().expect("every answer is right")).sum::<u64>()
    })
}

/// A pool that serves `m` over the socket and HTTP.
fn served(devices: usize) -> Option<Pool> {
    if !has_runtime() {
        return None;
    }
    let setup = with_http(cpu(devices));
    let first = file(setup.folder(), 1);
    let pool = setup.args(&["--model", &format!("m={}", first.display())]).start_early();
    let client = pool.client();
    eventually("m to serve over HTTP", || match pool.status().http {
        Some(_) => Ok(()),
        None => Err(pool.log()),
    });
    assert_eq!(version(&answer(ask(&client, request("m")))), 1);
    eventually("the gateway to know m", || {
        let got = Web::open(&pool).ask("GET", "/v2/models/m", "", b"");
        if got.status == 200 {
            Ok(())
        } else {
            Err(String::from_utf8_lossy(&got.body).into_owned())
        }
    });
    Some(pool)
}

#[test]
fn no_request_fails_over_swaps_under_load_and_each_caller_sees_versions_go_up() {
    let Some(pool) = served(2) else { return };
    let client = pool.client();
    let last = 1 + swaps();
    let asked = under_load(&pool, || {
        for number in 2..=last {
            let path = file(pool.folder(), u16::try_from(number).expect("few"));
            let said = client.load_model(plan("m", path)).expect("it loads");
            let words = format!("version {number} serves `m`, version {} is unloaded", number - 1);
            assert!(said.ends_with(&words), "{said}");
            assert_eq!(version(&answer(ask(&client, request("m")))), number, "at once");
        }
    });
    assert!(asked > u64::from(swaps()), "{asked}");
    let names: Vec<_> =
        client.models().expect("a list").into_iter().map(|r| r.model.name).collect();
    assert_eq!(names, [format!("m:{last}"), format!("m:{last}")]);
    let counters = pool.status().counters;
    let failed = [counters.failed, counters.device_lost, counters.deadline, counters.poison];
    assert_eq!((failed, counters.cancelled, counters.restarts), ([0; 4], 0, 0));
}

#[test]
fn a_version_that_cannot_be_loaded_changes_nothing() {
    let Some(pool) = served(1) else { return };
    let client = pool.client();
    under_load(&pool, || {
        let why = client.load_model(plan("m", model("four_bits"))).expect_err("4 bits");
        assert!(why.to_string().contains("`m:2` cannot be loaded"), "{why}");
        assert_eq!(version(&answer(ask(&client, request("m")))), 1);
        let said = client.load_model(plan("m", file(pool.folder(), 2))).expect("this one loads");
        assert!(said.contains("version 2 serves `m`, version 1 is unloaded"), "{said}");
    });
}

#[test]
fn workers_that_are_killed_during_swaps_cost_no_request() {
    let Some(pool) = served(2) else { return };
    let client = pool.client();
    let is_over = &AtomicBool::new(false);
    let killed = thread::scope(|scope| {
        let kills = pool.client();
        let killer = scope.spawn(move || {
            let mut killed = 0;
            while !is_over.load(Ordering::Relaxed) {
                // A quiet worker: one that a request waits for is not killed three times.
                for row in kills.models().expect("a list").into_iter().filter(|row| row.serves) {
                    killed += u32::from(kills.kill(named(&row.worker), 9).is_ok());
                    eventually_so("an answer by the next", || {
                        answer(ask(&kills, request("m"))).verdict() == Verdict::Ok
                    });
                }
            }
            killed
        });
        let ends = SetAtEnd(is_over);
        under_load(&pool, || {
            let mut number = 1;
            while number <= swaps() {
                let path = file(pool.folder(), u16::try_from(number + 1).expect("few"));
                match client.load_model(plan("m", path)) {
                    Ok(_) => number += 1,
                    // A worker that was killed had not answered.
                    Err(ClientError::Refused(Refusal::Unable(_))) => {}
                    Err(other) => panic!("{other}"),
                }
            }
        });
        drop(ends);
        killer.join().expect("it goes on")
    });
    assert!(killed > 0);
}

#[test]
fn a_version_that_stays_serves_under_its_number_and_again_under_the_name_when_the_later_one_goes() {
    let Some(pool) = served(1) else { return };
    let client = pool.client();
    let load = |arguments: &[&str]| pool.cli(&[&["model", "load"], arguments].concat()).run();
    let second = format!("m={}", file(pool.folder(), 2).display());
    let said = load(&[&second, "--keep"]).output();
    assert!(said.contains("version 2 serves `m`, beside version 1"), "{said}");
    let of = |name: &str| version(&answer(ask(&client, request(name))));
    assert_eq!([of("m"), of("m:1"), of("m:2")], [2, 1, 2]);
    // One below does not take over.
    load(&[&second, "--version", "2"]).complains(2, &["there is a version 2 of `m` already"]);
    load(&["m:2=x.onnx", "--version", "2"]).complains(2, &["leave --version out"]);
    let fifth = format!("m={}", file(pool.folder(), 5).display());
    let said = load(&[&fifth, "--version", "5", "--keep"]).output();
    assert!(said.contains("version 5 serves `m`, beside versions 1, 2"), "{said}");
    let said = load(&[&fifth, "--version", "4", "--keep"]).output();
    assert!(said.contains("version 5 serves `m`, beside versions 1, 2, 4"), "{said}");
    pool.cli(&["model", "unload", "m:4"]).run().output();
    let get = |path: &str| {
        let got = Web::open(&pool).ask("GET", path, "", b"");
        (got.status, String::from_utf8_lossy(&got.body).into_owned())
    };
    let versions =
        |text: &str| serde_json::from_str::<Value>(text).expect("JSON")["versions"].clone();
    eventually("the gateway to know all", || match get("/v2/models/m") {
        (200, text) if versions(&text) == json!(["1", "2", "5"]) => Ok(()),
        other => Err(format!("{other:?}")),
    });
    assert_eq!(get("/v2/models/m/versions/2").0, 200);
    let unknown = get("/v2/models/m/versions/3");
    assert!(unknown.0 == 404 && unknown.1.contains("no version"), "{unknown:?}");
    let why = client.submit(request("m:3")).expect_err("there is none").to_string();
    assert!(why.contains("no version"), "{why}");
    let said = pool.cli(&["model", "unload", "m:5"]).run().output();
    assert!(said.contains("`m:5` is unloaded"), "{said}");
    assert_eq!([of("m"), of("m:1")], [2, 1], "back to the one before");
    let said = pool.cli(&["upgrade"]).run().output();
    assert!(said.contains("serves in place of"), "{said}");
    assert_eq!([of("m"), of("m:1")], [2, 1], "the successor has both");
    let said = pool.cli(&["model", "unload", "m"]).run().output();
    assert!(said.contains("versions 1, 2 are unloaded of `m`"), "{said}");
    client.submit(request("m")).expect_err("there is none left");
}
