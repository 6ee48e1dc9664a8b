// Grids and objects made larger, and grids made of nothing.
// Mirrors kernels/src/reference/scale.rs.

#pragma once

#include "picture.cuh"

// Every row `down` times, every column `right` times. Holes grow too.
__device__ inline Made upscale(Picture from, u32 down, u32 right, u32 room, u8 *to) {
    const u32 h = from.h * down, w = from.w * right;
    const u32 code = judge_size(h, w, room);
    if (code != OK) {
        return failed(code);
    }
    const Divisor by_down(down), by_right(right);
    draw(h, w, to, [=](const Walk &walk) {
        return from.cells[by_down.quotient(walk.row) * from.w + by_right.quotient(walk.col)];
    });
    return made(h, w, from.row, from.col);
}

// A grid of one colour, whatever the grid before it was.
__device__ inline Made canvas(u32 color, u32 h, u32 w, u32 room, u8 *to) {
    if (h * w > room) {
        return failed(NO_ROOM);
    }
    draw(h, w, to, [=](const Walk &) { return color; });
    return made_grid(h, w);
}
