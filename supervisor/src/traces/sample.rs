//! How many of the traces that begin here are recorded.
//!
//! The decision is that of the W3C's consistent sampling: the last 56 bits of a trace's number are random, and the
//! trace is recorded if they are at least so large. So all who sample with one ratio record the same traces.

use std::fmt;
use std::str::FromStr;

use gridpool_protocol::trace::TraceId;
use serde::{Deserialize, Serialize};

/// Parts of the whole.
const WHOLE: u32 = 1_000_000;
/// Random bits of a trace's number.
const RANDOM_BITS: u32 = 56;

/// A part of all traces, in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample(u32);

/// All traces.
impl Default for Sample {
    fn default() -> Self {
        Self(WHOLE)
    }
}

impl Sample {
    /// A ratio from 0 to 1; the error says so.
    pub(crate) fn new(ratio: f64) -> Result<Self, String> {
        if !(0.0..=1.0).contains(&ratio) {
            return Err(
                "write a number from 0 to 1: 0.01 records one trace in a hundred".to_owned()
            );
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is from 0 to 1"
        )]
        let parts = (ratio * f64::from(WHOLE)).round() as u32;
        Ok(Self(parts))
    }

    /// As a number from 0 to 1.
    #[must_use]
    pub fn ratio(self) -> f64 {
        f64::from(self.0) / f64::from(WHOLE)
    }

    /// Whether no trace that begins here is recorded.
    pub(crate) fn takes_none(self) -> bool {
        self.0 == 0
    }

    /// Whether a trace that begins here is recorded.
    pub(crate) fn takes(self, trace: TraceId) -> bool {
        let [.., a, b, c, d, e, f, g] = trace.bytes();
        self.takes_end([a, b, c, d, e, f, g])
    }

    /// The same by the end of its number, which is random.
    pub(crate) fn takes_end(self, [a, b, c, d, e, f, g]: [u8; 7]) -> bool {
        let random = u64::from_be_bytes([0, a, b, c, d, e, f, g]);
        let left_out = u128::from(WHOLE - self.0) << RANDOM_BITS;
        u128::from(random) * u128::from(WHOLE) >= left_out
    }
}

impl FromStr for Sample {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // Not a number is no ratio either.
        Self::new(text.parse().unwrap_or(f64::NAN))
    }
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.ratio())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(random: u64) -> TraceId {
        let mut bytes = [0xee; 16];
        bytes[9..].copy_from_slice(&random.to_be_bytes()[1..]);
        TraceId::new(bytes).unwrap()
    }

    #[test]
    fn a_ratio_takes_that_part_of_all_traces() {
        let most = (1 << RANDOM_BITS) - 1;
        let sample = |text: &str| text.parse::<Sample>().unwrap();
        for random in [0, 1, most / 2, most] {
            assert!(sample("1").takes(trace(random)) && !sample("0").takes(trace(random)));
        }
        let quarter = |random| sample("0.25").takes(trace(random));
        assert!(quarter(most) && quarter(3 << 54) && !quarter((3 << 54) - 1) && !quarter(0));
        assert_eq!(sample("0.25").to_string(), "0.25");
    }

    #[test]
    fn another_number_is_refused() {
        for wrong in ["", "2", "-0.1", "nan", "inf", "1%"] {
            assert!(wrong.parse::<Sample>().unwrap_err().contains("from 0 to 1"), "{wrong}");
        }
    }
}
