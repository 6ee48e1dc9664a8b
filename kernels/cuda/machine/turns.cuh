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
    // The tag of the elements of a's elements, what quick_ops.cuh says of operands, and the register of the second grid
    // or patch of a quick op. Those of the first ones are in `immediate`.
    u32 deep_tag, form, second;

    __device__ __forceinline__ u32 grid_register() const { return immediate & 0xff; }
    __device__ __forceinline__ u32 patch_register() const { return immediate >> 8; }

    __device__ __forceinline__ explicit Instruction(const uint4 &words)
        : op(words.x & 0xff), to(words.x >> 8 & 0xff), a(words.x >> 16 & 0xff), b(words.x >> 24), c(words.y & 0xff),
          d(words.y >> 8 & 0xff), immediate(words.y >> 16), kind_to(words.z & 0xff), kind_a(words.z >> 8 & 0xff),
          kind_b(words.z >> 16 & 0xff), tag_to(words.w & 15), tag_a(words.w >> 4 & 15), tag_b(words.w >> 8 & 15),
          deep_tag(words.w >> 12 & 15), form(words.w >> 16), second(words.z >> 24) {}
};

__device__ __forceinline__ Instruction instruction_at(const Machine &m, u32 at) {
    return Instruction(quad(m, m.code + 4 * at));
}

// A loop that is running. All lanes read a field before one writes it.
struct Turn {
    u32 at, turns;
    // Where what is collected lies, and how much of it there is.
    u32 list, count;
    u32 weight;
    // Where the body's values start.
    u32 floor;
    // The frame of the loop around.
    u32 around;
    u32 of_class;
    // The element, and of what is collected the key if one is kept.
    Word element, best, key;
    u32 has_best;
    // Of a board that is gone through: the row, and what is left of it. Of `pairs` the elements inside and outside.
    u32 row, bits;
};

constexpr u32 TURN_WORDS = sizeof(Turn) / 4;

__device__ inline Turn &turn_at(const Machine &m, u32 frame) { return *reinterpret_cast<Turn *>(&m.mem[frame]); }

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

// The result of a loop whose turns are over. Frees its frame where what is left can be moved. `value` is the register
// of the body's value.
__device__ __noinline__ Word loop_result(Machine &m, u32 at, u32 value, u32 start) {
    const Instruction begin = instruction_at(m, at);
    const Turn turn = turn_at(m, start);
    const Value a = {m.registers()[begin.a], begin.kind_a};
    const u32 gives = begin.kind_to;
    __syncwarp();
    m.frame = turn.around;
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
        return m.error ? 0 : as_new(m, list, kind);
    }
    case OP_ORDER: {
        const u32 keys = turn.list;
        m.mem[keys] = turn.of_class << 24 | turn.count;
        __syncwarp();
        const Word list = ordered(m, a, keys, m.kind_in(value));
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

// Puts the elements of the next turn, number `at`, into their registers.
__device__ __forceinline__ void next_elements(const Machine &m, const Instruction &begin, u32 start, u32 at) {
    Turn &turn = turn_at(m, start);
    if (begin.op == OP_ITERATE) {
        m.registers()[begin.c] = turn.element;
        return;
    }
    const Word a = m.registers()[begin.a];
    const u32 head = m.mem[u32(a)], of_class = head >> 24, count = head & 0xffffff;
    Word element;
    if (begin.op == OP_PAIRS) {
        u32 inner = turn.row, outer = turn.bits;
        element = m.element(a, inner);
        m.registers()[begin.d] = m.element(m.registers()[begin.b], outer);
        inner += 1;
        outer += inner == count;
        __syncwarp();
        turn.row = inner == count ? 0 : inner;
        turn.bits = outer;
    } else if (of_class == OF_BOARD) {
        u32 row = turn.row, bits = turn.bits;
#pragma unroll 1
        while (bits == 0) {
            bits = m.mem[u32(a) + BOARD_HEAD + row];
            row += 1;
        }
        element = board_word(m, u32(a), board_head(quad(m, u32(a))), row - 1, __ffs(bits) - 1);
        __syncwarp();
        turn.row = row;
        turn.bits = bits & (bits - 1);
    } else {
        // Only `valmax` and `valmin` over no numbers have no element.
        element = at >= count ? of_number(0) : of_class == OF_DOUBLES ? m.doubles(a)[at] : Word(m.words(a)[at]);
    }
    if (begin.op == OP_ZIP) {
        m.registers()[begin.d] = m.element(m.registers()[begin.b], at);
    }
    turn.element = element;
    m.registers()[begin.c] = element;
}

// Begins the loop at `at`. Sets `m.frame`, unless there is no turn and `result` is the loop's. `value` is the register
// of the body's value.
__device__ __noinline__ bool begin_loop(Machine &m, u32 at, u32 value, Word &result) {
    const Instruction begin = instruction_at(m, at);
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
        return false;
    }
    const u32 start = m.take(TURN_WORDS);
    turn.of_class = begin.op == OP_FILTER ? m.class_for(m.first(begin.kind_a)) : m.class_for(m.kind_in(value));
    const bool collects = begin.op != OP_ITERATE && begin.op != OP_EXTRACT && !is_key_loop(begin.op);
    turn.list = collects && !m.error ? m.open(turn.of_class, min(turn.turns, WEIGHT_MAX)) : 0;
    turn.weight = 1;
    turn.floor = m.top;
    turn.around = m.frame;
    if (m.error) {
        return false;
    }
    turn_at(m, start) = turn;
    __syncwarp();
    if (turn.turns == 0) {
        result = loop_result(m, at, value, start);
        return false;
    }
    m.frame = start;
    return true;
}

