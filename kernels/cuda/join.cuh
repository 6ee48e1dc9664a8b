// Grids of a tuple: one of them, or all in one.
// Mirrors kernels/src/reference/join.rs.
//
// One warp an item.

#pragma once

#include "step.cuh"

// Element `step.args[0]` as it is, an empty grid too, whatever became of the others.
__device__ __noinline__ void nth_element(const Step &step) {
    const u32 value = value_of(Warp());
    if (value >= step.values) {
        return;
    }
    const u32 source = value * step.width_before + step.args[0];
    give_picture(Warp(), step, value, step.status_before[source], [&](u8 *to) {
        const Picture from = picture_of(step.offsets, step.from, source);
        draw_lines(from.cells, {0, int(from.w), 1}, from.h, from.w, to, from.w);
        return made_like(from);
    });
}

// An op that makes one grid of all elements of a tuple: `op(sources, to)`.
template <class Op>
__device__ void each_tuple(const Step &step, Op op) {
    const u32 value = value_of(Warp());
    if (value >= step.values) {
        return;
    }
    const Sources sources = {value * step.width_before, step.width_before};
    const u32 status = judge(step, sources);
    give_picture(Warp(), step, value, status, [&](u8 *to) { return op(sources, to); });
}

__device__ inline Picture element(const Step &step, Sources sources, u32 at) {
    return picture_of(step.offsets, step.from, sources.first + at);
}

// All side by side, as high as the lowest.
__device__ __noinline__ void hconcat(const Step &step) {
    each_tuple(step, [&](Sources sources, u8 *to) {
        u32 h = SIDE_MAX, w = 0;
#pragma unroll 1
        for (u32 at = 0; at < sources.count; at += 1) {
            const Picture grid = element(step, sources, at);
            h = min(h, grid.h);
            w += grid.w;
        }
        if (!fits(h, w)) {
            return failed(OVERFLOW);
        }
        u32 col = 0;
#pragma unroll 1
        for (u32 at = 0; at < sources.count; at += 1) {
            const Picture grid = element(step, sources, at);
            draw_lines(grid.cells, {0, int(grid.w), 1}, h, grid.w, to + col, w);
            col += grid.w;
        }
        return made_grid(h, w);
    });
}

// All on top of each other; they must be equally wide.
__device__ __noinline__ void vconcat(const Step &step) {
    each_tuple(step, [&](Sources sources, u8 *to) {
        const u32 w = element(step, sources, 0).w;
        u32 h = 0;
        bool even = true;
#pragma unroll 1
        for (u32 at = 0; at < sources.count; at += 1) {
            const Picture grid = element(step, sources, at);
            even &= grid.w == w;
            h += grid.h;
        }
        if (!even) {
            return failed(BAD_SHAPE);
        }
        if (!fits(h, w)) {
            return failed(OVERFLOW);
        }
        u32 row = 0;
#pragma unroll 1
        for (u32 at = 0; at < sources.count; at += 1) {
            const Picture grid = element(step, sources, at);
            draw_lines(grid.cells, {0, int(w), 1}, grid.h, w, to + row * w, w);
            row += grid.h;
        }
        return made_grid(h, w);
    });
}

// The first grid where it agrees with the second, `step.args[0]` elsewhere.
__device__ __noinline__ void cellwise(const Step &step) {
    const u32 fallback = step.args[0];
    each_tuple(step, [&](Sources sources, u8 *to) {
        const Picture a = element(step, sources, 0), b = element(step, sources, 1);
        if (b.h < a.h || b.w < a.w) {
            return failed(BAD_SHAPE);
        }
        draw(Warp(), a.h, a.w, to, [=](const Walk &walk) -> u32 {
            const u32 color = a.cells[walk.at];
            return b.cells[walk.row * b.w + walk.col] == color ? color : fallback;
        });
        return made_grid(a.h, a.w);
    });
}

KERNEL(gp_nth, nth_element(step))
KERNEL(gp_hconcat, hconcat(step))
KERNEL(gp_vconcat, vconcat(step))
KERNEL(gp_cellwise, cellwise(step))
