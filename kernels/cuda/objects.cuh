// Connected components of a grid, numbered in canonical order.
// Mirrors kernels/src/reference/label.rs in what it gives, not in how: here every cell is a node
// of a forest in shared memory, and neighbours of one object unite their trees.
//
// Whatever the order in which threads get there, the root of a finished tree is the object's
// smallest cell, because a root is only ever hung under a smaller one. So the result does not
// depend on it, and counting roots up to a cell gives the object's number.

#pragma once

#include "grid.cuh"
#include "histogram.cuh"

constexpr u32 OBJECTS_THREADS = 128;
constexpr u32 OBJECTS_WARPS = OBJECTS_THREADS / LANES;
constexpr u32 TILES_MAX = GRID_CELLS_MAX / LANES;
constexpr u32 NO_BACKGROUND = 255;

// A forest over the cells of one grid. `volatile`, because other threads change it meanwhile, but
// only by atomicMin: a parent only ever falls, and stays an ancestor. So a walk ends, and at the
// root that a walk from anywhere in the tree would reach.
struct Forest {
    volatile u32 *parents;

    // Hangs `cell` under `parent` unless it hangs lower already; gives what it hung under before.
    __device__ u32 hang(u32 cell, u32 parent) const {
        return atomicMin((u32 *)&parents[cell], parent);
    }

    __device__ u32 root(u32 cell) const {
        for (;;) {
            const u32 parent = parents[cell];
            if (parent == cell) {
                return cell;
            }
            // Each visit halves the path for the next.
            const u32 above = parents[parent];
            hang(cell, above);
            cell = above;
        }
    }

    __device__ void unite(u32 a, u32 b) const {
        for (;;) {
            a = root(a);
            b = root(b);
            if (a == b) {
                return;
            }
            const u32 low = min(a, b), high = max(a, b);
            const u32 before = hang(high, low);
            if (before == high) {
                return;
            }
            // Another thread was first: `high` hung under `before`, which must meet `low` too.
            a = before;
            b = low;
        }
    }
};

// Which neighbours belong to one object.
struct Grouping {
    bool univalued, diagonal;
    u32 background;

    __device__ bool holds(u32 color) const { return color != background; }

    __device__ bool joins(u32 color, u32 other) const {
        return holds(other) && (!univalued || other == color);
    }
};

// Every cell unites with those of its neighbours that come before it.
__device__ void unite_neighbours(Forest forest, Grid grid, Grouping grouping) {
    const u32 w = grid.w;
    for (Walk cell(threadIdx.x, OBJECTS_THREADS, w); cell.at < grid.area(); cell.next()) {
        const u32 at = cell.at;
        const u32 color = grid.cells[at];
        if (!grouping.holds(color)) {
            continue;
        }
        if (cell.col > 0 && grouping.joins(color, grid.cells[at - 1])) {
            forest.unite(at, at - 1);
        }
        if (cell.row == 0) {
            continue;
        }
        if (grouping.joins(color, grid.cells[at - w])) {
            forest.unite(at, at - w);
        }
        if (grouping.diagonal && cell.col > 0 && grouping.joins(color, grid.cells[at - w - 1])) {
            forest.unite(at, at - w - 1);
        }
        if (grouping.diagonal && cell.col + 1 < w && grouping.joins(color, grid.cells[at - w + 1])) {
            forest.unite(at, at - w + 1);
        }
    }
}

// Cells that are roots, one bit each, in tiles of 32, and the roots before each tile.
struct Roots {
    u32 tiles[TILES_MAX];
    u32 before[TILES_MAX];
    u32 count;

    // One tile a warp at a time.
    __device__ void mark(Forest forest, Grid grid, Grouping grouping) {
        const u32 area = grid.area();
        for (u32 tile = threadIdx.x / LANES; tile * LANES < area; tile += OBJECTS_WARPS) {
            const u32 at = tile * LANES + lane();
            const bool is_root =
                at < area && grouping.holds(grid.cells[at]) && forest.parents[at] == at;
            const u32 bits = __ballot_sync(ALL_LANES, is_root);
            if (lane() == 0) {
                tiles[tile] = bits;
            }
        }
    }

    // For one warp.
    __device__ void add_up(u32 tile_count) {
        u32 sum = 0;
        for (u32 base = 0; base < tile_count; base += LANES) {
            const u32 tile = base + lane();
            const u32 here = tile < tile_count ? __popc(tiles[tile]) : 0;
            u32 up_to_here = here;
            for (u32 distance = 1; distance < LANES; distance *= 2) {
                const u32 left = __shfl_up_sync(ALL_LANES, up_to_here, distance);
                up_to_here += lane() >= distance ? left : 0;
            }
            if (tile < tile_count) {
                before[tile] = sum + up_to_here - here;
            }
            sum += __shfl_sync(ALL_LANES, up_to_here, LANES - 1);
        }
        if (lane() == 0) {
            count = sum;
        }
    }

    // The number of the object with this root, from 1.
    __device__ u32 number(u32 root) const {
        const u32 up_to_root = ALL_LANES >> (LANES - 1 - root % LANES);
        return before[root / LANES] + __popc(tiles[root / LANES] & up_to_root);
    }
};

// One block of OBJECTS_THREADS an item.
extern "C" __global__ void __launch_bounds__(OBJECTS_THREADS)
    gp_objects(Batch batch, Stage from, u32 univalued, u32 diagonal, u32 without_bg, u32 ties,
               u8 *shapes, u16 *counts, u8 *labels_low, u8 *labels_high) {
    __shared__ u32 parents[GRID_CELLS_MAX];
    __shared__ Roots roots;
    __shared__ u32 background;

    const u32 item = blockIdx.x;
    if (item >= batch.items) {
        return;
    }
    const Grid grid = grid_of(batch, from, item);
    const Forest forest = {parents};
    const bool in_first_warp = threadIdx.x < LANES;

    for (u32 at = threadIdx.x; at < grid.area(); at += OBJECTS_THREADS) {
        parents[at] = at;
    }
    if (in_first_warp) {
        u32 color = NO_BACKGROUND;
        if (without_bg) {
            const Tally mine = tally(grid);
            color = best_color(mine, order_of(mine, ties), false);
        }
        if (lane() == 0) {
            background = color;
        }
    }
    __syncthreads();
    const Grouping grouping = {univalued != 0, diagonal != 0, background};
    unite_neighbours(forest, grid, grouping);
    __syncthreads();
    roots.mark(forest, grid, grouping);
    __syncthreads();
    if (in_first_warp) {
        roots.add_up((grid.area() + LANES - 1) / LANES);
    }
    __syncthreads();

    const u32 start = batch.offsets[item];
    for (u32 at = threadIdx.x; at < grid.area(); at += OBJECTS_THREADS) {
        const u32 label = grouping.holds(grid.cells[at]) ? roots.number(forest.root(at)) : 0;
        labels_low[start + at] = label;
        labels_high[start + at] = label >> 8;
    }
    if (threadIdx.x == 0) {
        shapes[2 * item] = grid.h;
        shapes[2 * item + 1] = grid.w;
        counts[item] = roots.count;
    }
}
