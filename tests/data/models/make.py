#!/usr/bin/env python3
"""Makes the ONNX models that the tests of inference run.

    pip install onnx numpy && python3 tests/data/models/make.py

The files are committed; `--check` says whether they are what this script makes. No weight is random:
numbers come from a formula, so that every machine makes the same bytes.
"""

import pathlib
import sys

import numpy
import onnx
from onnx import TensorProto as T
from onnx import helper, numpy_helper

FOLDER = pathlib.Path(__file__).parent
# An opset whose ops CUDA's provider has kernels for: it lags behind ONNX.
OPSET = 17
IR_VERSION = 8
# The first with numbers of 4 bits; StringConcat is nearly as new.
NEW_OPSET = 21
NEW_IR_VERSION = 10
# Where one of them keeps its weights.
EXTERNAL = "external.weights"


def weights(name, *shape):
    """Numbers between -0.5 and 0.5 that look irregular and are the same everywhere."""
    count = int(numpy.prod(shape))
    values = (numpy.arange(count, dtype=numpy.int64) * 7919 + 104729) % 1009
    values = (values.astype(numpy.float32) / numpy.float32(1009) - numpy.float32(0.5)).reshape(shape)
    return numpy_helper.from_array(values, name)


def constant(name, values, dtype=numpy.int64):
    return numpy_helper.from_array(numpy.array(values, dtype=dtype), name)


def value(name, datatype, shape):
    return helper.make_tensor_value_info(name, datatype, shape)


def save(name, nodes, inputs, outputs, initializers=(), opset=OPSET, ir_version=IR_VERSION):
    graph = helper.make_graph(list(nodes), name, list(inputs), list(outputs), list(initializers))
    model = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", opset)],
        producer_name="gridpool",
        ir_version=ir_version,
    )
    if name != "external":  # The checker would look for the file.
        onnx.checker.check_model(model)
    return f"{name}.onnx", model.SerializeToString(deterministic=True)


def node(op, inputs, outputs, **attributes):
    inputs = inputs.split() if isinstance(inputs, str) else inputs
    return helper.make_node(op, inputs, outputs.split(), name=f"{op}_{outputs.split()[0]}", **attributes)


def three_outputs():
    """Rows of 4; their sum, their double, and a hundred times them without what is behind the point."""
    return save(
        "three_outputs",
        [
            node("ReduceSum", "x axes", "sum", keepdims=0),
            node("Mul", "x two", "double"),
            node("Mul", "x hundred", "scaled"),
            node("Cast", "scaled", "whole", to=T.INT64),
        ],
        [value("x", T.FLOAT, ["N", 4])],
        [value("sum", T.FLOAT, ["N"]), value("double", T.FLOAT, ["N", 4]), value("whole", T.INT64, ["N", 4])],
        [constant("axes", [1]), constant("two", 2, numpy.float32), constant("hundred", 100, numpy.float32)],
    )


def mlp():
    """Not linear, two layers deep: [N, 16] to [N, 8], the rows independent of each other."""
    return save(
        "mlp",
        [
            node("Gemm", "x w1 b1", "h"),
            node("Tanh", "h", "t"),
            node("Gemm", "t w2 b2", "g"),
            node("Softmax", "g", "y", axis=1),
        ],
        [value("x", T.FLOAT, ["N", 16])],
        [value("y", T.FLOAT, ["N", 8])],
        [weights("w1", 16, 32), weights("b1", 32), weights("w2", 32, 8), weights("b2", 8)],
    )


def two_inputs():
    """Two inputs of different types, and a second free dimension: [N, L] floats, [N] integers."""
    return save(
        "two_inputs",
        [
            node("Cast", "shift", "f", to=T.FLOAT),
            node("Unsqueeze", "f one", "column"),
            node("Add", "x column", "y"),
            node("ReduceMax", "y", "largest", axes=[1], keepdims=0),
        ],
        [value("x", T.FLOAT, ["N", "L"]), value("shift", T.INT32, ["N"])],
        [value("y", T.FLOAT, ["N", "L"]), value("largest", T.FLOAT, ["N"])],
        [constant("one", [1])],
    )


