//! A model repository in Triton's layout: read when the pool starts, changed by PyPI's client, and watched.

use std::fs;
use std::path::Path;

use gridpool_client::{ModelState, Verdict};
use gridpool_protocol::tensor::options::{ModelOptions, ModelPlan};
use nix::libc::SIGKILL;
use serde_json::{Value, json};

use super::triton::{can_be_tried, python, script};
use super::versions::{answer, ask, file, request, version};
use super::{Web, http, until_status_of, with_http};
use crate::infer::{has_runtime, model};
use crate::pool::{Pool, Setup, cpu, named};
use crate::wait::eventually;

/// Puts a version into the repository, whole at once, by a rename.
fn place(repository: &Path, name: &str, version: u16, made: &Path) {
    let draft = repository.join(format!(".{name}-{version}"));
    fs::create_dir_all(&draft).expect("a folder can be made");
    fs::copy(made, draft.join("model.onnx")).expect("a file can be copied");
    let model = repository.join(name);
    fs::create_dir_all(&model).expect("a folder can be made");
    fs::rename(draft, model.join(version.to_string())).expect("it is ours");
}

/// A pool over one device that serves a repository with version 1 of `m`.
fn setup(mode: &str) -> Option<(Setup, std::path::PathBuf)> {
    if !has_runtime() {
        return None;
    }
    let setup = with_http(cpu(1).env("GRIDPOOL_GRPC", "127.0.0.1:0"));
    let repository = setup.folder().join("repository");
    let made = file(setup.folder(), 1);
    place(&repository, "m", 1, &made);
    let path = repository.display().to_string();
    Some((setup.args(&["--model-repository", &path, "--repository", mode]), repository))
}

fn versions(pool: &Pool) -> Value {
    let got = Web::open(pool).ask("GET", "/v2/models/m", "", b"");
    let document: Value = serde_json::from_slice(&got.body).unwrap_or_default();
    document["versions"].clone()
}

#[test]
fn tritonclient_loads_swaps_and_unloads_models_of_the_repository() {
    if !can_be_tried() {
        return;
    }
    let Some((setup, repository)) = setup("request") else { return };
    let made = [1, 2].map(|factor| file(setup.folder(), factor));
    let pool = setup.start_early();
    until_status_of(&pool, "/v2/models/m", 200);
    let served = http(&pool);
    let [first, second] = &made;
    let arguments = [
        served.address.as_ref(),
        served.grpc.as_ref(),
        repository.as_os_str(),
        first.as_os_str(),
        second.as_os_str(),
    ];
    let said = script(python(), "triton_repository.py", &arguments);
    assert!(said.contains("all is as it should be"), "{said}");
}

#[test]
fn what_an_operator_has_unloaded_is_the_repositorys_no_longer() {
    let Some((setup, repository)) = setup("request") else { return };
    let path = file(setup.folder(), 1);
    let pool = setup.start_early();
    until_status_of(&pool, "/v2/models/m", 200);
    let change = |what: &str| {
        Web::open(&pool).ask("POST", &format!("/v2/repository/models/m/{what}"), "", b"")
    };
    let operator = pool.client();
    operator.unload_model("m").expect("it is there");
    let plan = ModelPlan { name: "m".to_owned(), path, options: ModelOptions::default() };
    operator.load_model(plan).expect("the model loads");
    fs::write(repository.join("m/config.pbtxt"), "max_batch_size: 3").expect("a config");
    assert_eq!(change("load").status, 200, "it has the operator's options, and the same file");
    operator.unload_model("m").expect("it is there");
    fs::rename(repository.join("m"), repository.join(".m")).expect("it is ours");
    change("unload").complains(400, "the repository has no model `m`");
}

