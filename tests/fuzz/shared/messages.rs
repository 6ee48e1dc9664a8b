//! Messages: what decodes encodes again, and decodes to the same.

use std::fmt::Debug;

use gridpool_protocol::bench::{Line, Plan};
use gridpool_protocol::codec;
use gridpool_protocol::message::{ClientMessage, FromWorker, Lifeline, ServerMessage, ToWorker};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Client to supervisor.
pub(crate) fn client_message(bytes: &[u8]) {
    round_trip::<ClientMessage>(bytes);
}

/// Supervisor to client.
pub(crate) fn server_message(bytes: &[u8]) {
    round_trip::<ServerMessage>(bytes);
}

/// Supervisor to worker.
pub(crate) fn to_worker(bytes: &[u8]) {
    round_trip::<ToWorker>(bytes);
}

/// Worker to supervisor.
pub(crate) fn from_worker(bytes: &[u8]) {
    round_trip::<FromWorker>(bytes);
}

/// The worker's first word, and arenas.
pub(crate) fn lifeline(bytes: &[u8]) {
    round_trip::<Lifeline>(bytes);
}

fn round_trip<T: Serialize + DeserializeOwned + Debug>(bytes: &[u8]) {
    let Ok(message) = codec::decode::<T>(bytes) else { return };
    // Numbers may be written in more bytes than they need: then it comes out shorter.
    let once = codec::encode(&message).expect("what fitted a frame fits a frame");
    assert!(once.len() <= bytes.len(), "{message:?} has grown");
    let again: T = codec::decode(&once).expect("what was encoded decodes");
    // By its bytes: a float may be no number, and then equals nothing.
    assert_eq!(codec::encode(&again).expect("it fits"), once, "{message:?}");
}

/// The lines of processes that measure, and the plan that they are given.
pub(crate) fn bench_line(bytes: &[u8]) {
    if let Ok(line) = serde_json::from_slice::<Line>(bytes) {
        let text = serde_json::to_vec(&line).expect("it is JSON");
        let again: Line = serde_json::from_slice(&text).expect("what was written is read");
        assert_eq!(serde_json::to_vec(&again).expect("it is JSON"), text);
    }
    if let Ok(plan) = serde_json::from_slice::<Plan>(bytes) {
        let text = serde_json::to_vec(&plan).expect("it is JSON");
        assert_eq!(serde_json::from_slice::<Plan>(&text).expect("it is a plan"), plan);
    }
}
