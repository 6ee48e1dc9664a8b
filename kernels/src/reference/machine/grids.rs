//! Primitives that make grids from grids.

use std::ops::Range;

use gridpool_protocol::output::ItemErrorCode;
use gridpool_protocol::solver::Opcode;
use gridpool_protocol::solver::value::{Grid, Value};

use super::objects::{column, is_uniform};
use super::patches::{moved, shifted};
use super::support::{
    Ends, Frame, cells, columns, grid, grid_color, made, number, to_set, to_tuple, vector,
};

/// The grid whose cell (row, col) is that of the other at `from(row, col)`, which must be in it.
fn picked(
    grid: &Grid,
    height: usize,
    width: usize,
    from: impl Fn(usize, usize) -> (usize, usize),
) -> Ends {
    made(height, width, |row, col| {
        let (row, col) = from(row, col);
        grid.cells().get(row * grid.width() + col).copied().ok_or(ItemErrorCode::BadIndex)
    })
}

/// What a symmetry does to a grid: transpose it first or not, then turn rows or columns round.
fn turned(a: &Value, transpose: bool, rows: bool, cols: bool) -> Ends {
    let grid = grid(a)?;
    let (height, width) = (grid.height(), grid.width());
    let (out_height, out_width) = if transpose { (width, height) } else { (height, width) };
    picked(grid, out_height, out_width, |row, col| {
        let row = if rows { out_height - 1 - row } else { row };
        let col = if cols { out_width - 1 - col } else { col };
        if transpose { (col, row) } else { (row, col) }
    })
}

/// A patch mirrored within its box; a grid as [`turned`].
fn mirrored(op: Opcode, a: &Value) -> Ends {
    if let Value::Grid(_) = a {
        return match op {
            Opcode::HMirror => turned(a, false, true, false),
            Opcode::VMirror => turned(a, false, false, true),
            Opcode::DMirror => turned(a, true, false, false),
            _ => turned(a, true, true, true),
        };
    }
    let Frame { top, left, bottom, right } = Frame::needed(a)?;
    match op {
        Opcode::HMirror => moved(a, |[row, col]| [top + bottom - row, col]),
        Opcode::VMirror => moved(a, |[row, col]| [row, left + right - col]),
        Opcode::DMirror => moved(a, |[row, col]| [col - left + top, row - top + left]),
        _ => {
            let turned = mirrored(Opcode::DMirror, &mirrored(Opcode::VMirror, a)?)?;
            mirrored(Opcode::VMirror, &turned)
        }
    }
}

/// The part of `length` lines that Python's slice from `start` to `start + size` takes.
fn slice(length: usize, start: i64, size: i64) -> Range<usize> {
    let length = i64::try_from(length).unwrap_or(i64::MAX);
    let clip = |at: i64| if at < 0 { (at + length).max(0) } else { at.min(length) };
    let (start, end) = (clip(start), clip(start + size));
    let whole = |at: i64| usize::try_from(at).unwrap_or(0);
    whole(start)..whole(end.max(start))
}

/// The cells of these rows and columns.
fn cut(grid: &Grid, rows: Range<usize>, cols: Range<usize>) -> Ends {
    picked(grid, rows.len(), cols.len(), |row, col| (rows.start + row, cols.start + col))
}

/// `crop(grid, start, dims)`.
pub(super) fn cropped(grid: &Grid, start: [i64; 2], dims: [i64; 2]) -> Ends {
    let rows = slice(grid.height(), start[0], dims[0]);
    cut(grid, rows, slice(grid.width(), start[1], dims[1]))
}

fn subgrid(patch: &Value, within: &Value) -> Ends {
    let frame = Frame::needed(patch)?;
    let dims = [super::measures::height(patch)?, super::measures::width(patch)?];
    cropped(grid(within)?, [frame.top, frame.left], dims)
}

/// `hsplit` (half 1) and `vsplit` (half 0).
fn split(a: &Value, n: &Value, half: usize) -> Ends {
    let (grid, n) = (grid(a)?, number(n)?);
    columns(grid)?;
    let sides = [grid.height(), grid.width()].map(|side| i64::try_from(side).unwrap_or(i64::MAX));
    if n == 0 {
        return Err(ItemErrorCode::BadNumber);
    }
    if n > i64::from(gridpool_protocol::limits::VALUE_WEIGHT_MAX) {
        return Err(ItemErrorCode::Overflow);
    }
    let part = super::numbers::floor_divided(sides[half], n)?;
    let gap = i64::from(sides[half] % n != 0);
    let mut parts = Vec::new();
    for at in 0..n {
        let (mut start, mut dims) = ([0, 0], sides);
        start[half] = (part + gap) * at;
        dims[half] = part;
        parts.push(cropped(grid, start, dims)?);
    }
    to_tuple(parts)
}

fn half(op: Opcode, a: &Value) -> Ends {
    let grid = grid(a)?;
    let (height, width) = (grid.height(), grid.width());
    match op {
        Opcode::TopHalf => cut(grid, 0..height / 2, 0..width),
        Opcode::BottomHalf => cut(grid, height.div_ceil(2)..height, 0..width),
        // Through a quarter turn: a grid without columns has no rows behind it either.
        Opcode::LeftHalf if width / 2 == 0 => made(0, 0, |_, _| Ok(0)),
        Opcode::LeftHalf => cut(grid, 0..height, 0..width / 2),
        _ if width / 2 == 0 => made(0, 0, |_, _| Ok(0)),
        _ => cut(grid, 0..height, width.div_ceil(2)..width),
    }
}

