//! One answer of a model, for people and as JSON.

use std::io::{self, Write};

use gridpool_client::{Answer, TensorOutputs};
use gridpool_protocol::receipt::Receipt;
use serde::ser::{SerializeSeq, SerializeStruct};
use serde::{Serialize, Serializer};

use super::value;

/// Most elements of each output to show to people.
const SHOWN_MAX: usize = 8;

/// Writes each output on a line, then where it ran. For another verdict than OK the error says it all.
pub(super) fn write(
    out: &mut dyn Write,
    model: &str,
    answer: &Answer<TensorOutputs>,
) -> io::Result<()> {
    let Some(outputs) = answer.outputs() else { return Ok(()) };
    for (at, tensor) in outputs.tensors().iter().enumerate() {
        write!(out, "{tensor}:")?;
        value::each(outputs, at, SHOWN_MAX, |value| write!(out, " {value}"))?;
        writeln!(out, "{}", if tensor.elements() > SHOWN_MAX { " …" } else { "" })?;
    }
    writeln!(out, "{}", summary(model, &answer.receipt))
}

/// A line with the worker and the time.
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

/// Writes the JSON document, with or without the data of outputs.
pub(super) fn write_json(
    out: &mut dyn Write,
    answer: &Answer<TensorOutputs>,
    with_data: bool,
) -> io::Result<()> {
    let outputs = answer.outputs().map(|outputs| OutputRows { outputs, with_data });
    serde_json::to_writer(&mut *out, &AnswerDocument { outputs, receipt: &answer.receipt })?;
    writeln!(out)
}

#[derive(Serialize)]
struct AnswerDocument<'a> {
    /// Null if the verdict is not OK.
    outputs: Option<OutputRows<'a>>,
    receipt: &'a Receipt,
}

/// All outputs.
struct OutputRows<'a> {
    outputs: &'a TensorOutputs,
    with_data: bool,
}

/// One output.
struct Row<'a> {
    outputs: &'a TensorOutputs,
    tensor: usize,
    with_data: bool,
}

/// The data of one output as a flat list.
struct Data<'a>(&'a TensorOutputs, usize);

impl Serialize for OutputRows<'_> {
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
        value::each(outputs, tensor, count, |value| list.serialize_element(&value::Json(value)))?;
        list.end()
    }
}

#[cfg(test)]
mod tests;
