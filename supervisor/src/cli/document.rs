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
//! `output` is null if a job of the input did not end OK; `verdict` is then the worst of its jobs. Both are
//! null if an item of the input has no verdict: the pool accepted no more jobs, and the exit code is not 0.
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
//! an item's error     {"error": {"code", "op", "message"}}
//! ```

#[cfg(test)]
mod tests;

use std::io::{self, BufWriter, Write};

use gridpool_protocol::output::{ItemError, ObjectCell, Output};
use gridpool_protocol::receipt::Verdict;
use serde::ser::{Error, Serialize, Serializer};

use super::input::{Body, Input, Inputs, Pair, Task, Unit};
use super::results::Results;

/// Writes the document on one line.
///
/// # Errors
/// Those of `out`; [`io::ErrorKind::InvalidData`] if a result cannot be read.
pub fn write(out: &mut dyn Write, inputs: &Inputs, results: &Results) -> io::Result<()> {
    let mut out = BufWriter::new(out);
    let document =
        ResultsDocument { results: Entries { inputs, results }, receipts: Receipts { results } };
    serde_json::to_writer(&mut out, &document)?;
    out.write_all(b"\n")?;
    out.flush()
}

#[derive(serde::Serialize)]
struct ResultsDocument<'a> {
    results: Entries<'a>,
    receipts: Receipts<'a>,
}

struct Receipts<'a> {
    results: &'a Results,
}

impl Serialize for Receipts<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.results.receipts())
    }
}

struct Entries<'a> {
    inputs: &'a Inputs,
    results: &'a Results,
}

impl Serialize for Entries<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (results, unit) = (self.results, self.inputs.unit());
        serializer.collect_seq(self.inputs.numbered().map(|(first, input)| {
            let verdict = results.verdict(first..first + input.item_count(unit));
            let shape = Shape { first, input, unit, results };
            let output = (verdict == Some(Verdict::Ok)).then_some(shape);
            Entry { input: &input.name, verdict, output }
        }))
    }
}

#[derive(serde::Serialize)]
struct Entry<'a> {
    input: &'a str,
    verdict: Option<Verdict>,
    output: Option<Shape<'a>>,
}

/// The results of one input in the shape of the input.
struct Shape<'a> {
    first: usize,
    input: &'a Input,
    unit: Unit,
    results: &'a Results,
}

impl<'a> Shape<'a> {
    fn pairs(&self, first: usize, pairs: &'a [Pair]) -> Pairs<'a> {
        Pairs { first, pairs, unit: self.unit, results: self.results }
    }
}

impl Serialize for Shape<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { first, input, unit, results } = *self;
        match &input.body {
            Body::Grids(grids) => {
                let items = first..first + grids.len();
                serializer.collect_seq(items.map(|item| Item { item, results }))
            }
            Body::Pairs(pairs) => self.pairs(first, pairs).serialize(serializer),
            Body::Task(Task { train, test }) => {
                let train_items: usize = train.iter().map(|pair| pair.item_count(unit)).sum();
                let train = self.pairs(first, train);
                let test = self.pairs(first + train_items, test);
                Sections { train, test }.serialize(serializer)
            }
        }
    }
}

#[derive(serde::Serialize)]
struct Sections<'a> {
    train: Pairs<'a>,
    test: Pairs<'a>,
}

struct Pairs<'a> {
    first: usize,
    pairs: &'a [Pair],
    unit: Unit,
    results: &'a Results,
}

impl Serialize for Pairs<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { first, pairs, unit, results } = *self;
        serializer.collect_seq(pairs.iter().scan(first, |next, pair| {
            let item = *next;
            *next += pair.item_count(unit);
            Some(PairEntry { item, pair, unit, results })
        }))
    }
}

struct PairEntry<'a> {
    item: usize,
    pair: &'a Pair,
    unit: Unit,
    results: &'a Results,
}

impl Serialize for PairEntry<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { item, pair, unit, results } = *self;
        let first = Item { item, results };
        match unit {
            Unit::Pair => first.serialize(serializer),
            Unit::Grid => {
                let output = pair.output.is_some().then_some(Item { item: item + 1, results });
                Sides { input: first, output }.serialize(serializer)
            }
        }
    }
}

#[derive(serde::Serialize)]
struct Sides<'a> {
    input: Item<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<Item<'a>>,
}

/// The result of one item. Writing decodes it.
struct Item<'a> {
    item: usize,
    results: &'a Results,
}

impl Serialize for Item<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.results.item(self.item) {
            Ok(Ok(output)) => Value(&output).serialize(serializer),
            Ok(Err(error)) => ErrorEntry { error: error.into() }.serialize(serializer),
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
            Output::Object(cells) => Object(cells).serialize(serializer),
            Output::Objects(objects) => {
                serializer.collect_seq(objects.iter().map(|cells| Object(cells)))
            }
            Output::Patch(places) => {
                serializer.collect_seq(places.iter().map(|place| (place.row, place.col)))
            }
            Output::Tuple(values) => serializer.collect_seq(values.iter().map(Value)),
            Output::Vector { row, col } => (row, col).serialize(serializer),
        }
    }
}

/// Cells as a list of `[colour, [row, column]]`.
struct Object<'a>(&'a [ObjectCell]);

impl Serialize for Object<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(|cell| (cell.color, (cell.row, cell.col))))
    }
}

#[derive(serde::Serialize)]
struct ErrorEntry {
    error: ErrorFields,
}

#[derive(serde::Serialize)]
struct ErrorFields {
    code: &'static str,
    op: String,
    message: String,
}

impl From<ItemError> for ErrorFields {
    fn from(error: ItemError) -> Self {
        Self { code: error.code.name(), op: error.op, message: error.message }
    }
}
