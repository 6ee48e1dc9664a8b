//! Tests of the wires: what fits, and how what does not fit is named.

use super::*;
use crate::tensor::pipeline::{StepModel, StepProgram};

fn spec(name: &str, datatype: DataType, shape: &[i64]) -> TensorSpec {
    TensorSpec::new(name, datatype, shape)
}

fn fp32(name: &str, shape: &[i64]) -> TensorSpec {
    spec(name, DataType::Fp32, shape)
}

fn grids(shape: &[i64]) -> TensorSpec {
    spec("grids", DataType::Uint8, shape)
}

fn tensors(inputs: Vec<TensorSpec>, outputs: Vec<TensorSpec>) -> Option<StepTensors> {
    Some(StepTensors { inputs, outputs })
}

fn step(name: &str, inputs: &[(&str, &str)]) -> Step {
    let text = |&(to, from): &(&str, &str)| (to.to_owned(), from.to_owned());
    let body = StepBody::Model(StepModel { model: "m.onnx".to_owned(), ..StepModel::default() });
    Step { name: name.to_owned(), body, inputs: inputs.iter().map(text).collect() }
}

fn program(name: &str, text: &str, result: Option<[u8; 2]>, inputs: &[(&str, &str)]) -> Step {
    let body = StepBody::Program(StepProgram { text: text.to_owned(), result });
    Step { body, ..step(name, inputs) }
}

fn pipeline(steps: &[Step], outputs: &[(&str, &str)]) -> Pipeline {
    let outputs = outputs.iter().map(|&(to, from)| (to.to_owned(), from.to_owned())).collect();
    Pipeline { inputs: vec!["image".to_owned()], steps: steps.to_vec(), outputs }
}

/// `find` gives boxes, `crop` takes them with the image.
fn pair(crop: &[(&str, &str)], outputs: &[(&str, &str)]) -> Pipeline {
    pipeline(&[step("find", &[("picture", "image")]), step("crop", crop)], outputs)
}

const CROP: &[(&str, &str)] = &[("image", "image"), ("boxes", "find.boxes")];
const OUT: &[(&str, &str)] = &[("where", "find.boxes"), ("crops", "crop.y")];

fn of(pipeline: &Pipeline, boxes: &TensorSpec) -> Result<Vec<TensorSpec>, WireError> {
    let find = tensors(
        vec![fp32("picture", &[1, -1, 32])],
        vec![fp32("scores", &[-1]), fp32("boxes", &[-1, 4])],
    );
    let crop = tensors(vec![fp32("image", &[1, 32, -1]), boxes.clone()], vec![fp32("y", &[-1, 8])]);
    pipeline.check_tensors(&[0, 1], &[find, crop])
}

fn why(pipeline: &Pipeline, boxes: &TensorSpec) -> String {
    of(pipeline, boxes).unwrap_err().to_string()
}

#[test]
fn what_does_not_fit_is_named_with_what_it_is_and_what_is_wanted() {
    let whole = pair(CROP, OUT);
    let error = why(&whole, &fp32("boxes", &[-1, 5]));
    assert_eq!(
        error,
        "the step `crop` takes `find.boxes` as its input `boxes`: that is FP32 [?, 4], and it takes FP32 [?, 5]"
    );
    assert!(why(&whole, &spec("boxes", DataType::Int64, &[-1, 4])).contains("takes INT64 [?, 4]"));
    assert!(why(&whole, &fp32("boxes", &[-1, 4, 1])).contains("takes FP32 [?, 4, 1]"));
    assert!(of(&whole, &fp32("boxes", &[7, 4])).is_ok(), "a run tells");
    let typo = [("image", "image"), ("boxes", "find.boxe")];
    assert_eq!(
        why(&pair(&typo, OUT), &fp32("boxes", &[-1, 4])),
        "the input `boxes` of the step `crop` takes `find.boxe`, and the step `find` has no output `boxe`; close to \
         it: boxes"
    );
    let out = [("crops", "crop.z")];
    let error = why(&pair(CROP, &out), &fp32("boxes", &[-1, 4]));
    assert!(error.starts_with("the output `crops` takes `crop.z`"), "{error}");
    assert!(error.ends_with("no output `z`; there is y"), "{error}");
}

