"""Uses tritonclient[http] as a user would, with the gateway at argv[1]."""

import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import tritonclient.http as http
from tritonclient.utils import InferenceServerException


def tensors(grids, binary=True):
    """Grids of any size up to 30 x 30 as the inputs GRID and SIZE."""
    cells = np.zeros((len(grids), 30, 30), np.uint8)
    sizes = np.array([grid.shape for grid in grids], np.int32)
    for place, grid in zip(cells, grids):
        place[: grid.shape[0], : grid.shape[1]] = grid
    inputs = [
        http.InferInput("GRID", list(cells.shape), "UINT8"),
        http.InferInput("SIZE", list(sizes.shape), "INT32"),
    ]
    for tensor, data in zip(inputs, [cells, sizes]):
        tensor.set_data_from_numpy(data, binary_data=binary)
    return inputs


def grids_of(result):
    """The grids of a result."""
    sizes = result.as_numpy("SIZE")
    return [cells[:h, :w] for cells, (h, w) in zip(result.as_numpy("GRID"), sizes)]


def check(result, want):
    assert (result.as_numpy("STATUS") == 0).all(), result.get_response()
    got = grids_of(result)
    assert len(got) == len(want)
    for one, other in zip(got, want):
        assert np.array_equal(one, other), (one, other)


def fails(call, status, words):
    try:
        call()
    except InferenceServerException as error:
        assert error.status() == str(status) and words in error.message(), error
        return
    raise AssertionError(f"{words}: nothing was raised")


def about(client):
    assert client.is_server_live() and client.is_server_ready()
    assert client.is_model_ready("rot90") and client.is_model_ready("rot90", "1")
    assert not client.is_model_ready("nope")
    assert "binary_tensor_data" in client.get_server_metadata()["extensions"]
    metadata = client.get_model_metadata("rot90", "1")
    assert [tensor["name"] for tensor in metadata["inputs"]] == ["GRID", "SIZE"]
    assert client.get_model_config("rot90")["max_batch_size"] >= 1024
    index = client.get_model_repository_index()
    assert {"name": "rot90", "version": "1", "state": "READY", "reason": ""} in index
    fails(lambda: client.get_model_metadata("nope"), 404, "there is no model `nope`")
    fails(lambda: client.load_model("rot90"), 501, "built in")
    fails(lambda: client.unload_model("rot90"), 501, "built in")


def infer(client):
    rng = np.random.default_rng(7)
    grids = [rng.integers(0, 10, rng.integers(1, 31, 2), np.uint8) for _ in range(100)]
    turned = [np.rot90(grid, -1) for grid in grids]
    outputs = [http.InferRequestedOutput(name) for name in ["GRID", "SIZE", "STATUS"]]
    as_json = [
        http.InferRequestedOutput(name, binary_data=False) for name in ["STATUS", "GRID", "SIZE"]
    ]
    for binary in [True, False]:
        for wanted in [None, outputs, as_json]:
            check(client.infer("rot90", tensors(grids, binary), outputs=wanted), turned)
    result = client.infer(
        "rot90", tensors(grids[:1]), model_version="1", request_id="r 7", timeout=10_000_000, priority=1
    )
    response = result.get_response()
    assert response["id"] == "r 7" and response["parameters"]["device_kind"] in ("cpu", "gpu")
    program = {"program": "rot90 | replace(0, 5)"}
    result = client.infer("program", tensors(grids), parameters=program)
    check(result, [np.where(grid == 0, 5, grid) for grid in turned])
    result = client.infer("program", tensors(grids[:3]), parameters={"program": "upscale(30)"})
    sizes = [max(grid.shape) for grid in grids[:3]]
    assert all(status != 0 for status, size in zip(result.as_numpy("STATUS"), sizes) if size > 1)
    waiting = [client.async_infer("rot90", tensors([grid])) for grid in grids]
    for request, want in zip(waiting, turned):
        check(request.get_result(), [want])
    fails(lambda: client.infer("nope", tensors(grids)), 404, "there is no model")
    fails(lambda: client.infer("rot90", tensors(grids)[:1]), 400, "no input `SIZE`")
    bad = [np.full((1, 1), 10, np.uint8)]
    fails(lambda: client.infer("rot90", tensors(bad)), 400, "10 is not a colour")
    before = client.get_inference_statistics("rot180")["model_stats"][0]
    check(client.infer("rot180", tensors(grids)), [np.rot90(grid, 2) for grid in grids])
    after = client.get_inference_statistics("rot180")["model_stats"][0]
    assert after["inference_count"] - before["inference_count"] == len(grids)


def many_threads(address):
    def work(seed):
        with http.InferenceServerClient(address) as client:
            rng = np.random.default_rng(seed)
            for _ in range(20):
                grids = [rng.integers(0, 10, (9, 7), np.uint8) for _ in range(5)]
                check(client.infer("rot90", tensors(grids)), [np.rot90(g, -1) for g in grids])

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(work, range(8)))


def main():
    address = sys.argv[1]
    with http.InferenceServerClient(address, concurrency=8) as client:
        about(client)
        infer(client)
    many_threads(address)
    print("all is as it should be")


main()
