// The threads that serve one value together: a warp, or a block where much is searched.
//
// All threads of a team call its functions at the same point. What they compute does not depend on
// the order in which the threads get there.
//
// Loops over cells are not unrolled here and elsewhere: a loop that reads and writes memory gains
// little by it, and drivers compile all of this while a worker starts.

#pragma once

typedef unsigned char u8;
typedef short i16;
typedef unsigned short u16;
typedef int i32;
typedef unsigned int u32;

constexpr u32 LANES = 32;
constexpr u32 ALL_LANES = 0xffffffff;
// As in kernels/src/module.rs.
constexpr u32 BLOCK_THREADS = 128;
constexpr u32 BLOCK_WARPS = BLOCK_THREADS / LANES;

__device__ inline u32 lane() { return threadIdx.x % LANES; }

// Called, not repeated, wherever a warp agrees on a number: they are many.
__device__ __noinline__ u32 least_of_warp(u32 number) {
    for (u32 distance = LANES / 2; distance > 0; distance /= 2) {
        number = min(number, __shfl_xor_sync(ALL_LANES, number, distance));
    }
    return number;
}

__device__ __noinline__ i32 sum_of_warp(i32 number) {
    for (u32 distance = LANES / 2; distance > 0; distance /= 2) {
        number += __shfl_xor_sync(ALL_LANES, number, distance);
    }
    return number;
}

__device__ __noinline__ u32 sum_before_in_warp(u32 number) {
    u32 up_to_here = number;
    for (u32 distance = 1; distance < LANES; distance *= 2) {
        const u32 left = __shfl_up_sync(ALL_LANES, up_to_here, distance);
        up_to_here += lane() >= distance ? left : 0;
    }
    return up_to_here - number;
}

// One warp; four of them lie in a block and know nothing of each other.
struct Warp {
    static constexpr u32 SIZE = LANES;

    __device__ u32 rank() const { return lane(); }

    __device__ void sync() const { __syncwarp(); }

    __device__ u32 least(u32 number) const { return least_of_warp(number); }

    __device__ u32 most(u32 number) const { return ~least(~number); }

    __device__ i32 sum(i32 number) const { return sum_of_warp(number); }

    // The sum of the numbers of the lanes before this one.
    __device__ u32 sum_before(u32 number) const { return sum_before_in_warp(number); }
};

// What the warps of a block tell each other. In shared memory.
typedef u32 Slots[BLOCK_WARPS];

// All threads of a block.
struct Block {
    static constexpr u32 SIZE = BLOCK_THREADS;
    u32 *slots;

    __device__ explicit Block(Slots &slots) : slots(slots) {}

    __device__ u32 rank() const { return threadIdx.x; }

    __device__ bool in_first_warp() const { return threadIdx.x < LANES; }

    __device__ void sync() const { __syncthreads(); }

    __device__ u32 least(u32 number) const {
        tell(Warp().least(number));
        u32 least = slots[0];
#pragma unroll 1
        for (u32 warp = 1; warp < BLOCK_WARPS; warp += 1) {
            least = min(least, slots[warp]);
        }
        // Nobody tells the next number before all have read this one.
        sync();
        return least;
    }

    __device__ u32 most(u32 number) const { return ~least(~number); }

    // The sum of the numbers of the threads before this one, and of all.
    __device__ u32 sum_before(u32 number, u32 &all) const {
        u32 before = Warp().sum_before(number);
        const u32 of_warp = __shfl_sync(ALL_LANES, before + number, LANES - 1);
        tell(of_warp);
        all = 0;
#pragma unroll 1
        for (u32 warp = 0; warp < BLOCK_WARPS; warp += 1) {
            before += warp < threadIdx.x / LANES ? slots[warp] : 0;
            all += slots[warp];
        }
        sync();
        return before;
    }

private:
    __device__ void tell(u32 number) const {
        if (lane() == 0) {
            slots[threadIdx.x / LANES] = number;
        }
        sync();
    }
};

// A set of the numbers below 32 * TILES that knows how many of its members come before any one.
// In shared memory.
template <u32 TILES>
struct Ranks {
    u32 tiles[TILES];
    u32 before[TILES];
    u32 count;

    // One tile a warp at a time.
    template <class Team, class Member>
    __device__ void mark(Team team, u32 numbers, Member is_member) {
#pragma unroll 1
        for (u32 base = team.rank() - lane(); base < numbers; base += team.SIZE) {
            const u32 number = base + lane();
            const u32 members = __ballot_sync(ALL_LANES, number < numbers && is_member(number));
            if (lane() == 0) {
                tiles[base / LANES] = members;
            }
        }
        team.sync();
        if (team.rank() < LANES) {
            add_up((numbers + LANES - 1) / LANES);
        }
        team.sync();
    }

    __device__ bool has(u32 number) const { return tiles[number / LANES] >> number % LANES & 1; }

    // How many members come before `number`.
    __device__ u32 rank(u32 number) const {
        const u32 lower = (1u << number % LANES) - 1;
        return before[number / LANES] + __popc(tiles[number / LANES] & lower);
    }

private:
    // For one warp.
    __device__ void add_up(u32 tile_count) {
        u32 sum = 0;
#pragma unroll 1
        for (u32 base = 0; base < tile_count; base += LANES) {
            const u32 tile = base + lane();
            const u32 here = tile < tile_count ? __popc(tiles[tile]) : 0;
            const u32 before_here = Warp().sum_before(here);
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
