//! Models that are not ready, not loaded yet, or unloaded. The gateway finds out by a probe, and only if a
//! client asks.

use std::thread;

use gridpool_infer::library::Places;
use gridpool_protocol::ids::DeviceId;
use gridpool_protocol::status::WorkerStatus;
use gridpool_protocol::tensor::options::{ModelOptions, ModelPlan};
use nix::sys::signal::Signal;

use super::super::request;
use super::*;

const READY: &str = "/v2/models/three_outputs/ready";

/// Requests that the worker of models has answered.
fn answered(pool: &Pool) -> u64 {
    worker(pool).jobs_done
}

#[test]
fn a_model_is_probed_only_if_a_client_asks_and_no_recent_run_proves_it_ready() {
    let Some(pool) = served(&["three_outputs"]) else { return };
    assert_eq!(answered(&pool), 0, "no client has asked");
    assert_eq!(get(&pool, READY).status, 200);
    assert_eq!(answered(&pool), 1, "a probe");
    for _ in 0..5 {
        assert_eq!(get(&pool, READY).status, 200);
    }
    until_ready(&pool);
    assert_eq!(answered(&pool), 1, "the probe proves it for a while");
    let row = get(&pool, "/v2/models/three_outputs/stats").json()["model_stats"][0].clone();
    assert_eq!(row["inference_count"], 0, "no client sent that");

    let other = served(&["three_outputs"]).expect("there is a runtime");
    assert_eq!(post(&other, INFER, &rows(1, 1)).status, 200);
    assert_eq!(get(&other, READY).status, 200);
    assert_eq!(answered(&other), 1, "a client's request proves it as well");
}

#[test]
fn clients_that_ask_at_once_share_one_probe() {
    let Some(pool) = served(&["three_outputs"]) else { return };
    let pid = worker(&pool).pid;
    stop(pid);
    let before = pool.status().counters.accepted;
    let asking: Vec<_> = (0..8)
        .map(|_| {
            let mut web = Web::open(&pool);
            web.send(&request("GET", READY, "", b""));
            thread::spawn(move || web.hear())
        })
        .collect();
    pool.until_status("a probe", |status| status.counters.accepted > before);
    go_on(pid);
    for one in asking {
        let answer = within("an answer", || one.join().expect("an answer"));
        assert!([200, 503].contains(&answer.status), "it may have come too late: {answer:?}");
    }
    until_status_of(&pool, READY, 200);
    assert_eq!(answered(&pool), 1);
}

#[test]
fn a_model_whose_worker_is_stopped_is_not_ready_although_the_worker_says_so() {
    let Some(pool) = served(&["three_outputs"]) else { return };
    let pid = worker(&pool).pid;
    stop(pid);
    get(&pool, READY)
        .complains(503, "the probe of the model `three_outputs` has not returned for 2 s");
    let index = post(&pool, "/v2/repository/index", &json!({})).json().to_string();
    assert!(index.contains("three_outputs"), "{index}");
    go_on(pid);
    assert_eq!(until_status_of(&pool, READY, 200).status, 200);
}

#[test]
fn models_of_workers_that_have_died_are_not_ready_until_others_have_come() {
    let Some(setup) = setup(&["three_outputs"]) else { return };
    let library = setup.folder().join("libonnxruntime.so");
    let real = Places::here(None).find().expect("there is one").swap_remove(0);
    let link = || std::os::unix::fs::symlink(&real, &library).expect("a link can be made");
    link();
    let path = library.to_str().expect("a plain path").to_owned();
    let pool = early(setup.env("ORT_DYLIB_PATH", &path));
    told(&pool, &["three_outputs"]);
    until_ready(&pool);
    // Without the library no other worker can start.
    std::fs::remove_file(&library).expect("the link is ours");
    signal(worker(&pool).pid, Signal::SIGKILL);
    let why = "no worker of the group `three_outputs` serves now: cpu0 is out of service until \
               `gridpool release cpu0` (";
    eventually("the device to be out of service", || {
        let answer = get(&pool, READY);
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        if answer.status == 503 && text.contains(why) { Ok(()) } else { Err(text) }
    });
    for path in [READY, "/v2/health/ready"] {
        let answer = get(&pool, path);
        assert_eq!(
            (answer.status, answer.header("retry-after")),
            (503, None),
            "{path}: {answer:?}"
        );
    }
    assert_eq!(get(&pool, "/v2/models/rot90/ready").status, 200, "grids are still served");
    assert_eq!(get(&pool, "/v2/models/three_outputs").status, 200, "its metadata is known");
    let answer = post(&pool, INFER, &rows(1, 1));
    assert_eq!(answer.status, 503, "{answer:?}");
    assert!(String::from_utf8_lossy(&answer.body).contains("DEVICE_LOST"), "{answer:?}");
    let index = post(&pool, "/v2/repository/index", &json!({"ready": true})).json().to_string();
    assert!(!index.contains("three_outputs") && index.contains("rot90"), "{index}");
    link();
    pool.observer()
        .release("cpu0".parse::<DeviceId>().expect("a device"))
        .expect("it is out of service");
    until_status_of(&pool, READY, 200);
    assert_eq!(post(&pool, INFER, &rows(1, 1)).status, 200);
    until_ready(&pool);
}

