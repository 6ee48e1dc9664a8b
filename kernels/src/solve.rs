//! The kernels of solvers and searches: their PTX, entry points and arguments. The worker loads a module when it is
//! needed for the first time; see `kernels/cuda/solve.cu` and `kernels/cuda/solve_far.cu`.

use std::io::Read;

use flate2::read::ZlibDecoder;
use gridpool_protocol::solver::Opcode;

use crate::argument::DeviceAddress;

/// The entry point of solvers, as receipts name it.
pub const SOLVE: &str = "gp_solve";
/// The entry point of searches, as receipts name it.
pub const SEARCH: &str = "gp_search";
/// The entry point of searches whose programs are those of a template, as receipts name it.
pub const TEMPLATE: &str = "gp_template";
/// The entry point that prepares the programs of a search: `kernels/cuda/machine/prepare.cuh`.
pub const PREPARE: &str = "gp_prepare";

/// A module as drivers take it, packed.
#[derive(Clone, Copy, Debug)]
pub struct Images {
    ptx: &'static [u8],
    cubin: &'static [u8],
}

/// The compute capability whose machine code a module has.
pub const CUBIN_CAPABILITY: (u32, u32) = (9, 0);

impl Images {
    /// Its PTX, of version 8.0. Drivers compile it for seconds.
    #[must_use]
    pub fn ptx(&self) -> String {
        String::from_utf8(unpacked(self.ptx)).expect("PTX is text")
    }

    /// Its machine code for GPUs of this compute capability, if it has some.
    #[must_use]
    pub fn cubin(&self, capability: (u32, u32)) -> Option<Vec<u8>> {
        (capability == CUBIN_CAPABILITY).then(|| unpacked(self.cubin))
    }
}

fn unpacked(packed: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let read = ZlibDecoder::new(packed).read_to_end(&mut bytes);
    read.expect("kernels/build_ptx.py has packed it");
    bytes
}

/// The two modules of a kernel, made by `kernels/build_ptx.py`.
#[derive(Clone, Copy, Debug)]
pub struct Modules {
    /// The entry point of both.
    pub entry: &'static str,
    /// The entry point of the launch before, if there is one.
    pub before: Option<&'static str>,
    /// With arenas in shared memory, for compute capability [`NEAR_CAPABILITY`] and up.
    pub near: Images,
    /// With arenas in global memory, for compute capability 6.0 and up.
    pub far: Images,
}

/// The packed files of a module.
macro_rules! images {
    ($module:literal) => {
        Images {
            ptx: include_bytes!(concat!("../ptx/", $module, ".ptx.z")),
            cubin: include_bytes!(concat!("../ptx/", $module, ".sm_90.z")),
        }
    };
}

/// The kernel of solvers.
pub static SOLVERS: Modules =
    Modules { entry: SOLVE, before: None, near: images!("solve"), far: images!("solve_far") };

/// The kernel of searches.
pub static SEARCHES: Modules = Modules {
    entry: SEARCH,
    before: Some(PREPARE),
    near: images!("search"),
    far: images!("search_far"),
};

/// The kernel of searches whose programs are those of a template.
pub static TEMPLATES: Modules = Modules {
    entry: TEMPLATE,
    before: Some(PREPARE),
    near: images!("template"),
    far: images!("template_far"),
};

/// The least compute capability that [`Modules::near`] loads on.
pub const NEAR_CAPABILITY: (u32, u32) = (8, 0);
/// Words of an arena in shared memory: 32 of them fit a multiprocessor of compute capability 9.0.
pub const NEAR_WORDS: u32 = 1_536;

/// Threads per block: one warp, so that the compiler knows that all of it goes one way.
pub const SOLVE_THREADS: u32 = 32;

/// The code of an item that needs a larger arena: `NEEDS_MEMORY` of `kernels/cuda/machine/memory.cuh`.
pub const NEEDS_MEMORY: u8 = 254;
/// The code of an item whose result did not fit behind the others: `NEEDS_ROOM`.
pub const NEEDS_ROOM: u8 = 255;

/// The code of an item or an evaluation of a launch that was stopped: `STOPPED`. For that the host writes 1 behind
/// `used` of a solver, and to `stop` of a search.
pub const STOPPED: u8 = 253;

/// `Solve` of `kernels/cuda/machine/solve.cuh`, which explains each field.
#[derive(Clone, Copy, Debug, Default)]
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
    pub again: u32,
}

// The kernel asserts the size of its own.
const _: () = assert!(size_of::<SolveArgument>() == 136);

