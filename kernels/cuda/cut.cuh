// Parts of a grid. A part that has no cell is the empty grid.
// Mirrors kernels/src/reference/cut.rs.

#pragma once

#include "cells.cuh"

// A range of lines; a grid of `lines` lines has those before its end.
struct Run {
    u32 start, length;

    __device__ Run clipped(u32 lines) const {
        const u32 from = min(start, lines);
        return {from, min(length, lines - from)};
    }
};

__device__ inline Made crop(Picture from, Run rows, Run cols, u8 *to) {
    rows = rows.clipped(from.h);
    cols = cols.clipped(from.w);
    const int start = rows.start * from.w + cols.start, pitch = from.w;
    draw_lines(from.cells, {start, pitch, 1}, rows.length, cols.length, to, cols.length);
    return made_grid(rows.length, cols.length);
}

__device__ inline Run all() { return {0, SIDE_MAX}; }

__device__ inline Run first_half(u32 lines) { return {0, lines / 2}; }

// An odd middle line is in neither half.
__device__ inline Run second_half(u32 lines) { return {lines - lines / 2, lines / 2}; }

// Part `part` of `parts`: one line is left out between two of them unless they divide evenly, and the last
// may be cut.
__device__ inline Run split(u32 lines, u32 parts, u32 part) {
    const u32 length = lines / parts, left_out = lines % parts != 0;
    return {part * (length + left_out), length};
}

enum Half { TOP, BOTTOM, LEFT, RIGHT };

__device__ inline Made half(Picture from, Half half, u8 *to) {
    Run rows = all(), cols = all();
    switch (half) {
    case TOP: rows = first_half(from.h); break;
    case BOTTOM: rows = second_half(from.h); break;
    case LEFT: cols = first_half(from.w); break;
    case RIGHT: cols = second_half(from.w); break;
    }
    return crop(from, rows, cols, to);
}

__device__ inline Made trim(Picture from, u8 *to) {
    return crop(from, {1, max(from.h, 2u) - 2}, {1, max(from.w, 2u) - 2}, to);
}

// The ground's window over the box of an object or a patch.
__device__ inline Made subgrid(Picture ground, Picture from, u8 *to) {
    if (from.is_empty()) {
        return failed(EMPTY_ARG);
    }
    if (from.row < 0 || from.col < 0) {
        return failed(BAD_CROP);
    }
    return crop(ground, {u32(from.row), from.h}, {u32(from.col), from.w}, to);
}

// Every `factor`th row and column.
__device__ inline Made downscale(Picture from, u32 factor, u8 *to) {
    const u32 h = (from.h + factor - 1) / factor, w = (from.w + factor - 1) / factor;
    draw_lines(from.cells, {0, int(factor * from.w), int(factor)}, h, w, to, w);
    return made_grid(h, w);
}

// The shared memory that a warp needs to drop lines of a grid.
struct KeptLines {
    Ranks<(SIDE_MAX + LANES) / LANES> rows, cols;
};

// Whether a line has two colours. It has `cells` cells, `pitch` apart.
__device__ inline bool is_mixed(const u8 *line, u32 cells, u32 pitch) {
    bool mixed = false;
#pragma unroll 1
    for (u32 at = 1; at < cells; at += 1) {
        mixed |= line[at * pitch] != line[0];
    }
    return mixed;
}

// Drops the rows and columns of one colour, as they are in the original grid.
__device__ inline Made compress(Picture from, KeptLines &kept, u8 *to) {
    kept.rows.mark(from.h, [&](u32 row) {
        return is_mixed(from.cells + row * from.w, from.w, 1);
    });
    kept.cols.mark(from.w, [&](u32 col) { return is_mixed(from.cells + col, from.h, from.w); });
    const u32 w = kept.cols.count;
#pragma unroll 1
    for (Walk walk(from.h, from.w); walk.has_cell(); walk.next()) {
        if (kept.rows.has(walk.row) && kept.cols.has(walk.col)) {
            const u32 row = kept.rows.rank(walk.row), col = kept.cols.rank(walk.col);
            to[row * w + col] = from.cells[walk.at];
        }
    }
    return made_grid(kept.rows.count, w);
}

// The ops of this file, in the words of make_picture in chain.cuh.
#define CUT_CASES                                                                          \
    case OP_TOPHALF: return half(from, TOP, to);                                           \
    case OP_BOTTOMHALF: return half(from, BOTTOM, to);                                     \
    case OP_LEFTHALF: return half(from, LEFT, to);                                         \
    case OP_RIGHTHALF: return half(from, RIGHT, to);                                       \
    case OP_TRIM: return trim(from, to);                                                   \
    case OP_CROP:                                                                          \
        return crop(from, {u32(args[0]), u32(args[2])}, {u32(args[1]), u32(args[3])}, to); \
    case OP_SUBGRID: return subgrid(ground, from, to);                                     \
    case OP_COMPRESS: return compress(from, desk.lines, to);                               \
    case OP_DOWNSCALE: return downscale(from, args[0], to);
