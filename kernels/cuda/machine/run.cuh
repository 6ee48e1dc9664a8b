// Goes through the instructions of a program. Mirrors kernels/src/reference/machine/run.rs.

#pragma once

#include "machine/turns.cuh"

// The parts of a program's bytes: docs/src/design/machine.md. A header, then instructions, constants, kinds, and the
// kind of each register.
struct Program {
    const u64 *instructions;
    const u32 *constants;
    const u8 *kinds, *register_kinds;
    u32 ties, instruction_count, constant_count, register_count;

    __device__ explicit Program(const u8 *bytes) {
        const u32 *const head = reinterpret_cast<const u32 *>(bytes);
        ties = head[0] >> 8 & 0xff;
        instruction_count = head[0] >> 16;
        constant_count = head[1] & 0xffff;
        register_count = head[1] >> 16;
        const u32 kind_count = head[2] & 0xffff;
        instructions = reinterpret_cast<const u64 *>(bytes + 16);
        constants = reinterpret_cast<const u32 *>(instructions + instruction_count);
        kinds = reinterpret_cast<const u8 *>(constants + constant_count);
        register_kinds = kinds + 4 * kind_count;
    }
};

// The value in a register.
__device__ inline Value value_in(const Machine &m, u32 at) { return {m.registers()[at], m.register_kinds[at]}; }

// A tuple of registers, behind the elements of `before` if there are any.
__device__ __noinline__ Word tuple_of(Machine &m, const Instruction &instruction, bool has_before) {
    const u32 of_class = m.class_for(m.first(m.register_kinds[instruction.to]));
    const Word before = m.registers()[instruction.to];
    const u32 count = has_before ? m.count(before) : 0;
    const u32 list = m.open(of_class, count + instruction.immediate);
    if (m.error) {
        return 0;
    }
    if (has_before) {
        append(m, list, of_class, 0, before);
    }
    const u32 from[4] = {instruction.a, instruction.b, instruction.c, instruction.d};
#pragma unroll
    for (u32 at = 0; at < 4; at += 1) {
        if (at < instruction.immediate) {
            m.put(list, of_class, count + at, m.registers()[from[at]]);
        }
    }
    return close_list(m, list, of_class, count + instruction.immediate);
}

__device__ __noinline__ Word set_of(Machine &m, Value tuple) {
    const u32 of_class = m.block_class(tuple.word), count = m.count(tuple.word);
    // What ascends is a set already.
    if (ascends(m, u32(tuple.word), m.first(tuple.kind), of_class, count)) {
        return tuple.word;
    }
    const u32 list = m.open(of_class, count);
    if (m.error) {
        return 0;
    }
    append(m, list, of_class, 0, tuple.word);
    return close_set(m, list, m.first(tuple.kind), of_class, count);
}

