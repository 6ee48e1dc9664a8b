//! The JSON document of `run --json` and `submit --json`.
//!
//! Owns its shape. May not compute anything: it writes every value as it came, item by item, without a tree
//! of the whole document in memory.
//!
//! ```json
//! {"results": [{"input": NAME, "verdict": "OK", "output": SHAPE}], "receipts": [RECEIPT]}
//! ```
//!
//! SHAPE is the shape of the input:
//!
//! - A program over grids gives for a task `{"train": [{"input": R, "output": R}], "test": […]}`; a pair
//!   without output has none here either. For a list of pairs it gives a list of `{"input": R, "output":
//!   R}`, for a list of grids a list of R.
//! - A program over pairs gives one R for each pair: `{"train": [R, …], "test": [R, …]}`, or a list of R.
//!
//! `verdict` is the worst of the input's jobs, without those that have results for all of its items. It is null if
//! an item of the input has none: the pool accepted no more jobs. R is null for an item without a result: its job
//! did not end OK, and had not done the item by then. `output` is null if no item has a result. The exit code is
//! 0 only if nothing is null.
//!
//! R is one of
//!
//! ```text
//! a grid              its rows, each a list of colours; [] if it is empty
//! a list of objects   a list of objects
//! an object           a list of [colour, [row, column]]
//! a patch             a list of [row, column]
//! a number, a flag    3, true
//! a vector            [row, column]
//! a list of colours   [0, 8]
//! a tuple             a list of R
//! a solver's value    sets, tuples, pairs, cells (colour, vector) and vectors as lists; null for nothing
//! an item's error     {"error": {"code", "op", "message"}}
//! ```

#[cfg(test)]
mod tests;

use std::io::{self, Write};

use gridpool_protocol::output::{ObjectCell, Output};
use gridpool_protocol::receipt::Verdict;
use gridpool_protocol::solver::{self, Kind};
use serde::ser::{Error, Serialize, Serializer};
use serde_json::json;

use super::input::{Body, Input, Inputs, Pair, Task, Unit};
use super::results::Results;

/// Writes the document on one line.
///
/// # Errors
/// Those of `out`; [`io::ErrorKind::InvalidData`] if a result cannot be read.
pub fn write(out: &mut impl Write, inputs: &Inputs, results: &Results) -> io::Result<()> {
    let unit = inputs.unit();
    let entries = || {
        inputs.numbered().map(|(first, input)| {
            let items = first..first + input.item_count(unit);
            let verdict = results.verdict(items.clone());
            let has_any =
                verdict == Some(Verdict::Ok) || !items.clone().all(|at| results.lacks(at));
            let output = has_any.then(|| shape(first, input, unit, results));
            Entry { input: &input.name, verdict, output }
        })
    };
    let document =
        ResultsDocument { results: List(entries), receipts: List(|| results.receipts()) };
    serde_json::to_writer(&mut *out, &document)?;
    writeln!(out)
}

/// Writes R of every item, each on a line.
///
/// # Errors
/// As of [`write()`].
pub fn write_lines(out: &mut impl Write, items: usize, results: &Results) -> io::Result<()> {
    for item in 0..items {
        serde_json::to_writer(&mut *out, &Item { item, results })?;
        out.write_all(b"\n")?;
    }
    Ok(())
}

/// A list whose elements are made while it is written.
pub(super) struct List<F>(pub(super) F);

impl<I: IntoIterator<Item: Serialize>, F: Fn() -> I> Serialize for List<F> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq((self.0)())
    }
}

#[derive(serde::Serialize)]
struct ResultsDocument<E, R> {
    results: E,
    receipts: R,
}

#[derive(serde::Serialize)]
struct Entry<'a, O> {
    input: &'a str,
    verdict: Option<Verdict>,
    output: Option<O>,
}

/// The results of one input in the shape of the input.
#[derive(serde::Serialize)]
#[serde(untagged)]
enum Shape<G, P> {
    Grids(G),
    Pairs(P),
    Task { train: P, test: P },
}

