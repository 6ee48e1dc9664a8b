// Runs the machine's kernel on the processor: reads cases, writes outcomes. tests/machine.rs builds and feeds it.
//
// A case: u32 program bytes, u32 steps, u32 arena words, u32 whether a grid is wanted (1) and the launch is stopped
// after a while (2), h, w as u32; the program, padded to 8, and the cells. An outcome: u32 code, instruction, steps, h,
// w, length; the bytes. All little-endian.
//
// A search, whose first number is 2^32 - 1, or 2^32 - 2 if its launch is stopped after a while: u32 programs, arena
// words, pairs, program bytes, cells; the offsets of the programs, padded to 8; the programs; shapes; offsets of grids;
// cells; u32 runs, 0 if programs run one by one, their order, what each shares, where runs start and end. Its outcome: a
// byte and a u16 for each evaluation; the byte is STOPPED if it was not made.
//
// A template, whose first number is 2^32 - 3: the numbers of a search, of the first program and those for choices of
// opcodes; u32 words of the holes, programs, the length of a run, the number of the first, all four padded to 16 bytes;
// then as a search up to the cells; at the end the holes.

#include "lanes.h"

#include "machine/listed.cuh"
#include "machine/template.cuh"

#include <csignal>
#include <unistd.h>
#include <utility>
#include <vector>

namespace host {

Warp warp;

// Saves the registers that a function keeps, and goes on with another stack.
__asm__(R"(
.text
.globl host_switch
.type host_switch, @function
host_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size host_switch, .-host_switch
)");

static void lane_main() {
    warp.body(warp.argument);
    warp.done[warp.lane] = true;
    host_switch(&warp.points[warp.lane], warp.scheduler);
    abort();
}

static void fatal(const char *what) {
    fprintf(stderr, "%s\n", what);
    abort();
}

void run_warp(void (*body)(void *), void *argument) {
    warp.body = body;
    warp.argument = argument;
    for (int lane = 0; lane < LANE_COUNT; lane += 1) {
        if (!warp.stacks[lane]) {
            warp.stacks[lane] = aligned_alloc(64, STACK_BYTES);
        }
        uint64_t *top = reinterpret_cast<uint64_t *>(static_cast<char *>(warp.stacks[lane]) + STACK_BYTES);
        top -= 2;
        top[0] = reinterpret_cast<uint64_t>(&lane_main);
        warp.points[lane] = top - 6;
        warp.done[lane] = false;
        warp.phase[lane] = 0;
    }
    while (true) {
        warp.random = warp.random * 6364136223846793005u + 1442695040888963407u;
        const int start = int(warp.random >> 40), step = 2 * int(warp.random >> 50) + 1;
        for (int at = 0; at < LANE_COUNT; at += 1) {
            warp.lane = (start + at * step) & 31;
            host_switch(&warp.scheduler, warp.points[warp.lane]);
        }
        int done = 0;
        for (int lane = 0; lane < LANE_COUNT; lane += 1) {
            done += warp.done[lane];
        }
        if (done == LANE_COUNT) {
            return;
        }
        if (done != 0) {
            fatal("some lanes ended while others wait for them");
        }
        const Posted &posted = warp.posted[(warp.phase[0] - 1) & 1];
        for (int lane = 1; lane < LANE_COUNT; lane += 1) {
            if (warp.phase[lane] != warp.phase[0] || posted.tag[lane] != posted.tag[0]) {
                fatal("lanes are at different collectives");
            }
        }
    }
}

}  // namespace host

static bool read_all(void *to, size_t bytes) {
    return fread(to, 1, bytes, stdin) == bytes;
}

struct Job {
    const Solve *solve;
    u32 *arena;
};

static void body(void *argument) {
    const Job &job = *static_cast<Job *>(argument);
    solve_items(*job.solve, job.arena, 0, 1);
}

static void search_body(void *argument) {
    const auto &job = *static_cast<std::pair<const Search *, u32 *> *>(argument);
    judge_all(*job.first, job.second);
}

static void template_body(void *argument) {
    const auto &job = *static_cast<std::pair<const Search *, u32 *> *>(argument);
    judge_template(*job.first, job.second);
}

