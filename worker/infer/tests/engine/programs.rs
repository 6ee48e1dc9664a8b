//! Programs over grids as steps of a pipeline: between models, in one process, on the device.

use gridpool_device::grids::{GridsOnHost, HostTensors};
use gridpool_infer::{Engine, InferError, ModelOptions, RunError};
use gridpool_protocol::ids::DeviceKind;
use gridpool_protocol::tensor::pipeline::{GridStep, Step, StepBody};
use gridpool_protocol::tensor::{Contexts, DataType};

use crate::harness::{BlockedContext, ask, engine, load, outputs, submit};
use crate::pipelines::{named, pipeline, step, texts, why};
use crate::tensors::{Full, device, fp32, full, model};

/// Grids, as far as these tests compute them themselves.
type Grid = Vec<Vec<u8>>;

fn program(name: &str, text: &str, grids: &str) -> Step {
    let body = StepBody::Program(text.into());
    Step { name: name.to_owned(), body, inputs: texts(&[("grids", grids)]) }
}

/// Numbers to grids, a program over them, and the sums of their columns.
pub(crate) fn between(text: &str, outputs: &[(&str, &str)]) -> ModelOptions {
    let steps = vec![
        step("color", "colors", &[("x", "x")]),
        program("turn", text, "color.grids"),
        step("sum", "columns", &[("grids", "turn.grids")]),
    ];
    pipeline(&["x"], steps, outputs)
}

/// The same, warmed by a tensor of this shape: some ops make an empty grid of one cell, which not every model takes.
fn warmed(options: ModelOptions, shape: [u64; 3]) -> ModelOptions {
    let warm_up = [("x".to_owned(), vec![1, shape[1], shape[2]])];
    ModelOptions { warm_up: vec![warm_up.into()], ..options }
}

pub(crate) const ALL: &[(&str, &str)] =
    &[("sums", "sum.sums"), ("turned", "turn.grids"), ("status", "turn.status")];
const SUMS: &[(&str, &str)] = &[("sums", "sum.sums")];

fn count(number: u64) -> usize {
    usize::try_from(number).expect("a small tensor")
}

/// Numbers that become colours.
pub(crate) fn numbers(shape: [u64; 3]) -> Full {
    let color = |at: usize| u8::try_from(at * at % 41 % 10).expect("a colour");
    let number = |at: usize| f32::from(color(at)) / 10.0 + 0.05;
    let all = count(shape.iter().product());
    fp32("x", &shape, &(0..all).map(number).collect::<Vec<_>>())
}

/// The same with a cell in grid 1 that becomes no colour.
pub(crate) fn bad(shape: [u64; 3]) -> Full {
    let mut all = numbers(shape).fp32();
    all[count(shape[1] * shape[2])] = 1.75;
    fp32("x", &shape, &all)
}

/// The grids of a tensor.
fn grids(tensor: &Full) -> Vec<Grid> {
    let [h, w] = [1, 2].map(|at| count(tensor.shape[at]));
    let rows = |cells: &[u8]| cells.chunks(w).map(<[u8]>::to_vec).collect();
    tensor.bytes.chunks(h * w).map(rows).collect()
}

fn tensor(name: &str, grids: &[Grid], [h, w]: [u64; 2]) -> Full {
    full(name, DataType::Uint8, &[grids.len() as u64, h, w], &grids.concat().concat())
}

fn rot90(grid: &Grid) -> Grid {
    (0..grid[0].len()).map(|column| grid.iter().rev().map(|row| row[column]).collect()).collect()
}

fn recolored(grid: &Grid, old: u8, new: u8) -> Grid {
    let cell = |cell: &u8| if *cell == old { new } else { *cell };
    grid.iter().map(|row| row.iter().map(cell).collect()).collect()
}

/// The engine with both models, to be asked one by one.
fn engine_with_models() -> Option<Engine> {
    let engine = engine()?;
    ["colors", "columns"]
        .iter()
        .for_each(|name| drop(load(&engine, name, &ModelOptions::default())));
    Some(engine)
}

