//! Solvers over the fake driver: results that are larger than their place, and items that need more than an arena.

use gridpool_kernels::solve::SOLVE;
use gridpool_protocol::batch::{Grid, GridBatch};

use super::super::schedule::random::Random;
use super::results::{LIMITS, TEXTS, adopt, compile, grids, release_all};
use super::*;
use crate::attempts::{AttemptData, assert_right_together, batch_for};
use crate::chunk::ChunkLimits;

#[test]
fn a_chunk_whose_results_are_too_large_runs_again_in_halves() {
    let program = compile("O = repeat(I, TEN)");
    let limits = ChunkLimits { items_max: 200, cells_max: 20_000 };
    // The results of 200 items have 102 and 166 KB, where there is room for 64 KiB. What is too large for the first
    // arena is launched twice.
    for (side, launched) in [(7, 2 + 4), (9, 2 * (2 + 4 + 8))] {
        let grid = Grid::new(side, side, vec![3; side * side]).unwrap();
        let batch = GridBatch::from_grids(&vec![grid; 200]).unwrap();
        for is_adopted in [false, true] {
            let mut device = open_computing().with_chunk_limits(limits);
            let mut source =
                [AttemptData::whole(&program, &batch), AttemptData::whole(&program, &batch)];
            if is_adopted {
                adopt(&mut device, &mut source[0].output);
            }
            let report = assert_right_together(&mut device, &mut source);
            // What was copied for chunks that were too large counts.
            assert!(report.sum().h2d_bytes >= 4 * batch.cells().len() as u64);
            let solve = report.kernels.iter().find(|kernel| kernel.name == SOLVE).unwrap();
            assert_eq!(solve.launches, launched, "{side}");
            release_all(&mut device, &mut source);
        }
    }
}

#[test]
fn what_needs_more_than_the_largest_arena_is_run_by_the_reference_in_its_place() {
    let mut random = Random(21);
    for text in &TEXTS[12..] {
        let program = compile(text);
        let mut grids = grids(&mut random, 20);
        // More cells than the stub takes into its largest arena.
        for at in [0, 7, 7, 15] {
            grids.insert(
                at,
                Grid::new(60, 60, (0..3_600).map(|n| u8::try_from(n / 7 % 5).unwrap()).collect())
                    .unwrap(),
            );
        }
        let batch = batch_for(&program, &grids);
        for limits in LIMITS {
            let mut device = open_computing().with_chunk_limits(limits);
            assert_right_together(&mut device, &mut [AttemptData::whole(&program, &batch)]);
            assert!(device.solving.as_ref().unwrap().unfit > 4);
        }
    }
}
