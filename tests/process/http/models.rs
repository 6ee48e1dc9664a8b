//! Models of the pool over HTTP: every path, every type, shared runs, and refused requests.

use gridpool_protocol::status::WorkerStatus;
use gridpool_protocol::tensor::DataType;
use serde_json::{Value, json};

use super::{Answer, Web, get, post, post_aside, until_ready, until_status_of, with_http};
use crate::infer::{has_runtime, model};
use crate::pool::{Pool, Setup, cpu};
use crate::processes::{go_on, signal, stop};
use crate::wait::{eventually, within};

mod absent;
mod texts;

const INFER: &str = "/v2/models/three_outputs/infer";

/// One CPU device with these models, over HTTP; `None` on a machine without ONNX Runtime.
fn setup(models: &[&str]) -> Option<Setup> {
    let with = |setup: Setup, name: &&str| {
        setup.args(&["--model", &format!("{name}={}", model(name).display())])
    };
    let setup = || with_http(cpu(1)).args(&["--keep-going"]);
    has_runtime().then(|| models.iter().fold(setup(), with))
}

/// A pool whose worker has reported these models.
fn served(models: &[&str]) -> Option<Pool> {
    let pool = early(setup(models)?);
    told(&pool, models);
    Some(pool)
}

/// A pool that serves HTTP; its workers may still be starting.
fn early(setup: Setup) -> Pool {
    let pool = setup.start_early();
    pool.until_status("an address", |status| status.http.is_some());
    pool
}

fn told(pool: &Pool, models: &[&str]) {
    for name in models {
        until_status_of(pool, &format!("/v2/models/{name}"), 200);
    }
}

/// The worker of models.
fn worker(pool: &Pool) -> WorkerStatus {
    let workers = pool.status().workers.into_iter();
    workers.rev().find(|row| row.role == "infer").expect("the pool has one")
}

/// Rows of four numbers from `first` on, as JSON: inputs for `three_outputs`.
fn rows(first: u32, count: u32) -> Value {
    let data: Vec<u32> = (first..first + 4 * count).collect();
    json!({"inputs": [{"name": "x", "shape": [count, 4], "datatype": "FP32", "data": data}]})
}

/// Checks that the outputs are the rows' sums, doubles and hundredfolds.
#[track_caller]
fn is_right(document: &Value, first: u32, count: u32) {
    let numbers: Vec<u32> = (first..first + 4 * count).collect();
    let sums: Vec<_> = numbers.chunks(4).map(|row| f64::from(row.iter().sum::<u32>())).collect();
    let doubles: Vec<_> = numbers.iter().map(|&number| 2.0 * f64::from(number)).collect();
    let whole: Vec<_> = numbers.iter().map(|number| 100 * number).collect();
    let want = json!([
        {"name": "sum", "shape": [count], "datatype": "FP32", "data": sums},
        {"name": "double", "shape": [count, 4], "datatype": "FP32", "data": doubles},
        {"name": "whole", "shape": [count, 4], "datatype": "INT64", "data": whole},
    ]);
    assert_eq!(document["outputs"], want, "{document}");
}

/// A request whose inputs are all bytes, and where its JSON ends.
fn binary(inputs: &[(&str, &str, &[usize], &[u8])], more: &Value) -> (Vec<u8>, usize) {
    let input = |&(name, datatype, shape, data): &(&str, &str, &[usize], &[u8])| {
        let size = json!({"binary_data_size": data.len()});
        json!({"name": name, "shape": shape, "datatype": datatype, "parameters": size})
    };
    let mut document = json!({"inputs": inputs.iter().map(input).collect::<Value>()});
    for (key, value) in more.as_object().expect("more keys") {
        document[key] = value.clone();
    }
    let mut body = document.to_string().into_bytes();
    let json = body.len();
    inputs.iter().for_each(|(.., data)| body.extend_from_slice(data));
    (body, json)
}

fn post_binary(pool: &Pool, path: &str, (body, json): &(Vec<u8>, usize)) -> Answer {
    let header = format!("Inference-Header-Content-Length: {json}\r\n");
    Web::open(pool).ask("POST", path, &header, body)
}

/// The JSON of an answer and the bytes behind it.
fn split(answer: &Answer) -> (Value, &[u8]) {
    assert_eq!(answer.status, 200, "{:?}", String::from_utf8_lossy(&answer.body));
    let at = answer.header("inference-header-content-length").expect("bytes follow");
    let (json, bytes) = answer.body.split_at(at.parse().expect("a number"));
    (serde_json::from_slice(json).expect("JSON"), bytes)
}

