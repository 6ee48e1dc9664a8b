//! Patches made of the box of an object or a patch: its outline, its corners, its gaps.
//!
//! The frame of an empty piece is empty.
//!
//! Mirrors `kernels/cuda/frame.cuh`.

use gridpool_protocol::program::Frame;

use super::picture::{HOLE, Made, Picture, Pictures};

/// The frame of a piece.
///
/// # Errors
/// `Overflow`, only for an outbox or inbox.
pub fn frame(frame: Frame, piece: Picture<'_>, to: &mut Pictures) -> Made {
    if piece.is_empty() {
        to.push_empty();
        return Ok(());
    }
    match frame {
        Frame::Backdrop => backdrop(piece, to),
        Frame::Box => outline(Lines::of(piece), to),
        Frame::Corners => corners(piece, to),
        Frame::Delta => delta(piece, to),
        Frame::InBox => outline(Lines::of(piece).moved_in(), to),
        Frame::OutBox => outline(Lines::of(piece).moved_out(), to),
    }
}

/// Every place of the box.
fn backdrop(piece: Picture<'_>, to: &mut Pictures) -> Made {
    to.push_by_place([piece.h(), piece.w()], piece.origin, |_, _| 0)
}

/// The places of the box that the piece leaves free; possibly none.
fn delta(piece: Picture<'_>, to: &mut Pictures) -> Made {
    let free = |i, j| if piece.at(i, j) == HOLE { 0 } else { HOLE };
    to.push_by_place([piece.h(), piece.w()], piece.origin, free)?;
    to.tighten_last();
    Ok(())
}

/// The four corners of the box, as a set: two or one if it is a line or a single place.
fn corners(piece: Picture<'_>, to: &mut Pictures) -> Made {
    let (last_row, last_col) = (piece.h() - 1, piece.w() - 1);
    to.push_by_place([piece.h(), piece.w()], piece.origin, |i, j| {
        let is_corner = (i == 0 || i == last_row) && (j == 0 || j == last_col);
        if is_corner { 0 } else { HOLE }
    })
}

/// The first and last row and the first and last column of a rectangle.
#[derive(Clone, Copy)]
struct Lines {
    rows: [i16; 2],
    cols: [i16; 2],
}

impl Lines {
    fn of(piece: Picture<'_>) -> Self {
        let last = |first: i16, side: u8| first + i16::from(side) - 1;
        let ([top, left], [h, w]) = (piece.origin, piece.shape);
        Self { rows: [top, last(top, h)], cols: [left, last(left, w)] }
    }

    fn moved_out(self) -> Self {
        let out = |[first, last]: [i16; 2]| [first - 1, last + 1];
        Self { rows: out(self.rows), cols: out(self.cols) }
    }

    /// Lines that pass each other swap places, as in the DSL: the inbox of one place is the eight places around
    /// it.
    fn moved_in(self) -> Self {
        let inward = |[first, last]: [i16; 2]| {
            let (first, last) = (first + 1, last - 1);
            [first.min(last), first.max(last)]
        };
        Self { rows: inward(self.rows), cols: inward(self.cols) }
    }
}

/// The places on the four lines.
fn outline(Lines { rows, cols }: Lines, to: &mut Pictures) -> Made {
    let side = |[first, last]: [i16; 2]| usize::from(first.abs_diff(last)) + 1;
    let (h, w) = (side(rows), side(cols));
    to.push_by_place([h, w], [rows[0], cols[0]], |i, j| {
        let is_on_it = i == 0 || i == h - 1 || j == 0 || j == w - 1;
        if is_on_it { 0 } else { HOLE }
    })
}

#[cfg(test)]
mod tests {
    use gridpool_protocol::output::ItemErrorCode;

    use super::super::drawing::{Drawing, drawing, made};
    use super::*;

    fn of(which: Frame, origin: [i16; 2], rows: &[&str]) -> Result<Drawing, ItemErrorCode> {
        made(|to| frame(which, drawing(origin, rows).picture(), to))
    }

    #[test]
    fn frames_of_a_piece_with_gaps() {
        let of = |which| of(which, [2, 3], &["1..", "...", "..4"]).unwrap();
        assert_eq!(of(Frame::Backdrop), drawing([2, 3], &["000", "000", "000"]));
        assert_eq!(of(Frame::Delta), drawing([2, 3], &[".00", "000", "00."]));
        assert_eq!(of(Frame::Box), drawing([2, 3], &["000", "0.0", "000"]));
        assert_eq!(of(Frame::Corners), drawing([2, 3], &["0.0", "...", "0.0"]));
        assert_eq!(of(Frame::InBox), drawing([3, 4], &["0"]));
        let out = ["00000", "0...0", "0...0", "0...0", "00000"];
        assert_eq!(of(Frame::OutBox), drawing([1, 2], &out));
    }

    #[test]
    fn the_inbox_of_one_place_is_the_eight_around_it() {
        let eight = drawing([4, 4], &["000", "0.0", "000"]);
        assert_eq!(of(Frame::InBox, [5, 5], &["0"]), Ok(eight.clone()));
        assert_eq!(of(Frame::OutBox, [5, 5], &["0"]), Ok(eight));
        assert_eq!(of(Frame::InBox, [0, 0], &["00", "00"]), Ok(drawing([0, 0], &["00", "00"])));
        let line = drawing([-1, 1], &["00", "00", "00"]);
        assert_eq!(of(Frame::InBox, [0, 0], &["0000"]), Ok(line));
    }

    #[test]
    fn delta_is_tight_and_may_be_empty() {
        assert_eq!(of(Frame::Delta, [0, 0], &["00", "00"]), Ok(drawing([0, 0], &[])));
        assert_eq!(of(Frame::Delta, [7, 7], &["00", "0."]), Ok(drawing([8, 8], &["0"])));
    }

    #[test]
    fn corners_of_lines_are_fewer() {
        assert_eq!(of(Frame::Corners, [0, 0], &["5"]), Ok(drawing([0, 0], &["0"])));
        assert_eq!(of(Frame::Corners, [0, 0], &["555"]), Ok(drawing([0, 0], &["0.0"])));
    }

    #[test]
    fn frames_of_an_empty_piece_are_empty() {
        for which in
            [Frame::Backdrop, Frame::Box, Frame::Corners, Frame::Delta, Frame::InBox, Frame::OutBox]
        {
            assert_eq!(of(which, [0, 0], &[]), Ok(drawing([0, 0], &[])), "{which:?}");
        }
    }

    #[test]
    fn an_outbox_may_be_too_large() {
        assert_eq!(of(Frame::OutBox, [0, 0], &["0"; 254]), Err(ItemErrorCode::Overflow));
        assert!(of(Frame::OutBox, [0, 0], &["0"; 253]).is_ok());
        let row = "0".repeat(63);
        assert_eq!(of(Frame::OutBox, [0, 0], &[row.as_str(); 63]), Err(ItemErrorCode::Overflow));
    }
}
