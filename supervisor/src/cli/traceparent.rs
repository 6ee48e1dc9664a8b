//! The trace that a command is a part of, from the variables `TRACEPARENT` and `TRACESTATE`, as other programs pass it
//! on.

use std::fmt::Display;
use std::str::FromStr;

use gridpool_client::{TraceContext, TraceState};
use gridpool_protocol::trace::{STATE_VARIABLE, VARIABLE};

/// The trace, if there is one, and what systems on its way have noted in it. A text that is none is no reason to run
/// nothing. Read it once: it warns of wrong ones.
pub(super) fn of_environment() -> (Option<TraceContext>, Option<TraceState>) {
    let trace = read(VARIABLE);
    (trace, trace.and_then(|_: TraceContext| read(STATE_VARIABLE)))
}

fn read<T: FromStr<Err: Display>>(variable: &str) -> Option<T> {
    let text = std::env::var(variable).ok()?;
    let read = text.parse();
    read.inspect_err(|error| tracing::warn!(%error, "{variable} is ignored")).ok()
}
