//! The kernels of a GPU as one PTX module: its text, its hash, its entry points, and which of them
//! a program launches. Loading and launching are the worker's.

use std::sync::LazyLock;

use gridpool_protocol::program::{Op, Program, hex};
use sha2::{Digest, Sha256};

/// PTX 8.0 for compute capability 6.0 and up, made from `kernels/cuda` by `kernels/build_ptx.py`.
pub const PTX: &str = include_str!("../ptx/gridpool.ptx");

/// The oldest CUDA whose drivers load [`PTX`], as `cuDriverGetVersion` counts: 12.0.
pub const CUDA_VERSION_MIN: u32 = 12_000;

/// One entry point of the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// Its name in the module and in receipts: the op's, after `gp_`.
    pub name: &'static str,
    /// Threads of one block.
    pub threads: u32,
    /// Items that one block serves.
    pub items_per_block: u32,
}

/// One warp an item, four warps a block.
const fn warp_per_item(name: &'static str) -> Kernel {
    Kernel { name, threads: 128, items_per_block: 4 }
}

/// Every entry point of the module; the first runs before every program.
pub const KERNELS: [Kernel; 17] = [
    warp_per_item("gp_validate"),
    warp_per_item("gp_identity"),
    warp_per_item("gp_rot90"),
    warp_per_item("gp_rot180"),
    warp_per_item("gp_rot270"),
    warp_per_item("gp_hmirror"),
    warp_per_item("gp_vmirror"),
    warp_per_item("gp_dmirror"),
    warp_per_item("gp_cmirror"),
    warp_per_item("gp_replace"),
    warp_per_item("gp_switch"),
    warp_per_item("gp_mostcolor"),
    warp_per_item("gp_leastcolor"),
    warp_per_item("gp_numcolors"),
    warp_per_item("gp_colorcount"),
    warp_per_item("gp_palette"),
    // OBJECTS_THREADS of kernels/cuda/objects.cuh.
    Kernel { name: "gp_objects", threads: 128, items_per_block: 1 },
];

impl Kernel {
    /// The kernel that checks the cells of a batch before a program runs.
    pub const VALIDATE: &'static Self = &KERNELS[0];

    /// The kernel of `op`.
    ///
    /// # Panics
    /// Never: a test asks for every op.
    #[must_use]
    pub fn of(op: Op) -> &'static Self {
        let named = |kernel: &&Self| kernel.op() == Some(op.name());
        KERNELS.iter().find(named).expect("every op has a kernel")
    }

    fn op(&self) -> Option<&'static str> {
        self.name.strip_prefix("gp_")
    }

    /// Blocks that serve `items` items.
    #[must_use]
    pub fn blocks(&self, items: u32) -> u32 {
        items.div_ceil(self.items_per_block)
    }
}

/// The kernels that one chunk of a batch launches for `program`, in order.
pub fn kernels_of(program: &Program) -> impl Iterator<Item = &'static Kernel> {
    std::iter::once(Kernel::VALIDATE).chain(program.ops().iter().map(|&op| Kernel::of(op)))
}

/// SHA-256 of [`PTX`], in hexadecimal: what receipts of GPU devices name.
#[must_use]
pub fn module_hash() -> &'static str {
    static HASH: LazyLock<String> = LazyLock::new(|| hex(&Sha256::digest(PTX)));
    &HASH
}

#[cfg(test)]
mod tests {
    use gridpool_protocol::program::Ties;

    use super::*;
    use crate::known_answer::KNOWN_ANSWERS;

    #[test]
    fn the_table_names_exactly_the_modules_entry_points() {
        let entries = PTX.lines().filter_map(|line| line.strip_prefix(".visible .entry "));
        let mut entries: Vec<_> = entries.map(|line| line.trim_end_matches(['(', ' '])).collect();
        let mut names: Vec<_> = KERNELS.iter().map(|kernel| kernel.name).collect();
        entries.sort_unstable();
        names.sort_unstable();
        assert_eq!(entries, names);
    }

    #[test]
    fn the_ptx_is_old_enough_for_every_driver_that_is_let_in() {
        assert!(PTX.contains("\n.version 8.0\n.target sm_60\n"));
    }

    #[test]
    fn every_op_has_a_kernel_of_its_name() {
        for known in KNOWN_ANSWERS {
            let program = known.program();
            let kernels: Vec<_> = kernels_of(&program).map(|kernel| kernel.name).collect();
            let ops: Vec<_> = program.ops().iter().map(|op| format!("gp_{}", op.name())).collect();
            assert_eq!(kernels[0], "gp_validate");
            assert_eq!(kernels[1..], ops);
        }
    }

    #[test]
    fn blocks_cover_every_item_and_no_more() {
        let rot90 = Program::compile("rot90", Ties::Cpython).unwrap().ops()[0];
        assert_eq!([1, 4, 5, 4_096].map(|items| Kernel::of(rot90).blocks(items)), [1, 1, 2, 1_024]);
    }
}
