//! Client to supervisor.

use gridpool_protocol::message::ClientMessage;

use super::any::every_variant;
use super::message::{encoded, round_trip};

pub(crate) fn run(bytes: &[u8]) {
    round_trip::<ClientMessage>(bytes);
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    encoded(&every_variant::<ClientMessage>())
}
