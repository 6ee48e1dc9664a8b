//! Pipelines in a pool: served as models are, with their steps in one process.

use std::process::Command;
use std::time::Duration;

use gridpool_client::ClientError;
use gridpool_protocol::message::Refusal;
use gridpool_protocol::program::{Program, Ties};
use gridpool_protocol::tensor::options::{ModelOptions, ModelPlan};
use gridpool_protocol::tensor::pipeline::{Pipeline, Step, StepBody, StepModel};

use super::*;
use crate::binaries;
use crate::http::python_of_models;

/// More turns than any process completes.
const ENDLESS: i64 = 1 << 50;

/// `[[pipeline]]` for detection, a choice, crops, and two branches on them; `find` is the first step's model.
fn tracker(find: &str) -> String {
    let step = |name: &str, model: &str, inputs: &str| {
        format!("[[pipeline.steps]]\nname = '{name}'\nmodel = '{model}'\ninputs = {{ {inputs} }}\n")
    };
    let file = |name: &str| model(name).display().to_string();
    let steps = [
        step("find", find, "image = 'image'"),
        step("select", &file("select"), "boxes = 'find.boxes', scores = 'find.scores'"),
        step("crop", &file("crop"), "image = 'image', boxes = 'select.kept'"),
        step("enlarge", &file("enlarge"), "crops = 'crop.crops'"),
        step("pose", &file("pose"), "crops = 'enlarge.large'"),
        step("reid", &file("reid"), "crops = 'crop.crops'"),
    ];
    format!(
        "[[pipeline]]\nname = 'tracker'\ninputs = ['image']\noutputs = {{ all = 'find.boxes', boxes = \
         'select.kept', points = 'pose.points', who = 'reid.who' }}\n{}",
        steps.concat()
    )
}

/// A picture with this many bright cells.
fn picture(bright: usize) -> Job<TensorOutputs> {
    let image = ModelInput::new("image", [1, 1, 32, 32], pixels(bright)).expect("a picture");
    Job::model("tracker", [image]).expect("a small tensor")
}

fn pixels(bright: usize) -> Vec<f32> {
    let pixel = |at: usize| {
        let (row, column) = (at / 32, at % 32);
        let cell = row / 8 * 4 + column / 8;
        let dim = f32::from(u8::try_from(at * 31 % 97).expect("small")) / 250.0;
        if cell < bright && row % 8 == 3 { dim + 0.5 + 0.02 * cell as f32 } else { dim }
    };
    (0..32 * 32).map(pixel).collect()
}

/// A pool whose config file has these lines, after its models are READY.
pub(super) fn configured(lines: &str, models: usize) -> Pool {
    let pool = one().0.limits(lines).start_early();
    eventually("the models to be ready", || {
        let rows = pool.observer().models().map_err(|error| error.to_string())?;
        let is_ready =
            |row: &&gridpool_protocol::message::DeviceModel| row.model.state == ModelState::Ready;
        match rows.iter().filter(is_ready).count() == models {
            true => Ok(()),
            false => Err(format!("{rows:?}\n{}", pool.log())),
        }
    });
    pool
}

#[track_caller]
fn refused(result: Result<String, ClientError>) -> String {
    match result {
        Err(ClientError::Refused(Refusal::Invalid(why) | Refusal::Unable(why))) => why,
        other => panic!("{other:?}"),
    }
}

/// `turns`, whose request decides how long it runs, and `mlp` on what it gives.
fn long() -> ModelPlan {
    let text = |pairs: &[(&str, &str)]| {
        pairs.iter().map(|&(to, from)| (to.to_owned(), from.to_owned())).collect()
    };
    let step = |name: &str, file: &str, inputs: &[(&str, &str)]| Step {
        name: name.to_owned(),
        body: StepBody::Model(StepModel {
            model: format!("{file}.onnx"),
            path: model(file),
            sha256: None,
        }),
        inputs: text(inputs),
    };
    let pipeline = Pipeline {
        inputs: vec!["n".to_owned()],
        steps: vec![step("turn", "turns", &[("n", "n")]), step("judge", "mlp", &[("x", "turn.y")])],
        outputs: text(&[("y", "judge.y")]),
    };
    let options = ModelOptions { pipeline: Some(Box::new(pipeline)), ..ModelOptions::default() };
    ModelPlan { name: "long".to_owned(), path: data("pipeline.py"), options }
}

