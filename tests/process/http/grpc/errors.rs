//! The code of every cause.

use gridpool_inference::{RetryInfo, StatusDetails};
use prost::Message;
use tonic::{Code, Status};

use super::*;
use crate::http::access::{token, tokens};
use crate::jobs::serves;
use crate::pool::cpu;
use crate::processes::go_on;
use crate::wait::eventually;

#[track_caller]
fn is(status: &Status, code: Code, words: &str) {
    assert_eq!(status.code(), code, "{status:?}");
    assert!(status.message().contains(words), "`{words}` is not in {status:?}");
}

/// Seconds after which a status says to try again.
fn retry(status: &Status) -> Option<i64> {
    let details = StatusDetails::decode(status.details()).expect("details");
    let any = details.details.first()?;
    assert_eq!(any.type_url, "type.googleapis.com/google.rpc.RetryInfo");
    let info = RetryInfo::decode(&*any.value).expect("retry info");
    Some(info.retry_delay.expect("a delay").seconds)
}

#[test]
fn what_is_wrong_is_said_with_its_code() {
    let pool = served(cpu(1));
    let grpc = Grpc::open(&address(&pool));
    let fails = |request: ModelInferRequest, code, words: &str| {
        let status = grpc.ask::<ModelInferResponse>("ModelInfer", request).unwrap_err();
        is(&status, code, words);
        assert_eq!(retry(&status), None, "another try does not help");
    };
    let named = |name: &str| ModelInferRequest { model_name: name.to_owned(), ..one() };
    fails(named("nope"), Code::NotFound, "there is no model `nope`");
    let version = ModelInferRequest { model_version: "2".to_owned(), ..one() };
    fails(version, Code::NotFound, "has no version `2`");
    let mut lacks = one();
    lacks.raw_input_contents.pop();
    fails(lacks, Code::InvalidArgument, "raw_input_contents has 1 entries for 2 inputs");
    let mut short = one();
    short.raw_input_contents[1] = vec![0; 3].into();
    fails(
        short,
        Code::InvalidArgument,
        "input `SIZE`: its entry of raw_input_contents has 3 bytes",
    );
    let mut negative = one();
    negative.inputs[0].shape[0] = -1;
    fails(negative, Code::InvalidArgument, "input `GRID`: a dimension is negative");
    let sequence = with(one(), "sequence_id", Choice::Int64(7));
    fails(sequence, Code::InvalidArgument, "models here are stateless");
    let mut shared = one();
    let region = Choice::String("r".to_owned()).into();
    shared.inputs[0].parameters.insert("shared_memory_region".to_owned(), region);
    shared.raw_input_contents.remove(0);
    fails(shared.clone(), Code::InvalidArgument, "`GRID`: there is shared_memory_region, but no");
    let bytes = Choice::Int64(900).into();
    shared.inputs[0].parameters.insert("shared_memory_byte_size".to_owned(), bytes);
    fails(shared, Code::Unimplemented, "`GRID`: shared memory is not served: send the tensors");
    let mut compressed = Grpc::open(&address(&pool));
    compressed = compressed.with("origin", "https://evil.example");
    let status = compressed.ask::<ModelInferResponse>("ModelInfer", one()).unwrap_err();
    is(&status, Code::PermissionDenied, "requests of web pages are not served");
    is_turned(&grpc.ask("ModelInfer", one()).unwrap());
}

#[test]
fn a_deadline_that_passes_and_a_client_that_has_cost_too_much() {
    let pool = served(cpu(1).limits("kills_max = 1"));
    pool.stop("cpu0");
    let status = ask(&pool, with(one(), "timeout", Choice::Int64(100_000))).unwrap_err();
    is(&status, Code::DeadlineExceeded, "DEADLINE");
    pool.until("cpu0", "in its second generation", |slot| slot.generation == 2);
    let status = ask(&pool, one()).unwrap_err();
    is(&status, Code::ResourceExhausted, "too many workers; others are accepted again in ");
    let seconds = retry(&status).expect("it says when");
    assert!((2..=10).contains(&seconds), "{status:?}");
    let pushback = status.metadata().get("grpc-retry-pushback-ms").expect("for clients that retry");
    assert_eq!(pushback.to_str().unwrap(), format!("{}", seconds * 1_000));
    serves(&pool.client());
}

#[test]
fn a_full_pool_is_exhausted_at_once_and_answers_what_it_has_accepted() {
    // One job for each of the gateway's four connections.
    let pool = served(cpu(1).limits("client_jobs_max = 1\n"));
    let grpc = Grpc::open(&address(&pool));
    let worker = pool.stop("cpu0");
    let before = pool.status().counters.refused_busy;
    let all: Vec<_> =
        (0..12).map(|_| grpc.begin::<ModelInferResponse>("ModelInfer", one())).collect();
    pool.until_status("eight to be refused", |s| s.counters.refused_busy == before + 8);
    go_on(worker);
    let answers = all.into_iter().map(client::Pending::end);
    let (good, bad): (Vec<_>, Vec<_>) = answers.partition(Result::is_ok);
    assert_eq!((good.len(), bad.len()), (4, 8));
    for status in bad.into_iter().filter_map(Result::err) {
        is(&status, Code::ResourceExhausted, "BUSY: ");
        assert_eq!(retry(&status), Some(1));
    }
}

