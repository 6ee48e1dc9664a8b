// The kernel that judges many programs on many pairs: whether each result is the expected grid, and how near it is.
//
// One warp makes one evaluation, a program on a pair, or a run of them, after the other; a block is one warp. Only a byte comes back, and
// two more if a score is wanted. An evaluation whose values do not fit the warp's arena has the code NEEDS_MEMORY: the
// host runs it again with a larger one. Once the host has set a word, no warp begins what its multiprocessor has not
// yet asked for, each evaluation ends within LOOK_EVERY steps, each run within RUN_LOOKS programs, and what the launch wrote counts for nothing. Mirrors
// kernels/src/reference/search.rs. What is here is what both kernels have in common: listed.cuh and template.cuh.
//
// A multiprocessor's cache holds a small part of the machine's code, and its warps would wait for code most of the time
// if each were elsewhere in it. So neighbouring evaluations, a program or a run on all pairs and then the next, run on
// one multiprocessor at a time (queue.cuh), and programs that begin alike or have the same ops stand beside each other.

#pragma once

#include "machine/prepare.cuh"
#include "machine/queue.cuh"

// As in protocol/src/output.rs and protocol/src/search/status.rs.
constexpr u32 MISSING_OUTPUT = 2, EQUAL = 0, DIFFERS = 200;
constexpr u32 SCORE_SHAPE = 1 << 15;

// The argument of the kernel; mirrored by SearchArgument of kernels/src/solve.rs.
struct Search {
    // The bytes of all programs, each at a multiple of 8, and where each starts.
    const u8 *programs;
    const u32 *program_offsets;
    // Rows and columns of each grid, two a pair, where its cells start, and all cells.
    const u8 *shapes;
    const u32 *offsets;
    const u8 *cells;
    // The evaluations to make, each a program times the pairs plus a pair; null for all.
    const u32 *evaluations;
    // The status of each evaluation, and its score; null if none is wanted.
    u8 *statuses;
    u16 *scores;
    // The arenas of all warps.
    u32 *arenas;
    // The host sets it to stop the launch; null if it never does.
    const u32 *stop;
    // What prepare.cuh makes of each program, and where it starts, in words.
    u32 *images;
    const u32 *image_offsets;
    // The programs in the order in which they run, if all evaluations are made; null for their own.
    const u32 *order;
    // What queue.cuh needs: zeros.
    u64 *queue;
    // The holes of a template, as template.cuh says; null if programs are listed.
    const u32 *holes;
    // What prepare_grid makes of each grid, PREPARED_WORDS of them.
    u32 *grids;
    // Where each run starts in `order`, with one more for the end, and how many instructions each program of `order` has
    // in common with the one before, as listed.cuh says; null if programs run one by one.
    const u32 *runs;
    const u32 *shared;
    // The template's number of the launch's first program.
    u64 first;
    // Evaluations of this launch, or runs of them; 0 for a launch that only loads the kernel.
    u32 evaluations_count;
    u32 pairs_count;
    u32 arena_words;
    // Of a template, the first program and those for each choice of an opcode.
    u32 programs_count;
    // Programs of a template, and how many of them are a run; both 0 if programs are listed.
    u32 expanded_count;
    u32 run_length;
};

static_assert(sizeof(Search) == 176, "SearchArgument of kernels/src/solve.rs has this size");

// How an evaluation ended.
struct Judged {
    u32 status, score;
};

// A grid of a pair, made once for all programs: a head with its form, rows and columns, then its planes, a row a lane.
constexpr u32 PREPARED_WORDS = 4 + 4 * BOARD_SIDE;

// The form: planes, planes with a colour that no input may have, or too large for planes.
enum PairForm : u32 { PAIR_PLANES, PAIR_BAD, PAIR_CELLS };

struct PairGrid {
    u32 number, h, w, form;

    __device__ __forceinline__ PairGrid(const Search &search, u32 of) : number(of) {
        const uint4 head = *reinterpret_cast<const uint4 *>(search.grids + number * PREPARED_WORDS);
        form = alike(head.x);
        h = alike(head.y);
        w = alike(head.z);
    }

