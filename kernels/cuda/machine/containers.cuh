// Sets, tuples and pairs. Mirrors kernels/src/reference/machine/containers.rs.

#pragma once

#include "machine/colors.cuh"

// An argument and its kind.
struct Value {
    Word word;
    u32 kind;
};

__device__ inline u32 weight_of(const Machine &m, Value value) {
    return m.is_block(value.kind) ? m.weight(value.word) : 1;
}

// The word of a vector or a cell of two halves. Each lane may make its own: sets `code` if it cannot.
__device__ inline Word plain_pair(const Machine &m, Value first, Value second, u32 tag, u32 &code) {
    if (number_of(first.word) == NOTHING) {
        code = BAD_TYPE;
        return 0;
    }
    const i32 one = number_of(first.word);
    if (tag == CELL) {
        code = is_half(one) ? code : OVERFLOW;
        return of_cell(is_half(one) ? one : 0, u32(second.word));
    }
    const i32 two = number_of(second.word);
    if (two == NOTHING) {
        code = BAD_TYPE;
        return 0;
    }
    code = are_halves(one, two) ? code : OVERFLOW;
    return are_halves(one, two) ? of_vector(one, two) : 0;
}

// Writes a pair into a block of PAIR_WORDS. Each lane may write its own.
__device__ inline void write_pair(const Machine &m, u32 block, Value first, Value second) {
    const u32 halves = u32(m.is_block(first.kind)) | u32(m.is_block(second.kind)) << 1;
    m.mem[block] = (OF_PAIR | halves) << 24;
    m.mem[block + 1] = weight_of(m, first) + weight_of(m, second);
    m.doubles(block)[0] = first.word;
    m.doubles(block)[1] = second.word;
}

__device__ __noinline__ Word pair_of(Machine &m, Value first, Value second, u32 kind) {
    const u32 tag = m.tag(kind);
    if (tag != PAIR) {
        u32 code = FINE;
        const Word word = plain_pair(m, first, second, tag, code);
        return code == FINE ? word : m.fail(code);
    }
    if (weight_of(m, first) + weight_of(m, second) > WEIGHT_MAX) {
        return m.fail(OVERFLOW);
    }
    const u32 block = m.take(PAIR_WORDS);
    if (m.error) {
        return 0;
    }
    write_pair(m, block, first, second);
    __syncwarp();
    return block;
}

// Pairs of elements number `at`: of `product` if `crosses`, b's elements outside, else side by side.
__device__ __noinline__ Word pairs_of(Machine &m, Value a, Value b, u32 kind, bool crosses) {
    const u32 length = m.count(a.word), other = m.count(b.word);
    const u64 all = crosses ? u64(length) * other : min(length, other);
    if (all >= WEIGHT_MAX) {
        // The first that cannot be made counts before the weight.
        if (m.tag(m.first(kind)) == PAIR) {
            return m.fail(OVERFLOW);
        }
    }
    const u32 count = u32(all < WEIGHT_MAX ? all : WEIGHT_MAX);
    const u32 of = m.first(kind), tag = m.tag(of), of_class = m.class_for(of);
    const u32 list = m.open(of_class, count);
    const u32 blocks = tag == PAIR && !m.error ? m.take(PAIR_WORDS * count) : 0;
    if (m.error) {
        return 0;
    }
    // The place and code of this lane's first failure.
    u32 fails = ~0u, mine = 0, code = FINE;
#pragma unroll 1
    for (u32 at = lane(); at < count; at += LANES) {
        const Value first = {m.element(a.word, crosses ? at % length : at), m.first(a.kind)};
        const Value second = {m.element(b.word, crosses ? at / length : at), m.first(b.kind)};
        if (tag == PAIR) {
            write_pair(m, blocks + PAIR_WORDS * at, first, second);
            mine = capped(mine + m.mem[blocks + PAIR_WORDS * at + 1], 2 * WEIGHT_MAX);
            m.words(list)[at] = blocks + PAIR_WORDS * at;
        } else {
            u32 here = FINE;
            m.put(list, of_class, at, plain_pair(m, first, second, tag, here));
            if (here != FINE && fails == ~0u) {
                fails = at;
                code = here;
            }
        }
    }
    const u32 first_failure = least_of_warp(fails);
    if (first_failure != ~0u) {
        code = fails == first_failure ? code : 0;
        return m.fail(most_of_warp(code));
    }
    if (all >= WEIGHT_MAX || tag == PAIR && u32(sum_of_warp(i32(mine))) >= WEIGHT_MAX) {
        return m.fail(OVERFLOW);
    }
    const u32 top = m.top;
    const Word result = m.is_set(kind) ? close_set(m, list, of, of_class, count) : close_list(m, list, of_class, count);
    // The pairs lie behind the list.
    m.top = tag == PAIR && !m.error ? top : m.top;
    return result;
}

