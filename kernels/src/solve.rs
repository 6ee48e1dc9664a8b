//! The kernel of solvers: its PTX, its entry point, its argument, and how items are spread over arenas. The worker loads
//! the module at the first solver; see `kernels/cuda/solve.cu`.

use std::sync::LazyLock;

use gridpool_protocol::program::hex;
use gridpool_protocol::solver::Opcode;
use sha2::{Digest, Sha256};

use crate::argument::DeviceAddress;

/// PTX 8.0 for compute capability 6.0 and up, made from `kernels/cuda/solve.cu` by `kernels/build_ptx.py`.
pub static PTX: &str = include_str!("../ptx/solve.ptx");

/// The entry point, as receipts name it.
pub const SOLVE: &str = "gp_solve";

/// Threads per block: one warp, so that the compiler knows that all of it goes one way.
pub const SOLVE_THREADS: u32 = 32;

/// The code of an item that needs a larger arena: `NEEDS_MEMORY` of `kernels/cuda/machine/memory.cuh`.
pub const NEEDS_MEMORY: u8 = 254;
/// The code of an item whose result did not fit behind the others: `NEEDS_ROOM`.
pub const NEEDS_ROOM: u8 = 255;

/// SHA-256 of [`PTX`], 64 hexadecimal digits.
pub static PTX_HASH: LazyLock<String> = LazyLock::new(|| hex(&Sha256::digest(PTX)));

/// `Solve` of `kernels/cuda/machine/solve.cuh`, which explains each field.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[expect(missing_docs, reason = "explained where the kernel reads it")]
pub struct SolveArgument {
    pub program: DeviceAddress,
    pub shapes: DeviceAddress,
    pub offsets: DeviceAddress,
    pub cells: DeviceAddress,
    pub items: DeviceAddress,
    pub status: DeviceAddress,
    pub instructions: DeviceAddress,
    pub out_shapes: DeviceAddress,
    pub places: DeviceAddress,
    pub lengths: DeviceAddress,
    pub results: DeviceAddress,
    pub used: DeviceAddress,
    pub steps: DeviceAddress,
    pub arenas: DeviceAddress,
    pub items_count: u32,
    pub arena_words: u32,
    pub steps_max: u32,
    pub results_max: u32,
    pub place_base: u32,
    pub unused: u32,
}

// The kernel asserts the size of its own.
const _: () = assert!(size_of::<SolveArgument>() == 136);

/// The header `solver_ops.cuh`, with which `kernels/build_ptx.py` compiles the kernel.
#[must_use]
pub fn opcodes() -> String {
    let codes = Opcode::ALL.iter().map(|op| {
        let number = *op as u8;
        let name = format!("{op:?}").to_uppercase();
        format!("    OP_{name} = {number},\n")
    });
    let codes: String = codes.collect();
    format!("#pragma once\n\n#include \"team.cuh\"\n\nenum SolverOp : u32 {{\n{codes}}};\n")
}
