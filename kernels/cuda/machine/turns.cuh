// Loops: which elements come next, what is kept, and what comes out. Mirrors kernels/src/reference/machine/turns.rs.
//
// A loop's frame lies in the arena, followed by what it collects and, behind that, by the values of its body. At the
// end of a turn these are freed but for what is kept, which moves down.

#pragma once

#include "machine/convert.cuh"
#include "machine/paint.cuh"

struct Instruction {
    u32 op, to, a, b, c, d, immediate;
    // The kinds of to, a and b, and the tags of these kinds.
    u32 kind_to, kind_a, kind_b, tag_to, tag_a, tag_b;
    // The tag of the elements of a's elements, and what quick_ops.cuh says of operands.
    u32 deep_tag, form;

    __device__ explicit Instruction(const uint4 &words)
        : op(words.x & 0xff), to(words.x >> 8 & 0xff), a(words.x >> 16 & 0xff), b(words.x >> 24), c(words.y & 0xff),
          d(words.y >> 8 & 0xff), immediate(words.y >> 16), kind_to(words.z & 0xff), kind_a(words.z >> 8 & 0xff),
          kind_b(words.z >> 16 & 0xff), tag_to(words.w & 15), tag_a(words.w >> 4 & 15), tag_b(words.w >> 8 & 15),
          deep_tag(words.w >> 12 & 15), form(words.w >> 16) {}
};

// A loop that is running.
struct Turn {
    // The element, and of what is collected the key if one is kept.
    Word element, best, key;
    u32 at, turns;
    // The turns of the inner elements of `pairs`.
    u32 inner, outer;
    u32 has_best;
    // What is collected: its block, class and count, and its weight.
    u32 list, of_class, count, weight;
    // Where the body's values start.
    u32 floor;
    // The frame of the loop around.
    u32 around;
    // Of a board that is gone through: the row, and what is left of it.
    u32 row, bits;
};

constexpr u32 TURN_WORDS = sizeof(Turn) / 4;

__device__ inline bool is_key_loop(u32 op) { return op >= OP_ARGMAX && op <= OP_VALMIN; }

// Lists of fewer are sorted by insertion in CPython, which matters for keys without a whole order.
constexpr u32 INSERTION_MAX = 64;

