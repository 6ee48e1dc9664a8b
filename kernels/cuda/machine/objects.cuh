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

// A grid of at most 32 rows and columns: lane r has bit c of row r of each plane.
constexpr u32 BOARD_SIDE = 32;

struct Board {
    // The bits of the colours, counted from COLOR_MIN, and the cells that may belong to an object.
    u32 planes[4];
    u32 members;
};

__device__ inline Board board_of(const Grouping &of, u32 h, u32 w) {
    Board board = {{0, 0, 0, 0}, 0};
    const u32 col = lane();
#pragma unroll 1
    for (u32 row = 0; row < h; row += 1) {
        const u32 at = row * w + col;
        const u32 color = col < w ? u32(of.cells[at] - COLOR_MIN) : 0;
        const u32 members = __ballot_sync(ALL_LANES, col < w && of.has(at));
        board.members = lane() == row ? members : board.members;
#pragma unroll
        for (u32 plane = 0; plane < 4; plane += 1) {
            const u32 bits = __ballot_sync(ALL_LANES, color >> plane & 1);
            board.planes[plane] = lane() == row ? bits : board.planes[plane];
        }
    }
    return board;
}

// All members of the runs that have a bit of `from`, towards the high bits. A carry runs to the end of a run.
__device__ inline u32 run_up(u32 members, u32 from) { return ((members ^ (members + from)) | from) & members; }

// All members that are connected with `from`.
__device__ __noinline__ u32 flooded(u32 members, u32 from, bool diagonal) {
#pragma unroll 1
    while (true) {
        const u32 before = from;
        from = run_up(members, from) | __brev(run_up(__brev(members), __brev(from)));
        const u32 wide = diagonal ? from | from << 1 | from >> 1 : from;
        const u32 above = __shfl_sync(ALL_LANES, wide, (lane() + 31) % 32);
        const u32 below = __shfl_sync(ALL_LANES, wide, (lane() + 1) % 32);
        from |= ((lane() > 0 ? above : 0) | (lane() < 31 ? below : 0)) & members;
        if (!any_lane(from != before)) {
            return from;
        }
    }
}

// The object of one component of a board.
__device__ __noinline__ Word object_of(Machine &m, const Board &board, u32 bits) {
    const u32 mine = __popc(bits), count = u32(sum_of_warp(i32(mine)));
    u32 place = sum_before_in_warp(mine);
    const u32 list = m.open(OF_DOUBLES, count);
    if (m.error) {
        return 0;
    }
#pragma unroll 1
    for (; bits != 0; bits &= bits - 1) {
        const u32 col = __ffs(bits) - 1;
        u32 color = 0;
#pragma unroll
        for (u32 plane = 0; plane < 4; plane += 1) {
            color |= (board.planes[plane] >> col & 1) << plane;
        }
        m.doubles(list)[place] = of_cell(i32(color) + COLOR_MIN, of_vector(i32(lane()), i32(col)));
        place += 1;
    }
    return close_list(m, list, OF_DOUBLES, count);
}

// The components of a grid that fits a board, each from its first cell on.
__device__ __noinline__ Word components_of_board(Machine &m, const Grouping &of, u32 h, u32 w) {
    const Board board = board_of(of, h, w);
    const u32 scratch = m.borrow(h * w);
    u32 left = board.members, objects = 0;
#pragma unroll 1
    while (m.error == FINE) {
        const u32 rows = __ballot_sync(ALL_LANES, left != 0);
        if (rows == 0) {
            break;
        }
        const u32 row = __ffs(rows) - 1;
        const u32 first = __shfl_sync(ALL_LANES, left & ~left + 1, row);
        u32 members = left;
        if (of.univalued) {
#pragma unroll
            for (u32 plane = 0; plane < 4; plane += 1) {
                const bool is = (__shfl_sync(ALL_LANES, board.planes[plane], row) & first) != 0;
                members &= is ? board.planes[plane] : ~board.planes[plane];
            }
        }
        const u32 object = flooded(members, lane() == row ? first : 0, of.diagonal);
        left &= ~object;
        const Word made = object_of(m, board, object);
        if (m.error == FINE) {
            m.mem[scratch + objects] = u32(made);
            objects += 1;
        }
    }
    const u32 list = m.error ? 0 : m.open(OF_BLOCKS, objects);
    if (m.error) {
        return 0;
    }
    copy_words(m.words(list), m.mem + scratch, objects);
    m.give_back(h * w);
    // First cells ascend, so the objects do.
    return close_list(m, list, OF_BLOCKS, objects);
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
    if (h <= BOARD_SIDE && w <= BOARD_SIDE) {
        return components_of_board(m, of, h, w);
    }
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
