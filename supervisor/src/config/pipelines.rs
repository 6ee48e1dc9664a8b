//! Pipelines: parses `[[pipeline]]`, and finds the models that steps name.
//!
//! Owns the grammar of steps and wires. May not read a model.

use std::collections::BTreeMap;
use std::path::Path;

use gridpool_protocol::limits::{GRID_CELLS_MAX, SIDE_MAX};
use gridpool_protocol::near;
use gridpool_protocol::tensor::options::{ModelPlan, OptionsError};
use gridpool_protocol::tensor::pipeline::{Part, Pipeline, Step, StepBody, StepModel, StepProgram};
use toml::{Table, Value};

use super::models::{self, FieldError, Noun};
use super::origins::{Origin, Origins};
use super::{ConfigError, Named, file};
use crate::programs::program_in;

/// The keys of a step.
const STEP: [&str; 6] = ["name", "model", "program", "result", "sha256", "inputs"];

/// Reads one `[[pipeline]]` of `file`. A path in it is relative to `folder`.
///
/// # Errors
/// Every wrong field, at least one.
pub(super) fn parse_table(
    mut table: Table,
    file: &Path,
    folder: &Path,
) -> Result<ModelPlan, Vec<FieldError>> {
    let mut errors = Vec::new();
    let name = table.get("name").and_then(Value::as_str);
    let of = name.map_or_else(|| "a pipeline".to_owned(), |name| format!("the pipeline `{name}`"));
    if table.contains_key("path") {
        let reason = format!("{of} has no `path`: each of its steps has a `model`");
        errors.push(FieldError { field: Some("path".to_owned()), step: None, reason });
    }
    let mut take = |key: &str, needs: &str| {
        let value = table.remove(key);
        if value.is_none() {
            let reason = format!("{of} needs `{key}`, {needs}");
            errors.push(FieldError { field: None, step: None, reason });
        }
        value
    };
    let inputs = take("inputs", "a list of names, such as [\"image\"]");
    let steps = take("steps", "a list of { name = …, model = …, inputs = { … } }");
    let outputs =
        take("outputs", "names with outputs of steps, such as { boxes = \"find.boxes\" }");
    let mut wrong = |key: &str, reason: String| {
        errors.push(FieldError { field: Some(key.to_owned()), step: None, reason });
    };
    let mut pipeline = Pipeline::default();
    match inputs.map(names) {
        Some(Some(names)) => pipeline.inputs = names,
        Some(None) => {
            wrong("inputs", format!("`inputs` of {of} needs a list of names, such as [\"image\"]"));
        }
        None => {}
    }
    match outputs.map(wires) {
        Some(Some(wires)) => pipeline.outputs = wires,
        Some(None) => wrong(
            "outputs",
            format!(
                "`outputs` of {of} needs a wire for each name, such as {{ boxes = \"find.boxes\" }}"
            ),
        ),
        None => {}
    }
    match steps {
        Some(Value::Array(steps)) => {
            for (at, one) in steps.into_iter().enumerate() {
                match step(one, at, folder) {
                    Ok(step) => pipeline.steps.push(step),
                    Err(reason) => errors.push(FieldError {
                        field: Some("steps".to_owned()),
                        step: Some(at),
                        reason: format!("{of}: {reason}"),
                    }),
                }
            }
        }
        Some(_) => wrong("steps", format!("`steps` of {of} needs a list of tables")),
        None => {}
    }
    // The rest is as for a model. The path is put back below, since it need not be UTF-8.
    table.insert("path".to_owned(), Value::String(".".to_owned()));
    let plan = models::parse_named(Noun::Pipeline, table, folder);
    let (Ok(mut plan), true) = (plan.map_err(|more| errors.extend(more)), errors.is_empty()) else {
        return Err(errors);
    };
    plan.path = file.to_owned();
    plan.options.pipeline = Some(Box::new(pipeline));
    plan.check().map_err(|error| {
        let (field, step) = place_of(&error, &plan);
        let reason = format!("pipeline `{}`: {error}", plan.name);
        vec![FieldError { field: field.map(str::to_owned), step, reason }]
    })?;
    Ok(plan)
}

