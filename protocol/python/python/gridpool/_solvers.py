"""The benchmark's solvers: those of arc-dsl's folder, each with its own task's inputs, and what their rates say."""

from __future__ import annotations

import ast
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

from ._errors import BadInput
from ._inputs import tasks
from ._program import Program, compile

#: Solvers that depend on the order in which CPython lists a set, and on how many of their inputs gridpool differs.
ORDERED = {"228f6490": 1, "e40b9e2f": 2}


@dataclass(frozen=True)
class Solver:
    """`solve_TASK`, and the inputs of the task's pairs."""

    task: str
    program: Program
    grids: list[Any]

    @property
    def name(self) -> str:
        """The name of the function."""
        return f"solve_{self.task}"


def solvers(folder: str, source: Any) -> list[Solver]:
    """The solvers of the folder's `solvers.py` for the tasks of a source, in the order of the tasks."""
    lines = Path(folder, "solvers.py").read_text().splitlines()
    functions = [node for node in ast.parse("\n".join(lines)).body if isinstance(node, ast.FunctionDef)]
    texts = {node.name: "\n".join(lines[node.lineno - 1 : node.end_lineno]) for node in functions}
    found: list[Solver] = []
    for task in tasks(source):
        text = texts.get(f"solve_{task.name}")
        if text is not None:
            found.append(Solver(task.name, compile(text), [tuple(map(tuple, pair.input)) for pair in task.pairs]))
    if not found:
        raise BadInput(f"{folder} has no solver of these tasks: its solvers.py defines solve_TASK")
    return found


def differing(values: list[Any], want: list[Any]) -> int:
    """On how many inputs the values of copies differ from those wanted; copies follow each other as a whole."""
    return sum(any(value != right for value in values[at :: len(want)]) for at, right in enumerate(want))


@dataclass(frozen=True)
class Summary:
    """What the rates of solvers say together: items a second."""

    name: str
    solvers: int
    median: float
    #: A tenth of the solvers are slower.
    p10: float
    worst: float
    slowest: str
    #: The median of the rates over those of arc-dsl; `None` of arc-dsl itself.
    ratio: Optional[float]

    @classmethod
    def of(cls, name: str, rates: list[tuple[float, str]], ratios: list[float]) -> Summary:
        """The summary of rates with their tasks."""
        rates = sorted(rates)
        worst, slowest = rates[0]
        median = statistics.median(rate for rate, _ in rates)
        ratio = statistics.median(ratios) if ratios else None
        return cls(name, len(rates), median, rates[len(rates) // 10][0], worst, slowest, ratio)

    def line(self) -> str:
        """A line for people."""
        median, p10, worst = (_rate(rate) for rate in (self.median, self.p10, self.worst))
        head = f"{self.solvers} solvers"
        rates = f"median {median}, a tenth below {p10}, slowest {worst} ({self.slowest})"
        ratio = "" if self.ratio is None else f" {self.ratio:.3g}x"
        return f"{head:<24} {self.name:<32} {rates}{ratio}"


def _rate(rate: float) -> str:
    return f"{rate:,.0f}/s" if rate >= 100 else f"{rate:.3g}/s"
