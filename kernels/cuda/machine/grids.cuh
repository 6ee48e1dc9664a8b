// Primitives that make grids from grids. Mirrors kernels/src/reference/machine/grids.rs.

#pragma once

#include "machine/objects.cuh"

// The grid whose cell (row, col) is that of another at `from(row, col)`, which must be in it.
template <class From>
__device__ inline Word picked(Machine &m, Word grid, i64 h, i64 w, From from) {
    const u32 made = m.open_grid(h, w);
    if (m.error) {
        return 0;
    }
    const u32 width = u32(w), area = m.count(made);
    const signed char *const cells = m.cells(grid);
    signed char *const to = m.cells(made);
    const Divider rows(width);
#pragma unroll 1
    for (u32 at = lane(); at < area; at += LANES) {
        const u32 row = rows.divide(at);
        to[at] = cells[from(row, at - row * width)];
    }
    __syncwarp();
    return made;
}

// A symmetry: cell (row, col) comes from start + row * down + col * right.
__device__ __noinline__ Word turned(Machine &m, Word grid, bool transpose, bool rows, bool cols) {
    const i32 h = i32(m.height(grid)), w = i32(m.width(grid));
    const i32 out_h = transpose ? w : h, out_w = transpose ? h : w;
    i32 down = transpose ? 1 : w, right = transpose ? w : 1, start = 0;
    if (rows) {
        start += (out_h - 1) * down;
        down = -down;
    }
    if (cols) {
        start += (out_w - 1) * right;
        right = -right;
    }
    return picked(m, grid, out_h, out_w, [=](u32 row, u32 col) { return start + i32(row) * down + i32(col) * right; });
}

// Patches mirrored within their box. `mirrors`: bit 0 columns, bit 1 rows; `transposes` first.
__device__ __noinline__ Word mirrored(Machine &m, u32 op, Word patch) {
    const Frame frame = needed_frame(m, patch);
    if (m.error) {
        return 0;
    }
    const i32 across = frame.left + frame.right, upright = frame.top + frame.bottom, skew = frame.top - frame.left;
    return moved(m, patch, PLAIN, [=](i32 &row, i32 &col) {
        const i32 was = row;
        switch (op) {
        case OP_HMIRROR:
            row = upright - row;
            break;
        case OP_VMIRROR:
            col = across - col;
            break;
        default:
            row = col + skew;
            col = was - skew;
            break;
        }
    });
}

__device__ __noinline__ Word mirror(Machine &m, u32 op, Value a) {
    if (m.tag(a.kind) == GRID) {
        const bool transpose = op == OP_DMIRROR || op == OP_CMIRROR;
        return turned(m, a.word, transpose, op == OP_HMIRROR || op == OP_CMIRROR, op == OP_VMIRROR || op == OP_CMIRROR);
    }
    if (op != OP_CMIRROR) {
        return mirrored(m, op, a.word);
    }
    Word patch = mirrored(m, OP_VMIRROR, a.word);
    patch = m.error ? 0 : mirrored(m, OP_DMIRROR, patch);
    return m.error ? 0 : mirrored(m, OP_VMIRROR, patch);
}

// The cells of rows top..top + h and columns left..left + w.
__device__ __noinline__ Word cut(Machine &m, Word grid, u32 top, u32 left, u32 h, u32 w) {
    const u32 width = m.width(grid), start = top * width + left;
    return picked(m, grid, h, w, [=](u32 row, u32 col) { return start + row * width + col; });
}

// The lines of `length` that Python's slice from `start` to `start + size` takes: where it starts, and how many.
__device__ inline u32 sliced(u32 length, i32 start, i32 size, u32 &count) {
    const i32 end = start + size, most = i32(length);
    const i32 first = start < 0 ? max(start + most, 0) : min(start, most);
    const i32 last = end < 0 ? max(end + most, 0) : min(end, most);
    count = u32(max(last - first, 0));
    return u32(first);
}

