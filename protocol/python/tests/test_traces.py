"""The trace that a job is a part of."""

from __future__ import annotations

import asyncio
import sys
from types import SimpleNamespace

import numpy as np
import pytest

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"
GRID = [[[1, 2], [3, 4]]]


def trace_of(results):
    return results.receipt.trace_id


def test_a_trace_is_in_the_receipt(pool):
    assert trace_of(pool.run("rot90", GRID)) == ""
    assert trace_of(pool.run("rot90", GRID, traceparent=PARENT)) == TRACE
    assert trace_of(pool.submit("rot90", GRID, traceparent=PARENT).result()) == TRACE
    [future] = pool.submit_many("rot90", [GRID], traceparent=PARENT)
    assert trace_of(future.result()) == TRACE
    assert trace_of(asyncio.run(pool.arun("rot90", GRID, traceparent=PARENT))) == TRACE


def test_a_wrong_trace_is_none(pool):
    for wrong in ["", "nonsense", PARENT.upper(), f"00-{'0' * 32}-b7ad6b7169203331-01"]:
        assert trace_of(pool.run("rot90", GRID, traceparent=wrong)) == ""


def test_the_current_span_of_opentelemetry_is_the_parent(pool, monkeypatch):
    context = SimpleNamespace(is_valid=True, trace_id=int(TRACE, 16), span_id=1, trace_flags=1)
    span = SimpleNamespace(get_span_context=lambda: context)
    module = SimpleNamespace(get_current_span=lambda: span)
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", module)
    assert trace_of(pool.run("rot90", GRID)) == TRACE
    assert trace_of(asyncio.run(pool.arun("rot90", GRID))) == TRACE
    assert trace_of(pool.run("rot90", GRID, traceparent="")) == ""
    context.is_valid = False
    assert trace_of(pool.run("rot90", GRID)) == ""


def test_the_published_package_is_understood(pool):
    trace = pytest.importorskip("opentelemetry.trace")
    parent = trace.SpanContext(int(TRACE, 16), 0xB7, True, trace.TraceFlags(1))
    with trace.use_span(trace.NonRecordingSpan(parent)):
        assert trace_of(pool.run("rot90", np.array(GRID))) == TRACE
    assert trace_of(pool.run("rot90", GRID)) == ""
