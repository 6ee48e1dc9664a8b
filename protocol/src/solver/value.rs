//! The values of the machine, and their two orders: the canonical order of sets, and Python's order of keys.
//!
//! A value does not know its kind; the program does. The reference computes with these values, and results are
//! read back as them.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::limits::{SIDE_MAX, VALUE_WEIGHT_MAX};

/// The number that stands for nothing: `index` gives it outside of the grid. It is no result of arithmetic.
pub const NOTHING: i32 = i32::MIN;

/// A row and a column.
pub type Vector = [i16; 2];

/// The vector that stands for nothing: the corner of a patch without places. It is no result of arithmetic.
pub const NO_VECTOR: Vector = [i16::MAX, i16::MAX];

/// Rows of colours. A grid without rows has no columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grid {
    height: usize,
    width: usize,
    cells: Vec<i8>,
}

impl Grid {
    /// A grid of these cells, row by row; `None` if they are not `height * width` or too many.
    #[must_use]
    pub fn new(height: usize, width: usize, cells: Vec<i8>) -> Option<Self> {
        let width = if height == 0 { 0 } else { width };
        let fits = height <= SIDE_MAX
            && width <= SIDE_MAX
            && cells.len() <= crate::limits::GRID_CELLS_MAX
            && cells.len() == height * width;
        fits.then_some(Self { height, width, cells })
    }

    /// Rows.
    #[must_use]
    pub fn height(&self) -> usize {
        self.height
    }

    /// Columns.
    #[must_use]
    pub fn width(&self) -> usize {
        self.width
    }

    /// The cells, row by row.
    #[must_use]
    pub fn cells(&self) -> &[i8] {
        &self.cells
    }

    /// The rows.
    pub fn rows(&self) -> impl DoubleEndedIterator<Item = &[i8]> + Clone + ExactSizeIterator {
        (0..self.height).map(|row| &self.cells[row * self.width..(row + 1) * self.width])
    }

    /// The cell of a row and a column, if the grid has them.
    #[must_use]
    pub fn get(&self, row: i64, col: i64) -> Option<i8> {
        let (row, col) = (usize::try_from(row).ok()?, usize::try_from(col).ok()?);
        (row < self.height && col < self.width).then(|| self.cells[row * self.width + col])
    }
}

/// Values in a row, with their weight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct List {
    values: Vec<Value>,
    weight: u32,
}

impl List {
    /// These values; `None` if they weigh more than [`VALUE_WEIGHT_MAX`].
    #[must_use]
    pub fn new(values: Vec<Value>) -> Option<Arc<Self>> {
        let mut weight = 1_u32;
        for value in &values {
            weight = weight.saturating_add(value.weight());
        }
        (weight <= VALUE_WEIGHT_MAX).then(|| Arc::new(Self { values, weight }))
    }

    /// The values.
    #[must_use]
    pub fn values(&self) -> &[Value] {
        &self.values
    }
}

/// A value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A number; a flag is 0 or 1.
    Number(i32),
    /// Two small numbers.
    Vector(Vector),
    /// A small number and a vector.
    Cell(i16, Vector),
    /// A grid.
    Grid(Arc<Grid>),
    /// Two values.
    Pair(Arc<(Self, Self)>),
    /// Distinct values in canonical order.
    Set(Arc<List>),
    /// Values in a row.
    Tuple(Arc<List>),
}

impl Value {
    /// What it weighs: 1 for a number, a vector or a cell, for a grid its cells, for a container 1 more than its
    /// elements together, for a pair both halves.
    #[must_use]
    pub fn weight(&self) -> u32 {
        match self {
            Self::Number(_) | Self::Vector(_) | Self::Cell(..) => 1,
            Self::Grid(grid) => u32::try_from(grid.cells.len().max(1)).unwrap_or(u32::MAX),
            Self::Pair(halves) => halves.0.weight().saturating_add(halves.1.weight()),
            Self::Set(list) | Self::Tuple(list) => list.weight,
        }
    }

    /// The set of these values: sorted, each once. `None` if it weighs too much.
    #[must_use]
    pub fn set(mut values: Vec<Self>) -> Option<Self> {
        if !values.is_sorted_by(|one, two| one.canonical(two) == Ordering::Less) {
            values.sort_by(Self::canonical);
            values.dedup();
        }
        List::new(values).map(Self::Set)
    }

    /// The tuple of these values. `None` if it weighs too much.
    #[must_use]
    pub fn tuple(values: Vec<Self>) -> Option<Self> {
        List::new(values).map(Self::Tuple)
    }

    /// The elements of a set or a tuple; none of another value.
    #[must_use]
    pub fn elements(&self) -> &[Self] {
        match self {
            Self::Set(list) | Self::Tuple(list) => &list.values,
            Self::Number(_) | Self::Vector(_) | Self::Cell(..) | Self::Grid(_) | Self::Pair(_) => {
                &[]
            }
        }
    }