#[test]
fn a_model_that_the_next_worker_cannot_load_is_not_ready_and_says_why() {
    if !has_runtime() {
        return;
    }
    let setup = with_http(cpu(1));
    let file = setup.folder().join("own.onnx");
    std::fs::copy(model("three_outputs"), &file).expect("it can be copied");
    let setup = setup.args(&["--model", &format!("own={}", file.display())]);
    let pool = early(setup);
    until_status_of(&pool, "/v2/models/own/ready", 200);
    until_ready(&pool);
    std::fs::write(&file, "no model").expect("it can be written");
    let WorkerStatus { pid, generation, .. } = worker(&pool);
    signal(pid, Signal::SIGKILL);
    eventually("another worker", || {
        let now = worker(&pool);
        if now.generation > generation { Ok(()) } else { Err(format!("{now:?}")) }
    });
    let why = eventually("the new worker's word", || {
        let answer = get(&pool, "/v2/models/own/ready");
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        if text.contains("cpu0#") && !text.contains("no worker") { Ok(answer) } else { Err(text) }
    });
    assert_eq!(why.status, 503, "{why:?}");
    let body = rows(1, 1);
    post(&pool, "/v2/models/own/infer", &body)
        .complains(503, "the model `own` is unavailable: cpu0#");
    get(&pool, "/v2/health/ready").complains(503, "no model is ready; `own`: cpu0#");
}

#[test]
fn a_pool_that_cannot_serve_models_says_what_to_install_and_not_to_come_back_at_once() {
    let file = model("three_outputs");
    let setup = with_http(cpu(1)).args(&["--keep-going"]);
    let setup = setup.args(&["--model", &format!("three_outputs={}", file.display())]);
    let pool = early(setup.env("ORT_DYLIB_PATH", "/nonexistent/libort.so"));
    let answer = eventually("no worker for models to start", || {
        let answer = post(&pool, INFER, &rows(1, 1));
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        let says = "no worker for models can start on cpu0 (cpu0#";
        if text.contains(says) { Ok(answer) } else { Err(text) }
    });
    assert_eq!((answer.status, answer.header("retry-after")), (503, None), "{answer:?}");
    let said = answer.json()["error"].as_str().expect("a text").to_owned();
    assert!(said.contains("/nonexistent/libort.so (from ORT_DYLIB_PATH)"), "{said}");
    until_status_of(&pool, "/v2/models/rot90/ready", 200);
    let why = ["/nonexistent/libort.so (from ORT_DYLIB_PATH)", "`gridpool release cpu0`"];
    for path in [READY, "/v2/health/ready", "/v2/models/three_outputs"] {
        let answer = get(&pool, path);
        assert_eq!(answer.status, 503, "{path}: {answer:?}");
        let text = String::from_utf8_lossy(&answer.body);
        assert!(why.iter().all(|words| text.contains(words)), "{path}: {text}");
    }
}

#[test]
fn a_model_with_the_name_of_an_op_is_refused_with_another_name() {
    let file = model("three_outputs");
    let named = format!("rot90={}", file.display());
    let rename = "name it rot90_model, for instance";
    let setup = with_http(cpu(1)).args(&["--model", &named]);
    let mut serve = setup.serve();
    assert_eq!(within("the pool to end", move || serve.exit()).code(), Some(2));
    assert!(setup.log().contains(rename), "{}", setup.log());
    let pool = early(with_http(cpu(1)));
    pool.cli(&["model", "load", &named]).run().complains(2, &["`rot90` is built in", rename]);
    let options = ModelOptions::default();
    let plan = ModelPlan { name: "rot90".to_owned(), path: file, options };
    let why = pool.client().load_model(plan).expect_err("it is built in").to_string();
    assert!(why.contains(rename), "{why}");
    assert_eq!(get(&pool, "/v2/models/rot90").json()["platform"], "gridpool");
}

#[test]
fn an_unknown_name_is_not_found_whatever_becomes_of_other_models() {
    let Some(setup) = setup(&["three_outputs", "endless", "four_bits"]) else { return };
    let pool = early(setup);
    until_status_of(&pool, READY, 200);
    until_ready(&pool);
    for path in ["nope/ready", "nope", "endless/versions/7", "endless/versions/x"] {
        let answer = get(&pool, &format!("/v2/models/{path}"));
        assert_eq!(answer.status, 404, "{path}: {answer:?}");
    }
    eventually("the load to be told", || {
        let loads = get(&pool, "/v2/models/endless/ready");
        let text = String::from_utf8_lossy(&loads.body).into_owned();
        let told = loads.status == 503 && text.contains("is loading it: warming up");
        if told { Ok(()) } else { Err(format!("{} {text}", loads.status)) }
    });
    let ready = get(&pool, "/v2/health/ready");
    assert_eq!((ready.status, ready.json()), (200, json!({ "missing": ["four_bits"] })));
}
