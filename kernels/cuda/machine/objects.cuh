// Objects that lie in grids: components, one for each colour, and lines of one colour. Mirrors
// kernels/src/reference/machine/objects.rs.

#pragma once

#include "machine/patches.cuh"

// Which cells belong together.
struct Grouping {
    const signed char *cells;
    bool univalued, diagonal, without_bg;
    i32 background;

    __device__ bool has(u32 at) const { return !without_bg || cells[at] != background; }
    // Whether a neighbour of a cell that belongs to an object belongs to the same.
    __device__ bool joins(u32 at, u32 with) const { return univalued ? cells[at] == cells[with] : has(with); }
};

__device__ inline u32 root_of(const u32 *parents, u32 at) {
    u32 parent = parents[at];
#pragma unroll 1
    while (parent != at) {
        at = parent;
        parent = parents[at];
    }
    return at;
}

// Puts two trees together, whatever the other lanes do meanwhile. A parent is less than its child.
__device__ inline void unite(u32 *parents, u32 one, u32 two) {
#pragma unroll 1
    while (true) {
        one = root_of(parents, one);
        two = root_of(parents, two);
        if (one == two) {
            return;
        }
        const u32 high = max(one, two), low = min(one, two);
        const u32 before = atomicMin(&parents[high], low);
        if (before == high) {
            return;
        }
        one = before;
        two = low;
    }
}

constexpr u32 NO_OBJECT = ~0u;

// Gives every cell the first cell of its component, NO_OBJECT outside of all. Returns how many components there are.
__device__ __noinline__ u32 label(const Grouping &of, u32 h, u32 w, u32 *parents) {
#pragma unroll 1
    for (u32 row = 0; row < h; row += 1) {
        // First the run in the row, then what lies above.
        u32 carried = 0;
#pragma unroll 1
        for (u32 base = 0; base < w; base += LANES) {
            const u32 col = base + lane(), at = row * w + col;
            const bool is = col < w && of.has(at);
            const bool follows = is && col > 0 && of.has(at - 1) && of.joins(at, at - 1);
            const u32 begins = ~__ballot_sync(ALL_LANES, follows);
            const u32 up_to_here = begins & (2u << lane()) - 1;
            const u32 start = up_to_here == 0 ? carried : base + 31 - __clz(up_to_here);
            carried = __shfl_sync(ALL_LANES, start, LANES - 1);
            if (col < w) {
                parents[at] = is ? row * w + start : NO_OBJECT;
            }
        }
        __syncwarp();
        if (row == 0) {
            continue;
        }
#pragma unroll 1
        for (u32 col = lane(); col < w; col += LANES) {
            const u32 at = row * w + col, above = at - w;
            if (!of.has(at)) {
                continue;
            }
            if (of.joins(at, above)) {
                const bool by_left = col > 0 && of.has(at - 1) && of.joins(at, at - 1) && of.joins(at, above - 1);
                if (!by_left) {
                    unite(parents, at, above);
                }
            } else if (of.diagonal) {
                if (col > 0 && of.joins(at, above - 1) && of.has(above - 1)) {
                    unite(parents, at, above - 1);
                }
                if (col + 1 < w && of.joins(at, above + 1) && of.has(above + 1)) {
                    unite(parents, at, above + 1);
                }
            }
        }
        __syncwarp();
    }
    u32 roots = 0;
#pragma unroll 1
    for (u32 base = 0; base < h * w; base += LANES) {
        const u32 at = base + lane();
        const bool is = at < h * w && parents[at] != NO_OBJECT;
        const u32 root = is ? root_of(parents, at) : NO_OBJECT;
        __syncwarp();
        if (is) {
            parents[at] = root;
        }
        roots += __popc(__ballot_sync(ALL_LANES, is && root == at));
    }
    __syncwarp();
    return roots;
}

