//! Where the results of two runs part.

use gridpool_protocol::output::{ItemError, Output};
use gridpool_protocol::tensor::Tensor;
use serde::Serialize;

use super::run::Results;

/// The first difference.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Difference {
    /// The item, program or request, counted in what was run.
    pub(super) unit: usize,
    /// Row and column of the first cell that differs, if both results are grids of one shape.
    pub(super) cell: Option<(usize, usize)>,
    /// The output of a model and the first byte that differs.
    pub(super) tensor: Option<(String, usize)>,
    /// In words.
    pub(super) what: String,
}

/// The first difference of two results of the same work.
pub(super) fn first(one: &Results, other: &Results) -> Option<Difference> {
    match (one, other) {
        (Results::Items(one), Results::Items(other)) => {
            let mut both = one.iter().zip(other).enumerate();
            both.find_map(|(unit, (one, other))| of_item(unit, one, other))
        }
        (Results::Bytes(one), Results::Bytes(other)) => {
            let at = one.iter().zip(other).position(|(one, other)| one != other)?;
            let what = format!("byte {at} of the verdicts is {} and {}", one[at], other[at]);
            Some(Difference { unit: 0, cell: None, tensor: None, what })
        }
        (Results::Tensors(one), Results::Tensors(other)) => {
            let mut both = one.iter().zip(other).enumerate();
            both.find_map(|(unit, (one, other))| of_tensors(unit, one, other))
        }
        (Results::Items(_) | Results::Bytes(_) | Results::Tensors(_), _) => {
            let what = "the results are of different kinds".to_owned();
            Some(Difference { unit: 0, cell: None, tensor: None, what })
        }
    }
}

fn of_item(
    unit: usize,
    one: &Result<Output, ItemError>,
    other: &Result<Output, ItemError>,
) -> Option<Difference> {
    if one == other {
        return None;
    }
    let of = |cell, what| Some(Difference { unit, cell, tensor: None, what });
    match (one, other) {
        (Ok(Output::Grid(one)), Ok(Output::Grid(other)))
            if (one.h(), one.w()) == (other.h(), other.w()) =>
        {
            let at = one.cells().iter().zip(other.cells()).position(|(a, b)| a != b)?;
            let (a, b, w) = (one.cells()[at], other.cells()[at], one.w().max(1));
            let (row, column) = (at / w, at % w);
            of(Some((row, column)), format!("the cell ({row}, {column}) is {a} and {b}"))
        }
        (Ok(Output::Grid(one)), Ok(Output::Grid(other))) => {
            let (a, b) = ((one.h(), one.w()), (other.h(), other.w()));
            of(None, format!("the grid is {} x {} and {} x {}", a.0, a.1, b.0, b.1))
        }
        (Ok(_), Ok(_)) => of(None, "the values differ".to_owned()),
        (Ok(_), Err(error)) => of(None, format!("a result and the error: {error}")),
        (Err(error), Ok(_)) => of(None, format!("the error: {error}; and a result")),
        (Err(one), Err(other)) => of(None, format!("the errors: {one}; {other}")),
    }
}

type Outputs = [(Tensor, Vec<u8>)];

/// Bytes are compared: a GPU may round a float in another way.
fn of_tensors(unit: usize, one: &Outputs, other: &Outputs) -> Option<Difference> {
    let mut both = one.iter().zip(other);
    both.find_map(|((tensor, one), (_, other))| {
        let at = one.iter().zip(other).position(|(one, other)| one != other);
        let at = at.or_else(|| (one.len() != other.len()).then(|| one.len().min(other.len())))?;
        let name = tensor.name();
        let what = format!("the output `{name}` ({}) differs from byte {at} on", tensor.datatype());
        Some(Difference { unit, cell: None, tensor: Some((name.to_owned(), at)), what })
    })
}

#[cfg(test)]
mod tests {
    use gridpool_protocol::batch::Grid;

    use super::*;

    fn grid(rows: &[&[u8]]) -> Result<Output, ItemError> {
        Ok(Output::Grid(Grid::from_rows(rows).unwrap()))
    }

    #[test]
    fn the_first_cell_of_the_first_item_that_differs_is_named() {
        let one = Results::Items(vec![grid(&[&[1]]), grid(&[&[1, 2], &[3, 4]])]);
        assert_eq!(first(&one, &one), None);
        let other = Results::Items(vec![grid(&[&[1]]), grid(&[&[1, 2], &[9, 4]])]);
        let found = first(&one, &other).unwrap();
        assert_eq!((found.unit, found.cell), (1, Some((1, 0))));
        assert_eq!(found.what, "the cell (1, 0) is 3 and 9");
        let other = Results::Items(vec![grid(&[&[1]]), grid(&[&[1, 2]])]);
        assert_eq!(first(&one, &other).unwrap().what, "the grid is 2 x 2 and 1 x 2");
    }
}
