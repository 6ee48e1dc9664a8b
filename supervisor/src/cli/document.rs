//! The one JSON document of `run --json` and `submit --json`.
//!
//! Owns its shape. May not compute anything: every value is written as it came, item by item,
//! without a tree of the whole in memory.
//!
//! ```json
//! {"results": [{"input": NAME, "verdict": "OK", "output": SHAPE}], "receipts": [RECEIPT]}
//! ```
//!
//! SHAPE is that of the input: a task gives `{"train": [{"input": R, "output": R}], "test": […]}`,
//! pairs without output stay without; a list of grids gives a list of R. It is null where a job of
//! the input did not end OK; the verdict is then the worst of its jobs. R is rows of colours, a
//! number, a list of colours, a list of objects, each a list of `[colour, [row, column]]`, or
//! `{"error": {"code", "op", "message"}}`.

use std::io::{self, BufWriter, Write};

use gridpool_protocol::output::{ItemError, Object, Output};
use gridpool_protocol::receipt::Verdict;
use serde::ser::{Error, Serialize, Serializer};

use super::input::{Body, Input, Pair, Task, numbered};
use super::results::Results;

/// Writes the document on one line.
///
/// # Errors
/// Those of `out`; [`io::ErrorKind::InvalidData`] if a result cannot be read.
pub fn write(out: &mut dyn Write, inputs: &[Input], results: &Results) -> io::Result<()> {
    let mut out = BufWriter::new(out);
    let document =
        Document { results: Entries { inputs, results }, receipts: Receipts { results } };
    serde_json::to_writer(&mut out, &document)?;
    out.write_all(b"\n")?;
    out.flush()
}

#[derive(serde::Serialize)]
struct Document<'a> {
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
    inputs: &'a [Input],
    results: &'a Results,
}

impl Serialize for Entries<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let results = self.results;
        serializer.collect_seq(numbered(self.inputs).map(|(first, input)| {
            let verdict = results.verdict(first..first + input.grid_count());
            let output = (verdict == Verdict::Ok).then_some(Shape { first, input, results });
            Entry { input: &input.name, verdict, output }
        }))
    }
}

#[derive(serde::Serialize)]
struct Entry<'a> {
    input: &'a str,
    verdict: Verdict,
    output: Option<Shape<'a>>,
}

/// The results of one input in the shape of the input.
struct Shape<'a> {
    first: usize,
    input: &'a Input,
    results: &'a Results,
}

impl Serialize for Shape<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { first, input, results } = *self;
        match &input.body {
            Body::Grids(grids) => {
                let grids = first..first + grids.len();
                serializer.collect_seq(grids.map(|grid| Item { grid, results }))
            }
            Body::Task(Task { train, test }) => {
                let test_first = first + train.iter().map(Pair::grid_count).sum::<usize>();
                let train = Section { first, pairs: train, results };
                let test = Section { first: test_first, pairs: test, results };
                Sections { train, test }.serialize(serializer)
            }
        }
    }
}

#[derive(serde::Serialize)]
struct Sections<'a> {
    train: Section<'a>,
    test: Section<'a>,
}

struct Section<'a> {
    first: usize,
    pairs: &'a [Pair],
    results: &'a Results,
}

impl Serialize for Section<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let results = self.results;
        serializer.collect_seq(self.pairs.iter().scan(self.first, |next, pair| {
            let grid = *next;
            *next += pair.grid_count();
            let output = pair.output.is_some().then_some(Item { grid: grid + 1, results });
            Some(PairEntry { input: Item { grid, results }, output })
        }))
    }
}

#[derive(serde::Serialize)]
struct PairEntry<'a> {
    input: Item<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<Item<'a>>,
}

/// The result of one grid, decoded while it is written.
struct Item<'a> {
    grid: usize,
    results: &'a Results,
}

impl Serialize for Item<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.results.item(self.grid) {
            Ok(Ok(Output::Colors(colors))) => colors.serialize(serializer),
            Ok(Ok(Output::Grid(grid))) => serializer.collect_seq(grid.rows()),
            Ok(Ok(Output::Number(number))) => number.serialize(serializer),
            Ok(Ok(Output::Objects(objects))) => serializer.collect_seq(objects.iter().map(cells)),
            Ok(Err(error)) => ErrorEntry { error: error.into() }.serialize(serializer),
            Err(malformed) => Err(S::Error::custom(malformed)),
        }
    }
}

