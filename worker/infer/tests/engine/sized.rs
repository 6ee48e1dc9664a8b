//! Programs as steps whose cells decide how large a result is, over grids of several sizes in one tensor: solvers and
//! chains. What they give is compared with jobs of the reference, one grid after the other.

use std::path::{Path, PathBuf};
use std::{env, fs};

use gridpool_device::grids::run_batch;
use gridpool_infer::{Engine, InferError, ModelOptions, RunError};
use gridpool_protocol::batch::GridBatch;
use gridpool_protocol::grid::Grid;
use gridpool_protocol::output::Output;
use gridpool_protocol::program::{Program, Ties};
use gridpool_protocol::tensor::pipeline::{GridStep, GridsRun, Step, StepBody, StepProgram};
use gridpool_protocol::tensor::{Contexts, DataType};
use serde_json::Value;

use crate::harness::{BlockedContext, ask, engine, outputs, submit};
use crate::pipelines::{pipeline, step, texts, why};
use crate::tensors::{Full, fp32, full, model};

/// Rows and columns of the tensors of most tests: the largest grids of ARC.
pub(crate) const PLANE: [usize; 2] = [30, 30];
/// More grids than a GPU's launch of a solver takes.
const MANY: usize = 5_000;

pub(crate) const ALL: &[(&str, &str)] = &[
    ("grids", "cut.grids"),
    ("sizes", "cut.sizes"),
    ("status", "cut.status"),
    ("sums", "weigh.sums"),
    ("areas", "weigh.areas"),
];

/// A program over grids of several sizes whose results have several sizes.
pub(crate) fn program(text: &str, result: [u8; 2]) -> StepProgram {
    StepProgram { text: text.to_owned(), result: Some(result) }
}

/// Numbers to grids of several sizes, a program over them, and their sums.
pub(crate) fn between(program: StepProgram, outputs: &[(&str, &str)]) -> ModelOptions {
    let wires = [("grids", "draw.grids"), ("sizes", "draw.sizes")];
    let inputs = texts(&wires);
    let steps = vec![
        step("draw", "ragged", &[("x", "x"), ("s", "s")]),
        Step { name: "cut".to_owned(), body: StepBody::Program(program), inputs },
        step("weigh", "masses", &[("grids", "cut.grids"), ("sizes", "cut.sizes")]),
    ];
    pipeline(&["x", "s"], steps, outputs)
}

/// Both inputs: grids in planes of one size, with `beside` in the rest, and a size for each.
pub(crate) fn inputs(grids: &[Grid], [h, w]: [usize; 2], beside: u8) -> [Full; 2] {
    let number = |color: u8| f32::from(color) / 10.0 + 0.05;
    let (mut x, mut s) = (Vec::new(), Vec::new());
    for grid in grids {
        let start = x.len();
        x.resize(start + h * w, number(beside));
        for (to, row) in x[start..].chunks_mut(w).zip(grid.rows()) {
            to.iter_mut().zip(row).for_each(|(to, color)| *to = number(*color));
        }
        s.extend([grid.h(), grid.w()].map(|side| f32::from(u8::try_from(side).expect("a side"))));
    }
    let sides = [grids.len(), h, w].map(|side| side as u64);
    [fp32("x", &sides, &x), fp32("s", &[sides[0], 2], &s)]
}

/// Rows or columns as sizes have them.
fn side(side: usize) -> i64 {
    i64::try_from(side).expect("at most 255")
}

/// The input grids of all tasks in a folder.
fn grids_of(folder: &Path) -> Vec<Grid> {
    let entries = fs::read_dir(folder).expect("a folder of tasks");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("a file").path()).collect();
    files.sort();
    let is_task = |file: &&PathBuf| file.extension().is_some_and(|ending| ending == "json");
    let mut grids = Vec::new();
    for file in files.iter().filter(is_task) {
        let task: Value = serde_json::from_slice(&fs::read(file).expect("a file")).expect("JSON");
        let pairs =
            ["train", "test"].map(|part| task[part].as_array().cloned().unwrap_or_default());
        for pair in pairs.concat() {
            let rows: Vec<Vec<u8>> =
                serde_json::from_value(pair["input"].clone()).expect("rows of colours");
            let grid = Grid::from_rows(&rows).expect("a grid");
            if grid.h() <= PLANE[0] && grid.w() <= PLANE[1] {
                grids.push(grid);
            }
        }
    }
    grids
}