PASSED = {
    "bool": T.BOOL,
    "uint8": T.UINT8,
    "uint16": T.UINT16,
    "uint32": T.UINT32,
    "uint64": T.UINT64,
    "int8": T.INT8,
    "int16": T.INT16,
    "int32": T.INT32,
    "int64": T.INT64,
    "fp16": T.FLOAT16,
    "bf16": T.BFLOAT16,
    "fp32": T.FLOAT,
    "fp64": T.DOUBLE,
}


def datatypes():
    """Every type goes through unchanged, twice over: a reshape, which is no copy of the input itself."""
    nodes, inputs, outputs = [], [], []
    for name, datatype in PASSED.items():
        nodes.append(node("Reshape", f"{name} shape", f"{name}_out"))
        inputs.append(value(name, datatype, ["N", 3]))
        outputs.append(value(f"{name}_out", datatype, ["N", 3]))
    return save("datatypes", nodes, inputs, outputs, [constant("shape", [-1, 3])])


def no_cuda_kernel():
    """`Det` has a kernel for the CPU and none for CUDA."""
    return save(
        "no_cuda_kernel",
        [node("Det", "x", "d"), node("Mul", "d two", "y")],
        [value("x", T.FLOAT, ["N", 3, 3])],
        [value("y", T.FLOAT, ["N"])],
        [constant("two", 2, numpy.float32)],
    )


def shape_ops():
    """Flattens [N, H, W] by its own shape: Shape, Gather, Concat run on the CPU whatever the device."""
    return save(
        "shape_ops",
        [
            node("Shape", "x", "s"),
            node("Gather", "s zero", "n"),
            node("Concat", "n minus_one", "target", axis=0),
            node("Reshape", "x target", "flat"),
            node("Relu", "flat", "y"),
        ],
        [value("x", T.FLOAT, ["N", "H", "W"])],
        [value("y", T.FLOAT, ["N", "HW"])],
        [constant("zero", [0]), constant("minus_one", [-1])],
    )


def strings():
    """Text goes through unchanged, any bytes."""
    return save(
        "strings",
        [node("Identity", "text", "same")],
        [value("text", T.STRING, ["N"])],
        [value("same", T.STRING, ["N"])],
    )


def words():
    """A mark behind each text, and how many elements there are."""
    return save(
        "words",
        [node("StringConcat", "text mark", "marked"), node("Shape", "text", "count")],
        [value("text", T.STRING, ["N", "M"])],
        [value("marked", T.STRING, ["N", "M"]), value("count", T.INT64, [2])],
        [helper.make_tensor("mark", T.STRING, [1], [b"!"])],
        opset=NEW_OPSET,
        ir_version=NEW_IR_VERSION,
    )


def four_bits():
    """Takes numbers of 4 bits, which gridpool refuses."""
    return save(
        "four_bits",
        [node("Cast", "x", "y", to=T.FLOAT)],
        [value("x", T.INT4, ["N"])],
        [value("y", T.FLOAT, ["N"])],
        opset=NEW_OPSET,
        ir_version=NEW_IR_VERSION,
    )


def four_bit_weights():
    """[N, 4] times weights of 4 bits, signed and unsigned, that are scaled as the model runs."""
    signed = helper.make_tensor("signed", T.INT4, [4], [-8, -1, 3, 7])
    unsigned = helper.make_tensor("unsigned", T.UINT4, [4], [0, 1, 8, 15])
    return save(
        "four_bit_weights",
        [
            node("DequantizeLinear", "signed half", "a"),
            node("DequantizeLinear", "unsigned half", "b"),
            node("Mul", "x a", "by_signed"),
            node("Mul", "x b", "by_unsigned"),
        ],
        [value("x", T.FLOAT, ["N", 4])],
        [value("by_signed", T.FLOAT, ["N", 4]), value("by_unsigned", T.FLOAT, ["N", 4])],
        [signed, unsigned, constant("half", 0.5, numpy.float32)],
        opset=NEW_OPSET,
        ir_version=NEW_IR_VERSION,
    )