fn hconcat(a: &Value, b: &Value) -> Ends {
    let (a, b) = (grid(a)?, grid(b)?);
    let (height, left) = (a.height().min(b.height()), a.width());
    made(height, left + b.width(), |row, col| {
        let (grid, col) = if col < left { (a, col) } else { (b, col - left) };
        grid.cells().get(row * grid.width() + col).copied().ok_or(ItemErrorCode::BadIndex)
    })
}

fn vconcat(a: &Value, b: &Value) -> Ends {
    let (a, b) = (grid(a)?, grid(b)?);
    if a.height() > 0 && b.height() > 0 && a.width() != b.width() {
        return Err(ItemErrorCode::BadShape);
    }
    let (height, width) = (a.height() + b.height(), a.width().max(b.width()));
    let cells = [a.cells(), b.cells()].concat();
    made(height, width, |row, col| Ok(cells[row * width + col]))
}

fn cellwise(a: &Value, b: &Value, fallback: &Value) -> Ends {
    let (a, b, fallback) = (grid(a)?, grid(b)?, number(fallback)?);
    let width = columns(a)?;
    made(a.height(), width, |row, col| {
        let at = |grid: &Grid| {
            let (row, col) = (i64::try_from(row).ok()?, i64::try_from(col).ok()?);
            grid.get(row, col)
        };
        let (one, two) = (at(a), at(b).ok_or(ItemErrorCode::BadIndex)?);
        if one == Some(two) { Ok(two) } else { grid_color(fallback) }
    })
}

fn compressed(a: &Value) -> Ends {
    let grid = grid(a)?;
    let rows: Vec<_> = grid.rows().filter(|row| !is_uniform(row.iter().copied())).collect();
    let cols: Vec<_> = (0..grid.width()).filter(|col| !is_uniform(column(grid, *col))).collect();
    made(rows.len(), cols.len(), |row, col| Ok(rows[row][cols[col]]))
}

/// A number of copies; none if it is below 1.
fn copies(number: i64) -> Ends<usize> {
    usize::try_from(number.max(0)).map_err(|_| ItemErrorCode::Overflow)
}

/// A grid with each row and column so many times.
fn scaled(grid: &Grid, down: i64, right: i64) -> Ends {
    let (down, right) = (copies(down)?, copies(right)?);
    let sides = (grid.height().saturating_mul(down), grid.width().saturating_mul(right));
    picked(grid, sides.0, sides.1, |row, col| (row / down, col / right))
}

fn upscaled(a: &Value, factor: &Value) -> Ends {
    let factor = number(factor)?;
    if let Value::Grid(grid) = a {
        return scaled(grid, factor, factor);
    }
    let Some(frame) = Frame::of(a)? else { return to_set(Vec::new()) };
    let copies = factor.max(0);
    let weight = copies.saturating_mul(copies).saturating_mul(i64::from(a.weight()));
    if weight > i64::from(gridpool_protocol::limits::VALUE_WEIGHT_MAX) {
        return Err(ItemErrorCode::Overflow);
    }
    let normal = shifted(a, [-frame.top, -frame.left])?;
    let mut scaled = Vec::new();
    for cell in cells(&normal) {
        let (color, place) = cell?;
        let [row, col] = place.map(i64::from);
        for down in 0..copies {
            for right in 0..copies {
                let at = [row * factor + down + frame.top, col * factor + right + frame.left];
                scaled.push(Value::Cell(color, super::support::halves(at)?));
            }
        }
    }
    to_set(scaled)
}

fn downscaled(a: &Value, factor: &Value) -> Ends {
    let (grid, factor) = (grid(a)?, number(factor)?);
    let width = columns(grid)?;
    let step = usize::try_from(factor.abs()).map_err(|_| ItemErrorCode::Overflow)?;
    if step == 0 {
        return Err(ItemErrorCode::BadNumber);
    }
    let sides = (grid.height().div_ceil(step), width.div_ceil(step));
    picked(grid, sides.0, sides.1, |row, col| (row * step, col * step))
}

/// The primitives of this family; `None` if the opcode is of another.
pub(super) fn run(op: Opcode, a: &Value, b: &Value, c: &Value) -> Option<Ends> {
    Some(match op {
        Opcode::Rot90 => turned(a, true, false, true),
        Opcode::Rot180 => turned(a, false, true, true),
        Opcode::Rot270 => turned(a, true, true, false),
        Opcode::HMirror | Opcode::VMirror | Opcode::DMirror | Opcode::CMirror => mirrored(op, a),
        Opcode::Crop => grid(a).and_then(|grid| cropped(grid, vector(b)?, vector(c)?)),
        Opcode::Subgrid => subgrid(a, b),
        Opcode::Trim => grid(a).and_then(|grid| {
            let inner = |side: usize| 1.min(side)..side.saturating_sub(1).max(1.min(side));
            cut(grid, inner(grid.height()), inner(grid.width()))
        }),
        Opcode::TopHalf | Opcode::BottomHalf | Opcode::LeftHalf | Opcode::RightHalf => half(op, a),
        Opcode::HSplit => split(a, b, 1),
        Opcode::VSplit => split(a, b, 0),
        Opcode::HConcat => hconcat(a, b),
        Opcode::VConcat => vconcat(a, b),
        Opcode::CellWise => cellwise(a, b, c),
        Opcode::Compress => compressed(a),
        Opcode::Canvas => number(a).and_then(|color| {
            let [height, width] = vector(b)?;
            made(copies(height)?, copies(width)?, |_, _| grid_color(color))
        }),
        Opcode::Upscale => upscaled(a, b),
        Opcode::HUpscale => grid(a).and_then(|grid| scaled(grid, 1, number(b)?)),
        Opcode::VUpscale => grid(a).and_then(|grid| scaled(grid, number(b)?, 1)),
        Opcode::Downscale => downscaled(a, b),
        _ => return None,
    })
}
