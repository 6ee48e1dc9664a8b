// Primitives on boards and planes, for all lanes at once. What does not fit, fails, or is rare is left to the functions
// for lists and cells.

#pragma once

#include "machine/turns.cuh"

// How often this op meets each colour: of the cells in `members`, whose colours are in `planes`.
struct Counted {
    // The commonest (rarest) code, and whether another has as many.
    u32 code;
    bool ties;
};

__device__ __forceinline__ u32 having(u32 members, const u32 *planes, u32 code) {
#pragma unroll
    for (u32 plane = 0; plane < PLANES; plane += 1) {
        members &= ~(planes[plane] ^ (0 - (code >> plane & 1)));
    }
    return members;
}

// There is a member.
__device__ __forceinline__ Counted counted(u32 members, const u32 *planes, bool rarest) {
    u32 best = 0, code = 0, pairs = 8;
    bool ties = false;
    if (!rarest) {
        // A colour of more than half of the cells has each bit that more than half of them have.
        const u32 low = total(__popc(members & planes[0]) | __popc(members & planes[1]) << 16);
        const u32 high = total(__popc(members & planes[2]) | __popc(members & planes[3]) << 16);
        const u32 all = total(__popc(members));
        code = u32((low & 0xffff) * 2 > all) | u32((low >> 16) * 2 > all) << 1 | u32((high & 0xffff) * 2 > all) << 2
               | u32((high >> 16) * 2 > all) << 3;
        pairs = total(__popc(having(members, planes, code))) * 2 > all ? 0 : pairs;
    }
#pragma unroll 1
    for (u32 pair = 0; pair < pairs; pair += 1) {
        // Two colours at a time: none has more than 1,024 cells.
        const u32 one = __popc(having(members, planes, 2 * pair)), two = __popc(having(members, planes, 2 * pair + 1));
        const u32 both = total(one | two << 16);
#pragma unroll
        for (u32 half = 0; half < 2; half += 1) {
            const u32 count = half == 0 ? both & 0xffff : both >> 16;
            const u32 merit = count == 0 ? 0 : rarest ? 4096 - count : count;
            ties = merit == best ? ties || merit != 0 : merit > best ? false : ties;
            code = merit > best ? 2 * pair + half : code;
            best = max(best, merit);
        }
    }
    return {code, ties};
}

// The colours of members, a bit each.
__device__ __forceinline__ u32 colors_of(u32 members, const u32 *planes) {
    u32 colors = 0;
#pragma unroll 1
    for (u32 code = 0; code < 1u << PLANES; code += 1) {
        colors |= any_lane(having(members, planes, code) != 0) ? 1u << code : 0;
    }
    return colors;
}

// Rows for columns.
__device__ __forceinline__ u32 transposed(u32 bits) {
    u32 mask = 0x0000ffff;
#pragma unroll
    for (u32 by = 16; by > 0; by /= 2) {
        const u32 other = __shfl_xor_sync(ALL_LANES, bits, by);
        bits = lane() & by ? (other >> by & mask) | (bits & ~mask) : (bits & mask) | (other & mask) << by;
        mask ^= mask << by / 2;
    }
    return bits;
}

// A symmetry of h x w bits: rows for columns, then the rows, then the columns from the other side.
__device__ __forceinline__ u32 turned_bits(u32 bits, u32 h, u32 w, bool transposes, bool rows, bool cols) {
    if (transposes) {
        bits = transposed(bits);
    }
    const u32 high = transposes ? w : h, wide = transposes ? h : w;
    if (rows) {
        bits = __shfl_sync(ALL_LANES, bits, (high - 1 - lane()) & 31);
        bits = lane() < high ? bits : 0;
    }
    return cols && wide > 0 ? __brev(bits) >> (32 - wide) : bits;
}

// Each bit `times` times. None of the result is beyond 32.
__device__ __forceinline__ u32 stretched(u32 bits, u32 w, u32 times) {
    const u32 one = low_bits(times);
    u32 made = 0;
#pragma unroll 1
    for (u32 col = 0; col < w; col += 1) {
        made |= (0 - (bits >> col & 1) & one) << (col * times & 31);
    }
    return made;
}

// Every bit number 0, step, 2 step, ….
__device__ __forceinline__ u32 thinned(u32 bits, u32 w, u32 step) {
    u32 made = 0, to = 0;
#pragma unroll 1
    for (u32 col = 0; col < w; col += step) {
        made |= (bits >> col & 1) << to;
        to += 1;
    }
    return made;
}

// All members of the runs that have a bit of `from`, towards the high bits. A carry runs to the end of a run.
__device__ __forceinline__ u32 run_up(u32 members, u32 from) { return ((members ^ (members + from)) | from) & members; }

