//! Measures of a picture: where its box lies, its size, its shape.
//!
//! Mirrors `kernels/cuda/measure.cuh`.

use gridpool_protocol::output::ItemErrorCode;
use gridpool_protocol::program::Measure;

use super::picture::{HOLE, Origin, Picture};

/// The result of a measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measured {
    /// True or false.
    Flag(bool),
    /// A number of cells, a coordinate, or a colour.
    Number(i32),
    /// A row and a column, or a height and a width.
    Vector([i16; 2]),
}

impl Measured {
    /// Its four bytes in a result: an `i32`, 0 or 1 as an `i32`, or two `i16`.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 4] {
        match self {
            Self::Flag(flag) => i32::from(flag).to_le_bytes(),
            Self::Number(number) => number.to_le_bytes(),
            Self::Vector([row, col]) => {
                let ([a, b], [c, d]) = (row.to_le_bytes(), col.to_le_bytes());
                [a, b, c, d]
            }
        }
    }
}

/// Measures a grid, an object or a patch.
///
/// # Errors
/// [`ItemErrorCode::EmptyArg`] if the picture is empty and the result would be a place or a colour.
pub fn measure(measure: Measure, picture: Picture<'_>) -> Result<Measured, ItemErrorCode> {
    let [h, w] = picture.shape.map(i16::from);
    Ok(match measure {
        Measure::Height => Measured::Number(i32::from(h)),
        Measure::Width => Measured::Number(i32::from(w)),
        Measure::Shape => Measured::Vector([h, w]),
        Measure::Square => Measured::Flag(h == w && is_full(picture)),
        Measure::Portrait => Measured::Flag(h > w),
        Measure::HLine => Measured::Flag(h == 1 && is_full(picture)),
        Measure::VLine => Measured::Flag(w == 1 && is_full(picture)),
        Measure::Center
        | Measure::CenterOfMass
        | Measure::Color
        | Measure::Leftmost
        | Measure::LlCorner
        | Measure::Lowermost
        | Measure::LrCorner
        | Measure::Rightmost
        | Measure::UlCorner
        | Measure::Uppermost
        | Measure::UrCorner => {
            if picture.is_empty() {
                return Err(ItemErrorCode::EmptyArg);
            }
            place(measure, picture)
        }
    })
}

/// How many cells a piece has; holes do not count.
///
/// # Panics
/// Never: a picture has at most 4,096 places.
#[must_use]
pub fn size(piece: Picture<'_>) -> u32 {
    u32::try_from(piece.size()).expect("a picture has at most 4,096 places")
}

/// The measures of a picture that is not empty.
fn place(measure: Measure, picture: Picture<'_>) -> Measured {
    let ([top, left], [h, w]) = (picture.origin, picture.shape.map(i16::from));
    let (bottom, right) = (top + h - 1, left + w - 1);
    match measure {
        Measure::Uppermost => Measured::Number(i32::from(top)),
        Measure::Lowermost => Measured::Number(i32::from(bottom)),
        Measure::Leftmost => Measured::Number(i32::from(left)),
        Measure::Rightmost => Measured::Number(i32::from(right)),
        Measure::UlCorner => Measured::Vector([top, left]),
        Measure::UrCorner => Measured::Vector([top, right]),
        Measure::LlCorner => Measured::Vector([bottom, left]),
        Measure::LrCorner => Measured::Vector([bottom, right]),
        Measure::Center => Measured::Vector([top + h / 2, left + w / 2]),
        Measure::CenterOfMass => Measured::Vector(center_of_mass(picture)),
        Measure::Color => Measured::Number(i32::from(first_color(picture))),
        Measure::Height
        | Measure::HLine
        | Measure::Portrait
        | Measure::Shape
        | Measure::Square
        | Measure::VLine
        | Measure::Width => unreachable!("it has an answer for empty pictures too"),
    }
}

/// Whether the box has no hole.
fn is_full(picture: Picture<'_>) -> bool {
    picture.size() == picture.cells.len()
}

/// The colour of the first cell, row-major.
fn first_color(picture: Picture<'_>) -> u8 {
    let mut cells = picture.cells.iter().copied().filter(|&cell| cell != HOLE);
    cells.next().expect("a picture that is not empty has a cell")
}

