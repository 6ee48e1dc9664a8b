// CUDA's words for a processor: one warp of 32 lanes, each with a stack of its own, that change places at every
// collective operation, in an order that changes. A lane that relies on another's progress without a collective is found out.

#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#define __device__
#define __noinline__ __attribute__((noinline))
#define __forceinline__ inline
#define __builtin_assume(x)
#define __isShared(x) true

namespace host {

constexpr int LANE_COUNT = 32;
constexpr size_t STACK_BYTES = 256 * 1024;

struct Posted {
    uint64_t value[LANE_COUNT];
    int tag[LANE_COUNT];
};

struct Warp {
    void *stacks[LANE_COUNT];
    void *points[LANE_COUNT];
    void *scheduler;
    bool done[LANE_COUNT];
    Posted posted[2];
    // The collective that each lane is at.
    uint64_t phase[LANE_COUNT];
    int lane;
    uint64_t random;
    void (*body)(void *);
    void *argument;
};

extern Warp warp;

extern "C" void host_switch(void **save, void *load);

// Waits until all lanes have posted a value to this collective; returns what they posted.
inline const Posted &exchange(int tag, uint64_t value) {
    const int lane = warp.lane;
    Posted &posted = warp.posted[warp.phase[lane] & 1];
    posted.value[lane] = value;
    posted.tag[lane] = tag;
    warp.phase[lane] += 1;
    host_switch(&warp.points[lane], warp.scheduler);
    return posted;
}

// Runs `body` on all lanes.
void run_warp(void (*body)(void *), void *argument);

}  // namespace host

struct HostThread {
    struct {
        operator unsigned() const { return unsigned(host::warp.lane); }
    } x;
};
static const HostThread threadIdx = {};

template <class T>
inline T max(T a, T b) { return a < b ? b : a; }
template <class T>
inline T min(T a, T b) { return a < b ? a : b; }

enum { TAG_SYNC = 1, TAG_BALLOT, TAG_SHUFFLE };

inline void __syncwarp() { host::exchange(TAG_SYNC, 0); }
// The block is one warp.
inline void __syncthreads() { host::exchange(TAG_SYNC, 0); }
inline unsigned __ballot_sync(unsigned, bool is) {
    const host::Posted &posted = host::exchange(TAG_BALLOT, is);
    unsigned bits = 0;
    for (int lane = 0; lane < host::LANE_COUNT; lane += 1) {
        bits |= unsigned(posted.value[lane] != 0) << lane;
    }
    return bits;
}
inline unsigned __any_sync(unsigned mask, bool is) { return __ballot_sync(mask, is) != 0; }
template <class T>
inline T __shfl_sync(unsigned, T value, int from) {
    return T(host::exchange(TAG_SHUFFLE, uint64_t(value)).value[from & 31]);
}
template <class T>
inline T __shfl_xor_sync(unsigned, T value, int with) {
    const int lane = host::warp.lane;
    return T(host::exchange(TAG_SHUFFLE, uint64_t(value)).value[(lane ^ with) & 31]);
}
template <class T>
inline T __shfl_up_sync(unsigned, T value, int by) {
    const int lane = host::warp.lane;
    return T(host::exchange(TAG_SHUFFLE, uint64_t(value)).value[lane >= by ? lane - by : lane]);
}
template <class T>
inline T __shfl_down_sync(unsigned, T value, int by) {
    const int lane = host::warp.lane;
    return T(host::exchange(TAG_SHUFFLE, uint64_t(value)).value[lane + by < host::LANE_COUNT ? lane + by : lane]);
}
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
#define __CUDA_ARCH__ 600
inline int __popc(unsigned bits) { return __builtin_popcount(bits); }
inline int __ffs(unsigned bits) { return __builtin_ffs(int(bits)); }
inline int __clz(unsigned bits) { return bits == 0 ? 32 : __builtin_clz(bits); }
inline unsigned __brev(unsigned bits) {
    unsigned turned = 0;
    for (int bit = 0; bit < 32; bit += 1) {
        turned |= (bits >> bit & 1) << (31 - bit);
    }
    return turned;
}
inline unsigned __umulhi(unsigned a, unsigned b) { return unsigned(uint64_t(a) * b >> 32); }
inline unsigned atomicMin(unsigned *at, unsigned value) {
    const unsigned before = *at;
    *at = before < value ? before : value;
    return before;
}
template <class T>
inline T atomicAdd(T *at, T value) {
    const T before = *at;
    *at = before + value;
    return before;
}
template <class T>
inline T atomicExch(T *at, T value) {
    const T before = *at;
    *at = value;
    return before;
}
inline unsigned atomicOr(unsigned *at, unsigned value) {
    const unsigned before = *at;
    *at = before | value;
    return before;
}
