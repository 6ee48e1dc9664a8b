// Which primitives boards and planes have, and what each does with them.

#pragma once

#include "machine/quick.cuh"

// What an op left to be made of its bits.
enum Made : u32 { LEFT, WORD_MADE, GRID_MADE, BOARD_MADE, COLORED_MADE };

// The operands of an instruction that are grids or patches: the first two of each. A patch without elements is a board
// without bits.
struct Operands {
    Planes grid, other;
    Board patch, second;
    // Their blocks.
    u32 grid_at, patch_at, second_at;
};

__device__ __forceinline__ bool is_near(i32 place) { return place >= -BOARD_FAR && place <= BOARD_FAR; }

// The commonest colour of a grid, as a code; ~0 if the other functions must find it.
__device__ __forceinline__ u32 background_of(const Machine &m, const Planes &grid) {
    if (grid.h == 0 || grid.w == 0) {
        return ~0u;
    }
    const Counted most = counted(grid.valid(), grid.bits, false);
    return most.ties && m.ties == TIES_CPYTHON ? ~0u : most.code;
}

// Paints a board's cells where `where` has bits. False if a colour is no grid's.
__device__ __forceinline__ bool paint_board(const Machine &m, Planes &grid, const Board &object, u32 block, u32 where) {
    where &= object.placed(0, 0);
    if (object.key != MANY_COLORS) {
        const i32 color = color_of_key(object.key);
        grid.put(where, code_of(color));
        return object.count == 0 || is_code(color);
    }
#pragma unroll
    for (u32 plane = 0; plane < PLANES; plane += 1) {
        Board of = object;
        of.row = board_plane(m, block, object.h, plane);
        grid.bits[plane] = (grid.bits[plane] & ~where) | (of.placed(0, 0) & where);
    }
    return true;
}

// The grid's cells of rows top..top + h and columns left..left + w.
__device__ __forceinline__ Planes cut_planes(const Planes &grid, u32 top, u32 left, u32 h, u32 w) {
    Planes made = {{0, 0, 0, 0}, h, w, 0};
#pragma unroll
    for (u32 plane = 0; plane < PLANES; plane += 1) {
        made.bits[plane] = moved_bits(lane_before(grid.bits[plane], -i32(top)), -i32(left));
    }
    return made;
}

// Places around one.
__device__ __forceinline__ u32 around_bits(u32 op) {
    const u32 straight = lane() == 1 ? 5 : lane() < 3 ? 2 : 0, diagonal = lane() == 0 || lane() == 2 ? 5 : 0;
    return op == OP_DNEIGHBORS ? straight : op == OP_INEIGHBORS ? diagonal : straight | diagonal;
}

// Whether a place of one lies beside one of the other, and none lies in both.
__device__ __forceinline__ bool are_beside(const Board &one, const Board &two) {
    const u32 beside = two.placed(one.top, one.left - 1) | two.placed(one.top, one.left + 1)
                       | two.placed(one.top - 1, one.left) | two.placed(one.top + 1, one.left);
    const bool touches = any_lane((beside & one.row) != 0);
    return touches && !any_lane((two.placed(one.top, one.left) & one.row) != 0);
}

// Whether a row, or a column, has places of both.
__device__ __forceinline__ bool share_lines(const Board &one, const Board &two, bool columns) {
    const u32 lines = columns ? all_bits(one.row) : __ballot_sync(ALL_LANES, one.row != 0);
    const u32 others = columns ? all_bits(two.row) : __ballot_sync(ALL_LANES, two.row != 0);
    return (lines & moved_bits(others, columns ? two.left - one.left : two.top - one.top)) != 0;
}

__device__ __forceinline__ i32 middle_row(const Board &board) { return board.top + i32(board.h) / 2; }
__device__ __forceinline__ i32 middle_col(const Board &board) { return board.left + i32(board.w) / 2; }

