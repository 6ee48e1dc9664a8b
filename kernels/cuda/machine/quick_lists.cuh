// Quick ops on containers.

#pragma once

#include "machine/heads.cuh"

// Union, intersection or difference of two objects, of which one at least has several colours. LEFT if two cells of
// the union are at one place.
__device__ __forceinline__ u32 quick_colored(const Machine &m, u32 op, Quick &q) {
    const Board &patch = q.patch, &second = q.second;
    if (patch.count == 0 || second.count == 0) {
        return LEFT;
    }
    q.top = op == OP_COMBINE ? min(patch.top, second.top) : patch.top;
    q.left = op == OP_COMBINE ? min(patch.left, second.left) : patch.left;
    if (op == OP_COMBINE && (max(patch.bottom(), second.bottom()) - q.top >= i32(BOARD_SIDE)
                             || max(patch.right(), second.right()) - q.left >= i32(BOARD_SIDE))) {
        return LEFT;
    }
    const u32 one = patch.placed(q.top, q.left), two = second.placed(q.top, q.left);
    const i32 color = color_of_key(patch.key), beside = color_of_key(second.key);
    if (patch.key != MANY_COLORS && !is_code(color) || second.key != MANY_COLORS && !is_code(beside)) {
        return LEFT;
    }
    u32 differs = 0;
#pragma unroll
    for (u32 plane = 0; plane < PLANES; plane += 1) {
        Board first = patch, other = second;
        first.row = patch.key == MANY_COLORS ? board_plane(m, q.patch_at, patch.h, plane)
                                             : 0 - (code_of(color) >> plane & 1) & patch.row;
        other.row = second.key == MANY_COLORS ? board_plane(m, q.second_at, second.h, plane)
                                              : 0 - (code_of(beside) >> plane & 1) & second.row;
        const u32 here = first.placed(q.top, q.left), there = other.placed(q.top, q.left);
        differs |= here ^ there;
        q.grid.bits[plane] = op == OP_COMBINE ? here | there : here;
    }
    const u32 equal = one & two & ~differs;
    q.bits = op == OP_COMBINE ? one | two : op == OP_INTERSECTION ? equal : one & ~equal;
    return op == OP_COMBINE && any_lane((one & two) != 0) ? LEFT : COLORED_MADE;
}

