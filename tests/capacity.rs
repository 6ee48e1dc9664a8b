//! The capacity that a program has for its pictures, and the sizes of its grids that do not depend on cells, computed
//! before it runs, against what they need and are: after every step, for every value. The kernels of a GPU rely on it.

use gridpool_kernels::reference::run_batch;
use gridpool_protocol::batch::{Grid, GridBatch};
use gridpool_protocol::limits::GRID_CELLS_MAX;
use gridpool_protocol::output::OutputLayout;
use gridpool_protocol::program::{Kind, Program, Step, Ties, Type};
use gridpool_tests::oracle::chains;
use gridpool_tests::oracle::samples::{self, SplitMix64};

const CHAINS: usize = 1_500;
const CALLS_MAX: usize = 12;
const SEED: u64 = 5;

/// Where many small parts, and pictures that grow, follow each other.
const TEXTS: &[&str] = &[
    "hsplit(30) | apply(upscale(3)) | hconcat",
    "upscale(2) | hsplit(3) | apply(asobject | outbox | fill(1)) | vconcat",
    "upscale(2) | hsplit(7) | apply(o_g(5) | merge | inbox)",
    "vsplit(30) | apply(asindices | outbox | outbox) | apply(backdrop)",
    "first | vsplit(4) | apply(vupscale(5) | hupscale(2)) | nth(2) | upscale(3)",
    "apply(upscale(3) | canvas(1, 2, 9)) | hconcat | hsplit(5)",
    "apply(asobject | upscale(2) | inbox)",
    "upscale(30) | upscale(30) | hsplit(2) | apply(downscale(3))",
];

#[test]
fn no_picture_needs_more_than_its_capacity_after_any_step() {
    let mut rng = SplitMix64::new(SEED);
    let drawn = (0..CHAINS).map(|at| {
        let takes = if at % 2 == 0 { Type::PAIR } else { Type::one(Kind::Grid) };
        chains::random_program(&mut rng, takes, CALLS_MAX)
    });
    let written = TEXTS.iter().map(|text| Program::compile(text, Ties::Cpython).expect(text));
    let (grids, pairs) = batches();
    for program in written.chain(drawn.collect::<Vec<_>>()) {
        let batch = if program.takes() == Type::PAIR { &pairs } else { &grids };
        for steps in 1..=program.steps().len() {
            check(&program.steps()[..steps], program.ties(), batch);
        }
    }
}

/// Runs the steps as a program of their own and compares each value's area with its capacity.
fn check(steps: &[Step], ties: Ties, batch: &GridBatch) {
    let last = steps.last().expect("at least one");
    if !last.gives.kind.is_picture() {
        return;
    }
    let text = steps.iter().map(Step::to_string).collect::<Vec<_>>().join(" | ");
    let program = Program::compile(&text, ties).expect("the start of a program is one");
    assert_eq!(program.extent(), last.to, "{text}");
    let outputs = run_batch(&program, batch).expect("a small batch");
    let layout = OutputLayout::new(&program, batch.layout().expect("items")).expect("small");
    let (status, shapes) = (&outputs.packed()[layout.status()], &outputs.packed()[layout.shapes()]);
    let offsets = batch.tables().offsets();
    let is_of_grids = program.takes() == Type::one(Kind::Grid) && last.gives.kind == Kind::Grid;
    for (value, shape) in shapes.as_chunks::<2>().0.iter().enumerate() {
        let item = value / last.gives.width();
        if is_of_grids && status[2 * value] == 0 {
            let size = batch.tables().shapes()[item].map(usize::from);
            if let Ok(known) = program.sizes_of_result(size) {
                let known = known[value % last.gives.width()];
                assert_eq!(shape.map(usize::from), known, "{text}: value {value} of {size:?}");
            }
        }
        let area = u64::from(shape[0]) * u64::from(shape[1]);
        let capacity = last.to.start_of(offsets, value + 1) - last.to.start_of(offsets, value);
        assert!(
            area <= capacity,
            "{text}: value {value} has {area} cells and a capacity of {capacity}"
        );
        assert!(area <= GRID_CELLS_MAX as u64, "{text}: value {value} has {area} cells");
    }
}

/// Small and odd grids, whose parts and frames come nearest to their capacity, and a few large ones.
fn batches() -> (GridBatch, GridBatch) {
    let mut grids: Vec<Grid> = (1..=9).flat_map(|h| (1..=9).map(move |w| plain(h, w))).collect();
    grids.extend([plain(1, 255), plain(255, 1), plain(64, 64), plain(1, 31), plain(30, 29)]);
    grids.extend(samples::random_grids(SEED, 20));
    let mut pairs: Vec<(Grid, Option<Grid>)> =
        grids.iter().zip(grids.iter().rev()).map(|(a, b)| (a.clone(), Some(b.clone()))).collect();
    pairs.extend(samples::random_pairs(SEED, 20));
    let pairs = pairs.iter().map(|(input, output)| (input, output.as_ref()));
    let pairs = GridBatch::from_pairs(pairs).expect("they fit a job");
    (GridBatch::from_grids(&grids).expect("they fit a job"), pairs)
}

fn plain(h: usize, w: usize) -> Grid {
    let color = |at: usize| u8::try_from(at * at % 7 % 4).expect("a colour");
    Grid::new(h, w, (0..h * w).map(color).collect()).expect("within the limits")
}