// Ops that look at heads of boards and grids alone, and so may differ from lane to lane. False for others, and where the
// other functions must say what comes out.
__device__ __forceinline__ bool head_op(const Machine &m, const Instruction &of, Word a, Word b, Word &result) {
    const u32 tag = of.tag_a;
    if (tag < GRID) {
        return false;
    }
    const u32 head = m.mem[u32(a)], of_class = head >> 24, count = head & 0xffffff;
    if (of.op == OP_SIZE) {
        result = of_number(tag == PAIR ? 2 : i32(count));
        return true;
    }
    i32 top = 0, left = 0, h = 0, w = 0;
    if (tag == GRID) {
        h = m.height(a);
        w = m.width(a);
    } else if (of_class == OF_BOARD) {
        const Board board = board_head(quad(m, u32(a)));
        top = board.top;
        left = board.left;
        h = board.h;
        w = board.w;
        if (of.op == OP_COLOR) {
            result = of_number(board.key == PLAIN_PLACES ? top : color_of_key(board.key));
            return board.key != MANY_COLORS;
        }
    } else {
        return false;
    }
    const bool is_grid = tag == GRID;
    switch (of.op) {
    case OP_HEIGHT:
        result = of_number(h);
        return true;
    case OP_WIDTH:
        result = of_number(w);
        return true;
    case OP_SHAPE:
        result = of_vector(h, w);
        return true;
    case OP_PORTRAIT:
        result = of_flag(h > w);
        return true;
    case OP_SQUARE:
        result = of_flag(h == w && (is_grid || h * w == i32(count)));
        return !is_grid || h > 0;
    case OP_VLINE:
        result = of_flag(h == i32(count) && w == 1);
        return !is_grid;
    case OP_HLINE:
        result = of_flag(w == i32(count) && h == 1);
        return !is_grid;
    case OP_UPPERMOST:
        result = of_number(top);
        return !is_grid;
    case OP_LOWERMOST:
        result = of_number(top + h - 1);
        return !is_grid;
    case OP_LEFTMOST:
        result = of_number(left);
        return !is_grid;
    case OP_RIGHTMOST:
        result = of_number(left + w - 1);
        return !is_grid;
    case OP_ULCORNER:
        result = of_vector(top, left);
        return !is_grid;
    case OP_URCORNER:
        result = of_vector(top, left + w - 1);
        return !is_grid;
    case OP_LLCORNER:
        result = of_vector(top + h - 1, left);
        return !is_grid;
    case OP_LRCORNER:
        result = of_vector(top + h - 1, left + w - 1);
        return !is_grid;
    case OP_CENTER:
        result = of_vector(top + h / 2, left + w / 2);
        return !is_grid;
    case OP_BORDERING: {
        const i32 high = m.height(b), wide = m.width(b);
        result = of_flag(top == 0 || left == 0 || top + h == high || left + w == wide);
        return high > 0;
    }
    default:
        return false;
    }
}

// Bits of Instruction::form: two for each of the grids and patches that are loaded first, 1 for register a, 2 for b, 3
// for c; then QUICK, by which a quick op is told apart from the others.
constexpr u32 QUICK = 0x100;
// Of a loop: its body can run an element a lane.
constexpr u32 IN_LANES = 0x200;

