// How often each colour occurs. Holes are no cells.
// Mirrors kernels/src/reference/histogram.rs.
//
// One warp a value. Lane c knows colour c; lanes from COLORS on know of nothing and count 0.

#pragma once

#include "step.cuh"

// What a lane knows of its colour.
struct Tally {
    u32 count;
    // The first cell, where count is not 0.
    u32 first;
};

__device__ __noinline__ Tally tally(const u8 *cells, u32 area) {
    Tally mine = {0, 0};
#pragma unroll 1
    for (u32 base = 0; base < area; base += LANES) {
        const u32 at = base + lane();
        const u32 color = at < area ? cells[at] : HOLE;
        u32 found = 0;
#pragma unroll 1
        for (u32 candidate = 0; candidate < COLORS; candidate += 1) {
            const u32 those = __ballot_sync(ALL_LANES, color == candidate);
            found = lane() == candidate ? those : found;
        }
        if (mine.count == 0 && found != 0) {
            mine.first = base + __ffs(found) - 1;
        }
        mine.count += __popc(found);
    }
    return mine;
}

__device__ inline u32 count_color(Picture from, u32 color) {
    u32 count = 0;
#pragma unroll 1
    for (u32 at = lane(); at < from.area(); at += LANES) {
        count += from.cells[at] == color;
    }
    return Warp().sum(count);
}

__device__ inline u32 count_cells(Picture from) { return from.area() - count_color(from, HOLE); }

__device__ __noinline__ void colorcount(const Step &step) {
    const u32 color = step.args[0];
    each_number(step, [=](Picture from) { return measured(count_color(from, color)); });
}

__device__ __noinline__ void numcolors(const Step &step) {
    each_number(step, [](Picture from) {
        const Tally mine = tally(from.cells, from.area());
        return measured(__popc(__ballot_sync(ALL_LANES, mine.count != 0)));
    });
}

KERNEL(gp_colorcount, colorcount(step))
KERNEL(gp_numcolors, numcolors(step))
