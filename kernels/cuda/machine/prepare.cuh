// What a program is before it runs, made once: an image of the part of the arena that holds it. Each evaluation copies
// it into its arena, which takes a hundredth of the time of making it.
//
// An image starts with four words: the words of the arena that it has, or 0 if they did not fit; where the code and the
// kinds start, 16 bits each; where the kinds of registers start, and the ties; 0. image_words of kernels/src/solve.rs
// says how large it is.

#pragma once

#include "machine/solve.cuh"

constexpr u32 IMAGE_HEAD = 4;

__device__ __forceinline__ void prepare(const u8 *bytes, u32 *image, u32 *arena, u32 arena_words) {
    const Program program(bytes);
    Machine machine = {};
    machine.mem = arena;
    const u32 loaded = load_program(machine, program, arena_words);
    const Machine m = in_registers(machine);
    const u32 words = m.error ? 0 : alike(loaded);
    if (words > 0) {
        load_constants(m, program);
    }
    __syncwarp();
    uint4 *const to = reinterpret_cast<uint4 *>(image);
#pragma unroll 1
    for (u32 at = lane(); 4 * at < words; at += LANES) {
        to[1 + at] = quad(m, 4 * at);
    }
    if (lane() == 0) {
        uint4 head;
        head.x = words;
        head.y = m.code | m.kinds << 16;
        head.z = m.register_kinds | m.ties << 16;
        head.w = 0;
        to[0] = head;
    }
    __syncwarp();
}

// Puts a program into the arena: its image, or what `bytes` say if there was no room for one. Returns where values may
// start.
__device__ __forceinline__ u32 put_prepared(Machine &m, const u32 *image, const u8 *bytes, u32 arena_words) {
    const uint4 *const from = reinterpret_cast<const uint4 *>(image);
    const uint4 head = from[0];
    const u32 words = alike(head.x);
    if (words == 0) {
#ifdef GP_SHARED_ARENA
        m.fail(NEEDS_MEMORY);
        return 0;
#else
        const Program program(bytes);
        const u32 start = load_program(m, program, arena_words);
        together();
        if (m.error == FINE) {
            load_constants(m, program);
        }
        return start;
#endif
    }
    m.ties = head.z >> 16;
    m.code = head.y & 0xffff;
    m.kinds = head.y >> 16;
    m.register_kinds = head.z & 0xffff;
#pragma unroll 1
    for (u32 at = lane(); 4 * at < words; at += LANES) {
        const uint4 four = from[1 + at];
        put_quad(m, 4 * at, four.x, four.y, four.z, four.w);
    }
    __syncwarp();
    return words;
}