#[test]
fn a_model_of_the_pool_is_served_beside_the_ops_on_every_path() {
    let Some(pool) = served(&["three_outputs", "four_bits", "fixed"]) else { return };
    until_ready(&pool);
    let spec = |name: &str, datatype: &str, shape: &[i64]| json!({"name": name, "datatype": datatype, "shape": shape});
    let metadata = json!({
        "name": "three_outputs",
        "versions": ["1"],
        "platform": "onnxruntime_onnx",
        "inputs": [spec("x", "FP32", &[-1, 4])],
        "outputs": [
            spec("sum", "FP32", &[-1]), spec("double", "FP32", &[-1, 4]), spec("whole", "INT64", &[-1, 4]),
        ],
    });
    for version in ["", "/versions/1"] {
        let path = format!("/v2/models/three_outputs{version}");
        assert_eq!(get(&pool, &path).json(), metadata);
        assert_eq!(get(&pool, &format!("{path}/ready")).status, 200);
        let config = get(&pool, &format!("{path}/config")).json();
        assert_eq!(
            (&config["max_batch_size"], &config["input"][0]["dims"]),
            (&json!(32), &json!([4]))
        );
        assert_eq!(config["parameters"]["sha256"]["string_value"].as_str().map(str::len), Some(64));
        let answer = post(&pool, &format!("{path}/infer"), &rows(1, 3));
        is_right(&answer.json(), 1, 3);
        let stats = get(&pool, &format!("{path}/stats")).json()["model_stats"][0].clone();
        assert_eq!(stats["name"], "three_outputs");
        assert_eq!(stats["inference_count"], if version.is_empty() { 3 } else { 6 }, "{stats}");
    }
    let fixed = get(&pool, "/v2/models/fixed/config").json();
    assert_eq!((&fixed["max_batch_size"], &fixed["input"][0]["dims"]), (&json!(0), &json!([2, 3])));
    get(&pool, "/v2/models/three_outputs/versions/2").complains(404, "has no version `2`");
    let index = post(&pool, "/v2/repository/index", &json!({})).json();
    let row = |name: &str| {
        let rows = index.as_array().expect("a list");
        rows.iter().find(|row| row["name"] == name).expect(name).clone()
    };
    assert_eq!(row("three_outputs")["state"], "READY");
    assert_eq!(row("rot90")["state"], "READY");
    let unserved = row("four_bits");
    assert_eq!(unserved["state"], "UNAVAILABLE");
    assert!(unserved["reason"].as_str().is_some_and(|why| why.contains("4 bits")), "{unserved}");
    let ready = post(&pool, "/v2/repository/index", &json!({"ready": true})).json().to_string();
    assert!(ready.contains("three_outputs") && !ready.contains("four_bits"), "{ready}");
    get(&pool, "/v2/models/four_bits/ready").complains(503, "4 bits");
    let small = json!({"inputs": [{"name": "x", "shape": [1], "datatype": "INT4", "data": [1]}]});
    post(&pool, "/v2/models/four_bits/infer", &small).complains(400, "`INT4` is not a tensor type");
    post(&pool, "/v2/models/four_bits/infer", &rows(1, 1))
        .complains(503, "numbers of 4 bits, which are served as weights only");
    let about = get(&pool, "/v2").json();
    let names = about["models"].as_array().expect("a list");
    assert!(names.contains(&json!("three_outputs")) && names.contains(&json!("rot90")), "{about}");
    let all = get(&pool, "/v2/models/stats").json()["model_stats"].as_array().map(Vec::len);
    assert_eq!(all, Some(names.len()));
}

