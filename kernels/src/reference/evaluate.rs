//! Runs a program over neighbouring items of a batch, one step at a time.
//!
//! It runs each step over a whole run of items, as the device does, instead of each item through the program.
//! So a caller can time each op without reading a clock for every grid.
//!
//! [`Evaluator::apply`] is the table of what each op means. Beside it are the buffers between two steps and
//! two rules for every op: a failed value stays failed, and no op accepts an empty grid.

mod result;
#[cfg(test)]
mod tests;
mod values;

use std::sync::Arc;

use gridpool_protocol::batch::{BatchError, GridBatch};
use gridpool_protocol::limits::COLOR_MAX;
use gridpool_protocol::output::{ItemErrorCode, NO_OP, OutputLayout, Outputs, PALETTE_BYTES};
use gridpool_protocol::program::{Grouping, Kind, Op, Program, Step, Ties};

use super::label::Labeler;
use super::machine::Runner;
use super::measure::Measured;
use super::picture::{Pictures, area};
use super::select::Selector;
use super::{
    Shape, cut, frame, histogram, join, measure, paint, partition, patch, recolor, scale, ties,
};
use crate::part::{ItemSpan, Part};
use result::ResultParts;

/// `(code, op)` of a value.
type Status = [u8; 2];

const STATUS_OK: Status = [0, 0];

/// A run of items on its way through a program. The memory is kept for the next run.
///
/// The order of calls is [`Evaluator::load`], [`Evaluator::validate`], [`Evaluator::apply`] for
/// each step, [`Evaluator::finish`], [`Evaluator::part`] for each part of the result.
#[derive(Clone, Debug)]
pub struct Evaluator {
    /// Values of one item.
    width: usize,
    /// The kind of the values.
    kind: Kind,
    /// The step that is running, counted from 0.
    at: u8,
    status: Vec<Status>,
    /// The grids; or, once values are of another kind, their grounds.
    grids: Pictures,
    /// The objects or patches, once the values are such.
    pieces: Pictures,
    /// For each cell of `grids` the number of its object, once values are lists of objects.
    labels: Vec<u16>,
    counts: Vec<u16>,
    /// Numbers, flags and vectors.
    numbers: Vec<[u8; 4]>,
    palettes: Vec<[u8; PALETTE_BYTES]>,
    /// The output of the next step.
    next: Pictures,
    next_status: Vec<Status>,
    labeler: Labeler,
    selector: Selector,
    parts: ResultParts,
}

impl Default for Evaluator {
    fn default() -> Self {
        Self {
            width: 1,
            kind: Kind::Grid,
            at: 0,
            status: Vec::new(),
            grids: Pictures::default(),
            pieces: Pictures::default(),
            labels: Vec::new(),
            counts: Vec::new(),
            numbers: Vec::new(),
            palettes: Vec::new(),
            next: Pictures::default(),
            next_status: Vec::new(),
            labeler: Labeler::default(),
            selector: Selector::default(),
            parts: ResultParts::default(),
        }
    }
}

impl Evaluator {
    /// Takes the shapes of a run of items with `grids_per_item` grids each; `fill` writes their cells, in place
    /// and in order.
    pub fn load(&mut self, grids_per_item: usize, shapes: &[Shape], fill: impl FnOnce(&mut [u8])) {
        self.width = grids_per_item;
        self.kind = Kind::Grid;
        self.grids.load(shapes, fill);
        self.status.clear();
        self.status.resize(shapes.len(), STATUS_OK);
    }

    /// Fails grids with a cell that is not a colour, and grids that are missing in their pair.
    pub fn validate(&mut self) {
        for (value, status) in self.status.iter_mut().enumerate() {
            let grid = self.grids.get(value);
            let error = if grid.is_empty() {
                ItemErrorCode::MissingOutput
            } else if grid.cells.iter().fold(0, |max, &cell| max.max(cell)) > COLOR_MAX {
                ItemErrorCode::BadCell
            } else {
                continue;
            };
            *status = [error as u8, NO_OP];
            self.grids.wipe(value);
        }
    }

