//! Palettes, and the commonest and the rarest colour, under both ways to break ties.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use gridpool_protocol::program::Ties;

use super::picture::Picture;
use super::python_set::PythonSet;

/// The distinct colours, in the order in which `ties` looks at them.
#[must_use]
pub fn palette(picture: &Picture, ties: Ties) -> Vec<u8> {
    match ties {
        Ties::Cpython => picture.colors().collect::<PythonSet>().iter().collect(),
        Ties::Lowest => picture.colors().collect::<BTreeSet<u8>>().into_iter().collect(),
    }
}

/// `max(palette, key=count)`: the first of the palette that no other outnumbers.
#[must_use]
pub fn most_common(picture: &Picture, ties: Ties) -> u8 {
    let palette = palette(picture, ties).into_iter();
    palette.min_by_key(|&color| Reverse(count(picture, color))).expect("a grid has a cell")
}

/// `min(palette, key=count)`: the first of the palette that outnumbers no other.
#[must_use]
pub fn least_common(picture: &Picture, ties: Ties) -> u8 {
    let palette = palette(picture, ties).into_iter();
    palette.min_by_key(|&color| count(picture, color)).expect("a grid has a cell")
}

fn count(picture: &Picture, color: u8) -> usize {
    picture.colors().filter(|&c| c == color).count()
}
