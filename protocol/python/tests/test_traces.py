"""The trace that a job is a part of."""

from __future__ import annotations

import asyncio
import queue
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import gridpool
import numpy as np
import pytest
from conftest import DATA, needed

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"
STATE = "vendor=a1,other=b2"
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


@pytest.fixture
def collector():
    """The address of a server that takes traces, and what it took."""
    taken = queue.SimpleQueue()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            taken.put(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", taken
        server.shutdown()


def until_told(taken, states):
    """Waits until the spans of the trace have had each of these states."""
    missing = {state.encode() for state in states}
    while missing:
        spans = taken.get(timeout=30)
        if bytes.fromhex(TRACE) in spans:
            missing = {state for state in missing if state not in spans}


def test_the_state_of_a_trace_goes_with_it(collector):
    address, taken = collector
    with gridpool.Pool(devices="cpu:1", arguments=["--trace", address]) as pool:
        runs = [
            lambda state: pool.run("rot90", GRID, traceparent=PARENT, tracestate=state),
            lambda state: pool.submit("rot90", GRID, traceparent=PARENT, tracestate=state).result(),
            lambda state: pool.submit_many("rot90", [GRID], traceparent=PARENT, tracestate=state)[0].result(),
            lambda state: asyncio.run(pool.arun("rot90", GRID, traceparent=PARENT, tracestate=state)),
            lambda state: list(pool.map("rot90", [GRID], traceparent=PARENT, tracestate=state)),
            lambda state: list(pool.search(["rot90"], DATA / "tasks", traceparent=PARENT, tracestate=state)),
        ]
        for number, run in enumerate(runs):
            run(f"vendor={number}")
        until_told(taken, [f"vendor={number}" for number in range(len(runs))])
        with pytest.raises(ValueError, match="give its traceparent"):
            pool.run("rot90", GRID, tracestate=STATE)


def test_a_request_for_a_model_has_the_trace_and_its_state(collector):
    needed("onnxruntime")
    address, taken = collector
    models = {"mlp": DATA / "models" / "mlp.onnx"}
    with gridpool.Pool(devices="cpu:1", models=models, arguments=["--trace", address]) as pool:
        rows = {"x": np.ones((3, 16), np.float32)}
        assert trace_of(pool.infer("mlp", rows, traceparent=PARENT, tracestate=STATE)) == TRACE
        until_told(taken, [STATE])


def test_a_wrong_trace_is_none(pool):
    for wrong in ["", "nonsense", PARENT.upper(), f"00-{'0' * 32}-b7ad6b7169203331-01"]:
        assert trace_of(pool.run("rot90", GRID, traceparent=wrong)) == ""
    assert trace_of(pool.run("rot90", GRID, traceparent=PARENT, tracestate="=nonsense=")) == TRACE


def test_the_current_span_of_opentelemetry_is_the_parent(pool, monkeypatch):
    state = SimpleNamespace(to_header=lambda: STATE)
    context = SimpleNamespace(is_valid=True, trace_id=int(TRACE, 16), span_id=1, trace_flags=1, trace_state=state)
    span = SimpleNamespace(get_span_context=lambda: context)
    module = SimpleNamespace(get_current_span=lambda: span)
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", module)
    assert trace_of(pool.run("rot90", GRID)) == TRACE
    assert trace_of(asyncio.run(pool.arun("rot90", GRID))) == TRACE
    assert trace_of(pool.run("rot90", GRID, traceparent="")) == ""
    context.is_valid = False
    assert trace_of(pool.run("rot90", GRID)) == ""


def test_the_published_package_is_understood(pool):
    trace = needed("opentelemetry.trace")
    state = trace.TraceState.from_header([STATE])
    parent = trace.SpanContext(int(TRACE, 16), 0xB7, True, trace.TraceFlags(1), state)
    with trace.use_span(trace.NonRecordingSpan(parent)):
        assert trace_of(pool.run("rot90", np.array(GRID))) == TRACE
        assert gridpool._trace.current(None, None) == (f"00-{TRACE}-00000000000000b7-01", STATE)
    assert trace_of(pool.run("rot90", GRID)) == ""