// The form of an instruction: 0 if no quick op has it.
__device__ __noinline__ u32 form_of(u32 op, const u32 *tags, const u32 *element_tags, u32 deep_tag, u32 tag_to) {
    u32 operands;
    switch (op) {
    case OP_MOSTCOLOR:
    case OP_LEASTCOLOR:
    case OP_PALETTE:
    case OP_NUMCOLORS:
    case OP_TOINDICES:
    case OP_ASINDICES:
    case OP_ASOBJECT:
    case OP_NORMALIZE:
    case OP_OBJECTS:
    case OP_PARTITION:
    case OP_FGPARTITION:
    case OP_CORNERS:
    case OP_BACKDROP:
    case OP_DELTA:
    case OP_BOXOF:
    case OP_INBOX:
    case OP_OUTBOX:
    case OP_ROT90:
    case OP_ROT180:
    case OP_ROT270:
    case OP_HMIRROR:
    case OP_VMIRROR:
    case OP_DMIRROR:
    case OP_CMIRROR:
    case OP_TRIM:
    case OP_TOPHALF:
    case OP_BOTTOMHALF:
    case OP_LEFTHALF:
    case OP_RIGHTHALF:
    case OP_DNEIGHBORS:
    case OP_INEIGHBORS:
    case OP_NEIGHBORS:
    case OP_HFRONTIER:
    case OP_VFRONTIER:
    case OP_MERGE:
    case OP_INITSET:
    case OP_CONVERT:
        operands = 1;
        break;
    case OP_COLORCOUNT:
    case OP_HMATCHING:
    case OP_VMATCHING:
    case OP_ADJACENT:
    case OP_POSITION:
    case OP_OFCOLOR:
    case OP_TOOBJECT:
    case OP_RECOLOR:
    case OP_SHIFT:
    case OP_CONNECT:
    case OP_SUBGRID:
    case OP_HSPLIT:
    case OP_VSPLIT:
    case OP_HCONCAT:
    case OP_VCONCAT:
    case OP_CELLWISE:
    case OP_CANVAS:
    case OP_UPSCALE:
    case OP_HUPSCALE:
    case OP_VUPSCALE:
    case OP_DOWNSCALE:
    case OP_PAINT:
    case OP_UNDERPAINT:
    case OP_COVER:
    case OP_MOVE:
    case OP_COMBINE:
    case OP_INTERSECTION:
    case OP_DIFFERENCE:
    case OP_COLORFILTER:
    case OP_SIZEFILTER:
    case OP_INSERT:
    case OP_REMOVE:
    case OP_EQUALITY:
    case OP_PRODUCT:
        operands = 2;
        break;
    case OP_FILL:
    case OP_UNDERFILL:
    case OP_REPLACE:
    case OP_SWITCH:
    case OP_CROP:
    case OP_INTERVAL:
        operands = 3;
        break;
    default:
        return 0;
    }
    u32 form = QUICK, grids = 0, patches = 0;
#pragma unroll 1
    for (u32 at = 0; at < operands; at += 1) {
        const bool is_patch = tags[at] == SET && (element_tags[at] == VECTOR || element_tags[at] == CELL);
        if (tags[at] == GRID) {
            form |= (at + 1) << 2 * grids;
            grids += 1;
        } else if (is_patch) {
            form |= (at + 1) << (4 + 2 * patches);
            patches += 1;
        } else if (tags[at] == TUPLE || tags[at] == SET) {
            // Sets of patches are what these take.
            const bool takes = at == 0 ? op == OP_MERGE || op == OP_COLORFILTER || op == OP_SIZEFILTER
                                       : op == OP_REMOVE && patches > 0;
            if (op == OP_CONVERT || op == OP_PRODUCT) {
                continue;
            }
            const bool both = op == OP_INTERSECTION || op == OP_DIFFERENCE;
            const bool of_patches = element_tags[at] == SET && (deep_tag == VECTOR || deep_tag == CELL || at > 0);
            if (!takes && !both || tags[at] != SET || !of_patches) {
                return 0;
            }
        }
    }
    // Values that are no blocks are compared elsewhere.
    const bool plain = op == OP_EQUALITY && grids + patches < 2;
    const bool strange = op == OP_CONVERT && !(tags[0] == GRID && tag_to == TUPLE) && !(tags[0] == TUPLE && tag_to == GRID);
    return plain || strange || op == OP_TOINDICES && tag_to != SET ? 0 : form;
}

// Loads a grid; false if it has no planes.
__device__ __forceinline__ bool load_planes(Machine &m, u32 block, Planes &grid) {
    if (m.block_class(block) != OF_PLANES) {
        return false;
    }
    grid = planes_at(m, block);
    return true;
}

// Loads a patch; false if it has no board. Of one without elements only count, row and key are right: the key says
// whether it is one of cells.
__device__ __forceinline__ bool load_board(Machine &m, u32 block, Board &board) {
    const uint4 head = quad(m, block);
    board = board_head(head);
    const u32 of_class = head.x >> 24;
    board.row = of_class == OF_BOARD && lane() < board.h ? m.mem[block + BOARD_HEAD + lane()] : 0;
    board.key = of_class == OF_BOARD ? board.key : of_class == OF_DOUBLES ? key_of(0) : PLAIN_PLACES;
    return of_class == OF_BOARD || board.count == 0;
}

