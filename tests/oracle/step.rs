//! One op on one value, or on the values of a tuple.

use std::rc::Rc;

use gridpool_protocol::output::ItemErrorCode;
use gridpool_protocol::program::{Grouping, Op, Ties};

use super::cells::{Bounds, Cells, patch, recolored, shape, shifted, turned};
use super::value::Value;
use super::{colors, grids, measure, objects, patches};

/// A value and its ground; the ground of a grid is the grid itself.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) value: Value,
    pub(super) ground: Rc<Cells>,
}

impl Found {
    pub(super) fn grid(cells: Cells) -> Self {
        let ground = Rc::new(cells.clone());
        Self { value: Value::Grid(cells), ground }
    }

    /// Applies `op` to it.
    pub(super) fn step(&self, op: Op, ties: Ties) -> Result<Self, ItemErrorCode> {
        let is_empty_grid = matches!(&self.value, Value::Grid(cells) if cells.is_empty());
        if is_empty_grid && !matches!(op, Op::Canvas { .. }) {
            return Err(ItemErrorCode::EmptyArg);
        }
        let value = match &self.value {
            Value::Grid(cells) => on_grid(op, ties, cells),
            Value::Objects(list) => on_objects(op, list),
            Value::Object(cells) => on_patch(op, ties, cells, &self.ground, Value::Object),
            Value::Patch(cells) => on_patch(op, ties, cells, &self.ground, Value::Patch),
            Value::Colors(_) | Value::Flag(_) | Value::Number(_) | Value::Vector(_) => {
                unreachable!("{op} follows an op that gives no picture")
            }
        }?;
        if let Value::Grid(cells) | Value::Object(cells) | Value::Patch(cells) = &value {
            let (h, w) = shape(cells);
            grids::check_size(h, w)?;
        }
        let ground = match &value {
            Value::Grid(cells) => Rc::new(cells.clone()),
            Value::Colors(_)
            | Value::Flag(_)
            | Value::Number(_)
            | Value::Object(_)
            | Value::Objects(_)
            | Value::Patch(_)
            | Value::Vector(_) => Rc::clone(&self.ground),
        };
        Ok(Self { value, ground })
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "the other ops do not work on grids alone")]
fn on_grid(op: Op, ties: Ties, grid: &Cells) -> Result<Value, ItemErrorCode> {
    Ok(match op {
        Op::AsIndices => Value::Patch(patch(grid.keys().copied())),
        Op::AsObject => Value::Object(grid.clone()),
        Op::Canvas { color, height, width } => Value::Grid(grids::canvas(color, height, width)),
        Op::Compress => Value::Grid(grids::compress(grid)),
        Op::Crop { row, col, height, width } => {
            let start = (row.into(), col.into());
            Value::Grid(grids::crop(grid, start, (height.into(), width.into())))
        }
        Op::Downscale { factor } => Value::Grid(grids::downscale(grid, factor)),
        Op::FgPartition => {
            let background = colors::most_common(grid, ties);
            Value::Objects(objects::partition(grid, background))
        }
        Op::Half(half) => Value::Grid(grids::half(grid, half)),
        Op::HUpscale { factor } => Value::Grid(grids::upscale(grid, 1, factor)?),
        Op::Objects { univalued, diagonal, without_bg } => {
            let grouping = Grouping { univalued, diagonal, without_bg };
            Value::Objects(objects::objects(grid, grouping, ties))
        }
        Op::OfColor { color } => {
            let places = grid.iter().filter(|&(_, &c)| c == color);
            Value::Patch(patch(places.map(|(&place, _)| place)))
        }
        Op::Partition => Value::Objects(objects::partition(grid, None)),
        Op::Replace { old, new } => {
            Value::Grid(recolored(grid, |c| if c == old { new } else { c }))
        }
        Op::Switch { a, b } => {
            let other = |c| if c == a { b } else { a };
            Value::Grid(recolored(grid, |c| if c == a || c == b { other(c) } else { c }))
        }
        Op::Trim => Value::Grid(grids::trim(grid)),
        Op::VUpscale { factor } => Value::Grid(grids::upscale(grid, factor, 1)?),
        _ => return on_colored(op, ties, grid, Value::Grid),
    })
}

#[expect(clippy::wildcard_enum_match_arm, reason = "the other ops do not work on lists")]
fn on_objects(op: Op, list: &[Cells]) -> Result<Value, ItemErrorCode> {
    let keep = |keep: &dyn Fn(&Cells) -> bool| {
        Value::Objects(list.iter().filter(|object| keep(object)).cloned().collect())
    };
    Ok(match op {
        Op::ArgMax { key } => Value::Object(objects::arg_max(list, key)?),
        Op::ArgMin { key } => Value::Object(objects::arg_min(list, key)?),
        Op::ColorFilter { color } => keep(&|object| objects::color(object) == Some(color)),
        Op::Merge => Value::Object(objects::merge(list)),
        Op::NthObject { index } => Value::Object(objects::nth(list, index)?),
        Op::Size => number(list.len()),
        Op::SizeFilter { size } => keep(&|object| object.len() == usize::from(size)),
        _ => unreachable!("{op} does not work on a list of objects"),
    })
}