/// The key that an error is at, and the step.
fn place_of(error: &OptionsError, plan: &ModelPlan) -> (Option<&'static str>, Option<usize>) {
    let OptionsError::Pipeline(error) = error else {
        return (models::field_of(error, &plan.options), None);
    };
    match error.part() {
        Part::Inputs => (Some("inputs"), None),
        Part::Outputs => (Some("outputs"), None),
        Part::Steps => (Some("steps"), None),
        Part::Step(name) => {
            let pipeline = plan.options.pipeline.as_ref();
            let at = pipeline.and_then(|own| own.steps.iter().rposition(|step| step.name == name));
            (Some("steps"), at)
        }
    }
}

fn names(value: Value) -> Option<Vec<String>> {
    let Value::Array(list) = value else { return None };
    list.into_iter().map(text).collect()
}

fn wires(value: Value) -> Option<BTreeMap<String, String>> {
    let Value::Table(table) = value else { return None };
    table.into_iter().map(|(name, wire)| Some((name, text(wire)?))).collect()
}

fn text(value: Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text),
        Value::Integer(_)
        | Value::Float(_)
        | Value::Boolean(_)
        | Value::Datetime(_)
        | Value::Array(_)
        | Value::Table(_) => None,
    }
}

/// Reads a step, the one at this place of the list.
fn step(value: Value, at: usize, folder: &Path) -> Result<Step, String> {
    let Value::Table(mut table) = value else {
        return Err(format!(
            "step {} needs a table: {{ name = …, model = …, inputs = {{ … }} }}",
            at + 1
        ));
    };
    let name = table.remove("name").and_then(text);
    // First, since a misspelt key is missing under its right name.
    if let Some(key) = table.keys().find(|key| !STEP.contains(&key.as_str())) {
        let of =
            name.map_or_else(|| format!("step {}", at + 1), |name| format!("the step `{name}`"));
        let close = near::suggestion(key, &STEP);
        return Err(format!("{of} has no field `{key}`; {close}"));
    }
    let name = name.ok_or_else(|| format!("step {} needs a `name` in quotes", at + 1))?;
    let inputs = table.remove("inputs").and_then(wires).ok_or_else(|| {
        format!(
            "the step `{name}` needs `inputs` with a wire for each of its inputs, such as {{ x = \"image\", y = \
             \"step.tensor\" }}"
        )
    })?;
    let body = body(&name, &mut table, folder)?;
    if table.contains_key("sha256") {
        return Err(format!("the step `{name}` has no field `sha256`: only a `model` has one"));
    }
    if table.contains_key("result") {
        return Err(format!("the step `{name}` has no field `result`: only a `program` has one"));
    }
    Ok(Step { name, body, inputs })
}

/// What a step of this name runs.
fn body(name: &str, table: &mut Table, folder: &Path) -> Result<StepBody, String> {
    let needs = || {
        format!(
            "the step `{name}` needs a `model` in quotes, the name of one or an ONNX file, or a `program` over grids, \
             such as \"rot90\""
        )
    };
    let mut named = |key: &str| {
        let value = table.remove(key);
        value.map(|value| text(value).filter(|text| !text.is_empty()).ok_or_else(needs)).transpose()
    };
    let model = match (named("model")?, named("program")?) {
        (Some(_), Some(_)) => {
            return Err(format!("the step `{name}` has a `model` and a `program`: leave one out"));
        }
        (None, Some(program)) => {
            let text = program_in(&program, folder);
            let text = text.map_err(|error| format!("the step `{name}`: {error}"))?;
            let result = table.remove("result").map(|value| {
                size(&value).ok_or_else(|| {
                    format!(
                        "`result` of the step `{name}` needs the rows and columns that its results fit into, \
                         1 to {SIDE_MAX} each and at most {GRID_CELLS_MAX} cells, such as [30, 30]"
                    )
                })
            });
            return Ok(StepBody::Program(StepProgram { text, result: result.transpose()? }));
        }
        (Some(model), None) => model,
        (None, None) => return Err(needs()),
    };
    let sha256 = match table.remove("sha256") {
        None => None,
        Some(value) => Some(text(value).ok_or_else(|| {
            format!("`sha256` of the step `{name}` needs the 64 digits in quotes that `sha256sum FILE` prints")
        })?),
    };
    let mut model = StepModel { model, sha256, ..StepModel::default() };
    if model.names_file() {
        model.path = folder.join(&model.model);
    }
    Ok(StepBody::Model(model))
}

