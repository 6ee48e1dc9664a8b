//! A line of JSON: of a process that measures and the plan that it is given, of the monitor and what it is
//! asked.

use gridpool_protocol::{bench, monitor};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::any::every_variant;

pub(crate) fn run(bytes: &[u8]) {
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

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let all = [
        lines::<bench::Line>(),
        lines::<bench::Plan>(),
        lines::<monitor::Question>(),
        lines::<monitor::Line>(),
    ];
    all.concat()
}

fn lines<T: Serialize + DeserializeOwned>() -> Vec<Vec<u8>> {
    let values = every_variant::<T>();
    values.iter().map(|value| serde_json::to_vec(value).expect("it is JSON")).collect()
}
