// Objects and patches: made of grids and of each other, moved and recoloured.
// Mirrors kernels/src/reference/patch.rs.

#pragma once

#include "step.cuh"

__device__ __noinline__ void ofcolor(const Step &step) {
    const u32 color = step.args[0];
    each_picture(step, [=](Picture from, u8 *to) {
        return draw_tight(Warp(), from.h, from.w, 0, 0, to, [=](const Walk &walk) -> u32 {
            return from.cells[walk.at] == color ? 0 : HOLE;
        });
    });
}

// `from` at (row, col): its cells in `color`, or as they are if that is HOLE.
__device__ inline Made redraw(Picture from, u32 color, int row, int col, u8 *to) {
    draw(Warp(), from.h, from.w, to, [=](const Walk &walk) {
        const u32 cell = from.cells[walk.at];
        return cell == HOLE || color == HOLE ? cell : color;
    });
    return made(from.h, from.w, row, col);
}

__device__ __noinline__ void colored(const Step &step, u32 color) {
    each_picture(step, [=](Picture from, u8 *to) {
        return redraw(from, color, from.row, from.col, to);
    });
}

__device__ __noinline__ void shift(const Step &step) {
    const int rows = step.args[0], cols = step.args[1];
    each_picture(step, [=](Picture from, u8 *to) {
        return redraw(from, HOLE, from.row + rows, from.col + cols, to);
    });
}

__device__ __noinline__ void normalize(const Step &step) {
    each_picture(step, [](Picture from, u8 *to) { return redraw(from, HOLE, 0, 0, to); });
}

// The ground's cells at the places of a patch; what lies off the ground is dropped.
__device__ __noinline__ void toobject(const Step &step) {
    each_picture(step, [&](Picture from, u8 *to) {
        const Picture ground = picture_of(step.offsets, step.ground, value_of(Warp()));
        return draw_tight(Warp(), from.h, from.w, from.row, from.col, to, [=](const Walk &walk) {
            const int i = from.row + int(walk.row), j = from.col + int(walk.col);
            return from.cells[walk.at] == HOLE ? u32(HOLE) : ground.at_place(i, j);
        });
    });
}

KERNEL(gp_ofcolor, ofcolor(step))
KERNEL(gp_asindices, colored(step, 0))
KERNEL(gp_asobject, colored(step, HOLE))
KERNEL(gp_toindices, colored(step, 0))
KERNEL(gp_toobject, toobject(step))
KERNEL(gp_recolor, colored(step, step.args[0]))
KERNEL(gp_shift, shift(step))
KERNEL(gp_normalize, normalize(step))
