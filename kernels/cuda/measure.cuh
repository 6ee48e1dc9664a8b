// Measures of a picture: where its box lies, its size, its shape.
// Mirrors kernels/src/reference/measure.rs.

#pragma once

#include "histogram.cuh"
#include "opcodes.cuh"

enum Measure {
    HEIGHT_OF,
    WIDTH_OF,
    SHAPE_OF,
    SQUARE,
    PORTRAIT,
    HLINE,
    VLINE,
    UPPERMOST_OF,
    LOWERMOST_OF,
    LEFTMOST_OF,
    RIGHTMOST_OF,
    ULCORNER,
    URCORNER,
    LLCORNER,
    LRCORNER,
    CENTER,
    CENTEROFMASS,
    COLOR_OF,
};

// A number, and whether it exists.
struct Measured {
    u32 code;
    i32 number;
};

__device__ inline Measured measured(i32 number) { return {OK, number}; }

// A row and a column in one word, the row in the lower half.
__device__ inline Measured vector(int row, int col) {
    return measured((row & 0xffff) | col << 16);
}

__device__ inline int floor_div(int number, int by) {
    return number / by - (number % by < 0);
}

__device__ inline Measured center_of_mass(Picture from) {
    i32 rows = 0, cols = 0, cells = 0;
#pragma unroll 1
    for (Walk walk(from.h, from.w); walk.has_cell(); walk.next()) {
        if (from.cells[walk.at] != HOLE) {
            rows += from.row + int(walk.row);
            cols += from.col + int(walk.col);
            cells += 1;
        }
    }
    cells = sum_of_warp(cells);
    return vector(floor_div(sum_of_warp(rows), cells), floor_div(sum_of_warp(cols), cells));
}

// The first cell lies in the first row: boxes are tight.
__device__ inline u32 first_color(Picture from) {
    u32 first = from.w - 1;
#pragma unroll 1
    for (u32 at = lane(); at < from.w; at += LANES) {
        first = from.cells[at] == HOLE ? first : min(first, at);
    }
    return from.cells[least_of_warp(first)];
}

// Measures that every picture has, even the empty one. `is_grid`: it has no holes.
__device__ inline Measured of_any(Measure measure, Picture from, bool is_grid) {
    const u32 h = from.h, w = from.w;
    switch (measure) {
    case HEIGHT_OF: return measured(h);
    case WIDTH_OF: return measured(w);
    case SHAPE_OF: return vector(h, w);
    case PORTRAIT: return measured(h > w);
    case SQUARE: return measured(h == w && (is_grid || count_cells(from) == h * w));
    case HLINE: return measured(h == 1 && count_cells(from) == w);
    default: return measured(w == 1 && count_cells(from) == h);
    }
}

// Measures that only a picture with cells has.
__device__ inline Measured of_some(Measure measure, Picture from) {
    if (from.is_empty()) {
        return {EMPTY_ARG, 0};
    }
    const int top = from.row, left = from.col, h = from.h, w = from.w;
    const int bottom = top + h - 1, right = left + w - 1;
    switch (measure) {
    case UPPERMOST_OF: return measured(top);
    case LOWERMOST_OF: return measured(bottom);
    case LEFTMOST_OF: return measured(left);
    case RIGHTMOST_OF: return measured(right);
    case ULCORNER: return vector(top, left);
    case URCORNER: return vector(top, right);
    case LLCORNER: return vector(bottom, left);
    case LRCORNER: return vector(bottom, right);
    case CENTER: return vector(top + h / 2, left + w / 2);
    case CENTEROFMASS: return center_of_mass(from);
    default: return measured(first_color(from));
    }
}

__device__ inline Measured measure(Measure measure, Picture from, bool is_grid) {
    return measure < UPPERMOST_OF ? of_any(measure, from, is_grid) : of_some(measure, from);
}

// The measure of an op's code.
__device__ inline Measure measure_of(u32 code) {
    switch (code) {
    case OP_HEIGHT: return HEIGHT_OF;
    case OP_WIDTH: return WIDTH_OF;
    case OP_SHAPE: return SHAPE_OF;
    case OP_SQUARE: return SQUARE;
    case OP_PORTRAIT: return PORTRAIT;
    case OP_HLINE: return HLINE;
    case OP_VLINE: return VLINE;
    case OP_UPPERMOST: return UPPERMOST_OF;
    case OP_LOWERMOST: return LOWERMOST_OF;
    case OP_LEFTMOST: return LEFTMOST_OF;
    case OP_RIGHTMOST: return RIGHTMOST_OF;
    case OP_ULCORNER: return ULCORNER;
    case OP_URCORNER: return URCORNER;
    case OP_LLCORNER: return LLCORNER;
    case OP_LRCORNER: return LRCORNER;
    case OP_CENTER: return CENTER;
    case OP_CENTEROFMASS: return CENTEROFMASS;
    default: return COLOR_OF;
    }
}
