#!/usr/bin/env python3
"""Writes cpython.json: what real CPython says about colour sets, and about every op on small grids.

    python3 tests/data/make_cpython_fixture.py                     # keeps the ARC digests it finds
    python3 tests/data/make_cpython_fixture.py "$GRIDPOOL_ARC"     # makes them again from a folder of tasks

Needs CPython 3.8 or later and nothing else; the same seed gives the same file; the digests take
some minutes. dsl.py says what the ops mean. The Rust oracle is compared with the file by
tests/oracle/against_cpython.rs, so nothing here may be translated from Rust, or the other way
round: both are written from the definitions of the ops.
"""

import hashlib
import itertools
import json
import multiprocessing
import pathlib
import platform
import random
import sys

import dsl

HERE = pathlib.Path(__file__).resolve().parent
FIXTURE = HERE / "cpython.json"

# --- Which programs.

MIRRORS = "identity hmirror vmirror dmirror cmirror".split()
CORNERS = "ulcorner urcorner llcorner lrcorner center centerofmass".split()
ENDS = "uppermost lowermost leftmost rightmost".split()
KEYS = "size height width color".split() + ENDS

ON_GRIDS = [
    *MIRRORS, *"transpose rot90 rot180 rot270".split(),
    "replace(0, 5)", "replace(5, 0)", "replace(3, 3)", "switch(0, 8)", "switch(1, 1)",
    "numcolors", "colorcount(0)", "colorcount(7)", "mostcolor", "leastcolor", "palette", "p_g",
    *(f"objects({u}, {d}, {b})" for u, d, b in itertools.product(["false", "true"], repeat=3)),
    "o_g(1)", "o_g(6)", "partition", "fgpartition",
    "ofcolor(0)", "ofcolor(1)", "ofcolor(7)", "asindices", "asobject",
    "crop(0, 0, 2, 2)", "crop(1, 0, 3, 9)", "crop(2, 3, 255, 1)", "crop(0, 0, 0, 3)", "crop(1, 1, 3, 0)",
    "crop(9, 0, 1, 1)", "crop(0, 255, 1, 255)", "tophalf", "bottomhalf", "lefthalf", "righthalf",
    "trim", "compress", "upscale(1)", "upscale(2)", "upscale(3)", "upscale(30)", "hupscale(2)",
    "hupscale(30)", "vupscale(3)", "vupscale(30)", "downscale(1)", "downscale(2)", "downscale(3)",
    "downscale(255)", "canvas(0, 1, 1)", "canvas(7, 2, 5)", "hsplit(1)", "hsplit(2)", "hsplit(3)",
    "hsplit(4)", "vsplit(1)", "vsplit(2)", "vsplit(3)", "vsplit(5)", "height", "width", "shape",
    "square", "portrait",
]  # fmt: skip
ON_COLORED = ["mostcolor", "leastcolor", "palette", "numcolors", "colorcount(1)"]
ON_PIECES = [
    *MIRRORS, "size", "toindices", "toobject", "recolor(4)", "shift(1, 2)", "shift(-3, 0)", "normalize",
    "backdrop", "delta", "box", "inbox", "outbox", "corners", "fill(3)", "underfill(3)", "cover",
    "subgrid", "height", "width", "shape", *ENDS, *CORNERS, "square", "portrait", "hline", "vline",
    "shift(-1, 2) | subgrid", "shift(2, 1) | subgrid", "shift(2, -3) | toobject", "outbox | fill(6)",
    "outbox | toobject", "inbox | underfill(5)", "delta | fill(2)", "box | toobject | paint",
    "shift(1, 1) | cover", "delta | subgrid", "delta | toobject | mostcolor", "shift(90, -90) | fill(1)",
    "outbox | outbox | subgrid", "corners | delta | size", "recolor(7) | shift(1, 0) | underpaint",
]  # fmt: skip
ON_OBJECTS = [
    *ON_COLORED, "color", "paint", "underpaint", "move(0, 0)", "move(1, -1)", "move(-2, 3)",
    "upscale(1)", "upscale(2)", "upscale(3) | paint", "upscale(2) | subgrid", "shift(1, 1) | paint",
    "vmirror | paint", "dmirror | underpaint", "normalize | paint", "shift(0, 2) | move(1, 0)",
    "cmirror | subgrid",
]  # fmt: skip
ON_LISTS = [
    *(f"colorfilter({c})" for c in (0, 1, 8)), *(f"sizefilter({n})" for n in (0, 1, 2, 4)),
    *(f"{best}({key})" for best in ("argmax", "argmin") for key in KEYS),
    "first", "second", "last", "nth(0)", "nth(1)", "nth(2)", "nth(-1)", "nth(-2)", "nth(-4096)",
    "nth(4095)", "merge", "size", "sizefilter(1) | size", "colorfilter(1) | merge | cover",
    "sizefilter(2) | first", "sizefilter(9) | last", "sizefilter(4000) | nth(0)",
    "sizefilter(4000) | nth(-1)", "sizefilter(4000) | nth(1)", "sizefilter(4000) | argmin(color)",
]  # fmt: skip
OBJECTS = ["o_g(5) | argmax(size)", "o_g(3) | first", "fgpartition | last", "o_g(7) | sizefilter(3) | merge", "asobject"]
PATCHES = ["ofcolor(1)", "asindices", "o_g(5) | argmin(leftmost) | toindices", "ofcolor(8) | shift(-1, 2)"]
LISTS = ["o_g(4)", "o_g(3)", "fgpartition"]
CHAINS = [
    "rot90 | replace(0, 5) | objects(true, false, true)",
    "cmirror | switch(0, 8) | palette",
    "rot270 | replace(9, 1) | mostcolor",
    "fill(5, ofcolor(0))", "fill(0, o_g(5) | argmax(size) | delta)", "underfill(5, ofcolor(1) | outbox)",
    "paint(o_g(5) | merge | shift(1, 1))", "underpaint(fgpartition | first | recolor(4))",
    "cover(partition | last)", "subgrid(o_g(7) | argmin(size))", "move(1, 2, o_g(5) | first)",
    "fill(3, ofcolor(0)) | fill(4, ofcolor(3)) | mostcolor",
    "objects(true, false, true) | argmax(size) | subgrid | compress | rot90",
    "crop(0, 0, 3, 3) | upscale(2) | o_g(5) | argmax(width) | paint",
    "hsplit(2) | first", "hsplit(2) | second | lefthalf", "hsplit(3) | last", "hsplit(3) | nth(-2)",
    "vsplit(2) | nth(1)", "vsplit(3) | apply(rot90) | hconcat", "hsplit(2) | hconcat", "vsplit(2) | vconcat",
    "hsplit(2) | cellwise(0)", "vsplit(2) | cellwise(9) | palette", "hsplit(2) | apply(vmirror) | cellwise(5)",
    "hsplit(3) | apply(mostcolor)", "vsplit(2) | apply(o_g(5) | size)", "hsplit(4) | apply(shape)",
    "hsplit(2) | apply(o_g(4) | first | upscale(2))", "vsplit(2) | apply(fill(3, ofcolor(0))) | vconcat",
    "hsplit(2) | apply(ofcolor(1) | outbox)", "hsplit(5) | hconcat", "vsplit(4) | vconcat",
    "trim | trim | rot90", "compress | tophalf", "tophalf | tophalf | tophalf | canvas(2, 2, 2)",
    "lefthalf | palette", "righthalf | o_g(5)", "crop(0, 0, 0, 0) | height", "crop(0, 0, 0, 0) | canvas(1, 3, 1)",
    "upscale(8) | upscale(9) | height",
    "hupscale(30) | hupscale(30)", "asindices | outbox | outbox | outbox | size",
    "asobject | upscale(30) | upscale(3)", "compress | compress", "trim | mostcolor",
    "o_g(5) | merge | mostcolor", "o_g(1) | argmax(size) | palette", "o_g(3) | argmin(size) | leastcolor",
    "downscale(2) | upscale(2)", "canvas(8, 64, 64) | vsplit(30) | nth(29)", "canvas(3, 16, 255) | hupscale(2)",
    "canvas(1, 16, 255) | asindices | outbox", "canvas(1, 254, 16) | asindices | outbox | height",
    "canvas(1, 2, 253) | asindices | outbox | width", "canvas(1, 2, 254) | asobject | outbox",
]  # fmt: skip
ON_PAIRS = [
    "first", "second", "last", "nth(0)", "nth(-1)", "nth(-2)", "get_nth_t(1)", "hconcat", "vconcat", "cellwise(0)",
    "cellwise(7)", "apply(rot90)", "mapply(cmirror)", "apply(identity)", "apply(palette)",
    "apply(mostcolor)", "apply(o_g(5))", "apply(o_g(5) | argmax(size) | subgrid)", "apply(rot90 | rot90)",
    "apply(shape)", "apply(square)", "apply(ofcolor(0))", "apply(asobject)", "apply(fill(5, ofcolor(0)))",
    "apply(tophalf) | vconcat", "apply(lefthalf) | hconcat", "apply(tophalf) | second",
    "mapply(dmirror) | cellwise(3)", "first | o_g(7)", "second | compress", "hconcat | palette",
    "vconcat | o_g(4) | size", "apply(crop(0, 0, 2, 2)) | cellwise(1)", "apply(canvas(3, 2, 2)) | vconcat",
    "apply(crop(0, 0, 2, 2)) | first", "apply(o_g(5) | merge | paint)", "apply(trim) | first | canvas(1, 1, 1)",
    "apply(compress) | apply(rot90) | second", "apply(fgpartition | nth(1) | outbox)",
    "apply(canvas(1, 64, 64)) | hconcat", "apply(canvas(1, 64, 64)) | vconcat | upscale(2)",
    "hconcat | hsplit(2) | cellwise(0)", "apply(ofcolor(1) | delta | size)", "apply(upscale(9)) | vconcat",
]  # fmt: skip


