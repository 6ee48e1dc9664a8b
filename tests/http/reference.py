"""Writes to the folder argv[1] the model for triton_models.py, mixed.onnx, and some inputs with the outputs of
ONNX Runtime in this process, mixed.npz. Needs onnx, onnxruntime and numpy, but no pool."""

import pathlib
import sys

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto as T
from onnx import helper, numpy_helper

# Rows of the cases: one, some, more than a run has, and many.
ROWS = [1, 3, 17, 40, 1000]


def model(rng):
    """Four inputs of different types, four outputs, rows that do not depend on each other."""

    def node(op, inputs, outputs, **more):
        return helper.make_node(op, inputs.split(), outputs.split(), **more)

    def value(name, datatype, *sides):
        return helper.make_tensor_value_info(name, datatype, ["N", *sides])

    weights = rng.standard_normal((8, 5)).astype(np.float32)
    graph = helper.make_graph(
        [
            node("Cast", "ids", "f", to=T.FLOAT),
            node("Unsqueeze", "f one", "column"),
            node("MatMul", "x w", "product"),
            node("Add", "product column", "shifted"),
            node("Tanh", "shifted", "y"),
            node("Add", "half half", "twice"),
            node("Mul", "ids ids", "square"),
            node("Not", "flags", "unset"),
        ],
        "mixed",
        [value("x", T.FLOAT, 8), value("half", T.FLOAT16, 4), value("ids", T.INT64), value("flags", T.BOOL, 3)],
        [value("y", T.FLOAT, 5), value("twice", T.FLOAT16, 4), value("square", T.INT64), value("unset", T.BOOL, 3)],
        [numpy_helper.from_array(weights, "w"), numpy_helper.from_array(np.array([1]), "one")],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(made)
    return made.SerializeToString()


def main():
    folder = pathlib.Path(sys.argv[1])
    rng = np.random.default_rng(11)
    (folder / "mixed.onnx").write_bytes(model(rng))
    session = onnxruntime.InferenceSession(str(folder / "mixed.onnx"), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    cases = {}
    for rows in ROWS:
        inputs = {
            "x": rng.standard_normal((rows, 8)).astype(np.float32),
            "half": rng.standard_normal((rows, 4)).astype(np.float16),
            "ids": rng.integers(-(2**31), 2**31, rows),
            "flags": rng.integers(0, 2, (rows, 3)).astype(bool),
        }
        # Where a tanh is not 1.
        inputs["ids"][::2] = rng.integers(-2, 3, len(inputs["ids"][::2]))
        cases |= {f"{rows}/in/{name}": data for name, data in inputs.items()}
        cases |= {f"{rows}/out/{name}": data for name, data in zip(names, session.run(names, inputs))}
    np.savez(folder / "mixed.npz", **cases)


main()
