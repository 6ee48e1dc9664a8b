// How quick ops, on boards and planes, get their operands, and what they share.

#pragma once

#include "machine/quick.cuh"

// What an op left to be made of its bits.
enum Made : u32 { LEFT, WORD_MADE, GRID_MADE, BOARD_MADE, COLORED_MADE };

// A register, read where it is asked for.
struct Lazy {
    const Machine &m;
    u32 at;

    __device__ __forceinline__ operator Word() const { return m.registers()[at]; }
};

// A quick op at work: the operands of its instruction, of which the first two grids and patches are loaded, and what it
// makes. A patch without elements is a board without bits.
struct Quick {
    Lazy a, b, c;
    Planes grid, other;
    Board patch, second;
    u32 patch_at, second_at;
    // What becomes a board, with colours from `grid` if it is one of many; or the value itself.
    u32 bits, key;
    i32 top, left;
    Word result;
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

__device__ __forceinline__ u32 distance_of(i32 one, i32 two) { return u32(one < two ? two - one : one - two); }

// The least distance of a place of one, whose row this lane has, and a place of the other, rows and columns together.
__device__ __forceinline__ u32 nearest(const Board &one, const Board &two) {
    u32 found = ~0u;
#pragma unroll 1
    for (u32 row = 0; row < two.h; row += 1) {
        const u32 down = distance_of(one.top + i32(lane()), two.top + i32(row));
#pragma unroll 1
        for (u32 places = __shfl_sync(ALL_LANES, two.row, row); places != 0; places &= places - 1) {
            const i32 col = two.left + __ffs(places) - 1 - one.left;
            const u32 inside = u32(min(max(col, 0), 31));
            const u32 before = one.row & ~0u >> (31 - inside), behind = one.row >> inside << inside;
            found = before ? min(found, down + distance_of(col, 31 - __clz(before))) : found;
            found = behind ? min(found, down + distance_of(col, __ffs(behind) - 1)) : found;
        }
    }
    return least(found);
}

// Whether a row, or a column, has places of both.
__device__ __forceinline__ bool share_lines(const Board &one, const Board &two, bool columns) {
    const u32 lines = columns ? all_bits(one.row) : __ballot_sync(ALL_LANES, one.row != 0);
    const u32 others = columns ? all_bits(two.row) : __ballot_sync(ALL_LANES, two.row != 0);
    return (lines & moved_bits(others, columns ? two.left - one.left : two.top - one.top)) != 0;
}

__device__ __forceinline__ i32 middle_row(const Board &board) { return board.top + i32(board.h) / 2; }
__device__ __forceinline__ i32 middle_col(const Board &board) { return board.left + i32(board.w) / 2; }

// Loads a grid; false if it has no planes.
__device__ __forceinline__ bool load_planes(Machine &m, u32 block, Planes &grid) {
    const uint4 head = quad(m, block);
    if (head.x >> 24 != OF_PLANES) {
        return false;
    }
    grid = planes_of(m, block, head);
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
