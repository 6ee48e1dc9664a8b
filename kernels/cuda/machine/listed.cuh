// The kernel that judges listed programs on many pairs.
//
// Programs that begin alike stand beside each other. One warp runs some of them, a run, on a pair, one after the other.
// Each goes on at the last checkpoint that lies in what it has in common with the one before: the same instructions on
// the same registers, but for the number of constants, which come first. So a common start runs once. Steps and errors are
// those of each program alone.

#pragma once

#include "machine/checkpoint.cuh"

// Most programs of a run: a lane looks at each.
constexpr u32 RUN_MAX = LANES;
// Words of the arena for checkpoints, and most checkpoints.
constexpr u32 CHECKPOINTS_WORDS = 256, CHECKPOINTS_MAX = 4;

// A run: `many` programs from `first` on in the order of the launch, or, if that is NO_RUN, the one that is named.
constexpr u32 NO_RUN = ~0u;

struct Run {
    u32 first, many, named;

    __device__ __forceinline__ u32 program(const Search &search, u32 at) const {
        return first == NO_RUN ? named : alike(search.order[first + at]);
    }

    // Instructions that the program has in common with the one before; the first has none.
    __device__ __forceinline__ u32 common(const Search &search, u32 at) const {
        return at == 0 ? 0 : alike(search.shared[first + at]);
    }

    // The next place behind instruction `done` to keep for those behind program `at`: the least of what all up to one of
    // them have in common with it. If only one checkpoint is left it is for the next program. NO_PLACE if there is none.
    __device__ __forceinline__ u32 next_place(const Search &search, u32 at, u32 done, bool is_last) const {
        const bool asked = lane() > at && lane() < (is_last ? min(at + 2, many) : many);
        u32 place = asked ? search.shared[first + lane()] : NO_PLACE;
#pragma unroll
        for (u32 by = 1; by < LANES; by *= 2) {
            const u32 before = __shfl_up_sync(ALL_LANES, place, by);
            place = lane() >= by ? min(place, before) : place;
        }
        return least(place > done ? place : NO_PLACE);
    }
};

// Judges the programs of a run on a pair that has an output.
__device__ __forceinline__ void judge_listed(const Search &search, u32 *arena, const Run &run, u32 pair) {
    // Values start behind the largest program and the checkpoints.
    u32 words = 0, registers = 0;
    if (run.many > 1 && lane() < run.many) {
        const u32 number = search.order[run.first + lane()];
        words = search.images[search.image_offsets[number]];
        const u32 *const head = reinterpret_cast<const u32 *>(search.programs + search.program_offsets[number]);
        registers = whole(2 * (head[1] >> 16));
    }
    // One that did not fit shares nothing, nor do those with it.
    const bool shares = run.many > 1 && !any_lane(lane() < run.many && words == 0);
    const Checkpoints kept = {most(words), most(registers)};
    const u32 room = shares ? min(CHECKPOINTS_WORDS / kept.words(), CHECKPOINTS_MAX) : 0;
    u32 checkpoints = 0, ended = 0, spent = 0;
    Judged judged = {FINE, 0};
#pragma unroll 1
    for (u32 done = 0; done < run.many; done += 1) {
        const u32 number = run.program(search, done), common = shares ? run.common(search, done) : 0;
        if (stops_before(search, done)) {
            return;
        }
        if (spent > RUN_STEPS) {
            judged = {NEEDS_MEMORY, 0};
        } else if (done == 0 || ended >= common) {
            // If the one before ended in what they have in common, so does this one.
            const u8 *const bytes = search.programs + search.program_offsets[number];
            Machine machine = {};
            machine.mem = arena;
            const u32 loaded = put_prepared(machine, search.images + search.image_offsets[number], bytes,
                                            search.arena_words);
            Machine m = in_registers(machine);
            // Constants and registers, and the limit of steps.
            const u32 *const head = reinterpret_cast<const u32 *>(bytes);
            const u32 fixed = 1 + alike(head[1] & 0xffff);
            Outcome outcome = {m.error, 0, 0, {0, 0}};
            while (checkpoints > 0 && alike(kept.head(m, checkpoints - 1).z) > common) {
                checkpoints -= 1;
            }
            if (checkpoints > 0) {
                kept.go_back(m, checkpoints - 1, search.arena_words, fixed, head[1] >> 16, outcome);
            } else if (m.error == FINE) {
                load_input(m, machine, search, shares ? kept.at(room) : alike(loaded), pair);
                outcome.code = m.error;
            }
            spent -= outcome.steps;
#pragma unroll 1
            while (m.error == FINE) {
                const bool is_last = checkpoints + 1 == room;
                const u32 until =
                    checkpoints < room ? run.next_place(search, done, outcome.instruction, is_last) : NO_PLACE;
                go_on<true>(m, machine, alike(head[3]), search.stop, LOOK_EVERY, until, outcome);
                if (m.error || outcome.instruction != until) {
                    break;
                }
                kept.keep(m, checkpoints, outcome.steps, until, fixed);
                checkpoints += 1;
            }
            spent += outcome.steps;
            ended = m.error ? outcome.instruction : NO_PLACE;
            judged = judged_outcome(m, search, outcome, PairGrid(search, 2 * pair + 1));
        }
        if (judged.status == STOPPED) {
            return;
        }
        write_verdict(search, number * search.pairs_count + pair, judged);
        __syncwarp();
    }
}

// Makes evaluations until there are no more. `arena` has search.arena_words words.
__device__ __forceinline__ void judge_all(const Search &search, u32 *arena) {
#pragma unroll 1
    while (true) {
        const u32 at = next_of_queue(search.queue, search.evaluations_count, search.stop);
        if (at >= search.evaluations_count) {
            return;
        }
        const u32 of = alike(search.evaluations ? search.evaluations[at] : at);
        const u32 number = of / search.pairs_count, pair = of - number * search.pairs_count;
        Run run = {NO_RUN, 1, number};
        if (!search.evaluations && search.runs) {
            const u32 first = alike(search.runs[number]);
            run = {first, alike(search.runs[number + 1]) - first, 0};
        } else if (!search.evaluations && search.order) {
            run.named = alike(search.order[number]);
        }
        const PairGrid expected(search, 2 * pair + 1);
        if (expected.h * expected.w != 0) {
            judge_listed(search, arena, run, pair);
        } else {
#pragma unroll 1
            for (u32 done = 0; done < run.many; done += 1) {
                write_verdict(search, run.program(search, done) * search.pairs_count + pair, {MISSING_OUTPUT, 0});
            }
        }
        __syncwarp();
    }
}
