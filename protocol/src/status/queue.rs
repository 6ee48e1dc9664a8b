//! The queue as the status shows it.

use serde::{Deserialize, Serialize};

/// The queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueStatus {
    /// Jobs that wait.
    pub jobs: u64,
    /// The most that ever waited.
    pub jobs_high: u64,
    /// Inline payload of all jobs without a verdict.
    pub bytes: u64,
    /// The most it ever was.
    pub bytes_high: u64,
    /// Microseconds since the oldest waiting job was accepted; `None` if none waits.
    pub oldest_us: Option<u64>,
}

impl QueueStatus {
    /// Both together, without an age.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            jobs: self.jobs + other.jobs,
            jobs_high: self.jobs_high + other.jobs_high,
            bytes: self.bytes + other.bytes,
            bytes_high: self.bytes_high + other.bytes_high,
            oldest_us: None,
        }
    }
}
