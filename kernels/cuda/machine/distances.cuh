// Two patches beside each other, and the ops that measure. Mirrors kernels/src/reference/machine/measures.rs.

#pragma once

#include "machine/measures.cuh"

// Whether both patches have a place in one row or one column.
__device__ __noinline__ bool matches(Machine &m, Word a, Word b, bool columns) {
    check_places(m, a);
    check_places(m, b);
    Patch one = patch_of(m, a), two = patch_of(m, b);
    if (m.error || one.count == 0 || two.count == 0) {
        return false;
    }
    if (two.count > one.count) {
        const Patch swapped = one;
        one = two;
        two = swapped;
    }
    // A bit for each line of a window, which moves over the lines of the larger patch.
    const Frame frame = frame_of(m, one.words == m.words(a) ? a : b);
    const i32 first = columns ? frame.left : frame.top, last = columns ? frame.right : frame.bottom;
    bool found = false;
#pragma unroll 1
    for (i32 base = first; base <= last && !found; base += 32) {
        u32 lines = 0, others = 0;
#pragma unroll 1
        for (u32 at = lane(); at < one.count; at += LANES) {
            const u32 line = u32((columns ? col_of(one.at(at)) : row_of(one.at(at))) - base);
            lines |= line < 32 ? 1u << line : 0;
        }
#pragma unroll 1
        for (u32 at = lane(); at < two.count; at += LANES) {
            const u32 line = u32((columns ? col_of(two.at(at)) : row_of(two.at(at))) - base);
            others |= line < 32 ? 1u << line : 0;
        }
#pragma unroll 1
        for (u32 distance = LANES / 2; distance > 0; distance /= 2) {
            lines |= __shfl_xor_sync(ALL_LANES, lines, distance);
            others |= __shfl_xor_sync(ALL_LANES, others, distance);
        }
        found = (lines & others) != 0;
    }
    return found;
}

// The least distance between places of both, the second moved; no less than `enough` counts.
__device__ __noinline__ u32 least_distance(const Machine &m, Word a, i32 rows, i32 cols, Word b, u32 enough) {
    const Patch one = patch_of(m, a), two = patch_of(m, b);
    u32 least = ~0u;
#pragma unroll 1
    for (u32 other = 0; other < two.count; other += 1) {
        const i32 row = row_of(two.at(other)) - rows, col = col_of(two.at(other)) - cols;
        u32 mine = ~0u;
#pragma unroll 1
        for (u32 at = lane(); at < one.count; at += LANES) {
            const i32 down = row_of(one.at(at)) - row, right = col_of(one.at(at)) - col;
            mine = min(mine, u32((down < 0 ? -down : down) + (right < 0 ? -right : right)));
        }
        least = min(least, mine);
        if (any_lane(least <= enough)) {
            break;
        }
    }
    return least_of_warp(least);
}

// Most pairs of places that are compared, as in protocol/src/limits.rs.
constexpr u32 DISTANCES_MAX = 1u << 24;

// OVERFLOW if there are more pairs. Neither patch has a place that is nothing.
__device__ __noinline__ void check_distances(Machine &m, Value a, Value b) {
    if (u64(m.count(a.word)) * m.count(b.word) <= DISTANCES_MAX) {
        return;
    }
    // Elements at one place count once.
    const u32 before = m.top;
    const Word one = places_of(m, a), two = m.error ? 0 : places_of(m, b);
    const bool fits = !m.error && u64(m.count(one)) * m.count(two) <= DISTANCES_MAX;
    __syncwarp();
    m.top = before;
    if (!fits) {
        m.fail(OVERFLOW);
    }
}

__device__ inline u32 manhattan(Machine &m, Value a, Value b, u32 enough) {
    check_places(m, a.word);
    check_places(m, b.word);
    if (m.error == FINE) {
        check_distances(m, a, b);
    }
    if (m.error == FINE && (m.count(a.word) == 0 || m.count(b.word) == 0)) {
        m.fail(EMPTY_ARG);
    }
    return m.error ? 0 : least_distance(m, a.word, 0, 0, b.word, enough);
}

__device__ __noinline__ Word bordering(Machine &m, Word patch, Word grid) {
    const Frame frame = needed_frame(m, patch);
    if (m.error) {
        return 0;
    }
    if (frame.top == 0 || frame.left == 0 || frame.bottom == i32(m.height(grid)) - 1) {
        return of_flag(true);
    }
    return m.height(grid) == 0 ? m.fail(EMPTY_ARG) : of_flag(frame.right == i32(m.width(grid)) - 1);
}

// The centre of what `toindices` gives: a tuple of vectors stays one.
__device__ __noinline__ void center_of_places(Machine &m, Value patch, i32 &row, i32 &col) {
    const Frame frame = needed_frame(m, patch.word);
    if (m.error) {
        return;
    }
    const Patch from = patch_of(m, patch.word);
    bool is_other = m.is_set(patch.kind);
#pragma unroll 1
    for (u32 at = lane(); at < from.count && from.doubles; at += LANES) {
        is_other |= has_color(from.doubles[at]);
    }
    is_other = any_lane(is_other);
    row = frame.top + (is_other ? frame.height() : i32(from.count)) / 2;
    col = frame.left + (is_other ? frame.width() : 2) / 2;
}

__device__ __noinline__ Word position(Machine &m, Value a, Value b) {
    i32 row = 0, col = 0, other = 0, beside = 0;
    center_of_places(m, a, row, col);
    if (m.error == FINE) {
        center_of_places(m, b, other, beside);
    }
    if (m.error) {
        return 0;
    }
    const i32 right = col < beside ? 1 : -1, down = row < other ? 1 : -1;
    return row == other ? of_vector(0, right) : col == beside ? of_vector(down, 0) : of_vector(down, right);
}

