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
    // Whether only those of all items run that an earlier launch left for want of memory, as their status says.
    u32 again;
};

static_assert(sizeof(Solve) == 136, "SolveArgument of kernels/src/solve.rs has this size");

// Copies a grid of h rows and w columns, whose cells start at byte `start` of `from`, into register 0. BAD_CELL if a
// cell is no colour. `from` is at a multiple of four.
__device__ __forceinline__ void load_grid(Machine &m, Machine &machine, const u8 *from, u32 start, u32 h, u32 w) {
    bool bad = false;
    if (h <= BOARD_SIDE && w <= BOARD_SIDE) {
        const Planes planes = read_planes(reinterpret_cast<const u32 *>(from), start, h, w, ITEM_COLOR_MAX, bad);
        if (any_lane(bad)) {
            m.fail(BAD_CELL);
        }
        const Word grid = new_planes(m, planes);
        m.registers()[0] = grid;
        __syncwarp();
        return;
    }
    hand_over(m, machine);
    const u32 grid = machine.open_grid(h, w);
    take_back(machine, m);
    if (m.error) {
        return;
    }
    u8 *const to = reinterpret_cast<u8 *>(m.cells(grid));
#pragma unroll 1
    for (u32 at = lane(); at < h * w; at += LANES) {
        const u8 cell = from[start + at];
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
__device__ __forceinline__ void store(const Machine &m, const Machine &machine, const Solve &solve, u32 item,
                                      Outcome &outcome) {
    u32 length = 0;
    const Value result = outcome.result;
    const bool is_grid = solve.out_shapes != nullptr;
    if (is_grid) {
        length = m.count(result.word);
        bool bad = false;
        if (m.block_class(result.word) == OF_PLANES) {
            // Codes below 2 and above 11.
            const Planes grid = planes_at(m, u32(result.word));
            const u32 low = ~grid.bits[3] & ~grid.bits[2] & ~grid.bits[1], high = grid.bits[3] & grid.bits[2];
            bad = ((low | high) & grid.valid()) != 0;
        } else {
#pragma unroll 1
            for (u32 at = lane(); at < length; at += LANES) {
                bad |= u32(i32(m.cells(result.word)[at])) > u32(ITEM_COLOR_MAX);
            }
        }
        outcome.code = any_lane(bad) ? u32(OVERFLOW) : outcome.code;
    } else {
        length = written_value(machine, result, nullptr);
        together();
        length = alike(length);
        outcome.code = length > RESULT_BYTES_MAX ? u32(OVERFLOW) : outcome.code;
    }
    if (outcome.code != FINE) {
        return;
    }
    u32 start = 0;
    if (lane() == 0 && length > 0) {
        start = atomicAdd(solve.used, length);
    }
    start = alike(start);
    // Items that do not fit let the counter pass the end, but not 2^32: a chunk has less than 2^16 results of at most
    // 2^16 bytes.
    if (start > solve.results_max || length > solve.results_max - start) {
        outcome.code = NEEDS_ROOM;
        return;
    }
    if (is_grid) {
        if (m.block_class(result.word) == OF_PLANES) {
            write_planes(planes_at(m, u32(result.word)), solve.results + start);
        } else {
#pragma unroll 1
            for (u32 at = lane(); at < length; at += LANES) {
                solve.results[start + at] = u8(m.cells(result.word)[at]);
            }
        }
        if (lane() == 0) {
            solve.out_shapes[2 * item] = u8(m.height(result.word));
            solve.out_shapes[2 * item + 1] = u8(m.width(result.word));
        }
    } else {
        written_value(machine, result, solve.results + start);
        together();
    }
    if (lane() == 0) {
        solve.places[item] = solve.place_base + start;
        solve.lengths[item] = length;
    }
}

// The first place of an item to run from `at` on, for a warp that runs every `warps`th.
__device__ __forceinline__ u32 next_place(const Solve &solve, u32 at, u32 warps) {
    if (!solve.again) {
        return at;
    }
#pragma unroll 1
    for (; at < solve.items_count; at += LANES * warps) {
        const u32 own = at + lane() * warps;
        const bool is_left = own < solve.items_count && (solve.status[own] & 0xff) == NEEDS_MEMORY;
        const u32 left = __ballot_sync(ALL_LANES, is_left);
        if (left != 0) {
            return at + (__ffs(left) - 1) * warps;
        }
    }
    return at;
}

// `arena` has solve.arena_words words.
__device__ __forceinline__ void solve_items(const Solve &solve, u32 *arena, u32 warp, u32 warps) {
    const u32 first = next_place(solve, warp, warps);
    if (first >= solve.items_count) {
        return;
    }
    const Program program(solve.program);
    Machine machine = {};
    machine.mem = arena;
    const u32 loaded = load_program(machine, program, solve.arena_words);
    Machine m = in_registers(machine);
    const u32 start = alike(loaded), unfit = m.error;
    if (!unfit) {
        load_constants(m, program);
        __syncwarp();
    }
#pragma unroll 1
    for (u32 at = first; at < solve.items_count; at = next_place(solve, at + warps, warps)) {
        const u32 item = solve.items ? solve.items[at] : at;
        // Read before the grid, so that the warp waits for both at once.
        const u32 stop = static_cast<const volatile u32 *>(solve.used)[1];
        m.cap = solve.arena_words & ~3u;
        m.top = start;
        m.error = unfit;
        m.frame = 0;
        if (!m.error) {
            load_grid(m, machine, solve.cells, solve.offsets[item] - solve.offsets[0], solve.shapes[2 * item],
                      solve.shapes[2 * item + 1]);
        }
        if (alike(stop) != 0) {
            m.fail(STOPPED);
        }
        Outcome outcome = {m.error, NO_INSTRUCTION, 0, {0, 0}};
        if (m.error == FINE) {
            outcome = run(m, machine, solve.steps_max, solve.used + 1, LOOK_EVERY);
            if (outcome.code == FINE) {
                store(m, machine, solve, item, outcome);
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
