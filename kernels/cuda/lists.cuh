// A chain of only one labelling, over the grids of the input: labels go straight from the forest to the host's
// result.

#pragma once

#include "chain.cuh"

// The shared memory of a warp: the cells, aligned as in memory, and the forest.
struct LabelDesk {
    alignas(16) u8 cells[SMALL_CELLS + 16];
    u32 parents[SMALL_CELLS];
    Ranks<SMALL_CELLS / LANES> roots;
};

// The number of a cell's object, or 0.
__device__ inline u32 label_of(const LabelDesk &desk, const u8 *cells, Grouping grouping, u32 at) {
    if (!grouping.holds(cells[at])) {
        return 0;
    }
    u32 root = at;
    for (;;) {
        const u32 parent = desk.parents[root];
        if (parent == root) {
            return desk.roots.rank(root) + 1;
        }
        root = parent;
    }
}

// Writes the low byte of every label, or the high one if there are more than 255 objects.
__device__ __noinline__ void write_plane(const LabelDesk &desk, Picture grid, Grouping grouping,
                                         u32 shift, u8 *to) {
    const auto byte_of = [&](u32 at) {
        return label_of(desk, grid.cells, grouping, at) >> shift & 0xff;
    };
    each_word(
        to, grid.area(),
        [&](u32 at, u32 *place) {
            u32 word = 0;
#pragma unroll 1
            for (u32 byte = 0; byte < 4; byte += 1) {
                word |= byte_of(at + byte) << 8 * byte;
            }
            *place = word;
        },
        [&](u32 at, u8 *place) { *place = byte_of(at); });
}

__device__ inline u32 list_objects(const Step &step, u32 index, const Picture &grid,
                                   LabelDesk &desk) {
    const i16 *args = step.ops[0].args;
    const u32 background =
        args[2] ? most_color(grid.cells, grid.area(), step.ties) : NO_BACKGROUND;
    const Grouping grouping = {args[0] != 0, args[1] != 0, background};
    unite_all<SMALL_CELLS>(grid, grouping, desk.parents, desk.roots);
    const u32 start = step.to.extent.start(step.offsets, index);
    write_plane(desk, grid, grouping, 0, step.labels_low + start);
    if (desk.roots.count > 255) {
        write_plane(desk, grid, grouping, 8, step.labels_high + start);
    }
    return desk.roots.count;
}

__device__ inline void lists(const Step &step) {
    __shared__ LabelDesk desks[BLOCK_WARPS];
    LabelDesk &desk = desks[warp()];
    const u32 first = value_of_warp() * step.values_per_warp;
    if (first >= step.values) {
        return;
    }
    const u32 count = min(step.values_per_warp, step.values - first);
    const Arrival mine = arrival_of(step, first + min(lane(), count - 1));
#pragma unroll 1
    for (u32 at = 0; at < count; at += 1) {
        const Arrival arrival = arrival_at(mine, at);
        const u32 index = first + at;
        const Picture grid = {arrival.h, arrival.w, 0, 0,
                              desk.cells + misplaced(arrival.cells, 16)};
        if (arrival.area() <= SMALL_CELLS) {
            copy_around(arrival.cells, arrival.area(), desk.cells + misplaced(arrival.cells, 16));
        }
        __syncwarp();
        const u32 status = status_before<SMALL_CELLS>(step, arrival, grid.cells);
        if (status == OK) {
            const u32 objects = list_objects(step, index, grid, desk);
            if (lane() == 0) {
                step.counts[index] = objects;
            }
            write_shape(step.to, index, made_like(grid));
        } else if (status != LATER) {
            write_nothing(step, index);
        }
        if (lane() == 0) {
            step.status[index] = status;
        }
        __syncwarp();
    }
}

KERNEL_OF(gp_lists, 10, lists(step))
