//! The kernels of a GPU as one PTX module: its text, its hash, its entry points, and which of them a program
//! launches. The worker loads and launches them.

use std::ops::Range;
use std::sync::LazyLock;

use gridpool_protocol::program::{Extent, Kind, Launch, Op, Program, Step, hex};
use sha2::{Digest, Sha256};

/// PTX 8.0 for compute capability 6.0 and up, made from `kernels/cuda` by `kernels/build_ptx.py`.
pub static PTX: &str = include_str!("../ptx/gridpool.ptx");

/// The oldest CUDA whose drivers load [`PTX`], as `cuDriverGetVersion` counts: 12.0.
pub const CUDA_VERSION_MIN: u32 = 12_000;

/// Threads per block of every kernel: `BLOCK_THREADS` of `kernels/cuda/team.cuh`.
pub const BLOCK_THREADS: u32 = 128;

/// About how many warps fit on a device; more values than that are served in rounds.
const WARPS_WANTED: u32 = 4_096;

/// Values whose areas one block of [`Kernel::ADD_AREAS`] adds up: `TILE_VALUES` of
/// `kernels/cuda/pack.cuh`.
pub const TILE_VALUES: u32 = 1_024;

/// Most cells of a value that takes little shared memory: `SMALL_CELLS` of `kernels/cuda/chain.cuh`.
pub const SMALL_CELLS: u32 = 1_024;

/// Warps of a block with capacity for any value, and the values that each checks: constants of
/// `kernels/cuda/chain.cuh`.
const LARGE_WARPS: u32 = 2;
const LARGE_VALUES_PER_WARP: u32 = 4;

/// One entry point of the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// Its name in the module and in receipts.
    pub name: &'static str,
    /// Values that one block serves.
    values_per_block: u32,
    /// If there are many values, a block serves up to this many groups of them, one after the other.
    rounds_max: u32,
}

/// One warp per value.
const fn warp(name: &'static str) -> Kernel {
    rounds(name, 1)
}

/// One warp per value, and up to `rounds_max` values one after the other.
const fn rounds(name: &'static str, rounds_max: u32) -> Kernel {
    Kernel { name, values_per_block: 4, rounds_max }
}

/// One block per tile of values.
const fn tile(name: &'static str) -> Kernel {
    tile_of(name, TILE_VALUES)
}

/// One block per `values_per_block` values.
const fn tile_of(name: &'static str, values_per_block: u32) -> Kernel {
    Kernel { name, values_per_block, rounds_max: 1 }
}

/// Every entry point of the module.
pub const KERNELS: &[Kernel] = &[
    rounds("gp_chain", 8),
    tile_of("gp_chain_large", LARGE_WARPS * LARGE_VALUES_PER_WARP),
    rounds("gp_images", 16),
    rounds("gp_lists", 8),
    tile("gp_add_areas"),
    tile("gp_place"),
    warp("gp_pack"),
    warp("gp_take_planes"),
    warp("gp_put_planes"),
    warp("gp_cellwise"),
    warp("gp_hconcat"),
    warp("gp_hsplit"),
    warp("gp_nth"),
    warp("gp_vconcat"),
    warp("gp_vsplit"),
];

/// How many of them come before those of [`Kernel::of_tuples`].
const NOT_OF_TUPLES: usize = 9;

/// The op of a chain that stands for any number of symmetries and recolourings.
pub const IMAGE: &str = "image";

/// The ops of a chain, ordered by their codes: [`IMAGE`], then by name.
pub static CHAIN_OPS: LazyLock<Vec<&str>> = LazyLock::new(|| {
    let in_chains = Op::rows().filter(|row| row.launch == Some(Launch::Chain));
    let mut names: Vec<_> = in_chains.map(|row| row.name).collect();
    names.sort_unstable();
    names.insert(0, IMAGE);
    names
});

