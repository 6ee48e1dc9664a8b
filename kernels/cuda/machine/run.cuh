// Goes through the instructions of a program. Mirrors kernels/src/reference/machine/run.rs.

#pragma once

#include "machine/loops.cuh"

// The value in a register.
__device__ inline Value value_in(const Machine &m, u32 at) { return {m.registers()[at], m.kind_in(at)}; }

// A tuple of registers, behind the elements of `before` if there are any.
__device__ __noinline__ Word tuple_of(Machine &m, const Instruction &instruction, bool has_before) {
    const u32 of_class = m.class_for(m.first(instruction.kind_to));
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

// The operands that an op's functions want as lists and cells: 1 for a, 2 for b, 4 for c.
__device__ inline u32 old_operands(u32 op) {
    switch (op) {
    case OP_PAIR:
    case OP_EQUALITY:
    case OP_SIZE:
    case OP_FIRST:
    case OP_LAST:
    case OP_INITSET:
    case OP_REPEAT:
    case OP_CONTAINED:
    case OP_OTHER:
    case OP_MERGE:
    case OP_COLORFILTER:
    case OP_SIZEFILTER:
        return 0;
    case OP_INSERT:
    case OP_REMOVE:
    case OP_RECOLOR:
        return 2;
    case OP_TOSET:
    case OP_CONVERT:
    case OP_TOTUPLE:
    case OP_DEDUPE:
    case OP_MAXIMUM:
    case OP_MINIMUM:
    case OP_MOSTCOMMON:
    case OP_LEASTCOMMON:
    case OP_MOSTCOLOR:
    case OP_LEASTCOLOR:
    case OP_COLORCOUNT:
    case OP_PALETTE:
    case OP_NUMCOLORS:
    case OP_COLOR:
    case OP_REPLACE:
    case OP_SWITCH:
    case OP_HEIGHT:
    case OP_WIDTH:
    case OP_SHAPE:
    case OP_PORTRAIT:
    case OP_SQUARE:
    case OP_VLINE:
    case OP_HLINE:
    case OP_UPPERMOST:
    case OP_LOWERMOST:
    case OP_LEFTMOST:
    case OP_RIGHTMOST:
    case OP_ULCORNER:
    case OP_URCORNER:
    case OP_LLCORNER:
    case OP_LRCORNER:
    case OP_CENTER:
    case OP_CENTEROFMASS:
    case OP_INDEX:
    case OP_BORDERING:
    case OP_ASINDICES:
    case OP_ASOBJECT:
    case OP_OFCOLOR:
    case OP_TOINDICES:
    case OP_SHIFT:
    case OP_NORMALIZE:
    case OP_OBJECTS:
    case OP_PARTITION:
    case OP_FGPARTITION:
    case OP_FRONTIERS:
    case OP_HPERIOD:
    case OP_VPERIOD:
    case OP_CORNERS:
    case OP_BACKDROP:
    case OP_DELTA:
    case OP_BOXOF:
    case OP_INBOX:
    case OP_OUTBOX:
    case OP_ROT90:
    case OP_ROT180:
    case OP_ROT270:
    case OP_HMIRROR:
    case OP_VMIRROR:
    case OP_DMIRROR:
    case OP_CMIRROR:
    case OP_CROP:
    case OP_TRIM:
    case OP_TOPHALF:
    case OP_BOTTOMHALF:
    case OP_LEFTHALF:
    case OP_RIGHTHALF:
    case OP_HSPLIT:
    case OP_VSPLIT:
    case OP_COMPRESS:
    case OP_UPSCALE:
    case OP_HUPSCALE:
    case OP_VUPSCALE:
    case OP_DOWNSCALE:
        return 1;
    case OP_FILL:
    case OP_UNDERFILL:
        return 5;
    default:
        return 3;
    }
}

// The value that an instruction computes, by the functions for lists and cells.
__device__ inline Word old_value(Machine &m, const Instruction &of) {
    const u32 op = of.op, kind = of.kind_to;
    if (op == OP_TUPLE || op == OP_PUSH) {
        return tuple_of(m, of, op == OP_PUSH);
    }
    Value a = value_in(m, of.a), b = value_in(m, of.b);
    Word c = m.registers()[of.c];
    const u32 asked = old_operands(op);
    a.word = asked & 1 ? as_old(m, a.word, a.kind) : a.word;
    b.word = asked & 2 && !m.error ? as_old(m, b.word, b.kind) : b.word;
    c = asked & 4 && !m.error ? as_old(m, c, m.kind_in(of.c)) : c;
    if (m.error) {
        return 0;
    }
    switch (op) {
    case OP_PAIR:
        return pair_of(m, a, b, kind);
    case OP_TOSET:
        return set_of(m, a);
    case OP_CONVERT:
        return converted(m, a, kind);
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

// The value that an instruction computes by those functions, in boards and planes again if it fits.
__device__ __noinline__ Word computed_value(Machine &m, u32 at) {
    const Instruction of = instruction_at(m, at);
    const Word value = old_value(m, of);
    return m.error ? 0 : as_new(m, value, of.kind_to);
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
__device__ __forceinline__ bool is_stopped(const u32 *stop) {
    return stop && alike(*static_cast<const volatile u32 *>(stop)) != 0;
}

// Whether the launch is to stop, asked each time that the steps pass a multiple of LOOK_EVERY.
__device__ __forceinline__ bool stops_between(const u32 *stop, u32 before, u32 steps) {
    return (before ^ steps) >= LOOK_EVERY && is_stopped(stop);
}

// Begins the loop at `at`, whose `next` is at `ends`, or runs all of it. Returns the place of the next instruction.
__device__ __forceinline__ u32 enter_loop(Machine &m, Machine &machine, u32 at, u32 ends, u32 limit, const u32 *stop,
                                          u32 &steps) {
    const u32 value = instruction_at(m, ends).a;
    Word result = 0;
    hand_over(m, machine);
    const u32 begun = begin_loop(machine, at, value, result);
    take_back(machine, m);
    // Read anew: what is kept over a call costs registers on all ways.
    const Instruction begin = instruction_at(m, at);
    if (alike(begun) == 0) {
        m.registers()[begin.to] = result;
        return begin.immediate + 1;
    }
    const u32 before = steps;
    if (begin.form & IN_LANES && run_in_lanes(m, machine, at, limit - steps, steps)) {
        if (stops_between(stop, before, steps)) {
            m.fail(STOPPED);
        }
        return instruction_at(m, at).immediate + 1;
    }
    next_elements(m, instruction_at(m, at), m.frame, 0);
    return at + 1;
}

// More than the number of any instruction.
constexpr u32 NO_PLACE = ~0u;

// Goes on with a program, which load_program has put into the arena, over the grid in register 0: from the instruction
// and the steps of `outcome` on, until its end, an error, or the instruction `until`, which lies outside of loops and
// branches, if it HAS_UNTIL. It looks at `stop` first after `first_look` steps: 0 or LOOK_EVERY.
template <bool HAS_UNTIL>
__device__ __forceinline__ void go_on(Machine &m, Machine &machine, u32 limit, const u32 *stop, u32 first_look, u32 until,
                                      Outcome &outcome) {
    u32 at = outcome.instruction;
#pragma unroll 1
    while (m.error == FINE) {
        // All lanes have done with the instruction before.
        __syncwarp();
        if (HAS_UNTIL && at == until) {
            break;
        }
        if (outcome.steps == limit) {
            m.fail(STEP_LIMIT);
            break;
        }
        if (outcome.steps % LOOK_EVERY == 0 && outcome.steps >= first_look && is_stopped(stop)) {
            m.fail(STOPPED);
            break;
        }
        Instruction of = instruction_at(m, at);
        outcome.steps += 1;
        const Word a = m.registers()[of.a];
        Word word = 0;
        if (of.form & QUICK) {
            if (quick_op(m, of, word)) {
                m.registers()[of.to] = word;
                at = m.error ? at : at + 1;
                continue;
            }
        } else {
            of.op = table_over(of.op);
            if (of.op == OP_RETURN) {
                outcome.result = {a, of.kind_a};
                break;
            } else if (of.op == OP_NEXT) {
                const u32 next = next_turn(m, machine, of);
                at = m.error ? at : next;
                continue;
            } else if (of.op == OP_IF) {
                at = is_true(a) ? at + 1 : of.immediate + 1;
                continue;
            } else if (of.op == OP_ELSE || of.op == OP_ENDIF) {
                m.registers()[of.to] = a;
                at = of.op == OP_ELSE ? of.immediate + 1 : at + 1;
                continue;
            } else if (of.op == OP_FAIL) {
                m.fail(of.immediate);
                break;
            } else if (of.op >= OP_MAP && of.op <= OP_ITERATE) {
                const u32 next = enter_loop(m, machine, at, of.immediate, limit, stop, outcome.steps);
                at = m.error ? at : next;
                continue;
            } else if (lane_op(m, of, a, m.registers()[of.b], m.registers()[of.c], word)) {
                m.registers()[of.to] = word;
                at += 1;
                continue;
            }
        }
        hand_over(m, machine);
        word = computed_value(machine, at);
        take_back(machine, m);
        m.registers()[instruction_at(m, at).to] = word;
        at = m.error ? at : at + 1;
    }
    outcome.code = m.error;
    outcome.instruction = at;
}

// Runs a program from its start to its end.
__device__ __forceinline__ Outcome run(Machine &m, Machine &machine, u32 limit, const u32 *stop, u32 first_look) {
    Outcome outcome = {FINE, 0, 0, {0, 0}};
    go_on<false>(m, machine, limit, stop, first_look, NO_PLACE, outcome);
    return outcome;
}