fn shape<'a>(
    first: usize,
    input: &'a Input,
    unit: Unit,
    results: &'a Results,
) -> Shape<impl Serialize, impl Serialize> {
    let pairs = |first: usize, pairs: &'a [Pair]| {
        let entry = move |next: &mut usize, pair: &Pair| {
            let item = *next;
            *next += pair.item_count(unit);
            Some(pair_entry(item, pair, unit, results))
        };
        List(move || pairs.iter().scan(first, entry))
    };
    match &input.body {
        Body::Grids(grids) => {
            let items = first..first + grids.len();
            Shape::Grids(List(move || items.clone().map(|item| Item { item, results })))
        }
        Body::Pairs(all) => Shape::Pairs(pairs(first, all)),
        Body::Task(Task { train, test }) => {
            let train_items: usize = train.iter().map(|pair| pair.item_count(unit)).sum();
            Shape::Task { train: pairs(first, train), test: pairs(first + train_items, test) }
        }
    }
}

#[derive(serde::Serialize)]
#[serde(untagged)]
enum PairEntry<'a> {
    Pair(Item<'a>),
    Sides {
        input: Item<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        output: Option<Item<'a>>,
    },
}

fn pair_entry<'a>(item: usize, pair: &Pair, unit: Unit, results: &'a Results) -> PairEntry<'a> {
    let input = Item { item, results };
    match unit {
        Unit::Pair => PairEntry::Pair(input),
        Unit::Grid => {
            let output = pair.output.is_some().then_some(Item { item: item + 1, results });
            PairEntry::Sides { input, output }
        }
    }
}

/// The result of one item. Writing decodes it.
struct Item<'a> {
    item: usize,
    results: &'a Results,
}

impl Serialize for Item<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.results.lacks(self.item) {
            return serializer.serialize_none();
        }
        match self.results.item(self.item) {
            Ok(Ok(output)) => Value(&output).serialize(serializer),
            Ok(Err(error)) => {
                let (code, op, message) = (error.code.name(), error.op, error.message);
                let error = json!({ "code": code, "op": op, "message": message });
                json!({ "error": error }).serialize(serializer)
            }
            Err(malformed) => Err(S::Error::custom(malformed)),
        }
    }
}

struct Value<'a>(&'a Output);

impl Serialize for Value<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Output::Colors(colors) => colors.serialize(serializer),
            Output::Flag(flag) => flag.serialize(serializer),
            Output::Grid(grid) => serializer.collect_seq(grid.rows()),
            Output::Number(number) => number.serialize(serializer),
            Output::Object(cells) => object(cells).serialize(serializer),
            Output::Objects(objects) => {
                serializer.collect_seq(objects.iter().map(|cells| object(cells)))
            }
            Output::Patch(places) => {
                serializer.collect_seq(places.iter().map(|place| (place.row, place.col)))
            }
            Output::Tuple(values) => serializer.collect_seq(values.iter().map(Value)),
            Output::Value(kind, value) => Solved(kind, value).serialize(serializer),
            Output::Vector { row, col } => (row, col).serialize(serializer),
        }
    }
}

/// A solver's value: sets, tuples, pairs, cells and vectors as lists, nothing as null.
pub(super) struct Solved<'a>(pub(super) &'a Kind, pub(super) &'a solver::value::Value);

impl Serialize for Solved<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use solver::value::{NO_VECTOR, NOTHING, Value};
        let Self(kind, value) = *self;
        match (value, kind) {
            (Value::Number(NOTHING), _) => serializer.serialize_none(),
            (Value::Number(number), Kind::Flag) => (*number != 0).serialize(serializer),
            (Value::Number(number), _) => number.serialize(serializer),
            (Value::Vector(NO_VECTOR), _) => [0; 0].serialize(serializer),
            (Value::Vector(halves), _) => halves.serialize(serializer),
            (Value::Cell(color, place), _) => {
                (color, Solved(&Kind::Vector, &Value::Vector(*place))).serialize(serializer)
            }
            (Value::Grid(grid), _) => serializer.collect_seq(grid.rows()),
            (Value::Pair(halves), Kind::Pair(kinds)) => {
                (Solved(&kinds.0, &halves.0), Solved(&kinds.1, &halves.1)).serialize(serializer)
            }
            (Value::Set(_) | Value::Tuple(_), Kind::Set(of) | Kind::Tuple(of)) => {
                serializer.collect_seq(value.elements().iter().map(|element| Solved(of, element)))
            }
            (Value::Pair(_) | Value::Set(_) | Value::Tuple(_), _) => {
                Err(S::Error::custom("the value is not of its kind"))
            }
        }
    }
}

/// Cells as a list of `[colour, [row, column]]`.
fn object(cells: &[ObjectCell]) -> impl Serialize {
    List(|| cells.iter().map(|cell| (cell.color, (cell.row, cell.col))))
}
