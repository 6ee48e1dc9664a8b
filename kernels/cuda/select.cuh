// Objects chosen from a list: all of a kind, the best, the nth, or all in one.
// Mirrors kernels/src/reference/select.rs.
//
// Labels are made by these functions and their like alone and never pass the number of objects,
// which never passes the cells of the grid: so they may be indices.

#pragma once

#include "label.cuh"

// In the order of protocol/src/program/variants.rs.
enum Key { COLOR, HEIGHT, LEFTMOST, LOWERMOST, RIGHTMOST, SIZE, UPPERMOST, WIDTH };

constexpr u32 KEY_MAX = PICTURE_CELLS_MAX;

// A list of objects: of each cell of its ground the object's number from 1, or 0.
struct List {
    Picture grid;
    u16 *labels;
    u32 objects;
};

// One key of the objects from `first` on, as many as there is room for, in shared memory.
template <u32 ROOM>
struct Keys {
    // The least and the greatest row or column of its cells; the greatest may be a count instead.
    u32 least[ROOM];
    u32 most[ROOM];

    __device__ void find(Key key, const List &list, u32 first) {
        const u32 objects = min(list.objects - first, ROOM);
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

// Calls `see(index, key)` for every object of a list, each by one lane.
template <u32 ROOM, class See>
__device__ void each_key(Keys<ROOM> &keys, Key key, const List &list, See see) {
#pragma unroll 1
    for (u32 first = 0; first < list.objects; first += ROOM) {
        keys.find(key, list, first);
#pragma unroll 1
        for (u32 index = lane(); index < min(list.objects - first, ROOM); index += LANES) {
            see(first + index, keys.of(key, list.grid, index));
        }
        __syncwarp();
    }
}

// Keeps the objects whose key is `wanted`, in their order; gives how many there are.
template <u32 CELLS, u32 ROOM>
__device__ u32 filter(Keys<ROOM> &keys, Key key, u32 wanted, const List &list,
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

// One object by its index, or why there is none.
struct Choice {
    u32 code, index;
};

// The first object of the greatest or the least key.
template <u32 ROOM>
__device__ Choice best_object(Keys<ROOM> &keys, Key key, bool least, const List &list) {
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

