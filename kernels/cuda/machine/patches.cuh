// Primitives that make patches and objects. Mirrors kernels/src/reference/machine/patches.rs.

#pragma once

#include "machine/distances.cuh"

constexpr u32 FRONTIER = 30;
constexpr i32 SHOT = 42;

// Each element with its place put elsewhere, in a set of this kind. `to(row, col)` changes both.
template <class To>
__device__ inline Word moved(Machine &m, Word patch, u32 kind, To to) {
    const Patch from = patch_of(m, patch);
    const u32 of_class = m.block_class(patch), list = m.open(of_class, from.count);
    if (m.error) {
        return 0;
    }
    // The first that fails counts.
    u32 fails = ~0u;
#pragma unroll 1
    for (u32 at = lane(); at < from.count; at += LANES) {
        const u32 place = from.at(at);
        i32 row = row_of(place), col = col_of(place);
        to(row, col);
        if (place == NO_VECTOR || !are_halves(row, col)) {
            fails = min(fails, at << 8 | (place == NO_VECTOR ? BAD_TYPE : OVERFLOW));
        }
        const u32 vector = of_vector(row, col);
        if (of_class == OF_DOUBLES) {
            m.doubles(list)[at] = Word(vector) << 17 | (from.doubles[at] & 0x1ffff);
        } else {
            m.words(list)[at] = vector;
        }
    }
    fails = least_of_warp(fails);
    if (fails != ~0u) {
        return m.fail(fails & 0xff);
    }
    return close_set(m, list, PLAIN, of_class, from.count);
}

__device__ __noinline__ Word shifted(Machine &m, Word patch, i32 rows, i32 cols) {
    return moved(m, patch, PLAIN, [=](i32 &row, i32 &col) {
        row += rows;
        col += cols;
    });
}

// Moved so that its box begins at (0, 0).
__device__ __noinline__ Word normalized(Machine &m, Word patch) {
    if (m.count(patch) == 0) {
        return empty_list(m, m.block_class(patch));
    }
    const Frame frame = frame_of(m, patch);
    return m.error ? 0 : shifted(m, patch, -frame.top, -frame.left);
}

// The cells of a grid of a colour, or all, in order: cells, or only their places.
template <class Keeps>
__device__ inline Word cells_of(Machine &m, Word grid, bool colored, Keeps keeps) {
    const u32 area = m.count(grid), w = m.width(grid), of_class = colored ? OF_DOUBLES : OF_WORDS;
    const u32 list = m.open(of_class, area);
    if (m.error) {
        return 0;
    }
    const signed char *const cells = m.cells(grid);
    const Divider rows(w);
    const u32 count = keep_in_order(
        area, [&](u32 at) { return keeps(i32(cells[at])); },
        [&](u32 place, u32 at) {
            const u32 row = rows.divide(at), vector = of_vector(i32(row), i32(at - row * w));
            m.put(list, of_class, place, colored ? of_cell(cells[at], vector) : vector);
        });
    return close_list(m, list, of_class, count);
}

__device__ __noinline__ Word all_cells(Machine &m, Word grid, bool colored) {
    return cells_of(m, grid, colored, [](i32) { return true; });
}

__device__ __noinline__ Word cells_of_color(Machine &m, Word grid, bool colored, i32 color) {
    return cells_of(m, grid, colored, [=](i32 cell) { return cell == color; });
}

__device__ __noinline__ Word to_indices(Machine &m, Value patch, u32 kind) {
    // Of a tuple of vectors the same tuple.
    return m.is_set(kind) ? places_of(m, patch) : patch.word;
}

// The grid's cells at the places.
__device__ __noinline__ Word to_object(Machine &m, Value patch, Word grid) {
    if (m.height(grid) == 0) {
        return m.fail(EMPTY_ARG);
    }
    const Word places = places_of(m, patch);
    if (m.error) {
        return 0;
    }
    const u32 count = m.count(places), list = m.open(OF_DOUBLES, count);
    if (m.error) {
        return 0;
    }
    const u32 h = m.height(grid), w = m.width(grid);
    const u32 *const words = m.words(places);
    const u32 kept = keep_in_order(
        count, [&](u32 at) { return u32(row_of(words[at])) < h && u32(col_of(words[at])) < w; },
        [&](u32 place, u32 at) {
            const u32 vector = words[at];
            m.doubles(list)[place] = of_cell(m.cells(grid)[row_of(vector) * w + col_of(vector)], vector);
        });
    return close_list(m, list, OF_DOUBLES, kept);
}

