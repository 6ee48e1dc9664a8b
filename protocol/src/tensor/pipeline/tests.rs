//! Tests of a pipeline's description.

use super::*;

fn step(name: &str, inputs: &[(&str, &str)]) -> Step {
    let text = |&(to, from): &(&str, &str)| (to.to_owned(), from.to_owned());
    let model = StepModel { model: format!("{name}.onnx"), ..StepModel::default() };
    let (name, body) = (name.to_owned(), StepBody::Model(model));
    Step { name, body, inputs: inputs.iter().map(text).collect() }
}

fn model(pipeline: &mut Pipeline, step: usize) -> &mut StepModel {
    pipeline.steps[step].model_mut().unwrap()
}

/// Detection, then two branches on what was found.
fn tracker() -> Pipeline {
    let outputs = [("boxes", "detect.boxes"), ("pose", "pose.y"), ("who", "reid.y")];
    Pipeline {
        inputs: vec!["image".to_owned()],
        steps: vec![
            step("pose", &[("x", "crop.y")]),
            step("crop", &[("x", "image"), ("boxes", "detect.boxes")]),
            step("reid", &[("x", "crop.y")]),
            step("detect", &[("x", "image")]),
        ],
        outputs: outputs.map(|(to, from)| (to.to_owned(), from.to_owned())).into(),
    }
}

fn why(change: impl FnOnce(&mut Pipeline)) -> String {
    let mut pipeline = tracker();
    change(&mut pipeline);
    pipeline.check().unwrap_err().to_string()
}

fn wire(pipeline: &mut Pipeline, step: usize, input: &str, wire: &str) {
    pipeline.steps[step].inputs.insert(input.to_owned(), wire.to_owned());
}

#[test]
fn steps_run_after_those_whose_outputs_they_take() {
    let pipeline = tracker();
    assert_eq!(pipeline.check(), Ok(()));
    assert_eq!(pipeline.order(), Ok(vec![3, 1, 0, 2]), "detect, crop, pose, reid");
}

#[test]
fn a_wire_that_begins_nowhere_is_named_with_what_is_close() {
    let error = why(|pipeline| wire(pipeline, 1, "boxes", "detct.boxes"));
    let want = "the input `boxes` of the step `crop` takes `detct.boxes`, and there is no step `detct`; close to it: \
                detect";
    assert_eq!(error, want);
    let error = why(|pipeline| wire(pipeline, 0, "x", "picture"));
    assert!(error.ends_with("there is no input `picture`; there is image"), "{error}");
    let error = why(|pipeline| wire(pipeline, 0, "x", "crop"));
    assert!(
        error.ends_with("which is a step: write `crop.TENSOR` with one of its outputs"),
        "{error}"
    );
    let error = why(|pipeline| drop(pipeline.outputs.insert("boxes".into(), "none.x".into())));
    assert!(error.starts_with("the output `boxes` takes `none.x`"), "{error}");
    let error = why(|pipeline| drop(pipeline.outputs.insert("same".into(), "image".into())));
    assert!(error.starts_with("its output `same` is its input `image`"), "{error}");
    let error = why(|pipeline| drop(pipeline.outputs.insert("same".into(), "reid.y".into())));
    assert_eq!(error, "its outputs `same` and `who` are both `reid.y`: keep one");
}

#[test]
fn steps_in_a_circle_are_named_in_its_order() {
    let error = why(|pipeline| wire(pipeline, 3, "back", "crop.y"));
    assert_eq!(
        error,
        "its steps wait for each other: crop takes an output of detect takes an output of crop"
    );
    let error = why(|pipeline| wire(pipeline, 3, "back", "detect.boxes"));
    assert!(error.ends_with("detect takes an output of detect"), "{error}");
}