// All members that are connected with `from`.
__device__ __forceinline__ u32 flooded(u32 members, u32 from, bool diagonal) {
    const u32 turned = __brev(members), slanted = diagonal ? ~0u : 0;
    // All of the runs that touch a row of `from` above, below or here. Outside of the board lies the row at its edge.
    const auto spread = [&](u32 rows) {
        rows |= __shfl_up_sync(ALL_LANES, rows, 1) | __shfl_down_sync(ALL_LANES, rows, 1);
        rows = (rows | (rows << 1 | rows >> 1) & slanted) & members;
        return run_up(members, rows) | __brev(run_up(turned, __brev(rows)));
    };
    // Twice before it is asked whether there is more.
#pragma unroll 1
    while (true) {
        const u32 before = from;
        from = spread(spread(from));
        if (!any_lane(from != before)) {
            return from;
        }
    }
}

// A list of blocks, of which `count` words lie at `scratch`: each lane has added up the weight of its own.
__device__ __forceinline__ Word new_block_list(Machine &m, u32 scratch, u32 count, u32 weight) {
    const u32 list = m.take(HEAD_WORDS + count);
    if (m.error) {
        return 0;
    }
    weight = 1 + total(weight);
    if (weight > WEIGHT_MAX) {
        return m.fail(OVERFLOW);
    }
#pragma unroll 1
    for (u32 at = lane(); at < count; at += LANES) {
        m.mem[list + HEAD_WORDS + at] = m.mem[scratch + at];
    }
    if (lane() == 0) {
        m.mem[list] = OF_BLOCKS << 24 | count;
        m.mem[list + 1] = weight;
    }
    __syncwarp();
    return list;
}

// The components of a grid, each from its first cell on. `members` are the cells that may belong to one.
__device__ __forceinline__ Word quick_objects(Machine &m, const Planes &grid, u32 members, bool univalued,
                                              bool diagonal) {
    // No grid has more components than cells, nor more than the arena has room for.
    const u32 most = min(total(__popc(members)), (m.cap - m.top) / 8), scratch = m.borrow(most);
    u32 objects = 0, weight = 0;
#pragma unroll 1
    while (m.error == FINE) {
        const u32 rows = __ballot_sync(ALL_LANES, members != 0);
        if (rows == 0) {
            break;
        }
        const u32 row = __ffs(rows) - 1;
        const u32 first = __shfl_sync(ALL_LANES, members & 0 - members, row);
        u32 alike = members, code = 0;
        if (univalued) {
            code = __shfl_sync(ALL_LANES, grid.code(__ffs(first) - 1), row);
            alike = having(members, grid.bits, code);
        }
        const u32 object = flooded(alike, lane() == row ? first : 0, diagonal);
        members &= ~object;
        if (objects == most) {
            return m.fail(NEEDS_MEMORY);
        }
        const Word made = univalued ? new_board(m, object, 0, 0, key_of(i32(code) + COLOR_MIN))
                                    : new_colored_board(m, object, 0, 0, grid.bits);
        if (m.error == FINE) {
            m.mem[scratch + objects] = u32(made);
            weight += lane() == 0 ? 1 + m.count(made) : 0;
            objects += 1;
        }
    }
    if (m.error) {
        return 0;
    }
    __syncwarp();
    const Word list = new_block_list(m, scratch, objects, weight);
    m.give_back(most);
    return list;
}

// One object for each of these colours, a bit each.
__device__ __forceinline__ Word quick_partition(Machine &m, const Planes &grid, u32 colors) {
    const u32 count = __popc(colors), scratch = m.borrow(2 * LANES);
    if (m.error) {
        return 0;
    }
    u32 weight = 0, rank = 0, mine = ~0u;
#pragma unroll 1
    for (u32 at = 0; at < count; at += 1) {
        const u32 code = __ffs(colors) - 1;
        colors &= colors - 1;
        const u32 bits = having(grid.valid(), grid.bits, code);
        const Word made = new_board(m, bits, 0, 0, key_of(i32(code) + COLOR_MIN));
        if (m.error) {
            return 0;
        }
        const u32 row = __ffs(__ballot_sync(ALL_LANES, bits != 0)) - 1;
        const u32 first = row << 5 | u32(__ffs(__shfl_sync(ALL_LANES, bits, row)) - 1);
        // Objects stand in the order of their first cells.
        rank += first < mine;
        if (lane() == at) {
            mine = first;
            weight = 1 + m.count(made);
        }
        m.mem[scratch + LANES + at] = u32(made);
    }
    __syncwarp();
    rank = 0;
#pragma unroll 1
    for (u32 at = 0; at < count; at += 1) {
        rank += __shfl_sync(ALL_LANES, mine, at) < mine;
    }
    if (lane() < count) {
        m.mem[scratch + rank] = m.mem[scratch + LANES + lane()];
    }
    __syncwarp();
    const Word list = new_block_list(m, scratch, count, weight);
    m.give_back(2 * LANES);
    return list;
}

