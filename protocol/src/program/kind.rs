//! What a program's value is between two ops.

use std::fmt;

/// One value.
///
/// A grid, an object and a patch are pictures: a box of cells and where it lies. Objects and patches
/// remember the grid that they were found in, their *ground*: `paint`, `fill` and `subgrid` work on it.
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
}

impl Kind {
    /// All of them.
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

    /// Its bare name, as tables give it.
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
        }
    }

    /// Whether it is found in a grid that it remembers.
    #[must_use]
    pub fn has_ground(self) -> bool {
        match self {
            Self::Objects | Self::Object | Self::Patch => true,
            Self::Colors | Self::Flag | Self::Grid | Self::Number | Self::Vector => false,
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

/// What every item of a batch has between two ops: one value, or a tuple of values of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Type {
    /// The kind of each value.
    pub kind: Kind,
    /// How many values a tuple has; `None` for one value by itself.
    pub tuple: Option<u8>,
}

impl Type {
    /// What a pair program starts with: the input and the output of a pair.
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
