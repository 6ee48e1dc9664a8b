"""Serves the same models with gridpool, mosec, LitServe and FastAPI, and measures each with the same load generator.

    cargo build --release -p gridpool -p gridpool-worker -p gridpool-tests --bin gridpool --bin gridpool-worker \\
        --bin serving-load
    python3 -m venv .ci/serving && .ci/serving/bin/pip install -r tests/serving/requirements.txt
    .ci/serving/bin/python tests/serving/bench.py --binaries target/release

All servers have one model, one worker and as many of ONNX Runtime's threads as this process may use cores, and run one
at a time; the order is turned around from turn to turn. For fewer, start this with `taskset`. Every server's answer is
compared with ONNX Runtime's before it is timed. Prints a table in Markdown: the median of the turns, with the least and
the most.
"""

import argparse
import base64
import contextlib
import http.client
import json
import os
import pathlib
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time

import numpy as np
import onnx
from onnx import TensorProto, helper
from session import session

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
#: A server may take so long to start, seconds.
START = 120
#: A gridpool worker takes as many.
THREADS = len(os.sched_getaffinity(0))
#: Rows that a batch of mosec and LitServe may have, as one of gridpool.
BATCH = 32


def image_graph(folder):
    """Takes an image of 600 KB and does little with it: what is measured is how the image gets there."""
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("GlobalMaxPool", ["x"], ["y"])],
        "image",
        [value("x", TensorProto.FLOAT, [1, 3, 224, 224])],
        [value("y", TensorProto.FLOAT, [1, 3, 1, 1])],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = folder / "image.onnx"
    onnx.save(made, path)
    return path


def models(folder):
    """Name: file, shape of one item, whether requests can be joined, callers."""
    light = pathlib.Path(onnx.__file__).parent / "backend/test/data/light/light_resnet50.onnx"
    image = (3, 224, 224)
    return {
        "mlp": (ROOT / "tests/data/models/mlp.onnx", (16,), True, (1, 8, 64)),
        # Longer queues take longer than a turn.
        "resnet50": (light, image, False, (1, 8)),
        "image": (image_graph(folder), image, False, (1, 8)),
    }


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def varint(number):
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def field(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


def text(number, data):
    return field(number, data.encode())


class Server:
    """One way to serve a model. A subclass starts it and says what a request is."""

    batches = False
    token = None

    def __init__(self, name, options, folder):
        self.name, self.options, self.folder = name, options, folder
        self.process = self.log = None
        self.port = free_port()

    def start(self, command):
        self.log = open(self.folder / "log", "ab")
        own = os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = {**os.environ, "PYTHONPATH": own, "PYTHONWARNINGS": "ignore"}
        self.process = subprocess.Popen(
            [str(part) for part in command], stdout=self.log, stderr=self.log, env=environment, start_new_session=True
        )
        until = time.monotonic() + START
        while not self.answers():
            if self.process.poll() is not None or time.monotonic() > until:
                raise SystemExit(f"{self.name} did not start: {(self.folder / 'log').read_text()[-2000:]}")
            time.sleep(0.05)

    def answers(self):
        with contextlib.suppress(OSError, http.client.HTTPException):
            return self.ask()[0] == 200
        return False

    def ask(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request("POST", self.path, self.body, dict(line.split(": ") for line in self.headers))
        answer = connection.getresponse()
        return answer.status, answer.read(), answer.headers

    def load(self, callers, seconds):
        """Requests a second, p50 and p99 in milliseconds."""
        body = self.folder / "body"
        body.write_bytes(self.message if self.grpc_port else self.body)
        command = [self.options.binaries / "serving-load", f"127.0.0.1:{self.grpc_port or self.port}"]
        command += ["--body", body, "--callers", callers, "--seconds", seconds]
        command += [] if self.grpc_port else ["--path", self.path]
        for line in self.headers:
            command += ["--header", line] if not self.grpc_port or line.startswith("Authorization") else []
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"{self.name}, {callers} callers: {done.stderr}")
        got = json.loads(done.stdout)
        return got["requests"] / got["seconds"], got["p50_us"] / 1e3, got["p99_us"] / 1e3

    grpc_port = None

    def stop(self):
        """Ends it, as far as it has begun."""
        if self.process is not None:
            self.signal(signal.SIGTERM)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.signal(signal.SIGKILL)
                self.process.wait()
            # Workers of the group that outlive their parent.
            self.signal(signal.SIGKILL)
        if self.log is not None:
            self.log.close()

    def signal(self, number):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)


