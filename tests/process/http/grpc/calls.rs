//! Every method, and what it says beside HTTP.

use std::time::Duration;

use gridpool_inference::{
    Choice, Empty, InferRequestedOutputTensor, ModelConfigResponse, ModelMetadataResponse,
    ModelRequest, ModelStatisticsResponse, ReadyResponse, RepositoryIndexRequest,
    RepositoryIndexResponse, RepositoryModelRequest, ServerLiveResponse, ServerMetadataResponse,
    TensorContents,
};
use gridpool_ipc::clock;
use serde_json::{Value, json};

use super::*;
use crate::http::{get, post};
use crate::infer::{has_runtime, model};
use crate::pool::cpu;
use crate::wait::eventually;
use tonic::Code;

fn named(name: &str) -> ModelRequest {
    ModelRequest { name: name.to_owned(), version: String::new() }
}

/// The messages of gRPC's health check.
#[derive(Clone, PartialEq, Eq, prost::Message)]
struct HealthCheck {
    #[prost(string, tag = "1")]
    service: String,
}

#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
struct HealthAnswer {
    #[prost(int32, tag = "1")]
    status: i32,
}

/// These members of a document, which must have them.
#[track_caller]
fn of(document: &Value, names: &[&str]) -> Value {
    let member =
        |name: &&str| document.get(*name).unwrap_or_else(|| panic!("no {name}: {document}"));
    names.iter().map(member).cloned().collect()
}

/// The same of each part of a list.
#[track_caller]
fn each(list: &Value, names: &[&str]) -> Value {
    list.as_array().expect("a list").iter().map(|part| of(part, names)).collect()
}

#[test]
fn each_document_is_that_of_http() {
    let pool = served(cpu(1));
    let grpc = Grpc::open(&address(&pool));
    let live: ServerLiveResponse = grpc.ask("ServerLive", Empty {}).unwrap();
    let ready: ReadyResponse = grpc.ask("ServerReady", Empty {}).unwrap();
    assert!(live.live && ready.ready);
    for (name, is) in [("rot90", true), ("nope", false)] {
        let ready: ReadyResponse = grpc.ask("ModelReady", named(name)).unwrap();
        assert_eq!(ready.ready, is, "{name}");
    }
    // Each field by its name in JSON: the gateway makes messages of the same documents, so a field that is missing in
    // both would be equal.
    let server: ServerMetadataResponse = grpc.ask("ServerMetadata", Empty {}).unwrap();
    let http = get(&pool, "/v2").json();
    assert_eq!(
        json!([server.name, server.version, server.extensions]),
        of(&http, &["name", "version", "extensions"])
    );
    let metadata: ModelMetadataResponse = grpc.ask("ModelMetadata", named("rot90")).unwrap();
    let http = get(&pool, "/v2/models/rot90").json();
    let own = json!([metadata.name, metadata.versions, metadata.platform]);
    assert_eq!(own, of(&http, &["name", "versions", "platform"]));
    for (own, all) in [(&metadata.inputs, "inputs"), (&metadata.outputs, "outputs")] {
        let own: Value = own.iter().map(|t| json!([t.name, t.datatype, t.shape])).collect();
        assert_eq!(own, each(&http[all], &["name", "datatype", "shape"]));
    }
    let config: ModelConfigResponse = grpc.ask("ModelConfig", named("rot90")).unwrap();
    let (config, http) = (config.config.unwrap(), get(&pool, "/v2/models/rot90/config").json());
    let own = json!([config.name, config.platform, config.backend, config.max_batch_size]);
    assert_eq!(own, of(&http, &["name", "platform", "backend", "max_batch_size"]));
    let own: Value = config.input.iter().map(|t| json!([t.name, t.dims])).collect();
    assert_eq!(own, each(&http["input"], &["name", "dims"]));
    assert_eq!(
        (&http["input"][0]["data_type"], config.input[0].data_type),
        (&json!("TYPE_UINT8"), 2)
    );
    is_turned(&grpc.ask("ModelInfer", one()).unwrap());
    let stats: ModelStatisticsResponse = grpc.ask("ModelStatistics", named("rot90")).unwrap();
    let http = get(&pool, "/v2/models/rot90/stats").json();
    let row = &stats.model_stats[0];
    let own = json!([row.name, row.version, row.inference_count, row.execution_count]);
    let names = ["name", "version", "inference_count", "execution_count"];
    assert_eq!(own, of(&http["model_stats"][0], &names));
    assert_eq!(row.inference_count, 1);
    let success = row.inference_stats.as_ref().unwrap().success.as_ref().unwrap();
    let http = &http["model_stats"][0]["inference_stats"]["success"];
    assert_eq!(json!([success.count, success.ns]), of(http, &["count", "ns"]));
    let all: ModelStatisticsResponse = grpc.ask("ModelStatistics", named("")).unwrap();
    let http = get(&pool, "/v2/models/stats").json();
    let own: Value = all.model_stats.iter().map(|row| json!([row.name])).collect();
    assert_eq!(own, each(&http["model_stats"], &["name"]));
    for ready in [false, true] {
        let asked = RepositoryIndexRequest { ready, ..RepositoryIndexRequest::default() };
        let index: RepositoryIndexResponse = grpc.ask("RepositoryIndex", asked).unwrap();
        let rows = post(&pool, "/v2/repository/index", &json!({"ready": ready})).json();
        let own: Value = index.models.iter().map(|m| json!([m.name, m.version, m.state])).collect();
        assert_eq!(own, each(&rows, &["name", "version", "state"]));
        assert!(!index.models.is_empty());
    }
    let metrics = String::from_utf8(get(&pool, "/metrics").body).unwrap();
    let row = "gridpool_grpc_calls_total{method=\"ModelInfer\",code=\"OK\"} 1\n";
    assert!(metrics.contains(row), "{metrics}");
    assert!(metrics.contains("nv_inference_request_success{model=\"rot90\",version=\"1\"} 1\n"));
    // gRPC's own health check, which asks for a service by its name.
    let check = |service: &str| {
        let asked = HealthCheck { service: service.to_owned() };
        grpc.ask_at::<HealthAnswer>("/grpc.health.v1.Health/Check", asked)
    };
    for service in ["", gridpool_inference::SERVICE] {
        assert_eq!(check(service).unwrap().status, 1, "it serves");
    }
    assert_eq!(check("nope").unwrap_err().code(), Code::NotFound);
    let watch = grpc.ask_at::<Empty>("/grpc.health.v1.Health/Watch", Empty {}).unwrap_err();
    assert!(watch.message().contains("call Check again and again"), "{watch:?}");
}

