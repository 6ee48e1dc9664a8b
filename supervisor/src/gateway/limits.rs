//! Every limit of the gateway, by name. None can be configured: they protect this process from any input.

use std::time::Duration;

/// Open connections that may send any request. If all are taken, a client that has not sent a whole head, or
/// that is slow in sending a body, gives up its own for a new one.
pub(super) const CONNECTIONS_MAX: usize = 512;
/// Those of one principal.
pub(super) const CONNECTIONS_EACH_MAX: usize = 384;
/// If tokens are asked for: those of one address that have not sent a token yet. The rest is for tokens, whatever an
/// address does that all of them come from.
pub(super) const CONNECTIONS_UNNAMED_MAX: usize = 256;
/// Connections over the limit. The gateway answers for health and metrics there, anything else with 503, and
/// closes them. It closes any more without an answer.
pub(super) const RESERVED_MAX: usize = 64;
/// Those of one principal.
pub(super) const RESERVED_EACH_MAX: usize = 48;
/// How long a connection over the limit keeps its place while it is answered, if another comes.
pub(super) const RESERVED_FOR: Duration = Duration::from_secs(3);
/// How long a new connection keeps its place, whoever comes.
pub(super) const EVICTABLE_AFTER: Duration = Duration::from_millis(250);
/// How far a client may be behind in sending a body, if others come and all connections are taken.
pub(super) const EVICTABLE_BEHIND: Duration = Duration::from_secs(2);
/// Inference requests in progress. The gateway answers one more with 503.
pub(super) const REQUESTS_MAX: usize = 128;
/// Those of one principal.
pub(super) const REQUESTS_EACH_MAX: usize = 96;
/// Orders over HTTP and questions for deaths and verdicts, which the supervisor is asked for at one time. More wait.
pub(super) const ASKED_MAX: usize = 16;
/// Those of one principal.
pub(super) const ASKED_EACH_MAX: usize = 4;
/// Requests for health of one principal in a second, and those for metrics; as many come at once after a second
/// without. A load balancer asks a few times a second.
pub(super) const HEALTH_PER_S: u32 = 1_000;
pub(super) const METRICS_PER_S: u32 = 100;
/// TLS handshakes of one address in a second; as many come at once after a second without. Each takes about a
/// millisecond of a core with a key of RSA.
pub(super) const HANDSHAKES_PER_S: u32 = 250;
/// Probes of models in progress.
pub(super) const PROBES_MAX: usize = 8;
/// Connections to the pool. Requests are spread evenly, so each has at most `REQUESTS_MAX /
/// POOL_CONNECTIONS` jobs: half of the pool's default limit for one client.
pub(super) const POOL_CONNECTIONS: usize = 4;
/// How often it is looked for jobs whose answer is overdue.
pub(super) const LATE_EVERY: Duration = Duration::from_secs(1);
/// Longest body of a request.
pub(super) const BODY_BYTES_MAX: usize = 64 << 20;
/// Longest body of an answer.
pub(super) const REPLY_BYTES_MAX: usize = 128 << 20;
/// Bytes of all bodies in progress, requests and responses. The gateway answers one more byte with 503.
pub(super) const BODIES_BYTES_MAX: usize = 512 << 20;
/// Those of one principal.
pub(super) const BODIES_EACH_MAX: usize = 384 << 20;
/// The part of both that is left for requests of at most [`SMALL_BYTES_MAX`].
pub(super) const BODIES_SMALL: usize = 64 << 20;
/// The most that a small request holds, with its response.
pub(super) const SMALL_BYTES_MAX: usize = 4 << 20;
/// How often [`BODIES_BYTES_MAX`] counts a byte of a request: itself, its packed form, and its grids before
/// they are written. A byte of a response counts once.
pub(super) const HELD_PER_BYTE: usize = 3;
/// Regions of shared memory.
pub(super) const REGIONS_MAX: usize = 256;
/// Those of one principal.
pub(super) const REGIONS_EACH_MAX: usize = 192;
/// Bytes of their files, whatever part of each is registered. The files stay while they are, also if their client is
/// gone.
pub(super) const REGIONS_BYTES_MAX: u64 = 16 << 30;
/// Those of one principal.
pub(super) const REGIONS_BYTES_EACH_MAX: u64 = 12 << 30;
/// How often it is looked whether their tokens have expired and their files have grown.
pub(super) const REGIONS_LOOK_EVERY: Duration = Duration::from_secs(10);
/// Longest name of a region.
pub(super) const REGION_NAME_BYTES_MAX: usize = 256;
/// Longest head of a request: its first line and all headers.
pub(super) const HEAD_BYTES_MAX: usize = 64 << 10;
/// What the HTTP library reads of a head before it ends the connection without a sentence: enough for one that is to
/// be told that it is too long.
pub(super) const HEAD_BUFFER_BYTES: usize = 2 * HEAD_BYTES_MAX;
/// Longest `id` of a request.
pub(super) const ID_BYTES_MAX: usize = 1_024;
/// Most parameters of a request, its inputs and outputs together.
pub(super) const PARAMETERS_MAX: usize = 1_024;
/// Most items of one inference request over grids.
pub(super) const ITEMS_MAX: u64 = 16_384;
/// Rows and columns of a grid in a tensor.
pub(super) const SIDE_MAX: usize = 30;
/// Item errors that a response describes. `STATUS` has the codes of all.
pub(super) const ERRORS_SHOWN_MAX: usize = 16;