class Gridpool(Server):
    def __init__(self, name, options, folder, grpc=False, shared=False):
        super().__init__(name, options, folder)
        self.grpc_port = free_port() if grpc else None
        self.shared = shared
        self.region = None

    def run(self, file, model, item, data):
        options = self.options
        shape = [1, *item]
        command = [options.binaries / "gridpool", "serve", "--devices", options.devices, "--model", f"m={file}"]
        command += ["--socket", self.folder / "pool.sock", "--state-dir", "none", "--http", f"127.0.0.1:{self.port}"]
        command += ["--onnxruntime", onnxruntime_library()]
        command += ["--grpc", f"127.0.0.1:{self.grpc_port}"] if self.grpc_port else []
        self.headers = ["Content-Type: application/octet-stream"]
        if self.shared:
            new = [options.binaries / "gridpool", "token", "new", "bench", "--scope", "infer,memory", "--json"]
            made = json.loads(subprocess.run(new, capture_output=True, check=True).stdout)
            tokens = self.folder / "tokens"
            tokens.touch(mode=0o600)
            tokens.write_text(made["line"] + "\n")
            command += ["--http-tokens", tokens, "--shared-memory"]
            self.headers.append(f"Authorization: Bearer {made['token']}")
            self.region = pathlib.Path("/dev/shm") / f"gridpool-bench-{os.getpid()}"
            self.region.write_bytes(data)
        self.path = "/v2/models/m/infer"
        name = "x" if model != "resnet50" else session(str(file), 1, gpu=False).get_inputs()[0].name
        where = {"binary_data_size": len(data)}
        if self.shared:
            where = {"shared_memory_region": "in", "shared_memory_byte_size": len(data)}
        tensor = {"name": name, "shape": shape, "datatype": "FP32", "parameters": where}
        head = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
        self.headers.append(f"Inference-Header-Content-Length: {len(head)}")
        self.body = head if self.shared else head + data
        # ModelInferRequest: 1 the model, 5 the input, 7 its bytes.
        part = text(1, name) + text(2, "FP32") + field(3, b"".join(varint(side) for side in shape))
        if self.shared:
            place = text(1, "shared_memory_region") + field(2, text(3, "in"))
            size = text(1, "shared_memory_byte_size") + field(2, varint(2 << 3) + varint(len(data)))
            self.message = text(1, "m") + field(5, part + field(4, place) + field(4, size))
        else:
            self.message = text(1, "m") + field(5, part) + field(7, data)
        self.start(command)

    def answers(self):
        if self.region is not None:
            with contextlib.suppress(OSError):
                where = {"key": f"/{self.region.name}", "offset": 0, "byte_size": self.region.stat().st_size}
                connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
                headers = {"Authorization": self.headers[1].split(": ")[1]}
                path = "/v2/systemsharedmemory/region/in/register"
                connection.request("POST", path, json.dumps(where), headers)
                connection.getresponse().read()
        return super().answers()

    def output(self):
        _, body, headers = self.ask()
        return body[int(headers["Inference-Header-Content-Length"]) :]

    def stop(self):
        super().stop()
        if self.region is not None:
            self.region.unlink(missing_ok=True)


