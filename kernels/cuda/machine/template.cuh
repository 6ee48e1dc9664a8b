// The kernel that judges the programs of a template on many pairs. They differ in constants and opcodes alone.
//
// One warp runs neighbouring programs on a pair, one after the other. What comes before the first instruction that needs
// a hole is the same for all choices of this hole: before it the warp keeps a checkpoint, registers and how much of the
// arena is used, and the next program goes on at the checkpoint of the slowest hole that has changed. Values are never
// changed once they are made, so those below a checkpoint are still there. Steps count as if each program ran alone.
// Once the host has set the word that stops a launch, a warp ends within RUN_LOOKS programs.
//
// Holes are numbered from the one that changes first, which is needed last. `holes` has 8 words for each behind 8 for
// all, then what these name:
//
//   all    how many holes there are
//   hole   the instruction that needs it first, outside of loops and branches; choices; places; 1 if they are opcodes;
//          where its choices are in `holes`, in words; where its places are; the first place
//
// A choice of a constant is the word of its registers, one of an opcode the number of the program that has it; a place is
// a register or an instruction.

#pragma once

#include "machine/checkpoint.cuh"

constexpr u32 HOLE_WORDS = 8;
// The holes of a template. Each lane has one.
struct Holes {
    u32 count;
    // The lane's own: which choice, of how many, and the instruction that needs it first.
    u32 choice, choices, needed;

    // The number of the first program of a run.
    __device__ __forceinline__ Holes(const u32 *holes, u64 number) {
        count = alike(holes[0]);
        const bool has = lane() < count;
        const u32 *const own = holes + HOLE_WORDS * (1 + (has ? lane() : 0));
        needed = own[0];
        choices = own[1];
        choice = 0;
#pragma unroll 1
        for (u32 hole = 0; hole < count; hole += 1) {
            const u32 of = __shfl_sync(ALL_LANES, choices, hole);
            const u32 rest = u32(number % of);
            number /= of;
            choice = lane() == hole ? rest : choice;
        }
    }

    // Goes to the next program. Returns the slowest hole that has changed.
    __device__ __forceinline__ u32 next() {
        const u32 last = __ballot_sync(ALL_LANES, lane() < count && choice + 1 == choices);
        const u32 changed = u32(__ffs(i32(~last))) - 1;
        choice = lane() < changed ? 0 : lane() == changed ? choice + 1 : choice;
        return changed;
    }

    __device__ __forceinline__ u32 choice_of(u32 hole) const { return alike(__shfl_sync(ALL_LANES, choice, hole)); }
    __device__ __forceinline__ u32 needed_by(u32 hole) const { return alike(__shfl_sync(ALL_LANES, needed, hole)); }
};

// Writes a choice of a hole to its places.
__device__ __forceinline__ void choose(const Machine &m, const Search &search, u32 hole, u32 choice) {
    const uint4 *const of = reinterpret_cast<const uint4 *>(search.holes + HOLE_WORDS * (1 + hole));
    const uint4 head = of[0], tail = of[1];
    const u32 places = alike(head.z), chosen = search.holes[tail.x + choice];
    const bool is_opcode = alike(head.w) != 0;
    const uint4 *const image = reinterpret_cast<const uint4 *>(search.images + search.image_offsets[is_opcode ? chosen : 0]);
#pragma unroll 1
    for (u32 at = lane(); at < places; at += LANES) {
        const u32 to = at == 0 ? tail.z : search.holes[tail.y + at];
        if (is_opcode) {
            const u32 place = m.code + 4 * to;
            const uint4 four = image[(IMAGE_HEAD + place) / 4];
            put_quad(m, place, four.x, four.y, four.z, four.w);
        } else {
            m.registers()[to] = Word(chosen);
        }
    }
    __syncwarp();
}

// Judges `many` programs from `number` on, of those of the launch, on a pair. Values start at `start`.
__device__ __forceinline__ void judge_run(Machine &m, Machine &machine, const Search &search, u32 limit, u32 start,
                                          u32 registers, u32 pair, u32 number, u32 many) {
    Holes holes(search.holes, search.first + number);
    const Checkpoints kept = {start, whole(2 * registers)};
    const PairGrid expected(search, 2 * pair + 1);
    // The fastest hole whose checkpoint is there: what a program made of the slower ones holds for all the others.
    u32 there = holes.count, spent = 0;
    Judged judged = {MISSING_OUTPUT, 0};
#pragma unroll 1
    for (u32 done = 0; done < many; done += 1) {
        u32 hole = done == 0 ? holes.count : holes.next();
        if (stops_before(search, done)) {
            return;
        }
        if (spent > RUN_STEPS) {
            judged = {NEEDS_MEMORY, 0};
        } else if (expected.h * expected.w != 0 && (done == 0 || hole >= there)) {
            Outcome outcome = {FINE, 0, 0, {0, 0}};
            if (done == 0) {
                load_input(m, machine, search, start + holes.count * kept.words(), pair);
            } else {
                kept.go_back(m, hole, search.arena_words, 1, registers, outcome);
            }
            spent -= outcome.steps;
#pragma unroll 1
            while (true) {
                if (hole < holes.count) {
                    choose(m, search, hole, holes.choice_of(hole));
                }
                const u32 until = hole == 0 ? NO_PLACE : holes.needed_by(hole - 1);
                go_on<true>(m, machine, limit, search.stop, LOOK_EVERY, until, outcome);
                if (hole == 0 || m.error) {
                    break;
                }
                hole -= 1;
                kept.keep(m, hole, outcome.steps, until, 1);
            }
            spent += outcome.steps;
            there = hole;
            judged = judged_outcome(m, search, outcome, expected);
        }
        if (judged.status == STOPPED) {
            return;
        }
        write_verdict(search, (number + done) * search.pairs_count + pair, judged);
    }
}

// Makes evaluations until there are no more. `arena` has search.arena_words words.
__device__ __forceinline__ void judge_template(const Search &search, u32 *arena) {
    const u8 *const bytes = search.programs;
#pragma unroll 1
    while (true) {
        const u32 at = next_of_queue(search.queue, search.evaluations_count, search.stop);
        if (at >= search.evaluations_count) {
            return;
        }
        // One evaluation, or a run of programs on a pair.
        const u32 of = search.evaluations ? search.evaluations[at] : at;
        u32 number = of / search.pairs_count, many = 1;
        const u32 pair = of - number * search.pairs_count;
        if (!search.evaluations) {
            number *= search.run_length;
            many = min(search.run_length, search.expanded_count - number);
        }
        Machine machine = {};
        machine.mem = arena;
        const u32 loaded = put_prepared(machine, search.images, bytes, search.arena_words);
        Machine m = in_registers(machine);
        const u32 *const head = reinterpret_cast<const u32 *>(bytes);
        if (m.error) {
#pragma unroll 1
            for (u32 one = 0; one < many; one += 1) {
                write_verdict(search, (number + one) * search.pairs_count + pair, {m.error, 0});
            }
        } else {
            judge_run(m, machine, search, head[3], alike(loaded), head[1] >> 16, pair, number, many);
        }
        __syncwarp();
    }
}
