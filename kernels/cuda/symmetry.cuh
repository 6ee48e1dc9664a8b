// The eight symmetries of the square, each from one index formula. Objects and patches stay where
// their box lies.
// Mirrors kernels/src/reference/symmetry.rs.

#pragma once

#include "step.cuh"

enum Symmetry { IDENTITY, ROT90, ROT180, ROT270, HMIRROR, VMIRROR, DMIRROR, CMIRROR };

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

__device__ __noinline__ void apply(const Step &step, Symmetry symmetry) {
    each_picture(step, [=](Picture from, u8 *to) {
        const u32 h = transposes(symmetry) ? from.w : from.h;
        const u32 w = transposes(symmetry) ? from.h : from.w;
        draw_lines(from.cells, lines_of(symmetry, from.h, from.w), h, w, to, w);
        return made(h, w, from.row, from.col);
    });
}

KERNEL(gp_identity, apply(step, IDENTITY))
KERNEL(gp_rot90, apply(step, ROT90))
KERNEL(gp_rot180, apply(step, ROT180))
KERNEL(gp_rot270, apply(step, ROT270))
KERNEL(gp_hmirror, apply(step, HMIRROR))
KERNEL(gp_vmirror, apply(step, VMIRROR))
KERNEL(gp_dmirror, apply(step, DMIRROR))
KERNEL(gp_cmirror, apply(step, CMIRROR))
