#!/usr/bin/env python3
"""Writes cpython.json: what real CPython says about colour sets, and about every op on small grids.

    python3 tests/data/make_cpython_fixture.py                          # keeps the ARC digests it finds
    python3 tests/data/make_cpython_fixture.py ../shared/arc/training   # makes the ARC digests again

Needs CPython 3.8 or later and nothing else; the same seed gives the same file. The Rust oracle is
compared with it by tests/oracle/against_cpython.rs, so nothing here may be translated from Rust, or
the other way round: both are written from the definitions of the ops.
"""

import hashlib
import itertools
import json
import pathlib
import platform
import random
import sys

HERE = pathlib.Path(__file__).resolve().parent
FIXTURE = HERE / "cpython.json"

# --- The ops. A grid is a tuple of rows, a cell (color, (row, col)), an object a frozenset of cells.


def identity(grid):
    return grid


def dmirror(grid):
    return tuple(zip(*grid))


def hmirror(grid):
    return grid[::-1]


def vmirror(grid):
    return tuple(row[::-1] for row in grid)


def rot90(grid):
    return tuple(zip(*grid[::-1]))


def rot180(grid):
    return tuple(row[::-1] for row in grid[::-1])


def rot270(grid):
    return tuple(zip(*grid))[::-1]


def cmirror(grid):
    return tuple(zip(*(row[::-1] for row in grid[::-1])))


def replace(grid, old, new):
    return tuple(tuple(new if v == old else v for v in row) for row in grid)


def switch(grid, a, b):
    swap = {a: b, b: a}
    return tuple(tuple(swap.get(v, v) for v in row) for row in grid)


def colors(grid):
    return [v for row in grid for v in row]


def palette(grid):
    return list(set(colors(grid)))


def palette_lowest(grid):
    return sorted(set(colors(grid)))


def mostcolor(grid):
    values = colors(grid)
    return max(set(values), key=values.count)


def mostcolor_lowest(grid):
    values = colors(grid)
    return max(sorted(set(values)), key=values.count)


def leastcolor(grid):
    values = colors(grid)
    return min(set(values), key=values.count)


def leastcolor_lowest(grid):
    values = colors(grid)
    return min(sorted(set(values)), key=values.count)


def numcolors(grid):
    return len(set(colors(grid)))


def colorcount(grid, color):
    return colors(grid).count(color)


def around(place, diagonal):
    row, col = place
    steps = [(-1, 0), (1, 0), (0, -1), (0, 1)]
    if diagonal:
        steps += [(-1, -1), (-1, 1), (1, -1), (1, 1)]
    return {(row + down, col + right) for down, right in steps}


def objects_without(background, grid, univalued, diagonal):
    """A set of objects; `background` belongs to none of them."""
    value_at = {(i, j): v for i, row in enumerate(grid) for j, v in enumerate(row)}
    found, seen = set(), set()
    for start, start_value in value_at.items():
        if start in seen or start_value == background:
            continue
        places, candidates = set(), {start}
        while candidates:
            places |= candidates
            candidates = {
                place
                for known in candidates
                for place in around(known, diagonal)
                if place in value_at
                and place not in places
                and value_at[place] != background
                and (not univalued or value_at[place] == start_value)
            }
        seen |= places
        found.add(frozenset((value_at[place], place) for place in places))
    return found


def canonical(found):
    """Objects by first cell, cells row-major, each object flat: color, row, col, color, row, …"""
    listed = [sorted(obj, key=lambda cell: cell[1]) for obj in found]
    listed.sort(key=lambda cells: cells[0][1])
    return [[n for v, (i, j) in cells for n in (v, i, j)] for cells in listed]


def objects(grid, univalued, diagonal, without_bg):
    background = mostcolor(grid) if without_bg else None
    return canonical(objects_without(background, grid, univalued, diagonal))


def objects_lowest(grid, univalued, diagonal, without_bg):
    background = mostcolor_lowest(grid) if without_bg else None
    return canonical(objects_without(background, grid, univalued, diagonal))


CPYTHON = {
    name: globals()[name]
    for name in (
        "identity dmirror hmirror vmirror rot90 rot180 rot270 cmirror replace switch "
        "palette mostcolor leastcolor numcolors colorcount objects"
    ).split()
}
LOWEST = CPYTHON | {
    name: globals()[f"{name}_lowest"] for name in "palette mostcolor leastcolor objects".split()
}


def run(program, grid, ops):
    """The result of a program such as `rot90 | replace(0, 5)`, ready for JSON."""
    value = grid
    for call in program.split(" | "):
        name, _, arguments = call.partition("(")
        value = ops[name](value, *json.loads(f"[{arguments.removesuffix(')')}]"))
    if isinstance(value, tuple):
        return ["".join(map(str, row)) for row in value]
    return value


