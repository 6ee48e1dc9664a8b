"""Jobs: errors with data, threads, futures, asyncio, forks, signals, kills, leaks, and the interpreter's end."""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import itertools
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time

import gridpool
import numpy as np
import pytest
from conftest import DATA, needed, turned

#: A program that takes long.
LONG = " | ".join(["upscale(2) | o_g(7) | merge | fill(3) | downscale(2)"] * 12)


@pytest.fixture(scope="module")
def slow() -> np.ndarray:
    """A batch whose job takes seconds on a CPU worker."""
    return np.random.default_rng(1).integers(0, 10, (40_000, 30, 30)).astype(np.uint8)


def script(text: str, *, check: bool = True, **options) -> subprocess.CompletedProcess:
    text = "import gridpool, os, signal, sys, threading, time\n" + textwrap.dedent(text)
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=120, **options)
    assert not check or done.returncode == 0, done.stderr
    return done


def test_a_program_error_has_a_caret(pool):
    with pytest.raises(gridpool.ProgramError) as caught:
        pool.run("rot90 | flip", [[[1]]])
    error = caught.value
    assert error.program[error.start : error.end] == "flip" and "^^^^" in str(error)
    with pytest.raises(gridpool.ProgramError):
        gridpool.compile("é | rot90")
    assert gridpool.compile("first | rot90").pairs


def test_another_interpreter_of_the_process_cannot_import_it():
    # It could, and the process then hung at its end.
    done = script("""
        try:
            import _interpreters as interpreters
            other = interpreters.create("legacy")
        except ImportError:
            import _xxsubinterpreters as interpreters
            other = interpreters.create(isolated=False)
        interpreters.run_string(other, '''if True:
            try:
                import gridpool
            except ImportError as error:
                print(error, flush=True)
        ''')
        print(gridpool.compile("rot90"), flush=True)
    """)
    assert "first interpreter of a process alone" in done.stdout, done.stdout + done.stderr
    assert "rot90" in done.stdout


def test_errors_travel_between_processes(pool):
    with pytest.raises(gridpool.JobError) as caught:
        pool.run("rot90", [[[1]]], deadline=0)
    for error in (caught.value, gridpool.BadInput("x", 1, 2, 3), gridpool.Busy("full", 0.5)):
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is type(error) and str(again) == str(error)
    assert pickle.loads(pickle.dumps(caught.value)).receipt == caught.value.receipt


def test_a_deadline_is_a_timeout_error(pool):
    with pytest.raises(TimeoutError) as caught:
        pool.run("rot90", [[[1]]], deadline=0)
    assert isinstance(caught.value, gridpool.Deadline) and caught.value.receipt.verdict == "DEADLINE"
    for wrong in ({"deadline": -1}, {"priority": "now"}, {"ties": "x"}):
        with pytest.raises(ValueError):
            pool.run("rot90", [[[1]]], **wrong)


def test_no_pool(tmp_path):
    with pytest.raises(ConnectionError) as caught:
        gridpool.connect(tmp_path / "none.sock")
    assert isinstance(caught.value, gridpool.NoPool)
    with pytest.raises(gridpool.StartError) as caught:
        gridpool.Pool(devices="nonsense")
    assert "nonsense" in str(caught.value)


def test_threads_share_a_client(pool, grids):
    wrong = []

    def work(n: int) -> None:
        for at in range(20):
            some = grids[n * 5 + at : n * 5 + at + 9]
            if pool.run("rot90", some).to_dsl() != [turned(grid) for grid in some]:
                wrong.append((n, at))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(16)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert not wrong


def test_futures(pool, grids):
    futures = {pool.submit("rot90", grids[at : at + 3]): at for at in range(50)}
    for future in concurrent.futures.as_completed(futures):
        at = futures[future]
        assert future.result().to_dsl() == [turned(grid) for grid in grids[at : at + 3]]
    assert isinstance(pool.submit("rot90", [[[1]]], deadline=0).exception(), gridpool.Deadline)


def test_many_jobs_in_one_message(pool, grids):
    batches = [grids[at : at + 1 + at % 5] for at in range(50)]
    futures = pool.submit_many("rot90", batches)
    for batch, future in zip(batches, futures):
        assert future.result().to_dsl() == [turned(grid) for grid in batch]
    assert len({future.result().receipt.job for future in futures}) == len(batches)
    assert pool.submit_many("rot90", []) == []
    with pytest.raises(gridpool.BadInput):
        pool.submit_many("rot90", [[[[1]]], [[[77]]]])
    many = pool.submit_many("rot90", [[[[1]]]] * 3, deadline=0)
    assert all(isinstance(future.exception(), gridpool.Deadline) for future in many)


def test_a_future_is_cancelled_while_it_runs(pool, grids, slow):
    future = pool.submit(LONG, slow)
    assert future.cancel() and future.cancelled()
    assert concurrent.futures.wait([future], 1).done == {future}
    assert pool.run("rot90", grids[:1]).to_dsl() == [turned(grids[0])]


