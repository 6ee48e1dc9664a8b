"""Pools: one of your own, or a connection to one that runs."""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import functools
import json
import logging
import os
import shutil
import signal as _signal
import subprocess
import tempfile
import threading
import time
import weakref
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable, NoReturn, Optional, Union, cast

from . import _native, _search
from ._binary import binary
from ._errors import Cancelled, Error, NoPool, StartError
from ._inputs import Task
from ._models import ModelLoad, ModelOptions, given
from ._program import TIES, Program, text_of
from ._receipt import Receipt
from ._results import InferResult, Results
from ._search import Candidate, Search
from ._trace import current

if TYPE_CHECKING:
    from typing_extensions import Unpack

Text = Union[str, Program]

_LOG = logging.getLogger("gridpool")
#: Steps that a program of a search may run on a pair.
STEPS = 1_000_000
#: How the address of a cluster begins.
_NATS = ("nats://", "tls://")
#: Jobs that `map` has under way at a time.
WINDOW = 8
#: Cells from which sending a job may take so long that `arun` does it on a thread.
_SEND_ASIDE_CELLS = 8_192
#: Threads that send large jobs for `arun`.
_SENDERS = 4
#: Seconds that the workers of a pool may take to get ready.
_READY_TIMEOUT = 120.0
#: Seconds between two looks at them.
_READY_EVERY = 0.01
#: Seconds that a pool may take to end before it is killed; fewer when the program ends.
_END_TIMEOUT = 10.0
_EXIT_TIMEOUT = 1.0


class Future(concurrent.futures.Future[Results]):
    """The future of a job. `cancel` also cancels a job that runs already."""

    _canceller: Optional[_native.Canceller] = None
    #: Keeps the client until the job has its answer.
    _client: Optional[Client] = None

    def cancel(self) -> bool:
        """Cancels the job; `False` if it has its answer."""
        if not super().cancel():
            return False
        mine = object()
        if self.__dict__.setdefault("_told", mine) is mine:
            # Only the first call may tell those who wait.
            self.set_running_or_notify_cancel()
        self._client = None
        if self._canceller is not None:
            self._canceller.cancel()
        return True

    def _settle(self, native: Any, error: Optional[BaseException]) -> None:
        self._client = None
        try:
            if isinstance(error, Cancelled) and error.receipt is None:
                # The client was closed.
                self.cancel()
            elif error is not None:
                self.set_exception(error)
            else:
                self.set_result(Results(native))
        except concurrent.futures.InvalidStateError:
            # It was cancelled meanwhile.
            return


class Loaded:
    """A batch in the pool's shared memory, for any number of programs. Dropping it frees the memory."""

    __slots__ = ("_native",)

    def __init__(self, native: _native.Loaded) -> None:
        self._native = native

    def __len__(self) -> int:
        return len(self._native)

    @property
    def nbytes(self) -> int:
        """Its size in shared memory."""
        return self._native.nbytes

    @property
    def pairs(self) -> bool:
        """Whether its items are pairs."""
        return self._native.pairs


def _raw(grids: Any) -> Any:
    if isinstance(grids, Loaded):
        return grids._native
    return grids