#[test]
fn every_type_goes_both_ways_as_bytes_and_as_json_where_json_has_it() {
    let Some(pool) = served(&["datatypes"]) else { return };
    let path = "/v2/models/datatypes/infer";
    let numeric = |datatype: &DataType| *datatype != DataType::Bytes;
    let of: Vec<(String, &str, Vec<u8>)> = DataType::ALL
        .into_iter()
        .filter(numeric)
        .map(|datatype| {
            let data = (1..).map(|n: u8| if datatype == DataType::Bool { n % 2 } else { n % 100 });
            let data = data.take(6 * datatype.bytes()).collect();
            (datatype.name().to_lowercase(), datatype.name(), data)
        })
        .collect();
    let inputs: Vec<_> =
        of.iter().map(|(name, ty, data)| (&**name, *ty, &[2, 3][..], &**data)).collect();
    let all = binary(&inputs, &json!({"parameters": {"binary_data_output": true}}));
    let answer = post_binary(&pool, path, &all);
    let (document, mut bytes) = split(&answer);
    let outputs = document["outputs"].as_array().expect("outputs").clone();
    assert_eq!(outputs.len(), of.len());
    for output in &outputs {
        let name = output["name"].as_str().expect("a name");
        let (own, ty, data) = of.iter().find(|(own, ..)| format!("{own}_out") == name).expect(name);
        assert_eq!((&output["datatype"], &output["shape"]), (&json!(ty), &json!([2, 3])), "{own}");
        let (got, rest) = bytes.split_at(data.len());
        assert_eq!(got, data, "{own}");
        bytes = rest;
    }
    assert!(bytes.is_empty());
    // Ask again in JSON, except for the types that JSON cannot express.
    let halves = ["FP16", "BF16"];
    let wanted = of.iter().map(|(name, ty, _)| {
        json!({"name": format!("{name}_out"), "parameters": {"binary_data": halves.contains(ty)}})
    });
    let mixed = binary(&inputs, &json!({"outputs": wanted.collect::<Value>()}));
    let (document, rest) = {
        let answer = post_binary(&pool, path, &mixed);
        let (document, bytes) = split(&answer);
        (document, bytes.to_vec())
    };
    let data = |ty: &str| of.iter().find(|(_, own, _)| *own == ty).expect("one of each").2.clone();
    assert_eq!(rest, [data("FP16"), data("BF16")].concat());
    let as_inputs = document["outputs"].as_array().expect("outputs").iter().zip(&of);
    let as_inputs = as_inputs.map(|(output, (name, ty, data))| {
        let mut input = json!({"name": name, "datatype": ty, "shape": [2, 3]});
        match output.get("data") {
            Some(numbers) => input["data"] = numbers.clone(),
            None => input["parameters"] = json!({"binary_data_size": data.len()}),
        }
        input
    });
    let again = json!({
        "inputs": as_inputs.collect::<Value>(),
        "parameters": {"binary_data_output": true},
    });
    let again = again.to_string().into_bytes();
    let again = ([&again[..], &rest].concat(), again.len());
    let through_json = post_binary(&pool, path, &again);
    assert_eq!(split(&through_json).1, split(&answer).1, "numbers are exact in JSON, both ways");
    let in_json = binary(&inputs, &json!({}));
    post_binary(&pool, path, &in_json)
        .complains(400, "output `fp16_out` is FP16, which is sent as binary");
    let mut half = json!({"inputs": [{"name": "fp16", "shape": [1, 3], "datatype": "FP16", "data": [1, 2, 3]}]});
    post(&pool, path, &half).complains(400, "input `fp16`: data: FP16 is sent as binary data only");
    half["inputs"][0]["datatype"] = json!("FP8");
    post(&pool, path, &half).complains(400, "`FP8` is not a tensor type");
}

#[test]
fn an_answer_proves_which_file_ran_where_and_how() {
    let Some(pool) = served(&["three_outputs"]) else { return };
    let mut body = rows(5, 2);
    body["id"] = json!("r7");
    body["parameters"] = json!({"priority": 1, "timeout": 20_000_000});
    let document = post(&pool, INFER, &body).json();
    assert_eq!((&document["id"], &document["model_name"]), (&json!("r7"), &json!("three_outputs")));
    let says = &document["parameters"];
    assert_eq!((&says["verdict"], &says["attempts"]), (&json!("OK"), &json!(1)));
    assert_eq!(says["worker"], worker(&pool).name);
    assert_eq!(says["device_kind"], "cpu");
    let file = pool.observer().models().expect("the pool says which")[0].model.sha256.clone();
    assert_eq!(says["model_sha256"], file);
    assert!(says["nodes"].as_str().is_some_and(|nodes| nodes.starts_with("CPUExecutionProvider ")));
    assert!(
        says["onnxruntime"].as_str().is_some_and(|version| version.starts_with("1.")),
        "{says}"
    );
    assert!(says["device_us"].as_f64().is_some_and(|us| us > 0.0), "{says}");
    assert_eq!((&says["runs"], &says["joined_rows"]), (&json!(1), &json!(2)));
    let receipt = says["receipt"].as_str().expect("a text");
    let receipt: Value = serde_json::from_str(receipt).expect("JSON");
    assert_eq!(receipt["attempts"][0]["infer"]["model"], "three_outputs");
}

