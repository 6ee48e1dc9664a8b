//! Results as plain numbers, for whoever looks at many and wants no lists of lists.
//!
//! For programs whose items give one value, not a tuple.

use super::decode::{MalformedOutput, Outputs, Place};
use super::value::ItemError;
use crate::limits::COLOR_MAX;
use crate::program::Kind;

/// Which object each cell of a grid belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Labels {
    /// Rows of the grid.
    pub h: usize,
    /// Its columns.
    pub w: usize,
    /// How many objects there are.
    pub count: usize,
    /// For each cell, row-major, the number of its object from 1; 0 where there is none.
    pub labels: Vec<u16>,
}

impl Outputs {
    /// Copies the grid that an item gives to `cells`, in place of what that held, and gives its rows
    /// and columns: the same as [`Outputs::item`], without a new vector for each.
    ///
    /// # Errors
    /// As for [`Outputs::item`], and [`MalformedOutput`] if the program gives no grid.
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
            Ok(if cells.is_empty() { [0, 0] } else { [place.h, place.w] })
        })
    }

    /// How many objects an item gives.
    ///
    /// # Errors
    /// As for [`Outputs::item`], and [`MalformedOutput`] if the program gives no list of objects.
    ///
    /// # Panics
    /// If `item` is not below [`Outputs::len`].
    pub fn count_objects(&self, item: usize) -> Result<Result<usize, ItemError>, MalformedOutput> {
        self.one(item, Kind::Objects, NOT_OBJECTS, |place| {
            let count = self.count(item);
            if count > place.cells.len() { Err("more objects than cells") } else { Ok(count) }
        })
    }

    /// Which object each cell of an item's grid belongs to.
    ///
    /// # Errors
    /// As for [`Outputs::item`], and [`MalformedOutput`] if the program gives no list of objects.
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

    /// What `read` makes of an item that gives one value of `kind`.
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