class _Waiter:
    """One thread of a client that takes answers to futures. It starts with the first job that needs it."""

    def __init__(self) -> None:
        self.completions = _native.Completions()
        self.pid = os.getpid()
        self._thread = threading.Thread(
            target=_take, args=(self.completions,), name="gridpool-futures", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        if self.pid == os.getpid():
            self.completions.close()


def _take(completions: _native.Completions) -> None:
    while True:
        done = completions.take()
        if done is None:
            return
        for callback, result, error in done:
            try:
                callback(result, error)
            except BaseException:
                # Such as SystemExit of somebody's `add_done_callback`: other futures need this thread.
                _LOG.exception("a callback of a future raised")


class Client:
    """A connection to a pool that runs. `connect` makes it. Any number of threads may use it.

    After a fork the child connects anew. If the supervisor goes away, the client reconnects for `reconnect_for`
    seconds and submits every job without a verdict again.

    With `wait_for_pool` it waits so many seconds for a pool that starts again, or for the servers of a cluster; without,
    not for a pool, and 30 s for a cluster.
    """

    def __init__(
        self,
        socket: Union[None, str, os.PathLike[str]] = None,
        *,
        reconnect_for: float = 10.0,
        wait_for_pool: Optional[float] = None,
        prefix: Optional[str] = None,
        credentials: Union[None, str, os.PathLike[str]] = None,
        ca: Union[None, str, os.PathLike[str]] = None,
        cert: Union[None, str, os.PathLike[str]] = None,
        key: Union[None, str, os.PathLike[str]] = None,
    ) -> None:
        self._reconnect_for = reconnect_for
        files = (credentials, ca, cert, key)
        self._native = _native.Client(socket, reconnect_for, wait_for_pool, prefix, files)
        # Not a path: pathlib would join its two slashes.
        address = "" if socket is None else os.fspath(socket)
        self._servers = address if address.startswith(_NATS) else None
        self._cluster = {"prefix": prefix, "credentials": credentials, "ca": ca, "cert": cert, "key": key}
        self._lock = threading.Lock()
        self._waiter: Optional[_Waiter] = None
        self._senders: Optional[concurrent.futures.ThreadPoolExecutor] = None
        _LIVE.add(self)

    @property
    def socket(self) -> str:
        """The pool's socket, or the addresses of the cluster's servers."""
        return self._servers or os.fspath(self._native.socket)

    def run(
        self,
        program: Text,
        grids: Any,
        *,
        deadline: Optional[float] = None,
        priority: Optional[str] = None,
        ties: Optional[str] = None,
        at_most_once: bool = False,
        refuse_if_busy: bool = False,
        traceparent: Optional[str] = None,
        tracestate: Optional[str] = None,
    ) -> Results:
        """Runs a program over grids, or over pairs if it takes those, and waits for the results.

        `grids` is a list of grids (nested lists or tuples, or arrays of any integer type), an array `[N, H, W]`,
        `(cells, sizes)`, tasks, a path of tasks, or a `Loaded` batch. `deadline` is in seconds; the default is 30.
        `priority` is "high", "normal" or "low". `traceparent` is the trace that the job is a part of, as the W3C
        writes it, and `tracestate` what systems on its way noted in it; the default is OpenTelemetry's current span, if
        this process has one. Raises `ProgramError`, `BadInput`, `Busy`, or a `JobError`.
        """
        text, tie = text_of(program, ties)
        return Results(
            self._native.run(
                text, _raw(grids), tie, deadline, priority, at_most_once, refuse_if_busy, current(traceparent, tracestate)
            )
        )

    def submit(
        self,
        program: Text,
        grids: Any,
        *,
        deadline: Optional[float] = None,
        priority: Optional[str] = None,
        ties: Optional[str] = None,
        at_most_once: bool = False,
        refuse_if_busy: bool = False,
        traceparent: Optional[str] = None,
        tracestate: Optional[str] = None,
    ) -> Future:
        """As `run`, but returns once the job is sent: a `concurrent.futures.Future` of the results."""
        text, tie = text_of(program, ties)
        future = Future()
        future._client = self
        future._canceller = self._native.start(
            self._completions(), future._settle, text, _raw(grids), tie, deadline, priority, at_most_once, refuse_if_busy,
            current(traceparent, tracestate),
        )
        return future

    def submit_many(
        self,
        program: Text,
        batches: Iterable[Any],
        *,
        deadline: Optional[float] = None,
        priority: Optional[str] = None,
        ties: Optional[str] = None,
        at_most_once: bool = False,
        refuse_if_busy: bool = False,
        traceparent: Optional[str] = None,
        tracestate: Optional[str] = None,
    ) -> list[Future]:
        """A job for each batch, for many small ones: up to 32 go to the pool as one. Each has a future of its own.

        If one batch is a `BadInput`, none is sent. Each job counts against the pool's limit of jobs of one client, 64 by
        default.
        """
        text, tie = text_of(program, ties)
        raw = [_raw(batch) for batch in batches]
        futures = [Future() for _ in raw]
        for future in futures:
            future._client = self
        settle = [future._settle for future in futures]
        cancellers = self._native.start_many(
            self._completions(), settle, text, raw, tie, deadline, priority, at_most_once, refuse_if_busy,
            current(traceparent, tracestate),
        )
        for future, canceller in zip(futures, cancellers):
            future._canceller = canceller
        return futures

    async def arun(
        self,
        program: Text,
        grids: Any,
        *,
        deadline: Optional[float] = None,
        priority: Optional[str] = None,
        ties: Optional[str] = None,
        at_most_once: bool = False,
        refuse_if_busy: bool = False,
        traceparent: Optional[str] = None,
        tracestate: Optional[str] = None,
    ) -> Results:
        """As `run`, for asyncio: blocks no event loop. Cancelling the task cancels the job."""
        text, tie = text_of(program, ties)
        # The thread that sends the job has another context.
        trace = current(traceparent, tracestate)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Results] = loop.create_future()

        def settle(native: Any, error: Optional[BaseException]) -> None:
            if future.done():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(Results(native))

        def answered(native: Any, error: Optional[BaseException]) -> None:
            try:
                loop.call_soon_threadsafe(settle, native, error)
            except RuntimeError:
                # The loop is closed: nobody waits.
                return

        def start() -> _native.Canceller:
            return self._native.start(
                self._completions(), answered, text, _raw(grids), tie, deadline, priority, at_most_once,
                refuse_if_busy, trace,
            )

        if _is_small(grids):
            canceller = start()
        else:
            sending = self._sending().submit(start)
            try:
                canceller = await asyncio.wrap_future(sending)
            except asyncio.CancelledError:
                future.cancel()
                sending.add_done_callback(_cancel_sent)
                raise
        try:
            return await future
        except asyncio.CancelledError:
            canceller.cancel()
            raise

    def map(
        self,
        program: Text,
        batches: Iterable[Any],
        *,
        window: int = WINDOW,
        ordered: bool = True,
        progress: bool = False,
        **terms: Any,
    ) -> Iterator[Results]:
        """Runs a program over each batch, lazily: at most `window` jobs are under way.

        Results come in the order of the batches, or as they are done if not `ordered`. With `progress`, tqdm shows
        them, if it is there. Closing the iterator cancels what is under way.
        """
        if window < 1:
            raise ValueError(f"window is {window}: at least one job must be under way")
        rest = iter(_progress(batches) if progress else batches)
        return self._map(program, rest, window, ordered, terms)

    def _map(
        self, program: Text, rest: Iterator[Any], window: int, ordered: bool, terms: dict[str, Any]
    ) -> Iterator[Results]:
        under_way: deque[Future] = deque()
        ended: Optional[Exception] = None
        try:
            while True:
                while ended is None and len(under_way) < window:
                    try:
                        under_way.append(self.submit(program, next(rest), **terms))
                    except Exception as error:
                        # The results before come first.
                        ended = error
                if not under_way:
                    break
                yield _next(under_way, ordered)
        finally:
            for future in under_way:
                future.cancel()
        if not isinstance(ended, StopIteration):
            raise cast(Exception, ended)

    def search(
        self,
        programs: Iterable[Candidate],
        tasks: Any,
        *,
        pairs: str = "train",
        steps: int = STEPS,
        score: str = "exact",
        ties: Optional[str] = None,
        deadline: Optional[float] = None,
        threads: Optional[int] = None,
        traceparent: Optional[str] = None,
        tracestate: Optional[str] = None,
        only_solving: bool = False,
        sharing: bool = True,
    ) -> Search:
        """Runs many programs over the pairs of tasks: an iterator of their verdicts, in order, while programs are still
        read. Programs that mean the same run once; texts that do not compile have an error in their place.

        `programs` are texts of solvers, chains or templates (`replace(I, ?a:color, ?b:color)`), `(name, text)`, or
        objects with id and program, or with id and bytecode, as `gridpool compile` prints them. `tasks` is what
        `gridpool.tasks` takes. `pairs` is "train", or "all" that have an output. A program may run `steps` on a pair.
        With `score="cells"` results also say how near they are.
        `traceparent` and `tracestate` are those of `run`. `only_solving` leaves out results of programs that solve no
        pair: of large templates, which the devices expand, few are left. Without `sharing` each program is computed
        whole, also what it has in common with others; its verdicts are the same.
        """
        tie = TIES if ties is None else ties
        trace = current(traceparent, tracestate)
        return _search.start(
            self._native,
            programs,
            tasks,
            pairs,
            steps,
            score,
            tie,
            deadline,
            threads,
            trace,
            only_solving,
            sharing,
        )

    def load(self, grids: Any, *, pairs: Optional[bool] = None) -> Loaded:
        """Packs a batch into shared memory once, for any number of programs.

        `pairs` says whether its items are pairs; without it, tasks and pairs are, and everything else is not.
        """
        if isinstance(grids, Loaded):
            return grids
        if pairs is None:
            pairs = isinstance(grids, (Task, Mapping, str, os.PathLike))
        return Loaded(self._native.load(grids, pairs))

    def infer(
        self,
        model: str,
        inputs: Mapping[str, Any],
        *,
        deadline: Optional[float] = None,
        priority: Optional[str] = None,
        at_most_once: bool = False,
        output_bytes: Optional[int] = None,
        traceparent: Optional[str] = None,
        tracestate: Optional[str] = None,
    ) -> InferResult:
        """Runs an ONNX model over named arrays, and returns its outputs by name."""
        import numpy as np

        tensors: list[tuple[str, str, list[int], bytes]] = []
        for name, value in inputs.items():
            array = np.asarray(value)
            if array.dtype.kind in "SU" and not isinstance(value, np.ndarray):
                # Such an array drops zeros at the end of its elements.
                array = np.array(value, dtype=object)
            if array.dtype.kind in "OSU":
                tensors.append((name, "BYTES", list(array.shape), _packed_texts(name, array)))
                continue
            array = array.astype(array.dtype.newbyteorder("<"), order="C", copy=False)
            if array.dtype.str not in _DATATYPES:
                raise ValueError(f"input {name!r}: no model takes {array.dtype}")
            tensors.append((name, _DATATYPES[array.dtype.str], list(array.shape), array.tobytes()))
        outputs, receipt = self._native.infer(
            model, tensors, deadline, priority, at_most_once, output_bytes, current(traceparent, tracestate)
        )
        result = InferResult()
        for name, datatype, shape, data in outputs:
            if datatype == "BYTES":
                result[name] = np.array(_texts(data), dtype=object).reshape(shape)
                continue
            # NumPy has no BF16: these are its bits.
            dtype = "<u2" if datatype == "BF16" else _DTYPES[datatype]
            result[name] = np.frombuffer(data, dtype).reshape(shape)
        result.receipt = Receipt.from_dict(json.loads(receipt))
        return result

    @property
    def models(self) -> list[dict[str, Any]]:
        """The models: one row for each model and device."""
        return cast("list[dict[str, Any]]", json.loads(self._native.models()))

    def load_model(
        self,
        name: str,
        path: Union[str, os.PathLike[str]],
        *,
        version: Optional[int] = None,
        progress: Optional[Callable[[dict[str, str]], object]] = None,
        **options: Unpack[ModelOptions],
    ) -> str:
        """Loads an ONNX model, and returns what the pool says. If the name serves already, it is the next version.

        `version` is its number, and `options` are keys of `[[model]]`, such as `contexts=4`, `max_batch=16`,
        `devices=[0, 2]`, `group="small"`, `keep=True`. After `load_timeout_s` seconds the load is given up, and so it
        is with Ctrl-C. `progress` gets how far each worker is, a few times a second.
        """
        load = self.start_load(name, path, version=version, **options)
        try:
            return load.wait(progress)
        except BaseException:
            load.cancel()
            raise

    def start_load(
        self,
        name: str,
        path: Union[str, os.PathLike[str]],
        *,
        version: Optional[int] = None,
        **options: Unpack[ModelOptions],
    ) -> ModelLoad:
        """Begins to load an ONNX model, as `load_model` does, and does not wait."""
        text = given(options)
        full = name if version is None else f"{name}:{version}"
        return ModelLoad(name, self._native.start_load(full, os.path.abspath(path), text), self.status)

    def set_contexts(self, name: str, contexts: int) -> str:
        """Sets how many requests of a model run at once on each device. No request is lost."""
        return self._native.set_contexts(name, contexts)

    def unload_model(self, name: str) -> str:
        """Unloads a model: `mlp` with all its versions, `mlp:2` that one. It ends a load of that name, too."""
        return self._native.unload_model(name)

    def status(self) -> dict[str, Any]:
        """What `gridpool status --json` says."""
        return cast("dict[str, Any]", json.loads(self._native.status()))

    def kill(self, worker: str, signal: int = _signal.SIGKILL) -> str:
        """Sends a signal to a worker, `cpu0` or `cpu0#3`, to test that the pool recovers."""
        return self._native.kill(worker, int(signal))

    def release(self, what: str) -> str:
        """Returns a device to service, or allows a denylisted content again."""
        return self._native.release(what)

    def drain(self) -> str:
        """Tells the pool to finish the accepted jobs and then to stop."""
        return self._native.drain()

    def close(self) -> None:
        """Cancels the futures that are under way."""
        with self._lock:
            waiter, self._waiter = self._waiter, None
            senders, self._senders = self._senders, None
        if waiter is not None:
            waiter.close()
        if senders is not None:
            senders.shutdown(wait=False)

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.close()

    def __del__(self) -> None:
        waiter: Optional[_Waiter] = getattr(self, "_waiter", None)
        if waiter is not None:
            waiter.close()

    def __reduce__(self) -> Any:
        return functools.partial(connect, **(self._cluster if self._servers else {})), (self.socket,)

    def _completions(self) -> _native.Completions:
        with self._lock:
            if self._waiter is None or self._waiter.pid != os.getpid():
                self._waiter = _Waiter()
            return self._waiter.completions

    def _sending(self) -> concurrent.futures.ThreadPoolExecutor:
        with self._lock:
            if self._senders is None:
                self._senders = concurrent.futures.ThreadPoolExecutor(_SENDERS, "gridpool-send")
            return self._senders

    def _after_fork(self) -> None:
        # Threads and perhaps the lock are the parent's.
        self._lock = threading.Lock()
        self._waiter = None
        self._senders = None