// Says what it made in `q`; LEFT if the other functions must.
__device__ __forceinline__ u32 quick_lists(Machine &m, const Instruction &of, Quick &q) {
    const u32 op = of.op, form = of.form;
    Planes &grid = q.grid;
    const Board &patch = q.patch, &second = q.second;
    const Lazy &a = q.a, &b = q.b, &c = q.c;
    u32 &bits = q.bits, &key = q.key;
    i32 &top = q.top, &left = q.left;
    Word &result = q.result;
    u32 made = LEFT;
    switch (op) {
    case OP_EQUALITY: {
        const u32 one = u32(Word(a)), two = u32(Word(b));
        const u32 of_class = m.block_class(one), other = m.block_class(two);
        if (of_class >= OF_PLANES && of_class == other) {
            result = of_flag(same_blocks(m, one, two));
            made = WORD_MADE;
        }
        break;
    }
    case OP_PAIR: {
        const Value first = {a, of.kind_a}, second = {b, of.kind_b};
        const bool fits = weight_of(m, first) + weight_of(m, second) <= WEIGHT_MAX;
        const u32 block = fits ? m.take(PAIR_WORDS) : 0;
        if (fits && m.error == FINE) {
            write_pair(m, block, first, second);
        }
        __syncwarp();
        result = block;
        made = fits ? WORD_MADE : LEFT;
        break;
    }
    case OP_MAXIMUM:
    case OP_MINIMUM: {
        // The word of nothing is 0. It is compared with nothing else.
        const u32 list = u32(Word(a)), count = m.count(list);
        u32 best = op == OP_MAXIMUM ? 0 : ~0u, least_word = ~0u;
#pragma unroll 1
        for (u32 at = lane(); at < count; at += LANES) {
            const u32 word = m.words(list)[at];
            best = op == OP_MAXIMUM ? max(best, word) : min(best, word);
            least_word = min(least_word, word);
        }
        best = op == OP_MAXIMUM ? most(best) : least(best);
        result = count == 0 ? of_number(0) : Word(best);
        made = count > 1 && any_lane(least_word == 0) ? LEFT : WORD_MADE;
        break;
    }
    case OP_CONVERT: {
        if (of.tag_a == VECTOR) {
            const u32 vector = u32(Word(a)), list = m.take(HEAD_WORDS + 2);
            if (m.error == FINE && lane() == 0) {
                const Word row = of_number(row_of(vector)), col = of_number(col_of(vector));
                put_quad(m, list, OF_WORDS << 24 | 2, 3, u32(row), u32(col));
            }
            __syncwarp();
            result = list;
            made = vector != NO_VECTOR && m.tag(m.first(of.kind_to)) <= NUMBER ? WORD_MADE : LEFT;
            break;
        }
        const u32 row = of.tag_to == TUPLE ? m.first(of.kind_to) : u32(0), number = m.first(row);
        if (of.tag_to == TUPLE && m.tag(row) == TUPLE && m.tag(number) == NUMBER) {
            result = planes_as_rows(m, grid);
            made = WORD_MADE;
        } else if (of.tag_to == GRID && m.tag(m.first(of.kind_a)) == TUPLE && of.deep_tag <= NUMBER) {
            made = rows_as_planes(m, u32(Word(a)), grid) ? GRID_MADE : LEFT;
        }
        break;
    }
    case OP_PRODUCT: {
        u32 first_row = 0, first_col = 0, rows = 0, cols = 0;
        const u32 tag = m.tag(m.first(of.kind_a)), beside = m.tag(m.first(of.kind_b));
        if (tag == NUMBER && beside == NUMBER && numbers_as_bits(m, u32(Word(a)), first_row, rows)
            && numbers_as_bits(m, u32(Word(b)), first_col, cols)) {
            top = number_of(first_row);
            left = number_of(first_col);
            bits = 0 - (rows >> lane() & 1) & cols;
            made = is_near(top) && is_near(left) ? BOARD_MADE : LEFT;
        }
        break;
    }
    case OP_INTERVAL: {
        const i32 start = number_of(a), stop = number_of(b), step = number_of(c);
        if (is_near(start) && is_near(stop) && step > 0 && is_near(step)) {
            const u32 count = stop > start ? u32(stop - start + step - 1) / u32(step) : 0;
            const u32 list = m.take(HEAD_WORDS + count);
            if (m.error == FINE) {
#pragma unroll 1
                for (u32 at = lane(); at < count; at += LANES) {
                    m.mem[list + HEAD_WORDS + at] = u32(of_number(start + i32(at) * step));
                }
                m.mem[list] = OF_WORDS << 24 | count;
                m.mem[list + 1] = 1 + count;
            }
            __syncwarp();
            result = list;
            made = WORD_MADE;
        }
        break;
    }
    case OP_INITSET: {
        const u32 place = of.tag_a == CELL ? vector_of_cell(a) : u32(Word(a));
        top = row_of(place);
        left = col_of(place);
        key = of.tag_a == CELL ? u32(Word(a)) & 0x1ffff : PLAIN_PLACES;
        bits = u32(lane() == 0);
        made = (of.tag_a == CELL || of.tag_a == VECTOR) && is_near(top) && is_near(left) ? BOARD_MADE : LEFT;
        break;
    }
    case OP_INSERT: {
        const u32 place = u32(Word(a));
        if (of.tag_a == VECTOR && patch.count > 0 && is_near(row_of(place)) && is_near(col_of(place))) {
            top = min(patch.top, row_of(place));
            left = min(patch.left, col_of(place));
            const u32 row = u32(row_of(place) - top), col = u32(col_of(place) - left);
            bits = patch.placed(top, left) | (0 - u32(lane() == row) & 1u << (col & 31));
            const i32 bottom = max(patch.bottom() - top, i32(row)), right = max(patch.right() - left, i32(col));
            made = bottom < i32(BOARD_SIDE) && right < i32(BOARD_SIDE) ? BOARD_MADE : LEFT;
        }
        break;
    }
    case OP_REMOVE:
        if (of.tag_a == VECTOR) {
            const u32 row = u32(row_of(u32(Word(a))) - patch.top), col = u32(col_of(u32(Word(a))) - patch.left);
            top = patch.top;
            left = patch.left;
            bits = patch.row & ~(0 - u32(lane() == row && col < BOARD_SIDE) & 1u << (col & 31));
            made = form >> 4 & 3 ? BOARD_MADE : LEFT;
        } else if ((form >> 4 & 3) == 1 && patch.count > 0 && are_boards(m, u32(Word(b)))) {
            result = quick_kept(m, u32(Word(b)), [&](u32 block) { return !are_same(m, block, q.patch_at); });
            made = WORD_MADE;
        }
        break;
    case OP_COMBINE:
    case OP_INTERSECTION:
    case OP_DIFFERENCE: {
        if ((form >> 4 & 3) == 0) {
            if (are_boards(m, u32(Word(a))) && are_boards(m, u32(Word(b)))) {
                const u32 others = m.count(b);
                result = quick_kept(m, u32(Word(a)), [&](u32 block) {
                    bool has = false;
#pragma unroll 1
                    for (u32 at = 0; at < others && !has; at += 1) {
                        has = are_same(m, block, m.words(b)[at]);
                    }
                    return has == (op == OP_INTERSECTION);
                });
                made = WORD_MADE;
            }
            break;
        }
        const bool alike = patch.key == second.key || patch.count == 0 || second.count == 0;
        if (patch.key == MANY_COLORS || second.key == MANY_COLORS) {
            made = quick_colored(m, op, q);
            break;
        }
        if (op != OP_COMBINE) {
            top = patch.top;
            left = patch.left;
            key = patch.key;
            const u32 other = second.placed(top, left);
            bits = op == OP_INTERSECTION ? (alike ? patch.row & other : 0) : alike ? patch.row & ~other : patch.row;
            made = BOARD_MADE;
            break;
        }
        key = patch.count > 0 ? patch.key : second.key;
        if (patch.count > 0 && second.count > 0) {
            top = min(patch.top, second.top);
            left = min(patch.left, second.left);
            if (max(patch.bottom(), second.bottom()) - top >= i32(BOARD_SIDE)
                || max(patch.right(), second.right()) - left >= i32(BOARD_SIDE)) {
                break;
            }
        } else {
            top = patch.count > 0 ? patch.top : second.top;
            left = patch.count > 0 ? patch.left : second.left;
        }
        const u32 first = patch.placed(top, left), other = second.placed(top, left);
        bits = first | other;
        made = BOARD_MADE;
        if (!alike) {
            const i32 color = color_of_key(patch.key), beside = color_of_key(second.key);
#pragma unroll
            for (u32 plane = 0; plane < PLANES; plane += 1) {
                const u32 one = 0 - (code_of(color) >> plane & 1), two = 0 - (code_of(beside) >> plane & 1);
                grid.bits[plane] = first & one | other & two;
            }
            made = any_lane((first & other) != 0) || !is_code(color) || !is_code(beside) ? LEFT : COLORED_MADE;
        }
        break;
    }
    case OP_MERGE:
        made = quick_merged(m, u32(Word(a)), of.deep_tag == CELL, result) ? WORD_MADE : LEFT;
        break;
    case OP_COLORFILTER: {
        const u32 count = m.count(a);
        bool fails = false;
#pragma unroll 1
        for (u32 at = lane(); at < count; at += LANES) {
            const u32 block = m.words(a)[at];
            fails |= m.block_class(block) != OF_BOARD || (m.mem[block + 2] & MANY_COLORS) == MANY_COLORS;
        }
        if (!any_lane(fails)) {
            const i32 color = number_of(b);
            result = quick_kept(m, u32(Word(a)), [&](u32 block) {
                const u32 with = m.mem[block + 2] & MANY_COLORS;
                return (with == PLAIN_PLACES ? row_of(m.mem[block + 1]) : color_of_key(with)) == color;
            });
            made = WORD_MADE;
        }
        break;
    }
    case OP_SIZEFILTER:
        result = quick_kept(m, u32(Word(a)), [&](u32 block) { return of_number(i32(m.count(block))) == b; });
        made = WORD_MADE;
        break;
    default:
        break;
    }
    return made;
}
