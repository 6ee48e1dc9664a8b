"""Uses tritonclient[http] as a user would, with a model of the pool. The gateway is at argv[1]. The folder
argv[2] has the model `mixed` and the outputs of ONNX Runtime, both from reference.py."""

import pathlib
import sys

import numpy as np
import tritonclient.http as http
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

# A run of another size may sum a product in another order. Everything else is exact.
TOLERANCE = 1e-6
BINARY_ONLY = {"FP16"}


def cases(folder):
    """By number of rows: inputs and outputs by name."""
    found = {}
    for key, data in np.load(pathlib.Path(folder) / "mixed.npz").items():
        rows, side, name = key.split("/")
        found.setdefault(int(rows), {"in": {}, "out": {}})[side][name] = data
    return found


def tensors(arrays, binary=True):
    inputs = []
    for name, data in arrays.items():
        datatype = np_to_triton_dtype(data.dtype)
        tensor = http.InferInput(name, list(data.shape), datatype)
        tensor.set_data_from_numpy(data, binary_data=binary or datatype in BINARY_ONLY)
        inputs.append(tensor)
    return inputs


def check(result, want, names=None):
    got = [output["name"] for output in result.get_response()["outputs"]]
    assert got == list(names or want), got
    for name in got:
        one, other = result.as_numpy(name), want[name]
        assert one.dtype == other.dtype and one.shape == other.shape, (name, one.dtype, one.shape)
        if name == "y":
            assert np.allclose(one, other, rtol=0, atol=TOLERANCE), (name, np.abs(one - other).max())
        else:
            assert np.array_equal(one, other), (name, one, other)


def fails(call, status, words):
    try:
        call()
    except InferenceServerException as error:
        assert error.status() == str(status) and words in error.message(), error
        return
    raise AssertionError(f"{words}: nothing was raised")


def about(client):
    assert client.is_server_ready() and client.is_model_ready("mixed") and client.is_model_ready("mixed", "1")
    assert not client.is_model_ready("mixed", "2")
    metadata = client.get_model_metadata("mixed")
    assert metadata["platform"] == "onnxruntime_onnx"
    types = {tensor["name"]: (tensor["datatype"], tensor["shape"]) for tensor in metadata["inputs"]}
    assert types == {
        "x": ("FP32", [-1, 8]), "half": ("FP16", [-1, 4]), "ids": ("INT64", [-1]), "flags": ("BOOL", [-1, 3]),
    }
    config = client.get_model_config("mixed")
    assert config["max_batch_size"] == 16 and config["input"][0]["dims"] == [8]
    index = {row["name"]: row["state"] for row in client.get_model_repository_index()}
    assert index["mixed"] == "READY" and index["rot90"] == "READY"
    assert "mixed" in client.get_server_metadata()["models"]
    fails(lambda: client.load_model("mixed"), 501, "gridpool model load mixed=PATH")
    fails(lambda: client.unload_model("mixed"), 501, "gridpool model unload mixed")


def infer(client, all_cases):
    before = client.get_inference_statistics("mixed")["model_stats"][0]
    asked = 0
    for rows, case in all_cases.items():
        for binary in [True, False]:
            check(client.infer("mixed", tensors(case["in"], binary)), case["out"])
            names = ["square", "y"]
            as_json = [http.InferRequestedOutput(name, binary_data=False) for name in names]
            check(client.infer("mixed", tensors(case["in"], binary), outputs=as_json), case["out"], names)
            asked += 2 * rows
    after = client.get_inference_statistics("mixed")["model_stats"][0]
    assert after["inference_count"] - before["inference_count"] == asked, (before, after)
    inputs = tensors(all_cases[3]["in"])
    result = client.infer("mixed", inputs, request_id="r 7", timeout=10_000_000, priority=1, model_version="1")
    response = result.get_response()
    assert response["id"] == "r 7" and len(response["parameters"]["model_sha256"]) == 64


def at_once(client, case):
    """As many requests as there are connections, again and again, each about a row of its own."""
    one = [{name: data[row : row + 1] for name, data in case["in"].items()} for row in range(40)]
    want = [{name: data[row : row + 1] for name, data in case["out"].items()} for row in range(40)]
    for _ in range(5):
        waiting = [client.async_infer("mixed", tensors(inputs)) for inputs in one]
        for request, outputs in zip(waiting, want):
            check(request.get_result(), outputs)
    runs = client.infer("mixed", tensors(case["in"])).get_response()["parameters"]["runs"]
    assert runs >= 3, f"40 rows took {runs} runs of at most 16"


def errors(client, case):
    def changed(name, data):
        return tensors(case["in"] | {name: data})

    wide = np.zeros((3, 9), np.float32)
    fails(lambda: client.infer("mixed", changed("x", wide)), 400, "dimension 1 is 9, not 8")
    fails(lambda: client.infer("mixed", changed("ids", np.zeros(3, np.int32))), 400, "`ids` is INT32")
    fails(lambda: client.infer("mixed", changed("ids", np.zeros(4, np.int64))), 400, "dimension 0 of `ids` is 4")
    text = np.array([b"a", b"b", b"c"], dtype=object)
    fails(lambda: client.infer("mixed", changed("ids", text)), 400, "`ids` is BYTES; the model takes INT64")
    fails(lambda: client.infer("mixed", tensors(case["in"])[1:]), 400, "no input `x`")
    halves = [http.InferRequestedOutput("twice", binary_data=False)]
    fails(lambda: client.infer("mixed", tensors(case["in"]), outputs=halves), 400, "output `twice` is FP16")
    none = [http.InferRequestedOutput("z")]
    fails(lambda: client.infer("mixed", tensors(case["in"]), outputs=none), 400, "has no output `z`")
    nan = changed("x", np.full((3, 8), np.nan, np.float32))
    as_json = [http.InferRequestedOutput("y", binary_data=False)]
    fails(lambda: client.infer("mixed", nan, outputs=as_json), 400, "output `y` (FP32) contains NaN, which")
    assert np.isnan(client.infer("mixed", nan).as_numpy("y")).all()


def main():
    address, folder = sys.argv[1:]
    all_cases = cases(folder)
    with http.InferenceServerClient(address, concurrency=16) as client:
        about(client)
        infer(client, all_cases)
        at_once(client, all_cases[40])
        errors(client, all_cases[3])
    print("all is as it should be")


main()
