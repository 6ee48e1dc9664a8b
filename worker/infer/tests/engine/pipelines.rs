//! Pipelines: detection, then crops, poses and identities of what was found, in one engine.

use std::collections::BTreeMap;
use std::path::PathBuf;

use gridpool_infer::{InferError, LoadError, ModelOptions};
use gridpool_protocol::chain::Chain;
use gridpool_protocol::ids::DeviceKind;
use gridpool_protocol::tensor::pipeline::{Pipeline, Step, StepBody, StepModel};
use gridpool_protocol::tensor::{Contexts, DataType};

use crate::harness::{BlockedContext, ask, close, engine, load, outputs, submit};
use crate::onnx::Folder;
use crate::tensors::{Full, device, fp32, full, int64, irregular, model};

const ENDLESS: i64 = 1 << 50;
/// How far a result on a GPU may be from that of another run: a kernel may be another for another number of rows.
const TOLERANCE: f32 = 1e-4;

/// A step that runs a model of `tests/data/models`.
pub(crate) fn step(name: &str, file: &str, wires: &[(&str, &str)]) -> Step {
    let model = StepModel { model: format!("{file}.onnx"), path: model(file), sha256: None };
    Step { name: name.to_owned(), body: StepBody::Model(model), inputs: texts(wires) }
}

/// The model of a step, to be changed.
fn own(pipeline: &mut Pipeline, step: usize) -> &mut StepModel {
    pipeline.steps[step].model_mut().expect("it runs a model")
}

pub(crate) fn texts(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|&(to, from)| (to.to_owned(), from.to_owned())).collect()
}

pub(crate) fn pipeline(
    inputs: &[&str],
    steps: Vec<Step>,
    outputs: &[(&str, &str)],
) -> ModelOptions {
    let inputs = inputs.iter().map(|&name| name.to_owned()).collect();
    let pipeline = Pipeline { inputs, steps, outputs: texts(outputs) };
    ModelOptions { pipeline: Some(Box::new(pipeline)), ..ModelOptions::default() }
}

/// Detection, a choice, crops, and two branches on them.
pub(crate) fn tracker() -> ModelOptions {
    let steps = vec![
        step("find", "find", &[("image", "image")]),
        step("select", "select", &[("boxes", "find.boxes"), ("scores", "find.scores")]),
        step("crop", "crop", &[("image", "image"), ("boxes", "select.kept")]),
        step("enlarge", "enlarge", &[("crops", "crop.crops")]),
        step("pose", "pose", &[("crops", "enlarge.large")]),
        step("reid", "reid", &[("crops", "crop.crops")]),
    ];
    let outputs = [
        ("all", "find.boxes"),
        ("boxes", "select.kept"),
        ("points", "pose.points"),
        ("who", "reid.who"),
    ];
    pipeline(&["image"], steps, &outputs)
}

const MODELS: [&str; 6] = ["find", "select", "crop", "enlarge", "pose", "reid"];

/// A picture with something in these cells, the brighter the later.
pub(crate) fn picture(cells: &[usize]) -> Full {
    let mut pixels: Vec<f32> =
        irregular(7, 32 * 32).iter().map(|number| number.abs() * 0.4).collect();
    for (at, cell) in cells.iter().enumerate() {
        let (row, column) = (8 * (cell / 4) + at % 8, 8 * (cell % 4) + 3);
        pixels[32 * row + column] = 0.6 + 0.05 * at as f32;
    }
    fp32("image", &[1, 1, 32, 32], &pixels)
}

pub(crate) fn named(name: &str, tensor: &Full) -> Full {
    Full { name: name.to_owned(), ..tensor.clone() }
}

/// What the steps give one by one, under the names of the pipeline's outputs.
fn one_by_one(engine: &gridpool_infer::Engine, image: &Full) -> [Full; 4] {
    let found = ask(engine, "find", std::slice::from_ref(image));
    let kept = ask(engine, "select", &found);
    let crops = ask(engine, "crop", &[image.clone(), named("boxes", &kept[0])]);
    let large = ask(engine, "enlarge", &crops);
    let points = ask(engine, "pose", &[named("crops", &large[0])]);
    let who = ask(engine, "reid", &crops);
    [named("all", &found[0]), named("boxes", &kept[0]), points[0].clone(), who[0].clone()]
}