    __device__ __forceinline__ Planes planes(const Search &search) const {
        const uint4 row = reinterpret_cast<const uint4 *>(search.grids + number * PREPARED_WORDS)[1 + lane()];
        return {{row.x, row.y, row.z, row.w}, h, w, 0};
    }

    __device__ __forceinline__ const u8 *cells(const Search &search) const {
        return search.cells + search.offsets[number];
    }
};

// Makes it.
__device__ __forceinline__ void prepare_grid(const Search &search, u32 number) {
    const u32 h = search.shapes[2 * number], w = search.shapes[2 * number + 1];
    const bool fits = h <= BOARD_SIDE && w <= BOARD_SIDE;
    bool bad = false;
    Planes planes = {};
    if (fits) {
        const u32 *const words = reinterpret_cast<const u32 *>(search.cells);
        planes = read_planes(words, search.offsets[number], h, w, ITEM_COLOR_MAX, bad);
    }
    bad = any_lane(bad);
    uint4 *const to = reinterpret_cast<uint4 *>(search.grids + number * PREPARED_WORDS);
    const u32 valid = fits ? low_bits(w) : 0;
    to[1 + lane()] = {planes.bits[0] & valid, planes.bits[1] & valid, planes.bits[2] & valid, planes.bits[3] & valid};
    if (lane() == 0) {
        to[0] = {u32(fits ? bad ? PAIR_BAD : PAIR_PLANES : PAIR_CELLS), h, w, 0};
    }
}

// Whether a value of this kind can be a row: numbers or flags, or a vector.
__device__ inline bool is_row(const Machine &m, u32 kind) {
    const u32 tag = m.tag(kind);
    return tag == VECTOR || tag == TUPLE && m.tag(m.first(kind)) <= NUMBER;
}

// What a comparison found: so many equal cells, and whether the sides are the same.
__device__ __forceinline__ Judged judged_of(u32 equal, u32 cells, bool is_shape) {
    return {is_shape && equal == cells ? EQUAL : DIFFERS, equal | (is_shape ? SCORE_SHAPE : 0)};
}

// Compares a grid. A colour that no expected grid has is not equal to any.
__device__ __forceinline__ Judged compare_grid(const Machine &m, const Search &search, Word grid,
                                               const PairGrid &expected) {
    const u32 h = m.height(grid), w = m.width(grid);
    const bool is_shape = h == expected.h && w == expected.w, is_planes = m.block_class(grid) == OF_PLANES;
    if (!search.scores && !is_shape) {
        return {DIFFERS, 0};
    }
    const u32 both_h = min(h, expected.h), both_w = min(w, expected.w);
    u32 equal = 0;
    if (is_planes && expected.form == PAIR_PLANES) {
        const Planes got = planes_at(m, u32(grid)), wanted = expected.planes(search);
        u32 differs = 0;
#pragma unroll
        for (u32 plane = 0; plane < PLANES; plane += 1) {
            differs |= got.bits[plane] ^ wanted.bits[plane];
        }
        if (!search.scores) {
            return {any_lane(differs != 0) ? DIFFERS : EQUAL, 0};
        }
        const u32 cols = both_w == 0 ? 0 : ~0u >> (32 - both_w);
        equal = lane() < both_h ? u32(__popc(~differs & cols)) : 0;
    } else if (is_planes) {
        // The expected grid is larger, or has what is no colour.
        const Planes got = planes_at(m, u32(grid));
        const u8 *const from = expected.cells(search);
#pragma unroll 1
        for (u32 col = 0; col < both_w && lane() < both_h; col += 1) {
            equal += i32(got.code(col)) + COLOR_MIN == i32(from[lane() * expected.w + col]);
        }
    } else {
        const signed char *const cells = m.cells(grid);
        const u8 *const from = expected.cells(search);
        const Divider by_width(both_w);
#pragma unroll 1
        for (u32 at = lane(); at < both_h * both_w; at += LANES) {
            const u32 row = by_width.divide(at), col = at - row * both_w;
            equal += i32(cells[row * w + col]) == i32(from[row * expected.w + col]);
        }
    }
    return judged_of(u32(sum_of_warp(i32(equal))), h * w, is_shape);
}

