//! How much memory the values of a chunk need between two steps, and where in one buffer each part
//! of it lies. Plain arithmetic, done before anything runs.

use std::ops::Range;

use gridpool_kernels::module::TILE_VALUES;
use gridpool_protocol::batch::{BatchLayout, PART_ALIGN};
use gridpool_protocol::output::OutputLayout;
use gridpool_protocol::program::{Kind, Program, Step};

/// A step reads pictures and their ground and writes others.
pub(super) const STAGES_MAX: usize = 3;

/// The most that any step of a program needs for a chunk, whose limits bound it.
#[derive(Clone, Copy, Debug)]
struct Demand {
    /// Values.
    values: usize,
    /// Cells of the pictures that a step gives.
    cells: u64,
    /// Cells of the grids that a step labels.
    labels: u64,
}

impl Demand {
    /// That of `program` over so many cells and items.
    fn of(program: &Program, cells: usize, items: usize) -> Self {
        let mut most = Self { values: items * program.takes().width(), cells: 0, labels: 0 };
        for step in program.steps() {
            most.values = most.values.max(items * step.gives.width());
            most.cells = most.cells.max(step.room(cells, items));
            if step.gives.kind == Kind::Objects {
                let room = step.ground.clamped(cells, items).capacity(cells, items);
                most.labels = most.labels.max(room);
            }
        }
        most
    }
}

/// The step that writes its grids straight into the result, where they keep their place.
pub(super) fn step_in_place(program: &Program, result: &OutputLayout) -> Option<usize> {
    let has_cells = !result.cells().is_empty() && !result.is_packed();
    let gives_grids = |step: &Step| step.gives.kind == Kind::Grid;
    program.steps().iter().rposition(gives_grids).filter(|_| has_cells)
}

/// Pictures between two steps, as parts of a buffer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct StageLayout {
    pub(super) shapes: Range<usize>,
    pub(super) origins: Range<usize>,
    pub(super) cells: Range<usize>,
}

/// Parts of the buffer for all that lies between two steps. Parts without a use are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ScratchLayout {
    /// Before and after a step, in turns.
    pub(super) status: [Range<usize>; 2],
    pub(super) stages: [StageLayout; STAGES_MAX],
    pub(super) counts: Range<usize>,
    pub(super) labels_low: Range<usize>,
    pub(super) labels_high: Range<usize>,
    /// Of the areas of tiles, and the area of all.
    pub(super) sums: Range<usize>,
    /// The length of the buffer.
    pub(super) bytes: usize,
}

impl ScratchLayout {
    /// For `program` over a chunk whose input and result have these layouts.
    pub(super) fn new(program: &Program, batch: &BatchLayout, result: &OutputLayout) -> Self {
        let demand = Demand::of(program, batch.cell_count(), batch.items());
        let bytes = |cells: u64| usize::try_from(cells).expect("a chunk's room is bounded");
        let in_result = step_in_place(program, result);
        let stages = program
            .steps()
            .iter()
            .enumerate()
            .filter(|&(at, step)| Some(at) != in_result && step.gives.kind.is_picture());
        let stages = stages.count().min(STAGES_MAX);
        let tiles = demand.values.div_ceil(TILE_VALUES as usize);

        let mut layout = Self::default();
        layout.status = [(); 2].map(|()| layout.add(2 * demand.values));
        for at in 0..stages {
            layout.stages[at] = StageLayout {
                shapes: layout.add(2 * demand.values),
                origins: layout.add(4 * demand.values),
                cells: layout.add(bytes(demand.cells)),
            };
        }
        layout.counts = layout.add(2 * demand.values);
        layout.labels_low = layout.add(bytes(demand.labels));
        layout.labels_high = layout.add(bytes(demand.labels));
        layout.sums = layout.add(4 * (tiles + 1));
        layout
    }

    /// The next part, of so many bytes.
    fn add(&mut self, bytes: usize) -> Range<usize> {
        let start = self.bytes;
        self.bytes = (start + bytes).next_multiple_of(PART_ALIGN);
        start..start + bytes
    }
}

#[cfg(test)]
mod tests {
    use gridpool_protocol::program::Ties;

    use super::*;

    fn compile(text: &str) -> Program {
        Program::compile(text, Ties::Cpython).unwrap()
    }

    #[test]
    fn parts_of_the_scratch_follow_each_other_and_none_is_reserved_in_vain() {
        let batch = BatchLayout::new(3, 1, 100).unwrap();
        let layout = |text| {
            let program = compile(text);
            let result = OutputLayout::new(&program, batch).unwrap();
            ScratchLayout::new(&program, &batch, &result)
        };
        let stages = |text| layout(text).stages.iter().filter(|s| !s.cells.is_empty()).count();
        assert_eq!(stages("rot90"), 0);
        assert_eq!(stages("palette"), 0);
        assert_eq!(stages("rot90 | rot90"), 1);
        assert_eq!(stages("crop(0, 0, 2, 2)"), 1);
        assert_eq!(stages("objects(true, true, true) | argmax(size) | fill(2)"), 1);
        assert_eq!(stages("rot90 | ofcolor(1) | box | outbox | subgrid | trim"), 3);
        assert_eq!(layout("palette").labels_low.len(), 0);
        assert_eq!(layout("objects(true, true, true)").labels_low.len(), 100);
        let two = layout("crop(0, 0, 2, 2) | upscale(2)");
        assert_eq!(two.stages[0].cells.len(), 400);
        assert!(two.status[0].end <= two.status[1].start);
        assert!(two.stages[0].cells.end <= two.stages[1].shapes.start);
        assert!(two.sums.end <= two.bytes);
    }
}
