// Sorting, sets, and moving values to where they stay.

#pragma once

#include "machine/order.cuh"

// Merges runs of doubling length until one is left; `merge(from, to, run)` merges each pair of runs of a length. `other`
// has room for as many. The result is in `elements`.
template <class T, class Merge>
__device__ inline void merge_runs(T *elements, T *other, u32 count, Merge merge) {
    T *from = elements, *to = other;
#pragma unroll 1
    for (u32 run = 1; run < count; run *= 2) {
        merge(from, to, run);
        __syncwarp();
        T *const swapped = from;
        from = to;
        to = swapped;
    }
    if (from != elements) {
#pragma unroll 1
        for (u32 at = lane(); at < count; at += LANES) {
            elements[at] = from[at];
        }
        __syncwarp();
    }
}

// Sorts in a stable way, by a whole order: each lane finds the place of its elements by bisection. `before(a, b)`:
// whether a must come before b.
template <class T, class Before>
__device__ inline void merge_sort(T *elements, T *other, u32 count, Before before) {
    merge_runs(elements, other, count, [&](const T *from, T *to, u32 run) {
#pragma unroll 1
        for (u32 at = lane(); at < count; at += LANES) {
            const u32 start = at / run * run, pair = at / (2 * run) * (2 * run);
            const bool is_left = start == pair;
            const u32 sibling = is_left ? min(start + run, count) : pair;
            u32 low = sibling, high = min(sibling + run, count);
            const T value = from[at];
#pragma unroll 1
            while (low < high) {
                const u32 middle = (low + high) / 2;
                const T with = from[middle];
                if (is_left ? before(with, value) : !before(value, with)) {
                    low = middle + 1;
                } else {
                    high = middle;
                }
            }
            to[pair + (at - start) + (low - sibling)] = value;
        }
    });
}

// As merge_sort, for what has no whole order: a lane merges a pair of runs from the front. Whatever `before` says, no
// place is left out, and no element lost.
template <class T, class Before>
__device__ inline void merge_sort_partial(T *elements, T *other, u32 count, Before before) {
    merge_runs(elements, other, count, [&](const T *from, T *to, u32 run) {
#pragma unroll 1
        for (u32 pair = lane() * 2 * run; pair < count; pair += LANES * 2 * run) {
            const u32 half = min(pair + run, count), end = min(half + run, count);
            u32 left = pair, right = half;
#pragma unroll 1
            for (u32 at = pair; at < end; at++) {
                const bool is_right = right < end && (left == half || before(from[right], from[left]));
                to[at] = from[is_right ? right++ : left++];
            }
        }
    });
}

__device__ __noinline__ void sort_words(u32 *elements, u32 *other, u32 count) {
    merge_sort(elements, other, count, [](u32 a, u32 b) { return a < b; });
}

__device__ __noinline__ void sort_doubles(Word *elements, Word *other, u32 count) {
    merge_sort(elements, other, count, [](Word a, Word b) { return a < b; });
}

__device__ __noinline__ void sort_blocks(const Machine &m, u32 kind, u32 *elements, u32 *other, u32 count) {
    merge_sort(elements, other, count,
               [&](u32 a, u32 b) { return compare_blocks(m, kind, a, b) < 0; });
}

// Whether each of the elements of an opened list is greater than the one before it.
__device__ __noinline__ bool ascends(const Machine &m, u32 list, u32 kind, u32 of_class, u32 count) {
#pragma unroll 1
    for (u32 base = 1; base < count; base += LANES) {
        const u32 at = base + lane();
        bool falls = false;
        if (at < count) {
            if (of_class == OF_DOUBLES) {
                falls = m.doubles(list)[at - 1] >= m.doubles(list)[at];
            } else if (of_class == OF_WORDS) {
                falls = m.words(list)[at - 1] >= m.words(list)[at];
            } else {
                falls = compare_blocks(m, kind, m.words(list)[at - 1], m.words(list)[at]) >= 0;
            }
        }
        if (any_lane(falls)) {
            return false;
        }
    }
    return true;
}

// Sorts the elements of an opened list, the last block.
__device__ __noinline__ void sort_list(Machine &m, u32 list, u32 kind, u32 of_class, u32 count) {
    const u32 before = m.top;
    const u32 other = m.take(of_class == OF_DOUBLES ? 2 * count : count);
    if (m.error) {
        return;
    }
    if (of_class == OF_DOUBLES) {
        sort_doubles(m.doubles(list), reinterpret_cast<Word *>(m.mem + other), count);
    } else if (of_class == OF_WORDS) {
        sort_words(m.words(list), m.mem + other, count);
    } else {
        sort_blocks(m, kind, m.words(list), m.mem + other, count);
    }
    m.top = before;
}

