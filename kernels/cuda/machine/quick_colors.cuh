// Quick ops that look at colours, and at two patches.

#pragma once

#include "machine/quick_lists.cuh"

// Says what it made in `q`; LEFT if the other functions must.
__device__ __forceinline__ u32 quick_colors(Machine &m, const Instruction &of, Quick &q) {
    const u32 op = of.op, form = of.form;
    Planes &grid = q.grid;
    const Board &patch = q.patch, &second = q.second;
    const Lazy &b = q.b, &c = q.c;
    u32 &bits = q.bits, &key = q.key;
    Word &result = q.result;
    u32 made = LEFT;
    switch (op) {
    case OP_MOSTCOLOR:
    case OP_LEASTCOLOR:
    case OP_PALETTE:
    case OP_NUMCOLORS:
    case OP_COLORCOUNT: {
        const bool of_grid = form & 3;
        u32 members = of_grid ? grid.valid() : patch.row;
        if (!any_lane(members != 0)) {
            break;
        }
        if (!of_grid && patch.key != MANY_COLORS) {
            const i32 color = color_of_key(patch.key);
            if (!is_code(color)) {
                break;
            }
#pragma unroll
            for (u32 plane = 0; plane < PLANES; plane += 1) {
                grid.bits[plane] = 0 - (code_of(color) >> plane & 1);
            }
        } else if (!of_grid) {
#pragma unroll
            for (u32 plane = 0; plane < PLANES; plane += 1) {
                grid.bits[plane] = board_plane(m, q.patch_at, patch.h, plane);
            }
        }
        if (op == OP_COLORCOUNT) {
            const i32 color = number_of(b);
            members = is_code(color) ? having(members, grid.bits, code_of(color)) : 0;
            result = of_number(i32(total(__popc(members))));
            made = WORD_MADE;
        } else if (op == OP_PALETTE || op == OP_NUMCOLORS) {
            const u32 colors = colors_of(members, grid.bits), count = __popc(colors);
            result = of_number(i32(count));
            made = WORD_MADE;
            if (op == OP_PALETTE) {
                const u32 list = m.take(HEAD_WORDS + count);
                if (m.error == FINE && lane() == 0) {
                    m.mem[list] = OF_WORDS << 24 | count;
                    m.mem[list + 1] = 1 + count;
                }
                if (m.error == FINE && (colors >> lane() & 1)) {
                    m.mem[list + HEAD_WORDS + __popc(colors & ((1u << lane()) - 1))] =
                        u32(of_number(i32(lane()) + COLOR_MIN));
                }
                __syncwarp();
                result = list;
            }
        } else {
            const Counted best = counted(members, grid.bits, op == OP_LEASTCOLOR);
            result = of_number(i32(best.code) + COLOR_MIN);
            made = best.ties && m.ties == TIES_CPYTHON ? LEFT : WORD_MADE;
        }
        break;
    }
    case OP_HMATCHING:
    case OP_VMATCHING:
        result = of_flag(share_lines(patch, second, op == OP_VMATCHING));
        made = WORD_MADE;
        break;
    case OP_MANHATTAN:
        result = of_number(i32(nearest(patch, second)));
        made = patch.count > 0 && second.count > 0 ? WORD_MADE : LEFT;
        break;
    case OP_ADJACENT:
        result = of_flag(are_beside(patch, second));
        made = patch.count > 0 && second.count > 0 ? WORD_MADE : LEFT;
        break;
    case OP_POSITION: {
        const i32 row = middle_row(patch), col = middle_col(patch);
        const i32 other = middle_row(second), beside = middle_col(second);
        const i32 right = col < beside ? 1 : -1, down = row < other ? 1 : -1;
        result = row == other ? of_vector(0, right) : col == beside ? of_vector(down, 0) : of_vector(down, right);
        made = patch.count > 0 && second.count > 0 ? WORD_MADE : LEFT;
        break;
    }
    case OP_REPLACE:
    case OP_SWITCH: {
        const i32 from = number_of(b), to = number_of(c);
        if (is_code(from) && is_code(to)) {
            const u32 one = grid.having(code_of(from)), two = grid.having(code_of(to));
            grid.put(one, code_of(to));
            grid.put(op == OP_SWITCH ? two : 0, code_of(from));
            made = GRID_MADE;
        }
        break;
    }
    default:
        break;
    }
    return made;
}
