//! Supervisor to client.

use gridpool_protocol::message::ServerMessage;

use super::any::every_variant;
use super::message::{encoded, round_trip};

pub(crate) fn run(bytes: &[u8]) {
    round_trip::<ServerMessage>(bytes);
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    encoded(&every_variant::<ServerMessage>())
}
