//! A second, deliberately naive implementation of every op, to check the fast ones.
//!
//! It was written from the definitions of the ops and compared with real CPython (`tests/data/cpython.json`).
//! It shares no code with `gridpool-kernels`, and speed does not matter: grids, objects and patches are maps
//! from places to colours, an object grows cell by cell, and a Python set is built as CPython builds it.

pub mod cells;
pub mod chains;
pub mod colors;
pub mod compare;
pub mod equalities;
pub mod grids;
pub mod measure;
pub mod objects;
pub mod patches;
pub mod programs;
pub mod python_set;
pub mod samples;
mod step;
pub mod tasks;
pub mod text;
pub mod value;

use gridpool_protocol::batch::Grid;
use gridpool_protocol::output::{ItemErrorCode, Output};
use gridpool_protocol::program::{Op, Program};

use step::{Found, join, split};

pub use value::Value;

/// One item of a batch: a grid, or a pair.
#[derive(Clone, Copy, Debug)]
pub enum Item<'a> {
    /// A grid.
    Grid(&'a Grid),
    /// Input and output; the latter may be missing.
    Pair(&'a Grid, Option<&'a Grid>),
}

impl<'a> From<&'a Grid> for Item<'a> {
    fn from(grid: &'a Grid) -> Self {
        Self::Grid(grid)
    }
}

impl<'a> From<(&'a Grid, Option<&'a Grid>)> for Item<'a> {
    fn from((input, output): (&'a Grid, Option<&'a Grid>)) -> Self {
        Self::Pair(input, output)
    }
}

/// Why a value, or an item, has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What kind of error.
    pub code: ItemErrorCode,
    /// The index of the step that failed; `None` for the input.
    pub step: Option<usize>,
}

/// The result of `program` for an item. If several values fail, the first one's error.
///
/// # Errors
/// [`Failure`] if there is no result.
pub fn run<'a>(program: &Program, item: impl Into<Item<'a>>) -> Result<Output, Failure> {
    output(program, &values(program, item.into()))
}

/// The item's result, assembled from its values.
///
/// # Errors
/// The first [`Failure`] among them.
///
/// # Panics
/// If their number differs from the program's.
pub fn output(program: &Program, values: &[Result<Value, Failure>]) -> Result<Output, Failure> {
    let outputs: Result<Vec<Output>, &Failure> =
        values.iter().map(|value| value.as_ref().map(Value::to_output)).collect();
    let mut outputs = outputs.map_err(|failure| *failure)?;
    assert_eq!(outputs.len(), program.gives().width(), "the type says how many values there are");
    if program.gives().tuple.is_some() {
        return Ok(Output::Tuple(outputs));
    }
    Ok(outputs.remove(0))
}

/// Every value of an item's result, or its failure.
#[must_use]
pub fn values(program: &Program, item: Item<'_>) -> Vec<Result<Value, Failure>> {
    let missing = Err(Failure { code: ItemErrorCode::MissingOutput, step: None });
    let found = |grid| Ok(Found::grid(cells::of_grid(grid)));
    let mut state = match item {
        Item::Grid(grid) => vec![found(grid)],
        Item::Pair(input, output) => vec![found(input), output.map_or(missing, found)],
    };
    for (at, step) in program.steps().iter().enumerate() {
        let failure = |code| Failure { code, step: Some(at) };
        let on_tuple = step.takes.tuple.is_some() && !step.applied;
        state = match (step.op, on_tuple) {
            (Op::NthElement { index }, _) => vec![state[usize::from(index)].clone()],
            (op, true) => {
                let elements: Result<Vec<Found>, Failure> = state.into_iter().collect();
                let joined = elements.and_then(|elements| join(op, &elements).map_err(failure));
                vec![joined]
            }
            (Op::HSplit { parts } | Op::VSplit { parts }, false) => {
                let [whole] = &state[..] else { unreachable!("a tuple is not split") };
                match whole.as_ref().map(|whole| split(step.op, whole)) {
                    Ok(Some(Ok(parts))) => parts.into_iter().map(Ok).collect(),
                    Ok(Some(Err(code))) => vec![Err(failure(code)); parts.into()],
                    Ok(None) => unreachable!("only a grid is split"),
                    Err(before) => vec![Err(*before); parts.into()],
                }
            }
            (op, false) => {
                let one = |found: Found| found.step(op, program.ties()).map_err(failure);
                state.into_iter().map(|element| element.and_then(one)).collect()
            }
        };
    }
    state.into_iter().map(|element| element.map(|found| found.value)).collect()
}
