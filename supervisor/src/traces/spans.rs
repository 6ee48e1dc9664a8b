//! Makes spans of a packet. Of a job: one span, one for the wait in the queue, and one for each attempt, in which the
//! way through the channel, the copies and the kernels follow each other.
//!
//! A receipt has durations and, for attempts, when they began and ended. So inside of an attempt durations are
//! measured, and only their order is assumed: chunks overlap on a device, and answers travel, too.

use gridpool_protocol::receipt::{Attempt, AttemptOutcome, KernelUse, Receipt, Verdict};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use opentelemetry_proto::tonic::trace::v1::{Span, Status};

use super::packet::{Asked, JobKind, JobPacket, JobSpan, Packet, RequestPacket, new_span};

/// Kernels of an attempt that get a span of their own; the others share one.
const KERNELS_MAX: usize = 16;

/// Attempts of a job that get a span of their own; the others share one. So a job never has more spans than may wait.
const ATTEMPTS_MAX: usize = 256;

/// Codes of gRPC that are an error of the server, as the conventions of OpenTelemetry say: UNKNOWN,
/// `DEADLINE_EXCEEDED`, UNIMPLEMENTED, INTERNAL, UNAVAILABLE and `DATA_LOSS`.
const SERVER_ERRORS: [i32; 6] = [2, 4, 12, 13, 14, 15];

/// The spans of a packet.
pub(super) fn spans(packet: &Packet) -> Vec<Span> {
    let (mut spans, state) = match packet {
        Packet::Job(job) => (of_job(job), &job.state),
        Packet::Request(request) => (vec![of_request(request)], &request.state),
    };
    if let Some(state) = state {
        spans.iter_mut().for_each(|span| span.trace_state = state.to_string());
    }
    spans
}

// ---- requests ----

fn of_request(request: &RequestPacket) -> Span {
    let mut span = begin(&request.span, (request.began_ns, request.ended_ns));
    span.kind = SpanKind::Server.into();
    match &request.asked {
        Asked::Http { method, route, status } => {
            span.name = format!("{method} {route}");
            span.attributes = vec![text("http.request.method", method), text("http.route", route)];
            match status {
                Some(status) => {
                    span.attributes.push(int("http.response.status_code", (*status).into()));
                    if *status >= 500 {
                        fail(&mut span, &status.to_string(), "");
                    }
                }
                None => fail(&mut span, "gone", "the client hung up before the answer"),
            }
        }
        Asked::Grpc { service, method, code } => {
            span.name = format!("{service}/{method}");
            span.attributes = vec![
                text("rpc.system", "grpc"),
                text("rpc.service", service),
                text("rpc.method", method),
                int("rpc.grpc.status_code", i64::from(*code)),
            ];
            if SERVER_ERRORS.contains(code) {
                fail(&mut span, &code.to_string(), "");
            }
        }
    }
    span.attributes.extend(request.user.as_deref().map(|user| text("gridpool.user.kind", user)));
    span
}

// ---- jobs ----

/// Nanoseconds from 1970 at so many microseconds after the job's acceptance.
#[derive(Clone, Copy)]
struct Clock {
    accepted_ns: u64,
}

impl Clock {
    fn at(self, us: u64) -> u64 {
        self.accepted_ns.saturating_add(us.saturating_mul(1_000))
    }
}

