//! The grids of bench: a stream for each workload. Every grid depends on its number alone, so any thread can
//! make any part of the stream at any time.
//!
//! The ragged stream follows the statistics of the 7,000 ARC grids. It has the five commonest shapes as often
//! as they occur there, other squares, other shapes, and 169 cells on average. Grids have few colours, a
//! background and rectangles on it. Every fourth grid has noise, which gives about as many objects as in ARC.

mod tasks;

use std::ops::Range;
use std::path::Path;

use gridpool_protocol::batch::{Grid, GridBatch};
use gridpool_protocol::bench::Workload;
use rayon::prelude::*;

use super::random::Random;

pub use tasks::TasksError;

/// Another seed gives other grids, whose rates are not comparable with earlier ones.
const SEED: u64 = 0x6772_6964_706f_6f6c;
/// Grids made at a time, so that the batch is not in memory twice.
const BLOCK: u64 = 16 * 1024;
/// The side of every grid of [`Workload::Square`].
const SIDE: usize = 30;

/// The commonest square shapes among the 7,000 grids: how many, and the side.
const COMMON: [(usize, usize); 5] = [(833, 10), (633, 3), (274, 9), (248, 15), (189, 12)];
/// How many of the 7,000 are other squares.
const OTHER_SQUARES: usize = 2_123;
const ALL: usize = 7_000;
/// Sixteenths of the sides of other squares, and of other shapes.
const SQUARE_SIDES: [usize; 17] = [1, 2, 4, 5, 7, 8, 10, 12, 13, 15, 17, 18, 20, 22, 24, 27, 30];
const OTHER_SIDES: [usize; 17] = [1, 3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 14, 16, 17, 20, 22, 30];
/// How far the height's sixteenth may be from the width's, in each direction.
const SKEW: usize = 4;

/// The source of the grids.
#[derive(Debug)]
pub struct Source {
    /// The grids of real tasks, instead of the ragged stream.
    tasks: Option<Vec<Grid>>,
}

impl Source {
    /// Uses the grids of all tasks in `folder`, if one is named.
    ///
    /// # Errors
    /// [`TasksError`] if they cannot be read.
    pub fn open(folder: Option<&Path>) -> Result<Self, TasksError> {
        Ok(Self { tasks: folder.map(tasks::read).transpose()? })
    }

    /// Grids `numbers` of a workload.
    #[must_use]
    pub fn batch(&self, workload: Workload, numbers: Range<u64>) -> GridBatch {
        let mut batch = GridBatch::of_items(1);
        let mut start = numbers.start;
        while start < numbers.end {
            let end = numbers.end.min(start + BLOCK);
            let grids: Vec<Grid> =
                (start..end).into_par_iter().map(|number| self.grid(workload, number)).collect();
            for grid in &grids {
                batch.push(grid).expect("a batch of bench is within the limits of a job");
            }
            start = end;
        }
        batch
    }

    /// Grid `number` of a workload.
    #[must_use]
    pub fn grid(&self, workload: Workload, number: u64) -> Grid {
        match (workload, &self.tasks) {
            (Workload::Arc, Some(tasks)) => {
                let at = usize::try_from(number % tasks.len() as u64);
                tasks[at.expect("it is less than a usize")].clone()
            }
            (Workload::Arc, None) => ragged(&mut Rng::new(number)),
            (Workload::Square, _) => {
                let mut rng = Rng::new(number);
                grid(SIDE, SIDE, (0..SIDE * SIDE).map(|_| rng.color(10)).collect())
            }
        }
    }
}

fn grid(h: usize, w: usize, cells: Vec<u8>) -> Grid {
    Grid::new(h, w, cells).expect("at most 30 x 30 cells of colours from 0 to 9")
}

/// A grid like those of ARC tasks.
fn ragged(rng: &mut Rng) -> Grid {
    let (h, w) = shape(rng);
    let mut colors = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9];
    // Black is the background of seven in ten grids.
    let first = if rng.below(10) < 7 { 0 } else { rng.below(10) };
    colors.swap(0, first);
    for at in 1..10 {
        colors.swap(at, at + rng.below(10 - at));
    }
    let colors = &colors[..[2, 2, 3, 3, 4, 5, 6, 7, 9, 10][rng.below(10)]];
    let mut cells = vec![colors[0]; h * w];
    for _ in 0..1 + rng.below(7) {
        rectangle(rng, &mut cells, [h, w], colors);
    }
    if rng.below(3) == 0 {
        let one_in = 1 + rng.below(7);
        for cell in &mut cells {
            if rng.below(one_in) == 0 {
                *cell = colors[rng.below(colors.len())];
            }
        }
    }
    grid(h, w, cells)
}

