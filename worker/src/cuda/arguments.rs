//! What a kernel is told of the ops that it does. Plain data; the compiler has checked the ranges.

use std::ops::Range;

use gridpool_kernels::argument::OpArgument;
use gridpool_kernels::module::chain_code;
use gridpool_protocol::limits::COLOR_MAX;
use gridpool_protocol::program::{Grouping, Kind, Op, Program, Symmetry};

/// The ops of a chain: those of the steps, neighbouring symmetries and recolourings made one.
///
/// One is as good as many: none of them fails but the first, on an empty grid, and then the others do
/// not run.
pub(super) fn chain(program: &Program, steps: Range<usize>) -> Vec<OpArgument> {
    let mut ops: Vec<OpArgument> = Vec::with_capacity(steps.len());
    let mut last: Option<(Kind, Image)> = None;
    for at in steps {
        let step = &program.steps()[at];
        let kind = step.gives.kind;
        let image = Image::of(step.op);
        match (image, last, ops.last_mut()) {
            (Some(next), Some((before, image)), Some(op)) if before == kind => {
                let both = image.then(next);
                op.args = both.arguments();
                last = Some((kind, both));
            }
            _ => {
                let args = image.map_or_else(|| arguments(step.op), Image::arguments);
                ops.push(OpArgument { args, ..op(program, at, chain_code(step.op)) });
                last = image.map(|image| (kind, image));
            }
        }
    }
    ops
}

/// The op of a kernel of its own.
pub(super) fn of_tuples(program: &Program, at: usize) -> OpArgument {
    OpArgument { args: arguments(program.steps()[at].op), ..op(program, at, 0) }
}

fn op(program: &Program, at: usize, code: u8) -> OpArgument {
    let place = u8::try_from(at).expect("a program has at most 64 steps");
    let gives = program.steps()[at].gives.kind as u8;
    OpArgument { code, place, gives, ..OpArgument::default() }
}

/// A symmetry and new colours for old.
#[derive(Clone, Copy)]
struct Image {
    symmetry: Symmetry,
    colors: [u8; COLOR_MAX as usize + 1],
}

impl Image {
    /// What `op` does, if it is no more than that.
    fn of(op: Op) -> Option<Self> {
        let mut image =
            Self { symmetry: Symmetry::Identity, colors: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9] };
        if let Op::Symmetry(symmetry) = op {
            image.symmetry = symmetry;
        } else if let Op::Replace { old, new } = op {
            image.colors[usize::from(old)] = new;
        } else if let Op::Switch { a, b } = op {
            image.colors.swap(usize::from(a), usize::from(b));
        } else {
            return None;
        }
        Some(image)
    }

    fn then(self, next: Self) -> Self {
        Self {
            symmetry: self.symmetry.then(next.symmetry),
            colors: self.colors.map(|color| next.colors[usize::from(color)]),
        }
    }

    /// The symmetry's number, and `ColorMap` of `kernels/cuda/cells.cuh`: four bits a colour.
    fn arguments(self) -> [i16; 4] {
        let symmetry = Symmetry::ALL.iter().position(|known| *known == self.symmetry);
        let symmetry = symmetry.expect("it is one of the eight");
        let colors =
            self.colors.iter().rev().fold(0_u64, |bits, &color| bits << 4 | u64::from(color));
        let [a, b, c, d, e, f, ..] = colors.to_le_bytes();
        let symmetry = i16::try_from(symmetry).expect("there are eight");
        let colors = [[a, b], [c, d], [e, f]].map(i16::from_le_bytes);
        [symmetry, colors[0], colors[1], colors[2]]
    }
}

/// `args` of `Op` in `kernels/cuda/step.cuh`, in the order in which the op is written.
fn arguments(op: Op) -> [i16; 4] {
    let one = |number: i16| [number, 0, 0, 0];
    let two = |a: i16, b: i16| [a, b, 0, 0];
    match op {
        Op::ArgMax(key) | Op::ArgMin(key) => one(key as i16),
        Op::Canvas { color, height, width } => [color, height, width, 0].map(i16::from),
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
        Op::Crop { row, col, height, width } => [row, col, height, width].map(i16::from),
        Op::Move { rows, cols } | Op::Shift { rows, cols } => two(rows, cols),
        Op::NthObject { index } => one(index),
        Op::Objects(Grouping { univalued, diagonal, without_bg }) => {
            [univalued.into(), diagonal.into(), without_bg.into(), 0]
        }
        Op::Replace { old: a, new: b } | Op::Switch { a, b } => two(a.into(), b.into()),
        Op::SizeFilter { size } => one(size.cast_signed()),
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