// The value of an instruction that has a form. False, with nothing taken, if the other functions must compute it.
__device__ __forceinline__ bool quick_op(Machine &m, const Instruction &of, Word &result) {
    const u32 form = of.form, op = of.op;
    // Registers are read where they are asked for.
    struct Lazy {
        const Machine &m;
        u32 at;
        __device__ __forceinline__ operator Word() const { return m.registers()[at]; }
    };
    const Lazy a = {m, of.a}, b = {m, of.b}, c = {m, of.c};
    Operands on = {{{0, 0, 0, 0}, 0, 0, 0}, {{0, 0, 0, 0}, 0, 0, 0}, {}, {}, 0, 0, 0};
    const auto chosen = [&](u32 field) {
        const u32 which = form >> 2 * field & 3;
        return u32(m.registers()[(of.a << 8 | of.b << 16 | of.c << 24) >> 8 * which & 0xff]);
    };
    if (form & 3) {
        on.grid_at = chosen(0);
        if (!load_planes(m, on.grid_at, on.grid)) {
            return false;
        }
    }
    if (form >> 4 & 3) {
        on.patch_at = chosen(2);
        if (!load_board(m, on.patch_at, on.patch)) {
            return false;
        }
    }
    if (form >> 2 & 3 && !load_planes(m, chosen(1), on.other)) {
        return false;
    }
    if (form >> 6 & 3) {
        on.second_at = chosen(3);
        if (!load_board(m, on.second_at, on.second)) {
            return false;
        }
    }
    Planes &grid = on.grid;
    const Board &patch = on.patch, &second = on.second;
    const u32 before = m.top;
    // What becomes a board.
    u32 bits = 0, key = PLAIN_PLACES;
    i32 top = 0, left = 0;
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
                grid.bits[plane] = board_plane(m, on.patch_at, patch.h, plane);
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
    case OP_ADJACENT:
        result = of_flag(are_beside(patch, second));
        made = patch.count > 0 && second.count > 0 ? WORD_MADE : LEFT;
        break;
    case OP_POSITION: {
        const i32 row = middle_row(patch), col = middle_col(patch), other = middle_row(second), beside = middle_col(second);
        const i32 right = col < beside ? 1 : -1, down = row < other ? 1 : -1;
        result = row == other ? of_vector(0, right) : col == beside ? of_vector(down, 0) : of_vector(down, right);
        made = patch.count > 0 && second.count > 0 ? WORD_MADE : LEFT;
        break;
    }
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
                const uint4 head = quad(m, on.patch_at);
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
                result = board_put_at(m, on.patch_at, top, left);
                made = WORD_MADE;
            }
        }
        break;
    case OP_NORMALIZE:
        if (patch.count > 0) {
            result = board_put_at(m, on.patch_at, 0, 0);
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
        const i32 row = row_of(u32(Word(a))), col = col_of(u32(Word(a))), down = row_of(u32(Word(b))) - row, right = col_of(u32(Word(b))) - col;
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
    case OP_EQUALITY: {
        const u32 one = u32(Word(a)), two = u32(Word(b));
        const u32 of_class = m.block_class(one), other = m.block_class(two);
        if (of_class >= OF_PLANES && of_class == other) {
            result = of_flag(same_blocks(m, one, two));
            made = WORD_MADE;
        }
        break;
    }
    case OP_CONVERT: {
        const u32 row = of.tag_to == TUPLE ? m.first(of.kind_to) : u32(0), number = m.first(row);
        if (of.tag_to == TUPLE && m.tag(row) == TUPLE && m.tag(number) == NUMBER) {
            result = planes_as_rows(m, grid);
            made = WORD_MADE;
        } else if (of.tag_to == GRID && m.tag(m.first(of.kind_a)) == TUPLE && of.deep_tag <= NUMBER) {
            made = rows_as_planes(m, u32(Word(a)), grid) ? GRID_MADE : LEFT;
        }
        break;
    }
    case OP_PRODUCT: {
        u32 first_row = 0, first_col = 0, rows = 0, cols = 0;
        const u32 tag = m.tag(m.first(of.kind_a)), beside = m.tag(m.first(of.kind_b));
        if (tag == NUMBER && beside == NUMBER && numbers_as_bits(m, u32(Word(a)), first_row, rows)
            && numbers_as_bits(m, u32(Word(b)), first_col, cols)) {
            top = number_of(first_row);
            left = number_of(first_col);
            bits = 0 - (rows >> lane() & 1) & cols;
            made = is_near(top) && is_near(left) ? BOARD_MADE : LEFT;
        }
        break;
    }
    case OP_INTERVAL: {
        const i32 start = number_of(a), stop = number_of(b), step = number_of(c);
        if (is_near(start) && is_near(stop) && step > 0 && is_near(step)) {
            const u32 count = stop > start ? u32(stop - start + step - 1) / u32(step) : 0, list = m.take(HEAD_WORDS + count);
            if (m.error == FINE) {
#pragma unroll 1
                for (u32 at = lane(); at < count; at += LANES) {
                    m.mem[list + HEAD_WORDS + at] = u32(of_number(start + i32(at) * step));
                }
                m.mem[list] = OF_WORDS << 24 | count;
                m.mem[list + 1] = 1 + count;
            }
            __syncwarp();
            result = list;
            made = WORD_MADE;
        }
        break;
    }
    case OP_INITSET: {
        const u32 place = of.tag_a == CELL ? vector_of_cell(a) : u32(Word(a));
        top = row_of(place);
        left = col_of(place);
        key = of.tag_a == CELL ? u32(Word(a)) & 0x1ffff : PLAIN_PLACES;
        bits = u32(lane() == 0);
        made = (of.tag_a == CELL || of.tag_a == VECTOR) && is_near(top) && is_near(left) ? BOARD_MADE : LEFT;
        break;
    }
    case OP_INSERT: {
        const u32 place = u32(Word(a));
        if (of.tag_a == VECTOR && patch.count > 0 && is_near(row_of(place)) && is_near(col_of(place))) {
            top = min(patch.top, row_of(place));
            left = min(patch.left, col_of(place));
            const u32 row = u32(row_of(place) - top), col = u32(col_of(place) - left);
            bits = patch.placed(top, left) | (0 - u32(lane() == row) & 1u << (col & 31));
            made = max(patch.bottom() - top, i32(row)) < i32(BOARD_SIDE) && max(patch.right() - left, i32(col)) < i32(BOARD_SIDE)
                       ? BOARD_MADE
                       : LEFT;
        }
        break;
    }
    case OP_REMOVE:
        if (of.tag_a == VECTOR) {
            const u32 row = u32(row_of(u32(Word(a))) - patch.top), col = u32(col_of(u32(Word(a))) - patch.left);
            top = patch.top;
            left = patch.left;
            bits = patch.row & ~(0 - u32(lane() == row && col < BOARD_SIDE) & 1u << (col & 31));
            made = form >> 4 & 3 ? BOARD_MADE : LEFT;
        } else if ((form >> 4 & 3) == 1 && patch.count > 0 && are_boards(m, u32(Word(b)))) {
            result = quick_kept(m, u32(Word(b)), [&](u32 block) { return !are_same(m, block, on.patch_at); });
            made = WORD_MADE;
        }
        break;
    case OP_COMBINE:
    case OP_INTERSECTION:
    case OP_DIFFERENCE: {
        if ((form >> 4 & 3) == 0) {
            if (are_boards(m, u32(Word(a))) && are_boards(m, u32(Word(b)))) {
                const u32 others = m.count(b);
                result = quick_kept(m, u32(Word(a)), [&](u32 block) {
                    bool has = false;
#pragma unroll 1
                    for (u32 at = 0; at < others && !has; at += 1) {
                        has = are_same(m, block, m.words(b)[at]);
                    }
                    return has == (op == OP_INTERSECTION);
                });
                made = WORD_MADE;
            }
            break;
        }
        const bool alike = patch.key == second.key || patch.count == 0 || second.count == 0;
        if (patch.key == MANY_COLORS || second.key == MANY_COLORS) {
            break;
        }
        if (op != OP_COMBINE) {
            top = patch.top;
            left = patch.left;
            key = patch.key;
            const u32 other = second.placed(top, left);
            bits = op == OP_INTERSECTION ? (alike ? patch.row & other : 0) : alike ? patch.row & ~other : patch.row;
            made = BOARD_MADE;
            break;
        }
        key = patch.count > 0 ? patch.key : second.key;
        if (patch.count > 0 && second.count > 0) {
            top = min(patch.top, second.top);
            left = min(patch.left, second.left);
            if (max(patch.bottom(), second.bottom()) - top >= i32(BOARD_SIDE)
                || max(patch.right(), second.right()) - left >= i32(BOARD_SIDE)) {
                break;
            }
        } else {
            top = patch.count > 0 ? patch.top : second.top;
            left = patch.count > 0 ? patch.left : second.left;
        }
        const u32 first = patch.placed(top, left), other = second.placed(top, left);
        bits = first | other;
        made = BOARD_MADE;
        if (!alike) {
            const i32 color = color_of_key(patch.key), beside = color_of_key(second.key);
#pragma unroll
            for (u32 plane = 0; plane < PLANES; plane += 1) {
                grid.bits[plane] = (first & (0 - (code_of(color) >> plane & 1))) | (other & (0 - (code_of(beside) >> plane & 1)));
            }
            made = any_lane((first & other) != 0) || !is_code(color) || !is_code(beside) ? LEFT : COLORED_MADE;
        }
        break;
    }
    case OP_MERGE:
        made = quick_merged(m, u32(Word(a)), of.deep_tag == CELL, result) ? WORD_MADE : LEFT;
        break;
    case OP_COLORFILTER: {
        const u32 count = m.count(a);
        bool fails = false;
#pragma unroll 1
        for (u32 at = lane(); at < count; at += LANES) {
            const u32 block = m.words(a)[at];
            fails |= m.block_class(block) != OF_BOARD || (m.mem[block + 2] & MANY_COLORS) == MANY_COLORS;
        }
        if (!any_lane(fails)) {
            const i32 color = number_of(b);
            result = quick_kept(m, u32(Word(a)), [&](u32 block) {
                const u32 with = m.mem[block + 2] & MANY_COLORS;
                return (with == PLAIN_PLACES ? row_of(m.mem[block + 1]) : color_of_key(with)) == color;
            });
            made = WORD_MADE;
        }
        break;
    }
    case OP_SIZEFILTER:
        result = quick_kept(m, u32(Word(a)), [&](u32 block) { return of_number(i32(m.count(block))) == b; });
        made = WORD_MADE;
        break;
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
            made = paint_board(m, grid, patch, on.patch_at, where) ? GRID_MADE : LEFT;
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
            made = paint_board(m, grid, moved, on.patch_at, grid.valid()) ? GRID_MADE : LEFT;
        }
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
                const u32 of_plane = of_grid ? grid.bits[0] : board_plane(m, on.patch_at, h, plane);
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
            const i32 row = op == OP_CROP ? row_of(u32(Word(b))) : patch.top, col = op == OP_CROP ? col_of(u32(Word(b))) : patch.left;
            const i32 high = op == OP_CROP ? row_of(u32(Word(c))) : i32(patch.h), wide = op == OP_CROP ? col_of(u32(Word(c))) : i32(patch.w);
            first = sliced(grid.h, row, high, h);
            side = sliced(grid.w, col, wide, w);
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
        const u32 h = flat ? min(grid.h, on.other.h) : grid.h + on.other.h, w = flat ? grid.w + on.other.w : grid.w;
        if (grid.h == 0 || on.other.h == 0 || h > BOARD_SIDE || w > BOARD_SIDE || !flat && grid.w != on.other.w) {
            break;
        }
#pragma unroll
        for (u32 plane = 0; plane < PLANES; plane += 1) {
            grid.bits[plane] |= flat ? moved_bits(on.other.bits[plane], i32(grid.w))
                                     : lane_before(on.other.bits[plane], i32(grid.h));
        }
        grid.h = h;
        grid.w = w;
        made = GRID_MADE;
        break;
    }
    case OP_CELLWISE: {
        const i32 fallback = number_of(c);
        if (is_code(fallback) && grid.h > 0 && on.other.h >= grid.h && on.other.w >= grid.w) {
            u32 differs = 0;
#pragma unroll
            for (u32 plane = 0; plane < PLANES; plane += 1) {
                differs |= grid.bits[plane] ^ on.other.bits[plane];
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
                const u32 next = board_plane(m, on.patch_at, patch.h, plane);
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
    together();
    if (made == LEFT) {
        m.top = m.error ? m.top : before;
        return m.error != FINE;
    }
    if (made == GRID_MADE) {
        result = new_planes(m, grid);
    } else if (made == BOARD_MADE) {
        result = new_board(m, bits, top, left, key);
    } else if (made == COLORED_MADE) {
        result = new_colored_board(m, bits, top, left, grid.bits);
    }
    return true;
}
