//! INPUT arguments: files and standard input, and their items in a fixed order.
//!
//! Owns the types of an input and the walk over its grids and pairs. May not know jobs or workers.
//!
//! The order of the items is part of the interface: jobs and results both follow [`Inputs::items`].

mod arrow;
mod error;
pub(in crate::cli) mod format;
mod json;
mod names;
mod npy;
pub(in crate::cli) mod npz;
mod source;
#[cfg(test)]
mod tests;

use gridpool_protocol::batch::Grid;
use gridpool_protocol::program::{Op, Program};

pub use error::{Cause, Diagnostic, INPUT_BYTES_MAX, InputError, Location, Section, Side};
pub use source::{Stdin, read};

/// All inputs of one command. Each has items that the program takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inputs {
    list: Vec<Input>,
    unit: Unit,
}

/// What one item is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A grid of a list, or of either side of a pair.
    Grid,
    /// A pair of grids.
    Pair,
}

/// A named file, or one task of a directory or combined file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input {
    /// Its name in results. A task of a directory has its file's name without `.json`, a task of a combined
    /// file its key, every other input its path as typed (`-` for standard input). Equal names are prefixed
    /// with parts of their paths until they differ.
    pub name: String,
    /// Its content.
    pub body: Body,
}

/// The content of one input. Results keep this shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// A list of grids, at least one.
    Grids(Vec<Grid>),
    /// A list of pairs, at least one.
    Pairs(Vec<Pair>),
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

/// A grid and the grid that it becomes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair {
    /// The grid before.
    pub input: Grid,
    /// The grid after; often absent in `test`.
    pub output: Option<Grid>,
}

/// The input of one run of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item<'a> {
    /// One grid.
    Grid(&'a Grid),
    /// Two grids; the second may be missing.
    Pair(&'a Pair),
}

impl Inputs {
    /// The inputs, with the items that `program` takes.
    ///
    /// # Errors
    /// [`InputError::NeedsPairs`] if it takes pairs and one of them holds plain grids.
    pub fn new(list: Vec<Input>, program: &Program) -> Result<Self, InputError> {
        let unit = if program.takes().tuple.is_some() { Unit::Pair } else { Unit::Grid };
        let plain = |input: &&Input| matches!(input.body, Body::Grids(_));
        match list.iter().find(plain) {
            Some(input) if unit == Unit::Pair => Err(InputError::NeedsPairs {
                input: if input.name == "-" { "standard input" } else { &input.name }.to_owned(),
                grids: input.grids().count(),
                instead: over_grids(program),
            }),
            _ => Ok(Self { list, unit }),
        }
    }

    /// Every input, in the order of the results.
    #[must_use]
    pub fn list(&self) -> &[Input] {
        &self.list
    }

    /// The kind of all items.
    #[must_use]
    pub fn unit(&self) -> Unit {
        self.unit
    }

    /// Every input with the number of its first item. Items are numbered from 0 over all inputs.
    pub fn numbered(&self) -> impl Iterator<Item = (usize, &Input)> {
        self.list.iter().scan(0, |next, input| {
            let first = *next;
            *next += input.item_count(self.unit);
            Some((first, input))
        })
    }

    /// Every item.
    pub fn items(&self) -> impl Iterator<Item = Item<'_>> {
        let grids = self.list.iter().filter(|_| self.unit == Unit::Grid).flat_map(Input::grids);
        let pairs = self.list.iter().filter(|_| self.unit == Unit::Pair).flat_map(Input::pairs);
        grids.map(Item::Grid).chain(pairs.map(Item::Pair))
    }

    /// The number of items of [`Inputs::items`].
    #[must_use]
    pub fn item_count(&self) -> usize {
        self.list.iter().map(|input| input.item_count(self.unit)).sum()
    }
}

impl Item<'_> {
    /// The number of its cells; of a pair, in both grids.
    #[must_use]
    pub fn cells(&self) -> usize {
        match self {
            Self::Grid(grid) => grid.cells().len(),
            Self::Pair(pair) => pair.grids().map(|grid| grid.cells().len()).sum(),
        }
    }
}

/// The program over grids that does the same as `program` does to one side of a pair; `None` if `program`
/// needs both sides.
fn over_grids(program: &Program) -> Option<String> {
    let mut steps = program.steps().iter();
    let mut ops = Vec::new();
    for step in steps.by_ref() {
        if matches!(step.op, Op::NthElement { .. }) {
            break;
        }
        if !step.applied {
            return None;
        }
        ops.push(step.op.to_string());
    }
    ops.extend(steps.map(|step| step.to_string()));
    Some(if ops.is_empty() { "identity".to_owned() } else { ops.join(" | ") })
}

impl Input {
    /// Every grid. A list keeps its order. A task gives the pairs of `train`, then of `test`; a pair gives its
    /// input, then its output, if any.
    pub fn grids(&self) -> impl Iterator<Item = &Grid> {
        let list = if let Body::Grids(grids) = &self.body { grids.as_slice() } else { &[] };
        list.iter().chain(self.pairs().flat_map(Pair::grids))
    }

    /// Every pair; of a task, first `train`, then `test`.
    pub fn pairs(&self) -> impl Iterator<Item = &Pair> {
        self.sections().into_iter().flat_map(|(_, pairs)| pairs)
    }

    /// The place of each item.
    pub fn places(&self, unit: Unit) -> impl Iterator<Item = Location> {
        let grids = if let Body::Grids(grids) = &self.body { grids.len() } else { 0 };
        let list = (0..grids).map(|grid| Location { grid: Some(grid), ..Location::default() });
        let pairs = self.sections().into_iter().flat_map(move |(section, pairs)| {
            pairs.iter().enumerate().flat_map(move |(number, pair)| {
                let place = Location { section, pair: Some(number), ..Location::default() };
                pair.sides(unit).map(move |side| Location { side, ..place.clone() })
            })
        });
        list.chain(pairs)
    }

    /// The number of its items.
    #[must_use]
    pub fn item_count(&self, unit: Unit) -> usize {
        match &self.body {
            Body::Grids(grids) => grids.len(),
            Body::Pairs(_) | Body::Task(_) => self.pairs().map(|pair| pair.item_count(unit)).sum(),
        }
    }

    /// The lists of pairs, each with its name in a task.
    fn sections(&self) -> Vec<(Option<Section>, &[Pair])> {
        match &self.body {
            Body::Grids(_) => Vec::new(),
            Body::Pairs(pairs) => vec![(None, pairs)],
            Body::Task(Task { train, test }) => {
                vec![(Some(Section::Train), train), (Some(Section::Test), test)]
            }
        }
    }
}

impl Pair {
    /// The input, then the output, if any.
    fn grids(&self) -> impl Iterator<Item = &Grid> {
        std::iter::once(&self.input).chain(&self.output)
    }

    /// The number of its items: one as a pair, one or two as grids.
    #[must_use]
    pub fn item_count(&self, unit: Unit) -> usize {
        self.sides(unit).count()
    }

    /// The side of each of its items; `None` is the whole pair.
    fn sides(&self, unit: Unit) -> impl Iterator<Item = Option<Side>> + use<> {
        let sides = match (unit, &self.output) {
            (Unit::Grid, None) => &[Some(Side::Input)][..],
            (Unit::Grid, Some(_)) => &[Some(Side::Input), Some(Side::Output)],
            (Unit::Pair, _) => &[None],
        };
        sides.iter().copied()
    }
}
