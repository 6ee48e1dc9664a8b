//! The worker's first word, and arenas.

use gridpool_protocol::message::Lifeline;

use super::any::every_variant;
use super::message::{encoded, round_trip};

pub(crate) fn run(bytes: &[u8]) {
    round_trip::<Lifeline>(bytes);
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    encoded(&every_variant::<Lifeline>())
}
