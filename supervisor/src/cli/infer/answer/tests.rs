//! What is printed of an answer.

use gridpool_protocol::receipt::Verdict;
use gridpool_protocol::tensor::{DataType, Tensor, TensorLayout};
use serde_json::{Value, json};

use super::super::error::InferError;
use super::*;

fn answer(count: u64) -> Answer<TensorOutputs> {
    let scores = Tensor::new("scores", DataType::Fp32, vec![1, count]).unwrap();
    let found = Tensor::new("found", DataType::Bool, vec![]).unwrap();
    let half = |_| 0.5_f32.to_le_bytes();
    let data: Vec<u8> = (0..count).flat_map(half).collect();
    let packed = TensorLayout::new(vec![scores, found]).unwrap().pack(&[&data, &[1]]).unwrap();
    let outputs = Some(TensorOutputs::new(packed).unwrap());
    Answer::new(receipt(Verdict::Ok, ""), outputs)
}

fn receipt(verdict: Verdict, reason: &str) -> Receipt {
    Receipt {
        host: String::new(),
        job: "job1".into(),
        key: "00".into(),
        program_hash: "".into(),
        trace_id: String::new(),
        items: 1,
        item_errors: 0,
        verdict,
        reason: reason.into(),
        queue_us: 1,
        total_us: 1_234,
        attempts: Vec::new(),
    }
}

fn text(answer: &Answer<TensorOutputs>) -> String {
    let mut out = Vec::new();
    write(&mut out, "m", answer).unwrap();
    String::from_utf8(out).unwrap()
}

fn document(answer: &Answer<TensorOutputs>, with_data: bool) -> Value {
    let mut out = Vec::new();
    write_json(&mut out, answer, with_data).unwrap();
    serde_json::from_slice(&out).unwrap()
}

#[test]
fn people_see_names_types_shapes_and_the_first_elements() {
    let want = "scores FP32 [1, 3]: 0.5 0.5 0.5\nfound BOOL []: true\nm: OK in 1.2 ms\n";
    assert_eq!(text(&answer(3)), want);
    let first = text(&answer(1_000));
    let eight = " 0.5".repeat(SHOWN_MAX);
    assert_eq!(first.lines().next().unwrap(), format!("scores FP32 [1, 1000]:{eight} …"));
}

#[test]
fn the_document_has_every_element_unless_a_file_has_them() {
    // More than are copied at a time.
    let count = 40_000;
    let with_data = document(&answer(count), true);
    assert_eq!(with_data["outputs"][0]["data"].as_array().unwrap().len(), 40_000);
    let found = json!({"name": "found", "datatype": "BOOL", "shape": [], "data": [true]});
    assert_eq!(with_data["outputs"][1], found);
    assert_eq!(with_data["receipt"]["verdict"], "OK");
    let without = document(&answer(3), false);
    let scores = json!({"name": "scores", "datatype": "FP32", "shape": [1, 3]});
    assert_eq!(without["outputs"][0], scores);
    let failed = Answer::new(receipt(Verdict::Failed, "x"), None);
    assert_eq!(document(&failed, true)["outputs"], Value::Null);
}

#[test]
fn a_request_without_space_for_its_outputs_says_how_much_it_needs() {
    let reason = "the outputs have no room: the tensors have 4096 bytes; 65600 are needed";
    let error = InferError::verdict("m", &receipt(Verdict::Failed, reason));
    assert_eq!(error.exit_code(), 1);
    let said = error.to_string();
    assert_eq!(said, format!("m: FAILED: {reason}: try again with --output-bytes 65600"));
    let late = InferError::verdict("m", &receipt(Verdict::Deadline, "its deadline passed"));
    assert_eq!(late.to_string(), "m: DEADLINE: its deadline passed");
}
