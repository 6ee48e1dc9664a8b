"""Has tensors in system shared memory with tritonclient, unchanged. argv: `http` or `grpc`, the address, the folder
with the model `mixed` and the outputs of ONNX Runtime (reference.py), and a token, or nothing."""

import os
import pathlib
import sys

import numpy as np
import tritonclient.grpc as grpc
import tritonclient.http as http
import tritonclient.utils.shared_memory as memory
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

KIND, ADDRESS, FOLDER, *TOKEN = sys.argv[1:]
KIND = {"http": http, "grpc": grpc}[KIND]
# Both clients send these with each call.
HEADERS = {"authorization": f"Bearer {TOKEN[0]}"} if TOKEN else None
ROWS = 17
TOLERANCE = 1e-6


def case():
    sides = {"in": {}, "out": {}}
    for key, data in np.load(pathlib.Path(FOLDER) / "mixed.npz").items():
        rows, side, name = key.split("/")
        if int(rows) == ROWS:
            sides[side][name] = data
    return sides["in"], sides["out"]


def fails(call, *words):
    try:
        call()
    except InferenceServerException as error:
        text = f"{error.status()} {error.message()}"
        assert all(word in text for word in words), text
        return
    raise AssertionError(f"{words}: nothing was raised")


def status(client, name=""):
    """The regions by name: key, offset and bytes."""
    told = client.get_system_shared_memory_status(name, headers=HEADERS)
    rows = told if isinstance(told, list) else told.regions.values()
    if KIND is grpc:
        rows = [{"name": r.name, "key": r.key, "offset": r.offset, "byte_size": r.byte_size} for r in rows]
    return {row["name"]: (row["key"], row["offset"], row["byte_size"]) for row in rows}


def from_region(name, data, region, offset):
    tensor = KIND.InferInput(name, list(data.shape), np_to_triton_dtype(data.dtype))
    tensor.set_shared_memory(region, data.nbytes, offset=offset)
    return tensor


def sent(name, data):
    tensor = KIND.InferInput(name, list(data.shape), np_to_triton_dtype(data.dtype))
    tensor.set_data_from_numpy(data)
    return tensor


def into(name, region, bytes, offset):
    output = KIND.InferRequestedOutput(name)
    output.set_shared_memory(region, bytes, offset=offset)
    return output


def check(name, one, other):
    assert one.dtype == other.dtype and one.shape == other.shape, (name, one.dtype, one.shape)
    same = np.allclose(one, other, rtol=0, atol=TOLERANCE) if name == "y" else np.array_equal(one, other)
    assert same, (name, one, other)


def infers(client, source, target, given, wanted):
    """All inputs and outputs lie in regions, at their offsets, then only some."""
    at, offset = {}, 0
    for name, data in given.items():
        memory.set_shared_memory_region(source, [data], offset=offset)
        at[name] = offset
        offset += data.nbytes
    places, end = {}, 0
    for name, data in wanted.items():
        places[name] = end
        # Room to spare is no mistake.
        end += data.nbytes + 64
    inputs = [from_region(name, data, "in", at[name]) for name, data in given.items()]
    outputs = [into(name, "out", data.nbytes + 64, places[name]) for name, data in wanted.items()]
    result = client.infer("mixed", inputs, outputs=outputs, headers=HEADERS)
    for name, data in wanted.items():
        got = result.get_output(name)
        shape = got["shape"] if KIND is http else list(got.shape)
        told = got["parameters"] if KIND is http else got.parameters
        size = told["shared_memory_byte_size"]
        assert (size if KIND is http else size.int64_param) == data.nbytes, told
        check(name, memory.get_contents_as_numpy(target, data.dtype, shape, offset=places[name]), data)
    # One input and one output by region, the others in the messages.
    inputs = [from_region("x", given["x"], "in", at["x"])]
    inputs = [*(sent(name, data) for name, data in given.items() if name != "x"), *inputs]
    outputs = [into("twice", "out", wanted["twice"].nbytes, 8)]
    outputs = [KIND.InferRequestedOutput("y"), *outputs, KIND.InferRequestedOutput("square")]
    for _ in range(3):
        result = client.infer("mixed", inputs, outputs=outputs, headers=HEADERS)
        for name in ("y", "square"):
            check(name, result.as_numpy(name), wanted[name])
        data = wanted["twice"]
        check("twice", memory.get_contents_as_numpy(target, data.dtype, data.shape, offset=8), data)