#[track_caller]
pub(crate) fn same(got: &[Full], want: &[Full]) {
    if device() == DeviceKind::Cpu {
        return assert_eq!(got, want, "bit for bit");
    }
    assert_eq!(got.len(), want.len());
    for (got, want) in got.iter().zip(want) {
        assert_eq!((&got.name, &got.shape), (&want.name, &want.shape));
        close(&got.fp32(), &want.fp32(), TOLERANCE);
    }
}

pub(crate) fn why(engine: &gridpool_infer::Engine, options: &ModelOptions) -> String {
    let error = engine.load("wrong", &model("find"), options).expect_err("it does not fit");
    Chain(&error).to_string()
}

#[test]
fn a_pipeline_gives_what_its_steps_give_one_by_one_and_nothing_crosses_the_host() {
    let Some(engine) = engine() else { return };
    MODELS.iter().for_each(|name| drop(load(&engine, name, &ModelOptions::default())));
    let info = engine.load("tracker", &model("find"), &tracker()).expect("it loads");
    assert_eq!(info.inputs[0].to_string(), "image FP32 [1, 1, 32, 32]");
    let listed: Vec<_> = info.outputs.iter().map(ToString::to_string).collect();
    let want = ["all FP32 [?, 4]", "boxes FP32 [?, 4]", "points FP32 [?, 5, 2]", "who FP32 [?, 8]"];
    assert_eq!((listed, info.max_batch), (want.map(str::to_owned).into(), 1));
    assert_eq!(info.sha256.len(), 64);
    let steps: Vec<_> = info.steps.iter().map(|step| step.name.as_str()).collect();
    assert_eq!(steps, MODELS);
    assert_eq!(info.steps[2].inputs[1], ("boxes".to_owned(), "select.kept".to_owned()));
    let nodes = |nodes: &[gridpool_protocol::tensor::model::ProviderNodes]| {
        nodes.iter().map(|row| row.nodes).sum::<u32>()
    };
    assert_eq!(nodes(&info.nodes), info.steps.iter().map(|step| nodes(&step.nodes)).sum::<u32>());
    for cells in [&[0][..], &[3, 9, 12, 2, 1, 8], &[15, 14, 13, 12, 11, 10, 9, 8, 7, 6]] {
        let image = picture(cells);
        let answer =
            submit(&engine, "tracker", std::slice::from_ref(&image)).unwrap().wait().unwrap();
        let want = one_by_one(&engine, &image);
        assert_eq!(want[0].shape[0], cells.len() as u64);
        same(&outputs(&answer), &want);
        let (found, kept) = (want[0].shape[0], want[1].shape[0]);
        let report = answer.report;
        assert_eq!((report.runs, report.sha256), (1, info.sha256.clone()));
        assert_eq!(report.h2d_bytes, 4 * 32 * 32);
        // Boxes and scores; the boxes that were kept; crops, large ones, crops again.
        let handed = [0, 20 * found, 16 * kept, 256 * kept, 1_024 * kept, 256 * kept];
        for (step, (loaded, bytes)) in report.steps.iter().zip(info.steps.iter().zip(handed)) {
            assert_eq!((&step.name, &step.sha256), (&loaded.name, &loaded.sha256));
            assert_eq!((step.device_bytes, step.host_bytes), (bytes, 0), "{}", step.name);
            assert!(step.device_us > 0.0, "{}", step.name);
        }
        let all: f64 = report.steps.iter().map(|step| step.device_us).sum();
        assert!(all <= report.device_us, "{all} of {}", report.device_us);
    }
}

