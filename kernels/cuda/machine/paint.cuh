// Primitives that change the colours of a grid's cells. Mirrors kernels/src/reference/machine/paint.rs.

#pragma once

#include "machine/grids.cuh"

// A copy of a grid.
__device__ __noinline__ u32 copied(Machine &m, Word grid) {
    const u32 h = m.height(grid), made = m.open_grid(h, m.width(grid));
    if (m.error == FINE) {
        copy_words(m.words(made), m.words(grid), (m.count(grid) + 3) / 4);
    }
    return made;
}

// Only cells that have this colour are painted.
constexpr i32 ANY_COLOR = -1000;

__device__ inline bool is_color(i32 color) { return color >= COLOR_MIN && color <= COLOR_MAX; }

// The colour at the places, or only where the grid has the colour `under`.
__device__ __noinline__ Word filled(Machine &m, Word grid, i32 color, Word places, i32 under) {
    const u32 h = m.height(grid), w = m.width(grid);
    if (h == 0) {
        return m.fail(EMPTY_ARG);
    }
    check_places(m, places);
    const u32 made = m.error ? 0 : copied(m, grid);
    if (m.error) {
        return 0;
    }
    const Patch patch = patch_of(m, places);
    const signed char *const from = m.cells(grid);
    signed char *const cells = m.cells(made);
    bool fails = false;
#pragma unroll 1
    for (u32 at = lane(); at < patch.count; at += LANES) {
        const u32 place = patch.at(at), row = u32(row_of(place)), col = u32(col_of(place));
        if (row < h && col < w && (under == ANY_COLOR || from[row * w + col] == under)) {
            fails |= !is_color(color);
            cells[row * w + col] = (signed char)color;
        }
    }
    return any_lane(fails) ? m.fail(OVERFLOW) : Word(made);
}

// The cells in order, or only where the grid has the colour `under` at that moment.
__device__ __noinline__ Word painted(Machine &m, Word grid, Word object, i32 under) {
    const u32 h = m.height(grid), w = m.width(grid), count = m.count(object);
    if (h == 0) {
        return m.fail(EMPTY_ARG);
    }
    const u32 made = copied(m, grid);
    if (m.error) {
        return 0;
    }
    const Word *const of = m.doubles(object);
    signed char *const cells = m.cells(made);
    // Whether each place comes once, and after those before it.
    bool falls = false;
#pragma unroll 1
    for (u32 at = lane(); at + 1 < count; at += LANES) {
        falls |= vector_of_cell(of[at]) >= vector_of_cell(of[at + 1]);
    }
    // If not, one lane paints them all.
    const u32 lanes = any_lane(falls) ? 1 : LANES;
    bool fails = false;
    if (lane() < lanes) {
#pragma unroll 1
        for (u32 at = lane(); at < count; at += lanes) {
            const u32 place = vector_of_cell(of[at]), row = u32(row_of(place)), col = u32(col_of(place));
            if (row < h && col < w && (under == ANY_COLOR || cells[row * w + col] == under)) {
                const i32 color = color_of(of[at]);
                fails |= !is_color(color);
                cells[row * w + col] = (signed char)color;
            }
        }
    }
    __syncwarp();
    return any_lane(fails) ? m.fail(OVERFLOW) : Word(made);
}

// The grid with one colour for another, or both exchanged.
__device__ __noinline__ Word replaced(Machine &m, Word grid, Word one, Word two, bool exchanges) {
    const i32 from = needed_number(m, one), to = needed_number(m, two);
    if (m.error) {
        return 0;
    }
    const u32 area = m.count(grid), made = m.open_grid(m.height(grid), m.width(grid));
    if (m.error) {
        return 0;
    }
    const signed char *const cells = m.cells(grid);
    bool fails = false;
#pragma unroll 1
    for (u32 at = lane(); at < area; at += LANES) {
        const i32 cell = cells[at];
        const i32 color = exchanges && cell == to ? from : cell == from ? to : cell;
        fails |= !is_color(color);
        m.cells(made)[at] = (signed char)color;
    }
    return any_lane(fails) ? m.fail(OVERFLOW) : Word(made);
}

__device__ __noinline__ Word cover_and_move(Machine &m, Word grid, Word object, u32 by) {
    m.needed_vector(by);
    if (m.error || m.height(grid) == 0) {
        return m.fail(EMPTY_ARG);
    }
    const i32 background = most_color(m, grid);
    const Word covered = m.error ? 0 : filled(m, grid, background, object, ANY_COLOR);
    const Word moved = m.error ? 0 : shifted(m, object, row_of(by), col_of(by));
    return m.error ? 0 : painted(m, covered, moved, ANY_COLOR);
}

__device__ __noinline__ Word paint_op(Machine &m, u32 op, Word a, Word b, Word c) {
    switch (op) {
    case OP_REPLACE:
    case OP_SWITCH:
        return replaced(m, a, b, c, op == OP_SWITCH);
    case OP_FILL: {
        const i32 color = needed_number(m, b);
        return m.error ? 0 : filled(m, a, color, c, ANY_COLOR);
    }
    case OP_PAINT:
        return painted(m, a, b, ANY_COLOR);
    case OP_UNDERFILL: {
        const i32 color = needed_number(m, b);
        const i32 under = m.error ? 0 : most_color(m, a);
        return m.error ? 0 : filled(m, a, color, c, under);
    }
    case OP_UNDERPAINT: {
        const i32 under = most_color(m, a);
        return m.error ? 0 : painted(m, a, b, under);
    }
    case OP_COVER: {
        const i32 background = most_color(m, a);
        return m.error ? 0 : filled(m, a, background, b, ANY_COLOR);
    }
    default:
        return cover_and_move(m, a, b, u32(c));
    }
}
