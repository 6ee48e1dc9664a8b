//! Messages: what decodes encodes again, and decodes to the same.

use std::fmt::Debug;

use gridpool_protocol::message::{ClientMessage, FromWorker, Lifeline, ServerMessage, ToWorker};
use gridpool_protocol::{bench, codec, monitor};
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
    let (_, shorter) = once.split_last().expect("every message has a byte");
    assert!(codec::decode::<T>(shorter).is_err(), "{message:?} without its end");
    let longer = [&once[..], &[0]].concat();
    assert!(codec::decode::<T>(&longer).is_err(), "{message:?} and a byte");
    // By its bytes: a float may be no number, and then equals nothing.
    assert_eq!(codec::encode(&again).expect("it fits"), once, "{message:?}");
}

/// A line of JSON: of a process that measures and the plan that it is given, of the monitor and what it
/// is asked.
pub(crate) fn json_line(bytes: &[u8]) {
    same_json::<bench::Line>(bytes);
    same_json::<bench::Plan>(bytes);
    same_json::<monitor::Question>(bytes);
    if let Some(line) = same_json::<monitor::Line>(bytes)
        && line.is_bounded()
    {
        let text = serde_json::to_vec(&line).expect("it is JSON");
        // A short character may be written long: that is another matter than a list without an end.
        let is_plain = text.iter().all(|&byte| byte != b'\\');
        assert!(!is_plain || text.len() < monitor::LINE_BYTES_MAX, "{line:?}");
    }
}

fn same_json<T: Serialize + DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    let value: T = serde_json::from_slice(bytes).ok()?;
    let text = serde_json::to_vec(&value).expect("it is JSON");
    let again: T = serde_json::from_slice(&text).expect("what was written is read");
    assert_eq!(serde_json::to_vec(&again).expect("it is JSON"), text);
    Some(value)
}
