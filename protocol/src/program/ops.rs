//! The table of ops. A row has the instruction, its name in programs, its arguments and their bounds, its input
//! and output types, how a GPU runs it, the size of its result, and its meaning.
//!
//! Data only. `table` defines the columns; `expand` makes [`Op`], [`OPS`] and the rest from them. To add an op,
//! add a row here; the compiler then names the places that lack it.

use super::expand::ops;
use super::kind::Kind;
use super::parameter::{Accepts, Key, Parameter};
use super::table::{
    ARGUMENTS_MAX, Arguments, CellCapacity, Gives, Launch, Makes, OpSpec, Signature, Takes, Word,
    apply, nth, other_name, packed,
};
use crate::limits::{DOWNSCALE_MAX, GRID_CELLS_MAX, SHIFT_MAX, SIDE_MAX, SPLIT_MAX, UPSCALE_MAX};

// What an op works on. Kinds stand in the order of `Kind::ALL`.
const GRID: Takes = Takes::Kinds(&[Kind::Grid]);
const COLORED: Takes = Takes::Kinds(&[Kind::Grid, Kind::Object]);
const PICTURE: Takes = Takes::Kinds(&[Kind::Grid, Kind::Object, Kind::Patch]);
const OBJECTS: Takes = Takes::Kinds(&[Kind::Objects]);
const OBJECT: Takes = Takes::Kinds(&[Kind::Object]);
const PIECE: Takes = Takes::Kinds(&[Kind::Object, Kind::Patch]);
const SIZED: Takes = Takes::Kinds(&[Kind::Objects, Kind::Object, Kind::Patch]);
const TUPLE: Takes = Takes::Tuple;
const PAIR: Takes = Takes::Pair;

// The type that an op gives.
const SAME: Gives = Gives::Same;
const PARTS: Gives = Gives::Parts;
const A_GRID: Gives = Gives::One(Kind::Grid);
const A_LIST: Gives = Gives::One(Kind::Objects);
const AN_OBJECT: Gives = Gives::One(Kind::Object);
const A_PATCH: Gives = Gives::One(Kind::Patch);
const NUMBER: Gives = Gives::One(Kind::Number);
const VECTOR: Gives = Gives::One(Kind::Vector);
const FLAG: Gives = Gives::One(Kind::Flag);
const COLORS: Gives = Gives::One(Kind::Colors);

// The accepted arguments.
const COLOR: Accepts = Accepts::Color;
const BOOL: Accepts = Accepts::Flag;
const KEY: Accepts = Accepts::Key;
const FROM_0: Accepts = Accepts::Number { min: 0, max: SIDE };
const SIDES: Accepts = Accepts::Number { min: 1, max: SIDE };
const FACTOR: Accepts = Accepts::Number { min: 1, max: UPSCALE_MAX as i16 };
const STEP: Accepts = Accepts::Number { min: 1, max: DOWNSCALE_MAX as i16 };
const COUNT: Accepts = Accepts::Number { min: 1, max: SPLIT_MAX as i16 };
const OFFSET: Accepts = Accepts::Number { min: -SHIFT_MAX, max: SHIFT_MAX };
const CELLS: Accepts = Accepts::Number { min: 0, max: LARGEST };
const INDEX: Accepts = Accepts::Number { min: -LARGEST, max: LARGEST - 1 };
const GROUPING: Accepts = Accepts::Number { min: 0, max: 7 };

const SIDE: i16 = 255;
const LARGEST: i16 = 4_096;
const _: () = assert!(SIDE.unsigned_abs() as usize == SIDE_MAX);
const _: () = assert!(LARGEST.unsigned_abs() as usize == GRID_CELLS_MAX);

/// The index of `nth`. Negative numbers count from the end.
const K: &[Parameter] = &[INDEX.named("k")];

