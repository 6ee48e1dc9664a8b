"""What every op means, in plain Python: the DSL's own sets and tuples, and programs over them.

A grid is a tuple of rows, a patch a set of places `(row, column)`, an object a set of cells
`(color, (row, column))`. Written from the documented meaning of the ops, with CPython's own sets
where their order shows; only make_cpython_fixture.py uses it. Errors are the natural failures of
Python (`min()` of nothing, an index out of range), given the names that gridpool gives them. Where
gridpool deliberately says something else than the DSL, the word "gridpool:" marks the place.
"""

CELLS_MAX, SIDE_MAX = 4096, 255

# The caller sets this: colours in the order in which CPython's set lists them, or ascending.
LOWEST = False


class Patch(frozenset):
    """Places."""


class Object(frozenset):
    """Cells, one at a place."""


class Objects(tuple):
    """Objects in canonical order: by their first cell, row by row."""


class Vector(tuple):
    """A row and a column."""


class Colors(tuple):
    """Distinct colours in order."""


class Elements(tuple):
    """The values of a tuple: a pair, or the parts of a split grid."""


class ItemError(Exception):
    """An item has no result."""


def is_grid(value):
    return type(value) is tuple


# --- Colours.


def colors(element):
    """Row by row: gridpool: an object's too, where the DSL takes its set's order."""
    if is_grid(element):
        return [v for row in element for v in row]
    return [v for v, _ in cells_in_order(element)]


def cells_in_order(obj):
    return sorted(obj, key=lambda cell: cell[1])


def distinct(values):
    return sorted(set(values)) if LOWEST else list(set(values))


def mostcolor(element):
    values = colors(element)
    return max(distinct(values), key=values.count)


def leastcolor(element):
    values = colors(element)
    return min(distinct(values), key=values.count)


def palette(element):
    return Colors(distinct(colors(element)))


def numcolors(element):
    return len(set(colors(element)))


def colorcount(element, color):
    return colors(element).count(color)


def replace(grid, old, new):
    return tuple(tuple(new if v == old else v for v in row) for row in grid)


def switch(grid, a, b):
    swap = {a: b, b: a}
    return tuple(tuple(swap.get(v, v) for v in row) for row in grid)


# --- Boxes of pieces. Each fails on an empty piece, as min() and max() of nothing do.


def places(piece):
    return {place for _, place in piece} if isinstance(piece, Object) else set(piece)


def uppermost(piece):
    return min(i for i, _ in places(piece))


def lowermost(piece):
    return max(i for i, _ in places(piece))


def leftmost(piece):
    return min(j for _, j in places(piece))


def rightmost(piece):
    return max(j for _, j in places(piece))


def ulcorner(piece):
    return Vector((uppermost(piece), leftmost(piece)))


def urcorner(piece):
    return Vector((uppermost(piece), rightmost(piece)))


def llcorner(piece):
    return Vector((lowermost(piece), leftmost(piece)))


def lrcorner(piece):
    return Vector((lowermost(piece), rightmost(piece)))


def height(piece):
    if is_grid(piece):
        return len(piece)
    return lowermost(piece) - uppermost(piece) + 1 if piece else 0


def width(piece):
    if is_grid(piece):
        return len(piece[0])
    return rightmost(piece) - leftmost(piece) + 1 if piece else 0


def shape(piece):
    return Vector((height(piece), width(piece)))


def size(container):
    return len(container)