// Drops elements that equal the one before them. Returns how many are left.
__device__ __noinline__ u32 drop_equals(const Machine &m, u32 list, u32 kind, u32 of_class, u32 count) {
    u32 kept = 0;
    Word last = 0;
#pragma unroll 1
    for (u32 base = 0; base < count; base += LANES) {
        const u32 at = base + lane();
        const Word value = at < count ? (of_class == OF_DOUBLES ? m.doubles(list)[at] : m.words(list)[at]) : 0;
        Word before = __shfl_up_sync(ALL_LANES, value, 1);
        before = lane() == 0 ? last : before;
        last = __shfl_sync(ALL_LANES, value, LANES - 1);
        const bool mine = at < count && (at == 0 || compare(m, kind, before, value) != 0);
        const u32 members = __ballot_sync(ALL_LANES, mine);
        if (mine) {
            m.put(list, of_class, kept + __popc(members & ((1u << lane()) - 1)), value);
        }
        kept += __popc(members);
        __syncwarp();
    }
    return kept;
}

// Makes a set of the first `count` elements of an opened list, the last block. `kind` is that of the elements.
__device__ __noinline__ Word close_set(Machine &m, u32 list, u32 kind, u32 of_class, u32 count) {
    __syncwarp();
    if (!ascends(m, list, kind, of_class, count)) {
        sort_list(m, list, kind, of_class, count);
        if (m.error) {
            return 0;
        }
        count = drop_equals(m, list, kind, of_class, count);
    }
    return close_list(m, list, of_class, count);
}

// A set or a tuple, as the container kind says.
__device__ inline Word close_like(Machine &m, u32 list, u32 kind, u32 of_class, u32 count) {
    return m.is_set(kind) ? close_set(m, list, m.first(kind), of_class, count)
                          : close_list(m, list, of_class, count);
}

// Marks a block that has moved; its second word says where it will be.
constexpr u32 MOVED = 0xffu << 24;

// Copies a block behind all others, unless it lies below `floor` or was copied before. Returns where it will be.
__device__ __noinline__ u32 evacuate(Machine &m, u32 block, u32 floor, u32 shift) {
    // The caller overwrites where it read `block`.
    __syncwarp();
    if (block < floor) {
        return block;
    }
    const u32 head = m.mem[block];
    if (head >= MOVED) {
        return m.mem[block + 1];
    }
    const u32 words = block_words(m, block);
    const u32 to = m.take(words);
    if (m.error) {
        return block;
    }
    copy_words(m.mem + to, m.mem + block, words);
    m.mem[block] = MOVED;
    m.mem[block + 1] = to - shift;
    __syncwarp();
    return to - shift;
}

// Frees what lies between `floor` and the top but for a value, which is moved down to the floor with all that it
// is made of. Returns its word there.
__device__ __noinline__ Word keep_only(Machine &m, u32 floor, Word value) {
    const u32 block = u32(value);
    if (block < floor) {
        m.top = floor;
        return value;
    }
    const u32 head = m.mem[block];
    if (head >> 24 <= OF_DOUBLES || head >> 24 == OF_PAIR || head >> 24 >= OF_PLANES) {
        const u32 words = block_words(m, block);
        copy_words(m.mem + floor, m.mem + block, words);
        m.top = floor + words;
        return floor;
    }
    const u32 start = m.top, shift = start - floor;
    evacuate(m, block, floor, shift);
    // Cheney: each copied block's own blocks follow it.
#pragma unroll 1
    for (u32 scan = start; scan < m.top && !m.error;) {
        const u32 head = m.mem[scan], of_class = head >> 24;
        if (of_class == OF_BLOCKS) {
#pragma unroll 1
            for (u32 at = 0; at < (head & 0xffffff) && !m.error; at += 1) {
                const u32 was = m.mem[scan + HEAD_WORDS + at];
                const u32 to = evacuate(m, was, floor, shift);
                m.mem[scan + HEAD_WORDS + at] = to;
            }
        } else if (of_class > OF_PAIR && of_class < OF_PLANES) {
#pragma unroll 1
            for (u32 half = 0; half < 2 && !m.error; half += 1) {
                if (of_class >> half & 1) {
                    const u32 was = m.mem[scan + HEAD_WORDS + 2 * half];
                    const u32 to = evacuate(m, was, floor, shift);
                    m.mem[scan + HEAD_WORDS + 2 * half] = to;
                }
            }
        }
        scan += block_words(m, scan);
    }
    if (m.error) {
        return 0;
    }
    __syncwarp();
    const u32 words = m.top - start;
    copy_words(m.mem + floor, m.mem + start, words);
    m.top = floor + words;
    return floor;
}