    /// Applies step `at` of a program to every item.
    ///
    /// # Panics
    /// If the step does not take what the step before it gives: no program has such steps.
    pub fn apply(&mut self, step: &Step, at: usize, ties: Ties) {
        assert_eq!((self.kind, self.width), (step.takes.kind, step.takes.width()), "{step}");
        self.at = u8::try_from(at).expect("a program has at most 64 steps");
        let of_tuple = step.takes.tuple.is_some() && !step.applied;
        if self.kind == Kind::Grid && !of_tuple && !matches!(step.op, Op::Canvas { .. }) {
            self.refuse_empty_grids();
        }
        self.perform(step.op, ties);
        (self.kind, self.width) = (step.gives.kind, step.gives.width());
    }

    /// What each op means.
    fn perform(&mut self, op: Op, ties: Ties) {
        match op {
            Op::Symmetry(symmetry) => self.mirror(symmetry),
            Op::Replace { old, new } => recolor::replace(self.grids.cells_mut(), old, new),
            Op::Switch { a, b } => recolor::switch(self.grids.cells_mut(), a, b),

            Op::MostColor => self.measure(|p| number_or_empty(ties::mostcolor(p.cells, ties))),
            Op::LeastColor => self.measure(|p| number_or_empty(ties::leastcolor(p.cells, ties))),
            Op::NumColors => {
                self.measure(|p| Ok(number(histogram::distinct(&histogram::histogram(p.cells)))))
            }
            Op::ColorCount { color } => {
                self.measure(|p| Ok(number(histogram::count(p.cells, color))));
            }
            Op::Palette => self.list_colors(|picture| ties::palette(picture.cells, ties)),

            Op::Crop { row, col, height, width } => {
                let (corner, size) =
                    ([row, col].map(usize::from), [height, width].map(usize::from));
                self.make_grids(|grid, to| cut::crop(grid, corner, size, to));
            }
            Op::Half(half) => self.make_grids(|grid, to| cut::half(grid, half, to)),
            Op::Trim => self.make_grids(cut::trim),
            Op::Compress => self.make_grids(cut::compress),
            Op::Downscale { factor } => self.make_grids(|g, to| cut::downscale(g, factor, to)),
            Op::HSplit { parts } => self.split(parts, |g, k, to| cut::hsplit(g, parts, k, to)),
            Op::VSplit { parts } => self.split(parts, |g, k, to| cut::vsplit(g, parts, k, to)),

            Op::Upscale { factor } => self.make_pictures(|p, to| scale::upscale(p, factor, to)),
            Op::HUpscale { factor } => self.make_grids(|g, to| scale::hupscale(g, factor, to)),
            Op::VUpscale { factor } => self.make_grids(|g, to| scale::vupscale(g, factor, to)),
            Op::Canvas { color, height, width } => {
                self.make_grids(|_, to| scale::canvas(color, [height, width], to));
            }

            Op::NthElement { index } => self.take_element(usize::from(index)),
            Op::HConcat => self.join(join::hconcat),
            Op::VConcat => self.join(join::vconcat),
            Op::CellWise { fallback } => self.join(|grids, to| join::cellwise(grids, fallback, to)),

            Op::Objects { univalued, diagonal, without_bg } => {
                self.label(|labeler, grid, labels| {
                    let grouping = Grouping { univalued, diagonal, without_bg };
                    let background =
                        grouping.without_bg.then(|| ties::background(grid.cells, ties));
                    labeler.label(grouping, background, grid.shape, grid.cells, labels)
                })
            }
            Op::Partition => {
                self.label(|_, grid, labels| partition::partition(grid.cells, None, labels));
            }
            Op::FgPartition => self.label(|_, grid, labels| {
                let background = ties::background(grid.cells, ties);
                partition::partition(grid.cells, Some(background), labels)
            }),
            Op::ColorFilter { color } => self.filter(|selector, ground, labels, count| {
                selector.colorfilter(ground, labels, count, color)
            }),
            Op::SizeFilter { size } => self.filter(|selector, ground, labels, count| {
                selector.sizefilter(ground, labels, count, size)
            }),
            Op::ArgMax { key } => self.choose(|selector, os, to| selector.argmax(os, key, to)),
            Op::ArgMin { key } => self.choose(|selector, os, to| selector.argmin(os, key, to)),
            Op::NthObject { index } => self.choose(|selector, os, to| selector.nth(os, index, to)),
            Op::Merge => self.choose(Selector::merge),
            Op::Size if self.kind == Kind::Objects => self.count_objects(),
            Op::Size => self.measure(|piece| Ok(number(measure::size(piece)))),

            Op::OfColor { color } => self.find(|grid, to| patch::ofcolor(grid, color, to)),
            Op::AsIndices => self.find(patch::asindices),
            Op::AsObject => self.find(patch::asobject),
            Op::ToIndices => patch::toindices(self.pieces.cells_mut()),
            Op::ToObject => self.make_pieces(patch::toobject),
            Op::Recolor { color } => patch::recolor(self.pieces.cells_mut(), color),
            Op::Shift { rows, cols } => self.move_pieces(|at| patch::shift(at, rows, cols)),
            Op::Normalize => self.move_pieces(|_| patch::normalize()),
            Op::Frame(frame) => self.make_pieces(|_, piece, to| frame::frame(frame, piece, to)),

            Op::Fill { color } => self.draw(|ground, piece| paint::fill(ground, piece, color)),
            Op::UnderFill { color } => {
                self.draw(|ground, piece| paint::underfill(ground, piece, color, ties));
            }
            Op::Cover => self.draw(|ground, piece| paint::cover(ground, piece, ties)),
            Op::Paint => self.draw(paint::paint),
            Op::UnderPaint => self.draw(|ground, object| paint::underpaint(ground, object, ties)),
            Op::Move { rows, cols } => {
                self.draw(|ground, object| paint::move_by(ground, object, [rows, cols], ties));
            }
            Op::Subgrid => self.cut_grounds(cut::subgrid),

            Op::Measure(of) => self.measure(|picture| measure::measure(of, picture)),
        }
    }