fn turns(count: i64) -> Job<TensorOutputs> {
    let n = ModelInput::new("n", [], vec![count]).expect("a number");
    Job::model("long", [n]).expect("a small tensor")
}

#[test]
fn a_pipeline_of_the_config_file_is_served_as_a_model_with_its_steps_in_the_receipt() {
    if !has_runtime() {
        return;
    }
    let find = format!("[[model]]\nname = 'detect'\npath = '{}'\n", model("find").display());
    let pool = configured(&format!("{find}{}", tracker("detect")), 2);
    let text = pool.cli(&["models"]).run().output();
    let text: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("(steps find, select, crop, enlarge, pose, reid)"), "{text}");
    let client = pool.client();
    for bright in [9, 0, 16, 1] {
        let answer = answer(ask(&client, picture(bright)));
        assert_eq!(answer.verdict(), Verdict::Ok, "{:?}", answer.receipt);
        let outputs = answer.outputs().expect("outputs come with the verdict OK");
        let shapes: Vec<_> = outputs.tensors().iter().map(ToString::to_string).collect();
        assert_eq!(shapes[0], format!("all FP32 [{bright}, 4]"));
        let [attempt] = answer.receipt.attempts.as_slice() else { panic!("{:?}", answer.receipt) };
        let report = attempt.infer.as_ref().expect("it was a request of a model");
        let names: Vec<_> = report.steps.iter().map(|step| step.name.as_str()).collect();
        assert_eq!(names, ["find", "select", "crop", "enlarge", "pose", "reid"]);
        assert_eq!(report.steps[1].device_bytes, 20 * bright as u64);
        assert!(report.steps.iter().all(|step| step.host_bytes == 0), "{:?}", report.steps);
        assert!(report.steps.iter().all(|step| step.sha256.len() == 64));
    }
    // One process has all its steps, and another the model that the first step names.
    let workers = pool.status().workers;
    let mut groups: Vec<_> = workers.iter().map(|row| row.group.clone()).collect();
    groups.sort();
    assert_eq!(groups, ["detect", "grid", "tracker"]);
}

/// `[[pipeline]]` of a program between two models.
fn line(program: &str, outputs: &str) -> String {
    let file = |name: &str| model(name).display().to_string();
    format!(
        "[[pipeline]]\nname = 'line'\ninputs = ['x']\noutputs = {{ {outputs} }}\n\
         [[pipeline.steps]]\nname = 'color'\nmodel = '{}'\ninputs = {{ x = 'x' }}\n\
         [[pipeline.steps]]\nname = 'turn'\nprogram = '{program}'\ninputs = {{ grids = 'color.grids' }}\n\
         [[pipeline.steps]]\nname = 'sum'\nmodel = '{}'\ninputs = {{ grids = 'turn.grids' }}\n",
        file("colors"),
        file("columns"),
    )
}

/// The cells of two grids of two rows and three columns; the last one is `last` tenths.
fn cells(last: f32) -> Vec<f32> {
    let mut cells: Vec<f32> = (0..12_u8).map(|at| f32::from(at % 10) / 10.0 + 0.05).collect();
    cells[11] = last / 10.0 + 0.05;
    cells
}

pub(super) fn two_grids(last: f32) -> Job<TensorOutputs> {
    let x = ModelInput::new("x", [2, 2, 3], cells(last)).expect("two grids");
    Job::model("line", [x]).expect("a small tensor")
}

