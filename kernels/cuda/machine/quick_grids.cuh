// Quick ops that make grids.

#pragma once

#include "machine/quick_patches.cuh"

// Says what it made in `q`; LEFT if the other functions must.
__device__ __forceinline__ u32 quick_grids(Machine &m, const Instruction &of, Quick &q) {
    const u32 op = of.op, form = of.form;
    Planes &grid = q.grid;
    const Board &patch = q.patch;
    const Lazy &a = q.a, &b = q.b, &c = q.c;
    u32 &bits = q.bits, &key = q.key;
    i32 &top = q.top, &left = q.left;
    Word &result = q.result;
    u32 made = LEFT;
    switch (op) {
    case OP_FILL:
    case OP_UNDERFILL:
    case OP_COVER: {
        const i32 color = op == OP_COVER ? 0 : number_of(b);
        const u32 background = op == OP_FILL ? 0 : background_of(m, grid);
        if (grid.h > 0 && background != ~0u && is_code(color)) {
            const u32 where = patch.placed(0, 0) & (op == OP_UNDERFILL ? grid.having(background) : grid.valid());
            grid.put(where, op == OP_COVER ? background : code_of(color));
            made = GRID_MADE;
        }
        break;
    }
    case OP_PAINT:
    case OP_UNDERPAINT: {
        const u32 background = op == OP_PAINT ? 0 : background_of(m, grid);
        if (grid.h > 0 && background != ~0u) {
            const u32 where = op == OP_PAINT ? grid.valid() : grid.having(background);
            made = paint_board(m, grid, patch, q.patch_at, where) ? GRID_MADE : LEFT;
        }
        break;
    }
    case OP_MOVE: {
        const u32 background = background_of(m, grid);
        Board moved = patch;
        moved.top += row_of(u32(Word(c)));
        moved.left += col_of(u32(Word(c)));
        if (grid.h > 0 && background != ~0u && u32(Word(c)) != NO_VECTOR && is_near(moved.top) && is_near(moved.left)) {
            grid.put(patch.placed(0, 0) & grid.valid(), background);
            made = paint_board(m, grid, moved, q.patch_at, grid.valid()) ? GRID_MADE : LEFT;
        }
        break;
    }
    case OP_ROT90:
    case OP_ROT180:
    case OP_ROT270:
    case OP_HMIRROR:
    case OP_VMIRROR:
    case OP_DMIRROR:
    case OP_CMIRROR: {
        const bool transposes = op == OP_ROT90 || op == OP_ROT270 || op == OP_DMIRROR || op == OP_CMIRROR;
        const bool rows = op == OP_ROT180 || op == OP_ROT270 || op == OP_HMIRROR || op == OP_CMIRROR;
        const bool cols = op == OP_ROT180 || op == OP_ROT90 || op == OP_VMIRROR || op == OP_CMIRROR;
        const bool of_grid = form & 3;
        if (!of_grid && patch.count == 0) {
            break;
        }
        const u32 h = of_grid ? grid.h : patch.h, w = of_grid ? grid.w : patch.w;
        if (!of_grid) {
            bits = turned_bits(patch.row, h, w, transposes, rows, cols);
            top = patch.top;
            left = patch.left;
            key = patch.key;
        }
        made = of_grid ? GRID_MADE : key == MANY_COLORS ? COLORED_MADE : BOARD_MADE;
        if (made != BOARD_MADE) {
#pragma unroll 1
            for (u32 plane = 0; plane < PLANES; plane += 1) {
                const u32 of_plane = of_grid ? grid.bits[0] : board_plane(m, q.patch_at, h, plane);
                // The planes go round, so that none needs a number.
                const u32 turned = turned_bits(of_plane, h, w, transposes, rows, cols);
                grid.bits[0] = grid.bits[1];
                grid.bits[1] = grid.bits[2];
                grid.bits[2] = grid.bits[3];
                grid.bits[3] = turned;
            }
        }
        if (of_grid) {
            grid.h = transposes ? w : h;
            grid.w = transposes ? h : w;
        }
        break;
    }
    case OP_TRIM:
    case OP_TOPHALF:
    case OP_BOTTOMHALF:
    case OP_LEFTHALF:
    case OP_RIGHTHALF:
    case OP_CROP:
    case OP_SUBGRID: {
        u32 first = 0, side = 0, h = grid.h, w = grid.w;
        if (op == OP_CROP || op == OP_SUBGRID) {
            if (op == OP_CROP ? u32(Word(b)) == NO_VECTOR || u32(Word(c)) == NO_VECTOR : patch.count == 0) {
                break;
            }
            const bool crops = op == OP_CROP;
            const u32 start = u32(Word(b)), sides = u32(Word(c));
            first = sliced(grid.h, crops ? row_of(start) : patch.top, crops ? row_of(sides) : i32(patch.h), h);
            side = sliced(grid.w, crops ? col_of(start) : patch.left, crops ? col_of(sides) : i32(patch.w), w);
        } else if (op == OP_TRIM) {
            first = min(h, 1u);
            side = min(w, 1u);
            h = h < 2 ? 0 : h - 2;
            w = w < 2 ? 0 : w - 2;
        } else if (op == OP_TOPHALF || op == OP_BOTTOMHALF) {
            first = op == OP_TOPHALF ? 0 : (h + 1) / 2;
            h /= 2;
        } else {
            side = op == OP_LEFTHALF ? 0 : (w + 1) / 2;
            w /= 2;
            h = w == 0 ? 0 : h;
        }
        grid = cut_planes(grid, first, side, h, w);
        made = GRID_MADE;
        break;
    }
    case OP_HSPLIT:
    case OP_VSPLIT: {
        const i32 number = number_of(b);
        if (grid.h == 0 || number < 1 || number > i32(BOARD_SIDE)) {
            break;
        }
        const u32 parts = u32(number), side = op == OP_HSPLIT ? grid.w : grid.h;
        const u32 part = side / parts, gap = side % parts != 0, list = m.take(HEAD_WORDS + parts);
        u32 weight = 0;
#pragma unroll 1
        for (u32 at = 0; at < parts && !m.error; at += 1) {
            const u32 start = min((part + gap) * at, side), size = min(part, side - start);
            const Planes cut = op == OP_HSPLIT ? cut_planes(grid, 0, start, grid.h, size)
                                               : cut_planes(grid, start, 0, size, grid.w);
            const Word block = new_planes(m, cut);
            if (m.error == FINE) {
                m.mem[list + HEAD_WORDS + at] = u32(block);
                weight += m.weight(block);
            }
        }
        if (m.error == FINE && lane() == 0) {
            m.mem[list] = OF_BLOCKS << 24 | parts;
            m.mem[list + 1] = 1 + weight;
        }
        __syncwarp();
        result = list;
        made = WORD_MADE;
        break;
    }
    case OP_HCONCAT:
    case OP_VCONCAT: {
        const bool flat = op == OP_HCONCAT;
        const u32 h = flat ? min(grid.h, q.other.h) : grid.h + q.other.h, w = flat ? grid.w + q.other.w : grid.w;
        if (grid.h == 0 || q.other.h == 0 || h > BOARD_SIDE || w > BOARD_SIDE || !flat && grid.w != q.other.w) {
            break;
        }
#pragma unroll
        for (u32 plane = 0; plane < PLANES; plane += 1) {
            grid.bits[plane] |= flat ? moved_bits(q.other.bits[plane], i32(grid.w))
                                     : lane_before(q.other.bits[plane], i32(grid.h));
        }
        grid.h = h;
        grid.w = w;
        made = GRID_MADE;
        break;
    }
    case OP_CELLWISE: {
        const i32 fallback = number_of(c);
        if (is_code(fallback) && grid.h > 0 && q.other.h >= grid.h && q.other.w >= grid.w) {
            u32 differs = 0;
#pragma unroll
            for (u32 plane = 0; plane < PLANES; plane += 1) {
                differs |= grid.bits[plane] ^ q.other.bits[plane];
            }
            grid.put(differs & grid.valid(), code_of(fallback));
            made = GRID_MADE;
        }
        break;
    }
    case OP_CANVAS: {
        const i32 color = number_of(a), h = max(row_of(u32(Word(b))), 0), w = max(col_of(u32(Word(b))), 0);
        if (is_code(color) && h <= i32(BOARD_SIDE) && w <= i32(BOARD_SIDE)) {
            grid.h = u32(h);
            grid.w = u32(w);
            grid.put(~0u, code_of(color));
            made = GRID_MADE;
        }
        break;
    }
    case OP_UPSCALE:
    case OP_HUPSCALE:
    case OP_VUPSCALE: {
        const i32 factor = number_of(b);
        if (factor < 1 || factor > i32(BOARD_SIDE)) {
            break;
        }
        const bool of_grid = form & 3;
        if (!of_grid) {
            grid.h = patch.h;
            grid.w = patch.w;
#pragma unroll 1
            for (u32 plane = 0; plane < PLANES && patch.key == MANY_COLORS; plane += 1) {
                const u32 next = board_plane(m, q.patch_at, patch.h, plane);
                grid.bits[0] = grid.bits[1];
                grid.bits[1] = grid.bits[2];
                grid.bits[2] = grid.bits[3];
                grid.bits[3] = next;
            }
        }
        const u32 right = op == OP_VUPSCALE ? 1 : u32(factor), down = op == OP_HUPSCALE ? 1 : u32(factor);
        const u32 h = grid.h * down, w = grid.w * right;
        if (h > BOARD_SIDE || w > BOARD_SIDE || !of_grid && patch.count == 0) {
            break;
        }
        if (!of_grid) {
            bits = stretched(__shfl_sync(ALL_LANES, patch.row, lane() / down & 31), grid.w, right);
            bits = lane() < h ? bits : 0;
            top = patch.top;
            left = patch.left;
            key = patch.key;
        }
#pragma unroll
        for (u32 plane = 0; plane < PLANES; plane += 1) {
            const u32 row = __shfl_sync(ALL_LANES, grid.bits[plane], lane() / down & 31);
            grid.bits[plane] = stretched(row, grid.w, right);
        }
        grid.h = h;
        grid.w = w;
        made = of_grid ? GRID_MADE : key == MANY_COLORS ? COLORED_MADE : BOARD_MADE;
        break;
    }
    case OP_DOWNSCALE: {
        const i32 factor = number_of(b);
        if (grid.h == 0 || factor < 1 || factor > i32(BOARD_SIDE)) {
            break;
        }
        const u32 step = u32(factor);
#pragma unroll
        for (u32 plane = 0; plane < PLANES; plane += 1) {
            const u32 row = __shfl_sync(ALL_LANES, grid.bits[plane], lane() * step & 31);
            grid.bits[plane] = thinned(row, grid.w, step);
        }
        grid.h = (grid.h - 1) / step + 1;
        grid.w = grid.w == 0 ? 0 : (grid.w - 1) / step + 1;
        made = GRID_MADE;
        break;
    }
    default:
        break;
    }
    return made;
}