#[test]
fn names_and_numbers_are_within_their_limits() {
    let error = why(|pipeline| pipeline.steps[0].name = "po.se".into());
    assert!(error.starts_with("`po.se` cannot be the name of its step"), "{error}");
    let error = why(|pipeline| pipeline.inputs[0] = String::new());
    assert!(error.starts_with("`` cannot be the name of its input"), "{error}");
    let error = why(|pipeline| pipeline.steps[0].name = "reid".into());
    assert_eq!(error, "its step `reid` is there twice: keep one, or rename one");
    assert_eq!(why(|pipeline| pipeline.steps.clear()), "it has 0 steps: write 1 to 16");
    let more = |pipeline: &mut Pipeline| {
        let names = (0..PIPELINE_STEPS_MAX).map(|at| step(&format!("s{at}"), &[("x", "image")]));
        pipeline.steps.extend(names);
    };
    assert!(why(more).starts_with("it has 20 steps"));
    let more = |pipeline: &mut Pipeline| {
        (0..PIPELINE_WIRES_MAX).for_each(|at| wire(pipeline, 0, &format!("x{at}"), "image"));
    };
    assert!(why(more).starts_with("it has 264 wires"), "{}", why(more));
    assert_eq!(why(|pipeline| pipeline.outputs.clear()), "it has no output: name at least one");
    assert_eq!(why(|pipeline| pipeline.inputs.clear()), "it has no input: name at least one");
    let error = why(|pipeline| drop(pipeline.outputs.remove("who")));
    assert_eq!(error, "nothing takes its step `reid`: wire it, or leave it out");
    let error = why(|pipeline| pipeline.inputs.push("mask".into()));
    assert_eq!(error, "nothing takes its input `mask`: wire it, or leave it out");
}

#[test]
fn a_step_finds_the_file_of_a_model_by_name_with_its_hash() {
    let mut pipeline = tracker();
    (0..3).for_each(|step| model(&mut pipeline, step).path = "/models/some.onnx".into());
    model(&mut pipeline, 3).model = "yolo".to_owned();
    let names_file = [3, 0].map(|step| pipeline.steps[step].model().unwrap().names_file());
    assert_eq!(names_file, [false, true]);
    let (path, hash) = (PathBuf::from("/models/yolo.onnx"), Some("ab".to_owned()));
    let find = |name: &str| (name == "yolo8").then_some((&path, &hash));
    let error = pipeline.find_models(&["yolo8"], find).unwrap_err().to_string();
    assert!(error.starts_with("its step `detect` runs the model `yolo`, and"), "{error}");
    assert!(error.contains("close to it: yolo8."), "{error}");
    let found = pipeline.find_models(&["line"], find).unwrap_err().to_string();
    assert!(found.contains("there is no such model; there is none"), "no pipeline: {found}");
    model(&mut pipeline, 3).model = "line".to_owned();
    let error = pipeline.find_models(&["line", "yolo8"], find).unwrap_err().to_string();
    assert!(error.ends_with("`line`, which is a pipeline: a step cannot be a pipeline"), "{error}");
    model(&mut pipeline, 3).model = "yolo8".to_owned();
    let as_written = pipeline.clone();
    pipeline.find_models(&["yolo8"], find).unwrap();
    let found = model(&mut pipeline, 3).clone();
    assert_eq!((&found.path, &found.sha256), (&path, &hash));
    assert!(!pipeline.is_same(&as_written), "another file");
    let mut other = pipeline.clone();
    model(&mut other, 3).sha256 = None;
    assert!(pipeline.is_same(&other));
}

#[test]
fn the_hash_of_a_pipeline_covers_its_wires_and_the_files_of_its_steps() {
    let hashes = ["a", "b", "c", "d"].map(str::to_owned);
    let pipeline = tracker();
    let text = pipeline.hashed(&hashes);
    assert!(text.contains("step crop b\n  boxes = detect.boxes\n  x = image\n"), "{text}");
    assert!(text.ends_with("output who = reid.y\n"), "{text}");
    let mut other = tracker();
    wire(&mut other, 0, "x", "image");
    assert_ne!(other.hashed(&hashes), text);
}

/// What the step `crop` is told if it has this program.
fn refused(text: &str) -> String {
    why(|pipeline| pipeline.steps[1].body = StepBody::Program(text.into()))
}

