// Goes through the instructions of a program. Mirrors kernels/src/reference/machine/run.rs.

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
        put_quad(m, m.code + 4 * at, u32(bits), u32(bits >> 32), kind | kinds[0] << 8 | kinds[1] << 16,
                 m.tag(kind) | tags[0] << 4 | tags[1] << 8 | deep << 12 | form << 16);
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

// The machine lies twice: in registers, and in memory for the functions that are called, which get its address.

// Numbers and words that all lanes have alike, so that the compiler knows it too.
__device__ __forceinline__ u32 alike(u32 number) {
#if __CUDA_ARCH__ >= 800
    return __reduce_or_sync(ALL_LANES, number);
#else
    return __shfl_sync(ALL_LANES, number, 0);
#endif
}
__device__ __forceinline__ Word alike(Word word) { return Word(alike(u32(word >> 32))) << 32 | alike(u32(word)); }

// Before a call: what changes while an item runs.
__device__ __forceinline__ void hand_over(const Machine &from, Machine &to) {
    to.top = from.top;
    to.cap = from.cap;
    to.error = from.error;
    to.frame = from.frame;
}

// After a call.
__device__ __forceinline__ void take_back(const Machine &from, Machine &to) {
    together();
    to.top = alike(from.top);
    to.cap = alike(from.cap);
    to.error = alike(from.error);
    to.frame = alike(from.frame);
}

// A copy that may lie in registers, as no function gets its address.
__device__ __forceinline__ Machine in_registers(const Machine &machine) {
    Machine m = machine;
    take_back(machine, m);
    m.ties = alike(machine.ties);
    m.code = alike(machine.code);
    m.kinds = alike(machine.kinds);
    m.register_kinds = alike(machine.register_kinds);
    return m;
}

// Moves a body's value down to the floor, with all that it is made of, and frees the rest.
__device__ __forceinline__ Word kept_value(Machine &m, Machine &machine, u32 floor, Word value) {
    const u32 block = u32(value), of_class = m.block_class(block);
    if (block < floor) {
        m.top = floor;
    } else if (of_class <= OF_DOUBLES || of_class >= OF_PLANES) {
        const u32 words = block_words(m, block);
        m.top = floor + words;
        if (block > floor) {
#pragma unroll 1
            for (u32 base = 0; base < words; base += LANES) {
                const u32 at = base + lane(), word = at < words ? m.mem[block + at] : 0;
                __syncwarp();
                if (at < words) {
                    m.mem[floor + at] = word;
                }
            }
        }
        __syncwarp();
        value = floor;
    } else {
        hand_over(m, machine);
        value = keep_only(machine, floor, value);
        take_back(machine, m);
    }
    return value;
}

