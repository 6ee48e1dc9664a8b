"""Futures, `map`, searches and tasks that are cancelled, closed, interrupted, or given something wrong."""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import gc
import os
import signal
import threading
import time
import weakref

import gridpool
import numpy as np
import pytest
from conftest import turned
from test_jobs import LONG, slow  # noqa: F401


def test_a_future_may_be_cancelled_again(pool, slow):
    future = pool.submit(LONG, slow)
    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        assert all(threads.map(lambda _: future.cancel(), range(50)))
    assert concurrent.futures.wait([future], 1).done == {future}


def idle(pool: gridpool.Pool) -> bool:
    """Whether the pool gets rid of its jobs soon."""
    until = time.monotonic() + 10
    while time.monotonic() < until:
        if all(row["state"] != "busy" for row in pool.status()["workers"]):
            return True
        time.sleep(0.05)
    return False


def test_closing_a_client_cancels_what_is_under_way(pool, slow):
    client = gridpool.connect(pool.socket)
    futures = [client.submit(LONG, slow), *client.submit_many(LONG, [slow[:90]] * 40)]
    client.close()
    assert len(concurrent.futures.wait(futures, 5).done) == len(futures)
    assert futures[0].cancelled() and idle(pool)

    async def main() -> None:
        call = asyncio.create_task(client.arun(LONG, slow))
        await asyncio.sleep(0.5)
        client.close()
        with pytest.raises(gridpool.Cancelled):
            await asyncio.wait_for(call, 5)

    asyncio.run(main())
    assert client.submit("rot90", [[[1, 2]]]).result(10).to_lists() == [[[1], [2]]]


def test_a_future_keeps_its_client(pool, slow):
    future = gridpool.connect(pool.socket).submit("rot90", slow)
    gc.collect()
    assert len(future.result(20)) == len(slow)
    client = weakref.ref(gridpool.connect(pool.socket))
    assert client() is None, "nothing keeps it without a job"


def test_map_gives_the_results_before_an_error(pool, grids):
    def batches(last):
        yield from ([grid] for grid in grids[:5])
        yield last()

    for last in (lambda: [[[77]]], lambda: 1 // 0):
        for ordered in (True, False):
            got = []
            with pytest.raises((gridpool.BadInput, ZeroDivisionError)):
                for results in pool.map("rot90", batches(last), ordered=ordered):
                    got += results.to_dsl()
            assert sorted(got) == sorted(turned(grid) for grid in grids[:5])


def test_cancelling_a_task_cancels_a_job_that_is_being_sent(pool, slow):
    async def main() -> None:
        for pause in (0.0, 0.001, 0.003, 0.01):
            call = asyncio.create_task(pool.arun(LONG, slow.astype(np.int64)))
            await asyncio.sleep(pause)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call

    asyncio.run(main())
    assert idle(pool)


def test_ctrl_c_cancels_the_jobs_of_map(pool, slow):
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        list(pool.map(LONG, [slow] * 4, window=2, deadline=60))
    assert idle(pool)


def test_ctrl_c_ends_a_wait_for_shared_memory(pool):
    client = gridpool.connect(pool.socket)
    held = []
    large = np.ones((1000, 30, 30), np.uint8)
    with pytest.raises(gridpool.Busy):
        while True:
            held.append(client.load(large))
    one = functools.partial(client.submit, "rot90", large, deadline=60)
    for send in (one, functools.partial(client.submit_many, "rot90", [large], deadline=60)):
        began = time.monotonic()
        timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            send()
        assert time.monotonic() - began < 30, "it waited for the deadline"
    del held
    assert client.run("rot90", large).to_numpy()[0].size == large.size


def test_a_pool_that_is_closed_says_so_at_once(pool):
    own = gridpool.Pool(devices="cpu:1")
    own.close()
    own.close()
    began = time.monotonic()
    calls = [lambda: own.run("rot90", [[[1]]]), lambda: own.submit("rot90", [[[1]]]).result(), own.status]
    for call in calls:
        with pytest.raises(gridpool.NoPool, match="this pool is closed: make another"):
            call()
    assert time.monotonic() - began < 5, "it waited for the pool"
    assert own.socket.endswith("pool.sock")


def test_a_callback_that_ends_its_thread_ends_no_future(pool):
    def leave(_: object) -> None:
        raise SystemExit(3)

    future = pool.submit(LONG, [[[1] * 30] * 30] * 50)
    future.add_done_callback(leave)
    future.result(20)
    assert pool.submit("rot90", [[[1, 2]]]).result(20).to_lists() == [[[1], [2]]]


def test_an_error_of_many_names_the_batch(pool):
    with pytest.raises(gridpool.BadInput, match="batch 1: grid 0, row 0, column 0: 77") as caught:
        pool.submit_many("rot90", [[[[1]]], [[[77]]]])
    assert (caught.value.batch, caught.value.grid, caught.value.row) == (1, 0, 0)


@pytest.mark.parametrize("sizes", [[(-1, -6)], "ab", None, [(1, 2, 3)], [(1.0, 6.0)], np.array([1, 6]), [(2**64, 2)]])
def test_wrong_sizes_are_bad_input(pool, sizes):
    with pytest.raises(gridpool.BadInput, match="rows and columns"):
        pool.run("rot90", (np.arange(6), sizes))


def test_arrays_that_are_no_grids_say_what_to_write(pool):
    several = np.ones((1, 1, 1, 1), int)
    for wrong, why in ((np.array(5), "0 dimensions"), (np.array([[[1]]], object), "astype"), (several, "rows")):
        with pytest.raises(gridpool.BadInput, match=why):
            pool.run("rot90", wrong)
    with pytest.raises(gridpool.BadInput, match="an item is a grid"):
        pool.run("first", [[[1, 2], [3, 4]]])


def test_threads_share_a_search(pool):
    def texts():
        for at in range(300):
            # Another thread has its turn.
            time.sleep(0.0001)
            yield f"replace({at % 10}, {at // 10 % 10}) | rot90"

    search = pool.search(texts(), {"train": [([[1]], [[1]])], "test": []})
    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        shares = list(threads.map(lambda _: [result.id for result in search], range(4)))
    found = [name for share in shares for name in share]
    assert sorted(found, key=int) == [str(at) for at in range(300)]


def test_a_wrong_search_says_what_to_write(pool):
    task = {"train": [([[1]], [[1]])], "test": []}
    for wrong in ({"steps": 0}, {"steps": 2**40}, {"threads": 10**9}, {"threads": -1}):
        with pytest.raises(ValueError, match="write a number from 1"):
            pool.search(["rot90"], task, **wrong)
    for program in (("a", "rot90", "x"), "\ud800"):
        search = pool.search([program, "rot90"], task)
        with pytest.raises(ValueError, match="program 0"):
            list(search)
        assert [result.id for result in search] == ["1"]


def test_a_pool_that_ends_while_it_starts_says_why(tmp_path):
    model = tmp_path / "wrong.onnx"
    model.write_text("no model")
    with pytest.raises(gridpool.StartError, match="wrong|onnx|ONNX"):
        gridpool.Pool(devices="cpu:1", models={"wrong": model})


def test_an_executor_that_was_shut_down_maps_nothing(pool):
    executor = gridpool.Executor(pool)
    executor.shutdown()
    with pytest.raises(RuntimeError):
        executor.map("rot90", [[[1]]])
