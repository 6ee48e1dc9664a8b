// How often each colour occurs. Holes are not cells.
// Mirrors kernels/src/reference/histogram.rs.
//
// One warp per value. Lane c counts colour c; lanes from COLORS on count 0.

#pragma once

#include "picture.cuh"

// A lane's count of its colour.
struct Tally {
    u32 count;
        // The first cell, if count is not 0.
    u32 first;
};

// A colour has four bits. Each lane learns the four bits of 32 cells at a time, and derives from them which
// cells have its own colour.
__device__ __noinline__ Tally tally(const u8 *cells, u32 area) {
    cells = known_as_shared(cells);
    const u32 flip_0 = lane() & 1 ? 0 : ALL_LANES, flip_1 = lane() & 2 ? 0 : ALL_LANES;
    const u32 flip_2 = lane() & 4 ? 0 : ALL_LANES, flip_3 = lane() & 8 ? 0 : ALL_LANES;
    Tally mine = {0, 0};
#pragma unroll 1
    for (u32 base = 0; base < area; base += LANES) {
        const u32 at = base + lane();
        const u32 color = at < area ? cells[at] : HOLE;
        const u32 bits_0 = __ballot_sync(ALL_LANES, color & 1) ^ flip_0;
        const u32 bits_1 = __ballot_sync(ALL_LANES, color & 2) ^ flip_1;
        const u32 bits_2 = __ballot_sync(ALL_LANES, color & 4) ^ flip_2;
        const u32 bits_3 = __ballot_sync(ALL_LANES, color & 8) ^ flip_3;
        const u32 found = bits_0 & bits_1 & bits_2 & bits_3;
        if (mine.count == 0 && found != 0) {
            mine.first = base + __ffs(found) - 1;
        }
        mine.count += __popc(found);
    }
    // Holes have the bits of 15.
    mine.count = lane() < COLORS ? mine.count : 0;
    return mine;
}

__device__ inline u32 count_color(Picture from, u32 color) {
    u32 count = 0;
#pragma unroll 1
    for (u32 at = lane(); at < from.area(); at += LANES) {
        count += from.cells[at] == color;
    }
    return sum_of_warp(count);
}

__device__ inline u32 count_cells(Picture from) { return from.area() - count_color(from, HOLE); }

__device__ inline u32 count_colors(Picture from) {
    const Tally mine = tally(from.cells, from.area());
    return __popc(__ballot_sync(ALL_LANES, mine.count != 0));
}