// Whether a key is better than the one that is kept: 1 if it is, 0 if not; BAD_TYPE if they cannot be compared.
__device__ __noinline__ bool is_better(Machine &m, u32 kind, Word key, Word kept, bool greatest) {
    if (m.tag(kind) <= NUMBER && (number_of(key) == NOTHING || number_of(kept) == NOTHING)) {
        m.fail(BAD_TYPE);
        return false;
    }
    return compare_keys(m, kind, key, kept) == (greatest ? 1 : -1);
}

// Collects a body's value once all together weigh too much. Those of a set go into canonical order, each once, and so
// does all that comes behind; `best` is what they weigh. The loop at `at` comes here in each turn from then on, as its
// `weight` stays as high. Sets `m.top` behind what is kept.
__device__ __noinline__ void collect_once(Machine &m, u32 at, u32 kind, Word value) {
    Turn &turn = turn_at(m, m.frame);
    const u32 list = turn.list, of_class = turn.of_class, floor = turn.floor, began = turn.has_best;
    u32 count = turn.count, weight = u32(turn.best);
    if (!m.is_set(instruction_at(m, at).kind_to)) {
        m.fail(OVERFLOW);
        return;
    }
    if (!began) {
        sort_list(m, list, kind, of_class, count);
        if (m.error) {
            return;
        }
        count = drop_equals(m, list, kind, of_class, count);
        u32 mine = 0;
#pragma unroll 1
        for (u32 place = lane(); place < count; place += LANES) {
            const Value known = {of_class == OF_DOUBLES ? m.doubles(list)[place] : m.words(list)[place], kind};
            mine += weight_of(m, known);
        }
        weight = 1 + u32(sum_of_warp(i32(mine)));
    }
    m.mem[list] = of_class << 24 | count;
    __syncwarp();
    // How many come before the value. Each lane looks at one of them, and the first lanes find that they do.
    u32 place = 0, end = count;
#pragma unroll 1
    while (place < end) {
        const u32 stride = (end - place + LANES - 1) / LANES, mine = place + stride * lane();
        const bool comes = mine < end && compare(m, kind, m.element(list, mine), value) < 0;
        const u32 found = __popc(__ballot_sync(ALL_LANES, comes));
        end = min(end, place + stride * found);
        place = found == 0 ? end : place + stride * (found - 1) + 1;
    }
    if (place < count && compare(m, kind, m.element(list, place), value) == 0) {
        m.top = floor;
    } else {
        weight += weight_of(m, {value, kind});
        if (weight > WEIGHT_MAX) {
            m.fail(OVERFLOW);
            return;
        }
        if (m.is_block(kind)) {
            value = keep_only(m, floor, value);
        } else {
            m.top = floor;
        }
        if (m.error) {
            return;
        }
        // From the end on, so that each word is read before it is written.
#pragma unroll 1
        for (u32 above = count; above > place;) {
            const u32 start = max(place, above - min(above, LANES)), from = start + lane();
            const Word moved = from < above ? m.element(list, from) : 0;
            __syncwarp();
            if (from < above) {
                m.put(list, of_class, from + 1, moved);
            }
            above = start;
        }
        __syncwarp();
        m.put(list, of_class, place, value);
        count += 1;
    }
    __syncwarp();
    turn.has_best = 1;
    turn.best = weight;
    turn.count = count;
    turn.weight = WEIGHT_MAX;
    __syncwarp();
}
