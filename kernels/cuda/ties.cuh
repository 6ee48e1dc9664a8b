// The order in which CPython lists the colours of a picture, and which of equally common ones wins. Mirrors
// kernels/src/reference/ties.rs, which explains the rules.
//
// One warp per value. Lane c handles colour c, as in histogram.cuh.

#pragma once

#include "histogram.cuh"

enum Ties : u32 { TIES_CPYTHON, TIES_LOWEST };

constexpr u32 SMALL_SET_MAX = 4;
constexpr u32 SMALL_SET_SLOTS = 8;

// The order of the colours that occur: ascending keys.
struct Order {
    // The key of this lane's colour, if it occurs.
    u32 key;
    // All keys, one bit each.
    u32 keys;

    __device__ u32 position() const { return __popc(keys & ((1u << key) - 1)); }
};

// How many of the colours that occur have their first cell before this lane's colour.
__device__ inline u32 arrival_of(Tally mine) {
    const u32 present = __ballot_sync(ALL_LANES, mine.count != 0);
    u32 arrival = 0;
#pragma unroll 1
    for (u32 other = 0; other < COLORS; other += 1) {
        const u32 first = __shfl_sync(ALL_LANES, mine.first, other);
        arrival += (present >> other & 1) && first < mine.first;
    }
    return arrival;
}

__device__ __noinline__ Order order_of(Tally mine, u32 ties) {
    const u32 present = __ballot_sync(ALL_LANES, mine.count != 0);
    const u32 colors = __popc(present);
    Order order = {lane(), present};
    if (ties == TIES_LOWEST || colors > SMALL_SET_MAX) {
        return order;
    }
    const u32 arrival = arrival_of(mine);
    order.keys = 0;
#pragma unroll 1
    for (u32 next = 0; next < colors; next += 1) {
        const bool arrives = mine.count != 0 && arrival == next;
        const u32 color = __ffs(__ballot_sync(ALL_LANES, arrives)) - 1;
        u32 slot = color % SMALL_SET_SLOTS;
#pragma unroll 1
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

// The commonest or the rarest colour; among equals the first in order. Every lane gets the same. The picture
// must have a cell.
__device__ inline u32 best_color(Tally mine, Order order, bool rarest) {
    const u32 merit = rarest ? PICTURE_CELLS_MAX + 1 - mine.count : mine.count;
    const u32 score = mine.count == 0 ? 0 : merit * LANES + (LANES - 1 - order.key);
    return __ffs(__ballot_sync(ALL_LANES, score == most_of_warp(score))) - 1;
}

// The order matters only if two colours are equally common.
__device__ __noinline__ u32 most_color(const u8 *cells, u32 area, u32 ties) {
    const Tally mine = tally(cells, area);
    const u32 winners = __ballot_sync(ALL_LANES, mine.count == most_of_warp(mine.count));
    if ((winners & (winners - 1)) == 0) {
        return __ffs(winners) - 1;
    }
    return best_color(mine, order_of(mine, ties), false);
}

// As for cells, for a picture, which must have a cell.
__device__ inline u32 best_color_of(Picture from, bool rarest, u32 ties) {
    const Tally mine = tally(from.cells, from.area());
    return best_color(mine, order_of(mine, ties), rarest);
}

// As in protocol/src/output.rs: a length, up to ten colours, zeros.
constexpr u32 PALETTE_BYTES = 12;

// One lane writes each byte: the length, the zeros after the colours, the colours.
__device__ inline void write_palette(Tally mine, Order order, u8 *palette) {
    const u32 colors = __popc(order.keys);
    if (lane() == 0) {
        palette[0] = colors;
    } else if (lane() > colors && lane() < PALETTE_BYTES) {
        palette[lane()] = 0;
    }
    if (mine.count != 0) {
        palette[1 + order.position()] = lane();
    }
}