/// An op on an object or a patch; `same` makes a value of the same kind.
#[expect(clippy::wildcard_enum_match_arm, reason = "the other ops do not work on patches alone")]
fn on_patch(
    op: Op,
    ties: Ties,
    cells: &Cells,
    ground: &Cells,
    same: fn(Cells) -> Value,
) -> Result<Value, ItemErrorCode> {
    let background = || colors::most_common(ground, ties);
    let filled = |color: u8| recolored(cells, |_| color);
    let covered = || patches::paint(ground, &filled(background().expect("a ground has a cell")));
    Ok(match op {
        Op::Cover => Value::Grid(covered()),
        Op::Fill { color } => Value::Grid(patches::paint(ground, &filled(color))),
        Op::Frame(frame) => Value::Patch(patches::frame(cells, frame)),
        Op::Move { rows, cols } => {
            let moved = shifted(cells, (rows.into(), cols.into()));
            Value::Grid(patches::paint(&covered(), &moved))
        }
        Op::Normalize => {
            let origin = Bounds::of(cells).map_or((0, 0), |b| (-b.top, -b.left));
            same(shifted(cells, origin))
        }
        Op::Paint => Value::Grid(patches::paint(ground, cells)),
        Op::Recolor { color } => Value::Object(filled(color)),
        Op::Shift { rows, cols } => same(shifted(cells, (rows.into(), cols.into()))),
        Op::Size => number(cells.len()),
        Op::Subgrid => Value::Grid(patches::subgrid(cells, ground)?),
        Op::ToIndices => Value::Patch(filled(0)),
        Op::ToObject => Value::Object(patches::to_object(cells, ground)),
        Op::UnderFill { color } => {
            Value::Grid(patches::under_paint(ground, &filled(color), background()))
        }
        Op::UnderPaint => Value::Grid(patches::under_paint(ground, cells, background())),
        _ => return on_colored(op, ties, cells, same),
    })
}

/// An op that works on grids and on objects or patches alike.
#[expect(clippy::wildcard_enum_match_arm, reason = "the other ops do not work on both")]
fn on_colored(
    op: Op,
    ties: Ties,
    cells: &Cells,
    same: fn(Cells) -> Value,
) -> Result<Value, ItemErrorCode> {
    let color = |color: Option<u8>| color.map(Into::into).ok_or(ItemErrorCode::EmptyArg);
    Ok(match op {
        Op::ColorCount { color } => number(colors::count(cells, color)),
        Op::LeastColor => Value::Number(color(colors::least_common(cells, ties))?),
        Op::Measure(measure) => measure::measure(cells, measure)?,
        Op::MostColor => Value::Number(color(colors::most_common(cells, ties))?),
        Op::NumColors => number(colors::palette(cells, ties).len()),
        Op::Palette => Value::Colors(colors::palette(cells, ties)),
        Op::Symmetry(symmetry) => {
            // A grid starts at (0, 0), and so does its box.
            same(turned(cells, symmetry))
        }
        Op::Upscale { factor } => same(grids::upscale(cells, factor, factor)?),
        _ => unreachable!("{op} does not work on one picture"),
    })
}

/// A split: the parts of a grid.
#[expect(clippy::wildcard_enum_match_arm, reason = "the other ops do not split")]
pub(super) fn split(op: Op, found: &Found) -> Option<Result<Vec<Found>, ItemErrorCode>> {
    let Value::Grid(grid) = &found.value else {
        return None;
    };
    let parts = match op {
        Op::HSplit { parts } => grids::hsplit(grid, parts),
        Op::VSplit { parts } => grids::vsplit(grid, parts),
        _ => return None,
    };
    if grid.is_empty() {
        return Some(Err(ItemErrorCode::EmptyArg));
    }
    Some(Ok(parts.into_iter().map(Found::grid).collect()))
}

/// All grids of a tuple as one.
#[expect(clippy::wildcard_enum_match_arm, reason = "the other ops do not join")]
pub(super) fn join(op: Op, elements: &[Found]) -> Result<Found, ItemErrorCode> {
    let grids: Vec<Cells> = elements.iter().map(|element| (*element.ground).clone()).collect();
    if grids.iter().any(Cells::is_empty) {
        return Err(ItemErrorCode::EmptyArg);
    }
    let joined = match op {
        Op::CellWise { fallback } => grids::cellwise(&grids[0], &grids[1], fallback)?,
        Op::HConcat => grids::hconcat(&grids),
        Op::VConcat => grids::vconcat(&grids)?,
        _ => unreachable!("{op} does not work on a tuple"),
    };
    let (h, w) = shape(&joined);
    grids::check_size(h, w)?;
    Ok(Found::grid(joined))
}

fn number(count: usize) -> Value {
    Value::Number(i32::try_from(count).expect("a picture has at most 4,096 cells"))
}
