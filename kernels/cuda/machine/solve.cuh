// The kernel that runs a solver over the grids of a chunk.
//
// One warp serves an item after the other; a block is one warp, so that the compiler knows that all of it goes one way.
// An item whose values do not fit the warp's arena, or whose result does not fit behind the others, is left for another
// launch: the host looks for NEEDS_MEMORY and NEEDS_ROOM.

#pragma once

#include "machine/results.cuh"

// Highest colour of a cell of an item and of a result that is a grid, as in protocol/src/limits.rs.
constexpr i32 ITEM_COLOR_MAX = 9;
constexpr u32 NO_INSTRUCTION = 0;
constexpr u32 NO_OP = 255;

// The argument of the kernel; mirrored by SolveArgument of kernels/src/solve.rs.
struct Solve {
    // The program's bytes, at a multiple of 8.
    const u8 *program;
    // Rows and columns of each grid, where its cells start, and all cells.
    const u8 *shapes;
    const u32 *offsets;
    const u8 *cells;
    // The items to run; null for all.
    const u32 *items;
    // Code and op, and the instruction that failed, of each item.
    u16 *status;
    u32 *instructions;
    // Rows and columns of each result that is a grid; else null.
    u8 *out_shapes;
    // Where each result starts in `results` and its length, and how much of it is used; behind that a word that the
    // host sets to stop the launch.
    u32 *places, *lengths;
    u8 *results;
    u32 *used;
    // Steps of each item; null if nobody asks.
    u32 *steps;
    // The arenas of all warps.
    u32 *arenas;
    // Items that this launch runs; 0 for a launch that only loads the kernel.
    u32 items_count;
    u32 arena_words;
    u32 steps_max;
    u32 results_max;
    // Added to each place.
    u32 place_base;
    u32 unused;
};

static_assert(sizeof(Solve) == 136, "SolveArgument of kernels/src/solve.rs has this size");

// Copies an item's grid into register 0. BAD_CELL if a cell is no colour.
__device__ inline void load_grid(Machine &m, const Solve &solve, u32 item) {
    const u32 h = solve.shapes[2 * item], w = solve.shapes[2 * item + 1];
    const u32 grid = m.open_grid(h, w);
    if (m.error) {
        return;
    }
    const u8 *const from = solve.cells + (solve.offsets[item] - solve.offsets[0]);
    u8 *const to = reinterpret_cast<u8 *>(m.cells(grid));
    bool bad = false;
#pragma unroll 1
    for (u32 at = lane(); at < h * w; at += LANES) {
        const u8 cell = from[at];
        bad |= cell > ITEM_COLOR_MAX;
        to[at] = cell;
    }
    if (any_lane(bad)) {
        m.fail(BAD_CELL);
    }
    m.registers()[0] = grid;
    __syncwarp();
}

// Writes a result behind the others. The status of an item whose result is a grid with other colours is OVERFLOW.
__device__ inline void store(Machine &m, const Solve &solve, u32 item, Outcome &outcome) {
    Bytes bytes = {nullptr, 0};
    const Value result = outcome.result;
    const bool is_grid = solve.out_shapes != nullptr;
    if (is_grid) {
        bytes.count = m.count(result.word);
        bool bad = false;
#pragma unroll 1
        for (u32 at = lane(); at < bytes.count; at += LANES) {
            bad |= u32(i32(m.cells(result.word)[at])) > u32(ITEM_COLOR_MAX);
        }
        outcome.code = any_lane(bad) ? u32(OVERFLOW) : outcome.code;
    } else {
        write_value(m, result, bytes);
        outcome.code = bytes.count > RESULT_BYTES_MAX ? u32(OVERFLOW) : outcome.code;
    }
    if (outcome.code != FINE) {
        return;
    }
    u32 start = 0;
    if (lane() == 0 && bytes.count > 0) {
        start = atomicAdd(solve.used, bytes.count);
    }
    start = from_first(start);
    // Items that do not fit let the counter pass the end, but not 2^32: a chunk has less than 2^16 results of at most
    // 2^16 bytes.
    if (start > solve.results_max || bytes.count > solve.results_max - start) {
        outcome.code = NEEDS_ROOM;
        return;
    }
    if (is_grid) {
#pragma unroll 1
        for (u32 at = lane(); at < bytes.count; at += LANES) {
            solve.results[start + at] = u8(m.cells(result.word)[at]);
        }
        if (lane() == 0) {
            solve.out_shapes[2 * item] = u8(m.height(result.word));
            solve.out_shapes[2 * item + 1] = u8(m.width(result.word));
        }
    } else {
        const u32 length = bytes.count;
        bytes = {solve.results + start, 0};
        write_value(m, result, bytes);
        bytes.count = length;
    }
    if (lane() == 0) {
        solve.places[item] = solve.place_base + start;
        solve.lengths[item] = bytes.count;
    }
}

// `arena` has solve.arena_words words.
__device__ inline void solve_items(const Solve &solve, u32 *arena, u32 warp, u32 warps) {
    if (solve.items_count == 0) {
        return;
    }
    const Program program(solve.program);
    Machine m = {};
    m.mem = arena;
    m.ties = program.ties;
    m.kinds = program.kinds;
    m.register_kinds = program.register_kinds;
#pragma unroll 1
    for (u32 at = warp; at < solve.items_count; at += warps) {
        const u32 item = solve.items ? solve.items[at] : at;
        m.cap = solve.arena_words & ~1u;
        m.top = 2 * program.register_count;
        m.error = FINE;
        m.frame = 0;
#pragma unroll 1
        for (u32 constant = lane(); constant < program.constant_count; constant += LANES) {
            const u32 word = program.constants[constant];
            const u32 kind = program.register_kinds[constant + 1];
            m.registers()[constant + 1] =
                m.tag(kind) == VECTOR ? Word(of_vector(i32(i16(word & 0xffff)), i32(i16(word >> 16))))
                                      : of_number(i32(word));
        }
        load_grid(m, solve, item);
        Outcome outcome = {m.error, NO_INSTRUCTION, 0, {0, 0}};
        if (m.error == FINE) {
            outcome = run(m, program, solve.steps_max, solve.used + 1);
            if (outcome.code == FINE) {
                store(m, solve, item, outcome);
            }
        }
        if (lane() == 0) {
            const bool failed = outcome.code != FINE;
            solve.status[item] = u16(outcome.code | (outcome.code == BAD_CELL ? NO_OP << 8 : 0));
            solve.instructions[item] = failed ? outcome.instruction : 0;
            if (failed) {
                solve.places[item] = solve.place_base;
                solve.lengths[item] = 0;
                if (solve.out_shapes) {
                    solve.out_shapes[2 * item] = 0;
                    solve.out_shapes[2 * item + 1] = 0;
                }
            }
            if (solve.steps) {
                solve.steps[item] = outcome.steps;
            }
        }
        __syncwarp();
    }
}
