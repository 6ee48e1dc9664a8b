"""A model behind mosec. argv: port, model, shape of one item, threads of ONNX Runtime, most requests of a batch."""

import os
import sys

import numpy as np
from mosec import Server, Worker
from session import session

# mosec reads flags of its own, and its worker, which is another process, reads this file again.
ARGUMENTS = os.environ.setdefault("SERVING", " ".join(sys.argv[1:6]))
PORT, MODEL, SHAPE, THREADS, BATCH = ARGUMENTS.split(" ")
sys.argv = [sys.argv[0], "--port", PORT, "--address", "127.0.0.1", "--log-level", "warning", "--timeout", "60000"]
SHAPE = [int(side) for side in SHAPE.split("x")]


class Model(Worker):
    def __init__(self):
        super().__init__()
        self.session = session(MODEL, int(THREADS))
        self.name = self.session.get_inputs()[0].name

    def deserialize(self, data):
        return np.frombuffer(data, np.float32).reshape(SHAPE)

    def serialize(self, data):
        return data

    def forward(self, data):
        if BATCH == "1":
            return self.session.run(None, {self.name: data[None]})[0].tobytes()
        return [row.tobytes() for row in self.session.run(None, {self.name: np.stack(data)})[0]]


if __name__ == "__main__":
    server = Server()
    server.append_worker(Model, num=1, max_batch_size=int(BATCH), max_wait_time=1)
    server.run()
