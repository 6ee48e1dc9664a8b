//! One answer of a model, for people and as JSON.

use std::io::{self, Write};

use gridpool_protocol::client::{InferAnswer, InferOutputs};
use gridpool_protocol::receipt::Receipt;
use serde::ser::{SerializeSeq, SerializeStruct};
use serde::{Serialize, Serializer};

use super::value;

/// How many elements of each output are shown to people.
const SHOWN_MAX: usize = 8;

/// Writes an output to a line, and how it ran. Of a verdict other than OK the complaint says all.
pub(super) fn write(out: &mut dyn Write, model: &str, answer: &InferAnswer) -> io::Result<()> {
    let Some(outputs) = &answer.outputs else { return Ok(()) };
    for (at, tensor) in outputs.tensors().iter().enumerate() {
        write!(out, "{tensor}:")?;
        value::each(outputs, at, SHOWN_MAX, |value| write!(out, " {value}"))?;
        writeln!(out, "{}", if tensor.elements() > SHOWN_MAX { " …" } else { "" })?;
    }
    writeln!(out, "{}", summary(model, &answer.receipt))
}

/// One line about where it ran and how long.
fn summary(model: &str, receipt: &Receipt) -> String {
    let ms = |us: f64| us / 1e3;
    #[expect(clippy::cast_precision_loss, reason = "a time that is rounded for people")]
    let total = ms(receipt.total_us as f64);
    let mut line = format!("{model}: {} in {total:.1} ms", receipt.verdict);
    if let Some(attempt) = receipt.attempts.last() {
        line += &format!(" on {} ({})", attempt.worker, attempt.device.name);
        if let Some(report) = &attempt.infer {
            let runs = match report.runs {
                1 => "one run".to_owned(),
                runs => format!("{runs} runs"),
            };
            line += &format!(", {runs} of {:.1} ms in all", ms(report.device_us));
        }
    }
    line
}

/// Writes the document of `--json`, with or without the data of outputs.
pub(super) fn write_json(
    out: &mut dyn Write,
    answer: &InferAnswer,
    with_data: bool,
) -> io::Result<()> {
    let outputs = answer.outputs.as_ref().map(|outputs| Rows { outputs, with_data });
    serde_json::to_writer(&mut *out, &Document { outputs, receipt: &answer.receipt })?;
    writeln!(out)
}

#[derive(Serialize)]
struct Document<'a> {
    /// Null if the verdict is not OK.
    outputs: Option<Rows<'a>>,
    receipt: &'a Receipt,
}

/// All outputs.
struct Rows<'a> {
    outputs: &'a InferOutputs,
    with_data: bool,
}

/// One output.
struct Row<'a> {
    outputs: &'a InferOutputs,
    tensor: usize,
    with_data: bool,
}

/// The data of one output, in a flat list.
struct Data<'a>(&'a InferOutputs, usize);

impl Serialize for Rows<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let &Self { outputs, with_data } = self;
        let tensors = 0..outputs.tensors().len();
        serializer.collect_seq(tensors.map(|tensor| Row { outputs, tensor, with_data }))
    }
}

impl Serialize for Row<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let tensor = &self.outputs.tensors()[self.tensor];
        let mut row = serializer.serialize_struct("Row", 4)?;
        row.serialize_field("name", tensor.name())?;
        row.serialize_field("datatype", tensor.datatype().name())?;
        row.serialize_field("shape", tensor.shape())?;
        if self.with_data {
            row.serialize_field("data", &Data(self.outputs, self.tensor))?;
        }
        row.end()
    }
}

impl Serialize for Data<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let &Self(outputs, tensor) = self;
        let count = outputs.tensors()[tensor].elements();
        let mut list = serializer.serialize_seq(Some(count))?;
        value::each(outputs, tensor, count, |value| list.serialize_element(&value))?;
        list.end()
    }
}

#[cfg(test)]
mod tests;
