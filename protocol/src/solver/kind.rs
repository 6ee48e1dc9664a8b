//! The kinds of a solver's values, each known when the text is compiled, and how one kind is seen as another.

use std::fmt;
use std::sync::Arc;

/// The kind of a value. Every register of the machine has one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// The kind of the elements of a container that never has any.
    Never,
    /// True or false: the number 1 or 0.
    Flag,
    /// A whole number of 32 bits, or nothing.
    Number,
    /// A row and a column, or any two numbers.
    Vector,
    /// A colour and a place, or any number and vector.
    Cell,
    /// A cell, or a vector alone.
    Place,
    /// Rows of colours, all of one length.
    Grid,
    /// Two values of any kinds but those of a vector and a cell.
    Pair(Arc<(Self, Self)>),
    /// Distinct values of one kind, in canonical order.
    Set(Arc<Self>),
    /// Values of one kind, in the order of the program.
    Tuple(Arc<Self>),
}

impl Kind {
    /// A set of values of this kind.
    #[must_use]
    pub fn set(of: Self) -> Self {
        Self::Set(Arc::new(of))
    }

    /// A tuple of values of this kind.
    #[must_use]
    pub fn tuple(of: Self) -> Self {
        Self::Tuple(Arc::new(of))
    }

    /// Places, each at most once: arc-dsl's indices.
    #[must_use]
    pub fn patch() -> Self {
        Self::set(Self::Vector)
    }

    /// A set of cells.
    #[must_use]
    pub fn object() -> Self {
        Self::set(Self::Cell)
    }

    /// A set of objects.
    #[must_use]
    pub fn objects() -> Self {
        Self::set(Self::object())
    }

    /// Two values: a vector or a cell if they are made of numbers.
    #[must_use]
    pub fn pair(first: Self, second: Self) -> Self {
        if first.is_number() && second.is_number() {
            Self::Vector
        } else if first.is_number() && second == Self::Vector {
            Self::Cell
        } else {
            Self::Pair(Arc::new((first, second)))
        }
    }

    /// Whether it is a number or a flag.
    #[must_use]
    pub fn is_number(&self) -> bool {
        matches!(self, Self::Number | Self::Flag)
    }

    /// The kind of an element of a set or a tuple.
    #[must_use]
    pub fn element(&self) -> Option<&Self> {
        match self {
            Self::Set(of) | Self::Tuple(of) => Some(of),
            Self::Never
            | Self::Flag
            | Self::Number
            | Self::Vector
            | Self::Cell
            | Self::Place
            | Self::Grid
            | Self::Pair(_) => None,
        }
    }

    /// The kinds of both halves of a value of two.
    #[must_use]
    pub fn halves(&self) -> Option<(Self, Self)> {
        match self {
            Self::Vector => Some((Self::Number, Self::Number)),
            Self::Cell => Some((Self::Number, Self::Vector)),
            Self::Pair(halves) => Some(halves.as_ref().clone()),
            Self::Never
            | Self::Flag
            | Self::Number
            | Self::Place
            | Self::Grid
            | Self::Set(_)
            | Self::Tuple(_) => None,
        }
    }

    /// The kind of its elements, if it can be seen as a tuple of values of one kind.
    #[must_use]
    pub fn tuple_of(&self) -> Option<Self> {
        match self {
            Self::Tuple(of) => Some(of.as_ref().clone()),
            Self::Grid => Some(Self::tuple(Self::Number)),
            Self::Vector => Some(Self::Number),
            Self::Pair(halves) => halves.0.join(&halves.1),
            Self::Never | Self::Flag | Self::Number | Self::Cell | Self::Place | Self::Set(_) => {
                None
            }
        }
    }

    /// Whether it is a grid, or can be seen as a tuple of tuples of numbers.
    #[must_use]
    pub fn is_gridlike(&self) -> bool {
        if *self == Self::Grid {
            return true;
        }
        let Some(row) = self.tuple_of() else { return false };
        let is_color = |kind: Self| kind.is_number() || kind == Self::Never;
        row == Self::Never || row != Self::Grid && row.tuple_of().is_some_and(is_color)
    }

    /// Whether it is a vector, a cell or either.
    #[must_use]
    pub fn is_place(&self) -> bool {
        matches!(self, Self::Vector | Self::Cell | Self::Place | Self::Never)
    }

    /// The kind that holds every value of both without loss; `None` if there is none.
    #[must_use]
    pub fn join(&self, other: &Self) -> Option<Self> {
        match (self, other) {
            (one, two) if one == two => Some(one.clone()),
            (Self::Never, kind) | (kind, Self::Never) => Some(kind.clone()),
            (one, two) if one.is_number() && two.is_number() => Some(Self::Number),
            (one, two) if one.is_place() && two.is_place() => Some(Self::Place),
            (Self::Set(one), Self::Set(two)) => one.join(two).map(Self::set),
            (Self::Pair(one), Self::Pair(two)) => {
                let halves = (one.0.join(&two.0), one.1.join(&two.1));
                match halves {
                    (Some(first), Some(second)) => Some(Self::pair(first, second)),
                    _ => Self::join_tuples(self, other),
                }
            }
            _ => Self::join_tuples(self, other),
        }
    }

    fn join_tuples(&self, other: &Self) -> Option<Self> {
        Some(Self::tuple(self.tuple_of()?.join(&other.tuple_of()?)?))
    }

    /// As [`Kind::join`], but a set and a tuple of the same kind are a tuple, the set in canonical order.
    #[must_use]
    pub fn join_containers(&self, other: &Self) -> Option<Self> {
        self.join(other).or_else(|| match (self, other) {
            (Self::Set(set), tuple) | (tuple, Self::Set(set)) => {
                Some(Self::tuple(set.join(&tuple.tuple_of()?)?))
            }
            _ => None,
        })
    }

