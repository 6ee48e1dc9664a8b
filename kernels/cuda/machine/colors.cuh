// The commonest and the rarest value, and which of equals. Mirrors kernels/src/reference/machine/ties.rs.

#pragma once

#include "machine/numbers.cuh"

enum Ties : u32 { TIES_CPYTHON, TIES_LOWEST };

// CPython's table for a set of numbers. An entry is a number's word, with a bit that says that it is there.
constexpr u32 SLOTS_MIN = 8, BESIDE = 9;
constexpr Word TAKEN = Word(1) << 32;

// Puts a number into a table. Returns whether it is new. For one lane.
__device__ inline bool enter(Word *table, u32 slots, Word number) {
    const u32 mask = slots - 1;
    const i32 value = number_of(number);
    u64 perturb = u64(i64(value == -1 ? -2 : value));
    u32 at = u32(perturb) & mask;
#pragma unroll 1
    while (true) {
        const u32 beside = at + BESIDE <= mask ? BESIDE : 0;
#pragma unroll 1
        for (u32 slot = at; slot <= at + beside; slot += 1) {
            if (table[slot] == 0) {
                table[slot] = number | TAKEN;
                return true;
            }
            if (table[slot] == (number | TAKEN)) {
                return false;
            }
        }
        perturb >>= 5;
        at = u32(5 * u64(at) + 1 + perturb) & mask;
    }
}

// Enters `count` numbers one by one, of which at most `distinct` differ. Returns the table and its size. For all lanes.
__device__ __noinline__ Word *cpython_table(Machine &m, const u32 *numbers, u32 count, u32 distinct, u32 &slots) {
    u32 most = SLOTS_MIN;
    while (most <= 4 * distinct) {
        most *= 2;
    }
    const u32 first = m.take(2 * most), second = m.take(2 * most);
    slots = SLOTS_MIN;
    if (m.error) {
        return nullptr;
    }
    Word *table = reinterpret_cast<Word *>(m.mem + first), *other = reinterpret_cast<Word *>(m.mem + second);
    u32 entries = 0, swaps = 0;
    if (lane() == 0) {
#pragma unroll 1
        for (u32 slot = 0; slot < slots; slot += 1) {
            table[slot] = 0;
        }
#pragma unroll 1
        for (u32 at = 0; at < count; at += 1) {
            if (!enter(table, slots, numbers[at])) {
                continue;
            }
            entries += 1;
            if (entries * 5 < (slots - 1) * 3) {
                continue;
            }
            const u32 before = slots;
            slots = SLOTS_MIN;
            while (slots <= 4 * entries) {
                slots *= 2;
            }
#pragma unroll 1
            for (u32 slot = 0; slot < slots; slot += 1) {
                other[slot] = 0;
            }
#pragma unroll 1
            for (u32 slot = 0; slot < before; slot += 1) {
                if (table[slot] != 0) {
                    enter(other, slots, table[slot] & ~TAKEN);
                }
            }
            Word *const swapped = table;
            table = other;
            other = swapped;
            swaps += 1;
        }
    }
    slots = from_first(slots);
    swaps = from_first(swaps);
    __syncwarp();
    return reinterpret_cast<Word *>(m.mem + (swaps % 2 ? second : first));
}

// The commonest or rarest element of a list that is not empty; of equals the first in CPython's order if `as_numbers`
// and ties are so, else the first in canonical order.
__device__ __noinline__ Word best_common(Machine &m, Word list, u32 kind, bool rarest, bool as_numbers) {
    const u32 before = m.top;
    const u32 count = m.count(list), of_class = m.block_class(list);
    const u32 sorted = m.open(of_class, count);
    if (m.error) {
        return 0;
    }
    copy_words(m.mem + sorted + HEAD_WORDS, m.mem + u32(list) + HEAD_WORDS,
               of_class == OF_DOUBLES ? 2 * count : count);
    sort_list(m, sorted, kind, of_class, count);
    // Where each run of equals starts.
    const u32 starts = m.take(count + 1);
    if (m.error) {
        return 0;
    }
    m.mem[sorted] = of_class << 24 | count;
    __syncwarp();
    u32 *const start = m.mem + starts;
    const u32 runs = keep_in_order(
        count,
        [&](u32 at) {
            return at == 0 || compare(m, kind, m.element(sorted, at - 1), m.element(sorted, at)) != 0;
        },
        [&](u32 place, u32 at) { start[place] = at; });
    start[runs] = count;
    __syncwarp();
    // More is better.
    const auto merit = [&](u32 run) {
        const u32 length = start[run + 1] - start[run];
        return rarest ? count - length : length + 1;
    };
    u32 mine = 0;
#pragma unroll 1
    for (u32 run = lane(); run < runs; run += LANES) {
        mine = max(mine, merit(run));
    }
    const u32 most = most_of_warp(mine);
    u32 first = ~0u, winners = 0;
#pragma unroll 1
    for (u32 run = lane(); run < runs; run += LANES) {
        if (merit(run) == most) {
            first = min(first, run);
            winners += 1;
        }
    }
    first = least_of_warp(first);
    winners = u32(sum_of_warp(i32(winners)));
    Word best = m.element(sorted, start[first]);
    if (winners > 1 && as_numbers && m.ties == TIES_CPYTHON) {
        u32 slots = 0;
        const Word *const table = cpython_table(m, m.words(list), count, runs, slots);
        if (m.error) {
            return 0;
        }
        u32 found = ~0u;
#pragma unroll 1
        for (u32 slot = lane(); slot < slots; slot += LANES) {
            if (table[slot] == 0 || slot >= found) {
                continue;
            }
            const u32 number = u32(table[slot]);
            u32 low = 0, high = runs;
#pragma unroll 1
            while (low < high) {
                const u32 middle = (low + high) / 2;
                if (m.words(sorted)[start[middle]] < number) {
                    low = middle + 1;
                } else {
                    high = middle;
                }
            }
            found = merit(low) == most ? slot : found;
        }
        best = u32(table[least_of_warp(found)]);
    }
    __syncwarp();
    m.top = before;
    return best;
}

