//! A job that was taken from the stream, and what becomes of it.

use std::time::Duration;

use gridpool_ipc::clock;
use gridpool_nats::JobMessage;
use gridpool_protocol::ids::JobKey;
use gridpool_protocol::receipt::Receipt;

/// What becomes of a job.
pub(crate) enum Fate {
    /// It has its verdict.
    Done(Done),
    /// Another host, or this one later, gets it.
    GiveBack(Duration),
    /// Its result is there already.
    Known,
}

/// A job's verdict.
pub(crate) struct Done {
    pub(crate) receipt: Box<Receipt>,
    pub(crate) output: Option<Vec<u8>>,
    /// A run has shown that it is poison.
    pub(crate) convicts: bool,
}

/// A job that was taken from the stream.
pub(crate) struct Taken {
    pub(crate) job: JobMessage,
    /// How often it was delivered, with this time.
    pub(crate) delivered: i64,
    /// When the stream took it, in nanoseconds since 1970.
    pub(crate) published_ns: i128,
}

impl Taken {
    /// The time since the stream took it, if the clocks of host and server agree.
    pub(crate) fn age(&self) -> Duration {
        let since = clock::time_of_day().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let now = i128::try_from(since.as_nanos()).unwrap_or(i128::MAX);
        Duration::from_nanos(u64::try_from(now - self.published_ns).unwrap_or(0))
    }

    /// The time that it has yet; `None` if it is late.
    pub(crate) fn left(&self) -> Option<Duration> {
        let left = self.job.terms.deadline().checked_sub(self.age());
        left.filter(|left| !left.is_zero())
    }

    /// The name of this delivery.
    pub(crate) fn delivery(&self) -> (JobKey, i64) {
        (self.job.key, self.delivered)
    }
}
