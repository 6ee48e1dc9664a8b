//! Lists of objects: connected components, grown one ring of neighbours at a time, and cells of one colour.
//! Also the ops that choose among them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use gridpool_protocol::output::ItemErrorCode;
use gridpool_protocol::program::{Grouping, Key, Ties};

use super::cells::{Bounds, Cells, Place};
use super::colors::{most_common, palette};

/// The objects of `grid`, ordered by their first cells.
///
/// The first free cell in row-major order starts the next object.
#[must_use]
pub fn objects(grid: &Cells, grouping: Grouping, ties: Ties) -> Vec<Cells> {
    let background = if grouping.without_bg { most_common(grid, ties) } else { None };
    let cells = grid.iter().map(|(&place, &color)| (place, color));
    let mut free: BTreeMap<_, _> = cells.filter(|&(_, c)| Some(c) != background).collect();
    let mut objects = Vec::new();
    while let Some((start, color)) = free.pop_first() {
        let mut object = vec![(start, color)];
        let mut ring = BTreeSet::from([start]);
        while !ring.is_empty() {
            let around = ring.iter().flat_map(|&place| neighbors(place, grouping.diagonal));
            let fits = |c: u8| !grouping.univalued || c == color;
            ring = around.filter(|place| free.get(place).is_some_and(|&c| fits(c))).collect();
            for place in &ring {
                object.extend(free.remove_entry(place));
            }
        }
        objects.push(object.into_iter().collect());
    }
    objects
}

fn neighbors((row, col): Place, diagonal: bool) -> Vec<Place> {
    let straight = [(row - 1, col), (row + 1, col), (row, col - 1), (row, col + 1)];
    let slanting = [(row - 1, col - 1), (row - 1, col + 1), (row + 1, col - 1), (row + 1, col + 1)];
    if diagonal { [straight, slanting].concat() } else { straight.to_vec() }
}

/// The cells of each colour except `background`, ordered by their first cells.
#[must_use]
pub fn partition(grid: &Cells, background: Option<u8>) -> Vec<Cells> {
    let colors = palette(grid, Ties::Lowest).into_iter().filter(|&c| Some(c) != background);
    let of = |color| grid.iter().filter(move |&(_, &c)| c == color).map(|(&p, &c)| (p, c));
    let mut objects: Vec<Cells> = colors.map(|color| of(color).collect()).collect();
    objects.sort_by_key(|object| object.keys().next().copied());
    objects
}

/// The colour of the first cell.
#[must_use]
pub fn color(object: &Cells) -> Option<u8> {
    object.values().next().copied()
}

/// The first of the objects with the greatest key.
///
/// # Errors
/// [`ItemErrorCode::EmptyArg`] if there is none.
pub fn arg_max(objects: &[Cells], key: Key) -> Result<Cells, ItemErrorCode> {
    let greatest = objects.iter().min_by_key(|object| Reverse(measure(object, key)));
    greatest.cloned().ok_or(ItemErrorCode::EmptyArg)
}

/// The first of the objects with the least key.
///
/// # Errors
/// [`ItemErrorCode::EmptyArg`] if there is none.
pub fn arg_min(objects: &[Cells], key: Key) -> Result<Cells, ItemErrorCode> {
    let least = objects.iter().min_by_key(|object| measure(object, key));
    least.cloned().ok_or(ItemErrorCode::EmptyArg)
}

fn measure(object: &Cells, key: Key) -> i32 {
    let bounds = Bounds::of(object).expect("an object of a list has a cell");
    match key {
        Key::Color => color(object).expect("an object of a list has a cell").into(),
        Key::Height => bounds.h(),
        Key::Leftmost => bounds.left,
        Key::Lowermost => bounds.bottom,
        Key::Rightmost => bounds.right,
        Key::Size => i32::try_from(object.len()).expect("an object has few cells"),
        Key::Uppermost => bounds.top,
        Key::Width => bounds.w(),
    }
}

/// `objects[index]` as Python counts, from the end if `index` is negative.
///
/// # Errors
/// [`ItemErrorCode::BadIndex`] if there is no such object; [`ItemErrorCode::EmptyArg`] if there is no
/// first or last one.
pub fn nth(objects: &[Cells], index: i16) -> Result<Cells, ItemErrorCode> {
    let missing = match index {
        0 | -1 => ItemErrorCode::EmptyArg,
        _ => ItemErrorCode::BadIndex,
    };
    let from_start = usize::try_from(index).ok();
    let from_end = || objects.len().checked_sub(usize::from(index.unsigned_abs()));
    let at = from_start.or_else(from_end).ok_or(missing)?;
    objects.get(at).cloned().ok_or(missing)
}

/// All cells of all objects.
#[must_use]
pub fn merge(objects: &[Cells]) -> Cells {
    objects.iter().flatten().map(|(&place, &color)| (place, color)).collect()
}