__device__ __noinline__ Word recolored(Machine &m, Word number, Value patch) {
    const i32 color = needed_number(m, number);
    if (m.error) {
        return 0;
    }
    const Word places = places_of(m, patch);
    if (m.error) {
        return 0;
    }
    const u32 count = m.count(places), list = m.open(OF_DOUBLES, count);
    if (count > 0 && !is_half(color)) {
        return m.fail(OVERFLOW);
    }
    if (m.error) {
        return 0;
    }
#pragma unroll 1
    for (u32 at = lane(); at < count; at += LANES) {
        m.doubles(list)[at] = of_cell(color, m.words(places)[at]);
    }
    return close_list(m, list, OF_DOUBLES, count);
}

// `count` places: place `at` is (row, col) + at * (down, right). OVERFLOW if one is out of range. A set.
__device__ __noinline__ Word line(Machine &m, i32 row, i32 col, i32 down, i32 right, u32 count) {
    const i32 last_row = row + i32(count - 1) * down, last_col = col + i32(count - 1) * right;
    if (!are_halves(last_row, last_col) || !are_halves(row, col)) {
        return m.fail(OVERFLOW);
    }
    if (down < 0 || down == 0 && right < 0) {
        row += i32(count - 1) * down;
        col += i32(count - 1) * right;
        down = -down;
        right = -right;
    }
    const u32 list = m.open(OF_WORDS, count);
    if (m.error) {
        return 0;
    }
#pragma unroll 1
    for (u32 at = lane(); at < count; at += LANES) {
        m.words(list)[at] = of_vector(row + i32(at) * down, col + i32(at) * right);
    }
    return close_list(m, list, OF_WORDS, count);
}

// The places between two, both included, if they lie on a straight or diagonal line.
__device__ __noinline__ Word connected(Machine &m, u32 from, u32 to) {
    const i32 row = row_of(from), col = col_of(from), rows = row_of(to) - row, cols = col_of(to) - col;
    const i32 high = rows < 0 ? -rows : rows, wide = cols < 0 ? -cols : cols;
    if (rows != 0 && cols != 0 && high != wide) {
        return empty_list(m, OF_WORDS);
    }
    return line(m, row, col, i32(sign_of(i64(rows))), i32(sign_of(i64(cols))), u32(max(high, wide)) + 1);
}

__device__ inline Word shot(Machine &m, u32 start, u32 direction) {
    const Word end = to_vector(m, row_of(start) + SHOT * row_of(direction), col_of(start) + SHOT * col_of(direction));
    return m.error ? 0 : connected(m, start, u32(end));
}

// The places around one: nine in a row of three, of which `wanted` says which.
__device__ __noinline__ Word around(Machine &m, u32 at, u32 wanted) {
    const i32 row = row_of(at) + i32(lane()) / 3 - 1, col = col_of(at) + i32(lane()) % 3 - 1;
    const bool is = lane() < 9 && (wanted >> lane() & 1);
    if (any_lane(is && !are_halves(row, col))) {
        return m.fail(OVERFLOW);
    }
    const u32 list = m.open(OF_WORDS, __popc(wanted));
    if (m.error) {
        return 0;
    }
    if (is) {
        m.words(list)[__popc(wanted & ((1u << lane()) - 1))] = of_vector(row, col);
    }
    return close_list(m, list, OF_WORDS, __popc(wanted));
}

constexpr u32 STRAIGHT = 0xaa, DIAGONAL = 0x145;

__device__ __noinline__ Word corners(Machine &m, Word patch) {
    const Frame frame = needed_frame(m, patch);
    const u32 list = m.error ? 0 : m.open(OF_WORDS, 4);
    if (m.error) {
        return 0;
    }
    if (lane() < 4) {
        m.words(list)[lane()] =
            of_vector(lane() < 2 ? frame.top : frame.bottom, lane() % 2 == 0 ? frame.left : frame.right);
    }
    return close_set(m, list, PLAIN, OF_WORDS, 4);
}

__device__ inline bool is_frame(const Frame &frame) {
    return is_half(frame.top) && is_half(frame.left) && are_halves(frame.bottom, frame.right);
}

