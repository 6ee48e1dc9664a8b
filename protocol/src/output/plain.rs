//! Results as plain numbers, without nested vectors, for programs that give one value for each item.

use super::decode::{MalformedOutput, Outputs, Place};
use super::value::ItemError;
use crate::limits::COLOR_MAX;
use crate::program::Kind;

/// The object of each cell of a grid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Labels {
    /// Rows of the grid.
    pub h: usize,
    /// Its columns.
    pub w: usize,
    /// The number of objects.
    pub count: usize,
    /// The number of each cell's object from 1, or 0 without an object; row-major.
    pub labels: Vec<u16>,
}

impl Outputs {
    /// Copies an item's grid to `cells`, replacing its contents, and returns its rows and columns. Unlike
    /// [`Outputs::item`], it allocates no vector for each grid.
    ///
    /// # Errors
    /// As for [`Outputs::item`], and [`MalformedOutput`] if the program does not give a grid.
    ///
    /// # Panics
    /// If `item` is not below [`Outputs::len`].
    pub fn grid_into(
        &self,
        item: usize,
        cells: &mut Vec<u8>,
    ) -> Result<Result<[usize; 2], ItemError>, MalformedOutput> {
        self.one(item, Kind::Grid, "the program does not give a grid", |place| {
            self.plane_into(self.layout.cells(), &place, cells);
            if cells.iter().any(|&cell| cell > COLOR_MAX) {
                return Err("not a colour");
            }
            let sides = || self.sides_without_cells(&place).map(usize::from);
            Ok(if cells.is_empty() { sides() } else { [place.h, place.w] })
        })
    }

    /// The number of objects of an item.
    ///
    /// # Errors
    /// As for [`Outputs::item`], and [`MalformedOutput`] if the program does not give a list of objects.
    ///
    /// # Panics
    /// If `item` is not below [`Outputs::len`].
    pub fn count_objects(&self, item: usize) -> Result<Result<usize, ItemError>, MalformedOutput> {
        self.one(item, Kind::Objects, NOT_OBJECTS, |place| {
            let count = self.count(item);
            if count > place.cells.len() { Err("more objects than cells") } else { Ok(count) }
        })
    }

    /// The object of each cell of an item's grid.
    ///
    /// # Errors
    /// As for [`Outputs::item`], and [`MalformedOutput`] if the program does not give a list of objects.
    ///
    /// # Panics
    /// If `item` is not below [`Outputs::len`].
    pub fn label_map(&self, item: usize) -> Result<Result<Labels, ItemError>, MalformedOutput> {
        self.one(item, Kind::Objects, NOT_OBJECTS, |place| {
            let count = self.count(item);
            let labels = self.labels(&place, count)?;
            Ok(Labels { h: place.h, w: place.w, count, labels })
        })
    }

    /// Applies `read` to an item with one value of `kind`.
    fn one<T>(
        &self,
        item: usize,
        kind: Kind,
        other: &'static str,
        read: impl FnOnce(Place) -> Result<T, &'static str>,
    ) -> Result<Result<T, ItemError>, MalformedOutput> {
        let malformed = |what| MalformedOutput { item, what };
        if self.layout.kind() != kind || self.program.gives().tuple.is_some() {
            return Err(malformed(other));
        }
        if let Some(error) = self.item_error(item)? {
            return Ok(Err(error));
        }
        self.place(item).and_then(read).map(Ok).map_err(malformed)
    }
}

const NOT_OBJECTS: &str = "the program does not give a list of objects";
