// Values in other kinds. Mirrors kernels/src/reference/machine/convert.rs.

#pragma once

#include "machine/containers.cuh"

// Whether both kinds have one layout: a flag is a number.
__device__ __noinline__ bool is_like(const Machine &m, u32 one, u32 two) {
    // At most two kinds are open at each depth.
    u32 open[2 * DEPTH_MAX];
    u32 depth = 0;
#pragma unroll 1
    while (true) {
        const u32 tag = m.tag(one), other = m.tag(two);
        const bool numbers = (tag == FLAG || tag == NUMBER) && (other == FLAG || other == NUMBER);
        if (one != two && !numbers) {
            if (tag != other) {
                return false;
            }
            if (tag == PAIR) {
                open[depth] = m.second(one) << 8 | m.second(two);
                depth += 1;
            }
            if (tag >= PAIR) {
                one = m.first(one);
                two = m.first(two);
                continue;
            }
        }
        if (depth == 0) {
            return true;
        }
        depth -= 1;
        one = open[depth] >> 8;
        two = open[depth] & 0xff;
    }
}

// A tuple of the row `row` of a grid.
__device__ __noinline__ Word row_tuple(Machine &m, Word grid, u32 row) {
    const u32 w = m.width(grid), list = m.open(OF_WORDS, w);
    if (m.error) {
        return 0;
    }
#pragma unroll 1
    for (u32 at = lane(); at < w; at += LANES) {
        m.words(list)[at] = u32(of_number(cell_at(m, u32(grid), row, at)));
    }
    return close_list(m, list, OF_WORDS, w);
}

// What of kind `from` has as elements, when it is seen as a container: how many, and number `at` with its kind. A row
// of a grid has ROW.
constexpr u32 ROW = ~1u;

__device__ inline u32 parts(const Machine &m, Value value) {
    switch (value.kind == ROW ? u32(TUPLE) : m.tag(value.kind)) {
    case VECTOR:
        return u32(value.word) == NO_VECTOR ? 0 : 2;
    case PAIR:
        return 2;
    case GRID:
        return m.height(value.word);
    default:
        return m.count(value.word);
    }
}

__device__ __noinline__ Value part(Machine &m, Value value, u32 at) {
    if (value.kind == ROW) {
        return {m.element(value.word, at), PLAIN};
    }
    switch (m.tag(value.kind)) {
    case VECTOR:
        return {of_number(at == 0 ? row_of(u32(value.word)) : col_of(u32(value.word))), PLAIN};
    case PAIR:
        return {m.half(value.word, at), at == 0 ? m.first(value.kind) : m.second(value.kind)};
    case GRID:
        return {row_tuple(m, value.word, at), ROW};
    default:
        return {m.element(value.word, at), m.first(value.kind)};
    }
}

__device__ inline u32 tag_of(const Machine &m, u32 kind) {
    return kind == PLAIN ? u32(NUMBER) : kind == ROW ? u32(TUPLE) : m.tag(kind);
}

// A grid of rows, each a tuple of numbers or a vector.
__device__ __noinline__ Word grid_of_rows(Machine &m, Value value) {
    const u32 h = parts(m, value);
    u32 w = 0;
#pragma unroll 1
    for (u32 row = 0; row < h; row += 1) {
        const Value of = part(m, value, row);
        const u32 length = parts(m, of);
        if (row > 0 && length != w) {
            return m.fail(BAD_SHAPE);
        }
        w = length;
    }
    const u32 grid = m.open_grid(h, w);
    if (m.error) {
        return 0;
    }
    signed char *const cells = m.cells(grid);
#pragma unroll 1
    for (u32 row = 0; row < h; row += 1) {
        const Value of = part(m, value, row);
        // The first that fails counts.
        u32 fails = ~0u;
#pragma unroll 1
        for (u32 col = lane(); col < w; col += LANES) {
            const i32 number = number_of(part(m, of, col).word);
            if (number == NOTHING) {
                fails = min(fails, col << 8 | BAD_TYPE);
            } else if (number < COLOR_MIN || number > COLOR_MAX) {
                fails = min(fails, col << 8 | OVERFLOW);
            } else {
                cells[row * w + col] = (signed char)number;
            }
        }
        fails = least_of_warp(fails);
        if (fails != ~0u) {
            return m.fail(fails & 0xff);
        }
    }
    __syncwarp();
    return grid;
}

