//! The kernels of a GPU as one PTX module: its text, its hash, its entry points, and which of them
//! a program launches. Loading and launching are the worker's.

use std::sync::LazyLock;

use gridpool_protocol::program::{Op, Program, hex};
use sha2::{Digest, Sha256};

/// PTX 8.0 for compute capability 6.0 and up, made from `kernels/cuda` by `kernels/build_ptx.py`.
pub const PTX: &str = include_str!("../ptx/gridpool.ptx");

/// The oldest CUDA whose drivers load [`PTX`], as `cuDriverGetVersion` counts: 12.0.
pub const CUDA_VERSION_MIN: u32 = 12_000;

/// Threads of a block, of every kernel: `BLOCK_THREADS` of `kernels/cuda/team.cuh`.
pub const BLOCK_THREADS: u32 = 128;

/// Values whose areas one block of [`Kernel::ADD_AREAS`] adds up: `TILE_VALUES` of
/// `kernels/cuda/pack.cuh`.
pub const TILE_VALUES: u32 = 4_096;

/// One entry point of the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// Its name in the module and in receipts: the op's, after `gp_`.
    pub name: &'static str,
    /// Values that one block serves.
    values_per_block: u32,
}

/// One warp a value.
const fn warp(name: &'static str) -> Kernel {
    Kernel { name, values_per_block: 4 }
}

/// One block a value: where the places of many objects are held beside each other.
const fn block(name: &'static str) -> Kernel {
    Kernel { name, values_per_block: 1 }
}

/// One block a tile of values.
const fn tile(name: &'static str) -> Kernel {
    Kernel { name, values_per_block: TILE_VALUES }
}

/// Every entry point of the module.
pub const KERNELS: &[Kernel] = &[
    warp("gp_validate"),
    tile("gp_add_areas"),
    tile("gp_place"),
    warp("gp_pack"),
    block("gp_argmax"),
    block("gp_argmin"),
    warp("gp_asindices"),
    warp("gp_asobject"),
    warp("gp_backdrop"),
    warp("gp_bottomhalf"),
    warp("gp_box"),
    warp("gp_canvas"),
    warp("gp_cellwise"),
    warp("gp_center"),
    warp("gp_centerofmass"),
    warp("gp_cmirror"),
    warp("gp_color"),
    warp("gp_colorcount"),
    block("gp_colorfilter"),
    warp("gp_compress"),
    warp("gp_corners"),
    warp("gp_cover"),
    warp("gp_crop"),
    warp("gp_delta"),
    warp("gp_dmirror"),
    warp("gp_downscale"),
    warp("gp_fgpartition"),
    warp("gp_fill"),
    warp("gp_hconcat"),
    warp("gp_height"),
    warp("gp_hline"),
    warp("gp_hmirror"),
    warp("gp_hsplit"),
    warp("gp_hupscale"),
    warp("gp_identity"),
    warp("gp_inbox"),
    warp("gp_leastcolor"),
    warp("gp_lefthalf"),
    warp("gp_leftmost"),
    warp("gp_llcorner"),
    warp("gp_lowermost"),
    warp("gp_lrcorner"),
    block("gp_merge"),
    warp("gp_mostcolor"),
    warp("gp_move"),
    warp("gp_normalize"),
    warp("gp_nth"),
    block("gp_nth_object"),
    warp("gp_numcolors"),
    block("gp_objects"),
    warp("gp_ofcolor"),
    warp("gp_outbox"),
    warp("gp_paint"),
    warp("gp_palette"),
    warp("gp_partition"),
    warp("gp_portrait"),
    warp("gp_recolor"),
    warp("gp_replace"),
    warp("gp_righthalf"),
    warp("gp_rightmost"),
    warp("gp_rot180"),
    warp("gp_rot270"),
    warp("gp_rot90"),
    warp("gp_shape"),
    warp("gp_shift"),
    warp("gp_size"),
    block("gp_sizefilter"),
    warp("gp_square"),
    warp("gp_subgrid"),
    warp("gp_switch"),
    warp("gp_toindices"),
    warp("gp_toobject"),
    warp("gp_tophalf"),
    warp("gp_trim"),
    warp("gp_ulcorner"),
    warp("gp_underfill"),
    warp("gp_underpaint"),
    warp("gp_uppermost"),
    warp("gp_upscale"),
    warp("gp_urcorner"),
    warp("gp_vconcat"),
    warp("gp_vline"),
    warp("gp_vmirror"),
    warp("gp_vsplit"),
    warp("gp_vupscale"),
    warp("gp_width"),
];

impl Kernel {
    /// Checks the cells of a batch before a program runs.
    pub const VALIDATE: &'static Self = &KERNELS[0];
    /// The first of three that pack a result whose sizes were not known before: adds up areas.
    pub const ADD_AREAS: &'static Self = &KERNELS[1];
    /// The second: gives every value its place.
    pub const PLACE: &'static Self = &KERNELS[2];
    /// The third: gathers the cells.
    pub const PACK: &'static Self = &KERNELS[3];

    /// The kernel of `op`.
    ///
    /// # Panics
    /// Never: a test asks for every op.
    #[must_use]
    pub fn of(op: Op) -> &'static Self {
        let named = |kernel: &&Self| kernel.name.strip_prefix("gp_") == Some(op.name());
        KERNELS.iter().find(named).expect("every op has a kernel")
    }

    /// Blocks that serve `values` values.
    #[must_use]
    pub fn blocks(&self, values: u32) -> u32 {
        values.div_ceil(self.values_per_block)
    }
}

