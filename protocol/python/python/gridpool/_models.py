"""Loads of models: their options, and one that is under way."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral
from typing import Any, Callable, Literal, Optional, TypedDict, Union, cast

from . import _native
from ._errors import ConnectionLost, Error, LoadCancelled

#: Between two looks at the pool: no event tells how far a load is.
_LOOK_EVERY = 0.2


class TensorSpec(TypedDict):
    """A tensor that a model must have; -1 in its shape is any size."""

    name: str
    datatype: str
    shape: list[int]


class ListedTensors(TypedDict, total=False):
    """Inputs and outputs that a model must have."""

    inputs: list[TensorSpec]
    outputs: list[TensorSpec]


class ModelOptions(TypedDict, total=False):
    """The keys of `[[model]]` that a load may set. The reference of the config file says what each means."""

    contexts: Union[int, Literal["auto"]]
    latency_ms: int
    device_bytes: int
    max_batch: int
    max_queue_delay_us: int
    preferred_batch: Sequence[int]
    warm_up: Sequence[Mapping[str, Sequence[int]]]
    cpu_ops: Sequence[str]
    providers: Sequence[Literal["tensorrt", "cuda", "cpu"]]
    tf32: bool
    cuda_graphs: bool
    queue_requests: int
    queue_bytes: int
    group: str
    devices: Sequence[Union[int, str]]
    device_count: int
    keep: bool
    load_timeout_s: int
    tensors: ListedTensors
    sha256: str


class ModelLoad:
    """A load that is under way. If this process ends, the pool gives it up."""

    def __init__(
        self, name: str, native: _native.ModelLoad, status: Callable[[], dict[str, Any]]
    ) -> None:
        self._name = name.partition(":")[0]
        self._native = native
        self._status = status
        self._cancelled = threading.Event()

    def __repr__(self) -> str:
        return f"<gridpool.ModelLoad of {self._name!r}>"

    def cancel(self) -> None:
        """Gives the load up, unless it is done: the pool may just have been about to serve it. `Pool.models` says."""
        self._cancelled.set()
        self._native.cancel()

    def done(self) -> bool:
        """Whether it has ended, however."""
        try:
            return self._native.wait(0.0) is not None
        except Error:
            return True

    def result(self, timeout: Optional[float] = None) -> str:
        """Waits for the end, and returns what the pool says; at most `timeout` seconds, then it raises TimeoutError.

        A load that failed raises `Refused` with the reason, one that was cancelled `LoadCancelled`.
        """
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            left = _LOOK_EVERY if until is None else min(_LOOK_EVERY, until - time.monotonic())
            said = self._wait(max(left, 0.0))
            if said is not None:
                return said
            if until is not None and time.monotonic() >= until:
                raise TimeoutError(f"`{self._name}` is still being loaded")

    def progress(self) -> dict[str, str]:
        """How far each worker that loads the model is: `{"cpu0#4": "making the session"}`."""
        rows = self._status()["loads"]
        own = [row for row in rows if row["model"].partition(":")[0] == self._name]
        return {row["worker"]: row["phase"] for row in own}

    def wait(self, progress: Optional[Callable[[dict[str, str]], object]] = None) -> str:
        """Waits for the end as `result` does, and says how far it is a few times a second."""
        if progress is None:
            return self.result()
        while True:
            said = self._wait(_LOOK_EVERY)
            if said is not None:
                return said
            progress(self.progress())

    def _wait(self, span: float) -> Optional[str]:
        try:
            return self._native.wait(span)
        except ConnectionLost:
            if self._cancelled.is_set():
                raise LoadCancelled(f"the load of `{self._name}` was cancelled") from None
            raise


def given(options: Mapping[str, Any]) -> str:
    """Options as the native module takes them."""
    for key in options:
        if key not in ModelOptions.__annotations__:
            raise TypeError(f"no option of a model is called {key!r}: {', '.join(ModelOptions.__annotations__)}")
    return json.dumps(options, default=_plain)


def _plain(value: object) -> Union[dict[Any, Any], int, list[Any]]:
    """What JSON can say of a value, which need not be a dict, an int or a list for that."""
    if isinstance(value, Mapping):
        return dict(cast("Mapping[Any, Any]", value))
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Iterable):
        return list(cast("Iterable[Any]", value))
    raise TypeError(f"{value!r} is no option of a model: write numbers, texts, lists and dicts")
