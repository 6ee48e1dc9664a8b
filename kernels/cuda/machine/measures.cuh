// Colours and measures of grids, objects and patches, and of two patches beside each other. Mirrors
// kernels/src/reference/machine/measures.rs.

#pragma once

#include "machine/containers.cuh"

// The elements of a patch or an object, as places.
struct Patch {
    const u32 *words;
    const Word *doubles;
    u32 count;

    __device__ u32 at(u32 place) const { return doubles ? vector_of_cell(doubles[place]) : words[place]; }
};

__device__ inline Patch patch_of(const Machine &m, Word list) {
    const bool doubles = m.block_class(list) == OF_DOUBLES;
    return {m.words(list), doubles ? m.doubles(list) : nullptr, m.count(list)};
}

// BAD_TYPE if a place is nothing.
__device__ __noinline__ void check_places(Machine &m, Word list) {
    const Patch patch = patch_of(m, list);
    bool is = false;
#pragma unroll 1
    for (u32 at = lane(); at < patch.count; at += LANES) {
        is |= patch.at(at) == NO_VECTOR;
    }
    if (any_lane(is)) {
        m.fail(BAD_TYPE);
    }
}

// The first and last rows and columns of some places.
struct Frame {
    i32 top, left, bottom, right;

    __device__ i32 height() const { return bottom - top + 1; }
    __device__ i32 width() const { return right - left + 1; }
};

// The box of a patch that is not empty. BAD_TYPE if a place is nothing.
__device__ __noinline__ Frame frame_of(Machine &m, Word list) {
    const Patch patch = patch_of(m, list);
    u32 top = ~0u, bottom = 0, left = ~0u, right = 0;
#pragma unroll 1
    for (u32 at = lane(); at < patch.count; at += LANES) {
        const u32 place = patch.at(at);
        top = min(top, place);
        bottom = max(bottom, place);
        left = min(left, place & 0xffff);
        right = max(right, place & 0xffff);
    }
    bottom = most_of_warp(bottom);
    if (bottom == NO_VECTOR) {
        m.fail(BAD_TYPE);
    }
    return {row_of(least_of_warp(top)), i32(least_of_warp(left)) - 32768, row_of(bottom),
            i32(most_of_warp(right)) - 32768};
}

// As above; EMPTY_ARG if the patch is empty.
__device__ inline Frame needed_frame(Machine &m, Word list) {
    if (m.count(list) == 0) {
        m.fail(EMPTY_ARG);
        return {0, 0, 0, 0};
    }
    return frame_of(m, list);
}

// Rows and columns, as `height` and `width` give them. Of a tuple its length, and two.
__device__ __noinline__ void sides_of(Machine &m, Value piece, i32 &h, i32 &w) {
    const u32 tag = m.tag(piece.kind);
    if (tag == GRID) {
        h = m.height(piece.word);
        w = m.width(piece.word);
        return;
    }
    const u32 count = m.count(piece.word);
    if (tag == TUPLE || count == 0) {
        h = count;
        w = count == 0 ? 0 : 2;
        return;
    }
    const Frame frame = frame_of(m, piece.word);
    h = frame.height();
    w = frame.width();
}

__device__ inline void center_of(Machine &m, Value patch, i32 &row, i32 &col) {
    const Frame frame = needed_frame(m, patch.word);
    if (m.error == FINE) {
        i32 h, w;
        sides_of(m, patch, h, w);
        row = frame.top + h / 2;
        col = frame.left + w / 2;
    }
}

// A patch's places, sorted, each once: words of a set of vectors themselves, or a list that lies in free memory.
__device__ __noinline__ Word places_of(Machine &m, Value patch) {
    check_places(m, patch.word);
    if (m.error) {
        return 0;
    }
    const u32 tag = m.tag(m.first(patch.kind));
    if (m.is_set(patch.kind) && tag <= VECTOR) {
        return patch.word;
    }
    const Patch from = patch_of(m, patch.word);
    const u32 list = m.open(OF_WORDS, from.count);
    if (m.error) {
        return 0;
    }
#pragma unroll 1
    for (u32 at = lane(); at < from.count; at += LANES) {
        m.words(list)[at] = from.at(at);
    }
    return close_set(m, list, PLAIN, OF_WORDS, from.count);
}

