// A program in the arena: what its bytes say, prepared for the lanes.

#pragma once

#include "machine/lanes.cuh"

// The parts of a program's bytes: docs/src/design/machine.md. A header, then instructions, constants, kinds, and the
// kind of each register.
struct Program {
    const u64 *instructions;
    const u32 *constants;
    const u32 *kinds;
    const u8 *register_kinds;
    u32 ties, instruction_count, constant_count, register_count, kind_count;

    __device__ explicit Program(const u8 *bytes) {
        const u32 *const head = reinterpret_cast<const u32 *>(bytes);
        ties = head[0] >> 8 & 0xff;
        instruction_count = head[0] >> 16;
        constant_count = head[1] & 0xffff;
        register_count = head[1] >> 16;
        kind_count = head[2] & 0xffff;
        instructions = reinterpret_cast<const u64 *>(bytes + 16);
        constants = reinterpret_cast<const u32 *>(instructions + instruction_count);
        kinds = constants + constant_count;
        register_kinds = reinterpret_cast<const u8 *>(kinds + kind_count);
    }
};

// A loop's body may have as many instructions to run an element a lane: slots have five bits.
constexpr u32 LANES_BODY_MAX = 24;

// Whether the body of the loop at `at` can run an element a lane. If so the loop gets the form IN_LANES, and each
// instruction of the body, which has no immediate, the slots of a, b and c: 1 and 2 are the elements, 3 and on what the
// body's instructions made, 0 is a register. That of the body's value is in d of `next`. For one lane.
__device__ __noinline__ void prepare_lanes(const Machine &m, u32 at) {
    const Instruction begin = instruction_at(m, at);
    const u32 body = begin.immediate - at - 1, value = instruction_at(m, begin.immediate).a;
    bool can = body <= LANES_BODY_MAX && m.tag(m.kind_in(value)) < GRID;
    can = can && !(is_key_loop(begin.op) && m.tag(m.kind_in(value)) > NUMBER);
#pragma unroll 1
    for (u32 step = 0; step < body && can; step += 1) {
        const Instruction of = instruction_at(m, at + 1 + step);
        can = is_lane_op(of.op) && of.tag_to < GRID && !(of.form & QUICK);
    }
    if (!can) {
        return;
    }
    const auto slot_of = [&](u32 in, u32 end) {
        u32 slot = in == begin.c ? 1 : begin.op == OP_ZIP && in == begin.d ? 2 : 0;
#pragma unroll 1
        for (u32 step = 0; step < end; step += 1) {
            slot = instruction_at(m, at + 1 + step).to == in ? 3 + step : slot;
        }
        return slot;
    };
#pragma unroll 1
    for (u32 step = 0; step < body; step += 1) {
        const Instruction of = instruction_at(m, at + 1 + step);
        const u32 slots = slot_of(of.a, step) | slot_of(of.b, step) << 5 | slot_of(of.c, step) << 10;
        m.mem[m.code + 4 * (at + 1 + step) + 1] = of.c | of.d << 8 | slots << 16;
    }
    m.mem[m.code + 4 * begin.immediate + 1] |= slot_of(value, body) << 8;
    m.mem[m.code + 4 * at + 3] |= IN_LANES << 16;
}

// Puts a program into an arena of `cap` words, behind its registers. Returns where values may start; NEEDS_MEMORY if it
// does not fit.
__device__ __noinline__ u32 load_program(Machine &m, const Program &program, u32 cap) {
    m.cap = cap & ~3u;
    m.top = 0;
    m.error = FINE;
    m.frame = 0;
    m.ties = program.ties;
    m.take(2 * program.register_count);
    m.code = m.take(4 * program.instruction_count);
    m.kinds = m.take(program.kind_count);
    m.register_kinds = 4 * m.take((program.register_count + 3) / 4);
    if (m.error) {
        return 0;
    }
#pragma unroll 1
    for (u32 at = lane(); at < program.kind_count; at += LANES) {
        m.mem[m.kinds + at] = program.kinds[at];
    }
#pragma unroll 1
    for (u32 at = lane(); at < program.register_count; at += LANES) {
        reinterpret_cast<u8 *>(&m.mem[0])[m.register_kinds + at] = program.register_kinds[at];
    }
    __syncwarp();
#pragma unroll 1
    for (u32 at = lane(); at < program.instruction_count; at += LANES) {
        const u64 bits = program.instructions[at];
        const u32 op = u32(bits) & 0xff, to = u32(bits) >> 8 & 0xff;
        u32 kinds[3], tags[3], of_elements[3];
#pragma unroll
        for (u32 operand = 0; operand < 3; operand += 1) {
            kinds[operand] = m.kind_in(u32(bits >> (16 + 8 * operand)) & 0xff);
            tags[operand] = m.tag(kinds[operand]);
            of_elements[operand] = tags[operand] >= PAIR ? m.tag(m.first(kinds[operand])) : u32(NEVER);
        }
        const u32 kind = m.kind_in(to), element = m.first(kinds[0]);
        const u32 deep = tags[0] >= SET && of_elements[0] >= PAIR ? m.tag(m.first(element)) : u32(NEVER);
        const u32 form = form_of(op, tags, of_elements, deep, m.tag(kind));
        // The registers of the grids and patches that a quick op loads. It has no immediate.
        const auto chosen = [&](u32 field) {
            const u32 which = form >> 2 * field & 3;
            return which == 0 ? 0 : u32(bits >> (8 + 8 * which)) & 0xff;
        };
        const u32 firsts = form & QUICK ? chosen(0) | chosen(2) << 8 : 0, second = chosen(1) | chosen(3);
        put_quad(m, m.code + 4 * at, u32(bits), u32(bits >> 32) | firsts << 16,
                 kind | kinds[0] << 8 | kinds[1] << 16 | (form & QUICK ? second : 0) << 24,
                 m.tag(kind) | tags[0] << 4 | tags[1] << 8 | deep << 12 | form << 16);
    }
    __syncwarp();
#pragma unroll 1
    for (u32 at = lane(); at < program.instruction_count; at += LANES) {
        const u32 op = m.mem[m.code + 4 * at] & 0xff;
        if (op >= OP_MAP && op < OP_ITERATE && op != OP_PAIRS) {
            prepare_lanes(m, at);
        }
    }
    __syncwarp();
    return m.top;
}

// The constants of a program, in their registers.
__device__ inline void load_constants(const Machine &m, const Program &program) {
#pragma unroll 1
    for (u32 at = lane(); at < program.constant_count; at += LANES) {
        const u32 word = program.constants[at];
        m.registers()[at + 1] = m.tag(m.kind_in(at + 1)) == VECTOR
                                    ? Word(of_vector(i32(i16(word & 0xffff)), i32(i16(word >> 16))))
                                    : of_number(i32(word));
    }
}
