"""Runs arc-dsl's solvers with sets that iterate in canonical order, statement by statement, over ARC tasks.

usage: python3 solver_oracle.py ARC_DSL TASKS [--digest] [TASK ...]
Prints a line of JSON for each pair of each task: {"task", "pair", "lines": [[name, value], ...]}. A value is the text
of `written`, or with --digest its SHA-256; null for functions; "!" and the name of an exception ends the list.
arc-dsl is imported from the folder ARC_DSL: dsl.py, constants.py, arc_types.py, solvers.py.
"""

import ast
import hashlib
import json
import pathlib
import sys


def rank(value):
    """The key of the canonical order of docs/src/design/machine.md."""
    if value is None:
        return (-1,)
    if isinstance(value, int):
        return (0, int(value))
    if isinstance(value, tuple):
        if len(value) == 2 and isinstance(value[0], int):
            second = value[1]
            if isinstance(second, int):
                return (1, value[0], second, -(1 << 40))
            if isinstance(second, tuple) and len(second) == 2 and isinstance(second[0], int):
                return (1, *second, value[0])
        return (2, tuple(rank(element) for element in value))
    if isinstance(value, frozenset):
        return (3, tuple(sorted(rank(element) for element in frozenset.__iter__(value))))
    return (9,)


class CanonicalSet(frozenset):
    """A set that iterates in canonical order."""

    def __iter__(self):
        order = self.__dict__.get("order")
        if order is None:
            order = sorted(frozenset.__iter__(self), key=rank)
            self.__dict__["order"] = order
        return iter(order)

    def __and__(self, other):
        return CanonicalSet(frozenset.__and__(self, other))

    def __or__(self, other):
        return CanonicalSet(frozenset.__or__(self, other))

    def __sub__(self, other):
        return CanonicalSet(frozenset.__sub__(self, other))

    def union(self, *others):
        return CanonicalSet(frozenset.union(self, *others))


def written(value):
    """The value as text; None for what has a function in it."""
    if value is None:
        return "nothing"
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, (tuple, frozenset)):
        parts = [written(element) for element in value]
        if None in parts:
            return None
        marks = "()" if isinstance(value, tuple) else "{}"
        return marks[0] + "".join(part + "," for part in parts) + marks[1]
    return None


def main():
    folder, tasks = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    digests = "--digest" in sys.argv[3:]
    wanted = set(sys.argv[3:]) - {"--digest"}
    sys.setrecursionlimit(10_000)
    names = {"frozenset": CanonicalSet}
    for file in ("arc_types.py", "dsl.py", "constants.py"):
        text = (folder / file).read_text().replace("from arc_types import *", "")
        exec(compile(text, file, "exec"), names)
    solvers = ast.parse((folder / "solvers.py").read_text())
    for solver in solvers.body:
        if not isinstance(solver, ast.FunctionDef):
            continue
        task = solver.name.removeprefix("solve_")
        if wanted and task not in wanted:
            continue
        statements = [statement for statement in solver.body if isinstance(statement, ast.Assign)]
        codes = [
            (statement.targets[0].id, compile(ast.Module([statement], []), task, "exec"))
            for statement in statements
        ]
        data = json.loads((tasks / f"{task}.json").read_text())
        for pair, example in enumerate(data["train"] + data["test"]):
            local = {"I": tuple(map(tuple, example["input"]))}
            lines = []
            for name, code in codes:
                try:
                    exec(code, names, local)
                except Exception as error:
                    lines.append([name, "!" + type(error).__name__])
                    break
                text = written(local[name])
                if text is not None and digests:
                    text = hashlib.sha256(text.encode()).hexdigest()
                lines.append([name, text])
            print(json.dumps({"task": task, "pair": pair, "lines": lines}))


main()
