// Quick ops that make patches and objects.

#pragma once

#include "machine/quick_colors.cuh"

// Says what it made in `q`; LEFT if the other functions must.
__device__ __forceinline__ u32 quick_patches(Machine &m, const Instruction &of, Quick &q) {
    const u32 op = of.op;
    Planes &grid = q.grid;
    const Board &patch = q.patch;
    const Lazy &a = q.a, &b = q.b, &c = q.c;
    u32 &bits = q.bits, &key = q.key;
    i32 &top = q.top, &left = q.left;
    Word &result = q.result;
    u32 made = LEFT;
    switch (op) {
    case OP_ASINDICES:
        bits = grid.valid();
        made = BOARD_MADE;
        break;
    case OP_ASOBJECT:
        bits = grid.valid();
        made = COLORED_MADE;
        break;
    case OP_OFCOLOR: {
        const i32 color = number_of(b);
        bits = is_code(color) ? grid.having(code_of(color)) : 0;
        made = BOARD_MADE;
        break;
    }
    case OP_TOOBJECT:
        bits = patch.placed(0, 0) & grid.valid();
        made = grid.h > 0 ? COLORED_MADE : LEFT;
        break;
    case OP_TOINDICES:
    case OP_RECOLOR: {
        const i32 color = op == OP_RECOLOR ? number_of(a) : 0;
        key = op == OP_RECOLOR ? key_of(color) : PLAIN_PLACES;
        if (patch.count > 0 && (op == OP_TOINDICES || is_half(color)) && color != NOTHING) {
            // The same box: only the row words go over.
            const u32 words = whole(BOARD_HEAD + patch.h), block = m.take(words);
            if (m.error == FINE) {
                const uint4 head = quad(m, q.patch_at);
                if (lane() == 0) {
                    put_quad(m, block, head.x, head.y, head.z & ~MANY_COLORS | key, words);
                }
                if (lane() < patch.h) {
                    m.mem[block + BOARD_HEAD + lane()] = patch.row;
                }
                __syncwarp();
            }
            result = block;
            made = WORD_MADE;
        }
        break;
    }
    case OP_SHIFT:
        if (patch.count > 0 && u32(Word(b)) != NO_VECTOR) {
            top = patch.top + row_of(u32(Word(b)));
            left = patch.left + col_of(u32(Word(b)));
            if (is_near(top) && is_near(left)) {
                result = board_put_at(m, q.patch_at, top, left);
                made = WORD_MADE;
            }
        }
        break;
    case OP_NORMALIZE:
        if (patch.count > 0) {
            result = board_put_at(m, q.patch_at, 0, 0);
            made = WORD_MADE;
        }
        break;
    case OP_CORNERS:
    case OP_BACKDROP:
    case OP_DELTA:
    case OP_BOXOF:
    case OP_INBOX:
    case OP_OUTBOX: {
        const i32 by = op == OP_OUTBOX ? 1 : op == OP_INBOX ? -1 : 0;
        if (patch.count == 0) {
            made = op == OP_BACKDROP || op == OP_DELTA || op == OP_BOXOF ? BOARD_MADE : LEFT;
            break;
        }
        top = min(patch.top - by, patch.bottom() + by);
        left = min(patch.left - by, patch.right() + by);
        const u32 h = u32(max(patch.top - by, patch.bottom() + by) - top) + 1;
        const u32 w = u32(max(patch.left - by, patch.right() + by) - left) + 1;
        if (h > BOARD_SIDE || w > BOARD_SIDE) {
            break;
        }
        const u32 ends = 1 | 1u << (w - 1), whole_row = low_bits(w);
        const bool is_end = lane() == 0 || lane() == h - 1;
        bits = op == OP_CORNERS                      ? (is_end ? ends : 0)
               : op == OP_BACKDROP || op == OP_DELTA ? whole_row
               : is_end                              ? whole_row
                                                     : ends;
        bits = lane() < h ? bits : 0;
        bits &= op == OP_DELTA ? ~patch.row : ~0u;
        made = BOARD_MADE;
        break;
    }
    case OP_DNEIGHBORS:
    case OP_INEIGHBORS:
    case OP_NEIGHBORS:
        top = row_of(u32(Word(a))) - 1;
        left = col_of(u32(Word(a))) - 1;
        bits = around_bits(op);
        made = is_near(top) && is_near(left) ? BOARD_MADE : LEFT;
        break;
    case OP_HFRONTIER:
    case OP_VFRONTIER: {
        const bool flat = op == OP_HFRONTIER;
        top = flat ? row_of(u32(Word(a))) : 0;
        left = flat ? 0 : col_of(u32(Word(a)));
        bits = flat ? (lane() == 0 ? low_bits(FRONTIER) : 0) : lane() < FRONTIER ? 1 : 0;
        made = is_near(top) && is_near(left) ? BOARD_MADE : LEFT;
        break;
    }
    case OP_CONNECT: {
        const u32 from = u32(Word(a)), to = u32(Word(b));
        const i32 row = row_of(from), col = col_of(from), down = row_of(to) - row, right = col_of(to) - col;
        const i32 high = down < 0 ? -down : down, wide = right < 0 ? -right : right, length = max(high, wide);
        top = min(row, row + down);
        left = min(col, col + right);
        if (is_near(row) && is_near(col) && length < i32(BOARD_SIDE)) {
            const bool falls = (down < 0) == (right < 0);
            const u32 slant = falls ? lane() : u32(length) - lane();
            bits = down == 0 ? (lane() == 0 ? low_bits(u32(length) + 1) : 0) : right == 0 ? 1u : 1u << (slant & 31);
            bits = lane() <= u32(high) ? bits : 0;
            bits = down != 0 && right != 0 && high != wide ? 0 : bits;
            made = BOARD_MADE;
        }
        break;
    }
    case OP_OBJECTS: {
        const u32 background = is_true(m.registers()[of.d]) ? background_of(m, grid) : 16;
        if (grid.h > 0 && background != ~0u) {
            const u32 members = grid.valid() & (background == 16 ? ~0u : ~grid.having(background));
            result = quick_objects(m, grid, members, is_true(b), is_true(c));
            made = WORD_MADE;
        }
        break;
    }
    case OP_PARTITION:
    case OP_FGPARTITION: {
        const u32 background = op == OP_FGPARTITION ? background_of(m, grid) : 16;
        if (background != ~0u) {
            const u32 colors = colors_of(grid.valid(), grid.bits);
            result = quick_partition(m, grid, background == 16 ? colors : colors & ~(1u << background));
            made = WORD_MADE;
        }
        break;
    }
    default:
        break;
    }
    return made;
}