#[test]
fn a_model_gets_all_its_inputs_and_no_others() {
    let boxes = fp32("boxes", &[-1, 4]);
    let error = why(&pair(&CROP[..1], OUT), &boxes);
    assert_eq!(error, "the step `crop` has no wire for its input `boxes`, FP32 [?, 4]");
    let more = [CROP, &[("bxes", "find.boxes")]].concat();
    let error = why(&pair(&more, OUT), &boxes);
    assert!(error.ends_with("has no such input; close to it: boxes"), "{error}");
}

#[test]
fn an_input_that_two_steps_take_in_different_forms_is_refused() {
    let pipeline =
        pair(&[("image", "image"), ("boxes", "image")], &[("c", "crop.y"), ("b", "find.boxes")]);
    let error = why(&pipeline, &fp32("boxes", &[-1, 4]));
    assert_eq!(
        error,
        "the input `image` is FP32 [1, ?, 32] for the step `find` and FP32 [?, 4] for the step `crop`"
    );
}

#[test]
fn of_models_that_are_not_loaded_nothing_is_refused() {
    let crop = [("image", "image"), ("boxes", "find.what"), ("other", "find.boxes")];
    assert_eq!(pair(&crop, OUT).check_tensors(&[0, 1], &[None, None]), Ok(Vec::new()));
}

#[test]
fn what_a_program_gives_has_the_sizes_that_its_wire_fixes() {
    let of = |text: &str, wire: &str, given: &TensorSpec| {
        let steps = [step("color", &[("x", "image")]), step("turn", &[("grids", wire)])];
        let before = tensors(vec![fp32("x", &[-1])], vec![given.clone()]);
        let program = GridStep::compile(text).unwrap();
        pipeline(&steps, &[("out", "turn.grids")]).tensors_of(&program, &[0, 1], &[before])
    };
    let turned = of("rot90 | upscale(2)", "color.grids", &grids(&[-1, 3, 5])).unwrap();
    assert_eq!(turned.inputs, [grids(&[-1, -1, -1])]);
    assert_eq!(turned.outputs[0], grids(&[-1, 10, 6]));
    assert_eq!(turned.outputs[1], spec("status", DataType::Uint8, &[-1, 2]));
    for (wire, given) in [
        ("image", grids(&[7, 3, 5])),
        ("color.grids", grids(&[-1, -1, 5])),
        ("color.grids", fp32("grids", &[-1, 3, 5])),
        ("color.other", grids(&[7, 3, 5])),
    ] {
        let open = of("rot90", wire, &given).unwrap();
        assert_eq!(open.outputs[0], grids(&[-1, -1, -1]), "{wire} {given}");
    }
    let error = of("upscale(9)", "color.grids", &grids(&[-1, 30, 30])).unwrap_err().to_string();
    assert_eq!(
        error,
        "the step `turn` takes `color.grids` as its input `grids`: that is UINT8 [?, 30, 30]; its results would be 270 \
         x 270, and a grid has at most 255 rows and columns, and 4096 cells"
    );
}

