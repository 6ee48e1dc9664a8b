"""The trace that a job is a part of, as the headers `traceparent` and `tracestate` have it."""

from __future__ import annotations

import sys
from typing import Optional


def current(traceparent: Optional[str], tracestate: Optional[str]) -> Optional[tuple[str, str]]:
    """Both as they were given, else the current span of OpenTelemetry if this process uses that. `""` is no trace."""
    if traceparent is not None:
        return (traceparent, tracestate or "") if traceparent else None
    if tracestate is not None:
        raise ValueError("tracestate belongs to a trace: give its traceparent, too")
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        # Nobody has imported it, so there is no span.
        return None
    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return None
    flags = int(context.trace_flags) & 0xFF
    parent = f"00-{context.trace_id:032x}-{context.span_id:016x}-{flags:02x}"
    return parent, context.trace_state.to_header()
