//! Batches in private memory, packed and read back.

use super::*;

fn batch() -> GridBatch {
    let grids = [
        Grid::from_rows(&[[1, 2, 3], [4, 5, 6]]).unwrap(),
        Grid::from_rows(&[[9]]).unwrap(),
        Grid::new(1, 255, vec![3; 255]).unwrap(),
    ];
    GridBatch::from_grids(&grids).unwrap()
}

#[test]
fn a_written_batch_reads_back() {
    let batch = batch();
    let layout = batch.layout().unwrap();
    let mut memory = vec![0xee; layout.bytes()];
    let shared = SharedSlice::private(&mut memory);
    batch.write_to(layout, &shared);
    assert_eq!(&Tables::read(layout, &shared).unwrap(), batch.tables());
    assert_eq!(&memory[layout.cells()], batch.cells());
    // The same batch has the same bytes, whatever was there before.
    let mut clean = vec![0; layout.bytes()];
    batch.write_to(layout, &SharedSlice::private(&mut clean));
    assert_eq!(memory, clean);
}

#[test]
fn every_single_wrong_table_byte_is_refused() {
    let batch = batch();
    let layout = batch.layout().unwrap();
    let mut memory = vec![0; layout.bytes()];
    batch.write_to(layout, &SharedSlice::private(&mut memory));
    for at in layout.shapes().chain(layout.offsets()) {
        let mut broken = memory.clone();
        broken[at] ^= 1;
        let shared = SharedSlice::private(&mut broken);
        // (1, 255) and (255, 1) have as many cells; no single bit turns one into the other.
        assert!(Tables::read(layout, &shared).is_err(), "byte {at} was not checked");
    }
    let mut short = memory[..layout.bytes() - 16].to_vec();
    assert!(Tables::read(layout, &SharedSlice::private(&mut short)).is_err());
}

#[test]
fn layouts_out_of_bounds_are_refused() {
    assert!(BatchLayout::new(0, 1, 0).is_err());
    assert!(BatchLayout::new(2, 1, 1).is_err());
    assert!(BatchLayout::new(JOB_ITEMS_MAX + 1, 1, JOB_CELLS_MAX).is_err());
    assert!(BatchLayout::new(1, 1, u32::MAX).is_err());
    assert!(BatchLayout::new(JOB_ITEMS_MAX, 2, JOB_CELLS_MAX).is_ok());
}

#[test]
fn a_missing_output_reads_back_and_a_missing_input_does_not() {
    let grid = Grid::from_rows(&[[1, 2]]).unwrap();
    let batch = GridBatch::from_pairs([(&grid, None), (&grid, Some(&grid))]).unwrap();
    let layout = batch.layout().unwrap();
    assert_eq!((layout.items(), layout.grids(), layout.cell_count()), (2, 4, 6));
    let mut memory = vec![0; layout.bytes()];
    batch.write_to(layout, &SharedSlice::private(&mut memory));
    let tables = Tables::read(layout, &SharedSlice::private(&mut memory)).unwrap();
    assert_eq!(tables.shapes(), [[1, 2], [0, 0], [1, 2], [1, 2]]);
    let single = BatchLayout::new(4, 1, 6).unwrap();
    assert!(Tables::read(single, &SharedSlice::private(&mut memory)).is_err());
    assert!(GridBatch::from_pairs([(&Grid::empty(), None)]).is_err());
    assert!(GridBatch::from_pairs([(&grid, Some(&Grid::empty()))]).is_err());
    assert!(GridBatch::from_grids([&Grid::empty()]).is_err());
}

#[test]
fn batches_from_cells_equal_those_from_grids() {
    let grid = Grid::from_rows(&[[1, 2], [3, 4]]).unwrap();
    let mut single = GridBatch::of_items(1);
    single.push_cells(2, 2, grid.cells()).unwrap();
    assert_eq!(single, GridBatch::from_grids([&grid]).unwrap());
    assert!(single.push_missing().is_err(), "a grid has no output");
    assert!(single.push_cells(0, 2, &[]).is_err());
    assert!(single.push_cells(2, 2, &[1; 3]).is_err());
    assert!(single.push_cells(65, 64, &[1; 65 * 64]).is_err());
    let mut pairs = GridBatch::of_items(2);
    assert!(pairs.push_missing().is_err(), "an input is due");
    pairs.push_cells(2, 2, grid.cells()).unwrap();
    pairs.push_missing().unwrap();
    pairs.push_cells(2, 2, grid.cells()).unwrap();
    pairs.push_cells(2, 2, grid.cells()).unwrap();
    let want = [(&grid, None), (&grid, Some(&grid))];
    assert_eq!(pairs, GridBatch::from_pairs(want).unwrap());
}
