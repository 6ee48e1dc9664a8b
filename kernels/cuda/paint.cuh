// Paints objects and patches on their ground. Cells off the ground are ignored; an empty object or patch
// changes nothing.
// Mirrors kernels/src/reference/paint.rs.

#pragma once

#include "ties.cuh"

// The colour for each cell of the patch.
enum Paint {
    OWN_COLORS,
    ONE_COLOR,
    // The ground's commonest colour.
    BACKGROUND,
};

struct Brush {
    Paint paint;
    // Only where the ground has its commonest colour.
    bool only_background;
    // The color of ONE_COLOR.
    u32 color;
};

// A grid to paint on, and its commonest colour, computed when it is needed.
struct Ground {
    Picture grid;
    u32 background;

    __device__ Ground(Picture grid, bool wants_background, u32 ties)
        : grid(grid),
          background(wants_background ? most_color(grid.cells, grid.area(), ties) : HOLE) {}
};

__device__ inline Made paint(Picture on, Brush brush, u32 ties, Picture from, u8 *to) {
    const bool asks = brush.only_background || brush.paint == BACKGROUND;
    const Ground ground(on, asks, ties);
    draw(on.h, on.w, to, [&](const Walk &walk) {
        const u32 below = on.cells[walk.at];
        const u32 own = from.at_place(walk.row, walk.col);
        const bool stays = brush.only_background && below != ground.background;
        if (own == HOLE || stays) {
            return below;
        }
        switch (brush.paint) {
        case BACKGROUND: return ground.background;
        case ONE_COLOR: return brush.color;
        case OWN_COLORS: break;
        }
        return own;
    });
    return made_grid(on.h, on.w);
}

// Covers the object and paints it (rows, cols) further.
__device__ inline Made move(Picture on, int rows, int cols, u32 ties, Picture from, u8 *to) {
    const Ground ground(on, true, ties);
    draw(on.h, on.w, to, [&](const Walk &walk) -> u32 {
        const int i = walk.row, j = walk.col;
        const u32 moved = from.at_place(i - rows, j - cols);
        if (moved != HOLE) {
            return moved;
        }
        return from.at_place(i, j) != HOLE ? ground.background : on.cells[walk.at];
    });
    return made_grid(on.h, on.w);
}

// The ops of this file, in the words of make_picture in chain.cuh.
#define PAINT_CASES                                                                           \
    case OP_FILL: return paint(ground, {ONE_COLOR, false, u32(args[0])}, ties, from, to);     \
    case OP_UNDERFILL: return paint(ground, {ONE_COLOR, true, u32(args[0])}, ties, from, to); \
    case OP_COVER: return paint(ground, {BACKGROUND, false, 0}, ties, from, to);              \
    case OP_PAINT: return paint(ground, {OWN_COLORS, false, 0}, ties, from, to);              \
    case OP_UNDERPAINT: return paint(ground, {OWN_COLORS, true, 0}, ties, from, to);
