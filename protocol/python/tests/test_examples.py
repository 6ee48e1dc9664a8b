"""The example notebook runs from its first cell to its last; the search finds what that in Rust does."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

import pytest
from conftest import DATA

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
BOOK = EXAMPLES.parents[2] / "docs/src/guide"


@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*.ipynb")))
def test_a_notebook_runs(name):
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    book = nbformat.read(EXAMPLES / name, as_version=4)
    resources = {"metadata": {"path": str(EXAMPLES)}}
    nbclient.NotebookClient(book, timeout=120, kernel_name="python3", resources=resources).execute()
    shown = [output for cell in book.cells if cell.cell_type == "code" for output in cell.outputs]
    assert any("text/html" in output.get("data", {}) for output in shown)
    assert any("mirror" in output.get("text", "") and "^" in output.get("text", "") for output in shown)


def test_a_search_solves_the_same_tasks_as_that_of_the_rust_example(tmp_path, monkeypatch, capsys):
    found = tmp_path / "found.json"
    given = [str(DATA / "tasks"), "1500", "--devices", "cpu:2", "--json", str(found)]
    monkeypatch.setattr(sys, "argv", ["search.py", *given])
    runpy.run_path(str(EXAMPLES / "search.py"), run_name="__main__")
    run = json.loads(found.read_text())
    want = json.loads((DATA / "solved.json").read_text())
    assert [[one["task"], one["right"], one["program"]] for one in run["answers"]] == want
    said = capsys.readouterr().out
    assert "quarter_turn  solved by  rot90(I)\n" in said
    assert f"{run['solved']} of {run['tasks']} tasks solved, {run['missed']} missed:\n" in said


def test_the_books_plot_is_that_of_its_data(monkeypatch, capsys):
    runs = sorted(str(path) for path in (BOOK / "solved").glob("*.json"))
    assert runs
    monkeypatch.setattr(sys, "argv", ["search_plot.py", *runs])
    runpy.run_path(str(EXAMPLES / "search_plot.py"), run_name="__main__")
    assert capsys.readouterr().out == (BOOK / "solved.svg").read_text()