__device__ __noinline__ Word cropped(Machine &m, Word grid, i32 row, i32 col, i32 high, i32 wide) {
    u32 h, w;
    const u32 top = sliced(m.height(grid), row, high, h), left = sliced(m.width(grid), col, wide, w);
    return cut(m, grid, top, left, h, w);
}

__device__ __noinline__ Word subgrid(Machine &m, Value patch, Word grid) {
    const Frame frame = needed_frame(m, patch.word);
    if (m.error) {
        return 0;
    }
    i32 h, w;
    sides_of(m, patch, h, w);
    return cropped(m, grid, frame.top, frame.left, h, w);
}

__device__ __noinline__ Word split(Machine &m, Word grid, Word number, bool columns) {
    const i32 n = needed_number(m, number);
    const i32 h = i32(m.height(grid)), w = i32(m.width(grid));
    if (m.error == FINE && h == 0) {
        m.fail(EMPTY_ARG);
    }
    if (m.error == FINE && n == 0) {
        m.fail(BAD_NUMBER);
    }
    // Each part weighs 1 at least.
    if (m.error == FINE && n >= i32(WEIGHT_MAX)) {
        m.fail(OVERFLOW);
    }
    if (m.error) {
        return 0;
    }
    const u32 parts = u32(max(n, 0)), list = m.open(OF_BLOCKS, parts);
    const i32 side = columns ? w : h;
    const i32 part = n > 0 ? side / n : 0, gap = n > 0 && side % n != 0;
#pragma unroll 1
    for (u32 at = 0; at < parts && !m.error; at += 1) {
        const i64 from = i64(part + gap) * at;
        const i32 start = i32(from < side ? from : side);
        const Word made = columns ? cropped(m, grid, 0, start, h, part) : cropped(m, grid, start, 0, part, w);
        if (m.error == FINE) {
            m.words(list)[at] = u32(made);
        }
    }
    if (m.error) {
        return 0;
    }
    const u32 top = m.top;
    const Word result = close_list(m, list, OF_BLOCKS, parts);
    m.top = top;
    return result;
}

__device__ __noinline__ Word half_of(Machine &m, u32 op, Word grid) {
    const u32 h = m.height(grid), w = m.width(grid);
    switch (op) {
    case OP_TRIM: {
        const u32 rows = h < 2 ? 0 : h - 2, cols = w < 2 ? 0 : w - 2;
        return cut(m, grid, min(h, 1u), min(w, 1u), rows, cols);
    }
    case OP_TOPHALF:
        return cut(m, grid, 0, 0, h / 2, w);
    case OP_BOTTOMHALF:
        return cut(m, grid, (h + 1) / 2, 0, h / 2, w);
    // Through a quarter turn: a grid without columns has no rows behind it either.
    case OP_LEFTHALF:
        return cut(m, grid, 0, 0, w / 2 == 0 ? 0 : h, w / 2);
    default:
        return cut(m, grid, 0, (w + 1) / 2, w / 2 == 0 ? 0 : h, w / 2);
    }
}

// Two grids side by side, or on top of each other.
__device__ __noinline__ Word joined(Machine &m, Word a, Word b, bool columns) {
    const u32 h = m.height(a), w = m.width(a), other = m.height(b), beside = m.width(b);
    if (!columns && h > 0 && other > 0 && w != beside) {
        return m.fail(BAD_SHAPE);
    }
    const u32 made = columns ? m.open_grid(min(h, other), w + beside) : m.open_grid(h + other, max(w, beside));
    if (m.error) {
        return 0;
    }
    const u32 area = m.count(made), width = m.width(made);
    const signed char *const one = m.cells(a), *const two = m.cells(b);
    signed char *const to = m.cells(made);
    const Divider rows(width);
#pragma unroll 1
    for (u32 at = lane(); at < area; at += LANES) {
        if (columns) {
            const u32 row = rows.divide(at), col = at - row * width;
            to[at] = col < w ? one[row * w + col] : two[row * beside + col - w];
        } else {
            to[at] = at < h * w ? one[at] : two[at - h * w];
        }
    }
    __syncwarp();
    return made;
}