fn of_job(job: &JobPacket) -> Vec<Span> {
    let JobPacket { span: JobSpan { own, .. }, receipt, .. } = job;
    let lived_ns = receipt.total_us.saturating_mul(1_000);
    let clock = Clock { accepted_ns: job.ended_ns.saturating_sub(lived_ns) };
    let mut root = begin(&job.span, (clock.accepted_ns, job.ended_ns));
    root.name = match job.kind {
        JobKind::Model => "model",
        JobKind::Program => "program",
        JobKind::Search => "search",
    }
    .to_owned();
    root.attributes = about_job(job);
    if receipt.verdict != Verdict::Ok {
        fail(&mut root, receipt.verdict.name(), &receipt.reason);
    }
    let mut all = vec![root];
    let below = |name: &str, (from, to): (u64, u64)| {
        let parent = Some(own.span);
        let span = JobSpan { own: own.at(new_span()), parent };
        Span { name: name.to_owned(), ..begin(&span, (clock.at(from), clock.at(to))) }
    };
    if receipt.queue_us > 0 {
        all.push(below("queue", (0, receipt.queue_us)));
    }
    let (attempts, others) = receipt.attempts.split_at(receipt.attempts.len().min(ATTEMPTS_MAX));
    for (number, attempt) in (1..).zip(attempts) {
        let mut span = below("attempt", (attempt.begun_us, attempt.ended_us));
        span.attributes = about_attempt(number, attempt);
        if attempt.outcome != AttemptOutcome::Ok {
            fail(&mut span, attempt.outcome.name(), &attempt.detail);
        }
        let parts = parts(clock, attempt, &span);
        all.push(span);
        all.extend(parts);
    }
    if let (Some(from), Some(to)) = (
        others.iter().map(|attempt| attempt.begun_us).min(),
        others.iter().map(|attempt| attempt.ended_us).max(),
    ) {
        let mut span = below("attempt", (from, to));
        span.attributes = vec![int("gridpool.attempts", whole(others.len() as u64))];
        all.push(span);
    }
    all
}

fn about_job(JobPacket { user, receipt, .. }: &JobPacket) -> Vec<KeyValue> {
    let Receipt { job, key, program_hash, host, items, item_errors, verdict, .. } = &**receipt;
    let mut about = vec![
        text("gridpool.job", job),
        text("gridpool.key", key),
        text("gridpool.user.kind", user),
        text("gridpool.verdict", verdict.name()),
        int("gridpool.items", (*items).into()),
        int("gridpool.item_errors", (*item_errors).into()),
    ];
    let model = receipt.attempts.iter().rev().find_map(|attempt| attempt.infer.as_ref());
    match model {
        Some(model) => about.push(text("gridpool.model", &model.model)),
        None => about.push(text("gridpool.program.hash", program_hash)),
    }
    if !host.is_empty() {
        about.push(text("gridpool.host", host));
    }
    about
}

fn about_attempt(number: i64, attempt: &Attempt) -> Vec<KeyValue> {
    let Attempt { worker, outcome, device, part, h2d_bytes, d2h_bytes, .. } = attempt;
    let mut about = vec![
        int("gridpool.attempt", number),
        text("gridpool.worker", worker),
        text("gridpool.outcome", outcome.name()),
        text("gridpool.device", &device.id().to_string()),
        text("gridpool.device.name", &device.name),
        int("gridpool.items", part.len().into()),
    ];
    if !device.uuid.is_empty() {
        about.push(text("gridpool.device.uuid", &device.uuid));
    }
    if *outcome == AttemptOutcome::Ok {
        about.extend([
            int("gridpool.joined_items", attempt.joined_items.into()),
            int("gridpool.h2d_bytes", whole(*h2d_bytes)),
            int("gridpool.d2h_bytes", whole(*d2h_bytes)),
        ]);
        let infer = attempt.infer.as_ref();
        about.extend(infer.map(|own| int("gridpool.graph_replays", own.graph_replays.into())));
    }
    about
}

