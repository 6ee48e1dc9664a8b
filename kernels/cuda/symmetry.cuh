// The eight symmetries of the square, each from one index formula. The boxes of objects and patches stay in
// place.
// Mirrors kernels/src/reference/symmetry.rs.

#pragma once

#include "cells.cuh"

enum Symmetry : u8 { IDENTITY, ROT90, ROT180, ROT270, HMIRROR, VMIRROR, DMIRROR, CMIRROR };

__device__ inline Lines lines_of(Symmetry symmetry, int h, int w) {
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

__device__ inline bool transposes(Symmetry symmetry) {
    return symmetry == ROT90 || symmetry == ROT270 || symmetry == DMIRROR || symmetry == CMIRROR;
}

// A symmetry's image in new colours. Only grids are recoloured: they have no holes.
__device__ __noinline__ Made image(Picture from, Symmetry symmetry, ColorMap colors, u8 *to) {
    const u32 h = transposes(symmetry) ? from.w : from.h;
    const u32 w = transposes(symmetry) ? from.h : from.w;
    const Lines lines = lines_of(symmetry, from.h, from.w);
    if (colors.is_identity()) {
        draw_image<false>(from.cells, lines, colors, h, w, to);
    } else {
        draw_image<true>(from.cells, lines, colors, h, w, to);
    }
    return made(h, w, from.row, from.col);
}
