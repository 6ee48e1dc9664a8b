//! The last hour of a pool in points of a second and of ten seconds. The supervisor keeps it; whoever shows it asks for
//! what is new to them.

use serde::{Deserialize, Serialize};

use crate::ids::Role;

/// Points of a second that are kept: two minutes.
pub const FINE_POINTS: usize = 120;
/// Points of ten seconds that are kept: an hour.
pub const COARSE_POINTS: usize = 360;
/// Devices and groups that have a line at a time. Any more have none.
pub const LINES_MAX: usize = 256;
/// Most bytes of a line's name; the rest is left out.
pub const LINE_BYTES_MAX: usize = 160;
/// Most points in a part: all lines' letters and the names of these fit one message.
pub const PART_POINTS_MAX: usize = 64;

/// The shares of which percentiles are told.
pub const SHARES: [f64; 3] = [0.5, 0.9, 0.99];
/// What is told by role, in the order of [`Role::ALL`].
pub type ByRole<T> = [T; Role::ALL.len()];

/// A span of time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Its end, milliseconds since 1970.
    pub at_ms: u64,
    /// Its length, milliseconds.
    pub span_ms: u64,
    /// Verdicts by kind, in the order of [`Counters::verdicts`](crate::status::Counters::verdicts).
    pub verdicts: [u64; 6],
    /// Jobs accepted.
    pub accepted: u64,
    /// Submissions refused.
    pub refused: u64,
    /// The most jobs that were seen to wait.
    pub queue: u64,
    /// The same of each role.
    pub queues: ByRole<u64>,
    /// Percentiles of the time from acceptance to dispatch, seconds, by [`SHARES`]. `None` if a role had no jobs.
    pub queue_s: ByRole<Option<[f64; 3]>>,
    /// The same of the time in workers, which each attempt has of its own.
    pub service_s: ByRole<Option<[f64; 3]>>,
    /// The same of the time from acceptance to the verdict.
    pub total_s: ByRole<Option<[f64; 3]>>,
    /// A letter for each line: the gravest that was seen.
    pub doing: String,
    /// How busy the device of each line was, percent.
    pub busy: Vec<Option<u32>>,
}

/// How much of a timeline somebody has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// Points of a second, of all that there ever were.
    pub fine: u64,
    /// Points of ten seconds.
    pub coarse: u64,
    /// Changes of the names of lines.
    pub names: u64,
}

/// What comes after a mark. Points that are kept no longer are missing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// How much there is with it.
    pub mark: Mark,
    /// Nothing is missing behind it.
    pub is_last: bool,
    /// The name of each line, if they have changed; empty where another may come.
    pub lines: Option<Vec<String>>,
    /// Points of a second, the oldest first.
    pub fine: Vec<Point>,
    /// Points of ten seconds, the oldest first.
    pub coarse: Vec<Point>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec;
    use crate::limits::FRAME_BYTES_MAX;
    use crate::message::{Reply, ServerMessage};

    #[test]
    fn the_longest_part_fits_a_message() {
        let times = [Some([f64::MAX; 3]); 2];
        let point = Point {
            at_ms: u64::MAX,
            span_ms: u64::MAX,
            verdicts: [u64::MAX; 6],
            accepted: u64::MAX,
            refused: u64::MAX,
            queue: u64::MAX,
            queues: [u64::MAX; 2],
            queue_s: times,
            service_s: times,
            total_s: times,
            doing: "o".repeat(LINES_MAX),
            busy: vec![Some(u32::MAX); LINES_MAX],
        };
        let part = Part {
            lines: Some(vec!["n".repeat(LINE_BYTES_MAX); LINES_MAX]),
            fine: vec![point; PART_POINTS_MAX],
            ..Part::default()
        };
        let reply = Reply::Timeline(Box::new(part));
        let message = ServerMessage::Reply { request: u64::MAX, reply };
        assert!(codec::encode(&message).unwrap().len() < FRAME_BYTES_MAX);
    }
}