/// The header `opcodes.cuh`, with which `kernels/build_ptx.py` compiles the kernels.
#[must_use]
pub fn opcodes() -> String {
    let codes = CHAIN_OPS.iter().map(|name| format!("    OP_{},\n", name.to_uppercase()));
    let codes: String = codes.collect();
    format!("#pragma once\n\n#include \"team.cuh\"\n\nenum Opcode : u8 {{\n{codes}}};\n")
}

impl Kernel {
    /// Runs a chain over the values with at most [`SMALL_CELLS`] cells at every op.
    pub const CHAIN: &'static Self = &KERNELS[0];
    /// Runs a chain over the values that [`Kernel::CHAIN`] left.
    pub const CHAIN_LARGE: &'static Self = &KERNELS[1];
    /// Runs a chain of only symmetries and recolourings over the grids of the input.
    pub const IMAGES: &'static Self = &KERNELS[2];
    /// Lists the objects of the grids of the input; [`Kernel::CHAIN_LARGE`] those of large grids.
    pub const LISTS: &'static Self = &KERNELS[3];
    /// The first of three kernels that pack a result of unknown size: adds up areas. See [`packing`].
    pub const ADD_AREAS: &'static Self = &KERNELS[4];
    /// The second: gives every value its place.
    pub const PLACE: &'static Self = &KERNELS[5];
    /// The third: gathers the cells.
    pub const PACK: &'static Self = &KERNELS[6];
    /// Takes grids of several sizes out of a tensor.
    pub const TAKE_PLANES: &'static Self = &KERNELS[7];
    /// Lays results of several sizes into a tensor.
    pub const PUT_PLANES: &'static Self = &KERNELS[8];

    /// The kernel of an op that makes one grid of several, or several of one; `None` for an op that chains run.
    #[must_use]
    pub fn of_tuples(op: Op) -> Option<&'static Self> {
        let is_of = |kernel: &&Self| kernel.name.strip_prefix("gp_") == Some(op.name());
        KERNELS[NOT_OF_TUPLES..].iter().find(is_of)
    }

    /// How many rounds a block serves, so that there are enough blocks but not too many.
    #[must_use]
    pub fn rounds(&self, values: u32) -> u32 {
        (values / WARPS_WANTED).clamp(1, self.rounds_max)
    }

    /// Blocks that serve `values` values.
    #[must_use]
    pub fn blocks(&self, values: u32) -> u32 {
        values.div_ceil(self.values_per_block * self.rounds(values))
    }
}

/// The code of `op` in a chain.
///
/// # Panics
/// If the op has a kernel of its own: see [`Kernel::of_tuples`].
#[must_use]
pub fn chain_code(op: Op) -> u8 {
    let name = if op.launch() == Launch::Image { IMAGE } else { op.name() };
    let code = CHAIN_OPS.iter().position(|known| *known == name);
    let code = code.expect("every op is of a chain or has a kernel of its own");
    u8::try_from(code).expect("there are fewer than 256 ops")
}

/// Steps of a program that run in one launch, or in two if some values need more capacity than others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Segment {
    /// Ops from one value to one value, and the kernel for values that need little capacity. The first segment
    /// of a program is a chain, with no steps if necessary, because it checks the cells.
    Chain(Range<usize>, &'static Kernel),
    /// An op on tuples.
    Tuple(usize, &'static Kernel),
}

/// The segments of a program, in order, without gaps.
#[must_use]
pub fn segments(program: &Program) -> Vec<Segment> {
    let mut segments = vec![Segment::Chain(0..0, Kernel::CHAIN)];
    for (at, step) in program.steps().iter().enumerate() {
        match (Kernel::of_tuples(step.op), segments.last_mut()) {
            (Some(kernel), _) => segments.push(Segment::Tuple(at, kernel)),
            (None, Some(Segment::Chain(steps, _))) => steps.end = at + 1,
            (None, Some(Segment::Tuple(..)) | None) => {
                segments.push(Segment::Chain(at..at + 1, Kernel::CHAIN));
            }
        }
    }
    if let Some(Segment::Chain(steps, kernel)) = segments.first_mut() {
        *kernel = first_kernel(program, &program.steps()[steps.clone()]);
    }
    segments
}

/// The kernel for the first segment: the most common ones have a kernel of their own.
fn first_kernel(program: &Program, steps: &[Step]) -> &'static Kernel {
    let is_image = |step: &Step| step.gives.kind == Kind::Grid && step.op.launch() == Launch::Image;
    match steps {
        [Step { op: Op::Objects { .. }, .. }] if !program.is_packed() => Kernel::LISTS,
        [_, ..] if steps.iter().all(is_image) => Kernel::IMAGES,
        _ => Kernel::CHAIN,
    }
}

