//! BYTES tensors by the client library and by `gridpool infer`, and priorities of requests.

use std::fs;

use gridpool_client::{Priority, ReadError};

use super::*;

#[test]
fn texts_of_any_bytes_go_by_the_client_library() {
    let Some(pool) = pool(&["strings"]) else { return };
    let client = pool.client();
    let long = vec![b'x'; 100_000];
    let texts: [&[u8]; 4] = [b"one", b"", &[0xff, 0, 0xfe], &long];
    let input = ModelInput::texts("text", [4], &texts).expect("four elements");
    let got = answer(ask(&client, Job::model("strings", [input]).expect("a small set")));
    assert_eq!(got.verdict(), Verdict::Ok, "{}", got.receipt.reason);
    let outputs = got.outputs().expect("outputs");
    assert_eq!(outputs.texts("same").expect("texts").into_vec(), texts);
    let error = outputs.values::<f32>("same").expect_err("they are no numbers");
    assert!(matches!(error, ReadError::DataType { .. }), "{error}");
    let error = ModelInput::texts("text", [3], &texts).expect_err("one is too many").to_string();
    assert!(error.contains("it has 4 elements, but its shape says 3"), "{error}");
}

/// An `.npy` of this type.
fn npy(descr: &str, count: usize, data: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({count},), }}\n");
    let length = u16::try_from(header.len()).expect("short").to_le_bytes();
    [&b"\x93NUMPY\x01\x00"[..], &length, header.as_bytes(), data].concat()
}

#[test]
fn texts_go_in_and_out_of_the_command_line() {
    let Some(pool) = pool(&["strings"]) else { return };
    let file = pool.folder().join("text.npy");
    let infer = || pool.cli(&["infer", "strings"]).arg(&file);
    fs::write(&file, npy("|S4", 3, b"one\0four\0\0\0\0")).expect("it can be written");
    let text = infer().run().output();
    assert!(text.contains("same BYTES [3]: \"one\" \"four\" \"\""), "{text}");
    let document = infer().arg("--json").run().document();
    assert_eq!(document["outputs"][0]["data"], json!(["one", "four", ""]));
    let characters: Vec<u8> = "äb€\0".chars().flat_map(|c| u32::from(c).to_le_bytes()).collect();
    fs::write(&file, npy("<U2", 2, &characters)).expect("it can be written");
    let document = infer().arg("--json").run().document();
    assert_eq!(document["outputs"][0]["data"], json!(["äb", "€"]));
    let output = pool.folder().join("out.npz");
    infer().arg("--output").arg(&output).run().output();
    let written = fs::read(&output).expect("it is written");
    let expected = [&b"\n"[..], "äb€".as_bytes()].concat();
    assert!(written.windows(expected.len()).any(|part| part == expected), "elements of 3 bytes");
    let alone = pool.folder().join("out.npy");
    infer().arg("--output").arg(&alone).run().output();
    let again = pool.cli(&["infer", "strings"]).arg(&alone).arg("--json").run().document();
    assert_eq!(again["outputs"][0]["data"], json!(["äb", "€"]));
    fs::write(&file, npy("|O", 1, b"pickle")).expect("it can be written");
    infer().run().complains(65, &["x.astype('U') for text, x.astype('S') for bytes"]);
    fs::write(&file, npy("<i4", 1, &[0; 4])).expect("it can be written");
    infer().run().complains(65, &["`text` is INT32; the model takes BYTES", "x.astype('U')"]);
    infer().args(&["--priority", "urgent"]).run().complains(2, &["high, normal, low"]);
    fs::write(&file, npy("|S1", 1, b"a")).expect("it can be written");
    infer().args(&["--priority", "high"]).run().output();
}

/// A run that takes so many turns.
fn turns(count: i64) -> Job<TensorOutputs> {
    let n = ModelInput::new("n", [], vec![count]).expect("a scalar");
    Job::model("turns", [n]).expect("a small tensor")
}

#[test]
fn a_request_of_a_high_priority_passes_those_that_wait_in_both_queues() {
    // More than a worker has in flight, so that some wait in the pool's queue.
    const LOW: usize = 48;
    let Some(pool) = pool(&["turns"]) else { return };
    let client = pool.client();
    // How many turns take a tenth of a second here.
    let probe = 100_000;
    let took = answer(ask(&client, turns(probe))).receipt.attempts[0].service_us;
    let tenth = (probe * 100_000).checked_div(i64::try_from(took).expect("short")).unwrap_or(probe);
    let first = ask(&client, turns(10 * tenth));
    let low = |_| ask(&client, turns(tenth / 4).with_priority(Priority::Low));
    let mut low: Vec<_> = (0..LOW).map(low).collect();
    let high = ask(&client, turns(1).with_priority(Priority::High));
    assert_eq!(answer(high).verdict(), Verdict::Ok);
    let is_done = |handle: &mut Handle<_>| handle.try_wait().expect("it stands").is_some();
    let before = low.iter_mut().filter_map(|handle| is_done(handle).then_some(())).count();
    assert!(before < LOW / 2, "{before} of {LOW} went before it");
    drop(answer(first));
}