def test_map_is_lazy_and_bounded(pool, grids):
    taken = []

    def batches():
        for at in range(40):
            taken.append(at)
            yield grids[at : at + 2]

    got = pool.map("rot90", batches(), window=4)
    assert not taken, "nothing is taken before it is asked for"
    next(got)
    assert len(taken) == 4
    got.close()
    for ordered in (True, False):
        values = [r.to_dsl() for r in pool.map("rot90", batches(), window=4, ordered=ordered)]
        want = [[turned(grid) for grid in grids[at : at + 2]] for at in range(40)]
        assert sorted(values) == sorted(want) and (not ordered or values == want)


def test_asyncio_starts_no_thread_a_call(pool, grids, slow):
    async def main() -> None:
        await pool.arun("rot90", grids[:1])
        before = threading.active_count()
        calls = [pool.arun("rot90", grids[at : at + 3]) for at in range(100)]
        for at, results in enumerate(await asyncio.gather(*calls)):
            assert results.to_dsl() == [turned(grid) for grid in grids[at : at + 3]]
        large = await asyncio.gather(*(pool.arun("rot90", grids) for _ in range(8)))
        assert all(results.to_dsl() == [turned(grid) for grid in grids] for results in large)
        assert threading.active_count() <= before + 4
        with pytest.raises(gridpool.Deadline):
            await pool.arun("rot90", grids[:1], deadline=0)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(pool.arun(LONG, slow), 0.2)

    asyncio.run(main())


def test_an_executor(pool, grids):
    with gridpool.Executor(pool) as executor:
        assert list(executor.map("rot90", grids, chunksize=30)) == [turned(grid) for grid in grids]
        assert executor.submit("rot90", grids[0]).result() == turned(grids[0])
        with pytest.raises(TypeError):
            executor.submit(lambda grid: grid, grids[0])
    with pytest.raises(RuntimeError):
        executor.submit("rot90", grids[0])


def test_any_number_of_large_results_may_be_held(pool):
    grids = [np.full((40, 30, 30), number % 10, np.uint8) for number in range(300)]
    client = gridpool.connect(pool.socket)
    held = [client.run("hmirror", grid) for grid in grids]
    futures = [client.submit("hmirror", grid) for grid in grids]
    many = client.submit_many("hmirror", grids)
    for results in (held, [future.result(60) for future in futures], [future.result(60) for future in many]):
        for result, grid in zip(results, grids):
            assert (result.to_numpy()[0] == grid.ravel()).all()


def in_child(pool: gridpool.Pool, grid: tuple) -> bool:
    future = pool.submit("rot90", [grid])
    return pool.run("rot90", [grid]).to_dsl() == future.result().to_dsl() == [turned(grid)]


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_children_connect_anew(pool, grids, method):
    pool.submit("rot90", grids[:1]).result()
    held = pool.run("rot90", grids)
    context = multiprocessing.get_context(method)
    with context.Pool(3) as children:
        assert all(children.starmap(in_child, [(pool, grid) for grid in grids[:30]]))
    assert held.to_dsl() == [turned(grid) for grid in grids], "the children have left it alone"
    assert in_child(pool, grids[0])


def test_ctrl_c_cancels_the_job_and_leaves_the_client_usable(pool, slow):
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    batch = pool.load(slow)
    timer.start()
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        while True:
            pool.run(LONG, batch, deadline=60)
    assert time.monotonic() - started < 10
    assert pool.run("rot90", [[[1, 2]]]).to_lists() == [[[1], [2]]]


def test_workers_are_killed_under_load(grids):
    want = [turned(grid) for grid in grids]
    with gridpool.Pool(devices="cpu:2") as pool:
        stop = threading.Event()

        def kill() -> None:
            # One after the other, so that a busy machine makes progress, too.
            for worker in itertools.cycle(("cpu0", "cpu1")):
                if stop.wait(0.7):
                    return
                try:
                    pool.kill(worker)
                except gridpool.Refused:
                    continue

        killer = threading.Thread(target=kill)
        killer.start()
        until = time.monotonic() + 4
        try:
            while time.monotonic() < until:
                futures = [pool.submit("rot90", grids, deadline=120) for _ in range(4)]
                assert all(future.result().to_dsl() == want for future in futures)
        finally:
            stop.set()
            killer.join()
        assert any(row["generation"] > 1 for row in pool.status()["workers"])


def serve(socket: str) -> subprocess.Popen:
    command = [sys.executable, "-m", "gridpool", "serve", "--devices", "cpu:1", "--socket", socket]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def test_a_supervisor_that_starts_again_is_survived(tmp_path, grids):
    socket = str(tmp_path / "pool.sock")
    first = serve(socket)
    client = gridpool.connect(socket, wait_for_pool=20, reconnect_for=20)
    loaded = client.load(grids)
    want = [turned(grid) for grid in grids]
    assert client.run("rot90", loaded).to_dsl() == want
    future = client.submit("rot90", grids)
    first.kill()
    first.wait()
    second = serve(socket)
    try:
        assert future.result(60).to_dsl() == want
        assert client.run("rot90", loaded).to_dsl() == want
    finally:
        second.kill()
        second.wait()
    client = None


