//! Requests of a client that follows no rules: each fails with a sentence, and the worker serves on.

use gridpool_protocol::ids::JobKey;
use gridpool_protocol::message::{
    ClientMessage, Destination, Inline, Input, Packing, Payload, Priority, ServerMessage,
    Submission, Terms, Work,
};
use gridpool_protocol::receipt::Verdict;
use gridpool_protocol::tensor::{DataType, Tensor, TensorLayout};

use super::*;
use crate::raw::Raw;

/// Bytes of a packed set of tensors before the first tensor, and of a tensor before its name.
const SET_HEAD_BYTES: usize = 16;
const TENSOR_HEAD_BYTES: usize = 4;

/// Shapes that a header may claim, and none can have.
const SIDES: [(&str, &[u64]); 6] = [
    ("a dimension of -1", &[u64::MAX]),
    ("a dimension of i64::MIN", &[1 << 63]),
    ("2^32 x 2^32, which is 0 in 64 bits", &[1 << 32, 1 << 32]),
    ("2^33 x 2^33 x 2^33", &[1 << 33, 1 << 33, 1 << 33]),
    ("more bytes than were sent", &[1 << 20]),
    ("no dimension where the model has some, or too many", &[1; 16]),
];

/// Packed tensors with one that claims this shape: a header of a good set, with other sides in it.
fn claiming(name: &str, sides: &[u64]) -> Vec<u8> {
    let honest = Tensor::new(name, DataType::Fp32, vec![1; sides.len()]).expect("a small tensor");
    let layout = TensorLayout::new(vec![honest]).expect("one small tensor");
    let mut packed = layout.pack(&[&[0; 4]]).expect("its data is as long as it says");
    let at = SET_HEAD_BYTES + TENSOR_HEAD_BYTES + name.len();
    for (axis, side) in sides.iter().enumerate() {
        packed[at + 8 * axis..at + 8 * axis + 8].copy_from_slice(&side.to_le_bytes());
    }
    packed
}

fn request(key: u128, packed: Vec<u8>) -> ClientMessage {
    let (input, output) = (Input::Inline(Inline(packed)), Destination::Inline);
    let (deadline_ms, priority) = (60_000, Priority::Normal);
    ClientMessage::Submit(Box::new(Submission {
        key: JobKey(key),
        work: Work::Model { name: "three_outputs".to_owned() },
        payload: Payload { packing: Packing::Tensors, input, output },
        terms: Terms { deadline_ms, priority, idempotent: true, chaos: None },
        jobs: 1,
        principal: None,
        trace: None,
        trace_state: None,
        tell_acceptance: true,
    }))
}

/// Why a request was refused, or failed.
fn why(raw: &mut Raw) -> String {
    loop {
        match raw.hear() {
            ServerMessage::Accepted { .. } => {}
            ServerMessage::Refused { refusal, .. } => return refusal.to_string(),
            ServerMessage::Done { receipt, .. } => {
                assert_eq!(receipt.verdict, Verdict::Failed, "{receipt:?}");
                return receipt.reason;
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn tensors_with_false_sizes_fail_with_a_sentence_and_the_worker_serves_on() {
    let Some(pool) = pool(&["three_outputs"]) else { return };
    let mut raw = Raw::greeted(&pool.socket());
    let workers = || -> Vec<_> { pool.status().workers.into_iter().map(|row| row.name).collect() };
    let before = workers();
    for (key, (what, sides)) in (1..).zip(SIDES) {
        raw.say(&request(key, claiming("x", sides)));
        assert!(!why(&mut raw).is_empty(), "{what}");
    }
    raw.say(&request(100, claiming("x", &[1])[..SET_HEAD_BYTES + 2].to_vec()));
    assert!(!why(&mut raw).is_empty(), "a header that is cut off");
    let (numbers, job) = rows(3, 5);
    is_right(&answer(ask(&pool.client(), job)), &numbers);
    assert_eq!(workers(), before);
}