__device__ __noinline__ Word center_of_mass(Machine &m, Value patch) {
    const i64 size = m.count(patch.word);
    if (size == 0) {
        return NO_VECTOR;
    }
    check_places(m, patch.word);
    if (m.error) {
        return 0;
    }
    const bool as_is = !m.is_set(patch.kind) && m.tag(m.first(patch.kind)) == VECTOR;
    const u32 before = m.top;
    const Word list = as_is ? patch.word : places_of(m, patch);
    if (m.error) {
        return 0;
    }
    i32 rows = 0, cols = 0;
    i64 row = 0, col = 0;
    const u32 count = m.count(list);
    // 2^11 halves of a lane fit a number, and so do those of all lanes.
#pragma unroll 1
    for (u32 base = 0; base < count; base += 2048) {
        rows = 0;
        cols = 0;
#pragma unroll 1
        for (u32 at = base + lane(); at < min(base + 2048, count); at += LANES) {
            rows += row_of(m.words(list)[at]);
            cols += col_of(m.words(list)[at]);
        }
        row += sum_of_warp(rows);
        col += sum_of_warp(cols);
    }
    m.top = before;
    const i64 down = floor_divided(m, row, size);
    return to_vector(m, down, floor_divided(m, col, size));
}

__device__ inline Word index_of(Machine &m, Word grid, u32 at) {
    m.needed_vector(at);
    if (m.error || m.height(grid) == 0) {
        return m.fail(EMPTY_ARG);
    }
    const u32 row = u32(row_of(at)), col = u32(col_of(at)), w = m.width(grid);
    return row < m.height(grid) && col < w ? of_number(m.cells(grid)[row * w + col]) : of_number(NOTHING);
}

// The colour of element `at` of a grid or an object.
__device__ inline i32 color_at(const Machine &m, Word element, u32 at) {
    return m.block_class(element) == OF_GRID ? i32(m.cells(element)[at]) : color_of(m.doubles(element)[at]);
}

__device__ __noinline__ Word color_count(Machine &m, Word element, i32 color) {
    u32 mine = 0;
#pragma unroll 1
    for (u32 at = lane(); at < m.count(element); at += LANES) {
        mine += color_at(m, element, at) == color;
    }
    return of_number(sum_of_warp(i32(mine)));
}

// The set of the colours of a grid or an object.
__device__ __noinline__ Word palette(Machine &m, Word element) {
    const u32 count = m.count(element);
    if (m.block_class(element) == OF_GRID) {
        u32 mine = 0;
#pragma unroll 1
        for (u32 at = lane(); at < count; at += LANES) {
            mine |= 1u << (m.cells(element)[at] - COLOR_MIN);
        }
#pragma unroll 1
        for (u32 distance = LANES / 2; distance > 0; distance /= 2) {
            mine |= __shfl_xor_sync(ALL_LANES, mine, distance);
        }
        const u32 list = m.open(OF_WORDS, __popc(mine));
        if (m.error) {
            return 0;
        }
        if (mine >> lane() & 1) {
            m.words(list)[__popc(mine & ((1u << lane()) - 1))] = u32(of_number(i32(lane()) + COLOR_MIN));
        }
        return close_list(m, list, OF_WORDS, __popc(mine));
    }
    const u32 list = m.open(OF_WORDS, count);
    if (m.error) {
        return 0;
    }
#pragma unroll 1
    for (u32 at = lane(); at < count; at += LANES) {
        m.words(list)[at] = u32(of_number(color_at(m, element, at)));
    }
    return close_set(m, list, PLAIN, OF_WORDS, count);
}

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

__device__ inline u32 manhattan(Machine &m, Word a, Word b, u32 enough) {
    check_places(m, a);
    check_places(m, b);
    if (m.count(a) == 0 || m.count(b) == 0) {
        m.fail(EMPTY_ARG);
    }
    if (m.error) {
        return 0;
    }
    return least_distance(m, a, 0, 0, b, enough);
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

__device__ __noinline__ Word position(Machine &m, Word a, Word b) {
    const Frame one = needed_frame(m, a);
    const Frame two = m.error ? one : needed_frame(m, b);
    if (m.error) {
        return 0;
    }
    const i32 row = one.top + one.height() / 2, col = one.left + one.width() / 2;
    const i32 other = two.top + two.height() / 2, beside = two.left + two.width() / 2;
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

// Ops on the box of a patch.
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
        return of_number(m.block_class(a.word) == OF_GRID ? i32(m.cells(a.word)[0]) : first_half(m, a.word));
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
        return of_number(i32(manhattan(m, a.word, b.word, 0)));
    case OP_ADJACENT:
        // Nothing is nearer than 1 but what overlaps.
        return of_flag(manhattan(m, a.word, b.word, 0) == 1);
    case OP_BORDERING:
        return bordering(m, a.word, b.word);
    case OP_POSITION:
        return position(m, a.word, b.word);
    default:
        return gravitate(m, a, b);
    }
}
