// Arithmetic and conditions. Mirrors kernels/src/reference/machine/numbers.rs.

#pragma once

#include "machine/forms.cuh"
#include "solver_ops.cuh"

__device__ inline Word to_number(Machine &m, i64 number) {
    return number > NOTHING && number <= 2147483647 ? of_number(i32(number)) : m.fail(OVERFLOW);
}

__device__ inline Word to_vector(Machine &m, i64 row, i64 col) {
    return are_halves(row, col) ? of_vector(i32(row), i32(col)) : m.fail(OVERFLOW);
}

// A number argument; BAD_TYPE if it is nothing.
__device__ inline i32 needed_number(Machine &m, Word word) {
    const i32 number = number_of(word);
    if (number == NOTHING) {
        m.fail(BAD_TYPE);
    }
    return number;
}

__device__ inline i64 floor_divided(Machine &m, i64 a, i64 b) {
    if (b == 0) {
        m.fail(BAD_NUMBER);
        return 0;
    }
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

__device__ inline i64 sign_of(i64 number) { return (number > 0) - (number < 0); }

__device__ inline i64 computed(Machine &m, u32 op, i64 a, i64 b) {
    switch (op) {
    case OP_ADD:
        return a + b;
    case OP_SUBTRACT:
        return a - b;
    case OP_MULTIPLY:
        return a * b;
    case OP_DIVIDE:
        return floor_divided(m, a, b);
    case OP_INVERT:
        return -a;
    case OP_DOUBLE:
        return 2 * a;
    case OP_HALVE:
        return a >> 1;
    case OP_INCREMENT:
        return a + 1;
    case OP_DECREMENT:
        return a - 1;
    case OP_CREMENT:
        return a + sign_of(a);
    default:
        return sign_of(a);
    }
}

// Ops on one or two numbers or vectors. `b` counts only for those of two.
__device__ __noinline__ Word arithmetic(Machine &m, u32 op, bool two, Word a, u32 tag_a, Word b, u32 tag_b) {
    const bool a_is_vector = tag_a == VECTOR, b_is_vector = two && tag_b == VECTOR;
    const i64 a_first = a_is_vector ? row_of(m.needed_vector(a)) : needed_number(m, a);
    const i64 b_first = b_is_vector ? row_of(m.needed_vector(b)) : two ? needed_number(m, b) : 0;
    if (m.error) {
        return 0;
    }
    const i64 first = computed(m, op, a_first, b_first);
    if (m.error) {
        return 0;
    }
    if (!a_is_vector && !b_is_vector) {
        return to_number(m, first);
    }
    const i64 second = computed(m, op, a_is_vector ? col_of(u32(a)) : a_first, b_is_vector ? col_of(u32(b)) : b_first);
    return m.error ? 0 : to_vector(m, first, second);
}

// The numbers from start by step, stop not included.
__device__ inline Word interval(Machine &m, Word a, Word b, Word c) {
    const i64 start = needed_number(m, a), stop = needed_number(m, b), step = needed_number(m, c);
    if (m.error) {
        return 0;
    }
    if (step == 0) {
        return m.fail(BAD_NUMBER);
    }
    const i64 span = step > 0 ? stop - start : start - stop, by = step > 0 ? step : -step;
    const i64 count = span > 0 ? (span + by - 1) / by : 0;
    if (count >= WEIGHT_MAX) {
        return m.fail(OVERFLOW);
    }
    const u32 list = m.open(OF_WORDS, u32(count));
    if (m.error) {
        return 0;
    }
#pragma unroll 1
    for (u32 at = lane(); at < count; at += LANES) {
        m.words(list)[at] = u32(of_number(i32(start + at * step)));
    }
    return close_list(m, list, OF_WORDS, u32(count));
}

__device__ inline Word compared(Machine &m, u32 op, Word a, Word b) {
    const i32 number = needed_number(m, a);
    const i32 other = op == OP_GREATER ? needed_number(m, b) : 0;
    return of_flag(op == OP_EVEN ? number % 2 == 0 : number > other);
}