/// What an attempt that answered was made of: the channel, the copies, the kernels. Together they are as long as it.
fn parts(clock: Clock, attempt: &Attempt, of: &Span) -> Vec<Span> {
    if attempt.outcome != AttemptOutcome::Ok {
        return Vec::new();
    }
    let lasted = attempt.ended_us.saturating_sub(attempt.begun_us);
    let service = attempt.service_us.min(lasted);
    let kernels: u64 = attempt.kernels.iter().map(micros).sum();
    let mut from = attempt.begun_us;
    let mut part = |name: &str, us: u64, attributes: Vec<KeyValue>| {
        let to = from.saturating_add(us).min(attempt.ended_us);
        let span = Span {
            trace_id: of.trace_id.clone(),
            span_id: new_span().bytes().into(),
            parent_span_id: of.span_id.clone(),
            name: name.to_owned(),
            kind: SpanKind::Internal.into(),
            start_time_unix_nano: clock.at(from),
            end_time_unix_nano: clock.at(to),
            attributes,
            flags: of.flags,
            ..Span::default()
        };
        from = to;
        span
    };
    let bytes =
        [("gridpool.h2d_bytes", attempt.h2d_bytes), ("gridpool.d2h_bytes", attempt.d2h_bytes)];
    let bytes = bytes.map(|(key, bytes)| int(key, whole(bytes)));
    let mut parts = vec![
        part("channel", lasted - service, Vec::new()),
        part("copy", service.saturating_sub(kernels), bytes.into()),
    ];
    let (own, others) = attempt.kernels.split_at(attempt.kernels.len().min(KERNELS_MAX));
    for kernel in own {
        let launches = int("gridpool.launches", kernel.launches.into());
        let about = vec![text("gridpool.kernel", &kernel.name), launches];
        parts.push(part("kernel", micros(kernel), about));
    }
    if !others.is_empty() {
        let count = int("gridpool.kernels", whole(others.len() as u64));
        parts.push(part("kernel", others.iter().map(micros).sum(), vec![count]));
    }
    parts
}

/// The time of a kernel. The supervisor has checked that it is possible.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a report is checked")]
fn micros(kernel: &KernelUse) -> u64 {
    kernel.device_us.round() as u64
}

// ---- spans and attributes ----

fn begin(span: &JobSpan, (from, to): (u64, u64)) -> Span {
    let JobSpan { own, parent } = span;
    Span {
        trace_id: own.trace.bytes().into(),
        span_id: own.span.bytes().into(),
        parent_span_id: parent.map(|parent| parent.bytes().into()).unwrap_or_default(),
        kind: SpanKind::Internal.into(),
        start_time_unix_nano: from,
        end_time_unix_nano: to.max(from),
        flags: own.flags.into(),
        ..Span::default()
    }
}

/// It failed: the kind of error, and why.
fn fail(span: &mut Span, kind: &str, why: &str) {
    span.attributes.push(text("error.type", kind));
    span.status = Some(Status { message: why.to_owned(), code: StatusCode::Error.into() });
}

fn text(key: &str, value: &str) -> KeyValue {
    attribute(key, Value::StringValue(value.to_owned()))
}

fn int(key: &str, value: i64) -> KeyValue {
    attribute(key, Value::IntValue(value))
}

pub(super) fn attribute(key: &str, value: Value) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }) }
}

