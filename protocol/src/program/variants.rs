//! The families of ops that differ in one choice: symmetries, groupings, keys, halves, frames,
//! measures.

/// The eight symmetries of the square. `h` and `w` are those of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Symmetry {
    /// Mirror at the counter-diagonal: `out[i][j] = in[h-1-j][w-1-i]`, w x h.
    Cmirror,
    /// Transpose: `out[i][j] = in[j][i]`, w x h.
    Dmirror,
    /// Top and bottom change places: `out[i][j] = in[h-1-i][j]`.
    Hmirror,
    /// Every cell stays.
    Identity,
    /// Half turn: `out[i][j] = in[h-1-i][w-1-j]`.
    Rot180,
    /// Counter-clockwise quarter turn: `out[i][j] = in[j][w-1-i]`, w x h.
    Rot270,
    /// Clockwise quarter turn: `out[i][j] = in[h-1-j][i]`, w x h.
    Rot90,
    /// Left and right change places: `out[i][j] = in[i][w-1-j]`.
    Vmirror,
}

impl Symmetry {
    /// All eight.
    pub const ALL: [Self; 8] = [
        Self::Identity,
        Self::Rot90,
        Self::Rot180,
        Self::Rot270,
        Self::Hmirror,
        Self::Vmirror,
        Self::Dmirror,
        Self::Cmirror,
    ];

    /// Its name in programs, receipts and kernels.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Cmirror => "cmirror",
            Self::Dmirror => "dmirror",
            Self::Hmirror => "hmirror",
            Self::Identity => "identity",
            Self::Rot180 => "rot180",
            Self::Rot270 => "rot270",
            Self::Rot90 => "rot90",
            Self::Vmirror => "vmirror",
        }
    }

    /// Whether height and width change places.
    #[must_use]
    pub fn transposes(self) -> bool {
        match self {
            Self::Cmirror | Self::Dmirror | Self::Rot270 | Self::Rot90 => true,
            Self::Hmirror | Self::Identity | Self::Rot180 | Self::Vmirror => false,
        }
    }

    /// The one that does what this and then `next` do.
    #[must_use]
    pub fn then(self, next: Self) -> Self {
        let (first, second) = (self.axes(), next.axes());
        // What `next` calls rows are columns of the input if this one transposes.
        let [rows, cols] = match first.transposes {
            true => [second.flips[1], second.flips[0]],
            false => second.flips,
        };
        let axes = Axes {
            transposes: first.transposes != second.transposes,
            flips: [first.flips[0] != rows, first.flips[1] != cols],
        };
        let same = |symmetry: &Self| symmetry.axes() == axes;
        Self::ALL.into_iter().find(same).expect("the eight are closed")
    }

    fn axes(self) -> Axes {
        let (transposes, flips) = match self {
            Self::Cmirror => (true, [true, true]),
            Self::Dmirror => (true, [false, false]),
            Self::Hmirror => (false, [true, false]),
            Self::Identity => (false, [false, false]),
            Self::Rot180 => (false, [true, true]),
            Self::Rot270 => (true, [false, true]),
            Self::Rot90 => (true, [true, false]),
            Self::Vmirror => (false, [false, true]),
        };
        Axes { transposes, flips }
    }

    /// Whether it turns. The DSL turns grids alone, and mirrors objects and patches too.
    #[must_use]
    pub fn turns(self) -> bool {
        match self {
            Self::Rot180 | Self::Rot270 | Self::Rot90 => true,
            Self::Cmirror | Self::Dmirror | Self::Hmirror | Self::Identity | Self::Vmirror => false,
        }
    }
}

/// Where cell (i, j) of an image comes from: row i or, of a transposing symmetry, row j of the input,
/// or that counted from the last if rows are flipped; columns alike.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Axes {
    transposes: bool,
    flips: [bool; 2],
}

/// How `objects` groups cells: the DSL's three switches, `o_g`'s type `4u + 2d + b`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Grouping {
    /// An object has one colour; else all cells that are not background group together.
    pub univalued: bool,
    /// Eight neighbours; else four.
    pub diagonal: bool,
    /// Cells of the commonest colour belong to no object.
    pub without_bg: bool,
}

impl Grouping {
    /// The grouping of `o_g(g, code)`; `None` above 7.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        (code < 8).then_some(Self {
            univalued: code & 4 != 0,
            diagonal: code & 2 != 0,
            without_bg: code & 1 != 0,
        })
    }

    /// The inverse of [`Grouping::from_code`].
    #[must_use]
    pub fn code(self) -> u8 {
        4 * u8::from(self.univalued) + 2 * u8::from(self.diagonal) + u8::from(self.without_bg)
    }
}