#[test]
fn a_repository_that_is_watched_is_followed_without_a_request() {
    let Some((setup, repository)) = setup("poll") else { return };
    let made = [2, 3].map(|factor| file(setup.folder(), factor));
    let pool = setup.start_early();
    until_status_of(&pool, "/v2/models/m", 200);
    let client = pool.client();
    let of = |name: &str| version(&answer(ask(&client, request(name))));
    assert_eq!(of("m"), 1);
    place(&repository, "m", 2, &made[0]);
    let is_now = |want: u32, all: Value| {
        eventually("the pool to follow", || {
            let (now, listed) = (of("m"), versions(&pool));
            let is_it = now == want && listed == all;
            if is_it { Ok(()) } else { Err(format!("{now} {listed}\n{}", pool.log())) }
        });
    };
    is_now(2, json!(["2"]));
    // A file that is no model, and one that is written in place.
    let third = repository.join("m/3");
    fs::create_dir(&third).expect("a folder can be made");
    fs::write(third.join("model.onnx"), "no model").expect("a file can be written");
    eventually("the pool to complain", || {
        let log = pool.log();
        if log.contains("`m:3` cannot be loaded") { Ok(()) } else { Err(log) }
    });
    assert_eq!(of("m"), 2, "the one before goes on");
    fs::copy(&made[1], third.join("model.onnx")).expect("it can be overwritten");
    is_now(3, json!(["3"]));
    fs::write(repository.join("m/config.pbtxt"), "version_policy { all { } }").expect("a config");
    is_now(3, json!(["1", "2", "3"]));
    assert_eq!([of("m:1"), of("m:2")], [1, 2]);
    // Over HTTP it is changed by its folder alone.
    let refused = Web::open(&pool).ask("POST", "/v2/repository/models/m/unload", "", b"");
    assert_eq!(refused.status, 501, "{:?}", String::from_utf8_lossy(&refused.body));
    fs::rename(repository.join("m"), repository.join(".m")).expect("it is ours");
    eventually("it to be unloaded", || match client.models() {
        Ok(rows) if rows.is_empty() => Ok(()),
        other => Err(format!("{other:?}")),
    });
}

#[test]
fn a_repository_that_is_wrong_ends_serve_with_its_place() {
    let Some((setup, repository)) = setup("start") else { return };
    fs::write(repository.join("m/config.pbtxt"), "max_batch_size: 8\n  sequence_batching { }")
        .expect("a config");
    let arguments = ["serve", "--devices", "cpu:1", "--model-repository"];
    let ended = crate::command::gridpool(arguments).arg(&repository).run();
    let place = "m/config.pbtxt: line 2, column 3: `sequence_batching` has no meaning here";
    ended.complains(78, &["--model-repository: ", place]);
    drop(setup);
}

#[test]
fn folders_that_are_no_models_cost_the_models_nothing() {
    let Some((setup, repository)) = setup("poll") else { return };
    fs::create_dir(repository.join("lost+found")).expect("a folder can be made");
    place(&repository, "gone", 1, &file(setup.folder(), 2));
    place(&repository, "wrong", 1, &file(setup.folder(), 2));
    fs::write(repository.join("wrong/config.pbtxt"), "colour: 1").expect("a config");
    let pool = setup.args(&["--keep-going"]).start_early();
    until_status_of(&pool, "/v2/models/m", 200);
    until_status_of(&pool, "/v2/models/gone", 200);
    fs::create_dir(repository.join("bad name")).expect("a folder can be made");
    place(&repository, "later", 1, &file(pool.folder(), 3));
    until_status_of(&pool, "/v2/models/later", 200);
    fs::rename(repository.join("gone"), pool.folder().join("gone")).expect("it is ours");
    eventually("it to be unloaded", || match pool.observer().models() {
        Ok(rows) if rows.iter().all(|row| row.model.name != "gone") => Ok(()),
        other => Err(format!("{other:?}\n{}", pool.log())),
    });
    let log = pool.log();
    for name in ["lost+found", "bad name"] {
        let why = format!("`{name}` cannot be the name of a model");
        assert_eq!(log.matches(&why).count(), 1, "{log}");
    }
    assert_eq!(log.matches("`colour`").count(), 1, "{log}");
    assert!(!log.contains("order refused"), "workers were loading it: {log}");
}

#[test]
fn a_load_of_what_has_changed_since_says_so() {
    let Some((setup, repository)) = setup("request") else { return };
    let pool = setup.start_early();
    until_status_of(&pool, "/v2/models/m", 200);
    let load = || Web::open(&pool).ask("POST", "/v2/repository/models/m/load", "", b"");
    assert_eq!(load().status, 200);
    let config = repository.join("m/config.pbtxt");
    fs::write(&config, "instance_group [{ count: 3 }]").expect("a config");
    load().complains(409, "config.pbtxt has other `contexts` now");
    fs::remove_file(&config).expect("it is ours");
    assert_eq!(load().status, 200);
    let (own, first) = (repository.join("m/1/model.onnx"), file(pool.folder(), 1));
    fs::copy(file(pool.folder(), 2), &own).expect("it can be overwritten");
    load().complains(409, "put the new one under a new number");
    let client = pool.client();
    assert_eq!(version(&answer(ask(&client, request("m")))), 1, "it serves what was loaded");
    fs::copy(first, &own).expect("it can be overwritten");
    assert_eq!(load().status, 200);
}

