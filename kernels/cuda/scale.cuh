// Enlarges grids and objects, and makes grids of one colour.
// Mirrors kernels/src/reference/scale.rs.

#pragma once

#include "picture.cuh"

// Every row `down` times, every column `right` times. Holes grow too.
__device__ inline Made upscale(Picture from, u32 down, u32 right, u32 capacity, u8 *to) {
    const u32 h = from.h * down, w = from.w * right;
    const u32 code = check_size(h, w, capacity);
    if (code != OK) {
        return failed(code);
    }
    const Divisor by_down(down), by_right(right);
    draw(h, w, to, [=](const Walk &walk) {
        return from.cells[by_down.quotient(walk.row) * from.w + by_right.quotient(walk.col)];
    });
    return made(h, w, from.row, from.col);
}

// A grid of one colour, independent of the grid before it.
__device__ inline Made canvas(u32 color, u32 h, u32 w, u32 capacity, u8 *to) {
    if (h * w > capacity) {
        return failed(NO_ROOM);
    }
    draw(h, w, to, [=](const Walk &) { return color; });
    return made_grid(h, w);
}

// The ops of this file, in the words of make_picture in chain.cuh.
#define SCALE_CASES                                                      \
    case OP_UPSCALE: return upscale(from, args[0], args[0], CELLS, to);  \
    case OP_HUPSCALE: return upscale(from, 1, args[0], CELLS, to);       \
    case OP_VUPSCALE: return upscale(from, args[0], 1, CELLS, to);       \
    case OP_CANVAS: return canvas(args[0], args[1], args[2], CELLS, to);