__device__ __noinline__ Word components(Machine &m, Word grid, bool univalued, bool diagonal, bool without_bg) {
    const i32 background = without_bg ? most_color(m, grid) : 0;
    if (m.error == FINE && m.height(grid) == 0) {
        m.fail(EMPTY_ARG);
    }
    if (m.error) {
        return 0;
    }
    const Grouping of = {m.cells(grid), univalued, diagonal, without_bg, background};
    const u32 h = m.height(grid), w = m.width(grid), area = h * w;
    const u32 scratch = m.borrow(2 * area);
    if (m.error) {
        return 0;
    }
    u32 *const roots = m.mem + scratch, *const counts = roots + area;
    const u32 objects = label(of, h, w, roots);
#pragma unroll 1
    for (u32 at = lane(); at < area; at += LANES) {
        counts[at] = 0;
    }
    __syncwarp();
#pragma unroll 1
    for (u32 at = lane(); at < area; at += LANES) {
        if (roots[at] != NO_OBJECT) {
            atomicAdd(&counts[roots[at]], 1u);
        }
    }
    const u32 list = m.open(OF_BLOCKS, objects);
    if (m.error) {
        return 0;
    }
    __syncwarp();
    keep_in_order(
        area, [&](u32 at) { return roots[at] == at; }, [&](u32 place, u32 at) { m.words(list)[place] = at; });
    const Divider rows(w);
#pragma unroll 1
    for (u32 object = 0; object < objects; object += 1) {
        const u32 root = m.words(list)[object], count = counts[root];
        const u32 cells = m.open(OF_DOUBLES, count);
        if (m.error) {
            return 0;
        }
        u32 kept = 0;
#pragma unroll 1
        for (u32 base = root; kept < count; base += LANES) {
            const u32 at = base + lane();
            const bool mine = at < area && roots[at] == root;
            const u32 members = __ballot_sync(ALL_LANES, mine);
            if (mine) {
                const u32 row = rows.divide(at);
                m.doubles(cells)[kept + __popc(members & ((1u << lane()) - 1))] =
                    of_cell(of.cells[at], of_vector(i32(row), i32(at - row * w)));
            }
            kept += __popc(members);
        }
        close_list(m, cells, OF_DOUBLES, count);
        // All lanes have read the root.
        m.words(list)[object] = cells;
    }
    m.give_back(2 * area);
    const u32 top = m.top;
    // First cells ascend, so the objects do.
    const Word result = close_list(m, list, OF_BLOCKS, objects);
    m.top = top;
    return result;
}

// One object for each colour but one.
__device__ __noinline__ Word by_color(Machine &m, Word grid, i32 left_out, u32 kind) {
    const u32 before = m.top;
    const Word colors = palette(m, grid);
    if (m.error) {
        return 0;
    }
    // The colours as bits.
    u32 mask = 0;
#pragma unroll 1
    for (u32 at = 0; at < m.count(colors); at += 1) {
        const i32 color = number_of(m.words(colors)[at]);
        mask |= color == left_out ? 0 : 1u << (color - COLOR_MIN);
    }
    __syncwarp();
    m.top = before;
    const u32 objects = __popc(mask), list = m.open(OF_BLOCKS, objects);
    if (m.error) {
        return 0;
    }
#pragma unroll 1
    for (u32 object = 0; object < objects; object += 1) {
        const i32 color = i32(__ffs(mask)) - 1 + COLOR_MIN;
        mask &= mask - 1;
        const Word cells = cells_of_color(m, grid, true, color);
        if (m.error) {
            return 0;
        }
        m.words(list)[object] = u32(cells);
    }
    const u32 top = m.top;
    const Word result = close_set(m, list, m.first(kind), OF_BLOCKS, objects);
    m.top = top;
    return result;
}

// Whether `count` cells, each `step` further, have one colour. No cells have none.
__device__ __noinline__ bool is_uniform(const signed char *cells, u32 count, u32 step) {
    if (count == 0) {
        return false;
    }
    bool differs = false;
#pragma unroll 1
    for (u32 at = lane(); at < count; at += LANES) {
        differs |= cells[at * step] != cells[0];
    }
    return !any_lane(differs);
}

__device__ __noinline__ Word frontiers(Machine &m, Word grid, u32 kind) {
    const u32 h = m.height(grid), w = m.width(grid);
    if (h == 0) {
        return m.fail(EMPTY_ARG);
    }
    const signed char *const cells = m.cells(grid);
    const u32 list = m.open(OF_BLOCKS, h + w);
    u32 count = 0;
#pragma unroll 1
    for (u32 line = 0; line < h + w && !m.error; line += 1) {
        const bool is_row = line < h;
        const u32 first = is_row ? line * w : line - h, step = is_row ? 1 : w, length = is_row ? w : h;
        if (!is_uniform(cells + first, length, step)) {
            continue;
        }
        const u32 object = m.open(OF_DOUBLES, length);
        if (m.error) {
            return 0;
        }
#pragma unroll 1
        for (u32 at = lane(); at < length; at += LANES) {
            const u32 row = is_row ? line : at, col = is_row ? at : line - h;
            m.doubles(object)[at] = of_cell(cells[first], of_vector(i32(row), i32(col)));
        }
        close_list(m, object, OF_DOUBLES, length);
        m.words(list)[count] = object;
        count += 1;
    }
    if (m.error) {
        return 0;
    }
    const u32 top = m.top;
    const Word result = close_set(m, list, m.first(kind), OF_BLOCKS, count);
    m.top = top;
    return result;
}

__device__ __noinline__ Word object_op(Machine &m, u32 op, Word a, Word b, Word c, Word d, u32 kind) {
    switch (op) {
    case OP_OBJECTS:
        return components(m, a, is_true(b), is_true(c), is_true(d));
    case OP_PARTITION:
        return by_color(m, a, NOTHING, kind);
    case OP_FGPARTITION: {
        const i32 background = most_color(m, a);
        return m.error ? 0 : by_color(m, a, background, kind);
    }
    default:
        return frontiers(m, a, kind);
    }
}
