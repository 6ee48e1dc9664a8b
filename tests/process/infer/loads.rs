//! Loads that users follow and end, and pools that start with a model that cannot be loaded.

use std::thread::{self, JoinHandle};

use gridpool_client::ClientError;
use gridpool_protocol::status::LoadPhase;
use gridpool_protocol::tensor::options::{ModelOptions, ModelPlan};
use nix::sys::signal::Signal;

use super::*;
use crate::processes::signal;
use crate::wait::eventually_so;

/// A model whose load never ends, as the next one of its name, or with so many seconds.
fn endless(load_timeout_s: Option<u32>) -> ModelPlan {
    let options = ModelOptions { load_timeout_s, ..ModelOptions::default() };
    ModelPlan { name: "endless".to_owned(), path: model("endless"), options }
}

/// Waits until a device warms the endless model up.
fn is_warming(pool: &Pool) {
    eventually("the endless model to be warmed up", || {
        let loads = pool.status().loads;
        let is_it = |load: &gridpool_protocol::status::LoadStatus| {
            load.model == "endless" && load.phase == LoadPhase::Warming
        };
        if loads.iter().any(is_it) { Ok(()) } else { Err(format!("{loads:?}\n{}", pool.log())) }
    });
}

/// Begins to load it.
fn begins(pool: &Pool) -> JoinHandle<Result<String, ClientError>> {
    let client = pool.client();
    let load = thread::spawn(move || client.load_model(endless(None)));
    is_warming(pool);
    load
}

/// Waits until nothing is left of it.
fn is_gone(pool: &Pool) {
    eventually("the process of the endless model to end", || {
        let status = pool.status();
        let is_left = status.workers.iter().any(|row| row.group == "endless" && row.pid != 0);
        if is_left || !status.loads.is_empty() { Err(format!("{status:?}")) } else { Ok(()) }
    });
}

#[test]
fn a_load_ends_at_its_deadline_and_says_how_far_it_was() {
    let Some(pool) = pool(&["three_outputs"]) else { return };
    let client = pool.client();
    let why = within("the deadline", move || client.load_model(endless(Some(1))));
    let why = why.expect_err("it never ends").to_string();
    let device = one().1;
    let want = format!("`endless` cannot be loaded: that took longer than it may ({device}");
    assert!(why.contains(&want) && why.contains(": warming up)"), "{why}");
    is_gone(&pool);
    is_right(&answer(ask(&pool.client(), rows(1, 2).1)), &rows(1, 2).0);
    let load = ["model", "load", "--deadline", "1"];
    let at = format!("endless={}", model("endless").display());
    pool.cli(&load).arg(&at).run().complains(1, &["that took longer than it may", "--deadline"]);
}

#[test]
fn an_unload_ends_the_load_of_a_model_and_nothing_waits_for_it() {
    let Some(pool) = pool(&["three_outputs"]) else { return };
    let load = begins(&pool);
    // Another one is loaded beside it.
    let beside = ModelPlan { name: "mlp".to_owned(), path: model("mlp"), ..endless(None) };
    pool.client().load_model(beside).expect("it loads");
    let said = pool.cli(&["status"]).run().output();
    assert!(said.contains("loads `endless`: warming up"), "{said}");
    assert!(!load.is_finished());
    let said = pool.client().unload_model("endless").expect("it is being loaded");
    assert_eq!(said, "the load of `endless` is given up");
    let why = load.join().expect("no panic").expect_err("it was unloaded").to_string();
    assert!(why.contains("an unload of it has ended the load"), "{why}");
    is_gone(&pool);
    // The name is free.
    let other = ModelPlan { path: model("mlp"), ..endless(None) };
    pool.client().load_model(other).expect("it loads");
}

#[test]
fn the_end_of_the_command_ends_its_load() {
    let Some(pool) = pool(&["three_outputs"]) else { return };
    let at = format!("endless={}", model("endless").display());
    let load = pool.cli(&["model", "load"]).arg(&at).start();
    is_warming(&pool);
    // Not SIGINT: a shell's background jobs, and what they start, ignore it.
    signal(load.process.pid(), Signal::SIGTERM);
    is_gone(&pool);
    let why = pool.client().unload_model("endless").expect_err("it is not there").to_string();
    assert!(why.contains("there is three_outputs"), "{why}");
}

#[test]
fn a_pool_with_a_model_that_cannot_be_loaded_ends_unless_it_is_to_keep_going() {
    if !has_runtime() {
        return;
    }
    let models =
        ["three_outputs", "four_bits"].map(|name| format!("{name}={}", model(name).display()));
    let setup = || one().0.args(&["--model", &models[0], "--model", &models[1]]);
    let setup_ended = setup();
    let mut serve = setup_ended.serve();
    assert_eq!(within("the pool to end", move || serve.exit()).code(), Some(1));
    let log = setup_ended.log();
    assert!(log.contains("the model `four_bits` cannot be loaded"), "{log}");
    assert!(log.contains("numbers of 4 bits"), "{log}");
    assert!(log.contains("`--keep-going` serves without it"), "{log}");
    // A file that is not there is a wrong configuration, which systemd does not try again.
    let setup_refused = one().0.args(&["--model", "lost=/no/such.onnx"]);
    let mut serve = setup_refused.serve();
    assert_eq!(within("the pool to end", move || serve.exit()).code(), Some(78));
    let log = setup_refused.log();
    let said = "the model `lost`: there is no file /no/such.onnx: name the model's ONNX file; `--keep-going` serves";
    assert!(log.contains(said), "{log}");
    let pool = setup().args(&["--keep-going", "--model", "lost=/no/such.onnx"]).start();
    eventually_so("the other to serve", || {
        pool.observer().models().is_ok_and(|rows| rows.len() == 3)
    });
    is_right(&answer(ask(&pool.client(), rows(1, 2).1)), &rows(1, 2).0);
    let missing = pool.status().missing;
    assert_eq!(missing.iter().map(|row| &*row.model).collect::<Vec<_>>(), ["four_bits", "lost"]);
    let said = pool.cli(&["status"]).run().output();
    assert!(said.contains("no device has the model `four_bits`: cpu0"), "{said}");
    // Once the pool has come up, a load that fails ends nothing.
    let pool = one().0.args(&["--model", &models[0]]).start();
    eventually_so("it to serve", || pool.observer().models().is_ok_and(|rows| rows.len() == 1));
    let wrong = ModelPlan { path: model("four_bits"), ..endless(None) };
    pool.client().load_model(wrong).expect_err("it cannot be served");
    is_right(&answer(ask(&pool.client(), rows(1, 2).1)), &rows(1, 2).0);
}
