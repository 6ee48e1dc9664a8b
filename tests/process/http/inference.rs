//! Inference over grids: JSON and bytes both ways, results compared with the oracle's, and refused requests.

use gridpool_protocol::batch::Grid;
use gridpool_tests::oracle::samples::random_grids;
use serde_json::{Value, json};

use super::{Answer, Web, as_request, numbers, post, rows, served, small, tensors};
use crate::documents::says;
use crate::jobs::{data, program};
use crate::pool::{Pool, cpu};

/// A request with its data behind the JSON.
pub(super) fn binary_request(grids: &[Grid], more: &Value) -> (Vec<u8>, usize) {
    let (cells, sizes) = tensors(grids);
    let sizes: Vec<u8> = sizes.iter().flat_map(|side| side.to_le_bytes()).collect();
    let n = grids.len();
    let size = |bytes: usize| json!({"binary_data_size": bytes});
    let mut document = json!({"inputs": [
        {"name": "GRID", "shape": [n, 30, 30], "datatype": "UINT8", "parameters": size(cells.len())},
        {"name": "SIZE", "shape": [n, 2], "datatype": "INT32", "parameters": size(sizes.len())},
    ]});
    for (key, value) in more.as_object().expect("more keys") {
        document[key] = value.clone();
    }
    let json = document.to_string();
    ([json.as_bytes(), &cells, &sizes].concat(), json.len())
}

fn post_binary(pool: &Pool, path: &str, body: &[u8], json: usize) -> Answer {
    // Like clients of the protocol, send no Content-Type.
    let header = format!("Inference-Header-Content-Length: {json}\r\n");
    Web::open(pool).ask("POST", path, &header, body)
}

/// Converts an answer whose outputs are bytes to one whose outputs are JSON.
fn unpacked(answer: &Answer) -> Value {
    assert_eq!(answer.status, 200, "{answer:?}");
    let at: usize = answer
        .header("inference-header-content-length")
        .and_then(|length| length.parse().ok())
        .expect("the header that says where the bytes start");
    let mut document: Value = serde_json::from_slice(&answer.body[..at]).expect("JSON");
    let mut rest = &answer.body[at..];
    for output in document["outputs"].as_array_mut().expect("outputs") {
        assert!(output.get("data").is_none());
        let size = output["parameters"]["binary_data_size"].as_u64().expect("its size");
        let (data, after) = rest.split_at(usize::try_from(size).expect("it is small"));
        rest = after;
        output["data"] = match output["datatype"].as_str() {
            Some("UINT8") => json!(data),
            Some("INT32") => {
                let words = data.as_chunks().0.iter();
                json!(words.map(|word| i32::from_le_bytes(*word)).collect::<Vec<_>>())
            }
            other => panic!("{other:?}"),
        };
    }
    assert!(rest.is_empty(), "bytes are left over");
    document
}

/// Checks every item against the oracle.
#[track_caller]
fn is_right(document: &Value, text: &str, grids: &[Grid]) {
    let program = program(text);
    let (cells, sizes) = (numbers(document, "GRID"), numbers(document, "SIZE"));
    let statuses = numbers(document, "STATUS");
    assert_eq!(
        (cells.len(), sizes.len(), statuses.len()),
        (900 * grids.len(), 2 * grids.len(), grids.len())
    );
    for (item, grid) in grids.iter().enumerate() {
        let want = says(&program, grid);
        if want.get("error").is_some() {
            assert_ne!(statuses[item], 0, "item {item} of {text}: {want}");
            assert_eq!(rows(&cells, &sizes, item), json!([]), "item {item} of {text}");
        } else {
            assert_eq!(statuses[item], 0, "item {item} of {text}: {want}");
            assert_eq!(rows(&cells, &sizes, item), want, "item {item} of {text}: {grid:?}");
        }
    }
}

