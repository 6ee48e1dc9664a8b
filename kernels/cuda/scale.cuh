// Grids and objects made larger, and grids made of nothing.
// Mirrors kernels/src/reference/scale.rs.

#pragma once

#include "step.cuh"

// Every row `down` times, every column `right` times. Holes grow too.
__device__ __noinline__ void upscale(const Step &step, u32 down, u32 right) {
    each_picture(step, [=](Picture from, u8 *to) {
        const u32 h = from.h * down, w = from.w * right;
        if (!fits(h, w)) {
            return failed(OVERFLOW);
        }
        draw(Warp(), h, w, to, [=](const Walk &walk) {
            return from.cells[walk.row / down * from.w + walk.col / right];
        });
        return made(h, w, from.row, from.col);
    });
}

// A grid of one colour, whatever the grid before it was.
__device__ __noinline__ void canvas(const Step &step) {
    const u32 value = value_of(Warp());
    if (value >= step.values) {
        return;
    }
    const u32 color = step.args[0], h = step.args[1], w = step.args[2];
    give_picture(Warp(), step, value, step.status_before[value], [=](u8 *to) {
        draw(Warp(), h, w, to, [=](const Walk &) { return color; });
        return made_grid(h, w);
    });
}

KERNEL(gp_upscale, upscale(step, step.args[0], step.args[0]))
KERNEL(gp_hupscale, upscale(step, 1, step.args[0]))
KERNEL(gp_vupscale, upscale(step, step.args[0], 1))
KERNEL(gp_canvas, canvas(step))