// CPython's sort of a short list: the first run, then each value by bisection. For one lane.
__device__ __noinline__ void insertion_sort(const Machine &m, Word keys, u32 kind, u32 *order, u32 count) {
    const auto is_less = [&](u32 one, u32 two) {
        return compare_keys(m, kind, m.element(keys, one), m.element(keys, two)) == -1;
    };
    u32 run = min(count, 1u);
    if (count > 1) {
        const bool descends = is_less(order[1], order[0]);
        run = 2;
#pragma unroll 1
        while (run < count && is_less(order[run], order[run - 1]) == descends) {
            run += 1;
        }
#pragma unroll 1
        for (u32 at = 0; descends && at < run / 2; at += 1) {
            const u32 swapped = order[at];
            order[at] = order[run - 1 - at];
            order[run - 1 - at] = swapped;
        }
    }
#pragma unroll 1
    for (u32 at = run; at < count; at += 1) {
        const u32 value = order[at];
        u32 low = 0, high = at;
#pragma unroll 1
        while (low < high) {
            const u32 middle = (low + high) / 2;
            if (is_less(value, order[middle])) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
#pragma unroll 1
        for (u32 place = at; place > low; place -= 1) {
            order[place] = order[place - 1];
        }
        order[low] = value;
    }
}

// The elements of `a`, sorted by their keys.
__device__ __noinline__ Word ordered(Machine &m, Value a, Word keys, u32 kind) {
    const u32 count = m.count(keys);
    if (count > 1 && m.tag(kind) <= NUMBER) {
        bool nothing = false;
#pragma unroll 1
        for (u32 at = lane(); at < count; at += LANES) {
            nothing |= number_of(m.words(keys)[at]) == NOTHING;
        }
        if (any_lane(nothing)) {
            return m.fail(BAD_TYPE);
        }
    }
    const u32 first = m.take(count), second = m.take(count);
    if (m.error) {
        return 0;
    }
    u32 *const order = m.mem + first;
#pragma unroll 1
    for (u32 at = lane(); at < count; at += LANES) {
        order[at] = at;
    }
    __syncwarp();
    if (m.tag(kind) == SET && count < INSERTION_MAX) {
        if (lane() == 0) {
            insertion_sort(m, keys, kind, order, count);
        }
        __syncwarp();
    } else {
        const auto before = [&](u32 one, u32 two) {
            return compare_keys(m, kind, m.element(keys, one), m.element(keys, two)) == -1;
        };
        // Sets have no whole order, nor has what holds them.
        if (m.tag(kind) >= PAIR) {
            merge_sort_partial(order, m.mem + second, count, before);
        } else {
            merge_sort(order, m.mem + second, count, before);
        }
    }
    const u32 of_class = m.class_for(m.first(a.kind)), list = m.open(of_class, count);
    if (m.error) {
        return 0;
    }
#pragma unroll 1
    for (u32 at = lane(); at < count; at += LANES) {
        m.put(list, of_class, at, m.element(a.word, order[at]));
    }
    return close_list(m, list, of_class, count);
}

// The result of a loop whose turns are over. Frees its frame where what is left can be moved.
__device__ __noinline__ Word loop_result(Machine &m, const Instruction &begin, Turn &turn, u32 start) {
    const Word *const registers = m.registers();
    const Value a = {registers[begin.a], begin.kind_a};
    const u32 gives = begin.kind_to;
    switch (begin.op) {
    case OP_MAP:
    case OP_FILTER:
    case OP_ZIP:
    case OP_PAIRS: {
        const u32 kind = begin.op == OP_FILTER ? a.kind : gives;
        const Word list = close_like(m, turn.list, kind, turn.of_class, turn.count);
        // Blocks of elements lie behind the list.
        if (turn.of_class == OF_BLOCKS && begin.op != OP_FILTER) {
            m.top = turn.floor;
        }
        return list;
    }
    case OP_ORDER: {
        const u32 keys = turn.list;
        m.mem[keys] = turn.of_class << 24 | turn.count;
        __syncwarp();
        const Word list = ordered(m, a, keys, m.kind_in(turn.outer));
        return m.error ? 0 : keep_only(m, start, list);
    }
    case OP_ITERATE:
        if (m.is_block(gives)) {
            return keep_only(m, start, turn.element);
        }
        m.top = start;
        return turn.element;
    case OP_EXTRACT:
        return m.fail(EMPTY_ARG);
    default: {
        if (!turn.has_best) {
            return m.fail(EMPTY_ARG);
        }
        const bool is_key = begin.op == OP_VALMAX || begin.op == OP_VALMIN;
        if (is_key && m.is_block(gives)) {
            return keep_only(m, start, turn.key);
        }
        m.top = start;
        return is_key ? turn.key : turn.best;
    }
    }
}

// The next element of a board. The first turn has row 0 and no bits.
__device__ inline Word next_of_board(const Machine &m, u32 block, Turn &turn) {
    const Board board = board_head(quad(m, block));
    if (turn.at == 0) {
        turn.bits = m.mem[block + BOARD_HEAD];
    }
#pragma unroll 1
    while (turn.bits == 0) {
        turn.row += 1;
        turn.bits = m.mem[block + BOARD_HEAD + turn.row];
    }
    const u32 col = __ffs(turn.bits) - 1;
    turn.bits &= turn.bits - 1;
    return board_word(m, block, board, turn.row, col);
}

// Puts the elements of the next turn into their registers.
__device__ __noinline__ void next_elements(Machine &m, const Instruction &begin, Turn &turn) {
    Word *const registers = m.registers();
    if (begin.op != OP_ITERATE) {
        const Word a = registers[begin.a];
        const u32 at = begin.op == OP_PAIRS ? turn.inner : turn.at;
        if (m.block_class(a) == OF_BOARD && begin.op != OP_PAIRS) {
            turn.element = next_of_board(m, u32(a), turn);
        } else {
            // Only `valmax` and `valmin` over no numbers have no element.
            turn.element = at < m.count(a) ? m.element(a, at) : of_number(0);
        }
        if (begin.op == OP_ZIP || begin.op == OP_PAIRS) {
            registers[begin.d] = m.element(registers[begin.b], begin.op == OP_PAIRS ? turn.outer : turn.at);
        }
    }
    registers[begin.c] = turn.element;
}

// Ends a loop. Returns the place of the next instruction.
__device__ inline u32 leave(Machine &m, const Instruction &begin, u32 around, Word result) {
    m.frame = around;
    m.registers()[begin.to] = result;
    return begin.immediate + 1;
}

// Begins a loop. Returns the place of the next instruction. `value` is the register of the body's value.
__device__ __noinline__ u32 begin_loop(Machine &m, const Instruction &begin, u32 at, u32 value) {
    const Word *const registers = m.registers();
    const Word a = registers[begin.a];
    Turn turn = {};
    if (begin.op == OP_ITERATE) {
        const i32 times = needed_number(m, registers[begin.b]);
        turn.turns = u32(times);
        turn.element = a;
        if (m.error == FINE && times < 1) {
            m.fail(BAD_NUMBER);
        }
    } else {
        const u32 length = m.count(a);
        const u32 other = begin.op == OP_ZIP || begin.op == OP_PAIRS ? m.count(registers[begin.b]) : 0;
        turn.turns = length;
        if (begin.op == OP_ZIP) {
            turn.turns = min(length, other);
        } else if (begin.op == OP_PAIRS) {
            // No item has so many steps.
            const u64 turns = u64(length) * other;
            turn.turns = turns < ~0u ? u32(turns) : ~0u;
        } else if (begin.op == OP_VALMAX || begin.op == OP_VALMIN) {
            const u32 of = m.tag(m.first(begin.kind_a));
            turn.turns = length == 0 && (of == FLAG || of == NUMBER) ? 1 : length;
        }
    }
    if (m.error) {
        return 0;
    }
    const u32 start = m.take(TURN_WORDS);
    if (begin.op == OP_FILTER) {
        turn.of_class = m.class_for(m.first(begin.kind_a));
    } else {
        turn.of_class = m.class_for(m.kind_in(value));
    }
    const bool collects = begin.op != OP_ITERATE && begin.op != OP_EXTRACT && !is_key_loop(begin.op);
    turn.list = collects && !m.error ? m.open(turn.of_class, min(turn.turns, WEIGHT_MAX)) : 0;
    turn.weight = 1;
    turn.floor = m.top;
    turn.around = m.frame;
    if (begin.op == OP_ORDER) {
        turn.outer = value;
    }
    if (m.error) {
        return 0;
    }
    if (turn.turns == 0) {
        const Word result = loop_result(m, begin, turn, start);
        return m.error ? 0 : leave(m, begin, turn.around, result);
    }
    next_elements(m, begin, turn);
    *reinterpret_cast<Turn *>(m.mem + start) = turn;
    m.frame = start;
    return at + 1;
}

// Keeps the element and its key if the key is better.
__device__ __noinline__ void keep_best(Machine &m, u32 op, Turn &turn, Word key, u32 kind, u32 start) {
    if (turn.has_best) {
        if (m.tag(kind) <= NUMBER && (number_of(key) == NOTHING || number_of(turn.key) == NOTHING)) {
            m.fail(BAD_TYPE);
            return;
        }
        const bool greatest = op == OP_ARGMAX || op == OP_VALMAX;
        if (compare_keys(m, kind, key, turn.key) != (greatest ? 1 : -1)) {
            m.top = turn.floor;
            return;
        }
    }
    turn.has_best = 1;
    turn.best = turn.element;
    turn.key = key;
    m.top = turn.floor;
    if (m.is_block(kind)) {
        // Behind the frame. What was kept is over.
        __syncwarp();
        turn.key = keep_only(m, start + whole(TURN_WORDS), key);
        turn.floor = m.top;
    }
}

// Ends a turn. Returns the place of the next instruction. `value` is the register of the body's value.
__device__ __noinline__ u32 next_turn(Machine &m, const Instruction &begin, u32 at, u32 value) {
    const u32 start = m.frame;
    Turn turn = *reinterpret_cast<const Turn *>(m.mem + start);
    Word word = m.registers()[value];
    const u32 kind = m.kind_in(value);
    const bool is_block = m.is_block(kind);
    // All lanes have read the frame before it is written.
    __syncwarp();
    switch (begin.op) {
    case OP_MAP:
    case OP_ZIP:
    case OP_PAIRS:
    case OP_ORDER: {
        if (begin.op != OP_ORDER) {
            turn.weight += is_block ? m.weight(word) : 1;
            if (turn.weight > WEIGHT_MAX) {
                m.fail(OVERFLOW);
                return 0;
            }
        }
        if (is_block) {
            word = keep_only(m, turn.floor, word);
            turn.floor = m.top;
        }
        m.put(turn.list, turn.of_class, turn.count, word);
        turn.count += 1;
        break;
    }
    case OP_FILTER:
        if (is_true(word)) {
            m.put(turn.list, turn.of_class, turn.count, turn.element);
            turn.count += 1;
        }
        break;
    case OP_EXTRACT:
        if (is_true(word)) {
            m.top = start;
            return leave(m, begin, turn.around, turn.element);
        }
        break;
    case OP_ITERATE:
        turn.element = word;
        if (is_block) {
            turn.element = keep_only(m, start + whole(TURN_WORDS), word);
            turn.floor = m.top;
        }
        break;
    default:
        keep_best(m, begin.op, turn, word, kind, start);
        break;
    }
    if (m.error) {
        return 0;
    }
    m.top = turn.floor;
    turn.at += 1;
    if (begin.op == OP_PAIRS) {
        turn.inner += 1;
        if (turn.inner == m.count(m.registers()[begin.a])) {
            turn.inner = 0;
            turn.outer += 1;
        }
    }
    if (turn.at < turn.turns) {
        next_elements(m, begin, turn);
        *reinterpret_cast<Turn *>(m.mem + start) = turn;
        return at + 1;
    }
    const Word result = loop_result(m, begin, turn, start);
    return m.error ? 0 : leave(m, begin, turn.around, result);
}