#[test]
fn json_and_bytes_both_ways_give_the_oracle_s_results() {
    let pool = served(cpu(2));
    // Some batches travel inline, some in shared memory.
    for (seed, count) in [(1, 1), (2, 20), (3, 700)] {
        let grids = random_grids(seed, count);
        for op in ["rot90", "dmirror", "compress", "tophalf"] {
            let path = format!("/v2/models/{op}/infer");
            let answer = post(&pool, &path, &as_request(&grids));
            assert_eq!(answer.status, 200, "{answer:?}");
            assert_eq!(answer.header("content-type"), Some("application/json"));
            is_right(&answer.json(), op, &grids);
            let all = json!({"parameters": {"binary_data_output": true}});
            let (body, json) = binary_request(&grids, &all);
            is_right(&unpacked(&post_binary(&pool, &path, &body, json)), op, &grids);
            let (body, json) = binary_request(&grids, &json!({}));
            let answer = post_binary(&pool, &path, &body, json);
            assert_eq!(answer.header("inference-header-content-length"), None);
            is_right(&answer.json(), op, &grids);
        }
    }
}

#[test]
fn the_request_of_the_book_gives_a_quarter_turn() {
    let pool = served(cpu(1));
    let body = std::fs::read(data("infer.json")).expect("the file is there");
    // Send it as `curl --json` does.
    let header = "Content-Type: application/json\r\nAccept: application/json\r\n";
    let answer = Web::open(&pool).ask("POST", "/v2/models/rot90/infer", header, &body);
    is_right(&answer.json(), "rot90", &small());
}

#[test]
fn an_answer_names_kernels_and_device_and_echoes_its_id() {
    let pool = served(cpu(1));
    let mut body = as_request(&small());
    body["id"] = json!("ünï 7");
    let document = post(&pool, "/v2/models/rot90/versions/1/infer", &body).json();
    assert_eq!(document["model_name"], "rot90");
    assert_eq!(document["model_version"], "1");
    assert_eq!(document["id"], "ünï 7");
    let says = &document["parameters"];
    assert_eq!(says["verdict"], "OK");
    assert_eq!(says["worker"], "cpu0#1");
    assert_eq!(says["device_kind"], "cpu");
    assert_eq!(says["attempts"], 1);
    assert!(says["kernels"].as_str().is_some_and(|names| names.contains("rot90")), "{says}");
    assert!(says["device_us"].as_f64().is_some_and(|us| us > 0.0), "{says}");
    let receipt: Value =
        serde_json::from_str(says["receipt"].as_str().expect("a text")).expect("JSON");
    assert_eq!(receipt["attempts"][0]["worker"], "cpu0#1");
    assert_eq!(receipt["job"], says["job"]);
    assert_eq!(post(&pool, "/v2/models/rot90/infer", &as_request(&small())).json().get("id"), None);
}

#[test]
fn outputs_have_the_order_and_form_that_the_request_names() {
    let pool = served(cpu(1));
    let mut body = as_request(&small());
    body["outputs"] = json!([
        {"name": "STATUS", "parameters": {"binary_data": true}},
        {"name": "SIZE"},
    ]);
    let answer = post(&pool, "/v2/models/rot90/infer", &body);
    let at = answer.header("inference-header-content-length").expect("bytes");
    let (json, bytes) = answer.body.split_at(at.parse().expect("a number"));
    assert_eq!(bytes, [0; 4]);
    let document: Value = serde_json::from_slice(json).expect("JSON");
    assert_eq!(
        document["outputs"],
        json!([
            {"name": "STATUS", "shape": [1], "datatype": "INT32", "parameters": {"binary_data_size": 4}},
            {"name": "SIZE", "shape": [1, 2], "datatype": "INT32", "data": [3, 2]},
        ])
    );
}

