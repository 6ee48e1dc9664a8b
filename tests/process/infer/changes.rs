//! Models that are loaded, unloaded and given contexts while the pool serves.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use gridpool_client::ClientError;
use gridpool_protocol::message::Refusal;
use gridpool_protocol::status::{WorkerState, WorkerStatus};
use gridpool_protocol::tensor::options::{ModelOptions, ModelPlan};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use super::*;
use crate::processes::{go_on, stop};
use crate::wait::SetAtEnd;

/// A model of tests/data/models under its own name.
fn plan(name: &str) -> ModelPlan {
    ModelPlan { name: name.to_owned(), path: model(name), options: ModelOptions::default() }
}

/// The same in the worker of another.
fn plan_beside(name: &str, other: &str) -> ModelPlan {
    let options = ModelOptions { group: Some(other.to_owned()), ..ModelOptions::default() };
    ModelPlan { options, ..plan(name) }
}

/// The rows of the workers that hold models.
fn holders(pool: &Pool) -> Vec<WorkerStatus> {
    pool.status().workers.into_iter().filter(|row| row.role == "infer").collect()
}

/// The worker that holds models, READY.
fn holder(pool: &Pool) -> WorkerStatus {
    eventually("a worker that holds models", || match holders(pool).as_slice() {
        [row] if row.state == WorkerState::Ready => Ok(row.clone()),
        rows => Err(format!("{rows:?}\n{}", pool.log())),
    })
}

/// What each worker says that it has: worker, model, contexts.
fn listed(pool: &Pool) -> Vec<(String, String, u32)> {
    let rows = pool.observer().models().expect("the pool says which");
    let ready = rows.into_iter().filter(|row| row.model.state == ModelState::Ready);
    ready.map(|row| (row.worker, row.model.name, row.model.contexts)).collect()
}