def errors(client, given, wanted, bytes, key):
    bad = "400" if KIND is http else "INVALID_ARGUMENT"
    none = "404" if KIND is http else "NOT_FOUND"
    there = "409" if KIND is http else "ALREADY_EXISTS"

    def register(name, key, size, offset=0):
        client.register_system_shared_memory(name, key, size, offset=offset, headers=HEADERS)

    fails(lambda: register("in", key, bytes), there, "shared memory region 'in' already in manager")
    fails(lambda: register("more", key, bytes + 1), bad, "Invalid offset + byte size")
    fails(lambda: register("more", key, bytes, 1), bad, "Invalid offset + byte size")
    fails(lambda: register("more", "/gridpool_no_such_key", 8), bad, "Unable to open shared memory region")
    fails(lambda: status(client, "gone"), none, "Unable to find system shared memory region: 'gone'")

    def infer(tensor, *outputs):
        others = [sent(name, data) for name, data in given.items() if name != "x"]
        return client.infer("mixed", [tensor, *others], outputs=list(outputs) or None, headers=HEADERS)

    x = given["x"]
    fails(lambda: infer(from_region("x", x, "gone", 0)), none, "input `x`", "'gone'")
    fails(lambda: infer(from_region("x", x, "in", bytes - 4)), bad, "input `x`: Invalid offset + byte size")
    fails(lambda: infer(from_region("x", x[:-1], "in", 0)), bad)
    small = into("y", "out", wanted["y"].nbytes - 1, 0)
    fails(lambda: infer(sent("x", x), small), bad, "should be at least", "to hold the results")
    fails(lambda: infer(sent("x", x), into("y", "gone", 8, 0)), none, "output `y`", "'gone'")


def main():
    given, wanted = case()
    bytes = 1 << 16
    keys = [f"/gridpool_{os.getpid()}_{side}" for side in ("in", "out")]
    source, target = (memory.create_shared_memory_region(f"own {key}", key, bytes) for key in keys)
    try:
        # Over a Unix socket grpcio makes a name of the server of the path, which is none in HTTP/2.
        unix = {"channel_args": [("grpc.default_authority", "localhost")]} if ADDRESS.startswith("unix:") else {}
        with KIND.InferenceServerClient(ADDRESS, **unix) as client:
            about = client.get_server_metadata(headers=HEADERS)
            known = about["extensions"] if KIND is http else about.extensions
            assert "system_shared_memory" in known, known
            assert status(client) == {}
            client.register_system_shared_memory("in", keys[0], bytes, headers=HEADERS)
            client.register_system_shared_memory("out", keys[1], bytes - 128, offset=128, headers=HEADERS)
            want = {"in": (keys[0], 0, bytes), "out": (keys[1], 128, bytes - 128)}
            assert status(client) == want and status(client, "out") == {"out": want["out"]}, status(client)
            client.unregister_system_shared_memory("out", headers=HEADERS)
            client.unregister_system_shared_memory("out", headers=HEADERS)
            client.register_system_shared_memory("out", keys[1], bytes, headers=HEADERS)
            infers(client, source, target, given, wanted)
            errors(client, given, wanted, bytes, keys[0])
            client.unregister_system_shared_memory(headers=HEADERS)
            assert status(client) == {}
    finally:
        for region in (source, target):
            memory.destroy_shared_memory_region(region)
    print("all is as it should be")


main()