#[test]
fn the_model_program_runs_any_program_from_grid_to_grid() {
    let pool = served(cpu(1));
    let grids = random_grids(5, 60);
    let run = |program: &str| {
        let mut body = as_request(&grids);
        body["parameters"] = json!({"program": program});
        post(&pool, "/v2/models/program/infer", &body)
    };
    for text in ["rot90 | replace(0, 5)", "o_g(5) | argmax(size) | fill(3)"] {
        is_right(&run(text).json(), text, &grids);
    }
    run("rot91").complains(400, "the program `rot91`: ");
    run("rot90 | palette").complains(400, "over HTTP a program takes a grid and gives a grid");
    run("first").complains(400, "over HTTP a program takes a grid and gives a grid");
    let mut body = as_request(&grids);
    post(&pool, "/v2/models/program/infer", &body)
        .complains(400, "needs the request parameter `program`");
    body["parameters"] = json!({"program": "rot90"});
    post(&pool, "/v2/models/rot90/infer", &body)
        .complains(400, "takes no program; the model `program`");
}

#[test]
fn an_item_without_a_result_has_an_error_and_its_neighbours_have_results() {
    let pool = served(cpu(1));
    let row = |cells: &[u8]| Grid::from_rows(&[cells]).expect("a grid");
    let grids = [row(&[1, 2]), row(&[1; 16]), row(&[3]), row(&[1; 30])];
    let mut body = as_request(&grids);
    // The longest sides of the results are 4, 32, 2 and 60.
    body["parameters"] = json!({"program": "upscale(2)"});
    let document = post(&pool, "/v2/models/program/infer", &body).json();
    assert_eq!(numbers(&document, "STATUS"), [0, 100, 0, 100]);
    let (cells, sizes) = (numbers(&document, "GRID"), numbers(&document, "SIZE"));
    assert_eq!(sizes, [2, 4, 0, 0, 2, 2, 0, 0]);
    assert_eq!(rows(&cells, &sizes, 0), json!([[1, 1, 2, 2], [1, 1, 2, 2]]));
    assert!(cells[900..1_800].iter().all(|&cell| cell == 0), "nothing of it is there");
    assert_eq!(rows(&cells, &sizes, 2), json!([[3, 3], [3, 3]]));
    let errors = document["parameters"]["errors"].as_str().expect("a text");
    let errors: Value = serde_json::from_str(errors).expect("JSON");
    assert_eq!(errors[0]["item"], 1);
    assert_eq!(errors[1]["message"].as_str().map(|text| text.contains("2 x 60")), Some(true));
    // `tophalf` of one row is empty.
    body["parameters"] = json!({"program": "tophalf | rot90 | rot180"});
    let document = post(&pool, "/v2/models/program/infer", &body).json();
    let statuses = numbers(&document, "STATUS");
    assert_eq!(statuses, [4; 4], "EmptyArg: {document}");
    assert_eq!(document["parameters"]["item_errors"], 4);
}

