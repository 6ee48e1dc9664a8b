// Checkpoints of a program that runs: its registers and how much of the arena is used, before an instruction that lies
// outside of loops and branches. Values are never changed once they are made, so those below a checkpoint are still
// there when another program goes on at it.

#pragma once

#include "machine/search.cuh"

// How many programs of a run end before its warp looks whether the launch is to stop.
constexpr u32 RUN_LOOKS = 8;
// Once the programs of a run have taken so many steps, what is left of it is left to other warps.
constexpr u32 RUN_STEPS = 1 << 14;
// Words of a checkpoint before its registers: what is used of the arena, the steps, the instruction, and how many
// registers come before the first that instructions write.
constexpr u32 CHECKPOINT_HEAD = 4;

// Where the checkpoints of a warp lie.
struct Checkpoints {
    // In the arena, and words of registers in each.
    u32 start, registers;

    __device__ __forceinline__ u32 words() const { return CHECKPOINT_HEAD + registers; }
    __device__ __forceinline__ u32 at(u32 number) const { return start + number * words(); }

    // Keeps what is before an instruction.
    __device__ __forceinline__ void keep(const Machine &m, u32 number, u32 steps, u32 instruction, u32 fixed) const {
        // All lanes have written their registers.
        __syncwarp();
        put_quad(m, at(number), m.top, steps, instruction, fixed);
#pragma unroll 1
        for (u32 word = 4 * lane(); word < registers; word += 4 * LANES) {
            const uint4 four = quad(m, word);
            put_quad(m, at(number) + CHECKPOINT_HEAD + word, four.x, four.y, four.z, four.w);
        }
        __syncwarp();
    }

    // What lies before its registers.
    __device__ __forceinline__ uint4 head(const Machine &m, u32 number) const { return quad(m, at(number)); }

    // Goes back to a checkpoint: to its instruction and steps, with the input and the registers that instructions write.
    // The first of those is `fixed` now, of `count` in all.
    __device__ __forceinline__ void go_back(Machine &m, u32 number, u32 arena_words, u32 fixed, u32 count,
                                            Outcome &outcome) const {
        const uint4 from = head(m, number);
        outcome.steps = alike(from.y);
        outcome.instruction = alike(from.z);
        m.top = alike(from.x);
        // What failed may not have given back what it borrowed.
        m.cap = arena_words & ~3u;
        m.error = FINE;
        m.frame = 0;
        const Word *const values = reinterpret_cast<const Word *>(&m.mem[at(number) + CHECKPOINT_HEAD]);
        const u32 first = alike(from.w);
#pragma unroll 1
        for (u32 at = lane(); fixed + at < count && first + at < registers / 2; at += LANES) {
            m.registers()[fixed + at] = values[first + at];
        }
        m.registers()[0] = values[0];
        __syncwarp();
    }
};

// Whether a run ends before its next program because the launch is to stop.
__device__ __forceinline__ bool stops_before(const Search &search, u32 done) {
    return done % RUN_LOOKS == RUN_LOOKS - 1 && is_stopped(search.stop);
}
