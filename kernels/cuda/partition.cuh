// The cells of each colour as one object, numbered in canonical order.
// Mirrors kernels/src/reference/partition.rs.

#pragma once

#include "ties.cuh"

// Lane c handles colour c. Returns the number of objects.
__device__ inline u32 partition(Picture grid, bool foreground_only, u32 ties, u16 *labels) {
    Tally mine = tally(grid.cells, grid.area());
    if (foreground_only) {
        const u32 background = best_color(mine, order_of(mine, ties), false);
        mine.count = lane() == background ? 0 : mine.count;
    }
    const u32 arrival = arrival_of(mine);
    const u32 label = mine.count == 0 ? 0 : arrival + 1;
    const u32 objects = __popc(__ballot_sync(ALL_LANES, mine.count != 0));
#pragma unroll 1
    for (u32 base = 0; base < grid.area(); base += LANES) {
        const u32 at = base + lane();
        const u32 color = at < grid.area() ? grid.cells[at] : 0;
        const u32 of_cell = __shfl_sync(ALL_LANES, label, color);
        if (at < grid.area()) {
            labels[at] = of_cell;
        }
    }
    return objects;
}
