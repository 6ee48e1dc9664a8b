// The threads that serve one value together: a warp, or a block where areas are added up.
//
// All threads of a team call its functions at the same point. Their results do not depend on the order in which
// the threads get there.
//
// Loops over cells are not unrolled unless a measurement shows that it pays: drivers compile all of this while
// a worker starts.

#pragma once

typedef unsigned char u8;
typedef short i16;
typedef unsigned short u16;
typedef int i32;
typedef long long i64;
typedef unsigned int u32;
typedef unsigned long long u64;

constexpr u32 LANES = 32;
constexpr u32 ALL_LANES = 0xffffffff;
// As in kernels/src/module.rs.
constexpr u32 BLOCK_THREADS = 128;
constexpr u32 BLOCK_WARPS = BLOCK_THREADS / LANES;

// Tells the compiler that memory is shared: shared memory has shorter addresses.
template <class T>
__device__ inline T *known_as_shared(T *address) {
    __builtin_assume(__isShared(address));
    return address;
}

// Marks where the way depends on a number below 256 alone: kernels/jump_tables.py makes a jump table there.
__device__ __forceinline__ u32 table_over(u32 number) {
#ifdef __CUDACC_RTC__
    asm volatile("// table over %0;" : "+r"(number));
#endif
    return number;
}

#ifdef GP_ONE_WARP
__device__ inline u32 lane() {
    __builtin_assume(threadIdx.x < LANES);
    return threadIdx.x;
}
#else
__device__ inline u32 lane() { return threadIdx.x % LANES; }
#endif

__device__ inline u32 warp() { return threadIdx.x / LANES; }

__device__ inline u32 any_lane(bool is) { return __any_sync(ALL_LANES, is); }

// A function call, not inlined: warps agree on a number in many places.
__device__ __noinline__ u32 least_of_warp(u32 number) {
    for (u32 distance = LANES / 2; distance > 0; distance /= 2) {
        number = min(number, __shfl_xor_sync(ALL_LANES, number, distance));
    }
    return number;
}

__device__ inline u32 most_of_warp(u32 number) { return ~least_of_warp(~number); }

__device__ __noinline__ i32 sum_of_warp(i32 number) {
    for (u32 distance = LANES / 2; distance > 0; distance /= 2) {
        number += __shfl_xor_sync(ALL_LANES, number, distance);
    }
    return number;
}

// The sum of the numbers of the lanes before this one.
__device__ __noinline__ u32 sum_before_in_warp(u32 number) {
    u32 up_to_here = number;
    for (u32 distance = 1; distance < LANES; distance *= 2) {
        const u32 left = __shfl_up_sync(ALL_LANES, up_to_here, distance);
        up_to_here += lane() >= distance ? left : 0;
    }
    return up_to_here - number;
}

// Numbers that the warps of a block exchange. In shared memory.
typedef u32 Slots[BLOCK_WARPS];

// The sum of the numbers of the threads of the block before this one, and the total.
__device__ inline u32 sum_before_in_block(Slots &slots, u32 number, u32 &all) {
    u32 before = sum_before_in_warp(number);
    if (lane() == LANES - 1) {
        slots[warp()] = before + number;
    }
    __syncthreads();
    all = 0;
#pragma unroll 1
    for (u32 other = 0; other < BLOCK_WARPS; other += 1) {
        before += other < warp() ? slots[other] : 0;
        all += slots[other];
    }
        // No thread writes the next number before all have read this one.
    __syncthreads();
    return before;
}

// A set of numbers below 32 * TILES that knows how many of its members come before any number. In shared
// memory, for one warp.
template <u32 TILES>
struct Ranks {
    u32 tiles[TILES];
    u32 before[TILES];
    u32 count;

    template <class Member>
    __device__ void mark(u32 numbers, Member is_member) {
#pragma unroll 1
        for (u32 base = 0; base < numbers; base += LANES) {
            const u32 number = base + lane();
            const u32 members = __ballot_sync(ALL_LANES, number < numbers && is_member(number));
            if (lane() == 0) {
                tiles[base / LANES] = members;
            }
        }
        __syncwarp();
        add_up((numbers + LANES - 1) / LANES);
        __syncwarp();
    }

    __device__ bool has(u32 number) const { return tiles[number / LANES] >> number % LANES & 1; }

    // How many members come before `number`.
    __device__ u32 rank(u32 number) const {
        const u32 lower = (1u << number % LANES) - 1;
        return before[number / LANES] + __popc(tiles[number / LANES] & lower);
    }

    // Counts the members, once all tiles are marked.
    __device__ void add_up(u32 tile_count) {
        u32 sum = 0;
#pragma unroll 1
        for (u32 base = 0; base < tile_count; base += LANES) {
            const u32 tile = base + lane();
            const u32 here = tile < tile_count ? __popc(tiles[tile]) : 0;
            const u32 before_here = sum_before_in_warp(here);
            if (tile < tile_count) {
                before[tile] = sum + before_here;
            }
            sum += __shfl_sync(ALL_LANES, before_here + here, LANES - 1);
        }
        if (lane() == 0) {
            count = sum;
        }
    }
};
