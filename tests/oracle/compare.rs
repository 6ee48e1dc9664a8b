//! Compares a device's results with the oracle's: every item as a client decodes it, every value's status,
//! and the bytes around them.

use gridpool_protocol::batch::{Grid, GridBatch};
use gridpool_protocol::output::{NO_OP, OutputLayout, Outputs};
use gridpool_protocol::program::Program;

use super::cells::{self, Bounds, Cells};
use super::{Failure, Item, Value};

/// A pair, as tests store it.
pub type Pair = (Grid, Option<Grid>);
/// Computes the results of a batch.
pub type Runner = dyn Fn(&Program, &GridBatch) -> Outputs;

/// Pairs in the form that batches take.
pub fn borrowed(pairs: &[Pair]) -> impl Iterator<Item = (&Grid, Option<&Grid>)> {
    pairs.iter().map(|(input, output)| (input, output.as_ref()))
}

/// Runs every program over all grids, or all pairs, as one batch. Compares every item and every value, and
/// checks where the values lie.
///
/// # Panics
/// At the first difference.
pub fn check(run: &Runner, programs: &[Program], grids: &[Grid], pairs: &[Pair]) {
    for program in programs {
        let (batch, items) = if program.grids_per_item() == 1 {
            (GridBatch::from_grids(grids), grids.iter().map(Item::from).collect())
        } else {
            (GridBatch::from_pairs(borrowed(pairs)), borrowed(pairs).map(Item::from).collect())
        };
        let items: Vec<Item<'_>> = items;
        if items.is_empty() {
            continue;
        }
        let batch = batch.expect("the items fit one job");
        let outputs = run(program, &batch);
        let layout = layout(program, &batch);
        let mut statuses = statuses(&outputs, &layout).into_iter();
        let mut end = 0;
        for (at, &item) in items.iter().enumerate() {
            let what =
                || format!("`{}`, ties {}, item {at}: {item:?}", program.text(), program.ties());
            let got = outputs.item(at).expect("the result is well formed");
            let values = super::values(program, item);
            let want = super::output(program, &values);
            match (&got, &want) {
                (Ok(got), Ok(want)) => assert_eq!(got, want, "{}", what()),
                (Err(got), Err(want)) => {
                    let op = want.step.map(|step| program.steps()[step].to_string());
                    let op = op.unwrap_or_else(|| "input".to_owned());
                    assert_eq!((got.code, &got.op), (want.code, &op), "{}", what());
                }
                _ => unreachable!("{got:?}, not {want:?}: {}", what()),
            }
            for (k, value) in values.iter().enumerate() {
                let got = statuses.next().expect("a status for every value");
                assert_eq!(got, status(value), "element {k} of {}", what());
                end = check_place(&outputs, &layout, at * layout.width() + k, end, value);
            }
        }
        assert!(
            end <= layout.capacity(),
            "{}: {end} cells of {}",
            program.text(),
            layout.capacity()
        );
    }
}

/// Checks the bytes of value `v`, when the values before it end at `end`; returns where it ends.
fn check_place(
    outputs: &Outputs,
    layout: &OutputLayout,
    v: usize,
    end: usize,
    value: &Result<Value, Failure>,
) -> usize {
    let bytes = outputs.packed();
    let word = |part: std::ops::Range<usize>, size: usize| {
        if part.is_empty() { vec![] } else { bytes[part][v * size..(v + 1) * size].to_vec() }
    };
    let shape = word(layout.shapes(), 2);
    if value.is_err() {
        let words = [shape.clone(), word(layout.counts(), 2), word(layout.numbers(), 4)];
        assert!(
            words.concat().iter().all(|&byte| byte == 0),
            "value {v} failed and left {words:?}"
        );
    }
    if let Ok(Value::Grid(cells) | Value::Object(cells) | Value::Patch(cells)) = value {
        check_box(cells, &shape, &word(layout.origins(), 4));
    }
    if !layout.is_packed() {
        return end;
    }
    let offset = word(layout.offsets(), 4);
    let start = u32::from_le_bytes(offset.try_into().expect("an offset has four bytes"));
    assert_eq!(start as usize, end, "value {v} starts where the one before it ends");
    end + usize::from(shape[0]) * usize::from(shape[1])
}

/// Checks that a picture is tight: its box has a cell on each of its four sides.
fn check_box(cells: &Cells, shape: &[u8], origin: &[u8]) {
    let (h, w) = cells::shape(cells);
    let shape: Vec<i32> = shape.iter().map(|&side| side.into()).collect();
    assert_eq!(shape, [h, w], "the shape of {cells:?}");
    let words = origin.as_chunks::<2>().0.iter();
    let origin: Vec<i32> = words.map(|&word| i16::from_le_bytes(word).into()).collect();
    let corner = Bounds::of(cells).map_or([0, 0], |bounds| [bounds.top, bounds.left]);
    assert!(origin.is_empty() || origin == corner, "the origin {origin:?} of {cells:?}");
}

/// `(code, op)` of every value, read from the bytes.
#[must_use]
pub fn statuses(outputs: &Outputs, layout: &OutputLayout) -> Vec<(u8, u8)> {
    outputs.packed()[layout.status()].as_chunks::<2>().0.iter().map(|&[c, o]| (c, o)).collect()
}

fn status(value: &Result<Value, Failure>) -> (u8, u8) {
    let op = |step: Option<usize>| step.map_or(NO_OP, |s| u8::try_from(s).expect("at most 64 ops"));
    value.as_ref().err().map_or((0, 0), |failure| (failure.code as u8, op(failure.step)))
}

/// Where the parts of a result lie.
///
/// # Panics
/// If such a batch has no layout.
#[must_use]
pub fn layout(program: &Program, batch: &GridBatch) -> OutputLayout {
    let layout = batch.layout().expect("the batch has items");
    OutputLayout::new(program, layout).expect("the result fits one job")
}
