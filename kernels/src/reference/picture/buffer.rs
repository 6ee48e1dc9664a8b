//! Memory for the pictures of many values: ops push to it, and it is kept from run to run.

use std::ops::Range;

use gridpool_protocol::limits::{GRID_CELLS_MAX, SIDE_MAX};
use gridpool_protocol::output::ItemErrorCode;

use super::{GridMut, HOLE, Made, Origin, Picture, area};
use crate::reference::Shape;

/// Pictures next to each other, in memory that is kept from run to run.
///
/// Each has a place. A pushed picture fills its place; a picture that was changed later may leave part of it
/// unused.
#[derive(Clone, Debug)]
pub struct Pictures {
    shapes: Vec<Shape>,
    origins: Vec<Origin>,
    /// Where each place starts, and where the last one ends.
    starts: Vec<usize>,
    cells: Vec<u8>,
}

impl Default for Pictures {
    fn default() -> Self {
        Self { shapes: Vec::new(), origins: Vec::new(), starts: vec![0], cells: Vec::new() }
    }
}

impl Pictures {
    /// Forgets all of them.
    pub fn clear(&mut self) {
        self.shapes.clear();
        self.origins.clear();
        self.starts.truncate(1);
        self.cells.clear();
    }

    /// Makes places for grids of these shapes; `fill` writes all their cells, in order.
    pub fn load(&mut self, shapes: &[Shape], fill: impl FnOnce(&mut [u8])) {
        self.shapes.clear();
        self.shapes.extend_from_slice(shapes);
        self.origins.clear();
        self.origins.resize(shapes.len(), [0, 0]);
        self.starts.truncate(1);
        let mut end = 0;
        for &shape in shapes {
            end += area(shape);
            self.starts.push(end);
        }
        self.cells.resize(end, 0);
        fill(&mut self.cells);
    }

    /// Calls `image` for each picture. It writes a picture of the same area to the same place in `to`, and returns
    /// its shape. Unused bytes of a place are wiped.
    pub fn write_images(&self, to: &mut Self, image: impl Fn(Shape, &[u8], &mut [u8]) -> Shape) {
        to.shapes.clone_from(&self.shapes);
        to.origins.clone_from(&self.origins);
        to.starts.clone_from(&self.starts);
        to.cells.resize(self.cells.len(), 0);
        for (shape, place) in to.shapes.iter_mut().zip(self.starts.windows(2)) {
            let (start, end) = (place[0], place[0] + area(*shape));
            *shape = image(*shape, &self.cells[start..end], &mut to.cells[start..end]);
            if end < place[1] {
                to.cells[end..place[1]].fill(0);
            }
        }
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shapes.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.shapes.is_empty()
    }

