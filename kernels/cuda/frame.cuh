// Patches made of the box of an object or a patch. The frame of an empty one is empty.
// Mirrors kernels/src/reference/frame.rs.

#pragma once

#include "opcodes.cuh"
#include "picture.cuh"

enum Frame { BACKDROP, BOX, CORNERS, INBOX, OUTBOX };

// A box by its upper left corner and its sides.
struct Rectangle {
    int row, col;
    u32 h, w;
};

// The first line and the number of lines of a side of the box one place inside: between the lines next to the
// ends, which swap if there are fewer than three.
__device__ inline void shrink(int &start, u32 &lines) {
    const int first = 1, last = int(lines) - 2;
    start += min(first, last);
    lines = abs(last - first) + 1;
}

__device__ inline Rectangle rectangle_of(Frame frame, Picture from) {
    Rectangle box = {from.row, from.col, from.h, from.w};
    if (frame == INBOX) {
        shrink(box.row, box.h);
        shrink(box.col, box.w);
    } else if (frame == OUTBOX) {
        box = {from.row - 1, from.col - 1, from.h + 2, from.w + 2};
    }
    return box;
}

__device__ inline Made frame(Picture from, Frame frame, u32 capacity, u8 *to) {
    if (from.is_empty()) {
        return empty_picture();
    }
    const Rectangle box = rectangle_of(frame, from);
    const u32 code = check_size(box.h, box.w, capacity);
    if (code != OK) {
        return failed(code);
    }
        // A place lies on no border line, on one, or, in a corner, on two.
    const u32 lines_wanted = frame == BACKDROP ? 0 : frame == CORNERS ? 2 : 1;
    draw(box.h, box.w, to, [=](const Walk &walk) -> u32 {
        const u32 at_row = walk.row == 0 || walk.row == box.h - 1;
        const u32 at_col = walk.col == 0 || walk.col == box.w - 1;
        return at_row + at_col >= lines_wanted ? 0 : HOLE;
    });
    return made(box.h, box.w, box.row, box.col);
}

__device__ inline Made delta(Picture from, u8 *to) {
    return draw_tight(from.h, from.w, from.row, from.col, to, [=](const Walk &walk) -> u32 {
        return from.cells[walk.at] == HOLE ? 0 : HOLE;
    });
}

// The frame of an op's code.
__device__ inline Frame frame_of(u32 code) {
    switch (code) {
    case OP_BACKDROP: return BACKDROP;
    case OP_BOX: return BOX;
    case OP_CORNERS: return CORNERS;
    case OP_INBOX: return INBOX;
    default: return OUTBOX;
    }
}

// The ops of this file, in the words of make_picture in chain.cuh.
#define FRAME_CASES                                                   \
    case OP_DELTA: return delta(from, to);                            \
    case OP_BACKDROP:                                                 \
    case OP_BOX:                                                      \
    case OP_CORNERS:                                                  \
    case OP_INBOX:                                                    \
    case OP_OUTBOX: return frame(from, frame_of(op.code), CELLS, to);
