//! Inputs of the command line.

use std::path::PathBuf;

use gridpool::cli::input::{Stdin, Unit, read};
use gridpool_protocol::limits::{COLOR_MAX, GRID_CELLS_MAX};

/// Reads standard input.
pub(super) fn input(mut bytes: &[u8]) {
    let stdin = Stdin { is_terminal: false, reader: &mut bytes };
    match read(&[PathBuf::from("-")], stdin) {
        Ok(inputs) => {
            assert!(!inputs.is_empty());
            for input in &inputs {
                for grid in input.grids() {
                    assert_eq!(grid.h() * grid.w(), grid.cells().len());
                    assert!((1..=GRID_CELLS_MAX).contains(&grid.cells().len()));
                    assert!(grid.cells().iter().all(|&cell| cell <= COLOR_MAX));
                }
                assert_eq!(input.places(Unit::Grid).count(), input.item_count(Unit::Grid));
                assert_eq!(input.grids().count(), input.item_count(Unit::Grid));
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
