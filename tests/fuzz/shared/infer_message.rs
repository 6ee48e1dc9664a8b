//! Inference requests over gRPC, as anybody may send them.

use gridpool::gateway::check_message;
use gridpool_inference::{
    Choice, InferInputTensor, InferRequestedOutputTensor, Message, ModelInferRequest,
    TensorContents,
};

/// The message.
pub(crate) fn run(bytes: &[u8]) {
    match check_message(bytes) {
        Ok(items) => assert!((1..=16_384).contains(&items)),
        Err(why) => assert!(!why.is_empty()),
    }
}

/// Requests that are right.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let cells: Vec<u8> = (0..900_u16).map(|at| u8::from(at < 3)).collect();
    let sizes = [1_i32, 3];
    let input = |name: &str, datatype: &str, shape: &[i64]| InferInputTensor {
        name: name.to_owned(),
        datatype: datatype.to_owned(),
        shape: shape.to_vec(),
        ..InferInputTensor::default()
    };
    let inputs = vec![input("GRID", "UINT8", &[1, 30, 30]), input("SIZE", "INT32", &[1, 2])];
    let mut typed = inputs.clone();
    let uint_contents = cells.iter().map(|&cell| cell.into()).collect();
    typed[0].contents = Some(TensorContents { uint_contents, ..TensorContents::default() });
    let int_contents = sizes.to_vec();
    typed[1].contents = Some(TensorContents { int_contents, ..TensorContents::default() });
    let bytes: Vec<u8> = sizes.iter().flat_map(|side| side.to_le_bytes()).collect();
    let raw = ModelInferRequest {
        model_name: "rot90".to_owned(),
        inputs,
        raw_input_contents: vec![cells.into(), bytes.into()],
        ..ModelInferRequest::default()
    };
    let parameters = [
        ("program", Choice::String("rot90 | replace(0, 5)".to_owned())),
        ("timeout", Choice::Int64(1_000)),
        ("priority", Choice::Uint64(1)),
    ];
    let parameters = parameters.map(|(name, value)| (name.to_owned(), value.into()));
    let outputs = ["SIZE", "STATUS"].map(|name| InferRequestedOutputTensor {
        name: name.to_owned(),
        ..InferRequestedOutputTensor::default()
    });
    let program = ModelInferRequest {
        model_name: "program".to_owned(),
        id: "7".to_owned(),
        parameters: parameters.into(),
        inputs: typed,
        outputs: outputs.into(),
        ..ModelInferRequest::default()
    };
    vec![raw.encode_to_vec(), program.encode_to_vec()]
}
