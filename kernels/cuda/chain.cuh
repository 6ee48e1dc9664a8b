// A chain: ops from one value to one value. One warp runs them one after the other and keeps the value in
// shared memory from the first to the last.
//
// A value begins as a grid and ends as the result of its last op. The ground of an object, a patch or a list
// of objects, which is the grid that contains it, is kept beside it.

#pragma once

#include "cut.cuh"
#include "frame.cuh"
#include "measure.cuh"
#include "opcodes.cuh"
#include "paint.cuh"
#include "partition.cuh"
#include "patch.cuh"
#include "scale.cuh"
#include "select.cuh"
#include "step.cuh"
#include "symmetry.cuh"

// Stands for the op of a value that failed before the first op.
constexpr u32 NO_OP = 255;

// The status of a value that needs more capacity than this kernel has: the next kernel runs it.
constexpr u32 LATER = 0xffff;

// The slots that labels take, one bit each: two bytes for each cell of one slot.
constexpr u32 LABEL_SLOTS = 0b00110;

// The shared memory of a warp, for values of at most CELLS cells at every op.
template <u32 CELLS>
struct Desk {
        // A picture may lie in its slot at the alignment of its source or its target. The parents of a labelling
        // take all slots but the first.
    static constexpr u32 SLOTS = 5;
    static constexpr u32 SLOT_BYTES = CELLS + 16;

    alignas(16) u8 slots[SLOTS][SLOT_BYTES];
    union {
        Ranks<CELLS / LANES> ranks;
        KeptLines lines;
    };

    __device__ u8 *slot(u32 at) { return slots[at]; }
    __device__ u32 *parents() { return reinterpret_cast<u32 *>(slots[1]); }
    __device__ u16 *labels() { return reinterpret_cast<u16 *>(slots[1]); }
};

constexpr u32 NO_SLOT = 31;

// The value that a warp works on: every lane has all of it.
struct Value {
    u32 kind;
    // The grid, or the ground, and its slot.
    Picture grid;
    u32 grid_slot;
    // The object or patch, and its slot.
    Picture piece;
    u32 piece_slot;
        // The number of objects in the list; their labels lie in the desk.
    u32 objects;
    i32 number;

    __device__ const Picture &picture() const {
        return kind == OBJECT || kind == PATCH ? piece : grid;
    }

    __device__ u32 slots_taken() const {
        return 1u << grid_slot | 1u << piece_slot | (kind == OBJECTS ? LABEL_SLOTS : 0);
    }

    __device__ u32 free_slot() const { return __ffs(~slots_taken()) - 1; }

        // The other free slot.
    __device__ u32 second_free_slot() const {
        const u32 free = ~slots_taken();
        return __ffs(free & (free - 1)) - 1;
    }
};

__device__ inline ColorMap color_map(const Op &op) {
    return {u32(u16(op.args[1])) | u32(u16(op.args[2])) << 16, u32(u16(op.args[3]))};
}

// Runs an op that makes a picture, and writes it from `to` on.
template <u32 CELLS>
__device__ Made make_picture(const Op &op, u32 ties, const Value &value, Desk<CELLS> &desk,
                             u8 *to) {
    const Picture from = value.picture();
    const Picture ground = value.grid;
    known_as_shared(from.cells);
    known_as_shared(ground.cells);
    const List list = {ground, desk.labels(), value.objects};
    const i16 *args = op.args;
    Choice choice;
    switch (op.code) {
    case OP_IMAGE: return image(from, Symmetry(args[0]), color_map(op), to);
    case OP_ARGMAX:
    case OP_ARGMIN: {
        auto &keys = *reinterpret_cast<Keys<CELLS / 8> *>(desk.slot(value.second_free_slot()));
        choice = best_object(keys, Key(args[0]), op.code == OP_ARGMIN, list);
        break;
    }
    case OP_NTH_OBJECT: choice = nth_object(args[0], list); break;
    case OP_MERGE: return draw_object(list, 1, PICTURE_CELLS_MAX, to);
    PATCH_CASES
    FRAME_CASES
    CUT_CASES
    SCALE_CASES
    PAINT_CASES
    default: return move(ground, args[0], args[1], ties, from, to);
    }
    if (choice.code != OK) {
        return failed(choice.code);
    }
    return draw_object(list, choice.index + 1, choice.index + 1, to);
}

