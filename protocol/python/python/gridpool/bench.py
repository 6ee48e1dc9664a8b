"""`python -m gridpool.bench`: gridpool from Python, beside the Rust client, arc-dsl and CuPy, in one run.

Every row that has another to compare with is checked against it before it is timed. A row is the median of its
repetitions, with the lowest and the highest; warm-ups are not counted. `x` is its rate over that of the first row of its
section. With `--solvers` only arc-dsl's solvers are measured, and a line says what all of them say together.
"""

from __future__ import annotations

import argparse
import json
import marshal
import math
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, Optional

from . import _native
from ._baselines import FORMS, Cupy, Processes, forms, turned
from ._inputs import tasks
from ._pool import Client, Pool, connect
from ._solvers import ORDERED, Solver, Summary, differing, solvers

#: Grids of a synthetic batch have up to so many rows and columns.
_SIDE_MAX = 18
#: Fewest repetitions that have a spread.
_REPETITIONS_MIN = 3
#: The repetitions of a solver begin within so many seconds.
_SPAN = 0.1
#: A first run of a solver in arc-dsl that takes longer, seconds, is the only one.
_SLOW = 1.0
#: Deadline of a job of a solver, seconds.
_DEADLINE = 600.0


@dataclass
class Row:
    """One thing that was timed: seconds of each repetition."""

    section: str
    name: str
    items: int
    seconds: list[float] = field(default_factory=lambda: list[float]())
    #: Why it was not timed.
    skipped: str = ""
    #: Whether its values are those of the others; `None` if there is nothing to compare with.
    right: Optional[bool] = None
    #: Its rate over that of the section's first row.
    ratio: Optional[float] = None

    @property
    def median(self) -> float:
        """The median of the repetitions, seconds."""
        return statistics.median(self.seconds)

    @property
    def rate(self) -> float:
        """Items a second."""
        return self.items / self.median


