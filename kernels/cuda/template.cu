// The module that a worker loads at its first search of a template, as solve.cu is for solvers.

#define GP_ONE_WARP
#define GP_SHARED_ARENA
#include "machine/template.cuh"

constexpr u32 SEARCH_THREADS = LANES;

// Fewer blocks than a multiprocessor takes: what its registers hold then need not be kept in memory.
constexpr u32 SEARCH_BLOCKS = 24;

extern "C" __global__ void __launch_bounds__(SEARCH_THREADS, SEARCH_BLOCKS) gp_template(const Search search) {
    judge_template(search, nullptr);
}

extern "C" __global__ void __launch_bounds__(SEARCH_THREADS, SEARCH_BLOCKS) gp_prepare(const Search search) {
    prepare_all(search, nullptr, blockIdx.x, gridDim.x);
}