#[test]
fn where_nothing_is_found_the_next_steps_run_over_no_rows() {
    let Some(engine) = engine() else { return };
    MODELS.iter().for_each(|name| drop(load(&engine, name, &ModelOptions::default())));
    engine.load("tracker", &model("find"), &tracker()).expect("it loads");
    let image = picture(&[]);
    let got = ask(&engine, "tracker", std::slice::from_ref(&image));
    let shapes: Vec<_> = got.iter().map(|output| output.shape.clone()).collect();
    assert_eq!(shapes, [vec![0, 4], vec![0, 4], vec![0, 5, 2], vec![0, 8]]);
    assert_eq!(got, one_by_one(&engine, &image));
    // And after that, over rows again.
    let image = picture(&[5, 6, 7, 8, 9]);
    same(&ask(&engine, "tracker", std::slice::from_ref(&image)), &one_by_one(&engine, &image));
}

#[test]
fn contexts_of_a_pipeline_run_at_once_and_can_be_more_and_fewer() {
    let Some(engine) = engine() else { return };
    MODELS.iter().for_each(|name| drop(load(&engine, name, &ModelOptions::default())));
    let options = ModelOptions { contexts: Contexts::Fixed(2), ..tracker() };
    assert_eq!(engine.load("tracker", &model("find"), &options).expect("it loads").contexts, 2);
    let images: Vec<_> = (0..16).map(|cell| picture(&[cell, 15 - cell, 3, 8, 5, 2])).collect();
    let want: Vec<_> = images.iter().map(|image| one_by_one(&engine, image)).collect();
    for contexts in [2, 4, 1] {
        engine.set_contexts("tracker", contexts).expect("there is memory");
        let asked: Vec<_> = images
            .iter()
            .cycle()
            .take(64)
            .map(|image| submit(&engine, "tracker", std::slice::from_ref(image)).unwrap())
            .collect();
        for (waiter, want) in asked.into_iter().zip(want.iter().cycle()) {
            same(&waiter.outputs(), want);
        }
    }
    assert!(engine.unload("tracker"));
}

#[test]
fn requests_share_runs_where_the_rows_of_all_steps_are_independent() {
    let Some(engine) = engine() else { return };
    let steps = vec![
        step("reid", "reid", &[("crops", "crops")]),
        step("pose", "pose", &[("crops", "enlarge.large")]),
        step("enlarge", "enlarge", &[("crops", "crops")]),
    ];
    let options = pipeline(&["crops"], steps, &[("points", "pose.points"), ("who", "reid.who")]);
    let info = engine.load("both", &model("reid"), &options).expect("it loads");
    assert_eq!(info.max_batch, 32);
    let crops = |row: u64| fp32("crops", &[1, 1, 8, 8], &irregular(row, 64));
    let alone: Vec<_> = (0..6).map(|row| ask(&engine, "both", &[crops(row)])).collect();
    let held = BlockedContext::one(&engine, "both", &[crops(0)]);
    let asked: Vec<_> = (0..6).map(|row| submit(&engine, "both", &[crops(row)]).unwrap()).collect();
    held.let_go();
    for (waiter, alone) in asked.into_iter().zip(&alone) {
        let answer = waiter.wait().unwrap();
        assert_eq!((answer.report.joined_rows, answer.report.runs), (6, 1));
        let enlarged = answer.report.steps.iter().find(|step| step.name == "pose").unwrap();
        assert_eq!(
            (enlarged.device_bytes, enlarged.host_bytes),
            (6 * 1_024, 0),
            "of the whole run"
        );
        for (got, want) in outputs(&answer).iter().zip(alone) {
            assert_eq!(got.shape, want.shape);
            close(&got.fp32(), &want.fp32(), TOLERANCE);
        }
    }
    let asked = ModelOptions { max_batch: Some(8), ..tracker() };
    let error = why(&engine, &asked);
    assert!(error.contains("not every input and output has a free first dimension"), "{error}");
}

