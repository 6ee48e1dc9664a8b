// Marks the items whose cells are not all colours and blanks them: to every later kernel such an
// item is a grid of zeros, and what an earlier job left in the buffers shows nowhere. Runs before
// every program, over the device's own copy of the cells: what a client writes after that no
// longer matters.

#pragma once

#include "grid.cuh"

// One warp an item. Writes the (code, op) of every item.
extern "C" __global__ void gp_validate(Batch batch, Stage input, u8 *status) {
    const u32 item = item_of_warp();
    if (item >= batch.items) {
        return;
    }
    const Grid grid = grid_of(batch, input, item);
    bool bad = false;
    for (u32 at = lane(); at < grid.area(); at += LANES) {
        bad |= grid.cells[at] >= COLORS;
    }
    const bool any_bad = __any_sync(ALL_LANES, bad);
    if (lane() == 0) {
        status[2 * item] = any_bad ? STATUS_BAD_CELL : STATUS_OK;
        status[2 * item + 1] = any_bad ? NO_OP : 0;
    }
    for (u32 at = lane(); any_bad && at < grid.area(); at += LANES) {
        grid.cells[at] = 0;
    }
}