def halves():
    """Computes with numbers of 16 bits of both kinds: [N, 4] times a matrix, as FP16 and as BF16."""
    matrix = numpy_helper.to_array(weights("w", 4, 4))
    fp16 = numpy_helper.from_array(matrix.astype(numpy.float16), "w16")
    bf16 = helper.make_tensor("wb", T.BFLOAT16, [4, 4], matrix.flatten().tolist())
    return save(
        "halves",
        [
            node("MatMul", "x16 w16", "p"), node("Relu", "p", "y16"),
            node("Cast", "xb", "xf", to=T.FLOAT), node("Cast", "wb", "wf", to=T.FLOAT),
            node("MatMul", "xf wf", "q"), node("Cast", "q", "yb", to=T.BFLOAT16),
        ],
        [value("x16", T.FLOAT16, ["N", 4]), value("xb", T.BFLOAT16, ["N", 4])],
        [value("y16", T.FLOAT16, ["N", 4]), value("yb", T.BFLOAT16, ["N", 4])],
        [fp16, bf16],
    )


def sequence():
    """Gives a sequence of tensors, which gridpool refuses."""
    output = helper.make_tensor_sequence_value_info("parts", T.FLOAT, None)
    return save(
        "sequence",
        [node("SplitToSequence", "x", "parts", axis=0)],
        [value("x", T.FLOAT, ["N", 2])],
        [output],
    )


def scalar():
    """No dimension at all, in and out."""
    return save(
        "scalar",
        [node("Mul", "a b", "product"), node("Less", "a b", "less")],
        [value("a", T.FLOAT, []), value("b", T.FLOAT, [])],
        [value("product", T.FLOAT, []), value("less", T.BOOL, [])],
    )


def random():
    # Other outputs in each run, of one shape.
    return save(
        "random",
        [node("RandomUniformLike", "x", "y", seed=1.0)],
        [value("x", T.FLOAT, ["N", 4])],
        [value("y", T.FLOAT, ["N", 4])],
    )


def nonzero():
    """How many rows come out depends on what goes in; perhaps none."""
    return save(
        "nonzero",
        [node("NonZero", "x", "where")],
        [value("x", T.INT32, ["L"])],
        [value("where", T.INT64, [1, "K"])],
    )


def not_rows():
    """Its first dimension is free, and its rows are not independent: a running sum over them."""
    return save(
        "not_rows",
        [node("CumSum", "x axis", "y")],
        [value("x", T.FLOAT, ["T", 2])],
        [value("y", T.FLOAT, ["T", 2])],
        [constant("axis", 0)],
    )


def lookup():
    """A table of 8 rows: an index beyond it is an error of the run."""
    return save(
        "lookup",
        [node("Gather", "table index", "row", axis=0)],
        [value("index", T.INT64, ["N"])],
        [value("row", T.FLOAT, ["N", 4])],
        [weights("table", 8, 4)],
    )


def external():
    """Its weights lie in a file beside its own: [N, 4] times 3, 5, 7, 11."""
    factors = constant("factors", [3, 5, 7, 11], numpy.float32)
    onnx.external_data_helper.set_external_data(factors, location=EXTERNAL)
    factors.ClearField("raw_data")
    return save(
        "external",
        [node("Mul", "x factors", "y")],
        [value("x", T.FLOAT, ["N", 4])],
        [value("y", T.FLOAT, ["N", 4])],
        [factors],
    )


def external_weights():
    return EXTERNAL, numpy.array([3, 5, 7, 11], dtype="<f4").tobytes()


def distinct():
    """Gives every row once: as many rows as it takes, as long as no two are the same."""
    return save(
        "distinct",
        [node("Unique", "x", "y", axis=0, sorted=0)],
        [value("x", T.FLOAT, ["N", 2])],
        [value("y", T.FLOAT, ["M", 2])],
    )


def fixed():
    """No free dimension: requests are never joined."""
    return save(
        "fixed",
        [node("Sigmoid", "x", "y")],
        [value("x", T.FLOAT, [2, 3])],
        [value("y", T.FLOAT, [2, 3])],
    )


def loop(count, output):
    """A node that multiplies a row of 16 by the unit matrix as often as `count` says, and its weights."""
    row = lambda name: value(name, T.FLOAT, [1, 16])
    body = helper.make_graph(
        [node("Identity", "go", "go_on"), node("MatMul", "before unit", "after")],
        "body",
        [value("turn", T.INT64, []), value("go", T.BOOL, []), row("before")],
        [value("go_on", T.BOOL, []), row("after")],
    )
    again = helper.make_node("Loop", [count, "", "start"], [output], name=f"Loop_{output}", body=body)
    unit = numpy_helper.from_array(numpy.eye(16, dtype=numpy.float32), "unit")
    return again, [unit, constant("start", [range(16)], numpy.float32)]


