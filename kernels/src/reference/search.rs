//! Judges programs of the machine on pairs: whether the result is the expected grid, and how near it is.

use gridpool_protocol::batch::GridBatch;
use gridpool_protocol::limits::COLOR_MAX;
use gridpool_protocol::output::ItemErrorCode;
use gridpool_protocol::search::{CellScore, PairStatus};
use gridpool_protocol::solver::Code;
use gridpool_protocol::solver::value::{Grid, NO_VECTOR, Value};

use super::machine::Machine;

/// The pairs of a search.
#[derive(Clone, Debug, Default)]
pub struct SearchPairs(Vec<SearchPair>);

#[derive(Clone, Debug)]
struct SearchPair {
    /// The input, or why it is none.
    input: Result<Value, ItemErrorCode>,
    /// Rows, columns and cells of the expected grid.
    shape: [usize; 2],
    cells: Vec<u8>,
}

impl SearchPairs {
    /// Pairs from the shapes of all inputs and outputs and their cells, one grid after the other.
    ///
    /// # Panics
    /// If there are fewer cells than the shapes say.
    #[must_use]
    pub fn new(shapes: &[[u8; 2]], cells: &[u8]) -> Self {
        let mut rest = cells;
        let mut take = |[h, w]: [u8; 2]| {
            let (h, w) = (usize::from(h), usize::from(w));
            let (cells, after) = rest.split_at(h * w);
            rest = after;
            ([h, w], cells)
        };
        let pair = |pair: &[[u8; 2]; 2]| {
            let (of_input, input) = take(pair[0]);
            let (shape, expected) = take(pair[1]);
            let input = match expected.is_empty() {
                true => Err(ItemErrorCode::MissingOutput),
                false => input_value(of_input, input).ok_or(ItemErrorCode::BadCell),
            };
            SearchPair { input, shape, cells: expected.to_vec() }
        };
        Self(shapes.as_chunks::<2>().0.iter().map(pair).collect())
    }

    /// The pairs of a batch of pairs.
    #[must_use]
    pub fn of_batch(batch: &GridBatch) -> Self {
        Self::new(batch.tables().shapes(), batch.cells())
    }

    /// Pairs.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn input_value([height, width]: [usize; 2], cells: &[u8]) -> Option<Value> {
    let is_valid = cells.iter().all(|cell| *cell <= COLOR_MAX);
    let colors = cells.iter().map(|cell| cell.cast_signed()).collect();
    let grid = is_valid.then(|| Grid::new(height, width, colors)).flatten()?;
    Some(Value::Grid(grid.into()))
}

/// Runs a program on pair `at`, at most the steps that it says.
///
/// # Panics
/// If there is no such pair.
pub fn judge(
    machine: &mut Machine,
    code: &Code,
    pairs: &SearchPairs,
    at: usize,
) -> (PairStatus, CellScore) {
    judge_unless(machine, code, pairs, at, || false).expect("nobody cancels it")
}

/// The same; `None` if it was cancelled. It asks `is_cancelled` before each instruction.
///
/// # Panics
/// If there is no such pair.
pub fn judge_unless(
    machine: &mut Machine,
    code: &Code,
    pairs: &SearchPairs,
    at: usize,
    is_cancelled: impl Fn() -> bool,
) -> Option<(PairStatus, CellScore)> {
    let pair = &pairs.0[at];
    let failed = |code| (PairStatus::Error(code), CellScore::default());
    let input = match &pair.input {
        Ok(input) => input.clone(),
        Err(code) => return Some(failed(*code)),
    };
    Some(match machine.run_unless(code, input, code.step_limit(), is_cancelled)? {
        Err(error) => failed(error.code),
        Ok(_) if !code.gives().is_gridlike() => (PairStatus::Differs, CellScore::default()),
        Ok(finished) => compare(&finished.value, pair),
    })
}

/// Compares a grid, or rows of numbers, with the expected grid.
fn compare(value: &Value, pair: &SearchPair) -> (PairStatus, CellScore) {
    let [h, w] = pair.shape;
    let mut equal_shape = rows_count(value) == h;
    let mut equal_cells = 0_usize;
    for row in 0..rows_count(value) {
        let length = row_length(value, row);
        equal_shape &= length == w;
        let both = if row < h { length.min(w) } else { 0 };
        let is_equal =
            |col: &usize| cell(value, row, *col) == Some(i32::from(pair.cells[row * w + col]));
        equal_cells += (0..both).filter(is_equal).count();
    }
    let is_equal = equal_shape && equal_cells == h * w;
    let status = if is_equal { PairStatus::Equal } else { PairStatus::Differs };
    let equal_cells = u16::try_from(equal_cells).expect("a grid has at most 4,096 cells");
    (status, CellScore { equal_shape, equal_cells })
}

/// The `at`th element of a tuple or a pair.
fn element(value: &Value, at: usize) -> Option<&Value> {
    match value {
        Value::Pair(halves) => [&halves.0, &halves.1].get(at).copied(),
        Value::Tuple(_) => value.elements().get(at),
        Value::Number(_) | Value::Vector(_) | Value::Cell(..) | Value::Grid(_) | Value::Set(_) => {
            None
        }
    }
}

fn rows_count(value: &Value) -> usize {
    match value {
        Value::Grid(grid) => grid.height(),
        Value::Pair(_) => 2,
        Value::Tuple(_) => value.elements().len(),
        Value::Number(_) | Value::Vector(_) | Value::Cell(..) | Value::Set(_) => 0,
    }
}

