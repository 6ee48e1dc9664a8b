//! The kinds that primitives give, from the kinds that they take after conversion.

use super::kind::Kind;

/// The kind of a result; `None` if the arguments do not go together.
pub(super) type Gives = fn(&[&Kind]) -> Option<Kind>;

pub(super) fn flag(_: &[&Kind]) -> Option<Kind> {
    Some(Kind::Flag)
}

pub(super) fn number(_: &[&Kind]) -> Option<Kind> {
    Some(Kind::Number)
}

pub(super) fn vector(_: &[&Kind]) -> Option<Kind> {
    Some(Kind::Vector)
}

pub(super) fn grid(_: &[&Kind]) -> Option<Kind> {
    Some(Kind::Grid)
}

pub(super) fn grids(_: &[&Kind]) -> Option<Kind> {
    Some(Kind::tuple(Kind::Grid))
}

pub(super) fn patch(_: &[&Kind]) -> Option<Kind> {
    Some(Kind::patch())
}

pub(super) fn object(_: &[&Kind]) -> Option<Kind> {
    Some(Kind::object())
}

pub(super) fn objects(_: &[&Kind]) -> Option<Kind> {
    Some(Kind::objects())
}

pub(super) fn colors(_: &[&Kind]) -> Option<Kind> {
    Some(Kind::set(Kind::Number))
}

pub(super) fn row(_: &[&Kind]) -> Option<Kind> {
    Some(Kind::tuple(Kind::Number))
}

/// A vector if there is one among the arguments, else a number.
pub(super) fn numerical(of: &[&Kind]) -> Option<Kind> {
    Some(if of.contains(&&Kind::Vector) { Kind::Vector } else { Kind::Number })
}

/// A flag if all arguments are flags, else a number: Python's `and` and `or` give an operand.
pub(super) fn logical(of: &[&Kind]) -> Option<Kind> {
    Some(if of.iter().all(|kind| **kind == Kind::Flag) { Kind::Flag } else { Kind::Number })
}

/// The kind of the first argument.
pub(super) fn same(of: &[&Kind]) -> Option<Kind> {
    of.first().copied().cloned()
}

/// The kind of the second argument.
pub(super) fn second(of: &[&Kind]) -> Option<Kind> {
    of.get(1).copied().cloned()
}

/// A container as the first, whose elements may come from both.
pub(super) fn combined(of: &[&Kind]) -> Option<Kind> {
    let joined = element(of)?.join(of.get(1)?.element()?)?;
    Some(if matches!(of.first()?, Kind::Set(_)) { Kind::set(joined) } else { Kind::tuple(joined) })
}

/// A set of the first argument and the elements of the second.
pub(super) fn inserted(of: &[&Kind]) -> Option<Kind> {
    of.first()?.join(of.get(1)?.element()?).map(Kind::set)
}

/// An element of the first argument.
pub(super) fn element(of: &[&Kind]) -> Option<Kind> {
    of.first()?.element().cloned()
}

/// A tuple of the elements of the first argument.
pub(super) fn tuple(of: &[&Kind]) -> Option<Kind> {
    element(of).map(Kind::tuple)
}

/// A set of the elements of the first argument.
pub(super) fn set(of: &[&Kind]) -> Option<Kind> {
    element(of).map(Kind::set)
}

/// A tuple of the first argument.
pub(super) fn tuple_of(of: &[&Kind]) -> Option<Kind> {
    same(of).map(Kind::tuple)
}

/// A set of the first argument.
pub(super) fn set_of(of: &[&Kind]) -> Option<Kind> {
    same(of).map(Kind::set)
}

/// The largest element: a number, or as the elements are.
pub(super) fn extreme(of: &[&Kind]) -> Option<Kind> {
    let element = element(of)?;
    Some(if element == Kind::Vector { element } else { Kind::Number })
}

/// The first half of a pair, or an element.
pub(super) fn first(of: &[&Kind]) -> Option<Kind> {
    of.first()?.halves().map(|(first, _)| first).or_else(|| element(of))
}

/// The second half of a pair, or an element.
pub(super) fn last(of: &[&Kind]) -> Option<Kind> {
    of.first()?.halves().map(|(_, last)| last).or_else(|| element(of))
}

/// The elements of the elements, in a container as the outer one.
pub(super) fn merged(of: &[&Kind]) -> Option<Kind> {
    let inner = element(of)?.element()?.clone();
    Some(if matches!(of.first()?, Kind::Set(_)) { Kind::set(inner) } else { Kind::tuple(inner) })
}

/// A set of pairs of elements.
pub(super) fn product(of: &[&Kind]) -> Option<Kind> {
    zipped(of).map(Kind::set)
}

/// A tuple of pairs of elements.
pub(super) fn zip(of: &[&Kind]) -> Option<Kind> {
    zipped(of).map(Kind::tuple)
}

fn zipped(of: &[&Kind]) -> Option<Kind> {
    Some(Kind::pair(of.first()?.element()?.clone(), of.get(1)?.element()?.clone()))
}

/// Places without colours: a tuple of vectors stays a tuple.
pub(super) fn places(of: &[&Kind]) -> Option<Kind> {
    let tuple = Kind::tuple(Kind::Vector);
    Some(if **of.first()? == tuple { tuple } else { Kind::patch() })
}

/// A grid from a grid, else a set of the elements.
pub(super) fn piece(of: &[&Kind]) -> Option<Kind> {
    if **of.first()? == Kind::Grid { Some(Kind::Grid) } else { set(of) }
}
