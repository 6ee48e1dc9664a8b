//! The traces and the access log of HTTP and gRPC.

use gridpool_inference::ModelInferResponse;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use serde_json::Value;

use super::grpc::{self, client::Grpc};
use super::{Web, as_request, get, small, until_status_of, with_http};
use crate::pool::{Pool, cpu};
use crate::traces::collector::{Answers, Collector, hex, texts};
use crate::traces::{PARENT, SAMPLED, TRACE};
use crate::wait::eventually;

const INFER: &str = "/v2/models/rot90/infer";
const ROUTE: &str = "POST /v2/models/{model}/infer";

fn traced_to(collector: &Collector) -> Pool {
    let pool = grpc::with_both(cpu(1)).args(&["--trace", &collector.url()]).start();
    until_status_of(&pool, "/v2/health/ready", 200);
    pool
}

fn ask(pool: &Pool, headers: &str) -> super::Answer {
    Web::open(pool).ask("POST", INFER, headers, as_request(&small()).to_string().as_bytes())
}

/// The span of a request, below which is that of its job.
fn request_of<'a>(spans: &'a [Span], name: &str) -> &'a Span {
    let request = spans.iter().find(|span| span.name == name).expect(name);
    assert_eq!(request.kind(), SpanKind::Server);
    let job = spans.iter().find(|span| span.name == "program").expect("a job");
    assert_eq!((&job.trace_id, &job.parent_span_id), (&request.trace_id, &request.span_id));
    request
}

#[test]
fn a_request_of_http_is_a_span_between_its_client_and_its_job() {
    let collector = Collector::open(Answers::Status(200));
    let pool = traced_to(&collector);
    let state = "tracestate: vendor=1\r\ntracestate: other=2\r\n";
    let answer = ask(&pool, &format!("traceparent: {SAMPLED}\r\n{state}"));
    assert_eq!(answer.status, 200, "{answer:?}");
    let receipt = &answer.json()["parameters"]["receipt"];
    let receipt: Value = serde_json::from_str(receipt.as_str().expect("a text")).expect("JSON");
    assert_eq!(receipt["trace_id"], TRACE);
    collector.trace(Some(TRACE), "program");
    let spans = collector.trace(Some(TRACE), ROUTE);
    let request = request_of(&spans, ROUTE);
    assert_eq!(hex(&request.parent_span_id), PARENT);
    let about = texts(&request.attributes);
    assert_eq!(about["http.request.method"], "POST");
    assert_eq!(about["http.route"], "/v2/models/{model}/infer");
    assert_eq!(about["http.response.status_code"], "200");
    assert_eq!(about["gridpool.user.kind"], "address");
    let job = spans.iter().find(|span| span.name == "program").expect("a job");
    assert!(spans.iter().all(|span| span.trace_state == "vendor=1,other=2"), "{spans:#?}");
    assert!(request.start_time_unix_nano <= job.start_time_unix_nano, "{request:?} {job:?}");

    let wrong =
        "traceparent: 00-00000000000000000000000000000000-00-01\r\ntracestate: vendor=1\r\n";
    let wrong = ask(&pool, wrong);
    assert_eq!(wrong.status, 200, "a wrong header is ignored");
    let lost = get(&pool, "/v2/models/none");
    assert_eq!(lost.status, 404);
    let spans = collector.trace(None, "GET /v2/models/{model}");
    let lost = spans.iter().find(|span| span.name == "GET /v2/models/{model}").expect("a span");
    let receipt = &wrong.json()["parameters"]["receipt"];
    let receipt: Value = serde_json::from_str(receipt.as_str().expect("a text")).expect("JSON");
    let begun = receipt["trace_id"].as_str().expect("a text");
    collector.trace(Some(begun), "program");
    let own = collector.trace(Some(begun), ROUTE);
    assert!(own.len() > 3 && own.iter().all(|span| span.trace_state.is_empty()), "{own:#?}");
    assert!(lost.status.is_none() && lost.parent_span_id.is_empty(), "{lost:?}");
    let is_routine = |span: &Span| span.name.contains("health") || span.name.contains("metrics");
    assert!(!spans.iter().any(is_routine), "{spans:#?}");
}