fn row_length(value: &Value, row: usize) -> usize {
    match (value, element(value, row)) {
        (Value::Grid(grid), _) => grid.width(),
        (_, Some(Value::Vector(NO_VECTOR))) => 0,
        (_, Some(Value::Vector(_))) => 2,
        (_, Some(row @ Value::Tuple(_))) => row.elements().len(),
        (_, Some(_) | None) => 0,
    }
}

fn cell(value: &Value, row: usize, col: usize) -> Option<i32> {
    match (value, element(value, row)) {
        (Value::Grid(grid), _) => Some(i32::from(*grid.cells().get(row * grid.width() + col)?)),
        (_, Some(Value::Vector(halves))) => halves.get(col).map(|half| i32::from(*half)),
        (_, Some(row)) => match row.elements().get(col) {
            Some(Value::Number(number)) => Some(*number),
            Some(_) | None => None,
        },
        (_, None) => None,
    }
}

#[cfg(test)]
mod tests {
    use gridpool_protocol::batch::Grid as Input;
    use gridpool_protocol::program::Ties;
    use gridpool_protocol::solver::Solver;

    use super::*;

    fn pairs(output: &Input) -> SearchPairs {
        let input = Input::from_rows(&[[1, 2], [3, 4]]).unwrap();
        SearchPairs::of_batch(&GridBatch::from_pairs([(&input, Some(output))]).unwrap())
    }

    fn judged(text: &str, output: &Input) -> (PairStatus, CellScore) {
        let solver = Solver::compile(text, Ties::Cpython).unwrap();
        judge(&mut Machine::default(), solver.code(), &pairs(output), 0)
    }

    fn score(equal_shape: bool, equal_cells: u16) -> CellScore {
        CellScore { equal_shape, equal_cells }
    }

    #[test]
    fn a_result_is_judged_cell_by_cell_where_both_grids_have_one() {
        let turned = Input::from_rows(&[[3, 1], [4, 2]]).unwrap();
        assert_eq!(judged("O = rot90(I)", &turned), (PairStatus::Equal, score(true, 4)));
        let text = "O = vconcat(rot90(I), I)";
        assert_eq!(judged(text, &turned), (PairStatus::Differs, score(false, 4)));
        let odd = "O = fill(rot90(I), NINE, initset(ORIGIN))";
        assert_eq!(judged(odd, &turned), (PairStatus::Differs, score(true, 3)));
        let wide = Input::from_rows(&[[3, 1, 0]]).unwrap();
        assert_eq!(judged("O = rot90(I)", &wide), (PairStatus::Differs, score(false, 2)));
        assert_eq!(judged("O = size(I)", &wide), (PairStatus::Differs, score(false, 0)));
        // A colour that no grid of a task has.
        let outside = "O = replace(rot90(I), THREE, NEG_TWO)";
        assert_eq!(judged(outside, &turned), (PairStatus::Differs, score(true, 3)));
    }

    #[test]
    fn a_program_that_nobody_wants_ends_before_its_next_instruction() {
        let solver = Solver::compile("O = power(rot90, TEN)(I)", Ties::Cpython).unwrap();
        let (pairs, mut machine) = (pairs(&Input::from_rows(&[[1]]).unwrap()), Machine::default());
        let asked = std::cell::Cell::new(0);
        let is_cancelled = || asked.replace(asked.get() + 1) == 5;
        let judged = judge_unless(&mut machine, solver.code(), &pairs, 0, is_cancelled);
        assert_eq!((judged, asked.get()), (None, 6));
        let (status, _) = judge(&mut machine, solver.code(), &pairs, 0);
        assert_eq!(status, PairStatus::Differs);
    }

    #[test]
    fn rows_of_numbers_are_a_grid_as_in_python() {
        let turned = Input::from_rows(&[[3, 1], [4, 2]]).unwrap();
        for text in [
            "O = ((3, 1), (4, 2))",
            "O = combine(initset((3, 1)), initset((4, 2)))\nO = totuple(O)",
            "O = apply(identity, rot90(I))",
        ] {
            assert_eq!(judged(text, &turned), (PairStatus::Equal, score(true, 4)), "{text}");
        }
        let flags = Input::from_rows(&[[1, 0, 1], [0, 0, 0]]).unwrap();
        let text = "O = ((T, F, T), (ZERO, ZERO, ZERO))";
        assert_eq!(judged(text, &flags), (PairStatus::Equal, score(true, 6)));
    }

    #[test]
    fn errors_missing_outputs_and_bad_cells_have_statuses_of_their_own() {
        let turned = Input::from_rows(&[[3, 1], [4, 2]]).unwrap();
        let failed = |code| (PairStatus::Error(code), CellScore::default());
        let empty = "O = subgrid(ofcolor(I, NINE), I)";
        assert_eq!(judged(empty, &turned), failed(ItemErrorCode::EmptyArg));
        let solver = Solver::compile("O = I", Ties::Cpython).unwrap();
        let odd = SearchPairs::new(&[[1, 1], [1, 1], [1, 1], [0, 0]], &[10, 1, 1]);
        let of = |at| judge(&mut Machine::default(), solver.code(), &odd, at);
        assert_eq!(of(0), failed(ItemErrorCode::BadCell));
        assert_eq!(of(1), failed(ItemErrorCode::MissingOutput));
        assert_eq!(odd.len(), 2);
    }
}
