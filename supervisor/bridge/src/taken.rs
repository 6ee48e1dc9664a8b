//! A job that was taken from the stream, and what becomes of it.

use std::time::Duration;

use gridpool_ipc::clock;
use gridpool_nats::JobMessage;
use gridpool_protocol::ids::{ContentHash, JobKey};
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
    /// The hash that pools have of it, if one has convicted it.
    pub(crate) pool: Option<ContentHash>,
}

/// Room for results that are not stored yet, in KiB: 256 MiB.
pub(crate) const ROOM: u32 = 256 * 1_024;
/// What the least of them takes of it: there are 256 of them at most.
const ROOM_LEAST: u32 = 1_024;

/// How much room it takes until it is carried out.
pub(crate) fn room_of(fate: &Fate) -> u32 {
    match fate {
        Fate::Done(Done { output, .. }) => {
            let bytes = output.as_ref().map_or(0, Vec::len);
            u32::try_from(bytes.div_ceil(1_024)).unwrap_or(ROOM).clamp(ROOM_LEAST, ROOM)
        }
        Fate::GiveBack(_) | Fate::Known => 0,
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_room_for_256_results_or_256_mib() {
        let room = |bytes: usize| {
            let (receipt, output) = (Box::default(), Some(vec![0; bytes]));
            room_of(&Fate::Done(Done { receipt, output, convicts: false, pool: None }))
        };
        assert_eq!((room(0), room(5 << 20), room((5 << 20) + 1)), (ROOM / 256, 5_120, 5_121));
        assert_eq!(room(300 << 20), ROOM, "one that is larger than all of it has it alone");
        assert_eq!(room_of(&Fate::Known), 0);
    }
}
