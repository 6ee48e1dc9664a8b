// Connected components of a grid, numbered in canonical order.
// Gives the results of kernels/src/reference/label.rs by another method: every cell is a node of a forest in
// shared memory, and neighbours within one object unite their trees.
//
// In any order of lanes, the root of a finished tree is the object's smallest cell, because a root is only
// ever hung under a smaller one. So the result does not depend on the order, and counting roots up to a cell
// gives the object's number.

#pragma once

#include "ties.cuh"

constexpr u32 NO_BACKGROUND = 255;

// A forest over the cells of one grid. It is `volatile` because other lanes change it meanwhile, but only by
// atomicMin: a parent only ever falls, and stays an ancestor. So a walk ends, and at the root that a walk from
// anywhere in the tree would reach.
struct Forest {
    volatile u32 *parents;

        // Hangs `cell` under `parent` unless it hangs lower already; returns its previous parent.
    __device__ u32 hang(u32 cell, u32 parent) const {
        return atomicMin((u32 *)&parents[cell], parent);
    }

    __device__ u32 root(u32 cell) const {
        for (;;) {
            const u32 parent = parents[cell];
            if (parent == cell) {
                return cell;
            }
            cell = parent;
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
                        // Another lane was first: `high` hung under `before`, which must meet `low` too.
            a = before;
            b = low;
        }
    }
};

// Which neighbours belong to one object. Cells of an object are joined if they are alike: if two cells join a
// third, they join each other.
struct Grouping {
    bool univalued, diagonal;
    u32 background;

    __device__ bool holds(u32 color) const { return color != background; }

    __device__ bool joins(u32 color, u32 other) const {
        return holds(other) && (!univalued || other == color);
    }
};

// Hangs every cell under the first of its row that reaches it without a gap, so that only rows remain to be
// united.
__device__ inline void hang_rows(Forest forest, Picture grid, Grouping grouping) {
    u32 carried = 0;
#pragma unroll 1
    for (Walk cell(grid.h, grid.w); any_lane(cell.has_cell()); cell.next()) {
        bool continues = false;
        if (cell.has_cell() && cell.col > 0) {
            const u32 color = grid.cells[cell.at];
            continues = grouping.holds(color) && grouping.joins(color, grid.cells[cell.at - 1]);
        }
        const u32 starts = __ballot_sync(ALL_LANES, !continues);
        const u32 up_to_here = starts & (ALL_LANES >> (LANES - 1 - lane()));
        const u32 first = cell.at - lane() + LANES - 1 - __clz(up_to_here);
        const u32 parent = up_to_here == 0 ? carried : first;
        if (cell.has_cell()) {
            forest.parents[cell.at] = parent;
        }
        carried = __shfl_sync(ALL_LANES, parent, LANES - 1);
    }
}

// Unites every cell with the joined cells of the row above, except those with which a neighbour unites it: the
// left neighbour unites it with cells above both, and each unites itself with cells above it.
__device__ inline void unite_rows(Forest forest, Picture grid, Grouping grouping) {
    const u32 w = grid.w;
#pragma unroll 1
    for (Walk cell(grid.h, w); cell.has_cell(); cell.next()) {
        const u32 at = cell.at;
        const u32 color = grid.cells[at];
        if (cell.row == 0 || !grouping.holds(color)) {
            continue;
        }
        const u8 *here = grid.cells + at, *above = here - w;
        const bool has_left = cell.col > 0, has_right = cell.col + 1 < w;
        const bool left = has_left && grouping.joins(color, here[-1]);
        const bool above_left = has_left && grouping.joins(color, above[-1]);
        if (grouping.joins(color, above[0])) {
            if (!left || !above_left) {
                forest.unite(at, at - w);
            }
        } else if (grouping.diagonal) {
            if (above_left && !left) {
                forest.unite(at, at - w - 1);
            }
            const bool above_right = has_right && grouping.joins(color, above[1]);
            if (above_right && !grouping.joins(color, here[1])) {
                forest.unite(at, at - w + 1);
            }
        }
    }
}

// Unites all cells of each object, and marks the roots.
template <u32 CELLS>
__device__ void unite_all(Picture grid, Grouping grouping, u32 *parents,
                          Ranks<CELLS / LANES> &roots) {
    const Forest forest = {parents};
    hang_rows(forest, grid, grouping);
    __syncwarp();
    unite_rows(forest, grid, grouping);
    __syncwarp();
    roots.mark(grid.area(), [&](u32 at) {
        return grouping.holds(grid.cells[at]) && forest.parents[at] == at;
    });
}

// Returns the number of objects. Their labels, for each cell the object's number from 1 or 0, end up in two
// bytes each where the parents of four bytes were.
template <u32 CELLS>
__device__ u32 label(Picture grid, Grouping grouping, u32 *parents, Ranks<CELLS / LANES> &roots) {
    unite_all<CELLS>(grid, grouping, parents, roots);
    const Forest forest = {parents};
#pragma unroll 1
    for (u32 at = lane(); at < grid.area(); at += LANES) {
        forest.hang(at, forest.root(at));
    }
    __syncwarp();
    u16 *labels = reinterpret_cast<u16 *>(parents);
#pragma unroll 1
    for (u32 base = 0; base < grid.area(); base += LANES) {
        const u32 at = base + lane();
        u32 label = 0;
        if (at < grid.area() && grouping.holds(grid.cells[at])) {
            label = roots.rank(parents[at]) + 1;
        }
                // The labels of these cells lie over the parents of cells up to these.
        __syncwarp();
        if (at < grid.area()) {
            labels[at] = label;
        }
        __syncwarp();
    }
    return roots.count;
}

template <u32 CELLS>
__device__ u32 objects(Picture grid, bool univalued, bool diagonal, bool without_bg, u32 ties,
                       u32 *parents, Ranks<CELLS / LANES> &roots) {
    const u32 background =
        without_bg ? most_color(grid.cells, grid.area(), ties) : NO_BACKGROUND;
    return label<CELLS>(grid, {univalued, diagonal, background}, parents, roots);
}