#[test]
fn a_program_between_models_gives_what_is_computed_apart_and_nothing_crosses_the_host() {
    let Some(engine) = engine_with_models() else { return };
    let text = "rot90 | fill(5, ofcolor(0))";
    let info = engine.load("line", &model("colors"), &between(text, ALL)).expect("it loads");
    let listed: Vec<_> = info.outputs.iter().map(ToString::to_string).collect();
    assert_eq!(listed, ["status UINT8 [?, 2]", "sums FP32 [?, ?]", "turned UINT8 [?, ?, ?]"]);
    let compiled = GridStep::compile(text).unwrap();
    let turn = &info.steps[1];
    assert_eq!(
        (turn.model.as_deref(), turn.program.as_deref()),
        (None, Some(compiled.program().text()))
    );
    assert_eq!((&*turn.sha256, turn.nodes.len()), (compiled.program().hash(), 0));
    assert_eq!(
        (info.steps[0].model.as_deref(), &info.steps[0].program),
        (Some("colors.onnx"), &None)
    );
    for shape in [[3, 4, 6], [1, 1, 1], [0, 4, 6], [50, 40, 30], [9, 30, 30], [2, 4, 6]] {
        let x = numbers(shape);
        let answer = submit(&engine, "line", std::slice::from_ref(&x)).unwrap().wait().unwrap();
        let colored = ask(&engine, "colors", std::slice::from_ref(&x));
        let turned: Vec<_> = match shape[0] {
            0 => Vec::new(),
            _ => grids(&colored[0]).iter().map(|grid| recolored(&rot90(grid), 0, 5)).collect(),
        };
        let turned = tensor("turned", &turned, [shape[2], shape[1]]);
        let sums = ask(&engine, "columns", &[named("grids", &turned)]);
        let status = full("status", DataType::Uint8, &[shape[0], 2], &vec![0; 2 * count(shape[0])]);
        assert_eq!(outputs(&answer), [status, sums[0].clone(), turned], "{shape:?}: bit for bit");
        let cells: u64 = shape.iter().product();
        let steps: Vec<_> = answer
            .report
            .steps
            .iter()
            .map(|step| (&*step.name, step.device_bytes, step.host_bytes))
            .collect();
        assert_eq!(steps, [("color", 0, 0), ("turn", cells, 0), ("sum", cells, 0)]);
        assert_eq!(answer.report.steps[1].sha256, turn.sha256);
        assert!(answer.report.steps[1].device_us > 0.0);
    }
}

#[test]
fn results_of_another_size_are_tensors_of_that_size() {
    let Some(engine) = engine_with_models() else { return };
    for (text, shape, size) in [
        ("trim | upscale(2)", [5, 6, 9], [8, 14]),
        ("hsplit(2) | apply(rot90) | vconcat", [3, 4, 8], [8, 4]),
        ("crop(0, 1, 2, 3) | rot90", [300, 5, 5], [3, 2]),
        ("canvas(7, 3, 40)", [2, 1, 1], [3, 40]),
        ("o_g(5) | argmax(size) | fill(9) | tophalf", [4, 12, 7], [6, 7]),
        ("upscale(30) | downscale(30)", [2, 2, 2], [2, 2]),
    ] {
        let options = warmed(between(text, ALL), shape);
        engine.load("sized", &model("colors"), &options).expect("it loads");
        let got = ask(&engine, "sized", &[numbers(shape)]);
        let colored = ask(&engine, "colors", &[numbers(shape)]);
        let want = by_reference(text, &colored[0]);
        assert_eq!(got[2].shape, [shape[0], size[0], size[1]], "{text}");
        assert_eq!(got[2].bytes, want, "{text}");
        assert!(got[0].bytes.iter().all(|byte| *byte == 0), "{text}");
        let sums = ask(&engine, "columns", &[named("grids", &got[2])]);
        assert_eq!(got[1], sums[0], "{text}");
        assert!(engine.unload("sized"));
    }
}