/// The same as NumPy writes it.
pub(super) fn npy(last: f32) -> Vec<u8> {
    let head = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2, 3), }";
    let head = format!("{head:<117}\n");
    let mut bytes = [b"\x93NUMPY\x01\x00", &118_u16.to_le_bytes()[..], head.as_bytes()].concat();
    bytes.extend(cells(last).iter().flat_map(|cell| cell.to_le_bytes()));
    bytes
}

#[test]
fn a_program_between_models_is_served_and_in_the_receipt_and_a_bad_cell_fails_its_request_alone() {
    if !has_runtime() {
        return;
    }
    let program = "rot90 | fill(5, ofcolor(0))";
    let pool = configured(&line(program, "sums = 'sum.sums', turned = 'turn.grids'"), 1);
    let text = pool.cli(&["models"]).run().output();
    let text: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("turned UINT8 [?, ?, ?] (steps color, turn, sum)"), "{text}");
    let listed = pool.cli(&["models", "--json"]).run().output();
    let listed: Value = serde_json::from_str(&listed).expect("JSON");
    let step = &listed["models"][0]["model"]["steps"][1];
    assert_eq!(step["program"], "rot90 | ofcolor(0) | fill(5)", "{step}");
    assert_eq!(step["model"], Value::Null);
    let client = pool.client();
    let mut workers = Vec::new();
    for last in [3.0, 10.0, 9.0] {
        let answer = answer(ask(&client, two_grids(last)));
        let outputs = answer.outputs();
        if last > 9.0 {
            assert_ne!(answer.verdict(), Verdict::Ok);
            assert!(outputs.is_none());
            let said = format!("{:?}", answer.receipt);
            assert!(
                said.contains("the step `turn` has no result for grid 1: input: a cell is not"),
                "{said}"
            );
            continue;
        }
        assert_eq!(answer.verdict(), Verdict::Ok, "{:?}", answer.receipt);
        let outputs = outputs.expect("outputs come with the verdict OK");
        let shapes: Vec<_> = outputs.tensors().iter().map(ToString::to_string).collect();
        assert_eq!(shapes, ["sums FP32 [2, 2]", "turned UINT8 [2, 3, 2]"]);
        let low = if last < 9.0 { 3 } else { 9 };
        assert_eq!(outputs.data(1), [3, 5, 4, 1, 5, 2, 9, 6, 5, 7, low, 8]);
        let [attempt] = answer.receipt.attempts.as_slice() else { panic!("{:?}", answer.receipt) };
        let report = attempt.infer.as_ref().expect("it was a request of a model");
        let steps: Vec<_> =
            report.steps.iter().map(|step| (&*step.name, step.device_bytes)).collect();
        assert_eq!(steps, [("color", 0), ("turn", 12), ("sum", 12)]);
        assert!(report.steps.iter().all(|step| step.host_bytes == 0), "{:?}", report.steps);
        let hash = Program::compile(program, Ties::Cpython).expect("a program").hash().to_owned();
        assert_eq!(report.steps[1].sha256, hash);
        workers.push(attempt.worker.clone());
    }
    workers.dedup();
    assert_eq!(workers.len(), 1, "no worker has died of it");
    let infer = |last: f32| {
        let file = pool.folder().join("x.npy");
        fs::write(&file, npy(last)).expect("a file can be written");
        pool.cli(&["infer", "line"]).arg(file).run()
    };
    let text = infer(9.0).output();
    assert!(text.contains("turned UINT8 [2, 3, 2]") && text.contains("step turn"), "{text}");
    infer(10.0).complains(1, &["the step `turn` has no result for grid 1: input: a cell is not a"]);
}

