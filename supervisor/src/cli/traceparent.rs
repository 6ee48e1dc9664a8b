//! The trace that a command is a part of, from the variable `TRACEPARENT`, as other programs pass it on.

use gridpool_client::TraceContext;
use gridpool_protocol::trace::VARIABLE;

/// The trace, if there is one. A text that is none is no reason to run nothing.
pub(super) fn of_environment() -> Option<TraceContext> {
    let text = std::env::var(VARIABLE).ok()?;
    let read = text.parse();
    read.inspect_err(|error| tracing::warn!(%error, "{VARIABLE} is ignored")).ok()
}
