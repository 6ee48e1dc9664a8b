//! Grids to tensors and back, at the edges.

use super::*;

fn item(h: i32, w: i32, cells: &[(usize, u8)]) -> ([u8; CELLS], [u8; SIZE_BYTES]) {
    let mut all = [0; CELLS];
    cells.iter().for_each(|&(at, cell)| all[at] = cell);
    let mut size = [0; SIZE_BYTES];
    size[..4].copy_from_slice(&h.to_le_bytes());
    size[4..].copy_from_slice(&w.to_le_bytes());
    (all, size)
}

fn read(h: i32, w: i32, cells: &[(usize, u8)]) -> Result<Grid, String> {
    let (cells, size) = item(h, w, cells);
    grid(&cells, &size)
}

#[test]
fn cells_outside_of_the_size_are_ignored() {
    // Row 1, column 2, of rows of 30.
    let read_to = |h, w| read(h, w, &[(32, 10)]);
    assert_eq!(read_to(1, 30).unwrap().cells(), [0; 30]);
    assert_eq!(read_to(30, 2).unwrap().cells(), [0; 60]);
    let error = read_to(2, 3).unwrap_err();
    assert_eq!(error, "row 1, column 2 of GRID: 10 is not a colour from 0 to 9");
    let grid = read(2, 2, &[(0, 1), (1, 2), (30, 3), (31, 4)]).unwrap();
    assert_eq!(grid, Grid::from_rows(&[[1, 2], [3, 4]]).unwrap());
}

#[test]
fn a_size_is_from_1_to_30() {
    for (h, w) in [(0, 1), (1, 0), (31, 1), (1, 31), (-1, 1), (i32::MAX, i32::MIN)] {
        let error = read(h, w, &[]).unwrap_err();
        assert_eq!(error, format!("SIZE is [{h}, {w}]; height and width are 1 to 30"));
    }
    assert_eq!(read(30, 30, &[(899, 9)]).unwrap().cells()[899], 9);
}

#[test]
fn a_result_larger_than_30_x_30_has_an_error_in_its_place() {
    let mut room = [0; CELLS];
    for (h, w) in [(31, 1), (1, 31), (64, 64)] {
        let grid = Grid::new(h, w, vec![1; h * w]).unwrap();
        let absent = place(&grid, &mut room).map_err(|absent| absent.describe(3)).unwrap_err();
        assert_eq!(absent["status"], DOES_NOT_FIT);
        assert_eq!(absent["item"], 3);
        assert_eq!(room, [0; CELLS]);
    }
    assert!(place(&Grid::empty(), &mut room).is_ok());
    assert!(place(&Grid::new(30, 30, vec![7; CELLS]).unwrap(), &mut room).is_ok());
    assert_eq!(room, [7; CELLS]);
}

#[test]
fn every_reason_has_a_number_of_its_own_and_none_is_0() {
    let mut numbers: Vec<_> = ItemErrorCode::ALL.map(status).to_vec();
    numbers.extend([0, DOES_NOT_FIT]);
    numbers.sort_unstable();
    let count = numbers.len();
    numbers.dedup();
    assert_eq!(numbers.len(), count);
}