/// Calls of gRPC in progress on one connection. A client waits with more.
pub(super) const CALLS_MAX: u32 = 128;
/// Calls in progress on all connections, but for health. The gateway answers one more with `RESOURCE_EXHAUSTED`.
pub(super) const CALLS_ALL_MAX: usize = 4_096;
/// Those of one principal.
pub(super) const CALLS_EACH_MAX: usize = 1_024;
/// Longest body of a request that asks for a document, or changes something. Over gRPC it does not count as memory of
/// bodies.
pub(super) const DOCUMENT_BYTES_MAX: usize = 16 << 10;
/// Requests in progress of one stream of gRPC. More are read as these are answered.
pub(super) const STREAM_REQUESTS_MAX: usize = 16;
/// How long a stream of gRPC may send nothing.
pub(super) const STREAM_IDLE_MAX: Duration = Duration::from_secs(600);
/// How long a connection of gRPC may be open without a call.
pub(super) const CONNECTION_IDLE_MAX: Duration = Duration::from_secs(300);
/// What a client of gRPC may send before the gateway reads: on a call, and on the whole connection. It bounds the
/// speed over long ways, and what clients that do not wait take of the memory, besides that of bodies. One call that
/// is not read leaves room to the others.
pub(super) const STREAM_WINDOW_BYTES: u32 = 256 << 10;
pub(super) const CONNECTION_WINDOW_BYTES: u32 = 1 << 20;
/// Longest frame of HTTP/2.
pub(super) const FRAME_BYTES: u32 = 64 << 10;
/// What the HTTP library holds of an answer that a client has no room for.
pub(super) const SEND_BUFFER_BYTES: usize = 256 << 10;
/// Calls that a client may have reset before the gateway looks at them.
pub(super) const RESETS_MAX: usize = 32;
/// Control frames of HTTP/2 (pings, settings, resets, room) that a client may send on a connection at once, beside
/// those that go with calls and data, and in a second.
pub(super) const CONTROL_FRAMES_MAX: u32 = 200;
pub(super) const CONTROL_FRAMES_PER_S: u32 = 100;
/// Those that go with a call.
pub(super) const CONTROL_FRAMES_PER_CALL: u32 = 8;
/// Bytes of data, in either direction, that one goes with. One more goes with each frame of data that the client
/// gets: some look after each how fast their way is.
pub(super) const DATA_PER_CONTROL_FRAME: usize = 1 << 10;
/// A shorter frame of data earns nothing. A client's counts as a control frame, if it ends no call.
pub(super) const DATA_FRAME_BYTES_MIN: usize = 64;
/// The most of all these that a client has not sent and may send later.
pub(super) const CONTROL_FRAMES_SAVED_MAX: u32 = 4_096;
/// How long a connection that broke the rules of HTTP/2 keeps its place, and is not read, before it is closed. So a
/// client gets no more of them in that time than it has places.
pub(super) const BREACH_HOLD: Duration = Duration::from_secs(1);
/// How long a client of gRPC may take to read what was written when its connection ended.
pub(super) const FAREWELL_TIMEOUT: Duration = Duration::from_secs(30);
/// How often the gateway looks whether the other end of a connection of gRPC is there, and how long that may take.
pub(super) const PING_EVERY: Duration = Duration::from_secs(30);
pub(super) const PING_TIMEOUT: Duration = Duration::from_secs(20);

