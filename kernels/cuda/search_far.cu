// The module of searches whose warps have arenas in global memory, as solve_far.cu is for solvers.

#define GP_ONE_WARP
#include "machine/listed.cuh"

constexpr u32 SEARCH_THREADS = LANES;

// As many blocks as a multiprocessor takes.
constexpr u32 SEARCH_BLOCKS = 32;

extern "C" __global__ void __launch_bounds__(SEARCH_THREADS, SEARCH_BLOCKS) gp_search(const Search search) {
    judge_all(search, search.arenas + u64(blockIdx.x) * search.arena_words);
}

extern "C" __global__ void __launch_bounds__(SEARCH_THREADS, SEARCH_BLOCKS) gp_prepare(const Search search) {
    prepare_all(search, search.arenas + u64(blockIdx.x) * search.arena_words, blockIdx.x, gridDim.x);
}
