// The single argument of every kernel, and the layout of values in memory between two launches.
//
// Between two launches every item has `width` values of one kind; value v is element v % width of item
// v / width. All pointers and places come from the host, which has checked the tables; no place depends on a
// cell. A kernel passes its results to the next through memory; within a kernel no warp reads what another
// has written there.

#pragma once

#include "picture.cuh"

// The capacity for the pictures of one step, as in protocol/src/program/extent.rs. While every value comes from
// one grid of the input, width and grids are 1.
struct Extent {
    u32 per_cell, per_value;
    // Values of one item, and grids of one item in the input.
    u32 width, grids;

    // Where the cells of `value` start. `offsets`: those of the input's grids, and their end.
    __device__ u32 start(const u32 *offsets, u32 value) const {
        if (width == 1) {
            return per_cell * offsets[value * grids] + per_value * value;
        }
        const u32 item = value / width, element = value % width;
        const u32 before = offsets[item * grids];
        const u32 cells = offsets[(item + 1) * grids] - before;
        return per_cell * before + per_cell * element * cells / width + per_value * value;
    }
};

// One picture per value.
struct Pictures {
        // (h, w). Null if they are not needed.
    u8 *shapes;
    // (row, col). Null for grids: their origin is (0, 0).
    i16 *origins;
    u8 *cells;
    Extent extent;
};

// As in protocol/src/program/kind.rs; further kinds are distinguished by their op.
enum Kind : u8 { GRID, OBJECTS, OBJECT, PATCH, NUMBER, VECTOR, FLAG, PALETTE };

// Most ops of one program: PROGRAM_OPS_MAX of protocol/src/limits.rs.
constexpr u32 OPS_MAX = 64;

// One op of a chain; mirrored by OpArgument of kernels/src/argument.rs.
struct Op {
        // An Opcode.
    u8 code;
    // Its place in the program.
    u8 place;
        // The kind of its result.
    u8 gives;
    u8 unused;
    i16 args[4];
};

// Mirrored by StepArgument of kernels/src/argument.rs. A field that a kernel does not use is null or 0.
struct Step {
        // Values after this launch; 0 for a launch that only loads the kernel.
    u32 values;
    u32 width_before, width;
    u32 ties;
        // Whether the place of a failed value must be cleared of an earlier job's data.
    u32 blanks;
        // Whether this launch must check the cells.
    u32 validates;
        // The number of `ops`; 1 for an op with its own kernel.
    u32 op_count;
        // How many neighbouring values a warp of a chain, or of images, serves one after the other; at most one per
        // lane.
    u32 values_per_warp;
        // Offsets of the input's grids from the chunk's first cell.
    const u32 *offsets;
        // Code and op of each value before and after.
    const u16 *status_before;
    u16 *status;
    // The grids before.
    Pictures from;
        // The pictures after; for lists of objects their grids, if those are needed.
    Pictures to;
    u16 *counts;
        // High bytes only for values with more than 255 objects.
    u8 *labels_low, *labels_high;
    i32 *numbers;
    u8 *palettes;
    // Only for results of a solver: where each lies in the cells before, and its bytes. Other values have the places of
    // their extent, and as many bytes as their picture has cells.
    const u32 *places_before, *lengths;
    // Only to pack a result.
    u32 *sums, *places;
    u8 *packed_low, *packed_high;
    // Only for grids in planes: rows and columns of each grid, and of each result.
    const i64 *sizes_before;
    i64 *sizes;
    Op ops[OPS_MAX];
};

constexpr u32 STEP_HEAD_BYTES = 240;
static_assert(sizeof(Step) == STEP_HEAD_BYTES + OPS_MAX * sizeof(Op),
              "StepArgument of kernels/src/argument.rs has this size");

// A kernel copies its argument to shared memory, where a warp may pick any op.
#define KERNEL(name, call) KERNEL_OF(name, 1, call)

// A kernel of which at least `blocks` blocks should fit on a multiprocessor.
#define KERNEL_OF(name, blocks, call)                                                            \
    extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, blocks)                          \
        name(const Step argument) {                                                              \
        __shared__ Step step;                                                                    \
        copy_step(argument, step);                                                               \
        call;                                                                                    \
    }

__device__ inline void copy_step(const Step &from, Step &to) {
    const u32 words = (STEP_HEAD_BYTES + from.op_count * sizeof(Op)) / sizeof(u32);
    for (u32 at = threadIdx.x; at < words; at += BLOCK_THREADS) {
        reinterpret_cast<u32 *>(&to)[at] = reinterpret_cast<const u32 *>(&from)[at];
    }
    __syncthreads();
}

// The value of this warp in a kernel whose blocks serve four.
__device__ inline u32 value_of_warp() { return blockIdx.x * BLOCK_WARPS + warp(); }

__device__ inline u32 status_of(u32 code, u32 place) { return code == OK ? OK : code | place << 8; }

__device__ inline Picture picture_of(const u32 *offsets, const Pictures &pictures, u32 value) {
    Picture picture;
    picture.h = pictures.shapes[2 * value];
    picture.w = pictures.shapes[2 * value + 1];
    picture.row = pictures.origins ? pictures.origins[2 * value] : 0;
    picture.col = pictures.origins ? pictures.origins[2 * value + 1] : 0;
    picture.cells = pictures.cells + pictures.extent.start(offsets, value);
    return picture;
}

// Zeros in the place of a value of a result that is laid out like the input.
__device__ inline void blank(const u32 *offsets, u32 value, u8 *plane) {
#pragma unroll 1
    for (u32 at = offsets[value] + lane(); at < offsets[value + 1]; at += LANES) {
        plane[at] = 0;
    }
}

__device__ inline void write_shape(const Pictures &to, u32 value, const Made &picture) {
    if (lane() == 0 && to.shapes) {
        to.shapes[2 * value] = picture.h;
        to.shapes[2 * value + 1] = picture.w;
    }
    if (lane() == 0 && to.origins) {
        to.origins[2 * value] = picture.row;
        to.origins[2 * value + 1] = picture.col;
    }
}
