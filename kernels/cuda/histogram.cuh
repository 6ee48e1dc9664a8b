// How often each colour occurs, in which order CPython would list the colours, and which of
// equally common ones wins. Mirrors kernels/src/reference/histogram.rs and ties.rs, where the
// rules are explained.
//
// One warp an item. Lane c knows colour c; lanes from COLORS on know of nothing and count 0.

#pragma once

#include "grid.cuh"

constexpr u32 SMALL_SET_MAX = 4;
constexpr u32 SMALL_SET_SLOTS = 8;

enum Ties { TIES_CPYTHON, TIES_LOWEST };

// What a lane knows of its colour.
struct Tally {
    u32 count;
    // The first cell, where count is not 0.
    u32 first;
};

__device__ Tally tally(Grid grid) {
    Tally mine = {0, 0};
    for (u32 base = 0; base < grid.area(); base += LANES) {
        const u32 at = base + lane();
        const u32 color = at < grid.area() ? grid.cells[at] : COLORS;
        u32 cells = 0;
        for (u32 candidate = 0; candidate < COLORS; candidate += 1) {
            const u32 found = __ballot_sync(ALL_LANES, color == candidate);
            cells = lane() == candidate ? found : cells;
        }
        if (mine.count == 0 && cells != 0) {
            mine.first = base + __ffs(cells) - 1;
        }
        mine.count += __popc(cells);
    }
    return mine;
}

// The order of the colours that occur: ascending keys.
struct Order {
    // The key of this lane's colour, if it occurs.
    u32 key;
    // All keys, one bit each.
    u32 keys;

    __device__ u32 position() const { return __popc(keys & ((1u << key) - 1)); }
};

__device__ Order order_of(Tally mine, u32 ties) {
    const u32 present = __ballot_sync(ALL_LANES, mine.count != 0);
    const u32 colors = __popc(present);
    Order order = {lane(), present};
    if (ties == TIES_LOWEST || colors > SMALL_SET_MAX) {
        return order;
    }
    u32 arrival = 0;
    for (u32 other = 0; other < COLORS; other += 1) {
        const u32 first = __shfl_sync(ALL_LANES, mine.first, other);
        arrival += (present >> other & 1) && first < mine.first;
    }
    order.keys = 0;
    for (u32 next = 0; next < colors; next += 1) {
        const bool arrives = mine.count != 0 && arrival == next;
        const u32 color = __ffs(__ballot_sync(ALL_LANES, arrives)) - 1;
        u32 slot = color % SMALL_SET_SLOTS;
        while (order.keys >> slot & 1) {
            slot = (5 * slot + 1) % SMALL_SET_SLOTS;
        }
        order.keys |= 1u << slot;
        if (arrives) {
            order.key = slot;
        }
    }
    return order;
}

__device__ u32 warp_max(u32 value) {
    for (u32 distance = LANES / 2; distance > 0; distance /= 2) {
        value = max(value, __shfl_xor_sync(ALL_LANES, value, distance));
    }
    return value;
}

// The commonest or the rarest colour; among equals the first in order. The same in every lane.
__device__ u32 best_color(Tally mine, Order order, bool rarest) {
    const u32 merit = rarest ? GRID_CELLS_MAX + 1 - mine.count : mine.count;
    const u32 score = mine.count == 0 ? 0 : merit * LANES + (LANES - 1 - order.key);
    return __ffs(__ballot_sync(ALL_LANES, score == warp_max(score))) - 1;
}

__device__ void write_best(bool rarest, Batch batch, Stage from, u32 ties, u32 *values) {
    const u32 item = item_of_warp();
    if (item >= batch.items) {
        return;
    }
    const Tally mine = tally(grid_of(batch, from, item));
    const u32 color = best_color(mine, order_of(mine, ties), rarest);
    if (lane() == 0) {
        values[item] = color;
    }
}

extern "C" __global__ void gp_mostcolor(Batch batch, Stage from, u32 ties, u32 *values) {
    write_best(false, batch, from, ties, values);
}

extern "C" __global__ void gp_leastcolor(Batch batch, Stage from, u32 ties, u32 *values) {
    write_best(true, batch, from, ties, values);
}

extern "C" __global__ void gp_numcolors(Batch batch, Stage from, u32 *values) {
    const u32 item = item_of_warp();
    if (item >= batch.items) {
        return;
    }
    const Tally mine = tally(grid_of(batch, from, item));
    const u32 present = __ballot_sync(ALL_LANES, mine.count != 0);
    if (lane() == 0) {
        values[item] = __popc(present);
    }
}

extern "C" __global__ void gp_colorcount(Batch batch, Stage from, u32 color, u32 *values) {
    const u32 item = item_of_warp();
    if (item >= batch.items) {
        return;
    }
    const Grid grid = grid_of(batch, from, item);
    u32 count = 0;
    for (u32 base = 0; base < grid.area(); base += LANES) {
        const u32 at = base + lane();
        count += __popc(__ballot_sync(ALL_LANES, at < grid.area() && grid.cells[at] == color));
    }
    if (lane() == 0) {
        values[item] = count;
    }
}

// As in protocol/src/output.rs: a length, up to ten colours, zeros.
constexpr u32 PALETTE_BYTES = 12;

extern "C" __global__ void gp_palette(Batch batch, Stage from, u32 ties, u8 *palettes) {
    const u32 item = item_of_warp();
    if (item >= batch.items) {
        return;
    }
    const Tally mine = tally(grid_of(batch, from, item));
    const Order order = order_of(mine, ties);
    const u32 colors = __popc(order.keys);
    u8 *palette = palettes + PALETTE_BYTES * item;
    // Each byte is written by one lane: the length, the zeros behind the colours, the colours.
    if (lane() == 0) {
        palette[0] = colors;
    } else if (lane() > colors && lane() < PALETTE_BYTES) {
        palette[lane()] = 0;
    }
    if (mine.count != 0) {
        palette[1 + order.position()] = lane();
    }
}