// The elements of a list of blocks for which `keeps(block)` holds, in order. Each lane asks for its own.
template <class Keeps>
__device__ __forceinline__ Word quick_kept(Machine &m, u32 from, Keeps keeps) {
    const u32 count = m.count(from), list = m.take(HEAD_WORDS + count);
    if (m.error) {
        return 0;
    }
    u32 kept = 0, weight = 0;
#pragma unroll 1
    for (u32 base = 0; base < count; base += LANES) {
        const u32 at = base + lane(), block = at < count ? m.words(from)[at] : 0;
        const bool is = at < count && keeps(block);
        const u32 members = __ballot_sync(ALL_LANES, is);
        if (is) {
            m.mem[list + HEAD_WORDS + kept + __popc(members & ((1u << lane()) - 1))] = block;
            weight += m.weight(block);
        }
        kept += __popc(members);
    }
    weight = 1 + total(weight);
    if (lane() == 0) {
        m.mem[list] = OF_BLOCKS << 24 | kept;
        m.mem[list + 1] = weight;
    }
    m.top = list + whole(HEAD_WORDS + kept);
    __syncwarp();
    return list;
}

// All elements of a list of blocks in one: false if one is no board, they do not fit one, or two are at one place in
// different colours.
__device__ __forceinline__ bool quick_merged(Machine &m, u32 from, bool cells, Word &result) {
    const u32 count = m.count(from);
    u32 top = ~0u, left = ~0u, bottom = 0, right = 0, keys_low = ~0u, keys_high = 0, elements = 0;
    bool fits = true;
#pragma unroll 1
    for (u32 at = lane(); at < count; at += LANES) {
        const u32 block = m.words(from)[at];
        const uint4 head = quad(m, block);
        if ((head.x & 0xffffff) == 0) {
            continue;
        }
        fits = fits && head.x >> 24 == OF_BOARD;
        const u32 first_row = head.y >> 16, first_col = head.y & 0xffff, key = head.z & 0x1ffff;
        top = min(top, first_row);
        left = min(left, first_col);
        bottom = max(bottom, first_row + (head.z >> 17 & 31));
        right = max(right, first_col + (head.z >> 22 & 31));
        keys_low = min(keys_low, key);
        keys_high = max(keys_high, key);
        elements = capped(elements + (head.x & 0xffffff), WEIGHT_MAX);
    }
    const u32 firsts = least(top), cols = least(left);
    bottom = most(bottom);
    right = most(right);
    keys_low = least(keys_low);
    keys_high = most(keys_high);
    elements = total(elements);
    if (any_lane(!fits) || elements >= WEIGHT_MAX || elements > 0 && (bottom - firsts >= 32 || right - cols >= 32)) {
        return false;
    }
    if (elements == 0) {
        result = new_board(m, 0, 0, 0, cells ? MANY_COLORS : PLAIN_PLACES);
        return true;
    }
    const i32 first_row = i32(firsts) - 32768, first_col = i32(cols) - 32768;
    const bool many = keys_low != keys_high || keys_low == MANY_COLORS;
    if (many && (keys_low < key_of(COLOR_MIN) || keys_high > key_of(COLOR_MAX) && keys_high != MANY_COLORS)) {
        return false;
    }
    u32 bits = 0, planes[PLANES] = {0, 0, 0, 0};
    bool clash = false;
#pragma unroll 1
    for (u32 at = 0; at < count; at += 1) {
        const u32 block = m.words(from)[at];
        if (m.count(block) == 0) {
            continue;
        }
        const Board board = board_at(m, block);
        const u32 row = board.placed(first_row, first_col);
        if (many) {
            clash |= (bits & row) != 0;
            const u32 code = code_of(color_of_key(board.key));
#pragma unroll
            for (u32 plane = 0; plane < PLANES; plane += 1) {
                u32 of = 0 - (code >> plane & 1);
                if (board.key == MANY_COLORS) {
                    Board one = board;
                    one.row = board_plane(m, block, board.h, plane);
                    of = one.placed(first_row, first_col);
                }
                planes[plane] |= row & of;
            }
        }
        bits |= row;
    }
    if (many && any_lane(clash)) {
        return false;
    }
    result = many ? new_colored_board(m, bits, first_row, first_col, planes)
                  : new_board(m, bits, first_row, first_col, keys_low);
    return true;
}

