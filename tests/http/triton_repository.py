"""Loads, swaps and unloads models of a repository with tritonclient, unchanged. argv: HTTP, gRPC, the repository, and the files
of versions 1 and 2 of `m`, of which version V multiplies by V."""

import pathlib
import shutil
import sys
import threading

import numpy as np
import tritonclient.grpc as grpc
import tritonclient.http as http
from tritonclient.utils import InferenceServerException

HTTP, GRPC, REPOSITORY, FIRST, SECOND = sys.argv[1:]


def place(name, version, file):
    """A version, whole at once."""
    folder = pathlib.Path(REPOSITORY) / name / str(version)
    folder.mkdir(parents=True)
    shutil.copy(file, folder / "draft")
    (folder / "draft").rename(folder / "model.onnx")


def fails(call, *words):
    try:
        call()
    except InferenceServerException as error:
        assert any(text in error.message() for text in words), error
        return
    raise AssertionError(f"{words}: nothing was raised")


def infer(kind, client, name="m", version=""):
    tensor = kind.InferInput("x", [1, 4], "FP32")
    tensor.set_data_from_numpy(np.ones((1, 4), np.float32))
    result = client.infer(name, [tensor], model_version=version)
    response = result.get_response()
    told = response["model_version"] if isinstance(response, dict) else response.model_version
    factor = result.as_numpy("double")[0, 0]
    assert factor == float(told), (factor, told)
    return int(told)


def index(client):
    rows = client.get_model_repository_index()
    if not isinstance(rows, list):
        rows = [{"name": row.name, "version": row.version, "state": row.state} for row in rows.models]
    own = [row for row in rows if row["name"] in ("m", "n")]
    return sorted((row["name"], row["version"], row["state"]) for row in own)


def swap(kind, client, other):
    """A name that clients ask all the while gets another version."""
    over, seen, failed = threading.Event(), [], []

    def ask():
        own = kind.InferenceServerClient(HTTP if kind is http else GRPC)
        try:
            while not over.is_set():
                seen.append(infer(kind, own))
        except Exception as error:
            failed.append(error)
            raise

    asking = threading.Thread(target=ask)
    asking.start()
    while not seen:
        assert asking.is_alive()
    place("m", 2, SECOND)
    client.load_model("m")
    assert infer(kind, client) == 2
    assert infer(*other) == 2
    over.set()
    asking.join()
    assert not failed and seen == sorted(seen) and seen[0] == 1, seen


def main():
    web, rpc = http.InferenceServerClient(HTTP), grpc.InferenceServerClient(GRPC)
    assert index(web) == index(rpc) == [("m", "1", "READY")]
    for kind, client, other in [(http, web, (grpc, rpc)), (grpc, rpc, (http, web))]:
        assert infer(kind, client) == 1 and infer(kind, client, version="1") == 1
        # Over gRPC it was there before.
        fails(lambda: infer(kind, client, version="2"), "no version", "unloaded")
        fails(lambda: client.load_model("other"), "no such model")
        fails(lambda: client.load_model("m", config="{}"), "`config` is not served")
        fails(lambda: client.unload_model("rot90"), "built in")
        client.load_model("m")
        swap(kind, client, other)
        assert client.get_model_metadata("m", **({} if kind is http else {"as_json": True}))["versions"] == ["2"]
        assert ("m", "2", "READY") in index(client) and ("m", "1", "READY") not in index(client)
        fails(lambda: infer(kind, client, version="1"), "no version", "unloaded")
        # Back again.
        shutil.rmtree(pathlib.Path(REPOSITORY) / "m" / "2")
        client.load_model("m")
        assert infer(kind, client) == 1
        place("n", 1, FIRST)
        assert not client.is_model_ready("n")
        client.load_model("n")
        assert client.is_model_ready("n") and client.is_model_ready("n", "1")
        assert infer(kind, client, "n") == 1
        client.unload_model("n")
        assert not client.is_model_ready("n") and client.is_model_ready("m")
        shutil.rmtree(pathlib.Path(REPOSITORY) / "n")
    print("all is as it should be")


main()