def connect(socket: Union[None, str, os.PathLike[str]] = None, **options: Any) -> Client:
    """Connects to the pool at a socket: by default that of `GRIDPOOL_SOCKET`, or the user's own.

    `connect("nats://a,b,c")` connects to a cluster, whose hosts take jobs from those NATS servers. It takes
    `prefix`, a file of `credentials`, `ca`, a file of the authorities of the servers' certificates, and `cert` and
    `key`, the files of a certificate for servers that want one.
    """
    return Client(socket, **options)


class Pool(Client):
    """A pool of this program alone. It ends with the `with` block, or with this process."""

    def __init__(
        self,
        devices: Optional[str] = None,
        *,
        models: Optional[Mapping[str, Union[str, os.PathLike[str]]]] = None,
        standby: Optional[int] = None,
        config: Union[None, str, os.PathLike[str]] = None,
        arguments: Iterable[str] = (),
        ready_timeout: float = _READY_TIMEOUT,
        reconnect_for: float = 10.0,
    ) -> None:
        self._owner = os.getpid()
        self._folder = tempfile.mkdtemp(prefix="gridpool-")
        self._process: Optional[subprocess.Popen[bytes]] = None
        socket = os.path.join(self._folder, "pool.sock")
        command = [binary(), "serve", "--socket", socket, "--until-stdin-ends"]
        command += ["--devices", devices] if devices is not None else []
        command += ["--standby", str(standby)] if standby is not None else []
        command += ["--config", os.fspath(config)] if config is not None else []
        for name, path in (models or {}).items():
            command += ["--model", f"{name}={os.path.abspath(path)}"]
        command += arguments
        try:
            with open(os.path.join(self._folder, "log"), "wb") as log:
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=log,
                    # Ctrl-C is for this program, which then ends its pool.
                    start_new_session=True,
                )
            until = time.monotonic() + ready_timeout
            self._connect(socket, until, reconnect_for)
            self._wait_ready(until)
        except BaseException:
            self._end()
            raise
        self._finalizer = weakref.finalize(self, _end, self._process, self._folder, self._owner)
        # `_at_exit` ends it, after the futures.
        self._finalizer.atexit = False

    def _connect(self, socket: str, until: float, reconnect_for: float) -> None:
        while True:
            try:
                super().__init__(socket, reconnect_for=reconnect_for)
                return
            except NoPool:
                self._check(until, "does not listen")
                time.sleep(_READY_EVERY)

    def _wait_ready(self, until: float) -> None:
        while True:
            try:
                status = self.status()
            except ConnectionError:
                # It ends, and its log says why.
                if self._process is not None:
                    self._process.wait(_EXIT_TIMEOUT)
                self._check(until, "does not answer")
                raise
            workers = status["workers"]
            if workers and all(row["state"] in _SETTLED for row in workers):
                break
            self._check(until, "has workers that are not ready")
            time.sleep(_READY_EVERY)
        if not any(row["state"] in ("ready", "busy") for row in workers):
            why = "; ".join(row["why"] for row in status["quarantines"])
            raise StartError(f"no worker of the pool serves: {why or self.log()}")

    def _check(self, until: float, what: str) -> None:
        if self._process is not None and self._process.poll() is not None:
            raise StartError(f"the pool did not start: {self.log()}")
        if time.monotonic() > until:
            raise StartError(f"the pool {what} in time: {self.log()}")

    def log(self) -> str:
        """The end of the pool's log."""
        path = Path(self._folder, "log")
        return path.read_text(errors="replace")[-2_000:].strip() if path.is_file() else ""

    @property
    def pid(self) -> int:
        """The supervisor's process."""
        if self._process is None:
            raise Error("the pool has ended")
        return self._process.pid

    def close(self) -> None:
        """Ends the pool. Futures are cancelled; jobs of other threads have 10 s to finish."""
        super().close()
        if os.getpid() == self._owner:
            self._end()
            self._native = cast("_native.Client", _Closed(self.socket))

    def __enter__(self) -> Pool:
        return self

    def _end(self, patience: float = _END_TIMEOUT) -> None:
        finalizer: Optional[weakref.finalize[Any, Any]] = getattr(self, "_finalizer", None)
        if finalizer is None or finalizer.detach() is not None:
            _end(self._process, self._folder, self._owner, patience)