    /// One of them.
    #[inline]
    #[must_use]
    pub fn get(&self, value: usize) -> Picture<'_> {
        let (shape, start) = (self.shapes[value], self.starts[value]);
        let cells = &self.cells[start..start + area(shape)];
        Picture { shape, origin: self.origins[value], cells }
    }

    /// One grid of them, to be changed.
    pub fn grid_mut(&mut self, value: usize) -> GridMut<'_> {
        let (shape, start) = (self.shapes[value], self.starts[value]);
        GridMut { shape, cells: &mut self.cells[start..start + area(shape)] }
    }

    /// Neighbours, as the elements of a tuple.
    #[must_use]
    pub fn tuple(&self, first: usize, width: usize) -> Tuple<'_> {
        Tuple { pictures: self, values: first..first + width }
    }

    /// Empties one of them and wipes its place.
    pub fn wipe(&mut self, value: usize) {
        let place = self.place(value);
        self.cells[place].fill(0);
        self.set(value, [0, 0], [0, 0]);
    }

    /// Says what the picture in a place is; its bytes stay.
    pub fn set(&mut self, value: usize, shape: Shape, origin: Origin) {
        self.shapes[value] = shape;
        self.origins[value] = origin;
    }

    /// Where one of them may have its bytes in [`Pictures::cells`].
    #[must_use]
    pub fn place(&self, value: usize) -> Range<usize> {
        self.starts[value]..self.starts[value + 1]
    }

    /// All shapes.
    #[must_use]
    pub fn shapes(&self) -> &[Shape] {
        &self.shapes
    }

    /// All origins.
    #[must_use]
    pub fn origins(&self) -> &[Origin] {
        &self.origins
    }

    /// All places one behind the other.
    #[must_use]
    pub fn cells(&self) -> &[u8] {
        &self.cells
    }

    /// All places, to be changed alike.
    pub fn cells_mut(&mut self) -> &mut [u8] {
        &mut self.cells
    }

    /// Adds an empty picture.
    pub fn push_empty(&mut self) {
        self.add([0, 0], [0, 0]);
    }

    /// Adds a picture of `h` rows and `w` columns at `origin` whose bytes `fill` writes. If a side
    /// is 0 the picture is the empty one.
    ///
    /// # Errors
    /// [`ItemErrorCode::Overflow`] if a side is over 255 or the area over 4,096; nothing is added.
    pub fn push_with(
        &mut self,
        [h, w]: [usize; 2],
        origin: Origin,
        fill: impl FnOnce(&mut [u8]),
    ) -> Made {
        let shape = shape_of([h, w])?;
        let start = self.cells.len();
        self.cells.resize(start + area(shape), 0);
        if area(shape) > 0 {
            fill(&mut self.cells[start..]);
        }
        self.add(shape, origin);
        Ok(())
    }

    /// Adds a picture whose byte at row `i`, column `j` is `cell(i, j)`.
    ///
    /// # Errors
    /// As [`Pictures::push_with`].
    pub fn push_by_place(
        &mut self,
        size: [usize; 2],
        origin: Origin,
        cell: impl Fn(usize, usize) -> u8,
    ) -> Made {
        self.push_with(size, origin, |cells| {
            for (i, row) in cells.chunks_exact_mut(size[1]).enumerate() {
                for (j, byte) in row.iter_mut().enumerate() {
                    *byte = cell(i, j);
                }
            }
        })
    }

    /// Adds a grid that is made of these rows, or pieces of rows, in order.
    ///
    /// # Errors
    /// As [`Pictures::push_with`].
    ///
    /// # Panics
    /// If the pieces have not as many cells as `size` says.
    pub fn push_rows<'a>(
        &mut self,
        size: [usize; 2],
        pieces: impl IntoIterator<Item = &'a [u8]>,
    ) -> Made {
        let shape = shape_of(size)?;
        if area(shape) > 0 {
            pieces.into_iter().for_each(|piece| self.cells.extend_from_slice(piece));
        }
        self.add(shape, [0, 0]);
        let pushed = self.len() - 1;
        assert_eq!(self.place(pushed).len(), area(shape), "pieces fill the grid");
        Ok(())
    }

    /// Cuts the last picture to the box of its cells, as boxes of objects and patches are.
    pub fn tighten_last(&mut self) {
        let last = self.get(self.len() - 1);
        let (columns, [top, left]) = (last.w(), last.origin);
        let has_cell = |i: &usize| last.row(*i).iter().any(|&cell| cell != HOLE);
        let Some(first_row) = (0..last.h()).find(has_cell) else {
            let start = self.pop();
            self.cells.truncate(start);
            return self.push_empty();
        };
        let end_row = (0..last.h()).rfind(has_cell).map_or(0, |i| i + 1);
        let has_cell = |j: &usize| last.rows().any(|row| row[*j] != HOLE);
        let first_col = (0..columns).find(has_cell).unwrap_or(0);
        let end_col = (0..columns).rfind(has_cell).map_or(0, |j| j + 1);
        let size = [end_row - first_row, end_col - first_col];

        // Rows move towards the start, so none is written over before it has moved.
        let start = self.pop();
        for i in 0..size[0] {
            let from = start + (first_row + i) * columns + first_col;
            self.cells.copy_within(from..from + size[1], start + i * size[1]);
        }
        self.cells.truncate(start + size[0] * size[1]);
        let shape = size.map(small);
        self.add(shape, [top + i16::from(small(first_row)), left + i16::from(small(first_col))]);
    }

    /// Moves the pictures together so that each fills its place.
    pub fn close_gaps(&mut self) {
        let mut end = 0;
        for value in 0..self.len() {
            let (start, used) = (self.starts[value], area(self.shapes[value]));
            if start != end {
                self.cells.copy_within(start..start + used, end);
            }
            self.starts[value] = end;
            end += used;
        }
        *self.starts.last_mut().expect("there is always an end") = end;
        self.cells.truncate(end);
    }

    /// A picture has been written behind the last place.
    fn add(&mut self, shape: Shape, origin: Origin) {
        self.shapes.push(shape);
        self.origins.push(if area(shape) == 0 { [0, 0] } else { origin });
        self.starts.push(self.cells.len());
    }

    /// Takes the last picture back but for its bytes; gives where they start.
    fn pop(&mut self) -> usize {
        self.shapes.pop();
        self.origins.pop();
        self.starts.pop();
        *self.starts.last().expect("there is always a start")
    }
}

