"""The calls of the reports' own benchmark, with the meaning that arc-dsl gives them.

The type of a result never depends on the size of the batch, and an error is never an empty result.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Union, cast

from ._errors import ItemError
from ._executor import program_of
from ._inputs import Task, tasks
from ._pool import Client
from ._program import Program, compile
from ._results import Results

Op = Union[str, Program, Callable[..., Any]]


def batch_apply(client: Client, op: Op, sample_lists: Sequence[Iterable[Any]]) -> list[Any]:
    """`apply(op, samples)` for each list: `op` of every sample, in a container of the list's own type."""
    lists = [list(samples) for samples in sample_lists]
    flat = [sample for samples in lists for sample in samples]
    values = iter(_run(client, op, flat))
    results: list[Any] = []
    for samples, given in zip(lists, sample_lists):
        made = [next(values) for _ in samples]
        kind = cast("Callable[[list[Any]], Any]", type(given))
        results.append(kind(made) if isinstance(given, (list, tuple, frozenset)) else tuple(made))
    return results


def batch_mapply(client: Client, op: Op, grid_lists: Sequence[Iterable[Any]]) -> list[Any]:
    """`mapply(op, grids)` for each list: `op` of every grid, merged by one level.

    Grids merge to one tuple of rows, as in arc-dsl. Where a grid has an error, the list's result is that `ItemError`.
    """
    results: list[Any] = []
    for values in batch_apply(client, op, [tuple(grids) for grids in grid_lists]):
        errors = [value for value in values if isinstance(value, ItemError)]
        results.append(errors[0] if errors else tuple(part for value in values for part in value))
    return results


def batch_o_g(
    client: Client, grids: Sequence[Any], types: Union[int, Sequence[int]]
) -> list[Any]:
    """`o_g(grid, type)` of each grid: a frozenset of objects. `types` is one type from 0 to 7, or one for each grid."""
    if isinstance(types, int):
        return _run(client, f"o_g({types})", list(grids))
    if len(types) != len(grids):
        raise ValueError(f"{len(grids)} grids have {len(types)} types: give one for each, or one for all")
    results: list[Any] = [None] * len(grids)
    for kind in sorted(set(types)):
        places = [place for place, own in enumerate(types) if own == kind]
        found = _run(client, f"o_g({kind})", [grids[place] for place in places])
        for place, value in zip(places, found):
            results[place] = value
    return results


def _run(client: Client, op: Op, samples: list[Any]) -> list[Any]:
    return client.run(program_of(op), samples).to_dsl() if samples else []


class Coordinator:
    """Runs programs over a folder of tasks: all tasks in one job for each program, loaded once."""

    def __init__(self, client: Client, source: Union[str, os.PathLike[str], Any]) -> None:
        self._client = client
        #: The tasks, in the order of their names.
        self.tasks: list[Task] = tasks(source)
        self._grids: Any = None
        self._pairs: Any = None

    def run(self, op: Op, **terms: Any) -> dict[str, list[Any]]:
        """The results by the task's name, as arc-dsl has them: of each pair, or of every grid, in the task's order."""
        program = program_of(op)
        shape = program if isinstance(program, Program) else compile(program, **_ties(terms))
        results = self.results(program, **terms)
        values = iter(results.to_dsl())
        sizes = [len(task.pairs if shape.pairs else task.grids) for task in self.tasks]
        return {task.name: [next(values) for _ in range(size)] for task, size in zip(self.tasks, sizes)}

    def results(self, op: Op, **terms: Any) -> Results:
        """The results of all tasks, one after the other."""
        program = program_of(op)
        shape = program if isinstance(program, Program) else compile(program, **_ties(terms))
        if shape.pairs:
            if self._pairs is None:
                self._pairs = self._client.load([pair for t in self.tasks for pair in t.pairs], pairs=True)
            return self._client.run(program, self._pairs, **terms)
        if self._grids is None:
            self._grids = self._client.load([grid for t in self.tasks for grid in t.grids], pairs=False)
        return self._client.run(program, self._grids, **terms)


def _ties(terms: dict[str, Any]) -> dict[str, str]:
    ties = terms.get("ties")
    return {} if ties is None else {"ties": ties}