def _end(
    process: Optional[subprocess.Popen[bytes]], folder: str, owner: int, patience: float = _END_TIMEOUT
) -> None:
    """Ends the supervisor. A fork of the owner leaves it alone."""
    if os.getpid() != owner:
        return
    if process is not None:
        if process.stdin is not None:
            process.stdin.close()
        # Its end drains the pool; SIGKILL is for what does not end.
        try:
            process.wait(patience)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    shutil.rmtree(folder, ignore_errors=True)


def _next(under_way: deque[Future], ordered: bool) -> Results:
    """Takes the next result of `map`: the oldest, or the first that is there. Until then an interrupt cancels its job."""
    future = under_way[0]
    if not ordered:
        done, _ = concurrent.futures.wait(under_way, return_when=concurrent.futures.FIRST_COMPLETED)
        future = cast(Future, next(iter(done)))
    results = future.result()
    under_way.remove(future)
    return results


class _Closed:
    """What stands in a client's place once its own pool has ended: no call waits for that pool to come back."""

    def __init__(self, socket: str) -> None:
        self.socket = socket

    def __getattr__(self, name: str) -> NoReturn:
        raise NoPool("this pool is closed: make another with `gridpool.Pool(...)`")


def _cancel_sent(sending: concurrent.futures.Future[_native.Canceller]) -> None:
    """Cancels a job whose task was cancelled while a thread sent it."""
    if not sending.cancelled() and sending.exception() is None:
        sending.result().cancel()