// The elements of `a` for which `keeps(element)` holds, in a container of this kind.
template <class Keeps>
__device__ inline Word kept(Machine &m, Value a, u32 kind, Keeps keeps) {
    const u32 count = m.count(a.word), of_class = m.block_class(a.word);
    const u32 list = m.open(of_class, count);
    if (m.error) {
        return 0;
    }
    const u32 left = keep_in_order(
        count, [&](u32 at) { return keeps(m.element(a.word, at)); },
        [&](u32 place, u32 at) { m.put(list, of_class, place, m.element(a.word, at)); });
    return close_like(m, list, kind, of_class, left);
}

// Appends the elements of a list to an opened one that has `count`.
__device__ __noinline__ void append(const Machine &m, u32 list, u32 of_class, u32 count, Word from) {
    const u32 more = m.count(from);
    if (m.block_class(from) == OF_BOARD) {
        write_board(m, u32(from), list, of_class, count);
        return;
    }
#pragma unroll 1
    for (u32 at = lane(); at < more; at += LANES) {
        m.put(list, of_class, count + at, m.element(from, at));
    }
}

// The elements of `a`, then those of `b`, then `value` if there is one; in a container of this kind.
__device__ __noinline__ Word combined(Machine &m, Word a, Word b, bool has_value, Word value, u32 kind) {
    const u32 of_class = m.class_for(m.first(kind));
    const u32 count = m.count(a), more = b == a && has_value ? 0 : m.count(b);
    const u32 list = m.open(of_class, count + more + has_value);
    if (m.error) {
        return 0;
    }
    append(m, list, of_class, 0, a);
    if (more > 0) {
        append(m, list, of_class, count, b);
    }
    if (has_value && lane() == 0) {
        m.put(list, of_class, count, value);
    }
    return close_like(m, list, kind, of_class, count + more + has_value);
}

// The elements of all elements.
__device__ __noinline__ Word merged(Machine &m, Value a, u32 kind) {
    const u32 of = m.first(kind), of_class = m.class_for(of);
    const u32 lists = m.count(a.word);
    u32 count = 0, weight = 0;
#pragma unroll 1
    for (u32 at = lane(); at < lists; at += LANES) {
        const u32 list = m.words(a.word)[at];
        count = capped(count + m.count(list), 2 * WEIGHT_MAX);
        weight = capped(weight + m.weight(list) - 1, 2 * WEIGHT_MAX);
    }
    count = u32(sum_of_warp(i32(count)));
    weight = u32(sum_of_warp(i32(weight)));
    if (weight >= WEIGHT_MAX) {
        return m.fail(OVERFLOW);
    }
    const u32 list = m.open(of_class, count);
    if (m.error) {
        return 0;
    }
    u32 place = 0;
#pragma unroll 1
    for (u32 at = 0; at < lists; at += 1) {
        const u32 from = m.words(a.word)[at];
        append(m, list, of_class, place, from);
        place += m.count(from);
    }
    return close_like(m, list, kind, of_class, count);
}

__device__ __noinline__ Word deduped(Machine &m, Value a) {
    const u32 count = m.count(a.word), of_class = m.block_class(a.word), of = m.first(a.kind);
    const u32 list = m.open(of_class, count);
    if (m.error) {
        return 0;
    }
    const u32 left = keep_in_order(
        count,
        [&](u32 at) {
            const Word value = m.element(a.word, at);
#pragma unroll 1
            for (u32 before = 0; before < at; before += 1) {
                if (compare(m, of, m.element(a.word, before), value) == 0) {
                    return false;
                }
            }
            return true;
        },
        [&](u32 place, u32 at) { m.put(list, of_class, place, m.element(a.word, at)); });
    return close_list(m, list, of_class, left);
}

