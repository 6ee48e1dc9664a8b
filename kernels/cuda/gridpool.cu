// The one module that a worker loads: every kernel is an op's name after `gp_`.
// kernels/build_ptx.py makes kernels/ptx/gridpool.ptx from it.

#include "validate.cuh"
#include "symmetry.cuh"
#include "recolor.cuh"
#include "histogram.cuh"
#include "objects.cuh"
