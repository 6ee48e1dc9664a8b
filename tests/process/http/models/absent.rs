//! Models that are not ready, not there yet, not there any more, and how that is found out: by a run, and
//! only if somebody asks.

use gridpool_protocol::status::WorkerStatus;
use nix::sys::signal::Signal;

use super::*;

const READY: &str = "/v2/models/three_outputs/ready";

fn asked(pool: &Pool) -> u64 {
    worker(pool).jobs_done
}

#[test]
fn a_model_is_ready_by_a_run_and_an_idle_one_is_run_only_if_there_is_no_other_proof() {
    let Some(pool) = served(&["three_outputs"]) else { return };
    assert_eq!(asked(&pool), 0, "nobody has asked");
    assert_eq!(get(&pool, READY).status, 200);
    assert_eq!(asked(&pool), 1, "a trial");
    for _ in 0..5 {
        assert_eq!(get(&pool, READY).status, 200);
    }
    until_ready(&pool);
    assert_eq!(asked(&pool), 1, "the trial proves it for a while");
    let row = get(&pool, "/v2/models/three_outputs/stats").json()["model_stats"][0].clone();
    assert_eq!(row["inference_count"], 0, "nobody sent that");

    let other = served(&["three_outputs"]).expect("there is a runtime");
    assert_eq!(post(&other, INFER, &rows(1, 1)).status, 200);
    assert_eq!(get(&other, READY).status, 200);
    assert_eq!(asked(&other), 1, "a request proves it as well");
}

#[test]
fn a_model_whose_worker_stands_still_is_not_ready_however_ready_it_says_it_is() {
    let Some(pool) = served(&["three_outputs"]) else { return };
    let pid = worker(&pool).pid;
    stop(pid);
    get(&pool, READY)
        .complains(503, "the trial of the model `three_outputs` has not come back for 2 s");
    let index = post(&pool, "/v2/repository/index", &json!({})).json().to_string();
    assert!(index.contains("three_outputs"), "{index}");
    go_on(pid);
    assert_eq!(until_status_of(&pool, READY, 200).status, 200);
}

#[test]
fn models_of_a_worker_that_has_died_are_not_ready_and_requests_wait_for_the_next() {
    let Some(setup) = setup(&["three_outputs"]) else { return };
    // Long enough to be looked at; the pool starts another at once if it is released.
    let pool = setup.limits("backoff_min_ms = 600000\nbackoff_max_ms = 600000\n").start_early();
    told(&pool, &["three_outputs"]);
    until_ready(&pool);
    signal(worker(&pool).pid, Signal::SIGKILL);
    let answer = until_status_of(&pool, READY, 503);
    answer.complains(503, "no worker serves models now: cpu0#");
    get(&pool, "/v2/health/ready").complains(503, "no worker serves models now");
    assert_eq!(get(&pool, "/v2/models/rot90/ready").status, 200, "grids are served all the same");
    assert_eq!(get(&pool, "/v2/models/three_outputs").status, 200, "what it was is known");
    let mut body = rows(1, 1);
    body["parameters"] = json!({"timeout": 300_000});
    post(&pool, INFER, &body).complains(504, "DEADLINE");
    let index = post(&pool, "/v2/repository/index", &json!({"ready": true})).json().to_string();
    assert!(!index.contains("three_outputs") && index.contains("rot90"), "{index}");
}

#[test]
fn a_model_that_the_next_worker_cannot_load_is_not_ready_and_says_why() {
    if !has_runtime() {
        return;
    }
    let setup = with_http(cpu(1));
    let file = setup.folder().join("own.onnx");
    std::fs::copy(model("three_outputs"), &file).expect("it can be copied");
    let pool = setup.args(&["--model", &format!("own={}", file.display())]).start_early();
    until_status_of(&pool, "/v2/models/own/ready", 200);
    until_ready(&pool);
    std::fs::write(&file, "no model").expect("it can be written");
    let WorkerStatus { pid, generation, .. } = worker(&pool);
    signal(pid, Signal::SIGKILL);
    eventually("another worker", || {
        let now = worker(&pool);
        if now.generation > generation { Ok(()) } else { Err(format!("{now:?}")) }
    });
    let words = "could not be loaded";
    let why = eventually("the new worker's word", || {
        let answer = get(&pool, "/v2/models/own/ready");
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        if text.contains("cpu0#") && !text.contains("no worker") { Ok(answer) } else { Err(text) }
    });
    assert_eq!(why.status, 503, "{words}: {why:?}");
    let body = rows(1, 1);
    post(&pool, "/v2/models/own/infer", &body)
        .complains(503, "the model `own` cannot be asked: cpu0#");
    get(&pool, "/v2/health/ready").complains(503, "no model is ready; `own`: cpu0#");
}

#[test]
fn a_pool_that_cannot_serve_models_says_what_to_install_and_not_to_come_back_at_once() {
    let file = model("three_outputs");
    let setup = with_http(cpu(1)).args(&["--model", &format!("three_outputs={}", file.display())]);
    let pool = setup.env("ORT_DYLIB_PATH", "/nonexistent/libort.so").start_early();
    let why = "out of service until `gridpool release cpu0` (";
    let answer = eventually("the device to be out of service", || {
        let answer = post(&pool, INFER, &rows(1, 1));
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        if text.contains(why) { Ok(answer) } else { Err(text) }
    });
    assert_eq!((answer.status, answer.header("retry-after")), (503, None), "{answer:?}");
    let said = answer.json()["error"].as_str().expect("a text").to_owned();
    assert!(said.contains("/nonexistent/libort.so (from ORT_DYLIB_PATH)"), "{said}");
    until_status_of(&pool, "/v2/models/rot90/ready", 200);
    for path in [READY, "/v2/health/ready", "/v2/models/three_outputs"] {
        let answer = get(&pool, path);
        assert_eq!(answer.status, 503, "{path}: {answer:?}");
        assert!(String::from_utf8_lossy(&answer.body).contains(why), "{path}: {answer:?}");
    }
}

#[test]
fn a_model_with_the_name_of_an_op_leaves_the_op_alone_and_says_so() {
    if !has_runtime() {
        return;
    }
    let file = model("three_outputs");
    let setup = with_http(cpu(1)).args(&["--model", &format!("rot90={}", file.display())]);
    let pool = setup.start_early();
    let row = eventually("the model to be listed", || {
        let index = post(&pool, "/v2/repository/index", &json!({})).json();
        let rows = index.as_array().expect("a list").iter();
        let mut named = rows.filter(|row| row["name"] == "rot90").skip(1).cloned();
        named.next().ok_or_else(|| index.to_string())
    });
    assert_eq!(row["state"], "UNAVAILABLE");
    assert!(
        row["reason"].as_str().is_some_and(|why| why.contains("is built into the gateway")),
        "{row}"
    );
    assert_eq!(get(&pool, "/v2/models/rot90").json()["platform"], "gridpool");
}