__device__ __noinline__ Word cellwise(Machine &m, Word a, Word b, Word number) {
    const i32 fallback = needed_number(m, number);
    const u32 h = m.height(a), w = m.width(a), other = m.height(b), beside = m.width(b);
    if (m.error == FINE && h == 0) {
        m.fail(EMPTY_ARG);
    }
    const u32 made = m.error ? 0 : m.open_grid(h, w);
    if (m.error) {
        return 0;
    }
    const bool is_color = fallback >= COLOR_MIN && fallback <= COLOR_MAX;
    const signed char *const one = m.cells(a), *const two = m.cells(b);
    signed char *const to = m.cells(made);
    const Divider rows(w);
    // The first cell that fails counts.
    u32 fails = ~0u;
#pragma unroll 1
    for (u32 at = lane(); at < h * w; at += LANES) {
        const u32 row = rows.divide(at), col = at - row * w;
        if (row >= other || col >= beside) {
            fails = min(fails, at << 8 | BAD_INDEX);
            continue;
        }
        const i32 color = one[at] == two[row * beside + col] ? i32(one[at]) : fallback;
        fails = one[at] != color && !is_color ? min(fails, at << 8 | OVERFLOW) : fails;
        to[at] = (signed char)color;
    }
    fails = least_of_warp(fails);
    __syncwarp();
    return fails == ~0u ? Word(made) : m.fail(fails & 0xff);
}

// The grid without the rows and columns of one colour.
__device__ __noinline__ Word compressed(Machine &m, Word grid) {
    const u32 h = m.height(grid), w = m.width(grid), scratch = m.borrow(h + w);
    if (m.error) {
        return 0;
    }
    u32 *const rows = m.mem + scratch, *const cols = rows + h;
    const signed char *const cells = m.cells(grid);
    u32 high = 0, wide = 0;
#pragma unroll 1
    for (u32 row = 0; row < h; row += 1) {
        if (!is_uniform(cells + row * w, w, 1)) {
            rows[high] = row * w;
            high += 1;
        }
    }
#pragma unroll 1
    for (u32 col = 0; col < w; col += 1) {
        if (!is_uniform(cells + col, h, w)) {
            cols[wide] = col;
            wide += 1;
        }
    }
    __syncwarp();
    const Word made = picked(m, grid, high, wide, [=](u32 row, u32 col) { return rows[row] + cols[col]; });
    m.give_back(h + w);
    return made;
}

// A grid with each row and column so many times.
__device__ __noinline__ Word scaled(Machine &m, Word grid, i32 down, i32 right) {
    down = max(down, 0);
    right = max(right, 0);
    const u32 width = m.width(grid);
    const Divider rows{u32(down)}, cols{u32(right)};
    return picked(m, grid, i64(m.height(grid)) * down, i64(width) * right,
                  [=](u32 row, u32 col) { return rows.divide(row) * width + cols.divide(col); });
}

__device__ __noinline__ Word upscaled(Machine &m, Value a, Word number) {
    const i32 factor = needed_number(m, number);
    if (m.error) {
        return 0;
    }
    if (m.tag(a.kind) == GRID) {
        return scaled(m, a.word, factor, factor);
    }
    const u32 count = m.count(a.word);
    if (count == 0) {
        return empty_list(m, OF_DOUBLES);
    }
    const i64 copies = max(factor, 0);
    // The reference weighs the copies of the whole object.
    if (copies > 65535 || copies * copies * (1 + i64(count)) > WEIGHT_MAX) {
        return m.fail(OVERFLOW);
    }
    const Frame frame = frame_of(m, a.word);
    if (m.error || !is_half(frame.bottom - frame.top) || !is_half(frame.right - frame.left)) {
        return m.fail(OVERFLOW);
    }
    const u32 side = u32(copies), square = side * side, made = count * square;
    const u32 list = m.open(OF_DOUBLES, made);
    if (m.error) {
        return 0;
    }
    bool fails = false;
#pragma unroll 1
    for (u32 at = lane(); at < made; at += LANES) {
        const Word cell = m.doubles(a.word)[at / square];
        const u32 place = vector_of_cell(cell), rest = at % square;
        const i32 row = (row_of(place) - frame.top) * factor + i32(rest / side) + frame.top;
        const i32 col = (col_of(place) - frame.left) * factor + i32(rest % side) + frame.left;
        fails |= !are_halves(row, col);
        m.doubles(list)[at] = Word(of_vector(row, col)) << 17 | (cell & 0x1ffff);
    }
    if (any_lane(fails)) {
        return m.fail(OVERFLOW);
    }
    return close_set(m, list, PLAIN, OF_DOUBLES, made);
}