#[test]
fn a_model_whose_folder_is_gone_can_be_unloaded_and_one_of_the_operator_can_not() {
    let Some((setup, repository)) = setup("request") else { return };
    let own = format!("own={}", file(setup.folder(), 2).display());
    let pool = setup.args(&["--model", &own]).start_early();
    until_status_of(&pool, "/v2/models/m", 200);
    until_status_of(&pool, "/v2/models/own", 200);
    place(&repository, "later", 1, &file(pool.folder(), 2));
    let change = |what: &str| {
        Web::open(&pool).ask("POST", &format!("/v2/repository/models/{what}"), "", b"")
    };
    assert_eq!(change("later/load").status, 200);
    for name in ["m", "later"] {
        fs::remove_dir_all(repository.join(name)).expect("it is ours");
        change(&format!("{name}/load")).complains(400, "there is no such model in the repository");
        assert_eq!(change(&format!("{name}/unload")).status, 200);
        change(&format!("{name}/unload")).complains(400, "the repository has no model");
    }
    change("own/unload").complains(400, "the repository has no model `own`");
    let client = pool.client();
    let own = answer(ask(&client, request("own")));
    assert_eq!(own.verdict(), Verdict::Ok, "it serves: {:?}", own.receipt);
}

#[test]
fn a_load_brings_a_version_back_to_a_device_that_lacks_it() {
    if !has_runtime() {
        return;
    }
    let setup = with_http(cpu(2));
    let repository = setup.folder().join("repository");
    let made = file(setup.folder(), 1);
    place(&repository, "m", 1, &made);
    let path = repository.display().to_string();
    let pool = setup.args(&["--model-repository", &path, "--repository", "request"]).start_early();
    let states = |want: [ModelState; 2]| {
        eventually("both devices", || {
            let rows = pool.observer().models().map_err(|error| error.to_string())?;
            let mut states: Vec<_> = rows.iter().map(|row| row.model.state).collect();
            states.sort_by_key(|&state| state != ModelState::Ready);
            if states == want { Ok(()) } else { Err(format!("{rows:?}\n{}", pool.log())) }
        });
    };
    states([ModelState::Ready, ModelState::Ready]);
    let own = repository.join("m/1/model.onnx");
    fs::copy(file(pool.folder(), 2), &own).expect("it can be overwritten");
    pool.client().kill(named("cpu1/m"), SIGKILL).expect("there is one");
    states([ModelState::Ready, ModelState::Unavailable]);
    let load = || Web::open(&pool).ask("POST", "/v2/repository/models/m/load", "", b"");
    load().complains(409, "the SHA-256 of its file is");
    fs::copy(made, &own).expect("it can be overwritten");
    assert_eq!(load().status, 200);
    states([ModelState::Ready, ModelState::Ready]);
}

#[test]
fn a_model_without_the_tensors_of_its_config_is_unavailable() {
    let Some((setup, repository)) = setup("start") else { return };
    let config = "max_batch_size: 8 input { name: 'x' data_type: TYPE_FP32 dims: 5 }";
    fs::write(repository.join("m/config.pbtxt"), config).expect("a config");
    let pool = setup.start_early();
    eventually("the reason", || {
        let rows = pool.client().models().map_err(|error| error.to_string())?;
        let why = rows.first().map(|row| row.model.reason.clone()).unwrap_or_default();
        let want = "its options list the input x FP32 [?, 5]; the file has x FP32 [?, 4]";
        if why.contains(want) { Ok(()) } else { Err(format!("{why}\n{}", pool.log())) }
    });
}

