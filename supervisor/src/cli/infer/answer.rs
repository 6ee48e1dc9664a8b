//! One answer of a model, for people and as JSON.

use std::io::{self, Write};

use gridpool_client::{Answer, TensorOutputs};
use gridpool_protocol::ids::DeviceKind;
use gridpool_protocol::receipt::Receipt;
use gridpool_protocol::tensor::DataType;
use gridpool_protocol::tensor::model::StepReport;
use serde::ser::SerializeSeq;
use serde::{Serialize, Serializer};

use super::value;
use crate::cli::document::List;

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
        if tensor.datatype() == DataType::Bytes {
            let texts = outputs.texts(tensor.name()).map_err(io::Error::other)?;
            let mut shown = texts.iter().take(SHOWN_MAX);
            shown.try_for_each(|text| write!(out, " {:?}", String::from_utf8_lossy(text)))?;
        }
        value::each(outputs, at, SHOWN_MAX, |value| write!(out, " {value}"))?;
        writeln!(out, "{}", if tensor.elements() > SHOWN_MAX { " …" } else { "" })?;
    }
    writeln!(out, "{}", summary(model, &answer.receipt))?;
    let Some(attempt) = answer.receipt.attempts.last() else { return Ok(()) };
    let steps = attempt.infer.iter().flat_map(|report| &report.steps);
    steps.into_iter().try_for_each(|step| {
        let StepReport { name, sha256: _, device_us, device_bytes, host_bytes } = step;
        let ms = device_us / 1e3;
        let taken = match attempt.device.kind {
            DeviceKind::Cpu => format!("took {device_bytes} bytes of other steps"),
            DeviceKind::Gpu => {
                format!("took {device_bytes} bytes on the device, {host_bytes} over the host")
            }
        };
        writeln!(out, "  step {name}: {ms:.1} ms, {taken}")
    })
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
            if report.graph_replays > 0 {
                line += &format!(", {} of CUDA graphs", report.graph_replays);
            }
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
    let outputs = answer.outputs().map(|outputs| {
        List(move || {
            outputs.tensors().iter().enumerate().map(move |(tensor, info)| Row {
                name: info.name(),
                datatype: info.datatype(),
                shape: info.shape(),
                data: with_data.then_some(Data(outputs, tensor)),
            })
        })
    });
    serde_json::to_writer(&mut *out, &AnswerDocument { outputs, receipt: &answer.receipt })?;
    writeln!(out)
}

#[derive(Serialize)]
struct AnswerDocument<'a, O> {
    /// Null if the verdict is not OK.
    outputs: Option<O>,
    receipt: &'a Receipt,
}

/// One output.
#[derive(Serialize)]
struct Row<'a> {
    name: &'a str,
    datatype: DataType,
    shape: &'a [u64],
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<Data<'a>>,
}

/// The data of one output as a flat list.
struct Data<'a>(&'a TensorOutputs, usize);

impl Serialize for Data<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let &Self(outputs, tensor) = self;
        let count = outputs.tensors()[tensor].elements();
        let mut list = serializer.serialize_seq(Some(count))?;
        let info = &outputs.tensors()[tensor];
        if info.datatype() == DataType::Bytes {
            let texts = outputs.texts(info.name()).map_err(serde::ser::Error::custom)?;
            texts.iter().try_for_each(|text| list.serialize_element(&value::Text(text)))?;
        }
        value::each(outputs, tensor, count, |value| list.serialize_element(&value::Json(value)))?;
        list.end()
    }
}

#[cfg(test)]
mod tests;
