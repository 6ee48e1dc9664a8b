// A chain of only one image, the most common of all, over the grids of the input: a block takes many
// neighbouring grids at a time.

#pragma once

#include "chain.cuh"

// Cells that a block takes at a time; a grid of any size fits.
constexpr u32 TILE_CELLS = 16384;

// What a warp needs to write the image of a grid.
struct alignas(16) Sketch {
        // Where the image starts, counted from the tile's first cell, and its number of cells.
    u16 start, area;
    // The lines of the image. Their start counts from the tile's first cell too.
    i16 first, down, right;
        // Columns of the image, and the divisor by them.
    u16 w;
    u32 factor;
};

// The last word of an image may read up to this many cells before and after the grid, one line of its own
// length, and does not use them.
constexpr u32 LINE_MAX = SIDE_MAX;

// The shared memory of a block. The bytes before and after the cells may be read.
struct Tile {
    Sketch sketches[BLOCK_THREADS];
        // Whether a cell of the grid is not a colour.
    bool bad[BLOCK_THREADS];
    u32 end;
        // At the alignment that they have in memory.
    alignas(16) u8 cells[TILE_CELLS + 32 + LINE_MAX];
};

static_assert(sizeof(Sketch) * BLOCK_THREADS >= 2 * LINE_MAX, "capacity before the cells");

// Copies the cells from `from` on; returns whether one of them may not be a colour.
__device__ inline bool take_cells(Tile &tile, const u8 *from, u32 cells) {
    const u32 before = misplaced(from, 16);
    const uint4 *source = reinterpret_cast<const uint4 *>(from - before);
    uint4 *target = reinterpret_cast<uint4 *>(tile.cells);
    u32 suspect = 0;
#pragma unroll 4
    for (u32 at = threadIdx.x; at < (before + cells + 15) / 16; at += BLOCK_THREADS) {
        const uint4 vector = source[at];
        target[at] = vector;
        suspect |= over_colors(vector.x) | over_colors(vector.y) | over_colors(vector.z) |
                   over_colors(vector.w);
    }
    return suspect != 0;
}

__device__ inline Sketch sketch(Symmetry symmetry, u32 h, u32 w, u32 start) {
    const Lines lines = lines_of(symmetry, h, w);
    const u32 columns = transposes(symmetry) ? h : w;
    Sketch sketch;
    sketch.start = start;
    sketch.area = h * w;
    sketch.first = lines.start + int(start);
    sketch.down = lines.down;
    sketch.right = lines.right;
    sketch.w = columns;
    sketch.factor = Divisor(max(columns, 1u)).factor;
    return sketch;
}

// Four cells of an image from place `at` on, the first in the lowest byte. Cells past the image's end must not
// be used.
template <bool RECOLORS>
__device__ inline u32 four_cells(const u8 *cells, const Sketch &of, ColorMap colors, u32 at) {
    const int down = of.down, right = of.right, w = of.w;
    const int row = at * of.factor >> 20;
    int col = int(at) - row * w;
    int source = of.first + row * down + col * right;
    const int wrap = down - w * right;
    u32 word = 0;
    if (w >= 4) {
        // At most one line ends among four cells.
        const int rest = w - col;
#pragma unroll
        for (int byte = 0; byte < 4; byte += 1) {
            const u32 cell = cells[source + byte * right + (byte < rest ? 0 : wrap)];
            word |= (RECOLORS ? colors.of(cell) : cell) << 8 * byte;
        }
        return word;
    }
#pragma unroll 1
    for (int byte = 0; byte < 4; byte += 1) {
        const u32 cell = cells[source];
        word |= (RECOLORS ? colors.of(cell) : cell) << 8 * byte;
        source += right;
        col += 1;
        if (col == w) {
            source += wrap;
            col = 0;
        }
    }
    return word;
}