/// What the reference makes of a tensor.
fn by_reference(text: &str, grids: &Full) -> Vec<u8> {
    let step = GridStep::compile(text).expect("a step");
    let shape = [grids.shape[0], grids.shape[1], grids.shape[2]];
    let run = step.run(shape).expect("within the limits");
    let (mut results, mut status) =
        (vec![0; run.count() * run.result_cells()], vec![0; 2 * run.count()]);
    let tensors = HostTensors {
        grids: &grids.bytes,
        sizes: None,
        results: &mut results,
        status: &mut status,
        result_sizes: &mut [],
    };
    GridsOnHost::default().run(&step, &run, tensors);
    results
}

#[test]
fn a_grid_without_a_result_fails_its_request_unless_the_statuses_are_taken() {
    let Some(engine) = engine_with_models() else { return };
    let strict = warmed(between("rot90 | trim", SUMS), [3, 5, 4]);
    engine.load("strict", &model("colors"), &strict).expect("it loads");
    let first = ask(&engine, "strict", &[numbers([3, 5, 4])]);
    let error = submit(&engine, "strict", &[bad([3, 5, 4])]).unwrap().wait().unwrap_err();
    assert!(matches!(&error, InferError::Run(RunError::Grid { grid: 1, .. })), "{error:?}");
    assert_eq!(
        error.to_string(),
        "the step `turn` has no result for grid 1: input: a cell is not a colour from 0 to 9; to have those of the \
         others, take `turn.status` as an output"
    );
    assert_eq!(ask(&engine, "strict", &[numbers([3, 5, 4])]), first);
    // The others have their results, and zeros are in place of what failed.
    for (text, size) in [("rot90 | trim", [2, 3]), ("rot90", [4, 5])] {
        let lenient = warmed(between(text, ALL), [3, 5, 4]);
        engine.load("lenient", &model("colors"), &lenient).expect("it loads");
        let right = ask(&engine, "lenient", &[numbers([3, 5, 4])]);
        let got = ask(&engine, "lenient", &[bad([3, 5, 4])]);
        assert_eq!((&got[0].shape, &got[0].bytes), (&vec![3, 2], &vec![0, 0, 1, 255, 0, 0]));
        let cells = size[0] * size[1];
        assert_eq!(got[2].bytes[..cells], right[2].bytes[..cells]);
        assert_eq!(got[2].bytes[cells..2 * cells], vec![0; cells]);
        assert_eq!(got[2].bytes[2 * cells..], right[2].bytes[2 * cells..]);
        assert!(engine.unload("lenient"));
    }
    // The op is named; nothing is found in grids of zeros, and that is no reason not to load.
    let found = between("objects(true, true, true) | argmax(size) | fill(3)", SUMS);
    engine.load("found", &model("colors"), &found).expect("it loads");
    let empty = fp32("x", &[1, 2, 2], &[0.3; 4]);
    let error = submit(&engine, "found", &[empty]).unwrap().wait().unwrap_err().to_string();
    assert!(
        error.contains("no result for grid 0: argmax(size): there is nothing to work on"),
        "{error}"
    );
}

#[test]
fn a_bad_grid_fails_its_own_request_and_not_those_that_share_its_run() {
    let Some(engine) = engine_with_models() else { return };
    let info = engine.load("rows", &model("colors"), &between("rot90", SUMS)).expect("it loads");
    assert_eq!(info.max_batch, 32, "the grids of a program are independent rows");
    let alone = ask(&engine, "rows", &[numbers([2, 3, 4])]);
    let held = BlockedContext::one(&engine, "rows", &[numbers([2, 3, 4])]);
    let asked: Vec<_> = [numbers([2, 3, 4]), bad([2, 3, 4]), numbers([2, 3, 4])]
        .into_iter()
        .map(|x| submit(&engine, "rows", &[x]).unwrap())
        .collect();
    held.let_go();
    let answers: Vec<_> = asked.into_iter().map(|waiter| waiter.wait()).collect();
    for at in [0, 2] {
        assert_eq!(outputs(answers[at].as_ref().unwrap()), alone);
    }
    let error = answers[1].as_ref().unwrap_err().to_string();
    assert!(error.contains("the step `turn` has no result for grid 1"), "{error}");
    // More grids than a run has: they are counted from the request's first.
    let mut many = numbers([40, 3, 4]).fp32();
    many[35 * 12] = 1.75;
    let waiter = submit(&engine, "rows", &[fp32("x", &[40, 3, 4], &many)]).unwrap();
    let error = waiter.wait().unwrap_err().to_string();
    assert!(error.contains("the step `turn` has no result for grid 35"), "{error}");
}