/// Paints a rectangle of at most half the grid's sides, in any colour but the first.
fn rectangle(rng: &mut Rng, cells: &mut [u8], [h, w]: [usize; 2], colors: &[u8]) {
    let (rows, cols) = (1 + rng.below(h.div_ceil(3)), 1 + rng.below(w.div_ceil(3)));
    let (top, left) = (rng.below(h - rows + 1), rng.below(w - cols + 1));
    let color = colors[1 + rng.below(colors.len() - 1)];
    for row in cells.chunks_mut(w).skip(top).take(rows) {
        row[left..left + cols].fill(color);
    }
}

fn shape(rng: &mut Rng) -> (usize, usize) {
    let mut draw = rng.below(ALL);
    for (count, side) in COMMON {
        if draw < count {
            return (side, side);
        }
        draw -= count;
    }
    let at = rng.below(16 * 16);
    if draw < OTHER_SQUARES {
        let side = quantile(&SQUARE_SIDES, at);
        return (side, side);
    }
    let apart = (at + rng.below(2 * 16 * SKEW + 1)).saturating_sub(16 * SKEW).min(16 * 16 - 1);
    (quantile(&OTHER_SIDES, at), quantile(&OTHER_SIDES, apart))
}

/// The side at quantile `at` of 256, interpolated between sixteenths.
fn quantile(sides: &[usize; 17], at: usize) -> usize {
    let (low, high) = (sides[at / 16], sides[at / 16 + 1]);
    low + (high - low) * (at % 16) / 16
}

/// The generator, started at one grid's number.
struct Rng(Random);

impl Rng {
    fn new(number: u64) -> Self {
        // Neighbouring numbers start far apart in the generator's single cycle.
        let start = Random::new(SEED ^ number.wrapping_mul(0xd134_2543_de82_ef95)).bits();
        Self(Random::new(start))
    }

    /// A number from 0 to `end - 1`, from the high half, without a division.
    fn below(&mut self, end: usize) -> usize {
        let wide = (self.0.bits() >> 32) * end as u64;
        usize::try_from(wide >> 32).expect("it is less than `end`")
    }

    fn color(&mut self, colors: usize) -> u8 {
        u8::try_from(self.below(colors)).expect("there are ten colours")
    }
}

#[cfg(test)]
mod tests {
    use gridpool_kernels::reference;
    use gridpool_protocol::output::Output;
    use gridpool_protocol::program::{Program, Ties};

    use super::*;

    const COUNT: u64 = 7_000;

    fn numbers(program: &str, batch: &GridBatch) -> f64 {
        let program = Program::compile(program, Ties::Cpython).unwrap();
        let outputs = reference::run_batch(&program, batch).unwrap();
        let number = |item| match outputs.item(item).unwrap() {
            Ok(Output::Number(number)) => f64::from(number),
            Ok(_) | Err(_) => 0.0,
        };
        (0..outputs.len()).map(number).sum::<f64>() / outputs.len() as f64
    }

    #[test]
    fn the_ragged_grids_are_like_those_of_the_tasks() {
        let batch = Source::open(None).unwrap().batch(Workload::Arc, 0..COUNT);
        let cells: Vec<usize> =
            (0..batch.len()).map(|at| batch.tables().cells_of(at).len()).collect();
        let mean = cells.iter().sum::<usize>() as f64 / COUNT as f64;
        let small = cells.iter().filter(|&&cells| cells <= 256).count() as f64 / COUNT as f64;
        for (program, objects) in [
            ("o_g(1) | size", 5.0..8.0),
            ("o_g(3) | size", 3.5..5.0),
            ("o_g(5) | size", 12.0..22.0),
            ("o_g(7) | size", 10.0..15.0),
            ("numcolors", 3.3..4.0),
        ] {
            let got = numbers(program, &batch);
            assert!(objects.contains(&got), "{program}: {got} on average");
        }
        assert!((165.0..174.0).contains(&mean), "{mean} cells");
        assert!((0.78..0.84).contains(&small), "{small} have at most 256 cells");
    }

    #[test]
    fn a_grid_depends_on_its_number_alone() {
        let source = Source::open(None).unwrap();
        for workload in [Workload::Arc, Workload::Square] {
            let (all, part) = (source.batch(workload, 0..40_000), source.batch(workload, 20..23));
            for at in 0..3 {
                assert_eq!(all.grid(20 + at), part.grid(at));
            }
        }
    }

    #[test]
    fn grids_of_named_tasks_replace_the_ragged_ones() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/tasks");
        let source = Source::open(Some(&folder)).unwrap();
        let count = source.tasks.as_ref().unwrap().len() as u64;
        let batch = source.batch(Workload::Arc, 0..2 * count);
        let count = usize::try_from(count).unwrap();
        assert!((0..count).all(|at| batch.grid(at) == batch.grid(count + at)));
        assert!(matches!(
            Source::open(Some(Path::new("/none"))),
            Err(TasksError::Unreadable { .. })
        ));
    }
}