fn whole(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use gridpool_protocol::receipt::{DeviceInfo, ItemRange, RunReport};
    use gridpool_protocol::tensor::model::InferReport;

    use super::super::queue::SPANS_MAX;
    use super::*;
    use crate::traces::Sample;

    fn attempt(times: (u64, u64), outcome: AttemptOutcome, kernels: &[f64]) -> Attempt {
        let kernel = |&device_us: &f64| KernelUse { name: "rot90".into(), launches: 1, device_us };
        let report = RunReport {
            service_us: 80,
            kernels: kernels.iter().map(kernel).collect(),
            ..RunReport::default()
        };
        let part = ItemRange { start: 0, end: 3 };
        let answered = Attempt::answered("cpu0#1", DeviceInfo::default(), part, report);
        Attempt { begun_us: times.0, ended_us: times.1, outcome, detail: "why".into(), ..answered }
    }

    fn job(attempts: Vec<Attempt>) -> Vec<Span> {
        let receipt = Receipt {
            verdict: Verdict::Ok,
            queue_us: 10,
            total_us: 400,
            attempts,
            ..Receipt::default()
        };
        let span = JobSpan::begin(None, Sample::default()).unwrap();
        let (kind, user, receipt) = (JobKind::Program, "uid".into(), Box::new(receipt));
        spans(&Packet::Job(Box::new(JobPacket {
            span,
            state: None,
            ended_ns: 1_000_000,
            kind,
            user,
            receipt,
        })))
    }

    fn time(span: &Span) -> (u64, u64) {
        (span.start_time_unix_nano, span.end_time_unix_nano)
    }

    #[test]
    fn a_job_that_ran_twice_is_a_tree_whose_times_nest() {
        let lost = attempt((10, 100), AttemptOutcome::WorkerDied, &[]);
        let all = job(vec![lost, attempt((200, 300), AttemptOutcome::Ok, &[20.0, 30.0])]);
        let names: Vec<_> = all.iter().map(|span| &*span.name).collect();
        let expected =
            ["program", "queue", "attempt", "attempt", "channel", "copy", "kernel", "kernel"];
        assert_eq!(names, expected);
        assert_eq!(time(&all[0]), (600_000, 1_000_000));
        assert_eq!(time(&all[1]), (600_000, 610_000));
        let error = |span: &Span| span.status.as_ref().map(|status| status.message.clone());
        assert_eq!(error(&all[2]), Some("why".to_owned()));
        assert_eq!((error(&all[0]), error(&all[3])), (None, None));
        let times: Vec<_> = all[3..].iter().map(time).collect();
        let us = |from: u64, to: u64| (600_000 + from * 1_000, 600_000 + to * 1_000);
        assert_eq!(times, [us(200, 300), us(200, 220), us(220, 250), us(250, 270), us(270, 300)]);
        assert!(all[1..4].iter().all(|span| span.parent_span_id == all[0].span_id));
        assert!(all[4..].iter().all(|span| span.parent_span_id == all[3].span_id));
        assert!(all.iter().all(|span| span.trace_id == all[0].trace_id && span.flags == 1));
    }

    #[test]
    fn a_request_of_a_model_says_how_many_of_its_runs_were_replays() {
        let infer = InferReport { runs: 3, graph_replays: 2, ..InferReport::default() };
        let plain = attempt((10, 100), AttemptOutcome::Ok, &[20.0]);
        let all = job(vec![Attempt { infer: Some(infer), ..plain.clone() }, plain]);
        let replays = int("gridpool.graph_replays", 2);
        assert!(all[2].attributes.contains(&replays), "{:?}", all[2]);
        let about = |span: &Span| span.attributes.iter().any(|own| own.key == replays.key);
        assert_eq!(all.iter().filter(|span| about(span)).count(), 1, "a program has none");
    }

    #[test]
    fn times_that_do_not_fit_are_cut_to_their_attempt() {
        let all = job(vec![attempt((50, 60), AttemptOutcome::Ok, &[90.0; 20])]);
        assert_eq!(all.iter().filter(|span| span.name == "kernel").count(), KERNELS_MAX + 1);
        let within = |span: &Span| time(span).0 >= 650_000 && time(span).1 <= 660_000;
        assert!(all[2..].iter().all(within));
    }

    #[test]
    fn a_job_of_many_attempts_has_no_more_spans_than_may_wait() {
        let many = job(vec![attempt((50, 60), AttemptOutcome::Ok, &[1.0; 40]); 5_000]);
        assert!(many.len() <= SPANS_MAX, "{}", many.len());
        assert_eq!(many.iter().filter(|span| span.name == "attempt").count(), ATTEMPTS_MAX + 1);
        let rest = int("gridpool.attempts", 5_000 - whole(ATTEMPTS_MAX as u64));
        assert_eq!(many.last().unwrap().attributes, [rest]);
    }

    #[test]
    fn only_errors_of_the_server_are_errors_of_a_request() {
        let of = |asked| {
            let span = JobSpan::begin(None, Sample::default()).unwrap();
            let packet =
                RequestPacket { span, state: None, began_ns: 5, ended_ns: 9, asked, user: None };
            let [span] = spans(&Packet::Request(packet)).try_into().unwrap();
            (span.name.clone(), span.status.is_some(), span.kind)
        };
        let http = |status| {
            of(Asked::Http {
                method: "POST".into(),
                route: "/v2/models/{model}/infer".into(),
                status,
            })
        };
        let name = "POST /v2/models/{model}/infer".to_owned();
        assert_eq!(http(Some(404)), (name.clone(), false, 2));
        assert!(http(Some(503)).1 && http(None).1);
        let grpc = |code| of(Asked::Grpc { service: "s".into(), method: "m".into(), code });
        assert_eq!(grpc(3), ("s/m".to_owned(), false, 2));
        assert!(grpc(14).1);
    }
}
