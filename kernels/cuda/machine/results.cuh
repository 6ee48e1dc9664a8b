// The bytes of a result: docs/src/design/machine.md, "Results".

#pragma once

#include "machine/run.cuh"

// Most bytes of a result that is no grid, as in protocol/src/limits.rs.
constexpr u32 RESULT_BYTES_MAX = 64 * 1024;

// Bytes of a value that is no block.
__device__ inline u32 plain_bytes(u32 tag) {
    return tag == FLAG ? 1 : tag == CELL ? 6 : tag == PLACE ? 7 : tag == NEVER ? 0 : 4;
}

// Where bytes are written; nowhere if only their number is asked for.
struct Bytes {
    u8 *to;
    u32 count;

    __device__ void byte(u32 at, u32 value) const { to[at] = u8(value); }
    __device__ void half(u32 at, i32 value) const {
        byte(at, u32(value));
        byte(at + 1, u32(value) >> 8);
    }
    __device__ void vector(u32 at, u32 value) const {
        half(at, row_of(value));
        half(at + 2, col_of(value));
    }
    __device__ void number(u32 at, u32 value) const {
        half(at, i32(value));
        half(at + 2, i32(value >> 16));
    }

    // A value that is no block. Each lane may write its own.
    __device__ void plain(u32 at, u32 tag, Word word) const {
        switch (tag) {
        case FLAG:
            byte(at, number_of(word) != 0);
            break;
        case VECTOR:
            vector(at, u32(word));
            break;
        case CELL:
            half(at, color_of(word));
            vector(at + 2, vector_of_cell(word));
            break;
        case PLACE:
            byte(at, has_color(word));
            half(at + 1, has_color(word) ? color_of(word) : 0);
            vector(at + 3, vector_of_cell(word));
            break;
        default:
            number(at, u32(number_of(word)));
            break;
        }
    }
};

// A container or a pair that is being written.
struct Written {
    u32 kind, block, next;
};

// Writes a value to `to`, or nowhere. Returns its bytes.
__device__ __noinline__ u32 written_value(const Machine &m, Value value, u8 *to) {
    Bytes bytes = {to, 0};
    Written open[DEPTH_MAX];
    u32 depth = 0;
    const bool first = lane() == 0;
#pragma unroll 1
    while (true) {
        const u32 tag = m.tag(value.kind);
        bool enters = false;
        if (tag < GRID) {
            if (bytes.to && first) {
                bytes.plain(bytes.count, tag, value.word);
            }
            bytes.count += plain_bytes(tag);
        } else if (tag == GRID) {
            const u32 area = m.count(value.word);
            if (bytes.to) {
                if (first) {
                    bytes.byte(bytes.count, m.height(value.word));
                    bytes.byte(bytes.count + 1, m.width(value.word));
                }
                if (m.block_class(value.word) == OF_PLANES) {
                    write_planes(planes_at(m, u32(value.word)), bytes.to + bytes.count + 2);
                } else {
#pragma unroll 1
                    for (u32 at = lane(); at < area; at += LANES) {
                        bytes.byte(bytes.count + 2 + at, u32(m.cells(value.word)[at]));
                    }
                }
            }
            bytes.count += 2 + area;
        } else {
            if (tag != PAIR) {
                const u32 count = m.count(value.word);
                if (bytes.to && first) {
                    bytes.number(bytes.count, count);
                }
                bytes.count += 4;
                const u32 of = m.first(value.kind), of_tag = m.tag(of);
                if (of_tag < GRID) {
                    const u32 each = plain_bytes(of_tag);
#pragma unroll 1
                    for (u32 at = lane(); bytes.to && at < count; at += LANES) {
                        bytes.plain(bytes.count + each * at, of_tag, m.element(value.word, at));
                    }
                    bytes.count += each * count;
                } else {
                    enters = count > 0;
                }
            } else {
                enters = true;
            }
            if (enters) {
                open[depth] = {value.kind, u32(value.word), 0};
                depth += 1;
            }
        }
        // The next element of what is open.
#pragma unroll 1
        while (true) {
            if (depth == 0) {
                return bytes.count;
            }
            Written &top = open[depth - 1];
            const bool is_pair = m.tag(top.kind) == PAIR;
            if (top.next < (is_pair ? 2 : m.count(top.block))) {
                const u32 at = top.next;
                top.next += 1;
                value.kind = is_pair && at == 1 ? m.second(top.kind) : m.first(top.kind);
                value.word = is_pair ? m.half(top.block, at) : m.element(top.block, at);
                break;
            }
            depth -= 1;
        }
    }
}
