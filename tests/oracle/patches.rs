//! Patches made of boxes, and painting objects and patches on their ground.

use gridpool_protocol::output::ItemErrorCode;
use gridpool_protocol::program::Frame;

use super::cells::{Bounds, Cells, only, patch};
use super::grids::crop;

/// A patch made of the box of `cells`; without cells the empty patch.
#[must_use]
pub fn frame(cells: &Cells, frame: Frame) -> Cells {
    let Some(bounds) = Bounds::of(cells) else {
        return Cells::new();
    };
    match frame {
        Frame::Backdrop => patch(bounds.places()),
        Frame::Box => outline(bounds, 0),
        Frame::Corners => only(&patch(bounds.places()), |(row, col)| {
            (row == bounds.top || row == bounds.bottom)
                && (col == bounds.left || col == bounds.right)
        }),
        Frame::Delta => only(&patch(bounds.places()), |place| !cells.contains_key(&place)),
        Frame::InBox => outline(bounds, -1),
        Frame::OutBox => outline(bounds, 1),
    }
}

/// The border of the box, with each side moved outwards by `outwards`. Sides that pass each other swap.
fn outline(Bounds { top, bottom, left, right }: Bounds, outwards: i32) -> Cells {
    let (one_row, other_row) = (top - outwards, bottom + outwards);
    let (one_col, other_col) = (left - outwards, right + outwards);
    let rectangle = Bounds {
        top: one_row.min(other_row),
        bottom: one_row.max(other_row),
        left: one_col.min(other_col),
        right: one_col.max(other_col),
    };
    only(&patch(rectangle.places()), |(row, col)| {
        [one_row, other_row].contains(&row) || [one_col, other_col].contains(&col)
    })
}

/// The ground's own cells at these places, if it has them.
#[must_use]
pub fn to_object(cells: &Cells, ground: &Cells) -> Cells {
    only(ground, |place| cells.contains_key(&place))
}

/// The ground with these cells replaced; cells beside the ground are ignored.
#[must_use]
pub fn paint(ground: &Cells, cells: &Cells) -> Cells {
    let color = |(&place, &under): (_, &u8)| (place, *cells.get(&place).unwrap_or(&under));
    ground.iter().map(color).collect()
}

/// Like [`paint`], but only where the ground has the colour `background`.
#[must_use]
pub fn under_paint(ground: &Cells, cells: &Cells, background: Option<u8>) -> Cells {
    paint(ground, &only(cells, |place| ground.get(&place).copied() == background))
}

/// The ground's window over the box.
///
/// # Errors
/// [`ItemErrorCode::EmptyArg`] if there are no cells, [`ItemErrorCode::BadCrop`] if the box starts
/// above the ground or to its left.
pub fn subgrid(cells: &Cells, ground: &Cells) -> Result<Cells, ItemErrorCode> {
    let bounds = Bounds::of(cells).ok_or(ItemErrorCode::EmptyArg)?;
    if bounds.top < 0 || bounds.left < 0 {
        return Err(ItemErrorCode::BadCrop);
    }
    Ok(crop(ground, (bounds.top, bounds.left), (bounds.h(), bounds.w())))
}
