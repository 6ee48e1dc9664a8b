//! Describes the first difference between a result and the right one.

use gridpool_protocol::batch::Grid;
use gridpool_protocol::output::{ItemError, MalformedOutput, Object, Output, Outputs};

/// How item `item` of `got` differs from that of `want`.
pub(super) fn differ(got: &Outputs, want: &Outputs, item: usize) -> String {
    let want = match want.item(item) {
        Ok(want) => want,
        Err(malformed) => return format!("the reference's own result is malformed: {malformed}"),
    };
    items(got.item(item), want)
}

fn items(
    got: Result<Result<Output, ItemError>, MalformedOutput>,
    want: Result<Output, ItemError>,
) -> String {
    let got = match got {
        Ok(got) => got,
        Err(malformed) => return format!("its result is malformed: {}", malformed.what),
    };
    match (&got, &want) {
        (Ok(got), Ok(want)) => values(got, want),
        (Err(got), Ok(want)) => format!("it is the error {got}, must be {}", summary(want)),
        (Ok(got), Err(want)) => format!("it is {}, must be the error {want}", summary(got)),
        (Err(got), Err(want)) => format!("it is the error {got}, must be the error {want}"),
    }
}

fn values(got: &Output, want: &Output) -> String {
    match (got, want) {
        (Output::Grid(got), Output::Grid(want)) => grids(got, want),
        (Output::Object(got), Output::Object(want)) => {
            lists("cell", got, want, |c| format!("colour {} at ({}, {})", c.color, c.row, c.col))
        }
        (Output::Patch(got), Output::Patch(want)) => {
            lists("place", got, want, |place| format!("({}, {})", place.row, place.col))
        }
        (Output::Colors(got), Output::Colors(want)) => lists("colour", got, want, u8::to_string),
        (Output::Objects(got), Output::Objects(want)) => objects(got, want),
        (Output::Tuple(got), Output::Tuple(want)) => {
            let first = got.iter().zip(want).position(|(got, want)| got != want);
            match first {
                Some(at) => format!("element {at}: {}", values(&got[at], &want[at])),
                None => same(got.len(), want.len(), "elements"),
            }
        }
        _ if got == want => same(0, 0, "values"),
        _ => format!("it is {}, must be {}", summary(got), summary(want)),
    }
}

fn grids(got: &Grid, want: &Grid) -> String {
    let shape = |grid: &Grid| format!("{} x {}", grid.h(), grid.w());
    if shape(got) != shape(want) {
        return format!("its shape is {}, must be {}", shape(got), shape(want));
    }
    let different = got.cells().iter().zip(want.cells()).position(|(got, want)| got != want);
    match different {
        Some(at) => {
            let (row, col) = (at / want.w(), at % want.w());
            format!("cell ({row}, {col}) is {}, must be {}", got.cells()[at], want.cells()[at])
        }
        None => same(0, 0, "cells"),
    }
}

fn objects(got: &[Object], want: &[Object]) -> String {
    if got.len() != want.len() {
        return format!("it has {} objects, must have {}", got.len(), want.len());
    }
    match got.iter().zip(want).position(|(got, want)| got != want) {
        Some(at) => {
            let cells = lists("cell", &got[at], &want[at], |cell| {
                format!("colour {} at ({}, {})", cell.color, cell.row, cell.col)
            });
            format!("object {at}: {cells}")
        }
        None => same(0, 0, "objects"),
    }
}

/// The first element that differs, or the different lengths.
fn lists<T: PartialEq>(what: &str, got: &[T], want: &[T], text: fn(&T) -> String) -> String {
    match got.iter().zip(want).position(|(got, want)| got != want) {
        Some(at) => format!("{what} {at} is {}, must be {}", text(&got[at]), text(&want[at])),
        None => same(got.len(), want.len(), &format!("{what}s")),
    }
}

fn same(got: usize, want: usize, what: &str) -> String {
    if got == want {
        return "its bytes differ where its value does not".to_owned();
    }
    format!("it has {got} {what}, must have {want}")
}

