// Values from one form into the other: grids between planes and cells, patches between boards and lists.

#pragma once

#include "machine/sets.cuh"

// Reads this lane's row of a grid whose cells, a byte each, start at byte `start` of `words`. Sets `bad` if a cell's
// colour is above `color_max` or negative.
__device__ __forceinline__ Planes read_planes(const u32 *words, u32 start, u32 h, u32 w, i32 color_max, bool &bad) {
    Planes grid = {{0, 0, 0, 0}, h, w, 0};
    if (lane() < h && w > 0) {
        const u32 first = start + lane() * w, shift = 8 * (first & 3), last = (first + w - 1) / 4;
        u32 at = first / 4, low = words[at];
#pragma unroll 1
        for (u32 col = 0; col < w; col += 4) {
            at = min(at + 1, last);
            const u32 high = words[at];
            u32 four = u32((u64(high) << 32 | low) >> shift);
            low = high;
            four &= w - col < 4 ? ~0u >> (32 - 8 * (w - col)) : ~0u;
            bad |= ((four | (four & 0x7f7f7f7f) + 0x01010101u * u32(127 - color_max)) & 0x80808080) != 0;
            // Bytes are signed: the colour plus 2, without a carry.
            const u32 codes = (four & 0x7f7f7f7f) + 0x01010101u * u32(-COLOR_MIN) ^ (four & 0x80808080);
#pragma unroll
            for (u32 plane = 0; plane < PLANES; plane += 1) {
                // Four bits, each eight apart, beside each other.
                grid.bits[plane] |= (((codes >> plane & 0x01010101) * 0x01020408 >> 24) & 15) << col;
            }
        }
    }
    return grid;
}

// Writes this lane's row, a byte a cell, if the grid starts at `to`.
template <class Byte>
__device__ __forceinline__ void write_planes(const Planes &grid, Byte *to) {
    if (lane() < grid.h) {
        Byte *const row = to + lane() * grid.w;
#pragma unroll 1
        for (u32 col = 0; col < grid.w; col += 4) {
            u32 four = 0;
#pragma unroll
            for (u32 plane = 0; plane < PLANES; plane += 1) {
                // Four bits, eight apart.
                four |= ((grid.bits[plane] >> col & 15) * 0x00204081 & 0x01010101) << plane;
            }
#pragma unroll
            for (u32 at = 0; at < 4; at += 1) {
                if (col + at < grid.w) {
                    row[col + at] = Byte((four >> 8 * at & 0xff) + u32(COLOR_MIN));
                }
            }
        }
    }
}

// A grid as cells.
__device__ __noinline__ Word as_cells(Machine &m, Word grid) {
    if (m.block_class(grid) != OF_PLANES) {
        return grid;
    }
    const u32 made = m.open_grid(m.height(grid), m.width(grid));
    if (m.error) {
        return 0;
    }
    write_planes(planes_at(m, u32(grid)), m.cells(made));
    __syncwarp();
    return made;
}

// A grid as planes if it fits.
__device__ __noinline__ Word as_planes(Machine &m, Word grid) {
    const u32 h = m.height(grid), w = m.width(grid);
    if (m.block_class(grid) == OF_PLANES || h > BOARD_SIDE || w > BOARD_SIDE) {
        return grid;
    }
    bool bad = false;
    return new_planes(m, read_planes(m.words(grid), 0, h, w, COLOR_MAX, bad));
}

// A set of vectors or cells as a list, behind what is open: its elements are `to[at]`.
__device__ __noinline__ void write_board(const Machine &m, u32 block, u32 list, u32 of_class, u32 from) {
    const Board board = board_at(m, block);
    u32 at = from + sum_before_in_warp(__popc(board.row));
#pragma unroll 1
    for (u32 bits = board.row; bits != 0; bits &= bits - 1) {
        m.put(list, of_class, at, board_word(m, block, board, lane(), __ffs(bits) - 1));
        at += 1;
    }
}

__device__ __noinline__ Word as_list(Machine &m, Word patch) {
    if (m.block_class(patch) != OF_BOARD) {
        return patch;
    }
    const u32 count = m.count(patch);
    const u32 of_class = board_head(quad(m, u32(patch))).key == PLAIN_PLACES ? OF_WORDS : OF_DOUBLES;
    const u32 list = m.open(of_class, count);
    if (m.error) {
        return 0;
    }
    write_board(m, u32(patch), list, of_class, 0);
    return close_list(m, list, of_class, count);
}