/// Whether no value of `program` has more than [`SMALL_CELLS`] cells in a chain, over grids of at most
/// `area_max`.
#[must_use]
pub fn is_small(program: &Program, area_max: usize) -> bool {
    let fits = |extent: Extent| extent.value_max(area_max) <= u64::from(SMALL_CELLS);
    area_max <= SMALL_CELLS as usize
        && program.steps().iter().all(|step| {
            fits(step.from) && fits(step.ground) && (!step.gives.kind.is_picture() || fits(step.to))
        })
}

/// The kernels that pack so many values, in order: those of one tile need no sums before.
#[must_use]
pub fn packing(values: u32) -> &'static [&'static Kernel] {
    const ALL: &[&Kernel] = &[Kernel::ADD_AREAS, Kernel::PLACE, Kernel::PACK];
    if values > TILE_VALUES { ALL } else { &ALL[2..] }
}

/// The kernels that one chunk of a batch of so many items launches for `program`, in order.
pub fn kernels_of(
    program: &Program,
    area_max: usize,
    items: u32,
) -> impl Iterator<Item = &'static Kernel> {
    let is_small = is_small(program, area_max);
    let values = items.saturating_mul(program.gives().tuple.map_or(1, u32::from));
    let packing = if program.is_packed() { packing(values) } else { &[] };
    let launched = segments(program).into_iter().flat_map(move |segment| match segment {
        Segment::Chain(_, kernel) if is_small || kernel == Kernel::IMAGES => vec![kernel],
        Segment::Chain(_, kernel) => vec![kernel, Kernel::CHAIN_LARGE],
        Segment::Tuple(_, kernel) => vec![kernel],
    });
    launched.chain(packing.iter().copied())
}