def after(producers, consumers):
    return [f"{first} | {then}" for first in producers for then in consumers]


GRID_PROGRAMS = (
    ON_GRIDS
    + after(LISTS, ON_LISTS)
    + after(OBJECTS, ON_PIECES + ON_OBJECTS)
    + after(PATCHES, ON_PIECES)
    + CHAINS
)
# Less of the same for the 400 tasks, and nothing that makes large sets.
ARC_GRID_PROGRAMS = (
    [program for program in ON_GRIDS if "upscale(3" not in program and program != "p_g"]
    + after(["o_g(5)"], ON_LISTS[:23])
    + after(["o_g(3)"], ["argmax(size)", "argmin(color)", "last", "colorfilter(0)", "sizefilter(1)"])
    + after(["o_g(7) | argmax(size)"], ON_PIECES + ON_OBJECTS)
    + after(["ofcolor(8) | shift(-1, 2)"], ON_PIECES[:-15])
    + [program for program in CHAINS if "upscale" not in program and "canvas(1," not in program]
)


# --- Which grids.


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


def random_grid(rng, longest):
    few = rng.sample(range(10), rng.randint(1, 5)) + [1, 8][: rng.randint(0, 2)]
    weights = [rng.choice((1, 1, 3, 12)) for _ in few]
    h, w = rng.randint(1, longest), rng.randint(1, longest)
    return tuple(tuple(rng.choices(few, weights, k=w)) for _ in range(h))


