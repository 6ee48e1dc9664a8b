"""ONNX Runtime as a gridpool worker sets it up: so many threads for a run, one run after the other, none that spins; on a
GPU without TF32, if `SERVING_GPU` says so."""

import os

import onnxruntime


def session(model, threads, gpu=bool(os.environ.get("SERVING_GPU"))):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    provider = ("CUDAExecutionProvider", {"use_tf32": "0"}) if gpu else "CPUExecutionProvider"
    made = onnxruntime.InferenceSession(model, options, providers=[provider])
    assert made.get_providers()[0].startswith("CUDA") == gpu, made.get_providers()
    return made