/// An object as a list of `[colour, [row, column]]`.
fn cells(object: &Object) -> Vec<(u8, (u8, u8))> {
    object.iter().map(|cell| (cell.color, (cell.row, cell.col))).collect()
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

#[cfg(test)]
mod tests {
    use gridpool_protocol::batch::Grid;
    use gridpool_protocol::client::JobAnswer;
    use gridpool_protocol::output::ObjectCell;
    use serde_json::{Value, json};

    use super::super::results::fixtures::{answered, failed, grid, identity};
    use super::*;

    fn document(inputs: &[Input], jobs: Vec<JobAnswer>) -> Value {
        let mut bytes = Vec::new();
        write(&mut bytes, inputs, &Results::new(jobs)).unwrap();
        assert_eq!(bytes.iter().filter(|&&byte| byte == b'\n').count(), 1);
        serde_json::from_slice(&bytes).unwrap()
    }

    fn task(name: &str, train: &[(u8, Option<u8>)], test: &[(u8, Option<u8>)]) -> Input {
        let pairs = |pairs: &[(u8, Option<u8>)]| {
            let pair = |&(input, output): &(u8, Option<u8>)| Pair {
                input: grid(input),
                output: output.map(grid),
            };
            pairs.iter().map(pair).collect()
        };
        let body = Body::Task(Task { train: pairs(train), test: pairs(test) });
        Input { name: name.to_owned(), body }
    }

    fn list(grids: Vec<Grid>) -> Input {
        Input { name: "list".to_owned(), body: Body::Grids(grids) }
    }

    #[test]
    fn a_task_keeps_its_shape_and_pairs_without_output_stay_without() {
        let inputs =
            [task("a", &[(1, Some(2)), (3, None)], &[(4, Some(5))]), task("b", &[], &[(6, None)])];
        let grids: Vec<Grid> = (1..=6).map(grid).collect();
        let document = document(&inputs, vec![identity(&grids)]);
        assert_eq!(
            document["results"],
            json!([
                {"input": "a", "verdict": "OK", "output": {
                    "train": [{"input": [[1]], "output": [[2]]}, {"input": [[3]]}],
                    "test": [{"input": [[4]], "output": [[5]]}],
                }},
                {"input": "b", "verdict": "OK", "output": {
                    "train": [],
                    "test": [{"input": [[6]]}],
                }},
            ])
        );
        assert_eq!(document["receipts"][0]["items"], 6);
        assert_eq!(document["receipts"][0]["attempts"][0]["worker"], "cpu0#1");
    }

    #[test]
    fn every_kind_of_result_has_its_own_form() {
        let of = |program: &str, answer: Output| {
            let wide = Grid::from_rows(&[[1, 0, 2]]).unwrap();
            let jobs =
                vec![answered(program, &[wide.clone(), wide.clone()], &[Some(answer), None])];
            let document = document(&[list(vec![wide.clone(), wide])], jobs);
            let output = document["results"][0]["output"].clone();
            assert_eq!(
                output[1],
                json!({"error": {"code": "BadCell", "op": "input",
                    "message": "a cell is not a colour from 0 to 9"}})
            );
            assert_eq!(document["results"][0]["verdict"], "OK");
            output[0].clone()
        };
        let turned = Grid::from_rows(&[[1], [0], [2]]).unwrap();
        assert_eq!(of("rot90", Output::Grid(turned)), json!([[1], [0], [2]]));
        assert_eq!(of("numcolors", Output::Number(3)), json!(3));
        assert_eq!(of("palette", Output::Colors(vec![8, 1, 0])), json!([8, 1, 0]));
        let cell = |color, col| ObjectCell { color, row: 0, col };
        let objects = Output::Objects(vec![vec![cell(1, 0), cell(0, 1)], vec![cell(2, 2)]]);
        assert_eq!(of("o_g(5)", objects), json!([[[1, [0, 0]], [0, [0, 1]]], [[2, [0, 2]]]]));
    }

    #[test]
    fn an_input_with_a_failed_job_is_null_with_its_worst_verdict_and_others_are_untouched() {
        let inputs = [list(vec![grid(1), grid(2)]), list(vec![grid(3)]), list(vec![grid(4)])];
        let jobs = vec![identity(&[grid(1)]), failed(Verdict::DeviceLost, 2), identity(&[grid(4)])];
        let document = document(&inputs, jobs);
        assert_eq!(
            document["results"],
            json!([
                {"input": "list", "verdict": "DEVICE_LOST", "output": null},
                {"input": "list", "verdict": "DEVICE_LOST", "output": null},
                {"input": "list", "verdict": "OK", "output": [[[4]]]},
            ])
        );
        assert_eq!(document["receipts"].as_array().unwrap().len(), 3);
    }

    #[test]
    fn a_result_that_is_missing_is_an_error_and_never_an_empty_result() {
        let mut out = Vec::new();
        let inputs = [list(vec![grid(1), grid(2)])];
        let error = write(&mut out, &inputs, &Results::new(vec![identity(&[grid(1)])]));
        assert_eq!(error.unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
