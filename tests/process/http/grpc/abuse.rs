//! Clients that do not follow the rules, or follow them to harm.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use prost::Message;
use tonic::Code;

use super::frames::{
    CONTINUATION, DATA, END_STREAM, ENHANCE_YOUR_CALM, GOAWAY, HEADERS, Http2, PING, PRIORITY,
    PROTOCOL_ERROR, RST_STREAM, SETTINGS,
};
use super::*;
use crate::pool::cpu;
use crate::wait::TIMEOUT;
use gridpool_ipc::clock;

/// Whether the header `grpc-status` has this code in a block of headers, as HPACK writes one figure.
fn has_status(block: &[u8], code: Code) -> bool {
    let figure = match code {
        Code::InvalidArgument => 0b0110_0111,
        Code::DeadlineExceeded => 0b0110_1011,
        // Two figures.
        Code::Internal => return block.windows(3).any(|bytes| bytes == [0x82, 0x0b, 0x3f]),
        other => panic!("how {other:?} is written is not known here"),
    };
    block.windows(2).any(|bytes| bytes == [0x81, figure])
}

#[test]
fn a_call_whose_client_does_not_read_is_reset_and_its_connection_goes_on() {
    let pool = served(cpu(1));
    let mut client = Http2::open(&address(&pool), 0);
    client.call(1, "ModelInfer", &[]);
    client.message(1, &one().encode_to_vec());
    // The head of the answer, and then nothing until the call ends.
    let mut hears = |kind: u8| {
        let frame = client.hear().expect("the connection is open");
        assert!(frame.kind == kind, "{frame:?}");
    };
    hears(HEADERS);
    hears(RST_STREAM);
    client.takes(1 << 20);
    client.call(3, "ModelInfer", &[]);
    client.message(3, &one().encode_to_vec());
    assert_eq!(client.hear().map(|frame| frame.kind), Some(HEADERS));
    assert_eq!(client.hear().map(|frame| frame.kind), Some(DATA));
    let refused = String::from_utf8(crate::http::get(&pool, "/metrics").body).unwrap();
    let row = "gridpool_http_refused_total{reason=\"slow_answer\"} 1\n";
    assert!(refused.contains(row), "{refused}");
}