class Python(Server):
    """A server of PyPI."""

    def __init__(self, name, options, folder, script, path, batch=1):
        super().__init__(name, options, folder)
        self.script, self.path, self.batch = script, path, batch
        self.batches = batch > 1

    def run(self, file, model, item, data):
        self.headers = ["Content-Type: application/octet-stream"]
        self.body = data
        if self.script == "litserve_server.py":
            self.headers = ["Content-Type: application/json"]
            self.body = json.dumps({"data": base64.b64encode(data).decode()}).encode()
        shape = "x".join(map(str, item))
        command = [sys.executable, HERE / self.script, self.port, file, shape, THREADS, self.batch]
        self.start(command)

    def output(self):
        _, body, _ = self.ask()
        return base64.b64decode(json.loads(body)["data"]) if self.script == "litserve_server.py" else body


def onnxruntime_library():
    import onnxruntime

    return next((pathlib.Path(onnxruntime.__file__).parent / "capi").glob("libonnxruntime.so.*"))


def servers(options, folder, model, joins):
    yield Gridpool("gridpool, HTTP", options, folder)
    yield Gridpool("gridpool, gRPC", options, folder, grpc=True)
    if model == "image":
        yield Gridpool("gridpool, HTTP, shared memory", options, folder, shared=True)
        yield Gridpool("gridpool, gRPC, shared memory", options, folder, grpc=True, shared=True)
    yield Python("mosec", options, folder, "mosec_server.py", "/inference")
    if joins:
        yield Python("mosec, batches", options, folder, "mosec_server.py", "/inference", BATCH)
    yield Python("LitServe", options, folder, "litserve_server.py", "/predict")
    if joins:
        yield Python("LitServe, batches", options, folder, "litserve_server.py", "/predict", BATCH)
    yield Python("FastAPI", options, folder, "fastapi_server.py", "/infer")


def measure(server, model, case, options):
    file, item, _, all_callers = case
    data = np.random.default_rng(7).standard_normal([1, *item]).astype(np.float32)
    own = session(str(file), THREADS, gpu=False)
    want = own.run(None, {own.get_inputs()[0].name: data})[0]
    try:
        server.run(file, model, item, data.tobytes())
        got = np.frombuffer(server.output(), np.float32).reshape(want.shape)
        assert np.allclose(got, want, rtol=1e-4, atol=1e-5), (server.name, model)
        return [server.load(callers, options.seconds) for callers in all_callers]
    finally:
        server.stop()


def spread(values):
    def short(value):
        return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"

    return f"{short(statistics.median(values))} ({short(min(values))} to {short(max(values))})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binaries", type=pathlib.Path, default=ROOT / "target/release")
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--models", default="mlp,resnet50,image")
    parser.add_argument("--devices", default="cpu:1", help="0: all servers have a session on the first GPU")
    options = parser.parse_args()
    if not options.devices.startswith("cpu"):
        os.environ["SERVING_GPU"] = "1"
    options.binaries = options.binaries.resolve()
    work = pathlib.Path(tempfile.mkdtemp(prefix="gridpool-serving-"))
    try:
        all_models = models(work)
        for model in options.models.split(","):
            case = all_models[model]
            names = [server.name for server in servers(options, work, model, case[2])]
            got = {name: [] for name in names}
            for turn in range(options.turns):
                order = list(servers(options, work, model, case[2]))
                for server in order if turn % 2 == 0 else order[::-1]:
                    got[server.name].append(measure(server, model, case, options))
                    print(f"{model}, turn {turn + 1}: {server.name}", file=sys.stderr, flush=True)
            print(f"\n| {model} | callers | requests/s | p50, ms | p99, ms |\n|---|---|---|---|---|")
            for name in names:
                for at, callers in enumerate(case[3]):
                    turns = [turn[at] for turn in got[name]]
                    columns = [spread([turn[column] for turn in turns]) for column in range(3)]
                    print(f"| {name} | {callers} | {' | '.join(columns)} |", flush=True)
    finally:
        shutil.rmtree(work, ignore_errors=True)


main()
