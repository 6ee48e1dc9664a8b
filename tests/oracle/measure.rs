//! Measures of a picture: where it lies, its size, its shape.

use gridpool_protocol::output::ItemErrorCode;
use gridpool_protocol::program::Measure;

use super::cells::{Bounds, Cells, Place, shape};
use super::objects::color;
use super::value::Value;

/// The measure of `cells`.
///
/// # Errors
/// [`ItemErrorCode::EmptyArg`] if there are no cells and the measure needs one.
pub fn measure(cells: &Cells, measure: Measure) -> Result<Value, ItemErrorCode> {
    let bounds = || Bounds::of(cells).ok_or(ItemErrorCode::EmptyArg);
    let (h, w) = shape(cells);
    let size = i32::try_from(cells.len()).expect("a picture has few cells");
    Ok(match measure {
        Measure::Height => Value::Number(h),
        Measure::Width => Value::Number(w),
        Measure::Shape => Value::Vector((h, w)),
        // A grid has no holes.
        Measure::Square => Value::Flag(h == w && h * w == size),
        Measure::Portrait => Value::Flag(h > w),
        Measure::HLine => Value::Flag(h == 1 && w == size),
        Measure::VLine => Value::Flag(w == 1 && h == size),
        Measure::Uppermost => Value::Number(bounds()?.top),
        Measure::Lowermost => Value::Number(bounds()?.bottom),
        Measure::Leftmost => Value::Number(bounds()?.left),
        Measure::Rightmost => Value::Number(bounds()?.right),
        Measure::UlCorner => Value::Vector((bounds()?.top, bounds()?.left)),
        Measure::UrCorner => Value::Vector((bounds()?.top, bounds()?.right)),
        Measure::LlCorner => Value::Vector((bounds()?.bottom, bounds()?.left)),
        Measure::LrCorner => Value::Vector((bounds()?.bottom, bounds()?.right)),
        Measure::Center => Value::Vector((bounds()?.top + h / 2, bounds()?.left + w / 2)),
        Measure::CenterOfMass => Value::Vector(center_of_mass(cells, size)?),
        Measure::Color => Value::Number(color(cells).ok_or(ItemErrorCode::EmptyArg)?.into()),
    })
}

fn center_of_mass(cells: &Cells, size: i32) -> Result<Place, ItemErrorCode> {
    if cells.is_empty() {
        return Err(ItemErrorCode::EmptyArg);
    }
    let rows: i32 = cells.keys().map(|&(row, _)| row).sum();
    let cols: i32 = cells.keys().map(|&(_, col)| col).sum();
    // Python's division rounds towards minus infinity, as `div_euclid` does for a positive divisor.
    Ok((rows.div_euclid(size), cols.div_euclid(size)))
}