static void prepare_body(void *argument) {
    const auto &job = *static_cast<std::pair<const Search *, u32 *> *>(argument);
    prepare_all(*job.first, job.second, 0, 1);
}

// How much of the results is used, and the word that stops the launch.
static volatile u32 used[2];

static void stop(int) { used[1] = 1; }

// How long a launch runs that is to be stopped, microseconds.
constexpr u32 UNDER_WAY_US = 50000;

// The first number of a search.
constexpr u32 SEARCH = ~0u, STOPPED_SEARCH = ~0u - 1, TEMPLATE = ~0u - 2;

// Judges all programs on all pairs, as the host does: with a larger arena again what did not fit.
static bool run_search(const u32 head[6], std::vector<u64> &arena) {
    const bool is_template = head[0] == TEMPLATE;
    // Words of the holes, programs, the length of a run, the number of the first.
    u32 expanded[4] = {0, head[1], 1, 0};
    if (is_template && !read_all(expanded, sizeof expanded)) {
        return false;
    }
    const u32 programs = head[1], pairs = head[3], count = expanded[1] * pairs;
    std::vector<u64> offsets((programs + 2) / 2), code(head[4] / 8);
    std::vector<u8> shapes(4 * pairs), cells(head[5] + 1), statuses(count, STOPPED);
    std::vector<u32> grids(2 * pairs + 1), left;
    std::vector<u16> scores(count);
    if (!read_all(offsets.data(), offsets.size() * 8) || !read_all(code.data(), head[4]) ||
        !read_all(shapes.data(), shapes.size()) || !read_all(grids.data(), grids.size() * 4) ||
        !read_all(cells.data(), head[5])) {
        return false;
    }
    // Of listed programs: how many runs there are, the order, what each shares, and where runs start.
    u32 runs = 0;
    if (!is_template && !read_all(&runs, sizeof runs)) {
        return false;
    }
    std::vector<u32> listed(is_template ? 0 : 2 * programs + runs + 1);
    if (!read_all(listed.data(), listed.size() * 4)) {
        return false;
    }
    std::vector<u32> holes(expanded[0]);
    if (!read_all(holes.data(), holes.size() * 4)) {
        return false;
    }
    Search search = {};
    search.programs = reinterpret_cast<const u8 *>(code.data());
    search.program_offsets = reinterpret_cast<const u32 *>(offsets.data());
    search.shapes = shapes.data();
    search.offsets = grids.data();
    search.cells = cells.data();
    search.statuses = statuses.data();
    search.stop = const_cast<const u32 *>(used + 1);
    search.pairs_count = pairs;
    search.programs_count = programs;
    search.holes = is_template ? holes.data() : nullptr;
    search.first = expanded[3];
    search.expanded_count = is_template ? expanded[1] : 0;
    search.run_length = expanded[2];
    std::vector<u32> places(programs + 1);
    for (u32 at = 0; at < programs; at += 1) {
        const Program program(search.programs + search.program_offsets[at]);
        places[at + 1] = places[at] + IMAGE_HEAD + whole(2 * program.register_count) + 4 * program.instruction_count
                         + whole(program.kind_count) + whole((program.register_count + 3) / 4);
    }
    std::vector<uint4> images(places[programs] / 4);
    std::vector<u64> queue(1 + MULTIPROCESSORS);
    std::vector<uint4> prepared(2 * pairs * PREPARED_WORDS / 4);
    search.grids = reinterpret_cast<u32 *>(prepared.data());
    search.images = reinterpret_cast<u32 *>(images.data());
    search.image_offsets = places.data();
    search.order = is_template ? nullptr : listed.data();
    search.runs = runs == 0 ? nullptr : listed.data() + 2 * programs;
    search.shared = listed.data() + programs;
    search.queue = queue.data();
    used[1] = 0;
    if (head[0] == STOPPED_SEARCH) {
        ualarm(UNDER_WAY_US, 0);
    }
    // Verdicts are compared another way if no scores are wanted. Each case comes with small arenas once.
    const bool unscored_too = head[0] != STOPPED_SEARCH && head[2] < 1u << 16;
    std::vector<u8> unscored;
    for (u32 turn = unscored_too ? 0 : 1; turn < 2; turn += 1) {
        search.scores = turn == 0 ? nullptr : scores.data();
        statuses.assign(count, STOPPED);
        for (u32 at = 0; at < count; at += 1) {
            left.push_back(at);
        }
        bool alone = false;
        for (u64 words = head[2]; !left.empty(); words *= alone ? 16 : 1, alone = true) {
            if (arena.size() < words / 2) {
                arena.assign(words / 2, 0xa5a5a5a5a5a5a5a5u);
            }
            // What a run has left fits alone perhaps.
            const bool is_first = !alone;
            search.evaluations = is_first ? nullptr : left.data();
            const u32 units = is_template ? (expanded[1] + expanded[2] - 1) / expanded[2] : runs == 0 ? programs : runs;
            search.evaluations_count = is_first ? units * pairs : u32(left.size());
            search.arena_words = u32(words);
            std::pair<const Search *, u32 *> job = {&search, reinterpret_cast<u32 *>(arena.data())};
            if (is_first || is_template) {
                host::run_warp(prepare_body, &job);
            }
            queue.assign(queue.size(), 0);
            host::run_warp(is_template ? template_body : search_body, &job);
            std::vector<u32> larger;
            for (u32 at : left) {
                if (statuses[at] == NEEDS_MEMORY && words <= 1u << 27) {
                    larger.push_back(at);
                }
            }
            left = larger;
        }
        if (turn == 0) {
            unscored = statuses;
        }
    }
    if (unscored_too && unscored != statuses) {
        fprintf(stderr, "verdicts without scores are others\n");
        return false;
    }
    fwrite(statuses.data(), 1, count, stdout);
    fwrite(scores.data(), 2, count, stdout);
    fflush(stdout);
    return true;
}

