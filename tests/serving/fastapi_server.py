"""A model behind FastAPI and uvicorn, in one process. argv: port, model, shape of one item, threads of ONNX Runtime."""

import sys

import numpy as np
import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.concurrency import run_in_threadpool
from session import session

PORT, MODEL, SHAPE, THREADS = sys.argv[1:5]
SHAPE = [1, *(int(side) for side in SHAPE.split("x"))]
SESSION = session(MODEL, int(THREADS))
NAME = SESSION.get_inputs()[0].name
app = FastAPI()


def run(body):
    return SESSION.run(None, {NAME: np.frombuffer(body, np.float32).reshape(SHAPE)})[0].tobytes()


@app.post("/infer")
async def infer(request: Request):
    # ONNX Runtime lets go of the GIL: several requests run side by side.
    return Response(await run_in_threadpool(run, await request.body()), media_type="application/octet-stream")


if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(PORT), log_level="warning", access_log=False)