class _Bench:
    def __init__(self, options: argparse.Namespace, client: Client) -> None:
        self.options = options
        self.client = client
        self.rows: list[Row] = []
        self.summaries: list[Summary] = []
        #: Solvers with other values than arc-dsl, and on how many inputs.
        self.differ: dict[str, int] = {}
        self.dsl: Optional[str] = options.arc_dsl
        self.processes = Processes(self.dsl) if self.dsl else None
        self.cupy, self.no_cupy = Cupy.find()

    def close(self) -> None:
        if self.processes is not None:
            self.processes.close()

    def run(self) -> None:
        sections = (self.lone, self.array, self.ragged, self.forms)
        for section in (self.solvers,) if self.options.solvers else sections:
            section()

    def row(
        self,
        section: str,
        name: str,
        items: int,
        call: Optional[Callable[[], Any]],
        *,
        skipped: str = "",
        calls: int = 1,
        check: Optional[Callable[[Any], bool]] = None,
        span: float = math.inf,
    ) -> None:
        """Times a call, `calls` times in each repetition; the time is that of one. None begins after `span` seconds."""
        row = Row(section, name, items, skipped=skipped)
        if call is not None:
            value = call()
            row.right = check(value) if check is not None else None
            del value
            for _ in range(self.options.repetitions):
                if sum(row.seconds) >= span:
                    break
                started = time.perf_counter()
                for _ in range(calls):
                    call()
                row.seconds.append((time.perf_counter() - started) / calls)
        self.add(row)

    def add(self, row: Row) -> None:
        first = next((one for one in self.rows if one.section == row.section and one.seconds), None)
        if row.seconds and first is not None:
            row.ratio = row.rate / first.rate
        self.rows.append(row)
        if not self.options.json and (not self.options.solvers or row.right is False):
            print(_line(row), flush=True)

    # ---- sections ----

    def lone(self) -> None:
        """One call of one grid: medians over many calls. The rows take turns, so that the machine is alike for all."""
        section, calls = "one grid", self.options.calls
        grid = _grids(1, self.options.seed)[0]
        want = _turned(grid)
        native, run = self.client._native, self.client.run
        rust = Row(section, "gridpool from Rust", 1)
        timed: list[tuple[Row, Callable[[], float]]] = [
            (rust, lambda: statistics.median(_native._time_calls(native, "rot90", [grid], calls)))
        ]

        def turns(name: str, call: Callable[[], Any], right: bool) -> None:
            timed.append((Row(section, name, 1, right=right), partial(_median_of, call, calls)))

        right = run("rot90", [grid]).to_dsl() == [want]
        turns("gridpool from Python", lambda: run("rot90", [grid]), right)
        turns("gridpool from Python, as tuples", lambda: run("rot90", [grid]).to_dsl(), right)
        folder = self.dsl
        if folder:
            turns("arc-dsl, 1 process", lambda: turned(folder, [grid]), turned(folder, [grid]) == [want])
        if self.cupy is not None:
            import numpy as np

            cupy, array = self.cupy, np.array(grid, np.uint8)
            turns("CuPy, as the reports", lambda: cupy.turned(array), _tuples(cupy.turned(array)) == want)
        for _ in range(self.options.repetitions):
            for row, time_once in timed:
                row.seconds.append(time_once())
        for row, _ in timed:
            self.add(row)
        if not folder:
            self.skip(section, "arc-dsl, 1 process", 1, _NO_DSL)
        if self.cupy is None:
            self.skip(section, "CuPy, as the reports", 1, self.no_cupy)

    def array(self) -> None:
        """`[N, H, W]` uint8 through `rot90`, array to array."""
        import numpy as np

        n, h, w = self.options.array
        section = f"[{n:,}, {h}, {w}]"
        array = np.random.default_rng(self.options.seed).integers(0, 10, (n, h, w), np.uint8)
        want = np.rot90(array, -1, (1, 2))

        def check(value: Any) -> bool:
            return bool(np.array_equal(value, want))

        rust = Row(section, "gridpool from Rust", n)
        # The first call makes the shared memory.
        rust.seconds = _native._time_calls(self.client._native, "rot90", array, self.options.repetitions + 1)[1:]
        self.add(rust)
        self.row(section, "gridpool from Python", n, lambda: self.client.run("rot90", array).stack(), check=check)
        loaded = self.client.load(array)
        self.row(
            section, "gridpool from Python, loaded", n, lambda: self.client.run("rot90", loaded).stack(), check=check
        )
        del loaded
        self.row(section, "NumPy", n, lambda: np.ascontiguousarray(np.rot90(array, -1, (1, 2))), check=check)
        if self.cupy is None:
            self.skip(section, "CuPy, as the reports", n, self.no_cupy)
            self.skip(section, "CuPy, pinned", n, self.no_cupy)
        else:
            self.row(section, "CuPy, as the reports", n, partial(self.cupy.turned, array), check=check)
            self.row(section, "CuPy, pinned", n, partial(self.cupy.turned_pinned, array), check=check)

    def ragged(self) -> None:
        """Lists of tuples in, lists of tuples out."""
        n = self.options.ragged
        section, grids = f"{n:,} tuples", _grids(n, self.options.seed)
        want = [_turned(grid) for grid in grids]

        def check(value: Any) -> bool:
            return bool(value == want)

        # CPython's own C code that reads as many tuples and makes as many: no other path can be faster by much.
        self.row(section, "bound: marshal out and in", n, lambda: marshal.loads(marshal.dumps(grids)))
        self.row(section, "gridpool from Python", n, lambda: self.client.run("rot90", grids).to_dsl(), check=check)
        self.against_dsl(section, n, lambda folder: turned(folder, grids), lambda p: p.turned(grids), check)
        if self.cupy is not None:
            import numpy as np

            turn = self.cupy.turned
            self.row(
                section,
                "CuPy, as the reports",
                n,
                lambda: [_tuples(turn(np.array(grid, np.uint8))) for grid in grids],
                check=check,
            )
        else:
            self.skip(section, "CuPy, as the reports", n, self.no_cupy)

    def forms(self) -> None:
        """The reports' 13 forms over real pairs: with arc-dsl's own values, and as arrays."""
        pairs = _pairs(self.options)
        for n in self.options.pairs:
            self.forms_over([pairs[at % len(pairs)] for at in range(n)])

    def forms_over(self, pairs: list[Any]) -> None:
        """The 13 forms over these pairs."""
        n = len(pairs)
        section = f"13 forms, {n:,} pairs"
        want = forms(self.dsl, pairs) if self.dsl else None

        def check(value: Any) -> bool:
            return want is None or bool(value == want)

        def run() -> list[Any]:
            loaded = self.client.load(pairs, pairs=True)
            under_way = [self.client.submit(form, loaded) for form in FORMS]
            return [future.result() for future in under_way]

        self.against_dsl(section, n, lambda folder: forms(folder, pairs), lambda p: p.forms(pairs), check)
        self.row(section, "gridpool from Python", n, lambda: [r.to_dsl() for r in run()], check=check)
        self.row(section, "gridpool from Python, as arrays", n, lambda: [r.to_numpy() for r in run()])

    def solvers(self) -> None:
        """arc-dsl's solvers, each over copies of its own task's inputs."""
        folder, processes = self.dsl, self.processes
        assert folder is not None and processes is not None
        found = solvers(folder, self.options.arc)
        # The processes import the solvers.
        processes.solved(found[0].name, found[0].grids, 1)
        for solver in found:
            self.solver(solver, processes)
        for name in dict.fromkeys(row.name for row in self.rows):
            rows = [row for row in self.rows if row.name == name]
            rates = [(row.rate, row.section) for row in rows]
            self.summaries.append(Summary.of(name, rates, [row.ratio for row in rows if row.ratio is not None]))
        if not self.options.json:
            for summary in self.summaries:
                print(summary.line())
            for task in sorted(self.differ.keys() & ORDERED):
                print(f"{task}: {self.differ[task]} inputs have other values, for CPython's own order of sets")

    def solver(self, solver: Solver, processes: Processes) -> None:
        """A solver: in arc-dsl over as many of the copies as it has time for, in gridpool over all."""
        section, dsl, grids = solver.task, f"arc-dsl, {processes.count} processes", solver.grids
        # With few copies the time is that of the messages.
        each, most = 1, max(1, self.options.copies // processes.count)
        while True:
            started = time.perf_counter()
            values = processes.solved(solver.name, grids, each)
            took = time.perf_counter() - started
            if each == most or took >= _SPAN / self.options.repetitions:
                break
            each = min(4 * each, most)
        if took > _SLOW:
            self.add(Row(section, dsl, len(values), [took]))
        else:
            self.row(section, dsl, len(values), lambda: processes.solved(solver.name, grids, each), span=_SPAN)

        def check(value: list[Any]) -> bool:
            inputs = differing(value, values[: len(grids)])
            if inputs:
                self.differ[solver.task] = inputs
            return inputs <= ORDERED.get(solver.task, 0)

        batch = grids * self.options.copies
        run = partial(self.client.run, solver.program, batch, deadline=_DEADLINE)
        self.row(section, "gridpool from Python", len(batch), lambda: run().to_dsl(), check=check, span=_SPAN)

    def against_dsl(
        self,
        section: str,
        items: int,
        one: Callable[[str], Any],
        all_of: Callable[[Processes], Any],
        check: Callable[[Any], bool],
    ) -> None:
        folder, processes = self.dsl, self.processes
        if folder is None or processes is None:
            self.skip(section, "arc-dsl, 1 process", items, _NO_DSL)
            self.skip(section, "arc-dsl, all processes", items, _NO_DSL)
            return
        name = f"arc-dsl, {processes.count} processes"
        self.row(section, name, items, lambda: all_of(processes), check=check)
        self.row(section, "arc-dsl, 1 process", items, lambda: one(folder), check=check)

    def skip(self, section: str, name: str, items: int, why: str) -> None:
        self.row(section, name, items, None, skipped=why)


_NO_DSL = "name arc-dsl's folder: --arc-dsl FOLDER, or GRIDPOOL_ARC_DSL"


def _median_of(call: Callable[[], Any], calls: int) -> float:
    seconds: list[float] = []
    for _ in range(calls):
        started = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds)