/// Longest TLS handshake.
pub(super) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// From the opening of a connection, or the last answer on it, to the end of the next request's head.
pub(super) const HEAD_TIMEOUT: Duration = Duration::from_secs(15);
/// The same on a connection over the limit.
pub(super) const RESERVED_HEAD_TIMEOUT: Duration = Duration::from_secs(2);
/// The speed at which a client must send bodies and read answers, bytes a second.
pub(super) const RATE_MIN: u32 = 16 << 10;
/// How far a client may fall behind that speed. So this is its longest pause.
pub(super) const GRACE: Duration = Duration::from_secs(10);
/// Longest time for a whole body.
pub(super) const BODY_TIMEOUT: Duration = Duration::from_secs(60);
/// Longest time for writing a whole answer.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);
/// How long a client may leave unacknowledged what the kernel has sent.
pub(super) const WRITE_TIMEOUT_MS: u32 = 30_000;
/// Longest time for the body of a request on a connection over the limit.
pub(super) const REFUSAL_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a refusal for want of room means that the gateway is saturated, if there is no room still.
pub(super) const SATURATED_FOR: Duration = Duration::from_secs(5);
/// What this process may log in a minute, whatever its filter lets pass. More is dropped and counted.
pub(super) const LOG_BYTES_PER_MINUTE: usize = 160 << 10;
/// The same with an access log: some 5,000 requests a second.
pub(super) const ACCESS_LOG_BYTES_PER_MINUTE: usize = 64 << 20;
/// Pause before accepting again after descriptors ran out.
pub(super) const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Retry-After of a 503 if the pool names no time.
pub(super) const RETRY_AFTER_S: u64 = 1;

/// Pause between two runs of the known job.
pub(super) const READY_EVERY: Duration = Duration::from_secs(5);
/// Pause after a run of the known job, or a probe of a model, that failed.
pub(super) const READY_RETRY: Duration = Duration::from_secs(1);
/// Deadline of the known job.
pub(super) const READY_DEADLINE: Duration = Duration::from_secs(10);
/// Age at which a success of the known job no longer proves readiness.
pub(super) const READY_STALE: Duration = Duration::from_secs(60);
/// Age at which a request refreshes the list of the pool's models.
pub(super) const MODELS_EVERY: Duration = Duration::from_secs(1);
/// Unloaded models that the gateway remembers. It forgets the oldest first.
pub(super) const UNLOADED_MAX: usize = 64;
/// Age at which a successful run no longer proves that a model is ready; then a probe must.
pub(super) const PROBE_STALE: Duration = Duration::from_secs(15);
/// How long a readiness request waits for a probe of the model.
pub(super) const PROBE_WAIT: Duration = Duration::from_secs(2);
/// Deadline of a probe.
pub(super) const PROBE_DEADLINE: Duration = Duration::from_secs(10);
/// How long the supervisor may take to answer a query.
pub(super) const STATUS_TIMEOUT: Duration = Duration::from_secs(2);