#[test]
fn an_answer_has_its_data_as_bytes_and_its_receipt_in_parameters() {
    let pool = served(cpu(1));
    let grpc = Grpc::open(&address(&pool));
    let ask = |request| grpc.ask::<ModelInferResponse>("ModelInfer", request);
    let answer = ask(ModelInferRequest { id: "7".to_owned(), ..one() }).unwrap();
    is_turned(&answer);
    assert_eq!((&*answer.id, &*answer.model_version), ("7", "1"));
    assert_eq!(text(&answer, "device_kind"), "cpu");
    assert_eq!(answer.parameters["attempts"].choice, Some(Choice::Int64(1)));
    let receipt: Value = serde_json::from_str(text(&answer, "receipt")).unwrap();
    assert_eq!(receipt["verdict"], "OK");
    // The same as typed contents.
    let mut typed = one();
    typed.raw_input_contents.clear();
    let cells = one().raw_input_contents[0].iter().map(|&cell| cell.into()).collect();
    typed.inputs[0].contents =
        Some(TensorContents { uint_contents: cells, ..TensorContents::default() });
    typed.inputs[1].contents =
        Some(TensorContents { int_contents: vec![2, 3], ..TensorContents::default() });
    is_turned(&ask(typed).unwrap());
    let wanted = InferRequestedOutputTensor { name: "SIZE".to_owned(), ..Default::default() };
    let some = ask(ModelInferRequest { outputs: vec![wanted], ..one() }).unwrap();
    assert_eq!((some.outputs.len(), some.raw_output_contents.len()), (1, 1));
    let program = ModelInferRequest { model_name: "program".to_owned(), ..one() };
    is_turned(&ask(with(program, "program", Choice::String("rot90".to_owned()))).unwrap());
    // More than one frame of HTTP/2, in and out.
    let many = ask(request(&vec![small(); 2_000])).unwrap();
    assert_eq!(many.raw_output_contents[0].len(), 2_000 * 900);
}

#[test]
fn what_is_not_served_says_what_to_do() {
    let pool = served(cpu(1));
    let grpc = Grpc::open(&address(&pool));
    let says = |method: &str, words: &str| {
        let status = grpc.ask::<Empty>(method, Empty {}).unwrap_err();
        assert_eq!(status.code(), Code::Unimplemented, "{status:?}");
        assert!(status.message().contains(words), "{method}: {status:?}");
    };
    for method in ["SystemSharedMemoryStatus", "SystemSharedMemoryRegister"] {
        says(method, "shared memory is not served: send the tensors in the request");
    }
    says("CudaSharedMemoryRegister", "CUDA shared memory is not served");
    says("TraceSetting", "the response parameter `receipt` says");
    says("LogSettings", "start the pool with GRIDPOOL_LOG");
    says("Nothing", "there is no method `/inference.GRPCInferenceService/Nothing`");
    for (method, name, words) in [
        ("RepositoryModelLoad", "m", "run `gridpool model load m=PATH` where the pool runs"),
        ("RepositoryModelUnload", "m", "run `gridpool model unload m`"),
        ("RepositoryModelLoad", "rot90", "`rot90` is built in"),
    ] {
        let asked = RepositoryModelRequest { model_name: name.to_owned(), ..Default::default() };
        let status = grpc.ask::<Empty>(method, asked).unwrap_err();
        assert_eq!(status.code(), Code::Unimplemented, "{status:?}");
        assert!(status.message().contains(words), "{status:?}");
    }
    // Such calls have a rate, as those for documents do: 100 at once, and 100 a second.
    let began = clock::now();
    (0..200).for_each(|_| says("Nothing", "there is no method"));
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(950), "all are answered after {took:?}");
    // And so have requests that are refused. However many come at once, 100 of these wait.
    let began = clock::now();
    for _ in 0..200 {
        let wrong = ModelInferRequest { model_name: "nope".to_owned(), ..Default::default() };
        let status = grpc.ask::<ModelInferResponse>("ModelInfer", wrong).unwrap_err();
        assert_eq!(status.code(), Code::NotFound, "{status:?}");
    }
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(950), "all are refused after {took:?}");
}