// Most steps of `gravitate`.
constexpr u32 GRAVITATE_MAX = 42;

__device__ __noinline__ Word gravitate(Machine &m, Value source, Value destination) {
    i32 row = 0, col = 0, other = 0, beside = 0;
    center_of(m, source, row, col);
    if (m.error == FINE) {
        center_of(m, destination, other, beside);
    }
    if (m.error) {
        return 0;
    }
    // Neither has a place that is nothing: their boxes were asked for.
    const bool is_down = matches(m, source.word, destination.word, true);
    const i32 step = is_down ? (row < other ? 1 : -1) : (col < beside ? 1 : -1);
    const i32 down = is_down ? step : 0, right = is_down ? 0 : step;
    const Frame frame = frame_of(m, source.word);
    check_distances(m, source, destination);
    if (m.error) {
        return 0;
    }
    i32 steps = 0;
#pragma unroll 1
    while (least_distance(m, source.word, steps * down, steps * right, destination.word, 0) != 1
           && steps < i32(GRAVITATE_MAX)) {
        steps += 1;
        const i32 furthest = is_down ? (step > 0 ? frame.bottom : frame.top) : (step > 0 ? frame.right : frame.left);
        if (!is_half(furthest + steps * step)) {
            return m.fail(OVERFLOW);
        }
    }
    return of_vector(steps * down, steps * right);
}

__device__ __noinline__ Word square(Machine &m, Value piece) {
    const u32 tag = m.tag(piece.kind), count = m.count(piece.word);
    if (tag == GRID) {
        return m.height(piece.word) == 0 ? m.fail(EMPTY_ARG) : of_flag(m.height(piece.word) == m.width(piece.word));
    }
    if (tag == TUPLE) {
        return count == 0 ? m.fail(EMPTY_ARG) : of_flag(count == 2);
    }
    i32 h, w;
    sides_of(m, piece, h, w);
    return of_flag(h == w && i64(h) * w == count);
}

__device__ __noinline__ Word frame_op(Machine &m, u32 op, Word patch) {
    if (m.count(patch) == 0 && op >= OP_ULCORNER) {
        return NO_VECTOR;
    }
    const Frame frame = needed_frame(m, patch);
    if (m.error) {
        return 0;
    }
    switch (op) {
    case OP_UPPERMOST:
        return of_number(frame.top);
    case OP_LOWERMOST:
        return of_number(frame.bottom);
    case OP_LEFTMOST:
        return of_number(frame.left);
    case OP_RIGHTMOST:
        return of_number(frame.right);
    case OP_ULCORNER:
        return of_vector(frame.top, frame.left);
    case OP_URCORNER:
        return of_vector(frame.top, frame.right);
    case OP_LLCORNER:
        return of_vector(frame.bottom, frame.left);
    default:
        return of_vector(frame.bottom, frame.right);
    }
}

__device__ __noinline__ Word sides_op(Machine &m, u32 op, Value piece) {
    i32 h, w;
    sides_of(m, piece, h, w);
    switch (op) {
    case OP_HEIGHT:
        return of_number(h);
    case OP_WIDTH:
        return of_number(w);
    case OP_SHAPE:
        return to_vector(m, h, w);
    case OP_PORTRAIT:
        return of_flag(h > w);
    case OP_VLINE:
        return of_flag(h == i32(m.count(piece.word)) && w == 1);
    default:
        return of_flag(w == i32(m.count(piece.word)) && h == 1);
    }
}

__device__ __noinline__ Word measure(Machine &m, u32 op, Value a, Value b) {
    switch (op) {
    case OP_MOSTCOLOR:
    case OP_LEASTCOLOR:
        return of_number(common_color(m, a.word, op == OP_LEASTCOLOR));
    case OP_COLORCOUNT:
        return color_count(m, a.word, number_of(b.word));
    case OP_PALETTE:
        return palette(m, a.word);
    case OP_NUMCOLORS: {
        const u32 before = m.top;
        const Word colors = palette(m, a.word);
        const i32 count = m.error ? 0 : i32(m.count(colors));
        __syncwarp();
        m.top = m.error ? m.top : before;
        return of_number(count);
    }
    case OP_COLOR:
        if (m.count(a.word) == 0) {
            return m.fail(EMPTY_ARG);
        }
        if (m.block_class(a.word) == OF_GRID) {
            return of_number(m.cells(a.word)[0]);
        }
        if (no_first_half(m, a.word) != FINE) {
            return m.fail(BAD_TYPE);
        }
        return of_number(first_half(m, a.word));
    case OP_SQUARE:
        return square(m, a);
    case OP_CENTER: {
        i32 row = 0, col = 0;
        center_of(m, a, row, col);
        return m.error ? 0 : to_vector(m, row, col);
    }
    case OP_CENTEROFMASS:
        return center_of_mass(m, a);
    case OP_INDEX:
        return index_of(m, a.word, u32(b.word));
    case OP_HMATCHING:
    case OP_VMATCHING:
        return of_flag(matches(m, a.word, b.word, op == OP_VMATCHING));
    case OP_MANHATTAN:
        return of_number(i32(manhattan(m, a, b, 0)));
    case OP_ADJACENT:
        // Nothing is nearer than 1 but what overlaps.
        return of_flag(manhattan(m, a, b, 0) == 1);
    case OP_BORDERING:
        return bordering(m, a.word, b.word);
    case OP_POSITION:
        return position(m, a, b);
    default:
        return gravitate(m, a, b);
    }
}