def grids(rng):
    """Small grids like those of ARC tasks, and the shapes and ties that break implementations."""
    yield from [((0,),), ((9,),), ((8, 0), (0, 8)), ((0, 8), (8, 0)), ((9, 1), (1, 9)), ((1, 9), (9, 1))]
    yield from [((1, 1, 0), (0, 2, 2)), ((1, 0), (0, 1)), ((9, 8, 1, 0),), ((9,), (8,), (1,), (0,))]
    yield (tuple(rng.choice((0, 1, 3)) for _ in range(13)),)
    yield tuple((rng.choice((8, 0, 1)),) for _ in range(14))
    yield tuple(range(10)), tuple(reversed(range(10)))
    yield tuple(tuple((i + j) % 2 for j in range(5)) for i in range(5))
    yield tuple(tuple(4 for _ in range(4)) for _ in range(3))
    yield ((0, 0, 0, 0, 0), (0, 1, 1, 1, 0), (0, 1, 8, 1, 0), (0, 1, 1, 1, 0), (0, 0, 0, 0, 0))
    yield ((0, 0, 8, 0, 0, 0), (0, 8, 0, 8, 0, 3), (1, 0, 8, 0, 0, 3), (1, 1, 0, 0, 0, 0))
    for _ in range(16):
        yield random_grid(rng, 6)


