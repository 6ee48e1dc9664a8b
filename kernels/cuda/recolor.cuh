// Ops that give every cell a new colour by its old one.
// Mirrors kernels/src/reference/recolor.rs.

#pragma once

#include "grid.cuh"

struct Replace {
    u32 old_color, new_color;

    __device__ u32 operator()(u32 color) const { return color == old_color ? new_color : color; }
};

struct Switch {
    u32 a, b;

    __device__ u32 operator()(u32 color) const { return color == a ? b : color == b ? a : color; }
};

// One warp an item.
template <class Map>
__device__ void recolor(Map map, Batch batch, Stage from, Stage to) {
    const u32 item = item_of_warp();
    if (item >= batch.items) {
        return;
    }
    const Grid input = grid_of(batch, from, item);
    if (lane() == 0) {
        to.shapes[2 * item] = input.h;
        to.shapes[2 * item + 1] = input.w;
    }
    u8 *output = to.cells + batch.offsets[item];
    for (u32 at = lane(); at < input.area(); at += LANES) {
        output[at] = map(input.cells[at]);
    }
}

extern "C" __global__ void gp_replace(Batch batch, Stage from, Stage to, u32 old_color,
                                      u32 new_color) {
    recolor(Replace{old_color, new_color}, batch, from, to);
}

extern "C" __global__ void gp_switch(Batch batch, Stage from, Stage to, u32 a, u32 b) {
    recolor(Switch{a, b}, batch, from, to);
}