/// Open streams of the page, and those of one principal.
pub(super) const PAGES_MAX: usize = 32;
pub(super) const PAGES_EACH_MAX: usize = 24;
/// How often pages are told of the pool at most.
pub(super) const UPDATE_EVERY: Duration = Duration::from_millis(250);
/// How often rates and the timeline are taken in while a page is open.
pub(super) const SAMPLE_EVERY: Duration = Duration::from_secs(1);
/// How long the gateway watches the pool after the last page has closed: a page opens its next stream meanwhile.
pub(super) const REST_AFTER: Duration = Duration::from_secs(10);
/// How long a stream of the page lasts before the page opens another. Shorter than [`ANSWER_TIMEOUT`].
pub(super) const PAGE_STREAM_MAX: Duration = Duration::from_secs(60);
/// Deaths of workers that are kept for the page.
pub(super) const DEATHS_KEPT_MAX: usize = 24;
/// Receipts that are kept for the page, about how many bytes of them, and how many an answer has.
pub(super) const RECEIPTS_MAX: usize = 256;
pub(super) const RECEIPTS_BYTES_MAX: usize = 2 << 20;
pub(super) const RECEIPTS_SHOWN_MAX: usize = 64;

/// Memory of this process where control groups allow a limit: bodies, what HTTP/2 holds of calls, as much again for all
/// else, and what the kernel holds of each connection. With shared memory it has none: files of its clients that it was
/// the first to write count as its own, for as long as the clients keep them.
pub(crate) const fn memory_max(has_shared_memory: bool, bytes_of_socket: u64) -> Option<u64> {
    const HTTP2_BYTES: usize =
        CONNECTIONS_MAX * CONNECTION_WINDOW_BYTES as usize + CALLS_ALL_MAX * SEND_BUFFER_BYTES;
    let own = 2 * (BODIES_BYTES_MAX + HTTP2_BYTES) as u64;
    let of_sockets = bytes_of_socket.saturating_mul((CONNECTIONS_MAX + RESERVED_MAX) as u64);
    if has_shared_memory { None } else { Some(own.saturating_add(of_sockets)) }
}

/// Interval of signs of life to the supervisor.
pub(super) const BEAT_EVERY: Duration = Duration::from_secs(1);
/// How long requests in progress have once the gateway must stop. Their jobs have ended by then, so it is the time in
/// which clients take their answers. Shorter than the core's `HelperLimits::stop`, after which the core has the gateway
/// killed.
pub(super) const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a gateway whose place another takes waits for the next request on each open connection, which it answers
/// before it closes the connection.
pub(super) const LINGER: Duration = Duration::from_secs(2);