/// Grids of many sizes, those of the ARC tasks among them if they are here.
pub(crate) fn arc() -> Vec<Grid> {
    let mut grids: Vec<_> = (1..=30)
        .map(|side: usize| {
            let (h, w) = (side, 31 - side);
            let color = |at: usize| u8::try_from((at * at + 3 * at) / 5 % 7 % 4).expect("a colour");
            Grid::new(h, w, (0..h * w).map(color).collect()).expect("a grid")
        })
        .collect();
    grids.extend(grids_of(&model("ragged").with_file_name("../tasks")));
    if let Some(folder) = env::var_os("GRIDPOOL_ARC") {
        grids.extend(grids_of(Path::new(&folder)));
    }
    grids
}

/// What a job of the reference gives for each grid: its result, or its error.
fn by_reference(text: &str, grids: &[Grid]) -> Vec<Result<Grid, String>> {
    let program = Program::compile(text, Ties::default()).expect("a program");
    let outputs =
        run_batch(&program, &GridBatch::from_grids(grids).expect("a batch")).expect("a job");
    let result = |item| match outputs.item(item).expect("an item") {
        Ok(Output::Grid(grid)) => Ok(grid),
        Ok(other) => unreachable!("a step gives grids, and {text} gave {other:?}"),
        Err(error) => Err(error.to_string()),
    };
    (0..grids.len()).map(result).collect()
}

/// Checks the outputs of a run against the reference. Returns how many grids have a result, are too large and failed.
#[track_caller]
fn compare(program: &StepProgram, got: &[Full], want: &[Result<Grid, String>]) -> [usize; 3] {
    let [areas, grids, sizes, status, sums] = got else {
        unreachable!("the pipeline has five outputs")
    };
    let of_step = GridStep::new(program, true).expect("a step");
    let [rows, columns] = program.result.expect("it has one").map(usize::from);
    assert_eq!(grids.shape, [want.len(), rows, columns].map(|side| side as u64));
    assert_eq!((sizes.datatype, &*sizes.shape), (DataType::Int64, &[want.len() as u64, 2][..]));
    let (sides, mut counts) = (sizes.int64(), [0; 3]);
    for (at, want) in want.iter().enumerate() {
        let place = format!("{}: grid {at}", program.text);
        let fits = want.as_ref().is_ok_and(|grid| grid.h() <= rows && grid.w() <= columns);
        let (size, mut plane) = match want {
            Ok(grid) if fits => ([grid.h(), grid.w()], vec![0; rows * columns]),
            Ok(_) | Err(_) => ([0; 2], vec![0; rows * columns]),
        };
        let own = [status.bytes[2 * at], status.bytes[2 * at + 1]];
        match want {
            Ok(grid) if fits => {
                for (to, row) in plane.chunks_mut(columns).zip(grid.rows()) {
                    to[..row.len()].copy_from_slice(row);
                }
                assert_eq!(own, [0, 0], "{place}");
                counts[0] += 1;
            }
            Ok(_) => {
                assert_eq!(own, GridsRun::NO_ROOM, "{place}");
                counts[1] += 1;
            }
            Err(why) => {
                assert_eq!(of_step.error_of(own).as_ref(), Some(why), "{place}");
                counts[2] += 1;
            }
        }
        assert_eq!(sides[2 * at..2 * at + 2], size.map(side), "{place}");
        assert_eq!(grids.bytes[at * rows * columns..][..rows * columns], plane, "{place}");
        let sum: f32 = plane.iter().map(|cell| f32::from(*cell)).sum();
        assert_eq!(sums.fp32()[at].to_bits(), sum.to_bits(), "{place}");
        assert_eq!(areas.fp32()[at].to_bits(), ((size[0] * size[1]) as f32).to_bits(), "{place}");
    }
    counts
}

/// Loads a pipeline of this program, and compares a run over these grids.
#[track_caller]
fn check(engine: &Engine, text: &str, result: [u8; 2], grids: &[Grid]) -> [usize; 3] {
    let program = program(text, result);
    engine.load("cut", &model("ragged"), &between(program.clone(), ALL)).expect("it loads");
    // What lies beside a grid is no part of it, whatever it is.
    let got = ask(engine, "cut", &inputs(grids, PLANE, 12));
    let counts = compare(&program, &got, &by_reference(text, grids));
    assert!(engine.unload("cut"));
    counts
}

