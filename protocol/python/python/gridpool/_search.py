"""Searches: many programs over the pairs of tasks, of which only verdicts come back."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from time import monotonic
from typing import TYPE_CHECKING, Any, Optional, Union, cast

from . import _native
from ._inputs import tasks as tasks_of
from ._program import Program

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: A program of a search: its text, its name and its text, or an object with id and program or bytecode.
Candidate = Union[str, Program, tuple[str, Union[str, Program]], Mapping[str, Any]]

_Row = tuple[str, Optional[str], Optional[bytes], Optional[bytes]]

#: Most programs that are read between two looks at the results.
_FED_AT_ONCE = 256
#: How long reading them may take, seconds: results do not wait for an iterator that is slow.
_FED_SECONDS = 0.005

#: Most steps of a program on a pair, and most threads that compile texts.
_STEPS_MAX = 100_000_000
_THREADS_MAX = 256

#: The status of a pair that a program solves; the others are in `STATUSES`.
EQUAL = 0
#: The statuses of pairs by their numbers.
STATUSES = {
    0: "equal",
    1: "BadCell",
    2: "MissingOutput",
    3: "Overflow",
    4: "EmptyArg",
    5: "BadCrop",
    6: "BadIndex",
    7: "BadShape",
    8: "BadType",
    9: "BadNumber",
    10: "StepLimit",
    200: "differs",
    201: "no_program",
}
_SHAPE = 1 << 15


@dataclass(frozen=True)
class SearchResult:
    """What came of a program. Arrays have an element for each pair, `Search.tasks` says which are whose."""

    #: Its name: that which was given, or its number. Of a template with the choice, `3[a=1]`.
    id: str
    #: Why it was not run, or has no verdict; `None` if it has.
    error: Optional[str]
    _statuses: Optional[bytes]
    _scores: Optional[bytes]
    _tasks: Mapping[str, slice]

    @property
    def statuses(self) -> NDArray[np.uint8]:
        """How it ended on each pair: numbers of `STATUSES`. Empty if it has no verdict."""
        import numpy as np

        return np.frombuffer(self._statuses or b"", np.uint8)

    @property
    def equal(self) -> NDArray[np.bool_]:
        """Whether its result on each pair is the expected grid."""
        return cast("NDArray[np.bool_]", self.statuses == EQUAL)

    @property
    def equal_cells(self) -> Optional[NDArray[np.uint16]]:
        """How many cells of each pair are equal; `None` unless the score is "cells"."""
        import numpy as np

        return None if self._scores is None else np.bitwise_and(self._numbers, np.uint16(_SHAPE - 1))

    @property
    def equal_shape(self) -> Optional[NDArray[np.bool_]]:
        """Whether each result has the expected shape; `None` unless the score is "cells"."""
        return None if self._scores is None else self._numbers >= _SHAPE

    @property
    def solved(self) -> list[str]:
        """The tasks of which it solves all pairs."""
        if self._statuses is None:
            return []
        statuses = self._statuses
        return [name for name, pairs in self._tasks.items() if not any(statuses[pairs])]

    @property
    def _numbers(self) -> NDArray[np.uint16]:
        import numpy as np

        return np.frombuffer(self._scores or b"", "<u2")


class Search(Iterator[SearchResult]):
    """An iterator of the results of a search, in the order of the programs. `Client.search` makes it.

    Programs are read only while a result is asked for and none is there. So they are read ahead of the results: at
    most 65,536 of them and 64 MiB, which the search bounds, and 512 on their way there. If the search fails, the results
    before are given first, and then the error is raised.

    Closing it, or leaving its `with` block, ends the search.
    """

    def __init__(
        self, native: _native.Search, programs: Iterable[Candidate], tasks: dict[str, slice]
    ) -> None:
        self._native = native
        self._programs = enumerate(programs)
        self._waiting: list[tuple[str, Union[str, bytes]]] = []
        self._ready: Iterator[_Row] = iter(())
        self._is_read = False
        self._lock = threading.RLock()
        #: The pairs of each task, a slice of the arrays of results.
        self.tasks = tasks

    def __iter__(self) -> Search:
        return self

    def __next__(self) -> SearchResult:
        # Threads may share a search: each result goes to one of them.
        with self._lock:
            while True:
                for row in self._ready:
                    name, error, statuses, scores = row
                    return SearchResult(name, error, statuses, scores, self.tasks)
                is_full = self._feed()
                rows = self._native.take(is_full or self._is_read)
                if rows is None:
                    raise StopIteration
                self._ready = iter(rows)

    @property
    def summary(self) -> dict[str, Any]:
        """What was done so far: programs requested, refused, deduplicated, evaluations, launches."""
        return cast("dict[str, Any]", json.loads(self._native.summary()))

    def close(self) -> None:
        """Ends the search."""
        self._native.stop()

    def __enter__(self) -> Search:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _feed(self) -> bool:
        """Reads some programs and passes them on. Returns whether the search has no room for more."""
        if not self._is_read and not self._waiting:
            until = monotonic() + _FED_SECONDS
            for at, program in islice(self._programs, _FED_AT_ONCE):
                self._waiting.append(_named(at, program))
                if monotonic() >= until:
                    break
            if not self._waiting:
                self._is_read = True
                self._native.end()
        fed = self._native.feed(self._waiting) if self._waiting else 0
        self._waiting = self._waiting[fed:]
        return bool(self._waiting)


def _named(at: int, program: Candidate) -> tuple[str, Union[str, bytes]]:
    """The name of a program, and its text or its bytecode."""
    name: Any = at
    text: Any = program
    if isinstance(program, Mapping):
        name, text = program.get("id", at), program.get("program")
        if "bytecode" in program:
            if "program" in program:
                raise ValueError(f"program {at} has a program and bytecode: leave one of them out")
            return str(name), _decoded(at, program["bytecode"])
    elif isinstance(program, tuple):
        parts = cast("tuple[Any, ...]", program)
        if len(parts) != 2:
            raise ValueError(f"program {at} is a tuple of {len(parts)}: give its text, or (name, text)")
        name, text = parts
    text = text.text if isinstance(text, Program) else text
    if not isinstance(text, str):
        raise TypeError(f"program {at} is a {type(text).__name__}: give its text, or (name, text)")
    name = str(name)
    if not (text.isascii() and name.isascii()) and _is_torn(name + text):
        raise ValueError(f"program {at} has a surrogate, half of a character: give whole ones")
    return name, text


def _is_torn(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def _decoded(at: int, bytecode: Any) -> bytes:
    """The bytes of bytecode, as `gridpool compile` prints it."""
    if isinstance(bytecode, bytes):
        return bytecode
    try:
        return base64.b64decode(bytecode, validate=True)
    except (TypeError, ValueError) as error:
        made = "take it as `gridpool compile` prints it"
        raise ValueError(f"the bytecode of program {at} is no base64: {made}") from error


def start(
    client: _native.Client,
    programs: Iterable[Candidate],
    tasks: Any,
    pairs: str,
    steps: int,
    score: str,
    ties: str,
    deadline: Optional[float],
    threads: Optional[int],
    trace: Optional[tuple[str, str]],
    only_solving: bool,
    sharing: bool,
) -> Search:
    """Starts a search; `Client.search` explains the arguments."""
    if pairs not in ("train", "all"):
        raise ValueError(f'pairs is {pairs!r}: write "train" or "all"')
    if not 1 <= steps <= _STEPS_MAX:
        raise ValueError(f"steps is {steps}: write a number from 1 to {_STEPS_MAX:,}")
    if threads is not None and not 1 <= threads <= _THREADS_MAX:
        raise ValueError(f"threads is {threads}: write a number from 1 to {_THREADS_MAX}")
    if isinstance(programs, str):
        raise TypeError("programs is one text: give a list of them, or another iterable")
    all_pairs: list[tuple[Any, Any]] = []
    found: dict[str, slice] = {}
    for number, task in enumerate(tasks_of(tasks)):
        start_at = len(all_pairs)
        counted = task.train if pairs == "train" else task.pairs
        all_pairs.extend((pair.input, pair.output) for pair in counted if pair.output is not None)
        if len(all_pairs) > start_at:
            found[task.name or str(number)] = slice(start_at, len(all_pairs))
    if not all_pairs:
        raise ValueError("no task has a pair with an expected output")
    native = client.search(all_pairs, score, steps, ties, deadline, threads, trace, only_solving, sharing)
    return Search(native, programs, found)
