"""A pool for the tests, and arc-dsl if `GRIDPOOL_ARC_DSL` names its folder."""

from __future__ import annotations

import importlib
import os
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gridpool
import pytest

# What a test needs that a package has, and the variable that makes a missing one a failure.
REQUIRED = {
    "distributed": "GRIDPOOL_REQUIRE_DASK",
    "onnxruntime": "GRIDPOOL_REQUIRE_ONNXRUNTIME",
    "opentelemetry.trace": "GRIDPOOL_REQUIRE_OPENTELEMETRY",
    "ray": "GRIDPOOL_REQUIRE_RAY",
}

DATA = Path(__file__).resolve().parents[3] / "tests" / "data"


def needed(package: str) -> Any:
    """The package. Without it the test is skipped, unless its variable says that it must run."""
    if REQUIRED[package] in os.environ:
        return importlib.import_module(package)
    return pytest.importorskip(package)


@pytest.fixture(scope="session")
def pool() -> Iterator[gridpool.Pool]:
    with gridpool.Pool(devices="cpu:2") as pool:
        yield pool


@pytest.fixture(scope="session")
def dsl() -> Any:
    folder = os.environ.get("GRIDPOOL_ARC_DSL")
    if folder is None:
        pytest.skip("GRIDPOOL_ARC_DSL names no folder of arc-dsl")
    sys.path.insert(0, folder)
    return importlib.import_module("dsl")


@pytest.fixture(scope="session")
def grids() -> list[tuple[tuple[int, ...], ...]]:
    chosen = random.Random(7)

    def grid() -> tuple[tuple[int, ...], ...]:
        h, w = chosen.randint(1, 14), chosen.randint(1, 14)
        colors = chosen.sample(range(10), chosen.randint(1, 4))
        return tuple(tuple(chosen.choice(colors) for _ in range(w)) for _ in range(h))

    return [grid() for _ in range(400)]


def turned(grid: Any) -> Any:
    """`rot90`, from its definition."""
    return tuple(zip(*grid[::-1]))
