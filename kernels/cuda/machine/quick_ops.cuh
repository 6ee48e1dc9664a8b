// The quick ops: an instruction on boards and planes, from its operands to its value.

#pragma once

#include "machine/quick_grids.cuh"

// The value of an instruction that has a form. False, with nothing taken, if the other functions must compute it.
__device__ __forceinline__ bool quick_op(Machine &m, Instruction &of, Word &result) {
    const u32 form = of.form, before = m.top;
    const Planes none = {{0, 0, 0, 0}, 0, 0, 0};
    Quick q = {{m, of.a}, {m, of.b}, {m, of.c}, none, none, {}, {}, 0, 0, 0, PLAIN_PLACES, 0, 0, 0};
    const auto block_in = [&](u32 at) { return u32(m.registers()[at]); };
    if (form & 3 && !load_planes(m, block_in(of.grid_register()), q.grid)) {
        return false;
    }
    if (form >> 4 & 3) {
        q.patch_at = block_in(of.patch_register());
        if (!load_board(m, q.patch_at, q.patch)) {
            return false;
        }
    }
    if (form >> 2 & 3 && !load_planes(m, block_in(of.second), q.other)) {
        return false;
    }
    if (form >> 6 & 3) {
        q.second_at = block_in(of.second);
        if (!load_board(m, q.second_at, q.second)) {
            return false;
        }
    }
    // The families follow each other in the table of primitives.
    of.op = table_over(of.op);
    const u32 op = of.op, made = op < OP_MOSTCOLOR  ? quick_lists(m, of, q)
                     : op < OP_ASINDICES ? quick_colors(m, of, q)
                     : op < OP_ROT90     ? quick_patches(m, of, q)
                                         : quick_grids(m, of, q);
    __syncwarp();
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
