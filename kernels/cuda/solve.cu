// The module that a worker loads at its first solver or search. kernels/build_ptx.py makes kernels/ptx/solve.ptx from it.

#include "machine/search.cuh"

constexpr u32 SOLVE_THREADS = LANES;

// As many blocks as a multiprocessor takes.
constexpr u32 SOLVE_BLOCKS = 32;

extern "C" __global__ void __launch_bounds__(SOLVE_THREADS, SOLVE_BLOCKS) gp_solve(const Solve solve) {
    solve_items(solve, solve.arenas + u64(blockIdx.x) * solve.arena_words, blockIdx.x, gridDim.x);
}

extern "C" __global__ void __launch_bounds__(SOLVE_THREADS, SOLVE_BLOCKS) gp_search(const Search search) {
    judge_all(search, search.arenas + u64(blockIdx.x) * search.arena_words, blockIdx.x, gridDim.x);
}
