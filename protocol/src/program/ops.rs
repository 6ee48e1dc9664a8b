//! The instructions: what a program may do in one step. How each is written is in `table`, what it
//! takes and gives in `typing`.

use std::fmt;

use super::variants::{Frame, Grouping, Half, Key, Measure, Symmetry};

/// One instruction of a compiled program. Rows, columns and sides count cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Op {
    /// The object with the greatest key; of equals the first.
    ArgMax(Key),
    /// The object with the least key; of equals the first.
    ArgMin(Key),
    /// Every place of a grid.
    AsIndices,
    /// Every cell of a grid.
    AsObject,
    /// A grid of one colour.
    Canvas {
        /// The colour.
        color: u8,
        /// Rows, at least 1.
        height: u8,
        /// Columns, at least 1.
        width: u8,
    },
    /// Cells that two grids have in common; the others take one colour.
    CellWise {
        /// The colour of cells that differ.
        fallback: u8,
    },
    /// Number of cells of a colour.
    ColorCount {
        /// The colour counted.
        color: u8,
    },
    /// The objects whose first cell has a colour.
    ColorFilter {
        /// The colour.
        color: u8,
    },
    /// A grid without its rows and columns of one colour.
    Compress,
    /// The ground with its commonest colour in place of the patch.
    Cover,
    /// A window of a grid, clipped at its end.
    Crop {
        /// First row.
        row: u8,
        /// First column.
        col: u8,
        /// Rows.
        height: u8,
        /// Columns.
        width: u8,
    },
    /// Every `factor`th row and column.
    Downscale {
        /// The step.
        factor: u8,
    },
    /// One object for each colour but the commonest.
    FgPartition,
    /// The ground with one colour at every place of the patch.
    Fill {
        /// The colour.
        color: u8,
    },
    /// A patch made of a box.
    Frame(Frame),
    /// Half of a grid.
    Half(Half),
    /// Grids of a tuple side by side.
    HConcat,
    /// Parts of a grid from left to right.
    HSplit {
        /// How many.
        parts: u8,
    },
    /// Every column `factor` times.
    HUpscale {
        /// How many times.
        factor: u8,
    },
    /// The rarest colour; ties by [`super::Ties`].
    LeastColor,
    /// A property of a picture.
    Measure(Measure),
    /// All cells of all objects.
    Merge,
    /// The commonest colour; ties by [`super::Ties`].
    MostColor,
    /// The ground with the object in another place, and the background where it was.
    Move {
        /// Rows down.
        rows: i16,
        /// Columns to the right.
        cols: i16,
    },
    /// The patch with its box at (0, 0).
    Normalize,
    /// One grid of a tuple.
    NthElement {
        /// Which, from 0.
        index: u8,
    },
    /// One object of a list.
    NthObject {
        /// Which, from 0; -1 is the last.
        index: i16,
    },
    /// Number of distinct colours.
    NumColors,
    /// Connected components in canonical order (workload.md 2.2).
    Objects(Grouping),
    /// The places of one colour.
    OfColor {
        /// The colour.
        color: u8,
    },
    /// The ground with the object's cells.
    Paint,
    /// The distinct colours; order by [`super::Ties`].
    Palette,
    /// One object for each colour.
    Partition,
    /// The patch in one colour.
    Recolor {
        /// The colour.
        color: u8,
    },
    /// Every cell of one colour takes another.
    Replace {
        /// The colour that goes.
        old: u8,
        /// The colour that comes.
        new: u8,
    },
    /// The patch in another place, clipped nowhere.
    Shift {
        /// Rows down.
        rows: i16,
        /// Columns to the right.
        cols: i16,
    },
    /// How many objects or cells.
    Size,
    /// The objects of so many cells.
    SizeFilter {
        /// Cells.
        size: u16,
    },
    /// The ground's window over the patch's box.
    Subgrid,
    /// Two colours change places.
    Switch {
        /// One colour.
        a: u8,
        /// The other.
        b: u8,
    },
    /// One of the eight symmetries.
    Symmetry(Symmetry),
    /// The places of an object.
    ToIndices,
    /// The ground's cells at the places of a patch.
    ToObject,
    /// A grid without its border.
    Trim,
    /// As fill, where the ground has its commonest colour.
    UnderFill {
        /// The colour.
        color: u8,
    },
    /// As paint, where the ground has its commonest colour.
    UnderPaint,
    /// Every cell `factor` times in both directions.
    Upscale {
        /// How many times.
        factor: u8,
    },
    /// Grids of a tuple on top of each other.
    VConcat,
    /// Parts of a grid from top to bottom.
    VSplit {
        /// How many.
        parts: u8,
    },
    /// Every row `factor` times.
    VUpscale {
        /// How many times.
        factor: u8,
    },
}

