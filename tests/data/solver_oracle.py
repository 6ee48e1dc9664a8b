"""Runs arc-dsl's solvers with sets that iterate in canonical order, statement by statement, over ARC tasks.

usage: python3 solver_oracle.py ARC_DSL TASKS [--digest] [TASK ...]
       python3 solver_oracle.py ARC_DSL TASKS --mutants COUNT SEED
Prints a line of JSON for each pair of each task: {"task", "pair", "lines": [[name, value], ...]}. A value is the text
of `written`, or with --digest its SHA-256; null for functions; "!" and the name of an exception ends the list.
With --mutants it changes a name or a constant of solvers at random, and prints {"task", "text", "input", "value"} for each,
where value is the digest of the result on one pair, or "!" and the name of an exception.
arc-dsl is imported from the folder ARC_DSL: dsl.py, constants.py, arc_types.py, solvers.py.
"""

import ast
import copy
import hashlib
import json
import pathlib
import random
import signal
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


def by_count(choose):
    """arc-dsl's mostcommon or leastcommon, where equals that are no numbers go in canonical order."""

    def common(container):
        values = set(container)
        if not all(isinstance(value, int) for value in values):
            values = sorted(values, key=rank)
        return choose(values, key=container.count)

    return common


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


class TooLong(Exception):
    """A mutant has run for too long."""


def alarm(_signal, _frame):
    raise TooLong


def mutants(names, solvers, tasks, count, seed):
    """Prints mutants of solvers with their results."""
    chance = random.Random(seed)
    arities = {}
    functions = {}
    for name, value in names.items():
        if callable(value) and hasattr(value, "__code__"):
            arities.setdefault(value.__code__.co_argcount, []).append(name)
            functions[name] = value.__code__.co_argcount
    constants = [name for name, value in names.items() if name.isupper() and isinstance(value, (int, tuple))]
    signal.signal(signal.SIGALRM, alarm)
    while count > 0:
        solver = chance.choice(solvers)
        task = solver.name.removeprefix("solve_")
        changed = copy.deepcopy(solver)
        places = [node for node in ast.walk(changed) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)]
        places = [node for node in places if node.id in functions or node.id in constants]
        for node in chance.sample(places, min(len(places), chance.choice([1, 1, 2]))):
            if node.id in functions:
                alike = arities[functions[node.id]]
            else:
                alike = [name for name in constants if type(names[name]) is type(names[node.id])]
            node.id = chance.choice(alike)
        text = ast.unparse(changed)
        example = chance.choice(json.loads((tasks / f"{task}.json").read_text())["train"])
        grid = tuple(map(tuple, example["input"]))
        local = dict(names)
        exec(compile(text, task, "exec"), local)
        signal.setitimer(signal.ITIMER_REAL, 2)
        try:
            value = written(local[solver.name](grid))
            value = value and hashlib.sha256(value.encode()).hexdigest()
        except TooLong:
            continue
        except Exception as error:
            value = "!" + type(error).__name__
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        print(json.dumps({"task": task, "text": text, "input": example["input"], "value": value}))
        count -= 1


def main():
    folder, tasks = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    digests = "--digest" in sys.argv[3:]
    wanted = set(sys.argv[3:]) - {"--digest"}
    sys.setrecursionlimit(10_000)
    names = {"frozenset": CanonicalSet}
    for file in ("arc_types.py", "dsl.py", "constants.py"):
        text = (folder / file).read_text().replace("from arc_types import *", "")
        exec(compile(text, file, "exec"), names)
    names["mostcommon"], names["leastcommon"] = by_count(max), by_count(min)
    solvers = ast.parse((folder / "solvers.py").read_text())
    if "--mutants" in sys.argv:
        count, seed = map(int, sys.argv[-2:])
        bodies = [solver for solver in solvers.body if isinstance(solver, ast.FunctionDef)]
        return mutants(names, bodies, tasks, count, seed)
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
