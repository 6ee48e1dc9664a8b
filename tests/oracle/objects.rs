//! Connected components, grown one ring of neighbours at a time.

use std::collections::BTreeSet;

use gridpool_protocol::output::{Object, ObjectCell};
use gridpool_protocol::program::{Grouping, Ties};

use super::colors::most_common;
use super::picture::{Cell, Picture};

/// The objects of `picture` by their first cell, the cells of each row-major.
///
/// Both orders come from the sets: the first free cell in row-major order starts the next object.
#[must_use]
pub fn objects(picture: &Picture, grouping: Grouping, ties: Ties) -> Vec<Object> {
    let background = grouping.without_bg.then(|| most_common(picture, ties));
    let is_free = |&&(_, _, color): &&Cell| Some(color) != background;
    let mut free: BTreeSet<Cell> = picture.cells().iter().filter(is_free).copied().collect();
    let mut objects = Vec::new();
    while let Some(first) = free.pop_first() {
        let mut object = BTreeSet::from([first]);
        let mut ring = vec![first];
        while !ring.is_empty() {
            ring = ring.iter().flat_map(|&cell| touching(&free, cell, grouping)).collect();
            // A cell that two of the ring touch is free only once.
            ring.retain(|cell| free.remove(cell));
            object.extend(&ring);
        }
        objects.push(object.into_iter().map(object_cell).collect());
    }
    objects
}

/// The free cells that belong to the object of `cell` because they touch it.
fn touching(free: &BTreeSet<Cell>, cell: Cell, grouping: Grouping) -> Vec<Cell> {
    let (row, col, color) = cell;
    let (left, right) = (col.saturating_sub(1), col + 1);
    let around = (row.saturating_sub(1)..=row + 1)
        .flat_map(|r| free.range((r, left, u8::MIN)..=(r, right, u8::MAX)));
    around
        .filter(|&&(r, c, _)| grouping.diagonal || r == row || c == col)
        .filter(|&&(_, _, v)| !grouping.univalued || v == color)
        .copied()
        .collect()
}

fn object_cell((row, col, color): Cell) -> ObjectCell {
    let side = |n: usize| u8::try_from(n).expect("a grid's sides fit a byte");
    ObjectCell { color, row: side(row), col: side(col) }
}