// How often this lane's colour, lane + COLOR_MIN, stands among `count` colours, and where first.
struct Tally {
    u32 count, first;
};

constexpr u32 COLORS = COLOR_MAX - COLOR_MIN + 1;

template <class Color>
__device__ inline Tally tally(u32 count, Color color) {
    Tally mine = {0, ~0u};
#pragma unroll 1
    for (u32 base = 0; base < count; base += LANES) {
        const u32 at = base + lane();
        const u32 index = at < count ? u32(color(at) - COLOR_MIN) : 0;
        u32 alike = __ballot_sync(ALL_LANES, at < count);
#pragma unroll
        for (u32 bit = 0; bit < 4; bit += 1) {
            const u32 with = __ballot_sync(ALL_LANES, index >> bit & 1);
            alike &= lane() >> bit & 1 ? with : ~with;
        }
        if (lane() < COLORS && alike != 0) {
            mine.first = mine.count == 0 ? base + __ffs(alike) - 1 : mine.first;
            mine.count += __popc(alike);
        }
    }
    return mine;
}

// The commonest or rarest colour of tallies of which one is not 0.
__device__ __noinline__ i32 best_color(Machine &m, Tally mine, bool rarest) {
    const bool is = mine.count != 0;
    const u32 merit = !is ? 0 : rarest ? (1u << 24) - mine.count : mine.count;
    const u32 winners = __ballot_sync(ALL_LANES, merit == most_of_warp(merit));
    if ((winners & (winners - 1)) == 0 || m.ties == TIES_LOWEST) {
        return i32(__ffs(winners)) - 1 + COLOR_MIN;
    }
    const u32 before = m.top;
    const u32 present = __ballot_sync(ALL_LANES, is);
    const u32 colors = __popc(present), arrived = m.take(COLORS);
    if (m.error) {
        return 0;
    }
    u32 arrival = 0;
#pragma unroll 1
    for (u32 other = 0; other < COLORS; other += 1) {
        const u32 first = __shfl_sync(ALL_LANES, mine.first, other);
        arrival += (present >> other & 1) && first < mine.first;
    }
    if (is) {
        m.mem[arrived + arrival] = u32(of_number(i32(lane()) + COLOR_MIN));
    }
    __syncwarp();
    u32 slots = 0;
    const Word *const table = cpython_table(m, m.mem + arrived, colors, colors, slots);
    if (m.error) {
        return 0;
    }
    i32 best = 0;
#pragma unroll 1
    for (u32 slot = slots; slot > 0; slot -= 1) {
        if (table[slot - 1] != 0) {
            const i32 color = number_of(u32(table[slot - 1]));
            best = winners >> (color - COLOR_MIN) & 1 ? color : best;
        }
    }
    __syncwarp();
    m.top = before;
    return best;
}

// The commonest or rarest colour of a grid or an object; EMPTY_ARG if it has no cell.
__device__ __noinline__ i32 common_color(Machine &m, Word element, bool rarest) {
    const u32 count = m.count(element);
    if (count == 0) {
        m.fail(EMPTY_ARG);
        return 0;
    }
    if (m.block_class(element) == OF_GRID) {
        const signed char *const cells = m.cells(element);
        return best_color(m, tally(count, [&](u32 at) { return i32(cells[at]); }), rarest);
    }
    const u32 before = m.top;
    const u32 colors = m.open(OF_WORDS, count);
    if (m.error) {
        return 0;
    }
    const Word *const cells = m.doubles(element);
    bool strange = false;
#pragma unroll 1
    for (u32 at = lane(); at < count; at += LANES) {
        const i32 color = color_of(cells[at]);
        strange |= color < COLOR_MIN || color > COLOR_MAX;
        m.words(colors)[at] = u32(of_number(color));
    }
    __syncwarp();
    i32 best;
    if (any_lane(strange)) {
        m.mem[colors] = OF_WORDS << 24 | count;
        __syncwarp();
        best = number_of(best_common(m, colors, PLAIN, rarest, true));
    } else {
        best = best_color(m, tally(count, [&](u32 at) { return number_of(m.words(colors)[at]); }), rarest);
    }
    m.top = m.error ? m.top : before;
    return best;
}

// The background: the commonest colour.
__device__ inline i32 most_color(Machine &m, Word element) { return common_color(m, element, false); }