    /// The canonical order, in which sets hold their elements: see docs/src/design/machine.md. Both values must be
    /// of one kind.
    #[must_use]
    pub fn canonical(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Number(one), Self::Number(two)) => one.cmp(two),
            (Self::Vector(one), Self::Vector(two)) => one.cmp(two),
            (Self::Cell(color, place), Self::Cell(other, beside)) => {
                place.cmp(beside).then(color.cmp(other))
            }
            (Self::Vector(place), Self::Cell(_, beside)) => place.cmp(beside).then(Ordering::Less),
            (Self::Cell(_, place), Self::Vector(beside)) => {
                place.cmp(beside).then(Ordering::Greater)
            }
            (Self::Grid(one), Self::Grid(two)) => {
                let is_longer = |width: usize| width != 2;
                let mut rows = one.rows().zip(two.rows()).map(|(one, two)| {
                    is_longer(one.len()).cmp(&is_longer(two.len())).then_with(|| one.cmp(two))
                });
                let first = rows.find(|order| order.is_ne());
                first.unwrap_or_else(|| one.height.cmp(&two.height))
            }
            (Self::Pair(one), Self::Pair(two)) => {
                one.0.canonical(&two.0).then_with(|| one.1.canonical(&two.1))
            }
            (Self::Set(one), Self::Set(two)) => in_turn(&one.values, &two.values, Self::canonical),
            (Self::Tuple(one), Self::Tuple(two)) => {
                let numbers = |list: &List| {
                    matches!(list.values.as_slice(), [Self::Number(_), Self::Number(_)])
                };
                let pairs_first = numbers(two).cmp(&numbers(one));
                pairs_first.then_with(|| in_turn(&one.values, &two.values, Self::canonical))
            }
            (one, two) => one.rank().cmp(&two.rank()),
        }
    }

    /// Python's order of keys; `None` if neither is before the other: sets of which neither contains the other,
    /// or nothing beside a number.
    #[must_use]
    pub fn python(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Number(one), Self::Number(two)) => {
                (*one != NOTHING && *two != NOTHING).then(|| one.cmp(two))
            }
            (Self::Vector(one), Self::Vector(two)) => Some(in_python(*one, *two)),
            (Self::Cell(color, place), Self::Cell(other, beside)) => {
                Some(color.cmp(other).then(in_python(*place, *beside)))
            }
            (Self::Grid(one), Self::Grid(two)) => {
                let first = one.rows().zip(two.rows()).map(|(one, two)| one.cmp(two));
                let first = first.into_iter().find(|order| order.is_ne());
                Some(first.unwrap_or_else(|| one.height.cmp(&two.height)))
            }
            (Self::Pair(one), Self::Pair(two)) => {
                if one.0 == two.0 {
                    one.1.python(&two.1)
                } else {
                    one.0.python(&two.0)
                }
            }
            (Self::Set(one), Self::Set(two)) => {
                let within = |one: &List, two: &List| {
                    let holds = |value: &Self| {
                        two.values.binary_search_by(|with| with.canonical(value)).is_ok()
                    };
                    one.values.iter().all(holds)
                };
                match (within(one, two), within(two, one)) {
                    (true, true) => Some(Ordering::Equal),
                    (true, false) => Some(Ordering::Less),
                    (false, true) => Some(Ordering::Greater),
                    (false, false) => None,
                }
            }
            (Self::Tuple(one), Self::Tuple(two)) => {
                let pairs = one.values.iter().zip(&two.values);
                let differing = pairs.into_iter().find(|(one, two)| one != two);
                match differing {
                    Some((one, two)) => one.python(two),
                    None => Some(one.values.len().cmp(&two.values.len())),
                }
            }
            _ => None,
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Self::Number(_) => 0,
            Self::Vector(_) => 1,
            Self::Cell(..) => 2,
            Self::Grid(_) => 3,
            Self::Pair(_) => 4,
            Self::Tuple(_) => 5,
            Self::Set(_) => 6,
        }
    }
}

/// Python's order of vectors: nothing, its `()`, comes first.
fn in_python(one: Vector, two: Vector) -> Ordering {
    (one != NO_VECTOR).cmp(&(two != NO_VECTOR)).then(one.cmp(&two))
}

/// Element by element; a list that is the start of the other comes first.
fn in_turn(one: &[Value], two: &[Value], order: impl Fn(&Value, &Value) -> Ordering) -> Ordering {
    let first = one.iter().zip(two).map(|(one, two)| order(one, two)).find(|order| order.is_ne());
    first.unwrap_or_else(|| one.len().cmp(&two.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tuple(values: &[i32]) -> Value {
        Value::tuple(values.iter().copied().map(Value::Number).collect()).unwrap()
    }

    #[test]
    fn a_set_is_in_canonical_order_and_has_each_value_once() {
        let cells = vec![Value::Cell(1, [0, 1]), Value::Cell(9, [0, 0]), Value::Cell(1, [0, 1])];
        let set = Value::set(cells).unwrap();
        assert_eq!(set.elements(), [Value::Cell(9, [0, 0]), Value::Cell(1, [0, 1])]);
        let rows = vec![tuple(&[1]), tuple(&[9, 9]), tuple(&[1, 2, 3])];
        let rows = Value::set(rows).unwrap();
        assert_eq!(rows.elements()[0], tuple(&[9, 9]), "tuples of two numbers come first");
    }

    #[test]
    fn keys_that_are_sets_compare_by_inclusion() {
        let set = |numbers: &[i32]| {
            Value::set(numbers.iter().copied().map(Value::Number).collect()).unwrap()
        };
        assert_eq!(set(&[1]).python(&set(&[1, 2])), Some(Ordering::Less));
        assert_eq!(set(&[1]).python(&set(&[2])), None);
        assert_eq!(Value::Number(NOTHING).python(&Value::Number(0)), None);
    }

    #[test]
    fn a_value_that_weighs_too_much_is_none() {
        let many = |count: usize| vec![Value::Number(0); count];
        let most = usize::try_from(VALUE_WEIGHT_MAX).unwrap() - 1;
        assert!(Value::tuple(many(most)).is_some());
        assert!(Value::tuple(many(most + 1)).is_none());
    }
}
