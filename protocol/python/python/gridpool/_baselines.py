"""What the benchmark compares with: arc-dsl in one process and in all, and CuPy as the reports call it.

arc-dsl is read from a folder that the user names; nothing of it is here.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any, Optional

#: The 13 forms of the reports' benchmark over pairs, as programs; `forms` has them as calls.
FORMS = (
    "mapply(rot90)",
    "mapply(vmirror)",
    "mapply(rot180)",
    "mapply(identity)",
    "mapply(rot90) | mapply(rot90)",
    "mapply(objects(true, false, true))",
    "first",
    "second",
    "first | o_g(0)",
    "apply(o_g(1))",
    "apply(o_g(2))",
    "second | o_g(3)",
    "apply(rot90 | objects(true, false, true))",
)


def dsl(folder: str, module: str = "dsl") -> Any:
    """A module of arc-dsl in a folder."""
    if folder not in sys.path:
        sys.path.insert(0, folder)
    return importlib.import_module(module)


def forms(folder: str, pairs: Sequence[Any]) -> list[list[Any]]:
    """The values of the 13 forms, each over all pairs."""
    d = dsl(folder)

    def o_g(kind: int) -> Callable[[Any], Any]:
        return lambda grid: d.objects(grid, bool(kind & 4), bool(kind & 2), bool(kind & 1))

    def turned_objects(grid: Any) -> Any:
        return o_g(5)(d.rot90(grid))

    # `mapply` of a program does not merge the two results, so it is arc-dsl's `apply`.
    calls: list[Callable[[Any], Any]] = [
        lambda pair: d.apply(d.rot90, pair),
        lambda pair: d.apply(d.vmirror, pair),
        lambda pair: d.apply(d.rot180, pair),
        lambda pair: d.apply(d.identity, pair),
        lambda pair: d.apply(d.rot90, d.apply(d.rot90, pair)),
        lambda pair: d.apply(o_g(5), pair),
        d.first,
        lambda pair: pair[1],
        lambda pair: o_g(0)(d.first(pair)),
        lambda pair: d.apply(o_g(1), pair),
        lambda pair: d.apply(o_g(2), pair),
        lambda pair: o_g(3)(pair[1]),
        lambda pair: d.apply(turned_objects, pair),
    ]
    return [[call(pair) for pair in pairs] for call in calls]


def turned(folder: str, grids: Sequence[Any]) -> list[Any]:
    """`rot90` of every grid."""
    rot90 = dsl(folder).rot90
    return [rot90(grid) for grid in grids]


def solved(folder: str, name: str, grids: Sequence[Any], copies: int) -> list[Any]:
    """What a solver gives for copies of the grids."""
    solve = getattr(dsl(folder, "solvers"), name)
    return [solve(grid) for _ in range(copies) for grid in grids]


class Processes:
    """arc-dsl in as many processes as there are cores. They have started, and imported it, before anything is timed."""

    def __init__(self, folder: str) -> None:
        self.count = len(os.sched_getaffinity(0))
        self._folder = folder
        self._pool = ProcessPoolExecutor(self.count, get_context("spawn"))
        list(self._pool.map(turned, [folder] * self.count, [[]] * self.count))

    def forms(self, pairs: Sequence[Any]) -> list[list[Any]]:
        """As `forms`, with an equal share of the pairs for each process."""
        parts = list(self._pool.map(forms, [self._folder] * self.count, self._shares(pairs)))
        return [[value for part in parts for value in part[at]] for at in range(len(FORMS))]

    def turned(self, grids: Sequence[Any]) -> list[Any]:
        """As `turned`."""
        parts = self._pool.map(turned, [self._folder] * self.count, self._shares(grids))
        return [grid for part in parts for grid in part]

    def solved(self, name: str, grids: Sequence[Any], copies: int) -> list[Any]:
        """As `solved`, so many copies in each process: none has more to do than another."""
        parts = self._pool.map(solved, *([one] * self.count for one in (self._folder, name, grids, copies)))
        return [value for part in parts for value in part]

    def _shares(self, items: Sequence[Any]) -> list[Any]:
        size = -(-len(items) // self.count)
        return [items[at * size : (at + 1) * size] for at in range(self.count)]

    def close(self) -> None:
        """Ends the processes."""
        self._pool.shutdown()


class Cupy:
    """CuPy, if it is installed and has a GPU."""

    def __init__(self, module: Any) -> None:
        self._cp = module
        self._pinned: Any = None

    @classmethod
    def find(cls) -> tuple[Optional[Cupy], str]:
        """CuPy, or why it is not there."""
        try:
            module = importlib.import_module("cupy")
            module.cuda.runtime.getDeviceCount()
        except ImportError:
            return None, "cupy is not installed"
        except Exception as error:  # CuPy's own errors have no common base that is there without it.
            return None, f"cupy finds no GPU: {error}"
        return cls(module), ""

    def turned(self, array: Any) -> Any:
        """As the reports: a copy to the device, `rot90`, a copy back, with memory as NumPy has it."""
        cp = self._cp
        return cp.asnumpy(cp.ascontiguousarray(cp.rot90(cp.asarray(array), -1, (-2, -1))))

    def turned_pinned(self, array: Any) -> Any:
        """The same through pinned memory, which is allocated once."""
        import numpy as np

        cp = self._cp
        if self._pinned is None or self._pinned[0].shape != array.shape:
            h, w = array.shape[-2:]
            made = [cp.cuda.alloc_pinned_memory(array.nbytes) for _ in range(2)]
            sides = (array.shape, (*array.shape[:-2], w, h))
            self._pinned = [
                np.frombuffer(memory, array.dtype, array.size).reshape(shape) for memory, shape in zip(made, sides)
            ]
        source, target = self._pinned
        np.copyto(source, array)
        moved = cp.empty(array.shape, array.dtype)
        moved.set(source)
        cp.ascontiguousarray(cp.rot90(moved, -1, (-2, -1))).get(out=target)
        return target