def test_a_supervisor_that_is_gone_is_an_error(tmp_path, slow):
    socket = str(tmp_path / "pool.sock")
    process = serve(socket)
    client = gridpool.connect(socket, wait_for_pool=20, reconnect_for=0.2)
    future = client.submit(LONG, slow)
    process.kill()
    process.wait()
    assert isinstance(future.exception(30), ConnectionError)
    with pytest.raises(ConnectionError):
        client.run("rot90", [[[1]]])


def resident() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def test_nothing_leaks(pool, grids):
    array = np.ones((500, 10, 10), np.uint8)

    def calls(n: int) -> None:
        for _ in range(n):
            pool.run("rot90", grids[:20]).to_dsl()
            pool.run("o_g(5)", grids[:5]).to_dsl()
            pool.run("rot90", array).stack()
            pool.submit("rot90", grids[:3]).result()
            with pytest.raises(gridpool.BadInput):
                pool.run("rot90", [[[77]]])

    calls(200)
    gc.collect()
    memory, descriptors = resident(), len(os.listdir("/proc/self/fd"))
    calls(1_000)
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= descriptors + 2
    assert resident() - memory < 8 << 20


def test_a_client_that_is_collected_leaves_nothing(pool):
    def use() -> None:
        client = gridpool.connect(pool.socket)
        client.submit("rot90", [[[1]]]).result()
        client.run("rot90", np.ones((500, 10, 10), np.uint8))

    use()
    gc.collect()
    time.sleep(0.2)
    before = (len(os.listdir("/proc/self/fd")), threading.active_count())
    for _ in range(20):
        use()
    gc.collect()
    until = time.monotonic() + 5
    while time.monotonic() < until:
        now = (len(os.listdir("/proc/self/fd")), threading.active_count())
        if now[0] <= before[0] + 2 and now[1] <= before[1] + 1:
            return
        time.sleep(0.05)
    raise AssertionError((before, now))


@pytest.mark.parametrize("end", ["", "sys.exit(0)", "del pool"])
def test_the_interpreter_ends_with_jobs_under_way(end):
    done = script(f"""
        import numpy as np
        pool = gridpool.Pool(devices="cpu:1")
        batch = np.tile(np.arange(9, dtype=np.uint8), (20_000, 30, 3))
        program = " | ".join(["upscale(2) | o_g(7) | merge | fill(3) | downscale(2)"] * 12)
        futures = [pool.submit(program, batch) for _ in range(3)]
        small = [pool.submit("rot90", [[[1]]]) for _ in range(100)]
        for _ in range(4):
            threading.Thread(target=lambda: pool.run(program, batch), daemon=True).start()
        time.sleep(0.3)
        {end}
    """)
    assert done.stderr == "", done.stderr


def test_a_pool_ends_with_a_program_that_is_killed():
    done = script(
        """
        pool = gridpool.Pool(devices="cpu:1")
        print(pool.pid, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
        """,
        check=False,
    )
    pid = int(done.stdout)
    until = time.monotonic() + 10
    while os.path.exists(f"/proc/{pid}") and time.monotonic() < until:
        with open(f"/proc/{pid}/stat") as stat:
            if stat.read().rsplit(")", 1)[1].split()[0] == "Z":
                return
        time.sleep(0.05)
    assert not os.path.exists(f"/proc/{pid}")


def test_models_need_no_grids(pool):
    with pytest.raises(gridpool.Error):
        pool.infer("nothing", {"x": np.ones((1, 2), np.float32)})
    assert pool.models == []


def test_a_model():
    needed("onnxruntime")
    with gridpool.Pool(devices="cpu:1", models={"mlp": DATA / "models" / "mlp.onnx"}) as pool:
        result = pool.infer("mlp", {"x": np.ones((3, 16), np.float32)})
        (values,) = result.values()
        assert values.shape[0] == 3 and result.receipt.verdict == "OK"


def test_a_model_of_texts():
    needed("onnxruntime")
    with gridpool.Pool(devices="cpu:1", models={"strings": DATA / "models" / "strings.onnx"}) as pool:
        want = [b"one", b"", b"\xff\0", "ä€".encode()]
        for texts in (np.array(want, object), want, np.array(["one", "", "x", "ä€"])):
            (got,) = pool.infer("strings", {"text": texts}, priority="high").values()
            assert got.dtype == object and got.shape == (4,)
            assert list(got) == [t.encode() if isinstance(t, str) else t for t in list(texts)]
        with pytest.raises(ValueError, match="neither text nor bytes"):
            pool.infer("strings", {"text": np.array([1, None], object)})
        with pytest.raises(ValueError, match="priority"):
            pool.infer("strings", {"text": want}, priority="urgent")


def test_the_command_is_the_package_s():
    done = subprocess.run([sys.executable, "-m", "gridpool", "--version"], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.startswith("gridpool ")
