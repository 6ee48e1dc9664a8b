// Boards and planes: patches and grids of at most 32 x 32 as bits. Lane = row, bit = column.
//
//   planes   class << 24 | cells, h | w << 8, 0, 0; then four words a row: bit p of each cell's colour, counted from
//            COLOR_MIN, in word p
//   board    class << 24 | elements, first row and column as a vector, key | h - 1 << 17 | w - 1 << 22, words of the
//            block; then a word a row, from the first bit on; with MANY_COLORS four planes follow, each a word a row
//
// A board is the set of places of its bits (key 0), or of cells: of one colour (key colour + 32,769, as in a cell), or
// of several. Its first and last row and column have a bit, and MANY_COLORS has two colours at least: so equal boards
// have equal words. Each board and all planes have another form, lists and cells; a value may have either form.

#pragma once

#include "machine/memory.cuh"

constexpr u32 BOARD_SIDE = 32;
constexpr u32 BOARD_HEAD = 4;
constexpr u32 PLANES = 4;
constexpr u32 PLAIN_PLACES = 0, MANY_COLORS = 0x1ffff;
// Boards whose places lie nearer to the limits of a vector are lists.
constexpr i32 BOARD_FAR = 32000;

// The lowest `count` bits, at most 32.
__device__ __forceinline__ u32 low_bits(u32 count) { return count == 0 ? 0 : ~0u >> (32 - count); }

// Bits moved towards the high ones, or by a negative distance towards the low ones.
__device__ __forceinline__ u32 moved_bits(u32 bits, i32 by) {
    const u32 distance = u32(by < 0 ? -by : by);
    const u32 made = by < 0 ? bits >> (distance & 31) : bits << (distance & 31);
    return distance < 32 ? made : 0;
}

// The word of the lane `by` before this one; 0 where there is none.
__device__ __forceinline__ u32 lane_before(u32 word, i32 by) {
    const i32 from = i32(lane()) - by;
    const u32 other = __shfl_sync(ALL_LANES, word, from & 31);
    return u32(from) < LANES ? other : 0;
}

// The block is one warp. Behind its barrier the compiler knows that all lanes go one way, as it does not behind a call
// or where many ways meet: otherwise each collective is compiled for lanes that have come apart, too.
__device__ __forceinline__ void together() { __syncthreads(); }

// Sums and unions of all lanes, inlined: boards ask for them at each turn.
__device__ __forceinline__ u32 all_bits(u32 bits) {
#if __CUDA_ARCH__ >= 800
    return __reduce_or_sync(ALL_LANES, bits);
#else
#pragma unroll
    for (u32 distance = LANES / 2; distance > 0; distance /= 2) {
        bits |= __shfl_xor_sync(ALL_LANES, bits, distance);
    }
    return bits;
#endif
}

__device__ __forceinline__ u32 least(u32 number) {
#if __CUDA_ARCH__ >= 800
    return __reduce_min_sync(ALL_LANES, number);
#else
#pragma unroll
    for (u32 distance = LANES / 2; distance > 0; distance /= 2) {
        number = min(number, __shfl_xor_sync(ALL_LANES, number, distance));
    }
    return number;
#endif
}

__device__ __forceinline__ u32 most(u32 number) { return ~least(~number); }

__device__ __forceinline__ u32 total(u32 number) {
#if __CUDA_ARCH__ >= 800
    return __reduce_add_sync(ALL_LANES, number);
#else
#pragma unroll
    for (u32 distance = LANES / 2; distance > 0; distance /= 2) {
        number += __shfl_xor_sync(ALL_LANES, number, distance);
    }
    return number;
#endif
}

__device__ __forceinline__ uint4 quad(const Machine &m, u32 at) { return *reinterpret_cast<const uint4 *>(&m.mem[at]); }
__device__ __forceinline__ void put_quad(const Machine &m, u32 at, u32 x, u32 y, u32 z, u32 w) {
    uint4 made;
    made.x = x;
    made.y = y;
    made.z = z;
    made.w = w;
    *reinterpret_cast<uint4 *>(&m.mem[at]) = made;
}

// A colour as the planes have it: four bits.
__device__ __forceinline__ u32 code_of(i32 color) { return u32(color - COLOR_MIN); }
__device__ __forceinline__ bool is_code(i32 color) { return color >= COLOR_MIN && color <= COLOR_MAX; }
__device__ __forceinline__ u32 key_of(i32 color) { return u32(color + 32769); }
__device__ __forceinline__ i32 color_of_key(u32 key) { return i32(key) - 32769; }

// A grid that fits: this lane's row.
struct Planes {
    u32 bits[PLANES];
    u32 h, w;
    // The cells of this row as it was loaded.
    u32 inside;

    __device__ __forceinline__ u32 valid() const { return inside; }

    // The cells of this row that have a colour; none of another lane's, nor outside of the grid.
    __device__ __forceinline__ u32 having(u32 code) const {
        u32 same = valid();
#pragma unroll
        for (u32 plane = 0; plane < PLANES; plane += 1) {
            same &= ~(bits[plane] ^ (0 - (code >> plane & 1)));
        }
        return same;
    }