/// Rows and columns.
fn size(value: &Value) -> Option<[u8; 2]> {
    let sides = value.as_array()?.iter();
    let sides = sides.map(|side| side.as_integer().and_then(|side| u8::try_from(side).ok()));
    sides.collect::<Option<Vec<_>>>()?.try_into().ok()
}

/// Finds the file of each step that names a model of the settings.
///
/// # Errors
/// [`ConfigError`] at the line of the step.
pub(super) fn find_models(models: &mut [ModelPlan], origins: &Origins) -> Result<(), ConfigError> {
    let known = plain(models);
    let names: Vec<_> = models.iter().map(|plan| plan.name.clone()).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    for plan in models {
        let Some(pipeline) = &mut plan.options.pipeline else { continue };
        let found = pipeline.find_models(&names, |name| {
            let plan = known.iter().find(|plan| plan.name == name)?;
            Some((&plan.path, &plan.options.sha256))
        });
        found.map_err(|error| {
            let reason = format!("pipeline `{}`: {error}", plan.name);
            let step = if let Part::Step(step) = error.part() { step } else { "" };
            let origin = origins.of_step(&plan.name, step);
            origin
                .wrong_in_file(&reason)
                .unwrap_or_else(|| ConfigError::Unreadable { file: plan.path.clone(), reason })
        })?;
    }
    Ok(())
}

/// The models that are no pipelines.
fn plain(models: &[ModelPlan]) -> Vec<ModelPlan> {
    models.iter().filter(|plan| plan.options.pipeline.is_none()).cloned().collect()
}

/// Reads the one `[[pipeline]]` of a file. A step may name a `[[model]]` of that file; other names are for the pool
/// to find. For each of those: the name, and what the file has instead.
///
/// # Errors
/// A sentence with the error and what to write.
pub fn parse_pipeline(path: &Path) -> Result<(ModelPlan, Vec<(String, String)>), String> {
    let path = std::path::absolute(path)
        .map_err(|error| format!("{}: its folder is unknown: {error}", path.display()))?;
    let settings = file::read(&path, Named::MustBeThere)
        .map_err(|errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))?;
    let known = plain(&settings.models);
    let is_pipeline = |plan: &ModelPlan| plan.options.pipeline.is_some();
    let mut pipelines: Vec<_> = settings.models.into_iter().filter(is_pipeline).collect();
    let count = pipelines.len();
    let (Some(mut plan), 1) = (pipelines.pop(), count) else {
        return Err(format!("{} has {count} pipelines: write one [[pipeline]]", path.display()));
    };
    let steps = plan.options.pipeline.iter_mut().flat_map(|pipeline| &mut pipeline.steps);
    let names: Vec<_> = known.iter().map(|own| own.name.as_str()).collect();
    let mut others = Vec::new();
    for Step { name, body, .. } in steps {
        let StepBody::Model(model) = body else { continue };
        if !model.path.as_os_str().is_empty() {
            continue;
        }
        if let Some(own) = known.iter().find(|own| own.name == model.model) {
            model.path.clone_from(&own.path);
            model.sha256 = model.sha256.take().or_else(|| own.options.sha256.clone());
        } else if let Origin::File { file, line } = settings.origins.of_step(&plan.name, name) {
            let (file, close) = (file.display(), near::suggestion(&model.model, &names));
            let says = format!(
                "{file}, line {line}: the file has no [[model]] `{}`; {close}",
                model.model
            );
            others.push((model.model.clone(), says));
        }
    }
    Ok((plan, others))
}

#[cfg(test)]
mod tests;
