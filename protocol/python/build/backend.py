"""The build backend: maturin, after the two binaries lie where the wheel takes them.

Owns where the binaries come from. `GRIDPOOL_BINARIES=DIR` names a folder that has them; without it, cargo builds them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import maturin

HERE = Path(__file__).resolve().parent.parent
BIN = HERE / "python" / "gridpool" / "bin"
NAMES = ("gridpool", "gridpool-worker")


def _binaries() -> Path:
    given = os.environ.get("GRIDPOOL_BINARIES")
    if given:
        return Path(given)
    root = HERE.parent.parent
    if not (root / "Cargo.lock").is_file():
        raise SystemExit("gridpool builds from its repository: pip install ./protocol/python in a checkout")
    subprocess.run(
        ["cargo", "build", "--release", "--locked", "-p", "gridpool", "-p", "gridpool-worker"], cwd=root, check=True
    )
    target = Path(os.environ.get("CARGO_TARGET_DIR", root / "target"))
    return target / "release"


def _prepare() -> None:
    source = _binaries()
    BIN.mkdir(exist_ok=True)
    for name in NAMES:
        draft = BIN / f".{name}"
        shutil.copy2(source / name, draft)
        draft.chmod(0o755)
        subprocess.run(["strip", str(draft)], check=False)
        draft.replace(BIN / name)


def build_wheel(directory: str, config: Any = None, metadata: Any = None) -> str:
    """Builds the wheel."""
    _prepare()
    return maturin.build_wheel(directory, config, metadata)


def build_editable(directory: str, config: Any = None, metadata: Any = None) -> str:
    """Builds an editable wheel."""
    _prepare()
    return maturin.build_editable(directory, config, metadata)


get_requires_for_build_wheel = maturin.get_requires_for_build_wheel
get_requires_for_build_editable = maturin.get_requires_for_build_editable
prepare_metadata_for_build_wheel = maturin.prepare_metadata_for_build_wheel
prepare_metadata_for_build_editable = maturin.prepare_metadata_for_build_editable
