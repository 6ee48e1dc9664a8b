// How a batch lies on the device, and how threads find their part of it.
//
// A chunk of a batch is laid out on the device as protocol/src/batch.rs lays out any batch. The
// tables come from the worker's own checked copy, never from memory that a client can write, so
// every place they name is inside the buffers. Cells are data only: none is used as an index.

#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;

constexpr u32 LANES = 32;
constexpr u32 ALL_LANES = 0xffffffff;

// As in protocol/src/limits.rs and protocol/src/output.rs.
constexpr u32 COLORS = 10;
constexpr u32 GRID_CELLS_MAX = 4096;
constexpr u8 STATUS_OK = 0;
constexpr u8 STATUS_BAD_CELL = 1;
constexpr u8 NO_OP = 255;

// What stays as it is from kernel to kernel.
struct Batch {
    u32 items;
    // Where each item's cells start, counted from the chunk's first cell; items + 1 of them.
    const u32 *offsets;
};

// Grids between two kernels: shapes change, places do not.
struct Stage {
    // (h, w) of each item.
    u8 *shapes;
    u8 *cells;
};

struct Grid {
    u32 h, w;
    u8 *cells;

    __device__ u32 area() const { return h * w; }
};

__device__ Grid grid_of(Batch batch, Stage stage, u32 item) {
    Grid grid;
    grid.h = stage.shapes[2 * item];
    grid.w = stage.shapes[2 * item + 1];
    grid.cells = stage.cells + batch.offsets[item];
    return grid;
}

__device__ u32 lane() { return threadIdx.x % LANES; }

// The item of this thread's warp where each warp serves one.
__device__ u32 item_of_warp() { return (blockIdx.x * blockDim.x + threadIdx.x) / LANES; }

// The cells that one thread of a team serves: every `team`th, row-major. Knows row and column
// without a division for each cell.
struct Walk {
    u32 at, row, col;

    __device__ Walk(u32 member, u32 team, u32 w)
        : at(member), row(member / w), col(member % w), team(team), w(w), rows(team / w),
          cols(team % w) {}

    __device__ void next() {
        at += team;
        row += rows;
        col += cols;
        if (col >= w) {
            col -= w;
            row += 1;
        }
    }

private:
    u32 team, w, rows, cols;
};