def turns():
    """A request decides how long it runs: `n` turns."""
    again, weights = loop("n", "y")
    return save("turns", [again], [value("n", T.INT64, [])], [value("y", T.FLOAT, [1, 16])], weights)


def endless():
    """Its load never ends, as each of its runs: also the one that warms it up."""
    again, weights = loop("n", "y")
    return save(
        "endless",
        [again, node("Identity", "x", "same")],
        [value("x", T.FLOAT, [1, 16])],
        [value("y", T.FLOAT, [1, 16]), value("same", T.FLOAT, [1, 16])],
        [*weights, constant("n", 1 << 50)],
    )


# The pictures of a pipeline's tests: a side, and the side of a cell in which something may be found.
SIDE, CELL = 32, 8
ACROSS = SIDE // CELL


def find():
    """Finds something in each cell of a picture that has a pixel above a half: no box, or up to 16."""
    cells = [(CELL * at % SIDE, CELL * at // SIDE * CELL) for at in range(ACROSS * ACROSS)]
    table = [[x, y, x + CELL, y + CELL] for x, y in cells]
    return save(
        "find",
        [
            node("MaxPool", "image", "brightest", kernel_shape=[CELL, CELL], strides=[CELL, CELL]),
            node("Reshape", "brightest all", "flat"),
            node("Greater", "flat half", "hot"),
            node("NonZero", "hot", "where"),
            node("Squeeze", "where first", "index"),
            node("Gather", "flat index", "scores"),
            node("Gather", "table index", "boxes"),
        ],
        [value("image", T.FLOAT, [1, 1, SIDE, SIDE])],
        [value("boxes", T.FLOAT, ["K", 4]), value("scores", T.FLOAT, ["K"])],
        [
            constant("all", [ACROSS * ACROSS]), constant("half", 0.5, numpy.float32),
            constant("first", [0]), constant("table", table, numpy.float32),
        ],
    )


def select():
    """Keeps the boxes whose score is above 3/4."""
    return save(
        "select",
        [
            node("Greater", "scores bar", "good"),
            node("NonZero", "good", "where"),
            node("Squeeze", "where first", "index"),
            node("Gather", "boxes index", "kept"),
        ],
        [value("boxes", T.FLOAT, ["K", 4]), value("scores", T.FLOAT, ["K"])],
        [value("kept", T.FLOAT, ["M", 4])],
        [constant("bar", 0.75, numpy.float32), constant("first", [0])],
    )


def crop():
    """Cuts boxes out of a picture, each resampled to 8 by 8. CUDA has this version of RoiAlign."""
    return save(
        "crop",
        [
            node("ReduceSum", "boxes second", "sums", keepdims=0),
            node("Mul", "sums nothing", "zeros"),
            node("Cast", "zeros", "picture", to=T.INT64),
            node(
                "RoiAlign", "image boxes picture", "crops",
                mode="avg", output_height=CELL, output_width=CELL, sampling_ratio=2,
            ),
        ],
        [value("image", T.FLOAT, [1, 1, SIDE, SIDE]), value("boxes", T.FLOAT, ["K", 4])],
        [value("crops", T.FLOAT, ["K", 1, CELL, CELL])],
        [constant("second", [1]), constant("nothing", 0, numpy.float32)],
        opset=13,
    )


def enlarge():
    """Crops of twice the height and width."""
    return save(
        "enlarge",
        [node("Resize", ["crops", "", "scales"], "large", mode="linear")],
        [value("crops", T.FLOAT, ["N", 1, CELL, CELL])],
        [value("large", T.FLOAT, ["N", 1, 2 * CELL, 2 * CELL])],
        [constant("scales", [1, 1, 2, 2], numpy.float32)],
    )


def pose():
    """Five points for each enlarged crop, by weights that mean nothing."""
    return save(
        "pose",
        [
            node("Conv", "crops kernels", "edges", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
            node("Relu", "edges", "lit"),
            node("Flatten", "lit", "flat", axis=1),
            node("Gemm", "flat weights bias", "numbers"),
            node("Tanh", "numbers", "bounded"),
            node("Reshape", "bounded pairs", "points"),
        ],
        [value("crops", T.FLOAT, ["N", 1, 2 * CELL, 2 * CELL])],
        [value("points", T.FLOAT, ["N", 5, 2])],
        [
            weights("kernels", 4, 1, 3, 3), weights("weights", 4 * CELL * CELL, 10), weights("bias", 10),
            constant("pairs", [-1, 5, 2]),
        ],
    )


def reid():
    """A vector of length 1 for each crop, by weights that mean nothing."""
    return save(
        "reid",
        [
            node("Conv", "crops kernels", "parts", kernel_shape=[4, 4], strides=[2, 2]),
            node("Flatten", "parts", "flat", axis=1),
            node("Gemm", "flat weights bias", "numbers"),
            node("Mul", "numbers numbers", "squares"),
            node("ReduceSum", "squares second", "sums", keepdims=1),
            node("Add", "sums little", "more"),
            node("Sqrt", "more", "length"),
            node("Div", "numbers length", "who"),
        ],
        [value("crops", T.FLOAT, ["N", 1, CELL, CELL])],
        [value("who", T.FLOAT, ["N", 8])],
        [
            weights("kernels", 3, 1, 4, 4), weights("weights", 27, 8), weights("bias", 8),
            constant("second", [1]), constant("little", 1e-6, numpy.float32),
        ],
    )


def color_nodes():
    """A colour from 0 to 9 for each number between -1 and 1."""
    return [
        node("Abs", "x", "size"),
        node("Mul", "size ten", "scaled"),
        node("Floor", "scaled", "whole"),
        node("Cast", "whole", "grids", to=T.UINT8),
    ]


def colors():
    """Grids from numbers: a cell for each, of a colour from 0 to 9 if the number is between -1 and 1."""
    return save(
        "colors",
        color_nodes(),
        [value("x", T.FLOAT, ["N", "H", "W"])],
        [value("grids", T.UINT8, ["N", "H", "W"])],
        [constant("ten", 10, numpy.float32)],
    )


def ragged():
    """Grids of several sizes, each in the upper left corner: `colors` with a size for each, from numbers."""
    return save(
        "ragged",
        [*color_nodes(), node("Cast", "s", "sizes", to=T.INT64)],
        [value("x", T.FLOAT, ["N", "H", "W"]), value("s", T.FLOAT, ["N", 2])],
        [value("grids", T.UINT8, ["N", "H", "W"]), value("sizes", T.INT64, ["N", 2])],
        [constant("ten", 10, numpy.float32)],
    )


def masses():
    """The sum of each grid of several sizes, and its number of cells."""
    return save(
        "masses",
        [
            node("Cast", "grids", "cells", to=T.FLOAT),
            node("ReduceSum", "cells both", "sums", keepdims=0),
            node("Cast", "sizes", "sides", to=T.FLOAT),
            node("ReduceProd", "sides", "areas", axes=[1], keepdims=0),
        ],
        [value("grids", T.UINT8, ["N", "H", "W"]), value("sizes", T.INT64, ["N", 2])],
        [value("sums", T.FLOAT, ["N"]), value("areas", T.FLOAT, ["N"])],
        [constant("both", [1, 2])],
    )


def columns():
    """The sum of each column of grids."""
    return save(
        "columns",
        [node("Cast", "grids", "cells", to=T.FLOAT), node("ReduceSum", "cells axes", "sums", keepdims=0)],
        [value("grids", T.UINT8, ["N", "H", "W"])],
        [value("sums", T.FLOAT, ["N", "W"])],
        [constant("axes", [1])],
    )


MODELS = [
    find, select, crop, enlarge, pose, reid,
    three_outputs, mlp, two_inputs, datatypes, no_cuda_kernel, shape_ops, strings, words, four_bits,
    four_bit_weights, halves, sequence, scalar,
    nonzero, random, not_rows, lookup, external, external_weights, distinct, fixed,
    turns, endless, colors, columns, ragged, masses,
]


def main():
    wrong = []
    for make in MODELS:
        name, content = make()
        path = FOLDER / name
        if "--check" in sys.argv[1:]:
            if not path.exists() or path.read_bytes() != content:
                wrong.append(name)
        else:
            path.write_bytes(content)
            print(f"{len(content):6}  {name}")
    if wrong:
        sys.exit(f"these are not what make.py makes: {', '.join(wrong)}")


if __name__ == "__main__":
    main()