__device__ __noinline__ Word repeated(Machine &m, Value a, Word number, u32 kind) {
    const i32 times = needed_number(m, number);
    if (m.error) {
        return 0;
    }
    const u32 count = max(times, 0), of_class = m.class_for(m.first(kind));
    if (u64(count) * weight_of(m, a) > WEIGHT_MAX) {
        return m.fail(OVERFLOW);
    }
    const u32 list = m.open(of_class, count);
    if (m.error) {
        return 0;
    }
#pragma unroll 1
    for (u32 at = lane(); at < count; at += LANES) {
        m.put(list, of_class, at, a.word);
    }
    return close_list(m, list, of_class, count);
}

// The greatest or least element of numbers or vectors.
__device__ __noinline__ Word extreme(Machine &m, Value a, u32 kind, bool greatest) {
    const u32 count = m.count(a.word);
    if (count == 0) {
        return m.tag(kind) == VECTOR ? m.fail(EMPTY_ARG) : of_number(0);
    }
    // Nothing cannot be compared, but one element is not compared.
    const bool numbers = m.tag(kind) != VECTOR && count > 1;
    // Of vectors nothing is the least.
    const u32 turn = m.tag(kind) == VECTOR;
    u32 best = greatest ? 0 : ~0u;
    bool nothing = false;
#pragma unroll 1
    for (u32 at = lane(); at < count; at += LANES) {
        const u32 word = m.words(a.word)[at];
        nothing |= numbers && number_of(word) == NOTHING;
        best = greatest ? max(best, word + turn) : min(best, word + turn);
    }
    if (any_lane(nothing)) {
        return m.fail(BAD_TYPE);
    }
    return (greatest ? most_of_warp(best) : least_of_warp(best)) - turn;
}

// The first element that is not the value.
__device__ __noinline__ Word other(Machine &m, Value a, Word value) {
    const u32 of = m.first(a.kind);
    u32 found = ~0u;
#pragma unroll 1
    for (u32 at = lane(); at < m.count(a.word) && found == ~0u; at += LANES) {
        found = compare(m, of, m.element(a.word, at), value) != 0 ? at : found;
    }
    found = least_of_warp(found);
    return found == ~0u ? m.fail(EMPTY_ARG) : m.element(a.word, found);
}

// Why a patch has no first half, or FINE.
__device__ inline u32 no_first_half(const Machine &m, Word patch) {
    if (m.count(patch) == 0) {
        return EMPTY_ARG;
    }
    if (m.block_class(patch) == OF_BOARD) {
        return FINE;
    }
    const bool of_words = m.block_class(patch) == OF_WORDS;
    const Word first = of_words ? Word(m.words(patch)[0]) << 17 : m.doubles(patch)[0];
    return !has_color(first) && vector_of_cell(first) == NO_VECTOR ? u32(BAD_TYPE) : u32(FINE);
}

// The colour of the first cell, or the row of the first place. Each lane may ask for its own; the patch has one.
__device__ inline i32 first_half(const Machine &m, Word patch) {
    if (m.block_class(patch) == OF_BOARD) {
        const Word first = Cursor(m, u32(patch)).take(m);
        return m.mem[u32(patch) + 2] & MANY_COLORS ? color_of(first) : row_of(u32(first));
    }
    if (m.block_class(patch) == OF_WORDS) {
        return row_of(m.words(patch)[0]);
    }
    const Word first = m.doubles(patch)[0];
    return has_color(first) ? color_of(first) : row_of(vector_of_cell(first));
}

__device__ __noinline__ Word color_filtered(Machine &m, Value a, Word color, u32 kind) {
    const u32 count = m.count(a.word);
    // The first that fails counts.
    u32 fails = ~0u;
#pragma unroll 1
    for (u32 at = lane(); at < count; at += LANES) {
        const u32 why = no_first_half(m, m.words(a.word)[at]);
        fails = why != FINE ? min(fails, at << 8 | why) : fails;
    }
    fails = least_of_warp(fails);
    if (fails != ~0u) {
        return m.fail(fails & 0xff);
    }
    return kept(m, a, kind, [&](Word object) { return of_number(first_half(m, object)) == color; });
}

