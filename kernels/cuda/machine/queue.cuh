// How the warps of a launch share its evaluations: those of one multiprocessor take neighbouring ones, so that they are
// at the same code at about the same time.

#pragma once

#include "machine/run.cuh"

// Most evaluations that a multiprocessor takes from the launch at a time. Few, so that all multiprocessors are at like
// programs at about the same time: several of them share the next cache.
constexpr u32 SHARE = 16;
// A launch has this many shares at least: one of few evaluations, which are long, spreads over all multiprocessors.
constexpr u32 SHARES_MIN = 1024;
// As in kernels/src/solve.rs. A queue is the number of shares that were taken, and for each multiprocessor its share,
// counted from 1, in the high half, and how many asked for one of it in the low half. If there are more of them, some
// take from one.
constexpr u32 MULTIPROCESSORS = 256;
// More evaluations than there are.
constexpr u32 NO_EVALUATION = ~0u;
// In place of a share: the launch is to stop.
constexpr u32 NO_SHARE = ~0u;

__device__ __forceinline__ u32 multiprocessor() {
#ifdef __CUDACC_RTC__
    u32 number;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(number));
    return number % MULTIPROCESSORS;
#else
    return 0;
#endif
}

// The number of the next evaluation of a launch of so many, for one lane; NO_EVALUATION once the launch is to stop.
__device__ __forceinline__ u32 taken_from(u64 *queue, u32 count, const u32 *stop) {
    u64 *const own = queue + 1 + multiprocessor();
    const u32 even = count / SHARES_MIN, each = even == 0 ? 1 : even < SHARE ? even : SHARE;
#pragma unroll 1
    while (true) {
        const u64 taken = atomicAdd(own, u64(1));
        const u32 share = u32(taken >> 32), before = u32(taken);
        if (share == NO_SHARE) {
            return NO_EVALUATION;
        }
        if (share != 0 && before < each) {
            const u64 at = u64(share - 1) * each + before;
            return at < count ? u32(at) : NO_EVALUATION;
        }
        if (before == (share == 0 ? 0 : each)) {
            // The first that finds nothing left takes the next share for all, and its first evaluation for itself.
            if (stop && *static_cast<const volatile u32 *>(stop) != 0) {
                atomicExch(own, u64(NO_SHARE) << 32);
                return NO_EVALUATION;
            }
            const u64 next = atomicAdd(queue, u64(1));
            atomicExch(own, (next + 1) << 32 | 1);
            return next * each < count ? u32(next * each) : NO_EVALUATION;
        }
        // The others wait for it.
        while (u32(*static_cast<volatile u64 *>(own) >> 32) == share) {
        }
    }
}

// The same for all lanes.
__device__ __forceinline__ u32 next_of_queue(u64 *queue, u32 count, const u32 *stop) {
    u32 at = 0;
    if (lane() == 0) {
        at = taken_from(queue, count, stop);
    }
    together();
    return alike(at);
}
