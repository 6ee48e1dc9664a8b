//! INPUT arguments: what a user may name, and the grids that come of it in one fixed order.
//!
//! Owns the types of an input and the walk over its grids. May not know programs, jobs or workers.
//!
//! The order of the grids is part of the interface: whoever submits them and whoever puts results
//! back in their place both follow [`Input::grids`].

mod error;
mod json;
mod npy;
mod source;
#[cfg(test)]
mod tests;

use gridpool_protocol::batch::Grid;

pub use error::{Cause, Flaw, InputError, Place, Section, Side};
pub use source::{INPUT_BYTES_MAX, Stdin, read};

/// One thing that the user named, or one task of a directory or combined file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input {
    /// What results call it: a task of a directory is called by its file's name without `.json`, a
    /// task of a combined file by its key, anything else by its path as typed (`-` for standard
    /// input). Names need not differ.
    pub name: String,
    /// What it holds.
    pub body: Body,
}

/// What one input holds. Results keep this shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// A list of grids, at least one.
    Grids(Vec<Grid>),
    /// An ARC task.
    Task(Task),
}

/// An ARC task: pairs to learn from and pairs to solve, at least one in all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Task {
    /// The pairs to learn from.
    pub train: Vec<Pair>,
    /// The pairs to solve.
    pub test: Vec<Pair>,
}

/// A grid and what becomes of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair {
    /// The grid before.
    pub input: Grid,
    /// The grid after; often absent in `test`.
    pub output: Option<Grid>,
}

/// Every input with the number of its first grid, all grids of all inputs being counted from 0.
pub fn numbered(inputs: &[Input]) -> impl Iterator<Item = (usize, &Input)> {
    inputs.iter().scan(0, |next, input| {
        let first = *next;
        *next += input.grid_count();
        Some((first, input))
    })
}

impl Input {
    /// Every grid. A list keeps its order; a task gives `train`, then `test`, pair by pair, each
    /// pair its input and then its output, if it has one.
    pub fn grids(&self) -> impl Iterator<Item = &Grid> {
        let (list, task) = match &self.body {
            Body::Grids(grids) => (grids.as_slice(), None),
            Body::Task(task) => (&[][..], Some(task)),
        };
        list.iter().chain(task.into_iter().flat_map(Task::grids))
    }

    /// Where each grid of [`Input::grids`] lies.
    pub fn places(&self) -> impl Iterator<Item = Place> {
        let (grids, task) = match &self.body {
            Body::Grids(grids) => (grids.len(), None),
            Body::Task(task) => (0, Some(task)),
        };
        let list = (0..grids).map(|grid| Place { grid: Some(grid), ..Place::default() });
        list.chain(task.into_iter().flat_map(Task::places))
    }

    /// How many grids [`Input::grids`] gives.
    #[must_use]
    pub fn grid_count(&self) -> usize {
        match &self.body {
            Body::Grids(grids) => grids.len(),
            Body::Task(task) => task.pairs().map(Pair::grid_count).sum(),
        }
    }
}

impl Task {
    fn pairs(&self) -> impl Iterator<Item = &Pair> {
        self.train.iter().chain(&self.test)
    }

    fn grids(&self) -> impl Iterator<Item = &Grid> {
        self.pairs().flat_map(|pair| [Some(&pair.input), pair.output.as_ref()]).flatten()
    }

    fn places(&self) -> impl Iterator<Item = Place> {
        let sections = [(Section::Train, &self.train), (Section::Test, &self.test)];
        sections.into_iter().flat_map(|(section, pairs)| {
            pairs.iter().enumerate().flat_map(move |(number, pair)| {
                let sides = [Side::Input, Side::Output].into_iter().take(pair.grid_count());
                sides.map(move |side| Place {
                    section: Some(section),
                    pair: Some(number),
                    side: Some(side),
                    ..Place::default()
                })
            })
        })
    }
}

impl Pair {
    /// One or two.
    #[must_use]
    pub fn grid_count(&self) -> usize {
        1 + usize::from(self.output.is_some())
    }
}
