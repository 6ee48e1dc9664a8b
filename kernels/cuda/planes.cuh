// Grids of several sizes in one tensor: each lies in the upper left corner of a plane, all planes have one size, and a
// table has the size of each grid. A model may have made that table, so nobody has checked it.
//
// The one op of these launches has for arguments rows and columns of the planes before and after.

#pragma once

#include "chain.cuh"

// A cell that is no colour, in place of a grid whose size is not within its plane.
constexpr u8 NO_GRID = 255;
// The lowest code that a solver's launch leaves for the host; kernels/src/solve.rs has them all. An item that still
// has one was too large for every arena.
constexpr u32 LEFT_MIN = 253;

// Rows and columns of a grid. False if they are not within its plane.
__device__ inline bool size_within(const Step &step, u32 value, u32 &h, u32 &w) {
    const i64 rows = step.sizes_before[2 * value], columns = step.sizes_before[2 * value + 1];
    h = u32(rows);
    w = u32(columns);
    return rows >= 1 && rows <= step.ops[0].args[0] && columns >= 1 && columns <= step.ops[0].args[1];
}

// Takes the grids out of their planes: their cells follow each other from where the plane would start. One warp per
// value.
__device__ __noinline__ void take_planes(const Step &step) {
    const u32 value = value_of_warp();
    if (value >= step.values) {
        return;
    }
    const u32 start = step.offsets[value], line = u32(step.ops[0].args[1]);
    const u8 *from = step.from.cells + start;
    u8 *to = step.to.cells + start;
    u32 h = 0, w = 0;
    if (size_within(step, value, h, w)) {
        const Divisor by(w);
#pragma unroll 1
        for (u32 at = lane(); at < h * w; at += LANES) {
            const u32 row = by.quotient(at);
            to[at] = from[row * line + (at - row * w)];
        }
    } else {
        h = w = 1;
        if (lane() == 0) {
            to[0] = NO_GRID;
        }
    }
    if (lane() == 0) {
        step.to.shapes[2 * value] = u8(h);
        step.to.shapes[2 * value + 1] = u8(w);
    }
}

// The final status of a value.
__device__ inline u32 status_in_plane(const Step &step, u32 value, u32 h, u32 w) {
    const u32 status = step.status_before[value], code = status & 0xff;
    u32 rows = 0, columns = 0;
    if (step.sizes_before && !size_within(step, value, rows, columns)) {
        return status_of(BAD_SHAPE, NO_OP);
    }
    if (code == OK) {
        const bool fits = h <= u32(step.ops[0].args[2]) && w <= u32(step.ops[0].args[3]);
        return fits ? u32(OK) : status_of(OVERFLOW, NO_OP);
    }
    // Of a solver, the instruction that failed.
    if (step.numbers && code != BAD_CELL) {
        const u32 instruction = u32(step.numbers[value]);
        return status_of(code >= LEFT_MIN ? u32(OVERFLOW) : code, min(instruction, NO_OP - 1));
    }
    return status;
}

// Lays each result into its plane, with zeros around it, and writes its size and status. One warp per value.
__device__ __noinline__ void put_planes(const Step &step) {
    const u32 value = value_of_warp();
    if (value >= step.values) {
        return;
    }
    const u32 rows = u32(step.ops[0].args[2]), columns = u32(step.ops[0].args[3]);
    u32 h = step.from.shapes[2 * value], w = step.from.shapes[2 * value + 1];
    const u32 status = status_in_plane(step, value, h, w);
    if (status != OK) {
        h = w = 0;
    }
    const u32 start = step.places_before ? step.places_before[value] : step.from.extent.start(step.offsets, value);
    const u8 *from = step.from.cells + start;
    u8 *to = step.to.cells + rows * columns * value;
    const Divisor by(columns);
#pragma unroll 1
    for (u32 at = lane(); at < rows * columns; at += LANES) {
        const u32 row = by.quotient(at), column = at - row * columns;
        to[at] = row < h && column < w ? from[row * w + column] : 0;
    }
    if (lane() == 0) {
        step.status[value] = u16(status);
        step.sizes[2 * value] = h;
        step.sizes[2 * value + 1] = w;
    }
}

KERNEL(gp_take_planes, take_planes(step))
KERNEL(gp_put_planes, put_planes(step))