# --- What is run.

SYMMETRIES = "identity rot90 rot180 rot270 hmirror vmirror dmirror cmirror".split()
RECOLORINGS = ["replace(0, 5)", "replace(5, 0)", "replace(3, 3)", "switch(0, 8)", "switch(1, 1)"]
COUNTS = ["numcolors", "colorcount(0)", "colorcount(7)", "mostcolor", "leastcolor", "palette"]
OBJECTS = [
    f"objects({u}, {d}, {b})" for u, d, b in itertools.product(["false", "true"], repeat=3)
]
CHAINS = [
    "rot90 | replace(0, 5) | objects(true, false, true)",
    "cmirror | switch(0, 8) | palette",
    "rot270 | replace(9, 1) | mostcolor",
    "hmirror | leastcolor",
]
EVERY = SYMMETRIES + RECOLORINGS + COUNTS + OBJECTS + CHAINS


def sequences(rng):
    """Every order of first appearance of up to four colours, then longer sequences with repeats."""
    for length in range(1, 5):
        yield from itertools.permutations(range(10), length)
    for _ in range(1_200):
        few = rng.sample(range(10), rng.randint(1, 10))
        yield tuple(rng.choice(few) for _ in range(rng.randint(2, 16)))
    for _ in range(300):  # All tied, and not in order of appearance.
        tied = rng.sample(range(10), rng.randint(2, 10)) * rng.randint(1, 3)
        rng.shuffle(tied)
        yield tuple(tied)


def grids(rng):
    """Small grids like those of ARC tasks, and the shapes and ties that break implementations."""
    yield from [((0,),), ((9,),), ((8, 0), (0, 8)), ((0, 8), (8, 0)), ((9, 1), (1, 9)), ((1, 9), (9, 1))]
    yield from [((1, 1, 0), (0, 2, 2)), ((1, 0), (0, 1)), ((9, 8, 1, 0),), ((9,), (8,), (1,), (0,))]
    yield (tuple(rng.choice((0, 3)) for _ in range(30)),)
    yield tuple((rng.choice((8, 0, 1)),) for _ in range(30))
    yield tuple(tuple(range(10)) for _ in range(2))
    yield tuple(tuple((i + j) % 2 for j in range(7)) for i in range(7))
    yield tuple(tuple(4 for _ in range(5)) for _ in range(3))
    for _ in range(28):
        few = rng.sample(range(10), rng.randint(1, 10))
        weights = [rng.choice((1, 1, 3, 12)) for _ in few]
        h, w = rng.randint(1, 9), rng.randint(1, 9)
        yield tuple(tuple(rng.choices(few, weights, k=w)) for _ in range(h))


def task_digest(task):
    """A digest of every op on every grid of a task; the Rust side hashes the same lines."""
    digest = hashlib.sha256()
    for pair in task["train"] + task["test"]:
        for side in ("input", "output"):
            if side in pair:
                grid = tuple(map(tuple, pair[side]))
                for program in EVERY:
                    line = json.dumps(run(program, grid, CPYTHON), separators=(",", ":"))
                    digest.update(f"{line}\n".encode())
    return digest.hexdigest()[:16]


def main():
    rng = random.Random(400)
    sets = []
    for sequence in sequences(rng):
        most, least = (best(set(sequence), key=sequence.count) for best in (max, min))
        fields = (sequence, list(set(sequence)), [most], [least])
        sets.append(" ".join("".join(map(str, field)) for field in fields))
    cases = []
    for grid in grids(rng):
        results = {program: run(program, grid, CPYTHON) for program in EVERY}
        lowest = {program: run(program, grid, LOWEST) for program in EVERY}
        differ = {program: lowest[program] for program in EVERY if lowest[program] != results[program]}
        shown = ["".join(map(str, row)) for row in grid]
        cases.append({"grid": shown, "cpython": results, "lowest_where_it_differs": differ})
    if len(sys.argv) > 1:
        files = sorted(pathlib.Path(sys.argv[1]).glob("*.json"))
        arc = {file.stem: task_digest(json.loads(file.read_text())) for file in files}
    else:
        arc = json.loads(FIXTURE.read_text())["arc"] if FIXTURE.exists() else {}
    document = {
        "about": f"Written by {pathlib.Path(__file__).name} with CPython {platform.python_version()}.",
        "arc_programs": EVERY,
        "arc": arc,
        "sequence_order_most_least": sets,
        "grids": cases,
    }
    # One case a line, so that a change shows as one line.
    text = json.dumps(document, separators=(",", ":"))
    for before in ('{"grid":', '"arc":', '"sequence_order_most_least":', '"grids":'):
        text = text.replace(before, f"\n{before}")
    FIXTURE.write_text(text + "\n")


if __name__ == "__main__":
    main()
