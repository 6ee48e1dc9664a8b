//! The size of a result, where the size of the grid alone decides it.

use super::kind::Kind;
use super::ops::{Half, Op, Symmetry};
use super::{Program, Step};

/// Rows and columns of a grid, or of the ground of what was found in it.
type Size = [usize; 2];

impl Program {
    /// The sizes of the grids that a chain makes of a grid of this size, whatever its cells: one for each value of an
    /// item, and every value that does not fail has it. A size may be 0, or beyond the limits of a grid; then every
    /// item fails.
    ///
    /// # Errors
    /// The first step whose cells decide, or `None` for a solver.
    ///
    /// ```
    /// use gridpool_protocol::program::{Program, Ties};
    /// let program = Program::compile("trim | rot90 | upscale(2)", Ties::Cpython).unwrap();
    /// assert_eq!(program.sizes_of_result([5, 9]), Ok(vec![[14, 6]]));
    /// let program = Program::compile("rot90 | compress", Ties::Cpython).unwrap();
    /// assert_eq!(program.sizes_of_result([5, 9]).unwrap_err().unwrap().to_string(), "compress");
    /// ```
    pub fn sizes_of_result(&self, size: [usize; 2]) -> Result<Vec<[usize; 2]>, Option<&Step>> {
        if self.solver().is_some() {
            return Err(None);
        }
        self.steps()
            .iter()
            .try_fold(vec![size], |sizes, step| step.resized(&sizes).ok_or(Some(step)))
    }
}

impl Step {
    /// The sizes after the step, of all values; `None` if the cells decide one.
    fn resized(&self, sizes: &[Size]) -> Option<Vec<Size>> {
        let all = |at: usize| sizes.iter().map(move |size| size[at]);
        let least = |at: usize| all(at).min().unwrap_or(0);
        let split = |parts: u8, at: usize| {
            let of = |size: Size| (0..usize::from(parts)).map(move |k| part(size, at, parts, k));
            sizes.iter().flat_map(|&size| of(size)).map(without_empty_sides).collect()
        };
        if let Op::HSplit { parts } = self.op {
            Some(split(parts, 1))
        } else if let Op::VSplit { parts } = self.op {
            Some(split(parts, 0))
        } else if let Op::NthElement { index } = self.op {
            Some(vec![*sizes.get(usize::from(index))?])
        } else if let Op::CellWise { .. } = self.op {
            Some(vec![*sizes.first()?])
        } else if self.op == Op::HConcat {
            Some(vec![without_empty_sides([least(0), all(1).sum()])])
        } else if self.op == Op::VConcat {
            Some(vec![without_empty_sides([all(0).sum(), least(1)])])
        } else {
            sizes.iter().map(|&size| self.resized_one(size)).collect()
        }
    }

    /// The size after an op from one value to one value.
    fn resized_one(&self, size: Size) -> Option<Size> {
        let [h, w] = size;
        // What was found in a grid remembers it as it is.
        if self.takes.kind != Kind::Grid {
            return (self.op != Op::Subgrid).then_some(size);
        }
        let window = |at: u8, length: u8, side: usize| {
            let at = usize::from(at).min(side);
            usize::from(length).min(side - at)
        };
        let by = |factor: u8, side: usize| usize::from(factor) * side;
        let after = match self.op {
            Op::Compress => return None,
            Op::Symmetry(symmetry) => match symmetry {
                Symmetry::Rot90 | Symmetry::Rot270 | Symmetry::Dmirror | Symmetry::Cmirror => {
                    [w, h]
                }
                Symmetry::Identity | Symmetry::Rot180 | Symmetry::Hmirror | Symmetry::Vmirror => {
                    size
                }
            },
            Op::Crop { row, col, height, width } => [window(row, height, h), window(col, width, w)],
            Op::Trim => size.map(|side| side.saturating_sub(2)),
            Op::Half(half) => match half {
                Half::Top | Half::Bottom => [h / 2, w],
                Half::Left | Half::Right => [h, w / 2],
            },
            Op::Upscale { factor } => size.map(|side| by(factor, side)),
            Op::HUpscale { factor } => [h, by(factor, w)],
            Op::VUpscale { factor } => [by(factor, h), w],
            Op::Downscale { factor } => size.map(|side| side.div_ceil(factor.into())),
            Op::Canvas { height, width, .. } => [height.into(), width.into()],
            Op::ArgMax { .. }
            | Op::ArgMin { .. }
            | Op::AsIndices
            | Op::AsObject
            | Op::CellWise { .. }
            | Op::ColorCount { .. }
            | Op::ColorFilter { .. }
            | Op::Cover
            | Op::FgPartition
            | Op::Fill { .. }
            | Op::Frame(_)
            | Op::HConcat
            | Op::HSplit { .. }
            | Op::LeastColor
            | Op::Measure(_)
            | Op::Merge
            | Op::MostColor
            | Op::Move { .. }
            | Op::Normalize
            | Op::NthElement { .. }
            | Op::NthObject { .. }
            | Op::NumColors
            | Op::Objects { .. }
            | Op::OfColor { .. }
            | Op::Paint
            | Op::Palette
            | Op::Partition
            | Op::Recolor { .. }
            | Op::Replace { .. }
            | Op::Shift { .. }
            | Op::Size
            | Op::SizeFilter { .. }
            | Op::Subgrid
            | Op::Switch { .. }
            | Op::ToIndices
            | Op::ToObject
            | Op::UnderFill { .. }
            | Op::UnderPaint
            | Op::VConcat
            | Op::VSplit { .. } => size,
        };
        Some(without_empty_sides(after))
    }
}

/// A grid without cells has no rows and no columns.
fn without_empty_sides(size: Size) -> Size {
    if size.contains(&0) { [0; 2] } else { size }
}

/// The size of part `k` of a grid that is split along side `at`. A line is left out after each part if they do not
/// divide evenly, so the last ones may be cut off.
fn part(mut size: Size, at: usize, parts: u8, k: usize) -> Size {
    let parts = usize::from(parts);
    let (side, length) = (size[at], size[at] / parts);
    let start = k * (length + usize::from(!side.is_multiple_of(parts)));
    size[at] = length.min(side.saturating_sub(start));
    size
}
