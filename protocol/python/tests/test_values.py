"""What goes in and what comes out: every form of a batch, every kind of result, compared with arc-dsl."""

from __future__ import annotations

import json
from types import SimpleNamespace

import gridpool
import numpy as np
import pytest
from conftest import DATA, turned


def test_every_form_of_a_batch_gives_the_same(pool, grids):
    grids = grids[:20]
    want = [turned(grid) for grid in grids]
    cells = np.concatenate([np.array(grid).ravel() for grid in grids])
    sizes = np.array([(len(grid), len(grid[0])) for grid in grids])
    forms = {
        "tuples": grids,
        "a tuple": tuple(grids),
        "lists": [[list(row) for row in grid] for grid in grids],
        "generator": (grid for grid in grids),
        "rows of arrays": [[np.array(row) for row in grid] for grid in grids],
        "NumPy's ints": [[[np.int16(cell) for cell in row] for row in grid] for grid in grids],
        "sizes": (cells, sizes),
        "sizes as lists": (cells.astype(np.uint8), sizes.tolist()),
        "loaded": pool.load(grids),
        "transposed twice": [np.array(grid).T.copy().T for grid in grids],
        "big-endian": [np.array(grid).astype(">i4") for grid in grids],
        **{t: [np.array(grid, dtype=t) for grid in grids] for t in "uint8 int8 uint16 int16 uint32 int32 uint64 int64".split()},
    }
    for name, form in forms.items():
        assert pool.run("rot90", form).to_dsl() == want, name


