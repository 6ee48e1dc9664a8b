//! Requests of a model of the pool that the gateway refuses.

use axum::http::HeaderMap;
use gridpool_protocol::tensor::TensorSpec;
use gridpool_protocol::tensor::model::ModelState;

use super::*;
use crate::gateway::models::Model;
use crate::gateway::regions::Memory;
use crate::gateway::request;

fn spec(name: &str, datatype: DataType, shape: &[i64]) -> TensorSpec {
    TensorSpec::new(name, datatype, shape)
}

/// A model with rows: each row has floats and a flag; the outputs are floats and halves.
pub(in crate::gateway) fn info(name: &str) -> ModelInfo {
    ModelInfo {
        name: name.to_owned(),
        sha256: "00ff".to_owned(),
        onnxruntime: "1.31.1".to_owned(),
        inputs: vec![spec("x", DataType::Fp32, &[-1, 2]), spec("flag", DataType::Bool, &[-1])],
        outputs: vec![spec("y", DataType::Fp32, &[-1, 1 << 20]), spec("h", DataType::Fp16, &[-1])],
        max_batch: 8,
        contexts: 2,
        contexts_measured: Vec::new(),
        nodes: vec![ProviderNodes { provider: "CPUExecutionProvider".to_owned(), nodes: 3 }],
        device_bytes: 0,
        cuda_graphs: 0,
        warm_up_shapes: vec![vec![1, 2], vec![1]],
        steps: Vec::new(),
        state: ModelState::Ready,
        reason: String::new(),
    }
}

/// That model, READY on these workers.
pub(in crate::gateway) fn model(name: &str, workers: &[&str]) -> OnnxModel {
    let workers = workers.iter().map(|&worker| worker.to_owned()).collect();
    OnnxModel {
        serves: true,
        info: info(name),
        workers,
        group: "m".to_owned(),
        availability: Availability::Ready,
        record: Arc::default(),
    }
}

/// A request of two rows.
fn good() -> Value {
    json!({
        "parameters": {"binary_data_output": true},
        "inputs": [
            {"name": "flag", "shape": [2], "datatype": "BOOL", "data": [true, false]},
            {"name": "x", "shape": [2, 2], "datatype": "FP32", "data": [1, 2, 3, 4]},
        ],
    })
}

/// Whether the gateway would send the request, else why not.
fn asks(model: &OnnxModel, body: &Value) -> Result<(), String> {
    let text = body.to_string();
    let parsed = request::parse(&HeaderMap::new(), text.as_bytes(), &mut Memory::none());
    let work = parsed.and_then(|mut request| {
        Model::Onnx(Arc::new(model.clone()), Asked::Name).work(&mut request).map(drop)
    });
    work.map_err(|failure| failure.message().to_owned())
}

/// The good request with another value at `at`.
fn with(at: &str, value: Value) -> Value {
    let mut body = good();
    *body.pointer_mut(at).unwrap() = value;
    body
}

#[test]
fn inputs_that_the_model_does_not_take_are_refused_by_name_dimension_and_what_is_wanted() {
    let model = model("m", &["cpu0#1"]);
    assert_eq!(asks(&model, &good()), Ok(()));
    let mut lacks = good();
    lacks["inputs"].as_array_mut().unwrap().pop();
    assert_eq!(asks(&model, &lacks).unwrap_err(), "the request has no input `x`");
    let mut wide = with("/inputs/1/shape", json!([2, 3]));
    wide["inputs"][1]["data"] = json!([1, 2, 3, 4, 5, 6]);
    let mut flat = with("/inputs/1/shape", json!([4]));
    let mut rows = with("/inputs/1/shape", json!([3, 2]));
    rows["inputs"][1]["data"] = json!([1, 2, 3, 4, 5, 6]);
    flat["parameters"] = json!({});
    let takes = "the model takes [?, 2]";
    let refused = [
        (wide, format!("`x` has the shape [2, 3]; {takes}: dimension 1 is 3, not 2")),
        (flat, format!("`x` has the shape [4]; {takes}: it has 1 dimensions, not 2")),
        (with("/inputs/1/datatype", json!("FP64")), "`x` is FP64; the model takes FP32".into()),
        (with("/inputs/0/name", json!("f")), "the model `m` takes x and flag, not `f`".into()),
        (rows, "dimension 0 of `x` is 3, but of `flag` it is 2: all inputs must".into()),
    ];
    for (body, why) in refused {
        let error = asks(&model, &body).unwrap_err();
        assert!(error.contains(&why), "{error}");
    }
    let rowless = OnnxModel { info: ModelInfo { max_batch: 1, ..info("m") }, ..model };
    let mut rows = with("/inputs/1/shape", json!([3, 2]));
    rows["inputs"][1]["data"] = json!([1, 2, 3, 4, 5, 6]);
    assert_eq!(asks(&rowless, &rows), Ok(()), "its dimensions need not be rows");
}