// The value that an instruction computes.
__device__ inline Word computed_value(Machine &m, const Instruction &of) {
    const Value a = value_in(m, of.a), b = value_in(m, of.b);
    const Word c = m.registers()[of.c];
    const u32 op = of.op, kind = m.register_kinds[of.to];
    switch (op) {
    case OP_TUPLE:
    case OP_PUSH:
        return tuple_of(m, of, op == OP_PUSH);
    case OP_PAIR:
        return pair_of(m, a, b, kind);
    case OP_TOSET:
        return set_of(m, a);
    case OP_CONVERT:
        return converted(m, a, kind);
    case OP_SELECT:
        return is_true(a.word) ? b.word : c;
    case OP_ELSE:
    case OP_ENDIF:
        return a.word;
    case OP_ADD:
    case OP_SUBTRACT:
    case OP_MULTIPLY:
    case OP_DIVIDE:
    case OP_INVERT:
    case OP_DOUBLE:
    case OP_HALVE:
    case OP_INCREMENT:
    case OP_DECREMENT:
    case OP_CREMENT:
    case OP_SIGN:
        return arithmetic(m, op, op <= OP_DIVIDE, a.word, m.tag(a.kind), b.word, m.tag(b.kind));
    case OP_TOIVEC:
    case OP_TOJVEC: {
        const i32 number = needed_number(m, a.word);
        return m.error ? 0 : op == OP_TOIVEC ? to_vector(m, number, 0) : to_vector(m, 0, number);
    }
    case OP_INTERVAL:
        return interval(m, a.word, b.word, c);
    case OP_EQUALITY:
        // Blocks are compared by one lane: most differ soon.
        return of_flag(compare(m, a.kind, a.word, b.word) == 0);
    case OP_GREATER:
    case OP_EVEN:
    case OP_POSITIVE:
        return compared(m, op, a.word, b.word);
    case OP_FLIP:
        return of_flag(!is_true(a.word));
    case OP_BOTH:
        return is_true(a.word) ? b.word : a.word;
    case OP_EITHER:
        return is_true(a.word) ? a.word : b.word;
    case OP_HEIGHT:
    case OP_WIDTH:
    case OP_SHAPE:
    case OP_PORTRAIT:
    case OP_VLINE:
    case OP_HLINE:
        return sides_op(m, op, a);
    case OP_UPPERMOST:
    case OP_LOWERMOST:
    case OP_LEFTMOST:
    case OP_RIGHTMOST:
    case OP_ULCORNER:
    case OP_URCORNER:
    case OP_LLCORNER:
    case OP_LRCORNER:
        return frame_op(m, op, a.word);
    case OP_HMIRROR:
    case OP_VMIRROR:
    case OP_DMIRROR:
    case OP_CMIRROR:
        return mirror(m, op, a);
    case OP_REPLACE:
    case OP_SWITCH:
    case OP_FILL:
    case OP_PAINT:
    case OP_UNDERFILL:
    case OP_UNDERPAINT:
    case OP_COVER:
    case OP_MOVE:
        return paint_op(m, op, a.word, b.word, c);
    case OP_OBJECTS:
    case OP_PARTITION:
    case OP_FGPARTITION:
    case OP_FRONTIERS:
        return object_op(m, op, a.word, b.word, c, m.registers()[of.d], kind);
    default:
        break;
    }
    // The families follow each other in the table of primitives.
    return op < OP_MOSTCOLOR  ? container_op(m, op, a, b, kind)
           : op < OP_ASINDICES ? measure(m, op, a, b)
           : op < OP_ROT90     ? patch_op(m, op, a, b, kind)
                               : grid_op(m, op, a, b, c);
}

// How an item ended.
struct Outcome {
    // An Ending, the instruction that met it, and the steps that were run.
    u32 code, instruction, steps;
    Value result;
};

// Steps between two looks whether the launch is to stop.
constexpr u32 LOOK_EVERY = 256;

// Whether the host has set the word that stops the launch. All lanes go the way of the first.
__device__ inline bool is_stopped(const u32 *stop) {
    return stop && from_first(*static_cast<const volatile u32 *>(stop)) != 0;
}

// Runs a program over the grid in register 0.
__device__ inline Outcome run(Machine &m, const Program &program, u32 limit, const u32 *stop = nullptr) {
    Outcome outcome = {FINE, 0, 0, {0, 0}};
    u32 at = 0;
    // Steps after which to look at the limit and at `stop`.
    u32 look_at = 0;
#pragma unroll 1
    while (true) {
        // All lanes have done with the instruction before.
        __syncwarp();
        const Instruction instruction(program.instructions[at]);
        if (outcome.steps >= look_at) {
            if (outcome.steps == limit || is_stopped(stop)) {
                m.fail(outcome.steps == limit ? u32(STEP_LIMIT) : u32(STOPPED));
                break;
            }
            look_at = min(limit, outcome.steps + LOOK_EVERY);
        }
        outcome.steps += 1;
        const u32 op = instruction.op;
        if (op == OP_RETURN) {
            outcome.result = value_in(m, instruction.a);
            break;
        }
        if (op == OP_IF) {
            at = is_true(m.registers()[instruction.a]) ? at + 1 : instruction.immediate + 1;
            continue;
        }
        u32 next = at + 1;
        if (op >= OP_MAP && op <= OP_ITERATE) {
            const Instruction end(program.instructions[instruction.immediate]);
            next = begin_loop(m, instruction, at, end.a);
        } else if (op == OP_NEXT) {
            const Instruction begin(program.instructions[instruction.immediate]);
            next = next_turn(m, begin, instruction.immediate, instruction.a);
        } else if (op == OP_FAIL) {
            m.fail(instruction.immediate);
        } else {
            const Word word = computed_value(m, instruction);
            if (m.error == FINE) {
                m.registers()[instruction.to] = word;
                next = op == OP_ELSE ? instruction.immediate + 1 : next;
            }
        }
        if (m.error) {
            break;
        }
        at = next;
    }
    outcome.code = m.error;
    outcome.instruction = at;
    return outcome;
}
