// Objects and patches: made of grids and of each other, moved and recoloured.
// Mirrors kernels/src/reference/patch.rs.

#pragma once

#include "picture.cuh"

__device__ inline Made ofcolor(Picture from, u32 color, u8 *to) {
    return draw_tight(from.h, from.w, 0, 0, to, [=](const Walk &walk) -> u32 {
        return from.cells[walk.at] == color ? 0 : HOLE;
    });
}

// `from` at (row, col): its cells in `color`, or as they are if that is HOLE.
__device__ inline Made redraw(Picture from, u32 color, int row, int col, u8 *to) {
    draw(from.h, from.w, to, [=](const Walk &walk) {
        const u32 cell = from.cells[walk.at];
        return cell == HOLE || color == HOLE ? cell : color;
    });
    return made(from.h, from.w, row, col);
}

// The ground's cells at the places of a patch; what lies off the ground is dropped.
__device__ inline Made toobject(Picture ground, Picture from, u8 *to) {
    return draw_tight(from.h, from.w, from.row, from.col, to, [=](const Walk &walk) {
        const int i = from.row + int(walk.row), j = from.col + int(walk.col);
        return from.cells[walk.at] == HOLE ? u32(HOLE) : ground.at_place(i, j);
    });
}
