//! The grids of the batches, from their numbers alone: the edge cases of the known answers, and between them
//! grids like those of ARC tasks.

use std::collections::BTreeMap;
use std::sync::Arc;

use gridpool_bench::workload::Source;
use gridpool_ipc::mutex::Mutex;
use gridpool_kernels::known_answer;
use gridpool_protocol::batch::{BatchError, Grid, GridBatch};
use gridpool_protocol::bench::Workload;

/// One item in this many is an edge case.
const EDGE_EVERY: u64 = 16;
/// A batch of n items begins at item n times this number, so that batches of different sizes end differently.
const STRIDE: u64 = 3;
/// Larger batches are not kept: each program makes them again.
const KEPT_ITEMS_MAX: u32 = 100_000;

/// Grids and pairs, and the batches made of them so far.
pub(super) struct Grids {
    source: Source,
    edges: Vec<Grid>,
    pairs: Vec<(Grid, Option<Grid>)>,
    /// By grids per item, first item and number of items.
    made: Mutex<BTreeMap<(u32, u64, u32), Arc<GridBatch>>>,
}

impl Grids {
    pub(super) fn new() -> Self {
        let (edges, pairs) = (known_answer::batch(), known_answer::pair_batch());
        let pair = |at: usize| {
            let output = pairs.grid(2 * at + 1);
            (pairs.grid(2 * at), (!output.is_empty()).then_some(output))
        };
        Self {
            source: Source::open(None).expect("without a folder none is read"),
            edges: (0..edges.len()).map(|at| edges.grid(at)).collect(),
            pairs: (0..pairs.len()).map(pair).collect(),
            made: Mutex::default(),
        }
    }

    /// `items` items, with a number of grids each, from item `first` on.
    pub(super) fn batch(
        &self,
        grids_per_item: u32,
        first: u64,
        items: u32,
    ) -> Result<Arc<GridBatch>, BatchError> {
        let key = (grids_per_item, first, items);
        if let Some(batch) = self.made.lock().get(&key) {
            return Ok(Arc::clone(batch));
        }
        let mut batch = GridBatch::of_items(grids_per_item);
        for number in first..first + u64::from(items) {
            if grids_per_item == 1 {
                batch.push(&self.grid(number))?;
            } else {
                let (input, output) = self.pair(number);
                batch.push_pair(&input, output.as_ref())?;
            }
        }
        let batch = Arc::new(batch);
        if items <= KEPT_ITEMS_MAX {
            self.made.lock().insert(key, Arc::clone(&batch));
        }
        Ok(batch)
    }

    fn grid(&self, number: u64) -> Grid {
        match edge(number, self.edges.len()) {
            Some(at) => self.edges[at].clone(),
            None => self.source.grid(Workload::Arc, number),
        }
    }

    /// An edge case; an input alone; two grids of any shapes; or two similar grids of one shape.
    fn pair(&self, number: u64) -> (Grid, Option<Grid>) {
        if let Some(at) = edge(number, self.pairs.len()) {
            return self.pairs[at].clone();
        }
        let input = self.source.grid(Workload::Arc, 2 * number);
        let output = match number % 4 {
            0 => None,
            1 => Some(self.source.grid(Workload::Arc, 2 * number + 1)),
            _ => Some(altered(&input, number)),
        };
        (input, output)
    }
}

/// The number of the first item of a batch of `items` items.
pub(super) fn first_of(items: u32) -> u64 {
    STRIDE * u64::from(items)
}

/// Which of `edges` edge cases an item is, if it is one: each at the beginning, then now and again.
fn edge(number: u64, edges: usize) -> Option<usize> {
    let edges = edges as u64;
    let at = match number {
        _ if number < edges => number,
        _ if number.is_multiple_of(EDGE_EVERY) => number / EDGE_EVERY % edges,
        _ => return None,
    };
    usize::try_from(at).ok()
}

/// The grid with other colours in every third cell.
fn altered(grid: &Grid, number: u64) -> Grid {
    let at = usize::try_from(number % 30).expect("it is less than 30");
    let cell = |(place, &cell): (usize, &u8)| {
        if (place + at).is_multiple_of(3) { (cell + 1) % 10 } else { cell }
    };
    let cells = grid.cells().iter().enumerate().map(cell).collect();
    Grid::new(grid.h(), grid.w(), cells).expect("it is as large as a grid, of colours")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_of_33_has_edges_and_is_the_same_whenever_it_is_made() {
        let batch = |per_item| Grids::new().batch(per_item, first_of(33), 33).unwrap();
        assert_eq!(batch(1), batch(1));
        assert_eq!(batch(2), batch(2));
        let grids = Grids::new();
        let all = grids.batch(1, 0, 500).unwrap();
        let shapes: Vec<_> = (0..500).map(|at| (all.grid(at).h(), all.grid(at).w())).collect();
        for shape in [(1, 1), (1, 30), (30, 1), (30, 30), (64, 64)] {
            assert!(shapes.contains(&shape), "{shape:?}");
        }
        let is_of_one_color =
            |grid: &Grid| grid.cells().iter().all(|&cell| cell == grid.cells()[0]);
        assert!(
            (0..500).any(|at| all.grid(at).cells().len() > 4 && is_of_one_color(&all.grid(at)))
        );
        let pairs = grids.batch(2, 0, 64).unwrap();
        assert!((0..64).any(|at| pairs.grid(2 * at + 1).is_empty()), "an input alone");
    }

    #[test]
    fn batches_of_other_sizes_begin_and_end_with_other_items() {
        let grids = Grids::new();
        let ends = |items: u32| {
            let batch = grids.batch(1, first_of(items), items).unwrap();
            (batch.grid(0), batch.grid(batch.len() - 1))
        };
        let firsts: std::collections::BTreeSet<_> = (1..33).map(|items| ends(items).0).collect();
        let lasts: std::collections::BTreeSet<_> = (1..33).map(|items| ends(items).1).collect();
        assert!(
            firsts.len() > 16 && lasts.len() > 16,
            "{} and {} of 32",
            firsts.len(),
            lasts.len()
        );
    }
}