#[test]
fn what_does_not_fit_is_refused_at_load_with_step_and_tensor() {
    let Some(engine) = engine() else { return };
    let change = |change: fn(&mut Pipeline)| {
        let mut options = tracker();
        change(options.pipeline.as_mut().unwrap());
        why(&engine, &options)
    };
    let error =
        change(|own| drop(own.steps[5].inputs.insert("crops".into(), "enlarge.large".into())));
    assert_eq!(
        error,
        "the step `reid` takes `enlarge.large` as its input `crops`: that is FP32 [?, 1, 16, 16], and it takes FP32 \
         [?, 1, 8, 8]"
    );
    let error =
        change(|own| drop(own.steps[2].inputs.insert("boxes".into(), "select.keep".into())));
    assert!(error.ends_with("has no output `keep`; there is kept"), "{error}");
    let error = change(|own| drop(own.steps[2].inputs.remove("boxes")));
    assert!(error.contains("no wire for its input `boxes`, FP32 [?, 4]"), "{error}");
    let error = change(|all| own(all, 3).path = PathBuf::from("/nowhere/large.onnx"));
    assert!(error.starts_with("the step `enlarge`: /nowhere/large.onnx: No such file"), "{error}");
    let error = change(|all| own(all, 5).path = model("four_bits"));
    assert!(
        error.contains("`reid`: its input `") && error.contains(" numbers of 4 bits"),
        "{error}"
    );
    let error = change(|all| {
        own(all, 5).path = model("strings");
        all.steps[5].inputs = [("text".to_owned(), "image".to_owned())].into();
    });
    let why = match device() {
        DeviceKind::Cpu => "the step `reid` has the tensor `text`, which is text",
        // No text is on a GPU, so none of its ops is.
        DeviceKind::Gpu => "the step `reid`: 1 of 1 nodes would run on CPUExecutionProvider",
    };
    assert!(error.starts_with(why), "{error}");
    let error = change(|all| own(all, 1).sha256 = Some("0".repeat(64)));
    assert!(error.starts_with("the step `select`: "), "{error}");
    assert!(error.contains("select.onnx has changed since the model was loaded"), "{error}");
    let error = change(|own| drop(own.steps.remove(0)));
    assert!(error.contains("there is no step `find`"), "{error}");
    let row = engine.list().into_iter().find(|row| row.name == "wrong").expect("it is listed");
    assert!(row.reason.contains("no step `find`"), "{}", row.reason);
}

#[test]
fn the_hash_of_a_pipeline_is_that_of_its_files_and_wires() {
    let Some(engine) = engine() else { return };
    let hash = |name: &str, options: &ModelOptions| {
        engine.load(name, &model("find"), options).expect("it loads").sha256
    };
    let first = hash("first", &tracker());
    assert_eq!(hash("again", &tracker()), first);
    let mut fewer = tracker();
    fewer.pipeline.as_mut().unwrap().outputs.remove("all");
    assert_ne!(hash("fewer", &fewer), first);
    let pinned = ModelOptions { sha256: Some(first), ..fewer };
    let error = why(&engine, &pinned);
    assert!(error.contains("find.onnx has changed since the model was loaded"), "{error}");
}

/// `two_inputs`, whose rows have any length, and `mlp`, whose rows have 16.
fn any_then_16() -> ModelOptions {
    let steps = vec![
        step("add", "two_inputs", &[("x", "x"), ("shift", "shift")]),
        step("judge", "mlp", &[("x", "add.y")]),
    ];
    pipeline(&["x", "shift"], steps, &[("y", "judge.y")])
}