    __device__ __forceinline__ void put(u32 places, u32 code) {
#pragma unroll
        for (u32 plane = 0; plane < PLANES; plane += 1) {
            bits[plane] = (bits[plane] & ~places) | (places & (0 - (code >> plane & 1)));
        }
    }

    // The colour of a cell of this row.
    __device__ __forceinline__ u32 code(u32 col) const {
        u32 code = 0;
#pragma unroll
        for (u32 plane = 0; plane < PLANES; plane += 1) {
            code |= (bits[plane] >> (col & 31) & 1) << plane;
        }
        return code;
    }
};

// Planes whose head was read.
__device__ __forceinline__ Planes planes_of(const Machine &m, u32 block, const uint4 &head) {
    Planes grid = {{0, 0, 0, 0}, head.y & 0xff, head.y >> 8, 0};
    if (lane() < grid.h) {
        grid.inside = low_bits(grid.w);
        const uint4 row = quad(m, block + 4 + 4 * lane());
        grid.bits[0] = row.x;
        grid.bits[1] = row.y;
        grid.bits[2] = row.z;
        grid.bits[3] = row.w;
    }
    return grid;
}

__device__ __forceinline__ Planes planes_at(const Machine &m, u32 block) { return planes_of(m, block, quad(m, block)); }

// Bits outside of the grid are dropped. Look at `error` behind it.
__device__ __forceinline__ Word new_planes(Machine &m, const Planes &grid) {
    const u32 h = grid.h, w = h == 0 ? 0 : grid.w;
    const u32 block = m.take(4 + 4 * h);
    if (m.error == FINE && lane() == 0) {
        put_quad(m, block, OF_PLANES << 24 | h * w, h | w << 8, 0, 0);
    }
    const u32 valid = low_bits(w);
    if (m.error == FINE && lane() < h) {
        put_quad(m, block + 4 + 4 * lane(), grid.bits[0] & valid, grid.bits[1] & valid, grid.bits[2] & valid,
                 grid.bits[3] & valid);
    }
    __syncwarp();
    return block;
}

// The colour of a cell of a grid in either form, for one lane.
__device__ __forceinline__ i32 cell_at(const Machine &m, u32 grid, u32 row, u32 col) {
    if (m.block_class(grid) == OF_PLANES) {
        const uint4 of = quad(m, grid + 4 + 4 * row);
        return i32((of.x >> col & 1) | (of.y >> col & 1) << 1 | (of.z >> col & 1) << 2 | (of.w >> col & 1) << 3)
               + COLOR_MIN;
    }
    return m.cells(grid)[row * m.width(grid) + col];
}

// A set of places or cells: what its head says, and this lane's row.
struct Board {
    i32 top, left;
    u32 h, w, count, key, row;

    __device__ __forceinline__ i32 bottom() const { return top + i32(h) - 1; }
    __device__ __forceinline__ i32 right() const { return left + i32(w) - 1; }
    // This lane's row in a window that begins at (first_row, first_col). What lies outside is lost.
    __device__ __forceinline__ u32 placed(i32 first_row, i32 first_col) const {
        return moved_bits(lane_before(row, top - first_row), left - first_col);
    }
};

__device__ __forceinline__ Board board_head(const uint4 &head) {
    return {row_of(head.y), col_of(head.y), (head.z >> 17 & 31) + 1, (head.z >> 22 & 31) + 1, head.x & 0xffffff,
            head.z & 0x1ffff, 0};
}

__device__ __forceinline__ Board board_at(const Machine &m, u32 block) {
    Board board = board_head(quad(m, block));
    board.row = lane() < board.h ? m.mem[block + BOARD_HEAD + lane()] : 0;
    return board;
}

// This lane's row of a plane of a board of many colours.
__device__ __forceinline__ u32 board_plane(const Machine &m, u32 block, u32 h, u32 plane) {
    return lane() < h ? m.mem[block + BOARD_HEAD + h * (1 + plane) + lane()] : 0;
}

// The 17 low bits that a cell of a board has: of this row and column of the board.
__device__ __forceinline__ u32 cell_key(const Machine &m, u32 block, const Board &board, u32 row, u32 col) {
    if (board.key != MANY_COLORS) {
        return board.key;
    }
    u32 code = 0;
    const u32 *const planes = &m.mem[block + BOARD_HEAD + board.h + row];
#pragma unroll
    for (u32 plane = 0; plane < PLANES; plane += 1) {
        code |= (planes[plane * board.h] >> col & 1) << plane;
    }
    return key_of(i32(code) + COLOR_MIN);
}

__device__ __forceinline__ Word board_word(const Machine &m, u32 block, const Board &board, u32 row, u32 col) {
    const u32 vector = of_vector(board.top + i32(row), board.left + i32(col));
    return board.key == PLAIN_PLACES ? Word(vector) : Word(vector) << 17 | cell_key(m, block, board, row, col);
}