#[test]
fn a_program_that_cannot_be_a_step_is_refused_at_load() {
    let Some(pool) = pool(&["colors"]) else { return };
    let file = pool.folder().join("line.toml");
    let load = |text: String| {
        fs::write(&file, text).expect("the folder is the test's own");
        pool.cli(&["model", "load"]).arg(format!("--pipeline={}", file.display())).run()
    };
    let sums = "sums = 'sum.sums'";
    load(line("o_g(5) | argmax(size) | subgrid", sums)).complains(
        2,
        &[
            "line.toml, line ",
            "pipeline `line`: its step `turn` cannot run its program: the cells decide",
        ],
    );
    load(line("rot90", sums).replace("'color.grids'", "'x'"))
        .complains(2, &["nothing takes its step `color`"]);
    let both = format!("{sums}, colors = 'color.grids'");
    load(line("rot90", &both).replace("grids = 'color.grids' }", "grids = 'x' }")).complains(
        1,
        &["the input `x` is FP32 [?, ?, ?] for the step `color` and UINT8 [?, ?, ?] for the step `turn`"],
    );
}

#[test]
fn onnx_runtime_in_one_process_gives_what_the_pipeline_gives() {
    if !has_runtime() {
        return;
    }
    let python = python_of_models();
    let has = Command::new(&python).args(["-c", "import onnxruntime, numpy"]).output();
    if !has.is_ok_and(|ran| ran.status.success()) {
        assert!(std::env::var_os(REQUIRED).is_none(), "{} has no onnxruntime", python.display());
        return;
    }
    let pool = configured(&tracker(&model("find").display().to_string()), 1);
    for bright in [7, 0] {
        let (given, got) = (pool.folder().join("in.npz"), pool.folder().join("out.npz"));
        let numbers = pixels(bright).iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        let save = format!(
            "import numpy as n, sys; n.savez(sys.argv[1], image=n.array([{numbers}], \
             n.float32).reshape(1, 1, 32, 32))"
        );
        let saved = Command::new(&python).args(["-c", &save]).arg(&given).output();
        assert!(saved.expect("python can be started").status.success());
        let call = pool.cli(&["infer", "tracker"]).arg(&given).arg("--output").arg(&got);
        let said = call.run().output();
        assert!(said.contains("  step crop: "), "{said}");
        assert!(said.contains(" bytes of other steps\n"), "{said}");
        assert!(!said.contains("on the device"), "a CPU: {said}");
        let mut compare = Command::new(&python);
        compare.arg(binaries::root().join("tests/data/pipeline.py")).arg(data("models"));
        let ran = compare.arg(&given).arg(&got).output().expect("python can be started");
        let (said, why) = (ran.stdout, String::from_utf8_lossy(&ran.stderr));
        assert!(String::from_utf8_lossy(&said).contains("as it should be"), "{why}");
    }
}

#[test]
fn a_pipeline_is_loaded_and_unloaded_while_the_pool_serves() {
    let Some(pool) = pool(&["find"]) else { return };
    let file = pool.folder().join("tracker.toml");
    let load = |text: &str| {
        fs::write(&file, text).expect("a file can be written");
        pool.cli(&["model", "load"]).arg(format!("--pipeline={}", file.display())).run()
    };
    let right = tracker("find");
    load(&right.replace("'find'\ninputs", "'fnd'\ninputs")).complains(
        2,
        &["pipeline `tracker`: its step `find` runs the model `fnd`", "close to it: find"],
    );
    load(&right.replace("crop.crops", "crop.crop")).complains(
        1,
        &["the input `crops` of the step `enlarge` takes `crop.crop`", "close to it: crops"],
    );
    load(&right.replace("boxes = 'select.kept' }", "boxes = 'find.scores' }")).complains(
        1,
        &["the step `crop` takes `find.scores` as its input `boxes`: that is FP32 [?], and it takes"],
    );
    load(&right.replace("'select.kept' }", "'slect.kept' }"))
        .complains(2, &["tracker.toml, line 13: pipeline `tracker`: ", "close to it: select"]);
    assert!(load(&right).output().contains("`tracker` is loaded on"), "{}", pool.log());
    let client = pool.client();
    assert_eq!(answer(ask(&client, picture(3))).verdict(), Verdict::Ok);
    client.set_contexts("tracker", 3).expect("there is memory");
    assert_eq!(answer(ask(&client, picture(4))).verdict(), Verdict::Ok);
    let said = load(&right).output();
    assert!(said.contains("version 2 serves `tracker`, version 1 is unloaded"), "{said}");
    assert_eq!(answer(ask(&client, picture(5))).verdict(), Verdict::Ok);
    let plan = ModelPlan { path: "relative".into(), ..long() };
    assert!(refused(client.load_model(plan)).contains("not an absolute path"));
    client.unload_model("tracker").expect("it is loaded");
    let gone = client.submit(picture(1)).expect_err("it is gone").to_string();
    assert!(gone.contains("no model `tracker`"), "{gone}");
}

