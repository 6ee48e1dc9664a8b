//! Results side by side: the values of all items in one list for each of their parts. May not write.

use std::io;
use std::ops::Range;

use gridpool_protocol::output::{ItemError, Output};
use gridpool_protocol::program::{Kind, Type};

use crate::cli::results::Results;

/// The results of some items.
#[derive(Debug)]
pub(super) struct Columns {
    pub(super) items: usize,
    /// The values of an item that is a tuple.
    pub(super) width: Option<usize>,
    /// Of an item without a result they are blank: no cells, or zeros.
    pub(super) values: Values,
    /// Why items have no result, in their order.
    pub(super) errors: Vec<(usize, String)>,
}

/// Values of one kind.
#[derive(Debug)]
pub(super) enum Values {
    Flags(Vec<bool>),
    Grids { cells: Vec<u8>, sizes: Vec<[usize; 2]> },
    Numbers(Vec<i32>),
    Vectors(Vec<[i32; 2]>),
}

const WRONG: &str = "a value is not of the kind that the program gives";

impl Values {
    /// No values of a kind; `None` for a kind that has no columns.
    pub(super) fn none(kind: Kind) -> Option<Self> {
        match kind {
            Kind::Flag => Some(Self::Flags(Vec::new())),
            Kind::Grid => Some(Self::Grids { cells: Vec::new(), sizes: Vec::new() }),
            Kind::Number => Some(Self::Numbers(Vec::new())),
            Kind::Vector => Some(Self::Vectors(Vec::new())),
            Kind::Colors | Kind::Object | Kind::Objects | Kind::Patch | Kind::Value => None,
        }
    }
}

impl Columns {
    /// The results of a program that gives this type.
    pub(super) fn of(gives: Type, results: &Results, items: Range<usize>) -> io::Result<Self> {
        let values = Values::none(gives.kind).ok_or_else(|| invalid(WRONG))?;
        let width = gives.tuple.map(usize::from);
        let mut columns = Self { items: items.len(), width, values, errors: Vec::new() };
        for (at, item) in items.enumerate() {
            if results.lacks(item) {
                columns.push_error(at, "its job ended before it was done".to_owned());
                continue;
            }
            match results.item(item).map_err(invalid)? {
                Ok(output) => columns.push(output)?,
                Err(ItemError { code, op, message }) => {
                    columns.push_error(at, format!("{} in {op}: {message}", code.name()));
                }
            }
        }
        Ok(columns)
    }

    fn push_error(&mut self, at: usize, error: String) {
        self.errors.push((at, error));
        for _ in 0..self.width.unwrap_or(1) {
            match &mut self.values {
                Values::Flags(flags) => flags.push(false),
                Values::Grids { sizes, .. } => sizes.push([0, 0]),
                Values::Numbers(numbers) => numbers.push(0),
                Values::Vectors(vectors) => vectors.push([0, 0]),
            }
        }
    }

    fn push(&mut self, output: Output) -> io::Result<()> {
        match (&mut self.values, output) {
            (_, Output::Tuple(values)) => values.into_iter().try_for_each(|value| self.push(value)),
            (Values::Flags(flags), Output::Flag(flag)) => {
                flags.push(flag);
                Ok(())
            }
            (Values::Grids { cells, sizes }, Output::Grid(grid)) => {
                cells.extend(grid.cells());
                sizes.push([grid.h(), grid.w()]);
                Ok(())
            }
            (Values::Numbers(numbers), Output::Number(number)) => {
                numbers.push(number);
                Ok(())
            }
            (Values::Vectors(vectors), Output::Vector { row, col }) => {
                vectors.push([row, col]);
                Ok(())
            }
            (_, _) => Err(invalid(WRONG)),
        }
    }
}

fn invalid(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}
