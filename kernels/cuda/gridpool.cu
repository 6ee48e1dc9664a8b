// The one module that a worker loads: every kernel is an op's name after `gp_`.
// kernels/build_ptx.py makes kernels/ptx/gridpool.ptx from it.

#include "validate.cuh"

#include "cut.cuh"
#include "frame.cuh"
#include "histogram.cuh"
#include "join.cuh"
#include "label.cuh"
#include "measure.cuh"
#include "paint.cuh"
#include "partition.cuh"
#include "patch.cuh"
#include "recolor.cuh"
#include "scale.cuh"
#include "select.cuh"
#include "symmetry.cuh"
#include "ties.cuh"

#include "pack.cuh"