// Runs an op that makes a list of objects, with labels in the desk; returns their number.
template <u32 CELLS>
__device__ u32 make_objects(const Op &op, u32 ties, Value &value, Desk<CELLS> &desk) {
    known_as_shared(value.grid.cells);
    const i16 *args = op.args;
    if (op.code == OP_COLORFILTER || op.code == OP_SIZEFILTER) {
        const List list = {value.grid, desk.labels(), value.objects};
        auto &keys = *reinterpret_cast<Keys<CELLS / 8> *>(desk.slot(value.free_slot()));
        const Key key = op.code == OP_SIZEFILTER ? SIZE : COLOR;
        return filter<CELLS>(keys, key, args[0], list, desk.ranks);
    }
    if (value.grid_slot != 0) {
                // The parents take all other slots.
        u8 *to = desk.slot(0) + misplaced(value.grid.cells, 16);
        copy_around(value.grid.cells, value.grid.area(), to);
        value.grid.cells = to;
        value.grid_slot = 0;
        __syncwarp();
    }
    if (op.code == OP_OBJECTS) {
        return objects<CELLS>(value.grid, args[0], args[1], args[2], ties, desk.parents(),
                              desk.ranks);
    }
    return partition(value.grid, op.code == OP_FGPARTITION, ties, desk.labels());
}

// Runs an op that makes a number, a flag or a vector.
__device__ inline Measured make_number(const Op &op, u32 ties, const Value &value) {
    const Picture from = value.picture();
    known_as_shared(from.cells);
    switch (op.code) {
    case OP_COLORCOUNT: return measured(count_color(from, op.args[0]));
    case OP_NUMCOLORS: return measured(count_colors(from));
    case OP_SIZE: return measured(value.kind == OBJECTS ? value.objects : count_cells(from));
    case OP_MOSTCOLOR:
    case OP_LEASTCOLOR:
        if (from.is_empty()) {
            return {EMPTY_ARG, 0};
        }
        return measured(best_color_of(from, op.code == OP_LEASTCOLOR, ties));
    default: return measure(measure_of(op.code), from, value.kind == GRID);
    }
}

// Runs one op; returns its code. `last`: where a grid may be drawn that needs no slot, or null.
template <u32 CELLS>
__device__ u32 perform(const Op &op, u32 ties, Value &value, Desk<CELLS> &desk, u32 skew,
                       u8 *last) {
    u32 code = OK;
    switch (op.gives) {
    case GRID:
    case OBJECT:
    case PATCH: {
        const u32 slot = last ? NO_SLOT : value.free_slot();
        u8 *to = last ? last : desk.slot(slot) + skew;
        const Made made = make_picture(op, ties, value, desk, to);
        const Picture picture = {made.h, made.w, made.row, made.col, to};
        code = made.code;
        if (op.gives == GRID) {
            value.grid = picture;
            value.grid_slot = slot;
            value.piece_slot = NO_SLOT;
        } else {
            value.piece = picture;
            value.piece_slot = slot;
        }
        break;
    }
    case OBJECTS: value.objects = make_objects(op, ties, value, desk); break;
        // Written at the end, from the grid's place.
    case PALETTE: value.grid = value.picture(); break;
    default: {
        const Measured result = make_number(op, ties, value);
        code = result.code;
        value.number = result.number;
    }
    }
    value.kind = op.gives;
    __syncwarp();
    return code;
}

// Not 0 if one of four cells is not a colour.
__device__ inline u32 over_colors(u32 word) {
    return ((word & 0x7f7f7f7f) + 0x76767676 | word) & 0x80808080;
}

// Whether a cell is not a colour. Bytes around the grid may also trigger the fast check; then the cells are
// checked one by one.
__device__ inline bool has_bad_cell(const u8 *cells, u32 area) {
    const u32 before = misplaced(cells, 4);
    bool suspect = false;
    for (u32 at = 4 * lane(); at < before + area; at += 4 * LANES) {
        const u32 word = *reinterpret_cast<const u32 *>(cells - before + at);
        suspect |= over_colors(word) != 0;
    }
    if (!any_lane(suspect)) {
        return false;
    }
    bool bad = false;
    for (u32 at = lane(); at < area; at += LANES) {
        bad |= cells[at] >= COLORS;
    }
    return any_lane(bad);
}