// The outline of the box, grown by `by` on each side. Sides that change places are put right.
__device__ __noinline__ Word outline(Machine &m, Word patch, i32 by) {
    Frame frame = needed_frame(m, patch);
    if (m.error) {
        return 0;
    }
    const i32 top = frame.top - by, bottom = frame.bottom + by, left = frame.left - by, right = frame.right + by;
    frame = {min(top, bottom), min(left, right), max(top, bottom), max(left, right)};
    if (!is_frame(frame)) {
        return m.fail(OVERFLOW);
    }
    const u32 h = u32(frame.height()), w = u32(frame.width());
    // The first and the last row whole, of the others two places or one.
    const u32 ends = min(w, 2u), between = h > 2 ? h - 2 : 0;
    const u32 count = w * min(h, 2u) + between * ends;
    if (count >= WEIGHT_MAX) {
        return m.fail(OVERFLOW);
    }
    const u32 list = m.open(OF_WORDS, count);
    if (m.error) {
        return 0;
    }
#pragma unroll 1
    for (u32 at = lane(); at < count; at += LANES) {
        u32 row = 0, col = at;
        if (at >= w + between * ends) {
            row = h - 1;
            col = at - w - between * ends;
        } else if (at >= w) {
            row = 1 + (at - w) / ends;
            col = (at - w) % ends * (w - 1);
        }
        m.words(list)[at] = of_vector(frame.top + i32(row), frame.left + i32(col));
    }
    return close_list(m, list, OF_WORDS, count);
}

// All places of the box of a patch, or those that the patch leaves free.
__device__ __noinline__ Word area_of(Machine &m, Value patch, bool free) {
    if (m.count(patch.word) == 0) {
        return empty_list(m, OF_WORDS);
    }
    const Frame frame = frame_of(m, patch.word);
    if (m.error) {
        return 0;
    }
    // The last place could be nothing.
    if (!are_halves(frame.bottom, frame.right)) {
        return m.fail(OVERFLOW);
    }
    const u64 area = u64(frame.height()) * u64(frame.width());
    if (area >= WEIGHT_MAX) {
        return m.fail(OVERFLOW);
    }
    const u32 count = u32(area), w = u32(frame.width()), list = m.open(OF_WORDS, count);
    // A bit for each place that is taken.
    const u32 bits = free && !m.error ? m.take((count + 31) / 32) : 0;
    if (m.error) {
        return 0;
    }
    u32 *const taken = m.mem + bits;
    if (free) {
#pragma unroll 1
        for (u32 at = lane(); at < (count + 31) / 32; at += LANES) {
            taken[at] = 0;
        }
        __syncwarp();
        const Patch from = patch_of(m, patch.word);
#pragma unroll 1
        for (u32 at = lane(); at < from.count; at += LANES) {
            const u32 place = from.at(at);
            const u32 bit = u32(row_of(place) - frame.top) * w + u32(col_of(place) - frame.left);
            atomicOr(&taken[bit / 32], 1u << bit % 32);
        }
        __syncwarp();
    }
    const u32 kept = keep_in_order(
        count, [&](u32 at) { return !free || !(taken[at / 32] >> at % 32 & 1); },
        [&](u32 place, u32 at) {
            const u32 row = at / w;
            m.words(list)[place] = of_vector(frame.top + i32(row), frame.left + i32(at - row * w));
        });
    return close_list(m, list, OF_WORDS, kept);
}

// Where the object lies on the grid.
__device__ __noinline__ Word occurrences(Machine &m, Word grid, Value object) {
    if (m.height(grid) == 0) {
        return m.fail(EMPTY_ARG);
    }
    const u32 count = m.count(object.word);
    Frame frame = {0, 0, -1, -1};
    i32 tall = 0, wide = 0;
    if (count > 0) {
        frame = frame_of(m, object.word);
        sides_of(m, object, tall, wide);
    }
    if (m.error) {
        return 0;
    }
    // A moved cell leaves its range where `normalize` would.
    if (count > 0 && (!is_half(frame.bottom - frame.top) || !is_half(frame.right - frame.left))) {
        return m.fail(OVERFLOW);
    }
    const i32 h = i32(m.height(grid)), w = i32(m.width(grid));
    const i32 rows = max(h - tall + 1, 0), cols = max(w - wide + 1, 0);
    const u32 starts = u32(rows * cols), list = m.open(OF_WORDS, starts);
    if (m.error) {
        return 0;
    }
    const signed char *const cells = m.cells(grid);
    const Word *const of = m.doubles(object.word);
    const u32 kept = keep_in_order(
        starts,
        [&](u32 at) {
            const i32 down = i32(at) / cols - frame.top, right = i32(at) % cols - frame.left;
#pragma unroll 1
            for (u32 cell = 0; cell < count; cell += 1) {
                const u32 place = vector_of_cell(of[cell]);
                const i32 row = row_of(place) + down, col = col_of(place) + right;
                if (row >= h || col >= w || cells[row * w + col] != color_of(of[cell])) {
                    return false;
                }
            }
            return true;
        },
        [&](u32 place, u32 at) { m.words(list)[place] = of_vector(i32(at) / cols, i32(at) % cols); });
    return close_list(m, list, OF_WORDS, kept);
}