#[test]
fn a_load_of_the_repository_has_a_time_and_holds_up_no_other() {
    let Some((setup, repository)) = setup("request") else { return };
    place(&repository, "endless", 1, &model("endless"));
    place(&repository, "other", 1, &file(setup.folder(), 2));
    // It must not be there at the start.
    let endless = repository.join("endless");
    fs::rename(&endless, repository.join(".endless")).expect("it is ours");
    let pool = setup.start_early();
    until_status_of(&pool, "/v2/models/m", 200);
    fs::rename(repository.join(".endless"), &endless).expect("it is ours");
    let change = |what: &str, body: &Value| {
        let path = format!("/v2/repository/models/{what}");
        Web::open(&pool).ask("POST", &path, "", body.to_string().as_bytes())
    };
    let wrong = change("endless/load", &json!({"parameters": {"load_timeout_s": 0}}));
    wrong.complains(400, "`load_timeout_s` is 0: write whole seconds, at least 1");
    let late = change("endless/load", &json!({"parameters": {"load_timeout_s": 1}}));
    late.complains(400, "that took longer than it may");
    let mut web = Web::open(&pool);
    let load = std::thread::spawn(move || {
        web.ask("POST", "/v2/repository/models/endless/load", "", b"{}")
    });
    let is_loading = |name: &str| {
        eventually("the index to say that it is being loaded", || {
            let index = Web::open(&pool).ask("POST", "/v2/repository/index", "", b"");
            let rows = if index.status == 200 { index.json() } else { Value::Null };
            let rows = rows.as_array().map_or(&[][..], |rows| rows);
            let own: Vec<_> = rows.iter().filter(|row| row["name"] == name).collect();
            let is_it = own.iter().any(|own| {
                let why = own["reason"].as_str().unwrap_or_default();
                own["state"] == "LOADING" && why.contains("is loading it")
            });
            if is_it && own.len() == 1 { Ok(()) } else { Err(format!("{index:?}")) }
        });
    };
    is_loading("endless");
    let operator = pool.client();
    let plan = ModelPlan {
        name: "operators".to_owned(),
        path: model("endless"),
        options: ModelOptions::default(),
    };
    let own = std::thread::spawn(move || operator.load_model(plan));
    is_loading("operators");
    pool.client().unload_model("operators").expect("the load ends");
    let error = own.join().expect("no panic").unwrap_err().to_string();
    assert!(error.contains("an unload of it has ended the load"), "{error}");
    assert_eq!(change("other/unload", &json!({})).status, 200);
    assert_eq!(change("other/load", &json!({})).status, 200);
    assert_eq!(change("endless/unload", &json!({})).status, 200);
    load.join().expect("no panic").complains(400, "an unload of it has ended the load");
}

#[test]
fn the_index_lists_what_was_never_loaded_and_texts_have_their_type() {
    let Some((setup, repository)) = setup("request") else { return };
    place(&repository, "texts", 1, &model("strings"));
    let config = "max_batch_size: 0 input { name: 'text' data_type: TYPE_STRING dims: -1 }";
    fs::write(repository.join("texts/config.pbtxt"), config).expect("a config");
    let pool = setup.start_early();
    until_status_of(&pool, "/v2/models/texts", 200);
    place(&repository, "later", 1, &file(pool.folder(), 2));
    place(&repository, "later", 3, &file(pool.folder(), 3));
    for folder in ["empty", "a b"] {
        fs::create_dir(repository.join(folder)).expect("a folder can be made");
    }
    let index = |body: &str| {
        let document = Web::open(&pool).ask("POST", "/v2/repository/index", "", body.as_bytes());
        // Without the repository it answers too: the pool's view of itself alone may be late.
        if document.status != 200 {
            return Err(format!("{document:?}"));
        }
        let rows = document.json();
        let rows = rows.as_array().expect("a list").iter().filter_map(|row| {
            let text = |key: &str| row[key].as_str().expect("a text").to_owned();
            let is_own = ["", "a b", "empty", "later", "m", "texts"].contains(&&*text("name"));
            is_own.then(|| ["name", "version", "state", "reason"].map(text))
        });
        Ok(rows.collect::<Vec<_>>())
    };
    let row = |name: &str, version: &str, state: &str, reason: &str| {
        [name, version, state, reason].map(str::to_owned)
    };
    let ready = |name: &str| row(name, "1", "READY", "");
    let wrong = "it has no version to serve: write empty/1/model.onnx";
    let no_name = "`a b` cannot be the name of a model: write 1 to 128 letters, digits, `-`, `_` or `.`, the first a \
                   letter or a digit; for a certain version add `:` and its number";
    let mut never = vec![
        row("a b", "", "UNAVAILABLE", no_name),
        row("empty", "", "UNAVAILABLE", wrong),
        row(
            "later",
            "3",
            "UNAVAILABLE",
            "it was not loaded; if it could not be, the pool's log says why",
        ),
    ];
    let is_now = |body: &str, want: &[[String; 4]]| {
        eventually("the index", || {
            let mut rows = index(body)?;
            rows.sort();
            if rows == want { Ok(()) } else { Err(format!("{rows:?}")) }
        });
    };
    let both = [ready("m"), ready("texts")];
    is_now("", &[&*never, &both].concat());
    is_now(r#"{"ready": true}"#, &both);
    let load = Web::open(&pool).ask("POST", "/v2/repository/models/later/load", "", b"");
    assert_eq!(load.status, 200, "{load:?}");
    never[2] = row("later", "3", "READY", "");
    is_now("", &[&*never, &both].concat());
}
