"""Uses tritonclient[grpc] as a user would, with the gateway at argv[1]."""

import queue
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import tritonclient.grpc as grpc
from tritonclient.utils import InferenceServerException


def tensors(grids):
    """Grids of any size up to 30 x 30 as the inputs GRID and SIZE."""
    cells = np.zeros((len(grids), 30, 30), np.uint8)
    sizes = np.array([grid.shape for grid in grids], np.int32)
    for place, grid in zip(cells, grids):
        place[: grid.shape[0], : grid.shape[1]] = grid
    inputs = [
        grpc.InferInput("GRID", list(cells.shape), "UINT8"),
        grpc.InferInput("SIZE", list(sizes.shape), "INT32"),
    ]
    for tensor, data in zip(inputs, [cells, sizes]):
        tensor.set_data_from_numpy(data)
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


def fails(call, code, words):
    try:
        call()
    except InferenceServerException as error:
        assert error.status() == f"StatusCode.{code}" and words in error.message(), error
        return
    raise AssertionError(f"{words}: nothing was raised")


def eventually(is_so):
    end = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < end, "it is not so in time"
        time.sleep(0.01)


def about(client):
    assert client.is_server_live() and client.is_server_ready()
    assert client.is_model_ready("rot90") and client.is_model_ready("rot90", "1")
    assert not client.is_model_ready("nope")
    metadata = client.get_server_metadata()
    assert metadata.name == "gridpool" and "binary_tensor_data" in metadata.extensions
    metadata = client.get_model_metadata("rot90", "1")
    assert [tensor.name for tensor in metadata.inputs] == ["GRID", "SIZE"]
    assert list(metadata.inputs[0].shape) == [-1, 30, 30] and metadata.versions == ["1"]
    config = client.get_model_config("rot90").config
    assert config.max_batch_size >= 1024 and config.version_policy.latest.num_versions == 1
    assert [list(tensor.dims) for tensor in config.input] == [[30, 30], [2]]
    as_json = client.get_model_config("rot90", as_json=True)["config"]
    assert as_json["input"][0]["data_type"] == "TYPE_UINT8", as_json
    assert "GRID" in [tensor.name for tensor in config.output] and config.backend == "gridpool"
    index = client.get_model_repository_index().models
    assert ("rot90", "1", "READY", "") in [(m.name, m.version, m.state, m.reason) for m in index]
    fails(lambda: client.get_model_metadata("nope"), "NOT_FOUND", "there is no model `nope`")
    fails(lambda: client.get_model_metadata("rot90", "2"), "NOT_FOUND", "has no version `2`")
    fails(lambda: client.load_model("rot90"), "UNIMPLEMENTED", "built in")
    fails(lambda: client.load_model("m"), "UNIMPLEMENTED", "gridpool model load m=PATH")
    fails(lambda: client.unload_model("rot90"), "UNIMPLEMENTED", "built in")


def not_served(client):
    shared = "shared memory is not served"
    fails(client.get_system_shared_memory_status, "UNIMPLEMENTED", shared)
    fails(lambda: client.register_system_shared_memory("r", "/r", 8), "UNIMPLEMENTED", shared)
    fails(client.unregister_system_shared_memory, "UNIMPLEMENTED", shared)
    fails(client.get_cuda_shared_memory_status, "UNIMPLEMENTED", "CUDA")
    fails(lambda: client.register_cuda_shared_memory("r", b"aGk=", 0, 8), "UNIMPLEMENTED", "CUDA")
    fails(client.unregister_cuda_shared_memory, "UNIMPLEMENTED", "CUDA")
    fails(client.get_trace_settings, "UNIMPLEMENTED", "receipt")
    fails(lambda: client.update_log_settings({"log_info": True}), "UNIMPLEMENTED", "GRIDPOOL_LOG")


