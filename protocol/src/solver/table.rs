//! The table of primitives: each has its instruction, name, arguments, result, and meaning, and stands here only.
//!
//! Data only. A row says: instruction, name, arguments with what they accept, what it gives, whether it can fail
//! on arguments of the right kinds (`fails` or `total`), how arguments must fit together, which argument a chain
//! puts in, and the meaning. `gridpool check`, the reference of the book and the machine's specification are made
//! from it. Structural instructions stand first; docs/src/design/machine.md explains them.

use super::gives;
use super::opcode::{Primitive, opcodes};
use super::want::{Fit, Want};

const FREE: Fit = Fit::Free;

const _: () = assert!(Opcode::Iterate as u8 + 1 == FIRST_PRIMITIVE);

opcodes! {
    structure {
        /// Ends the program; the result is in a.
        Return = 0 "return",
        /// Ends the item with the error whose code is the immediate.
        Fail = 1 "fail",
        /// A tuple of the first registers of a, b, c, d, as many as the immediate says.
        Tuple = 2 "tuple",
        /// Appends them to the tuple in the destination.
        Push = 3 "push",
        /// A pair of a and b: a vector, a cell or a pair, as the destination's kind says.
        Pair = 4 "astuple",
        /// The elements of tuple a as a set.
        ToSet = 5 "toset",
        /// The value of a in the destination's kind.
        Convert = 6 "convert",
        /// b if a is true, else c.
        Select = 7 "select",
        /// Goes on behind the `else` at the immediate if a is false.
        If = 8 "if",
        /// Ends the first arm: the destination is a. Goes on behind the `endif` at the immediate.
        Else = 9 "else",
        /// Ends the second arm: the destination is a.
        EndIf = 10 "endif",
        /// Ends the body of the loop that begins at the immediate; a is the body's value.
        Next = 11 "next",
        /// The body's values for all elements, in a container like a's.
        Map = 21 "apply",
        /// The elements for which the body is true.
        Filter = 22 "sfilter",
        /// The first element for which the body is true.
        Extract = 23 "extract",
        /// The first element whose body's value is the greatest.
        ArgMax = 24 "argmax",
        /// The first element whose body's value is the least.
        ArgMin = 25 "argmin",
        /// The greatest of the body's values.
        ValMax = 26 "valmax",
        /// The least of the body's values.
        ValMin = 27 "valmin",
        /// The elements, sorted by the body's values; equals keep their order.
        Order = 28 "order",
        /// The body's values for the elements of a and b side by side.
        Zip = 29 "papply",
        /// The set of the body's values for all pairs of elements of a and b.
        Pairs = 30 "prapply",
        /// The body applied to a, b times.
        Iterate = 31 "power",
    }
    first 32;

    "numbers" {
        Add "add" [a: Numerical, b: Numerical] numerical fails FREE, 0,
            "The sum; a number counts for both halves of a vector.";
        Subtract "subtract" [a: Numerical, b: Numerical] numerical fails FREE, 0,
            "The difference; a number counts for both halves of a vector.";
        Multiply "multiply" [a: Numerical, b: Numerical] numerical fails FREE, 0,
            "The product; a number counts for both halves of a vector.";
        Divide "divide" [a: Numerical, b: Numerical] numerical fails FREE, 0,
            "The quotient, rounded towards minus infinity; BadNumber if b is 0.";
        Invert "invert" [n: Numerical] numerical fails FREE, 0, "The number with the other sign.";
        Double "double" [n: Numerical] numerical fails FREE, 0, "Twice the number.";
        Halve "halve" [n: Numerical] numerical fails FREE, 0,
            "Half the number, rounded towards minus infinity.";
        Increment "increment" [x: Numerical] numerical fails FREE, 0, "One more.";
        Decrement "decrement" [x: Numerical] numerical fails FREE, 0, "One less.";
        Crement "crement" [x: Numerical] numerical fails FREE, 0, "One further from 0; 0 stays.";
        Sign "sign" [x: Numerical] numerical fails FREE, 0, "-1, 0 or 1.";
        ToIVec "toivec" [i: Number] vector fails FREE, 0, "The vector (i, 0).";
        ToJVec "tojvec" [j: Number] vector fails FREE, 0, "The vector (0, j).";
        Interval "interval" [start: Number, stop: Number, step: Number] row fails FREE, 0,
            "The numbers from start by step, stop not included; BadNumber if step is 0.";
    }

    "conditions" {
        Equality "equality" [a: Any, b: Any] flag total Fit::Alike, 0, "Whether both are equal.";
        Greater "greater" [a: Number, b: Number] flag fails FREE, 0, "Whether a is greater than b.";
        Even "even" [n: Number] flag fails FREE, 0, "Whether the number is even.";
        Positive "positive" [x: Number] flag fails FREE, 0, "Whether the number is greater than 0.";
        Flip "flip" [b: Flag] flag total FREE, 0, "The other flag.";
        Both "both" [a: Flag, b: Flag] logical total FREE, 0, "a if it is false, else b.";
        Either "either" [a: Flag, b: Flag] logical total FREE, 0, "a if it is true, else b.";
        Contained "contained" [value: Any, container: Container] flag total
            Fit::ElementOf { value: 0, container: 1 }, 1, "Whether the container has the value.";
    }

    "containers" {
        Size "size" [container: Sequence] number total FREE, 0, "How many elements.";
        First "first" [container: Sequence] first fails FREE, 0,
            "The first element, or half of a pair; EmptyArg if there is none.";
        Last "last" [container: Sequence] last fails FREE, 0,
            "The last element, or half of a pair; EmptyArg if there is none.";
        Combine "combine" [a: Container, b: Container] combined fails Fit::SameElements, 0,
            "The elements of a, then those of b, in a container like a.";
        Intersection "intersection" [a: Set, b: Set] same total Fit::SameElements, 0,
            "The elements that both have.";
        Difference "difference" [a: Container, b: Container] same total Fit::SameElements, 0,
            "The elements of a that b does not have.";
        Insert "insert" [value: Any, container: Set] inserted fails
            Fit::ElementOf { value: 0, container: 1 }, 1, "The set with the value.";
        Remove "remove" [value: Any, container: Container] second total
            Fit::ElementOf { value: 0, container: 1 }, 1, "The elements but those equal to the value.";
        Other "other" [container: Container, value: Any] element fails
            Fit::ElementOf { value: 1, container: 0 }, 0,
            "The first element that is not the value; EmptyArg if there is none.";
        InitSet "initset" [value: Any] set_of fails FREE, 0, "The set of one value.";
        ToTuple "totuple" [container: Container] tuple total FREE, 0,
            "The elements as a tuple, those of a set in canonical order.";
        Dedupe "dedupe" [tup: Tuple] same total FREE, 0, "Each element once, at its first place.";
        Repeat "repeat" [item: Any, num: Number] tuple_of fails FREE, 0, "A tuple of num times the value.";
        Merge "merge" [containers: Containers] merged fails FREE, 0,
            "The elements of all elements, in a container like the outer one.";
        Product "product" [a: Container, b: Container] product fails FREE, 0,
            "The set of all pairs of an element of a and one of b.";
        PairUp "pair" [a: Container, b: Container] zip fails FREE, 0,
            "Pairs of the elements side by side, as many as the shorter has.";
        Maximum "maximum" [container: Numbers] extreme fails FREE, 0,
            "The greatest element; 0 if there is none.";
        Minimum "minimum" [container: Numbers] extreme fails FREE, 0,
            "The least element; 0 if there is none.";
        MostCommon "mostcommon" [container: Tuple] element fails FREE, 0,
            "The commonest element; EmptyArg if there is none.";
        LeastCommon "leastcommon" [container: Tuple] element fails FREE, 0,
            "The rarest element; EmptyArg if there is none.";
        ColorFilter "colorfilter" [objs: Patches, value: Number] set fails FREE, 0,
            "The set of those whose first cell has the colour; EmptyArg if one is empty.";
        SizeFilter "sizefilter" [container: Containers, n: Number] set total FREE, 0,
            "The set of those with n elements.";
    }

    "colours" {
        MostColor "mostcolor" [element: Element] number fails FREE, 0, "The commonest colour.";
        LeastColor "leastcolor" [element: Element] number fails FREE, 0, "The rarest colour.";
        ColorCount "colorcount" [element: Element, value: Number] number total FREE, 0,
            "How many cells have the colour.";
        Palette "palette" [element: Element] colors total FREE, 0, "The set of its colours.";
        NumColors "numcolors" [element: Element] number total FREE, 0, "How many colours it has.";
        Color "color" [obj: Colored] number fails FREE, 0, "The colour of its first cell.";
        Replace "replace" [grid: Grid, replacee: Number, replacer: Number] grid fails FREE, 0,
            "The grid with one colour for another.";
        Switch "switch" [grid: Grid, a: Number, b: Number] grid fails FREE, 0,
            "The grid with both colours exchanged.";
    }

    "measures" {
        Height "height" [piece: Piece] number fails FREE, 0, "Rows of a grid or of the box; 0 if empty.";
        Width "width" [piece: Piece] number fails FREE, 0, "Columns of a grid or of the box; 0 if empty.";
        Shape "shape" [piece: Piece] vector fails FREE, 0, "Height and width.";
        Portrait "portrait" [piece: Piece] flag fails FREE, 0, "Whether it is higher than wide.";
        Square "square" [piece: Piece] flag fails FREE, 0,
            "Whether it is as high as wide and, if a patch, fills its box.";
        VLine "vline" [patch: Patch] flag fails FREE, 0, "Whether it is a vertical line.";
        HLine "hline" [patch: Patch] flag fails FREE, 0, "Whether it is a horizontal line.";
        Uppermost "uppermost" [patch: Patch] number fails FREE, 0, "Its highest row.";
        Lowermost "lowermost" [patch: Patch] number fails FREE, 0, "Its lowest row.";
        Leftmost "leftmost" [patch: Patch] number fails FREE, 0, "Its leftmost column.";
        Rightmost "rightmost" [patch: Patch] number fails FREE, 0, "Its rightmost column.";
        UlCorner "ulcorner" [patch: Patch] vector fails FREE, 0, "The upper left corner of its box.";
        UrCorner "urcorner" [patch: Patch] vector fails FREE, 0, "The upper right corner of its box.";
        LlCorner "llcorner" [patch: Patch] vector fails FREE, 0, "The lower left corner of its box.";
        LrCorner "lrcorner" [patch: Patch] vector fails FREE, 0, "The lower right corner of its box.";
        Center "center" [patch: Patch] vector fails FREE, 0,
            "The upper left corner plus half of height and width, rounded down.";
        CenterOfMass "centerofmass" [patch: Patch] vector fails FREE, 0,
            "The sum of its places divided by its size, rounded down.";
        Index "index" [grid: Grid, loc: Vector] number fails FREE, 0,
            "The colour at a place; nothing outside of the grid.";
    }

    "two patches" {
        HMatching "hmatching" [a: Patch, b: Patch] flag fails FREE, 0, "Whether a row has cells of both.";
        VMatching "vmatching" [a: Patch, b: Patch] flag fails FREE, 0, "Whether a column has cells of both.";
        Manhattan "manhattan" [a: Patch, b: Patch] number fails FREE, 0,
            "The least sum of the distances in rows and columns between cells of both.";
        Adjacent "adjacent" [a: Patch, b: Patch] flag fails FREE, 0, "Whether that distance is 1.";
        Bordering "bordering" [patch: Patch, grid: Grid] flag fails FREE, 0,
            "Whether the patch touches the border of the grid.";
        Position "position" [a: Patch, b: Patch] vector fails FREE, 0,
            "The direction from the center of a to that of b, -1, 0 or 1 each way.";
        Gravitate "gravitate" [source: Patch, destination: Patch] vector fails FREE, 0,
            "How far the source moves straight until it is adjacent, after at most 42 steps.";
    }

    "patches" {
        AsIndices "asindices" [grid: Grid] patch total FREE, 0, "All places of the grid.";
        AsObject "asobject" [grid: Grid] object total FREE, 0, "All cells of the grid.";
        OfColor "ofcolor" [grid: Grid, value: Number] patch total FREE, 0, "The places of the colour.";
        ToIndices "toindices" [patch: Patch] places fails FREE, 0, "Its places without colours.";
        ToObject "toobject" [patch: Patch, grid: Grid] object fails FREE, 0,
            "The grid's cells at its places, those outside left out.";
        Recolor "recolor" [value: Number, patch: Patch] object fails FREE, 1, "Its places in one colour.";
        Shift "shift" [patch: Patch, directions: Vector] set fails FREE, 0, "Moved by rows and columns.";
        Normalize "normalize" [patch: Patch] set fails FREE, 0, "Moved so that its box begins at (0, 0).";
        Objects "objects" [grid: Grid, univalued: Flag, diagonal: Flag, without_bg: Flag] objects fails
            FREE, 0, "The connected components, of one colour each or not, with 8 neighbours or 4, without \
             the commonest colour or with it.";
        Partition "partition" [grid: Grid] objects total FREE, 0, "One object for each colour.";
        FgPartition "fgpartition" [grid: Grid] objects fails FREE, 0,
            "One object for each colour but the commonest.";
        Frontiers "frontiers" [grid: Grid] objects fails FREE, 0,
            "The rows and columns of one colour, as objects.";
        Occurrences "occurrences" [grid: Grid, obj: Object] patch fails FREE, 0,
            "Where the object's upper left corner lies when it equals the grid beneath.";
        HPeriod "hperiod" [obj: Object] number fails FREE, 0, "The least shift to the left that fits; else width.";
        VPeriod "vperiod" [obj: Object] number fails FREE, 0, "The least shift upwards that fits; else height.";
        DNeighbors "dneighbors" [loc: Vector] patch fails FREE, 0, "The four places beside a place.";
        INeighbors "ineighbors" [loc: Vector] patch fails FREE, 0, "The four places diagonal to a place.";
        Neighbors "neighbors" [loc: Vector] patch fails FREE, 0, "The eight places around a place.";
        Connect "connect" [a: Vector, b: Vector] patch fails FREE, 0,
            "The places on the straight or diagonal line between two places, else none.";
        Shoot "shoot" [start: Vector, direction: Vector] patch fails FREE, 0,
            "As connect, to 42 times the direction away.";
        HFrontier "hfrontier" [location: Vector] patch fails FREE, 0, "30 places of the row, from column 0.";
        VFrontier "vfrontier" [location: Vector] patch fails FREE, 0, "30 places of the column, from row 0.";
        Corners "corners" [patch: Patch] patch fails FREE, 0, "The corners of its box.";
        Backdrop "backdrop" [patch: Patch] patch fails FREE, 0, "All places of its box.";
        Delta "delta" [patch: Patch] patch fails FREE, 0, "The places of its box that it leaves free.";
        BoxOf "box" [patch: Patch] patch fails FREE, 0, "The outline of its box.";
        InBox "inbox" [patch: Patch] patch fails FREE, 0, "The outline of its box, one further in.";
        OutBox "outbox" [patch: Patch] patch fails FREE, 0, "The outline of its box, one further out.";
    }

    "grids" {
        Rot90 "rot90" [grid: Grid] grid total FREE, 0, "A quarter turn clockwise.";
        Rot180 "rot180" [grid: Grid] grid total FREE, 0, "A half turn.";
        Rot270 "rot270" [grid: Grid] grid total FREE, 0, "A quarter turn counter-clockwise.";
        HMirror "hmirror" [piece: Mirrored] same fails FREE, 0,
            "Top and bottom exchanged; of a patch, within its box.";
        VMirror "vmirror" [piece: Mirrored] same fails FREE, 0,
            "Left and right exchanged; of a patch, within its box.";
        DMirror "dmirror" [piece: Mirrored] same fails FREE, 0,
            "Transposed; of a patch, about the upper left corner of its box.";
        CMirror "cmirror" [piece: Mirrored] same fails FREE, 0,
            "Mirrored at the other diagonal; of a patch, vmirror of dmirror of vmirror.";
        Crop "crop" [grid: Grid, start: Vector, dims: Vector] grid fails FREE, 0,
            "Rows and columns from start to start + dims, counted as Python's slices.";
        Subgrid "subgrid" [patch: Patch, grid: Grid] grid fails FREE, 0, "The grid's window over the patch's box.";
        Trim "trim" [grid: Grid] grid total FREE, 0, "Without the border.";
        TopHalf "tophalf" [grid: Grid] grid total FREE, 0, "The first half of the rows, rounded down.";
        BottomHalf "bottomhalf" [grid: Grid] grid total FREE, 0, "The last half of the rows, rounded down.";
        LeftHalf "lefthalf" [grid: Grid] grid total FREE, 0, "The first half of the columns, rounded down.";
        RightHalf "righthalf" [grid: Grid] grid total FREE, 0, "The last half of the columns, rounded down.";
        HSplit "hsplit" [grid: Grid, n: Number] grids fails FREE, 0,
            "n grids side by side; if columns remain, one is left out between two grids.";
        VSplit "vsplit" [grid: Grid, n: Number] grids fails FREE, 0,
            "n grids on top of each other; if rows remain, one is left out between two grids.";
        HConcat "hconcat" [a: Grid, b: Grid] grid fails FREE, 0, "Side by side, as high as the lower.";
        VConcat "vconcat" [a: Grid, b: Grid] grid fails FREE, 0,
            "On top of each other; BadShape if they differ in width.";
        CellWise "cellwise" [a: Grid, b: Grid, fallback: Number] grid fails FREE, 0,
            "Where both agree their colour, else the fallback; BadIndex if b is smaller.";
        Compress "compress" [grid: Grid] grid total FREE, 0, "Without the rows and columns of one colour.";
        Canvas "canvas" [value: Number, dimensions: Vector] grid fails FREE, 0, "A grid of one colour.";
        Upscale "upscale" [element: Element, factor: Number] piece fails FREE, 0,
            "Each cell as factor x factor cells; an object keeps its upper left corner.";
        HUpscale "hupscale" [grid: Grid, factor: Number] grid fails FREE, 0, "Each column factor times.";
        VUpscale "vupscale" [grid: Grid, factor: Number] grid fails FREE, 0, "Each row factor times.";
        Downscale "downscale" [grid: Grid, factor: Number] grid fails FREE, 0,
            "Every factor-th row and column, from the first.";
    }

    "painting" {
        Fill "fill" [grid: Grid, value: Number, patch: Patch] grid fails FREE, 2,
            "The grid with the colour at the patch's places.";
        Paint "paint" [grid: Grid, obj: Object] grid fails FREE, 1,
            "The grid with the object's cells, in their order.";
        UnderFill "underfill" [grid: Grid, value: Number, patch: Patch] grid fails FREE, 2,
            "As fill, only where the grid has its commonest colour.";
        UnderPaint "underpaint" [grid: Grid, obj: Object] grid fails FREE, 1,
            "As paint, only where the grid has its commonest colour.";
        Cover "cover" [grid: Grid, patch: Patch] grid fails FREE, 1,
            "The grid with its commonest colour at the patch's places.";
        Move "move" [grid: Grid, obj: Object, offset: Vector] grid fails FREE, 1,
            "The object covered where it is, then painted at the offset.";
    }
}