#[test]
fn a_call_of_grpc_is_a_span_too() {
    let collector = Collector::open(Answers::Status(200));
    let pool = traced_to(&collector);
    let client = Grpc::open(&grpc::address(&pool)).with("traceparent", SAMPLED);
    let client = client.with("tracestate", "vendor=1");
    let answer: ModelInferResponse = client.ask("ModelInfer", grpc::one()).expect("an answer");
    grpc::is_turned(&answer);
    let name = "inference.GRPCInferenceService/ModelInfer";
    collector.trace(Some(TRACE), "program");
    let spans = collector.trace(Some(TRACE), name);
    let call = request_of(&spans, name);
    assert_eq!(hex(&call.parent_span_id), PARENT);
    let about = texts(&call.attributes);
    assert_eq!((&*about["rpc.system"], &*about["rpc.method"]), ("grpc", "ModelInfer"));
    assert_eq!(about["rpc.grpc.status_code"], "0");
    assert!(spans.iter().all(|span| span.trace_state == "vendor=1"), "{spans:#?}");
    let metrics = String::from_utf8(get(&pool, "/metrics").body).expect("text");
    for result in ["unsent_jobs", "unsent_requests"] {
        let row = format!("gridpool_trace_spans_total{{result=\"{result}\"}} 0\n");
        assert!(metrics.contains(&row), "{metrics}");
    }
    assert!(metrics.contains("gridpool_helper_up{helper=\"tracer\"} 1\n"), "{metrics}");
}

#[test]
fn the_access_log_has_a_line_for_each_request_and_no_token() {
    let setup = grpc::with_both(cpu(1)).args(&["--access-log", "--log-format", "json"]);
    // What it is asked for is there, whatever the filter.
    let pool = setup.env("GRIDPOOL_LOG", "warn").start();
    until_status_of(&pool, "/v2/health/ready", 200);
    let secret = "gridpool_secret_0123456789";
    let headers = format!("traceparent: {SAMPLED}\r\nauthorization: Bearer {secret}\r\n");
    assert_eq!(ask(&pool, &headers).status, 200);
    let answer: ModelInferResponse =
        Grpc::open(&grpc::address(&pool)).ask("ModelInfer", grpc::one()).expect("an answer");
    grpc::is_turned(&answer);
    let line = |route: &str| {
        eventually(&format!("a line of {route}"), || {
            let log = pool.log();
            let events = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            let mut events = events.filter(|event| event["target"] == "access");
            events.find(|event| event["route"] == route).ok_or_else(|| log.clone())
        })
    };
    let http = line("/v2/models/{model}/infer");
    assert_eq!((&http["method"], &http["status"]), (&"POST".into(), &"200".into()));
    assert_eq!((&http["model"], &http["trace_id"]), (&"rot90".into(), &TRACE.into()));
    assert_eq!(http["principal"], "address 127.0.0.1");
    assert!(http["bytes"].as_u64() > Some(0) && http["duration_us"].as_u64() > Some(0), "{http}");
    let grpc = line("inference.GRPCInferenceService");
    assert_eq!((&grpc["method"], &grpc["status"]), (&"ModelInfer".into(), &0.into()));
    assert!(grpc["bytes"].as_u64() > Some(0), "{grpc}");
    assert!(!pool.log().contains(secret));
}

#[test]
fn there_is_no_access_log_unless_it_is_asked_for() {
    let pool = with_http(cpu(1)).start();
    until_status_of(&pool, "/v2/health/ready", 200);
    assert_eq!(ask(&pool, "").status, 200);
    assert!(!pool.log().contains(" access"), "{}", pool.log());
}
