//! BYTES tensors over HTTP: as JSON and as Triton's bytes.

use super::*;

const PATH: &str = "/v2/models/strings/infer";

/// The elements as Triton's clients send them.
fn packed(texts: &[&[u8]]) -> Vec<u8> {
    let length = |text: &[u8]| u32::try_from(text.len()).expect("short").to_le_bytes();
    texts.iter().flat_map(|text| [&length(text)[..], text].concat()).collect()
}

fn in_json(texts: &Value, shape: &Value) -> Value {
    json!({"inputs": [{"name": "text", "shape": shape, "datatype": "BYTES", "data": texts}]})
}

#[test]
fn texts_go_both_ways_as_json_and_as_bytes() {
    let Some(pool) = served(&["strings", "words"]) else { return };
    let metadata = get(&pool, "/v2/models/strings").json();
    assert_eq!(metadata["inputs"][0]["datatype"], "BYTES");
    let config = get(&pool, "/v2/models/strings/config").json();
    assert_eq!(config["input"][0]["data_type"], "TYPE_STRING");
    assert_eq!(config["max_batch_size"], 0, "requests of it are not joined");
    until_ready(&pool);
    assert_eq!(get(&pool, "/v2/models/strings/ready").status, 200);
    let texts = json!(["one", "", "äöü \u{0} €"]);
    let answer = post(&pool, PATH, &in_json(&texts, &json!([3]))).json();
    assert_eq!(answer["outputs"][0]["data"], texts, "{answer}");
    let words = in_json(&json!([["a", "b"], ["c", ""]]), &json!([2, 2]));
    let answer = post(&pool, "/v2/models/words/infer", &words).json();
    assert_eq!(answer["outputs"][0]["data"], json!(["a!", "b!", "c!", "!"]), "{answer}");
    assert_eq!(answer["outputs"][1]["data"], json!([2, 2]));

    let any: [&[u8]; 3] = [b"one", b"", &[0xff, 0, 0xfe]];
    let data = packed(&any);
    let inputs = [("text", "BYTES", &[3][..], &data[..])];
    let wanted = json!({"parameters": {"binary_data_output": true}});
    let answer = post_binary(&pool, PATH, &binary(&inputs, &wanted));
    let (document, bytes) = split(&answer);
    assert_eq!(bytes, data);
    let size = &document["outputs"][0]["parameters"]["binary_data_size"];
    assert_eq!(size, &json!(data.len()));
    post_binary(&pool, PATH, &binary(&inputs, &json!({})))
        .complains(400, "contains bytes that are not UTF-8, which JSON cannot express");
    // More than travels in a message, and more than the pool reserves for outputs of an unknown size by itself.
    let long = "x".repeat(1 << 20);
    let many = json!(vec![long; 20]);
    let mut large = in_json(&many, &json!([20]));
    large["parameters"] = json!({"output_bytes": 22 << 20});
    assert_eq!(post(&pool, PATH, &large).json()["outputs"][0]["data"], many);
}

#[test]
fn what_is_no_text_is_refused_with_the_element() {
    let Some(pool) = served(&["strings"]) else { return };
    let refused = |body: &Value, why: &str| post(&pool, PATH, body).complains(400, why);
    refused(
        &in_json(&json!(["a", 7]), &json!([2])),
        "element 1 is 7; an element of BYTES is a text",
    );
    refused(&in_json(&json!(["a"]), &json!([2])), "it has 1 elements, but its shape says 2");
    let long = json!(["x".repeat((1 << 20) + 1)]);
    refused(&in_json(&long, &json!([1])), "an element of BYTES has at most 1048576");
    let mut other = in_json(&json!([1]), &json!([1]));
    other["inputs"][0]["datatype"] = json!("INT8");
    refused(&other, "`text` is INT8; the model takes BYTES");
    let data = packed(&[b"one", b"two"]);
    for (shape, data, why) in [
        (2, &data[..13], "the data ends inside element 1: an element of BYTES is its length"),
        (3, &data[..], "it has 2 elements, but its shape says 3"),
        (1, &data[..], "it has 2 elements, but its shape says 1"),
    ] {
        let inputs = [("text", "BYTES", &[shape][..], data)];
        post_binary(&pool, PATH, &binary(&inputs, &json!({}))).complains(400, why);
    }
}
