"""The types: mypy and pyright find nothing, the stubs say what the Rust module has, the examples of the texts run."""

from __future__ import annotations

import doctest
import importlib.util
import subprocess
import sys
from pathlib import Path

import gridpool
import gridpool._program
import pytest

HERE = Path(__file__).resolve().parent.parent


def run(*command: str) -> None:
    if importlib.util.find_spec(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    done = subprocess.run([sys.executable, "-m", *command], cwd=HERE, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_mypy_is_content():
    run("mypy", "--python-version", "3.10", "python/gridpool")


def test_pyright_is_content():
    run("pyright", "--pythonpath", sys.executable)


def test_the_stubs_are_those_of_the_module():
    if importlib.util.find_spec("mypy") is None:
        pytest.skip("mypy is not installed")
    run("mypy.stubtest", "gridpool._native")


def test_the_examples_of_the_texts_run():
    for module in (gridpool, gridpool._program):
        assert doctest.testmod(module).failed == 0


def test_the_examples_of_the_guide_run():
    book = HERE.parents[1] / "docs" / "src" / "guide"
    for page in ("python.md", "from-arc-dsl.md"):
        result = doctest.testfile(str(book / page), module_relative=False, optionflags=doctest.ELLIPSIS)
        assert result.attempted > 0 and result.failed == 0, page
