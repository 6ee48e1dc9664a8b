//! Every limit of the gateway, by name. None can be configured: they protect this process from any input.

use std::time::Duration;

/// Open HTTP connections. The gateway answers one more with 503 and closes it.
pub(super) const CONNECTIONS_MAX: usize = 512;
/// Connections over the limit that get an answer at a time. The gateway closes any more without one.
pub(super) const REFUSALS_MAX: usize = 64;
/// Inference requests in progress. The gateway answers one more with 503.
pub(super) const REQUESTS_MAX: usize = 128;
/// Connections to the pool. Requests are spread evenly, so each has at most `REQUESTS_MAX /
/// POOL_CONNECTIONS` jobs: half of the pool's default limit for one client.
pub(super) const POOL_CONNECTIONS: usize = 4;
/// Longest body of a request.
pub(super) const BODY_BYTES_MAX: usize = 64 << 20;
/// Longest body of an answer.
pub(super) const REPLY_BYTES_MAX: usize = 128 << 20;
/// Bytes of all bodies in progress, requests and responses. The gateway answers one more byte with 503.
pub(super) const BODIES_BYTES_MAX: usize = 512 << 20;
/// How often [`BODIES_BYTES_MAX`] counts a byte of a request: itself, its packed form, and its grids before
/// they are written. A byte of a response counts once.
pub(super) const HELD_PER_BYTE: usize = 3;
/// Longest head of a request: its first line and all headers.
pub(super) const HEAD_BYTES_MAX: usize = 64 << 10;
/// Longest `id` of a request.
pub(super) const ID_BYTES_MAX: usize = 1_024;
/// Most items of one inference request over grids.
pub(super) const ITEMS_MAX: u64 = 16_384;
/// Rows and columns of a grid in a tensor.
pub(super) const SIDE_MAX: usize = 30;
/// Item errors that a response describes. `STATUS` has the codes of all.
pub(super) const ERRORS_SHOWN_MAX: usize = 16;

/// Longest TLS handshake.
pub(super) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// From the opening of a connection, or the last answer on it, to the end of the next request's head.
pub(super) const HEAD_TIMEOUT: Duration = Duration::from_secs(15);
/// Longest pause between two pieces of a body.
pub(super) const BODY_SILENCE: Duration = Duration::from_secs(10);
/// Longest time for a whole body.
pub(super) const BODY_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a client may leave sent bytes unread.
pub(super) const WRITE_TIMEOUT_MS: u32 = 30_000;
/// Longest time to tell a connection that it is over the limit.
pub(super) const REFUSAL_TIMEOUT: Duration = Duration::from_secs(1);
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

/// Interval of signs of life to the supervisor.
pub(super) const BEAT_EVERY: Duration = Duration::from_secs(1);
/// How long requests in progress have once the gateway must stop. Their jobs have ended by then. Shorter than
/// the core's `HelperLimits::stop`, after which the core has the gateway killed.
pub(super) const STOP_TIMEOUT: Duration = Duration::from_secs(1);
