//! Cuts a batch into runs of neighbouring items that a device works on one after the other, so
//! that a batch, and what a program makes of it, may be larger than the device's memory. Plain
//! arithmetic.

use gridpool_kernels::part::Run;
use gridpool_protocol::batch::Tables;
use gridpool_protocol::program::Program;

/// How large a chunk may be, as it comes and after every step. One item is always allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkLimits {
    /// Most items, and most values of all items together.
    pub items_max: usize,
    /// Most cells of all items together, and most room for cells where a step makes new pictures.
    pub cells_max: usize,
}

/// Cuts a batch for `program` into chunks, in order, each as large as `limits` allow.
pub(crate) fn cut(program: &Program, tables: &Tables, limits: ChunkLimits) -> Vec<Run> {
    let grids_per_item = program.takes().width();
    let items = tables.shapes().len() / grids_per_item;
    let cells_before = |item: usize| tables.offsets()[item * grids_per_item] as usize;
    let run = |start: usize, end: usize| Run {
        items: start..end,
        cells: cells_before(start)..cells_before(end),
    };
    let mut chunks = Vec::new();
    let mut start = 0;
    while start < items {
        // The longest that fits, by bisection: more items never need less.
        let (mut fits, mut too_long) = (start + 1, items + 1);
        while too_long - fits > 1 {
            let end = fits.midpoint(too_long);
            if is_within(program, &run(start, end), limits) {
                fits = end;
            } else {
                too_long = end;
            }
        }
        chunks.push(run(start, fits));
        start = fits;
    }
    chunks
}

/// Whether a run needs no more than `limits` allow, before the first step and after each.
fn is_within(program: &Program, run: &Run, limits: ChunkLimits) -> bool {
    let (items, cells) = (run.items.len(), run.cells.len());
    let may_have =
        |values: usize, room: u64| values <= limits.items_max && room <= limits.cells_max as u64;
    may_have(items * program.takes().width(), cells as u64)
        && program
            .steps()
            .iter()
            .all(|step| may_have(items * step.gives.width(), step.room(cells, items)))
}

#[cfg(test)]
mod tests {
    use gridpool_protocol::batch::{Grid, GridBatch};
    use gridpool_protocol::program::Ties;

    use super::*;

    fn compile(text: &str) -> Program {
        Program::compile(text, Ties::Cpython).unwrap()
    }

    fn grid(area: usize) -> Grid {
        match area {
            4_096 => Grid::new(64, 64, vec![0; area]).unwrap(),
            900 => Grid::new(30, 30, vec![0; area]).unwrap(),
            _ => Grid::new(1, area, vec![0; area]).unwrap(),
        }
    }

    const AREAS: [usize; 11] = [1, 1, 30, 900, 4_096, 1, 2, 3, 64, 64, 1];

    #[test]
    fn chunks_follow_each_other_and_keep_the_limits() {
        let batch = GridBatch::from_grids(&AREAS.map(grid)).unwrap();
        for (items_max, cells_max) in [(1, 1), (3, 100), (100, 1_000), (2, 10_000), (2, usize::MAX)]
        {
            let limits = ChunkLimits { items_max, cells_max };
            let chunks = cut(&compile("rot90"), batch.tables(), limits);
            assert_eq!(chunks[0].items.start, 0);
            assert_eq!(chunks.last().unwrap().items.end, AREAS.len());
            for pair in chunks.windows(2) {
                assert_eq!(pair[0].items.end, pair[1].items.start);
                assert_eq!(pair[0].cells.end, pair[1].cells.start);
                let with_next = pair[0].cells.len() + AREAS[pair[1].items.start];
                assert!(pair[0].items.len() == items_max || with_next > cells_max, "{pair:?}");
            }
            for chunk in &chunks {
                let cells: usize = AREAS[chunk.items.clone()].iter().sum();
                assert_eq!(chunk.cells.len(), cells);
                assert!(chunk.items.len() <= items_max);
                assert!(cells <= cells_max || chunk.items.len() == 1);
            }
        }
    }

    #[test]
    fn a_pair_stays_in_one_chunk() {
        let grids = AREAS.map(grid);
        let pairs = grids.iter().map(|grid| (grid, (grid.w() > 1).then_some(grid)));
        let batch = GridBatch::from_pairs(pairs).unwrap();
        let limits = ChunkLimits { items_max: 4, cells_max: 200 };
        let chunks = cut(&compile("hconcat"), batch.tables(), limits);
        let ends: Vec<_> = chunks.iter().map(|c| (c.items.end, c.cells.end)).collect();
        let want =
            [(2, 2), (3, 62), (4, 1_862), (5, 10_054), (7, 10_059), (9, 10_193), (11, 10_322)];
        assert_eq!(ends, want);
    }

    #[test]
    fn a_chunk_is_shorter_where_a_step_makes_its_grids_grow() {
        let batch = GridBatch::from_grids(&vec![grid(30); 1_000]).unwrap();
        let limits = ChunkLimits { items_max: 1_000, cells_max: 60_000 };
        for (text, items) in [
            ("rot90", 1_000),
            ("upscale(2)", 500),
            ("upscale(2) | palette", 500),
            // A grid has at most 4,096 cells, however often it may have grown.
            ("upscale(30) | upscale(30)", 14),
            ("ofcolor(0) | outbox | subgrid", 389),
            ("hsplit(10) | first", 100),
            ("hsplit(10) | apply(mostcolor)", 100),
            ("canvas(1, 10, 100)", 60),
        ] {
            let chunks = cut(&compile(text), batch.tables(), limits);
            assert_eq!(chunks[0].items.len(), items, "{text}");
            assert_eq!(chunks.last().unwrap().items.end, 1_000, "{text}");
        }
    }
}