/// By what `argmax` and `argmin` compare objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// The colour of its first cell.
    Color,
    /// Rows of its box.
    Height,
    /// Its leftmost column.
    Leftmost,
    /// Its lowest row.
    Lowermost,
    /// Its rightmost column.
    Rightmost,
    /// Its cells.
    Size,
    /// Its highest row.
    Uppermost,
    /// Columns of its box.
    Width,
}

impl Key {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Size,
        Self::Height,
        Self::Width,
        Self::Color,
        Self::Uppermost,
        Self::Lowermost,
        Self::Leftmost,
        Self::Rightmost,
    ];

    /// Its name in programs: that of the op that gives it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Color => "color",
            Self::Height => "height",
            Self::Leftmost => "leftmost",
            Self::Lowermost => "lowermost",
            Self::Rightmost => "rightmost",
            Self::Size => "size",
            Self::Uppermost => "uppermost",
            Self::Width => "width",
        }
    }
}

/// Half of a grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Half {
    /// The last `floor(h / 2)` rows.
    Bottom,
    /// The first `floor(w / 2)` columns.
    Left,
    /// The last `floor(w / 2)` columns.
    Right,
    /// The first `floor(h / 2)` rows.
    Top,
}

impl Half {
    /// Its name in programs, receipts and kernels.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Bottom => "bottomhalf",
            Self::Left => "lefthalf",
            Self::Right => "righthalf",
            Self::Top => "tophalf",
        }
    }
}

/// Patches made of the box of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Frame {
    /// Every place of the box.
    Backdrop,
    /// The box's outline.
    Box,
    /// The box's four corners.
    Corners,
    /// The places of the box that are not in the patch.
    Delta,
    /// The outline one place further in.
    InBox,
    /// The outline one place further out.
    OutBox,
}

impl Frame {
    /// Its name in programs, receipts and kernels.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Backdrop => "backdrop",
            Self::Box => "box",
            Self::Corners => "corners",
            Self::Delta => "delta",
            Self::InBox => "inbox",
            Self::OutBox => "outbox",
        }
    }
}

/// What one can ask of a picture: where its box lies, how large it is, what shape it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Measure {
    /// The upper left corner plus half the box, rounded down.
    Center,
    /// The mean of the cells, rounded down.
    CenterOfMass,
    /// The colour of the first cell, row-major.
    Color,
    /// Whether it is one horizontal line.
    HLine,
    /// Rows.
    Height,
    /// The leftmost column.
    Leftmost,
    /// The lower left corner of the box.
    LlCorner,
    /// The lowest row.
    Lowermost,
    /// The lower right corner of the box.
    LrCorner,
    /// Whether it is higher than wide.
    Portrait,
    /// The rightmost column.
    Rightmost,
    /// Rows and columns.
    Shape,
    /// Whether it is a full square.
    Square,
    /// The upper left corner of the box.
    UlCorner,
    /// The highest row.
    Uppermost,
    /// The upper right corner of the box.
    UrCorner,
    /// Whether it is one vertical line.
    VLine,
    /// Columns.
    Width,
}

impl Measure {
    /// All of them.
    pub const ALL: [Self; 18] = [
        Self::Height,
        Self::Width,
        Self::Shape,
        Self::Square,
        Self::Portrait,
        Self::HLine,
        Self::VLine,
        Self::Uppermost,
        Self::Lowermost,
        Self::Leftmost,
        Self::Rightmost,
        Self::UlCorner,
        Self::UrCorner,
        Self::LlCorner,
        Self::LrCorner,
        Self::Center,
        Self::CenterOfMass,
        Self::Color,
    ];

    /// Its name in programs, receipts and kernels.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Center => "center",
            Self::CenterOfMass => "centerofmass",
            Self::Color => "color",
            Self::HLine => "hline",
            Self::Height => "height",
            Self::Leftmost => "leftmost",
            Self::LlCorner => "llcorner",
            Self::Lowermost => "lowermost",
            Self::LrCorner => "lrcorner",
            Self::Portrait => "portrait",
            Self::Rightmost => "rightmost",
            Self::Shape => "shape",
            Self::Square => "square",
            Self::UlCorner => "ulcorner",
            Self::Uppermost => "uppermost",
            Self::UrCorner => "urcorner",
            Self::VLine => "vline",
            Self::Width => "width",
        }
    }
}
