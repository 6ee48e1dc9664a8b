//! Inference requests over HTTP, as anybody may send them.

use gridpool::gateway::check_request;
use serde_json::{Value, json};

/// What a request may be about; the last is there for none.
const MODELS: [&str; 3] = ["rot90", "program", "none"];

/// Which model, where the JSON ends (the largest number: it is all JSON), and the body.
pub(crate) fn run(bytes: &[u8]) {
    let Some((&[model, low, high], body)) = bytes.split_first_chunk() else { return };
    let at = u16::from_le_bytes([low, high]);
    let json_bytes = (at < u16::MAX).then(|| usize::from(at));
    let model = MODELS[usize::from(model) % MODELS.len()];
    match check_request(model, json_bytes, body) {
        Ok(items) => assert!((1..=16_384).contains(&items) && model != "none"),
        Err(why) => assert!(!why.is_empty()),
    }
}

/// Requests that are right.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let cells: Vec<u8> = (0..900_u16).map(|at| u8::from(at < 3)).collect();
    let sizes = [1_i32, 3];
    let inputs = |grid: Value, size: Value| {
        let input = |name: &str, shape: &[u16], datatype: &str, more: Value| {
            let mut input = json!({"name": name, "shape": shape, "datatype": datatype});
            for (key, value) in more.as_object().expect("more keys") {
                input[key] = value.clone();
            }
            input
        };
        json!([input("GRID", &[1, 30, 30], "UINT8", grid), input("SIZE", &[1, 2], "INT32", size)])
    };
    let nested: Vec<&[u8]> = cells.chunks(30).collect();
    let flat = json!({"inputs": inputs(json!({"data": cells}), json!({"data": sizes}))});
    let nested = json!({
        "id": "7",
        "parameters": {"program": "rot90 | replace(0, 5)", "timeout": 1_000, "priority": 1},
        "inputs": inputs(json!({"data": [nested]}), json!({"data": [sizes]})),
        "outputs": [{"name": "SIZE"}, {"name": "STATUS", "parameters": {"binary_data": true}}],
    });
    let size = |bytes: usize| json!({"parameters": {"binary_data_size": bytes}});
    let binary = json!({
        "parameters": {"binary_data_output": true},
        "inputs": inputs(size(900), size(8)),
    });
    let binary = binary.to_string();
    let json_bytes = u16::try_from(binary.len()).expect("it is short").to_le_bytes();
    let sizes: Vec<u8> = sizes.iter().flat_map(|side| side.to_le_bytes()).collect();
    vec![
        [b"\x00\xff\xff", flat.to_string().as_bytes()].concat(),
        [b"\x01\xff\xff", nested.to_string().as_bytes()].concat(),
        [b"\x00", &json_bytes[..], binary.as_bytes(), &cells, &sizes].concat(),
    ]
}
