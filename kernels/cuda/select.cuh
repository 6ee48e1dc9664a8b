// Chooses objects from a list: all with a key, the best, the nth, or all in one.
// Mirrors kernels/src/reference/select.rs.
//
// Only labelling functions make labels, and these never exceed the number of objects, which never exceeds the
// cells of the grid: so labels may be indices.

#pragma once

#include "label.cuh"

// In the order of protocol/src/program/variants.rs.
enum Key { COLOR, HEIGHT, LEFTMOST, LOWERMOST, RIGHTMOST, SIZE, UPPERMOST, WIDTH };

constexpr u32 KEY_MAX = PICTURE_CELLS_MAX;

// A list of objects: for each cell of its ground the object's number from 1, or 0.
struct List {
    Picture grid;
    u16 *labels;
    u32 objects;
};

// One key of the objects from `first` on, as many as fit, in shared memory.
template <u32 CAPACITY>
struct Keys {
        // The least and the greatest row or column of its cells; the greatest may be a count instead.
    u32 least[CAPACITY];
    u32 most[CAPACITY];

    __device__ void find(Key key, const List &list, u32 first) {
        const u32 objects = min(list.objects - first, CAPACITY);
#pragma unroll 1
        for (u32 index = lane(); index < objects; index += LANES) {
            least[index] = PICTURE_CELLS_MAX;
            most[index] = 0;
        }
        __syncwarp();
#pragma unroll 1
        for (Walk cell(list.grid.h, list.grid.w); cell.has_cell(); cell.next()) {
            const u32 index = list.labels[cell.at] - 1 - first;
            if (index < objects) {
                add(key, index, cell);
            }
        }
        __syncwarp();
    }

        // The key of an object. For a height or width one less, which compares equally.
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

// Calls `see(index, key)` for every object of a list, each in one lane.
template <u32 CAPACITY, class See>
__device__ void each_key(Keys<CAPACITY> &keys, Key key, const List &list, See see) {
#pragma unroll 1
    for (u32 first = 0; first < list.objects; first += CAPACITY) {
        keys.find(key, list, first);
#pragma unroll 1
        for (u32 index = lane(); index < min(list.objects - first, CAPACITY); index += LANES) {
            see(first + index, keys.of(key, list.grid, index));
        }
        __syncwarp();
    }
}

// Keeps the objects whose key is `wanted`, in order; returns how many there are.
template <u32 CELLS, u32 CAPACITY>
__device__ u32 filter(Keys<CAPACITY> &keys, Key key, u32 wanted, const List &list,
                      Ranks<CELLS / LANES> &kept) {
    const u32 words = (list.objects + LANES - 1) / LANES;
#pragma unroll 1
    for (u32 word = lane(); word < words; word += LANES) {
        kept.tiles[word] = 0;
    }
    __syncwarp();
    each_key(keys, key, list, [&](u32 index, u32 found) {
        if (found == wanted) {
            atomicOr(&kept.tiles[index / LANES], 1u << index % LANES);
        }
    });
    kept.add_up(words);
    __syncwarp();
#pragma unroll 1
    for (u32 at = lane(); at < list.grid.area(); at += LANES) {
        const u32 label = list.labels[at];
        const bool stays = label != 0 && kept.has(label - 1);
        list.labels[at] = stays ? kept.rank(label - 1) + 1 : 0;
    }
    return kept.count;
}

// The cells with labels from `least` to `most`.
__device__ inline Made draw_object(const List &list, u32 least, u32 most, u8 *to) {
    return draw_tight(list.grid.h, list.grid.w, 0, 0, to, [=](const Walk &walk) -> u32 {
        return list.labels[walk.at] - least <= most - least ? list.grid.cells[walk.at] : HOLE;
    });
}

// One object by its index, or the reason why there is none.
struct Choice {
    u32 code, index;
};

// The first object of the greatest or the least key.
template <u32 CAPACITY>
__device__ Choice best_object(Keys<CAPACITY> &keys, Key key, bool least, const List &list) {
    if (list.objects == 0) {
        return {EMPTY_ARG, 0};
    }
    u32 best = 0;
    each_key(keys, key, list, [&](u32 index, u32 found) {
        const u32 merit = least ? KEY_MAX - found : found;
        best = max(best, merit * PICTURE_CELLS_MAX + (PICTURE_CELLS_MAX - 1 - index));
    });
    return {OK, PICTURE_CELLS_MAX - 1 - most_of_warp(best) % PICTURE_CELLS_MAX};
}

// The object of that number, counted from 0, or from the end if it is negative.
__device__ inline Choice nth_object(i32 nth, const List &list) {
    const i32 count = list.objects;
    const i32 index = nth < 0 ? count + nth : nth;
    if (index < 0 || index >= count) {
        const bool is_end = nth == 0 || nth == -1;
        return {is_end ? EMPTY_ARG : BAD_INDEX, 0};
    }
    return {OK, u32(index)};
}