__device__ __noinline__ Word downscaled(Machine &m, Word grid, Word number) {
    const i32 factor = needed_number(m, number);
    const u32 h = m.height(grid), width = m.width(grid);
    if (m.error == FINE && h == 0) {
        m.fail(EMPTY_ARG);
    }
    if (m.error == FINE && factor == 0) {
        m.fail(BAD_NUMBER);
    }
    if (m.error) {
        return 0;
    }
    const u32 step = u32(factor < 0 ? -factor : factor);
    const u32 high = (h - 1) / step + 1, wide = width == 0 ? 0 : (width - 1) / step + 1;
    return picked(m, grid, high, wide, [=](u32 row, u32 col) { return row * step * width + col * step; });
}

__device__ __noinline__ Word canvas(Machine &m, Word number, u32 sides) {
    const i32 color = needed_number(m, number);
    m.needed_vector(sides);
    if (m.error) {
        return 0;
    }
    const u32 made = m.open_grid(max(row_of(sides), 0), max(col_of(sides), 0));
    if (m.error) {
        return 0;
    }
    const u32 area = m.count(made);
    if (area > 0 && (color < COLOR_MIN || color > COLOR_MAX)) {
        return m.fail(OVERFLOW);
    }
#pragma unroll 1
    for (u32 at = lane(); at < (area + 3) / 4; at += LANES) {
        m.words(made)[at] = (u32(color) & 0xff) * 0x01010101u;
    }
    __syncwarp();
    return made;
}

__device__ __noinline__ Word grid_op(Machine &m, u32 op, Value a, Value b, Word c) {
    const Word grid = a.word;
    switch (op) {
    case OP_ROT90:
        return turned(m, grid, true, false, true);
    case OP_ROT180:
        return turned(m, grid, false, true, true);
    case OP_ROT270:
        return turned(m, grid, true, true, false);
    case OP_CROP:
        m.needed_vector(b.word);
        m.needed_vector(c);
        return m.error ? 0 : cropped(m, grid, row_of(u32(b.word)), col_of(u32(b.word)), row_of(u32(c)), col_of(u32(c)));
    case OP_SUBGRID:
        return subgrid(m, a, b.word);
    case OP_HSPLIT:
    case OP_VSPLIT:
        return split(m, grid, b.word, op == OP_HSPLIT);
    case OP_HCONCAT:
    case OP_VCONCAT:
        return joined(m, grid, b.word, op == OP_HCONCAT);
    case OP_CELLWISE:
        return cellwise(m, grid, b.word, c);
    case OP_COMPRESS:
        return compressed(m, grid);
    case OP_CANVAS:
        return canvas(m, a.word, u32(b.word));
    case OP_UPSCALE:
        return upscaled(m, a, b.word);
    case OP_HUPSCALE:
    case OP_VUPSCALE: {
        const i32 factor = needed_number(m, b.word);
        return m.error ? 0 : scaled(m, grid, op == OP_HUPSCALE ? 1 : factor, op == OP_HUPSCALE ? factor : 1);
    }
    case OP_DOWNSCALE:
        return downscaled(m, grid, b.word);
    default:
        return half_of(m, op, grid);
    }
}