// A grid before the first op.
struct Arrival {
    u32 h, w;
    const u8 *cells;
        // For a launch that is not the first.
    u32 status;

    __device__ u32 area() const { return h * w; }
};

__device__ inline Arrival arrival_of(const Step &step, u32 index) {
    Arrival grid;
    const u32 shape = reinterpret_cast<const u16 *>(step.from.shapes)[index];
    grid.h = shape & 0xff;
    grid.w = shape >> 8;
    grid.cells = step.from.cells + step.from.extent.start(step.offsets, index);
    grid.status = step.validates ? OK : step.status_before[index];
    return grid;
}

// Shares what lane `from` has loaded of a grid with all lanes.
__device__ inline Arrival arrival_at(const Arrival &mine, u32 from) {
    Arrival grid;
    grid.h = __shfl_sync(ALL_LANES, mine.h, from);
    grid.w = __shfl_sync(ALL_LANES, mine.w, from);
    grid.cells = reinterpret_cast<const u8 *>(
        __shfl_sync(ALL_LANES, reinterpret_cast<u64>(mine.cells), from));
    grid.status = __shfl_sync(ALL_LANES, mine.status, from);
    return grid;
}

// Copies a grid's cells to slot 0, at the alignment that they have in memory.
template <u32 CELLS>
__device__ void take(const Arrival &grid, Desk<CELLS> &desk) {
    if (grid.area() <= CELLS) {
        copy_around(grid.cells, grid.area(), desk.slot(0) + misplaced(grid.cells, 16));
    }
    __syncwarp();
}

// The status of a grid whose cells lie in slot 0.
template <u32 CELLS>
__device__ u32 status_before(const Step &step, const Arrival &grid, const u8 *cells) {
    if (grid.area() > CELLS) {
        return LATER;
    }
    if (!step.validates) {
        return grid.status;
    }
    if (grid.area() == 0) {
        return status_of(MISSING_OUTPUT, NO_OP);
    }
    return has_bad_cell(cells, grid.area()) ? status_of(BAD_CELL, NO_OP) : OK;
}

// Low bytes of labels, four at a time.
__device__ inline void write_labels(const u16 *labels, u32 area, u8 *to) {
    each_word(
        to, area,
        [=](u32 at, u32 *place) {
            u32 word = 0;
#pragma unroll
            for (u32 byte = 0; byte < 4; byte += 1) {
                word |= (labels[at + byte] & 0xff) << 8 * byte;
            }
            *place = word;
        },
        [=](u32 at, u8 *place) { *place = labels[at]; });
}

// Writes a chain's result for a value to where the next launch, or the host, finds it.
template <u32 CELLS>
__device__ void write(const Step &step, u32 index, const Value &value, Desk<CELLS> &desk) {
    if (step.palettes) {
        const Picture &grid = value.grid;
        Tally mine = {0, 0};
        if (value.kind == PALETTE) {
            mine = tally(grid.cells, grid.area());
        }
        write_palette(mine, order_of(mine, step.ties), step.palettes + PALETTE_BYTES * index);
    }
    if (step.numbers && lane() == 0) {
        step.numbers[index] = value.number;
    }
    const u32 start = step.to.extent.start(step.offsets, index);
    const Picture &picture = value.picture();
    if (step.to.cells && picture.cells != step.to.cells + start) {
        copy_cells(picture.cells, picture.area(), step.to.cells + start);
    }
    write_shape(step.to, index, {OK, picture.h, picture.w, picture.row, picture.col});
    if (!step.counts) {
        return;
    }
    if (lane() == 0) {
        step.counts[index] = value.objects;
    }
    write_labels(desk.labels(), picture.area(), step.labels_low + start);
    if (value.objects > 255) {
#pragma unroll 1
        for (u32 at = lane(); at < picture.area(); at += LANES) {
            step.labels_high[start + at] = desk.labels()[at] >> 8;
        }
    }
}