// Whether two boards are equal. Each lane may compare two of its own.
__device__ __forceinline__ bool are_same(const Machine &m, u32 one, u32 two) {
    const uint4 head = quad(m, one), other = quad(m, two);
    bool same = head.x == other.x && head.y == other.y && head.z == other.z;
    const u32 h = (head.z >> 17 & 31) + 1, rows = (head.z & MANY_COLORS) == MANY_COLORS ? h * (1 + PLANES) : h;
#pragma unroll 1
    for (u32 at = 0; same && at < rows; at += 1) {
        same = m.mem[one + BOARD_HEAD + at] == m.mem[two + BOARD_HEAD + at];
    }
    return same;
}

// Whether all elements of a list are boards.
__device__ __forceinline__ bool are_boards(const Machine &m, u32 list) {
    const u32 count = m.count(list);
    bool are = true;
#pragma unroll 1
    for (u32 at = lane(); at < count; at += LANES) {
        are &= m.block_class(m.words(list)[at]) == OF_BOARD;
    }
    return !any_lane(!are);
}

// Rows of numbers as planes. False if a row or a number does not fit.
__device__ __forceinline__ bool rows_as_planes(const Machine &m, u32 rows, Planes &grid) {
    grid.h = m.count(rows);
    grid.w = 0;
    bool fits = grid.h <= BOARD_SIDE;
    if (fits && grid.h > 0) {
        grid.w = m.count(m.words(rows)[0]);
        fits = grid.w <= BOARD_SIDE;
        const u32 row = m.words(rows)[min(lane(), grid.h - 1)];
        fits = fits && !any_lane(m.mem[row] != (OF_WORDS << 24 | grid.w));
        bool bad = false;
#pragma unroll 1
        for (u32 col = 0; col < grid.w && fits; col += 1) {
            const u32 code = code_of(number_of(m.words(row)[col]));
            bad |= code > 15;
#pragma unroll
            for (u32 plane = 0; plane < PLANES; plane += 1) {
                grid.bits[plane] |= (code >> plane & 1) << col;
            }
        }
        fits = fits && !any_lane(bad);
    }
    return fits;
}

// A grid as a tuple of rows of numbers.
__device__ __forceinline__ Word planes_as_rows(Machine &m, const Planes &grid) {
    const u32 each = whole(HEAD_WORDS + grid.w), list = m.take(HEAD_WORDS + grid.h), rows = m.take(each * grid.h);
    if (m.error == FINE && lane() < grid.h) {
        const u32 row = rows + each * lane();
        m.mem[list + HEAD_WORDS + lane()] = row;
        m.mem[row] = OF_WORDS << 24 | grid.w;
        m.mem[row + 1] = 1 + grid.w;
#pragma unroll 1
        for (u32 col = 0; col < grid.w; col += 1) {
            m.mem[row + HEAD_WORDS + col] = u32(of_number(i32(grid.code(col)) + COLOR_MIN));
        }
    }
    if (m.error == FINE && lane() == 0) {
        m.mem[list] = OF_BLOCKS << 24 | grid.h;
        m.mem[list + 1] = 1 + grid.h * (1 + grid.w);
    }
    __syncwarp();
    return list;
}

// The bits of the numbers of a list, from the least on. False if they do not fit.
__device__ __forceinline__ bool numbers_as_bits(const Machine &m, u32 list, u32 &first, u32 &bits) {
    const u32 count = m.count(list), mine = lane() < count ? m.words(list)[lane()] : ~0u;
    first = least(mine);
    const bool fits = count > 0 && count <= LANES && !any_lane(lane() < count && mine - first >= BOARD_SIDE);
    bits = all_bits(lane() < count ? 1u << (mine - first & 31) : 0);
    return fits && m.block_class(list) == OF_WORDS;
}

// A board elsewhere.
__device__ __forceinline__ Word board_put_at(Machine &m, u32 block, i32 top, i32 left) {
    const u32 words = m.mem[block + 3], made = m.take(words);
    if (m.error) {
        return 0;
    }
#pragma unroll 1
    for (u32 at = lane(); at < words; at += LANES) {
        m.mem[made + at] = at == 1 ? of_vector(top, left) : m.mem[block + at];
    }
    __syncwarp();
    return made;
}

// Whether two blocks, both boards or both planes, are equal.
__device__ __forceinline__ bool same_blocks(const Machine &m, u32 one, u32 two) {
    const uint4 head = quad(m, one), other = quad(m, two);
    bool differs = head.x != other.x || head.y != other.y || head.z != other.z;
    const u32 h = (head.z >> 17 & 31) + 1, rows = (head.z & MANY_COLORS) == MANY_COLORS ? h * (1 + PLANES) : h;
    const u32 words = head.x >> 24 == OF_BOARD ? rows : 4 * (head.y & 0xff);
    if (!differs) {
#pragma unroll 1
        for (u32 at = lane(); at < words; at += LANES) {
            differs |= m.mem[one + 4 + at] != m.mem[two + 4 + at];
        }
    }
    return !any_lane(differs);
}