#[test]
fn a_pool_that_drains_is_unavailable() {
    let pool = served(cpu(1));
    let grpc = Grpc::open(&address(&pool));
    let worker = pool.stop("cpu0");
    let accepted = pool.status().counters.accepted;
    let held = grpc.begin::<ModelInferResponse>("ModelInfer", one());
    pool.until_status("its job", |status| status.counters.accepted > accepted);
    pool.observer().drain().expect("it drains");
    // It is told before it begins.
    pool.until_status("draining", |status| status.supervisor.draining);
    let status = grpc.ask::<ModelInferResponse>("ModelInfer", one()).unwrap_err();
    is(&status, Code::Unavailable, "draining");
    go_on(worker);
    is_turned(&held.end().unwrap());
}

#[test]
fn the_job_of_a_call_that_is_cancelled_or_whose_time_is_over_is_cancelled() {
    let pool = served(cpu(1));
    let grpc = Grpc::open(&address(&pool));
    pool.stop("cpu0");
    let before = pool.status().counters;
    let call = grpc.begin::<ModelInferResponse>("ModelInfer", one());
    pool.until_status("its job", |status| status.counters.accepted > before.accepted);
    call.cancel();
    pool.until_status("its end", |status| status.counters.cancelled == before.cancelled + 1);
    // The connection serves the next call.
    is_turned(&grpc.ask("ModelInfer", one()).unwrap());
}

#[test]
fn a_stream_ends_when_its_token_is_taken_back() {
    let (one_token, one_line) = token(&["one"]);
    let (new_token, new_line) = token(&["one"]);
    let (_, other_line) = token(&["other"]);
    let setup = with_both(cpu(1));
    let file = tokens(&setup, &[&one_line]);
    let pool = setup.args(&["--http-tokens", file.to_str().unwrap()]).start();
    until_status_of(&pool, "/v2/health/ready", 200);
    // First the same name gets another token, then it has none.
    for (token, next_line) in [(one_token, new_line), (new_token, other_line)] {
        let bearer = format!("Bearer {token}");
        let mut stream = Grpc::open(&address(&pool)).with("authorization", &bearer).stream();
        stream.send(one());
        is_turned(&stream.next().unwrap().expect("an answer").infer_response.unwrap());
        tokens(pool.setup(), &[&next_line]);
        let status = eventually("the end of the stream", || {
            stream.offer(one());
            stream.next().err().ok_or("an answer")
        });
        is(&status, Code::Unauthenticated, "the token `one` was taken back");
    }
}

#[test]
fn a_call_needs_a_token_with_the_scope_of_its_method() {
    let (user, user_line) = token(&["user"]);
    let (meter, meter_line) = token(&["meter", "--scope", "metrics"]);
    let setup = with_both(cpu(1));
    let file = tokens(&setup, &[&user_line, &meter_line]);
    let pool = setup.args(&["--http-tokens", file.to_str().unwrap()]).start();
    until_status_of(&pool, "/v2/health/ready", 200);
    let of =
        |token: &str| Grpc::open(&address(&pool)).with("authorization", &format!("Bearer {token}"));
    let ask = |grpc: &Grpc| grpc.ask::<ModelInferResponse>("ModelInfer", one());
    is_turned(&ask(&of(&user)).unwrap());
    let bare = Grpc::open(&address(&pool));
    is(&ask(&bare).unwrap_err(), Code::Unauthenticated, "send Authorization: Bearer TOKEN");
    is(&ask(&of("gridpool_no")).unwrap_err(), Code::Unauthenticated, "unknown or has expired");
    let status = ask(&of(&meter)).unwrap_err();
    is(
        &status,
        Code::PermissionDenied,
        "the token `meter` may not do this: it needs the scope infer",
    );
    let stats = gridpool_inference::ModelRequest::default();
    let stats = of(&meter)
        .ask::<gridpool_inference::ModelStatisticsResponse>("ModelStatistics", stats)
        .unwrap();
    assert!(!stats.model_stats.is_empty());
    let live: gridpool_inference::ServerLiveResponse =
        bare.ask("ServerLive", gridpool_inference::Empty {}).unwrap();
    assert!(live.live, "health needs no token");
    let load = of(&user).ask::<gridpool_inference::Empty>(
        "RepositoryModelLoad",
        gridpool_inference::RepositoryModelRequest::default(),
    );
    is(&load.unwrap_err(), Code::PermissionDenied, "operate");
}
