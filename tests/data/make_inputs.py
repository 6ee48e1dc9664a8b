#!/usr/bin/env python3
"""Writes the example inputs beside it: tasks/, grids.json, grids.npy, pairs.json, and bad/.

    python3 tests/data/make_inputs.py

Needs Python 3.8 or later and nothing else; the same seed gives the same files. The tasks have the
format of ARC and are our own; each is named for what its outputs show. What is in bad/ is refused.
"""

import json
import pathlib
import random

HERE = pathlib.Path(__file__).resolve().parent
RNG = random.Random(30)


def noise(h, w, colors):
    return [[RNG.choice(colors) for _ in range(w)] for _ in range(h)]


def painted(h, w, color_at):
    return [[color_at(i, j) for j in range(w)] for i in range(h)]


def rot90(grid):
    return [list(row) for row in zip(*grid[::-1])]


def vmirror(grid):
    return [row[::-1] for row in grid]


def recolored(grid, old, new):
    return [[new if v == old else v for v in row] for row in grid]


def commonest(grid):
    """Ties go to the first in CPython's set order, as in arc-dsl."""
    values = [v for row in grid for v in row]
    return [[max(set(values), key=values.count)]]


def task(rule, train, test):
    def pairs(inputs):
        return [{"input": grid, "output": rule(grid)} for grid in inputs]

    return {"train": pairs(train), "test": pairs(test)}


def spiral(side):
    def color_at(i, j):
        ring = min(i, j, side - 1 - i, side - 1 - j)
        at_a_seam = i == j + 1 and i < side // 2
        return 3 if (ring % 2 == 0) != at_a_seam else 0

    return painted(side, side, color_at)


def quarter_turn():
    return task(rot90, [noise(3, 5, [0, 0, 1, 2]), noise(2, 7, [0, 4])], [noise(6, 4, [0, 0, 3])])


def left_and_right():
    shapes = [[[0, 2, 2, 0], [0, 2, 0, 0], [5, 0, 0, 5]], [[7, 0, 0], [7, 7, 0]]]
    return task(vmirror, shapes, [noise(5, 8, [0, 0, 0, 6, 8])])


def one_becomes_five():
    grids = [noise(4, 4, [0, 1]), noise(1, 9, [0, 1, 5]), noise(9, 2, [1, 2])]
    return task(lambda grid: recolored(grid, 1, 5), grids[:2], grids[2:])


def commonest_color_with_ties():
    tied = [[[8, 0], [0, 8]], [[0, 8], [8, 0]], [[9, 1], [1, 9]], [[9, 8, 1, 0]]]
    return task(commonest, tied, [[[1, 9], [9, 1]], [[9, 8, 4, 1, 0]]])


def one_cell():
    return task(lambda grid: grid, [[[0]], [[9]]], [[[5]]])


def lines():
    row, column = noise(1, 30, [0, 0, 3]), noise(30, 1, [0, 7, 7])
    return task(rot90, [row, column], [noise(1, 2, [1, 2])])


def whole_boards():
    checkerboard = painted(30, 30, lambda i, j: (i + j) % 2)
    ten_tied = painted(30, 30, lambda i, j: (i * 30 + j) * 7 % 10)
    return task(rot90, [spiral(30), checkerboard], [ten_tied])


def unanswered():
    """Its test pairs have no output."""
    made = task(vmirror, [noise(3, 3, [0, 2]), noise(4, 2, [0, 3])], [noise(2, 5, [0, 4]), [[6]]])
    made["test"] = [{"input": pair["input"]} for pair in made["test"]]
    return made


TASKS = [
    quarter_turn, left_and_right, one_becomes_five, commonest_color_with_ties, one_cell, lines,
    whole_boards, unanswered,
]