#[test]
fn a_program_that_cannot_be_a_step_is_refused_with_the_step_and_the_reason() {
    let mut pipeline = tracker();
    pipeline.steps[1] = step("crop", &[("grids", "detect.boxes")]);
    pipeline.steps[1].body = StepBody::Program("rot90 | fill(5, ofcolor(0))".into());
    pipeline.steps.iter_mut().for_each(|step| {
        step.inputs
            .values_mut()
            .filter(|wire| *wire == "crop.y")
            .for_each(|wire| *wire = "crop.grids".into());
    });
    assert_eq!(pipeline.check(), Ok(()));
    let before = pipeline.clone();
    pipeline.find_models(&[], |_| Some((Box::leak(Box::new("/m".into())), &None))).unwrap();
    assert_eq!(pipeline.steps[1], before.steps[1], "it has no file");
    for (text, reason) in [
        ("rot9", "there is no op `rot9`"),
        (
            "o_g(5)",
            "it gives a list of objects, and a step gives one grid for each: end with an op",
        ),
        ("hsplit(2)", "it gives a pair of grids, and a step gives one grid for each"),
        ("first", "it takes pairs of grids, and a step takes grids: leave `first` out"),
        ("trim | compress", "the cells decide how large a result of `compress` is"),
        ("o_g(5) | merge | subgrid", "the cells decide how large a result of `subgrid` is"),
        (
            "O = rot90(I)",
            "it is a solver, whose cells decide how large a result is: add `result = [",
        ),
        (
            "O = objects(I, T, F, T)",
            "it gives a set of objects, and a step gives one grid for each",
        ),
        ("x = I\nO = rot9(x)", "line 2, column 5: there is no"),
        (&"x".repeat(20_000), "it has 20000 bytes; a program has at most 16384"),
    ] {
        let error = refused(text);
        let start = "its step `crop` cannot run its program: ";
        assert!(error.starts_with(start) && error.contains(reason), "{text}: {error}");
    }
    let all = |pipeline: &mut Pipeline| {
        let program = StepBody::Program("rot90".into());
        pipeline.steps.iter_mut().for_each(|step| step.body = program.clone());
    };
    assert!(why(all).starts_with("all its steps are programs, and a pipeline has a model"));
}

fn listed(specs: &[crate::tensor::TensorSpec]) -> Vec<String> {
    specs.iter().map(ToString::to_string).collect()
}

#[test]
fn a_step_that_says_the_size_of_its_results_runs_what_the_cells_decide() {
    let step = |text: &str, takes_sizes| {
        let program = StepProgram { text: text.to_owned(), result: Some([30, 20]) };
        GridStep::new(&program, takes_sizes)
    };
    let chain = step("o_g(5) | argmax(size) | subgrid", false).unwrap();
    assert_eq!(listed(&chain.inputs()), ["grids UINT8 [?, ?, ?]"]);
    let open = ["grids UINT8 [?, 30, 20]", "status UINT8 [?, 2]", "sizes INT64 [?, 2]"];
    assert_eq!(listed(&chain.outputs(&[-1, -1, 7]).unwrap()), open);
    let solver = step("x = ofcolor(I, FIVE)\nO = subgrid(x, I)", true).unwrap();
    assert_eq!(listed(&solver.inputs()), ["grids UINT8 [?, ?, ?]", "sizes INT64 [?, 2]"]);
    assert_eq!(listed(&solver.outputs(&[4, 9, 9]).unwrap())[2], "sizes INT64 [4, 2]");
    let run = solver.run([4, 9, 8]).unwrap();
    assert_eq!((run.count(), run.size, run.area(), run.result), (4, [9, 8], 72, [30, 20]));
    assert!(solver.outputs(&[-1, 65, 64]).unwrap_err().to_string().ends_with("not 65 x 64"));
    let much = solver.run([3_000_000, 1, 1]).unwrap_err().to_string();
    assert!(much.contains("cells"), "its results are a tensor, too: {much}");

    for (result, size) in [([0, 5], "0 x 5"), ([65, 64], "65 x 64")] {
        let program = StepProgram { text: "rot90".to_owned(), result: Some(result) };
        let why = GridStep::new(&program, false).unwrap_err().to_string();
        assert!(
            why.starts_with(&format!("its `result` is {size}, and a grid has 1 to 255")),
            "{why}"
        );
    }
    let why = GridStep::new(&"rot90".into(), true).unwrap_err().to_string();
    assert!(why.starts_with("it takes `sizes`, so its results have several sizes: add `result"));
    assert!(step("first", false).unwrap_err().to_string().starts_with("it takes pairs of grids"));
    let why = step("O = size(I)", false).unwrap_err().to_string();
    assert!(why.starts_with("it gives a number, and a step gives one grid for each"), "{why}");
}