/// The mean row and the mean column, each rounded down, towards minus infinity.
fn center_of_mass(picture: Picture<'_>) -> Origin {
    let (mut count, mut rows, mut cols) = (0, 0, 0);
    for (row, col, _) in picture.placed() {
        count += 1;
        rows += row;
        cols += col;
    }
    [rows, cols].map(|sum: i32| {
        i16::try_from(sum.div_euclid(count)).expect("a mean lies between the places")
    })
}

#[cfg(test)]
mod tests {
    use super::super::drawing::{Drawing, drawing, grid};
    use super::Measured::{Flag, Number, Vector};
    use super::*;

    fn of(which: Measure, drawing: &Drawing) -> Result<Measured, ItemErrorCode> {
        measure(which, drawing.picture())
    }

    #[test]
    fn measures_of_a_piece_off_the_origin() {
        let piece = drawing([-3, 5], &[".12", "3.."]);
        let cases = [
            (Measure::Height, Number(2)),
            (Measure::Width, Number(3)),
            (Measure::Shape, Vector([2, 3])),
            (Measure::Uppermost, Number(-3)),
            (Measure::Lowermost, Number(-2)),
            (Measure::Leftmost, Number(5)),
            (Measure::Rightmost, Number(7)),
            (Measure::UlCorner, Vector([-3, 5])),
            (Measure::UrCorner, Vector([-3, 7])),
            (Measure::LlCorner, Vector([-2, 5])),
            (Measure::LrCorner, Vector([-2, 7])),
            (Measure::Center, Vector([-2, 6])),
            // Rows (-3 - 3 - 2) / 3 = -2.67, columns (6 + 7 + 5) / 3 = 6.
            (Measure::CenterOfMass, Vector([-3, 6])),
            (Measure::Color, Number(1)),
            (Measure::Square, Flag(false)),
            (Measure::Portrait, Flag(false)),
        ];
        for (which, want) in cases {
            assert_eq!(of(which, &piece), Ok(want), "{which:?}");
        }
    }

    #[test]
    fn a_square_is_full() {
        assert_eq!(of(Measure::Square, &drawing([4, 4], &["11", "11"])), Ok(Flag(true)));
        assert_eq!(of(Measure::Square, &drawing([4, 4], &["1.", "11"])), Ok(Flag(false)));
        assert_eq!(of(Measure::Square, &grid(&["12", "34"])), Ok(Flag(true)));
        assert_eq!(of(Measure::Square, &grid(&["12"])), Ok(Flag(false)));
        assert_eq!(of(Measure::Portrait, &grid(&["1", "2"])), Ok(Flag(true)));
    }

    #[test]
    fn lines_are_one_cell_thick_and_have_no_hole() {
        for (rows, hline, vline) in [
            (&["111"][..], true, false),
            (&["1", "1"], false, true),
            (&["1"], true, true),
            (&["1.1"], false, false),
            (&["11", "11"], false, false),
        ] {
            let piece = drawing([9, 9], rows);
            assert_eq!(of(Measure::HLine, &piece), Ok(Flag(hline)), "{rows:?}");
            assert_eq!(of(Measure::VLine, &piece), Ok(Flag(vline)), "{rows:?}");
        }
    }

    #[test]
    fn an_empty_picture_has_a_size_and_no_place() {
        let nothing = drawing([0, 0], &[]);
        for which in Measure::ALL {
            let want = match which {
                Measure::Height | Measure::Width => Ok(Number(0)),
                Measure::Shape => Ok(Vector([0, 0])),
                Measure::Square => Ok(Flag(true)),
                Measure::Portrait | Measure::HLine | Measure::VLine => Ok(Flag(false)),
                Measure::Center
                | Measure::CenterOfMass
                | Measure::Color
                | Measure::Leftmost
                | Measure::LlCorner
                | Measure::Lowermost
                | Measure::LrCorner
                | Measure::Rightmost
                | Measure::UlCorner
                | Measure::Uppermost
                | Measure::UrCorner => Err(ItemErrorCode::EmptyArg),
            };
            assert_eq!(of(which, &nothing), want, "{which:?}");
        }
    }

    #[test]
    fn four_bytes_hold_every_answer() {
        assert_eq!(Number(-2).to_bytes(), [0xfe, 0xff, 0xff, 0xff]);
        assert_eq!(Flag(true).to_bytes(), [1, 0, 0, 0]);
        assert_eq!(Vector([-1, 258]).to_bytes(), [0xff, 0xff, 2, 1]);
    }
}
