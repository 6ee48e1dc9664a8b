//! Clients that do not follow the rules, or follow them to harm.

use std::io::{Read, Write};
use std::net::TcpStream;

use prost::Message;
use tonic::Code;

use super::frames::{DATA, END_STREAM, HEADERS, Http2};
use super::*;
use crate::pool::cpu;
use crate::wait::TIMEOUT;

/// Whether the header `grpc-status` has this code in a block of headers, as HPACK writes one figure.
fn has_status(block: &[u8], code: Code) -> bool {
    let figure = match code {
        Code::InvalidArgument => 0b0110_0111,
        Code::DeadlineExceeded => 0b0110_1011,
        other => panic!("how {other:?} is written is not known here"),
    };
    block.windows(2).any(|bytes| bytes == [0x81, figure])
}

#[test]
fn a_client_that_does_not_read_its_answer_loses_its_connection_and_holds_nothing() {
    let pool = served(cpu(1));
    let mut client = Http2::open(&address(&pool), 0);
    client.call(1, "ModelInfer", &[]);
    client.message(1, &one().encode_to_vec());
    // The head of the answer, and then nothing until the connection ends.
    let mut frames = std::iter::from_fn(|| client.hear());
    assert_eq!(frames.next().map(|frame| frame.kind), Some(HEADERS));
    assert!(frames.all(|frame| frame.kind != DATA || frame.bytes.is_empty()));
    is_turned(&ask(&pool, one()).unwrap());
    let refused = String::from_utf8(crate::http::get(&pool, "/metrics").body).unwrap();
    let row = "gridpool_http_refused_total{reason=\"slow_answer\"} 1\n";
    assert!(refused.contains(row), "{refused}");
}

#[test]
fn a_client_that_does_not_send_its_message_is_told_so() {
    let pool = served(cpu(1));
    let mut client = Http2::open(&address(&pool), 1 << 16);
    client.call(1, "ModelInfer", &[]);
    client.frame((DATA, 0, 1), &[0, 0, 0, 1, 0, 1, 2, 3]);
    let frame = client.hear().expect("an answer");
    assert_eq!((frame.kind, frame.flags & END_STREAM), (HEADERS, END_STREAM));
    assert!(has_status(&frame.bytes, Code::DeadlineExceeded), "{frame:?}");
}

#[test]
fn the_gateway_ends_a_call_whose_time_is_over_by_itself() {
    let pool = served(cpu(1));
    pool.stop("cpu0");
    let before = pool.status().counters.deadline;
    let mut client = Http2::open(&address(&pool), 1 << 16);
    client.call(1, "ModelInfer", &[("grpc-timeout", "300m")]);
    client.message(1, &one().encode_to_vec());
    let frame = client.hear().expect("an answer");
    assert_eq!((frame.kind, frame.flags & END_STREAM), (HEADERS, END_STREAM));
    assert!(has_status(&frame.bytes, Code::DeadlineExceeded), "{frame:?}");
    assert_eq!(pool.status().counters.deadline, before + 1, "it was the job's deadline");
}

#[test]
fn a_small_message_that_would_make_much_and_one_that_is_none_are_refused() {
    let pool = served(cpu(1));
    let grpc = Grpc::open(&address(&pool));
    let mut many = one();
    many.inputs = vec![InferInputTensor::default(); 100_000];
    many.raw_input_contents.clear();
    let status = grpc.ask::<ModelInferResponse>("ModelInfer", many).unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.message().contains("a request has at most"), "{status:?}");
    let mut texts = one();
    texts.raw_input_contents.clear();
    let bytes_contents = vec![b"a".to_vec().into()];
    texts.inputs[0].contents =
        Some(gridpool_inference::TensorContents { bytes_contents, ..Default::default() });
    let status = grpc.ask::<ModelInferResponse>("ModelInfer", texts).unwrap_err();
    assert!(
        status.message().contains("it has bytes_contents; UINT8 is sent in uint_contents"),
        "{status:?}"
    );
    let mut large = one();
    large.raw_input_contents[0] = vec![0; 65 << 20].into();
    let status = grpc.ask::<ModelInferResponse>("ModelInfer", large).unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
    assert!(status.message().contains("67108864 bytes: send fewer items"), "{status:?}");
    let mut client = Http2::open(&address(&pool), 1 << 16);
    client.call(1, "ModelInfer", &[]);
    client.message(1, &[0xff; 100]);
    let frame = client.hear().expect("an answer");
    assert!(has_status(&frame.bytes, Code::InvalidArgument), "{frame:?}");
    is_turned(&grpc.ask("ModelInfer", one()).unwrap());
}

#[test]
fn what_is_no_grpc_gets_no_answer_of_a_model() {
    let pool = served(cpu(1));
    // HTTP/1.1 at the port of gRPC.
    let mut plain = TcpStream::connect(address(&pool)).unwrap();
    plain.set_read_timeout(Some(TIMEOUT)).unwrap();
    plain.write_all(b"GET /v2 HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut said = Vec::new();
    if let Err(error) = plain.read_to_end(&mut said) {
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "it may be reset");
    }
    assert!(!said.windows(8).any(|bytes| bytes == b"gridpool"), "{said:?}");
    is_turned(&ask(&pool, one()).unwrap());
}
