//! The types of a program's values between two ops.

use std::fmt;

/// One value.
///
/// A grid, an object and a patch are pictures: a box of cells with a position. Objects and patches remember the
/// grid in which they were found, their *ground*. `paint`, `fill` and `subgrid` work on the ground.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Rows of colours.
    Grid,
    /// Objects of a grid, in canonical order.
    Objects,
    /// Coloured cells, at most one at each place.
    Object,
    /// Places, each at most once: what the DSL calls indices.
    Patch,
    /// A whole number: a colour, a count, a coordinate.
    Number,
    /// A row and a column.
    Vector,
    /// True or false.
    Flag,
    /// A list of colours.
    Colors,
    /// A solver's result that is no grid. The solver knows its kind; no op takes it.
    Value,
}

impl Kind {
    /// All kinds that ops take and give.
    pub const ALL: [Self; 8] = [
        Self::Grid,
        Self::Objects,
        Self::Object,
        Self::Patch,
        Self::Number,
        Self::Vector,
        Self::Flag,
        Self::Colors,
    ];

    /// Its name in tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Grid => "grid",
            Self::Objects => "objects",
            Self::Object => "object",
            Self::Patch => "patch",
            Self::Number => "number",
            Self::Vector => "vector",
            Self::Flag => "flag",
            Self::Colors => "colours",
            Self::Value => "value",
        }
    }

    /// Whether it remembers the grid in which it was found.
    #[must_use]
    pub fn has_ground(self) -> bool {
        match self {
            Self::Objects | Self::Object | Self::Patch => true,
            Self::Colors | Self::Flag | Self::Grid | Self::Number | Self::Value | Self::Vector => {
                false
            }
        }
    }

    /// Whether it is a picture: a box of cells.
    #[must_use]
    pub fn is_picture(self) -> bool {
        self.has_cells() && self != Self::Objects
    }

    /// Whether it is, or is found in, a picture.
    #[must_use]
    pub fn has_cells(self) -> bool {
        self == Self::Grid || self.has_ground()
    }

    fn singular(self) -> &'static str {
        match self {
            Self::Grid => "grid",
            Self::Objects => "list of objects",
            Self::Object => "object",
            Self::Patch => "patch",
            Self::Number => "number",
            Self::Vector => "vector",
            Self::Flag => "flag",
            Self::Colors => "list of colours",
            Self::Value => "value",
        }
    }

    fn plural(self) -> &'static str {
        match self {
            Self::Grid => "grids",
            Self::Objects => "lists of objects",
            Self::Object => "objects",
            Self::Patch => "patches",
            Self::Number => "numbers",
            Self::Vector => "vectors",
            Self::Flag => "flags",
            Self::Colors => "lists of colours",
            Self::Value => "values",
        }
    }
}

/// In words, with its article.
impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let article = if *self == Self::Object { "an" } else { "a" };
        write!(f, "{article} {}", self.singular())
    }
}

/// The type of every item of a batch between two ops: one value, or a tuple of values of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Type {
    /// The kind of each value.
    pub kind: Kind,
    /// The number of values of a tuple; `None` for a single value.
    pub tuple: Option<u8>,
}

impl Type {
    /// The input of a pair program: the input and the output of a pair.
    pub const PAIR: Self = Self::tuple(Kind::Grid, 2);

    /// One value.
    #[must_use]
    pub const fn one(kind: Kind) -> Self {
        Self { kind, tuple: None }
    }

    /// A tuple of `values` values.
    #[must_use]
    pub const fn tuple(kind: Kind, values: u8) -> Self {
        Self { kind, tuple: Some(values) }
    }

    /// Values of one item.
    #[must_use]
    pub fn width(self) -> usize {
        self.tuple.map_or(1, usize::from)
    }
}

/// In words, with its article.
impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.tuple {
            None => self.kind.fmt(f),
            Some(1) => write!(f, "a tuple of 1 {}", self.kind.singular()),
            Some(2) => write!(f, "a pair of {}", self.kind.plural()),
            Some(values) => write!(f, "a tuple of {values} {}", self.kind.plural()),
        }
    }
}
