//! JSON lines: a grid or a pair on each line, like the elements of one list.
//!
//! Decides whether a file is lines or a document.

use serde::de::IgnoredAny;

use super::level::Trace;
use super::{Contents, Element, not_json, of_one_kind, section_of, whole};
use crate::cli::input::{Cause, Diagnostic};

/// The lines that are not blank, with their numbers from 1.
fn filled(bytes: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let lines = bytes.split(|&byte| byte == b'\n').enumerate();
    lines.map(|(at, line)| (at + 1, line)).filter(|(_, line)| !line.trim_ascii().is_empty())
}

/// Whether the first line is a whole list or object and more follows, which no document has.
pub(super) fn are_there(bytes: &[u8]) -> bool {
    let mut lines = filled(bytes);
    let (Some((_, first)), Some(_)) = (lines.next(), lines.next()) else { return false };
    let is_more_than_a_number = matches!(first.trim_ascii_start(), [b'[' | b'{', ..]);
    is_more_than_a_number && serde_json::from_slice::<IgnoredAny>(first).is_ok()
}

/// Reads all lines.
pub(in crate::cli::input) fn read(bytes: &[u8]) -> Result<Contents, Box<Diagnostic>> {
    let elements = filled(bytes).enumerate().map(|(index, (line, text))| {
        whole::<Element>(text, |trace, error| diagnostic(trace, index, line, error))
    });
    of_one_kind(elements.collect::<Result<_, _>>()?)
}

/// The error of the element on a line.
fn diagnostic(
    mut trace: Trace,
    index: usize,
    line: usize,
    error: &serde_json::Error,
) -> Box<Diagnostic> {
    match &trace.cause {
        Some(Cause::UnknownKey { key, .. }) if section_of(key).is_some() => {
            return Cause::TaskLines.into();
        }
        Some(_) | None => {}
    }
    match &mut trace.place.pair {
        Some(pair) => *pair = index,
        None => trace.place.grid = Some(index),
    }
    trace.into_diagnostic().unwrap_or_else(|| not_json(error, line - 1))
}
