//! Requests of models: by the client library, by `gridpool infer`, and `gridpool models`. Without ONNX
//! Runtime these are skipped, unless one is required.
//!
//! How models change is in `changes`, what clients that follow no rules ask in `hostile`, what models do to each
//! other in `isolation`, models as steps in `pipelines`, which devices have
//! them in `placement`, what grids and models do to each other in `load`, loads
//! that users follow and end in `loads`, where outputs may go in `output`, and text in `texts`.

mod changes;
mod hostile;
mod isolation;
mod load;
mod loads;
mod output;
mod pipelines;
mod placement;
mod sized;
mod texts;

use std::fs;
use std::path::PathBuf;

use gridpool_client::{Answer, Client, Handle, Job, ModelInput, TensorOutputs};
use gridpool_infer::LibraryError;
use gridpool_infer::library::Places;
use gridpool_protocol::receipt::Verdict;
use gridpool_protocol::tensor::Tensor;
use gridpool_protocol::tensor::model::ModelState;
use serde_json::{Value, json};

use crate::command::{Cli, Finished, gridpool};
use crate::jobs::{data, serves};
use crate::pool::{Pool, Setup, cpu, named, on};
use crate::wait::{eventually, within};

/// With it, a machine without ONNX Runtime fails.
const REQUIRED: &str = "GRIDPOOL_REQUIRE_ONNXRUNTIME";
/// Rows of a request that goes by shared memory: more than travel inside a message, in and out.
const MANY_ROWS: u64 = 2_000;

pub(crate) fn model(name: &str) -> PathBuf {
    data("models").join(format!("{name}.onnx"))
}

/// Whether models can be served here; if they must be, this fails where they cannot.
#[expect(clippy::print_stdout, reason = "a test that was skipped says so")]
pub(crate) fn has_runtime() -> bool {
    if let Err(error @ LibraryError::NotFound { .. }) = Places::here(None).find() {
        assert!(std::env::var_os(REQUIRED).is_none(), "{error}");
        println!("skipped: no ONNX Runtime (pip install onnxruntime)");
        return false;
    }
    true
}

/// `gpu` where the models are to be asked on the first GPU.
const DEVICE: &str = "GRIDPOOL_INFER_DEVICE";

/// One device to ask models on, and its name.
fn one() -> (Setup, &'static str) {
    match std::env::var(DEVICE).as_deref() {
        Ok("gpu") => (on("0".to_owned()), "gpu0"),
        Ok("cpu") | Err(_) => (cpu(1), "cpu0"),
        Ok(other) => panic!("{DEVICE}={other}: write cpu or gpu"),
    }
}

/// The worker of that device that holds models first.
fn first() -> String {
    format!("{}#2", one().1)
}

/// A pool of one device with these models of tests/data/models, after its worker has reported them; `None`
/// without ONNX Runtime.
pub(crate) fn pool(models: &[&str]) -> Option<Pool> {
    pool_on(one().0, models)
}

/// The same, of this setup.
pub(crate) fn pool_on(setup: Setup, models: &[&str]) -> Option<Pool> {
    if !has_runtime() {
        return None;
    }
    let setup = models.iter().fold(setup.args(&["--keep-going"]), |setup, name| {
        setup.args(&["--model", &format!("{name}={}", model(name).display())])
    });
    let pool = setup.start_early();
    eventually("a worker to tell of its models", || {
        let rows = pool.observer().models().map_err(|error| error.to_string())?;
        if rows.len() == models.len() { Ok(()) } else { Err(format!("{rows:?}\n{}", pool.log())) }
    });
    Some(pool)
}

/// Rows of four numbers, from `first` on.
pub(crate) fn rows(first: u64, count: u64) -> (Vec<f32>, Job<TensorOutputs>) {
    let number = |at: u64| f32::from(u16::try_from((first + at) % 1_000).expect("small")) / 4.0;
    let numbers: Vec<f32> = (0..4 * count).map(number).collect();
    let x = ModelInput::new("x", [count, 4], numbers.clone()).expect("as much data as it has");
    let job = Job::model("three_outputs", [x]).expect("a small tensor");
    (numbers, job)
}