/// The limits that clients meet, for the book: what, all together, one client.
#[cfg(test)]
pub(crate) fn listed() -> Vec<[String; 3]> {
    let mib = |bytes: usize| format!("{} MiB", bytes >> 20);
    let kib = |bytes: usize| format!("{} KiB", bytes >> 10);
    let seconds = |span: Duration| format!("{} s", span.as_secs());
    let one = |what: &str, most: String| [what.to_owned(), String::new(), most];
    let rate = format!("{} a second", kib(RATE_MIN as usize));
    vec![
        [
            "open connections".to_owned(),
            format!("{CONNECTIONS_MAX}, and {RESERVED_MAX} for health and metrics"),
            format!("{CONNECTIONS_EACH_MAX}, and {RESERVED_EACH_MAX}"),
        ],
        [
            "those that have not sent a token, if tokens are asked for".to_owned(),
            String::new(),
            format!("{CONNECTIONS_UNNAMED_MAX} of an address"),
        ],
        [
            "requests and calls for documents, and those that are refused; more wait".to_owned(),
            String::new(),
            format!("{rate} at once, {rate} a second", rate = crate::questions::QUESTIONS_PER_S),
        ],
        [
            "those for health, or for metrics; more wait".to_owned(),
            String::new(),
            format!("{HEALTH_PER_S} at once and a second, or {METRICS_PER_S}"),
        ],
        [
            "TLS handshakes, of one address; more wait".to_owned(),
            String::new(),
            format!("{HANDSHAKES_PER_S} at once and a second"),
        ],
        [
            "inference requests in progress".to_owned(),
            REQUESTS_MAX.to_string(),
            REQUESTS_EACH_MAX.to_string(),
        ],
        [
            format!("memory of bodies; a byte of a request counts {HELD_PER_BYTE} times"),
            format!(
                "{}, the last {} for requests that hold at most {}",
                mib(BODIES_BYTES_MAX),
                mib(BODIES_SMALL),
                mib(SMALL_BYTES_MAX)
            ),
            mib(BODIES_EACH_MAX),
        ],
        [
            "regions of shared memory".to_owned(),
            REGIONS_MAX.to_string(),
            REGIONS_EACH_MAX.to_string(),
        ],
        [
            "bytes of their files".to_owned(),
            format!("{} GiB", REGIONS_BYTES_MAX >> 30),
            format!("{} GiB", REGIONS_BYTES_EACH_MAX >> 30),
        ],
        one("name of a region", format!("{REGION_NAME_BYTES_MAX} bytes")),
        one("head of a request", kib(HEAD_BYTES_MAX)),
        one("body of a request", mib(BODY_BYTES_MAX)),
        one("body of an answer", mib(REPLY_BYTES_MAX)),
        one("grids of a request", ITEMS_MAX.to_string()),
        one("rows and columns of a grid", SIDE_MAX.to_string()),
        one("parameters of a request, its inputs and its outputs", PARAMETERS_MAX.to_string()),
        one("body of any other request than for inference", kib(DOCUMENT_BYTES_MAX)),
        one("`id` of a request", format!("{ID_BYTES_MAX} bytes")),
        ["open pages".to_owned(), PAGES_MAX.to_string(), PAGES_EACH_MAX.to_string()],
        one("page: updates a second", (1_000 / UPDATE_EVERY.as_millis()).to_string()),
        one("page: one stream, then the page opens another", seconds(PAGE_STREAM_MAX)),
        [
            "receipts that are kept for the page".to_owned(),
            format!("{RECEIPTS_MAX}, of about {} at most", mib(RECEIPTS_BYTES_MAX)),
            String::new(),
        ],
        one("gRPC: calls in progress on one connection", CALLS_MAX.to_string()),
        [
            "gRPC: calls in progress on all connections".to_owned(),
            CALLS_ALL_MAX.to_string(),
            CALLS_EACH_MAX.to_string(),
        ],
        one(
            "gRPC: bytes sent and not yet read, of a connection; not memory of bodies",
            kib(CONNECTION_WINDOW_BYTES as usize),
        ),
        one(
            "gRPC: control frames of HTTP/2 beside those of calls and data, on one connection",
            format!("{CONTROL_FRAMES_MAX} at once, {CONTROL_FRAMES_PER_S} a second"),
        ),
        one("gRPC: requests in progress of one stream", STREAM_REQUESTS_MAX.to_string()),
        one("gRPC: a stream on which nothing is sent", seconds(STREAM_IDLE_MAX)),
        one("gRPC: a connection without a call", seconds(CONNECTION_IDLE_MAX)),
        one("TLS handshake", seconds(HANDSHAKE_TIMEOUT)),
        one("from the last answer to the end of the next head", seconds(HEAD_TIMEOUT)),
        one("time for a body", seconds(BODY_TIMEOUT)),
        one("time for reading an answer", seconds(ANSWER_TIMEOUT)),
        one("pause in a body, or in reading an answer", seconds(GRACE)),
        one("least speed of both", rate),
    ]
}
