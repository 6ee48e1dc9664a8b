// Ops that give every cell of a grid a new colour by its old one.
// Mirrors kernels/src/reference/recolor.rs.

#pragma once

#include "step.cuh"

// Cells of colour `a` become `b`, and those of `b` become `b_becomes`.
__device__ __noinline__ void recolor(const Step &step, u32 a, u32 b, u32 b_becomes) {
    each_picture(step, [=](Picture from, u8 *to) {
        draw(Warp(), from.h, from.w, to, [=](const Walk &walk) {
            const u32 color = from.cells[walk.at];
            return color == a ? b : color == b ? b_becomes : color;
        });
        return made_like(from);
    });
}

KERNEL(gp_replace, recolor(step, step.args[0], step.args[1], step.args[1]))
KERNEL(gp_switch, recolor(step, step.args[0], step.args[1], step.args[0]))
