// Pictures: what a grid, an object and a patch have in common, and how threads walk over one.
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

// What an op made of a value: nothing but a code, or a picture, whose cells it has written.
struct Made {
    u32 code;
    u32 h, w;
    int row, col;
};

__device__ Made failed(u32 code) { return {code, 0, 0, 0, 0}; }

__device__ Made empty_picture() { return {OK, 0, 0, 0, 0}; }

// A picture with an empty side is the empty picture.
__device__ Made made(u32 h, u32 w, int row, int col) {
    if (h == 0 || w == 0) {
        return empty_picture();
    }
    return {OK, h, w, row, col};
}

__device__ Made made_grid(u32 h, u32 w) { return made(h, w, 0, 0); }

// The same box as `from`, in the same place.
__device__ Made made_like(Picture from) { return {OK, from.h, from.w, from.row, from.col}; }

__device__ bool fits(u32 h, u32 w) {
    return h <= SIDE_MAX && w <= SIDE_MAX && h * w <= PICTURE_CELLS_MAX;
}

// The cells of an h x w box that one thread of a team serves: every `size`th, row-major. Knows row
// and column without a division for each cell.
struct Walk {
    u32 at, row, col;

    template <class Team>
    __device__ Walk(Team team, u32 h, u32 w)
        : at(team.rank()), area(h * w), size(team.SIZE), w(max(w, 1u)) {
        row = at / this->w;
        col = at % this->w;
        rows = size / this->w;
        cols = size % this->w;
    }

    __device__ bool has_cell() const { return at < area; }

    __device__ void next() {
        at += size;
        row += rows;
        col += cols;
        if (col >= w) {
            col -= w;
            row += 1;
        }
    }

private:
    u32 area, size, w, rows, cols;
};

// Writes an h x w box: `cell` gives the byte for a place of it.
template <class Team, class Cell>
__device__ void draw(Team team, u32 h, u32 w, u8 *to, Cell cell) {
#pragma unroll 1
    for (Walk walk(team, h, w); walk.has_cell(); walk.next()) {
        to[walk.at] = cell(walk);
    }
}

// Place (i, j) of an image is cell `start + i * down + j * right` of what it is an image of.
struct Lines {
    int start, down, right;
};

// Writes an image of h x w, in rows of `pitch`. The one loop of all ops that only move cells.
__device__ __noinline__ void draw_lines(const u8 *from, Lines lines, u32 h, u32 w, u8 *to,
                                        u32 pitch) {
#pragma unroll 1
    for (Walk walk(Warp(), h, w); walk.has_cell(); walk.next()) {
        const int row = walk.row, col = walk.col;
        to[walk.row * pitch + walk.col] =
            from[lines.start + row * lines.down + col * lines.right];
    }
}

// Writes what is left of an h x w box at (row, col) when border lines without a cell are dropped.
// `cell` gives a colour or HOLE for a place of the box, and the same each time it is asked.
template <class Team, class Cell>
__device__ Made draw_tight(Team team, u32 h, u32 w, int row, int col, u8 *to, Cell cell) {
    u32 top = h, bottom = 0, left = w, right = 0;
#pragma unroll 1
    for (Walk walk(team, h, w); walk.has_cell(); walk.next()) {
        if (cell(walk) != HOLE) {
            top = min(top, walk.row);
            bottom = max(bottom, walk.row + 1);
            left = min(left, walk.col);
            right = max(right, walk.col + 1);
        }
    }
    top = team.least(top);
    bottom = team.most(bottom);
    left = team.least(left);
    right = team.most(right);
    if (bottom == 0) {
        return empty_picture();
    }
    const u32 tight_w = right - left;
#pragma unroll 1
    for (Walk walk(team, h, w); walk.has_cell(); walk.next()) {
        const u32 i = walk.row - top, j = walk.col - left;
        if (i < bottom - top && j < tight_w) {
            to[i * tight_w + j] = cell(walk);
        }
    }
    return made(bottom - top, tight_w, row + int(top), col + int(left));
}