def _turned(grid: Any) -> Any:
    return tuple(zip(*grid[::-1]))


def _tuples(array: Any) -> Any:
    return tuple(map(tuple, array.tolist()))


def _grids(n: int, seed: int) -> list[Any]:
    """Grids of several shapes, as tuples."""
    chosen = random.Random(seed)

    def grid() -> Any:
        h, w = chosen.randint(1, _SIDE_MAX), chosen.randint(1, _SIDE_MAX)
        colors = chosen.sample(range(10), chosen.randint(1, 4))
        return tuple(tuple(chosen.choices(colors, k=w)) for _ in range(h))

    return [grid() for _ in range(n)]


def _pairs(options: argparse.Namespace) -> list[Any]:
    """Pairs of real tasks if there are any, else synthetic ones."""
    if options.arc is None:
        grids = _grids(2 * max(options.pairs), options.seed)
        return list(zip(grids[::2], grids[1::2]))

    def rows(grid: Any) -> Any:
        return tuple(map(tuple, grid))

    found = [pair for task in tasks(options.arc) for pair in task.pairs if pair.output is not None]
    return [(rows(pair.input), rows(pair.output)) for pair in found]


def _line(row: Row) -> str:
    head = f"{row.section:<24} {row.name:<32}"
    if not row.seconds:
        return f"{head} skipped: {row.skipped}"
    low, high = min(row.seconds), max(row.seconds)
    ratio = "" if row.ratio is None else f"{row.ratio:8.2f}x"
    wrong = "  WRONG" if row.right is False else ""
    return f"{head} {_span(row.median):>10} {_span(low):>10} - {_span(high):<10} {row.rate:14,.0f}/s{ratio}{wrong}"


