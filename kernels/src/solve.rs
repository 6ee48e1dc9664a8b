//! The kernel of solvers: its PTX, its entry point and its argument. The worker loads the module at the first solver;
//! see `kernels/cuda/solve.cu`.

use gridpool_protocol::solver::Opcode;

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

/// The code of an item of a launch that was stopped: `STOPPED`. The host writes 1 behind `used` for that.
pub const STOPPED: u8 = 253;

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

#[cfg(test)]
mod tests {
    use gridpool_protocol::limits::{
        COLOR_MAX, GRID_CELLS_MAX, KIND_DEPTH_MAX, MACHINE_COLOR_MAX, MACHINE_COLOR_MIN,
        RESULT_BYTES_MAX, SIDE_MAX, VALUE_WEIGHT_MAX,
    };
    use gridpool_protocol::output::ItemErrorCode;
    use gridpool_protocol::program::hex;
    use sha2::{Digest, Sha256};

    use super::*;

    #[test]
    fn the_kernel_was_compiled_with_the_opcodes_of_the_machine() {
        let digest = hex(&Sha256::digest(opcodes()));
        assert!(
            PTX.starts_with(&format!("// solver_ops.cuh {digest}\n")),
            "run kernels/build_ptx.py"
        );
        assert!(PTX.contains(&format!(".visible .entry {SOLVE}(")));
    }

    #[test]
    fn the_limits_and_codes_are_those_of_the_kernel() {
        let memory = include_str!("../cuda/machine/memory.cuh");
        for (name, limit) in [
            ("u32 SIDE_MAX", SIDE_MAX),
            ("u32 GRID_CELLS_MAX", GRID_CELLS_MAX),
            ("u32 DEPTH_MAX", KIND_DEPTH_MAX),
        ] {
            assert!(memory.contains(&format!("constexpr {name} = {limit};")), "{name}");
        }
        let colors = format!("COLOR_MIN = {MACHINE_COLOR_MIN}, COLOR_MAX = {MACHINE_COLOR_MAX};");
        assert!(memory.contains(&colors));
        assert_eq!(VALUE_WEIGHT_MAX, 1 << 17);
        assert!(memory.contains("WEIGHT_MAX = 1u << 17;"));
        for (name, code) in [
            ("BAD_CELL", ItemErrorCode::BadCell),
            ("OVERFLOW", ItemErrorCode::Overflow),
            ("EMPTY_ARG", ItemErrorCode::EmptyArg),
            ("BAD_INDEX", ItemErrorCode::BadIndex),
            ("BAD_SHAPE", ItemErrorCode::BadShape),
            ("BAD_TYPE", ItemErrorCode::BadType),
            ("BAD_NUMBER", ItemErrorCode::BadNumber),
            ("STEP_LIMIT", ItemErrorCode::StepLimit),
        ] {
            assert!(memory.contains(&format!("    {name} = {},\n", code as u8)), "{name}");
        }
        assert!(memory.contains(&format!("NEEDS_MEMORY = {NEEDS_MEMORY},")));
        assert!(memory.contains(&format!("NEEDS_ROOM = {NEEDS_ROOM},")));
        let solve = include_str!("../cuda/machine/solve.cuh");
        assert!(solve.contains(&format!("ITEM_COLOR_MAX = {COLOR_MAX};")));
        assert_eq!(RESULT_BYTES_MAX, 64 * 1_024);
        assert!(
            include_str!("../cuda/machine/results.cuh").contains("RESULT_BYTES_MAX = 64 * 1024;")
        );
        assert!(solve.contains("static_assert(sizeof(Solve) == 136"));
    }
}
