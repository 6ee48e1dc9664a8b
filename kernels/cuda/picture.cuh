// Pictures: what a grid, an object and a patch have in common, and how a warp walks over one.
// Mirrors kernels/src/reference/picture.rs.
//
// A picture is a box of h * w bytes, row-major, whose upper left corner lies at (row, col). A byte
// is a colour, or HOLE where the box has no cell. Cells are data only: none is used as an index.

#pragma once

#include "team.cuh"

// As in protocol/src/limits.rs.
constexpr u32 COLORS = 10;
constexpr u32 SIDE_MAX = 255;
constexpr u32 PICTURE_CELLS_MAX = 4096;

constexpr u8 HOLE = 255;

struct Picture {
    u32 h, w;
    int row, col;
    const u8 *cells;

    __device__ u32 area() const { return h * w; }
    __device__ bool is_empty() const { return h == 0; }

    // The cell at a place that counts from (0, 0), not from the box's corner; HOLE outside.
    __device__ u32 at_place(int i, int j) const {
        const u32 down = i - row, right = j - col;
        return down < h && right < w ? cells[down * w + right] : HOLE;
    }
};

// As in protocol/src/output.rs.
enum Code : u32 {
    OK,
    BAD_CELL,
    MISSING_OUTPUT,
    OVERFLOW,
    EMPTY_ARG,
    BAD_CROP,
    BAD_INDEX,
    BAD_SHAPE,
};

// A picture is larger than its buffer: never an item's own error.
constexpr u32 NO_ROOM = 255;

// An op's result for a value: only a code, or a picture whose cells it has written.
struct Made {
    u32 code;
    u32 h, w;
    int row, col;
};

__device__ inline Made failed(u32 code) { return {code, 0, 0, 0, 0}; }

__device__ inline Made empty_picture() { return {OK, 0, 0, 0, 0}; }

// A picture with an empty side is the empty picture.
__device__ inline Made made(u32 h, u32 w, int row, int col) {
    if (h == 0 || w == 0) {
        return empty_picture();
    }
    return {OK, h, w, row, col};
}

__device__ inline Made made_grid(u32 h, u32 w) { return made(h, w, 0, 0); }

// The same box as `from`, in the same place.
__device__ inline Made made_like(Picture from) { return {OK, from.h, from.w, from.row, from.col}; }

// Whether a grid of that size is allowed, and whether it can be drawn in `capacity` cells.
__device__ inline u32 check_size(u32 h, u32 w, u32 capacity) {
    const bool fits = h <= SIDE_MAX && w <= SIDE_MAX && h * w <= PICTURE_CELLS_MAX;
    return !fits ? OVERFLOW : h * w > capacity ? NO_ROOM : OK;
}

// Divides numbers below 4,096 by a number from 1 to 255, exactly. The factor exceeds 2^20 / by by at most 1, so
// the product's error is below 4096 * 255 < 2^20. The approximate quotient has an error of at most a quarter of
// the least distance to the next whole number, unless the quotient is exact; then one less gives the same.
struct Divisor {
    u32 factor;

    __device__ explicit Divisor(u32 by) : factor(u32(__fdividef(1048576.0f, float(by))) + 1) {}

    __device__ u32 quotient(u32 number) const { return number * factor >> 20; }
};

// The cells of an h x w box that one lane serves: every 32nd, row-major. Tracks row and column without a
// division for each cell.
struct Walk {
    u32 at, row, col;

    __device__ Walk(u32 h, u32 w) : at(lane()), area(h * w), w(max(w, 1u)) {
        const Divisor by(this->w);
        row = by.quotient(at);
        col = at - row * this->w;
        rows = by.quotient(LANES);
        cols = LANES - rows * this->w;
    }

    __device__ bool has_cell() const { return at < area; }

    __device__ void next() {
        at += LANES;
        row += rows;
        col += cols;
        if (col >= w) {
            col -= w;
            row += 1;
        }
    }

private:
    u32 area, w, rows, cols;
};

// Writes an h x w box: `cell` returns the byte for a place of it.
template <class Cell>
__device__ void draw(u32 h, u32 w, u8 *to, Cell cell) {
#pragma unroll 1
    for (Walk walk(h, w); walk.has_cell(); walk.next()) {
        to[walk.at] = cell(walk);
    }
}

// Place (i, j) of an image is cell `start + i * down + j * right` of its source.
struct Lines {
    int start, down, right;
};

// Writes an image of h x w, in rows of `pitch`.
__device__ __noinline__ void draw_lines(const u8 *from, Lines lines, u32 h, u32 w, u8 *to,
                                        u32 pitch) {
#pragma unroll 1
    for (Walk walk(h, w); walk.has_cell(); walk.next()) {
        const int row = walk.row, col = walk.col;
        to[walk.row * pitch + walk.col] =
            from[lines.start + row * lines.down + col * lines.right];
    }
}

// Writes an h x w box at (row, col) without border lines that have no cell. `cell` returns a colour or HOLE for
// a place of the box, always the same.
template <class Cell>
__device__ Made draw_tight(u32 h, u32 w, int row, int col, u8 *to, Cell cell) {
    u32 top = h, bottom = 0, left = w, right = 0;
#pragma unroll 1
    for (Walk walk(h, w); walk.has_cell(); walk.next()) {
        if (cell(walk) != HOLE) {
            top = min(top, walk.row);
            bottom = max(bottom, walk.row + 1);
            left = min(left, walk.col);
            right = max(right, walk.col + 1);
        }
    }
    top = least_of_warp(top);
    bottom = most_of_warp(bottom);
    left = least_of_warp(left);
    right = most_of_warp(right);
    if (bottom == 0) {
        return empty_picture();
    }
    const u32 tight_w = right - left;
#pragma unroll 1
    for (Walk walk(h, w); walk.has_cell(); walk.next()) {
        const u32 i = walk.row - top, j = walk.col - left;
        if (i < bottom - top && j < tight_w) {
            to[i * tight_w + j] = cell(walk);
        }
    }
    return made(bottom - top, tight_w, row + int(top), col + int(left));
}
