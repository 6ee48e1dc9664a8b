//! `gridpool models` for people: a row for each model of each device.

use std::collections::BTreeMap;

use gridpool_protocol::message::DeviceModel;
use gridpool_protocol::tensor::TensorSpec;
use gridpool_protocol::tensor::model::{ContextsMeasured, ModelState, StepInfo};
use serde::Serialize;

use crate::cli::faults::impersonal;
use crate::cli::text;

/// The JSON document.
#[derive(Debug, Serialize)]
pub(super) struct ModelsDocument<'a> {
    pub(super) models: &'a [DeviceModel],
}

/// The column with the model's inputs and outputs, or with the reason why no worker serves it.
const WHAT: usize = 5;

const NONE: &str = "No worker has a model yet. If the pool was started with models, workers are \
                    loading them; if not, load one with `gridpool model load NAME=PATH`.\n";

/// The table, or a sentence.
pub(super) fn table(rows: &[DeviceModel], columns: usize) -> String {
    if rows.is_empty() {
        return NONE.to_owned();
    }
    let choices = rows.iter().filter(|row| !row.model.contexts_measured.is_empty());
    let choices = choices.map(|DeviceModel { worker, model, .. }| {
        let measured = ContextsMeasured::list(&model.contexts_measured);
        format!("`{}` on {worker} chose its contexts by these: {measured}\n", model.name)
    });
    let chosen: String = choices.collect();
    let header = ["MODEL", "WORKER", "STATE", "CONTEXTS", "BATCH", "WHAT"].map(str::to_owned);
    // A later row with the same reason refers to the first.
    let mut said: BTreeMap<String, String> = BTreeMap::new();
    let rows = rows.iter().map(|one| {
        let DeviceModel { worker, model, .. } = one;
        let mut cells = row(one);
        let why = impersonal(worker, &model.reason);
        match said.get(&why) {
            Some(first) => cells[WHAT] = format!("as {first}"),
            None if why.is_empty() => {}
            None => {
                said.insert(why, format!("`{}` on {worker}", model.name));
            }
        }
        cells
    });
    let rows: Vec<_> = std::iter::once(header).chain(rows).collect();
    text::fitted(&rows, columns) + &chosen
}

fn row(DeviceModel { worker, model, .. }: &DeviceModel) -> [String; 6] {
    let list =
        |specs: &[TensorSpec]| specs.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let (contexts, batch, what) = match model.state {
        ModelState::Ready => (
            model.contexts.to_string(),
            model.max_batch.to_string(),
            format!("{} -> {}{}", list(&model.inputs), list(&model.outputs), steps(&model.steps)),
        ),
        ModelState::Unavailable => ("-".to_owned(), "-".to_owned(), model.reason.clone()),
    };
    [model.name.clone(), worker.clone(), model.state.name().to_owned(), contexts, batch, what]
}

/// The steps of a pipeline, in the order in which they run.
fn steps(steps: &[StepInfo]) -> String {
    match steps {
        [] => String::new(),
        steps => {
            let names: Vec<_> = steps.iter().map(|step| step.name.as_str()).collect();
            format!(" (steps {})", names.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use gridpool_protocol::tensor::DataType;

    use super::super::fit::tests::row;
    use super::*;

    #[test]
    fn a_row_has_the_models_inputs_and_outputs_or_why_no_worker_serves_it() {
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
        let mut twice = [rows[1].clone(), rows[1].clone()];
        twice[1].worker = "cpu1#1".to_owned();
        assert!(table(&twice, 100).ends_with("-      as `a` on cpu0#1\n"));
        assert_eq!(table(&[], 100), NONE);
        let mut one = rows[0].clone();
        let measured = |contexts, runs_per_minute| ContextsMeasured {
            contexts,
            runs_per_minute,
            p99_us: 12_340,
        };
        one.model.contexts_measured = vec![measured(1, 6_000), measured(2, 11_400)];
        let said = "`mlp` on cpu0#1 chose its contexts by these: 1 context: 100 runs/s, p99 12.3 ms; \
                    2 contexts: 190 runs/s, p99 12.3 ms\n";
        assert!(table(&[one], 100).ends_with(said));
        let json = serde_json::to_value(ModelsDocument { models: &rows }).unwrap();
        assert_eq!(json["models"][0]["model"]["inputs"][0]["datatype"], "FP32");
        assert_eq!(json["models"][1]["model"]["reason"], "no file");
    }
}
