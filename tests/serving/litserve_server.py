"""A model behind LitServe. argv: port, model, shape of one item, threads of ONNX Runtime, most requests of a batch."""

import base64
import sys

import litserve
import numpy as np
from session import session

PORT, MODEL, SHAPE, THREADS, BATCH = sys.argv[1:6]
SHAPE = [int(side) for side in SHAPE.split("x")]


class Model(litserve.LitAPI):
    def setup(self, device):
        self.session = session(MODEL, int(THREADS))
        self.name = self.session.get_inputs()[0].name

    def decode_request(self, request):
        # A request is JSON.
        return np.frombuffer(base64.b64decode(request["data"]), np.float32).reshape(SHAPE)

    def batch(self, inputs):
        return np.stack(inputs)

    def predict(self, data):
        data = data if BATCH != "1" else data[None]
        return self.session.run(None, {self.name: data})[0]

    def unbatch(self, output):
        return list(output)

    def encode_response(self, output):
        return {"data": base64.b64encode(output.tobytes()).decode()}


if __name__ == "__main__":
    api = Model(max_batch_size=int(BATCH), batch_timeout=0.001 if BATCH != "1" else 0.0)
    server = litserve.LitServer(api, accelerator="cpu", workers_per_device=1)
    server.run(host="127.0.0.1", port=int(PORT), log_level="warning", generate_client_file=False)