#[test]
fn a_wrong_request_is_400_and_the_sentence_names_the_place() {
    let pool = served(cpu(1));
    let whole = as_request(&[small(), small()].concat());
    let wrong = |at: &str, value: Value| {
        let mut body = whole.clone();
        *body.pointer_mut(at).expect(at) = value;
        body
    };
    let ask = |body: &Value, words: &str| {
        post(&pool, "/v2/models/rot90/infer", body).complains(400, words);
    };
    ask(
        &wrong("/inputs/0/data/901", json!(10)),
        "item 1: row 0, column 1 of GRID: 10 is not a colour",
    );
    ask(
        &wrong("/inputs/0/data/5", json!(256)),
        "input `GRID`: data: element 5 is 256, which is not a UINT8",
    );
    ask(&wrong("/inputs/0/data/5", json!(1.5)), "element 5 is 1.5, which is not a UINT8");
    ask(
        &wrong("/inputs/1/data/3", json!(31)),
        "item 1: SIZE is [2, 31]; height and width are 1 to 30",
    );
    ask(&wrong("/inputs/1/data/0", json!(0)), "item 0: SIZE is [0, 3]");
    ask(&wrong("/inputs/1/data/0", json!(-1)), "item 0: SIZE is [-1, 3]");
    ask(&wrong("/inputs/1/data", json!([1, 2, 3])), "it has 3 elements, but its shape says 4");
    ask(&wrong("/inputs/1/name", json!("SIZES")), "takes GRID and SIZE, not `SIZES`");
    ask(&wrong("/inputs/1/name", json!("GRID")), "input `GRID`: it occurs twice");
    ask(&wrong("/inputs/0/datatype", json!("INT8")), "`GRID` is INT8; the model takes UINT8");
    ask(&wrong("/inputs/0/datatype", json!("INT4")), "`INT4` is not a tensor type");
    ask(
        &wrong("/inputs/0/shape", json!([2, 900])),
        "has the shape [2, 900]; the model takes [?, 30, 30]",
    );
    ask(&wrong("/inputs/1/shape", json!([2, -2])), "invalid value: integer `-2`");
    ask(&wrong("/inputs/1/shape", json!([u64::MAX, u64::MAX])), "SIZE");
    ask(&wrong("/inputs", json!([])), "the request has no input `GRID`");
    ask(&json!({}), "missing field `inputs`");
    ask(&json!(7), "not valid JSON of the inference protocol");
    let with = |key: &str, value: Value| {
        let mut body = whole.clone();
        body[key] = value;
        body
    };
    ask(
        &with("outputs", json!([{"name": "COLOR"}])),
        "gives GRID, SIZE, STATUS; it has no output `COLOR`",
    );
    ask(&with("outputs", json!([{"name": "SIZE"}, {"name": "SIZE"}])), "asked for twice");
    ask(&with("parameters", json!({"priority": "high"})), "`priority` is \"high\"");
    ask(&with("parameters", json!({"timeout": -1})), "`timeout` is -1; it must be a whole number");
    ask(
        &with("parameters", json!({"timeout": 1e18})),
        "`timeout` is 1e+18; it must be a whole number",
    );
    ask(&with("parameters", json!({"timeout": u64::MAX})), "in microseconds, at most 3600000000");
    ask(&with("parameters", json!({"ties": "random"})), "`ties`");
    ask(&with("parameters", json!({"sequence_id": 1})), "leave out the sequence_ parameters");
    ask(&with("id", json!("x".repeat(1_025))), "`id` has more than 1024 bytes");
    let none = as_request(&[]);
    ask(&none, "GRID has 0 items; send 1 to 16384");
}

#[test]
fn the_bytes_behind_the_json_must_have_the_length_that_it_names() {
    let pool = served(cpu(1));
    let path = "/v2/models/rot90/infer";
    let (body, json) = binary_request(&small(), &json!({}));
    assert_eq!(post_binary(&pool, path, &body, json).status, 200);
    let longer = [&body[..], &[0]].concat();
    post_binary(&pool, path, &longer, json).complains(400, "1 bytes are left over");
    let short = &body[..body.len() - 1];
    post_binary(&pool, path, short, json)
        .complains(400, "binary_data_size is 8, but only 7 bytes are left");
    post_binary(&pool, path, &body, body.len() + 1)
        .complains(400, "Inference-Header-Content-Length is");
    post_binary(&pool, path, &body, json - 1)
        .complains(400, "not valid JSON of the inference protocol");
    let mut web = Web::open(&pool);
    for length in ["x", "-1", "", "+5", "99999999999999999999"] {
        let header = format!("Inference-Header-Content-Length: {length}\r\n");
        web.ask("POST", path, &header, &body)
            .complains(400, "it must be the number of bytes of JSON");
    }
    web.ask("POST", path, "", &body[..json]).complains(400, "only 0 bytes are left after the JSON");
    let mut both = as_request(&small());
    both["inputs"][0]["parameters"] = json!({"binary_data_size": 900});
    post(&pool, path, &both).complains(400, "it has both data and binary_data_size");
    let mut neither = as_request(&small());
    neither["inputs"][1].as_object_mut().expect("an input").remove("data");
    post(&pool, path, &neither)
        .complains(400, "input `SIZE`: it has neither data nor binary_data_size");
}