def _is_small(grids: Any) -> bool:
    """Whether sending surely takes no time."""
    if isinstance(grids, Loaded):
        return True
    size = getattr(grids, "size", None)
    if isinstance(size, int):
        return size <= _SEND_ASIDE_CELLS
    return isinstance(grids, (list, tuple)) and len(cast("list[Any]", grids)) <= 16


def _progress(batches: Iterable[Any]) -> Iterable[Any]:
    try:
        from tqdm.auto import tqdm  # pyright: ignore
    except ImportError:
        return batches
    return cast("Iterable[Any]", tqdm(batches, unit="batch"))


_DATATYPES = {
    "|b1": "BOOL",
    "|u1": "UINT8",
    "<u2": "UINT16",
    "<u4": "UINT32",
    "<u8": "UINT64",
    "|i1": "INT8",
    "<i2": "INT16",
    "<i4": "INT32",
    "<i8": "INT64",
    "<f2": "FP16",
    "<f4": "FP32",
    "<f8": "FP64",
    "<V2": "BF16",
    "|V2": "BF16",
}
_DTYPES = {name: dtype for dtype, name in _DATATYPES.items()}
_SETTLED = ("ready", "busy", "standby", "quarantined")
_LIVE: weakref.WeakSet[Client] = weakref.WeakSet()


