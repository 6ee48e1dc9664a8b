// The canonical order of values, and Python's order of keys. Each lane may compare values of its own.

#pragma once

#include "machine/boards.cuh"

__device__ inline i32 sign_of(bool is_less, bool is_greater) { return i32(is_greater) - i32(is_less); }

__device__ inline i32 compare_words(Word one, Word two) { return sign_of(one < two, one > two); }

// Rows of numbers by their cells; if `pairs_first`, rows of exactly two come first.
__device__ __noinline__ i32 compare_grids(const Machine &m, Word one, Word two, bool pairs_first) {
    const u32 h = min(m.height(one), m.height(two));
    const u32 w = m.width(one), v = m.width(two);
    if (h > 0 && pairs_first && (w == 2) != (v == 2)) {
        return w == 2 ? -1 : 1;
    }
#pragma unroll 1
    for (u32 row = 0; row < h; row += 1) {
#pragma unroll 1
        for (u32 col = 0; col < min(w, v); col += 1) {
            const i32 a = cell_at(m, u32(one), row, col), b = cell_at(m, u32(two), row, col);
            if (a != b) {
                return a < b ? -1 : 1;
            }
        }
        if (w != v) {
            return w < v ? -1 : 1;
        }
    }
    return compare_words(m.height(one), m.height(two));
}

// Sets of vectors or cells, of which one is a board.
__device__ __noinline__ i32 compare_boards(const Machine &m, Word one, Word two) {
    const u32 length = m.count(one), other = m.count(two);
    Cursor a(m, u32(one)), b(m, u32(two));
#pragma unroll 1
    for (u32 at = 0; at < min(length, other); at += 1) {
        const Word first = a.take(m), second = b.take(m);
        if (first != second) {
            return compare_words(first, second);
        }
    }
    return compare_words(length, other);
}

// Containers whose elements are no blocks.
__device__ __noinline__ i32 compare_lists(const Machine &m, u32 tag, u32 of, Word one, Word two) {
    const u32 length = m.count(one), other = m.count(two);
    if (tag == TUPLE && of <= NUMBER && (length == 2) != (other == 2)) {
        return length == 2 ? -1 : 1;
    }
    if (m.block_class(one) == OF_BOARD || m.block_class(two) == OF_BOARD) {
        return compare_boards(m, one, two);
    }
    const u32 shared = min(length, other);
    if (of == CELL || of == PLACE) {
        const Word *a = m.doubles(one), *b = m.doubles(two);
#pragma unroll 1
        for (u32 at = 0; at < shared; at += 1) {
            if (a[at] != b[at]) {
                return compare_words(a[at], b[at]);
            }
        }
    } else {
        const u32 *a = m.words(one), *b = m.words(two);
#pragma unroll 1
        for (u32 at = 0; at < shared; at += 1) {
            if (a[at] != b[at]) {
                return compare_words(a[at], b[at]);
            }
        }
    }
    return compare_words(length, other);
}

// Two containers or pairs of which an element is being compared.
struct Compared {
    u32 kind, one, two, next;
};

// The canonical order of two blocks: -1, 0 or 1.
__device__ __noinline__ i32 compare_blocks(const Machine &m, u32 kind, Word one, Word two) {
    Compared open[DEPTH_MAX];
    u32 depth = 0;
#pragma unroll 1
    while (true) {
        const u32 tag = m.tag(kind);
        i32 order = 0;
        bool enters = false;
        if (tag < GRID) {
            order = compare_words(one, two);
        } else if (one == two) {
            order = 0;
        } else if (tag == GRID) {
            order = compare_grids(m, one, two, true);
        } else if (tag == PAIR || m.is_block(m.first(kind))) {
            enters = true;
        } else {
            order = compare_lists(m, tag, m.tag(m.first(kind)), one, two);
        }
        if (enters) {
            open[depth] = {kind, u32(one), u32(two), 0};
            depth += 1;
        }
        // Goes back to what has an element left.
#pragma unroll 1
        while (order == 0) {
            if (depth == 0) {
                return 0;
            }
            Compared &top = open[depth - 1];
            const u32 at = top.next;
            top.next += 1;
            if (m.tag(top.kind) == PAIR) {
                if (at < 2) {
                    kind = at == 0 ? m.first(top.kind) : m.second(top.kind);
                    one = m.half(top.one, at);
                    two = m.half(top.two, at);
                    break;
                }
            } else if (at < min(m.count(top.one), m.count(top.two))) {
                kind = m.first(top.kind);
                one = m.words(top.one)[at];
                two = m.words(top.two)[at];
                break;
            } else {
                order = compare_words(m.count(top.one), m.count(top.two));
            }
            if (order == 0) {
                depth -= 1;
            }
        }
        if (order != 0) {
            return order;
        }
    }
}

