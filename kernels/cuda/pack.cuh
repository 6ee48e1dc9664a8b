// Packs results of unknown size: each value gets a place right after the value before it, and its cells are
// gathered there, so that the host copies only used bytes.
//
// One block adds up the areas of a tile of values; then each block knows where its own tile starts. If there is only one
// tile, each block that gathers adds up by itself what lies before its values. There are no atomics: places are the
// same in every run.

#pragma once

#include "cells.cuh"
#include "step.cuh"

// As in kernels/src/module.rs.
constexpr u32 TILE_VALUES = 1024;

__device__ inline u32 area_of(const Step &step, u32 value) {
    if (value >= step.values) {
        return 0;
    }
    if (step.lengths) {
        return step.lengths[value];
    }
    const u8 *shape = step.from.shapes + 2 * value;
    return shape[0] * shape[1];
}

// Leaves the area of every tile in step.sums. One block per tile.
__device__ __noinline__ void add_areas(const Step &step) {
    __shared__ Slots slots;
    u32 sum = 0, all = 0;
#pragma unroll 1
    for (u32 at = threadIdx.x; at < TILE_VALUES; at += BLOCK_THREADS) {
        sum += area_of(step, blockIdx.x * TILE_VALUES + at);
    }
    sum_before_in_block(slots, sum, all);
    if (threadIdx.x == 0 && blockIdx.x * TILE_VALUES < step.values) {
        step.sums[blockIdx.x] = all;
    }
}

// Gives every value its place, counted from the first of the chunk, and leaves the total area after the sums.
// One block per tile.
__device__ __noinline__ void place(const Step &step) {
    __shared__ Slots slots;
    const u32 first = blockIdx.x * TILE_VALUES;
    if (first >= step.values) {
        return;
    }
    u32 sum = 0, start = 0;
#pragma unroll 1
    for (u32 tile = threadIdx.x; tile < blockIdx.x; tile += BLOCK_THREADS) {
        sum += step.sums[tile];
    }
    sum_before_in_block(slots, sum, start);
#pragma unroll 1
    for (u32 base = first; base < first + TILE_VALUES; base += BLOCK_THREADS) {
        const u32 value = base + threadIdx.x;
        u32 all = 0;
        const u32 before = sum_before_in_block(slots, area_of(step, value), all);
        if (value < step.values) {
            step.places[value] = start + before;
        }
        start += all;
    }
    const u32 tiles = (step.values + TILE_VALUES - 1) / TILE_VALUES;
    if (threadIdx.x == 0 && blockIdx.x == tiles - 1) {
        step.sums[tiles] = start;
    }
}

// Gives the values of a block their places, if all values are one tile, and leaves the total area after the sums.
// Returns the place of this warp's value.
__device__ inline u32 place_in_tile(const Step &step) {
    __shared__ Slots slots, places;
    const u32 first = blockIdx.x * BLOCK_WARPS;
    u32 sum = 0, start = 0;
#pragma unroll 1
    for (u32 at = threadIdx.x; at < first; at += BLOCK_THREADS) {
        sum += area_of(step, at);
    }
    sum_before_in_block(slots, sum, start);
    if (threadIdx.x == 0) {
#pragma unroll 1
        for (u32 value = first; value < first + BLOCK_WARPS && value < step.values; value += 1) {
            step.places[value] = places[value - first] = start;
            start += area_of(step, value);
        }
        if (first + BLOCK_WARPS >= step.values) {
            step.sums[1] = start;
        }
    }
    __syncthreads();
    return places[warp()];
}

// Gathers the planes that the result has. One warp per value.
__device__ __noinline__ void pack(const Step &step) {
    const bool is_one_tile = step.values <= TILE_VALUES;
    const u32 in_tile = is_one_tile && step.values > 0 ? place_in_tile(step) : 0;
    const u32 value = value_of_warp();
    if (value >= step.values) {
        return;
    }
    const u32 from = step.places_before ? step.places_before[value] : step.from.extent.start(step.offsets, value);
    const u32 to = is_one_tile ? in_tile : step.places[value];
    const u32 cells = area_of(step, value);
    if (step.to.cells) {
        copy_cells(step.from.cells + from, cells, step.to.cells + to);
    }
    if (step.packed_low) {
        copy_cells(step.labels_low + from, cells, step.packed_low + to);
        if (step.counts[value] > 255) {
            copy_cells(step.labels_high + from, cells, step.packed_high + to);
        }
    }
}

KERNEL(gp_add_areas, add_areas(step))
KERNEL(gp_place, place(step))
KERNEL(gp_pack, pack(step))