def _packed_texts(name: str, array: Any) -> bytes:
    """The elements of an array of texts or bytes, row by row: each as its length, 4 bytes, and its bytes."""
    parts: list[bytes] = []
    for element in array.ravel(order="C").tolist():
        if isinstance(element, str):
            element = element.encode()
        if not isinstance(element, (bytes, bytearray, memoryview)):
            raise ValueError(f"input {name!r}: an element is {element!r}, neither text nor bytes")
        element = bytes(element)
        parts += [len(element).to_bytes(4, "little"), element]
    return b"".join(parts)


def _texts(data: bytes) -> list[bytes]:
    """The elements of a BYTES tensor."""
    texts: list[bytes] = []
    at = 0
    while at < len(data):
        start = at + 4
        at = start + int.from_bytes(data[start - 4 : start], "little")
        texts.append(data[start:at])
    return texts


def _after_fork_in_child() -> None:
    for client in list(_LIVE):
        client._after_fork()


def _at_exit() -> None:
    """Cancels the futures and ends the pools of this process."""
    for client in list(_LIVE):
        Client.close(client)
        if isinstance(client, Pool):
            client._end(_EXIT_TIMEOUT)


atexit.register(_at_exit)
os.register_at_fork(after_in_child=_after_fork_in_child)
__all__ = ["TIES", "Client", "Future", "Loaded", "Pool", "connect"]
