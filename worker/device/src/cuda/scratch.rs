//! How much memory the values of a chunk need between two launches, and where each part of it lies in one
//! buffer. Plain arithmetic, done before anything runs.

use std::ops::Range;

use gridpool_kernels::module::{Segment, TILE_VALUES, segments};
use gridpool_protocol::batch::BatchLayout;
use gridpool_protocol::program::{Extent, Kind, Program};

use super::parts::Parts;

/// A launch reads one stage of grids and writes another.
pub(super) const STAGES_MAX: usize = 2;

/// The most memory that a program needs between two launches of a chunk within its limits.
#[derive(Clone, Copy, Debug)]
struct Demand {
    /// Values.
    values: usize,
    /// Cells of the pictures that a launch leaves to the next.
    cells: u64,
    /// Launches that leave pictures.
    stages: usize,
    /// Cells of the grids whose labels are kept until they are packed.
    labels: u64,
}

impl Demand {
    /// The demand of `program` over this many cells and items.
    fn of(program: &Program, cells: usize, items: usize) -> Self {
        let values = items * program.takes().width();
        let mut most = Self { values, cells: 0, stages: 0, labels: 0 };
        for segment in segments(program) {
            let last = match segment {
                Segment::Chain(steps, _) if steps.is_empty() => continue,
                Segment::Chain(steps, _) => steps.end - 1,
                Segment::Tuple(at, _) => at,
            };
            let step = &program.steps()[last];
            most.values = most.values.max(items * step.gives.width());
            let capacity =
                picture_capacity(program, last).clamped(cells, items).capacity(cells, items);
            if leaves_pictures(program, last) {
                most.cells = most.cells.max(capacity);
                most.stages += 1;
            }
            if program.is_packed() && step.gives.kind == Kind::Objects {
                most.labels = capacity;
            }
        }
        Self { stages: most.stages.min(STAGES_MAX), ..most }
    }
}

/// Whether the launch that ends with step `at` leaves pictures to the next launch: grids between two
/// launches, or grids to pack after the last.
pub(super) fn leaves_pictures(program: &Program, at: usize) -> bool {
    let is_last = at + 1 == program.steps().len();
    if is_last { program.is_packed() } else { program.steps()[at].gives.kind == Kind::Grid }
}

/// The capacity of the pictures that step `at` gives; for lists of objects, of their grids.
pub(super) fn picture_capacity(program: &Program, at: usize) -> Extent {
    let step = &program.steps()[at];
    if step.gives.kind == Kind::Objects { step.ground } else { step.to }
}

/// Pictures between two launches, as parts of a buffer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct StageLayout {
    pub(super) shapes: Range<usize>,
    pub(super) cells: Range<usize>,
}

/// What a solver leaves before its results are packed, as parts of a buffer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SolvedLayout {
    /// Where each item's result lies in `made`, and its length.
    pub(super) places: Range<usize>,
    pub(super) lengths: Range<usize>,
    /// The items of a further launch.
    pub(super) left: Range<usize>,
    /// The results, in the order in which they were made.
    pub(super) made: Range<usize>,
}

/// Parts of the buffer for all values between two launches. Unused parts are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ScratchLayout {
    /// Before and after a launch, alternately.
    pub(super) status: [Range<usize>; 2],
    pub(super) stages: [StageLayout; STAGES_MAX],
    pub(super) labels_low: Range<usize>,
    pub(super) labels_high: Range<usize>,
    pub(super) solved: SolvedLayout,
    /// The areas of tiles, and their total.
    pub(super) sums: Range<usize>,
    /// The length of the buffer.
    pub(super) bytes: usize,
}

impl ScratchLayout {
    /// For `program` over a chunk of this layout.
    pub(super) fn new(program: &Program, batch: &BatchLayout) -> Self {
        let demand = Demand::of(program, batch.cell_count(), batch.items());
        let bytes = |cells: u64| usize::try_from(cells).expect("a chunk's capacity is bounded");
        // Counted for the values that are packed, so that the total area comes last.
        let packed = batch.items() * program.gives().width();

        let (mut layout, mut parts) = (Self::default(), Parts::default());
        layout.status = [(); 2].map(|()| parts.add(2 * demand.values));
        for at in 0..demand.stages {
            layout.stages[at] = StageLayout {
                shapes: parts.add(2 * demand.values),
                cells: parts.add(bytes(demand.cells)),
            };
        }
        layout.labels_low = parts.add(bytes(demand.labels));
        layout.labels_high = parts.add(bytes(demand.labels));
        layout.sums = parts.add(sums_bytes(packed));
        layout.bytes = parts.bytes;
        layout
    }

    /// For a solver over so many items, whose results have so many bytes together.
    pub(super) fn of_solver(items: usize, bytes: usize) -> Self {
        let (mut layout, mut parts) = (Self::default(), Parts::default());
        layout.solved = SolvedLayout {
            places: parts.add(4 * items),
            lengths: parts.add(4 * items),
            left: parts.add(4 * items),
            made: parts.add(bytes),
        };
        layout.sums = parts.add(sums_bytes(items));
        layout.bytes = parts.bytes;
        layout
    }
}

/// Of the areas of the tiles of so many values, and their total.
fn sums_bytes(values: usize) -> usize {
    4 * (values.div_ceil(TILE_VALUES as usize) + 1)
}

#[cfg(test)]
mod tests {
    use gridpool_protocol::program::Ties;

    use super::*;

    fn compile(text: &str) -> Program {
        Program::compile(text, Ties::Cpython).unwrap()
    }

    #[test]
    fn parts_of_the_scratch_follow_each_other_and_none_is_unused() {
        let batch = BatchLayout::new(3, 1, 100).unwrap();
        let layout = |text| ScratchLayout::new(&compile(text), &batch);
        let stages = |text| layout(text).stages.iter().filter(|s| !s.cells.is_empty()).count();
        assert_eq!(stages("rot90"), 0);
        assert_eq!(stages("palette"), 0);
        assert_eq!(stages("rot90 | rot90"), 0);
        assert_eq!(stages("crop(0, 0, 2, 2)"), 1);
        assert_eq!(stages("crop(0, 0, 2, 2) | palette"), 0);
        assert_eq!(stages("objects(true, true, true) | argmax(size) | fill(2)"), 0);
        assert_eq!(stages("hsplit(2) | apply(trim) | hconcat | palette"), 2);
        assert_eq!(layout("palette").labels_low.len(), 0);
        assert_eq!(layout("objects(true, true, true)").labels_low.len(), 0);
        assert_eq!(layout("trim | objects(true, true, true)").labels_low.len(), 100);
        let two = layout("upscale(2) | vsplit(2) | vconcat");
        assert_eq!(two.stages[0].cells.len(), 400);
        assert!(two.status[0].end <= two.status[1].start);
        assert!(two.stages[0].cells.end <= two.stages[1].shapes.start);
        assert!(two.sums.end <= two.bytes);
    }

    #[test]
    fn the_area_of_all_that_is_packed_is_the_last_of_the_sums() {
        for (text, items, tiles) in [
            ("trim", 5_000, 5),
            ("first", 5_000, 5),
            ("hsplit(3)", 5_000, 15),
            ("hconcat", 1_024, 1),
        ] {
            let program = compile(text);
            let batch = BatchLayout::new(items, program.grids_per_item(), 20_000).unwrap();
            let sums = ScratchLayout::new(&program, &batch).sums;
            assert_eq!(sums.len(), 4 * (tiles + 1), "{text}");
        }
    }
}