__device__ __noinline__ Word Machine::board_element(Word block, u32 at) const {
    const Board board = board_head(quad(*this, u32(block)));
#pragma unroll 1
    for (u32 row = 0;; row += 1) {
        u32 bits = mem[u32(block) + BOARD_HEAD + row];
        const u32 here = __popc(bits);
        if (at < here) {
#pragma unroll 1
            for (; at > 0; at -= 1) {
                bits &= bits - 1;
            }
            return board_word(*this, u32(block), board, row, __ffs(bits) - 1);
        }
        at -= here;
    }
}

// Whether a board has an element, for one lane.
__device__ __noinline__ bool board_has(const Machine &m, u32 block, Word value) {
    const Board board = board_head(quad(m, block));
    const u32 vector = board.key == PLAIN_PLACES ? u32(value) : vector_of_cell(value);
    const u32 row = u32(row_of(vector) - board.top), col = u32(col_of(vector) - board.left);
    return row < board.h && col < board.w && (m.mem[block + BOARD_HEAD + row] >> col & 1) != 0
           && board_word(m, block, board, row, col) == value;
}

// Goes through the elements of a set of vectors or cells, in either form, in order. For one lane.
struct Cursor {
    u32 block, next, bits, of_class;
    Board board;

    __device__ Cursor(const Machine &m, u32 of) : block(of), next(0), bits(0), of_class(m.block_class(of)) {
        if (of_class == OF_BOARD) {
            board = board_head(quad(m, of));
            bits = m.mem[of + BOARD_HEAD];
        }
    }

    // An element that is there.
    __device__ __forceinline__ Word take(const Machine &m) {
        if (of_class != OF_BOARD) {
            next += 1;
            return m.element(block, next - 1);
        }
#pragma unroll 1
        while (bits == 0) {
            next += 1;
            bits = m.mem[block + BOARD_HEAD + next];
        }
        const u32 col = __ffs(bits) - 1;
        bits &= bits - 1;
        return board_word(m, block, board, next, col);
    }
};

// The set of the places whose bits are set in a window that begins at (top, left), with a key that is not MANY_COLORS.
// None of them may be far. Look at `error` behind it.
__device__ __forceinline__ Word new_board(Machine &m, u32 bits, i32 top, i32 left, u32 key) {
    const u32 rows = __ballot_sync(ALL_LANES, bits != 0);
    const u32 cols = all_bits(bits), count = total(__popc(bits));
    // Without a bit, an empty list.
    const u32 above = rows == 0 ? 0 : __ffs(rows) - 1, before = cols == 0 ? 0 : __ffs(cols) - 1;
    const u32 h = 32 - __clz(rows) - above, w = 32 - __clz(cols) - before;
    const u32 row = lane_before(bits, -i32(above)) >> before;
    const u32 words = whole(BOARD_HEAD + h), block = m.take(words);
    if (m.error == FINE && lane() == 0) {
        const u32 empty = key == PLAIN_PLACES ? OF_WORDS : OF_DOUBLES;
        put_quad(m, block, (rows == 0 ? empty : OF_BOARD) << 24 | count,
                 rows == 0 ? 1 : of_vector(top + i32(above), left + i32(before)), key | (h - 1) << 17 | (w - 1) << 22,
                 words);
    }
    if (m.error == FINE && lane() < h) {
        m.mem[block + BOARD_HEAD + lane()] = row;
    }
    __syncwarp();
    return block;
}

// As above, of cells whose colours are in planes of the same window.
__device__ __forceinline__ Word new_colored_board(Machine &m, u32 bits, i32 top, i32 left, const u32 *planes) {
    u32 code = 0;
    bool many = false;
#pragma unroll
    for (u32 plane = 0; plane < PLANES; plane += 1) {
        const bool has = any_lane((planes[plane] & bits) != 0), lacks = any_lane((~planes[plane] & bits) != 0);
        many |= has && lacks;
        code |= u32(has) << plane;
    }
    const Word block = new_board(m, bits, top, left, many ? MANY_COLORS : key_of(i32(code) + COLOR_MIN));
    if (many && m.error == FINE) {
        // The planes behind the rows.
        const Board board = board_at(m, u32(block));
        const u32 words = whole(BOARD_HEAD + (1 + PLANES) * board.h);
        m.take(words - whole(BOARD_HEAD + board.h));
        if (m.error == FINE) {
            if (lane() == 0) {
                m.mem[u32(block) + 3] = words;
            }
#pragma unroll
            for (u32 plane = 0; plane < PLANES; plane += 1) {
                const u32 of = moved_bits(lane_before(planes[plane] & bits, top - board.top), left - board.left);
                if (lane() < board.h) {
                    m.mem[u32(block) + BOARD_HEAD + board.h * (1 + plane) + lane()] = of;
                }
            }
        }
        __syncwarp();
    }
    return block;
}