def _span(seconds: float) -> str:
    for factor, unit in ((1.0, "s"), (1e3, "ms")):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"


def _whole(least: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        number = int(text)
        if number < least:
            raise argparse.ArgumentTypeError(f"{number} is less than {least}")
        return number

    return parse


def _list(count: Optional[int]) -> Callable[[str], list[int]]:
    def parse(text: str) -> list[int]:
        numbers = [_whole(1)(part) for part in text.split(",")]
        if count is not None and len(numbers) != count:
            raise argparse.ArgumentTypeError(f"write {count} numbers, such as 1000,30,30")
        return numbers

    return parse


def _options(arguments: Optional[Sequence[str]]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m gridpool.bench", description=__doc__)
    parser.add_argument("--devices", help="devices of a pool of its own, such as cpu:2; by default all GPUs")
    parser.add_argument("--socket", help="measure the pool at this socket instead")
    parser.add_argument("--arc-dsl", default=os.environ.get("GRIDPOOL_ARC_DSL"), help="arc-dsl's folder, to compare with")
    parser.add_argument(
        "--arc", "--tasks", default=os.environ.get("GRIDPOOL_ARC"), help="a folder of ARC tasks; else pairs are made"
    )
    parser.add_argument("--solvers", action="store_true", help="measure only the solvers of arc-dsl's folder")
    parser.add_argument("--copies", type=_whole(1), default=250, help="of each input of a solver (250)")
    parser.add_argument("--repetitions", type=_whole(_REPETITIONS_MIN), default=5, help="of each row (5)")
    parser.add_argument("--calls", type=_whole(1), default=2_000, help="of one grid, in a repetition (2000)")
    parser.add_argument("--array", type=_list(3), default=[100_000, 30, 30], help="N,H,W of the array (100000,30,30)")
    parser.add_argument("--ragged", type=_whole(1), default=100_000, help="grids as tuples (100000)")
    parser.add_argument("--pairs", type=_list(None), default=[20, 80, 400, 4_000], help="sizes of the 13 forms (20,80,400,4000)")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    options = parser.parse_args(arguments)
    if options.solvers and not (options.arc_dsl and options.arc):
        parser.error("--solvers takes arc-dsl's folder and tasks: --arc-dsl FOLDER --tasks PATH")
    return options


def _open(options: argparse.Namespace) -> Client:
    return connect(options.socket) if options.socket else Pool(options.devices)


def _document(bench: _Bench) -> Iterator[tuple[str, Any]]:
    status = bench.client.status()
    yield "machine", {"cores": len(os.sched_getaffinity(0)), "python": sys.version.split()[0]}
    yield "devices", [row.get("device") for row in status["workers"]]
    yield "pairs", bench.options.arc or "synthetic"
    yield "rows", [asdict(row) for row in bench.rows]
    if bench.options.solvers:
        yield "summaries", [asdict(summary) for summary in bench.summaries]
        yield "differ", bench.differ


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Measures, prints a table or a document, and returns 1 if values differ."""
    options = _options(arguments)
    with _open(options) as client:
        bench = _Bench(options, client)
        try:
            bench.run()
        finally:
            bench.close()
        if options.json:
            print(json.dumps(dict(_document(bench))))
    return 1 if any(row.right is False for row in bench.rows) else 0


if __name__ == "__main__":
    sys.exit(main())
