//! Tests of the wires: where each step finds its tensors.

use gridpool_protocol::tensor::pipeline::Step;

use super::*;

fn fp32(name: &str, shape: &[i64]) -> TensorSpec {
    TensorSpec::new(name, DataType::Fp32, shape)
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

#[test]
fn wires_carry_types_and_shapes_from_steps_to_the_whole() {
    let find = signature(
        vec![fp32("picture", &[1, -1, 32])],
        vec![fp32("scores", &[-1]), fp32("boxes", &[-1, 4])],
    );
    let crop = signature(
        vec![fp32("image", &[1, 32, -1]), fp32("boxes", &[-1, 4])],
        vec![fp32("y", &[-1, 8])],
    );
    let (wiring, whole) = Wiring::of(&pair(CROP, OUT), &[0, 1], &[&find, &crop]).unwrap();
    assert_eq!(whole.inputs, [fp32("image", &[1, 32, 32])], "what both steps take");
    assert_eq!(whole.outputs, [fp32("crops", &[-1, 8]), fp32("where", &[-1, 4])]);
    assert_eq!(wiring.steps[0].gives, [1], "nobody takes the scores");
    assert_eq!(wiring.steps[1].takes, [Origin::Input(0), Origin::Step { step: 0, given: 0 }]);
    assert_eq!(wiring.outputs, [(1, 0), (0, 0)]);
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
