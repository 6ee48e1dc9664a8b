// The module that a worker loads at its first solver. kernels/build_ptx.py makes kernels/ptx/solve.ptx from it.

#include "machine/solve.cuh"

constexpr u32 SOLVE_THREADS = LANES;

extern "C" __global__ void __launch_bounds__(SOLVE_THREADS) gp_solve(const Solve solve) {
    extern __shared__ u64 shared[];
    u32 *const arena = solve.arenas ? solve.arenas + u64(blockIdx.x) * solve.arena_words : reinterpret_cast<u32 *>(shared);
    solve_items(solve, arena, blockIdx.x, gridDim.x);
}
