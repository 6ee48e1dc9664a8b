// Which instructions are quick ops, and ops that look at heads alone.

#pragma once

#include "machine/operands.cuh"

// Ops that look at heads of boards and grids alone, and so may differ from lane to lane. False for others, and where
// the other functions must say what comes out.
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
    case OP_PAIR:
    case OP_MAXIMUM:
    case OP_MINIMUM:
        operands = 1;
        break;
    case OP_COLORCOUNT:
    case OP_HMATCHING:
    case OP_VMATCHING:
    case OP_MANHATTAN:
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
    if (op == OP_PAIR || op == OP_MAXIMUM || op == OP_MINIMUM) {
        // Blocks of pairs, and lists of numbers.
        return (op == OP_PAIR ? tag_to == PAIR : element_tags[0] == FLAG || element_tags[0] == NUMBER) ? QUICK : 0;
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
    const bool turns = (tags[0] == GRID || tags[0] == VECTOR) && tag_to == TUPLE || tags[0] == TUPLE && tag_to == GRID;
    const bool strange = op == OP_CONVERT && !turns;
    return plain || strange || op == OP_TOINDICES && tag_to != SET ? 0 : form;
}