#[test]
fn solvers_over_grids_of_many_sizes_give_what_the_reference_gives() {
    let Some(engine) = engine() else { return };
    let grids = arc();
    for (text, result) in [
        ("O = I", [30, 30]),
        ("O = rot90(I)", [20, 20]),
        ("x1 = objects(I, T, F, T)\nx2 = argmax(x1, size)\nO = subgrid(x2, I)", [30, 30]),
        (
            "def solve(I):\n    x1 = fgpartition(I)\n    x2 = merge(x1)\n    return subgrid(x2, I)",
            [9, 9],
        ),
        ("x1 = compress(I)\nO = upscale(x1, TWO)", [30, 30]),
        ("x1 = crop(I, ORIGIN, THREE_BY_THREE)\nO = hconcat(x1, x1)", [3, 6]),
        ("x1 = ofcolor(I, FIVE)\nx2 = outbox(x1)\nO = fill(I, THREE, x2)", [30, 30]),
        ("O = canvas(FIVE, (64, 64))", [64, 64]),
    ] {
        let [fine, ..] = check(&engine, text, result, &grids);
        assert!(fine > 0, "{text}: some grids have a result");
    }
    let many: Vec<_> = grids.iter().cycle().take(MANY).cloned().collect();
    check(&engine, "O = vmirror(I)", [29, 30], &many);
}

#[test]
fn chains_whose_cells_decide_give_what_the_reference_gives() {
    let Some(engine) = engine() else { return };
    let grids = arc();
    for (text, result) in [
        ("identity", [30, 30]),
        ("rot90", [25, 20]),
        ("dmirror | fill(5, ofcolor(0))", [30, 30]),
        ("compress", [30, 30]),
        ("o_g(5) | argmax(size) | subgrid", [12, 12]),
        ("o_g(1) | merge | subgrid | upscale(2)", [30, 30]),
        ("hsplit(2) | apply(compress) | hconcat", [30, 30]),
        ("trim | compress | vsplit(2) | nth(1)", [15, 30]),
    ] {
        let [fine, large, failed] = check(&engine, text, result, &grids);
        assert_eq!(fine + large + failed, grids.len());
        assert!(fine > 0, "{text}: some grids have a result");
    }
}

#[test]
fn what_takes_much_memory_or_many_steps_ends_as_it_does_in_a_job() {
    let Some(engine) = engine() else { return };
    let grids: Vec<_> = [[1, 1], [15, 15], [3, 3], [30, 30], [11, 11], [7, 9]]
        .map(|[h, w]| Grid::new(h, w, vec![4; h * w]).expect("a grid"))
        .to_vec();
    // All pairs of its places: 2 MiB and more for 15 x 15, too many for 30 x 30.
    let pairs =
        "x1 = asindices(I)\nx2 = product(x1, x1)\nx3 = apply(first, x2)\nO = fill(I, THREE, x3)";
    assert_eq!(check(&engine, pairs, [30, 30], &grids), [5, 0, 1]);
    let long = "x1 = interval(0, 1000, 1)\nx2 = apply(lambda a: maximum(apply(lambda b: add(a, b), x1)), x1)\n\
                O = canvas(ONE, astuple(ONE, maximum(x2)))";
    assert_eq!(check(&engine, long, [30, 30], &grids[..2]), [0, 0, 2]);
}

