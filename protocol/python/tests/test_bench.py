"""The benchmark, run small: its values are right, and what is missing is skipped with a reason."""

from __future__ import annotations

import os
from json import dumps, loads
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import DATA
from gridpool import _baselines, _solvers, bench

SMALL = "--repetitions 3 --calls 5 --array 2000,7,30 --ragged 200 --pairs 5,20".split()


def test_a_small_run_measures_every_row(pool, capsys):
    dsl = os.environ.get("GRIDPOOL_ARC_DSL")
    where = ["--socket", pool.socket, "--arc", str(DATA / "tasks")]
    assert bench.main([*SMALL, *where, "--json", *(["--arc-dsl", dsl] if dsl else [])]) == 0
    document = loads(capsys.readouterr().out)
    rows = document["rows"]
    assert {row["section"] for row in rows} == {
        "one grid", "[2,000, 7, 30]", "200 tuples", "13 forms, 5 pairs", "13 forms, 20 pairs",
    }
    for row in rows:
        if row["skipped"]:
            assert not row["seconds"] and ("arc-dsl" in row["name"]) == ("--arc-dsl" in row["skipped"])
        else:
            assert len(row["seconds"]) == 3 and min(row["seconds"]) > 0 and row["right"] is not False
    timed = {row["name"] for row in rows if row["seconds"]}
    assert {"gridpool from Rust", "gridpool from Python"} <= timed and (dsl is None or "arc-dsl, 1 process" in timed)


def test_the_table_and_wrong_flags(pool, capsys):
    assert bench.main([*SMALL, "--socket", pool.socket]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any("gridpool from Rust" in line and "/s" in line for line in lines)
    for wrong in (["--repetitions", "2"], ["--array", "1,2"], ["--pairs", "x"]):
        with pytest.raises(SystemExit):
            bench.main(wrong)


#: As arc-dsl's, but a row is not turned.
DSL = """
def rot90(grid):
    return tuple(zip(*grid[::-1])) if len(grid) > 1 else grid
def vmirror(grid):
    return tuple(row[::-1] for row in grid)
"""
SOLVERS = """from dsl import *
def solve_mirror(I):
    return vmirror(I)
def solve_turn(I):
    return rot90(I)
def solve_e40b9e2f(I):
    O = rot90(I)
    return O
"""


def test_a_solver_with_other_values_is_named(pool, tmp_path, capsys):
    (tmp_path / "dsl.py").write_text(DSL)
    (tmp_path / "solvers.py").write_text(SOLVERS)
    pairs = [{"input": [[1, 2], [3, 4]], "output": [[0]]}, {"input": [[5, 6, 7]]}]
    task = {"train": pairs[:1], "test": pairs[1:]}

    def measured(*names: str, json: bool) -> tuple[int, str]:
        (tmp_path / "tasks.json").write_text(dumps({name: task for name in names}))
        where = ["--socket", pool.socket, "--arc-dsl", str(tmp_path), "--tasks", str(tmp_path / "tasks.json")]
        code = bench.main(["--solvers", "--copies", "20", *where, *(["--json"] if json else [])])
        return code, capsys.readouterr().out

    # That one may differ on one input.
    code, out = measured("mirror", "e40b9e2f", "unsolved", json=True)
    document = loads(out)
    assert code == 0 and document["differ"] == {"e40b9e2f": 1}
    assert [(row["section"], row["right"]) for row in document["rows"] if row["name"] == "gridpool from Python"] == [
        ("mirror", True), ("e40b9e2f", True),
    ]
    for summary in document["summaries"]:
        assert summary["solvers"] == 2 and 0 < summary["worst"] <= summary["p10"] <= summary["median"]
    assert [row["items"] for row in document["rows"]][1::2] == [40, 40]
    assert [summary["ratio"] is None for summary in document["summaries"]] == [True, False]
    code, out = measured("mirror", "turn", "e40b9e2f", json=False)
    wrong, *summaries, named = out.splitlines()
    assert code == 1 and wrong.startswith("turn ") and wrong.endswith("WRONG") and named.startswith("e40b9e2f: 1 ")
    assert len(summaries) == 2 and all(line.startswith("3 solvers ") for line in summaries)
    with pytest.raises(SystemExit):
        bench.main(["--solvers", "--arc-dsl", "", "--tasks", "x"])


def test_each_copy_of_an_input_is_compared():
    assert _solvers.differing([1, 2, 1, 2], [1, 2]) == 0
    assert _solvers.differing([1, 2, 1, 3, 1, 3], [1, 2]) == 1


class OnDevice(np.ndarray):
    """An array of CuPy, as far as the benchmark uses it."""

    def set(self, source):
        self[...] = source

    def get(self, out):
        out[...] = self
        return out


def test_cupy_turns_as_the_others_do():
    # NumPy stands in where there is no GPU.
    cupy = SimpleNamespace(
        asarray=lambda array: array.view(OnDevice),
        asnumpy=np.array,
        ascontiguousarray=lambda array: np.ascontiguousarray(array).view(OnDevice),
        empty=lambda shape, dtype: np.empty(shape, dtype).view(OnDevice),
        rot90=np.rot90,
        cuda=SimpleNamespace(alloc_pinned_memory=bytearray),
    )
    for shape in ((3, 4), (5, 3, 4), (5, 3, 4)):
        array = np.random.default_rng(len(shape)).integers(0, 10, shape, np.uint8)
        want = np.rot90(array, -1, (-2, -1))
        baseline = _baselines.Cupy(cupy)
        assert (baseline.turned(array) == want).all() and (baseline.turned_pinned(array) == want).all()