    /// Items with a failed value.
    ///
    /// # Panics
    /// Never: a run is no larger than a batch.
    #[must_use]
    pub fn item_errors(&self) -> u32 {
        let items = self.status.chunks_exact(self.width);
        let failed = items.filter(|values| values.iter().any(|&status| status != STATUS_OK));
        u32::try_from(failed.count()).expect("a batch has at most 2^22 items")
    }
}

fn number(number: u32) -> Measured {
    Measured::Number(number.cast_signed())
}

/// A colour, or an error if the picture has none.
fn number_or_empty(color: Option<u8>) -> Result<Measured, ItemErrorCode> {
    color.map(|color| number(color.into())).ok_or(ItemErrorCode::EmptyArg)
}

/// Runs `program` over a whole batch on this thread.
///
/// [`BatchError`] if the batch is empty or not what the program takes, or if its result might be too large
/// for one job.
///
/// # Panics
/// Never: the result is as long as its own layout says.
pub fn run_batch(program: &Program, batch: &GridBatch) -> Result<Outputs, BatchError> {
    let layout = batch.layout()?;
    let output = OutputLayout::new(program, layout)?;
    let all = ItemSpan { items: 0..layout.items(), cells: 0..layout.cell_count() };
    if let Some(solver) = program.solver() {
        let mut runner = Runner::default();
        runner.load(batch.tables().shapes(), |cells| cells.copy_from_slice(batch.cells()));
        runner.run(solver, &output, &all, || false);
        return Ok(assembled(program, batch, &output, &all, |part| runner.part(part)));
    }
    let mut evaluator = Evaluator::default();
    evaluator.load(layout.grids_per_item(), batch.tables().shapes(), |cells| {
        cells.copy_from_slice(batch.cells());
    });
    evaluator.validate();
    for (at, step) in program.steps().iter().enumerate() {
        evaluator.apply(step, at, program.ties());
    }
    evaluator.finish(&output, &all);
    Ok(assembled(program, batch, &output, &all, |part| evaluator.part(part)))
}

/// The results of a whole batch from their parts.
fn assembled<'e>(
    program: &Program,
    batch: &GridBatch,
    output: &OutputLayout,
    all: &ItemSpan,
    of: impl Fn(Part) -> &'e [u8],
) -> Outputs {
    let mut bytes = vec![0; output.bytes()];
    for part in Part::ALL {
        if let Some(span) = part.span(output, all) {
            let from = of(part);
            bytes[span][..from.len()].copy_from_slice(from);
        }
    }
    let outputs = Outputs::new(program.clone(), Arc::new(batch.clone()), bytes);
    outputs.expect("the layout's own length")
}
