//! Requests that are wrong whatever the model.

use axum::http::HeaderValue;
use gridpool_protocol::limits::TENSOR_RANK_MAX;
use serde_json::{Map, json};

use super::*;
use crate::gateway::limits::PARAMETERS_MAX;

fn one(more: &Value) -> Value {
    let mut body = json!({
        "inputs": [{"name": "X", "shape": [2], "datatype": "UINT8", "data": [1, 2]}]
    });
    for (key, value) in more.as_object().unwrap() {
        body[key] = value.clone();
    }
    body
}

/// Parses a request and applies `read` to it.
fn parsed<T>(body: &Value, read: impl FnOnce(Request<'_>) -> T) -> Result<T, String> {
    let text = body.to_string();
    let parsed = parse(&HeaderMap::new(), text.as_bytes(), &mut Memory::none());
    parsed.map(read).map_err(|failure| failure.message().to_owned())
}

#[test]
fn outputs_are_all_or_those_named_each_as_bytes_or_as_json() {
    let wanted = |more: Value| parsed(&one(&more), |request| request.wanted);
    assert_eq!(wanted(json!({})), Ok(WantedOutputs::All { binary: false }));
    assert_eq!(wanted(json!({"outputs": []})), Ok(WantedOutputs::All { binary: false }));
    let all = json!({"parameters": {"binary_data_output": true}});
    assert_eq!(wanted(all), Ok(WantedOutputs::All { binary: true }));
    let some = json!({
        "parameters": {"binary_data_output": true},
        "outputs": [{"name": "A"}, {"name": "B", "parameters": {"binary_data": false}}]
    });
    let names = [("A", Delivery::Bytes), ("B", Delivery::Json)];
    let names = names.map(|(name, delivery)| (name.to_owned(), delivery));
    assert_eq!(wanted(some), Ok(WantedOutputs::Some(names.to_vec())));
    let classes = json!({"outputs": [{"name": "A", "parameters": {"classification": 3}}]});
    assert!(wanted(classes).unwrap_err().contains("classification is not served"));
    let none = json!({"outputs": [{"name": "A", "parameters": {"classification": 0}}]});
    assert!(wanted(none).is_ok(), "no classes were asked for");
    for (shared, words) in [
        (
            json!({"shared_memory_region": "x", "shared_memory_byte_size": 1}),
            "shared memory is not served",
        ),
        (json!({"shared_memory_region": "x"}), "no shared_memory_byte_size"),
        (json!({"shared_memory_region": 1}), "must be a text"),
        (json!({"shared_memory_offset": 1}), "no shared_memory_region"),
    ] {
        let why = wanted(json!({"outputs": [{"name": "A", "parameters": shared}]})).unwrap_err();
        assert!(why.starts_with("output `A`: ") && why.contains(words), "{why}");
    }
}

#[test]
fn parameters_are_read_or_refused_and_zero_is_the_default() {
    let with = |parameters: Value| {
        let body = one(&json!({ "parameters": parameters }));
        parsed(&body, |request| (request.deadline, request.priority))
    };
    assert_eq!(with(json!({"timeout": 0, "priority": 0})), Ok((None, Priority::Normal)));
    let late = (Some(Duration::from_micros(1)), Priority::High);
    assert_eq!(with(json!({"timeout": 1, "priority": 1})), Ok(late));
    assert_eq!(with(json!({"priority": 2, "of_their_own": {}})), Ok((None, Priority::Low)));
    assert_eq!(with(json!({"priority": u64::MAX})), Ok((None, Priority::Low)));
    assert!(with(json!({"priority": "high"})).unwrap_err().contains("a whole number"));
    for wrong in [json!("1"), json!(1.0), json!(-1), json!(null), json!([1])] {
        let error = with(json!({ "timeout": wrong })).unwrap_err();
        assert!(error.contains("it must be a whole number"), "{error}");
    }
    let error = with(json!({"timeout": [1, 2]})).unwrap_err();
    assert!(error.starts_with("`timeout` is a list; it must be"), "{error}");
    let error = with(json!([1])).unwrap_err();
    assert!(error.contains("an object with parameters"), "{error}");
}

#[test]
fn lists_and_parameters_of_a_request_have_limits_together() {
    let id = |body: &Value| parsed(body, |request| request.inputs.len());
    let parameters = |count: usize| -> Value {
        (0..count).map(|name| (name.to_string(), json!({"a": [1]}))).collect::<Map<_, _>>().into()
    };
    let mut body = one(&json!({"parameters": parameters(PARAMETERS_MAX - 2)}));
    body["inputs"][0]["parameters"] = parameters(1);
    body["outputs"] = json!([{"name": "A", "parameters": parameters(1)}]);
    assert_eq!(id(&body), Ok(1));
    body["inputs"][0]["parameters"] = parameters(2);
    assert!(id(&body).unwrap_err().contains("at most 1024 parameters"));
    for (key, element, max) in [
        ("inputs", json!({"name": "X", "shape": [2], "datatype": "UINT8"}), TENSORS_MAX),
        ("outputs", json!({"name": "A"}), TENSORS_MAX),
    ] {
        let many = one(&json!({ key: vec![element; max + 1] }));
        let error = id(&many).unwrap_err();
        assert!(error.contains(&format!("a list of at most {max} elements")), "{error}");
    }
    let mut long = one(&json!({}));
    long["inputs"][0]["shape"] = json!(vec![1; TENSOR_RANK_MAX + 1]);
    assert!(id(&long).unwrap_err().contains("a list of at most 16 elements"));
}

#[test]
fn bytes_go_to_the_inputs_in_order_until_none_is_left() {
    let input = |name: &str, size: usize| {
        json!({"name": name, "shape": [size], "datatype": "UINT8",
               "parameters": {"binary_data_size": size}})
    };
    let json = json!({"inputs": [input("A", 2), input("B", 0), input("C", 3)]}).to_string();
    let body = [json.as_bytes(), &[1, 2, 3, 4, 5]].concat();
    let mut headers = HeaderMap::new();
    headers.insert(HEADER_LENGTH, HeaderValue::from(json.len()));
    let request = parse(&headers, &body, &mut Memory::none()).unwrap();
    let data: Vec<_> = request.inputs.iter().map(|input| &*input.data).collect();
    assert_eq!(data, [&[1, 2][..], &[], &[3, 4, 5]]);
    assert!(request.inputs.iter().all(|input| matches!(input.data, Cow::Borrowed(_))), "copied");
    for cut in 1..=5 {
        let short = parse(&headers, &body[..body.len() - cut], &mut Memory::none());
        assert!(short.is_err(), "{cut} bytes are missing");
    }
}

#[test]
fn no_integer_in_a_shape_passes_the_limits() {
    for shape in [json!([u64::MAX]), json!([1_u64 << 33, 1_u64 << 33]), json!([-1]), json!([1.5])] {
        let mut body = one(&json!({}));
        body["inputs"][0]["shape"] = shape.clone();
        assert!(parsed(&body, |request| request.id).is_err(), "{shape}");
    }
    let mut body = one(&json!({}));
    body["inputs"][0]["shape"] = json!([1_u64 << 32]);
    assert!(
        parsed(&body, |request| request.id).unwrap_err().contains("it has 2 elements"),
        "no room is made for it"
    );
}

#[test]
fn a_list_is_no_object_whatever_it_holds() {
    let input = json!({"name": "X", "shape": [2], "datatype": "UINT8", "data": [1, 2]});
    let in_order = json!(["X", [2], "UINT8", {}, [1, 2]]);
    for (body, what) in [
        (json!([]), "a request, which is a JSON object"),
        (json!(["x", {}, [input], []]), "a request, which is a JSON object"),
        (json!("x"), "a request, which is a JSON object"),
        (json!({ "inputs": [in_order] }), "an object for each input"),
        (json!({ "inputs": [input], "outputs": [["A", {}]] }), "an object for each output"),
    ] {
        let why = parsed(&body, |request| request.id).unwrap_err();
        assert!(why.contains(what) && !why.contains("struct"), "{why}");
    }
}