/// SHA-256 of [`PTX`], in hexadecimal: receipts of GPU devices name it.
#[must_use]
pub fn module_hash() -> &'static str {
    static HASH: LazyLock<String> = LazyLock::new(|| hex(&Sha256::digest(PTX)));
    &HASH
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

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
    fn the_ptx_is_old_enough_for_every_accepted_driver() {
        assert!(PTX.contains("\n.version 8.0\n.target sm_60\n"));
    }

    /// `box` and `outbox` once gave `corners` on an H200 with driver 580.159.04. The PTX of
    /// `c ? p && q : p || q` was correct on reading; the cause is unknown, because no assembler but that driver's
    /// was tried. `frame.cuh` expresses it differently now. This test finds only the `selp` of -1 and 0 that NVRTC
    /// 12.0.140 makes of that line. Other faults of a driver show in the known answers, which a worker's device
    /// must give before the worker is READY.
    #[test]
    fn no_kernel_has_the_selp_of_box_that_gave_corners() {
        let choices: Vec<_> =
            PTX.lines().filter(|l| l.contains("selp.u32") && l.contains(" -1, 0,")).collect();
        assert!(choices.is_empty(), "{choices:?}");
    }

    #[test]
    fn every_op_is_in_a_chain_or_has_a_kernel_and_no_code_or_kernel_is_unused() {
        let mut codes: BTreeSet<u8> = BTreeSet::new();
        let mut kernels: BTreeSet<&str> = BTreeSet::new();
        for known in KNOWN_ANSWERS {
            let program = known.program();
            for step in program.steps() {
                match Kernel::of_tuples(step.op) {
                    Some(kernel) => drop(kernels.insert(kernel.name)),
                    None => drop(codes.insert(chain_code(step.op))),
                }
            }
        }
        assert!(codes.into_iter().map(usize::from).eq(0..CHAIN_OPS.len()));
        assert_eq!(kernels.len(), KERNELS.len() - NOT_OF_TUPLES);
    }

    #[test]
    fn segments_follow_each_other_and_the_first_is_a_chain() {
        let text = |text: &str| {
            let program = Program::compile(text, Ties::Cpython).unwrap();
            let segments = segments(&program);
            let texts = segments.into_iter().map(|segment| match segment {
                Segment::Chain(steps, kernel) => format!("{steps:?} {}", &kernel.name[3..]),
                Segment::Tuple(step, kernel) => format!("{step} {}", kernel.name),
            });
            texts.collect::<Vec<_>>().join(", ")
        };
        assert_eq!(text("rot90 | o_g(5) | size"), "0..3 chain");
        assert_eq!(text("rot90 | replace(1, 2)"), "0..2 images");
        assert_eq!(text("apply(rot90)"), "0..1 images");
        assert_eq!(text("o_g(5)"), "0..1 lists");
        assert_eq!(text("apply(o_g(5))"), "0..1 lists");
        assert_eq!(text("rot90 | o_g(5)"), "0..2 chain");
        assert_eq!(text("first"), "0..0 chain, 0 gp_nth");
        let joined = "trim | hsplit(3) | apply(rot90) | apply(trim) | hconcat | palette";
        assert_eq!(text(joined), "0..1 chain, 1 gp_hsplit, 2..4 chain, 4 gp_hconcat, 5..6 chain");
    }

    #[test]
    fn a_chain_is_small_only_if_no_op_can_make_more_of_the_largest_grid() {
        for (text, area_max, small) in [
            ("rot90", 1_024, true),
            ("rot90", 1_025, false),
            ("upscale(2)", 256, true),
            ("upscale(2)", 257, false),
            ("upscale(2) | width", 257, false),
            ("ofcolor(1) | outbox", 900, false),
            ("canvas(1, 60, 60) | width", 1, false),
            ("o_g(5) | argmax(size) | fill(1)", 1_024, true),
        ] {
            let program = Program::compile(text, Ties::Cpython).unwrap();
            assert_eq!(is_small(&program, area_max), small, "{text} over {area_max}");
        }
    }

    #[test]
    fn results_whose_size_differs_from_the_input_are_packed() {
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
            for items in [2, 5_000] {
                let kernels: Vec<_> = kernels_of(&program, 900, items).collect();
                assert_eq!(kernels.ends_with(&[Kernel::PACK]), packs, "{text}");
                assert_eq!(kernels.contains(&Kernel::PLACE), packs && items > 2, "{text}");
            }
        }
    }

    #[test]
    fn blocks_cover_every_value_and_no_more() {
        let blocks = |kernel: &Kernel| [1, 4, 5, 4_097].map(|values| kernel.blocks(values));
        assert_eq!(blocks(Kernel::CHAIN), [1, 1, 2, 1_025]);
        assert_eq!(Kernel::CHAIN.blocks(100_000), 3_125);
        assert_eq!(Kernel::IMAGES.blocks(12_288), 1_024);
        assert_eq!(blocks(Kernel::CHAIN_LARGE), [1, 1, 1, 513]);
        assert_eq!(blocks(Kernel::PLACE), [1, 1, 1, 5]);
    }

    #[test]
    fn the_kernels_were_compiled_with_the_code_of_every_op_of_a_chain() {
        let digest = hex(&Sha256::digest(opcodes()));
        assert!(PTX.starts_with(&format!("// opcodes.cuh {digest}\n")), "run kernels/build_ptx.py");
    }

    /// A switch without the code of a new op runs its `default` in silence.
    #[test]
    fn the_kernels_name_every_op_of_a_chain() {
        /// Each is the last choice where all others are named.
        const LAST_CHOICES: [&str; 4] = ["color", "move", "palette", "partition"];
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/cuda");
        let sources = std::fs::read_dir(folder)
            .expect("the sources are there")
            .map(|entry| entry.expect("an entry").path())
            .filter(|path| path.is_file())
            .map(|path| std::fs::read_to_string(path).expect("a text"));
        let sources: String = sources.collect();
        let words = sources.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let words: BTreeSet<_> = words.collect();
        let is_named = |name: &str| words.contains(&*format!("OP_{}", name.to_uppercase()));
        let missing = CHAIN_OPS.iter().filter(|name| !is_named(name));
        assert!(missing.eq(&LAST_CHOICES), "write a `case` for each new op in kernels/cuda");
    }

    #[test]
    fn enums_of_the_host_have_the_same_numbers_in_the_kernels() {
        use gridpool_protocol::output::ItemErrorCode;
        use gridpool_protocol::program::{Key, Symmetry};
        let step = include_str!("../cuda/step.cuh");
        let kinds = "GRID, OBJECTS, OBJECT, PATCH, NUMBER, VECTOR, FLAG, PALETTE";
        assert!(step.contains(&format!("enum Kind : u8 {{ {kinds} }};")));
        assert!(Kind::ALL.into_iter().map(|kind| kind as u8).eq(0..8));
        let symmetries = listed(include_str!("../cuda/symmetry.cuh"), "enum Symmetry : u8 {");
        assert!(symmetries.eq(Symmetry::ALL.map(|symmetry| symmetry.name().to_uppercase())));
        let ties = include_str!("../cuda/ties.cuh");
        assert!(ties.contains("enum Ties : u32 { TIES_CPYTHON, TIES_LOWEST };"));
        assert_eq!([Ties::Cpython, Ties::Lowest].map(|ties| ties as u32), [0, 1]);
        let mut keys = Key::ALL;
        keys.sort_by_key(|&key| key as u32);
        let keys = keys.map(|key| key.name().to_uppercase()).join(", ");
        assert!(include_str!("../cuda/select.cuh").contains(&format!("enum Key {{ {keys} }};")));
        let picture = include_str!("../cuda/picture.cuh");
        let codes: Vec<_> =
            listed(picture, "enum Code : u32 {").map(|n| n.replace('_', "")).collect();
        let upper = |code: ItemErrorCode| code.name().to_uppercase();
        assert_eq!(codes[0], "OK");
        // The last codes are of solvers.
        let of_ops =
            ItemErrorCode::ALL.into_iter().take_while(|code| *code <= ItemErrorCode::BadShape);
        assert_eq!(codes[1..], of_ops.map(upper).collect::<Vec<_>>());
        assert!(ItemErrorCode::ALL.into_iter().map(|code| code as u8).eq(1..=10));
    }

    /// The names of an enum in the kernels.
    fn listed<'a>(source: &'a str, start: &str) -> impl Iterator<Item = String> + use<'a> {
        let (_, names) = source.split_once(start).expect("the enum is there");
        let (names, _) = names.split_once("};").expect("it ends");
        names.split(',').map(|name| name.trim().to_owned()).filter(|name| !name.is_empty())
    }

    #[test]
    fn the_constants_are_those_of_the_kernels() {
        let team = include_str!("../cuda/team.cuh");
        assert!(team.contains(&format!("BLOCK_THREADS = {BLOCK_THREADS};")));
        let pack = include_str!("../cuda/pack.cuh");
        assert!(pack.contains(&format!("TILE_VALUES = {TILE_VALUES};")));
        let chain = include_str!("../cuda/chain.cuh");
        assert!(chain.contains(&format!("SMALL_CELLS = {SMALL_CELLS};")));
        assert!(chain.contains(&format!("LARGE_WARPS = {LARGE_WARPS};")));
        assert!(chain.contains(&format!("LARGE_VALUES_PER_WARP = {LARGE_VALUES_PER_WARP};")));
    }
}
