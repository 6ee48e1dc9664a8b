//! Requests and answers on one call.

use gridpool_inference::Choice;
use tonic::Code;

use super::*;
use crate::pool::cpu;
use crate::processes::go_on;

fn numbered(id: usize) -> ModelInferRequest {
    ModelInferRequest { id: id.to_string(), ..one() }
}

#[test]
fn answers_come_in_order_and_one_that_fails_ends_nothing() {
    let pool = served(cpu(2));
    let mut stream = Grpc::open(&address(&pool)).stream();
    for id in 0..100 {
        let model_name = if id % 10 == 3 { "nope" } else { "rot90" }.to_owned();
        stream.send(ModelInferRequest { model_name, ..numbered(id) });
    }
    stream.close();
    for id in 0..100 {
        let answer = stream.next().unwrap().expect("an answer for each");
        let response = answer.infer_response.expect("it says whose answer it is");
        assert_eq!(response.id, id.to_string());
        if id % 10 == 3 {
            assert!(
                answer.error_message.contains("there is no model `nope`"),
                "{answer:?}",
                answer = answer.error_message
            );
        } else {
            assert_eq!(answer.error_message, "");
            is_turned(&response);
            assert!(!response.parameters.contains_key("triton_final_response"));
        }
    }
    assert_eq!(stream.next().unwrap(), None);
}

#[test]
fn a_stream_answers_while_its_client_waits_and_marks_the_last_answer_if_asked() {
    let pool = served(cpu(1));
    let mut stream = Grpc::open(&address(&pool)).stream();
    for id in 0..3 {
        stream.send(with(numbered(id), "triton_enable_empty_final_response", Choice::Bool(true)));
        let answer = stream.next().unwrap().expect("an answer").infer_response.unwrap();
        assert_eq!(answer.id, id.to_string());
        assert_eq!(answer.parameters["triton_final_response"], Choice::Bool(true).into());
    }
}

#[test]
fn the_jobs_of_a_stream_that_is_cancelled_are_cancelled() {
    let pool = served(cpu(1));
    let grpc = Grpc::open(&address(&pool));
    pool.stop("cpu0");
    let before = pool.status().counters;
    let stream = grpc.stream();
    (0..4).for_each(|id| stream.send(numbered(id)));
    pool.until_status("its jobs", |status| status.counters.accepted == before.accepted + 4);
    drop(stream);
    pool.until_status("their end", |status| status.counters.cancelled == before.cancelled + 4);
    is_turned(&grpc.ask("ModelInfer", one()).unwrap());
}

#[test]
fn a_stream_has_a_few_requests_in_progress_and_the_rest_waits_with_the_client() {
    let pool = served(cpu(1));
    let mut stream = Grpc::open(&address(&pool)).stream();
    let worker = pool.stop("cpu0");
    let before = pool.status().counters.accepted;
    (0..40).for_each(|id| stream.send(numbered(id)));
    let status = pool.until_status("some", |status| status.counters.accepted >= before + 16);
    assert_eq!(status.counters.accepted, before + 16);
    go_on(worker);
    for id in 0..40 {
        let answer = stream.next().unwrap().expect("an answer").infer_response.unwrap();
        assert_eq!(answer.id, id.to_string());
    }
}

#[test]
fn the_time_of_a_stream_ends_it_and_its_jobs() {
    let pool = served(cpu(1));
    pool.stop("cpu0");
    let before = pool.status().counters;
    let grpc = Grpc::open(&address(&pool)).with("grpc-timeout", "500m");
    let mut stream = grpc.stream();
    stream.send(numbered(0));
    let ends = |status: &gridpool_protocol::status::Status| {
        let now = &status.counters;
        now.cancelled + now.deadline > before.cancelled + before.deadline
    };
    pool.until_status("the end of its job", ends);
    let status = loop {
        match stream.next() {
            Ok(Some(answer)) => assert!(
                answer.error_message.contains("DEADLINE"),
                "{answer:?}",
                answer = answer.error_message
            ),
            Ok(None) => panic!("the stream ends well"),
            Err(status) => break status,
        }
    };
    assert!([Code::DeadlineExceeded, Code::Cancelled].contains(&status.code()), "{status:?}");
}