def infer(client):
    rng = np.random.default_rng(7)
    grids = [rng.integers(0, 10, rng.integers(1, 31, 2), np.uint8) for _ in range(100)]
    turned = [np.rot90(grid, -1) for grid in grids]
    outputs = [grpc.InferRequestedOutput(name) for name in ["GRID", "SIZE", "STATUS"]]
    for wanted in [None, outputs, outputs[::-1]]:
        check(client.infer("rot90", tensors(grids), outputs=wanted), turned)
    check(client.infer("rot90", tensors(grids), compression_algorithm="gzip"), turned)
    fails(
        lambda: client.infer("rot90", tensors(grids), compression_algorithm="deflate"),
        "UNIMPLEMENTED", "use gzip",
    )
    only = client.infer("rot90", tensors(grids), outputs=[grpc.InferRequestedOutput("SIZE")])
    assert [output.name for output in only.get_response().outputs] == ["SIZE"]
    result = client.infer(
        "rot90", tensors(grids[:1]), model_version="1", request_id="r 7", timeout=10_000_000, priority=1,
        client_timeout=20,
    )
    response = result.get_response()
    assert response.id == "r 7" and response.model_name == "rot90"
    assert response.parameters["device_kind"].string_param in ("cpu", "gpu")
    assert response.parameters["attempts"].int64_param == 1
    assert response.parameters["receipt"].string_param.startswith("{")
    program = {"program": "rot90 | replace(0, 5)"}
    result = client.infer("program", tensors(grids), parameters=program)
    check(result, [np.where(grid == 0, 5, grid) for grid in turned])
    result = client.infer("program", tensors(grids[:3]), parameters={"program": "upscale(30)"})
    sizes = [max(grid.shape) for grid in grids[:3]]
    assert all(status != 0 for status, size in zip(result.as_numpy("STATUS"), sizes) if size > 1)
    fails(lambda: client.infer("nope", tensors(grids)), "NOT_FOUND", "there is no model")
    fails(lambda: client.infer("rot90", tensors(grids)[:1]), "INVALID_ARGUMENT", "no input `SIZE`")
    bad = [np.full((1, 1), 10, np.uint8)]
    fails(lambda: client.infer("rot90", tensors(bad)), "INVALID_ARGUMENT", "10 is not a colour")
    before = client.get_inference_statistics("rot180").model_stats[0]
    check(client.infer("rot180", tensors(grids)), [np.rot90(grid, 2) for grid in grids])
    after = client.get_inference_statistics("rot180").model_stats[0]
    assert after.inference_count - before.inference_count == len(grids)
    assert after.inference_stats.success.count - before.inference_stats.success.count == 1
    assert after.inference_stats.success.ns > 0
    assert len(client.get_inference_statistics().model_stats) > 10


def many_at_a_time(client):
    rng = np.random.default_rng(8)
    grids = [rng.integers(0, 10, (9, 7), np.uint8) for _ in range(60)]
    answers = queue.Queue()
    for at, grid in enumerate(grids):
        called_back = lambda result, error, at=at: answers.put((at, result, error))
        client.async_infer("rot90", tensors([grid]), called_back)
    for _ in grids:
        at, result, error = answers.get(timeout=60)
        assert error is None, error
        check(result, [np.rot90(grids[at], -1)])


def stream(client):
    rng = np.random.default_rng(9)
    grids = [rng.integers(0, 10, (9, 7), np.uint8) for _ in range(200)]
    answers = queue.Queue()
    client.start_stream(lambda result, error: answers.put((result, error)))
    for at, grid in enumerate(grids):
        model = "nope" if at % 50 == 7 else "rot90"
        client.async_stream_infer(model, tensors([grid]), request_id=str(at), enable_empty_final_response=True)
    for at, grid in enumerate(grids):
        result, error = answers.get(timeout=60)
        if at % 50 == 7:
            assert result is None and "there is no model `nope`" in error.message(), error
            continue
        assert error is None, error
        response = result.get_response()
        assert response.id == str(at), "in the order of the requests"
        assert response.parameters["triton_final_response"].bool_param
        check(result, [np.rot90(grid, -1)])
    client.stop_stream()


def cancelled(client):
    """A call that is cancelled, and one whose time is over."""
    grids = [np.zeros((30, 30), np.uint8)] * 16_000
    said = threading.Event()
    errors = []

    def called_back(result, error):
        errors.append(error)
        said.set()

    context = client.async_infer("rot90", tensors(grids), called_back)
    context.cancel()
    assert said.wait(60)
    assert errors[0] is None or "CANCELLED" in str(errors[0].status()), errors
    fails(lambda: client.infer("rot90", tensors(grids), client_timeout=0.001), "DEADLINE_EXCEEDED", "")


def many_threads(address):
    def work(seed):
        with grpc.InferenceServerClient(address) as client:
            rng = np.random.default_rng(seed)
            for _ in range(20):
                grids = [rng.integers(0, 10, (9, 7), np.uint8) for _ in range(5)]
                check(client.infer("rot90", tensors(grids)), [np.rot90(g, -1) for g in grids])

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(work, range(8)))


def guarded(address, token, certificate):
    """TLS and tokens."""
    secured = {"ssl": True, "root_certificates": certificate} if certificate else {}
    headers = {"authorization": f"Bearer {token}"}
    with grpc.InferenceServerClient(address, **secured) as client:
        assert client.is_server_live()
        eventually(client.is_server_ready)
        grid = np.array([[1, 2], [3, 4]], np.uint8)
        check(client.infer("rot90", tensors([grid]), headers=headers), [np.rot90(grid, -1)])
        ask = lambda headers: client.infer("rot90", tensors([grid]), headers=headers)
        fails(lambda: ask(None), "UNAUTHENTICATED", "this needs a token")
        fails(lambda: ask({"authorization": "Bearer no"}), "UNAUTHENTICATED", "unknown")
        fails(lambda: client.load_model("m", headers=headers), "PERMISSION_DENIED", "the scope operate")


def main():
    address, token, certificate = (sys.argv + [None, None])[1:4]
    if token:
        guarded(address, token, certificate)
    else:
        with grpc.InferenceServerClient(address) as client:
            about(client)
            not_served(client)
            infer(client)
            many_at_a_time(client)
            stream(client)
            cancelled(client)
        many_threads(address)
    print("all is as it should be")


main()
