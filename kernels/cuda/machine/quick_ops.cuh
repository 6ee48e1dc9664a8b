// The quick ops: an instruction on boards and planes, from its operands to its value.

#pragma once

#include "machine/quick_grids.cuh"

// The value of an instruction that has a form. False, with nothing taken, if the other functions must compute it.
__device__ __forceinline__ bool quick_op(Machine &m, const Instruction &of, Word &result) {
    const u32 form = of.form, op = of.op, before = m.top;
    const Planes none = {{0, 0, 0, 0}, 0, 0, 0};
    Quick q = {{m, of.a}, {m, of.b}, {m, of.c}, none, none, {}, {}, 0, 0, PLAIN_PLACES, 0, 0, 0};
    const auto chosen = [&](u32 field) {
        const u32 which = form >> 2 * field & 3;
        return u32(m.registers()[(of.a << 8 | of.b << 16 | of.c << 24) >> 8 * which & 0xff]);
    };
    if (form & 3 && !load_planes(m, chosen(0), q.grid)) {
        return false;
    }
    if (form >> 4 & 3) {
        q.patch_at = chosen(2);
        if (!load_board(m, q.patch_at, q.patch)) {
            return false;
        }
    }
    if (form >> 2 & 3 && !load_planes(m, chosen(1), q.other)) {
        return false;
    }
    if (form >> 6 & 3 && !load_board(m, chosen(3), q.second)) {
        return false;
    }
    // The families follow each other in the table of primitives.
    const u32 made = op < OP_MOSTCOLOR  ? quick_lists(m, of, q)
                     : op < OP_ASINDICES ? quick_colors(m, of, q)
                     : op < OP_ROT90     ? quick_patches(m, of, q)
                                         : quick_grids(m, of, q);
    together();
    if (made == LEFT) {
        m.top = m.error ? m.top : before;
        return m.error != FINE;
    }
    if (made == GRID_MADE) {
        q.result = new_planes(m, q.grid);
    } else if (made == BOARD_MADE) {
        q.result = new_board(m, q.bits, q.top, q.left, q.key);
    } else if (made == COLORED_MADE) {
        q.result = new_colored_board(m, q.bits, q.top, q.left, q.grid.bits);
    }
    result = q.result;
    return true;
}
