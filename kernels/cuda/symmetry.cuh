// The eight symmetries of the square, each from one index formula.
// Mirrors kernels/src/reference/symmetry.rs.

#pragma once

#include "grid.cuh"

enum Symmetry { IDENTITY, ROT90, ROT180, ROT270, HMIRROR, VMIRROR, DMIRROR, CMIRROR };

// Cell (i, j) of the image is cell `start + i * down + j * right` of the input.
struct Lines {
    int start, down, right;
};

__device__ Lines lines_of(Symmetry symmetry, int h, int w) {
    switch (symmetry) {
    case ROT90: return {(h - 1) * w, 1, -w};
    case ROT180: return {h * w - 1, -w, -1};
    case ROT270: return {w - 1, -1, w};
    case HMIRROR: return {(h - 1) * w, -w, 1};
    case VMIRROR: return {w - 1, w, -1};
    case DMIRROR: return {0, 1, w};
    case CMIRROR: return {h * w - 1, -1, -w};
    case IDENTITY: break;
    }
    return {0, w, 1};
}

__device__ bool transposes(Symmetry symmetry) {
    return symmetry == ROT90 || symmetry == ROT270 || symmetry == DMIRROR || symmetry == CMIRROR;
}

// One warp an item. `symmetry` is a constant of each caller, so nothing here branches on it.
__device__ __forceinline__ void apply(Symmetry symmetry, Batch batch, Stage from, Stage to) {
    const u32 item = item_of_warp();
    if (item >= batch.items) {
        return;
    }
    const Grid input = grid_of(batch, from, item);
    const u32 h = transposes(symmetry) ? input.w : input.h;
    const u32 w = transposes(symmetry) ? input.h : input.w;
    if (lane() == 0) {
        to.shapes[2 * item] = h;
        to.shapes[2 * item + 1] = w;
    }
    u8 *image = to.cells + batch.offsets[item];
    const Lines lines = lines_of(symmetry, input.h, input.w);
    for (Walk cell(lane(), LANES, w); cell.at < input.area(); cell.next()) {
        const int row = cell.row, col = cell.col;
        image[cell.at] = input.cells[lines.start + row * lines.down + col * lines.right];
    }
}

#define SYMMETRY_KERNEL(name, symmetry)                                   \
    extern "C" __global__ void name(Batch batch, Stage from, Stage to) { \
        apply(symmetry, batch, from, to);                                 \
    }

SYMMETRY_KERNEL(gp_identity, IDENTITY)
SYMMETRY_KERNEL(gp_rot90, ROT90)
SYMMETRY_KERNEL(gp_rot180, ROT180)
SYMMETRY_KERNEL(gp_rot270, ROT270)
SYMMETRY_KERNEL(gp_hmirror, HMIRROR)
SYMMETRY_KERNEL(gp_vmirror, VMIRROR)
SYMMETRY_KERNEL(gp_dmirror, DMIRROR)
SYMMETRY_KERNEL(gp_cmirror, CMIRROR)