#[test]
fn the_hash_of_a_step_covers_its_program_and_the_size_of_its_results() {
    let hash = |text: &str, result| {
        GridStep::new(&StepProgram { text: text.to_owned(), result }, false).unwrap().hash()
    };
    let plain = hash("rot90", None);
    assert_eq!(plain, GridStep::compile("rot90").unwrap().program().hash());
    let sized = hash("rot90", Some([30, 20]));
    assert_eq!((sized.len(), &sized), (64, &hash("rot90 ", Some([30, 20]))));
    let others = [&plain, &hash("rot90", Some([20, 30])), &hash("rot180", Some([30, 20]))];
    assert!(others.iter().all(|other| **other != sized));
}

#[test]
fn a_status_names_the_place_that_it_can() {
    let of = |text: &str| {
        let program = StepProgram { text: text.to_owned(), result: Some([3, 3]) };
        GridStep::new(&program, true).unwrap()
    };
    let solver = of("def solve(I):\n  x = ofcolor(I, FIVE)\n  return subgrid(x, I)");
    let why = |status| solver.error_of(status).unwrap_or_default();
    let last = u8::try_from(solver.program().length()).unwrap() - 2;
    assert!(why([4, last]).starts_with("subgrid in line 3: "), "{}", why([4, last]));
    assert!(why([1, 255]).starts_with("input: a cell is not a colour"));
    assert_eq!(why(GridsRun::NO_ROOM), "its result is larger than 3 x 3, the `result` of the step");
    assert!(why(GridsRun::BAD_SIZE).starts_with("input: its size in `sizes` does not fit"));
    assert!(why([10, 254]).starts_with("one of its instructions from 254 on: the item has run"));
    assert_eq!(why([4, 200]), "it has the status 4 of op 200, which no program gives");
    assert_eq!(solver.error_of([0, 0]), None);
    assert_eq!(
        of("trim").error_of([4, 0]).unwrap(),
        "trim: there is nothing to work on: the value before it is empty"
    );
    assert_eq!(GridsRun::status_of(10, 3), [10, 3]);
    assert_eq!(GridsRun::status_of(10, 300), [10, 254], "255 is the input");
}

#[test]
fn the_tensors_of_a_program_have_the_sizes_of_its_results() {
    let step = GridStep::compile("rot90 | upscale(2)").unwrap();
    let written = |grids: &[i64]| listed(&step.outputs(grids).unwrap());
    assert_eq!(listed(&step.inputs()), ["grids UINT8 [?, ?, ?]"]);
    assert_eq!(written(&[-1, -1, -1]), ["grids UINT8 [?, ?, ?]", "status UINT8 [?, 2]"]);
    assert_eq!(written(&[7, 3, 5]), ["grids UINT8 [7, 10, 6]", "status UINT8 [7, 2]"]);
    assert_eq!(written(&[-1, 3, -1])[0], "grids UINT8 [?, ?, ?]");
    let run = step.run([7, 3, 5]).unwrap();
    assert_eq!((run.count(), run.size, run.result, run.result_cells()), (7, [3, 5], [10, 6], 60));
    assert_eq!(step.run([0, 3, 5]).unwrap().batch, None);
    let why = |shape| step.run(shape).unwrap_err().to_string();
    assert!(why([1, 0, 5]).ends_with("not 0 x 5"));
    assert!(why([1, 65, 64]).ends_with("at most 4096 cells, not 65 x 64"));
    assert!(why([1, 256, 1]).contains("1 to 255 rows"));
    assert!(why([1, 40, 40]).starts_with("its results would be 80 x 80, and a grid has"));
    assert!(why([1, 1, 200]).starts_with("its results would be 400 x 2"));
    assert!(why([5_000_000, 1, 1]).contains("at most 4194304"));
    assert!(why([1 << 40, 3, 5]).contains("items"));
    assert!(step.outputs(&[-1, 40, 40]).is_err());
    assert_eq!(step.error_of([0, 0]), None);
    assert_eq!(step.error_of([1, 255]).unwrap(), "input: a cell is not a colour from 0 to 9");
    assert!(step.error_of([3, 1]).unwrap().starts_with("upscale(2): the result would have over"));
    assert!(step.error_of([99, 0]).unwrap().contains("the status 99 of op 0"));
}