#[test]
fn what_only_a_run_can_tell_names_the_step_and_the_pipeline_still_works() {
    let Some(engine) = engine() else { return };
    let shapes = [("x", vec![1, 16])].map(|(name, shape)| (name.to_owned(), shape));
    let options = ModelOptions { warm_up: vec![shapes.into()], ..any_then_16() };
    engine.load("sums", &model("mlp"), &options).expect("it loads");
    let inputs = |long: u64| {
        let shift = full("shift", DataType::Int32, &[1], &1_i32.to_le_bytes());
        [fp32("x", &[1, long], &irregular(long, usize::try_from(long).unwrap())), shift]
    };
    let first = ask(&engine, "sums", &inputs(16));
    let error = submit(&engine, "sums", &inputs(5)).unwrap().wait().unwrap_err();
    assert!(matches!(error, InferError::Run(_)), "{error:?}");
    assert_eq!(
        error.to_string(),
        "the step `judge` takes `add.y` as its input `x`: that is FP32 [1, 5], and it takes FP32 [?, 16]"
    );
    assert_eq!(ask(&engine, "sums", &inputs(16)), first);
    let error = why(&engine, &any_then_16());
    assert!(
        error.contains("its warm-up with `x` [1, 1], `shift` [1], over zeros, fails"),
        "{error}"
    );
    assert!(error.contains("the step `judge` takes `add.y`"), "{error}");
}

#[test]
fn an_error_of_a_steps_own_run_names_the_step() {
    let Some(engine) = engine() else { return };
    let steps = vec![
        step("rows", "lookup", &[("index", "index")]),
        step("sums", "three_outputs", &[("x", "rows.row")]),
    ];
    let options = pipeline(&["index"], steps, &[("sum", "sums.sum"), ("row", "rows.row")]);
    engine.load("table", &model("lookup"), &options).expect("it loads");
    let ask =
        |index: i64| submit(&engine, "table", &[int64("index", &[1], &[index])]).unwrap().wait();
    match ask(99) {
        Err(error) => {
            let error = error.to_string();
            assert!(error.contains("in the step `rows`: "), "{error}");
            assert!(error.contains("out of data bounds"), "{error}");
        }
        // CUDA's kernel gives zeros for an index out of range.
        Ok(answer) => {
            assert_eq!(device(), DeviceKind::Gpu);
            assert_eq!(outputs(&answer)[0].fp32(), [0.0; 4]);
        }
    }
    let answer = ask(3).expect("the pipeline still works");
    let (row, sum) = (&outputs(&answer)[0], &outputs(&answer)[1]);
    close(&sum.fp32(), &[row.fp32().iter().sum()], TOLERANCE);
}

#[test]
fn a_pipeline_that_nobody_wants_ends_within_a_step_and_the_next_request_runs() {
    let Some(engine) = engine() else { return };
    if device() == DeviceKind::Gpu {
        return;
    }
    let steps =
        vec![step("turn", "turns", &[("n", "n")]), step("judge", "mlp", &[("x", "turn.y")])];
    let options = pipeline(&["n"], steps, &[("y", "judge.y"), ("x", "turn.y")]);
    engine.load("late", &model("turns"), &options).expect("it loads");
    let turns = |n: i64| submit(&engine, "late", &[int64("n", &[], &[n])]).unwrap();
    let runs = turns(ENDLESS);
    while engine.waiting("late") > 0 {
        std::thread::yield_now();
    }
    let next = turns(3);
    assert!(runs.ticket.cancel());
    assert_eq!(runs.wait().unwrap_err(), InferError::Cancelled);
    let row: Vec<f32> = (0..16_u8).map(f32::from).collect();
    assert_eq!(next.outputs()[0], fp32("x", &[1, 16], &row));
}

#[test]
fn a_changed_file_of_a_step_is_noticed_by_a_load_that_knows_its_hash() {
    let Some(engine) = engine() else { return };
    let folder = Folder::new();
    let copy = folder.file("reid.onnx", &std::fs::read(model("reid")).unwrap());
    let mut options = tracker();
    own(options.pipeline.as_mut().unwrap(), 5).path.clone_from(&copy);
    let info = engine.load("own", &model("find"), &options).expect("it loads");
    own(options.pipeline.as_mut().unwrap(), 5).sha256 = Some(info.steps[5].sha256.clone());
    std::fs::write(&copy, std::fs::read(model("mlp")).unwrap()).unwrap();
    let error = engine.load("other", &model("find"), &options).unwrap_err();
    assert!(matches!(&error, LoadError::Step { step, .. } if step == "reid"), "{error:?}");
}
