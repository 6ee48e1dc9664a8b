"""Composes functions of the DSL, likely compositions first, and says which tasks they solve.

`python search.py TASKS PROGRAMS [--devices cpu:2] [--json FILE]` reads the ARC tasks of a folder, makes at most
PROGRAMS programs, and runs them in a pool of its own. The first program that fits the training pairs of a task is the
answer; the test pairs only say whether it is right. The compositions are those of `GRAMMAR`. `search_plot.py` plots the
file. `protocol/client/examples/search.rs` does the same in Rust.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import time
from pathlib import Path

import gridpool
import numpy as np

#: What may be composed: a line is a price, a kind, and a form that gives a value of that kind.
GRAMMAR = Path(__file__).parents[2] / "client/examples/grammar.txt"
#: Steps that a program may run on a pair: what takes more is no short composition.
STEPS = 2_000
#: The highest price of a composition.
PRICE_MAX = 64


def main():
    parser = argparse.ArgumentParser(description="Says which ARC tasks short compositions solve.")
    parser.add_argument("tasks", type=Path, help="a folder of ARC tasks")
    parser.add_argument("programs", type=int, help="how many programs to try at most")
    parser.add_argument("--devices", help="as in cpu:2; all GPUs if left out")
    parser.add_argument("--json", type=Path, help="a file for what was solved and when")
    given = parser.parse_args()
    # Without an answer to its test nobody can say whether a task is solved.
    answered = [task for task in gridpool.tasks(given.tasks) if all(pair.output is not None for pair in task.pairs)]
    tasks = {task.name: task for task in answered if task.test}
    with gridpool.Pool(given.devices) as pool:
        found = solve(pool, tasks, given.programs)
    print("{solved} of {tasks} tasks solved, {missed} missed:".format(**found))
    print("{programs} programs, {evaluations} evaluations, {seconds:.1f} s".format(**found))
    if given.json:
        given.json.write_text(json.dumps(found) + "\n")


def solve(pool, tasks, budget):
    """Prints an answer for each task that a program fits. Returns the answers and the counts."""
    started = time.perf_counter()
    templates = list(compositions(GRAMMAR.read_text(), budget))
    search = pool.search(templates, tasks, pairs="all", steps=STEPS, only_solving=True)
    # The task of each pair.
    owners = np.repeat(list(search.tasks), [pairs.stop - pairs.start for pairs in search.tasks.values()])
    answers = {}
    for result in search:
        if result.error:
            continue
        for name in dict.fromkeys(owners[result.equal]):
            equal, train = result.equal[search.tasks[name]], len(tasks[name].train)
            if name in answers or not equal[:train].all():
                continue
            right, seconds = bool(equal.all()), time.perf_counter() - started
            program = chosen(templates, result.id)
            print(f"{seconds:8.2f} s  {name}  {'solved' if right else 'missed'} by  {program}")
            answers[name] = {"task": name, "right": right, "seconds": seconds, "program": program}
    solved = sum(answer["right"] for answer in answers.values())
    return {
        "tasks": len(tasks),
        "solved": solved,
        "missed": len(answers) - solved,
        "programs": search.summary["requested"],
        "refused": search.summary["refused"],
        "evaluations": search.summary["executed"],
        "devices": search.summary["devices"],
        "seconds": time.perf_counter() - started,
        "answers": list(answers.values()),
    }


def compositions(grammar, budget):
    """The compositions that give a grid, the lowest price first, while their programs are within the budget."""
    forms = [re.fullmatch(r"(\d+) (\w+) = (.*)", line).groups() for line in grammar.splitlines() if line[:1].isdigit()]
    cheaper = []
    for _ in range(PRICE_MAX + 1):
        priced = of_price(forms, cheaper)
        for text in priced["Grid"]:
            lists = re.findall(r"\[(.*?)\]", text)
            budget -= math.prod(len(words.split(",")) for words in lists)
            if budget < 0:
                return
            # Each hole gets a name.
            first, *others = text.split("?")
            yield "O = " + first + "".join(f"?h{at}{piece}" for at, piece in enumerate(others, start=1))
        cheaper.append(priced)


def of_price(forms, cheaper):
    """The compositions of the next price, by kind: forms, with cheaper compositions in the places of their kinds."""
    priced = {kind: [] for _, kind, _ in forms}
    for price, gives, form in forms:
        before, *pieces = re.split("[<>]", form)
        # What has been composed of the form, and what is left to be paid.
        begun = [(before, len(cheaper) - int(price))]
        while pieces:
            kind, behind, *pieces = pieces
            begun = [
                (text + one + behind, left - price)
                for text, left in begun
                for price in range(0 if pieces else left, left + 1)
                for one in (cheaper[price][kind] if price >= 0 else [])
            ]
        priced[gives] += [text for text, left in begun if left == 0]
    return priced


def chosen(templates, name):
    """The program of a result: its template, and in the place of each hole the word that was chosen."""
    number, _, choice = name.partition("[")
    program = templates[int(number)].removeprefix("O = ")
    for one in filter(None, choice.rstrip("]").split(",")):
        hole, word = one.split("=")
        program = re.sub(rf"\?{hole} in \[.*?\]", word, program)
    return program


if __name__ == "__main__":
    main()
