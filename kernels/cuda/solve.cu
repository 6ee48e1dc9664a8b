// The module that a worker loads at its first solver, on GPUs of compute capability 8.0 and up: the warps' arenas lie
// in shared memory. kernels/build_ptx.py makes kernels/ptx/solve.ptx from it. What does not fit is run by solve_far.cu.

#define GP_ONE_WARP
#define GP_SHARED_ARENA
#include "machine/solve.cuh"

constexpr u32 SOLVE_THREADS = LANES;

// As many blocks as a multiprocessor takes.
constexpr u32 SOLVE_BLOCKS = 32;

extern "C" __global__ void __launch_bounds__(SOLVE_THREADS, SOLVE_BLOCKS) gp_solve(const Solve solve) {
    solve_items(solve, nullptr, blockIdx.x, gridDim.x);
}