impl Op {
    /// The op's name as receipts and kernels give it: its name in programs, but that `first`,
    /// `second`, `last` and `nth` are `nth` on tuples and `nth_object` on objects.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ArgMax(_) => "argmax",
            Self::ArgMin(_) => "argmin",
            Self::AsIndices => "asindices",
            Self::AsObject => "asobject",
            Self::Canvas { .. } => "canvas",
            Self::CellWise { .. } => "cellwise",
            Self::ColorCount { .. } => "colorcount",
            Self::ColorFilter { .. } => "colorfilter",
            Self::Compress => "compress",
            Self::Cover => "cover",
            Self::Crop { .. } => "crop",
            Self::Downscale { .. } => "downscale",
            Self::FgPartition => "fgpartition",
            Self::Fill { .. } => "fill",
            Self::Frame(frame) => frame.name(),
            Self::Half(half) => half.name(),
            Self::HConcat => "hconcat",
            Self::HSplit { .. } => "hsplit",
            Self::HUpscale { .. } => "hupscale",
            Self::LeastColor => "leastcolor",
            Self::Measure(measure) => measure.name(),
            Self::Merge => "merge",
            Self::MostColor => "mostcolor",
            Self::Move { .. } => "move",
            Self::Normalize => "normalize",
            Self::NthElement { .. } => "nth",
            Self::NthObject { .. } => "nth_object",
            Self::NumColors => "numcolors",
            Self::Objects(_) => "objects",
            Self::OfColor { .. } => "ofcolor",
            Self::Paint => "paint",
            Self::Palette => "palette",
            Self::Partition => "partition",
            Self::Recolor { .. } => "recolor",
            Self::Replace { .. } => "replace",
            Self::Shift { .. } => "shift",
            Self::Size => "size",
            Self::SizeFilter { .. } => "sizefilter",
            Self::Subgrid => "subgrid",
            Self::Switch { .. } => "switch",
            Self::Symmetry(symmetry) => symmetry.name(),
            Self::ToIndices => "toindices",
            Self::ToObject => "toobject",
            Self::Trim => "trim",
            Self::UnderFill { .. } => "underfill",
            Self::UnderPaint => "underpaint",
            Self::Upscale { .. } => "upscale",
            Self::VConcat => "vconcat",
            Self::VSplit { .. } => "vsplit",
            Self::VUpscale { .. } => "vupscale",
        }
    }
}

/// The canonical text, which [`super::Program::compile`] reads back as the same op.
impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name();
        match *self {
            Self::ArgMax(key) | Self::ArgMin(key) => write!(f, "{name}({})", key.name()),
            Self::Canvas { color, height, width } => {
                write!(f, "{name}({color}, {height}, {width})")
            }
            Self::CellWise { fallback: color }
            | Self::ColorCount { color }
            | Self::ColorFilter { color }
            | Self::Fill { color }
            | Self::OfColor { color }
            | Self::Recolor { color }
            | Self::UnderFill { color } => write!(f, "{name}({color})"),
            Self::Crop { row, col, height, width } => {
                write!(f, "{name}({row}, {col}, {height}, {width})")
            }
            Self::Downscale { factor: count }
            | Self::HSplit { parts: count }
            | Self::HUpscale { factor: count }
            | Self::Upscale { factor: count }
            | Self::VSplit { parts: count }
            | Self::VUpscale { factor: count } => write!(f, "{name}({count})"),
            Self::Move { rows, cols } | Self::Shift { rows, cols } => {
                write!(f, "{name}({rows}, {cols})")
            }
            Self::NthElement { index: 0 } | Self::NthObject { index: 0 } => f.write_str("first"),
            Self::NthElement { index: 1 } => f.write_str("second"),
            Self::NthElement { index } => write!(f, "nth({index})"),
            Self::NthObject { index: -1 } => f.write_str("last"),
            Self::NthObject { index } => write!(f, "nth({index})"),
            Self::Objects(Grouping { univalued, diagonal, without_bg }) => {
                write!(f, "{name}({univalued}, {diagonal}, {without_bg})")
            }
            Self::Replace { old: a, new: b } | Self::Switch { a, b } => {
                write!(f, "{name}({a}, {b})")
            }
            Self::SizeFilter { size } => write!(f, "{name}({size})"),
            Self::AsIndices
            | Self::AsObject
            | Self::Compress
            | Self::Cover
            | Self::FgPartition
            | Self::Frame(_)
            | Self::Half(_)
            | Self::HConcat
            | Self::LeastColor
            | Self::Measure(_)
            | Self::Merge
            | Self::MostColor
            | Self::Normalize
            | Self::NumColors
            | Self::Paint
            | Self::Palette
            | Self::Partition
            | Self::Size
            | Self::Subgrid
            | Self::Symmetry(_)
            | Self::ToIndices
            | Self::ToObject
            | Self::Trim
            | Self::UnderPaint
            | Self::VConcat => f.write_str(name),
        }
    }
}
