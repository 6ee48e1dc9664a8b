// Turns of loops, one after the other or an element a lane.

#pragma once

#include "machine/program.cuh"

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

// Ends a turn of a loop by its instruction `end`. Returns the place of the next instruction.
__device__ __forceinline__ u32 next_turn(Machine &m, Machine &machine, const Instruction &end) {
    const u32 begins = end.immediate, value = end.a, kind = end.kind_a;
    const Instruction begin = instruction_at(m, begins);
    const u32 op = begin.op, start = m.frame;
    Turn &turn = turn_at(m, start);
    const uint4 first = quad(m, start), second = quad(m, start + 4);
    const u32 at = first.x + 1, turns = first.y, list = first.z, count = first.w, floor = second.y, of_class = second.w;
    Word word = m.registers()[value];
    const bool is_block = end.tag_a >= GRID;
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
            if (end.tag_a <= NUMBER && u32(word) != 0 && u32(kept) != 0) {
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
        const bool weighs = op != OP_ORDER && op != OP_ITERATE;
        const u32 weight = weighs ? second.x + (is_block ? m.weight(word) : 1) : 0;
        if (weight > WEIGHT_MAX) {
            hand_over(m, machine);
            collect_once(machine, begins, kind, word);
            take_back(machine, m);
            left = m.top;
        } else {
            if (weighs) {
                turn.weight = weight;
            }
            if (is_block) {
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
    const Instruction over = instruction_at(m, begins);
    m.registers()[over.to] = result;
    return over.immediate + 1;
}

// Runs a loop of the form IN_LANES, an element a lane; `room` says how many steps are left. False if its values do not
// allow it: then nothing has changed, and the turns run one after the other.
__device__ __forceinline__ bool run_in_lanes(Machine &m, Machine &machine, u32 at, u32 room, u32 &steps) {
    const Instruction begin = instruction_at(m, at);
    const u32 op = begin.op, start = m.frame, body = begin.immediate - at - 1;
    Turn &turn = turn_at(m, start);
    const u32 turns = turn.turns, list = turn.list, of_class = turn.of_class, around = turn.around;
    const u32 source = u32(m.registers()[begin.a]), other = u32(m.registers()[begin.b]);
    const bool pairs = op == OP_ZIP, is_board = m.block_class(source) == OF_BOARD;
    const bool wide = m.class_for(m.first(begin.kind_a)) == OF_DOUBLES, keys = is_key_loop(op);
    if (u64(turns) * (body + 1) > room || turns > m.count(source) || turns >= WEIGHT_MAX / 2
        || pairs && (is_board || m.block_class(other) == OF_BOARD)) {
        return false;
    }
    const u32 before = m.cap, listed = is_board ? HEAD_WORDS + turns * (wide ? 2 : 1) : 0;
    const u32 slots = 2 * LANES * (2 + body), scratch = m.borrow(slots), from = listed ? m.borrow(listed) : source;
    if (m.error) {
        // The turns, one after the other, need less.
        m.error = FINE;
        m.cap = before;
        return false;
    }
    if (is_board) {
        write_board(machine, source, from, wide ? OF_DOUBLES : OF_WORDS, 0);
        together();
    }
    const Word *const places = reinterpret_cast<const Word *>(&m.mem[scratch]);
    const auto operand = [&](u32 slot, u32 in) {
        return *(slot != 0 ? places + LANES * (slot - 1) + lane() : m.registers() + in);
    };
    const auto put = [&](u32 slot, Word word) {
        reinterpret_cast<Word *>(&m.mem[scratch])[LANES * (slot - 1) + lane()] = word;
    };
    const Instruction end = instruction_at(m, begin.immediate);
    const u32 value = end.a, value_slot = end.d;
    const bool greatest = op == OP_ARGMAX || op == OP_VALMAX;
    u32 count = 0, best = 0;
    Word kept = 0;
    bool runs = true, found = false;
#pragma unroll 1
    for (u32 base = 0; base < turns && runs && !found; base += LANES) {
        const bool mine = base + lane() < turns;
        const u32 place = min(base + lane(), turns - 1);
        __syncwarp();
        const Word element = wide ? m.doubles(from)[place] : Word(m.words(from)[place]);
        put(1, element);
        if (pairs) {
            put(2, m.element(other, place));
        }
#pragma unroll 1
        for (u32 step = 0; step < body && runs; step += 1) {
            const Instruction of = instruction_at(m, at + 1 + step);
            const Word a = operand(of.immediate & 31, of.a), b = operand(of.immediate >> 5 & 31, of.b);
            const Word c = operand(of.immediate >> 10 & 31, of.c);
            Word made = 0;
            const bool is = lane_op(m, of, a, b, c, made);
            together();
            runs = !any_lane(!is);
            put(3 + step, made);
        }
        const Word word = operand(value_slot, value);
        if (keys) {
            const u32 key = u32(word), rank = !mine ? 0 : greatest ? key : ~key, top = most(rank);
            const u32 winner = __ffs(__ballot_sync(ALL_LANES, mine && rank == top)) - 1;
            // Nothing cannot be compared.
            runs = runs && !(turns > 1 && any_lane(key == 0));
            if (base == 0 || top > best) {
                best = top;
                kept = op == OP_ARGMAX || op == OP_ARGMIN ? places[winner] : of_number(0);
            }
        } else if (op == OP_FILTER || op == OP_EXTRACT) {
            const bool is = mine && is_true(word);
            const u32 members = __ballot_sync(ALL_LANES, is);
            if (op == OP_EXTRACT) {
                found = members != 0;
                const u32 winner = found ? __ffs(members) - 1 : 0;
                kept = places[winner];
                count = base + winner + 1;
            } else if (is) {
                m.put(list, of_class, count + __popc(members & ((1u << lane()) - 1)), element);
            }
            count = op == OP_EXTRACT ? count : count + __popc(members);
        } else if (mine) {
            m.put(list, of_class, place, word);
        }
    }
    m.cap = before;
    __syncwarp();
    if (!runs || op == OP_EXTRACT && !found) {
        return false;
    }
    steps += (op == OP_EXTRACT ? count : turns) * (body + 1);
    if (keys || op == OP_EXTRACT) {
        m.top = start;
        m.frame = around;
        kept = op == OP_VALMAX ? Word(best) : op == OP_VALMIN ? Word(~best) : kept;
    } else {
        turn.count = op == OP_FILTER ? count : turns;
        __syncwarp();
        hand_over(m, machine);
        kept = loop_result(machine, at, value, start);
        take_back(machine, m);
    }
    m.registers()[instruction_at(m, at).to] = kept;
    return true;
}
