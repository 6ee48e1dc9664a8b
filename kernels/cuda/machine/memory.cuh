// The memory of one warp while it runs a solver: registers, values, and what a value looks like.
//
// docs/src/design/machine.md says what the machine means; kernels/src/reference/machine is the same in Rust.
//
// All memory is one array of words, the arena. It starts with the registers and the program; values follow in the order
// in which they were made, and a loop frees what its body made. Every lane keeps its own copy of Machine; the copies
// are equal, because all lanes take the same memory in the same order. A value is named by a Word:
//
//   number, flag    the number with its highest bit turned over, so that words order as numbers
//   vector          row and column, each with its highest bit turned over: row << 16 | column
//   cell            vector << 17 | colour + 32,769
//   place           as a cell; without a colour vector << 17
//   all others      where its block starts in the arena, in words
//
// A block starts at a multiple of four words. Its first word is class << 24 | count, its second the weight of a
// container or a pair, or h | w << 8 of a grid. A grid's count is its area. boards.cuh says what boards and planes look
// like.

#pragma once

#include "team.cuh"

typedef u64 Word;

// As in protocol/src/limits.rs.
constexpr u32 SIDE_MAX = 255;
constexpr u32 GRID_CELLS_MAX = 4096;
constexpr u32 WEIGHT_MAX = 1u << 17;
constexpr i32 COLOR_MIN = -2, COLOR_MAX = 13;
constexpr u32 DEPTH_MAX = 8;

// Codes of protocol/src/output.rs, and what only the host sees.
enum Ending : u32 {
    FINE = 0,
    BAD_CELL = 1,
    OVERFLOW = 3,
    EMPTY_ARG = 4,
    BAD_INDEX = 6,
    BAD_SHAPE = 7,
    BAD_TYPE = 8,
    BAD_NUMBER = 9,
    STEP_LIMIT = 10,
    // Nobody wants the results of the launch any more.
    STOPPED = 253,
    // The arena is too small: the host runs the item again with a larger one.
    NEEDS_MEMORY = 254,
    // The result does not fit behind the others: the host runs the item again.
    NEEDS_ROOM = 255,
};

// Tags of kinds, as in docs/src/design/machine.md.
enum Tag : u32 { NEVER, FLAG, NUMBER, VECTOR, CELL, PLACE, GRID, PAIR, SET, TUPLE };

// Classes of blocks.
constexpr u32 OF_GRID = 0;
// Containers of elements of one word, of two words, and of blocks.
constexpr u32 OF_WORDS = 1, OF_DOUBLES = 2, OF_BLOCKS = 3;
// A pair; bits 0 and 1 say which halves are blocks.
constexpr u32 OF_PAIR = 4;
// A grid as bit planes, and a set of vectors or cells as a board: boards.cuh. Each is one of two forms of its value.
constexpr u32 OF_PLANES = 8, OF_BOARD = 9;

// The kind of words that are no blocks, where the program names none.
constexpr u32 PLAIN = ~0u;

constexpr u32 HEAD_WORDS = 2;
constexpr u32 PAIR_WORDS = 8;

constexpr u32 TURN = 0x80000000;
constexpr i32 NOTHING = -2147483647 - 1;

__device__ inline Word of_number(i32 number) { return u32(number) ^ TURN; }
__device__ inline Word of_flag(bool is) { return of_number(is); }
__device__ inline i32 number_of(Word word) { return i32(u32(word) ^ TURN); }

__device__ inline u32 of_vector(i32 row, i32 col) { return u32(row + 32768) << 16 | u32(col + 32768); }
__device__ inline i32 row_of(u32 vector) { return i32(vector >> 16) - 32768; }
__device__ inline i32 col_of(u32 vector) { return i32(vector & 0xffff) - 32768; }

// The vector that stands for nothing. It is the greatest word of a vector.
constexpr u32 NO_VECTOR = ~0u;

__device__ inline Word of_cell(i32 color, u32 vector) { return Word(vector) << 17 | u32(color + 32769); }
__device__ inline u32 vector_of_cell(Word cell) { return u32(cell >> 17); }
// Not of a place without a colour.
__device__ inline i32 color_of(Word cell) { return i32(u32(cell) & 0x1ffff) - 32769; }
__device__ inline bool has_color(Word place) { return (u32(place) & 0x1ffff) != 0; }

__device__ inline bool is_half(i64 number) { return number >= -32768 && number <= 32767; }

// Whether both halves fit a vector that is not nothing.
__device__ inline bool are_halves(i64 row, i64 col) {
    return is_half(row) && is_half(col) && !(row == 32767 && col == 32767);
}

// Nothing is not true.
__device__ inline bool is_true(Word word) {
    const i32 number = number_of(word);
    return number != 0 && number != NOTHING;
}