// Writes a failed value.
__device__ inline void write_nothing(const Step &step, u32 index) {
    if (step.blanks && step.to.cells) {
        blank(step.offsets, index, step.to.cells);
    }
    if (step.blanks && step.counts) {
        blank(step.offsets, index, step.labels_low);
    }
    write_shape(step.to, index, empty_picture());
    if (step.palettes && lane() < PALETTE_BYTES) {
        step.palettes[PALETTE_BYTES * index + lane()] = 0;
    }
    if (lane() == 0 && step.numbers) {
        step.numbers[index] = 0;
    }
    if (lane() == 0 && step.counts) {
        step.counts[index] = 0;
    }
}

// Runs the chain over value `index` of the step, whose cells lie in slot 0.
template <u32 CELLS>
__device__ void run_chain(const Step &step, u32 index, const Arrival &grid, Desk<CELLS> &desk) {
    const u32 skew = misplaced(grid.cells, 16);
    Value value = {};
    value.kind = GRID;
    value.grid = {grid.h, grid.w, 0, 0, desk.slot(0) + skew};
    value.piece_slot = NO_SLOT;
    u32 status = status_before<CELLS>(step, grid, value.grid.cells);
    for (u32 at = 0; at < step.op_count && status == OK; at += 1) {
        const Op &op = step.ops[at];
        if (value.kind == GRID && value.grid.is_empty() && op.code != OP_CANVAS) {
            status = status_of(EMPTY_ARG, op.place);
            break;
        }
                // An image is as large as its source: at the end it needs no slot.
        const bool is_last = at + 1 == step.op_count && op.code == OP_IMAGE && op.gives == GRID;
        u8 *last = nullptr;
        if (is_last && step.to.cells) {
            last = step.to.cells + step.to.extent.start(step.offsets, index);
        }
        const u32 code = perform(op, step.ties, value, desk, skew, last);
        status = code == NO_ROOM ? LATER : status_of(code, op.place);
    }
    if (status == OK) {
        write(step, index, value, desk);
    } else if (status != LATER) {
        write_nothing(step, index);
    }
    if (lane() == 0) {
        step.status[index] = status;
    }
}

// A value with at most SMALL_CELLS cells at every op takes little shared memory. As in
// kernels/src/module.rs.
constexpr u32 SMALL_CELLS = 1024;

__device__ inline void chain(const Step &step) {
    __shared__ Desk<SMALL_CELLS> desks[BLOCK_WARPS];
    Desk<SMALL_CELLS> &desk = desks[warp()];
    const u32 first = value_of_warp() * step.values_per_warp;
    if (first >= step.values) {
        return;
    }
    const u32 count = min(step.values_per_warp, step.values - first);
        // Each lane loads one grid.
    const Arrival mine = arrival_of(step, first + min(lane(), count - 1));
#pragma unroll 1
    for (u32 at = 0; at < count; at += 1) {
        const Arrival grid = arrival_at(mine, at);
        take(grid, desk);
        run_chain(step, first + at, grid, desk);
        __syncwarp();
    }
}

// Runs the values for which the other kernel had no capacity: this one has capacity for any value, with fewer
// warps. Each warp checks a few values, and perhaps runs none of them.
constexpr u32 LARGE_WARPS = 2;
constexpr u32 LARGE_VALUES_PER_WARP = 4;

__device__ inline void chain_large(const Step &step) {
    __shared__ Desk<PICTURE_CELLS_MAX> desks[LARGE_WARPS];
    if (warp() >= LARGE_WARPS) {
        return;
    }
    const u32 first = (blockIdx.x * LARGE_WARPS + warp()) * LARGE_VALUES_PER_WARP;
#pragma unroll 1
    for (u32 index = first; index < min(first + LARGE_VALUES_PER_WARP, step.values); index += 1) {
        if (step.status[index] == LATER) {
            const Arrival grid = arrival_of(step, index);
            take(grid, desks[warp()]);
            run_chain(step, index, grid, desks[warp()]);
        }
        __syncwarp();
    }
}

KERNEL_OF(gp_chain, 9, chain(step))
KERNEL(gp_chain_large, chain_large(step))
