#!/usr/bin/env python3
"""Makes the files of arrays that the tests of `gridpool infer` read.

    pip install numpy && python3 tests/data/make_arrays.py

Array number k of arrays.npz has the shape (2, 3) and the elements k, k + 1, … of its type, in C order as
seen from outside; BOOL has every second element true. `columns` lies column by column, `empty` has no
element, `scalar` no dimension. arrays_packed.npz is the same, compressed. two_inputs.npz and three_outputs.npy
are what these models take.
"""

import pathlib

import numpy

FOLDER = pathlib.Path(__file__).parent
TYPES = ["u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8"]

arrays = {f"in/{t}:0": (numpy.arange(6).reshape(2, 3) + k).astype("<" + t) for k, t in enumerate(TYPES)}
arrays["b1"] = (numpy.arange(6).reshape(2, 3) % 2).astype(bool)
# The upper halves of 0.0 to 5.0 in FP32, as ml_dtypes.bfloat16 is saved.
halves = numpy.arange(6, dtype="<f4").reshape(2, 3).view("<u4") >> 16
arrays["V2"] = halves.astype("<u2").view("V2")
arrays["columns"] = numpy.asfortranarray(numpy.arange(24, dtype="<i4").reshape(2, 3, 4))
arrays["empty"] = numpy.zeros((0, 3), "<f4")
arrays["scalar"] = numpy.array(7, "<i8")
numpy.savez(FOLDER / "arrays.npz", **arrays)
numpy.savez_compressed(FOLDER / "arrays_packed.npz", **arrays)
# What the models `two_inputs` and `three_outputs` take.
x = numpy.arange(8, dtype="<f4").reshape(2, 4) / 2
numpy.savez(FOLDER / "two_inputs.npz", x=x, shift=numpy.array([10, 20], "<i4"))
numpy.save(FOLDER / "three_outputs.npy", x)
