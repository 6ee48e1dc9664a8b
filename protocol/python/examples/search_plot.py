"""Plots what `search.py --json` has written, or the same example in Rust: tasks solved against seconds.

`python search_plot.py FILE... > solved.svg`. Each file is a curve, named as the file is: `1_H200.json` is `1 H200`.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

#: The picture, and the rectangle of the curves.
WIDTH, HEIGHT = 720, 420
LEFT, TOP, RIGHT, BOTTOM = 60, 24, 600, 360
#: Colours that are told apart, and read, on white and on black.
COLORS = ["#2f7ed8", "#d8572f", "#2f9e58", "#a05fc8"]
STYLE = """<style>
  .paper { fill: #ffffff } .ink { fill: #222222 } .axis { stroke: #222222 } .rule { stroke: #dddddd }
  text { font: 13px sans-serif }
  @media (prefers-color-scheme: dark) {
    .paper { fill: #15181c } .ink { fill: #e6e6e6 } .axis { stroke: #e6e6e6 }
    .rule { stroke: #3a3f45 }
  }
</style>"""


def main():
    if len(sys.argv) < 2:
        sys.exit("name the files that search.py --json has written")
    runs = {path.stem.replace("_", " "): json.loads(path.read_text()) for path in map(Path, sys.argv[1:])}
    print(plot(runs))


def plot(runs):
    """An SVG with a curve for each run, by its name."""
    solved = {name: [one["seconds"] for one in run["answers"] if one["right"]] for name, run in runs.items()}
    ends = [run["seconds"] for run in runs.values()]
    first = math.floor(math.log10(min(seconds[0] for seconds in solved.values())))
    last = math.ceil(math.log10(max(ends)))
    most = 10 * math.ceil(max(map(len, solved.values())) / 10)

    def x(seconds):
        return LEFT + (RIGHT - LEFT) * (math.log10(seconds) - first) / (last - first)

    def y(tasks):
        return BOTTOM - (BOTTOM - TOP) * tasks / most

    lines = [STYLE, f'<rect class="paper" width="{WIDTH}" height="{HEIGHT}"/>']
    for power in range(first, last + 1):
        at = x(10**power)
        lines.append(f'<path class="rule" d="M{at:.1f} {TOP}V{BOTTOM}"/>')
        lines.append(text(at, BOTTOM + 18, f"{10**power:g} s", "middle"))
    for tasks in range(0, most + 1, 10):
        lines.append(f'<path class="rule" d="M{LEFT} {y(tasks):.1f}H{RIGHT}"/>')
        lines.append(text(LEFT - 8, y(tasks) + 4, str(tasks), "end"))
    lines.append(f'<path class="axis" fill="none" d="M{LEFT} {TOP}V{BOTTOM}H{RIGHT}"/>')
    of = max(run["tasks"] for run in runs.values())
    lines.append(text(LEFT, BOTTOM + 44, f"tasks of {of} that are solved, by seconds since the start", "start"))
    for color, (name, seconds), end in zip(COLORS, solved.items(), ends):
        steps = "".join(f"H{x(at):.1f}V{y(tasks):.1f}" for tasks, at in enumerate(seconds, start=1))
        path = f"M{x(seconds[0]):.1f} {y(0):.1f}{steps}H{x(end):.1f}"
        lines.append(f'<path fill="none" stroke="{color}" stroke-width="2" d="{path}"/>')
        lines.append(text(x(end) + 6, y(len(seconds)) + 4, f"{name}: {len(seconds)}", "start", color))
    size = f'viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" {size}>', *lines, "</svg>"])


def text(x, y, words, anchor, color=None):
    look = f'fill="{color}"' if color else 'class="ink"'
    return f'<text {look} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{words}</text>'


if __name__ == "__main__":
    main()