/// The kernels that one chunk of a batch launches for `program`, in order.
pub fn kernels_of(program: &Program) -> impl Iterator<Item = &'static Kernel> {
    let packing: &[_] =
        if program.is_packed() { &[Kernel::ADD_AREAS, Kernel::PLACE, Kernel::PACK] } else { &[] };
    let ops = program.steps().iter().map(|step| Kernel::of(step.op));
    std::iter::once(Kernel::VALIDATE).chain(ops).chain(packing.iter().copied())
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

    /// Once `box` and `outbox` came out as `corners` on an H200 with driver 580.159.04. The PTX, of
    /// `c ? p && q : p || q`, was correct by reading; why it went wrong is not known: no assembler
    /// was tried on it but that driver's. `frame.cuh` says it in another way since. This test finds
    /// but the `selp` of -1 and 0 that NVRTC 12.0.140 makes of that line, not what else a driver might
    /// get wrong: against that stand the known answers, which a worker's device must give before
    /// the worker says READY.
    #[test]
    fn no_kernel_has_the_selp_that_stood_where_box_came_out_as_corners() {
        let choices: Vec<_> =
            PTX.lines().filter(|l| l.contains("selp.u32") && l.contains(" -1, 0,")).collect();
        assert!(choices.is_empty(), "{choices:?}");
    }

    #[test]
    fn every_op_has_a_kernel_of_its_name_and_every_kernel_an_op() {
        let mut unused: Vec<_> = KERNELS[4..].iter().map(|kernel| kernel.name).collect();
        for known in KNOWN_ANSWERS {
            let program = known.program();
            let kernels: Vec<_> = kernels_of(&program).map(|kernel| kernel.name).collect();
            let steps = program.steps();
            let ops: Vec<_> = steps.iter().map(|step| format!("gp_{}", step.op.name())).collect();
            assert_eq!(kernels[0], "gp_validate");
            assert_eq!(kernels[1..=steps.len()], ops);
            unused.retain(|name| !kernels.contains(name));
        }
        assert!(unused.is_empty(), "{unused:?}");
    }

    #[test]
    fn results_are_packed_where_their_size_is_not_that_of_the_input() {
        for (text, packs) in [
            ("rot90 | replace(1, 2)", false),
            ("objects(true, true, true) | argmax(size) | fill(2)", false),
            ("objects(true, true, true) | sizefilter(3)", false),
            ("rot90 | height", false),
            ("crop(0, 0, 2, 2)", true),
            ("crop(0, 0, 2, 2) | palette", false),
            ("trim | objects(true, true, true)", true),
            ("ofcolor(3)", true),
            ("apply(rot90)", false),
            ("first", true),
        ] {
            let program = Program::compile(text, Ties::Cpython).unwrap();
            assert_eq!(program.is_packed(), packs, "{text}");
            let packing = [Kernel::ADD_AREAS, Kernel::PLACE, Kernel::PACK];
            let kernels: Vec<_> = kernels_of(&program).collect();
            assert_eq!(kernels.ends_with(&packing), packs, "{text}");
        }
    }

    #[test]
    fn blocks_cover_every_value_and_no_more() {
        let kernel =
            |text| Kernel::of(Program::compile(text, Ties::Cpython).unwrap().steps()[0].op);
        let blocks = |kernel: &Kernel| [1, 4, 5, 4_097].map(|values| kernel.blocks(values));
        assert_eq!(blocks(kernel("rot90")), [1, 1, 2, 1_025]);
        assert_eq!(blocks(kernel("o_g(5)")), [1, 4, 5, 4_097]);
        assert_eq!(blocks(Kernel::PLACE), [1, 1, 1, 2]);
    }

    #[test]
    fn what_the_host_passes_as_a_number_has_that_number_in_the_kernels() {
        use gridpool_protocol::output::ItemErrorCode;
        use gridpool_protocol::program::{Key, Kind};
        let step = include_str!("../cuda/step.cuh");
        assert!(step.contains("enum Kind : u32 { GRID, OBJECTS, OBJECT, PATCH };"));
        let kinds = [Kind::Grid, Kind::Objects, Kind::Object, Kind::Patch];
        assert_eq!(kinds.map(|kind| kind as u32), [0, 1, 2, 3]);
        assert!(step.contains("enum Ties : u32 { TIES_CPYTHON, TIES_LOWEST };"));
        assert_eq!([Ties::Cpython, Ties::Lowest].map(|ties| ties as u32), [0, 1]);
        let mut keys = Key::ALL;
        keys.sort_by_key(|&key| key as u32);
        let keys = keys.map(|key| key.name().to_uppercase()).join(", ");
        assert!(include_str!("../cuda/select.cuh").contains(&format!("enum Key {{ {keys} }};")));
        let picture = include_str!("../cuda/picture.cuh");
        let (_, codes) = picture.split_once("enum Code : u32 {").expect("the codes are there");
        let (codes, _) = codes.split_once("};").expect("they end");
        let codes = codes.split(',').map(|name| name.trim().replace('_', ""));
        let codes: Vec<_> = codes.filter(|name| !name.is_empty()).collect();
        let upper = |code: ItemErrorCode| code.name().to_uppercase();
        assert_eq!(codes[0], "OK");
        assert_eq!(codes[1..], ItemErrorCode::ALL.map(upper));
        assert!(ItemErrorCode::ALL.into_iter().map(|code| code as u8).eq(1..=7));
    }

    #[test]
    fn the_constants_are_those_of_the_kernels() {
        let team = include_str!("../cuda/team.cuh");
        assert!(team.contains(&format!("BLOCK_THREADS = {BLOCK_THREADS};")));
        let pack = include_str!("../cuda/pack.cuh");
        assert!(pack.contains(&format!("TILE_VALUES = {TILE_VALUES};")));
    }
}