fn ask(client: &Client, job: Job<TensorOutputs>) -> Handle<TensorOutputs> {
    client.submit(job).expect("the request is accepted")
}

pub(crate) fn answer(handle: Handle<TensorOutputs>) -> Answer<TensorOutputs> {
    within("an answer", move || handle.wait()).expect("the connection stands")
}

/// Whether these are the sums of the rows, their doubles and their hundredfold.
#[track_caller]
pub(crate) fn is_right(answer: &Answer<TensorOutputs>, numbers: &[f32]) {
    assert_eq!(answer.verdict(), Verdict::Ok, "{}", answer.receipt.reason);
    let outputs = answer.outputs().expect("outputs come with the verdict OK");
    let names: Vec<_> = outputs.tensors().iter().map(Tensor::name).collect();
    assert_eq!(names, ["sum", "double", "whole"]);
    let singles = |name| outputs.values::<f32>(name).expect("singles").into_vec();
    let sums: Vec<f32> = numbers.as_chunks::<4>().0.iter().map(|row| row.iter().sum()).collect();
    assert_eq!(singles("sum"), sums);
    assert_eq!(singles("double"), numbers.iter().map(|number| 2.0 * number).collect::<Vec<_>>());
    let whole = outputs.values::<i64>("whole").expect("whole numbers");
    #[expect(clippy::cast_possible_truncation, reason = "small numbers without a fraction")]
    let want = numbers.iter().map(|number| (100.0 * number) as i64);
    assert!(whole.iter().copied().eq(want));
}

#[test]
fn a_pool_without_onnx_runtime_serves_grids_and_says_what_to_do_about_models() {
    let mlp = format!("mlp={}", model("mlp").display());
    let setup = cpu(1)
        .args(&["--keep-going", "--model", &mlp])
        .env("ORT_DYLIB_PATH", "/nonexistent/libort.so");
    let pool = setup.start_early();
    let x = ModelInput::new("x", [1, 16], vec![0.0_f32; 16]).expect("as much data as it has");
    let job = Job::model("mlp", [x]).expect("a small tensor");
    let answer = answer(ask(&pool.client(), job));
    assert_eq!(answer.verdict(), Verdict::DeviceLost, "{:?}", answer.receipt);
    let reason = &answer.receipt.reason;
    assert!(
        reason.contains("exit code 73: /nonexistent/libort.so (from ORT_DYLIB_PATH)"),
        "{reason}"
    );
    assert!(reason.contains("gridpool release cpu0"), "{reason}");
    serves(&pool.client());
}

#[test]
fn a_missing_onnx_runtime_is_reported_once_by_each_command() {
    let models = ["mlp", "scalar", "two_inputs"];
    let setup = models.iter().fold(cpu(2).args(&["--keep-going"]), |setup, name| {
        setup.args(&["--model", &format!("{name}={}", model(name).display())])
    });
    let pool = setup.env("ORT_DYLIB_PATH", "/nonexistent/libort.so").start_early();
    eventually("both devices to be out of service for all models", || {
        let out = pool.status().quarantines;
        if out.len() == 2 * models.len() { Ok(()) } else { Err(format!("{out:?}\n{}", pool.log())) }
    });
    let infer = pool.cli(&["infer", "mlp"]).arg(data("two_inputs.npz")).run();
    assert_eq!(infer.code, Some(69), "{}", infer.stderr);
    let said =
        [pool.cli(&["status"]).run().output(), pool.cli(&["models"]).run().output(), infer.stderr];
    for text in said {
        // A table wraps long words.
        let text: String = text.split_whitespace().collect();
        assert_eq!(text.matches("/nonexistent/libort.so").count(), 1, "{text}");
    }
}

