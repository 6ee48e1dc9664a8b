// Objects and patches: made of grids and of each other, moved and recoloured.
// Mirrors kernels/src/reference/patch.rs.

#pragma once

#include "picture.cuh"

__device__ inline Made ofcolor(Picture from, u32 color, u8 *to) {
    return draw_tight(from.h, from.w, 0, 0, to, [=](const Walk &walk) -> u32 {
        return from.cells[walk.at] == color ? 0 : HOLE;
    });
}

// `from` at (row, col): its cells in `color`, or unchanged if that is HOLE.
__device__ inline Made redraw(Picture from, u32 color, int row, int col, u8 *to) {
    draw(from.h, from.w, to, [=](const Walk &walk) {
        const u32 cell = from.cells[walk.at];
        return cell == HOLE || color == HOLE ? cell : color;
    });
    return made(from.h, from.w, row, col);
}

// The ground's cells at the places of a patch; places off the ground are dropped.
__device__ inline Made toobject(Picture ground, Picture from, u8 *to) {
    return draw_tight(from.h, from.w, from.row, from.col, to, [=](const Walk &walk) {
        const int i = from.row + int(walk.row), j = from.col + int(walk.col);
        return from.cells[walk.at] == HOLE ? u32(HOLE) : ground.at_place(i, j);
    });
}

// The ops of this file, in the words of make_picture in chain.cuh.
#define PATCH_CASES                                                                       \
    case OP_ASINDICES:                                                                    \
    case OP_TOINDICES: return redraw(from, 0, from.row, from.col, to);                    \
    case OP_ASOBJECT: return redraw(from, HOLE, from.row, from.col, to);                  \
    case OP_RECOLOR: return redraw(from, args[0], from.row, from.col, to);                \
    case OP_SHIFT: return redraw(from, HOLE, from.row + args[0], from.col + args[1], to); \
    case OP_NORMALIZE: return redraw(from, HOLE, 0, 0, to);                               \
    case OP_OFCOLOR: return ofcolor(from, args[0], to);                                   \
    case OP_TOOBJECT: return toobject(ground, from, to);
