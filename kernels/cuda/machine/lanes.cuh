// Ops on values that may differ from lane to lane: numbers, vectors, and what the heads of boards, grids and lists
// tell. They have no collectives, so that a loop over such ops can run an element a lane.

#pragma once

#include "machine/quick_ops.cuh"

// Whether a lane can run the op, if its values have the right form.
__device__ inline bool is_lane_op(u32 op) {
    switch (op) {
    case OP_PAIR:
    case OP_SELECT:
    case OP_CONTAINED:
    case OP_FIRST:
    case OP_LAST:
    case OP_SIZE:
    case OP_COLOR:
    case OP_INDEX:
    case OP_CENTER:
    case OP_BORDERING:
        return true;
    default:
        return op >= OP_ADD && op <= OP_TOJVEC || op >= OP_EQUALITY && op <= OP_EITHER
               || op >= OP_HEIGHT && op <= OP_LRCORNER;
    }
}

// A number op; false where the other functions must say what comes out.
__device__ __forceinline__ bool number_op(u32 op, i32 a, i32 b, i64 &made) {
    switch (op) {
    case OP_ADD:
        made = i64(a) + b;
        return true;
    case OP_SUBTRACT:
        made = i64(a) - b;
        return true;
    case OP_MULTIPLY:
        made = i64(a) * b;
        return true;
    case OP_DIVIDE: {
        const i32 by = b == 0 || b == -1 ? 1 : b, quotient = a / by;
        made = quotient - (a - quotient * by != 0 && (a < 0) != (by < 0));
        return by == b;
    }
    case OP_INVERT:
        made = -i64(a);
        return true;
    case OP_DOUBLE:
        made = 2 * i64(a);
        return true;
    case OP_HALVE:
        made = a >> 1;
        return true;
    case OP_INCREMENT:
        made = i64(a) + 1;
        return true;
    case OP_DECREMENT:
        made = i64(a) - 1;
        return true;
    case OP_CREMENT:
        made = i64(a) + (a > 0) - (a < 0);
        return true;
    default:
        made = (a > 0) - (a < 0);
        return true;
    }
}

__device__ __forceinline__ bool arithmetic_op(const Instruction &of, Word a, Word b, Word &result) {
    const bool two = of.op <= OP_DIVIDE, a_is_vector = of.tag_a == VECTOR, b_is_vector = two && of.tag_b == VECTOR;
    const i32 a_first = a_is_vector ? row_of(u32(a)) : number_of(a), a_second = a_is_vector ? col_of(u32(a)) : a_first;
    const i32 b_first = !two ? 0 : b_is_vector ? row_of(u32(b)) : number_of(b);
    const i32 b_second = b_is_vector ? col_of(u32(b)) : b_first;
    const bool nothing = (a_is_vector ? u32(a) == NO_VECTOR : a_first == NOTHING)
                         || two && (b_is_vector ? u32(b) == NO_VECTOR : b_first == NOTHING);
    i64 first = 0, second = 0;
    bool is = number_op(of.op, a_first, b_first, first) && !nothing;
    if (a_is_vector || b_is_vector) {
        is = number_op(of.op, a_second, b_second, second) && is && are_halves(first, second);
        result = is ? Word(of_vector(i32(first), i32(second))) : 0;
    } else {
        is = is && first > NOTHING && first <= 2147483647;
        result = of_number(i32(first));
    }
    return is;
}

// The first or last element or half.
__device__ __forceinline__ bool end_op(const Machine &m, u32 tag, Word a, bool is_last, Word &result) {
    if (tag == VECTOR) {
        result = of_number(is_last ? col_of(u32(a)) : row_of(u32(a)));
        return u32(a) != NO_VECTOR;
    }
    if (tag == CELL) {
        result = is_last ? Word(vector_of_cell(a)) : of_number(color_of(a));
        return true;
    }
    if (tag == PAIR) {
        result = m.half(a, is_last);
        return true;
    }
    const u32 block = u32(a), head = tag < SET ? 0 : m.mem[block], count = head & 0xffffff, of_class = head >> 24;
    if (count == 0) {
        return false;
    }
    if (of_class == OF_BOARD) {
        const Board board = board_head(quad(m, block));
        const u32 row = is_last ? board.h - 1 : 0, bits = m.mem[block + BOARD_HEAD + row];
        result = board_word(m, block, board, row, is_last ? 31 - __clz(bits) : __ffs(bits) - 1);
        return true;
    }
    const u32 at = is_last ? count - 1 : 0;
    result = of_class == OF_DOUBLES ? m.doubles(a)[at] : Word(m.words(a)[at]);
    return true;
}

// The value of an op. False if the other functions must compute it.
__device__ __forceinline__ bool lane_op(const Machine &m, const Instruction &of, Word a, Word b, Word c, Word &result) {
    const u32 op = of.op;
    if (op >= OP_ADD && op <= OP_SIGN) {
        return arithmetic_op(of, a, b, result);
    }
    const i32 number = number_of(a), other = number_of(b);
    switch (op) {
    case OP_TOIVEC:
    case OP_TOJVEC:
        result = op == OP_TOIVEC ? of_vector(number, 0) : of_vector(0, number);
        return is_half(number);
    case OP_PAIR:
        if (of.tag_to == VECTOR) {
            result = of_vector(number, other);
            return are_halves(number, other);
        }
        result = of_cell(number, u32(b));
        return of.tag_to == CELL && is_half(number);
    case OP_SELECT:
        result = is_true(a) ? b : c;
        return true;
    case OP_EQUALITY:
        result = of_flag(a == b);
        return of.tag_a < GRID;
    case OP_GREATER:
        result = of_flag(number > other);
        return number != NOTHING && other != NOTHING;
    case OP_EVEN:
        result = of_flag(number % 2 == 0);
        return number != NOTHING;
    case OP_POSITIVE:
        result = of_flag(number > 0);
        return number != NOTHING;
    case OP_FLIP:
        result = of_flag(!is_true(a));
        return true;
    case OP_BOTH:
        result = is_true(a) ? b : a;
        return true;
    case OP_EITHER:
        result = is_true(a) ? a : b;
        return true;
    case OP_TOTUPLE:
        // The elements of a set stand in canonical order.
        result = a;
        return m.block_class(a) != OF_BOARD;
    case OP_FIRST:
    case OP_LAST:
        return end_op(m, of.tag_a, a, op == OP_LAST, result);
    case OP_CONTAINED: {
        if (of.tag_a >= GRID || of.tag_b < SET) {
            return false;
        }
        const u32 block = u32(b), of_class = m.block_class(block), count = m.count(block);
        bool has = false;
        if (of_class == OF_BOARD) {
            has = board_has(m, block, a);
        } else {
#pragma unroll 1
            for (u32 at = 0; at < count && !has; at += 1) {
                has = a == (of_class == OF_DOUBLES ? m.doubles(block)[at] : Word(m.words(block)[at]));
            }
        }
        result = of_flag(has);
        return true;
    }
    case OP_INDEX: {
        const u32 grid = u32(a), row = u32(row_of(u32(b))), col = u32(col_of(u32(b))), h = m.height(grid);
        const bool is = row < h && col < m.width(grid);
        result = of_number(is ? cell_at(m, grid, row, col) : NOTHING);
        return u32(b) != NO_VECTOR && h > 0;
    }
    default:
        return head_op(m, of, a, b, result);
    }
}
