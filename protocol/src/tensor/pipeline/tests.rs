//! Tests of a pipeline's description.

use super::*;

fn step(name: &str, inputs: &[(&str, &str)]) -> Step {
    let text = |&(to, from): &(&str, &str)| (to.to_owned(), from.to_owned());
    let (name, model) = (name.to_owned(), format!("{name}.onnx"));
    Step { name, model, inputs: inputs.iter().map(text).collect(), ..Step::default() }
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
    for step in &mut pipeline.steps[..3] {
        step.path = "/models/some.onnx".into();
    }
    pipeline.steps[3].model = "yolo".to_owned();
    assert!(!pipeline.steps[3].names_file() && pipeline.steps[0].names_file());
    let (path, hash) = (PathBuf::from("/models/yolo.onnx"), Some("ab".to_owned()));
    let find = |name: &str| (name == "yolo8").then_some((&path, &hash));
    let error = pipeline.find_models(&["yolo8"], find).unwrap_err().to_string();
    assert!(error.starts_with("its step `detect` runs the model `yolo`, and"), "{error}");
    assert!(error.contains("close to it: yolo8."), "{error}");
    pipeline.steps[3].model = "yolo8".to_owned();
    let as_written = pipeline.clone();
    pipeline.find_models(&["yolo8"], find).unwrap();
    assert_eq!((&pipeline.steps[3].path, &pipeline.steps[3].sha256), (&path, &hash));
    assert!(!pipeline.is_same(&as_written), "another file");
    let mut other = pipeline.clone();
    other.steps[3].sha256 = None;
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