#[test]
fn a_runtime_that_is_installed_while_the_pool_runs_serves_after_a_release() {
    if !has_runtime() {
        return;
    }
    let installed = Places::here(None).find().expect("it was found").swap_remove(0);
    let folder = tempfile::tempdir().expect("a folder");
    let library = folder.path().join("libonnxruntime.so");
    let pool = cpu(1).env("ORT_DYLIB_PATH", library.to_str().expect("UTF-8")).start();
    let mlp = format!("mlp={}", model("mlp").display());
    let load = || pool.cli(&["model", "load"]).arg(&mlp).run();
    let refused = load();
    let why = &refused.stderr;
    assert!(why.contains("no worker for models can start on cpu0 (cpu0#"), "{why}");
    assert!(why.contains("once that is mended, `gridpool release cpu0`"), "{why}");
    assert!(!why.contains("out of service"), "the device runs programs: {why}");
    std::os::unix::fs::symlink(installed, library).expect("a new link");
    let again = pool.cli(&["release", "cpu0"]).run().output();
    assert!(again.contains("cpu0 is tried again now"), "{again}");
    load().output();
}

impl Pool {
    fn infer(&self, model: &str, input: &str) -> Cli {
        self.cli(&["infer"]).arg(model).arg(data(input))
    }
}

#[test]
fn requests_of_many_clients_are_answered_beside_grids_each_with_its_own_outputs() {
    const CLIENTS: u64 = 3;
    const REQUESTS: u64 = 20;
    let Some(pool) = pool(&["three_outputs"]) else { return };
    std::thread::scope(|scope| {
        for number in 0..CLIENTS {
            let client = pool.client();
            scope.spawn(move || {
                for request in 0..REQUESTS {
                    let count = if request % 2 == 0 { 1 + request } else { MANY_ROWS };
                    let (numbers, job) = rows(100 * number + request, count);
                    let answer = answer(ask(&client, job));
                    is_right(&answer, &numbers);
                    let [attempt] = answer.receipt.attempts.as_slice() else {
                        panic!("{:?}", answer.receipt)
                    };
                    let report = attempt.infer.as_ref().expect("it was a request of a model");
                    assert_eq!(report.model, "three_outputs");
                }
                // One for inputs, one for outputs, used again by each.
                assert_eq!(client.arenas_made(), 2);
            });
        }
        serves(&pool.client());
    });
    assert_eq!(pool.status().counters.ok, CLIENTS * REQUESTS + 1);
}

/// On a CPU device none are.
#[test]
fn arenas_whose_pages_a_worker_of_models_has_locked_are_in_its_row_until_their_client_goes() {
    const ROWS: u64 = 8_000;
    let Some(pool) = pool(&["three_outputs"]) else { return };
    let client = pool.client();
    for turn in 0..4 {
        let (numbers, job) = rows(turn, ROWS);
        is_right(&answer(ask(&client, job)), &numbers);
    }
    let locked = |want: bool| {
        let status = pool.status();
        let row = status.workers.iter().find(|row| row.name == first()).expect("it has a row");
        let bytes = row.memory.registered_bytes;
        if (bytes > 0) == want { Ok(()) } else { Err(format!("{bytes} bytes")) }
    };
    eventually("a heartbeat with what is locked", || locked(one().1 == "gpu0"));
    drop(client);
    eventually("a heartbeat without it", || locked(false));
}

#[test]
fn a_request_on_a_worker_that_is_killed_runs_again() {
    let Some(pool) = pool(&["three_outputs"]) else { return };
    let client = pool.client();
    is_right(&answer(ask(&client, rows(1, 1).1)), &rows(1, 1).0);
    let rows_now = pool.observer().models().expect("the pool says which");
    let worker = rows_now[0].worker.clone();
    let status = pool.status();
    let row = status.workers.iter().find(|row| row.name == worker).expect("it has a row");
    // It cannot answer before it is killed.
    crate::processes::stop(row.pid);
    let (numbers, job) = rows(7, MANY_ROWS);
    let handle = ask(&client, job);
    client.kill(named(&worker), 9).expect("there is such a worker");
    let answer = answer(handle);
    is_right(&answer, &numbers);
    let last = answer.receipt.attempts.last().expect("it ran");
    assert_ne!(*last.worker, *worker);
}

