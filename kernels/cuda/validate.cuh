// Marks the grids that no op may see: those with a cell that is no colour, and the missing outputs
// of pairs. Runs before every program, over the device's own copy of the cells: what a client
// writes after that no longer matters.

#pragma once

#include "step.cuh"

// Stands for the op where a value was bad before the first.
constexpr u32 NO_OP = 255;

__device__ u32 input_code(Picture grid) {
    if (grid.is_empty()) {
        return MISSING_OUTPUT;
    }
    bool bad = false;
    for (u32 at = lane(); at < grid.area(); at += LANES) {
        bad |= grid.cells[at] >= COLORS;
    }
    return __any_sync(ALL_LANES, bad) ? BAD_CELL : OK;
}

// One warp a grid.
__device__ __noinline__ void validate(const Step &step) {
    const u32 value = value_of(Warp());
    if (value >= step.values) {
        return;
    }
    const u32 code = input_code(picture_of(step.offsets, step.from, value));
    if (lane() == 0) {
        step.status[value] = status_of(code, NO_OP);
    }
}

KERNEL(gp_validate, validate(step))
