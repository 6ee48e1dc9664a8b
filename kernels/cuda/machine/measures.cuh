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
