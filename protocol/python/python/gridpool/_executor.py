"""An executor for code that was written for `concurrent.futures`."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, Optional, Union

from ._pool import WINDOW, Client
from ._program import Program


class Executor(concurrent.futures.Executor):
    """Runs programs where others run functions.

    A "function" is a program: its text, a `Program`, or a function of arc-dsl, which stands for the op of its name.
    Each call is over one grid and gives what arc-dsl gives. `map` sends `chunksize` grids in one job.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._futures: set[concurrent.futures.Future[Any]] = set()
        self._closed = False

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> concurrent.futures.Future[Any]:
        """Runs the program over one grid; keywords are the job's terms."""
        if self._closed:
            raise RuntimeError("cannot schedule new futures after shutdown")
        if len(args) != 1:
            raise TypeError(f"a program takes one grid, or one pair: got {len(args)} arguments")
        inner = self._client.submit(program_of(fn), [args[0]], **kwargs)
        outer: concurrent.futures.Future[Any] = concurrent.futures.Future()
        outer.set_running_or_notify_cancel()
        self._futures.add(outer)

        def done(_: Any) -> None:
            self._futures.discard(outer)
            try:
                outer.set_result(inner.result().to_dsl()[0])
            except BaseException as error:
                outer.set_exception(error)

        inner.add_done_callback(done)
        return outer

    def map(
        self,
        fn: Union[str, Program, Callable[..., Any]],
        *iterables: Iterable[Any],
        timeout: Optional[float] = None,
        chunksize: int = 512,
        **terms: Any,
    ) -> Iterator[Any]:
        """Runs the program over each grid, in order."""
        if self._closed:
            raise RuntimeError("cannot schedule new futures after shutdown")
        if len(iterables) != 1:
            raise TypeError(f"a program takes one iterable of grids: got {len(iterables)}")
        if chunksize < 1:
            raise ValueError("chunksize must be >= 1.")
        if timeout is not None:
            terms["deadline"] = timeout
        chunks = _chunks(iter(iterables[0]), chunksize)
        answers = self._client.map(program_of(fn), chunks, window=WINDOW, **terms)
        return (value for results in answers for value in results.to_dsl())

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Takes no more calls; the client stays open."""
        self._closed = True
        if wait:
            concurrent.futures.wait(list(self._futures))


def _chunks(grids: Iterator[Any], size: int) -> Iterator[list[Any]]:
    while chunk := list(islice(grids, size)):
        yield chunk


def program_of(op: Union[str, Program, Callable[..., Any]]) -> Union[str, Program]:
    """The program of an op: a program as it is, a function of arc-dsl by its name."""
    if isinstance(op, (str, Program)):
        return op
    name = getattr(op, "__name__", None)
    if not isinstance(name, str) or not name.isidentifier():
        raise TypeError(f"{op!r} is no program: give its text, or a function of arc-dsl")
    return name
