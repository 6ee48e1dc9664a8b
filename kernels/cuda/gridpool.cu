// The one module that a worker loads. kernels/build_ptx.py makes kernels/ptx/gridpool.ptx from it.

#include "chain.cuh"

#include "images.cuh"

#include "lists.cuh"

#include "join.cuh"

#include "pack.cuh"

#include "planes.cuh"
