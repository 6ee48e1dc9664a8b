"""Solvers from Python: results of every kind are the values that arc-dsl gives, with their types."""

from __future__ import annotations

import importlib

import gridpool
import pytest

#: Bodies of solvers, by what they return.
BODIES = {
    "a grid": "x1 = rot90(I)\nreturn hconcat(I, hmirror(I))",
    "objects": "return objects(I, T, F, T)",
    "an object": "return asobject(I)",
    "a patch": "x1 = palette(I)\nreturn ofcolor(I, ONE)",
    "a number": "x1 = objects(I, T, F, F)\nreturn size(x1)",
    "a flag": "return both(portrait(I), hline(asindices(I)))",
    "a vector": "x1 = shape(I)\nreturn add(x1, UNITY)",
    "a pair of grids": "return astuple(I, rot90(I))",
    "a pair of a set and a vector": "return astuple(palette(I), shape(I))",
    "a pair in a pair": "return astuple(astuple(numcolors(I), I), ofcolor(I, TWO))",
    "a set of numbers": "x1 = objects(I, T, F, F)\nreturn apply(size, x1)",
    "a set of patches": "x1 = objects(I, T, T, F)\nreturn apply(toindices, x1)",
    "a set of sets": "x1 = objects(I, F, F, T)\nreturn apply(palette, x1)",
    "a set of pairs": "x1 = objects(I, T, F, F)\nreturn apply(lambda o: (color(o), ulcorner(o)), x1)",
    "a tuple of grids": "return vsplit(upscale(I, TWO), TWO)",
    "a tuple of numbers": "x1 = objects(I, T, F, F)\nx2 = apply(size, x1)\nreturn order(x2, identity)",
    "an error": "x1 = ofcolor(I, NINE)\nreturn subgrid(x1, I)",
}


def typed(value):
    """A value with the type of each part of it, so that `True` is not 1 and a tuple no list."""
    if isinstance(value, frozenset):
        return frozenset, frozenset(map(typed, value))
    return type(value), tuple(map(typed, value)) if isinstance(value, tuple) else value


def text(body: str) -> str:
    return "def solve_it(I):\n" + "".join(f"    {line}\n" for line in body.splitlines())


@pytest.mark.parametrize("what", BODIES)
def test_values_of_solvers_equal_arc_dsl_s(pool, dsl, grids, what):
    names = {**vars(dsl), **vars(importlib.import_module("constants"))}
    exec(text(BODIES[what]), names)
    results = pool.run(text(BODIES[what]), grids[:150])
    values = results.to_dsl()
    errors = 0
    for at, grid in enumerate(grids[:150]):
        try:
            want = names["solve_it"](grid)
        except (IndexError, StopIteration, ValueError):
            assert at in results.errors and isinstance(values[at], gridpool.ItemError)
            errors += 1
            continue
        assert typed(values[at]) == typed(want), grid
    assert errors < 150 and (errors > 0 or what != "an error")


def test_values_of_solvers_as_lists(pool):
    body = "x1 = objects(I, T, F, T)\nreturn astuple(apply(palette, x1), astuple(I, size(x1)))"
    values = pool.run(text(body), [[[0, 1, 1], [0, 0, 2]]]).to_lists()
    sets, (grid, number) = values[0]
    assert sorted(sets) == [[1], [2]] and grid == [[0, 1, 1], [0, 0, 2]] and number == 2


def test_a_mistake_in_a_solver_has_its_line(pool):
    with pytest.raises(gridpool.ProgramError) as caught:
        pool.run("x1 = objects(I, T, F, T)\nreturn argmex(x1, size)", [[[1]]])
    error = caught.value
    assert error.program[error.start : error.end] == "argmex" and "argmax" in str(error)