#[test]
fn a_connection_of_control_frames_without_calls_ends_and_others_go_on() {
    let pool = served(cpu(1));
    let good = Grpc::open(&address(&pool));
    // The last is the rest of no head.
    for (kind, call, length) in
        [(PING, 0, 8), (SETTINGS, 0, 0), (PRIORITY, 1, 5), (CONTINUATION, 1, 9)]
    {
        let (frame, bytes) = ((kind, 0, call), vec![0; length]);
        let mut client = Http2::open(&address(&pool), 1 << 16);
        // Its answers are not read, and are not what ends it.
        assert!(client.floods(frame, &bytes, 1_000_000), "{frame:?}");
        let (last, bytes) = client.last().expect("it is told why");
        let [0, 0, 0, why] = bytes[4..] else { panic!("{frame:?}: {bytes:?}") };
        // The first rest of no head breaks the rules of HTTP/2, if it is seen before all are counted.
        let is_why = why == ENHANCE_YOUR_CALM || kind == CONTINUATION && why == PROTOCOL_ERROR;
        assert!(last == GOAWAY && is_why, "{frame:?}: {last}, {why}");
        is_turned(&good.ask("ModelInfer", one()).unwrap());
    }
    let refused = String::from_utf8(crate::http::get(&pool, "/metrics").body).unwrap();
    let row = "gridpool_http_refused_total{reason=\"http2\"} 4\n";
    assert!(refused.contains(row), "{refused}");
    // Frames that go with calls are no flood.
    let mut client = Http2::open(&address(&pool), 1 << 16);
    for call in (1..600).step_by(2) {
        client.frame((PING, 0, 0), &[7; 8]);
        client.call(call, "ServerLive", &[]);
        client.message(call, &[]);
        while client.hear().expect("the connection is open").flags & END_STREAM == 0 {}
    }
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
fn a_message_that_is_cut_or_packed_against_the_rules_is_an_internal_error() {
    let pool = served(cpu(1));
    let cut: &[u8] = &[0, 0, 0, 1, 0, 1, 2, 3];
    let no_encoding: &[u8] = &[1, 0, 0, 0, 1, 9];
    let no_flag: &[u8] = &[7, 0, 0, 0, 0];
    let two: &[u8] = &[0; 10];
    for body in [cut, no_encoding, no_flag, two] {
        let mut client = Http2::open(&address(&pool), 1 << 16);
        client.call(1, "ModelInfer", &[]);
        client.frame((DATA, END_STREAM, 1), body);
        let frame = client.hear().expect("an answer");
        assert!(has_status(&frame.bytes, Code::Internal), "{body:?}: {frame:x?}");
    }
}

#[test]
fn a_client_may_pack_its_messages_and_gets_its_answers_packed() {
    let pool = served(cpu(1));
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(&one().encode_to_vec()).unwrap();
    let packed = packed.finish().unwrap();
    let mut client = Http2::open(&address(&pool), 1 << 20);
    let gzip = [("grpc-encoding", "gzip"), ("grpc-accept-encoding", "deflate, gzip")];
    client.call(1, "ModelInfer", &gzip);
    client.flagged(1, 1, &packed);
    assert_eq!(client.hear().map(|frame| frame.kind), Some(HEADERS));
    let data = client.hear().filter(|frame| frame.kind == DATA).expect("a message").bytes;
    assert_eq!(data[0], 1, "it is packed");
    let mut answer = Vec::new();
    GzDecoder::new(&data[5..]).read_to_end(&mut answer).unwrap();
    is_turned(&ModelInferResponse::decode(&*answer).unwrap());
    let grpc = Grpc::open(&address(&pool)).with("grpc-encoding", "deflate");
    let status = grpc.ask::<ModelInferResponse>("ModelInfer", one()).unwrap_err();
    assert_eq!(status.code(), Code::Unimplemented, "{status:?}");
    let accepted = status.metadata().get("grpc-accept-encoding").unwrap();
    assert_eq!(accepted, "identity,gzip");
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
fn a_call_that_sends_no_message_ends_with_its_time() {
    let pool = served(cpu(1));
    let mut client = Http2::open(&address(&pool), 1 << 16);
    client.call(1, "ModelInfer", &[("grpc-timeout", "100m")]);
    let began = clock::now();
    let frame = client.hear().expect("an answer");
    assert!(has_status(&frame.bytes, Code::DeadlineExceeded), "{frame:?}");
    assert!(began.elapsed() < Duration::from_secs(9), "before the time for a body is over");
}

#[test]
fn a_stream_of_refusals_that_nobody_reads_holds_what_counts() {
    let pool = served(cpu(1));
    let mut stream = Grpc::open(&address(&pool)).stream();
    let long = |model_name: String| ModelInferRequest { model_name, id: "7".to_owned(), ..one() };
    stream.send(long("n".repeat(1 << 20)));
    let answer = stream.next().unwrap().expect("an answer");
    assert!(answer.error_message.contains("model_name has more than 128 bytes"), "{answer:?}");
    assert!(answer.encoded_len() < 1_000);
    let mark = ("triton_enable_empty_final_response", Choice::Bool(true));
    let mut wrong = with(long("rot90".to_owned()), mark.0, mark.1);
    wrong.raw_input_contents.pop();
    stream.send(wrong);
    let answer = stream.next().unwrap().expect("an answer").infer_response.unwrap();
    assert_eq!((&*answer.model_name, &*answer.id), ("rot90", "7"));
    let last = &answer.parameters["triton_final_response"];
    assert_eq!(last.choice, Some(Choice::Bool(true)), "an error is a last answer, too");
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
