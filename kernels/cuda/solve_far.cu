// The module of solvers whose warps have arenas in global memory: for what does not fit those of solve.cu, and for GPUs
// before compute capability 8.0. kernels/build_ptx.py makes kernels/ptx/solve_far.ptx from it.

#define GP_ONE_WARP
#include "machine/solve.cuh"

constexpr u32 SOLVE_THREADS = LANES;

// As many blocks as a multiprocessor takes.
constexpr u32 SOLVE_BLOCKS = 32;

extern "C" __global__ void __launch_bounds__(SOLVE_THREADS, SOLVE_BLOCKS) gp_solve(const Solve solve) {
    solve_items(solve, solve.arenas + u64(blockIdx.x) * solve.arena_words, blockIdx.x, gridDim.x);
}