// Whose definition an op follows. A row follows arc-dsl; names without an instruction say it themselves.
const ARC_DSL: &str = "arc-dsl";
const TOKPIDJIN: &str = "tokpidjin";
const GRIDPOOL: &str = "gridpool";

ops! {
    // Instructions without a name of their own: `nth` makes one on tuples and the other on lists.
    unnamed {
        NthElement "nth"(index: u8 = INDEX) TUPLE => A_GRID, Own, Within, "One grid of a tuple, from 0.";
        NthObject "nth_object"(index: i16 = INDEX) OBJECTS => AN_OBJECT, Chain, Within,
            "One object of a list, from 0; -1 is the last.";
    }

    Symmetry "symmetries" {} + Symmetry "One of the eight symmetries of the square." {
        Identity "identity" PICTURE => SAME, Image, Keeps, "the same again";
        Rot90 "rot90" GRID => SAME, Image, Keeps, "quarter turn clockwise";
        Rot180 "rot180" GRID => SAME, Image, Keeps, "half turn";
        Rot270 "rot270" GRID => SAME, Image, Keeps, "quarter turn counter-clockwise";
        Hmirror "hmirror" PICTURE => SAME, Image, Keeps, "top and bottom change places";
        Vmirror "vmirror" PICTURE => SAME, Image, Keeps, "left and right change places";
        Dmirror "dmirror" PICTURE => SAME, Image, Keeps, "transpose: mirror at the main diagonal"
            also [other_name("transpose", "the same as dmirror", |_| Op::Symmetry(Symmetry::Dmirror))];
        Cmirror "cmirror" PICTURE => SAME, Image, Keeps, "mirror at the counter-diagonal";
    }

    Color "colours" {
        Replace "replace"(old: u8 = COLOR, new: u8 = COLOR) GRID => SAME, Image, Keeps,
            "cells of colour old become new";
        Switch "switch"(a: u8 = COLOR, b: u8 = COLOR) GRID => SAME, Image, Keeps,
            "colours a and b change places";
        MostColor "mostcolor" COLORED => NUMBER, Chain, Within, "the commonest colour";
        LeastColor "leastcolor" COLORED => NUMBER, Chain, Within, "the rarest colour";
        Palette "palette" COLORED => COLORS, Chain, Within, "the distinct colours"
            also [other_name("p_g", "the same as palette", |_| Op::Palette)];
        NumColors "numcolors" COLORED => NUMBER, Chain, Within, "how many distinct colours";
        ColorCount "colorcount"(color: u8 = COLOR) COLORED => NUMBER, Chain, Within,
            "how many cells of a colour";
    }

    Cut "cutting" {
        Crop "crop"(row: u8 = FROM_0, col: u8 = FROM_0, height: u8 = FROM_0, width: u8 = FROM_0)
            GRID => SAME, Chain, Within, "the window from (row, col), clipped at the grid's end";
        Trim "trim" GRID => SAME, Chain, Within, "without the border";
        Compress "compress" GRID => SAME, Chain, Within, "without the rows and columns of one colour";
        HSplit "hsplit"(parts: u8 = COUNT) GRID => PARTS, Own, Within,
            "equal parts from left to right; odd columns are dropped";
        VSplit "vsplit"(parts: u8 = COUNT) GRID => PARTS, Own, Within,
            "equal parts from top to bottom; odd rows are dropped";
    } + Half "Half of a grid; of an odd number of lines the middle one is in neither." {
        Top "tophalf" GRID => SAME, Chain, Within, "the first floor(h / 2) rows";
        Bottom "bottomhalf" GRID => SAME, Chain, Within, "the last floor(h / 2) rows";
        Left "lefthalf" GRID => SAME, Chain, Within, "the first floor(w / 2) columns";
        Right "righthalf" GRID => SAME, Chain, Within, "the last floor(w / 2) columns";
    }

    Scale "scaling and making" {
        Upscale "upscale"(factor: u8 = FACTOR) COLORED => SAME, Chain, Times(factor.pow(2)),
            "every cell becomes factor x factor cells";
        HUpscale "hupscale"(factor: u8 = FACTOR) GRID => SAME, Chain, Times(factor),
            "every column factor times";
        VUpscale "vupscale"(factor: u8 = FACTOR) GRID => SAME, Chain, Times(factor),
            "every row factor times";
        Downscale "downscale"(factor: u8 = STEP) GRID => SAME, Chain, Within,
            "every factor-th row and column, from the first";
        Canvas "canvas"(color: u8 = COLOR, height: u8 = SIDES, width: u8 = SIDES)
            GRID => SAME, Chain, Cells(height * width), "a grid of one colour in place of the grid";
    }

    Tuple "pairs and tuples" names [
        nth("first", ARC_DSL, &[], "of a pair: the input; of a tuple or list: the first", |_| 0),
        nth("second", TOKPIDJIN, &[], "of a pair: the output; else the second", |_| 1),
        nth("last", ARC_DSL, &[], "the last", |_| -1),
        nth("nth", GRIDPOOL, K, "number k, from 0; from the end if negative", |a| a[0]),
        nth("get_nth_t", TOKPIDJIN, K, "the same as nth", |a| a[0]),
        apply("apply", ARC_DSL, "the program on each element"),
        apply("mapply", GRIDPOOL, "the same as apply: results are not merged"),
    ] {
        HConcat "hconcat" TUPLE => A_GRID, Own, Joined, "side by side, as high as the lowest";
        VConcat "vconcat" TUPLE => A_GRID, Own, Joined,
            "on top of each other; all must be equally wide";
        CellWise "cellwise"(fallback: u8 = COLOR) PAIR => A_GRID, Own, Within,
            "cells that both have; fallback where they differ";
    }

    Objects "lists of objects" {
        Objects "objects"(univalued: bool = BOOL, diagonal: bool = BOOL, without_bg: bool = BOOL)
            GRID => A_LIST, Chain, Within, "connected components, in canonical order"
            also [OpSpec {
                parameters: &[GROUPING.named("type")],
                ..other_name("o_g", "objects by type = 4 univalued + 2 diagonal + 1 without_bg", |a| {
                    let [univalued, diagonal, without_bg] = [4, 2, 1].map(|bit| a[0] & bit != 0);
                    Op::Objects { univalued, diagonal, without_bg }
                })
            }];
        Partition "partition" GRID => A_LIST, Chain, Within, "one object for each colour";
        FgPartition "fgpartition" GRID => A_LIST, Chain, Within, "one for each colour but the commonest";
        ColorFilter "colorfilter"(color: u8 = COLOR) OBJECTS => SAME, Chain, Within,
            "those whose first cell has the colour";
        SizeFilter "sizefilter"(size: u16 = CELLS) OBJECTS => SAME, Chain, Within,
            "those of so many cells";
        ArgMax "argmax"(key: Key = KEY) OBJECTS => AN_OBJECT, Chain, Within,
            "the one with the greatest key; of equals the first";
        ArgMin "argmin"(key: Key = KEY) OBJECTS => AN_OBJECT, Chain, Within,
            "the one with the least key; of equals the first";
        Merge "merge" OBJECTS => AN_OBJECT, Chain, Within, "all cells of all objects as one";
        Size "size" SIZED => NUMBER, Chain, Within, "how many objects, or cells";
    }

    Patch "objects and patches" {
        OfColor "ofcolor"(color: u8 = COLOR) GRID => A_PATCH, Chain, Within, "the places of a colour";
        AsIndices "asindices" GRID => A_PATCH, Chain, Within, "every place of the grid";
        AsObject "asobject" GRID => AN_OBJECT, Chain, Within, "every cell of the grid";
        ToIndices "toindices" PIECE => A_PATCH, Chain, Within, "its places without colours";
        ToObject "toobject" PIECE => AN_OBJECT, Chain, Within, "the ground's cells at its places";
        Recolor "recolor"(color: u8 = COLOR) PIECE => AN_OBJECT, Chain, Within,
            "the same places in one colour";
        Shift "shift"(rows: i16 = OFFSET, cols: i16 = OFFSET) PIECE => SAME, Chain, Within,
            "moved down and to the right, clipped nowhere";
        Normalize "normalize" PIECE => SAME, Chain, Within, "moved so that its box starts at (0, 0)";
    } + Frame "A patch made of the box of another." {
        Backdrop "backdrop" PIECE => A_PATCH, Chain, Within, "every place of its box";
        Delta "delta" PIECE => A_PATCH, Chain, Within, "the places of its box that it leaves free";
        Box "box" PIECE => A_PATCH, Chain, Within, "the outline of its box";
        InBox "inbox" PIECE => A_PATCH, Chain, Outline, "the outline one place further in";
        OutBox "outbox" PIECE => A_PATCH, Chain, Outline, "the outline one place further out";
        Corners "corners" PIECE => A_PATCH, Chain, Within, "the four corners of its box";
    }

    Paint "painting on the ground" {
        Fill "fill"(color: u8 = COLOR) PIECE => A_GRID, Chain, Keeps, "the colour at its places";
        UnderFill "underfill"(color: u8 = COLOR) PIECE => A_GRID, Chain, Keeps,
            "as fill, on the commonest colour alone";
        Cover "cover" PIECE => A_GRID, Chain, Keeps, "the ground's commonest colour at its places";
        Paint "paint" OBJECT => A_GRID, Chain, Keeps, "its cells on the ground";
        UnderPaint "underpaint" OBJECT => A_GRID, Chain, Keeps, "as paint, on the commonest colour alone";
        Move "move"(rows: i16 = OFFSET, cols: i16 = OFFSET) OBJECT => A_GRID, Chain, Keeps,
            "covered where it was, painted where it goes";
        Subgrid "subgrid" PIECE => A_GRID, Chain, Within, "the ground's window over its box";
    }

    Measure "measuring" {} + Measure "Where a picture's box lies, how large it is, what shape it has." {
        Height "height" PICTURE => NUMBER, Chain, Within, "rows";
        Width "width" PICTURE => NUMBER, Chain, Within, "columns";
        Shape "shape" PICTURE => VECTOR, Chain, Within, "rows and columns";
        Square "square" PICTURE => FLAG, Chain, Within, "whether it is a full square";
        Portrait "portrait" PICTURE => FLAG, Chain, Within, "whether it is higher than wide";
        HLine "hline" PIECE => FLAG, Chain, Within, "whether it is one row";
        VLine "vline" PIECE => FLAG, Chain, Within, "whether it is one column";
        Uppermost "uppermost" PIECE => NUMBER, Chain, Within, "its highest row";
        Lowermost "lowermost" PIECE => NUMBER, Chain, Within, "its lowest row";
        Leftmost "leftmost" PIECE => NUMBER, Chain, Within, "its leftmost column";
        Rightmost "rightmost" PIECE => NUMBER, Chain, Within, "its rightmost column";
        UlCorner "ulcorner" PIECE => VECTOR, Chain, Within, "the upper left corner";
        UrCorner "urcorner" PIECE => VECTOR, Chain, Within, "the upper right corner";
        LlCorner "llcorner" PIECE => VECTOR, Chain, Within, "the lower left corner";
        LrCorner "lrcorner" PIECE => VECTOR, Chain, Within, "the lower right corner";
        Center "center" PIECE => VECTOR, Chain, Within,
            "the upper left corner plus half the box, rounded down";
        CenterOfMass "centerofmass" PIECE => VECTOR, Chain, Within,
            "the mean of its places, rounded down";
        Color "color" OBJECT => NUMBER, Chain, Within, "the colour of its first cell";
    }
}