/// `Search` of `kernels/cuda/machine/search.cuh`, which explains each field.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[expect(missing_docs, reason = "explained where the kernel reads it")]
pub struct SearchArgument {
    pub programs: DeviceAddress,
    pub program_offsets: DeviceAddress,
    pub shapes: DeviceAddress,
    pub offsets: DeviceAddress,
    pub cells: DeviceAddress,
    pub evaluations: DeviceAddress,
    pub statuses: DeviceAddress,
    pub scores: DeviceAddress,
    pub arenas: DeviceAddress,
    pub stop: DeviceAddress,
    pub images: DeviceAddress,
    pub image_offsets: DeviceAddress,
    pub order: DeviceAddress,
    pub queue: DeviceAddress,
    pub holes: DeviceAddress,
    pub grids: DeviceAddress,
    pub runs: DeviceAddress,
    pub shared: DeviceAddress,
    pub first: u64,
    pub evaluations_count: u32,
    pub pairs_count: u32,
    pub arena_words: u32,
    pub programs_count: u32,
    pub expanded_count: u32,
    pub run_length: u32,
}

// The kernel asserts the size of its own.
const _: () = assert!(size_of::<SearchArgument>() == 176);

/// Words of a pair's grid as the device prepares it: `PREPARED_WORDS` of `kernels/cuda/machine/search.cuh`.
const PREPARED_WORDS: usize = 4 + 4 * 32;
/// Bytes of so many grids of pairs as the device prepares them.
#[must_use]
pub const fn prepared_bytes(grids: usize) -> usize {
    4 * PREPARED_WORDS * grids
}

/// Multiprocessors that a queue knows apart: `MULTIPROCESSORS` of `kernels/cuda/machine/queue.cuh`.
const MULTIPROCESSORS: usize = 256;
/// Bytes of the queue of a launch of a search.
pub const QUEUE_BYTES: usize = 8 * (1 + MULTIPROCESSORS);

/// Words of the image of a program on the device: a head, its registers, 4 for each instruction, its kinds, and the
/// kinds of its registers, each part from a multiple of 4 on. `kernels/cuda/machine/prepare.cuh` writes it.
///
/// The bytes of `program` were verified.
#[must_use]
pub fn image_words(program: &[u8]) -> usize {
    const HEAD: usize = 4;
    let count = |at: usize| usize::from(u16::from_le_bytes([program[at], program[at + 1]]));
    let (instructions, registers, kinds) = (count(2), count(6), count(8));
    let parts = [2 * registers, 4 * instructions, kinds, registers.div_ceil(4)];
    HEAD + parts.map(|words| words.next_multiple_of(4)).iter().sum::<usize>()
}

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
    use gridpool_protocol::search::{CellScore, PairStatus};
    use sha2::{Digest, Sha256};

    use super::*;

    #[test]
    fn the_kernel_was_compiled_with_the_opcodes_of_the_machine() {
        let digest = hex(&Sha256::digest(opcodes()));
        for Modules { entry, near, far, .. } in [SOLVERS, SEARCHES, TEMPLATES] {
            let [near, far] = [near, far].map(|images| images.ptx());
            for ptx in [&near, &far] {
                assert!(
                    ptx.starts_with(&format!("// solver_ops.cuh {digest}\n")),
                    "run kernels/build_ptx.py"
                );
                assert!(ptx.contains(&format!(".visible .entry {entry}(")));
            }
            let (major, minor) = NEAR_CAPABILITY;
            assert!(near.contains(&format!("\n.target sm_{major}{minor}\n")));
            assert!(far.contains("\n.target sm_60\n"));
        }
    }

    #[test]
    fn machine_code_is_there_for_one_kind_of_gpu() {
        for Modules { entry, near, far, .. } in [SOLVERS, SEARCHES, TEMPLATES] {
            for images in [near, far] {
                let code = images.cubin(CUBIN_CAPABILITY).unwrap_or_default();
                assert!(code.starts_with(b"\x7fELF"));
                assert!(code.windows(entry.len()).any(|name| name == entry.as_bytes()));
                assert_eq!(images.cubin((8, 0)), None);
            }
        }
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
        let search = include_str!("../cuda/machine/search.cuh");
        assert!(search.contains("static_assert(sizeof(Search) == 176"));
        assert!(search.contains("PREPARED_WORDS = 4 + 4 * BOARD_SIDE;"));
        let boards = include_str!("../cuda/machine/boards.cuh");
        assert!(boards.contains("BOARD_SIDE = 32;") && PREPARED_WORDS == 4 + 4 * 32);
        let listed = include_str!("../cuda/machine/listed.cuh");
        assert!(listed.contains("RUN_MAX = LANES;") && crate::runs::RUN_MAX == 32);
        assert!(listed.contains("CHECKPOINTS_WORDS = 256,"));
        let queue = include_str!("../cuda/machine/queue.cuh");
        assert!(queue.contains(&format!("MULTIPROCESSORS = {MULTIPROCESSORS};")));
        let (missing, equal, differs) =
            (ItemErrorCode::MissingOutput as u8, PairStatus::EQUAL, PairStatus::DIFFERS);
        let statuses = format!("MISSING_OUTPUT = {missing}, EQUAL = {equal}, DIFFERS = {differs};");
        assert!(search.contains(&statuses));
        assert_eq!(CellScore::SHAPE, 1 << 15);
        assert!(search.contains("SCORE_SHAPE = 1 << 15;"));
    }
}
