// Connected components of a grid, numbered in canonical order.
// Mirrors kernels/src/reference/label.rs in what it gives, not in how: here every cell is a node
// of a forest in shared memory, and neighbours of one object unite their trees.
//
// Whatever the order in which threads get there, the root of a finished tree is the object's
// smallest cell, because a root is only ever hung under a smaller one. So the result does not
// depend on it, and counting roots up to a cell gives the object's number.

#pragma once

#include "ties.cuh"

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
__device__ inline void unite_neighbours(Block block, Forest forest, Picture grid,
                                        Grouping grouping) {
    const u32 w = grid.w;
    for (Walk cell(block, grid.h, w); cell.has_cell(); cell.next()) {
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

// What a block needs in shared memory to label one grid.
struct Labeler {
    u32 parents[PICTURE_CELLS_MAX];
    Ranks<PICTURE_CELLS_MAX / LANES> roots;

    // Gives the number of objects.
    __device__ u32 label(Block block, Picture grid, Grouping grouping, Labels labels) {
        const Forest forest = {parents};
        for (u32 at = block.rank(); at < grid.area(); at += block.SIZE) {
            parents[at] = at;
        }
        block.sync();
        unite_neighbours(block, forest, grid, grouping);
        block.sync();
        roots.mark(block, grid.area(), [&](u32 at) {
            return grouping.holds(grid.cells[at]) && forest.parents[at] == at;
        });
        for (u32 at = block.rank(); at < grid.area(); at += block.SIZE) {
            const bool held = grouping.holds(grid.cells[at]);
            labels.set(at, held ? roots.rank(forest.root(at)) + 1 : 0);
        }
        return roots.count;
    }
};

// The colour that `without_bg` leaves out. One warp finds it and the others wait.
__device__ inline u32 background_of(Block block, Picture grid, bool without_bg, u32 ties) {
    u32 background = NO_BACKGROUND;
    if (without_bg && block.in_first_warp()) {
        background = most_color(grid.cells, grid.area(), ties);
    }
    return block.least(background);
}

// One block a value.
__device__ __noinline__ void objects(const Step &step) {
    __shared__ Labeler labeler;
    __shared__ Slots slots;
    const Block block(slots);
    each_objects(block, step, [&](Picture grid, Labels labels) {
        const u32 background = background_of(block, grid, step.args[2], step.ties);
        const Grouping grouping = {step.args[0] != 0, step.args[1] != 0, background};
        return labeler.label(block, grid, grouping, labels);
    });
}

KERNEL(gp_objects, objects(step))
