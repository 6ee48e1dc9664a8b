//! Worker to supervisor.

use gridpool_protocol::message::FromWorker;

use super::any::every_variant;
use super::message::{encoded, round_trip};

pub(crate) fn run(bytes: &[u8]) {
    round_trip::<FromWorker>(bytes);
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    encoded(&every_variant::<FromWorker>())
}