def center(piece):
    return Vector((uppermost(piece) + height(piece) // 2, leftmost(piece) + width(piece) // 2))


def centerofmass(piece):
    rows, cols = zip(*places(piece))  # Nothing to unpack if it is empty.
    return Vector((sum(rows) // len(rows), sum(cols) // len(cols)))


def color(obj):
    """Gridpool: of the first cell row by row, where the DSL takes the first that its set lists."""
    return next(v for v, _ in cells_in_order(obj))


def square(piece):
    full = is_grid(piece) or height(piece) * width(piece) == len(piece)
    return full and height(piece) == width(piece)


def portrait(piece):
    return height(piece) > width(piece)


def hline(piece):
    return width(piece) == len(piece) and height(piece) == 1


def vline(piece):
    return height(piece) == len(piece) and width(piece) == 1


# --- Symmetries of grids, and of pieces inside their boxes.


def moved(piece, target):
    """A piece of the same kind with every place sent elsewhere."""
    if isinstance(piece, Object):
        return Object((v, target(i, j)) for v, (i, j) in piece)
    return Patch(target(i, j) for i, j in piece)


def empty_stays(op):
    """gridpool: an empty piece comes back, where the DSL fails for want of a first cell."""
    return lambda piece, *arguments: op(piece, *arguments) if is_grid(piece) or piece else piece


def identity(piece):
    return piece


@empty_stays
def hmirror(piece):
    if is_grid(piece):
        return piece[::-1]
    across = uppermost(piece) + lowermost(piece)
    return moved(piece, lambda i, j: (across - i, j))


@empty_stays
def vmirror(piece):
    if is_grid(piece):
        return tuple(row[::-1] for row in piece)
    across = leftmost(piece) + rightmost(piece)
    return moved(piece, lambda i, j: (i, across - j))


@empty_stays
def dmirror(piece):
    if is_grid(piece):
        return tuple(zip(*piece))
    top, left = ulcorner(piece)
    return moved(piece, lambda i, j: (top + j - left, left + i - top))


def cmirror(piece):
    return vmirror(dmirror(vmirror(piece)))


def rot90(grid):
    return tuple(zip(*grid[::-1]))


def rot180(grid):
    return tuple(row[::-1] for row in grid[::-1])


def rot270(grid):
    return tuple(zip(*grid))[::-1]


# --- Objects of a grid, and choosing among them.


def in_order(found):
    return Objects(sorted(found, key=lambda obj: min(places(obj))))


def around(place, diagonal):
    row, col = place
    steps = [(-1, 0), (1, 0), (0, -1), (0, 1)]
    if diagonal:
        steps += [(-1, -1), (-1, 1), (1, -1), (1, 1)]
    return {(row + down, col + right) for down, right in steps}


def objects(grid, univalued, diagonal, without_bg):
    background = mostcolor(grid) if without_bg else None
    value_at = {(i, j): v for i, row in enumerate(grid) for j, v in enumerate(row)}
    found, seen = set(), set()
    for start, start_value in value_at.items():
        if start in seen or start_value == background:
            continue
        known, candidates = set(), {start}
        while candidates:
            known |= candidates
            candidates = {
                place
                for cell in candidates
                for place in around(cell, diagonal)
                if place in value_at
                and place not in known
                and value_at[place] != background
                and (not univalued or value_at[place] == start_value)
            }
        seen |= known
        found.add(Object((value_at[place], place) for place in known))
    return in_order(found)


def o_g(grid, kind):
    return objects(grid, kind // 4 == 1, kind // 2 % 2 == 1, kind % 2 == 1)


def of_colors(grid, wanted):
    return in_order({Object((v, place) for v, place in asobject(grid) if v == c) for c in wanted})


def partition(grid):
    return of_colors(grid, set(colors(grid)))


def fgpartition(grid):
    return of_colors(grid, set(colors(grid)) - {mostcolor(grid)})


def colorfilter(objs, value):
    return Objects(obj for obj in objs if color(obj) == value)


def sizefilter(objs, count):
    return Objects(obj for obj in objs if len(obj) == count)


def argmax(objs, key):
    return max(objs, key=MEASURES[key])


def argmin(objs, key):
    return min(objs, key=MEASURES[key])


def first(objs):
    return next(iter(objs))


def second(objs):
    return objs[1]


def last(objs):
    return max(enumerate(objs))[1]


def nth(objs, k):
    return {0: first, -1: last}.get(k, lambda _: objs[k])(objs)


def merge(objs):
    return Object(cell for obj in objs for cell in obj)


# --- Patches and objects.


def ofcolor(grid, value):
    return Patch(place for v, place in asobject(grid) if v == value)


def asindices(grid):
    return Patch(places(asobject(grid)))


def asobject(grid):
    return Object((v, (i, j)) for i, row in enumerate(grid) for j, v in enumerate(row))


def toindices(piece):
    return Patch(places(piece))


def toobject(piece, ground):
    return Object((ground[i][j], (i, j)) for i, j in on(ground, places(piece)))


def recolor(piece, value):
    return Object((value, place) for place in places(piece))


def shift(piece, rows, cols):
    return moved(piece, lambda i, j: (i + rows, j + cols))


@empty_stays
def normalize(piece):
    top, left = ulcorner(piece)
    return shift(piece, -top, -left)


def frame(piece, grow):
    """The outline of the box whose sides are moved outwards, crossed sides put in order."""
    if not piece:
        return Patch()  # gridpool: where the DSL fails.
    top, bottom = sorted((uppermost(piece) - grow, lowermost(piece) + grow))
    left, right = sorted((leftmost(piece) - grow, rightmost(piece) + grow))
    beside = {(i, j) for i in range(top, bottom + 1) for j in (left, right)}
    return Patch(beside | {(i, j) for i in (top, bottom) for j in range(left, right + 1)})


def box(piece):
    return frame(piece, 0)


def outbox(piece):
    return frame(piece, 1)


def inbox(piece):
    return frame(piece, -1)


def backdrop(piece):
    if not piece:
        return Patch()
    rows = range(uppermost(piece), lowermost(piece) + 1)
    cols = range(leftmost(piece), rightmost(piece) + 1)
    return Patch((i, j) for i in rows for j in cols)


def delta(piece):
    return Patch(backdrop(piece) - places(piece))


def corners(piece):
    if not piece:
        return Patch()
    return Patch(tuple(corner(piece)) for corner in (ulcorner, urcorner, llcorner, lrcorner))


# --- Painting on the ground.


def on(ground, wanted):
    return {(i, j) for i, j in wanted if 0 <= i < len(ground) and 0 <= j < len(ground[0])}


def painted(ground, values):
    rows = [list(row) for row in ground]
    for (i, j), value in values.items():
        rows[i][j] = value
    return tuple(map(tuple, rows))


def fill(piece, ground, value):
    return painted(ground, {place: value for place in on(ground, places(piece))})


def underfill(piece, ground, value):
    under = mostcolor(ground)
    return painted(ground, {(i, j): value for i, j in on(ground, places(piece)) if ground[i][j] == under})


def cover(piece, ground):
    return fill(piece, ground, mostcolor(ground))


def paint(obj, ground):
    visible = on(ground, places(obj))
    return painted(ground, {place: v for v, place in obj if place in visible})


def underpaint(obj, ground):
    under, visible = mostcolor(ground), on(ground, places(obj))
    chosen = {place: v for v, place in obj if place in visible}
    return painted(ground, {(i, j): v for (i, j), v in chosen.items() if ground[i][j] == under})


def move(obj, ground, rows, cols):
    return paint(shift(obj, rows, cols), cover(obj, ground))


def subgrid(piece, ground):
    top, left = ulcorner(piece)
    if top < 0 or left < 0:
        raise ItemError("BadCrop")  # gridpool: Python would count from the other end.
    return crop(ground, top, left, *shape(piece))


# --- Grids cut, scaled, joined.


def crop(grid, row, col, rows, cols):
    return tuple(line[col : col + cols] for line in grid[row : row + rows])


def tophalf(grid):
    return grid[: len(grid) // 2]


def bottomhalf(grid):
    return grid[-(len(grid) // 2) :] if len(grid) > 1 else ()


def lefthalf(grid):
    return tuple(row[: len(row) // 2] for row in grid)


def righthalf(grid):
    return tuple(row[len(row) // 2 + len(row) % 2 :] for row in grid)


def trim(grid):
    return tuple(row[1:-1] for row in grid[1:-1])


def compress(grid):
    kept_rows = [i for i, row in enumerate(grid) if len(set(row)) > 1]
    kept_cols = [j for j, col in enumerate(zip(*grid)) if len(set(col)) > 1]
    return tuple(tuple(grid[i][j] for j in kept_cols) for i in kept_rows)


def hupscale(grid, factor):
    return tuple(tuple(v for v in row for _ in range(factor)) for row in grid)


def vupscale(grid, factor):
    return tuple(row for row in grid for _ in range(factor))


def upscale(element, factor):
    if is_grid(element):
        return vupscale(hupscale(element, factor), factor)
    if not element:
        return element
    top, left = ulcorner(element)
    steps = [(a, b) for a in range(factor) for b in range(factor)]
    return Object(
        (v, (top + (i - top) * factor + a, left + (j - left) * factor + b))
        for v, (i, j) in element
        for a, b in steps
    )


def downscale(grid, factor):
    return tuple(row[::factor] for row in grid[::factor])


def canvas(_, value, rows, cols):
    return ((value,) * cols,) * rows


def hsplit(grid, parts):
    w, rest = divmod(len(grid[0]), parts)
    step = w + (rest != 0)
    return Elements(crop(grid, 0, step * k, len(grid), w) for k in range(parts))


def vsplit(grid, parts):
    return Elements(dmirror(part) for part in hsplit(dmirror(grid), parts))


def hconcat(elements):
    return tuple(tuple(v for row in rows for v in row) for rows in zip(*elements))


def vconcat(elements):
    rows = tuple(row for grid in elements for row in grid)
    if len({len(row) for row in rows}) > 1:
        raise ItemError("BadShape")  # gridpool: the DSL makes rows of different lengths.
    return rows


def cellwise(elements, fallback):
    a, b = elements
    rows, cols = range(len(a)), range(len(a[0]))
    return tuple(tuple(a[i][j] if a[i][j] == b[i][j] else fallback for j in cols) for i in rows)


# --- Programs.

MEASURES = {
    key: globals()[key]
    for key in "size height width color uppermost lowermost leftmost rightmost".split()
}
NEED_GROUND = "toobject fill underfill cover paint underpaint move subgrid".split()
TAKE_A_PROGRAM = "fill underfill cover paint underpaint move subgrid".split()
SYNONYMS = {"transpose": "dmirror", "p_g": "palette", "mapply": "apply", "get_nth_t": "nth"}
OUT_OF_RANGE = {"nth": "BadIndex", "second": "BadIndex", "cellwise": "BadShape"}


def parse(text):
    """Calls as (name, arguments); an argument is a number, a flag or again a list of calls."""
    calls, rest = [], text.strip()
    while True:
        name = rest[: next((at for at, c in enumerate(rest) if not (c.isalnum() or c == "_")), len(rest))]
        rest, arguments = rest[len(name) :].lstrip(), []
        if rest.startswith("("):
            end = closing(rest)
            arguments = [argument(part) for part in split(rest[1:end])]
            rest = rest[end + 1 :].lstrip()
        calls.append((SYNONYMS.get(name, name), arguments))
        if not rest:
            return calls
        assert rest[0] == "|", text
        rest = rest[1:].lstrip()


def closing(text):
    depth = 0
    for at, c in enumerate(text):
        depth += (c == "(") - (c == ")")
        if depth == 0:
            return at
    raise AssertionError(text)


def split(text):
    parts, depth = [""], 0
    for c in text:
        depth += (c == "(") - (c == ")")
        if c == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += c
    return parts


def argument(text):
    text = text.strip()
    if text in ("true", "false"):
        return text == "true"
    if text.lstrip("-").isdigit():
        return int(text)
    return text if text in MEASURES else parse(text)


def steps(calls, applied=False):
    """The calls one after the other, `apply` and programs in the place of arguments unfolded."""
    for name, arguments in calls:
        if name == "apply":
            yield from steps(arguments[0], applied=True)
            continue
        if name in TAKE_A_PROGRAM and arguments and isinstance(arguments[-1], list):
            *arguments, inner = arguments
            yield from steps(inner, applied)
        yield name, arguments, applied


class Failed:
    def __init__(self, code, at):
        self.code, self.at = code, at


def run(text, item):
    """The result of a program for a grid, or for a pair: a list of a grid and a grid or None."""
    if isinstance(item, list):
        state = [Failed("MissingOutput", "input") if grid is None else (grid, grid) for grid in item]
    else:
        state = (item, item)
    for at, (name, arguments, applied) in enumerate(steps(parse(text))):
        state = step(at, name, arguments, applied, state)
    return state


def step(at, name, arguments, applied, state):
    """`state` is a value with its ground, or a list of them for a tuple."""
    if isinstance(state, list) and applied:
        return [step(at, name, arguments, False, element) for element in state]
    if isinstance(state, list) and name in ("first", "second", "last", "nth"):
        return state[{"first": 0, "second": 1, "last": -1}.get(name, *arguments)]
    if isinstance(state, list):
        failed = [element for element in state if isinstance(element, Failed)]
        if failed:
            return failed[0]
        values = [Elements(value for value, _ in state)]
        has_empty, ground = () in values[0], None
    elif isinstance(state, Failed):
        return [state] * arguments[0] if name in ("hsplit", "vsplit") else state
    else:
        value, ground = state
        has_empty = value == () and is_grid(value) and name != "canvas"
        values = [value, ground] if name in NEED_GROUND else [value]
    try:
        if has_empty:
            raise ItemError("EmptyArg")  # gridpool: also where the DSL would give an empty grid.
        result = globals()[name](*values, *arguments)
        parts = result if isinstance(result, Elements) else [result]
        parts = [() if is_grid(part) and not any(part) else part for part in parts]
        states = [(part, part if is_grid(part) else ground) for part in parts]
        for part in parts:
            check_size(part)
    except ItemError as error:
        code = str(error)
    except (ValueError, StopIteration):
        code = "EmptyArg"  # min(), max() or next() of nothing.
    except IndexError:
        code = OUT_OF_RANGE[name]
    else:
        return states if isinstance(result, Elements) else states[0]
    failed = Failed(code, at)
    return [failed] * arguments[0] if name in ("hsplit", "vsplit") else failed


def check_size(value):
    if (is_grid(value) and value) or isinstance(value, (Object, Patch)):
        h, w = shape(value)
        if h * w > CELLS_MAX or max(h, w) > SIDE_MAX:
            raise ItemError("Overflow")


def show(state):
    """The line that the Rust side writes for the same result."""
    if isinstance(state, list):
        failed = [element for element in state if isinstance(element, Failed)]
        return show(failed[0]) if failed else "(" + " | ".join(map(show, state)) + ")"
    if isinstance(state, Failed):
        return f"error {state.code} {state.at}"
    value, _ = state
    if isinstance(value, bool):
        return f"flag {str(value).lower()}"
    if isinstance(value, int):
        return f"number {value}"
    kind = "grid" if is_grid(value) else type(value).__name__.lower()
    return f"{kind} {text_of(value)}".rstrip()


def text_of(value):
    if isinstance(value, Objects):
        return ";".join(map(text_of, value))
    if isinstance(value, Object):
        return " ".join(f"{v}@{i},{j}" for v, (i, j) in cells_in_order(value))
    if isinstance(value, Patch):
        return " ".join(f"{i},{j}" for i, j in sorted(value))
    if isinstance(value, Vector):
        return "{},{}".format(*value)
    if isinstance(value, Colors):
        return "".join(map(str, value))
    return "/".join("".join(map(str, row)) for row in value)