// Divides by one number again and again. Exact for numbers below 2^24 if the divisor is below 2^8, and below 2^16 if
// it is below 2^16.
struct Divider {
    u32 by, magic;

    __device__ explicit Divider(u32 number) : by(number), magic(number > 1 ? ~0u / number + 1 : 0) {}
    __device__ u32 divide(u32 number) const { return by > 1 ? __umulhi(number, magic) : number; }
};

// Blocks take a multiple of four words.
__device__ inline u32 whole(u32 words) { return words + 3 & ~3u; }

#ifdef GP_SHARED_ARENA
// The arena lies in shared memory: its addresses are short, and known to the compiler. The launch says how large it is.
extern __shared__ uint4 arena_of_block[];

struct Memory {
    __device__ operator u32 *() const {
        return reinterpret_cast<u32 *>(arena_of_block);
    }
    __device__ void operator=(u32 *) {}
};
#else
typedef u32 *Memory;
#endif

struct Machine {
    Memory mem;
    // Words of the arena, and where free memory starts.
    u32 cap, top;
    // An Ending.
    u32 error;
    // The frame of the innermost loop.
    u32 frame;
    u32 ties;
    // Where the instructions start, four words each, and the kinds, a word each: tag and the kinds that it is made of;
    // and, in bytes, the kinds of registers.
    u32 code, kinds, register_kinds;

    __device__ Word *registers() const { return reinterpret_cast<Word *>(&mem[0]); }

    __device__ u32 kind_in(u32 at) const { return reinterpret_cast<const u8 *>(&mem[0])[register_kinds + at]; }
    __device__ u32 tag(u32 kind) const { return mem[kinds + kind] & 0xff; }
    __device__ u32 first(u32 kind) const { return mem[kinds + kind] >> 8 & 0xff; }
    __device__ u32 second(u32 kind) const { return mem[kinds + kind] >> 16 & 0xff; }
    __device__ bool is_set(u32 kind) const { return tag(kind) == SET; }
    __device__ bool is_block(u32 kind) const { return kind != PLAIN && tag(kind) >= GRID; }

    // The class of a container of elements of this kind.
    __device__ u32 class_for(u32 kind) const {
        const u32 of = tag(kind);
        return of <= VECTOR ? OF_WORDS : of <= PLACE ? OF_DOUBLES : OF_BLOCKS;
    }

    // Ends the item if a vector argument is nothing.
    __device__ u32 needed_vector(Word word) {
        if (u32(word) == NO_VECTOR) {
            fail(BAD_TYPE);
        }
        return u32(word);
    }

    // The first error counts. The lanes agree.
    __device__ __forceinline__ Word fail(u32 code) {
        error = error == FINE ? code : error;
        return 0;
    }

    // Where so many free words start. Look at `error` before you write.
    __device__ __forceinline__ u32 take(u32 words) {
        const u32 start = top;
        const u32 next = start + whole(words);
        if (next > cap || next < start) {
            fail(NEEDS_MEMORY);
            return start;
        }
        top = next;
        return start;
    }

    // Memory at the end of the arena, until `give_back`.
    __device__ __forceinline__ u32 borrow(u32 words) {
        const u32 size = whole(words);
        if (size > cap - top) {
            fail(NEEDS_MEMORY);
            return top;
        }
        cap -= size;
        return cap;
    }

    __device__ void give_back(u32 words) { cap += whole(words); }

    __device__ u32 count(Word block) const { return mem[u32(block)] & 0xffffff; }
    __device__ u32 block_class(Word block) const { return mem[u32(block)] >> 24; }

    __device__ u32 *words(Word block) const { return mem + u32(block) + HEAD_WORDS; }
    __device__ Word *doubles(Word block) const {
        return reinterpret_cast<Word *>(mem + u32(block) + HEAD_WORDS);
    }

    // Element `at` of a container.
    __device__ Word element(Word list, u32 at) const {
        const u32 of_class = block_class(list);
        return of_class == OF_DOUBLES ? doubles(list)[at]
               : of_class == OF_BOARD ? board_element(list, at)
                                      : words(list)[at];
    }

    // Element `at` of a board, for one lane: slow.
    __device__ Word board_element(Word board, u32 at) const;

    __device__ void put(u32 list, u32 of_class, u32 at, Word value) const {
        if (of_class == OF_DOUBLES) {
            doubles(list)[at] = value;
        } else {
            words(list)[at] = u32(value);
        }
    }

    __device__ Word half(Word pair, u32 which) const { return doubles(pair)[which]; }

    __device__ u32 weight(Word block) const {
        const u32 head = mem[u32(block)], of_class = head >> 24, elements = head & 0xffffff;
        return of_class == OF_GRID || of_class == OF_PLANES ? max(elements, 1u)
               : of_class == OF_BOARD                       ? 1 + elements
                                                            : mem[u32(block) + 1];
    }

