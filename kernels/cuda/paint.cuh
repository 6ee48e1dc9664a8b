// Objects and patches painted on their ground. Cells off the ground are ignored; an empty object
// or patch leaves it as it is.
// Mirrors kernels/src/reference/paint.rs.

#pragma once

#include "ties.cuh"

// What comes where the patch has a cell.
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

// The ground of this warp's value, and its commonest colour.
struct Ground {
    Picture grid;
    u32 background;
};

__device__ inline Ground ground_of(const Step &step) {
    const Picture grid = picture_of(step.offsets, step.ground, value_of(Warp()));
    return {grid, most_color(grid.cells, grid.area(), step.ties)};
}

__device__ __noinline__ void paint(const Step &step, Brush brush) {
    each_picture(step, [&](Picture from, u8 *to) {
        const Ground ground = ground_of(step);
        draw(Warp(), ground.grid.h, ground.grid.w, to, [&](const Walk &walk) {
            const u32 below = ground.grid.cells[walk.at];
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
        return made_grid(ground.grid.h, ground.grid.w);
    });
}

// Covers the object and paints it `step.args` further on.
__device__ __noinline__ void move(const Step &step) {
    const int rows = step.args[0], cols = step.args[1];
    each_picture(step, [&](Picture from, u8 *to) {
        const Ground ground = ground_of(step);
        draw(Warp(), ground.grid.h, ground.grid.w, to, [&](const Walk &walk) -> u32 {
            const int i = walk.row, j = walk.col;
            const u32 moved = from.at_place(i - rows, j - cols);
            if (moved != HOLE) {
                return moved;
            }
            const bool covered = from.at_place(i, j) != HOLE;
            return covered ? ground.background : ground.grid.cells[walk.at];
        });
        return made_grid(ground.grid.h, ground.grid.w);
    });
}

KERNEL(gp_fill, paint(step, {ONE_COLOR, false, u32(step.args[0])}))
KERNEL(gp_underfill, paint(step, {ONE_COLOR, true, u32(step.args[0])}))
KERNEL(gp_cover, paint(step, {BACKGROUND, false, 0}))
KERNEL(gp_paint, paint(step, {OWN_COLORS, false, 0}))
KERNEL(gp_underpaint, paint(step, {OWN_COLORS, true, 0}))
KERNEL(gp_move, move(step))
