//! The numbers that an op passes to its kernel. Plain data; the compiler has checked their ranges.

use gridpool_protocol::program::{Grouping, Op};

/// `args` of `Step` in `kernels/cuda/step.cuh`, in the order in which the op is written.
pub(super) fn arguments(op: Op) -> [i32; 4] {
    let one = |number: i32| [number, 0, 0, 0];
    let two = |a: i32, b: i32| [a, b, 0, 0];
    match op {
        Op::ArgMax(key) | Op::ArgMin(key) => one(key as i32),
        Op::Canvas { color, height, width } => {
            [i32::from(color), i32::from(height), i32::from(width), 0]
        }
        Op::CellWise { fallback: number }
        | Op::ColorCount { color: number }
        | Op::ColorFilter { color: number }
        | Op::Downscale { factor: number }
        | Op::Fill { color: number }
        | Op::HUpscale { factor: number }
        | Op::NthElement { index: number }
        | Op::OfColor { color: number }
        | Op::Recolor { color: number }
        | Op::UnderFill { color: number }
        | Op::Upscale { factor: number }
        | Op::VUpscale { factor: number } => one(number.into()),
        Op::Crop { row, col, height, width } => [row, col, height, width].map(i32::from),
        Op::Move { rows, cols } | Op::Shift { rows, cols } => two(rows.into(), cols.into()),
        Op::NthObject { index } => one(index.into()),
        Op::Objects(Grouping { univalued, diagonal, without_bg }) => {
            [univalued.into(), diagonal.into(), without_bg.into(), 0]
        }
        Op::Replace { old: a, new: b } | Op::Switch { a, b } => two(a.into(), b.into()),
        Op::SizeFilter { size } => one(size.into()),
        // Splits know how many parts they make from the width of what they give.
        Op::HSplit { .. } | Op::VSplit { .. } => [0; 4],
        Op::AsIndices
        | Op::AsObject
        | Op::Compress
        | Op::Cover
        | Op::FgPartition
        | Op::Frame(_)
        | Op::Half(_)
        | Op::HConcat
        | Op::LeastColor
        | Op::Measure(_)
        | Op::Merge
        | Op::MostColor
        | Op::Normalize
        | Op::NumColors
        | Op::Paint
        | Op::Palette
        | Op::Partition
        | Op::Size
        | Op::Subgrid
        | Op::Symmetry(_)
        | Op::ToIndices
        | Op::ToObject
        | Op::Trim
        | Op::UnderPaint
        | Op::VConcat => [0; 4],
    }
}
