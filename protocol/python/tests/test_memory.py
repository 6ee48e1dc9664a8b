"""Memory stays flat over many calls, in this process, the supervisor and the worker.

`GRIDPOOL_CALLS` says how many: a few thousand by default, a million for the real thing.
"""

from __future__ import annotations

import gc
import os
import time
from pathlib import Path

import gridpool
import numpy as np
from conftest import turned

CALLS = int(os.environ.get("GRIDPOOL_CALLS", "4000"))
#: Growth that the heap's own caches may show, bytes.
SLACK = 8 << 20


def resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def children(pid: int) -> list[int]:
    return [int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()]


def test_memory_is_flat_over_many_calls(grids):
    array = np.random.default_rng(0).integers(0, 10, (60, 30, 30)).astype(np.uint8)
    with gridpool.Pool(devices="cpu:1") as pool:
        supervisor = pool._process.pid
        processes = {"client": os.getpid(), "supervisor": supervisor}
        processes |= {f"child {at}": pid for at, pid in enumerate(children(supervisor))}
        loaded = pool.load(grids[:40])

        def calls(n: int) -> None:
            """One in ten is not the smallest job."""
            for at in range(0, n, 20):
                grid = grids[at % len(grids)]
                for _ in range(8):
                    pool.run("rot90", [grid])
                assert pool.run("rot90", [grid]).to_dsl() == [turned(grid)]
                for future in pool.submit_many("rot90", [[grid]] * 9):
                    future.result()
                pool.run("o_g(5)", loaded).to_numpy()
                pool.run("rot90", array).stack()

        calls(max(CALLS // 10, 2_000))
        gc.collect()
        before = {name: resident(pid) for name, pid in processes.items()}
        started = time.perf_counter()
        calls(CALLS)
        rate = CALLS / (time.perf_counter() - started)
        gc.collect()
        grown = {name: resident(pid) - before[name] for name, pid in processes.items()}
        print(f"{CALLS} calls, {rate:.0f}/s, grown by {grown} bytes")
        assert max(grown.values()) < SLACK, grown
