// One step of a program over a chunk of a batch: the one argument of every kernel, and what all
// kernels do alike. They look at the status first, pass on what has failed, and have the op work
// on the rest.
//
// Between two steps every item has `width` values of one kind; value v is element v % width of
// item v / width. All pointers and places come from the host, whose tables were checked; no place
// follows from a cell. One kernel hands its results to the next through memory; within a kernel no
// thread reads what another has written there.

#pragma once

#include "picture.cuh"

// Room for the pictures of one step, as in protocol/src/program/extent.rs. While every value comes
// of one grid of the input, width and grids are 1.
struct Extent {
    u32 per_cell, per_value;
    // Values of one item, and grids of one item in the input.
    u32 width, grids;

    // Where the cells of `value` start. `offsets`: those of the input's grids, and their end.
    __device__ u32 start(const u32 *offsets, u32 value) const {
        const u32 item = value / width, element = value % width;
        const u32 before = offsets[item * grids];
        const u32 cells = offsets[(item + 1) * grids] - before;
        return per_cell * before + per_cell * element * cells / width + per_value * value;
    }
};

// One picture a value.
struct Pictures {
    // (h, w). Null where nobody asks for it.
    u8 *shapes;
    // (row, col). Null for grids: their origin is (0, 0).
    i16 *origins;
    u8 *cells;
    Extent extent;
};

// As in protocol/src/program/kind.rs.
enum Kind : u32 { GRID, OBJECTS, OBJECT, PATCH };

enum Ties : u32 { TIES_CPYTHON, TIES_LOWEST };

// Mirrored by StepArgument of worker/src/cuda/launch.rs. What a kernel has no use for is null or 0.
struct Step {
    // Values after this step; 0 in the launch that only loads a kernel.
    u32 values;
    u32 width_before, width;
    // The kind before this step.
    u32 takes;
    // The place of the op in the program.
    u32 op;
    u32 ties;
    i32 args[4];
    // Whether the place of a failed value must not show what an earlier job left there.
    u32 blanks;
    // Where the chunk's first cell lies among those of the whole result.
    u32 base;
    // Of the input's grids, from the chunk's first cell.
    const u32 *offsets;
    // Code and op of each value before and after this step.
    const u16 *status_before;
    u16 *status;
    // What the step works on; for objects their ground, at whose places the labels lie.
    Pictures from;
    // The last grids before `from`, where that is of another kind.
    Pictures ground;
    // Neither `from` nor `ground`.
    Pictures to;
    u16 *counts;
    u8 *labels_low, *labels_high;
    i32 *numbers;
    u8 *palettes;
    // Only to pack a result.
    u32 *sums, *places;
    u8 *packed_low, *packed_high;
};

static_assert(sizeof(Step) == 264, "StepArgument of worker/src/cuda/launch.rs has this size");

// A kernel is thin: it hands its argument, in shared memory, to `call`, which many kernels share. So
// there is little code for a driver to compile when a worker starts.
#define KERNEL(name, call)                                                                       \
    extern "C" __global__ void __launch_bounds__(BLOCK_THREADS) name(const Step argument) {      \
        __shared__ Step step;                                                                    \
        copy_words(argument, step);                                                              \
        call;                                                                                    \
    }

__device__ inline void copy_words(const Step &from, Step &to) {
    typedef unsigned long long Word;
    static_assert(sizeof(Step) / sizeof(Word) <= BLOCK_THREADS, "one word a thread");
    if (threadIdx.x < sizeof(Step) / sizeof(Word)) {
        reinterpret_cast<Word *>(&to)[threadIdx.x] =
            reinterpret_cast<const Word *>(&from)[threadIdx.x];
    }
    __syncthreads();
}

__device__ inline u32 value_of(Warp) {
    return (blockIdx.x * BLOCK_THREADS + threadIdx.x) / LANES;
}

__device__ inline u32 value_of(Block) { return blockIdx.x; }

__device__ inline u32 status_of(u32 code, u32 op) { return code == OK ? OK : code | op << 8; }

__device__ inline Picture picture_of(const u32 *offsets, Pictures pictures, u32 value) {
    Picture picture;
    picture.h = pictures.shapes[2 * value];
    picture.w = pictures.shapes[2 * value + 1];
    picture.row = pictures.origins ? pictures.origins[2 * value] : 0;
    picture.col = pictures.origins ? pictures.origins[2 * value + 1] : 0;
    picture.cells = pictures.cells + pictures.extent.start(offsets, value);
    return picture;
}

// The values before this step that one value after it is made of.
struct Sources {
    u32 first, count;
};

