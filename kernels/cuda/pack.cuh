// Results whose sizes nobody knew before: each is given a place behind the one before it, and its
// cells are gathered there, so that the host copies no more than there is.
//
// The areas of a tile of values are added up by one block; then each block knows where its own tile
// starts. No atomics: places are the same in every run.

#pragma once

#include "step.cuh"

// As in kernels/src/module.rs.
constexpr u32 TILE_VALUES = 4096;

__device__ inline u32 area_of(const Step &step, u32 value) {
    const u8 *shape = step.from.shapes + 2 * value;
    return value < step.values ? shape[0] * shape[1] : 0;
}

// Leaves the area of every tile in step.sums. One block a tile.
__device__ __noinline__ void add_areas(const Step &step) {
    __shared__ Slots slots;
    const Block block(slots);
    u32 sum = 0, all = 0;
#pragma unroll 1
    for (u32 at = block.rank(); at < TILE_VALUES; at += block.SIZE) {
        sum += area_of(step, blockIdx.x * TILE_VALUES + at);
    }
    block.sum_before(sum, all);
    if (block.rank() == 0 && blockIdx.x * TILE_VALUES < step.values) {
        step.sums[blockIdx.x] = all;
    }
}

// Gives every value its place, counted as the whole result counts, and leaves the area of all
// behind the sums. One block a tile.
__device__ __noinline__ void place(const Step &step) {
    __shared__ Slots slots;
    const Block block(slots);
    const u32 first = blockIdx.x * TILE_VALUES;
    if (first >= step.values) {
        return;
    }
    u32 sum = 0, start = 0;
#pragma unroll 1
    for (u32 tile = block.rank(); tile < blockIdx.x; tile += block.SIZE) {
        sum += step.sums[tile];
    }
    block.sum_before(sum, start);
#pragma unroll 1
    for (u32 base = first; base < first + TILE_VALUES; base += block.SIZE) {
        const u32 value = base + block.rank();
        u32 all = 0;
        const u32 before = block.sum_before(area_of(step, value), all);
        if (value < step.values) {
            step.places[value] = step.base + start + before;
        }
        start += all;
    }
    const u32 tiles = (step.values + TILE_VALUES - 1) / TILE_VALUES;
    if (block.rank() == 0 && blockIdx.x == tiles - 1) {
        step.sums[tiles] = start;
    }
}

__device__ inline void copy_cells(const u8 *from, u32 cells, u8 *to) {
#pragma unroll 1
    for (u32 at = lane(); at < cells; at += LANES) {
        to[at] = from[at];
    }
}

// Gathers the planes that the result has. One warp a value.
__device__ __noinline__ void pack(const Step &step) {
    const u32 value = value_of(Warp());
    if (value >= step.values) {
        return;
    }
    const u32 from = step.from.extent.start(step.offsets, value);
    const u32 to = step.places[value] - step.base;
    const u32 cells = area_of(step, value);
    if (step.to.cells) {
        copy_cells(step.from.cells + from, cells, step.to.cells + to);
    }
    if (step.packed_low) {
        copy_cells(step.labels_low + from, cells, step.packed_low + to);
        copy_cells(step.labels_high + from, cells, step.packed_high + to);
    }
}

KERNEL(gp_add_areas, add_areas(step))
KERNEL(gp_place, place(step))
KERNEL(gp_pack, pack(step))
