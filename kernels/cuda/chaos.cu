// Kernels that fault on purpose, for `gridpool chaos`: a module of its own, which a worker loads only to
// cause a fault. kernels/build_ptx.py makes kernels/ptx/chaos.ptx from it. Each kernel takes one number, so
// that no compiler can tell in advance what it does.

using u32 = unsigned int;
using u64 = unsigned long long;

namespace {

__device__ volatile u32 place[4];

// Never set.
__device__ volatile u32 is_over;

}  // namespace

// Stores element `at` of four.
extern "C" __global__ void gp_chaos_oob(u64 at) { place[at] = 1; }

// Stores four bytes from byte `at` on.
extern "C" __global__ void gp_chaos_misaligned(u64 at) {
    *reinterpret_cast<volatile u32 *>(reinterpret_cast<u64>(place) + at) = 1;
}

extern "C" __global__ void gp_chaos_trap(u64 traps) {
    if (traps != 0) {
        __trap();
    }
}

extern "C" __global__ void gp_chaos_assert(u64 holds) { assert(holds != 0); }

extern "C" __global__ void gp_chaos_endless(u64) {
    while (is_over == 0) {
    }
}