// The status of the first of `sources` that has failed, or EMPTY_ARG if one is an empty grid. An
// empty object or patch is an ordinary value.
__device__ __noinline__ u32 judge(const u16 *status, const u8 *grid_shapes, Sources sources,
                                  u32 op) {
    for (u32 at = sources.first; at < sources.first + sources.count; at += 1) {
        if (status[at] != OK) {
            return status[at];
        }
    }
    for (u32 at = sources.first; at < sources.first + sources.count; at += 1) {
        if (grid_shapes && grid_shapes[2 * at] == 0) {
            return status_of(EMPTY_ARG, op);
        }
    }
    return OK;
}

__device__ inline u32 judge(const Step &step, Sources sources) {
    const u8 *grid_shapes = step.takes == GRID ? step.from.shapes : nullptr;
    return judge(step.status_before, grid_shapes, sources, step.op);
}

// Zeros in the place of a value of a result that lies as the input does.
template <class Team>
__device__ void blank(Team team, const u32 *offsets, u32 value, u8 *plane) {
    for (u32 at = offsets[value] + team.rank(); at < offsets[value + 1]; at += team.SIZE) {
        plane[at] = 0;
    }
}

// An op that makes a picture: `op(to)` writes its cells from `to` on.
template <class Team, class Op>
__device__ void give_picture(Team team, const Step &step, u32 value, u32 status, Op op) {
    Made picture = empty_picture();
    if (status == OK) {
        picture = op(step.to.cells + step.to.extent.start(step.offsets, value));
        status = status_of(picture.code, step.op);
    }
    if (status != OK && step.blanks) {
        blank(team, step.offsets, value, step.to.cells);
    }
    if (team.rank() == 0) {
        step.status[value] = status;
        step.to.shapes[2 * value] = picture.h;
        step.to.shapes[2 * value + 1] = picture.w;
        if (step.to.origins) {
            step.to.origins[2 * value] = picture.row;
            step.to.origins[2 * value + 1] = picture.col;
        }
    }
}

// The same where the picture is made of one other, of which it may be an element.
template <class Team, class Op>
__device__ void picture_from(Team team, const Step &step, u32 source, Op op) {
    const u32 value = value_of(team);
    if (value >= step.values) {
        return;
    }
    const u32 status = judge(step, {source, 1});
    give_picture(team, step, value, status, [&](u8 *to) {
        return op(picture_of(step.offsets, step.from, source), to);
    });
}

// One warp a value, each made of the same value before: most ops.
template <class Op>
__device__ void each_picture(const Step &step, Op op) {
    picture_from(Warp(), step, value_of(Warp()), op);
}

// The labels of one value: for each cell of its ground the object's number from 1, or 0.
struct Labels {
    u8 *low, *high;

    __device__ u32 at(u32 cell) const { return low[cell] | high[cell] << 8; }

    __device__ void set(u32 cell, u32 label) const {
        low[cell] = label;
        high[cell] = label >> 8;
    }
};

__device__ inline Labels labels_of(const Step &step, u32 value) {
    const u32 start = step.from.extent.start(step.offsets, value);
    return {step.labels_low + start, step.labels_high + start};
}

// An op that makes objects: `op(grid, labels)` writes the labels and gives the number of objects.
template <class Team, class Op>
__device__ void each_objects(Team team, const Step &step, Op op) {
    const u32 value = value_of(team);
    if (value >= step.values) {
        return;
    }
    const u32 status = judge(step, {value, 1});
    u32 objects = 0;
    Picture grid = {};
    if (status == OK) {
        grid = picture_of(step.offsets, step.from, value);
        objects = op(grid, labels_of(step, value));
    } else if (step.blanks) {
        blank(team, step.offsets, value, step.labels_low);
        blank(team, step.offsets, value, step.labels_high);
    }
    if (team.rank() == 0) {
        step.status[value] = status;
        step.counts[value] = objects;
        if (step.to.shapes) {
            step.to.shapes[2 * value] = grid.h;
            step.to.shapes[2 * value + 1] = grid.w;
        }
    }
}

// A number, and whether there is one.
struct Measured {
    u32 code;
    i32 number;
};

__device__ inline Measured measured(i32 number) { return {OK, number}; }

// An op that makes a number, a flag or a vector. One warp a value.
template <class Op>
__device__ void each_number(const Step &step, Op op) {
    const u32 value = value_of(Warp());
    if (value >= step.values) {
        return;
    }
    u32 status = judge(step, {value, 1});
    i32 number = 0;
    if (status == OK) {
        const Measured result = op(picture_of(step.offsets, step.from, value));
        status = status_of(result.code, step.op);
        number = result.number;
    }
    if (lane() == 0) {
        step.status[value] = status;
        step.numbers[value] = number;
    }
}