def pairs(rng):
    yield from [[((1,),), ((1,),)], [((1, 2),), None], [((1, 2), (3, 4)), ((1, 2), (3, 4))]]
    yield from [[((1, 0), (0, 1)), ((1, 0, 8),)], [((1,), (8,)), ((0, 8), (8, 8), (1, 0))]]
    for at in range(20):
        grid = random_grid(rng, 5)
        kind = at % 4
        if kind == 0:  # Of one shape, and much in common.
            other = tuple(tuple(rng.choice((v, v, 1)) for v in row) for row in grid)
        elif kind == 1:
            other = None if at == 1 else dsl.rot90(grid)
        else:
            other = random_grid(rng, 5)
        yield [grid, other]


# --- Random chains, well typed.

COLOR = list(range(10))
STEPS = {
    "grid": [
        *((name, [], "grid") for name in MIRRORS + "rot90 rot180 rot270".split()),
        *((name, [], "grid") for name in "tophalf bottomhalf lefthalf righthalf trim compress".split()),
        ("replace", [COLOR, COLOR], "grid"), ("switch", [COLOR, COLOR], "grid"),
        ("crop", [range(3), range(3), range(1, 6), range(1, 6)], "grid"), ("upscale", [range(1, 4)], "grid"),
        ("hupscale", [range(1, 4)], "grid"), ("vupscale", [range(1, 4)], "grid"),
        ("downscale", [range(1, 4)], "grid"), ("canvas", [COLOR, range(1, 4), range(1, 4)], "grid"),
        ("o_g", [range(8)], "list"), ("o_g", [range(8)], "list"), ("partition", [], "list"),
        ("fgpartition", [], "list"), ("ofcolor", [COLOR], "patch"), ("asindices", [], "patch"),
        ("asobject", [], "object"), ("palette", [], "end"), ("mostcolor", [], "end"),
        ("hsplit", [range(1, 5)], "tuple"), ("vsplit", [range(1, 5)], "tuple"),
    ],
    "list": [
        ("colorfilter", [COLOR], "list"), ("sizefilter", [range(6)], "list"), ("merge", [], "object"),
        ("argmax", [KEYS], "object"), ("argmin", [KEYS], "object"), ("nth", [range(-3, 4)], "object"),
        ("first", [], "object"), ("last", [], "object"), ("size", [], "end"),
    ],
    "patch": [
        *((name, [], "patch") for name in MIRRORS + "normalize backdrop delta box inbox outbox corners".split()),
        ("shift", [range(-3, 4), range(-3, 4)], "patch"), ("toobject", [], "object"),
        ("recolor", [COLOR], "object"), ("fill", [COLOR], "grid"), ("underfill", [COLOR], "grid"),
        ("cover", [], "grid"), ("subgrid", [], "grid"), *((name, [], "end") for name in CORNERS + ENDS),
        *((name, [], "end") for name in "size shape square portrait hline vline".split()),
    ],
    "tuple": [("hconcat", [], "grid"), ("vconcat", [], "grid"), ("first", [], "grid"), ("last", [], "grid")],
}  # fmt: skip
STEPS["object"] = [(name, of, "object" if name in MIRRORS + ["normalize", "shift"] else to) for name, of, to in STEPS["patch"]] + [
    ("toindices", [], "patch"), ("paint", [], "grid"), ("underpaint", [], "grid"),
    ("move", [range(-3, 4), range(-3, 4)], "grid"), ("upscale", [range(1, 4)], "object"),
    ("palette", [], "end"), ("leastcolor", [], "end"), ("color", [], "end"),
]  # fmt: skip


