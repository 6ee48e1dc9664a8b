//! A second, deliberately naive implementation of every op, to judge the fast ones by.
//!
//! Written from the definitions of the ops and compared with real CPython (`tests/data/cpython.json`);
//! it shares no code with `gridpool-kernels` and is in no hurry: a grid is a set of cells, an object
//! grows cell by cell, and a Python set is built as CPython builds it.

pub mod colors;
pub mod objects;
pub mod picture;
pub mod python_set;
pub mod samples;
pub mod tasks;

use gridpool_protocol::batch::Grid;
use gridpool_protocol::output::Output;
use gridpool_protocol::program::{Op, Program, Ties};

use picture::Picture;

/// What `program` gives for `grid`.
///
/// # Panics
/// If an op follows one that gives no grid; [`Program::compile`] lets no such program through.
#[must_use]
pub fn run(program: &Program, grid: &Grid) -> Output {
    program.ops().iter().fold(Output::Grid(grid.clone()), |before, &op| match before {
        Output::Grid(grid) => step(op, program.ties(), &grid),
        Output::Colors(_) | Output::Number(_) | Output::Objects(_) => {
            unreachable!("{op} follows an op that gives no grid")
        }
    })
}

fn step(op: Op, ties: Ties, grid: &Grid) -> Output {
    let picture = Picture::of(grid);
    match op {
        Op::ColorCount { color } => number(picture.colors().filter(|&c| c == color).count()),
        Op::LeastColor => Output::Number(colors::least_common(&picture, ties).into()),
        Op::MostColor => Output::Number(colors::most_common(&picture, ties).into()),
        Op::NumColors => number(colors::palette(&picture, ties).len()),
        Op::Objects(grouping) => Output::Objects(objects::objects(&picture, grouping, ties)),
        Op::Palette => Output::Colors(colors::palette(&picture, ties)),
        Op::Replace { old, new } => {
            let repaint = |c| if c == old { new } else { c };
            Output::Grid(picture.recolored(repaint).to_grid())
        }
        Op::Switch { a, b } => {
            let other = |c| if c == a { b } else { a };
            let swap = |c| if c == a || c == b { other(c) } else { c };
            Output::Grid(picture.recolored(swap).to_grid())
        }
        Op::Symmetry(symmetry) => Output::Grid(picture.moved(symmetry).to_grid()),
    }
}

fn number(count: usize) -> Output {
    Output::Number(i32::try_from(count).expect("a grid has at most 4,096 cells"))
}
