//! `gridpool models` for people: a row for each model of each device.

use gridpool_protocol::message::DeviceModel;
use gridpool_protocol::tensor::TensorSpec;
use gridpool_protocol::tensor::model::ModelState;
use serde::Serialize;

use crate::cli::text;

/// The document of `--json`.
#[derive(Debug, Serialize)]
pub(super) struct Document<'a> {
    pub(super) models: &'a [DeviceModel],
}

const NONE: &str = "No worker has a model yet. Those that the pool was started with are being \
                    loaded; if there are none, `gridpool model load NAME=PATH` gives it one.\n";

/// The table, or a sentence.
pub(super) fn table(rows: &[DeviceModel], columns: usize) -> String {
    if rows.is_empty() {
        return NONE.to_owned();
    }
    let header = ["MODEL", "WORKER", "STATE", "CONTEXTS", "BATCH", "WHAT"].map(str::to_owned);
    let rows: Vec<_> = std::iter::once(header).chain(rows.iter().map(row)).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths = [width(0), width(1), width(2), width(3), width(4)];
    text::table(&rows, &widths, columns)
}

fn row(DeviceModel { worker, model }: &DeviceModel) -> [String; 6] {
    let list =
        |specs: &[TensorSpec]| specs.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let (contexts, batch, what) = match model.state {
        ModelState::Ready => (
            model.contexts.to_string(),
            model.max_batch.to_string(),
            format!("{} -> {}", list(&model.inputs), list(&model.outputs)),
        ),
        ModelState::Unavailable => ("-".to_owned(), "-".to_owned(), model.reason.clone()),
    };
    [model.name.clone(), worker.clone(), model.state.name().to_owned(), contexts, batch, what]
}

#[cfg(test)]
mod tests {
    use gridpool_protocol::tensor::DataType;

    use super::super::fit::tests::row;
    use super::*;

    #[test]
    fn a_row_says_what_a_model_takes_and_gives_or_why_it_cannot_be_asked() {
        let rows = [row("mlp", &[("x", DataType::Fp32, &[-1, 16])], ""), row("a", &[], "no file")];
        let text = table(&rows, 100);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(
            lines,
            [
                "MODEL  WORKER  STATE        CONTEXTS  BATCH  WHAT",
                "mlp    cpu0#1  READY        2         32     x FP32 [?, 16] -> y FP32 [?, 8]",
                "a      cpu0#1  UNAVAILABLE  -         -      no file",
            ]
        );
        assert_eq!(table(&[], 100), NONE);
        let json = serde_json::to_value(Document { models: &rows }).unwrap();
        assert_eq!(json["models"][0]["model"]["inputs"][0]["datatype"], "FP32");
        assert_eq!(json["models"][1]["model"]["reason"], "no file");
    }
}
