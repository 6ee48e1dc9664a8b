"""Pictures for notebooks: grids in the colours of ARC, as HTML and with matplotlib."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from ._errors import ItemError

if TYPE_CHECKING:
    from ._inputs import Pair, Task
    from ._receipt import Receipt
    from ._results import Results

#: The colours of the ARC viewer, from 0 to 9.
COLORS = ("#000000", "#0074D9", "#FF4136", "#2ECC40", "#FFDC00", "#AAAAAA", "#F012BE", "#FF851B", "#7FDBFF", "#870C25")
#: Items that a notebook shows of one result.
SHOWN = 12
#: Pixels of one cell.
CELL = 12


def grid(rows: Any) -> str:
    """A grid as SVG."""
    cells = [[int(cell) for cell in row] for row in rows]
    h, w = len(cells), len(cells[0]) if cells else 0
    squares = "".join(
        f'<rect x="{x * CELL}" y="{y * CELL}" width="{CELL}" height="{CELL}" fill="{COLORS[cell]}" stroke="#555"/>'
        for y, row in enumerate(cells)
        for x, cell in enumerate(row)
        if 0 <= cell <= 9
    )
    return f'<svg width="{w * CELL + 1}" height="{h * CELL + 1}" role="img">{squares}</svg>'


def pair(value: Pair) -> str:
    """A pair: input, arrow, output."""
    after = "?" if value.output is None else grid(value.output)
    return f'<div style="display:flex;gap:8px;align-items:center">{grid(value.input)}→{after}</div>'


def task(value: Task) -> str:
    """A task: the pairs of train, then those of test."""
    train = "".join(map(pair, value.train))
    test = "".join(map(pair, value.test))
    return f"<div><b>{escape(value.name)}</b><p>train</p>{train}<p>test</p>{test}</div>"


def objects(found: Any) -> str:
    """Objects of cells (colour, row, column): each in its place on one canvas."""
    cells = [cell for one in found for cell in one]
    if not cells:
        return "<i>no object</i>"
    h, w = (max(int(cell[axis]) for cell in cells) + 1 for axis in (1, 2))
    squares = "".join(
        f'<rect x="{cell[2] * CELL}" y="{cell[1] * CELL}" width="{CELL}" height="{CELL}" '
        f'fill="{COLORS[cell[0]]}"><title>object {number}</title></rect>'
        for number, one in enumerate(found, 1)
        for cell in one
    )
    return f'<svg width="{w * CELL + 1}" height="{h * CELL + 1}" role="img" style="background:#eee">{squares}</svg>'


def error(value: ItemError) -> str:
    """The error of an item."""
    return f'<span style="color:#b00"><b>{escape(value.code)}</b> {escape(str(value))}</span>'


def results(value: Results) -> str:
    """The first results."""
    shown: list[str] = []
    for item in value[:SHOWN]:
        if isinstance(item, ItemError):
            shown.append(error(item))
        elif value.kind == "grid" and not isinstance(item, tuple):
            shown.append(grid(item))
        elif value.kind == "objects" and not isinstance(item, tuple):
            shown.append(objects(item))
        else:
            shown.append(f"<code>{escape(repr(item))}</code>")
    more = f"<p>… and {len(value) - SHOWN} more</p>" if len(value) > SHOWN else ""
    return (
        f"<div><p><code>{escape(value.program)}</code>: {len(value)} × {value.kind}</p>"
        f'<div style="display:flex;flex-wrap:wrap;gap:8px">{"".join(shown)}</div>{more}</div>'
    )


def receipt(value: Receipt) -> str:
    """A receipt: verdict and attempts."""
    rows = "".join(
        f"<tr><td>{escape(one.worker)}</td><td>{escape(one.outcome)}</td><td>{escape(one.device.name)}</td>"
        f"<td>{', '.join(escape(kernel.name) for kernel in one.kernels)}</td><td>{one.service_us} µs</td></tr>"
        for one in value.attempts
    )
    head = "<tr><th>worker</th><th>outcome</th><th>device</th><th>kernels</th><th>time</th></tr>"
    return (
        f"<div><b>{escape(value.verdict)}</b> {escape(value.reason)}, {value.items} items, {value.total_us} µs"
        f"<table>{head}{rows}</table></div>"
    )


def plot(value: Any) -> Any:
    """Draws a task, a pair or a grid with matplotlib, and returns the figure."""
    try:
        from matplotlib import pyplot  # pyright: ignore
        from matplotlib.colors import ListedColormap  # pyright: ignore
    except ImportError as error:
        raise ImportError("plot needs matplotlib: pip install 'gridpool[plot]'") from error
    plt: Any = pyplot
    colors: Any = ListedColormap(list(COLORS))
    rows: list[list[tuple[str, Any]]]
    if hasattr(value, "train"):
        sides = [("train", pair) for pair in value.train] + [("test", pair) for pair in value.test]
        rows = [[(f"{side} input", pair.input), (f"{side} output", pair.output)] for side, pair in sides]
    elif hasattr(value, "input"):
        rows = [[("input", value.input), ("output", value.output)]]
    else:
        rows = [[("", value)]]
    figure, axes = plt.subplots(len(rows), len(rows[0]), squeeze=False)
    for axis, (title, cells) in zip(axes.flat, [side for row in rows for side in row]):
        axis.set_title(title)
        axis.axis("off")
        if cells is not None:
            axis.imshow([[int(cell) for cell in row] for row in cells], cmap=colors, vmin=0, vmax=9)
    return figure
