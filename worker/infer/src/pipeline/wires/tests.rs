//! Tests of the wires: what fits, and how what does not fit is named.

use gridpool_protocol::tensor::pipeline::{Step, StepProgram};

use super::*;

fn spec(name: &str, datatype: DataType, shape: &[i64]) -> TensorSpec {
    TensorSpec::new(name, datatype, shape)
}

fn fp32(name: &str, shape: &[i64]) -> TensorSpec {
    spec(name, DataType::Fp32, shape)
}

fn signature(inputs: Vec<TensorSpec>, outputs: Vec<TensorSpec>) -> Signature {
    Signature { inputs, outputs, may_have_rows: true, rows_share_a_name: true }
}

fn step(name: &str, inputs: &[(&str, &str)]) -> Step {
    let text = |&(to, from): &(&str, &str)| (to.to_owned(), from.to_owned());
    Step { name: name.to_owned(), inputs: inputs.iter().map(text).collect(), ..Step::default() }
}

/// `find` gives boxes, `crop` takes them with the image.
fn pair(crop: &[(&str, &str)], outputs: &[(&str, &str)]) -> Pipeline {
    Pipeline {
        inputs: vec!["image".to_owned()],
        steps: vec![step("find", &[("picture", "image")]), step("crop", crop)],
        outputs: outputs.iter().map(|&(to, from)| (to.to_owned(), from.to_owned())).collect(),
    }
}

const CROP: &[(&str, &str)] = &[("image", "image"), ("boxes", "find.boxes")];
const OUT: &[(&str, &str)] = &[("where", "find.boxes"), ("crops", "crop.y")];

fn of(pipeline: &Pipeline, boxes: &TensorSpec) -> Result<(Wiring, Signature), WireError> {
    let find = signature(
        vec![fp32("picture", &[1, -1, 32])],
        vec![fp32("scores", &[-1]), fp32("boxes", &[-1, 4])],
    );
    let crop =
        signature(vec![fp32("image", &[1, 32, -1]), boxes.clone()], vec![fp32("y", &[-1, 8])]);
    Wiring::of(pipeline, &[0, 1], &[&find, &crop])
}

fn why(pipeline: &Pipeline, boxes: &TensorSpec) -> String {
    of(pipeline, boxes).unwrap_err().to_string()
}

#[test]
fn wires_carry_types_and_shapes_from_steps_to_the_whole() {
    let (wiring, whole) = of(&pair(CROP, OUT), &fp32("boxes", &[-1, 4])).unwrap();
    assert_eq!(whole.inputs, [fp32("image", &[1, 32, 32])], "what both steps take");
    assert_eq!(whole.outputs, [fp32("crops", &[-1, 8]), fp32("where", &[-1, 4])]);
    assert_eq!(wiring.steps[0].gives, [1], "nobody takes the scores");
    assert_eq!(wiring.steps[1].takes, [Origin::Input(0), Origin::Step { step: 0, given: 0 }]);
    assert_eq!(wiring.outputs, [(1, 0), (0, 0)]);
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
        "the input `image` is FP32 [1, 32, 32] for the step `find` and FP32 [?, 4] for the step `crop`"
    );
}

#[test]
fn a_run_tells_what_was_open() {
    let want = fp32("boxes", &[-1, 4]);
    assert!(takes(&want, Some(DataType::Fp32), &[0, 4]));
    assert!(!takes(&want, Some(DataType::Fp32), &[4]));
    assert!(!takes(&want, Some(DataType::Fp32), &[3, 5]));
    assert!(!takes(&want, Some(DataType::Fp64), &[3, 4]));
    assert!(!takes(&want, None, &[3, 4]));
}