#[test]
fn bad_sizes_and_bad_cells_fail_their_grids_and_no_other() {
    let Some(engine) = engine() else { return };
    let grids = arc()[..12].to_vec();
    for text in ["compress", "O = compress(I)"] {
        let program = program(text, [30, 30]);
        engine.load("cut", &model("ragged"), &between(program.clone(), ALL)).expect("it loads");
        let right = inputs(&grids, PLANE, 0);
        let whole = ask(&engine, "cut", &right);
        let bad = [
            [0.0, 1.0],
            [1.0, 0.0],
            [31.0, 1.0],
            [1.0, 31.0],
            [-1.0, 2.0],
            [257.0, 258.0],
            [-9e18, 9e18],
        ];
        let mut s = right[1].fp32();
        bad.iter().enumerate().for_each(|(at, size)| s[2 * at..2 * at + 2].copy_from_slice(size));
        let mut x = right[0].fp32();
        x[8 * 900] = 1.75;
        let wrong = [fp32("x", &right[0].shape, &x), fp32("s", &right[1].shape, &s)];
        let got = ask(&engine, "cut", &wrong);
        for at in 0..12 {
            let status = [got[3].bytes[2 * at], got[3].bytes[2 * at + 1]];
            let cells = |all: &[Full]| all[1].bytes[900 * at..][..900].to_vec();
            match at {
                0..=6 => assert_eq!(status, GridsRun::BAD_SIZE, "{text} {at}"),
                8 => assert_eq!(status, [1, 255], "{text}"),
                _ => assert_eq!((status, cells(&got)), ([0, 0], cells(&whole)), "{text} {at}"),
            }
            if status != [0, 0] {
                assert_eq!(cells(&got), [0; 900], "{text} {at}");
                assert_eq!(got[2].int64()[2 * at..2 * at + 2], [0, 0], "{text} {at}");
            }
        }
        assert!(engine.unload("cut"));

        // Without an output of statuses the request fails, and the next one has its answer.
        let sums = &[("sums", "weigh.sums")];
        engine.load("strict", &model("ragged"), &between(program, sums)).expect("it loads");
        let error = submit(&engine, "strict", &wrong).unwrap().wait().unwrap_err();
        assert!(matches!(&error, InferError::Run(RunError::Grid { grid: 0, .. })), "{error:?}");
        assert_eq!(
            error.to_string(),
            "the step `cut` has no result for grid 0: input: its size in `sizes` is 0 x 1, and the tensor has room \
             for 1 x 1 to 30 x 30; to have those of the others, take `cut.status` as an output"
        );
        assert_eq!(ask(&engine, "strict", &right), [whole[4].clone()]);
        assert!(engine.unload("strict"));
    }
}

#[test]
fn a_step_may_say_its_size_over_grids_of_one_size_and_give_them_to_another() {
    let Some(engine) = engine() else { return };
    let first = "x1 = objects(I, F, F, T)\nx2 = argmax(x1, size)\nO = subgrid(x2, I)";
    let own = |name: &str, text: &str, inputs: &[(&str, &str)]| {
        let body = StepBody::Program(program(text, [12, 12]));
        Step { name: name.to_owned(), body, inputs: texts(inputs) }
    };
    let steps = vec![
        step("draw", "colors", &[("x", "x")]),
        own("first", first, &[("grids", "draw.grids")]),
        own("second", "rot90 | compress", &[("grids", "first.grids"), ("sizes", "first.sizes")]),
    ];
    let wires =
        &[("grids", "second.grids"), ("sizes", "second.sizes"), ("status", "second.status")];
    let info =
        engine.load("two", &model("colors"), &pipeline(&["x"], steps, wires)).expect("it loads");
    let listed: Vec<_> = info.outputs.iter().map(ToString::to_string).collect();
    assert_eq!(listed, ["grids UINT8 [?, 12, 12]", "sizes INT64 [?, 2]", "status UINT8 [?, 2]"]);
    let of_step = GridStep::new(&program(first, [12, 12]), false).expect("a step");
    assert_eq!(info.steps[1].sha256, of_step.hash());
    let color = |at: usize| u8::try_from(at * at % 41 % 5).expect("a colour");
    let grids: Vec<_> = (0..40)
        .map(|grid| {
            Grid::new(9, 12, (0..108).map(|at| color(at + grid)).collect()).expect("a grid")
        })
        .collect();
    let [x, _] = inputs(&grids, [9, 12], 0);
    let answer = submit(&engine, "two", &[x]).unwrap().wait();
    // `first` has no output of statuses.
    let firsts = by_reference(first, &grids);
    let firsts: Vec<_> = firsts.into_iter().map(|grid| grid.expect("each has an object")).collect();
    let seconds = by_reference("rot90 | compress", &firsts);
    let answer = answer.expect("all have a result");
    let got = outputs(&answer);
    for (at, want) in seconds.iter().enumerate() {
        let want = want.as_ref().expect("it has a result");
        let sides = got[1].int64()[2 * at..2 * at + 2].to_vec();
        assert_eq!(sides, [want.h(), want.w()].map(side), "grid {at}");
        let rows = got[0].bytes[144 * at..][..144].chunks(12).zip(want.rows());
        rows.for_each(|(got, want)| assert_eq!(got[..want.len()], *want, "grid {at}"));
    }
    assert!(answer.report.steps.iter().all(|step| step.host_bytes == 0), "{:?}", answer.report);
    assert_eq!(answer.report.steps[2].device_bytes, 40 * (144 + 16));
}