// A set of vectors or cells as a board if it fits.
__device__ __noinline__ Word as_board(Machine &m, Word patch) {
    const u32 of_class = m.block_class(patch), count = m.count(patch);
    if (of_class == OF_BOARD || count == 0 || count > BOARD_SIDE * BOARD_SIDE) {
        return patch;
    }
    const bool cells = of_class == OF_DOUBLES;
    const u32 *const words = m.words(patch);
    const Word *const doubles = m.doubles(patch);
    u32 left = ~0u, right = 0, colors_low = ~0u, colors_high = 0;
#pragma unroll 1
    for (u32 at = lane(); at < count; at += LANES) {
        const u32 place = cells ? vector_of_cell(doubles[at]) : words[at];
        left = min(left, place & 0xffff);
        right = max(right, place & 0xffff);
        const u32 key = cells ? u32(doubles[at]) & 0x1ffff : 0;
        colors_low = min(colors_low, key);
        colors_high = max(colors_high, key);
    }
    left = least_of_warp(left);
    right = most_of_warp(right);
    colors_low = least_of_warp(colors_low);
    colors_high = most_of_warp(colors_high);
    const i32 first_row = row_of(cells ? vector_of_cell(doubles[0]) : words[0]);
    const i32 last_row = row_of(cells ? vector_of_cell(doubles[count - 1]) : words[count - 1]);
    const i32 first_col = i32(left) - 32768, last_col = i32(right) - 32768;
    const bool many = colors_low != colors_high;
    if (last_row - first_row >= i32(BOARD_SIDE) || last_col - first_col >= i32(BOARD_SIDE) || first_row < -BOARD_FAR
        || last_row > BOARD_FAR || first_col < -BOARD_FAR || last_col > BOARD_FAR
        || many && (colors_low < key_of(COLOR_MIN) || colors_high > key_of(COLOR_MAX))) {
        return patch;
    }
    const u32 planes = many ? 1 + PLANES : 1, scratch = m.borrow(planes * LANES);
    if (m.error) {
        return 0;
    }
    u32 *const rows = &m.mem[scratch];
#pragma unroll 1
    for (u32 plane = 0; plane < planes; plane += 1) {
        rows[plane * LANES + lane()] = 0;
    }
    __syncwarp();
#pragma unroll 1
    for (u32 at = lane(); at < count; at += LANES) {
        const u32 place = cells ? vector_of_cell(doubles[at]) : words[at];
        const u32 row = u32(row_of(place) - first_row), bit = 1u << (col_of(place) - first_col);
        atomicOr(&rows[row], bit);
        const u32 code = cells ? code_of(color_of(doubles[at])) : 0;
#pragma unroll 1
        for (u32 plane = 1; plane < planes; plane += 1) {
            if (code >> (plane - 1) & 1) {
                atomicOr(&rows[plane * LANES + row], bit);
            }
        }
    }
    __syncwarp();
    u32 bits[1 + PLANES];
#pragma unroll
    for (u32 plane = 0; plane < 1 + PLANES; plane += 1) {
        bits[plane] = plane < planes ? rows[plane * LANES + lane()] : 0;
    }
    __syncwarp();
    m.give_back(planes * LANES);
    // Several cells at one place have no board.
    if (total(__popc(bits[0])) != count) {
        return patch;
    }
    return many ? new_colored_board(m, bits[0], first_row, first_col, bits + 1)
                : new_board(m, bits[0], first_row, first_col, colors_low);
}

// A grid, or a set of a kind that may be one of vectors or cells, as planes or board if it fits.
__device__ inline Word as_new(Machine &m, Word value, u32 kind) {
    const u32 tag = m.tag(kind), element = tag == SET ? m.tag(m.first(kind)) : u32(NEVER);
    return tag == GRID ? as_planes(m, value) : element == VECTOR || element == CELL ? as_board(m, value) : value;
}

// A value in the form that ops without boards and planes know; what it is made of stays as it is.
__device__ __noinline__ Word as_old(Machine &m, Word value, u32 kind) {
    const u32 tag = m.tag(kind);
    return tag == GRID ? as_cells(m, value) : tag == SET ? as_list(m, value) : value;
}
