"""The command `gridpool`, and where the two binaries of the package are."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def binary() -> str:
    """The path of `gridpool`: that of `GRIDPOOL_BIN`, or the package's own."""
    given = os.environ.get("GRIDPOOL_BIN")
    path = Path(given) if given else Path(__file__).resolve().parent / "bin" / "gridpool"
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing: install the wheel again, or set GRIDPOOL_BIN")
    return str(path)


def main() -> None:
    """Runs the binary in place of this process."""
    try:
        path = binary()
    except FileNotFoundError as error:
        sys.exit(f"gridpool: {error}")
    os.execv(path, ["gridpool", *sys.argv[1:]])