/// The pictures of one tuple, in order.
#[derive(Clone, Debug)]
pub struct Tuple<'a> {
    pictures: &'a Pictures,
    values: Range<usize>,
}

impl<'a> Iterator for Tuple<'a> {
    type Item = Picture<'a>;

    fn next(&mut self) -> Option<Picture<'a>> {
        self.values.next().map(|value| self.pictures.get(value))
    }
}

/// The shape of a box, (0, 0) if a side is.
fn shape_of([h, w]: [usize; 2]) -> Result<Shape, ItemErrorCode> {
    if h == 0 || w == 0 {
        return Ok([0, 0]);
    }
    if h > SIDE_MAX || w > SIDE_MAX || h * w > GRID_CELLS_MAX {
        return Err(ItemErrorCode::Overflow);
    }
    Ok([small(h), small(w)])
}

fn small(side: usize) -> u8 {
    u8::try_from(side).expect("a side fits a byte")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::drawing::{drawing, made};

    #[test]
    fn a_picture_with_an_empty_side_is_the_empty_one() {
        for size in [[0, 3], [3, 0], [0, 0]] {
            let got =
                made(|to| to.push_with(size, [4, 4], |_| panic!("there is nothing to write")));
            assert_eq!(got, Ok(drawing([0, 0], &[])));
        }
    }

    #[test]
    fn sides_and_area_are_bounded() {
        for size in [[1, 256], [256, 1], [64, 65], [17, 241]] {
            let got = made(|to| to.push_with(size, [0, 0], |_| {}));
            assert_eq!(got, Err(ItemErrorCode::Overflow), "{size:?}");
        }
        for size in [[1, 255], [255, 1], [64, 64], [16, 255]] {
            assert!(made(|to| to.push_with(size, [0, 0], |_| {})).is_ok(), "{size:?}");
        }
    }

    #[test]
    fn tightening_cuts_to_the_box_of_the_cells() {
        let loose = drawing([2, -3], &["....", ".1..", "...2", "...."]);
        let tight = made(|to| {
            to.push_with([4, 4], [2, -3], |cells| cells.copy_from_slice(&loose.cells))?;
            to.tighten_last();
            Ok(())
        });
        assert_eq!(tight, Ok(drawing([3, -2], &["1..", "..2"])));
        let nothing = made(|to| {
            to.push_with([2, 2], [5, 5], |cells| cells.fill(HOLE))?;
            to.tighten_last();
            Ok(())
        });
        assert_eq!(nothing, Ok(drawing([0, 0], &[])));
    }

    #[test]
    fn gaps_close_and_pictures_stay() {
        let mut pictures = Pictures::default();
        pictures.load(&[[1, 2], [2, 2], [1, 1]], |cells| {
            cells.copy_from_slice(&[1, 2, 3, 4, 5, 6, 7]);
        });
        pictures.wipe(0);
        pictures.set(1, [1, 3], [0, 0]);
        pictures.close_gaps();
        assert_eq!(pictures.cells(), [3, 4, 5, 7]);
        assert_eq!(pictures.get(1).cells, [3, 4, 5]);
        assert_eq!(pictures.get(2).cells, [7]);
        assert!(pictures.get(0).is_empty());
    }
}