// Compares rows of numbers with the expected grid, as Python compares tuples. What is no rows of numbers differs.
__device__ __noinline__ Judged compare_rows(const Machine &m, const Search &search, Value value,
                                            const PairGrid &expected) {
    const u32 tag = m.tag(value.kind);
    const bool is_pair = tag == PAIR;
    const u32 kinds[2] = {m.first(value.kind), is_pair ? m.second(value.kind) : m.first(value.kind)};
    if (!is_pair && tag != TUPLE || !is_row(m, kinds[0]) || !is_row(m, kinds[1])) {
        return {DIFFERS, 0};
    }
    const u8 *const from = expected.cells(search);
    const u32 h = is_pair ? 2 : m.count(value.word);
    bool is_shape = h == expected.h;
    i32 equal = 0;
#pragma unroll 1
    for (u32 row = 0; row < min(h, expected.h); row += 1) {
        const Word of = is_pair ? m.half(value.word, row) : m.element(value.word, row);
        const bool is_vector = m.tag(kinds[is_pair ? row : 0]) == VECTOR;
        const u32 w = is_vector ? (u32(of) == NO_VECTOR ? 0 : 2) : m.count(of);
        is_shape = is_shape && w == expected.w;
#pragma unroll 1
        for (u32 col = lane(); col < min(w, expected.w); col += LANES) {
            const i32 number = !is_vector ? number_of(m.element(of, col)) : col == 0 ? row_of(u32(of)) : col_of(u32(of));
            equal += number == i32(from[row * expected.w + col]);
        }
    }
    return judged_of(u32(sum_of_warp(equal)), expected.h * expected.w, is_shape);
}

// Puts the input of a pair into register 0. Values start at `start`.
__device__ __forceinline__ void load_input(Machine &m, Machine &machine, const Search &search, u32 start, u32 pair) {
    m.cap = search.arena_words & ~3u;
    m.top = start;
    m.error = FINE;
    m.frame = 0;
    const PairGrid input(search, 2 * pair);
    if (input.form == PAIR_CELLS) {
        load_grid(m, machine, search.cells, search.offsets[input.number], input.h, input.w);
        return;
    }
    if (input.form == PAIR_BAD) {
        m.fail(BAD_CELL);
    }
    const Word grid = new_planes(m, input.planes(search));
    m.registers()[0] = grid;
    __syncwarp();
}

// Compares what a program gave.
__device__ __forceinline__ Judged judged_outcome(const Machine &m, const Search &search, const Outcome &outcome,
                                                 const PairGrid &expected) {
    if (outcome.code != FINE) {
        return {outcome.code, 0};
    }
    return m.tag(outcome.result.kind) == GRID ? compare_grid(m, search, outcome.result.word, expected)
                                              : compare_rows(m, search, outcome.result, expected);
}

// Writes the verdict of an evaluation.
__device__ __forceinline__ void write_verdict(const Search &search, u32 evaluation, Judged judged) {
    if (lane() == 0) {
        search.statuses[evaluation] = u8(judged.status);
        if (search.scores) {
            search.scores[evaluation] = u16(judged.score);
        }
    }
}

// Prepares all programs and grids. `arena` has search.arena_words words.
__device__ __forceinline__ void prepare_all(const Search &search, u32 *arena, u32 warp, u32 warps) {
#pragma unroll 1
    for (u32 number = warp; number < 2 * search.pairs_count; number += warps) {
        prepare_grid(search, number);
    }
#pragma unroll 1
    for (u32 number = warp; number < search.programs_count; number += warps) {
        prepare(search.programs + search.program_offsets[number], search.images + search.image_offsets[number], arena,
                search.arena_words);
    }
}