GRIDS = [
    [[1, 2, 3], [4, 5, 6]],
    [[7]],
    [[8, 0], [0, 8]],
    [[1, 1, 0], [0, 2, 2]],
    [[1, 0], [0, 1]],
    noise(1, 12, [0, 5]),
    noise(12, 1, [0, 5]),
    noise(10, 13, [0, 0, 0, 1, 2, 9]),
]

# The second has no output; the fourth's output is smaller than its input, the fifth's wider.
PAIRS = [
    {"input": [[1, 2, 3], [4, 5, 6]], "output": [[4, 1], [5, 2], [6, 3]]},
    {"input": [[7, 0], [0, 7]]},
    {"input": [[8, 0], [0, 8]], "output": [[8, 0], [0, 9]]},
    {"input": [[0, 3, 0], [3, 3, 3], [0, 3, 0]], "output": [[3]]},
    {"input": [[5]], "output": [[5, 0, 5], [0, 5, 0]]},
]

# Of what is refused: one thing wrong with each. Arrays of grids unless the name says otherwise.
BAD = {
    "not_json.json": "[[[1, 2], [3, 4]]",
    "ragged.json": [[[1, 2], [3, 4]], [[1, 2, 3], [4, 5]]],
    "cell_10.json": [[[0, 1], [10, 2]]],
    "cell_minus_1.json": [[[0, 1], [2, -1]]],
    "cell_letter.json": [[[0, "a"]]],
    "cell_fraction.json": [[[0, 1.5]]],
    "cell_true.json": [[[0, True]]],
    "empty_grid.json": [[[1]], []],
    "empty_row.json": [[[1]], [[]]],
    "side_256.json": [[[0] * 256]],
    "cells_4160.json": [painted(64, 65, lambda i, j: 0)],
    "no_grids.json": [],
    "task_without_train_and_test.json": {"training": []},
    "task_without_input.json": {"train": [{"output": [[1]]}], "test": [{"input": [[1]]}]},
    "one_pair.json": {"input": [[1]], "output": [[1]]},
    "pair_among_grids.json": [[[1]], {"input": [[1]]}],
    "pair_with_empty_output.json": [{"input": [[1]], "output": []}],
    "pair_with_other_key.json": [{"input": [[1]]}, {"input": [[1]], "grid": [[1]]}],
    "pair_with_output_null.json": [{"input": [[1]], "output": None}],
    "pair_without_input.json": [{"input": [[1]]}, {"output": [[1]]}],
    "task_ragged.json": {"train": [{"input": [[1]], "output": [[1, 2], [3]]}], "test": []},
}


def npy(shape, descr, data):
    """A NumPy file, version 1.0 (numpy.org, "NPY format")."""
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape!r}, }}"
    padding = " " * (-(len(header) + 11) % 64)
    header = f"{header}{padding}\n".encode("latin1")
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + data


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif isinstance(content, str):
        path.write_text(content + "\n")
    else:
        path.write_text(json.dumps(content) + "\n")


def main():
    for make in TASKS:
        write(HERE / "tasks" / f"{make.__name__}.json", make())
    write(HERE / "grids.json", GRIDS)
    write(HERE / "pairs.json", PAIRS)
    cells = bytes(RNG.choice([0, 0, 1, 8]) for _ in range(5 * 4 * 6))
    write(HERE / "grids.npy", npy((5, 4, 6), "|u1", cells))
    bad = HERE / "bad"
    for name, content in BAD.items():
        write(bad / name, content)
    write(bad / "truncated.npy", npy((5, 4, 6), "|u1", cells)[:-1])
    write(bad / "float64.npy", npy((1, 2, 2), "<f8", bytes(32)))
    write(bad / "two_dimensions.npy", npy((2, 2), "|u1", bytes(4)))
    write(bad / "cell_10.npy", npy((1, 2, 2), "|u1", bytes([0, 1, 10, 2])))
    # A folder that holds no task; git keeps no empty ones.
    write(bad / "folder_without_tasks" / ".gitkeep", b"")


if __name__ == "__main__":
    main()
