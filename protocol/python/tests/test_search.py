"""Searches from Python: verdicts as arrays, in order, while programs are still read; what is refused, and Ctrl-C."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import gridpool
import numpy as np
import pytest
from conftest import DATA, turned

TASKS = DATA / "tasks"


def task(*inputs, function):
    pairs = [{"input": grid, "output": function(grid)} for grid in inputs]
    return {"train": pairs[:-1], "test": pairs[-1:]}


def test_verdicts_are_arrays_with_an_element_for_each_pair(pool, grids):
    tasks = {
        "turn": task(*grids[:4], function=turned),
        "same": task(*grids[4:7], function=lambda grid: grid),
    }
    programs = [
        ("turn", "rot90"),
        {"id": "same", "program": "O = identity(I)"},
        "x1 = rot90(I)\nO = x1",
        gridpool.compile("rot90 | rot90"),
        "O = rot91(I)",
        "o_g(5)",
        "O = subgrid(ofcolor(I, NEG_ONE), I)",
    ]
    for score in ("exact", "cells"):
        search = pool.search(programs, tasks, pairs="all", score=score)
        results = list(search)
        assert [result.id for result in results] == ["turn", "same", "2", "3", "4", "5", "6"]
        assert search.tasks == {"turn": slice(0, 4), "same": slice(4, 7)}
        turn, same, again, _, odd, objects, failing = results
        assert turn.statuses.dtype == np.uint8 and turn.equal[:4].all() and turn.solved == ["turn"]
        assert (turn.statuses == again.statuses).all()
        assert "same" in same.solved and same.equal[4:].all()
        assert odd.statuses.size == 0 and "rot91" in odd.error and objects.error.startswith("the program gives")
        assert {gridpool.STATUSES[status] for status in failing.statuses.tolist()} == {"EmptyArg"}
        if score == "exact":
            assert turn.equal_cells is None and turn.equal_shape is None
        else:
            outputs = [turned(grid) for grid in grids[:4]]
            want = [len(grid) * len(grid[0]) for grid in outputs]
            assert turn.equal_cells[:4].tolist() == want and turn.equal_shape[:4].all()
        summary = search.summary
        assert (summary["requested"], summary["refused"], summary["deduplicated"]) == (7, 2, 1)
        assert summary["executed"] == 4 * 7 and summary["devices"]


def test_bytecode_has_the_verdicts_of_its_text(pool):
    command = [sys.executable, "-m", "gridpool", "compile", "rot90 | hmirror", "O = trim(I)"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    made = [json.loads(line) for line in done.stdout.splitlines()]
    texts = list(pool.search(["rot90 | hmirror", "O = trim(I)"], TASKS))
    raw = {"id": "raw", "bytecode": base64.b64decode(made[0]["bytecode"])}
    search = pool.search([*made, raw, "hmirror(rot90(I))"], TASKS)
    results = list(search)
    assert [result.id for result in results] == ["1", "2", "raw", "3"]
    for result, text in zip(results, [*texts, texts[0], texts[0]]):
        assert result.error is None and (result.statuses == text.statuses).all()
    assert search.summary["deduplicated"] == 2
    (cut,) = pool.search([{"bytecode": raw["bytecode"][:-1]}], TASKS)
    assert "other lengths than its header says" in cut.error
    with pytest.raises(ValueError, match="the bytecode of program 0 is no base64"):
        next(pool.search([{"bytecode": "rot90 | hmirror"}], TASKS))
    with pytest.raises(ValueError, match="leave one of them out"):
        next(pool.search([{"program": "rot90", "bytecode": made[0]["bytecode"]}], TASKS))


def test_verdicts_equal_those_of_single_runs(pool, grids):
    names = ["rot90", "hmirror", "dmirror", "compress", "trim", "tophalf"]
    programs = [f"{a} | {b}" for a in names for b in names]
    tasks = {str(at): task(*grids[3 * at : 3 * at + 3], function=turned) for at in range(5)}
    inputs, outputs = zip(*((p["input"], p["output"]) for t in tasks.values() for p in t["train"]))
    for program, result in zip(programs, pool.search(programs, tasks)):
        single = pool.run("O = I | " + program, list(inputs)).to_dsl()
        want = [got == output for got, output in zip(single, outputs)]
        assert result.equal.tolist() == want, program


def test_templates_and_steps(pool):
    search = pool.search(["O = replace(I, ?a:color, 5)", "replace(?a, 5)"], TASKS, steps=1)
    results = list(search)
    assert [result.id for result in results[:10]] == [f"0[a={color}]" for color in range(10)]
    assert "?a:color" in results[10].error
    # The step behind the first is one too many.
    assert {gridpool.STATUSES[status] for status in results[0].statuses.tolist()} == {"StepLimit"}
    assert search.summary["capped"] == search.summary["executed"]


def test_results_come_while_programs_are_still_read(pool):
    read = []

    def programs():
        for at in range(50_000):
            read.append(at)
            yield f"upscale({1 + at % 30})"

    with pool.search(programs(), TASKS) as search:
        assert next(search).error is None
        assert len(read) < 50_000
    rest = sum(1 for _ in search)
    assert rest < 50_000


def test_results_do_not_wait_for_a_slow_iterator_of_programs(pool):
    taken, behind = [], []

    def programs():
        for at in range(60):
            # What a generator takes that thinks about each program.
            threading.Event().wait(0.02)
            behind.append(at - len(taken))
            yield f"O = replace(I, {at % 10}, {at // 10})"

    for result in pool.search(programs(), TASKS):
        taken.append(result.id)
    assert len(taken) == 60
    assert min(behind[30:]) < 30, behind


def test_results_before_an_error_are_given_first():
    ids = [str(at) for at in range(200)]
    with gridpool.Pool(devices="cpu:1") as own:
        search = own.search([], TASKS)
        native = search._native
        assert native.feed([(id, f"O = replace(I, {int(id) % 10}, {int(id) // 20})") for id in ids]) == 200
        until(lambda: search.summary["requested"] == 200)
    # The pool is gone, and this program finds that out.
    native.feed([("last", "O = trim(I)")])
    until(lambda: "gridpool-search" not in threads())
    results = []
    with pytest.raises(gridpool.Error):
        for result in search:
            results.append(result.id)
    assert results == ids


def until(is_so):
    give_up = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < give_up
        threading.Event().wait(0.01)


def threads():
    names = []
    for task in Path("/proc/self/task").iterdir():
        # A thread may end between the listing and the reading.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            names.append((task / "comm").read_text().strip())
    return names


def test_what_is_no_search_is_told(pool):
    with pytest.raises(TypeError, match="one text"):
        pool.search("rot90", TASKS)
    with pytest.raises(ValueError, match='"train" or "all"'):
        pool.search([], TASKS, pairs="test")
    with pytest.raises(ValueError, match="exact or cells"):
        pool.search([], TASKS, score="pixels")
    with pytest.raises(ValueError, match="no task has a pair"):
        pool.search([], {"train": [{"input": [[1]]}]})
    with pytest.raises(TypeError, match="program 0 is a int"):
        next(pool.search([7], TASKS))
    assert list(pool.search([], TASKS)) == []


def test_an_exception_of_the_programs_is_the_callers(pool):
    def programs():
        yield "rot90"
        raise LookupError("no more")

    search = pool.search(programs(), TASKS)
    with pytest.raises(LookupError, match="no more"):
        list(search)


def test_ctrl_c_ends_a_search(pool):
    def programs():
        while True:
            yield "O = power(rot90, multiply(width(I), 9999))(I)"

    search = pool.search(programs(), TASKS)
    next(search)
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        for _ in search:
            pass
    timer.join()
    assert pool.run("rot90", [[[1, 2]]]).to_lists() == [[[1], [2]]]