// Ends a turn of a loop, whose first instruction is number `begins`. Returns the place of the next instruction. `value`
// is the register of the body's value.
__device__ __forceinline__ u32 next_turn(Machine &m, Machine &machine, u32 begins, u32 value) {
    const Instruction begin = instruction_at(m, begins);
    const u32 op = begin.op, start = m.frame;
    Turn &turn = turn_at(m, start);
    const uint4 first = quad(m, start), second = quad(m, start + 4);
    const u32 at = first.x + 1, turns = first.y, list = first.z, count = first.w, floor = second.y, of_class = second.w;
    Word word = m.registers()[value];
    const u32 kind = m.kind_in(value);
    const bool is_block = m.is_block(kind);
    u32 left = floor;
    __syncwarp();
    if (op == OP_EXTRACT || op == OP_FILTER) {
        if (is_true(word)) {
            const Word element = turn.element;
            if (op == OP_EXTRACT) {
                m.top = start;
                m.frame = second.z;
                m.registers()[begin.to] = element;
                return begin.immediate + 1;
            }
            m.put(list, of_class, count, element);
            turn.count = count + 1;
        }
    } else if (is_key_loop(op)) {
        bool better = turn.has_best == 0;
        if (!better) {
            const bool greatest = op == OP_ARGMAX || op == OP_VALMAX;
            const Word kept = turn.key;
            if (m.tag(kind) <= NUMBER && u32(word) != 0 && u32(kept) != 0) {
                better = greatest ? u32(word) > u32(kept) : u32(word) < u32(kept);
            } else {
                hand_over(m, machine);
                const u32 is = is_better(machine, kind, word, kept, greatest);
                take_back(machine, m);
                better = alike(is) != 0;
            }
        }
        if (better && m.error == FINE) {
            const Word element = turn.element;
            if (is_block) {
                // Behind the frame. What was kept is over.
                word = kept_value(m, machine, start + whole(TURN_WORDS), word);
                left = m.top;
            }
            __syncwarp();
            turn.has_best = 1;
            turn.best = element;
            turn.key = word;
        }
    } else {
        if (op != OP_ORDER && op != OP_ITERATE) {
            const u32 weight = second.x + (is_block ? m.weight(word) : 1);
            if (weight > WEIGHT_MAX) {
                m.fail(OVERFLOW);
            }
            turn.weight = weight;
        }
        if (is_block && m.error == FINE) {
            word = kept_value(m, machine, op == OP_ITERATE ? start + whole(TURN_WORDS) : floor, word);
            left = m.top;
        }
        if (op == OP_ITERATE) {
            turn.element = word;
        } else if (m.error == FINE) {
            m.put(list, of_class, count, word);
            turn.count = count + 1;
        }
    }
    if (m.error) {
        return begins;
    }
    m.top = left;
    turn.floor = left;
    turn.at = at;
    __syncwarp();
    if (at < turns) {
        next_elements(m, begin, start, at);
        return begins + 1;
    }
    hand_over(m, machine);
    const Word result = loop_result(machine, begins, value, start);
    take_back(machine, m);
    m.registers()[begin.to] = result;
    return begin.immediate + 1;
}

// Runs a program, which load_program has put into the arena, over the grid in register 0.
__device__ __forceinline__ Outcome run(Machine &m, Machine &machine, u32 limit) {
    Outcome outcome = {FINE, 0, 0, {0, 0}};
    u32 at = 0;
#pragma unroll 1
    while (true) {
        // All lanes have done with the instruction before.
        together();
        const Instruction of = instruction_at(m, at);
        if (outcome.steps == limit) {
            m.fail(STEP_LIMIT);
            break;
        }
        outcome.steps += 1;
        const u32 op = of.op;
        const Word a = m.registers()[of.a], b = m.registers()[of.b], c = m.registers()[of.c];
        u32 next = at + 1;
        Word word = 0;
        if (of.form != 0 ? quick_op(m, of, a, b, c, word) : lane_op(m, of, a, b, c, word)) {
            m.registers()[of.to] = word;
        } else if (op == OP_RETURN) {
            outcome.result = {a, of.kind_a};
            break;
        } else if (op == OP_IF) {
            next = is_true(a) ? next : of.immediate + 1;
        } else if (op == OP_NEXT) {
            next = next_turn(m, machine, of.immediate, of.a);
        } else if (op >= OP_MAP && op <= OP_ITERATE) {
            const u32 value = instruction_at(m, of.immediate).a;
            Word result = 0;
            hand_over(m, machine);
            const u32 begun = begin_loop(machine, at, value, result);
            take_back(machine, m);
            if (alike(begun) != 0) {
                next_elements(m, of, m.frame, 0);
            } else {
                m.registers()[of.to] = result;
                next = of.immediate + 1;
            }
        } else if (op == OP_ELSE || op == OP_ENDIF) {
            m.registers()[of.to] = a;
            next = op == OP_ELSE ? of.immediate + 1 : next;
        } else if (op == OP_FAIL) {
            m.fail(of.immediate);
        } else {
            hand_over(m, machine);
            word = computed_value(machine, at);
            take_back(machine, m);
            m.registers()[of.to] = word;
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
