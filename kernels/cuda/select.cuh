// Objects chosen from a list: all of a kind, the best, the nth, or all in one.
// Mirrors kernels/src/reference/select.rs.
//
// One block a value. Labels are made by these kernels alone and never pass the number of objects,
// which never passes PICTURE_CELLS_MAX: so they may be indices.

#pragma once

#include "label.cuh"

// In the order of protocol/src/program/variants.rs.
enum Key { COLOR, HEIGHT, LEFTMOST, LOWERMOST, RIGHTMOST, SIZE, UPPERMOST, WIDTH };

constexpr u32 KEY_MAX = PICTURE_CELLS_MAX;

// What a block needs in shared memory to know one key of every object; object 1 has index 0.
struct Keys {
    // The least and the greatest row or column of its cells; the greatest may be a count instead.
    u32 least[PICTURE_CELLS_MAX];
    u32 most[PICTURE_CELLS_MAX];

    __device__ void find(Block block, Key key, Picture grid, Labels labels, u32 objects) {
#pragma unroll 1
        for (u32 index = block.rank(); index < objects; index += block.SIZE) {
            least[index] = PICTURE_CELLS_MAX;
            most[index] = 0;
        }
        block.sync();
#pragma unroll 1
        for (Walk cell(block, grid.h, grid.w); cell.has_cell(); cell.next()) {
            const u32 label = labels.at(cell.at);
            if (label != 0) {
                add(key, label - 1, cell);
            }
        }
        block.sync();
    }

    // The key of an object. Of a height or width one less, which compares alike.
    __device__ u32 of(Key key, Picture grid, u32 index) const {
        switch (key) {
        case COLOR: return grid.cells[least[index]];
        case UPPERMOST:
        case LEFTMOST: return least[index];
        case SIZE:
        case LOWERMOST:
        case RIGHTMOST: return most[index];
        case HEIGHT:
        case WIDTH: break;
        }
        return most[index] - least[index];
    }

private:
    // Atomics whose result does not depend on their order.
    __device__ void add(Key key, u32 index, const Walk &cell) {
        if (key == SIZE) {
            atomicAdd(&most[index], 1);
        } else {
            const bool is_column = key == WIDTH || key == LEFTMOST || key == RIGHTMOST;
            const u32 line = key == COLOR ? cell.at : is_column ? cell.col : cell.row;
            atomicMin(&least[index], line);
            atomicMax(&most[index], line);
        }
    }
};

// Keeps the objects whose key is step.args[0], in their order.
__device__ __noinline__ void filter(const Step &step, Key key) {
    __shared__ Keys keys;
    __shared__ Ranks<PICTURE_CELLS_MAX / LANES> kept;
    __shared__ Slots slots;
    const Block block(slots);
    each_objects(block, step, [&](Picture grid, Labels labels) {
        const u32 objects = step.counts[value_of(block)];
        keys.find(block, key, grid, labels, objects);
        kept.mark(block, objects, [&](u32 index) {
            return keys.of(key, grid, index) == u32(step.args[0]);
        });
#pragma unroll 1
        for (u32 at = block.rank(); at < grid.area(); at += block.SIZE) {
            const u32 label = labels.at(at);
            const bool stays = label != 0 && kept.has(label - 1);
            labels.set(at, stays ? kept.rank(label - 1) + 1 : 0);
        }
        return kept.count;
    });
}

// The object that `holds` says of each label whether it belongs to.
template <class Holds>
__device__ Made draw_object(Block block, Picture grid, Labels labels, u8 *to, Holds holds) {
    return draw_tight(block, grid.h, grid.w, 0, 0, to, [&](const Walk &walk) -> u32 {
        return holds(labels.at(walk.at)) ? grid.cells[walk.at] : HOLE;
    });
}

// An op that makes one object of several: `op(grid, labels, objects, to)`.
template <class Op>
__device__ void each_selected(Block block, const Step &step, Op op) {
    const u32 value = value_of(block);
    picture_from(block, step, value, [&](Picture grid, u8 *to) {
        return op(grid, labels_of(step, value), step.counts[value], to);
    });
}

// The first object of the greatest or the least key.
__device__ __noinline__ void best_object(const Step &step, bool least) {
    __shared__ Keys keys;
    __shared__ Slots slots;
    const Block block(slots);
    const Key key = Key(step.args[0]);
    each_selected(block, step, [&](Picture grid, Labels labels, u32 objects, u8 *to) {
        if (objects == 0) {
            return failed(EMPTY_ARG);
        }
        keys.find(block, key, grid, labels, objects);
        u32 best = 0;
#pragma unroll 1
        for (u32 index = block.rank(); index < objects; index += block.SIZE) {
            const u32 found = keys.of(key, grid, index);
            const u32 merit = least ? KEY_MAX - found : found;
            best = max(best, merit * PICTURE_CELLS_MAX + (PICTURE_CELLS_MAX - 1 - index));
        }
        const u32 index = PICTURE_CELLS_MAX - 1 - block.most(best) % PICTURE_CELLS_MAX;
        return draw_object(block, grid, labels, to, [=](u32 label) { return label == index + 1; });
    });
}

// Object `step.args[0]`, counted from 0, or from the end if it is negative.
__device__ __noinline__ void nth_object(const Step &step) {
    __shared__ Slots slots;
    const Block block(slots);
    const i32 nth = step.args[0];
    each_selected(block, step, [&](Picture grid, Labels labels, u32 objects, u8 *to) {
        const i32 count = objects;
        const i32 index = nth < 0 ? count + nth : nth;
        if (index < 0 || index >= count) {
            const bool is_end = nth == 0 || nth == -1;
            return failed(is_end ? EMPTY_ARG : BAD_INDEX);
        }
        const u32 wanted = index + 1;
        return draw_object(block, grid, labels, to, [=](u32 label) { return label == wanted; });
    });
}

// All cells of all objects.
__device__ __noinline__ void merge(const Step &step) {
    __shared__ Slots slots;
    const Block block(slots);
    each_selected(block, step, [&](Picture grid, Labels labels, u32, u8 *to) {
        return draw_object(block, grid, labels, to, [](u32 label) { return label != 0; });
    });
}

KERNEL(gp_colorfilter, filter(step, COLOR))
KERNEL(gp_sizefilter, filter(step, SIZE))
KERNEL(gp_argmax, best_object(step, false))
KERNEL(gp_argmin, best_object(step, true))
KERNEL(gp_nth_object, nth_object(step))
KERNEL(gp_merge, merge(step))