#[test]
fn requests_that_come_at_once_share_runs_and_each_gets_its_own_rows() {
    /// Hundreds of runs: the context is busy while the worker reads the others.
    const LONG: u32 = 20_000;
    const REQUESTS: u32 = 12;
    let Some(pool) = served(&["three_outputs"]) else { return };
    is_right(&post(&pool, INFER, &rows(1, 1)).json(), 1, 1);
    let worker = worker(&pool).pid;
    stop(worker);
    let before = pool.status().counters.accepted;
    let long = post_aside(&pool, INFER, &rows(0, LONG));
    pool.until_status("the long one", |s| s.counters.accepted > before);
    let asked = |at| (100 * at, 1 + at % 3);
    let asking: Vec<_> = (0..REQUESTS)
        .map(asked)
        .map(|(first, count)| post_aside(&pool, INFER, &rows(first, count)))
        .collect();
    pool.until_status("all", |s| s.counters.accepted > before + u64::from(REQUESTS));
    go_on(worker);
    is_right(&within("the long answer", || long.join().expect("an answer")).json(), 0, LONG);
    let mut most = 0;
    for (at, one) in (0..).zip(asking) {
        let (first, count) = asked(at);
        let document = within("an answer", || one.join().expect("an answer")).json();
        is_right(&document, first, count);
        let joined = document["parameters"]["joined_rows"].as_u64().expect("a number");
        assert!(joined >= u64::from(count), "{document}");
        most = most.max(joined);
    }
    assert!(most > 3, "no two shared a run: the longest has {most} rows");
    let row = get(&pool, "/v2/models/three_outputs/stats").json()["model_stats"][0].clone();
    let inferences: u32 = 1 + LONG + (0..REQUESTS).map(|at| asked(at).1).sum::<u32>();
    assert_eq!(row["inference_count"], inferences);
    let executions = row["execution_count"].as_u64().expect("a number");
    let alone = 1 + u64::from(LONG.div_ceil(32) + REQUESTS);
    assert!(executions < alone, "{row}");
}

#[test]
fn inputs_that_the_model_does_not_take_are_refused_without_a_worker() {
    let Some(pool) = served(&["three_outputs", "two_inputs"]) else { return };
    // A request that reached the worker would get no answer.
    stop(worker(&pool).pid);
    let of = |shape: Value, datatype: &str, name: &str| {
        let data = vec![0; 12];
        json!({"inputs": [{"name": name, "shape": shape, "datatype": datatype, "data": data}]})
    };
    let refused = [
        (
            of(json!([4, 3]), "FP32", "x"),
            "`x` has the shape [4, 3]; the model takes [?, 4]: dimension 1 is 3",
        ),
        (of(json!([12]), "FP32", "x"), "it has 1 dimensions, not 2"),
        (of(json!([3, 4]), "FP64", "x"), "`x` is FP64; the model takes FP32"),
        (of(json!([3, 4]), "FP32", "y"), "the model `three_outputs` takes x, not `y`"),
        (json!({"inputs": []}), "the request has no input `x`"),
    ];
    for (body, words) in refused {
        post(&pool, INFER, &body).complains(400, words);
    }
    let mut body = rows(1, 3);
    body["outputs"] = json!([{"name": "product"}]);
    post(&pool, INFER, &body)
        .complains(400, "gives sum, double, whole; it has no output `product`");
    body["outputs"] = json!([]);
    body["parameters"] = json!({"program": "rot90"});
    post(&pool, INFER, &body).complains(400, "the model `three_outputs` takes no program");
    let two = json!({"inputs": [
        {"name": "x", "shape": [2, 3], "datatype": "FP32", "data": [1, 2, 3, 4, 5, 6]},
        {"name": "shift", "shape": [3], "datatype": "INT32", "data": [1, 2, 3]},
    ]});
    let why = "dimension 0 of `shift` is 3, but of `x` it is 2: all inputs must have the same number of rows";
    post(&pool, "/v2/models/two_inputs/infer", &two).complains(400, why);
    // Its outputs have 52 bytes a row.
    let count = 2_600_000;
    let large = binary(&[("x", "FP32", &[count, 4], &vec![0; 16 * count])], &json!({}));
    post_binary(&pool, INFER, &large)
        .complains(400, "a response has at most 134217728: send fewer rows");
}

