//! What decodes encodes again, and decodes to the same.

use std::fmt::Debug;

use gridpool_protocol::codec;
use serde::Serialize;
use serde::de::DeserializeOwned;

pub(super) fn round_trip<T: Serialize + DeserializeOwned + Debug>(bytes: &[u8]) {
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

pub(super) fn encoded(messages: &[impl Serialize]) -> Vec<Vec<u8>> {
    messages.iter().map(|message| codec::encode(message).expect("a seed fits a frame")).collect()
}
