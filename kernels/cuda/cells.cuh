// Moves cells four at a time, at any alignment: the device's memory serves words, and a byte at a time would
// take four times as long.

#pragma once

#include "picture.cuh"

__device__ inline u32 misplaced(const void *address, u32 unit) {
    return u32(u64(address)) & (unit - 1);
}

// A range of bytes, cut at multiples of four of its address. `word(at, place)` stores the four bytes from `at`
// on, all within the range; `byte(at, place)` stores one byte at an end of it.
template <class Word, class Byte>
__device__ void each_word(u8 *to, u32 bytes, Word word, Byte byte) {
    const int before = misplaced(to, 4);
#pragma unroll 1
    for (int at = 4 * int(lane()) - before; at < int(bytes); at += 4 * LANES) {
        if (at >= 0 && at + 4 <= int(bytes)) {
            word(u32(at), reinterpret_cast<u32 *>(to + at));
        } else {
            for (int end = max(at, 0); end < min(at + 4, int(bytes)); end += 1) {
                byte(u32(end), to + end);
            }
        }
    }
}

// Copies `bytes` bytes.
__device__ __noinline__ void copy_cells(const u8 *from, u32 bytes, u8 *to) {
    if (misplaced(from, 4) == misplaced(to, 4)) {
        each_word(
            to, bytes,
            [=](u32 at, u32 *place) { *place = *reinterpret_cast<const u32 *>(from + at); },
            [=](u32 at, u8 *place) { *place = from[at]; });
        return;
    }
#pragma unroll 1
    for (u32 at = lane(); at < bytes; at += LANES) {
        to[at] = from[at];
    }
}

// Copies sixteen bytes at a time, including the bytes around the range that share its first and last sixteen.
// Both places must have capacity for them, and the same alignment to sixteen.
__device__ inline void copy_around(const u8 *from, u32 bytes, u8 *to) {
    const u32 before = misplaced(from, 16);
    const uint4 *source = reinterpret_cast<const uint4 *>(from - before);
    uint4 *target = reinterpret_cast<uint4 *>(to - before);
    const u32 vectors = (before + bytes + 15) / 16;
#pragma unroll 2
    for (u32 at = lane(); at < vectors; at += LANES) {
        target[at] = source[at];
    }
}

// A map of colours: four bits each, colour 0 in the lowest.
struct ColorMap {
    u32 low, high;

    __device__ bool is_identity() const { return low == 0x76543210 && high == 0x98; }

    __device__ u32 of(u32 color) const {
        const u32 half = color < 8 ? low : high;
        return half >> 4 * (color & 7) & 15;
    }
};

// An image of h x w whose cells lie along lines of its source, recoloured if asked.
template <bool RECOLORS>
__device__ void draw_image(const u8 *from, Lines lines, ColorMap colors, u32 h, u32 w, u8 *to) {
    const Divisor by(w);
    const auto color_of = [=](int source) -> u32 {
        const u32 cell = from[source];
        return RECOLORS ? colors.of(cell) : cell;
    };
    const int wrap = lines.down - int(w) * lines.right;
    each_word(
        to, h * w,
        [=](u32 at, u32 *place) {
            const u32 row = by.quotient(at);
            u32 col = at - row * w;
            int source = lines.start + int(row) * lines.down + int(col) * lines.right;
            u32 word = 0;
#pragma unroll
            for (u32 byte = 0; byte < 4; byte += 1) {
                word |= color_of(source) << 8 * byte;
                source += lines.right;
                col += 1;
                if (col == w) {
                    source += wrap;
                    col = 0;
                }
            }
            *place = word;
        },
        [=](u32 at, u8 *place) {
            const u32 row = by.quotient(at), col = at - row * w;
            *place = color_of(lines.start + int(row) * lines.down + int(col) * lines.right);
        });
}