#[test]
fn what_a_program_gives_has_the_sizes_that_its_wire_fixes() {
    let program = |text: &str| GridStep::compile(text).unwrap();
    let grids = |shape: &[i64]| spec("grids", DataType::Uint8, shape);
    let pipeline = |wire: &str| Pipeline {
        inputs: vec!["image".to_owned()],
        steps: vec![step("color", &[("x", "image")]), step("turn", &[("grids", wire)])],
        outputs: [("out".to_owned(), "turn.grids".to_owned())].into(),
    };
    let of = |text: &str, wire: &str, given: &TensorSpec| {
        let before = signature(vec![fp32("x", &[-1])], vec![given.clone()]);
        of_program(&program(text), &pipeline(wire), &[0, 1], &[Arc::new(before)])
    };
    let turned = of("rot90 | upscale(2)", "color.grids", &grids(&[-1, 3, 5])).unwrap();
    assert_eq!(turned.inputs, [grids(&[-1, -1, -1])]);
    assert_eq!(turned.outputs[0], grids(&[-1, 10, 6]));
    assert_eq!(turned.outputs[1], spec("status", DataType::Uint8, &[-1, 2]));
    assert!(turned.may_have_rows && turned.rows_share_a_name, "each grid is on its own");
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
    let program = StepProgram { text: "trim | compress".to_owned(), result: Some([9, 8]) };
    let program = GridStep::new(&program, true).unwrap();
    let pipeline = |sizes: &str| Pipeline {
        inputs: vec!["image".to_owned()],
        steps: vec![
            step("color", &[("x", "image")]),
            step("turn", &[("grids", "color.grids"), ("sizes", sizes)]),
        ],
        outputs: [("out".to_owned(), "turn.sizes".to_owned())].into(),
    };
    let grids = spec("grids", DataType::Uint8, &[-1, 30, 30]);
    let color =
        signature(vec![fp32("x", &[-1])], vec![grids, spec("sizes", DataType::Int64, &[-1, 2])]);
    let turn = of_program(&program, &pipeline(""), &[0, 1], &[Arc::new(color.clone())]).unwrap();
    assert_eq!(turn.outputs[0], spec("grids", DataType::Uint8, &[-1, 9, 8]));
    let wired = |sizes: &str| Wiring::of(&pipeline(sizes), &[0, 1], &[&color, &turn]);
    let (wiring, whole) = wired("color.sizes").unwrap();
    assert_eq!((&wiring.steps[1].gives, wiring.steps[1].takes.len()), (&vec![2], 2));
    assert_eq!(whole.outputs, [spec("out", DataType::Int64, &[-1, 2])]);
    let error = wired("color.grids").unwrap_err().to_string();
    assert!(
        error.ends_with("its input `sizes`: that is UINT8 [?, 30, 30], and it takes INT64 [?, 2]"),
        "{error}"
    );
}

#[test]
fn a_model_of_one_size_takes_a_programs_results_of_that_size_alone() {
    let pipeline = Pipeline {
        inputs: vec!["image".to_owned()],
        steps: vec![step("turn", &[("grids", "image")]), step("sum", &[("x", "turn.grids")])],
        outputs: [("out".to_owned(), "sum.y".to_owned())].into(),
    };
    let turn = |shape: &[i64]| {
        let program = GridStep::compile("rot90").unwrap();
        signature(program.inputs(), program.outputs(shape).unwrap())
    };
    let sum = signature(vec![spec("x", DataType::Uint8, &[-1, 5, 3])], vec![fp32("y", &[-1])]);
    let fits = |shape: &[i64]| Wiring::of(&pipeline, &[0, 1], &[&turn(shape), &sum]);
    assert_eq!(fits(&[-1, 3, 5]).unwrap().0.steps[0].gives, [0], "nobody takes the statuses");
    assert!(fits(&[-1, -1, -1]).is_ok(), "a run tells");
    let error = fits(&[-1, 5, 3]).unwrap_err().to_string();
    assert!(error.ends_with("that is UINT8 [?, 3, 5], and it takes UINT8 [?, 5, 3]"), "{error}");
}