#[test]
fn requests_share_runs_and_contexts_run_at_once_over_grids_of_several_sizes() {
    let Some(engine) = engine() else { return };
    let text = "O = subgrid(argmax(objects(I, T, F, T), size), I)";
    let program = program(text, [30, 30]);
    let info =
        engine.load("one", &model("ragged"), &between(program.clone(), ALL)).expect("it loads");
    assert_eq!(info.max_batch, 32, "grids of several sizes are independent rows");
    let many = ModelOptions { contexts: Contexts::Fixed(3), ..between(program.clone(), ALL) };
    engine.load("many", &model("ragged"), &many).expect("it loads");
    let all = arc();
    let parts: Vec<_> = all
        .chunks(5)
        .take(6)
        .map(|grids| (inputs(grids, PLANE, 3), by_reference(text, grids)))
        .collect();
    let held = BlockedContext::one(&engine, "one", &parts[0].0);
    let asked = |name: &str| -> Vec<_> {
        parts.iter().map(|(inputs, _)| submit(&engine, name, inputs).unwrap()).collect()
    };
    let (one, more) = (asked("one"), asked("many"));
    held.let_go();
    for (waiter, (_, want)) in one.into_iter().chain(more).zip(parts.iter().cycle()) {
        compare(&program, &waiter.outputs(), want);
    }
}

#[test]
fn sizes_that_do_not_fit_the_grids_are_named_at_load_or_by_the_request() {
    let Some(engine) = engine() else { return };
    let change = |change: &dyn Fn(&mut Step)| {
        let mut options = between(program("compress", [30, 30]), ALL);
        change(&mut options.pipeline.as_mut().unwrap().steps[1]);
        why(&engine, &options)
    };
    let error = change(&|step| step.body = StepBody::Program("rot90".into()));
    assert!(error.contains("its step `cut`: it takes `sizes`, so its results"), "{error}");
    let error =
        change(&|step| step.inputs = texts(&[("grids", "draw.grids"), ("sizes", "draw.grids")]));
    assert!(
        error.ends_with("as its input `sizes`: that is UINT8 [?, ?, ?], and it takes INT64 [?, 2]"),
        "{error}"
    );
    let error = change(&|step| step.inputs = texts(&[("sizes", "draw.sizes")]));
    assert!(
        error.ends_with("the step `cut` has no wire for its input `grids`, UINT8 [?, ?, ?]"),
        "{error}"
    );
    let error =
        change(&|step| step.inputs = texts(&[("grids", "draw.grids"), ("size", "draw.sizes")]));
    assert!(error.contains("has a wire for `size`, and has no such input"), "{error}");
    let error =
        change(&|step| step.body = StepBody::Program(program("O = asindices(I)", [30, 30])));
    assert!(error.contains("it gives a patch, and a step gives one grid for each"), "{error}");

    // Sizes of another request, as it were.
    let steps = vec![
        step("draw", "colors", &[("x", "x")]),
        Step {
            name: "cut".to_owned(),
            body: StepBody::Program(program("O = I", [9, 9])),
            inputs: texts(&[("grids", "draw.grids"), ("sizes", "s")]),
        },
    ];
    let wires = &[("grids", "cut.grids"), ("status", "cut.status")];
    let options = ModelOptions { max_batch: Some(1), ..pipeline(&["x", "s"], steps, wires) };
    engine.load("own", &model("colors"), &options).expect("it loads");
    let [x, _] = inputs(&arc()[..3], PLANE, 0);
    let sizes = |count: usize| {
        full("s", DataType::Int64, &[count as u64, 2], &1_i64.to_le_bytes().repeat(2 * count))
    };
    let error = submit(&engine, "own", &[x.clone(), sizes(2)]).unwrap().wait().unwrap_err();
    assert_eq!(
        error.to_string(),
        "the step `cut` takes `s` as its input `sizes`: that is INT64 [2, 2], and it takes INT64 [3, 2], a size for \
         each grid"
    );
    let got = ask(&engine, "own", &[x, sizes(3)]);
    let mut want = vec![0; 3 * 81];
    arc()[..3].iter().enumerate().for_each(|(at, grid)| want[81 * at] = grid.cells()[0]);
    assert_eq!((&got[0].bytes, &got[1].bytes[..]), (&want, &[0; 6][..]));
}