int main() {
    signal(SIGALRM, stop);
    u32 head[6];
    std::vector<u64> program;
    std::vector<u8> cells, results(RESULT_BYTES_MAX + 1);
    std::vector<u64> arena;
    while (read_all(head, sizeof head)) {
        if (head[0] == SEARCH || head[0] == STOPPED_SEARCH || head[0] == TEMPLATE) {
            if (!run_search(head, arena)) {
                return 1;
            }
            continue;
        }
        program.assign((head[0] + 7) / 8, 0);
        cells.assign(head[4] * head[5] + 1, 0);
        if (!read_all(program.data(), program.size() * 8) || !read_all(cells.data(), head[4] * head[5])) {
            return 1;
        }
        const u8 shape[2] = {u8(head[4]), u8(head[5])};
        u8 out_shape[2] = {};
        const u32 offsets[2] = {0, head[4] * head[5]};
        u16 status = 0;
        u32 instruction = 0, place = 0, length = 0, steps = 0;
        used[0] = used[1] = 0;
        Solve solve = {};
        solve.program = reinterpret_cast<const u8 *>(program.data());
        solve.shapes = shape;
        solve.offsets = offsets;
        solve.cells = cells.data();
        solve.status = &status;
        solve.instructions = &instruction;
        solve.out_shapes = head[3] & 1 ? out_shape : nullptr;
        solve.places = &place;
        solve.lengths = &length;
        solve.results = results.data();
        solve.used = const_cast<u32 *>(used);
        solve.steps = &steps;
        solve.items_count = 1;
        solve.steps_max = head[1];
        solve.results_max = RESULT_BYTES_MAX;
        if (head[3] & 2) {
            ualarm(UNDER_WAY_US, 0);
        }
        // As the host does: a larger arena for what does not fit.
        for (u64 words = head[2]; ; words *= 16) {
            if (arena.size() < words / 2) {
                arena.assign(words / 2, 0xa5a5a5a5a5a5a5a5u);
            }
            solve.arena_words = u32(words);
            solve.again = words > head[2];
            Job job = {&solve, reinterpret_cast<u32 *>(arena.data())};
            host::run_warp(body, &job);
            if ((status & 0xff) != NEEDS_MEMORY || words > (1u << 27)) {
                break;
            }
        }
        const u32 outcome[6] = {status, instruction, steps, out_shape[0], out_shape[1], length};
        fwrite(outcome, sizeof outcome, 1, stdout);
        fwrite(results.data() + place, 1, length, stdout);
        fflush(stdout);
    }
    return 0;
}