    /// Whether both have one layout: a flag is a number.
    #[must_use]
    pub fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Set(one), Self::Set(two)) | (Self::Tuple(one), Self::Tuple(two)) => {
                one.is_like(two)
            }
            (Self::Pair(one), Self::Pair(two)) => one.0.is_like(&two.0) && one.1.is_like(&two.1),
            (one, two) => one == two || one.is_number() && two.is_number(),
        }
    }

    /// Whether an instruction may convert a value of this kind into the other. Some values do not fit: a tuple that
    /// is no vector, rows that make no grid.
    #[must_use]
    pub fn converts(&self, into: &Self) -> bool {
        if self.is_like(into) || *self == Self::Never {
            return true;
        }
        match (self, into) {
            (one, two) if one.is_place() && two.is_place() => {
                *one == Self::Place || *two == Self::Place
            }
            (Self::Set(one), Self::Set(two) | Self::Tuple(two)) => one.converts(two),
            (Self::Pair(one), Self::Pair(two)) => one.0.converts(&two.0) && one.1.converts(&two.1),
            (Self::Pair(one), Self::Tuple(of)) => one.0.converts(of) && one.1.converts(of),
            (one, Self::Tuple(of)) => one.tuple_of().is_some_and(|element| element.converts(of)),
            (one, Self::Grid) => one.is_gridlike(),
            (one, Self::Vector) => one.tuple_of().is_some_and(|element| element.is_number()),
            _ => false,
        }
    }

    /// How deep containers and pairs nest in it; a number has depth 1.
    #[must_use]
    pub fn depth(&self) -> usize {
        match self {
            Self::Set(of) | Self::Tuple(of) => 1 + of.depth(),
            Self::Pair(halves) => 1 + halves.0.depth().max(halves.1.depth()),
            Self::Never
            | Self::Flag
            | Self::Number
            | Self::Vector
            | Self::Cell
            | Self::Place
            | Self::Grid => 1,
        }
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "three sets have names of their own")]
    fn singular(&self) -> String {
        match self {
            Self::Never => "value that never is".to_owned(),
            Self::Flag => "flag".to_owned(),
            Self::Number => "number".to_owned(),
            Self::Vector => "vector".to_owned(),
            Self::Cell => "cell".to_owned(),
            Self::Place => "cell or vector".to_owned(),
            Self::Grid => "grid".to_owned(),
            Self::Pair(halves) => format!("pair of {} and {}", halves.0, halves.1),
            Self::Set(of) => match of.as_ref() {
                Self::Vector => "patch".to_owned(),
                Self::Cell => "object".to_owned(),
                Self::Never => "empty set".to_owned(),
                of => format!("set of {}", of.plural()),
            },
            Self::Tuple(of) if **of == Self::Never => "empty tuple".to_owned(),
            Self::Tuple(of) => format!("tuple of {}", of.plural()),
        }
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "three sets have names of their own")]
    fn plural(&self) -> String {
        match self {
            Self::Never => "values that never are".to_owned(),
            Self::Flag => "flags".to_owned(),
            Self::Number => "numbers".to_owned(),
            Self::Vector => "vectors".to_owned(),
            Self::Cell => "cells".to_owned(),
            Self::Place => "cells or vectors".to_owned(),
            Self::Grid => "grids".to_owned(),
            Self::Pair(halves) => format!("pairs of {} and {}", halves.0, halves.1),
            Self::Set(of) => match of.as_ref() {
                Self::Vector => "patches".to_owned(),
                Self::Cell => "objects".to_owned(),
                Self::Never => "empty sets".to_owned(),
                of => format!("sets of {}", of.plural()),
            },
            Self::Tuple(of) if **of == Self::Never => "empty tuples".to_owned(),
            Self::Tuple(of) => format!("tuples of {}", of.plural()),
        }
    }
}

/// In words, with its article: `a tuple of numbers`.
impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.singular();
        let article = if name.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" };
        write!(f, "{article} {name}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_that_python_cannot_tell_apart_join() {
        let row = Kind::tuple(Kind::Number);
        assert_eq!(Kind::Flag.join(&Kind::Number), Some(Kind::Number));
        assert_eq!(Kind::Vector.join(&row), Some(row.clone()));
        assert_eq!(Kind::Grid.join(&Kind::tuple(Kind::Vector)), Some(Kind::tuple(row)));
        let places = Kind::set(Kind::Place);
        assert_eq!(Kind::object().join(&Kind::patch()), Some(places));
        assert_eq!(Kind::object().join(&Kind::tuple(Kind::Cell)), None);
        let cells = Kind::tuple(Kind::Cell);
        assert_eq!(Kind::object().join_containers(&cells), Some(cells));
        assert_eq!(Kind::Grid.join(&Kind::Number), None);
    }

    #[test]
    fn two_numbers_are_a_vector_and_a_number_with_a_vector_is_a_cell() {
        assert_eq!(Kind::pair(Kind::Flag, Kind::Number), Kind::Vector);
        assert_eq!(Kind::pair(Kind::Number, Kind::Vector), Kind::Cell);
        assert!(Kind::pair(Kind::Vector, Kind::Vector).is_gridlike());
        assert!(!Kind::pair(Kind::Grid, Kind::Grid).is_gridlike());
    }

    #[test]
    fn kinds_are_named_in_words() {
        assert_eq!(Kind::objects().to_string(), "a set of objects");
        assert_eq!(Kind::object().to_string(), "an object");
        assert_eq!(Kind::tuple(Kind::patch()).to_string(), "a tuple of patches");
        assert_eq!(Kind::tuple(Kind::Never).to_string(), "an empty tuple");
    }
}