// The first or last half or element.
__device__ __noinline__ Word end_of(Machine &m, Value a, bool is_last) {
    switch (m.tag(a.kind)) {
    case VECTOR:
        if (u32(a.word) == NO_VECTOR) {
            return m.fail(EMPTY_ARG);
        }
        return of_number(is_last ? col_of(u32(a.word)) : row_of(u32(a.word)));
    case CELL:
        return is_last ? Word(vector_of_cell(a.word)) : of_number(color_of(a.word));
    case PAIR:
        return m.half(a.word, is_last);
    default: {
        const u32 count = m.count(a.word);
        return count == 0 ? m.fail(EMPTY_ARG) : m.element(a.word, is_last ? count - 1 : 0);
    }
    }
}

__device__ __noinline__ Word container_op(Machine &m, u32 op, Value a, Value b, u32 kind) {
    switch (op) {
    case OP_CONTAINED:
        if (m.is_set(b.kind)) {
            return of_flag(set_has(m, b.word, m.first(b.kind), a.word));
        } else {
            bool has = false;
#pragma unroll 1
            for (u32 at = lane(); at < m.count(b.word) && !has; at += LANES) {
                has = compare(m, m.first(b.kind), m.element(b.word, at), a.word) == 0;
            }
            return of_flag(any_lane(has));
        }
    case OP_SIZE: {
        const u32 tag = m.tag(a.kind);
        if (tag == VECTOR && u32(a.word) == NO_VECTOR) {
            return of_number(0);
        }
        return of_number(tag == VECTOR || tag == CELL || tag == PAIR ? 2 : i32(m.count(a.word)));
    }
    case OP_FIRST:
        return end_of(m, a, false);
    case OP_LAST:
        return end_of(m, a, true);
    case OP_COMBINE:
        return combined(m, a.word, b.word, false, 0, kind);
    case OP_INTERSECTION:
    case OP_DIFFERENCE: {
        const bool wanted = op == OP_INTERSECTION, of_set = m.is_set(b.kind);
        const u32 of = m.first(b.kind);
        return kept(m, a, kind, [&](Word value) { return list_has(m, b.word, of_set, of, value) == wanted; });
    }
    case OP_INSERT:
        return combined(m, b.word, b.word, true, a.word, kind);
    case OP_REMOVE:
        return kept(m, b, kind, [&](Word value) { return compare(m, m.first(b.kind), value, a.word) != 0; });
    case OP_OTHER:
        return other(m, a, b.word);
    case OP_INITSET: {
        const u32 of_class = m.class_for(a.kind), list = m.open(of_class, 1);
        if (m.error) {
            return 0;
        }
        if (lane() == 0) {
            m.put(list, of_class, 0, a.word);
        }
        return close_list(m, list, of_class, 1);
    }
    case OP_TOTUPLE:
        // The elements of a set stand in canonical order.
        return a.word;
    case OP_DEDUPE:
        return deduped(m, a);
    case OP_REPEAT:
        return repeated(m, a, b.word, kind);
    case OP_MERGE:
        return merged(m, a, kind);
    case OP_PRODUCT:
        return pairs_of(m, a, b, kind, true);
    case OP_PAIRUP:
        return pairs_of(m, a, b, kind, false);
    case OP_MAXIMUM:
        return extreme(m, a, kind, true);
    case OP_MINIMUM:
        return extreme(m, a, kind, false);
    case OP_MOSTCOMMON:
    case OP_LEASTCOMMON: {
        const u32 of = m.first(a.kind);
        return m.count(a.word) == 0 ? m.fail(EMPTY_ARG)
                                    : best_common(m, a.word, of, op == OP_LEASTCOMMON, m.tag(of) <= NUMBER);
    }
    case OP_COLORFILTER:
        return color_filtered(m, a, b.word, kind);
    default:
        return kept(m, a, kind, [&](Word list) { return of_number(i32(m.count(list))) == b.word; });
    }
}
