//! The build of a binary, as `--version` prints it. Two binaries that print the same text speak the same
//! protocol.

use std::sync::LazyLock;

use crate::limits::PROTOCOL_VERSION;

/// `0.1.0 (protocol 9)`.
#[must_use]
pub fn text() -> &'static str {
    static TEXT: LazyLock<String> =
        LazyLock::new(|| format!("{} (protocol {PROTOCOL_VERSION})", env!("CARGO_PKG_VERSION")));
    &TEXT
}