#[test]
fn outputs_are_those_asked_for_and_numbers_that_json_cannot_express_are_an_error_by_name() {
    let Some(pool) = served(&["three_outputs"]) else { return };
    let numbers = [1.0, f32::NAN, 3.0, 4.0, 0.5, 0.5, 0.5, 0.5];
    let data: Vec<u8> = numbers.iter().flat_map(|number: &f32| number.to_le_bytes()).collect();
    let ask =
        |more: Value| post_binary(&pool, INFER, &binary(&[("x", "FP32", &[2, 4], &data)], &more));
    ask(json!({})).complains(400, "output `sum` (FP32) contains NaN, which JSON cannot express");
    let wanted = json!({"outputs": [{"name": "whole"}, {"name": "sum", "parameters": {"binary_data": true}}]});
    let answer = ask(wanted);
    let (document, bytes) = split(&answer);
    let outputs = document["outputs"].as_array().expect("outputs");
    assert_eq!(outputs.len(), 2);
    assert_eq!((&outputs[0]["name"], &outputs[0]["data"][4]), (&json!("whole"), &json!(50)));
    assert_eq!(outputs[1]["parameters"]["binary_data_size"], 8);
    let [first, second] =
        [&bytes[..4], &bytes[4..]].map(|n| f32::from_le_bytes(n.try_into().expect("4")));
    assert!(first.is_nan());
    assert_eq!(second, 2.0);
}

#[test]
fn outputs_of_unknown_size_get_the_memory_that_the_request_asks_for() {
    let Some(pool) = served(&["nonzero"]) else { return };
    let path = "/v2/models/nonzero/infer";
    // Each is 8 bytes of output: more than the default.
    let count: usize = 2_200_000;
    let ones = [1, 0, 0, 0].repeat(count);
    let ask =
        |more: Value| post_binary(&pool, path, &binary(&[("x", "INT32", &[count], &ones)], &more));
    let refused = ask(json!({"parameters": {"binary_data_output": true}}));
    refused.complains(500, "FAILED");
    let why = refused.json()["error"].as_str().expect("a text").to_owned();
    let (_, bytes) = why.rsplit_once("send the parameter output_bytes: ").expect(&why);
    let bytes: u64 = bytes.parse().expect(&why);
    let parameters =
        |bytes: u64| json!({"parameters": {"binary_data_output": true, "output_bytes": bytes}});
    ask(parameters(bytes - 1)).complains(500, "send the parameter output_bytes: ");
    let answer = ask(parameters(bytes));
    let (document, data) = split(&answer);
    assert_eq!(document["outputs"][0]["shape"], json!([1, count]));
    let numbers = data.as_chunks().0.iter().map(|&bytes| i64::from_le_bytes(bytes));
    assert!(numbers.eq(0..i64::try_from(count).expect("it is small")));
}

#[test]
fn a_late_request_is_504_and_one_whose_client_hangs_up_is_cancelled() {
    let Some(pool) = served(&["three_outputs"]) else { return };
    let worker = worker(&pool).pid;
    stop(worker);
    let mut late = rows(1, 1);
    late["parameters"] = json!({"timeout": 100_000});
    post(&pool, INFER, &late).complains(504, "DEADLINE");
    let before = pool.status().counters;
    let mut web = Web::open(&pool);
    web.send(&super::request("POST", INFER, "", rows(1, 1).to_string().as_bytes()));
    pool.until_status("its job", |status| status.counters.accepted > before.accepted);
    drop(web);
    pool.until_status("its end", |status| status.counters.cancelled > before.cancelled);
    signal(worker, nix::sys::signal::Signal::SIGKILL);
    assert_eq!(post(&pool, INFER, &rows(1, 1)).status, 200, "the next worker answers");
}

#[test]
fn loading_over_http_is_refused_with_the_command_to_run() {
    let Some(pool) = served(&["three_outputs"]) else { return };
    let ask = |name: &str, what: &str| {
        post(&pool, &format!("/v2/repository/models/{name}/{what}"), &json!({"parameters": {}}))
    };
    ask("new", "load").complains(501, "run `gridpool model load new=PATH` where the pool runs");
    ask("three_outputs", "unload").complains(501, "run `gridpool model unload three_outputs`");
    ask("rot90", "load").complains(501, "`rot90` is built in");
    ask("-x", "load").complains(400, "`-x` cannot be the name of a model");
    assert_eq!(post(&pool, INFER, &rows(1, 1)).status, 200);
}
