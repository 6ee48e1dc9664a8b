//! A result as one line, in the format of `tests/data/dsl.py`.

use super::cells::Cells;
use super::value::Value;
use super::{Failure, Item, values};
use gridpool_protocol::program::Program;

/// The line of `program`'s result for `item`.
#[must_use]
pub fn line(program: &Program, item: Item<'_>) -> String {
    let values: Result<Vec<Value>, Failure> = values(program, item).into_iter().collect();
    match values {
        Err(Failure { code, step: None }) => format!("error {} input", code.name()),
        Err(Failure { code, step: Some(step) }) => format!("error {} {step}", code.name()),
        Ok(values) if program.gives().tuple.is_some() => {
            let elements: Vec<String> = values.iter().map(value).collect();
            format!("({})", elements.join(" | "))
        }
        Ok(values) => value(&values[0]),
    }
}

fn value(value: &Value) -> String {
    let (kind, text) = match value {
        Value::Colors(colors) => ("colors", digits(colors)),
        Value::Flag(flag) => ("flag", flag.to_string()),
        Value::Grid(cells) => ("grid", rows(cells)),
        Value::Number(number) => ("number", number.to_string()),
        Value::Object(cells) => ("object", object(cells)),
        Value::Objects(objects) => {
            ("objects", objects.iter().map(object).collect::<Vec<_>>().join(";"))
        }
        Value::Patch(cells) => {
            let places = cells.keys().map(|(row, col)| format!("{row},{col}"));
            ("patch", places.collect::<Vec<_>>().join(" "))
        }
        Value::Vector((row, col)) => ("vector", format!("{row},{col}")),
    };
    format!("{kind} {text}").trim_end().to_owned()
}

fn digits(colors: &[u8]) -> String {
    colors.iter().map(u8::to_string).collect()
}

fn rows(cells: &Cells) -> String {
    let mut text = String::new();
    for (&(row, col), color) in cells {
        if col == 0 && row > 0 {
            text.push('/');
        }
        text += &color.to_string();
    }
    text
}

fn object(cells: &Cells) -> String {
    let cells = cells.iter().map(|((row, col), color)| format!("{color}@{row},{col}"));
    cells.collect::<Vec<_>>().join(" ")
}