#[test]
fn contexts_run_a_program_at_once_over_grids_of_other_sizes() {
    let Some(engine) = engine_with_models() else { return };
    let options = ModelOptions {
        contexts: Contexts::Fixed(3),
        max_batch: Some(1),
        ..between(
            "rot90 | o_g(5) | argmax(size) | fill(7)",
            &[("turned", "turn.grids"), ("sums", "sum.sums")],
        )
    };
    engine.load("many", &model("colors"), &options).expect("it loads");
    let shapes = [[7, 5, 5], [1, 30, 30], [64, 3, 9], [12, 17, 2]];
    let want: Vec<_> =
        shapes.iter().map(|shape| ask(&engine, "many", &[numbers(*shape)])).collect();
    let asked: Vec<_> = shapes.iter().cycle().take(48).collect();
    let asked: Vec<_> = asked
        .into_iter()
        .map(|shape| submit(&engine, "many", &[numbers(*shape)]).unwrap())
        .collect();
    for (waiter, want) in asked.into_iter().zip(want.iter().cycle()) {
        assert_eq!(&waiter.outputs(), want);
    }
}

#[test]
fn what_does_not_fit_a_program_is_named_at_load_or_by_the_request() {
    let Some(engine) = engine_with_models() else { return };
    let change = |change: &dyn Fn(&mut Vec<Step>)| {
        let mut options = between("rot90", &[("colors", "color.grids"), ("sums", "sum.sums")]);
        change(&mut options.pipeline.as_mut().unwrap().steps);
        why(&engine, &options)
    };
    let error = change(&|steps| steps[1].inputs = texts(&[("grids", "x")]));
    assert_eq!(
        error,
        "the input `x` is FP32 [?, ?, ?] for the step `color` and UINT8 [?, ?, ?] for the step `turn`"
    );
    let error = change(&|steps| steps[1].inputs = texts(&[("grid", "color.grids")]));
    assert_eq!(
        error,
        "the step `turn` has a wire for `grid`, and has no such input; close to it: grids"
    );
    let error = change(&|steps| steps[2].inputs = texts(&[("grids", "turn.status")]));
    assert_eq!(
        error,
        "the step `sum` takes `turn.status` as its input `grids`: that is UINT8 [?, 2], and it takes UINT8 [?, ?, ?]"
    );
    let error = change(&|steps| steps[2].inputs = texts(&[("grids", "turn.grid")]));
    assert!(
        error.ends_with("and the step `turn` has no output `grid`; close to it: grids"),
        "{error}"
    );
    let error = change(&|steps| steps[1].body = StepBody::Program("rot90 | palette".into()));
    assert!(
        error.contains("its step `turn` cannot run its program: it gives a list of colours"),
        "{error}"
    );

    engine.load("large", &model("colors"), &between("upscale(30)", SUMS)).expect("it loads");
    let ask = |shape: [u64; 3]| submit(&engine, "large", &[numbers(shape)]).unwrap().wait();
    let error = ask([2, 3, 3]).unwrap_err().to_string();
    assert!(
        error.starts_with(
            "the step `turn` takes `color.grids` as its input `grids`: that is UINT8 [2, 3, 3]; its results would be \
             90 x 90, and a grid has at most 255 rows"
        ),
        "{error}"
    );
    let error = ask([1, 70, 70]).unwrap_err().to_string();
    assert!(error.contains("UINT8 [1, 70, 70]; a grid has 1 to 255 rows and columns"), "{error}");
    assert!(ask([1, 2, 2]).is_ok(), "the pipeline still works");
    if device() == DeviceKind::Cpu {
        assert!(ask([3, 0, 2]).is_err(), "no rows");
    }
}