def chain(rng, kind, longest, may_split=True):
    """Calls on a value of this kind, and the kind that they give."""
    calls = []
    while len(calls) < longest and kind != "end":
        name, arguments, gives = rng.choice(STEPS[kind])
        if gives == "tuple" and not may_split:
            continue
        if kind == "tuple" and rng.random() < 0.5:
            inner, inner_kind = chain(rng, "grid", 3, may_split=False)
            calls.append(f"apply({inner})")
            kind = "tuple" if inner_kind == "grid" else "end"
            continue
        chosen = ", ".join(str(rng.choice(of)) for of in arguments)
        calls.append(f"{name}({chosen})" if arguments else name)
        kind = gives
    return " | ".join(calls), kind


# --- What is written down.


def shown(grid):
    return grid and ["".join(map(str, row)) for row in grid]


def results(programs, item):
    """A line for every program, and under `lowest` the lines that differ."""
    lines = []
    for dsl.LOWEST in (False, True):
        lines.append([dsl.show(dsl.run(program, item)) for program in programs])
    lowest = {program: b for program, a, b in zip(programs, *lines) if a != b}
    return {"cpython": lines[0], "lowest_where_it_differs": lowest}


def random_cases(rng):
    for at in range(500):
        text, kind = chain(rng, "grid" if at % 5 else "tuple", rng.randint(2, 8))
        grid = random_grid(rng, 6)
        item = grid if at % 5 else [grid, random_grid(rng, 6)]
        shown_item = shown(grid) if at % 5 else [shown(side) for side in item]
        yield {"program": text, "item": shown_item} | results([text], item)


def task_digests(file):
    """A digest of every program on all grids, or pairs, of a task; the Rust side makes the same."""
    task = json.loads(file.read_text())
    pairs = [[tuple(map(tuple, pair[side])) for side in ("input", "output")] for pair in task["train"] + task["test"]]
    grids = [grid for pair in pairs for grid in pair]
    digests = []
    for programs, items in ((ARC_GRID_PROGRAMS, grids), (ON_PAIRS, pairs)):
        for program in programs:
            lines = "".join(dsl.show(dsl.run(program, item)) + "\n" for item in items)
            digests.append(hashlib.sha256(lines.encode()).digest())
    return file.stem, digests


def arc_digests(folder):
    """By task and by program, so that a difference says where to look."""
    with multiprocessing.Pool(2) as pool:
        tasks = list(pool.imap(task_digests, sorted(folder.glob("*.json"))))
    programs = zip(ARC_GRID_PROGRAMS + ON_PAIRS, zip(*(digests for _, digests in tasks)))
    return {
        "arc_grid_programs": ARC_GRID_PROGRAMS,
        "arc_pair_programs": ON_PAIRS,
        "arc_by_program": {program: joint(digests) for program, digests in programs},
        "arc": {name: joint(digests) for name, digests in tasks},
    }


def joint(digests):
    return hashlib.sha256(b"".join(digests)).hexdigest()[:16]


def main():
    rng = random.Random(400)
    sets = []
    for sequence in sequences(rng):
        most, least = (best(set(sequence), key=sequence.count) for best in (max, min))
        fields = (sequence, list(set(sequence)), [most], [least])
        sets.append(" ".join("".join(map(str, field)) for field in fields))
    document = {
        "about": f"Written by {pathlib.Path(__file__).name} with CPython {platform.python_version()}.",
        "sequence_order_most_least": sets,
        "grid_programs": GRID_PROGRAMS,
        "grids": [{"grid": shown(grid)} | results(GRID_PROGRAMS, grid) for grid in grids(rng)],
        "pair_programs": ON_PAIRS,
        "pairs": [{"pair": list(map(shown, pair))} | results(ON_PAIRS, pair) for pair in pairs(rng)],
        "random": list(random_cases(rng)),
    }
    dsl.LOWEST = False
    if len(sys.argv) > 1:
        document |= arc_digests(pathlib.Path(sys.argv[1]))
    elif FIXTURE.exists():
        old = json.loads(FIXTURE.read_text())
        document |= {name: old[name] for name in old if name.startswith("arc")}
    # One case a line, so that a change shows as one line.
    text = json.dumps(document, separators=(",", ":"))
    for before in ('{"grid":', '{"pair":', '{"program":') + tuple(f'"{name}":' for name in document):
        text = text.replace(before, f"\n{before}")
    FIXTURE.write_text(text + "\n")


if __name__ == "__main__":
    main()
