"""The benchmark, run small: its values are right, and what is missing is skipped with a reason."""

from __future__ import annotations

import json
import os
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import DATA
from gridpool import _baselines, bench

SMALL = "--repetitions 3 --calls 5 --array 2000,7,30 --ragged 200 --pairs 5,20".split()


def test_a_small_run_measures_every_row(pool, capsys):
    dsl = os.environ.get("GRIDPOOL_ARC_DSL")
    where = ["--socket", pool.socket, "--arc", str(DATA / "tasks")]
    assert bench.main([*SMALL, *where, "--json", *(["--arc-dsl", dsl] if dsl else [])]) == 0
    document = json.loads(capsys.readouterr().out)
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