#[test]
fn the_command_prints_outputs_and_receipt_of_an_npy_and_of_an_npz() {
    let Some(pool) = pool(&["three_outputs", "two_inputs"]) else { return };
    let document = pool.infer("three_outputs", "three_outputs.npy").arg("--json").run().document();
    assert_eq!(
        document["outputs"],
        json!([
            {"name": "sum", "datatype": "FP32", "shape": [2], "data": [3.0, 11.0]},
            {
                "name": "double", "datatype": "FP32", "shape": [2, 4],
                "data": [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]
            },
            {
                "name": "whole", "datatype": "INT64", "shape": [2, 4],
                "data": [0, 50, 100, 150, 200, 250, 300, 350]
            },
        ])
    );
    assert_eq!(document["receipt"]["verdict"], "OK");
    assert_eq!(document["receipt"]["attempts"][0]["infer"]["model"], "three_outputs");

    let npz = fs::read(data("two_inputs.npz")).expect("it is in the repository");
    let text = pool.cli(&["infer"]).args(&["two_inputs", "-"]).stdin(npz).run().output();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines[0], "y FP32 [2, 4]: 10.0 10.5 11.0 11.5 22.0 22.5 23.0 23.5");
    assert_eq!(lines[1], "largest FP32 [2]: 11.5 23.5");
    assert!(lines[2].starts_with("two_inputs: OK in "), "{}", lines[2]);
}

#[test]
fn outputs_are_written_to_a_file_that_appears_when_it_is_whole() {
    let Some(pool) = pool(&["two_inputs"]) else { return };
    let out = pool.folder().join("out.npz");
    let call = || pool.infer("two_inputs", "two_inputs.npz").arg("--output").arg(&out);
    let document = call().arg("--json").run().document();
    let shapes = json!([
        {"name": "y", "datatype": "FP32", "shape": [2, 4]},
        {"name": "largest", "datatype": "FP32", "shape": [2]},
    ]);
    assert_eq!(document["outputs"], shapes, "the file has the data");
    let bytes = fs::read(&out).expect("it was written");
    let has = |part: &[u8]| bytes.windows(part.len()).any(|window| window == part);
    assert!(
        has(b"largest.npy") && has(b"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 4), }")
    );
    assert!(has(&[11.5_f32.to_le_bytes(), 23.5_f32.to_le_bytes()].concat()), "the data itself");

    fs::write(&out, "precious").expect("a file can be written");
    call().arg("--deadline").arg("0").run().complains(1, &["two_inputs: DEADLINE"]);
    assert_eq!(fs::read(&out).expect("it is there"), b"precious", "nothing came of it");
    let names = fs::read_dir(pool.folder())
        .expect("a folder")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned());
    assert!(
        names.into_iter().all(|name| !name.starts_with(".gridpool-draft-")),
        "a draft was left"
    );
}

#[test]
fn a_request_with_too_little_output_memory_is_told_how_much_it_needs() {
    let Some(pool) = pool(&["three_outputs"]) else { return };
    let client = pool.client();
    let (numbers, job) = rows(1, MANY_ROWS);
    for too_little in [1, 4_097] {
        let refused = answer(ask(&client, job.clone().with_output_bytes(too_little)));
        assert_eq!(refused.verdict(), Verdict::Failed);
        let needed = gridpool_protocol::tensor::bytes_needed(&refused.receipt.reason);
        let needed = needed.unwrap_or_else(|| panic!("{}", refused.receipt.reason));
        let short = answer(ask(&client, job.clone().with_output_bytes(needed - 1)));
        assert_eq!(short.verdict(), Verdict::Failed, "{needed} are needed");
        is_right(&answer(ask(&client, job.clone().with_output_bytes(needed))), &numbers);
    }
}

