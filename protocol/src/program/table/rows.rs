//! The rows of the table. Data only.

use super::Family::{Color, Cut, Measure as Measures, Objects, Paint, Patch, Scale, Tuple};
use super::{
    COLOR, DOWNSCALE_MAX, FACTOR, Family, Frame, Grouping, Half, KEY, LARGEST, Measure, OFFSET, Op,
    OpSpec, PARTS, Parameter, SIDE, Symmetry, apply, from_tokpidjin, nth, number, row,
};

const GROUPING: &[Parameter] =
    &[Parameter::Flag("univalued"), Parameter::Flag("diagonal"), Parameter::Flag("without_bg")];
const WINDOW: &[Parameter] = &[
    number("row", 0, SIDE),
    number("col", 0, SIDE),
    number("height", 0, SIDE),
    number("width", 0, SIDE),
];
const CANVAS: &[Parameter] =
    &[Parameter::Color("color"), number("height", 1, SIDE), number("width", 1, SIDE)];
const INDEX: &[Parameter] = &[number("k", -LARGEST, LARGEST - 1)];

/// Every op that a program may name, synonyms included, family by family.
pub const OPS: &[OpSpec] = &[
    row(Family::Symmetry, "identity", &[], "the same again", |_| Op::Symmetry(Symmetry::Identity)),
    row(Family::Symmetry, "rot90", &[], "quarter turn clockwise", |_| {
        Op::Symmetry(Symmetry::Rot90)
    }),
    row(Family::Symmetry, "rot180", &[], "half turn", |_| Op::Symmetry(Symmetry::Rot180)),
    row(Family::Symmetry, "rot270", &[], "quarter turn counter-clockwise", |_| {
        Op::Symmetry(Symmetry::Rot270)
    }),
    row(Family::Symmetry, "hmirror", &[], "top and bottom change places", |_| {
        Op::Symmetry(Symmetry::Hmirror)
    }),
    row(Family::Symmetry, "vmirror", &[], "left and right change places", |_| {
        Op::Symmetry(Symmetry::Vmirror)
    }),
    row(Family::Symmetry, "dmirror", &[], "transpose: mirror at the main diagonal", |_| {
        Op::Symmetry(Symmetry::Dmirror)
    }),
    from_tokpidjin(row(Family::Symmetry, "transpose", &[], "the same as dmirror", |_| {
        Op::Symmetry(Symmetry::Dmirror)
    })),
    row(Family::Symmetry, "cmirror", &[], "mirror at the counter-diagonal", |_| {
        Op::Symmetry(Symmetry::Cmirror)
    }),
    row(
        Color,
        "replace",
        &[Parameter::Color("old"), Parameter::Color("new")],
        "cells of colour old become new",
        |a| Op::Replace { old: a.byte(0), new: a.byte(1) },
    ),
    row(
        Color,
        "switch",
        &[Parameter::Color("a"), Parameter::Color("b")],
        "colours a and b change places",
        |a| Op::Switch { a: a.byte(0), b: a.byte(1) },
    ),
    row(Color, "mostcolor", &[], "the commonest colour", |_| Op::MostColor),
    row(Color, "leastcolor", &[], "the rarest colour", |_| Op::LeastColor),
    row(Color, "palette", &[], "the distinct colours", |_| Op::Palette),
    from_tokpidjin(row(Color, "p_g", &[], "the same as palette", |_| Op::Palette)),
    row(Color, "numcolors", &[], "how many distinct colours", |_| Op::NumColors),
    row(Color, "colorcount", COLOR, "how many cells of a colour", |a| Op::ColorCount {
        color: a.byte(0),
    }),
    row(Cut, "crop", WINDOW, "the window from (row, col), clipped at the grid's end", |a| {
        Op::Crop { row: a.byte(0), col: a.byte(1), height: a.byte(2), width: a.byte(3) }
    }),
    row(Cut, "tophalf", &[], "the first floor(h / 2) rows", |_| Op::Half(Half::Top)),
    row(Cut, "bottomhalf", &[], "the last floor(h / 2) rows", |_| Op::Half(Half::Bottom)),
    row(Cut, "lefthalf", &[], "the first floor(w / 2) columns", |_| Op::Half(Half::Left)),
    row(Cut, "righthalf", &[], "the last floor(w / 2) columns", |_| Op::Half(Half::Right)),
    row(Cut, "trim", &[], "without the border", |_| Op::Trim),
    row(Cut, "compress", &[], "without the rows and columns of one colour", |_| Op::Compress),
    row(Cut, "hsplit", PARTS, "equal parts from left to right; odd columns are dropped", |a| {
        Op::HSplit { parts: a.byte(0) }
    }),
    row(Cut, "vsplit", PARTS, "equal parts from top to bottom; odd rows are dropped", |a| {
        Op::VSplit { parts: a.byte(0) }
    }),
    row(Scale, "upscale", FACTOR, "every cell becomes factor x factor cells", |a| Op::Upscale {
        factor: a.byte(0),
    }),
    row(Scale, "hupscale", FACTOR, "every column factor times", |a| Op::HUpscale {
        factor: a.byte(0),
    }),
    row(Scale, "vupscale", FACTOR, "every row factor times", |a| Op::VUpscale {
        factor: a.byte(0),
    }),
    row(
        Scale,
        "downscale",
        &[number("factor", 1, DOWNSCALE_MAX as i16)],
        "every factor-th row and column, from the first",
        |a| Op::Downscale { factor: a.byte(0) },
    ),
    row(Scale, "canvas", CANVAS, "a grid of one colour in place of the grid", |a| Op::Canvas {
        color: a.byte(0),
        height: a.byte(1),
        width: a.byte(2),
    }),
    nth("first", &[], "of a pair: the input; of a tuple or list: the first", |_| 0),
    from_tokpidjin(nth("second", &[], "of a pair: the output; else the second", |_| 1)),
    nth("last", &[], "the last", |_| -1),
    from_tokpidjin(nth("nth", INDEX, "number k, from 0; from the end if negative", |a| {
        a.number(0)
    })),
    from_tokpidjin(nth("get_nth_t", INDEX, "the same as nth", |a| a.number(0))),
    row(Tuple, "hconcat", &[], "side by side, as high as the lowest", |_| Op::HConcat),
    row(Tuple, "vconcat", &[], "on top of each other; all must be equally wide", |_| Op::VConcat),
    row(
        Tuple,
        "cellwise",
        &[Parameter::Color("fallback")],
        "cells that both have; fallback where they differ",
        |a| Op::CellWise { fallback: a.byte(0) },
    ),
    apply("apply", "the program on each element"),
    apply("mapply", "the same as apply: results are not merged"),
    row(Objects, "objects", GROUPING, "connected components, in canonical order", |a| {
        let (univalued, diagonal, without_bg) = (a.flag(0), a.flag(1), a.flag(2));
        Op::Objects(Grouping { univalued, diagonal, without_bg })
    }),
    from_tokpidjin(row(
        Objects,
        "o_g",
        &[number("type", 0, 7)],
        "objects by type = 4 univalued + 2 diagonal + 1 without_bg",
        |a| {
            Op::Objects(
                Grouping::from_code(a.byte(0)).expect("the parameter's bounds are the codes"),
            )
        },
    )),
    row(Objects, "partition", &[], "one object for each colour", |_| Op::Partition),
    row(Objects, "fgpartition", &[], "one for each colour but the commonest", |_| Op::FgPartition),
    row(Objects, "colorfilter", COLOR, "those whose first cell has the colour", |a| {
        Op::ColorFilter { color: a.byte(0) }
    }),
    row(Objects, "sizefilter", &[number("size", 0, LARGEST)], "those of so many cells", |a| {
        Op::SizeFilter { size: a.number(0).unsigned_abs() }
    }),
    row(Objects, "argmax", KEY, "the one with the greatest key; of equals the first", |a| {
        Op::ArgMax(a.key(0))
    }),
    row(Objects, "argmin", KEY, "the one with the least key; of equals the first", |a| {
        Op::ArgMin(a.key(0))
    }),
    row(Objects, "merge", &[], "all cells of all objects as one", |_| Op::Merge),
    row(Objects, "size", &[], "how many objects, or cells", |_| Op::Size),
    row(Patch, "ofcolor", COLOR, "the places of a colour", |a| Op::OfColor { color: a.byte(0) }),
    row(Patch, "asindices", &[], "every place of the grid", |_| Op::AsIndices),
    row(Patch, "asobject", &[], "every cell of the grid", |_| Op::AsObject),
    row(Patch, "toindices", &[], "its places without colours", |_| Op::ToIndices),
    row(Patch, "toobject", &[], "the ground's cells at its places", |_| Op::ToObject),
    row(Patch, "recolor", COLOR, "the same places in one colour", |a| Op::Recolor {
        color: a.byte(0),
    }),
    row(Patch, "shift", OFFSET, "moved down and to the right, clipped nowhere", |a| Op::Shift {
        rows: a.number(0),
        cols: a.number(1),
    }),
    row(Patch, "normalize", &[], "moved so that its box starts at (0, 0)", |_| Op::Normalize),
    row(Patch, "backdrop", &[], "every place of its box", |_| Op::Frame(Frame::Backdrop)),
    row(Patch, "delta", &[], "the places of its box that it leaves free", |_| {
        Op::Frame(Frame::Delta)
    }),
    row(Patch, "box", &[], "the outline of its box", |_| Op::Frame(Frame::Box)),
    row(Patch, "inbox", &[], "the outline one place further in", |_| Op::Frame(Frame::InBox)),
    row(Patch, "outbox", &[], "the outline one place further out", |_| Op::Frame(Frame::OutBox)),
    row(Patch, "corners", &[], "the four corners of its box", |_| Op::Frame(Frame::Corners)),
    row(Paint, "fill", COLOR, "the colour at its places", |a| Op::Fill { color: a.byte(0) }),
    row(Paint, "underfill", COLOR, "as fill, on the commonest colour alone", |a| Op::UnderFill {
        color: a.byte(0),
    }),
    row(Paint, "cover", &[], "the ground's commonest colour at its places", |_| Op::Cover),
    row(Paint, "paint", &[], "its cells on the ground", |_| Op::Paint),
    row(Paint, "underpaint", &[], "as paint, on the commonest colour alone", |_| Op::UnderPaint),
    row(Paint, "move", OFFSET, "covered where it was, painted where it goes", |a| Op::Move {
        rows: a.number(0),
        cols: a.number(1),
    }),
    row(Paint, "subgrid", &[], "the ground's window over its box", |_| Op::Subgrid),
    row(Measures, "height", &[], "rows", |_| Op::Measure(Measure::Height)),
    row(Measures, "width", &[], "columns", |_| Op::Measure(Measure::Width)),
    row(Measures, "shape", &[], "rows and columns", |_| Op::Measure(Measure::Shape)),
    row(Measures, "square", &[], "whether it is a full square", |_| Op::Measure(Measure::Square)),
    row(Measures, "portrait", &[], "whether it is higher than wide", |_| {
        Op::Measure(Measure::Portrait)
    }),
    row(Measures, "hline", &[], "whether it is one row", |_| Op::Measure(Measure::HLine)),
    row(Measures, "vline", &[], "whether it is one column", |_| Op::Measure(Measure::VLine)),
    row(Measures, "uppermost", &[], "its highest row", |_| Op::Measure(Measure::Uppermost)),
    row(Measures, "lowermost", &[], "its lowest row", |_| Op::Measure(Measure::Lowermost)),
    row(Measures, "leftmost", &[], "its leftmost column", |_| Op::Measure(Measure::Leftmost)),
    row(Measures, "rightmost", &[], "its rightmost column", |_| Op::Measure(Measure::Rightmost)),
    row(Measures, "ulcorner", &[], "the upper left corner", |_| Op::Measure(Measure::UlCorner)),
    row(Measures, "urcorner", &[], "the upper right corner", |_| Op::Measure(Measure::UrCorner)),
    row(Measures, "llcorner", &[], "the lower left corner", |_| Op::Measure(Measure::LlCorner)),
    row(Measures, "lrcorner", &[], "the lower right corner", |_| Op::Measure(Measure::LrCorner)),
    row(Measures, "center", &[], "the upper left corner plus half the box, rounded down", |_| {
        Op::Measure(Measure::Center)
    }),
    row(Measures, "centerofmass", &[], "the mean of its places, rounded down", |_| {
        Op::Measure(Measure::CenterOfMass)
    }),
    row(Measures, "color", &[], "the colour of its first cell", |_| Op::Measure(Measure::Color)),
];