#[test]
fn outputs_that_cannot_be_sent_are_refused_before_anything_runs() {
    let model = model("m", &["cpu0#1"]);
    let halves =
        "output `h` is FP16, which is sent as binary data only: ask for it with binary_data";
    assert_eq!(asks(&model, &with("/parameters", json!({}))).unwrap_err(), halves);
    let mut some = with("/parameters", json!({}));
    some["outputs"] = json!([{"name": "y"}]);
    assert_eq!(asks(&model, &some), Ok(()), "the halves were not asked for");
    some["outputs"] = json!([{"name": "y"}, {"name": "z"}]);
    assert_eq!(asks(&model, &some).unwrap_err(), "the model `m` gives y, h; it has no output `z`");
    // A row of outputs has more than 4 MiB, so a response holds 31 rows.
    let rows = |count: usize| {
        let mut body = with("/inputs/0/shape", json!([count]));
        body["inputs"][0]["data"] = json!(vec![true; count]);
        body["inputs"][1]["shape"] = json!([count, 2]);
        body["inputs"][1]["data"] = json!(vec![0; 2 * count]);
        asks(&model, &body)
    };
    assert_eq!(rows(31), Ok(()));
    let why = rows(32).unwrap_err();
    assert!(why.contains("bytes; a response has at most 134217728: send fewer rows"), "{why}");
    for bytes in [0, REPLY_BYTES_MAX as u64 + 1] {
        let why = asks(&model, &with("/parameters", json!({ "output_bytes": bytes }))).unwrap_err();
        assert!(why.contains("FP16") || why.contains("it must be 1 to 134217728"), "{why}");
        let parameters = json!({"binary_data_output": true, "output_bytes": bytes});
        let why = asks(&model, &with("/parameters", parameters)).unwrap_err();
        assert_eq!(why, format!("`output_bytes` is {bytes}; it must be 1 to 134217728"));
    }
}

#[test]
fn a_flag_is_0_or_1() {
    let json = json!({
        "parameters": {"binary_data_output": true},
        "inputs": [
            {"name": "flag", "shape": [2], "datatype": "BOOL", "parameters": {"binary_data_size": 2}},
            {"name": "x", "shape": [2, 2], "datatype": "FP32", "data": [1, 2, 3, 4]},
        ],
    });
    let json = json.to_string();
    let headers =
        [(axum::http::HeaderName::from_static(request::HEADER_LENGTH), json.len().into())];
    let headers = HeaderMap::from_iter(headers);
    let model = Model::Onnx(Arc::new(model("m", &["cpu0#1"])), Asked::Name);
    let ask = |flags: &[u8]| {
        let body = [json.as_bytes(), flags].concat();
        model.work(&mut request::parse(&headers, &body, &mut Memory::none()).unwrap()).map(drop)
    };
    assert_eq!(ask(&[0, 1]), Ok(()));
    let why = ask(&[1, 2]).unwrap_err();
    assert_eq!(why.message(), "input `flag`: element 1 is 2; a BOOL is 0 or 1");
}

#[test]
fn a_missing_model_is_refused_and_one_whose_workers_return_is_not() {
    let of = |availability| OnnxModel { availability, ..model("m", &[]) };
    assert_eq!(
        asks(&of(Availability::NoWorker("killed".into())), &good()),
        Ok(()),
        "it waits for them"
    );
    let why = asks(&of(Availability::Unavailable("cpu0#1: no file".into())), &good()).unwrap_err();
    assert_eq!(why, "the model `m` is unavailable: cpu0#1: no file");
    assert_eq!(asks(&of(Availability::Unloaded), &good()), Ok(()), "the pool may have another");
}

#[test]
fn a_config_leaves_out_the_dimension_of_rows_where_there_are_rows() {
    let config = model("m", &[]).config();
    assert_eq!(config["max_batch_size"], 8);
    assert_eq!(config["dynamic_batching"], json!({}));
    assert_eq!(config["input"][0]["dims"], json!([2]));
    assert_eq!(config["input"][1]["reshape"]["shape"], json!([]));
    assert_eq!(config["instance_group"][0]["count"], 2);
    assert_eq!(config["parameters"]["nodes"]["string_value"], "CPUExecutionProvider 3");
    let placed =
        OnnxModel { workers: ["cpu0#2", "cpu2#7"].map(str::to_owned).to_vec(), ..model("m", &[]) };
    assert_eq!(placed.config()["parameters"]["devices"]["string_value"], "cpu0, cpu2");
    let rowless = ModelInfo { max_batch: 1, ..info("m") };
    let config = OnnxModel { info: rowless, ..model("m", &[]) }.config();
    assert_eq!(config["max_batch_size"], 0);
    assert_eq!(config["input"][0]["dims"], json!([-1, 2]));
    assert_eq!(config.get("dynamic_batching"), None);
}