#[test]
fn an_error_of_the_runtime_is_told_once_and_not_in_the_log() {
    // CUDA's kernel knows no such error: it gives zeros.
    let Some(pool) = pool_on(cpu(1), &["lookup"]) else { return };
    let index = ModelInput::new("index", [1], vec![9_i64]).expect("as much data as it has");
    let job = Job::model("lookup", [index]).expect("a small tensor");
    let answer = answer(ask(&pool.client(), job));
    let said = "indices element out of data bounds";
    assert!(answer.receipt.reason.contains(said), "{:?}", answer.receipt);
    assert!(!pool.log().contains(said), "{}", pool.log());
}

#[test]
fn impossible_requests_are_refused_with_what_to_type() {
    let Some(pool) = pool(&["four_bits", "three_outputs", "two_inputs"]) else { return };
    let complains = |call: Cli, code, words: &[&str]| call.run().complains(code, words);
    let known = ["no model `three`", "four_bits, three_outputs, two_inputs"];
    complains(pool.infer("three", "two_inputs.npz"), 2, &known);
    let why = format!("no device serves four_bits: {}#", one().1);
    complains(pool.infer("four_bits", "two_inputs.npz"), 69, &[&why]);
    let other = ["three_outputs: it has no input `shift`", "it takes x FP32 [?, 4]"];
    complains(pool.infer("three_outputs", "two_inputs.npz"), 65, &other);
    let nameless = ["an .npy does not name its input", "numpy.savez('in.npz', **{\"x\": x"];
    complains(pool.infer("two_inputs", "three_outputs.npy"), 65, &nameless);
    complains(pool.infer("two_inputs", "grids.json"), 65, &["neither an .npz nor an .npy"]);
    let types = ["three_outputs: `x` is UINT8; the model takes FP32: with NumPy x.astype('<f4')"];
    complains(pool.infer("three_outputs", "grids.npy"), 65, &types);
    complains(pool.infer("two_inputs", "no_such.npz"), 65, &["no_such.npz: it cannot be read"]);
    pool.cli(&["drain"]).run().output();
    complains(pool.infer("two_inputs", "two_inputs.npz"), 69, &["no pool is running"]);
}

#[test]
fn models_are_listed_with_their_inputs_or_why_no_worker_serves_them() {
    let Some(pool) = pool(&["four_bits", "two_inputs"]) else { return };
    let document = pool.cli(&["models"]).arg("--json").run().document();
    let rows: Vec<&Value> = document["models"].as_array().expect("a list").iter().collect();
    let row = |name: &str| {
        let mut named = rows.iter().filter(|row| row["model"]["name"] == name);
        (*named.next().expect("a row for each")).clone()
    };
    let two = row("two_inputs");
    assert_eq!(two["model"]["state"], ModelState::Ready.name());
    assert_eq!(two["model"]["inputs"][1]["datatype"], "INT32");
    assert!(two["worker"].as_str().expect("a name").starts_with(one().1));
    assert_eq!(row("four_bits")["model"]["state"], ModelState::Unavailable.name());
    let text = pool.cli(&["models"]).run().output();
    assert_eq!(pool.cli(&["model", "list"]).run().output(), text, "under either name");
    assert_eq!(pool.cli(&["model", "list", "--json"]).run().document(), document);
    assert!(text.contains("x FP32 [?, ?], shift INT32 [?] -> y FP32 [?, ?]"), "{text}");
    let log = pool.log();
    let said = log.lines().filter(|line| line.contains("loaded") && line.contains("\"four_bits\""));
    let said: Vec<_> = said.collect();
    let path = format!("path=\"{}\"", model("four_bits").display());
    assert!(matches!(said[..], [line] if line.contains(&path)), "once, with its file: {log}");

    let pool = cpu(1).start();
    let text = pool.cli(&["models"]).run().output();
    assert!(text.contains("`gridpool model load NAME=PATH`"), "{text}");
    let refused: Finished = pool.infer("m", "two_inputs.npz").run();
    refused.complains(2, &["this pool has no models: `gridpool model load NAME=PATH`"]);
}
