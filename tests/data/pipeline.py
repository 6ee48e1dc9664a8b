#!/usr/bin/env python3
"""Compares what a pipeline gave with ONNX Runtime in one process that runs the same models one after the other.

    pipeline.py MODELS IN.npz OUT.npz

MODELS is the folder of the models, IN.npz has the picture, OUT.npz what `gridpool infer` wrote. Needs onnxruntime
and numpy."""

import pathlib
import sys

import numpy as np
import onnxruntime

# Threads may add in another order.
TOLERANCE = 1e-6


def main():
    models, given, got = map(pathlib.Path, sys.argv[1:])

    def run(name, **inputs):
        session = onnxruntime.InferenceSession(str(models / f"{name}.onnx"), providers=["CPUExecutionProvider"])
        return session.run(None, inputs)

    image = np.load(given)["image"]
    boxes, scores = run("find", image=image)
    (kept,) = run("select", boxes=boxes, scores=scores)
    (crops,) = run("crop", image=image, boxes=kept)
    (large,) = run("enlarge", crops=crops)
    want = {"all": boxes, "boxes": kept, "points": run("pose", crops=large)[0], "who": run("reid", crops=crops)[0]}
    got = np.load(got)
    assert set(got) == set(want), set(got)
    for name, tensor in want.items():
        assert got[name].shape == tensor.shape, (name, got[name].shape, tensor.shape)
        assert np.allclose(got[name], tensor, rtol=0, atol=TOLERANCE), name
    print(f"{len(boxes)} found, {len(kept)} kept: all is as it should be")


main()