// A value that is no container in another kind that is none. Each lane may convert its own: sets `code` if it cannot.
__device__ inline Word converted_plain(const Machine &m, Word word, u32 from, u32 into, u32 &code) {
    switch (into) {
    case PLACE:
        return from == VECTOR ? word << 17 : word;
    case CELL:
        code = has_color(word) ? code : BAD_TYPE;
        return word;
    case VECTOR:
        code = from == PLACE && has_color(word) ? BAD_TYPE : code;
        return from == PLACE ? vector_of_cell(word) : word;
    default:
        return word;
    }
}

// A container whose elements are being converted.
struct Opened {
    Value from;
    u32 into, list, next;
};

// The value in another kind. Containers and pairs are opened down to what is no block.
__device__ __noinline__ Word converted(Machine &m, Value value, u32 into) {
    Opened open[DEPTH_MAX];
    u32 depth = 0;
#pragma unroll 1
    while (true) {
        const u32 tag = m.tag(into), from = tag_of(m, value.kind);
        Word made = 0;
        bool enters = false;
        const bool number = tag == FLAG || tag == NUMBER;
        const bool row_of_numbers = value.kind == ROW && tag == TUPLE && m.tag(m.first(into)) <= NUMBER;
        if (number || row_of_numbers || value.kind < ROW && is_like(m, value.kind, into)) {
            made = value.word;
        } else if (tag == VECTOR && from != VECTOR && from != PLACE) {
            if (parts(m, value) != 2) {
                return m.fail(BAD_TYPE);
            }
            const i32 row = needed_number(m, part(m, value, 0).word), col = needed_number(m, part(m, value, 1).word);
            made = m.error ? 0 : to_vector(m, row, col);
        } else if (tag == GRID) {
            made = grid_of_rows(m, value);
        } else if (tag < GRID) {
            u32 code = FINE;
            made = converted_plain(m, value.word, from, tag, code);
            m.error = m.error ? m.error : code;
        } else {
            const u32 count = parts(m, value);
            const u32 list = tag == PAIR ? m.take(PAIR_WORDS) : m.open(m.class_for(m.first(into)), count);
            if (m.error) {
                return 0;
            }
            open[depth] = {value, into, list, 0};
            depth += 1;
            enters = true;
        }
        if (m.error) {
            return 0;
        }
        // Puts what was made into its container; closes containers that are full.
#pragma unroll 1
        while (true) {
            if (!enters) {
                if (depth == 0) {
                    return made;
                }
                Opened &top = open[depth - 1];
                if (m.tag(top.into) == PAIR) {
                    m.doubles(top.list)[top.next] = made;
                } else {
                    m.put(top.list, m.class_for(m.first(top.into)), top.next, made);
                }
                top.next += 1;
            }
            enters = false;
            Opened &top = open[depth - 1];
            if (top.next < parts(m, top.from)) {
                value = part(m, top.from, top.next);
                into = m.tag(top.into) == PAIR && top.next == 1 ? m.second(top.into) : m.first(top.into);
                break;
            }
            __syncwarp();
            const u32 behind = m.top;
            if (m.tag(top.into) == PAIR) {
                const Value first = {m.half(top.list, 0), m.first(top.into)};
                write_pair(m, top.list, first, {m.half(top.list, 1), m.second(top.into)});
                made = top.list;
                m.error = m.weight(made) > WEIGHT_MAX ? OVERFLOW : m.error;
            } else {
                made = close_like(m, top.list, top.into, m.class_for(m.first(top.into)), top.next);
            }
            if (m.error) {
                return 0;
            }
            // What the elements are made of lies behind.
            m.top = behind;
            __syncwarp();
            depth -= 1;
        }
        if (m.error) {
            return 0;
        }
    }
}