#[track_caller]
fn refused(result: Result<String, ClientError>) -> String {
    match result {
        Err(ClientError::Refused(Refusal::Invalid(why) | Refusal::Unable(why))) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_pool_without_models_gets_one_and_when_it_has_none_again_its_worker_ends() {
    if !has_runtime() {
        return;
    }
    let pool = one().0.start();
    let first = first();
    let client = pool.client();
    let grid_workers = pool.pids();
    let job = || rows(3, 5).1;
    let why = client.submit(job()).expect_err("there is no model").to_string();
    assert!(why.contains("`gridpool model load NAME=PATH`"), "{why}");
    assert_eq!(
        client.load_model(plan("three_outputs")).expect("it loads"),
        format!("`three_outputs` is loaded on {first}")
    );
    is_right(&answer(ask(&client, job())), &rows(3, 5).0);
    assert_eq!(
        client.unload_model("three_outputs").expect("it is there"),
        format!("`three_outputs` is unloaded from {first}")
    );
    client.submit(job()).expect_err("there is no model any more");
    eventually("the workers that held models to end", || {
        let rows = holders(&pool);
        if rows.is_empty() { Ok(()) } else { Err(format!("{rows:?}")) }
    });
    // As often as one likes, and nothing of it touches grids.
    client.load_model(plan("three_outputs")).expect("it loads again");
    is_right(&answer(ask(&client, job())), &rows(3, 5).0);
    serves(&client);
    assert!(grid_workers.iter().all(|pid| pool.pids().contains(pid)));
    assert_eq!(pool.status().counters.restarts, 0);
}

#[test]
fn a_load_that_fails_changes_nothing_and_says_why_with_the_hash() {
    let Some(pool) = pool(&["three_outputs"]) else { return };
    let client = pool.client();
    let before = (holder(&pool).pid, listed(&pool));
    let why = refused(client.load_model(plan("four_bits")));
    let want = format!("`four_bits` cannot be loaded: {}#3: its input `x` holds", one().1);
    assert!(why.starts_with(&want), "{why}");
    assert!(why.contains("sha256"), "{why}");
    let again = ModelPlan { name: "three_outputs:1".to_owned(), ..plan("three_outputs") };
    let why = refused(client.load_model(again));
    assert!(why.contains("there is a version 1 of `three_outputs` already"), "{why}");
    let wrong = ModelPlan { path: "m.onnx".into(), ..plan("mlp") };
    assert!(refused(client.load_model(wrong)).contains("not an absolute path"));
    let options = ModelOptions { contexts: 0.into(), ..ModelOptions::default() };
    let why = refused(client.load_model(ModelPlan { options, ..plan("mlp") }));
    assert!(why.contains("0 contexts: write 1 to 64"), "{why}");
    // Nobody writes into it, so opening it would last for ever, and every order after it.
    let pipe = pool.folder().join("pipe");
    mkfifo(&pipe, Mode::S_IRWXU).expect("a pipe can be made");
    let (asks, pipe) = (client.clone(), ModelPlan { path: pipe, ..plan("mlp") });
    let why = refused(within("the pipe to be refused", move || asks.load_model(pipe)));
    assert!(why.contains("it is no regular file"), "{why}");
    assert!(refused(client.unload_model("mlp")).contains("there is three_outputs"));
    assert!(refused(client.set_contexts("mlp", 2)).contains("there is three_outputs"));
    assert!(refused(client.set_contexts("three_outputs", 65)).contains("write 1 to 64"));
    assert_eq!((holder(&pool).pid, listed(&pool)), before);
    is_right(&answer(ask(&client, rows(1, 2).1)), &rows(1, 2).0);
}

#[test]
fn the_exit_code_of_a_load_tells_a_user_error_from_a_failure() {
    let nowhere = gridpool(["model", "load", "--socket", "/nowhere/pool.sock"]);
    let good = format!("m={}", model("mlp").display());
    nowhere.arg(&good).run().complains(69, &["no pool is running at /nowhere/pool.sock"]);
    let folder = tempfile::tempdir().expect("a folder for temporary files");
    let json = folder.path().join("m.onnx");
    fs::write(&json, "{}").expect("a file can be written");
    let load = |arguments: &[&str]| gridpool(["model", "load"].iter().chain(arguments)).run();
    load(&["m"]).complains(2, &["write NAME=PATH"]);
    load(&[&good, "--set", "contexts=0"]).complains(2, &["0 contexts: write 1 to 64"]);
    load(&["m=/no/m.onnx"]).complains(65, &["there is no file /no/m.onnx: name the model's ONNX"]);
    load(&["m=/"]).complains(65, &["/ is a folder: name the model's ONNX file in it"]);
    let pipe = folder.path().join("pipe");
    mkfifo(&pipe, Mode::S_IRWXU).expect("a pipe can be made");
    for path in ["/dev/zero", &pipe.display().to_string()] {
        load(&[&format!("m={path}")]).complains(65, &[path, "it is no regular file"]);
    }
    let other = format!("{} is not an ONNX model: it is another kind of file", json.display());
    load(&[&format!("m={}", json.display())]).complains(65, &[&other]);

    let pool = cpu(1).env("ORT_DYLIB_PATH", "/nonexistent/libort.so").start();
    let refused = pool.cli(&["model", "load"]).arg(&good).run();
    refused.complains(1, &["`m` cannot be loaded", "/nonexistent/libort.so (from ORT_DYLIB_PATH)"]);
    pool.cli(&["model", "unload", "m"]).run().complains(2, &["`m`"]);
}

#[test]
fn a_first_model_that_does_not_load_leaves_a_pool_without_models() {
    if !has_runtime() {
        return;
    }
    let pool = one().0.start();
    let why = refused(pool.client().load_model(plan("four_bits")));
    assert!(why.contains("holds numbers of 4 bits"), "{why}");
    eventually("its worker to end", || {
        let rows = holders(&pool);
        if rows.is_empty() { Ok(()) } else { Err(format!("{rows:?}")) }
    });
    serves(&pool.client());
}

#[test]
fn a_model_that_no_device_can_hold_is_refused_with_what_to_do() {
    let pool = cpu(1).env("ORT_DYLIB_PATH", "/nonexistent/libort.so").start();
    let why = refused(pool.client().load_model(plan("mlp")));
    assert!(why.contains("/nonexistent/libort.so (from ORT_DYLIB_PATH)"), "{why}");
    serves(&pool.client());
}

#[test]
fn contexts_change_under_load_and_no_request_is_lost() {
    let Some(pool) = pool(&["three_outputs"]) else { return };
    let is_over = AtomicBool::new(false);
    let asked = std::thread::scope(|scope| {
        let askers: Vec<_> = (0..4)
            .map(|number| {
                let (client, is_over) = (pool.client(), &is_over);
                scope.spawn(move || {
                    let mut asked = 0;
                    while !is_over.load(Ordering::Relaxed) {
                        let (numbers, job) = rows(number, 1 + asked % 40);
                        is_right(&answer(ask(&client, job)), &numbers);
                        asked += 1;
                    }
                    asked
                })
            })
            .collect();
        let ends = SetAtEnd(&is_over);
        let client = pool.client();
        for contexts in [4, 2, 8, 1, 3] {
            client.set_contexts("three_outputs", contexts).expect("there is room");
            let want = (first(), "three_outputs".to_owned(), contexts);
            assert_eq!(listed(&pool), [want]);
        }
        drop(ends);
        askers.into_iter().map(|asker| asker.join().expect("every answer is right")).sum::<u64>()
    });
    let counters = pool.status().counters;
    assert_eq!((counters.ok, counters.attempts), (asked, asked));
}

#[test]
fn a_later_worker_loads_the_models_of_that_time() {
    let Some(pool) = pool(&["three_outputs"]) else { return };
    let client = pool.client();
    client.load_model(plan_beside("mlp", "three_outputs")).expect("it loads");
    client.set_contexts("three_outputs", 3).expect("there is room");
    client.kill(named(&first()), 9).expect("it is there");
    let worker = eventually("the next worker", || match holders(&pool).as_slice() {
        [row] if row.generation > 2 && row.state == WorkerState::Ready => Ok(row.name.clone()),
        rows => Err(format!("{rows:?}")),
    });
    let want = [("mlp", 1), ("three_outputs", 3)];
    let want = want.map(|(name, contexts)| (worker.clone(), name.to_owned(), contexts));
    assert_eq!(listed(&pool), want);
}

#[test]
fn a_worker_that_is_killed_while_it_loads_costs_the_load_and_nothing_else() {
    let Some(pool) = pool(&["three_outputs"]) else { return };
    let client = pool.client();
    let worker = holder(&pool);
    // It is ordered, and cannot do it before it is killed.
    stop(worker.pid);
    let load = std::thread::spawn({
        let client = pool.client();
        move || client.load_model(plan_beside("mlp", "three_outputs"))
    });
    eventually("the load to be under way", || match client.set_contexts("three_outputs", 65) {
        Err(error) if error.to_string().contains("being loaded") => Ok(()),
        other => Err(format!("{other:?}")),
    });
    let why = refused(client.unload_model("three_outputs"));
    assert!(why.contains("`mlp` is being loaded; try again"), "{why}");
    client.kill(named(&worker.name), 9).expect("it is there");
    let why = refused(load.join().expect("no panic"));
    assert!(why.contains("ended before it had answered the command"), "{why}");
    let next = holder(&pool);
    assert_eq!(listed(&pool), [(next.name, "three_outputs".to_owned(), 1)]);
    is_right(&answer(ask(&client, rows(1, 2).1)), &rows(1, 2).0);
}

/// An unload of the model that is under way.
fn unloading(pool: &Pool) -> std::thread::JoinHandle<Result<String, ClientError>> {
    let client = pool.client();
    let unload = std::thread::spawn(move || client.unload_model("three_outputs"));
    let client = pool.client();
    eventually("the unload to be under way", || match client.set_contexts("three_outputs", 65) {
        Err(error) if error.to_string().contains("being unloaded") => Ok(()),
        other => Err(format!("{other:?}")),
    });
    unload
}

#[test]
fn a_model_that_is_unloaded_runs_what_it_has_and_takes_nothing_new() {
    let Some(pool) = pool(&["three_outputs"]) else { return };
    let client = pool.client();
    let worker = holder(&pool);
    stop(worker.pid);
    // More than a worker takes at a time: some wait in the supervisor.
    let asked: Vec<_> = (0..40).map(|number| (number, ask(&client, rows(number, 2).1))).collect();
    let unload = unloading(&pool);
    let why = client.submit(rows(1, 1).1).expect_err("it takes nothing new").to_string();
    assert!(why.contains("no models"), "{why}");
    go_on(worker.pid);
    for (number, handle) in asked {
        is_right(&answer(handle), &rows(number, 2).0);
    }
    let done = unload.join().expect("no panic").expect("it was there");
    assert_eq!(done, format!("`three_outputs` is unloaded from {}", first()));
}

#[test]
fn the_command_loads_gives_contexts_and_unloads() {
    let Some(pool) = pool(&["three_outputs"]) else { return };
    let (path, first) = (model("mlp"), format!("{}#3", one().1));
    let folder = path.parent().expect("it lies in a folder");
    let command =
        |arguments: &[&str]| pool.cli(&[&["model"], arguments].concat()).current_dir(folder);
    let load = ["load", "mlp=mlp.onnx", "--set", "contexts=2", "--set", "cpu_ops=[\"Shape\"]"];
    assert_eq!(command(&load).run().output(), format!("`mlp` is loaded on {first}\n"));
    assert_eq!(
        command(&["contexts", "mlp", "1"]).run().output(),
        format!("`mlp` has 1 context on {first}\n")
    );
    assert_eq!(
        command(&["unload", "mlp"]).run().output(),
        format!("`mlp` is unloaded from {first}\n")
    );
    let missing = command(&["load", "mlp=nothing.onnx"]).run();
    missing.complains(65, &["there is no file ", "nothing.onnx: name the model's ONNX file"]);
    let wrong: [(&[&str], &str); 6] = [
        (&["load", "mlp"], "write NAME=PATH"),
        (&["load", "mlp=mlp.onnx", "--set", "contexts"], "write KEY=VALUE"),
        (&["load", "mlp=mlp.onnx", "--set", "contexts=many"], "`contexts` needs a whole number"),
        (&["load", "mlp=mlp.onnx", "--set", "context=1"], "has no field `context`; the fields are"),
        (&["load", "mlp=mlp.onnx", "--set", "path=\"x\""], "write NAME=PATH first"),
        (&["unload", "mlp"], "there is no model `mlp`; there is three_outputs"),
    ];
    for (arguments, why) in wrong {
        command(arguments).run().complains(2, &[why]);
    }
}

#[test]
fn a_worker_that_dies_during_an_unload_loses_no_request() {
    let Some(pool) = pool(&["three_outputs"]) else { return };
    let client = pool.client();
    let worker = holder(&pool);
    stop(worker.pid);
    let asked: Vec<_> = (0..5).map(|number| (number, ask(&client, rows(number, 2).1))).collect();
    let unload = unloading(&pool);
    client.kill(named(&worker.name), 9).expect("it is there");
    for (number, handle) in asked {
        is_right(&answer(handle), &rows(number, 2).0);
    }
    unload.join().expect("no panic").expect("it was there");
    assert!(listed(&pool).is_empty());
}

#[test]
fn the_last_model_can_be_unloaded_and_another_loaded_at_once() {
    let Some(pool) = pool(&["three_outputs"]) else { return };
    let client = pool.client();
    for _ in 0..5 {
        client.unload_model("three_outputs").expect("it is there");
        client.load_model(plan("three_outputs")).expect("there is room");
        is_right(&answer(ask(&client, rows(3, 5).1)), &rows(3, 5).0);
    }
    assert_eq!(pool.status().counters.restarts, 0);
}

#[test]
fn an_upgrade_keeps_the_models_as_they_were_changed() {
    let Some(pool) = pool(&["three_outputs"]) else { return };
    let upgraded = || {
        let said = pool.cli(&["upgrade"]).run().output();
        assert!(said.contains("serves in place of"), "{said}");
        let of_first = |(_, name, contexts): (String, String, u32)| (name, contexts);
        // Models are listed by worker, in the order in which their groups got workers.
        listed(&pool).into_iter().map(of_first).collect::<BTreeSet<_>>()
    };
    let client = pool.client();
    client.load_model(plan("mlp")).expect("it loads");
    client.set_contexts("three_outputs", 2).expect("it has them");
    assert_eq!(upgraded(), [("mlp".to_owned(), 1), ("three_outputs".to_owned(), 2)].into());
    is_right(&answer(ask(&client, rows(3, 5).1)), &rows(3, 5).0);
    client.unload_model("three_outputs").expect("it is there");
    assert_eq!(upgraded(), [("mlp".to_owned(), 1)].into());
    let gone = client.submit(rows(3, 5).1).expect_err("it stays unloaded").to_string();
    assert!(gone.contains("there is no model `three_outputs`; there is mlp"), "{gone}");
}

#[test]
fn an_upgrade_that_would_lose_a_model_is_refused_and_the_pool_goes_on() {
    let Some(pool) = pool(&["mlp"]) else { return };
    let copy = pool.folder().join("copy.onnx");
    fs::copy(model("three_outputs"), &copy).expect("it can be copied");
    let client = pool.client();
    client.load_model(ModelPlan { path: copy.clone(), ..plan("three_outputs") }).expect("it loads");
    fs::remove_file(&copy).expect("it is ours");
    let refused = pool.cli(&["upgrade"]).run();
    refused.complains(1, &["the model `three_outputs` serves in the pool that runs", "copy.onnx"]);
    is_right(&answer(ask(&client, rows(3, 5).1)), &rows(3, 5).0);
    // A model that never loaded is no reason.
    client.unload_model("three_outputs").expect("it is there");
    assert!(pool.cli(&["upgrade"]).run().output().contains("serves in place of"));
}

#[test]
fn a_file_that_is_overwritten_is_served_by_no_worker_until_the_model_is_loaded_again() {
    let Some(pool) = pool(&["mlp"]) else { return };
    let (path, client) = (pool.folder().join("m.onnx"), pool.client());
    fs::copy(model("three_outputs"), &path).expect("it can be copied");
    let load = || client.load_model(ModelPlan { path: path.clone(), ..plan("three_outputs") });
    load().expect("it loads");
    fs::copy(model("two_inputs"), &path).expect("it can be overwritten");
    let why = "has changed since the model was loaded";
    pool.cli(&["upgrade"]).run().complains(1, &["`three_outputs` serves in the pool", why]);
    is_right(&answer(ask(&client, rows(3, 5).1)), &rows(3, 5).0);
    client.kill(named(&format!("{}/three_outputs", one().1)), 9).expect("it is there");
    let said = eventually("the next worker to refuse it", || {
        let rows = pool.observer().models().map_err(|error| error.to_string())?;
        let row = rows.into_iter().find(|row| row.model.name == "three_outputs");
        row.filter(|row| row.model.state == ModelState::Unavailable)
            .map(|row| row.model.reason)
            .ok_or_else(|| pool.log())
    });
    assert!(said.contains(why) && said.contains("gridpool model unload three_outputs"), "{said}");
    let asked = client.submit(rows(3, 5).1).map(|handle| answer(handle).verdict());
    assert_ne!(asked.ok(), Some(Verdict::Ok), "no worker has the file that was loaded");
    client.unload_model("three_outputs").expect("it is there");
    load().expect("the new file loads");
    let rows = pool.observer().models().expect("the pool says which");
    let row = rows.iter().find(|row| row.model.name == "three_outputs").expect("it is loaded");
    assert_eq!(row.model.inputs.len(), 2, "it is the new file");
}
