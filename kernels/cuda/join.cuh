// Tuples of grids: a grid cut into parts, one element, or all elements in one.
// Mirrors kernels/src/reference/{cut,join}.rs.
//
// One warp per value after the op.

#pragma once

#include "cut.cuh"
#include "step.cuh"

// The values before the op that make one value after it.
struct Sources {
    u32 first, count;
};

// The status of the first of `sources` that has failed, or EMPTY_ARG if one is an empty grid.
__device__ __noinline__ u32 judge(const Step &step, Sources sources) {
    for (u32 at = sources.first; at < sources.first + sources.count; at += 1) {
        if (step.status_before[at] != OK) {
            return step.status_before[at];
        }
    }
    for (u32 at = sources.first; at < sources.first + sources.count; at += 1) {
        if (step.from.shapes[2 * at] == 0) {
            return status_of(EMPTY_ARG, step.ops[0].place);
        }
    }
    return OK;
}

// `op(to)` writes a grid's cells from `to` on.
template <class Make>
__device__ void give_grid(const Step &step, u32 value, u32 status, Make make) {
    Made grid = empty_picture();
    if (status == OK) {
        grid = make(step.to.cells + step.to.extent.start(step.offsets, value));
        status = status_of(grid.code, step.ops[0].place);
    }
    write_shape(step.to, value, grid);
    if (lane() == 0) {
        step.status[value] = status;
    }
}

__device__ inline Picture grid_before(const Step &step, u32 value) {
    return picture_of(step.offsets, step.from, value);
}

// Writes all parts of one grid next to each other.
__device__ inline void split(const Step &step, bool columns) {
    const u32 value = value_of_warp();
    if (value >= step.values) {
        return;
    }
    const u32 parts = step.width / step.width_before, part = value % parts;
    const u32 source = value / parts;
    give_grid(step, value, judge(step, {source, 1}), [&](u8 *to) {
        const Picture from = grid_before(step, source);
        const Run rows = columns ? all() : split(from.h, parts, part);
        const Run cols = columns ? split(from.w, parts, part) : all();
        return crop(from, rows, cols, to);
    });
}

// Copies element `args[0]` unchanged, even an empty grid, whether or not the others failed.
__device__ inline void nth_element(const Step &step) {
    const u32 value = value_of_warp();
    if (value >= step.values) {
        return;
    }
    const u32 source = value * step.width_before + step.ops[0].args[0];
    give_grid(step, value, step.status_before[source], [&](u8 *to) {
        const Picture from = grid_before(step, source);
        draw_lines(from.cells, {0, int(from.w), 1}, from.h, from.w, to, from.w);
        return made_like(from);
    });
}

// An op that makes one grid of all elements of a tuple: `make(sources, to)`.
template <class Make>
__device__ void each_tuple(const Step &step, Make make) {
    const u32 value = value_of_warp();
    if (value >= step.values) {
        return;
    }
    const Sources sources = {value * step.width_before, step.width_before};
    give_grid(step, value, judge(step, sources), [&](u8 *to) { return make(sources, to); });
}

// All side by side, as high as the lowest.
__device__ inline void hconcat(const Step &step) {
    each_tuple(step, [&](Sources sources, u8 *to) {
        u32 h = SIDE_MAX, w = 0;
#pragma unroll 1
        for (u32 at = 0; at < sources.count; at += 1) {
            const Picture grid = grid_before(step, sources.first + at);
            h = min(h, grid.h);
            w += grid.w;
        }
        if (check_size(h, w, PICTURE_CELLS_MAX) != OK) {
            return failed(OVERFLOW);
        }
        u32 col = 0;
#pragma unroll 1
        for (u32 at = 0; at < sources.count; at += 1) {
            const Picture grid = grid_before(step, sources.first + at);
            draw_lines(grid.cells, {0, int(grid.w), 1}, h, grid.w, to + col, w);
            col += grid.w;
        }
        return made_grid(h, w);
    });
}

// All on top of each other; their widths must be equal.
__device__ inline void vconcat(const Step &step) {
    each_tuple(step, [&](Sources sources, u8 *to) {
        const u32 w = grid_before(step, sources.first).w;
        u32 h = 0;
        bool even = true;
#pragma unroll 1
        for (u32 at = 0; at < sources.count; at += 1) {
            const Picture grid = grid_before(step, sources.first + at);
            even &= grid.w == w;
            h += grid.h;
        }
        if (!even) {
            return failed(BAD_SHAPE);
        }
        if (check_size(h, w, PICTURE_CELLS_MAX) != OK) {
            return failed(OVERFLOW);
        }
        u32 row = 0;
#pragma unroll 1
        for (u32 at = 0; at < sources.count; at += 1) {
            const Picture grid = grid_before(step, sources.first + at);
            draw_lines(grid.cells, {0, int(w), 1}, grid.h, w, to + row * w, w);
            row += grid.h;
        }
        return made_grid(h, w);
    });
}

// The first grid where it agrees with the second, `args[0]` elsewhere.
__device__ inline void cellwise(const Step &step) {
    const u32 fallback = step.ops[0].args[0];
    each_tuple(step, [&](Sources sources, u8 *to) {
        const Picture a = grid_before(step, sources.first);
        const Picture b = grid_before(step, sources.first + 1);
        if (b.h < a.h || b.w < a.w) {
            return failed(BAD_SHAPE);
        }
        draw(a.h, a.w, to, [=](const Walk &walk) -> u32 {
            const u32 color = a.cells[walk.at];
            return b.cells[walk.row * b.w + walk.col] == color ? color : fallback;
        });
        return made_grid(a.h, a.w);
    });
}

KERNEL(gp_hsplit, split(step, true))
KERNEL(gp_vsplit, split(step, false))
KERNEL(gp_nth, nth_element(step))
KERNEL(gp_hconcat, hconcat(step))
KERNEL(gp_vconcat, vconcat(step))
KERNEL(gp_cellwise, cellwise(step))
