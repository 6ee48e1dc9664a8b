//! `[[model]]` and `[[pipeline]]` of the config file.

use std::collections::BTreeMap;
use std::ops::Range;

use gridpool_core::config::MODELS_MAX;
use gridpool_protocol::tensor::options::ModelPlan;
use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeValue, ValueDeserializer};

use super::{FileParser, Misfit, line};
use crate::config::origins::Origin;
use crate::config::{models, pipelines};

impl FileParser<'_> {
    /// Reads a `[[model]]`.
    pub(super) fn take_in_model(&mut self, table: &Spanned<DeValue<'_>>) {
        let own = toml::Table::deserialize(ValueDeserializer::from(table.clone()));
        let (Ok(own), Some(spans)) = (own, table.get_ref().as_table()) else {
            let reason = "a model is a table: [[model]]".to_owned();
            return self.misfits.push(Misfit { at: table.span(), reason });
        };
        let keys = spans.iter().map(|(key, _)| (key.get_ref().as_ref(), key.span()));
        let keys: BTreeMap<&str, Range<usize>> = keys.collect();
        let text = |key: &str| own.get(key).and_then(toml::Value::as_str).map(str::to_owned);
        if let (Some(path), Some(at)) = (text("path"), keys.get("path")) {
            let remedy =
                "name the model's ONNX file; a path is relative to the folder of this file";
            self.names_file(&self.folder.join(path), at, remedy);
        }
        let read = models::parse_table(own.clone(), self.folder);
        self.add_model(table, &own, keys, &[], read);
    }

    /// Reads a `[[pipeline]]`.
    pub(super) fn take_in_pipeline(&mut self, table: &Spanned<DeValue<'_>>) {
        let own = toml::Table::deserialize(ValueDeserializer::from(table.clone()));
        let (Ok(own), Some(spans)) = (own, table.get_ref().as_table()) else {
            let reason = "a pipeline is a table: [[pipeline]]".to_owned();
            return self.misfits.push(Misfit { at: table.span(), reason });
        };
        let keys = spans.iter().map(|(key, _)| (key.get_ref().as_ref(), key.span()));
        let keys: BTreeMap<&str, Range<usize>> = keys.collect();
        let lines = spans.iter().find(|(key, _)| key.get_ref() == "steps");
        let lines = lines.and_then(|(_, steps)| steps.get_ref().as_array());
        let lines: Vec<_> = lines.into_iter().flatten().map(Spanned::span).collect();
        let read = pipelines::parse_table(own.clone(), self.file, self.folder);
        let steps = read.iter().flat_map(|plan| &plan.options.pipeline);
        for (at, step) in steps.flat_map(|pipeline| &pipeline.steps).enumerate() {
            let Some(model) = step.model().filter(|model| model.names_file()) else { continue };
            let at = lines.get(at).cloned().unwrap_or_else(|| table.span());
            let remedy = format!("name the ONNX file of the step `{}`", step.name);
            self.names_file(&model.path, &at, &remedy);
        }
        if let Ok(plan) = &read {
            let steps = plan.options.pipeline.iter().flat_map(|pipeline| &pipeline.steps);
            for (step, at) in steps.zip(&lines) {
                let (file, line) = (self.file.to_owned(), line(self.text.as_bytes(), at));
                self.settings.origins.set_step(&plan.name, &step.name, Origin::File { file, line });
            }
        }
        self.add_model(table, &own, keys, &lines, read);
    }

    /// Adds a model or pipeline that was read, with the places of its keys and of its steps.
    fn add_model(
        &mut self,
        table: &Spanned<DeValue<'_>>,
        own: &toml::Table,
        keys: BTreeMap<&str, Range<usize>>,
        steps: &[Range<usize>],
        read: Result<ModelPlan, Vec<models::FieldError>>,
    ) {
        let name = own.get("name").and_then(toml::Value::as_str).map(str::to_owned);
        if let Some(name) = name.as_ref().filter(|name| self.models.contains(name)) {
            let reason = format!("the model `{name}` is there twice: keep one");
            self.misfits.push(Misfit { at: table.span(), reason });
        }
        self.models.extend(name);
        let model = match read {
            Ok(model) => model,
            Err(errors) => {
                let misfits =
                    errors.into_iter().map(|models::FieldError { field, step, reason }| {
                        let step = step.and_then(|step| steps.get(step));
                        let at = step.or_else(|| field.as_deref().and_then(|key| keys.get(key)));
                        Misfit { at: at.cloned().unwrap_or_else(|| table.span()), reason }
                    });
                return self.misfits.extend(misfits);
            }
        };
        if self.settings.models.len() == MODELS_MAX {
            let reason = format!("one model too many: a pool has at most {MODELS_MAX}");
            return self.misfits.push(Misfit { at: table.span(), reason });
        }
        for (key, at) in keys {
            self.came_from(format!("model.{}.{key}", model.name), &at);
        }
        self.settings.models.push(model);
    }
}