    // A grid's rows, columns and cells.
    __device__ u32 height(Word grid) const { return mem[u32(grid) + 1] & 0xff; }
    __device__ u32 width(Word grid) const { return mem[u32(grid) + 1] >> 8; }
    __device__ signed char *cells(Word grid) const {
        return reinterpret_cast<signed char *>(mem + u32(grid) + HEAD_WORDS);
    }

    // Room for a container of at most `count` elements. `close` makes it a value.
    __device__ __noinline__ u32 open(u32 of_class, u32 count) {
        // No result has more; a list before its equals have gone may.
        if (count > 8 * WEIGHT_MAX) {
            fail(OVERFLOW);
            return 0;
        }
        return take(HEAD_WORDS + (of_class == OF_DOUBLES ? 2 * count : count));
    }

    // Room for a grid; OVERFLOW if it is too large. Its cells must be written before they are read.
    __device__ __noinline__ u32 open_grid(i64 h, i64 w) {
        if (h > SIDE_MAX || h > 0 && (w > SIDE_MAX || h * w > GRID_CELLS_MAX)) {
            fail(OVERFLOW);
            return 0;
        }
        const u32 area = h == 0 ? 0 : u32(h) * u32(w);
        const u32 grid = take(HEAD_WORDS + (area + 3) / 4);
        if (error == FINE) {
            mem[grid] = OF_GRID << 24 | area;
            mem[grid + 1] = h == 0 ? 0 : u32(h) | u32(w) << 8;
        }
        return grid;
    }
};

// Words of a block.
__device__ inline u32 block_words(const Machine &m, u32 block) {
    const u32 head = m.mem[block], count = head & 0xffffff;
    switch (head >> 24) {
    case OF_GRID:
        return whole(HEAD_WORDS + (count + 3) / 4);
    case OF_WORDS:
    case OF_BLOCKS:
        return whole(HEAD_WORDS + count);
    case OF_DOUBLES:
        return whole(HEAD_WORDS + 2 * count);
    case OF_PLANES:
        return 4 + 4 * m.height(block);
    case OF_BOARD:
        return m.mem[block + 3];
    default:
        return PAIR_WORDS;
    }
}

// The sum of a number of each lane, and no more than `most` of each.
__device__ inline u32 capped(u32 number, u32 most) { return number < most ? number : most; }

// Makes a value of an opened container, whose first `count` elements are written: head, weight, and the end of
// what was taken, if nothing was taken behind it. OVERFLOW if it is too heavy.
__device__ __noinline__ Word close_list(Machine &m, u32 list, u32 of_class, u32 count) {
    u32 weight = 1 + count;
    if (of_class == OF_BLOCKS) {
        __syncwarp();
        u32 mine = 0;
#pragma unroll 1
        for (u32 at = lane(); at < count; at += LANES) {
            mine = capped(mine + m.weight(m.words(list)[at]), 2 * WEIGHT_MAX);
        }
        weight = 1 + u32(sum_of_warp(i32(mine)));
    }
    if (weight > WEIGHT_MAX) {
        return m.fail(OVERFLOW);
    }
    const u32 head = of_class << 24 | count;
    m.mem[list] = head;
    m.mem[list + 1] = weight;
    m.top = list + whole(HEAD_WORDS + (of_class == OF_DOUBLES ? 2 * count : count));
    __syncwarp();
    return list;
}

__device__ inline Word empty_list(Machine &m, u32 of_class) {
    const u32 list = m.open(of_class, 0);
    return m.error ? 0 : close_list(m, list, of_class, 0);
}

// The value of lane 0, for all lanes.
__device__ inline u32 from_first(u32 number) { return __shfl_sync(ALL_LANES, number, 0); }

// Copies words to a lower or a distant place.
__device__ __noinline__ void copy_words(u32 *to, const u32 *from, u32 count) {
#pragma unroll 1
    for (u32 base = 0; base < count; base += LANES) {
        const u32 at = base + lane();
        const u32 word = at < count ? from[at] : 0;
        __syncwarp();
        if (at < count) {
            to[at] = word;
        }
    }
    __syncwarp();
}

// Writes the numbers for which `keeps` holds, in order, through `write(place, at)`. Returns how many.
// `keeps` may read what `write` overwrites at or before its own place.
template <class Keeps, class Write>
__device__ inline u32 keep_in_order(u32 count, Keeps keeps, Write write) {
    u32 kept = 0;
#pragma unroll 1
    for (u32 base = 0; base < count; base += LANES) {
        const u32 at = base + lane();
        const bool mine = at < count && keeps(at);
        const u32 members = __ballot_sync(ALL_LANES, mine);
        if (mine) {
            write(kept + __popc(members & ((1u << lane()) - 1)), at);
        }
        kept += __popc(members);
    }
    __syncwarp();
    return kept;
}