@pytest.mark.parametrize("dtype", ["uint8", "int64", "int32"])
@pytest.mark.parametrize("n", [1, 3, 2_000])
def test_an_array_gives_an_array_without_a_copy(pool, dtype, n):
    array = np.random.default_rng(n).integers(0, 10, (n, 7, 30)).astype(dtype)
    results = pool.run("rot90", array)
    turned = results.stack()
    assert turned.shape == (n, 30, 7) and (turned == np.rot90(array, -1, (1, 2))).all()
    assert not turned.flags.owndata and not turned.flags.writeable
    first = results[0]
    # The memory stays as it was while an array uses it.
    del results
    for _ in range(20):
        pool.run("rot180", array)
    assert (turned == np.rot90(array, -1, (1, 2))).all() and (first == turned[0]).all()


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int32", "int64", "uint64"])
def test_large_arrays_go_straight_to_shared_memory(pool, dtype):
    # More than one thread copies, and the last part is shorter.
    array = np.random.default_rng(3).integers(0, 10, (9_001, 31, 31)).astype(dtype)
    assert (pool.run("rot90", array).stack() == np.rot90(array, -1, (1, 2))).all()
    for place in [(0, 0, 0), (4_321, 30, 2), (9_000, 30, 30)]:
        wrong = array.copy()
        wrong[place] = 10
        with pytest.raises(gridpool.BadInput) as caught:
            pool.run("rot90", wrong)
        assert (caught.value.grid, caught.value.row, caught.value.column) == place
    sizes = np.array([(31, 31), (1, 31 * 31 // 31)] * 4_000 + [(31, 31)])[:7_001]
    cells = array.ravel()[: sizes.prod(axis=1).sum()]
    ends = np.cumsum(sizes.prod(axis=1))
    for given in (sizes, sizes.astype(np.int32), sizes.tolist()):
        results = pool.run("rot180", (cells, given))
        for at in (0, 1, 7_000):
            h, w = sizes[at]
            grid = cells[ends[at] - h * w : ends[at]].reshape(h, w)
            assert (results[at] == grid[::-1, ::-1]).all()
    wrong = cells.copy()
    wrong[ends[5] - 3] = 11
    with pytest.raises(gridpool.BadInput) as caught:
        pool.run("rot180", (wrong, sizes))
    assert (caught.value.grid, caught.value.row, caught.value.column) == (5, 0, sizes[5][1] - 3)


def test_one_grid_is_a_batch_of_one(pool):
    for grid in ([[1, 2], [3, 4]], ((1, 2), (3, 4)), np.array([[1, 2], [3, 4]])):
        assert pool.run("rot90", grid).to_lists() == [[[3, 1], [4, 2]]]


def test_flat_cells_and_offsets(pool, grids):
    for program in ("rot90", "tophalf", "upscale(2)"):
        results = pool.run(program, grids)
        flat = results.to_numpy()
        for at, want in enumerate(results.to_lists()):
            if at in results.errors or not want:
                assert flat.shapes[at].prod() == 0
            else:
                assert flat.grid(at).tolist() == want == results[at].tolist()


def test_objects_as_labels(pool, grids):
    results = pool.run("o_g(4)", [*grids, [[(x + y) % 2 for x in range(30)] for y in range(30)]])
    labels = results.to_numpy()
    for at, objects in enumerate(results.to_lists()):
        assert labels.counts[at] == len(objects)
        marked = labels.map(at)
        for number, cells in enumerate(objects, 1):
            assert {(row, col) for _, row, col in cells} == set(zip(*map(list, np.nonzero(marked == number))))
    assert labels.counts[-1] == 900, "more than a byte counts"


def test_numbers_flags_vectors_and_colours(pool, grids):
    for program, read in {
        "height": lambda a: a.tolist(),
        "portrait": lambda a: a.tolist(),
        "shape": lambda a: [tuple(row) for row in a.tolist()],
        "palette": lambda a: [row[:n] for row, n in zip(a[0].tolist(), a[1].tolist())],
    }.items():
        results = pool.run(program, grids)
        assert read(results.to_numpy()) == results.to_lists() == list(results)


PROGRAMS = {
    "rot90": lambda d, g: d.rot90(g),
    "cmirror": lambda d, g: d.cmirror(g),
    "upscale(2)": lambda d, g: d.upscale(g, 2),
    "tophalf": lambda d, g: d.tophalf(g),
    "trim | compress": None,
    "replace(1, 7)": lambda d, g: d.replace(g, 1, 7),
    "palette": lambda d, g: d.palette(g),
    "mostcolor": lambda d, g: d.mostcolor(g),
    "leastcolor": lambda d, g: d.leastcolor(g),
    "shape": lambda d, g: d.shape(g),
    "portrait": lambda d, g: d.portrait(g),
    "ofcolor(1)": lambda d, g: d.ofcolor(g, 1),
    "asobject": lambda d, g: d.asobject(g),
    "fgpartition": lambda d, g: d.fgpartition(g),
    "hsplit(2)": lambda d, g: d.hsplit(g, 2),
    **{
        f"objects({u}, {di}, {b})".lower(): (lambda d, g, u=u, di=di, b=b: d.objects(g, u, di, b))
        for u in (False, True)
        for di in (False, True)
        for b in (False, True)
    },
}


@pytest.mark.parametrize("program", [name for name, op in PROGRAMS.items() if op])
def test_results_equal_arc_dsl_s(pool, dsl, grids, program):
    results = pool.run(program, grids)
    for at, (got, grid) in enumerate(zip(results.to_dsl(), grids)):
        if at in results.errors:
            continue
        want = PROGRAMS[program](dsl, grid)
        # A grid without cells is () here, whatever rows it had.
        if not got and want and all(row == () for row in want):
            continue
        if program == "hsplit(2)" and len(grid[0]) < 2:
            continue
        assert got == want and type(got) is type(want), grid


def test_the_reports_calls(pool, dsl, grids):
    lists = [tuple(grids[:3]), tuple(grids[3:8]), ()]
    assert gridpool.batch_mapply(pool, "rot90", lists) == [dsl.mapply(dsl.rot90, one) for one in lists]
    assert gridpool.batch_mapply(pool, dsl.rot90, lists) == gridpool.batch_mapply(pool, "rot90", lists)
    assert gridpool.batch_apply(pool, "vmirror", lists) == [dsl.apply(dsl.vmirror, one) for one in lists]
    pairs = [tuple(zip(grids[:4], grids[4:8]))]
    assert gridpool.batch_apply(pool, dsl.first, pairs) == [dsl.apply(dsl.first, pairs[0])]
    types = [at % 8 for at in range(len(grids))]
    want = [dsl.objects(g, bool(t & 4), bool(t & 2), bool(t & 1)) for g, t in zip(grids, types)]
    assert gridpool.batch_o_g(pool, grids, types) == want
    for size in (1, 5, 29, 30, 31):
        assert gridpool.batch_o_g(pool, grids[:size], 5) == [dsl.objects(g, True, False, True) for g in grids[:size]]


def test_tasks_pairs_and_folders(pool):
    folder = DATA / "tasks"
    tasks = gridpool.tasks(folder)
    assert tasks and pool.run("rot90", folder).to_dsl() == [turned(grid) for task in tasks for grid in task.grids]
    body = json.loads(next(folder.glob("*.json")).read_text())
    task = gridpool.tasks(body)[0]
    first = [[list(row) for row in pair.input] for pair in task.pairs]
    assert pool.run("first", body).to_lists() == first
    assert pool.run("first", [(pair.input, pair.output) for pair in task.pairs]).to_lists() == first
    arrays = SimpleNamespace(id="x", **{
        side: [(np.array(p.input), None if p.output is None else np.array(p.output)) for p in getattr(task, side)]
        for side in ("train", "test")
    })
    assert pool.run("first", arrays).to_lists() == first
    coordinator = gridpool.Coordinator(pool, folder)
    assert list(coordinator.run("rot90")) == [task.name for task in tasks]
    assert sum(map(len, coordinator.run("first").values())) == sum(len(task.pairs) for task in tasks)


@pytest.mark.parametrize(
    ("batch", "place"),
    [
        ([[[1, 2], [3]]], (0, 1, None)),
        ([[[1]], [[1, 2], [3, 11]]], (1, 1, 1)),
        ([[[1]], [[-1]]], (1, 0, 0)),
        ([[[1.5]]], (0, 0, 0)),
        ([[["a"]]], (0, 0, 0)),
        ([[[]]], (0, None, None)),
        ([[[1] * 256]], (0, None, None)),
        ([[[1] * 65] * 64], (0, None, None)),
        (np.full((5, 2, 2), 10), (0, 0, 0)),
        (np.full((9_000, 2, 2), 10, np.uint8), (0, 0, 0)),
        ([np.array([[1, 2**40]])], (0, 0, 1)),
        (np.zeros((2, 2)), (None, None, None)),
        ((np.zeros(5, int), [(2, 2)]), (None, None, None)),
        ([], (None, None, None)),
        ([None], (None, None, None)),
        (7, (None, None, None)),
        ([7], (None, None, None)),
        ({"train": 1}, (None, None, None)),
        ([{"output": [[1]]}, 3], (None, None, None)),
    ],
)
def test_a_wrong_batch_is_a_bad_input_at_its_place(pool, batch, place):
    with pytest.raises(gridpool.BadInput) as caught:
        pool.run("rot90", batch)
    assert (caught.value.grid, caught.value.row, caught.value.column) == place and str(caught.value)
    assert isinstance(caught.value, ValueError)


def test_pairs_where_grids_are_asked_and_the_other_way_round(pool):
    with pytest.raises(gridpool.BadInput):
        pool.run("rot90", [([[1]], [[2]])])
    with pytest.raises(gridpool.BadInput):
        pool.run("first", [[[1]]])


def test_an_item_s_error_is_a_value(pool):
    results = pool.run("o_g(5) | first | subgrid", [[[1, 1]], [[0, 1]]])
    assert list(results.errors) == [0] and results.errors[0].code == "EmptyArg"
    assert isinstance(results[0], gridpool.ItemError) and not results[0] and results[1].size
    assert results.to_lists()[0] == results.to_dsl()[0] == results.errors[0]
    with pytest.raises(ValueError):
        results.stack()


def test_a_sequence(pool, grids):
    results = pool.run("rot90", grids)
    assert len(results) == len(grids) and results[-1].tolist() == results.to_lists()[-1]
    assert [g.tolist() for g in results[1:5:2]] == results.to_lists()[1:5:2]
    with pytest.raises(IndexError):
        results[len(results)]
    receipt = results.receipt
    assert receipt.verdict == "OK" and receipt.items == len(grids) and receipt.attempts[0].device.kind == "cpu"


def test_pictures_for_notebooks(pool, grids):
    task = gridpool.tasks(DATA / "tasks")[0]
    shown = [task, task.pairs[0]]
    shown += [pool.run(program, grids) for program in ("rot90", "o_g(5)", "height", "o_g(5) | first")]
    shown.append(shown[-1].receipt)
    for one in shown:
        assert "<" in one._repr_html_()
