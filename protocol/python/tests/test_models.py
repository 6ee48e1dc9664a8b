"""Loads of models: every option, progress, a deadline, and an end before they are done."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Iterator
from pathlib import Path
from types import MappingProxyType
from typing import Any

import gridpool
import pytest
from conftest import DATA, needed

np = pytest.importorskip("numpy")
needed("onnxruntime")
MODELS = DATA / "models"


@pytest.fixture(scope="module")
def served() -> Iterator[gridpool.Pool]:
    with gridpool.Pool(devices="cpu:2", models={"mlp": MODELS / "mlp.onnx"}) as pool:
        yield pool


def rows(pool: gridpool.Pool, name: str) -> list[dict[str, Any]]:
    return [row for row in pool.models if row["model"]["name"] == name]


def ones(columns: int = 16) -> Any:
    return {"x": np.ones((3, columns), np.float32)}


def test_a_model_is_loaded_with_the_options_that_a_call_names(served: gridpool.Pool):
    said = served.load_model(
        "tuned",
        MODELS / "mlp.onnx",
        contexts=2,
        max_batch=8,
        max_queue_delay_us=100,
        preferred_batch={4, 8},
        group="small",
        devices=["cpu1"],
        device_count=1,
        warm_up=[{"x": (4, 16)}],
        queue_requests=100,
        load_timeout_s=100,
    )
    assert "cpu1" in said
    (row,) = rows(served, "tuned")
    assert (row["model"]["contexts"], row["model"]["max_batch"]) == (2, 8)
    assert row["worker"].startswith("cpu1#")
    groups = {row["group"] for row in served.status()["workers"] if row["name"].startswith("cpu1#")}
    assert "small" in groups, groups
    assert served.infer("tuned", ones()).receipt is not None
    served.set_contexts("tuned", 1)
    assert rows(served, "tuned")[0]["model"]["contexts"] == 1
    served.unload_model("tuned")
    assert rows(served, "tuned") == []


def test_versions_are_numbered_or_follow_each_other(served: gridpool.Pool):
    served.load_model("versions", MODELS / "mlp.onnx")
    served.load_model("versions", str(MODELS / "mlp.onnx"), version=5, keep=True)
    served.load_model("versions", MODELS / "mlp.onnx", keep=True)
    names = {row["model"]["name"] for row in served.models}
    assert {"versions", "versions:5", "versions:6"} <= names
    assert served.infer("versions", ones()).receipt.attempts[-1].infer["model"] == "versions:6"
    served.unload_model("versions")


def test_what_is_no_option_is_refused_before_the_pool_is_asked(served: gridpool.Pool):
    def load(**options: Any) -> str:
        return served.load_model("wrong", MODELS / "mlp.onnx", **options)

    with pytest.raises(TypeError, match="no option of a model is called 'context': contexts, latency_ms"):
        load(context=4)
    for options, words in [
        ({"contexts": 0}, "0 contexts"),
        ({"contexts": "many"}, "auto"),
        ({"max_batch": -1}, "max_batch|invalid value"),
        ({"devices": ["tpu0"]}, "`tpu0` is no device"),
        ({"providers": ["cuda", "cuda"]}, "cuda"),
        ({"load_timeout_s": 0}, "load_timeout_s"),
        ({"device_count": 0}, "device_count"),
    ]:
        with pytest.raises(ValueError, match=words):
            load(**options)
    with pytest.raises(gridpool.Refused, match="cannot be loaded"):
        served.load_model("wrong", MODELS / "mlp.onnx", sha256="0" * 64)
    with pytest.raises(gridpool.Refused):
        served.load_model("wrong", MODELS / "none.onnx")
    assert rows(served, "wrong") == []


def test_a_load_says_how_far_it_is_and_ends_when_it_is_cancelled(served: gridpool.Pool):
    load = served.start_load("endless", MODELS / "endless.onnx", devices=["cpu0"])
    seen: list[dict[str, str]] = []
    warms = threading.Event()

    def look(progress: dict[str, str]) -> None:
        seen.append(progress)
        if "warming up" in progress.values():
            warms.set()

    waits = threading.Thread(target=lambda: pytest.raises(gridpool.LoadCancelled, load.wait, look))
    waits.start()
    assert warms.wait(60), seen
    assert all(worker.startswith("cpu0#") for worker in seen[-1]), seen[-1]
    assert not load.done()
    with pytest.raises(TimeoutError, match="`endless` is still being loaded"):
        load.result(timeout=0.0)
    # Others are served meanwhile.
    assert served.infer("mlp", ones()).receipt is not None
    load.cancel()
    waits.join(60)
    assert not waits.is_alive() and load.done()
    with pytest.raises(gridpool.LoadCancelled, match="the load of `endless` was cancelled"):
        load.result()
    # The name is free as soon as the pool has seen it.
    done = threading.Event()
    while not done.wait(0.01):
        try:
            served.load_model("endless", MODELS / "mlp.onnx")
            done.set()
        except gridpool.Refused as refused:
            assert "being" in str(refused), refused
    served.unload_model("endless")


def test_a_fork_is_told_that_the_load_is_its_parents(served: gridpool.Pool):
    load = served.start_load("forked", MODELS / "endless.onnx", devices=["cpu0"])
    says, said = multiprocessing.Pipe()

    def child() -> None:
        for look in (load.done, load.result):
            try:
                look()
            except RuntimeError as error:
                said.send(str(error))
        load.cancel()

    forked = multiprocessing.get_context("fork").Process(target=child)
    forked.start()
    try:
        for _ in range(2):
            assert says.poll(60), "the child waits"
            assert says.recv() == "the load is the parent process's: wait for it there"
        forked.join(60)
        assert forked.exitcode == 0
        assert not load.done(), "the child has not cancelled it"
    finally:
        forked.kill()
        load.cancel()
    with pytest.raises(gridpool.LoadCancelled):
        load.result(60)


def test_options_may_be_of_any_type_that_has_the_same_in_it(served: gridpool.Pool):
    shapes = MappingProxyType({"x": (np.int64(2), 16)})
    load = served.start_load("typed", MODELS / "mlp.onnx", warm_up=(shapes,), max_batch=np.int32(8), devices={"cpu0"})
    load.result(120)
    served.unload_model("typed")
    with pytest.raises(TypeError, match="is no option of a model: write numbers"):
        served.load_model("typed", MODELS / "mlp.onnx", max_batch=object())


def test_a_load_has_a_deadline(served: gridpool.Pool):
    with pytest.raises(gridpool.Refused, match="took longer than it may"):
        served.load_model("late", MODELS / "endless.onnx", load_timeout_s=1, devices=["cpu1"])
    assert rows(served, "late") == []


def test_an_exception_of_the_callback_ends_the_load(served: gridpool.Pool):
    class Enough(Exception):
        pass

    def stop(progress: dict[str, str]) -> None:
        if progress:
            raise Enough

    with pytest.raises(Enough):
        served.load_model("endless", MODELS / "endless.onnx", progress=stop)
    assert "endless" not in {row["model"]["name"] for row in served.models}


def test_the_load_of_another_name_goes_on(served: gridpool.Pool, tmp_path: Path):
    load = served.start_load("beside", MODELS / "three_outputs.onnx")
    assert repr(load) == "<gridpool.ModelLoad of 'beside'>"
    assert load.result(timeout=120)
    assert load.done() and load.result() == load.result()
    load.cancel()
    assert rows(served, "beside"), "it was done before"
    served.unload_model("beside")
