//! The expected document of a command for an input, item by item in the input's shape.

use std::fs;
use std::path::Path;

use gridpool_protocol::batch::{Grid, GridBatch};
use gridpool_protocol::output::{ItemError, Object, ObjectCell, Output, Outputs};
use gridpool_protocol::program::Program;
use gridpool_protocol::solver::Literal;
use gridpool_tests::oracle::{self, Failure, tasks};
use serde_json::{Value, json};

/// One item of an input.
#[derive(Debug)]
pub(crate) enum Item {
    Grid(Grid),
    Pair(Grid, Option<Grid>),
}

/// A file as JSON.
pub(crate) fn read(path: &Path) -> Value {
    let text = fs::read_to_string(path).expect("an input");
    serde_json::from_str(&text).expect("JSON")
}

/// The entry of an input with the verdict OK.
pub(crate) fn entry(name: &str, output: Value) -> Value {
    json!({"input": name, "verdict": "OK", "output": output})
}

/// The oracle's results of `program` for a task, a list of grids or a list of pairs.
pub(crate) fn by_oracle(program: &Program, input: &Value) -> Value {
    let results = items(program, input).into_iter().map(|item| match &item {
        Item::Grid(grid) => says(program, grid),
        Item::Pair(input, output) => says(program, (input, output.as_ref())),
    });
    placed(program, input, &mut results.collect::<Vec<_>>().into_iter())
}

/// Every item of an input that `program` takes.
pub(crate) fn items(program: &Program, input: &Value) -> Vec<Item> {
    let side = |pair: &Value, key: &str| pair.get(key).map(tasks::grid);
    let elements: Vec<&Value> = match input {
        Value::Array(list) => list.iter().collect(),
        task => {
            ["train", "test"].iter().filter_map(|part| task[part].as_array()).flatten().collect()
        }
    };
    let items = elements.into_iter().flat_map(|element| {
        if element.is_array() {
            return vec![Item::Grid(tasks::grid(element))];
        }
        let (input, output) = (tasks::grid(&element["input"]), side(element, "output"));
        if takes_pairs(program) {
            return vec![Item::Pair(input, output)];
        }
        [Some(input), output].into_iter().flatten().map(Item::Grid).collect()
    });
    items.collect()
}

/// The items of an input, or of many, as one batch.
pub(crate) fn batch(program: &Program, items: &[Item]) -> GridBatch {
    let mut batch = GridBatch::of_items(program.grids_per_item());
    for item in items {
        let pushed = match item {
            Item::Grid(grid) => batch.push(grid),
            Item::Pair(input, output) => batch.push_pair(input, output.as_ref()),
        };
        pushed.expect("the batch is within the limits");
    }
    batch
}

/// The results of an input's items in their places in the document.
pub(crate) fn placed(
    program: &Program,
    input: &Value,
    results: &mut impl Iterator<Item = Value>,
) -> Value {
    let mut next = || results.next().expect("a result for each item");
    let mut element = |element: &Value| {
        if element.is_array() || takes_pairs(program) {
            return next();
        }
        let mut pair = json!({"input": next()});
        if element.get("output").is_some() {
            pair["output"] = next();
        }
        pair
    };
    match input {
        Value::Array(list) => list.iter().map(element).collect(),
        task => {
            let mut part = |key: &str| -> Value {
                task[key].as_array().into_iter().flatten().map(&mut element).collect()
            };
            let train = part("train");
            json!({"train": train, "test": part("test")})
        }
    }
}

fn takes_pairs(program: &Program) -> bool {
    program.takes().tuple.is_some()
}

/// The oracle's result of one item.
pub(crate) fn says<'a>(program: &Program, item: impl Into<oracle::Item<'a>>) -> Value {
    match oracle::run(program, item) {
        Ok(output) => shown(&output),
        Err(Failure { code, step }) => {
            let op =
                step.map_or_else(|| "input".to_owned(), |step| program.steps()[step].to_string());
            json!({"error": {"code": code.name(), "op": op, "message": code.message()}})
        }
    }
}

/// Item `item` of a job's results.
pub(crate) fn item(outputs: &Outputs, item: usize) -> Value {
    match outputs.item(item).expect("the result is well formed") {
        Ok(output) => shown(&output),
        Err(ItemError { code, op, message }) => {
            json!({"error": {"code": code.name(), "op": op, "message": message}})
        }
    }
}

/// A result as the document shows it.
fn shown(output: &Output) -> Value {
    let object = |object: &Object| -> Value {
        object.iter().map(|cell: &ObjectCell| json!([cell.color, [cell.row, cell.col]])).collect()
    };
    match output {
        Output::Colors(colors) => json!(colors),
        Output::Flag(flag) => json!(flag),
        Output::Grid(grid) => json!(grid.rows().collect::<Vec<_>>()),
        Output::Number(number) => json!(number),
        Output::Object(cells) => object(cells),
        Output::Objects(objects) => objects.iter().map(object).collect(),
        Output::Patch(places) => places.iter().map(|place| json!([place.row, place.col])).collect(),
        Output::Tuple(values) => values.iter().map(shown).collect(),
        Output::Value(kind, value) => json!(Literal(kind, value).to_string()),
        Output::Vector { row, col } => json!([row, col]),
    }
}