__device__ inline i32 compare(const Machine &m, u32 kind, Word one, Word two) {
    return m.is_block(kind) ? compare_blocks(m, kind, one, two) : compare_words(one, two);
}

// How many elements of a sorted list come before the value.
__device__ inline u32 place_in(const Machine &m, Word list, u32 kind, Word value) {
    u32 low = 0, high = m.count(list);
    const bool doubles = m.block_class(list) == OF_DOUBLES;
#pragma unroll 1
    while (low < high) {
        const u32 middle = (low + high) / 2;
        const Word element = doubles ? m.doubles(list)[middle] : m.words(list)[middle];
        if (compare(m, kind, element, value) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

// Whether a sorted list has the value.
__device__ __noinline__ bool set_has(const Machine &m, Word list, u32 kind, Word value) {
    if (m.block_class(list) == OF_BOARD) {
        return board_has(m, u32(list), value);
    }
    const u32 at = place_in(m, list, kind, value);
    return at < m.count(list) && compare(m, kind, m.element(list, at), value) == 0;
}

// Whether a list of `of_set` has the value.
__device__ inline bool list_has(const Machine &m, Word list, bool of_set, u32 kind, Word value) {
    if (of_set) {
        return set_has(m, list, kind, value);
    }
#pragma unroll 1
    for (u32 at = 0; at < m.count(list); at += 1) {
        if (compare(m, kind, m.element(list, at), value) == 0) {
            return true;
        }
    }
    return false;
}

__device__ inline bool is_within(const Machine &m, u32 kind, Word one, Word two) {
#pragma unroll 1
    for (u32 at = 0; at < m.count(one); at += 1) {
        if (!set_has(m, two, kind, m.element(one, at))) {
            return false;
        }
    }
    return true;
}

// Neither is before the other.
constexpr i32 APART = 2;

// Python's order of two keys: -1, 0, 1 or APART.
__device__ __noinline__ i32 compare_keys(const Machine &m, u32 kind, Word one, Word two) {
#pragma unroll 1
    while (true) {
        switch (m.tag(kind)) {
        case FLAG:
        case NUMBER:
            return number_of(one) == NOTHING || number_of(two) == NOTHING ? APART : compare_words(one, two);
        case VECTOR:
            // Nothing comes first.
            return compare_words(u32(one + 1), u32(two + 1));
        case CELL:
        case PLACE: {
            if (has_color(one) != has_color(two)) {
                return APART;
            }
            const i32 colors = compare_words(one & 0x1ffff, two & 0x1ffff);
            return colors != 0 ? colors : compare_words(vector_of_cell(one) + 1, vector_of_cell(two) + 1);
        }
        case GRID:
            return compare_grids(m, one, two, false);
        case PAIR: {
            const bool same = compare(m, m.first(kind), m.half(one, 0), m.half(two, 0)) == 0;
            one = m.half(one, same);
            two = m.half(two, same);
            kind = same ? m.second(kind) : m.first(kind);
            break;
        }
        case SET: {
            const bool below = is_within(m, m.first(kind), one, two);
            const bool above = is_within(m, m.first(kind), two, one);
            return below && above ? 0 : below ? -1 : above ? 1 : APART;
        }
        case TUPLE: {
            const u32 length = m.count(one), other = m.count(two);
            kind = m.first(kind);
            u32 at = 0;
#pragma unroll 1
            while (at < min(length, other) && compare(m, kind, m.element(one, at), m.element(two, at)) == 0) {
                at += 1;
            }
            if (at == min(length, other)) {
                return compare_words(length, other);
            }
            one = m.element(one, at);
            two = m.element(two, at);
            break;
        }
        default:
            return APART;
        }
    }
}
