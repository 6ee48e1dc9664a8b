//! Every bound of the gateway, by name. None of them can be set: they keep one process from being used
//! up, whatever is sent to it.

use std::time::Duration;

/// HTTP connections open at a time. One more is answered 503 and closed.
pub(super) const CONNECTIONS_MAX: usize = 512;
/// Connections over the limit that are answered at a time; any more are closed without a word.
pub(super) const REFUSALS_MAX: usize = 64;
/// Inference requests that are being worked on at a time. One more is answered 503.
pub(super) const REQUESTS_MAX: usize = 128;
/// Connections to the pool. Each has at most `REQUESTS_MAX / POOL_CONNECTIONS` jobs while requests are
/// spread evenly, which is half of what the pool takes from one client unless it was told otherwise.
pub(super) const POOL_CONNECTIONS: usize = 4;
/// Longest body of a request.
pub(super) const BODY_BYTES_MAX: usize = 64 << 20;
/// Longest body of an answer.
pub(super) const REPLY_BYTES_MAX: usize = 128 << 20;
/// Bytes of all bodies that are being read, worked on or answered. One more byte is answered 503.
pub(super) const BODIES_BYTES_MAX: usize = 512 << 20;
/// What a byte of a request is counted as in [`BODIES_BYTES_MAX`]: itself, its packed form, and what grids
/// become before they are written. Bodies of answers are counted as they are.
pub(super) const HELD_PER_BYTE: usize = 3;
/// Longest head of a request: its first line and all headers.
pub(super) const HEAD_BYTES_MAX: usize = 64 << 10;
/// Longest `id` of a request.
pub(super) const ID_BYTES_MAX: usize = 1_024;
/// Most items of one inference request over grids.
pub(super) const ITEMS_MAX: u64 = 16_384;
/// Rows and columns of a grid in a tensor.
pub(super) const SIDE_MAX: usize = 30;
/// Item errors that are spelt out in a response; `STATUS` has the codes of all.
pub(super) const ERRORS_SHOWN_MAX: usize = 16;

/// From the opening of a connection, or the last answer on it, to the end of the next request's head.
pub(super) const HEAD_TIMEOUT: Duration = Duration::from_secs(15);
/// Between two pieces of a body.
pub(super) const BODY_SILENCE: Duration = Duration::from_secs(10);
/// For a whole body.
pub(super) const BODY_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a client may leave what it was sent unread.
pub(super) const WRITE_TIMEOUT_MS: u32 = 30_000;
/// For telling a connection over the limit that it is one.
pub(super) const REFUSAL_TIMEOUT: Duration = Duration::from_secs(1);
/// How long to wait before accepting again when descriptors have run out.
pub(super) const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// When a client that was told 503 should come back, where the pool does not know.
pub(super) const RETRY_AFTER_S: u64 = 1;

/// Between two runs of the known job.
pub(super) const READY_EVERY: Duration = Duration::from_secs(5);
/// The same after one that failed.
pub(super) const READY_RETRY: Duration = Duration::from_secs(1);
/// The deadline of the known job.
pub(super) const READY_DEADLINE: Duration = Duration::from_secs(10);
/// A success that is older says nothing any more.
pub(super) const READY_STALE: Duration = Duration::from_secs(60);
/// What was heard of the pool's models is asked for again after that, if somebody asks for one.
pub(super) const MODELS_EVERY: Duration = Duration::from_secs(1);
/// Models that were unloaded and are still known of; the oldest are forgotten.
pub(super) const UNLOADED_MAX: usize = 64;
/// A run of a model that succeeded so lately proves that it is ready; after that a trial must.
pub(super) const PROOF_STALE: Duration = Duration::from_secs(15);
/// How long one who asks whether a model is ready waits for its trial.
pub(super) const TRIAL_WAIT: Duration = Duration::from_secs(2);
/// The deadline of a trial.
pub(super) const TRIAL_DEADLINE: Duration = Duration::from_secs(10);
/// How long the supervisor may take to say how it is.
pub(super) const STATUS_TIMEOUT: Duration = Duration::from_secs(2);

/// Between two signs of life to the supervisor.
pub(super) const BEAT_EVERY: Duration = Duration::from_secs(1);
/// How long requests under way have once the gateway is told to stop: their jobs have ended.
pub(super) const STOP_PATIENCE: Duration = Duration::from_secs(1);
