//! The bytes of a result: docs/src/design/machine.md, "Results".

use super::kind::Kind;
use super::value::{Grid, Value};
use crate::limits::RESULT_BYTES_MAX;

/// Bytes of the largest grid.
const GRID_BYTES_MAX: usize = 2 + crate::limits::GRID_CELLS_MAX;

/// The most bytes that a value of a kind takes; a container's have no bound but that of all results.
pub(super) fn bytes_max(kind: &Kind) -> usize {
    match kind {
        Kind::Never => 0,
        Kind::Flag => 1,
        Kind::Number | Kind::Vector => 4,
        Kind::Cell => 6,
        Kind::Place => 7,
        Kind::Grid => GRID_BYTES_MAX,
        Kind::Pair(halves) => (bytes_max(&halves.0) + bytes_max(&halves.1)).min(RESULT_BYTES_MAX),
        Kind::Set(_) | Kind::Tuple(_) => RESULT_BYTES_MAX,
    }
}

impl Value {
    /// Appends the bytes of the value, which is of this kind.
    pub fn write(&self, kind: &Kind, into: &mut Vec<u8>) {
        match (self, kind) {
            (Self::Number(number), Kind::Flag) => into.push(u8::from(*number != 0)),
            (Self::Number(number), _) => into.extend(number.to_le_bytes()),
            (Self::Vector(halves), Kind::Place) => {
                into.extend([0, 0, 0]);
                write_halves(halves, into);
            }
            (Self::Vector(halves), _) => write_halves(halves, into),
            (Self::Cell(color, place), kind) => {
                if *kind == Kind::Place {
                    into.push(1);
                }
                into.extend(color.to_le_bytes());
                write_halves(place, into);
            }
            (Self::Grid(grid), _) => {
                let side = |side: usize| u8::try_from(side).unwrap_or(u8::MAX);
                into.extend([side(grid.height()), side(grid.width())]);
                into.extend(grid.cells().iter().map(|cell| cell.cast_unsigned()));
            }
            (Self::Pair(halves), Kind::Pair(kinds)) => {
                halves.0.write(&kinds.0, into);
                halves.1.write(&kinds.1, into);
            }
            (Self::Set(_) | Self::Tuple(_), Kind::Set(of) | Kind::Tuple(of)) => {
                let count = u32::try_from(self.elements().len()).unwrap_or(u32::MAX);
                into.extend(count.to_le_bytes());
                self.elements().iter().for_each(|element| element.write(of, into));
            }
            // A verified program makes no value of another kind.
            (Self::Pair(_) | Self::Set(_) | Self::Tuple(_), _) => {}
        }
    }

    /// The value at the start of some bytes; `None` if they are no value of this kind.
    #[must_use]
    pub fn from_bytes(kind: &Kind, bytes: &[u8]) -> Option<Self> {
        Reader { rest: bytes }.value(kind)
    }
}

fn write_halves(halves: &[i16; 2], into: &mut Vec<u8>) {
    halves.iter().for_each(|half| into.extend(half.to_le_bytes()));
}

struct Reader<'b> {
    rest: &'b [u8],
}

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.rest.split_first_chunk::<N>()?;
        self.rest = rest;
        Some(*taken)
    }

    fn half(&mut self) -> Option<i16> {
        self.take().map(i16::from_le_bytes)
    }

    fn cell(&mut self) -> Option<Value> {
        Some(Value::Cell(self.half()?, [self.half()?, self.half()?]))
    }

    fn value(&mut self, kind: &Kind) -> Option<Value> {
        match kind {
            Kind::Never => None,
            Kind::Flag => match self.take()? {
                [flag @ (0 | 1)] => Some(Value::Number(flag.into())),
                [_] => None,
            },
            Kind::Number => self.take().map(|bytes| Value::Number(i32::from_le_bytes(bytes))),
            Kind::Vector => Some(Value::Vector([self.half()?, self.half()?])),
            Kind::Cell => self.cell(),
            Kind::Place => match (self.take()?, self.cell()?) {
                ([1], cell) => Some(cell),
                ([0], Value::Cell(0, place)) => Some(Value::Vector(place)),
                _ => None,
            },
            Kind::Grid => {
                let [height, width] = self.take()?.map(usize::from);
                let (cells, rest) = self.rest.split_at_checked(height * width)?;
                self.rest = rest;
                let cells = cells.iter().map(|cell| cell.cast_signed()).collect();
                Some(Value::Grid(Grid::new(height, width, cells)?.into()))
            }
            Kind::Pair(kinds) => {
                let first = self.value(&kinds.0)?;
                Some(Value::Pair((first, self.value(&kinds.1)?).into()))
            }
            Kind::Set(of) | Kind::Tuple(of) => {
                let count = u32::from_le_bytes(self.take()?) as usize;
                if count > self.rest.len() {
                    return None;
                }
                let values = (0..count).map(|_| self.value(of)).collect::<Option<Vec<_>>>()?;
                if matches!(kind, Kind::Tuple(_)) {
                    return Value::tuple(values);
                }
                let set = Value::set(values)?;
                (set.elements().len() == count).then_some(set)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_every_kind_are_read_back() {
        let grid = Value::Grid(Grid::new(1, 2, vec![-1, 9]).unwrap().into());
        let cells = Value::set(vec![Value::Cell(-1, [2, 3]), Value::Cell(400, [-9, 0])]).unwrap();
        let places = Value::set(vec![Value::Cell(0, [2, 3]), Value::Vector([2, 3])]).unwrap();
        let pair = Value::Pair((grid.clone(), Value::Number(-7)).into());
        let pair_kind = Kind::pair(Kind::Grid, Kind::Number);
        let cases = [
            (Kind::Grid, grid.clone()),
            (Kind::Flag, Value::Number(1)),
            (Kind::Vector, Value::Vector([-3, 4])),
            (Kind::object(), cells.clone()),
            (Kind::set(Kind::Place), places),
            (Kind::objects(), Value::set(vec![cells]).unwrap()),
            (Kind::tuple(pair_kind), Value::tuple(vec![pair.clone(), pair]).unwrap()),
            (Kind::tuple(Kind::Grid), Value::tuple(vec![grid]).unwrap()),
        ];
        for (kind, value) in cases {
            let mut bytes = Vec::new();
            value.write(&kind, &mut bytes);
            assert!(bytes.len() <= bytes_max(&kind));
            assert_eq!(Value::from_bytes(&kind, &bytes), Some(value), "{kind}");
            assert_eq!(Value::from_bytes(&kind, &bytes[..bytes.len() - 1]), None, "{kind}");
        }
    }

    #[test]
    fn bytes_that_are_no_value_are_none() {
        assert_eq!(Value::from_bytes(&Kind::Flag, &[2]), None);
        assert_eq!(Value::from_bytes(&Kind::Grid, &[255, 255]), None);
        let twice = [2, 0, 0, 0, 5, 0, 0, 0, 5, 0, 0, 0];
        assert_eq!(Value::from_bytes(&Kind::set(Kind::Number), &twice), None);
        assert_eq!(Value::from_bytes(&Kind::tuple(Kind::Never), &[255; 8]), None);
    }
}
