// The module that a worker loads at its first search, as solve.cu is for solvers.

#define GP_ONE_WARP
#define GP_SHARED_ARENA
#include "machine/listed.cuh"

constexpr u32 SEARCH_THREADS = LANES;

// As many blocks as a multiprocessor takes.
constexpr u32 SEARCH_BLOCKS = 32;

extern "C" __global__ void __launch_bounds__(SEARCH_THREADS, SEARCH_BLOCKS) gp_search(const Search search) {
    judge_all(search, nullptr);
}

extern "C" __global__ void __launch_bounds__(SEARCH_THREADS, SEARCH_BLOCKS) gp_prepare(const Search search) {
    prepare_all(search, nullptr, blockIdx.x, gridDim.x);
}
