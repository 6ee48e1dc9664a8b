"""gridpool: programs over ARC grids, and ONNX models, on a pool of GPU worker processes.

>>> import gridpool
>>> with gridpool.Pool(devices="cpu:1") as pool:
...     pool.run("rot90", [[[1, 2], [3, 4]]]).to_lists()
[[[3, 1], [4, 2]]]
"""

from __future__ import annotations

import atexit as _atexit
import os as _os

from . import _native
from ._errors import (
    BadInput,
    Busy,
    Cancelled,
    ConnectionLost,
    Deadline,
    DeviceLost,
    Error,
    Failed,
    ItemError,
    JobError,
    LoadCancelled,
    NoPool,
    NotAllowed,
    Poison,
    ProgramError,
    Refused,
    Silent,
    StartError,
)
from ._executor import Executor
from ._html import plot
from ._inputs import Pair, Task, tasks
from ._models import ModelLoad, ModelOptions
from ._pool import Client, Future, Loaded, Pool, connect
from ._program import Program, compile
from ._receipt import Attempt, Device, KernelUse, Receipt
from ._reports import Coordinator, batch_apply, batch_mapply, batch_o_g
from ._results import Grids, InferResult, Labels, Pictures, Results
from ._search import STATUSES, Search, SearchResult

_os.register_at_fork(after_in_child=_native._after_fork_in_child)
_atexit.register(_native._before_exit)

__all__ = [
    "Attempt",
    "BadInput",
    "Busy",
    "Cancelled",
    "Client",
    "ConnectionLost",
    "Coordinator",
    "Deadline",
    "Device",
    "DeviceLost",
    "Error",
    "Executor",
    "Failed",
    "Future",
    "Grids",
    "InferResult",
    "ItemError",
    "JobError",
    "KernelUse",
    "Labels",
    "LoadCancelled",
    "Loaded",
    "ModelLoad",
    "ModelOptions",
    "NoPool",
    "NotAllowed",
    "Pair",
    "Pictures",
    "Poison",
    "Pool",
    "Program",
    "ProgramError",
    "Receipt",
    "Refused",
    "Results",
    "STATUSES",
    "Search",
    "SearchResult",
    "Silent",
    "StartError",
    "Task",
    "batch_apply",
    "batch_mapply",
    "batch_o_g",
    "compile",
    "connect",
    "plot",
    "tasks",
]