#[test]
fn a_worker_that_dies_in_a_step_costs_its_request_and_the_next_one_has_the_same_pipeline() {
    let Some(pool) = pool(&["three_outputs"]) else { return };
    if one().1 != "cpu0" {
        return; // CUDA's provider runs the condition of a loop on the CPU.
    }
    let client = pool.client();
    client.load_model(long()).expect("it loads");
    let report = |answer: &Answer<TensorOutputs>| {
        let attempt = answer.receipt.attempts.last().expect("it ran");
        attempt.infer.clone().expect("it was a request of a model")
    };
    let before = report(&answer(ask(&client, turns(2))));
    let dies = ask(&client, turns(ENDLESS).at_most_once());
    eventually("the request to run", || {
        match pool.status().workers.iter().find(|row| row.group == "long") {
            Some(row) if row.run.is_some() => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
    pool.observer().kill(named("cpu0/long"), 9).expect("it is there");
    assert_eq!(answer(dies).verdict(), Verdict::Failed);
    let after = report(&answer(ask(&client, turns(2))));
    assert_eq!((after.sha256, after.steps.len()), (before.sha256, 2));
    let (numbers, job) = rows(1, 3);
    is_right(&answer(ask(&client, job)), &numbers);
}

#[test]
fn a_cancelled_and_a_late_request_of_a_pipeline_end_within_a_step() {
    let Some(pool) = pool(&["three_outputs"]) else { return };
    if one().1 != "cpu0" {
        return; // As above.
    }
    let client = pool.client();
    client.load_model(long()).expect("it loads");
    let worker = |pool: &Pool| {
        let workers = pool.status().workers;
        workers.iter().find(|row| row.group == "long").map(|row| row.pid)
    };
    let before = worker(&pool);
    let late = ask(&client, turns(ENDLESS).with_deadline(Duration::from_millis(300)));
    assert_eq!(answer(late).verdict(), Verdict::Deadline);
    let cancelled = ask(&client, turns(ENDLESS));
    cancelled.cancel();
    assert_eq!(answer(cancelled).verdict(), Verdict::Cancelled);
    assert_eq!(answer(ask(&client, turns(2))).verdict(), Verdict::Ok);
    assert_eq!(worker(&pool), before, "the process goes on");
}

#[test]
fn a_changed_file_of_a_step_makes_the_next_worker_say_which() {
    if !has_runtime() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let copy = folder.path().join("find.onnx");
    fs::copy(model("find"), &copy).expect("it is in the repository");
    let pool = configured(&tracker(&copy.display().to_string()), 1);
    assert_eq!(answer(ask(&pool.client(), picture(2))).verdict(), Verdict::Ok);
    fs::copy(model("select"), &copy).expect("a file can be written");
    pool.observer().kill(named(&format!("{}/tracker", one().1)), 9).expect("it is there");
    eventually("the pipeline to be unavailable", || {
        let rows = pool.observer().models().map_err(|error| error.to_string())?;
        let why = rows.first().map(|row| row.model.reason.clone()).unwrap_or_default();
        let says = "the step `find`: ";
        match why.starts_with(says) && why.contains("has changed since the model was loaded") {
            true => Ok(()),
            false => Err(format!("{rows:?}")),
        }
    });
}