// Writes the image of one grid of the tile to its place.
template <bool RECOLORS>
__device__ void write_image(const u8 *cells, const Sketch &of, ColorMap colors, u8 *to) {
    const int before = misplaced(to, 4), area = of.area;
#pragma unroll 1
    for (int at = 4 * int(lane()) - before; at < area; at += 4 * LANES) {
        const u32 word = four_cells<RECOLORS>(cells, of, colors, max(at, 0));
        if (at >= 0 && at + 4 <= area) {
            *reinterpret_cast<u32 *>(to + at) = word;
            continue;
        }
        // The first word may start before the image, the last may end after it.
        const int first = max(at, 0), end = min(at + 4, area);
#pragma unroll
        for (int byte = 0; byte < 3; byte += 1) {
            if (first + byte < end) {
                to[first + byte] = word >> 8 * byte;
            }
        }
        if (first + 3 < end) {
            to[first + 3] = word >> 24;
        }
    }
}

// The number of values from `first` on, up to `last`, whose cells all fit in the tile.
template <bool RECOLORS>
__device__ u32 do_tile(const Step &step, Symmetry symmetry, ColorMap colors, Tile &tile, u32 first,
                       u32 last) {
    const u32 value = first + threadIdx.x;
    const u32 base = step.offsets[first];
    const u32 start = value < last ? step.offsets[value] - base : TILE_CELLS;
    const u32 end = value < last ? step.offsets[value + 1] - base : TILE_CELLS + 1;
    const u32 shape = value < last ? reinterpret_cast<const u16 *>(step.from.shapes)[value] : 0;
    const u32 h = shape & 0xff, w = shape >> 8;
    const u32 count = __syncthreads_count(end <= TILE_CELLS);
    tile.sketches[threadIdx.x] = sketch(symmetry, h, w, start);
    if (threadIdx.x == count - 1) {
        tile.end = end;
    }
    __syncthreads();
    const u8 *from = step.from.cells + base;
    const u8 *cells = tile.cells + misplaced(from, 16);
    const bool suspects = __syncthreads_or(take_cells(tile, from, tile.end));
    u8 *to = step.to.cells + base;
#pragma unroll 1
    for (u32 at = warp(); at < count; at += BLOCK_WARPS) {
        const Sketch of = tile.sketches[at];
        if (suspects) {
            const bool bad = has_bad_cell(cells + of.start, of.area);
            tile.bad[at] = bad;
            if (bad) {
                blank(step.offsets, first + at, step.to.cells);
                continue;
            }
        }
        write_image<RECOLORS>(cells, of, colors, to + of.start);
    }
        // Before the next cells come, and after the last one is checked.
    __syncthreads();
    if (threadIdx.x < count) {
        const bool bad = suspects && tile.bad[threadIdx.x];
        const u32 code = bad ? BAD_CELL : h == 0 ? MISSING_OUTPUT : OK;
        const u32 turned = w | h << 8;
        const u32 image = code != OK ? 0 : transposes(symmetry) ? turned : shape;
        reinterpret_cast<u16 *>(step.to.shapes)[value] = image;
        step.status[value] = status_of(code, NO_OP);
    }
    return count;
}

template <bool RECOLORS>
__device__ void each_tile(const Step &step, Tile &tile) {
    const Op &op = step.ops[0];
    const Symmetry symmetry = Symmetry(op.args[0]);
    const ColorMap colors = color_map(op);
    const u32 values = BLOCK_WARPS * step.values_per_warp;
    const u32 last = min((blockIdx.x + 1) * values, step.values);
#pragma unroll 1
    for (u32 next = blockIdx.x * values; next < last;) {
        next += do_tile<RECOLORS>(step, symmetry, colors, tile, next, last);
    }
}

__device__ inline void images(const Step &step) {
    __shared__ Tile tile;
    if (color_map(step.ops[0]).is_identity()) {
        each_tile<false>(step, tile);
    } else {
        each_tile<true>(step, tile);
    }
}

KERNEL_OF(gp_images, 9, images(step))