#[test]
fn a_program_takes_and_gives_the_sizes_of_its_grids() {
    let cut = StepProgram { text: "trim | compress".to_owned(), result: Some([9, 8]) };
    let cut = GridStep::new(&cut, true).unwrap();
    let with = |sizes: &str| {
        let turn = step("turn", &[("grids", "color.grids"), ("sizes", sizes)]);
        pipeline(&[step("color", &[("x", "image")]), turn], &[("out", "turn.sizes")])
    };
    let sizes = spec("sizes", DataType::Int64, &[-1, 2]);
    let color = tensors(vec![fp32("x", &[-1])], vec![grids(&[-1, 30, 30]), sizes]);
    let turn = with("").tensors_of(&cut, &[0, 1], std::slice::from_ref(&color)).unwrap();
    assert_eq!(turn.outputs[0], grids(&[-1, 9, 8]));
    let known = [color, Some(turn)];
    let wired = |sizes: &str| with(sizes).check_tensors(&[0, 1], &known);
    assert_eq!(wired("color.sizes"), Ok(vec![fp32("image", &[-1])]));
    let error = wired("color.grids").unwrap_err().to_string();
    assert!(
        error.ends_with("its input `sizes`: that is UINT8 [?, 30, 30], and it takes INT64 [?, 2]"),
        "{error}"
    );
}

#[test]
fn a_model_of_one_size_takes_a_programs_results_of_that_size_alone() {
    let steps = [step("turn", &[("grids", "image")]), step("sum", &[("x", "turn.grids")])];
    let pipeline = pipeline(&steps, &[("out", "sum.y")]);
    let fits = |shape: &[i64]| {
        let program = GridStep::compile("rot90").unwrap();
        let turn = tensors(program.inputs(), program.outputs(shape).unwrap());
        let sum = tensors(vec![spec("x", DataType::Uint8, &[-1, 5, 3])], vec![fp32("y", &[-1])]);
        pipeline.check_tensors(&[0, 1], &[turn, sum])
    };
    assert!(fits(&[-1, 3, 5]).is_ok());
    assert!(fits(&[-1, -1, -1]).is_ok(), "a run tells");
    let error = fits(&[-1, 5, 3]).unwrap_err().to_string();
    assert!(error.ends_with("that is UINT8 [?, 3, 5], and it takes UINT8 [?, 5, 3]"), "{error}");
}

/// Grids of a model, cut and then turned by programs.
fn turned(turn: &[(&str, &str)], output: &str) -> Result<(), String> {
    let steps = [
        step("color", &[("x", "image")]),
        program("turn", "rot90 | upscale(3)", None, turn),
        program("cut", "compress", Some([20, 30]), &[("grids", "color.grids")]),
    ];
    let outputs = [("out", output), ("all", "cut.grids"), ("turned", "turn.status")];
    pipeline(&steps, &outputs).check().map_err(|error| error.to_string())
}

#[test]
fn wires_of_programs_are_checked_before_a_model_is_loaded() {
    assert_eq!(turned(&[("grids", "color.any")], "turn.grids"), Ok(()));
    for (turn, output, why) in [
        (
            &[("grids", "color.grids")][..],
            "turn.grid",
            "the output `out` takes `turn.grid`, and the step `turn` has no output `grid`; close to it: grids",
        ),
        (
            &[("grids", "cut.size")],
            "turn.grids",
            "the input `grids` of the step `turn` takes `cut.size`, and the step `cut` has no output `size`; close to \
             it: sizes",
        ),
        (
            &[("grids", "cut.status")],
            "turn.grids",
            "the step `turn` takes `cut.status` as its input `grids`: that is UINT8 [?, 2], and it takes UINT8 [?, \
             ?, ?]",
        ),
        (
            &[("grids", "cut.grids")],
            "turn.grids",
            "the step `turn` takes `cut.grids` as its input `grids`: that is UINT8 [?, 20, 30]; its results would be \
             90 x 60, and a grid has at most 255 rows and columns, and 4096 cells",
        ),
        (
            &[("grid", "color.grids")],
            "turn.grids",
            "the step `turn` has a wire for `grid`, and has no such input; close to it: grids",
        ),
        (&[], "turn.grids", "the step `turn` has no wire for its input `grids`, UINT8 [?, ?, ?]"),
    ] {
        assert_eq!(turned(turn, output), Err(why.to_owned()));
    }
}