/// A value in a few words.
fn summary(output: &Output) -> String {
    match output {
        Output::Colors(colors) => format!("the colours {colors:?}"),
        Output::Flag(flag) => flag.to_string(),
        Output::Grid(grid) => format!("a grid of {} x {}", grid.h(), grid.w()),
        Output::Number(number) => number.to_string(),
        Output::Object(object) => format!("an object of {} cells", object.len()),
        Output::Objects(objects) => format!("{} objects", objects.len()),
        Output::Patch(places) => format!("a patch of {} places", places.len()),
        Output::Tuple(elements) => format!("{} elements", elements.len()),
        Output::Value(kind, _) => kind.to_string(),
        Output::Vector { row, col } => format!("({row}, {col})"),
    }
}

#[cfg(test)]
mod tests {
    use gridpool_protocol::output::{ItemErrorCode, ObjectCell, PatchCell};

    use super::*;

    fn grid(rows: &[[u8; 2]]) -> Output {
        Output::Grid(Grid::from_rows(rows).unwrap())
    }

    fn cell(color: u8, col: i32) -> ObjectCell {
        ObjectCell { color, row: 0, col }
    }

    #[test]
    fn the_first_difference_of_every_kind_is_named_with_its_place() {
        let patch = |cols: &[i32]| {
            Output::Patch(cols.iter().map(|&col| PatchCell { row: 1, col }).collect())
        };
        let cases = [
            (grid(&[[1, 3]]), grid(&[[1, 2]]), "cell (0, 1) is 3, must be 2"),
            (grid(&[[1, 2]]), grid(&[[1, 2], [3, 4]]), "its shape is 1 x 2, must be 2 x 2"),
            (Output::Number(3), Output::Number(2), "it is 3, must be 2"),
            (Output::Flag(true), Output::Flag(false), "it is true, must be false"),
            (
                Output::Vector { row: 1, col: 2 },
                Output::Vector { row: 1, col: 3 },
                "it is (1, 2), must be (1, 3)",
            ),
            (Output::Colors(vec![1, 2]), Output::Colors(vec![1, 4]), "colour 1 is 2, must be 4"),
            (Output::Colors(vec![1]), Output::Colors(vec![1, 4]), "it has 1 colours, must have 2"),
            (patch(&[0, 2]), patch(&[0, 3]), "place 1 is (1, 2), must be (1, 3)"),
            (
                Output::Object(vec![cell(1, 0)]),
                Output::Object(vec![cell(2, 0)]),
                "cell 0 is colour 1 at (0, 0), must be colour 2 at (0, 0)",
            ),
            (
                Output::Objects(vec![vec![cell(1, 0)], vec![cell(1, 2)]]),
                Output::Objects(vec![vec![cell(1, 0)], vec![cell(1, 3)]]),
                "object 1: cell 0 is colour 1 at (0, 2), must be colour 1 at (0, 3)",
            ),
            (
                Output::Objects(Vec::new()),
                Output::Objects(vec![vec![cell(1, 0)]]),
                "it has 0 objects, must have 1",
            ),
            (
                Output::Tuple(vec![Output::Number(1), Output::Number(3)]),
                Output::Tuple(vec![Output::Number(1), Output::Number(2)]),
                "element 1: it is 3, must be 2",
            ),
        ];
        for (got, want, says) in cases {
            assert_eq!(items(Ok(Ok(got)), Ok(want)), says);
        }
    }

    #[test]
    fn errors_and_malformed_results_are_described_differently() {
        let code = ItemErrorCode::EmptyArg;
        let error =
            || ItemError { code, op: "rot90".to_owned(), message: "it is empty".to_owned() };
        let number = || Output::Number(1);
        let says = [
            (
                items(Ok(Err(error())), Ok(number())),
                "it is the error rot90: it is empty, must be 1",
            ),
            (
                items(Ok(Ok(number())), Err(error())),
                "it is 1, must be the error rot90: it is empty",
            ),
            (
                items(Err(MalformedOutput { item: 0, what: "no place" }), Ok(number())),
                "its result is malformed: no place",
            ),
            (items(Ok(Ok(number())), Ok(number())), "its bytes differ where its value does not"),
        ];
        says.iter().for_each(|(got, want)| assert_eq!(got, want));
    }
}