#[test]
fn a_model_of_the_pool_is_served_with_its_types_and_its_proof() {
    if !has_runtime() {
        return;
    }
    let path = format!("three_outputs={}", model("three_outputs").display());
    let pool = served(cpu(1).args(&["--model", &path]));
    let grpc = Grpc::open(&address(&pool));
    let metadata = eventually("the model", || {
        grpc.ask::<ModelMetadataResponse>("ModelMetadata", named("three_outputs"))
    });
    assert_eq!(metadata.inputs[0].datatype, "FP32");
    let config: ModelConfigResponse = grpc.ask("ModelConfig", named("three_outputs")).unwrap();
    let config = config.config.unwrap();
    assert_eq!((&*config.backend, config.input[0].data_type), ("onnxruntime", 11));
    let floats: Vec<f32> = (1..=8_u8).map(f32::from).collect();
    let mut x = tensor("x", "FP32", &[2, 4]);
    x.contents = Some(TensorContents { fp32_contents: floats, ..TensorContents::default() });
    let asked = ModelInferRequest {
        model_name: "three_outputs".to_owned(),
        inputs: vec![x],
        ..ModelInferRequest::default()
    };
    let answer: ModelInferResponse = grpc.ask("ModelInfer", asked).unwrap();
    assert_eq!(answer.outputs.len(), 3);
    assert_eq!(text(&answer, "model_sha256").len(), 64);
    let ready: ReadyResponse = grpc.ask("ModelReady", named("three_outputs")).unwrap();
    assert!(ready.ready);
    let stats: ModelStatisticsResponse =
        grpc.ask("ModelStatistics", named("three_outputs")).unwrap();
    assert_eq!(stats.model_stats[0].inference_count, 2, "rows");
}

#[test]
fn texts_go_both_ways_in_either_form_and_a_priority_is_a_number_of_tritons() {
    if !has_runtime() {
        return;
    }
    let path = format!("strings={}", model("strings").display());
    let pool = served(cpu(1).args(&["--model", &path]));
    let grpc = Grpc::open(&address(&pool));
    let config: ModelConfigResponse =
        eventually("the model", || grpc.ask("ModelConfig", named("strings")));
    assert_eq!(config.config.unwrap().input[0].data_type, 13);
    let data = b"\x03\0\0\0one\0\0\0\0\x01\0\0\0\xff";
    let elements = || vec![b"one".to_vec().into(), Vec::new().into(), vec![0xff].into()];
    let asked = |contents: Option<TensorContents>, raw: &[&[u8]]| ModelInferRequest {
        model_name: "strings".to_owned(),
        inputs: vec![InferInputTensor { contents, ..tensor("text", "BYTES", &[3]) }],
        raw_input_contents: raw.iter().map(|raw| raw.to_vec().into()).collect(),
        ..ModelInferRequest::default()
    };
    let texts = |bytes_contents| TensorContents { bytes_contents, ..TensorContents::default() };
    for request in [asked(None, &[data]), asked(Some(texts(elements())), &[])] {
        let request = with(request, "priority", Choice::Uint64(1));
        let answer: ModelInferResponse = grpc.ask("ModelInfer", request).unwrap();
        assert_eq!(answer.raw_output_contents[0][..], data[..]);
        assert_eq!(answer.outputs[0].datatype, "BYTES");
    }
    let refused = |request: ModelInferRequest, why: &str| {
        let status = grpc.ask::<ModelInferResponse>("ModelInfer", request).unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
        assert!(status.message().contains(why), "{status:?}");
    };
    refused(asked(None, &[&data[..15]]), "the data ends inside element 2");
    refused(asked(None, &[&data[..11]]), "it has 2 elements, but its shape says 3");
    let few = texts(elements()[..2].to_vec());
    refused(asked(Some(few), &[]), "bytes_contents has 2 elements, but its shape says 3");
    let named = with(asked(None, &[data]), "priority", Choice::String("high".to_owned()));
    refused(named, "`priority` is \"high\"");
}