// Cells times shifts that `hperiod` and `vperiod` try at most.
constexpr u32 PERIODS_MAX = 1u << 24;

// The least shift along the columns or the rows that puts what stays in range onto itself; else the side.
__device__ __noinline__ Word period(Machine &m, Value object, bool columns) {
    const u32 before = m.top;
    const Word normal = normalized(m, object.word);
    if (m.error) {
        return 0;
    }
    const u32 count = m.count(normal);
    i32 side = 0;
    if (count > 0) {
        const Frame frame = frame_of(m, normal);
        side = columns ? frame.width() : frame.height();
    }
    if (u64(count) * u32(side) > PERIODS_MAX) {
        return m.fail(OVERFLOW);
    }
    i32 found = side;
#pragma unroll 1
    for (i32 by = 1; by < side && found == side; by += 1) {
        bool misses = false;
#pragma unroll 1
        for (u32 at = lane(); at < count && !misses; at += LANES) {
            const Word cell = m.doubles(normal)[at];
            const u32 place = vector_of_cell(cell);
            const i32 row = row_of(place) - (columns ? 0 : by), col = col_of(place) - (columns ? by : 0);
            if (row >= 0 && col >= 0) {
                const Word with = Word(of_vector(row, col)) << 17 | (cell & 0x1ffff);
                misses = !set_has(m, normal, PLAIN, with);
            }
        }
        if (!any_lane(misses)) {
            found = by;
        }
    }
    __syncwarp();
    m.top = before;
    return to_number(m, found);
}

// Ops on a place.
__device__ inline Word beside(Machine &m, u32 op, u32 at, u32 other) {
    if (op == OP_CONNECT || op == OP_SHOOT) {
        m.needed_vector(other);
    }
    if (m.error) {
        return 0;
    }
    switch (op) {
    case OP_DNEIGHBORS:
        return around(m, at, STRAIGHT);
    case OP_INEIGHBORS:
        return around(m, at, DIAGONAL);
    case OP_NEIGHBORS:
        return around(m, at, STRAIGHT | DIAGONAL);
    case OP_CONNECT:
        return connected(m, at, other);
    case OP_SHOOT:
        return shot(m, at, other);
    case OP_HFRONTIER:
        return line(m, row_of(at), 0, 0, 1, FRONTIER);
    default:
        return line(m, 0, col_of(at), 1, 0, FRONTIER);
    }
}

__device__ __noinline__ Word patch_op(Machine &m, u32 op, Value a, Value b, u32 kind) {
    switch (op) {
    case OP_ASINDICES:
    case OP_ASOBJECT:
        return all_cells(m, a.word, op == OP_ASOBJECT);
    case OP_OFCOLOR:
        return cells_of_color(m, a.word, false, number_of(b.word));
    case OP_TOINDICES:
        return to_indices(m, a, kind);
    case OP_TOOBJECT:
        return to_object(m, a, b.word);
    case OP_RECOLOR:
        return recolored(m, a.word, b);
    case OP_SHIFT:
        m.needed_vector(b.word);
        return m.error ? 0 : shifted(m, a.word, row_of(u32(b.word)), col_of(u32(b.word)));
    case OP_NORMALIZE:
        return normalized(m, a.word);
    case OP_OCCURRENCES:
        return occurrences(m, a.word, b);
    case OP_HPERIOD:
    case OP_VPERIOD:
        return period(m, a, op == OP_HPERIOD);
    case OP_DNEIGHBORS:
    case OP_INEIGHBORS:
    case OP_NEIGHBORS:
    case OP_CONNECT:
    case OP_SHOOT:
    case OP_HFRONTIER:
    case OP_VFRONTIER:
        return beside(m, op, m.needed_vector(a.word), u32(b.word));
    case OP_CORNERS:
        return corners(m, a.word);
    case OP_BACKDROP:
    case OP_DELTA:
        return area_of(m, a, op == OP_DELTA);
    case OP_BOXOF:
        return m.count(a.word) == 0 ? empty_list(m, OF_WORDS) : outline(m, a.word, 0);
    default:
        return outline(m, a.word, op == OP_INBOX ? -1 : 1);
    }
}
